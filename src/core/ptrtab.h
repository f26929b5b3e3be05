/* ptrtab.h: a hash table of pointers to objects that know their own key. Open addressing with linear probing over an array of 32-bit
 * hashes, so that a probe costs no cache miss per object; about 14 to 21 bytes per object. The order of its slots never leaves it.
 * Private to core. */
#pragma once

#include "base/base.h"

struct ptrtab {
        void **slots; /* [cap]; NULL: free */
        uint32_t *hashes;
        uint32_t cap, n;
};
typedef bool (*ptrtab_eq)(const void *object, const void *key);

void ptrtab_done(struct ptrtab *t);                                      /* frees the table, not the objects */
void ptrtab_insert(struct ptrtab *t, uint32_t hash, void *object);       /* the key must not be there yet */
void ptrtab_remove(struct ptrtab *t, uint32_t hash, const void *object); /* it must be there */

static inline uint32_t ptrtab_home(const struct ptrtab *t, uint32_t hash) {
        return (uint32_t)(((uint64_t)hash * t->cap) >> 32);
}
static inline void *ptrtab_find(const struct ptrtab *t, uint32_t hash, ptrtab_eq eq, const void *key) {
        if (t->n == 0)
                return NULL;
        for (uint32_t i = ptrtab_home(t, hash); t->slots[i]; i = i + 1 == t->cap ? 0 : i + 1)
                if (t->hashes[i] == hash && eq(t->slots[i], key))
                        return t->slots[i];
        return NULL;
}

/* Spreads a number over all bits (the finalizer of splitmix64). */
static inline uint64_t hash_mix(uint64_t x) {
        x ^= x >> 30;
        x *= UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 27;
        x *= UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}
