/* ordvec.h: pointers to objects in the order of a 63-bit key of theirs: the entries of a directory by cookie, all inodes by number.
 * New keys nearly always come at the end. A removed object leaves a tombstone that still has the key, so that searching stays
 * O(log n); tombstones at both ends go at once, the rest when they outnumber what lives: any order of removals costs O(log n)
 * each, amortised, and walking from either end meets at most as many tombstones as objects. Private to core. */
#pragma once

#include "base/base.h"

struct ordvec {
        uintptr_t *slots;              /* a pointer, or key << 1 | 1 */
        uint32_t head, end, cap, live; /* slots[head..end) are in use; slots[head] and slots[end - 1] are no tombstones */
};
typedef uint64_t (*ordvec_key)(const void *object);

void ordvec_done(struct ordvec *v);
void ordvec_insert(struct ordvec *v, ordvec_key key, void *object);       /* a new key, or that of a tombstone */
void ordvec_remove(struct ordvec *v, ordvec_key key, uint64_t k);         /* it must be there */
uint32_t ordvec_seek(const struct ordvec *v, ordvec_key key, uint64_t k); /* first slot with a key >= k; v->end: none */

/* For building in any order: append without looking, then sort once; false: a key came twice. */
void ordvec_append_unsorted(struct ordvec *v, void *object);
bool ordvec_sort(struct ordvec *v, ordvec_key key);

static inline void *ordvec_at(const struct ordvec *v, uint32_t i) { /* NULL: a tombstone */
        return v->slots[i] & 1 ? NULL : (void *)v->slots[i];
}
