/* The kernel keeps attributes, names and listings for ever, and nobody notifies it of what it asked for itself. So after every local
 * operation it must know everything: random operations, and after each one what the kernel says is compared with the truth. */
#include "fixture.h"

#include "notify_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define N_DIRS  3
#define N_NAMES 6
#define N_OPEN  3

static struct fixture f;
static const char *const dirs[N_DIRS] = {"", "d/", "d/e/"};
static int fds[N_OPEN];
static uint64_t seed;

static unsigned roll(unsigned n) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return (unsigned)(seed % n);
}

/* --- the truth --- */

struct answer {
        int error;
        struct attr attr;
};
static void answer_err(struct fs_reply *r, int error) {
        ((struct answer *)r->ctx)->error = error;
}
static void answer_attr(struct fs_reply *r, const struct fs_entry *e) {
        ((struct answer *)r->ctx)->attr = e->attr;
}
static const struct fs_reply_ops answer_ops = {.err = answer_err, .attr = answer_attr};

static struct answer truth(uint64_t ino) {
        struct answer a = {0};
        struct fs_reply r = {.ops = &answer_ops, .ctx = &a};
        struct fs_caller c = {0};
        fs_getattr(f.fs, &c, ino, &r);
        return a;
}

static void same_time(struct timespec kernel, struct timestamp daemon, const char *which, const char *path, const char *after) {
        ck_assert_msg(kernel.tv_sec == daemon.sec && kernel.tv_nsec == (long)daemon.nsec,
                      "%s of %s is stale after %s: %ld.%09ld, true %ld.%09u", which, path, after, (long)kernel.tv_sec, kernel.tv_nsec,
                      (long)daemon.sec, daemon.nsec);
}

static void compare(const struct stat *st, const char *path, const char *after) {
        struct answer a = truth(st->st_ino);
        ck_assert_int_eq(a.error, 0);
        ck_assert_msg(st->st_mode == a.attr.mode, "mode of %s is stale after %s: %o, true %o", path, after, st->st_mode, a.attr.mode);
        ck_assert_msg(st->st_nlink == a.attr.nlink, "nlink of %s is stale after %s: %lu, true %u", path, after, st->st_nlink, a.attr.nlink);
        ck_assert_msg(st->st_uid == a.attr.uid && st->st_gid == a.attr.gid, "owner of %s is stale after %s", path, after);
        ck_assert_msg((uint64_t)st->st_size == a.attr.size, "size of %s is stale after %s: %ld, true %lu", path, after, st->st_size,
                      a.attr.size);
        ck_assert_msg((uint64_t)st->st_blocks == a.attr.blocks, "blocks of %s are stale after %s: %ld, true %lu", path, after,
                      st->st_blocks, a.attr.blocks);
        same_time(st->st_atim, a.attr.atime, "atime", path, after);
        same_time(st->st_mtim, a.attr.mtime, "mtime", path, after);
        same_time(st->st_ctim, a.attr.ctime, "ctime", path, after);
}

