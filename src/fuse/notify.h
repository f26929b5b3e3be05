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
 * - an inode that was answered and not forgotten (known.h), and that the kernel says not to know, is in doubt: it is notified again until it
 *   is known or its FORGET comes, and if that takes long, the epoch is raised, so that whoever comes by its name asks again;
 * - listings, and names that the kernel did not know, need none of this: they are put in under the directory's lock, which notifying a
 *   name takes. The listing is dropped after that. Where names are not notified (no epochs), listings are not cached.
 *
 * A name that the kernel knows and asks for again is confirmed without that lock, so that expiring it may come too early. Hence a name
 * that goes away is not expired but dropped: what is confirmed afterwards is no longer found. That would take mounts below it along, so a
 * directory that lives on under another name is expired only; whoever asks for the other name makes the kernel move it. */
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
void notify_known(struct notify *n, uint64_t ino);               /* is about to be answered as an entry */
void notify_forgotten(struct notify *n, uint64_t ino, uint64_t count); /* a FORGET came, or the answer did not arrive */
bool notify_knows(const struct notify *n, uint64_t ino);
/* The messages of the kernel's interface; offset -1: attributes alone; length 0: to the end. */
errint_t notify_send_inode(struct fuse_edge *e, uint64_t ino, int64_t offset, int64_t length);
errint_t notify_send_name(struct fuse_edge *e, uint64_t parent, const char *name, size_t len, bool drop);
errint_t notify_send_epoch(struct fuse_edge *e);
