/* seen.h: which inodes the kernel was told of: a set of bits that invalidate_all walks, and for how long it has been told. Marking is
 * lock-free and cheap. Forgotten inodes stay in the set until a walk finds that the kernel does not know them. Private to src/fuse. */
#pragma once

#include "base/base.h"

struct seen;
struct seen *seen_new(void);
void seen_free(struct seen *s);
void seen_mark(struct seen *s, uint64_t ino, uint64_t now_ns); /* numbers from 2^48 on (virtual files) are never cached and not kept */
/* A FORGET came. One that crossed an answer which tells of the inode anew means the time before: what is very recent stays so. */
void seen_forgotten(struct seen *s, uint64_t ino, uint64_t now_ns);
/* Whether the kernel was told within SEEN_RECENT_NS. Two inodes may be taken for one another: then it says yes too often. */
#define SEEN_RECENT_NS UINT64_C(2000000000)
bool seen_recently(const struct seen *s, uint64_t ino, uint64_t now_ns);
/* Calls fn for each; those for which it returns false are dropped. One walk at a time; marking meanwhile is fine. */
void seen_each(struct seen *s, bool (*fn)(void *ctx, uint64_t ino), void *ctx);
