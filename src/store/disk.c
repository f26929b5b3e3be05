/* disk.c: disk_system(): the kernel's files behind disk.h. Every call completes short transfers and hides EINTR; nothing is retried
 * after an error, a failed flush least of all. Thread-safe as the kernel's calls are; the objects hold no state but the descriptor. */
#include "disk_private.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct system_file {
        struct disk_file base;
        int fd;
        bool read_only, untimed;
};

/* Most bytes the kernel takes in one call (MAX_RW_COUNT), rounded down so that O_DIRECT stays aligned. */
#define TRANSFER_MAX ((size_t)1 << 30)

static int fd_of(struct disk_file *f) {
        return CONTAINER_OF(f, struct system_file, base)->fd;
}

static errint_t system_exists(struct disk *d, const char *path, bool *ret) {
        (void)d;
        if (access(path, F_OK) == 0) {
                *ret = true;
                return 0;
        }
        if (errno != ENOENT)
                return -errno;
        *ret = false;
        return 0;
}

static errint_t system_unlink(struct disk *d, const char *path) {
        (void)d;
        return unlink(path) < 0 ? -errno : 0;
}

static errint_t system_rename(struct disk *d, const char *from, const char *to) {
        (void)d;
        return rename(from, to) < 0 ? -errno : 0;
}

/* *ret: a descriptor of the directory that holds the path. */
static errint_t open_dir(const char *path_in_it, int *ret) {
        const char *slash = strrchr(path_in_it, '/');
        char dir[PATH_MAX];
        if (!slash)
                (void)snprintf(dir, sizeof dir, "."); /* fits */
        else if (slash == path_in_it)
                (void)snprintf(dir, sizeof dir, "/"); /* fits */
        else if ((size_t)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path_in_it), path_in_it) >= sizeof dir)
                return -ENAMETOOLONG;
        *ret = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret < 0 ? -errno : 0;
}

static errint_t system_sync_dir(struct disk *d, const char *path_in_it) {
        (void)d;
        cleanup_fd int fd = -1;
        errint_t r = open_dir(path_in_it, &fd);
        if (r < 0)
                return r;
        return fsync(fd) < 0 ? -errno : 0;
}

static errint_t system_info(struct disk *d, const char *path, struct disk_info *ret) {
        (void)d;
        return disk_info_of(path, ret);
}

static void system_close(struct disk_file *f) {
        struct system_file *sf = CONTAINER_OF(f, struct system_file, base);
        /* Whatever was written, by a predecessor that was killed too: backups that go by the times shall see a change. */
        if (sf->untimed)
                (void)futimens(sf->fd, (const struct timespec[2]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}}); /* only a hint */
        (void)close(sf->fd); /* whatever had to be durable was flushed before, and its error seen there */
        free(sf);
}

static errint_t system_pread(struct disk_file *f, void *buf, size_t n, uint64_t offset, size_t *ret_n) {
        int fd = fd_of(f);
        size_t done = 0;
        if (offset > INT64_MAX || n > INT64_MAX - offset)
                return -EINVAL;
        while (done < n) {
                size_t want = MIN_OF(n - done, TRANSFER_MAX);
                ssize_t got = pread(fd, (char *)buf + done, want, (off_t)(offset + done));
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                done += (size_t)got;
                /* A read that ends off a sector met the end of the file; with O_DIRECT the next offset would be refused. */
                if (got == 0 || ((size_t)got < want && (offset + done) % 512 != 0))
                        break;
        }
        *ret_n = done;
        return 0;
}

/* Drops `n` bytes from the front of a copied vector. */
static void iov_advance(struct iovec **iov, int *n_iov, size_t n) {
        while (*n_iov > 0 && n >= (*iov)->iov_len) {
                n -= (*iov)->iov_len;
                (*iov)++;
                (*n_iov)--;
        }
        if (n > 0) {
                (*iov)->iov_base = (char *)(*iov)->iov_base + n;
                (*iov)->iov_len -= n;
        }
}

static errint_t system_pwritev(struct disk_file *f, const struct iovec *iov, int n_iov, uint64_t offset) {
        int fd = fd_of(f);
        if (n_iov < 0 || offset > INT64_MAX)
                return -EINVAL;
        struct iovec few[8];
        cleanup_free struct iovec *many = (size_t)n_iov > ARRAY_LEN(few) ? xmalloc((size_t)n_iov * sizeof *many) : NULL;
        struct iovec *rest = many ? many : few;
        if (n_iov > 0)
                memcpy(rest, iov, (size_t)n_iov * sizeof *rest);
        iov_advance(&rest, &n_iov, 0);
        while (n_iov > 0) {
                ssize_t put = pwritev(fd, rest, MIN_OF(n_iov, IOV_MAX), (off_t)offset);
                if (put < 0 && errno == EINTR)
                        continue;
                if (put < 0)
                        return -errno;
                if (put == 0)
                        return -EIO; /* a regular file never takes nothing; do not spin */
                offset += (uint64_t)put;
                iov_advance(&rest, &n_iov, (size_t)put);
        }
        return 0;
}

