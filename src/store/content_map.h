/* content_map.h (private to store): which units of the content file are free: runs in two orders, by place and by length. Pure memory; the
 * caller locks. */
#pragma once

#include "base/base.h"

#include <glib.h>

struct content_map {
        GTree *by_start, *by_length; /* of struct map_run; by_length owns none */
        uint64_t total, free;        /* units */
};
void map_init(struct content_map *m); /* no units at all */
void map_done(struct content_map *m);
void map_grow(struct content_map *m, uint64_t total);   /* the new ones are free */
void map_shrink(struct content_map *m, uint64_t total); /* those that go must be free */
bool map_is_free(const struct content_map *m, uint64_t start, uint64_t n); /* all of them */
bool map_is_used(const struct content_map *m, uint64_t start, uint64_t n); /* all of them, and none beyond the end */
void map_take(struct content_map *m, uint64_t start, uint64_t n);          /* must be free */
void map_give(struct content_map *m, uint64_t start, uint64_t n);          /* must be used */
/* The shortest run of at least n, of those the first in the file. */
bool map_best(const struct content_map *m, uint64_t n, uint64_t *ret_start);
/* Longest runs first: calls fn until it returns false. */
void map_longest(const struct content_map *m, bool (*fn)(void *ctx, uint64_t start, uint64_t length), void *ctx);
uint64_t map_tail(const struct content_map *m); /* free units at the end */
