/* known.h: which inodes the kernel knows, or is about to: how often each was answered as an entry, less what it has forgotten. Exact, as the
 * kernel counts alike. Any thread; a lock per part of the numbers. Private to src/fuse. */
#pragma once

#include "base/base.h"

struct known;
struct known *known_new(void);
void known_free(struct known *k);
void known_add(struct known *k, uint64_t ino); /* before the answer is written */
void known_forget(struct known *k, uint64_t ino, uint64_t n);
bool known_has(struct known *k, uint64_t ino);
/* Calls fn for each that is known when its part is looked at; without locks. */
void known_each(struct known *k, void (*fn)(void *ctx, uint64_t ino), void *ctx);
