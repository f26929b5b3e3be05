/* change.c: see core/change.h. Names lie in blocks that never move, so that items may point into them while more are added. */
#include "core/change.h"

#include <string.h>

struct name_block {
        struct name_block *next;
        size_t used, cap;
        char text[];
};

void change_set_init(struct change_set *s) {
        *s = (struct change_set){0};
}

static void name_blocks_free(struct name_block *b) {
        while (b) {
                struct name_block *next = b->next;
                free(b);
                b = next;
        }
}

void change_set_done(struct change_set *s) {
        name_blocks_free(s->names_);
        free(s->items);
        *s = (struct change_set){0};
}

void change_set_reset(struct change_set *s) {
        struct name_block *b = s->names_;
        if (b) {
                name_blocks_free(b->next);
                b->next = NULL;
                b->used = 0;
        }
        s->n = 0;
}

void change_set_copy(struct change_set *to, const struct change_set *from) {
        change_set_reset(to);
        for (size_t i = 0; i < from->n; i++) {
                const struct change *c = &from->items[i];
                struct change *copy = change_set_add(to, c->kind, c->ino);
                *copy = *c;
                copy->name = NULL;
                if (c->name)
                        change_set_name(to, copy, c->name, c->name_len);
        }
}

struct change *change_set_add(struct change_set *s, enum change_kind kind, uint64_t ino) {
        if (s->n == s->cap_) {
                s->cap_ = s->cap_ ? 2 * s->cap_ : 8;
                s->items = xrealloc(s->items, s->cap_ * sizeof(struct change));
        }
        struct change *c = &s->items[s->n++];
        *c = (struct change){.kind = kind, .ino = ino};
        return c;
}

void change_set_name(struct change_set *s, struct change *c, const char *name, size_t len) {
        PRE(len <= UINT16_MAX);
        struct name_block *b = s->names_;
        if (!b || b->cap - b->used < len + 1) {
                size_t cap = MAX_OF(len + 1, (size_t)1000);
                struct name_block *fresh = xmalloc(sizeof(struct name_block) + cap);
                *fresh = (struct name_block){.next = b, .cap = cap};
                s->names_ = b = fresh;
        }
        char *text = b->text + b->used;
        memcpy(text, name, len);
        text[len] = '\0';
        b->used += len + 1;
        c->name = text;
        c->name_len = (uint16_t)len;
}
