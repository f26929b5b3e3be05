/* mirror.c: see mirror.h. */
#include "mirror.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct copy {
        struct tree_inode_state state;
        struct enc xattrs;
};
struct line {
        struct line *next;
        uint64_t parent, ino, cookie;
        size_t len;
        char name[LIMIT_NAME];
};
struct mirror {
        struct copy **by_ino; /* [cap] */
        uint64_t cap;
        struct line *lines;
        char settings[16][32]; /* by their place in the table */
};

static bool bad(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool bad(char *out, size_t size, const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(out, size, fmt, args); /* a cut line is good enough */
        va_end(args);
        return false;
}

static struct copy *copy_at(struct mirror *m, uint64_t ino) {
        return ino < m->cap ? m->by_ino[ino] : NULL;
}

static void copy_free(struct copy *c) {
        if (!c)
                return;
        blob_unref(c->state.content);
        enc_done(&c->xattrs);
        free(c);
}

static void load_content(struct copy *c, const struct tree_inode_state *now) {
        blob_unref(c->state.content);
        c->state.content = blob_ref(now->content);
        c->state.attr.size = now->attr.size;
        c->state.attr.blocks = now->attr.blocks;
}

static void load_attr(struct copy *c, const struct tree_inode_state *now) {
        struct tree_inode_state was = c->state;
        c->state = *now;
        c->state.content = was.content;
        c->state.attr.size = was.attr.size;
        c->state.attr.blocks = was.attr.blocks;
}

static void load_xattrs(struct copy *c, const struct tree *t) {
        enc_reset(&c->xattrs);
        (void)tree_xattrs_encode(t, c->state.attr.ino, &c->xattrs);
}

static struct copy *copy_new(struct mirror *m, const struct tree *t, const struct tree_inode_state *now) {
        uint64_t ino = now->attr.ino;
        if (ino >= m->cap) {
                uint64_t cap = 2 * ino + 16;
                m->by_ino = xrealloc(m->by_ino, cap * sizeof(struct copy *));
                memset(m->by_ino + m->cap, 0, (cap - m->cap) * sizeof(struct copy *));
                m->cap = cap;
        }
        struct copy *c = NEW(struct copy);
        enc_init(&c->xattrs, OP_HEAD_MAX);
        load_attr(c, now);
        load_content(c, now);
        load_xattrs(c, t);
        return m->by_ino[ino] = c;
}

struct mirror *mirror_new(const struct tree *t) {
        struct mirror *m = NEW(struct mirror);
        struct tree_inode_state root;
        if (tree_inode_state(t, INO_ROOT, &root) < 0)
                abort();
        (void)copy_new(m, t, &root);
        return m;
}

void mirror_free(struct mirror *m) {
        for (uint64_t i = 0; i < m->cap; i++)
                copy_free(m->by_ino[i]);
        while (m->lines) {
                struct line *next = m->lines->next;
                free(m->lines);
                m->lines = next;
        }
        free(m->by_ino);
        free(m);
}

static struct line **line_at(struct mirror *m, uint64_t parent, const char *name, size_t len) {
        struct line **p = &m->lines;
        while (*p && !((*p)->parent == parent && (*p)->len == len && memcmp((*p)->name, name, len) == 0))
                p = &(*p)->next;
        return p;
}

static bool update_entry(struct mirror *m, const struct tree *t, const struct change *c, char *what, size_t size) {
        struct line **p = line_at(m, c->parent, c->name, c->name_len), *l = *p;
        if (c->kind == CHANGE_ENTRY_DEL) {
                if (!l || l->ino != c->ino)
                        return bad(what, size, "ENTRY_DEL of \"%s\" in %ju: not there", c->name, (uintmax_t)c->parent);
                *p = l->next;
                free(l);
                return true;
        }
        uint64_t ino = 0, cookie = 0;
        if (l)
                return bad(what, size, "ENTRY_ADD of \"%s\" in %ju: already there", c->name, (uintmax_t)c->parent);
        if (tree_entry_cookie(t, c->parent, c->name, c->name_len, &ino, &cookie) < 0 || ino != c->ino)
                return bad(what, size, "ENTRY_ADD of \"%s\" in %ju: not in the tree", c->name, (uintmax_t)c->parent);
        l = NEW(struct line);
        *l = (struct line){.next = m->lines, .parent = c->parent, .ino = ino, .cookie = cookie, .len = c->name_len};
        memcpy(l->name, c->name, c->name_len);
        m->lines = l;
        return true;
}

/* Bytes outside of what the change names must be the old ones. */
static bool range_holds(const struct blob *was, const struct blob *is, const struct change *c) {
        if (c->whole)
                return c->offset == 0 && c->length == UINT64_MAX;
        uint64_t size = MIN_OF(blob_size(was), blob_size(is));
        if (c->length != UINT64_MAX && blob_size(was) != blob_size(is))
                return false;
        for (uint64_t at = 0; at < size;) {
                const uint8_t *a = NULL, *b = NULL;
                if (at == c->offset) {
                        if (c->length >= size - at)
                                return true;
                        at += c->length;
                        continue;
                }
                uint64_t n = MIN_OF(blob_span(was, at, &a), blob_span(is, at, &b));
                if (at < c->offset)
                        n = MIN_OF(n, c->offset - at);
                if (memcmp(a, b, n) != 0)
                        return false;
                at += n;
        }
        return c->offset <= size || c->length == UINT64_MAX;
}

static bool update_inode(struct mirror *m, const struct tree *t, const struct change *c, char *what, size_t size) {
        struct tree_inode_state now;
        struct copy *copy = copy_at(m, c->ino);
        if (c->kind == CHANGE_INODE_GONE) {
                if (!copy || tree_inode_state(t, c->ino, &now) != -ENOENT)
                        return bad(what, size, "INODE_GONE %ju: it is not", (uintmax_t)c->ino);
                m->by_ino[c->ino] = NULL;
                copy_free(copy);
                return true;
        }
        if (tree_inode_state(t, c->ino, &now) < 0)
                return bad(what, size, "change %d of %ju: not in the tree", c->kind, (uintmax_t)c->ino);
        if (c->is_dir != S_ISDIR(now.attr.mode) || (copy == NULL) != (c->kind == CHANGE_INODE_NEW))
                return bad(what, size, "change %d of %ju does not fit", c->kind, (uintmax_t)c->ino);
        if (c->kind == CHANGE_INODE_NEW)
                (void)copy_new(m, t, &now);
        else if (c->kind == CHANGE_ATTR)
                load_attr(copy, &now);
        else if (c->kind == CHANGE_XATTR)
                load_xattrs(copy, t);
        else if (!range_holds(copy->state.content, now.content, c))
                return bad(what, size, "content of %ju changed outside of %ju+%ju", (uintmax_t)c->ino, (uintmax_t)c->offset,
                           (uintmax_t)c->length);
        else
                load_content(copy, &now);
        return true;
}

bool mirror_update(struct mirror *m, const struct tree *t, const struct change_set *changes, char *ret_what, size_t size) {
        for (size_t i = 0; i < changes->n; i++) {
                const struct change *c = &changes->items[i];
                bool ok = true;
                if (c->kind == CHANGE_ENTRY_ADD || c->kind == CHANGE_ENTRY_DEL) {
                        ok = update_entry(m, t, c, ret_what, size);
                } else if (c->kind == CHANGE_SETTING) {
                        const struct setting_info *info = settings_find(c->name, c->name_len);
                        for (size_t j = 0; j < settings_count(); j++)
                                if (info == settings_info(j))
                                        (void)snprintf(m->settings[j], sizeof(m->settings[j]), "%ju",
                                                       (uintmax_t)settings_get(tree_settings(t), info));
                } else {
                        ok = update_inode(m, t, c, ret_what, size);
                }
                if (!ok)
                        return false;
        }
        return true;
}

static bool restore_inodes(const struct mirror *m, struct tree *t, bool odd, char *what, size_t size) {
        for (uint64_t i = 0; i < m->cap; i++) {
                const struct copy *c = m->by_ino[i];
                if (!c || (i % 2 != 0) != odd)
                        continue;
                errint_t r = tree_restore_inode(t, &c->state, c->xattrs.data, c->xattrs.len);
                if (r < 0)
                        return bad(what, size, "inode %ju cannot be restored: %d", (uintmax_t)i, r);
        }
        return true;
}

static bool restore_entries(const struct mirror *m, struct tree *t, uint64_t random, bool odd, char *what, size_t size) {
        for (const struct line *l = m->lines; l; l = l->next) {
                if ((((l->cookie * 7 + l->parent) ^ random) % 2 != 0) != odd)
                        continue;
                errint_t r = tree_restore_entry(t, l->parent, l->name, l->len, l->ino, l->cookie);
                if (r < 0)
                        return bad(what, size, "entry %ju of %ju cannot be restored: %d", (uintmax_t)l->cookie, (uintmax_t)l->parent, r);
        }
        return true;
}

struct tree *mirror_restore(const struct mirror *m, const struct tree *t, uint64_t random, char *ret_what, size_t size) {
        struct tree_usage u;
        CLEANUP(tree_freep) struct tree *r = tree_restore_begin();
        bool odd = random & 1;
        tree_hash_seed(r, random);
        tree_usage(t, &u);
        if (!restore_inodes(m, r, odd, ret_what, size) || !restore_entries(m, r, random, odd, ret_what, size) ||
            !restore_entries(m, r, random, !odd, ret_what, size) || !restore_inodes(m, r, !odd, ret_what, size))
                return NULL;
        for (size_t i = 0; i < settings_count(); i++) {
                const char *name = settings_info(i)->name;
                if (tree_restore_setting(r, name, strlen(name), m->settings[i], strlen(m->settings[i])) < 0)
                        return bad(ret_what, size, "setting %s cannot be restored", name), NULL;
        }
        if (tree_restore_end(r, u.next_ino, ret_what, size) < 0)
                return NULL;
        return steal_pointer(&r);
}
