/* stress.c: several processes do random things to one small tree: posix_stress DIRECTORY PROCESSES CALLS SEED
 *
 * What a call answers depends on what the others do; but an errno that no call on a healthy filesystem gives is a failure, and so is a name
 * that a process alone knows of and does not find as it left it. What is left is compared by whoever ran this. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static uint64_t state;
static unsigned long step;
static unsigned self;

static uint32_t draw(uint32_t below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint32_t)((state >> 20) % below);
}

/* One of few names, so that processes meet; a third of them below directories that others may move. */
static const char *some_path(void) {
        static char text[4][64];
        static unsigned turn;
        char *out = text[turn++ % 4];
        switch (draw(3)) {
        case 0:
                (void)snprintf(out, 64, "n%u", draw(12));
                break;
        case 1:
                (void)snprintf(out, 64, "d%u/n%u", draw(4), draw(8));
                break;
        default:
                (void)snprintf(out, 64, "d%u/e%u/n%u", draw(4), draw(3), draw(6));
        }
        return out;
}
static const char *some_dir(void) {
        static char text[4][32];
        static unsigned turn;
        char *out = text[turn++ % 4];
        (void)snprintf(out, 32, draw(2) ? "d%u" : "d%u/e%u", draw(4), draw(3));
        return out;
}

