/* Requests through a real mount: what the edge decodes by itself, what it counts, what the kernel answers without it. */
#include "fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct fixture f;

static void setup(void) {
        fixture_start(&f, NULL);
}
static void setup_suid(void) {
        struct fuse_edge_config c = fixture_config();
        c.allow_suid = true;
        fixture_start(&f, &c);
}
static void teardown(void) {
        fixture_stop(&f);
}

static int file(const char *name, int flags, const char *text) {
        int fd = open(fixture_path(&f, name), flags, 0644);
        ck_assert_msg(fd >= 0, "open %s: %s", name, strerror(errno));
        if (text)
                ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        return fd;
}

static void make_file(const char *name, const char *text) {
        ck_assert_int_eq(close(file(name, O_CREAT | O_EXCL | O_WRONLY, text)), 0);
}

static void expect_content(const char *name, const char *want) {
        char got[256] = "";
        int fd = file(name, O_RDONLY, NULL);
        ck_assert_int_eq(read(fd, got, sizeof(got) - 1), (ssize_t)strlen(want));
        ck_assert_str_eq(got, want);
        close(fd);
}

/* Only of this thread: the workers stay root. */
static void become(uid_t uid) {
        if (uid == 0)
                ck_assert_int_eq(syscall(SYS_setresuid, 0, 0, 0), 0);
        else
                ck_assert_int_eq(syscall(SYS_setresuid, uid, uid, 0), 0);
}

START_TEST(large_write_is_one_call) {
        char *p = xmalloc(MIB);
        memset(p, 'x', MIB);
        int fd = file("big", O_CREAT | O_RDWR, NULL);
        ck_assert_int_eq(write(fd, p, MIB), (ssize_t)MIB);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_FUSE_WRITE_CALLS), 1);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_FUSE_WRITE_BYTES), MIB);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_FUSE_WRITE_MAX), MIB);
        ck_assert_int_eq(close(fd), 0);
        fd = file("big", O_RDONLY | O_DIRECT, NULL); /* not what is in the page cache */
        char *q = aligned_alloc(4096, MIB);
        ck_assert_int_eq(read(fd, q, MIB), (ssize_t)MIB);
        ck_assert_mem_eq(p, q, MIB);
        close(fd);
        free(p);
        free(q);
}
END_TEST

START_TEST(large_file_is_read_in_one_call) {
        char *p = xcalloc(1, MIB);
        int fd = file("big", O_CREAT | O_RDWR, NULL);
        ck_assert_int_eq(write(fd, p, MIB), (ssize_t)MIB);
        ck_assert_int_eq(fsync(fd), 0);
        ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0); /* out of the page cache */
        ck_assert_int_eq(pread(fd, p, MIB, 0), (ssize_t)MIB);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READS), 1);
        for (int i = 0; i < 1000 && fixture_metric(&f, METRIC_READ_BYTES) < MIB; i++)
                usleep(1000); /* counted after the answer */
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READ_BYTES), MIB);
        close(fd);
        free(p);
}
END_TEST

/* A handle outlives what the kernel has cached of it. */
START_TEST(files_can_be_opened_by_handle) {
        struct {
                struct file_handle head;
                char bytes[MAX_HANDLE_SZ];
        } h = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
        int mount_id, dir = open(f.mountpoint, O_RDONLY | O_DIRECTORY);
        ck_assert_int_eq(mkdir(fixture_path(&f, "d"), 0755), 0);
        make_file("d/file", "by handle");
        ck_assert_int_eq(name_to_handle_at(dir, "d/file", &h.head, &mount_id, 0), 0);
        int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
        ck_assert_int_eq(write(drop, "2", 1), 1);
        close(drop);
        int fd = open_by_handle_at(dir, &h.head, O_RDONLY);
        ck_assert_msg(fd >= 0, "open_by_handle_at: %s", strerror(errno));
        char got[16] = "";
        ck_assert_int_eq(read(fd, got, sizeof(got)), 9);
        ck_assert_str_eq(got, "by handle");
        close(fd);
        ck_assert_int_eq(unlink(fixture_path(&f, "d/file")), 0);
        ck_assert_int_eq(open_by_handle_at(dir, &h.head, O_RDONLY), -1);
        ck_assert_int_eq(errno, ESTALE);
        close(dir);
}
END_TEST

