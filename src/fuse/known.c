/* known.c: see known.h. Parts by the lowest bits of the number, each an open-addressing table with linear probing; at most 7/8 full, as
 * each of a million inodes costs a slot; shrunk when it has emptied. */
#include "known.h"

#include <pthread.h>
#include <string.h>

#define PARTS     64u
#define SLOTS_MIN 16u

struct slot {
        uint64_t ino, count; /* count 0: empty */
};
struct part {
        pthread_mutex_t lock; /* guards the rest */
        struct slot *slots;
        size_t n_slots, used; /* n_slots: a power of two */
};
struct known {
        struct part parts[PARTS];
};

struct known *known_new(void) {
        struct known *k = NEW(struct known);
        for (unsigned i = 0; i < PARTS; i++) {
                struct part *p = &k->parts[i];
                (void)pthread_mutex_init(&p->lock, NULL);
                p->n_slots = SLOTS_MIN;
                p->slots = xcalloc(p->n_slots, sizeof(struct slot));
        }
        return k;
}

void known_free(struct known *k) {
        if (!k)
                return;
        for (unsigned i = 0; i < PARTS; i++) {
                (void)pthread_mutex_destroy(&k->parts[i].lock);
                free(k->parts[i].slots);
        }
        free(k);
}

static struct part *part_of(struct known *k, uint64_t ino) {
        return &k->parts[ino % PARTS];
}

/* Numbers come from a counter: without the part's bits they are spread well enough, but multiples of powers of two must not meet. */
static size_t home_of(const struct part *p, uint64_t ino) {
        return (size_t)((ino / PARTS) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (p->n_slots - 1);
}

/* The slot of ino, or the empty one where it belongs. */
static struct slot *find(const struct part *p, uint64_t ino) {
        size_t i = home_of(p, ino);
        while (p->slots[i].count != 0 && p->slots[i].ino != ino)
                i = (i + 1) & (p->n_slots - 1);
        return &p->slots[i];
}

static void resize(struct part *p, size_t n_slots) {
        struct slot *old = p->slots;
        size_t n_old = p->n_slots;
        p->slots = xcalloc(n_slots, sizeof(struct slot));
        p->n_slots = n_slots;
        for (size_t i = 0; i < n_old; i++)
                if (old[i].count != 0)
                        *find(p, old[i].ino) = old[i];
        free(old);
}

void known_add(struct known *k, uint64_t ino) {
        struct part *p = part_of(k, ino);
        (void)pthread_mutex_lock(&p->lock);
        struct slot *s = find(p, ino);
        if (s->count == 0) {
                if (8 * (p->used + 1) > 7 * p->n_slots) {
                        resize(p, 2 * p->n_slots);
                        s = find(p, ino);
                }
                s->ino = ino;
                p->used++;
        }
        s->count++;
        (void)pthread_mutex_unlock(&p->lock);
}

/* Empties a slot and moves up what was pushed past it. */
static void slot_remove(struct part *p, size_t hole) {
        size_t mask = p->n_slots - 1;
        for (size_t i = (hole + 1) & mask; p->slots[i].count != 0; i = (i + 1) & mask)
                if (((i - home_of(p, p->slots[i].ino)) & mask) >= ((i - hole) & mask)) {
                        p->slots[hole] = p->slots[i];
                        hole = i;
                }
        p->slots[hole] = (struct slot){0};
        p->used--;
}

void known_forget(struct known *k, uint64_t ino, uint64_t n) {
        struct part *p = part_of(k, ino);
        (void)pthread_mutex_lock(&p->lock);
        struct slot *s = find(p, ino);
        if (s->count > n) {
                s->count -= n;
        } else if (s->count != 0) { /* the root is forgotten at the end without ever having been answered */
                slot_remove(p, (size_t)(s - p->slots));
                if (p->n_slots > SLOTS_MIN && 8 * p->used < p->n_slots)
                        resize(p, p->n_slots / 2);
        }
        (void)pthread_mutex_unlock(&p->lock);
}

bool known_has(struct known *k, uint64_t ino) {
        struct part *p = part_of(k, ino);
        (void)pthread_mutex_lock(&p->lock);
        bool has = find(p, ino)->count != 0;
        (void)pthread_mutex_unlock(&p->lock);
        return has;
}

static uint64_t *copy_part(struct part *p, size_t *ret_n) {
        (void)pthread_mutex_lock(&p->lock);
        uint64_t *inos = xmalloc((p->used + 1) * sizeof(*inos));
        size_t n = 0;
        for (size_t i = 0; i < p->n_slots; i++)
                if (p->slots[i].count != 0)
                        inos[n++] = p->slots[i].ino;
        (void)pthread_mutex_unlock(&p->lock);
        *ret_n = n;
        return inos;
}

void known_each(struct known *k, void (*fn)(void *ctx, uint64_t ino), void *ctx) {
        for (unsigned i = 0; i < PARTS; i++) {
                size_t n = 0;
                cleanup_free uint64_t *inos = copy_part(&k->parts[i], &n);
                for (size_t j = 0; j < n; j++)
                        fn(ctx, inos[j]);
        }
}