static errint_t system_sync(struct disk_file *f, enum sync_method method) {
        int fd = fd_of(f), r;
        switch (method) {
        case SYNC_FDATASYNC:
                r = fdatasync(fd);
                break;
        case SYNC_FSYNC:
                r = fsync(fd);
                break;
        case SYNC_SYNCFS:
                r = syncfs(fd);
                break;
        default:
                return -EINVAL; /* the descriptor's own flags do it, or nothing does */
        }
        return r < 0 ? -errno : 0; /* EINTR too: what was flushed by then is unknown */
}

static errint_t system_allocate(struct disk_file *f, uint64_t offset, uint64_t n) {
        int r;
        if (n == 0)
                return 0;
        do
                r = fallocate(fd_of(f), 0, (off_t)offset, (off_t)n);
        while (r < 0 && errno == EINTR);
        return r < 0 ? (errno == ENOSYS ? -EOPNOTSUPP : -errno) : 0;
}

static errint_t system_punch(struct disk_file *f, uint64_t offset, uint64_t n) {
        if (n == 0)
                return 0;
        if (fallocate(fd_of(f), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n) < 0)
                return errno == ENOSYS ? -EOPNOTSUPP : -errno;
        return 0;
}

static errint_t system_truncate(struct disk_file *f, uint64_t size) {
        if (size > INT64_MAX)
                return -EFBIG;
        return ftruncate(fd_of(f), (off_t)size) < 0 ? -errno : 0;
}

static errint_t system_size(struct disk_file *f, uint64_t *ret) {
        struct stat st;
        if (fstat(fd_of(f), &st) < 0)
                return -errno;
        *ret = (uint64_t)st.st_size;
        return 0;
}

/* An open file description lock: it survives the closing of other descriptors of the file, conflicts within one process too, and keeps
 * a plain sqlite3 (POSIX locks on the same file) out. A read-only opener shares with others of its kind. */
static errint_t system_lock(struct disk_file *f) {
        const struct system_file *sf = CONTAINER_OF(f, struct system_file, base);
        struct flock fl = {.l_type = sf->read_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(sf->fd, F_OFD_SETLK, &fl) == 0)
                return 0;
        return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

static const struct disk_ops system_ops;

/* Puts an untimed descriptor in the place of *fd, where there is such a thing and this process may have it; otherwise all is as before. */
static bool make_untimed(const char *path, int how, int *fd) {
        cleanup_fd int dir = -1;
        int other;
        if (open_dir(path, &dir) < 0 || disk_xfs_untimed(*fd, dir, how & ~(O_CREAT | O_EXCL), &other) < 0)
                return false;
        (void)close(*fd); /* nothing was written through it */
        *fd = other;
        return true;
}

static errint_t system_open(struct disk *d, const char *path, unsigned flags, struct disk_file **ret) {
        (void)d;
        int how = O_CLOEXEC | O_NOCTTY | O_NONBLOCK | ((flags & DISK_READ_ONLY) ? O_RDONLY : O_RDWR);
        if (flags & DISK_CREATE)
                how |= O_CREAT | ((flags & DISK_EXCL) ? O_EXCL : 0);
        if (flags & DISK_DIRECT)
                how |= O_DIRECT;
        if (flags & DISK_DSYNC)
                how |= O_DSYNC;
        if (flags & DISK_SYNC)
                how |= O_SYNC;
        cleanup_fd int fd = open(path, how, 0600);
        if (fd < 0)
                return -errno;
        struct stat st;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode)) /* O_NONBLOCK above: a fifo here must not hang the daemon */
                return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
        bool untimed = (flags & DISK_UNTIMED) && make_untimed(path, how, &fd);
        struct system_file *sf = NEW(struct system_file);
        sf->untimed = untimed;
        sf->base.ops = &system_ops;
        sf->fd = steal_fd(&fd);
        sf->read_only = flags & DISK_READ_ONLY;
        *ret = &sf->base;
        return 0;
}

static const struct disk_ops system_ops = {
        .open = system_open,
        .unlink = system_unlink,
        .rename = system_rename,
        .exists = system_exists,
        .sync_dir = system_sync_dir,
        .info = system_info,
        .close = system_close,
        .pread = system_pread,
        .pwritev = system_pwritev,
        .sync = system_sync,
        .allocate = system_allocate,
        .punch = system_punch,
        .truncate = system_truncate,
        .size = system_size,
        .lock = system_lock,
};

struct disk *disk_system(void) {
        static struct disk disk = {.ops = &system_ops};
        return &disk;
}