START_TEST(virtual_files_are_never_cached) {
        struct stat st;
        char got[64] = "";
        ck_assert_int_eq(stat(fixture_path(&f, ".coterie/status"), &st), 0);
        uint64_t n = fixture_metric(&f, METRIC_FUSE_REQUESTS);
        ck_assert_int_eq(stat(fixture_path(&f, ".coterie/status"), &st), 0);
        ck_assert_uint_gt(fixture_metric(&f, METRIC_FUSE_REQUESTS), n);
        int fd = file(".coterie/status", O_RDONLY, NULL);
        ck_assert_int_gt(read(fd, got, sizeof(got)), 0);
        ck_assert_ptr_nonnull(strstr(got, "status"));
        close(fd);
}
END_TEST

START_TEST(every_kind_of_inode) {
        struct stat st;
        char target[64] = "";
        make_file("file", "text");
        ck_assert_int_eq(mkdir(fixture_path(&f, "dir"), 0750), 0);
        ck_assert_int_eq(symlink("some/where", fixture_path(&f, "link")), 0);
        ck_assert_int_eq(mkfifo(fixture_path(&f, "fifo"), 0600), 0);
        ck_assert_int_eq(mknod(fixture_path(&f, "null"), S_IFCHR | 0666, makedev(1, 3)), 0);
        ck_assert_int_eq(mknod(fixture_path(&f, "wide"), S_IFBLK | 0600, makedev(300, 70000)), 0);
        ck_assert_int_eq(link(fixture_path(&f, "file"), fixture_path(&f, "hard")), 0);
        ck_assert_int_eq(lstat(fixture_path(&f, "link"), &st), 0);
        ck_assert(S_ISLNK(st.st_mode));
        ck_assert_int_eq(readlink(fixture_path(&f, "link"), target, sizeof(target)), 10);
        ck_assert_str_eq(target, "some/where");
        ck_assert_int_eq(stat(fixture_path(&f, "null"), &st), 0);
        ck_assert_uint_eq(st.st_rdev, makedev(1, 3));
        ck_assert_int_eq(stat(fixture_path(&f, "wide"), &st), 0);
        ck_assert_uint_eq(st.st_rdev, makedev(300, 70000));
        ck_assert_int_eq(stat(fixture_path(&f, "hard"), &st), 0);
        ck_assert_uint_eq(st.st_nlink, 2);
        ck_assert_int_eq(rename(fixture_path(&f, "hard"), fixture_path(&f, "dir/moved")), 0);
        expect_content("dir/moved", "text");
        ck_assert_int_eq(unlink(fixture_path(&f, "dir/moved")), 0);
        ck_assert_int_eq(rmdir(fixture_path(&f, "dir")), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "file"), &st), 0);
        ck_assert_uint_eq(st.st_nlink, 1);
}
END_TEST

START_TEST(times_reach_far) {
        static const struct timespec times[][2] = {{{-300000000, 123456789}, {-1, 999999999}},
                                                   {{4420000000, 1}, {16000000000 - 2000000000, 5}}};
        make_file("old", "x");
        for (size_t i = 0; i < ARRAY_LEN(times); i++) {
                struct stat st;
                ck_assert_int_eq(utimensat(AT_FDCWD, fixture_path(&f, "old"), times[i], 0), 0);
                ck_assert_int_eq(stat(fixture_path(&f, "old"), &st), 0);
                ck_assert_mem_eq(&st.st_atim, &times[i][0], sizeof(st.st_atim));
                ck_assert_mem_eq(&st.st_mtim, &times[i][1], sizeof(st.st_mtim));
        }
}
END_TEST

