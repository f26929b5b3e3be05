/* ordvec.c: see ordvec.h. */
#include "ordvec.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(uintptr_t) == 8, "a tombstone holds a 63-bit key");

static uint64_t slot_key(uintptr_t slot, ordvec_key key) {
        return slot & 1 ? slot >> 1 : key((const void *)slot);
}

void ordvec_done(struct ordvec *v) {
        free(v->slots);
        *v = (struct ordvec){0};
}

uint32_t ordvec_seek(const struct ordvec *v, ordvec_key key, uint64_t k) {
        uint32_t low = v->head, high = v->end;
        while (low < high) {
                uint32_t mid = low + (high - low) / 2;
                if (slot_key(v->slots[mid], key) < k)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

/* Moves what lives to the front of an array of `cap` slots. */
static void ordvec_compact(struct ordvec *v, uint32_t cap) {
        uint32_t n = 0;
        for (uint32_t i = v->head; i < v->end; i++)
                if (!(v->slots[i] & 1))
                        v->slots[n++] = v->slots[i];
        POST(n == v->live);
        v->head = 0;
        v->end = n;
        if (cap != v->cap) {
                v->slots = xrealloc(v->slots, cap * sizeof(uintptr_t));
                v->cap = cap;
        }
}

static void ordvec_room(struct ordvec *v) {
        if (v->end < v->cap)
                return;
        PRE(v->cap < UINT32_MAX / 2);
        uint32_t unused = v->cap - v->live;
        ordvec_compact(v, unused > v->cap / 4 ? v->cap : v->cap + v->cap / 2 + 4);
}

void ordvec_append_unsorted(struct ordvec *v, void *object) {
        ordvec_room(v);
        v->slots[v->end++] = (uintptr_t)object;
        v->live++;
}

void ordvec_insert(struct ordvec *v, ordvec_key key, void *object) {
        uint64_t k = key(object);
        PRE(k < UINT64_MAX >> 1);
        ordvec_room(v);
        uint32_t at = v->end;
        if (v->end > v->head && slot_key(v->slots[v->end - 1], key) >= k)
                at = ordvec_seek(v, key, k);
        if (at < v->end && slot_key(v->slots[at], key) == k) {
                PRE(v->slots[at] & 1);
        } else {
                memmove(v->slots + at + 1, v->slots + at, (v->end - at) * sizeof(uintptr_t));
                v->end++;
        }
        v->slots[at] = (uintptr_t)object;
        v->live++;
}

void ordvec_remove(struct ordvec *v, ordvec_key key, uint64_t k) {
        uint32_t at = ordvec_seek(v, key, k);
        PRE(at < v->end && !(v->slots[at] & 1) && slot_key(v->slots[at], key) == k);
        v->slots[at] = (uintptr_t)(k << 1 | 1);
        v->live--;
        while (v->head < v->end && v->slots[v->head] & 1)
                v->head++;
        while (v->end > v->head && v->slots[v->end - 1] & 1)
                v->end--;
        if (v->live == 0)
                ordvec_done(v);
        else if (v->end - v->head > 2 * v->live + 8)
                ordvec_compact(v, v->cap);
        if (v->cap > 4 * v->live + 16)
                ordvec_compact(v, 2 * v->live);
}

/* Bottom-up merge sort: stable, O(n log n) whatever the input. */
static void merge_runs(const uintptr_t *from, uintptr_t *to, uint32_t n, uint32_t run, ordvec_key key) {
        for (uint32_t start = 0; start < n; start += 2 * run) {
                uint32_t a = start, a_end = MIN_OF(start + run, n), b = a_end, b_end = MIN_OF(start + 2 * run, n);
                for (uint32_t out = start; out < b_end; out++)
                        to[out] = b == b_end || (a < a_end && slot_key(from[a], key) <= slot_key(from[b], key)) ? from[a++] : from[b++];
        }
}

bool ordvec_sort(struct ordvec *v, ordvec_key key) {
        ordvec_compact(v, v->cap);
        bool sorted = true;
        for (uint32_t i = 1; sorted && i < v->end; i++)
                sorted = slot_key(v->slots[i - 1], key) < slot_key(v->slots[i], key);
        if (sorted)
                return true;
        uintptr_t *other = xmalloc(v->cap * sizeof(uintptr_t));
        for (uint32_t run = 1; run < v->end; run *= 2) {
                merge_runs(v->slots, other, v->end, run, key);
                uintptr_t *swap = v->slots;
                v->slots = other;
                other = swap;
        }
        free(other);
        for (uint32_t i = 1; i < v->end; i++)
                if (slot_key(v->slots[i - 1], key) == slot_key(v->slots[i], key))
                        return false;
        return true;
}
