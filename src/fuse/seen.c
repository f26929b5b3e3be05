/* seen.c: see seen.h. A radix tree of 3 x 13 bits over words of 512 inodes: numbers come from a counter and die old, so the set is
 * dense in places and empty in others. Nodes are added by compare-and-swap and live as long as the set. */
#include "seen.h"

#include <stdatomic.h>

#define NODE_BITS  13u
#define NODE_SIZE  (1u << NODE_BITS)
#define LEAF_BITS  9u
#define LEAF_WORDS ((1u << LEAF_BITS) / 64)
#define INO_BITS   (3 * NODE_BITS + LEAF_BITS)

struct node {
        _Atomic(void *) child[NODE_SIZE];
};
struct leaf {
        _Atomic uint64_t word[LEAF_WORDS];
};
#define TIMES       4096u
#define CROSSING_NS UINT64_C(50000000)
struct seen {
        struct node root;
        _Atomic uint64_t told_ns[TIMES]; /* by the low bits of the number */
};

struct seen *seen_new(void) {
        return NEW(struct seen);
}

static void node_free(struct node *n, unsigned level) {
        for (unsigned i = 0; i < NODE_SIZE; i++) {
                void *child = atomic_load_explicit(&n->child[i], memory_order_relaxed);
                if (child && level > 1)
                        node_free(child, level - 1);
                free(child);
        }
}

void seen_free(struct seen *s) {
        if (!s)
                return;
        node_free(&s->root, 3);
        free(s);
}

static void *child_of(struct node *n, uint64_t index, size_t size) {
        _Atomic(void *) *slot = &n->child[index & (NODE_SIZE - 1)];
        void *child = atomic_load_explicit(slot, memory_order_acquire);
        if (child)
                return child;
        void *fresh = xcalloc(1, size);
        if (atomic_compare_exchange_strong_explicit(slot, &child, fresh, memory_order_acq_rel, memory_order_acquire))
                return fresh;
        free(fresh);
        return child;
}

static bool is_kept(uint64_t ino) {
        return ino >> INO_BITS == 0;
}

void seen_forgotten(struct seen *s, uint64_t ino, uint64_t now_ns) {
        _Atomic uint64_t *told = &s->told_ns[ino % TIMES];
        uint64_t was = atomic_load_explicit(told, memory_order_relaxed);
        if (is_kept(ino) && now_ns - was >= CROSSING_NS)
                (void)atomic_compare_exchange_strong(told, &was, 0); /* told again meanwhile: stays */
}

bool seen_recently(const struct seen *s, uint64_t ino, uint64_t now_ns) {
        uint64_t told = is_kept(ino) ? atomic_load(&s->told_ns[ino % TIMES]) : 0;
        return told != 0 && (told > now_ns || now_ns - told < SEEN_RECENT_NS);
}

void seen_mark(struct seen *s, uint64_t ino, uint64_t now_ns) {
        if (!is_kept(ino))
                return;
        atomic_store(&s->told_ns[ino % TIMES], now_ns);
        struct node *upper = child_of(&s->root, ino >> (2 * NODE_BITS + LEAF_BITS), sizeof(struct node));
        struct node *lower = child_of(upper, ino >> (NODE_BITS + LEAF_BITS), sizeof(struct node));
        struct leaf *leaf = child_of(lower, ino >> LEAF_BITS, sizeof(struct leaf));
        _Atomic uint64_t *word = &leaf->word[(ino >> 6) & (LEAF_WORDS - 1)];
        uint64_t bit = UINT64_C(1) << (ino & 63);
        if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
                atomic_fetch_or(word, bit);
}

static void word_each(_Atomic uint64_t *word, uint64_t first, bool (*fn)(void *ctx, uint64_t ino), void *ctx) {
        /* Dropped first and marked again: a mark that comes while fn runs is never lost. */
        uint64_t bits = atomic_exchange(word, 0), keep = 0;
        for (; bits; bits &= bits - 1) {
                unsigned i = (unsigned)__builtin_ctzll(bits);
                if (fn(ctx, first + i))
                        keep |= UINT64_C(1) << i;
        }
        if (keep)
                atomic_fetch_or(word, keep);
}

static void node_each(struct node *n, unsigned level, uint64_t prefix, bool (*fn)(void *ctx, uint64_t ino), void *ctx) {
        for (uint64_t i = 0; i < NODE_SIZE; i++) {
                void *child = atomic_load_explicit(&n->child[i], memory_order_acquire);
                uint64_t at = prefix << NODE_BITS | i;
                if (!child)
                        continue;
                if (level > 1) {
                        node_each(child, level - 1, at, fn, ctx);
                        continue;
                }
                struct leaf *leaf = child;
                for (unsigned w = 0; w < LEAF_WORDS; w++)
                        word_each(&leaf->word[w], at << LEAF_BITS | (uint64_t)w << 6, fn, ctx);
        }
}

void seen_each(struct seen *s, bool (*fn)(void *ctx, uint64_t ino), void *ctx) {
        node_each(&s->root, 3, 0, fn, ctx);
}
