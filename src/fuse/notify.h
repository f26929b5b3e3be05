/* notify.h: telling the kernel what to forget, on threads and queues of its own. Private to src/fuse.
 *
 * Two kinds of threads, because they wait for different things. Inode notifications (attributes, pages, listings) wait at most for a
 * READ or WRITE, and those are answered from memory. Expiring a name takes the lock of its directory, which a local operation holds
 * until it is answered, and that answer may wait for this very notification: so names have threads of their own, at most one per
 * directory, and a monitor that raises the epoch when a name has waited for NAME_WAIT_NS. The epoch makes the kernel ask again for
 * every name, so it settles all names that were waiting then. It never blocks.
 *
 * An answer that the kernel keeps takes three steps: it is built from the tree, written, and put into the kernel's caches by the
 * process that asked, when it runs again. A change between the first and the last is notified of an inode that the kernel does not
 * know yet, which does nothing, and the answer that is put in afterwards would be stale for ever. So
 * - the inodes of a change set are notified behind a fence: when every worker that was building or writing such an answer has finished
 *   (`active`; they are answered from memory). Answers that are given by other threads (to CREATE, SETATTR …) are checked after they
 *   were written (recheck in reply.c);
 * - an inode that the kernel was told of a moment ago (seen.h) and does not know is in doubt: notified again until it is known, and if
 *   that takes long, the epoch is raised, so that whoever comes by its name asks again;
 * - names and listings need none of this: both are put in under the directory's lock, which expiring a name takes. The listing is
 *   dropped after that. Where names are not expired (no epochs), listings are not cached. */
#pragma once

#include "edge.h"

struct notify *notify_start(struct fuse_edge *e);
void notify_stop(struct notify *n); /* everything pending is called done; no thread is left. The session's requests must be answered */
void notify_free(struct notify *n);
uint64_t notify_generation(const struct notify *n); /* grows with every change set; >= 1 */
uint64_t notify_seq(const struct notify *n);        /* of the last change set */
void notify_changes(struct notify *n, const struct change_set *changes, uint64_t seq, bool local, void (*done)(void *ctx, uint64_t seq), void *ctx);
void notify_inode(struct notify *n, uint64_t ino, int64_t offset); /* offset: as below, to the end */
void notify_all(struct notify *n, void (*done)(void *ctx, uint64_t seq), void *ctx);
void notify_known(struct notify *n, uint64_t ino);     /* is about to be told to the kernel */
void notify_forgotten(struct notify *n, uint64_t ino); /* a FORGET came */
/* The messages of the kernel's interface; offset -1: attributes alone; length 0: to the end. */
errint_t notify_send_inode(struct fuse_edge *e, uint64_t ino, int64_t offset, int64_t length);
errint_t notify_send_expire(struct fuse_edge *e, uint64_t parent, const char *name, size_t len);
errint_t notify_send_epoch(struct fuse_edge *e);
