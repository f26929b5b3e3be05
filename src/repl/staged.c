/* staged.c: see staged.h. */
#include "staged.h"

static size_t staged_slot(const struct staged *s, struct hash128 digest, uint64_t size) {
        size_t i = (size_t)digest.lo & (s->cap - 1);
        while (s->slots[i] && !(blob_size(s->slots[i]) == size && hash128_equal(blob_digest(s->slots[i]), digest)))
                i = (i + 1) & (s->cap - 1);
        return i;
}

struct blob *staged_find(const struct staged *s, struct hash128 digest, uint64_t size) {
        return s->cap ? s->slots[staged_slot(s, digest, size)] : NULL;
}

static void staged_grow(struct staged *s) {
        struct staged grown = {.cap = s->cap ? 2 * s->cap : 64};
        grown.slots = xcalloc(grown.cap, sizeof(struct blob *));
        for (size_t i = 0; i < s->cap; i++)
                if (s->slots[i]) {
                        grown.slots[staged_slot(&grown, blob_digest(s->slots[i]), blob_size(s->slots[i]))] = s->slots[i];
                        grown.n++;
                }
        free(s->slots);
        *s = grown;
}

void staged_put(struct staged *s, struct blob *b) {
        if (2 * (s->n + 1) > s->cap)
                staged_grow(s);
        size_t i = staged_slot(s, blob_digest(b), blob_size(b));
        if (s->slots[i])
                return;
        s->slots[i] = blob_ref(b);
        s->n++;
}

void staged_done(struct staged *s) {
        for (size_t i = 0; i < s->cap; i++)
                blob_unref(s->slots[i]);
        free(s->slots);
        *s = (struct staged){0};
}
