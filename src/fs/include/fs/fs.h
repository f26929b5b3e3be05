/* fs.h: the request layer: what a filesystem request means. Permissions that the kernel does not check, open files, write gathering,
 * virtual files. It never heard of FUSE.
 *
 * Each request is one call with a reply object; exactly one function of the reply is called, from this thread before the call returns
 * (reads, lookups: always) or later from another (operations: when they are stable). Requests may come from any thread at once.
 * Locks are inside; no lock is held while a reply is called. A reply object must live until then; all else that is passed in, only
 * until the call returns.
 *
 * The request counters (lookups, getattrs, opens, reads, read_bytes, readdirs, fuse_write_*, fuse_flushes, fuse_getxattr, fuse_forgets) are
 * counted here, the others where they happen.
 *
 * What the executor owes, per operation that was applied, in order of seq:
 *   under the state's write lock, right after the step that applied it:  fs_applied, if it came from submit (local)
 *   after the lock was released, before the kernel's caches are invalidated and before the ACK:  fs_changed
 * and fs_replaced, under the write lock, when another history was taken over. */
#pragma once

#include "base/metrics.h"
#include "core/state.h"
#include <sys/uio.h>
#include <sys/statvfs.h>

/* The state, shared between the executor (writer) and requests (readers). */
struct shared_state;
struct shared_state *shared_state_new(uint64_t hash_seed); /* of its hash tables: random, so that nobody can choose names that collide */
void shared_state_free(struct shared_state *s);
const struct state *shared_state_read(struct shared_state *s); /* read lock; pairs with _done_read */
void shared_state_done_read(struct shared_state *s);
struct state *shared_state_write(struct shared_state *s);
void shared_state_done_write(struct shared_state *s);

struct fs_caller {
        uint32_t uid, gid;
        int32_t pid;
        uint32_t umask; /* where the request carries one */
};

/* Attributes and how long the kernel may keep them. `seq`: the change_seq seen when this was built, for the check after the reply is written. */
struct fs_entry {
        uint64_t ino; /* 0: negative entry */
        struct attr attr;
        bool cacheable; /* false: timeout 0 (virtual files) */
        uint64_t seq;   /* of a negative entry: the parent's */
};
struct fs_open_out {
        uint64_t fh;
        bool keep_cache, direct_io, cache_readdir, noflush, nonseekable;
};
struct fs_lock_range {
        uint64_t start, end; /* inclusive */
        uint32_t type, pid;  /* F_RDLCK, F_WRLCK, F_UNLCK */
};

struct fs_reply {
        const struct fs_reply_ops *ops;
        uint64_t unique;
        void *ctx;
};
struct fs_reply_ops {
        void (*err)(struct fs_reply *r, int error); /* 0 or negative errno */
        void (*entry)(struct fs_reply *r, const struct fs_entry *e);
        void (*attr)(struct fs_reply *r, const struct fs_entry *e);
        void (*open)(struct fs_reply *r, const struct fs_open_out *o);
        void (*create)(struct fs_reply *r, const struct fs_entry *e, const struct fs_open_out *o);
        void (*write)(struct fs_reply *r, size_t n);
        void (*data)(struct fs_reply *r, const struct iovec *iov, int n_iov); /* read, readlink, readdir, getxattr, listxattr */
        void (*size)(struct fs_reply *r, size_t n);                           /* getxattr, listxattr with size 0 */
        void (*statfs)(struct fs_reply *r, const struct statvfs *st);
        void (*offset)(struct fs_reply *r, uint64_t offset); /* lseek */
        void (*lock)(struct fs_reply *r, const struct fs_lock_range *range);
};