START_TEST(tmpfile_can_be_linked) {
        struct stat st;
        char self[64];
        int fd = open(f.mountpoint, O_TMPFILE | O_RDWR, 0640);
        ck_assert_msg(fd >= 0, "O_TMPFILE: %s", strerror(errno));
        ck_assert_int_eq(write(fd, "secret", 6), 6);
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_uint_eq(st.st_nlink, 0);
        ck_assert_int_eq(st.st_size, 6);
        (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        ck_assert_int_eq(linkat(AT_FDCWD, self, AT_FDCWD, fixture_path(&f, "named"), AT_SYMLINK_FOLLOW), 0);
        ck_assert_int_eq(close(fd), 0);
        expect_content("named", "secret");
        ck_assert_int_eq(stat(fixture_path(&f, "named"), &st), 0);
        ck_assert_uint_eq(st.st_nlink, 1);
        ck_assert_uint_eq(st.st_mode & 07777, 0640 & ~022);
}
END_TEST

/* The kernel says so in flags that libfuse drops. */
START_TEST(setuid_goes_when_others_write) {
        struct stat st;
        make_file("tool", "x");
        ck_assert_int_eq(chmod(fixture_path(&f, "tool"), 06777), 0);
        int fd = file("tool", O_WRONLY, "y"); /* root may */
        ck_assert_int_eq(close(fd), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "tool"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 06777);
        become(1000);
        fd = file("tool", O_WRONLY, "z");
        ck_assert_int_eq(close(fd), 0);
        become(0);
        ck_assert_int_eq(stat(fixture_path(&f, "tool"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0777);
        ck_assert_int_eq(chmod(fixture_path(&f, "tool"), 06777), 0);
        become(1000);
        ck_assert_int_eq(truncate(fixture_path(&f, "tool"), 0), 0);
        become(0);
        ck_assert_int_eq(stat(fixture_path(&f, "tool"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0777);
}
END_TEST

/* Nobody asks for attributes between the write and the execve: the kernel would go by the mode that it has cached. */
START_TEST(a_changed_program_runs_without_setuid) {
        pid_t copy = SH("cp /usr/bin/id \"$1/tool\" && chmod 6777 \"$1/tool\" && \"$1/tool\" -u > /dev/null", "sh", f.mountpoint);
        ck_assert_int_eq(fixture_wait_exit(copy, 5000), 0);
        pid_t before = SH("[ $(setpriv --reuid 1000 --clear-groups \"$1/tool\" -u) = 0 ]", "sh", f.mountpoint);
        ck_assert_int_eq(fixture_wait_exit(before, 5000), 0);
        pid_t after = SH("[ $(setpriv --reuid 1000 --clear-groups sh -c 'echo more >> $1; exec $1 -u' sh \"$1/tool\") = 1000 ]", "sh",
                         f.mountpoint);
        ck_assert_int_eq(fixture_wait_exit(after, 5000), 0);
}
END_TEST

/* With the old way of telling, the kernel would ask for security.capability before each WRITE. */
START_TEST(writes_ask_for_no_xattr) {
        make_file("log", "");
        ck_assert_int_eq(chmod(fixture_path(&f, "log"), 0666), 0);
        become(1000);
        int fd = file("log", O_WRONLY, "first");
        uint64_t asked = fixture_metric(&f, METRIC_FUSE_GETXATTR), writes = fixture_metric(&f, METRIC_FUSE_WRITE_CALLS);
        for (int i = 0; i < 100; i++)
                ck_assert_int_eq(write(fd, "x", 1), 1);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_FUSE_WRITE_CALLS), writes + 100);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_FUSE_GETXATTR), asked);
        ck_assert_int_eq(close(fd), 0);
        become(0);
}
END_TEST

START_TEST(xattrs_of_every_size) {
        make_file("x", "");
        const char *path = fixture_path(&f, "x");
        char *value = xmalloc(60000), *got = xmalloc(65536);
        for (size_t n = 0; n <= 60000; n = n * 3 + 1) {
                memset(value, (int)('a' + n % 7), n);
                ck_assert_int_eq(setxattr(path, "user.key", value, n, 0), 0);
                ck_assert_int_eq(getxattr(path, "user.key", NULL, 0), (ssize_t)n);
                ck_assert_int_eq(getxattr(path, "user.key", got, 65536), (ssize_t)n);
                ck_assert_mem_eq(value, got, n);
        }
        ck_assert_int_eq(setxattr(path, "user.key", "v", 1, XATTR_CREATE), -1);
        ck_assert_int_eq(errno, EEXIST);
        ck_assert_int_eq(setxattr(path, "user.other", "v", 1, XATTR_REPLACE), -1);
        ck_assert_int_eq(errno, ENODATA);
        ck_assert_int_eq(listxattr(path, got, 65536), 9);
        ck_assert_mem_eq(got, "user.key", 9);
        ck_assert_int_eq(removexattr(path, "user.key"), 0);
        ck_assert_int_eq(getxattr(path, "user.key", got, 1), -1);
        ck_assert_int_eq(errno, ENODATA);
        free(value);
        free(got);
}
END_TEST

START_TEST(seeks_holes) {
        int fd = file("holes", O_CREAT | O_RDWR, NULL);
        ck_assert_int_eq(pwrite(fd, "x", 1, 1000000), 1);
        ck_assert_int_eq(fsync(fd), 0);
        ck_assert_int_eq(lseek(fd, 0, SEEK_HOLE), 0);
        off_t data = lseek(fd, 0, SEEK_DATA);
        ck_assert_int_gt(data, 900000);
        ck_assert_int_le(data, 1000000);
        ck_assert_int_eq(lseek(fd, 2000000, SEEK_DATA), -1);
        ck_assert_int_eq(errno, ENXIO);
        ck_assert_int_eq(fallocate(fd, 0, 0, 2000000), 0);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_eq(st.st_size, 2000000);
        close(fd);
}
END_TEST

START_TEST(statfs_tells) {
        struct statvfs st;
        ck_assert_int_eq(statvfs(f.mountpoint, &st), 0);
        ck_assert_uint_gt(st.f_blocks, 0);
        ck_assert_uint_gt(st.f_files, 0);
        ck_assert_uint_eq(st.f_namemax, 255);
}
END_TEST

static unsigned list(const char *dir, bool with_stat) {
        DIR *d = opendir(dir);
        ck_assert_ptr_nonnull(d);
        unsigned n = 0;
        for (struct dirent *e; (e = readdir(d)); n++) {
                struct stat st;
                if (with_stat)
                        ck_assert_int_eq(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        }
        closedir(d);
        return n;
}

START_TEST(lists_every_name_once) {
        char name[300];
        for (unsigned i = 0; i < 3000; i++) {
                (void)snprintf(name, sizeof(name), "%0*u", 4 + (int)(i % 250), i);
                if (i % 3 == 0)
                        ck_assert_int_eq(mkdir(fixture_path(&f, name), 0755), 0);
                else
                        ck_assert_int_eq(mknod(fixture_path(&f, name), S_IFREG | 0644, 0), 0);
        }
        ck_assert_uint_eq(list(f.mountpoint, false), 3002);
        ck_assert_uint_eq(list(f.mountpoint, true), 3002);
}
END_TEST

/* The number of requests since `before`, when no more come: RELEASE comes some time after close(2). */
static uint64_t requests_after(uint64_t before) {
        uint64_t was, now = fixture_metric(&f, METRIC_FUSE_REQUESTS);
        unsigned quiet = 0;
        while (quiet < 10) {
                usleep(5000);
                was = now;
                now = fixture_metric(&f, METRIC_FUSE_REQUESTS);
                quiet = now == was ? quiet + 1 : 0;
        }
        return now - before;
}

START_TEST(the_kernel_answers_what_it_knows) {
        struct stat st;
        char buf[64];
        ck_assert_int_eq(mkdir(fixture_path(&f, "d"), 0755), 0);
        make_file("d/a", "content");
        ck_assert_int_eq(symlink("a", fixture_path(&f, "d/l")), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "d/l"), &st), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "d/none"), &st), -1);
        expect_content("d/a", "content");
        (void)list(fixture_path(&f, "d"), true);
        (void)list(fixture_path(&f, "d"), true);
        ck_assert_int_eq(stat(fixture_path(&f, "d"), &st), 0);
        (void)requests_after(0);

        uint64_t n = fixture_metric(&f, METRIC_FUSE_REQUESTS);
        for (int i = 0; i < 10; i++) {
                ck_assert_int_eq(stat(fixture_path(&f, "d/a"), &st), 0);
                ck_assert_int_eq(stat(fixture_path(&f, "d/l"), &st), 0);
                ck_assert_int_eq(readlink(fixture_path(&f, "d/l"), buf, sizeof(buf)), 1);
                ck_assert_int_eq(stat(fixture_path(&f, "d/none"), &st), -1);
        }
        ck_assert_uint_eq(requests_after(n), 0);

        n = fixture_metric(&f, METRIC_FUSE_REQUESTS);
        uint64_t reads = fixture_metric(&f, METRIC_READS), readdirs = fixture_metric(&f, METRIC_READDIRS);
        expect_content("d/a", "content");
        ck_assert_uint_eq(requests_after(n), 3); /* OPEN, FLUSH, RELEASE */
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READS), reads);
        n = fixture_metric(&f, METRIC_FUSE_REQUESTS);
        (void)list(fixture_path(&f, "d"), false);
        ck_assert_uint_eq(requests_after(n), 2); /* OPENDIR, RELEASEDIR */
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READDIRS), readdirs);
}
END_TEST

