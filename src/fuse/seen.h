/* seen.h: which inodes the kernel may know: a set of bits that only invalidate_all walks. Marking is lock-free and cheap once marked.
 * Forgotten inodes stay in it until a walk finds that the kernel does not know them. Private to src/fuse. */
#pragma once

#include "base/base.h"

struct seen;
struct seen *seen_new(void);
void seen_free(struct seen *s);
void seen_mark(struct seen *s, uint64_t ino); /* numbers from 2^48 on (virtual files) are never cached and not kept */
/* Calls fn for each; those for which it returns false are dropped. One walk at a time; marking meanwhile is fine. */
void seen_each(struct seen *s, bool (*fn)(void *ctx, uint64_t ino), void *ctx);