/* What the request layer needs of the rest. */
struct fs_backend {
        /* Hands over an operation: encodes it under the next origin, steps the machine. The op and all it points to are copied before
         * the call returns. done is called once, from any thread, without locks, when it is stable or refused (possibly before submit
         * returns). token names it for withdraw, which knows only those that wait and ignores others. Calls in order are applied in
         * order. submit reserves the room in the store that the operation needs by itself; what the request layer reserved for gathered
         * writes is released right before. When the operation has been applied, and before done, fs_applied is called with done_ctx. */
        void (*submit)(void *ctx, struct op *op, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx, uint64_t *ret_token);
        void (*barrier)(void *ctx, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx);
        void (*withdraw)(void *ctx, uint64_t token);
        errint_t (*reserve)(void *ctx, uint64_t bytes, bool frees); /* room in the store; -ENOSPC, -EROFS when not primary or failed */
        void (*release)(void *ctx, uint64_t bytes);
        errint_t (*writable)(void *ctx); /* 0, or -EROFS: no quorum, store failed */
        /* Tells the kernel to forget pages (and attributes) of an inode: an append that landed elsewhere, an orphan … Queued. */
        void (*invalidate_inode)(void *ctx, uint64_t ino);
        void (*arm)(void *ctx, uint64_t at_ms); /* fs_tick wanted at this monotonic time */
        void (*realtime)(void *ctx, struct timestamp *ret);
        uint64_t (*monotonic_ms)(void *ctx);
        void (*program)(void *ctx, int32_t pid, char program[LIMIT_PROGRAM]); /* name of the calling process; "" if unknown */
        /* Text of virtual files and commands behind them: appended to e. name as in "status". */
        errint_t (*virtual_text)(void *ctx, const char *name, struct enc *e);
        void *ctx;
        /* Has the kernel been told of this inode, and not forgotten it? Then it lives on without a name until fs_forget, as O_PATH descriptors,
         * working directories and calls that found it by its path expect. NULL: there is no kernel. */
        bool (*kernel_knows)(void *ctx, uint64_t ino);
};
struct fs_config {
        struct shared_state *state;
        struct fs_backend backend;
        struct metrics *metrics;
        uint64_t gather_ms;       /* 1000 */
        uint64_t gather_bytes_max; /* of one inode before it is flushed early; the file size limit bounds it anyway */
        bool posix_locks_local;   /* noflush allowed */
        /* Regular files of a damaged database whose content is lost, ascending; stays the caller's until fs_free. Opening one answers EIO: an
         * empty file would be taken for the content by the next backup. */
        const uint64_t *damaged;
        size_t n_damaged;
};
struct fs;
struct fs *fs_new(const struct fs_config *config);
void fs_free(struct fs *fs); /* after fs_shutdown, when the backend has answered everything */
DEFINE_FREEP(fs_free, struct fs)
void fs_tick(struct fs *fs, uint64_t now_ms);  /* flushes what has been gathered for gather_ms */
void fs_shutdown(struct fs *fs, void (*done)(void *ctx), void *ctx); /* flushes everything gathered */
/* A local operation was applied (also when it was refused: result says so), state write lock held by the caller, before fs_changed of the same
 * seq: gathered bytes that it carried now come from the tree, new files are pinned before anybody can remove them, an operation that
 * came too late for an inode which lives on here as an orphan is applied to the orphan. done_ctx: as given to submit. */
void fs_applied(struct fs *fs, void *done_ctx, const struct op_result *result);
/* Another history has been taken over: the shared state is the new one, `old` the one before. State write lock held by the caller. Open
 * files keep what they can: their inodes are pinned in the new tree, or live on as orphans with the old content. Must come before `old` is freed. */
void fs_replaced(struct fs *fs, struct state *old);
/* After an apply (any origin), without locks: open files and gathers learn of it. `local`: our own operation. Called in order of seq. */
void fs_changed(struct fs *fs, const struct change_set *changes, uint64_t seq, bool local);

/* The kernel is about to be told that the content of an inode was changed by seq; it has been. Till then it is shown the content and the size
 * from before. fs_telling: true when some of that was shown: answers that may be under way have to be waited for. fs_told: false when some
 * was shown since, so that it must be told once more, of all of the file; `last`: and what is shown from now on is new. */
bool fs_telling(struct fs *fs, uint64_t ino, uint64_t seq);
bool fs_told(struct fs *fs, uint64_t ino, uint64_t seq, bool last);