START_TEST(written_pages_stay_cached) {
        struct stat st;
        make_file("w", "0123456789");
        ck_assert_int_eq(stat(fixture_path(&f, "w"), &st), 0);
        uint64_t reads = fixture_metric(&f, METRIC_READS);
        int fd = file("w", O_RDWR, "abc");
        ck_assert_int_eq(close(fd), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "w"), &st), 0);
        expect_content("w", "abc3456789");
        ck_assert_uint_le(fixture_metric(&f, METRIC_READS), reads + 1); /* the page that was written in part, once at most */
        reads = fixture_metric(&f, METRIC_READS);
        expect_content("w", "abc3456789");
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READS), reads);
}
END_TEST

START_TEST(a_signal_ends_waiting) {
        fixture_hold(&f);
        pid_t client = SH("exec mkdir \"$1/waits\"", "sh", f.mountpoint);
        fixture_wait_held(&f, 1);
        kill(client, SIGTERM);
        for (int i = 0; i < 500 && fixture_withdrawn(&f) == 0; i++)
                usleep(1000);
        ck_assert_uint_eq(fixture_withdrawn(&f), 1);
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 128 + SIGTERM);
        fixture_let_go(&f);
        ck_assert_uint_eq(fixture_ino(&f, INO_ROOT, "waits"), 0);
}
END_TEST

