/* ptrtab.c: see ptrtab.h. Grows by half at 7/8 full, shrinks at 1/8. */
#include "ptrtab.h"

#include <string.h>

#define CAP_MIN 8u

static void ptrtab_place(struct ptrtab *t, uint32_t hash, void *object) {
        uint32_t i = ptrtab_home(t, hash);
        while (t->slots[i])
                i = i + 1 == t->cap ? 0 : i + 1;
        t->slots[i] = object;
        t->hashes[i] = hash;
}

static void ptrtab_resize(struct ptrtab *t, uint32_t cap) {
        struct ptrtab old = *t;
        t->cap = cap;
        t->slots = xcalloc(cap, sizeof(void *));
        t->hashes = xmalloc(cap * sizeof(uint32_t));
        for (uint32_t i = 0; i < old.cap; i++)
                if (old.slots[i])
                        ptrtab_place(t, old.hashes[i], old.slots[i]);
        free(old.slots);
        free(old.hashes);
}

void ptrtab_done(struct ptrtab *t) {
        free(t->slots);
        free(t->hashes);
        *t = (struct ptrtab){0};
}

void ptrtab_insert(struct ptrtab *t, uint32_t hash, void *object) {
        PRE(t->n < UINT32_MAX / 4);
        if (t->n + 1 > t->cap - t->cap / 8)
                ptrtab_resize(t, MAX_OF(CAP_MIN, t->cap + t->cap / 2));
        ptrtab_place(t, hash, object);
        t->n++;
}

/* Closes the gap: what follows and may stand nearer to its home moves up, so that no tombstones are needed. */
void ptrtab_remove(struct ptrtab *t, uint32_t hash, const void *object) {
        PRE(t->n > 0);
        uint32_t gap = ptrtab_home(t, hash);
        while (t->slots[gap] != object) {
                PRE(t->slots[gap]);
                gap = gap + 1 == t->cap ? 0 : gap + 1;
        }
        for (uint32_t i = gap + 1 == t->cap ? 0 : gap + 1; t->slots[i]; i = i + 1 == t->cap ? 0 : i + 1) {
                uint32_t home = ptrtab_home(t, t->hashes[i]);
                bool stays = gap <= i ? gap < home && home <= i : gap < home || home <= i; /* its home lies behind the gap */
                if (stays)
                        continue;
                t->slots[gap] = t->slots[i];
                t->hashes[gap] = t->hashes[i];
                gap = i;
        }
        t->slots[gap] = NULL;
        t->n--;
        if (t->n == 0)
                ptrtab_done(t);
        else if (t->cap > CAP_MIN && t->n < t->cap / 8)
                ptrtab_resize(t, MAX_OF(CAP_MIN, t->cap / 4));
}