#define FS_VIRTUAL_DIR ".coterie" /* in the root: hidden from readdir, reserved */
bool fs_is_virtual(uint64_t ino);

/* --- names */
void fs_lookup(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r);
void fs_forget(struct fs *fs, uint64_t ino, uint64_t n);
void fs_create(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, int flags, struct fs_reply *r);
void fs_tmpfile(struct fs *fs, const struct fs_caller *c, uint64_t parent, uint32_t mode, int flags, struct fs_reply *r); /* reply: create */
void fs_mknod(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, uint32_t rdev, struct fs_reply *r);
void fs_mkdir(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, struct fs_reply *r);
void fs_symlink(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, const char *target, struct fs_reply *r);
void fs_link(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t parent, const char *name, struct fs_reply *r);
void fs_unlink(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r);
void fs_rmdir(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r);
void fs_rename(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name, unsigned flags, struct fs_reply *r);
void fs_readlink(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r);

/* --- attributes. set: which of the fields count (FS_SET_*). fh: 0 or an open file. */
enum { FS_SET_MODE = 1, FS_SET_UID = 2, FS_SET_GID = 4, FS_SET_SIZE = 8, FS_SET_ATIME = 16, FS_SET_MTIME = 32, FS_SET_ATIME_NOW = 64,
       FS_SET_MTIME_NOW = 128, FS_SET_KILL_SUID = 256, FS_SET_CTIME = 512 };
struct fs_set {
        unsigned set;
        uint32_t mode, uid, gid;
        uint64_t size;
        struct timestamp atime, mtime, ctime;
};
void fs_getattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r);
void fs_setattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const struct fs_set *s, uint64_t fh, struct fs_reply *r);
void fs_setxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, const void *value, size_t len, int flags, bool kill_sgid, struct fs_reply *r);
void fs_getxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, size_t size, struct fs_reply *r);
void fs_listxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, size_t size, struct fs_reply *r);
void fs_removexattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, struct fs_reply *r);
void fs_statfs(struct fs *fs, struct fs_reply *r);

/* --- open files. fh is never 0. */
void fs_open(struct fs *fs, const struct fs_caller *c, uint64_t ino, int flags, bool kill_suid, struct fs_reply *r);
void fs_read(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, size_t n, struct fs_reply *r);
void fs_write(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, uint64_t offset, const void *p, size_t n, int flags, bool kill_suid, bool writeback, struct fs_reply *r);
void fs_flush(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, uint64_t lock_owner, struct fs_reply *r);
void fs_release(struct fs *fs, uint64_t ino, uint64_t fh, struct fs_reply *r);
void fs_fsync(struct fs *fs, uint64_t ino, uint64_t fh, bool datasync, struct fs_reply *r);
void fs_fallocate(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, int mode, uint64_t offset, uint64_t length, struct fs_reply *r);
void fs_lseek(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, int whence, struct fs_reply *r);

/* --- directories. The filler packs one entry; false: full. `plus` entries carry attributes and count as lookups, except "." and "..", whose
 * e->ino is 0 (attr is filled). The filler is called under the state's read lock: it copies and returns. */
void fs_opendir(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r);
void fs_releasedir(struct fs *fs, uint64_t ino, uint64_t fh, struct fs_reply *r);
void fs_fsyncdir(struct fs *fs, uint64_t ino, struct fs_reply *r); /* the full barrier */
typedef bool (*fs_fill_fn)(void *ctx, const char *name, size_t len, uint64_t cookie, uint32_t mode, const struct fs_entry *e /* NULL without plus */, uint64_t ino);
errint_t fs_readdir(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, bool plus, fs_fill_fn fill, void *ctx); /* answered at once */

/* Barrier and waiting. fs_interrupt: the caller of request `unique` was signalled. */
void fs_interrupt(struct fs *fs, uint64_t unique);
/* After the reply was written to the kernel: true when the inode changed since it was built (seq), so that it must be invalidated again. */
bool fs_changed_since(struct fs *fs, uint64_t ino, uint64_t seq);
