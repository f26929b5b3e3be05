/* pool.h (private to store): memory that goes back to the kernel whole. What a checkpoint is about lives from one checkpoint to the next,
 * made in between objects of the tree that stay: out of malloc's heap it would leave it full of holes. Never fails, as xmalloc. */
#pragma once

#include "base/base.h"

struct pool {
        struct pool_block *last;
};
void *pool_take(struct pool *p, size_t n); /* n zeroed bytes, aligned as for a pointer; from any number of threads, one at a time */
void pool_done(struct pool *p);            /* all that was taken is gone */

/* An array with pages of its own, from `old` to `size` bytes; what is new is zeroed. NULL has 0 bytes; 0 bytes are NULL. */
void *pages_resize(void *p, size_t old, size_t size);