static void *hammer(void *arg) {
        char name[32];
        struct stat st;
        for (unsigned i = 0; i < 300; i++) {
                (void)snprintf(name, sizeof(name), "t%u.%u", *(unsigned *)arg, i);
                char full[256];
                (void)snprintf(full, sizeof(full), "%s/%s", f.mountpoint, name);
                int fd = open(full, O_CREAT | O_EXCL | O_RDWR, 0644);
                ck_assert_int_ge(fd, 0);
                ck_assert_int_eq(write(fd, name, strlen(name)), (ssize_t)strlen(name));
                ck_assert_int_eq(close(fd), 0);
                ck_assert_int_eq(stat(full, &st), 0);
                ck_assert_int_eq(st.st_size, (off_t)strlen(name));
                if (i % 2)
                        ck_assert_int_eq(unlink(full), 0);
        }
        return NULL;
}

START_TEST(many_threads_at_once) {
        pthread_t threads[6];
        unsigned ids[6];
        for (unsigned i = 0; i < 6; i++) {
                ids[i] = i;
                ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, &ids[i]), 0);
        }
        for (unsigned i = 0; i < 6; i++)
                pthread_join(threads[i], NULL);
        ck_assert_uint_eq(list(f.mountpoint, true), 6 * 150 + 2);
}
END_TEST

Suite *suite_requests(void) {
        Suite *s = suite_create("requests");
        TCase *c = tcase_create("requests");
        tcase_set_timeout(c, 30);
        tcase_add_checked_fixture(c, setup, teardown);
        tcase_add_test(c, large_write_is_one_call);
        tcase_add_test(c, large_file_is_read_in_one_call);
        tcase_add_test(c, files_can_be_opened_by_handle);
        tcase_add_test(c, virtual_files_are_never_cached);
        tcase_add_test(c, every_kind_of_inode);
        tcase_add_test(c, times_reach_far);
        tcase_add_test(c, tmpfile_can_be_linked);
        tcase_add_test(c, setuid_goes_when_others_write);
        tcase_add_test(c, writes_ask_for_no_xattr);
        tcase_add_test(c, xattrs_of_every_size);
        tcase_add_test(c, seeks_holes);
        tcase_add_test(c, statfs_tells);
        tcase_add_test(c, lists_every_name_once);
        tcase_add_test(c, the_kernel_answers_what_it_knows);
        tcase_add_test(c, written_pages_stay_cached);
        tcase_add_test(c, a_signal_ends_waiting);
        tcase_add_test(c, many_threads_at_once);
        suite_add_tcase(s, c);
        TCase *suid = tcase_create("setuid allowed");
        tcase_add_checked_fixture(suid, setup_suid, teardown);
        tcase_add_test(suid, a_changed_program_runs_without_setuid);
        suite_add_tcase(s, suid);
        return s;
}
