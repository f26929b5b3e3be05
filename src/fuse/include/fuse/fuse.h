/* fuse.h: the kernel edge: a thin low-level adapter. Requests in, replies and invalidations out. Mounts by mount(2), receives on its own
 * worker threads, decodes raw what libfuse 3.14 does not (TMPFILE, KILLPRIV_V2 flags, SETXATTR_EXT). */
#pragma once

#include "fs/fs.h"

struct fuse_edge_config {
        struct fs *fs;
        struct metrics *metrics;
        const char *mountpoint;
        const char *source;       /* shown in /proc/mounts */
        unsigned threads;         /* 0: number of cores + 2, at most 16 */
        bool allow_dev, allow_suid; /* default nodev,nosuid */
        bool read_only;
        bool posix_locks_local;   /* FLUSH is not wanted where nothing was written */
        bool cache;               /* false: all timeouts 0 (for tests) */
        bool no_epoch;            /* behave as on a kernel without FUSE_NOTIFY_INC_EPOCH: entry timeout 0 */
        unsigned max_write;       /* 0: what the kernel gives, at most 1 MiB */
        void (*ended)(void *ctx, errint_t error); /* the session ended (unmounted from outside, error); from a worker thread */
        void *ctx;
};
struct fuse_edge;
/* Is this a place to mount? Detaches dead mounts from it. ret_path: absolute, without symlinks. -EBUSY: somebody serves it, or is mounted
 * there and does not answer, which takes 3 s to find out. One line of what is wrong and the remedy in reason. */
errint_t fuse_mount_prepare(const char *mountpoint, char **ret_path, char *reason, size_t reason_size);
/* Cuts the connection of the coteried that is mounted there, if one is: for one that was killed and cannot end. */
void fuse_mount_cut(const char *mountpoint);
/* Prepares the mountpoint, mounts, starts workers, returns when INIT was answered. One line of what
 * failed and the remedy in ret_reason. */
errint_t fuse_edge_start(const struct fuse_edge_config *config, struct fuse_edge **ret, char *ret_reason, size_t reason_size);
/* Writes back mapped pages, unmounts (MNT_DETACH if busy), joins threads. Requests that still wait for an operation get a moment, then
 * EIO; they may be finished later. Invalidations from now on are done at once. Not from a worker thread (`ended`). */
void fuse_edge_stop(struct fuse_edge *e);
void fuse_edge_free(struct fuse_edge *e); /* after fuse_edge_stop, when nobody invalidates any more */
/* Invalidates the kernel's caches for a change set; done(seq) is called when everything up to it is clear, in order, from a thread of
 * the notification pool; with nothing to do, at once from here. `local`: the kernel asked for it itself and knows. */
void fuse_edge_invalidate(struct fuse_edge *e, const struct change_set *changes, uint64_t seq, bool local, void (*done)(void *ctx, uint64_t seq), void *ctx);
void fuse_edge_invalidate_inode(struct fuse_edge *e, uint64_t ino);
bool fuse_edge_knows(const struct fuse_edge *e, uint64_t ino); /* the kernel was told of it, or is about to be, and has not forgotten it */
void fuse_edge_invalidate_all(struct fuse_edge *e, void (*done)(void *ctx, uint64_t seq), void *ctx);
/* A file to which a byte is written to end the connection, whoever uses it: all calls on the mount fail with ENOTCONN from then on. It works
 * from any process, after this one has died as well. Needs Linux 5.2 and CAP_SYS_ADMIN. */
errint_t fuse_edge_abort_file(const struct fuse_edge *e, int *ret_fd);
unsigned fuse_edge_max_write(const struct fuse_edge *e);
