/* store_dirty.c: the sets of what the home lacks. They only grow, until a checkpoint takes them over as they are; nothing is allocated
 * per key. */
#include "store_private.h"

#include <string.h>

#define SLOTS_MIN 64u

void dirty_done(struct dirty *d) {
        (void)pages_resize(d->inodes, d->inode_slots * sizeof(*d->inodes), 0);
        (void)pages_resize(d->entries, d->entry_slots * sizeof(*d->entries), 0);
        pool_done(&d->names);
        *d = (struct dirty){0};
}
bool dirty_any(const struct dirty *d) {
        return d->other || d->n_inodes > 0 || d->n_entries > 0 || d->settings != 0;
}

/* Open addressing: 7/8 full at most, and half as large again then. */
static bool must_grow(size_t n, size_t slots) {
        return n + 1 > slots - slots / 8;
}
static size_t more_slots(size_t slots) {
        return MAX_OF(SLOTS_MIN, slots + slots / 2);
}
static size_t home_of(uint32_t hash, size_t slots) {
        return (size_t)(((uint64_t)hash * slots) >> 32);
}

/* --- inodes --- */

static uint32_t ino_hash(uint64_t ino) { /* numbers come from a counter */
        return (uint32_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* The slot of ino, or the free one where it belongs. */
static struct dirty_inode *inode_slot(const struct dirty *d, uint64_t ino) {
        size_t i = home_of(ino_hash(ino), d->inode_slots);
        while (d->inodes[i].ino != 0 && d->inodes[i].ino != ino)
                i = i + 1 == d->inode_slots ? 0 : i + 1;
        return &d->inodes[i];
}

struct dirty_inode *dirty_find(const struct dirty *d, uint64_t ino) {
        struct dirty_inode *in = d->n_inodes > 0 ? inode_slot(d, ino) : NULL;
        return in && in->ino != 0 ? in : NULL;
}

struct dirty_inode *dirty_mark(struct dirty *d, uint64_t ino, unsigned flags) {
        PRE(ino != 0);
        if (must_grow(d->n_inodes, d->inode_slots)) {
                struct dirty old = *d;
                d->inode_slots = more_slots(old.inode_slots);
                d->inodes = pages_resize(NULL, 0, d->inode_slots * sizeof(*d->inodes));
                for (size_t i = 0; i < old.inode_slots; i++)
                        if (old.inodes[i].ino != 0)
                                *inode_slot(d, old.inodes[i].ino) = old.inodes[i];
                (void)pages_resize(old.inodes, old.inode_slots * sizeof(*old.inodes), 0);
        }
        struct dirty_inode *in = inode_slot(d, ino);
        d->n_inodes += in->ino == 0;
        in->ino = ino;
        in->flags |= flags & 0xffu;
        return in;
}

/* --- entries --- */

static void entry_place(const struct dirty *d, struct entry_key *key) {
        size_t i = home_of(key->hash, d->entry_slots);
        while (d->entries[i])
                i = i + 1 == d->entry_slots ? 0 : i + 1;
        d->entries[i] = key;
}

static bool entry_there(const struct dirty *d, uint32_t hash, uint64_t parent, const char *name, size_t len) {
        if (d->n_entries == 0)
                return false;
        for (size_t i = home_of(hash, d->entry_slots); d->entries[i]; i = i + 1 == d->entry_slots ? 0 : i + 1) {
                const struct entry_key *k = d->entries[i];
                if (k->hash == hash && k->parent == parent && k->len == len && memcmp(k->name, name, len) == 0)
                        return true;
        }
        return false;
}

void dirty_entry(struct dirty *d, uint64_t parent, const char *name, size_t len) {
        PRE(len <= UINT8_MAX);
        if (d->seed == 0)
                d->seed = store_random() | 1; /* names that collide cannot be chosen */
        uint32_t hash = (uint32_t)hash128_chain((struct hash128){parent, d->seed}, name, len).lo;
        if (entry_there(d, hash, parent, name, len))
                return;
        if (must_grow(d->n_entries, d->entry_slots)) {
                struct dirty old = *d;
                d->entry_slots = more_slots(old.entry_slots);
                d->entries = pages_resize(NULL, 0, d->entry_slots * sizeof(struct entry_key *));
                for (size_t i = 0; i < old.entry_slots; i++)
                        if (old.entries[i])
                                entry_place(d, old.entries[i]);
                (void)pages_resize(old.entries, old.entry_slots * sizeof(struct entry_key *), 0);
        }
        struct entry_key *key = pool_take(&d->names, sizeof(*key) + len);
        key->parent = parent;
        key->hash = hash;
        key->len = (uint8_t)len;
        memcpy(key->name, name, len);
        entry_place(d, key);
        d->n_entries++;
}

/* --- settings --- */

unsigned setting_index(const struct setting_info *info) {
        unsigned i = 0;
        PRE(settings_count() <= 64);
        while (settings_info(i) != info)
                i++;
        return i;
}

/* --- all of it --- */

static void merge_inode(struct dirty *into, const struct dirty_inode *from) {
        struct dirty_inode *in = dirty_mark(into, from->ino, from->flags & ~(unsigned)DIRTY_CONTENT);
        if (!(from->flags & DIRTY_CONTENT) || in->flags & (DIRTY_CONTENT | DIRTY_GONE))
                return; /* what came later is right */
        in->flags |= DIRTY_CONTENT;
        in->seq = from->seq;
        in->log_offset = from->log_offset;
        in->log_len = from->log_len;
}

void dirty_merge(struct dirty *into, struct dirty *from) {
        for (size_t i = 0; i < from->inode_slots; i++)
                if (from->inodes[i].ino != 0)
                        merge_inode(into, &from->inodes[i]);
        for (size_t i = 0; i < from->entry_slots; i++)
                if (from->entries[i])
                        dirty_entry(into, from->entries[i]->parent, from->entries[i]->name, from->entries[i]->len);
        into->settings |= from->settings;
        into->other |= from->other;
        dirty_done(from);
}

static int inode_order(const void *a, const void *b) {
        uint64_t x = ((const struct dirty_inode *)a)->ino, y = ((const struct dirty_inode *)b)->ino;
        return x < y ? -1 : x > y;
}
static int entry_order(const void *a, const void *b) {
        const struct entry_key *x = *(struct entry_key *const *)a, *y = *(struct entry_key *const *)b;
        if (x->parent != y->parent)
                return x->parent < y->parent ? -1 : 1;
        int c = memcmp(x->name, y->name, MIN_OF(x->len, y->len));
        return c != 0 ? c : (int)x->len - (int)y->len;
}

void dirty_sort(struct dirty *d) {
        size_t n = 0;
        for (size_t i = 0; i < d->inode_slots; i++)
                if (d->inodes[i].ino != 0)
                        d->inodes[n++] = d->inodes[i];
        POST(n == d->n_inodes);
        for (size_t i = n; i < d->inode_slots; i++)
                d->inodes[i] = (struct dirty_inode){0};
        n = 0;
        for (size_t i = 0; i < d->entry_slots; i++)
                if (d->entries[i])
                        d->entries[n++] = d->entries[i];
        POST(n == d->n_entries);
        for (size_t i = n; i < d->entry_slots; i++)
                d->entries[i] = NULL;
        if (d->n_inodes > 0)
                qsort(d->inodes, d->n_inodes, sizeof(*d->inodes), inode_order);
        if (d->n_entries > 0)
                qsort(d->entries, d->n_entries, sizeof(*d->entries), entry_order);
}
