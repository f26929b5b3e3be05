/* disk.h: the one door through which log, content file and SQLite reach a disk. disk_system() is the real one; tests put a simulated disk
 * here that records, drops, reorders, tears and fails. Paths are whole paths. All functions return 0 or -errno; short transfers are
 * completed or turned into -EIO / -ENOSPC inside. Thread-safe per file as the kernel's calls are. */
#pragma once

#include "base/base.h"
#include <sys/uio.h>

enum sync_method { /* how a log write is made durable; `coterie probe-sync` (probe.h) measures them */
        SYNC_FDATASYNC = 0,
        SYNC_FSYNC = 1,
        SYNC_OPEN_DATASYNC = 2, /* O_DSYNC on the descriptor: the write itself is the flush */
        SYNC_OPEN_SYNC = 3,
        SYNC_SYNCFS = 4
};
enum {
        DISK_CREATE = 1,
        DISK_EXCL = 2,
        DISK_READ_ONLY = 4,
        DISK_DIRECT = 8, /* -EINVAL where the filesystem refuses O_DIRECT */
        DISK_DSYNC = 16,
        DISK_SYNC = 32,
        DISK_UNTIMED = 64 /* where the filesystem can: writes leave the file's times alone, closing sets them */
};
struct disk_info {
        uint64_t fs_free, fs_size; /* bytes; free: that this process may still use, with its privileges */
        uint32_t logical_sector, physical_sector; /* 512 and 4096 where they cannot be found */
        char fs_type[16];          /* "ext4" */
        bool block_device_found;
};

struct disk;
struct disk_file;
struct disk_ops {
        errint_t (*open)(struct disk *d, const char *path, unsigned flags, struct disk_file **ret); /* mode 0600 */
        errint_t (*unlink)(struct disk *d, const char *path);                                        /* -ENOENT */
        errint_t (*rename)(struct disk *d, const char *from, const char *to);
        errint_t (*exists)(struct disk *d, const char *path, bool *ret);
        errint_t (*sync_dir)(struct disk *d, const char *path_in_it); /* fsync of the directory that holds the path */
        errint_t (*info)(struct disk *d, const char *path, struct disk_info *ret);
        void (*close)(struct disk_file *f);
        errint_t (*pread)(struct disk_file *f, void *buf, size_t n, uint64_t offset, size_t *ret_n); /* short only at the end of the file */
        errint_t (*pwritev)(struct disk_file *f, const struct iovec *iov, int n_iov, uint64_t offset); /* all or an error; some of it may be written after an error */
        errint_t (*sync)(struct disk_file *f, enum sync_method method);      /* FDATASYNC, FSYNC, SYNCFS */
        errint_t (*allocate)(struct disk_file *f, uint64_t offset, uint64_t n); /* fallocate(2) mode 0; -EOPNOTSUPP */
        errint_t (*punch)(struct disk_file *f, uint64_t offset, uint64_t n);    /* FALLOC_FL_PUNCH_HOLE; -EOPNOTSUPP */
        errint_t (*truncate)(struct disk_file *f, uint64_t size);
        errint_t (*size)(struct disk_file *f, uint64_t *ret);
        errint_t (*lock)(struct disk_file *f); /* exclusive, whole file, not waiting; -EBUSY: another process has it; held until close */
};
/* Implementations embed these as their first member. */
struct disk {
        const struct disk_ops *ops;
};
struct disk_file {
        const struct disk_ops *ops;
};
struct disk *disk_system(void);

static inline errint_t disk_open(struct disk *d, const char *path, unsigned flags, struct disk_file **ret) { return d->ops->open(d, path, flags, ret); }
static inline void disk_close(struct disk_file *f) {
        if (f)
                f->ops->close(f);
}
DEFINE_FREEP(disk_close, struct disk_file)
static inline errint_t disk_pread(struct disk_file *f, void *buf, size_t n, uint64_t off, size_t *ret) { return f->ops->pread(f, buf, n, off, ret); }
static inline errint_t disk_pwritev(struct disk_file *f, const struct iovec *iov, int n, uint64_t off) { return f->ops->pwritev(f, iov, n, off); }
static inline errint_t disk_pwrite(struct disk_file *f, const void *p, size_t n, uint64_t off) {
        return f->ops->pwritev(f, &(struct iovec){.iov_base = (void *)(uintptr_t)p, .iov_len = n}, 1, off);
}
static inline errint_t disk_sync(struct disk_file *f, enum sync_method m) { return f->ops->sync(f, m); }
