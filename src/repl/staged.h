/* staged.h (private to repl): contents that a newcomer has fetched, by digest and size, kept over view changes until it has caught up. */
#pragma once

#include "core/blob.h"

struct staged {
        struct blob **slots; /* open addressing; a power of two */
        size_t n, cap;
};
struct blob *staged_find(const struct staged *s, struct hash128 digest, uint64_t size); /* borrowed; NULL */
void staged_put(struct staged *s, struct blob *b);                                      /* a further reference */
void staged_done(struct staged *s);
