/* disk.c: the same assertions on the real disk and on the simulated one, and what only one of them can show. */
#include "disk_private.h"
#include "simdisk.h"
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
        struct disk *disk;
        struct simdisk *sim;
        char dir[64];
};

static void place_open(struct place *p, bool sim) {
        *p = (struct place){0};
        (void)snprintf(p->dir, sizeof p->dir, "/tmp/coterie-disk-XXXXXX");
        if (sim) {
                p->sim = simdisk_new(&(struct simdisk_config){.history = true});
                p->disk = simdisk_disk(p->sim);
        } else {
                ck_assert_ptr_nonnull(mkdtemp(p->dir));
                p->disk = disk_system();
        }
}

static void place_close(struct place *p) {
        simdisk_free(p->sim);
        if (!p->sim)
                ck_assert_int_eq(rmdir(p->dir), 0);
}

static const char *in(struct place *p, const char *name) {
        static char path[4][128];
        static unsigned n;
        char *s = path[n++ % 4];
        (void)snprintf(s, sizeof path[0], "%s/%s", p->dir, name);
        return s;
}

static struct disk_file *open_ok(struct place *p, const char *name, unsigned flags) {
        struct disk_file *f = NULL;
        ck_assert_int_eq(disk_open(p->disk, in(p, name), flags, &f), 0);
        return f;
}

/* _i: 0 the system's disk, 1 the simulated one */
START_TEST(files_come_and_go) {
        struct place p;
        struct disk_file *f = NULL;
        bool there = true;
        place_open(&p, _i);
        ck_assert_int_eq(disk_open(p.disk, in(&p, "a"), 0, &f), -ENOENT);
        ck_assert_ptr_null(f);
        ck_assert_int_eq(p.disk->ops->exists(p.disk, in(&p, "a"), &there), 0);
        ck_assert(!there);
        disk_close(open_ok(&p, "a", DISK_CREATE | DISK_EXCL));
        ck_assert_int_eq(disk_open(p.disk, in(&p, "a"), DISK_CREATE | DISK_EXCL, &f), -EEXIST);
        ck_assert_int_eq(p.disk->ops->exists(p.disk, in(&p, "a"), &there), 0);
        ck_assert(there);
        ck_assert_int_eq(p.disk->ops->rename(p.disk, in(&p, "a"), in(&p, "b")), 0);
        ck_assert_int_eq(p.disk->ops->rename(p.disk, in(&p, "a"), in(&p, "b")), -ENOENT);
        ck_assert_int_eq(p.disk->ops->sync_dir(p.disk, in(&p, "b")), 0);
        ck_assert_int_eq(p.disk->ops->unlink(p.disk, in(&p, "b")), 0);
        ck_assert_int_eq(p.disk->ops->unlink(p.disk, in(&p, "b")), -ENOENT);
        place_close(&p);
}
END_TEST

START_TEST(bytes_come_back) {
        struct place p;
        char buf[32];
        size_t got = 99;
        uint64_t size;
        place_open(&p, _i);
        struct disk_file *f = open_ok(&p, "f", DISK_CREATE);
        struct iovec iov[12];
        for (size_t i = 0; i < ARRAY_LEN(iov); i++)
                iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t) "xyz", .iov_len = i % 4};
        ck_assert_int_eq(disk_pwritev(f, iov, ARRAY_LEN(iov), 5), 0); /* 3 x (0 + 1 + 2 + 3) bytes */
        ck_assert_int_eq(f->ops->size(f, &size), 0);
        ck_assert_uint_eq(size, 23);
        ck_assert_int_eq(disk_pread(f, buf, sizeof buf, 0, &got), 0);
        ck_assert_uint_eq(got, 23);
        ck_assert_mem_eq(buf, "\0\0\0\0\0xxyxyzxxyxyzxxyxyz", 23);
        ck_assert_int_eq(disk_pread(f, buf, sizeof buf, 23, &got), 0);
        ck_assert_uint_eq(got, 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FSYNC), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_SYNCFS), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_OPEN_SYNC), -EINVAL);
        ck_assert_int_eq(f->ops->truncate(f, 6), 0);
        ck_assert_int_eq(f->ops->truncate(f, 8), 0);
        ck_assert_int_eq(disk_pread(f, buf, sizeof buf, 4, &got), 0);
        ck_assert_uint_eq(got, 4);
        ck_assert_mem_eq(buf, "\0x\0\0", 4);
        errint_t r = f->ops->allocate(f, 0, 8192);
        ck_assert(r == 0 || r == -EOPNOTSUPP);
        ck_assert_int_eq(f->ops->size(f, &size), 0);
        ck_assert_uint_eq(size, r == 0 ? 8192 : 8);
        r = f->ops->punch(f, 0, 4096);
        ck_assert(r == 0 || r == -EOPNOTSUPP);
        if (r == 0) {
                ck_assert_int_eq(disk_pread(f, buf, 8, 0, &got), 0);
                ck_assert_mem_eq(buf, "\0\0\0\0\0\0\0\0", 8);
        }
        struct disk_file *reader = open_ok(&p, "f", DISK_READ_ONLY);
        ck_assert_int_eq(disk_pwrite(reader, "x", 1, 0), -EBADF);
        disk_close(reader);
        disk_close(f);
        ck_assert_int_eq(p.disk->ops->unlink(p.disk, in(&p, "f")), 0);
        place_close(&p);
}
END_TEST