static unsigned count_listed(const char *dir) {
        DIR *d = opendir(dir);
        ck_assert_ptr_nonnull(d);
        unsigned n = 0;
        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

static void compare_all(const char *after) {
        for (unsigned d = 0; d < N_DIRS; d++) {
                struct stat st;
                char path[256];
                (void)snprintf(path, sizeof(path), "%s/%s", f.mountpoint, dirs[d]);
                if (stat(path, &st) < 0)
                        continue;
                compare(&st, path, after);
                uint64_t parent = st.st_ino;
                unsigned there = 0;
                for (unsigned n = 0; n < N_NAMES + 2; n++) {
                        char name[8];
                        (void)snprintf(name, sizeof(name), n < N_NAMES ? "n%u" : n == N_NAMES ? "d" : "e", n);
                        (void)snprintf(path, sizeof(path), "%s/%s%s", f.mountpoint, dirs[d], name);
                        uint64_t ino = fixture_ino(&f, parent, name);
                        int r = lstat(path, &st);
                        ck_assert_msg((r == 0) == (ino != 0), "%s is %s after %s", path, ino ? "missing" : "still there", after);
                        if (r < 0)
                                continue;
                        ck_assert_msg(st.st_ino == ino, "%s is another inode after %s", path, after);
                        compare(&st, path, after);
                        there++;
                }
                (void)snprintf(path, sizeof(path), "%s/%s", f.mountpoint, dirs[d]);
                ck_assert_msg(count_listed(path) == there + 2, "the listing of %s is stale after %s", path, after);
        }
        for (unsigned i = 0; i < N_OPEN; i++) {
                struct stat st;
                if (fds[i] >= 0 && fstat(fds[i], &st) == 0)
                        compare(&st, "an open file", after);
        }
}

/* --- the operations; whether they succeed does not matter --- */

static const char *some_path(void) {
        static char ring[4][256];
        static unsigned at;
        char *out = ring[at++ % 4];
        unsigned n = roll(N_NAMES + 1);
        if (n == N_NAMES)
                (void)snprintf(out, 256, "%s/%s", f.mountpoint, roll(2) ? "d" : "d/e");
        else
                (void)snprintf(out, 256, "%s/%sn%u", f.mountpoint, dirs[roll(N_DIRS)], n);
        return out;
}

static void as_other(bool other) {
        (void)syscall(SYS_setresuid, other ? 1000 : 0, other ? 1000 : 0, 0);
}

static void do_open(void) {
        unsigned i = roll(N_OPEN);
        if (fds[i] >= 0)
                close(fds[i]);
        fds[i] = open(some_path(), O_CREAT | O_RDWR | O_NOFOLLOW | (roll(3) == 0 ? O_TRUNC : 0) | (roll(3) == 0 ? O_APPEND : 0), 0666);
}
static void do_mkdir(void) {
        (void)!mkdir(some_path(), 0755);
}
static void do_unlink(void) {
        (void)!unlink(some_path());
}
static void do_rmdir(void) {
        (void)!rmdir(some_path());
}
static void do_rename(void) {
        (void)!renameat2(AT_FDCWD, some_path(), AT_FDCWD, some_path(),
                         roll(4) == 0   ? RENAME_EXCHANGE
                         : roll(4) == 0 ? RENAME_NOREPLACE
                                        : 0);
}
static void do_link(void) {
        (void)!link(some_path(), some_path());
}
static void do_symlink(void) {
        (void)!symlink("target", some_path());
}
static void do_chmod(void) {
        (void)!chmod(some_path(), (mode_t[]){0644, 0777, 06777, 02755}[roll(4)]);
}
static void do_chown(void) {
        (void)!lchown(some_path(), roll(3), roll(3));
}
static void do_utimens(void) {
        struct timespec t[2] = {{.tv_sec = roll(1000000), .tv_nsec = roll(1000000)}, {.tv_nsec = roll(2) ? UTIME_NOW : UTIME_OMIT}};
        (void)!utimensat(AT_FDCWD, some_path(), t, AT_SYMLINK_NOFOLLOW);
}
static void do_truncate(void) {
        (void)!truncate(some_path(), roll(20000));
}
static void do_write(void) {
        static const char bytes[9000] = "some bytes";
        (void)!pwrite(fds[roll(N_OPEN)], bytes, roll(sizeof(bytes)), roll(20000));
}
static void do_write_as_other(void) {
        as_other(true);
        int fd = open(some_path(), O_WRONLY | O_NOFOLLOW);
        if (fd >= 0) {
                (void)!write(fd, "other", 5);
                close(fd);
        }
        as_other(false);
}
static void do_truncate_as_other(void) {
        as_other(true);
        do_truncate();
        as_other(false);
}
static void do_ftruncate(void) {
        (void)!ftruncate(fds[roll(N_OPEN)], roll(20000));
}
static void do_fsync(void) {
        (void)!fsync(fds[roll(N_OPEN)]);
}
static void do_close(void) {
        unsigned i = roll(N_OPEN);
        if (fds[i] >= 0)
                close(fds[i]);
        fds[i] = -1;
}
static void do_fallocate(void) {
        (void)!fallocate(fds[roll(N_OPEN)], (int[]){0, 1, 3, 0x10}[roll(4)], roll(20000), 1 + roll(20000));
}
static void do_mmap(void) {
        int fd = fds[roll(N_OPEN)];
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
                return;
        char *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return;
        p[roll((unsigned)st.st_size)]++;
        (void)msync(p, (size_t)st.st_size, MS_SYNC);
        munmap(p, (size_t)st.st_size);
}
static void do_setxattr(void) {
        (void)!lsetxattr(some_path(), "user.k", "value", roll(5), 0);
}
static void do_removexattr(void) {
        (void)!lremovexattr(some_path(), "user.k");
}
/* linux/posix_acl_xattr.h: version 2, then entries of tag, permissions, id. */
static void do_acl(void) {
        struct {
                uint32_t version;
                struct {
                        uint16_t tag, perm;
                        uint32_t id;
                } e[5];
        } acl = {2,
                 {{1, 6, -1u}, {2, (uint16_t)roll(8), 1000}, {4, 4, -1u}, {0x10, (uint16_t)roll(8), -1u}, {0x20, (uint16_t)roll(8), -1u}}};
        (void)!setxattr(some_path(), roll(2) ? "system.posix_acl_access" : "system.posix_acl_default", &acl, sizeof(acl), 0);
}
static void do_tmpfile(void) {
        int fd = open(f.mountpoint, O_TMPFILE | O_RDWR, 0644);
        if (fd < 0)
                return;
        (void)!write(fd, "tmp", 3);
        char self[64];
        (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        (void)!linkat(AT_FDCWD, self, AT_FDCWD, some_path(), AT_SYMLINK_FOLLOW);
        close(fd);
}
static void do_nothing_for_a_second(void) {
        fs_tick(f.fs, UINT64_MAX); /* what was gathered becomes an operation by itself */
}

static const struct {
        const char *name;
        void (*run)(void);
} steps[] = {
        {"open", do_open},
        {"open", do_open},
        {"mkdir", do_mkdir},
        {"unlink", do_unlink},
        {"rmdir", do_rmdir},
        {"rename", do_rename},
        {"rename", do_rename},
        {"link", do_link},
        {"symlink", do_symlink},
        {"chmod", do_chmod},
        {"chown", do_chown},
        {"utimens", do_utimens},
        {"truncate", do_truncate},
        {"write", do_write},
        {"write", do_write},
        {"write as other", do_write_as_other},
        {"truncate as other", do_truncate_as_other},
        {"ftruncate", do_ftruncate},
        {"fsync", do_fsync},
        {"close", do_close},
        {"fallocate", do_fallocate},
        {"mmap", do_mmap},
        {"setxattr", do_setxattr},
        {"removexattr", do_removexattr},
        {"acl", do_acl},
        {"tmpfile", do_tmpfile},
        {"a second", do_nothing_for_a_second},
};

static void count_known(void *ctx, uint64_t ino) {
        (void)ino;
        ++*(unsigned *)ctx;
}

/* When the kernel has dropped its caches, the edge must know of nothing: its counts are the kernel's. */
static void nothing_known(void) {
        unsigned n = 1;
        for (int i = 0; i < 100 && n > 0; i++) {
                int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
                ck_assert_int_ge(fd, 0);
                ck_assert_int_eq(write(fd, "2", 1), 1);
                close(fd);
                usleep(10000);
                n = 0;
                known_each(f.edge->notify->known, count_known, &n);
        }
        ck_assert_uint_eq(n, 0);
}

static void run(uint64_t from) {
        seed = from;
        umask(0);
        for (unsigned i = 0; i < N_OPEN; i++)
                fds[i] = -1;
        fixture_start(&f, NULL);
        ck_assert_int_eq(mkdir(fixture_path(&f, "d"), 0777), 0);
        ck_assert_int_eq(mkdir(fixture_path(&f, "d/e"), 0777), 0);
        for (unsigned i = 0; i < 1500; i++) {
                unsigned s = roll(ARRAY_LEN(steps));
                steps[s].run();
                char after[64];
                (void)snprintf(after, sizeof(after), "%s (step %u of seed %lu)", steps[s].name, i, (unsigned long)from);
                compare_all(after);
        }
        for (unsigned i = 0; i < N_OPEN; i++)
                if (fds[i] >= 0)
                        close(fds[i]);
        nothing_known();
        fixture_stop(&f);
}

START_TEST(the_kernel_is_never_stale) {
        const char *from = getenv("COTERIE_TEST_SEED");
        run(from ? strtoull(from, NULL, 10) : (uint64_t)_i * 7919 + 1);
}
END_TEST

Suite *suite_local(void) {
        Suite *s = suite_create("local");
        TCase *c = tcase_create("local");
        tcase_set_timeout(c, 60);
        tcase_add_loop_test(c, the_kernel_is_never_stale, 0, 4);
        suite_add_tcase(s, c);
        return s;
}