static long s_write(void) {
        static char data[40000];
        int fd = open(some_path(), O_WRONLY | O_CREAT | O_NONBLOCK | (draw(2) ? O_TRUNC : 0) | (draw(3) ? 0 : O_APPEND), 0644);
        if (fd < 0)
                return -1;
        memset(data, (int)('a' + draw(26)), sizeof(data));
        long r = pwrite(fd, data, draw(4) ? draw(3000) : draw(sizeof(data)), draw(50000));
        if (r >= 0 && draw(30) == 0)
                r = fsync(fd);
        int error = errno;
        if (close(fd) < 0)
                return -1;
        errno = error;
        return r;
}
static long s_read(void) {
        static char data[65536];
        int fd = open(some_path(), O_RDONLY | O_NONBLOCK);
        if (fd < 0)
                return -1;
        long r = read(fd, data, sizeof(data));
        int error = errno;
        (void)close(fd);
        errno = error;
        return r;
}
static long s_map(void) {
        int fd = open(some_path(), O_RDWR | O_NONBLOCK);
        struct stat st;
        if (fd < 0)
                return -1;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
                /* Others may cut the file meanwhile, and a store would be a SIGBUS: read(2) into the map answers EFAULT instead. */
                int zero = open("/dev/zero", O_RDONLY);
                char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                if (p != MAP_FAILED) {
                        (void)!read(zero, p, 100);
                        (void)munmap(p, 8192);
                }
                (void)close(zero);
        }
        (void)close(fd);
        return 0;
}
static long s_replace(void) {
        char tmp[32];
        (void)snprintf(tmp, sizeof(tmp), "tmp-%u", self);
        int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, tmp, strlen(tmp)) < 0 || close(fd) < 0)
                return -1;
        return rename(tmp, some_path());
}
static long s_truncate(void) {
        return truncate(some_path(), draw(60000));
}
static long s_mkdir(void) {
        return mkdir(some_dir(), 0755);
}
static long s_rmdir(void) {
        return rmdir(some_dir());
}
static long s_unlink(void) {
        return unlink(some_path());
}
static long s_link(void) {
        return link(some_path(), some_path());
}
static long s_symlink(void) {
        return symlink("n0", some_path());
}
static long s_mkfifo(void) {
        return mkfifo(some_path(), 0600);
}
static long s_rename(void) {
        static const unsigned flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT};
        return syscall(SYS_renameat2, AT_FDCWD, some_path(), AT_FDCWD, some_path(), flags[draw(5)]);
}
static long s_rename_dir(void) {
        return syscall(SYS_renameat2, AT_FDCWD, some_dir(), AT_FDCWD, some_dir(), draw(2) ? RENAME_EXCHANGE : 0);
}
static long s_chmod(void) {
        return fchmodat(AT_FDCWD, some_path(), 0600 + draw(0200), 0);
}
static long s_chown(void) {
        return lchown(some_path(), draw(5), draw(5));
}
static long s_utimes(void) {
        return utimensat(AT_FDCWD, some_path(), NULL, AT_SYMLINK_NOFOLLOW);
}
static long s_xattr(void) {
        char name[16];
        (void)snprintf(name, sizeof(name), "user.x%u", draw(3));
        return draw(3) ? setxattr(some_path(), name, name, draw(8), 0) : removexattr(some_path(), name);
}
static long s_list(void) {
        DIR *d = opendir(some_dir());
        if (!d)
                return -1;
        errno = 0;
        while (readdir(d))
                ;
        int error = errno;
        (void)closedir(d);
        errno = error;
        return error ? -1 : 0;
}
static long s_punch(void) {
        int fd = open(some_path(), O_WRONLY | O_NONBLOCK);
        if (fd < 0)
                return -1;
        long r = fallocate(fd, draw(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0, draw(30000), 1 + draw(30000));
        int error = errno;
        (void)close(fd);
        errno = error;
        return r;
}
static long s_stat(void) {
        struct stat st;
        return lstat(some_path(), &st);
}

/* A file that nobody else touches must be as it was left. */
static long s_own(void) {
        static char wanted[20000], got[20001];
        static size_t size;
        char name[32];
        (void)snprintf(name, sizeof(name), "own-%u", self);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        if (fd < 0)
                return -1;
        ssize_t n = pread(fd, got, sizeof(got), 0);
        if (n != (ssize_t)size || memcmp(got, wanted, size) != 0) {
                (void)fprintf(stderr, "%s: %zd bytes, or other ones, instead of %zu\n", name, n, size);
                exit(3);
        }
        size_t at = draw(10000), len = draw(10000);
        memset(got, (int)draw(256), len);
        if (len > 0 && pwrite(fd, got, len, (off_t)at) != (ssize_t)len)
                return -1;
        if (len > 0) {
                memcpy(wanted + at, got, len);
                size = at + len > size ? at + len : size;
        }
        return close(fd);
}

static long (*const calls[])(void) = {s_write,    s_write,  s_write,  s_read,       s_read,   s_map,    s_replace, s_replace,
                                      s_truncate, s_mkdir,  s_mkdir,  s_rmdir,      s_unlink, s_unlink, s_link,    s_symlink,
                                      s_mkfifo,   s_rename, s_rename, s_rename_dir, s_chmod,  s_chown,  s_utimes,  s_xattr,
                                      s_list,     s_list,   s_punch,  s_stat,       s_stat,   s_own,    s_own};
static const int fine[] = {ENOENT, EEXIST, ENOTDIR, EISDIR,     ENOTEMPTY, EINVAL, ELOOP,   ENXIO, EPERM,  ENODATA,
                           EFAULT, ESPIPE, EBUSY,   EOPNOTSUPP, ENODEV,    EAGAIN, ETXTBSY, EXDEV, EACCES, EBADF};

static void work(unsigned long n) {
        char own[32];
        (void)snprintf(own, sizeof(own), "own-%u", self);
        (void)unlink(own); /* of a run before */
        for (step = 0; step < n; step++) {
                uint32_t c = draw(sizeof(calls) / sizeof(calls[0]));
                errno = 0;
                if (calls[c]() >= 0)
                        continue;
                bool known = false;
                for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
                        known = known || errno == fine[i];
                if (!known) {
                        (void)fprintf(stderr, "process %u, step %lu, call %u: %s\n", self, step, c, strerror(errno));
                        exit(1);
                }
        }
}

int main(int argc, char **argv) {
        if (argc != 5 || chdir(argv[1]) < 0) {
                (void)fprintf(stderr, "usage: %s DIRECTORY PROCESSES CALLS SEED\n", argv[0]);
                return 2;
        }
        unsigned processes = (unsigned)strtoul(argv[2], NULL, 10);
        unsigned long n = strtoul(argv[3], NULL, 10);
        for (self = 0; self < processes; self++)
                if (fork() == 0) {
                        state = (strtoull(argv[4], NULL, 10) * 1000 + self + 1) * UINT64_C(0x9e3779b97f4a7c15);
                        work(n);
                        exit(0);
                }
        int status, failed = 0;
        while (wait(&status) > 0)
                failed |= status;
        return failed ? 1 : 0;
}