START_TEST(a_second_one_is_refused) {
        struct place p;
        place_open(&p, _i);
        struct disk_file *a = open_ok(&p, "l", DISK_CREATE), *b = open_ok(&p, "l", 0);
        struct disk_file *c = open_ok(&p, "l", DISK_READ_ONLY), *d = open_ok(&p, "l", DISK_READ_ONLY);
        ck_assert_int_eq(a->ops->lock(a), 0);
        ck_assert_int_eq(a->ops->lock(a), 0);
        ck_assert_int_eq(b->ops->lock(b), -EBUSY);
        ck_assert_int_eq(c->ops->lock(c), -EBUSY);
        disk_close(a);
        ck_assert_int_eq(c->ops->lock(c), 0);
        ck_assert_int_eq(d->ops->lock(d), 0);
        ck_assert_int_eq(b->ops->lock(b), -EBUSY);
        disk_close(c);
        disk_close(d);
        ck_assert_int_eq(b->ops->lock(b), 0);
        disk_close(b);
        ck_assert_int_eq(p.disk->ops->unlink(p.disk, in(&p, "l")), 0);
        place_close(&p);
}
END_TEST

START_TEST(info_is_told) {
        struct place p;
        struct disk_info info = {0};
        place_open(&p, _i);
        ck_assert_int_eq(p.disk->ops->info(p.disk, in(&p, "not-there-yet"), &info), 0);
        ck_assert_uint_gt(info.fs_size, 0);
        ck_assert_uint_le(info.fs_free, info.fs_size);
        ck_assert(info.logical_sector >= 512 && info.physical_sector >= info.logical_sector);
        ck_assert_uint_gt(strlen(info.fs_type), 0);
        place_close(&p);
}
END_TEST

START_TEST(the_system_opens_only_files) {
        struct disk *d = disk_system();
        struct disk_file *f = NULL;
        struct disk_info info;
        ck_assert_int_eq(disk_open(d, "/tmp", DISK_READ_ONLY, &f), -EISDIR);
        ck_assert_int_eq(disk_open(d, "/tmp", 0, &f), -EISDIR);
        ck_assert_int_eq(disk_open(d, "/dev/null", 0, &f), -EINVAL);
        ck_assert_int_eq(disk_open(d, "/nowhere/at/all", DISK_CREATE, &f), -ENOENT);
        ck_assert_int_eq(d->ops->info(d, "/nowhere/at/all", &info), -ENOENT);
        ck_assert_int_eq(d->ops->info(d, "/proc/self/status", &info), 0);
        ck_assert(!info.block_device_found); /* and says so, with the usual sectors */
        ck_assert_uint_eq(info.logical_sector, 512);
        ck_assert_uint_eq(info.physical_sector, 4096);
        ck_assert_str_eq(info.fs_type, "proc");
}
END_TEST

START_TEST(a_fifo_does_not_hang) {
        struct place p;
        struct disk_file *f = NULL;
        place_open(&p, false);
        ck_assert_int_eq(mkfifo(in(&p, "fifo"), 0600), 0);
        ck_assert_int_eq(disk_open(p.disk, in(&p, "fifo"), 0, &f), -EINVAL);
        ck_assert_int_eq(unlink(in(&p, "fifo")), 0);
        place_close(&p);
}
END_TEST

/* Where there are no untimed descriptors, asking for one changes nothing; the tests through a mount have an XFS. */
START_TEST(untimed_or_not) {
        struct place p;
        char buf[8];
        size_t got;
        int fd = -1;
        place_open(&p, _i);
        struct disk_file *f = open_ok(&p, "u", DISK_CREATE | DISK_EXCL | DISK_UNTIMED);
        ck_assert_int_eq(disk_pwrite(f, "untimed", 8, 0), 0);
        disk_close(f);
        f = open_ok(&p, "u", DISK_UNTIMED | DISK_DSYNC);
        ck_assert_int_eq(disk_pwrite(f, "U", 1, 0), 0);
        ck_assert_int_eq(disk_pread(f, buf, sizeof buf, 0, &got), 0);
        ck_assert_uint_eq(got, 8);
        ck_assert_str_eq(buf, "Untimed");
        disk_close(f);
        ck_assert_int_eq(p.disk->ops->unlink(p.disk, in(&p, "u")), 0);
        place_close(&p);

        int proc = open("/proc/self/status", O_RDONLY | O_CLOEXEC), dir = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(proc, 0);
        ck_assert_int_eq(disk_xfs_untimed(proc, dir, O_RDONLY, &fd), -EOPNOTSUPP);
        ck_assert_int_eq(disk_xfs_untimed(-1, dir, O_RDONLY, &fd), -EBADF);
        ck_assert_int_eq(fd, -1);
        ck_assert_int_eq(close(proc) | close(dir), 0);
}
END_TEST

START_TEST(files_are_private) {
        struct place p;
        struct stat st;
        place_open(&p, false);
        mode_t mask = umask(0);
        disk_close(open_ok(&p, "f", DISK_CREATE));
        (void)umask(mask);
        ck_assert_int_eq(stat(in(&p, "f"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
        ck_assert_int_eq(unlink(in(&p, "f")), 0);
        place_close(&p);
}
END_TEST

static Suite *disk_suite(void) {
        Suite *s = suite_create("disk");
        TCase *t = tcase_create("disk");
        tcase_add_loop_test(t, files_come_and_go, 0, 2);
        tcase_add_loop_test(t, bytes_come_back, 0, 2);
        tcase_add_loop_test(t, a_second_one_is_refused, 0, 2);
        tcase_add_loop_test(t, info_is_told, 0, 2);
        tcase_add_loop_test(t, untimed_or_not, 0, 2);
        tcase_add_test(t, the_system_opens_only_files);
        tcase_add_test(t, a_fifo_does_not_hang);
        tcase_add_test(t, files_are_private);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(disk_suite)
