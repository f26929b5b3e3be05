/* disk_sim.c: what the simulated disk forgets, keeps, tears and fails. If it were kinder than a disk, every test above it would be worth
 * nothing. */
#include "simdisk.h"
#include "unit.h"

#include <string.h>

static struct simdisk *sim(void) {
        return simdisk_new(&(struct simdisk_config){.seed = 1, .history = true});
}

static struct disk_file *file(struct simdisk *d, const char *path, unsigned flags) {
        struct disk_file *f = NULL;
        struct disk *disk = simdisk_disk(d);
        ck_assert_int_eq(disk_open(disk, path, flags, &f), 0);
        return f;
}

/* A file of `size` bytes 'a' whose name and content are durable. */
static struct disk_file *durable(struct simdisk *d, const char *path, size_t size) {
        struct disk_file *f = file(d, path, DISK_CREATE);
        struct disk *disk = simdisk_disk(d);
        char buf[8192];
        memset(buf, 'a', sizeof buf);
        ck_assert_int_eq(disk_pwrite(f, buf, size, 0), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0);
        ck_assert_int_eq(disk->ops->sync_dir(disk, path), 0);
        return f;
}

/* The first bytes of the first `n` sectors after a crash, '-' beyond the end, "gone" without the file. */
static const char *after(struct simdisk *d, struct simdisk_crash how, const char *path, unsigned n) {
        static char text[32];
        CLEANUP(simdisk_freep) struct simdisk *c = simdisk_crashed(d, &how);
        uint64_t size;
        if (simdisk_file_size(c, path, &size) < 0)
                return "gone";
        for (unsigned i = 0; i < n; i++)
                if (simdisk_peek(c, path, (uint64_t)i * 512, &text[i], 1) < 0)
                        text[i] = '-';
                else if (text[i] == 0)
                        text[i] = '0';
        text[n] = '\0';
        return text;
}
#define CRASH(k, s) ((struct simdisk_crash){.at = SIMDISK_NOW, .keep = (k), .seed = (s)})

START_TEST(names_need_the_directory_flushed) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk *disk = simdisk_disk(d);
        struct disk_file *f = file(d, "/d/f", DISK_CREATE);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FSYNC), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/f", 1), "gone");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/d/f", 1), "x");
        ck_assert_int_eq(disk->ops->sync_dir(disk, "/other/f"), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/f", 1), "gone");
        ck_assert_int_eq(disk->ops->sync_dir(disk, "/d/any"), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/f", 1), "x");
        ck_assert_int_eq(disk->ops->rename(disk, "/d/f", "/d/g"), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/f", 1), "x");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/g", 1), "gone");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/d/g", 1), "x");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/d/f", 1), "gone");
        ck_assert_int_eq(disk->ops->sync_dir(disk, "/d/any"), 0);
        ck_assert_int_eq(disk->ops->unlink(disk, "/d/g"), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/d/g", 1), "x");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/d/g", 1), "gone");
        disk_close(f);
}
END_TEST

START_TEST(unflushed_sectors_come_in_every_combination) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 1024);
        char b[1024], c[512];
        memset(b, 'b', sizeof b);
        memset(c, 'c', sizeof c);
        ck_assert_int_eq(disk_pwrite(f, b, sizeof b, 0), 0);
        ck_assert_int_eq(disk_pwrite(f, c, sizeof c, 512), 0);
        ck_assert_uint_eq(simdisk_pending(d, SIMDISK_NOW), 3);
        static const char *const want[8] = {"aa", "ba", "ab", "bb", "ac", "bc", "ac", "bc"};
        for (unsigned mask = 0; mask < 8; mask++)
                ck_assert_str_eq(after(d, CRASH(SIMDISK_MASK, mask), "/f", 2), want[mask]);
        unsigned seen = 0;
        for (unsigned seed = 0; seed < 200; seed++) {
                const char *text = after(d, CRASH(SIMDISK_TORN, seed), "/f", 2);
                for (unsigned i = 0; i < 6; i++)
                        seen |= strcmp(text, want[i]) == 0 ? 1u << i : 0;
        }
        ck_assert_uint_eq(seen, 63);
        for (unsigned seed = 0; seed < 100; seed++) /* whole writes: never one half of the first without the other */
                ck_assert_str_ne(after(d, CRASH(SIMDISK_WHOLE, seed), "/f", 2), "ba");
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 2), "bc");
        disk_close(f);
}
END_TEST

START_TEST(a_flush_is_of_one_file) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 512), *g = durable(d, "/g", 512);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_pwrite(g, "y", 1, 0), 0);
        ck_assert_int_eq(disk_sync(g, SYNC_FDATASYNC), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 1), "a");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/g", 1), "y");
        ck_assert_int_eq(disk_sync(g, SYNC_SYNCFS), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 1), "x");
        disk_close(f);
        disk_close(g);
}
END_TEST

START_TEST(syncfs_may_lie) {
        CLEANUP(simdisk_freep) struct simdisk *d = simdisk_new(&(struct simdisk_config){.syncfs_no_barrier = true});
        struct disk_file *f = durable(d, "/f", 512);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_SYNCFS), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 1), "a");
        disk_close(f);
}
END_TEST

START_TEST(dsync_flushes_its_own_bytes_only) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 1024), *s = file(d, "/f", DISK_DSYNC);
        ck_assert_int_eq(disk_pwrite(f, "p", 1, 0), 0);
        ck_assert_int_eq(disk_pwrite(f, "q", 1, 1024), 0);
        ck_assert_int_eq(disk_pwrite(s, "r", 1, 512), 0);
        ck_assert_int_eq(disk_pwrite(s, "s", 1, 1536), 0); /* needs the file that long */
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 4), "ar0s");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/f", 4), "prqs");
        /* An older unflushed write never comes back over a newer durable one. */
        ck_assert_int_eq(disk_pwrite(s, "t", 1, 0), 0);
        for (unsigned seed = 0; seed < 50; seed++)
                ck_assert_int_eq(after(d, CRASH(SIMDISK_TORN, seed), "/f", 4)[0], 't');
        disk_close(f);
        disk_close(s);
}
END_TEST

START_TEST(sizes_are_flushed_with_the_file) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 1024);
        ck_assert_int_eq(f->ops->truncate(f, 100), 0);
        ck_assert_int_eq(f->ops->truncate(f, 2048), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 4), "aa--");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/f", 4), "a000");
        bool cut = false, grown_over_old = false;
        for (unsigned seed = 0; seed < 100; seed++) {
                const char *text = after(d, CRASH(SIMDISK_TORN, seed), "/f", 4);
                cut |= strcmp(text, "a---") == 0;
                grown_over_old |= strcmp(text, "aa00") == 0;
        }
        ck_assert(cut && grown_over_old);
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 4), "a000");
        ck_assert_int_eq(f->ops->allocate(f, 0, 4096), 0);
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 5), "a000-");
        ck_assert_str_eq(after(d, CRASH(SIMDISK_KEPT, 0), "/f", 5), "a0000");
        disk_close(f);
}
END_TEST

START_TEST(power_can_go_at_any_earlier_point) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 512);
        uint64_t at = simdisk_position(d);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0);
        ck_assert_int_eq(disk_pwrite(f, "y", 1, 0), 0);
        ck_assert_str_eq(after(d, (struct simdisk_crash){.at = at, .keep = SIMDISK_KEPT}, "/f", 1), "a");
        ck_assert_str_eq(after(d, (struct simdisk_crash){.at = at + 1, .keep = SIMDISK_LOST}, "/f", 1), "a");
        ck_assert_str_eq(after(d, (struct simdisk_crash){.at = at + 1, .keep = SIMDISK_KEPT}, "/f", 1), "x");
        ck_assert_str_eq(after(d, (struct simdisk_crash){.at = at + 2, .keep = SIMDISK_LOST}, "/f", 1), "x");
        ck_assert_str_eq(after(d, (struct simdisk_crash){.at = 0, .keep = SIMDISK_KEPT}, "/f", 1), "gone");
        disk_close(f);
}
END_TEST

START_TEST(a_failed_flush_is_never_made_good) {
        bool lost = false, there = false;
        for (unsigned seed = 0; seed < 40; seed++) {
                CLEANUP(simdisk_freep) struct simdisk *d = simdisk_new(&(struct simdisk_config){.seed = seed});
                struct disk_file *f = durable(d, "/f", 512);
                char c;
                size_t got;
                ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
                simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_SYNC, .nth = 1, .error = -EIO});
                ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), -EIO);
                ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), 0); /* the lie */
                ck_assert_int_eq(disk_pread(f, &c, 1, 0, &got), 0);
                ck_assert_int_eq(c, 'x');
                const char *text = after(d, CRASH(SIMDISK_KEPT, 0), "/f", 1);
                lost |= *text == 'a';
                there |= *text == 'x';
                disk_close(f);
        }
        ck_assert(lost && there);
}
END_TEST

START_TEST(the_nth_call_fails) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 512), *g = NULL;
        simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_WRITE | SIMDISK_SYNC, .nth = 2, .error = -EIO});
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_sync(f, SYNC_FDATASYNC), -EIO);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_uint_eq(simdisk_fault_hits(d), 1);
        simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_ALL, .path_part = "/g", .nth = 1, .sticky = true, .error = -ENOSPC});
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        ck_assert_int_eq(disk_open(simdisk_disk(d), "/g", DISK_CREATE, &g), -ENOSPC);
        ck_assert_int_eq(disk_open(simdisk_disk(d), "/g", DISK_CREATE, &g), -ENOSPC);
        simdisk_fail(d, NULL);
        ck_assert_int_eq(disk_open(simdisk_disk(d), "/g", DISK_CREATE, &g), 0);
        ck_assert_uint_eq(simdisk_calls(d, SIMDISK_OPEN), 4);
        disk_close(f);
        disk_close(g);
}
END_TEST

START_TEST(space_ends_and_returns) {
        CLEANUP(simdisk_freep) struct simdisk *d = simdisk_new(&(struct simdisk_config){.capacity = 3 * 4096});
        struct disk *disk = simdisk_disk(d);
        struct disk_file *f = durable(d, "/f", 4096);
        struct disk_info info;
        uint64_t size;
        static const char zeros[4 * 4096];
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 100000), 0); /* sparse: one block */
        ck_assert_int_eq(disk_pwrite(f, zeros, sizeof zeros, 0), -ENOSPC);
        ck_assert_int_eq(disk->ops->info(disk, "/f", &info), 0);
        ck_assert_uint_eq(info.fs_free, 0);
        ck_assert_int_eq(disk_pwrite(f, zeros, 8192, 0), 0); /* blocks it has */
        ck_assert_int_eq(f->ops->allocate(f, 0, 3 * 4096), -ENOSPC);
        ck_assert_int_eq(f->ops->punch(f, 0, 4096), 0);
        ck_assert_uint_eq(simdisk_used(d), 2 * 4096);
        ck_assert_int_eq(f->ops->truncate(f, 0), 0);
        ck_assert_uint_eq(simdisk_used(d), 0);
        ck_assert_int_eq(f->ops->allocate(f, 0, 3 * 4096), 0);
        ck_assert_int_eq(disk->ops->unlink(disk, "/f"), 0);
        ck_assert_uint_eq(simdisk_used(d), 3 * 4096); /* still open */
        ck_assert_int_eq(f->ops->size(f, &size), 0);
        disk_close(f);
        ck_assert_uint_eq(simdisk_used(d), 0);
}
END_TEST

START_TEST(a_kill_loses_nothing_but_the_descriptors) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 512);
        char c;
        size_t got;
        ck_assert_int_eq(f->ops->lock(f), 0);
        ck_assert_int_eq(disk_pwrite(f, "x", 1, 0), 0);
        simdisk_kill(d);
        ck_assert_int_eq(disk_pread(f, &c, 1, 0, &got), -EIO);
        ck_assert_int_eq(disk_pwrite(f, "y", 1, 0), -EIO);
        struct disk_file *g = file(d, "/f", 0);
        ck_assert_int_eq(g->ops->lock(g), 0);
        ck_assert_int_eq(disk_pread(g, &c, 1, 0, &got), 0);
        ck_assert_int_eq(c, 'x');
        ck_assert_str_eq(after(d, CRASH(SIMDISK_LOST, 0), "/f", 1), "a");
        simdisk_crash(d, &CRASH(SIMDISK_LOST, 0));
        ck_assert_int_eq(disk_pread(g, &c, 1, 0, &got), -EIO);
        ck_assert_int_eq(simdisk_peek(d, "/f", 0, &c, 1), 0);
        ck_assert_int_eq(c, 'a');
        disk_close(f);
        disk_close(g);
}
END_TEST

START_TEST(direct_wants_alignment) {
        CLEANUP(simdisk_freep) struct simdisk *d = simdisk_new(&(struct simdisk_config){.sector = 4096});
        CLEANUP(simdisk_freep) struct simdisk *refusing = simdisk_new(&(struct simdisk_config){.refuse_direct = true});
        struct disk_file *f = file(d, "/f", DISK_CREATE | DISK_DIRECT), *g = NULL;
        static _Alignas(4096) char buf[8192];
        ck_assert_int_eq(disk_pwrite(f, buf, 4096, 4096), 0);
        ck_assert_int_eq(disk_pwrite(f, buf, 512, 0), -EINVAL);
        ck_assert_int_eq(disk_pwrite(f, buf + 512, 4096, 0), -EINVAL);
        ck_assert_int_eq(disk_pwrite(f, buf, 4096, 512), -EINVAL);
        ck_assert_int_eq(disk_open(simdisk_disk(refusing), "/f", DISK_CREATE | DISK_DIRECT, &g), -EINVAL);
        disk_close(f);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_disk) {
        char text[2][64] = {""};
        for (unsigned run = 0; run < 2; run++) {
                CLEANUP(simdisk_freep) struct simdisk *d = sim();
                struct disk_file *f = durable(d, "/f", 8192);
                char b[8192];
                memset(b, 'b', sizeof b);
                simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_WRITE, .nth = 1, .error = -EIO});
                ck_assert_int_eq(disk_pwrite(f, b, sizeof b, 0), -EIO);
                ck_assert_int_eq(disk_pwrite(f, b, 4096, 512), 0);
                strcat(text[run], after(d, CRASH(SIMDISK_ANY, 7), "/f", 16));
                strcat(text[run], after(d, CRASH(SIMDISK_TORN, 9), "/f", 16));
                disk_close(f);
        }
        ck_assert_str_eq(text[0], text[1]);
}
END_TEST

START_TEST(damage_stays) {
        CLEANUP(simdisk_freep) struct simdisk *d = sim();
        struct disk_file *f = durable(d, "/f", 1024);
        ck_assert_int_eq(simdisk_poke(d, "/f", 600, "z", 1), 0);
        ck_assert_int_eq(simdisk_poke(d, "/f", 1024, "z", 1), -ERANGE);
        ck_assert_int_eq(simdisk_poke(d, "/g", 0, "z", 1), -ENOENT);
        CLEANUP(simdisk_freep) struct simdisk *c = simdisk_crashed(d, &CRASH(SIMDISK_LOST, 0));
        char b;
        ck_assert_int_eq(simdisk_peek(c, "/f", 600, &b, 1), 0);
        ck_assert_int_eq(b, 'z');
        disk_close(f);
}
END_TEST

static Suite *sim_suite(void) {
        Suite *s = suite_create("simdisk");
        TCase *t = tcase_create("simdisk");
        tcase_add_test(t, names_need_the_directory_flushed);
        tcase_add_test(t, unflushed_sectors_come_in_every_combination);
        tcase_add_test(t, a_flush_is_of_one_file);
        tcase_add_test(t, syncfs_may_lie);
        tcase_add_test(t, dsync_flushes_its_own_bytes_only);
        tcase_add_test(t, sizes_are_flushed_with_the_file);
        tcase_add_test(t, power_can_go_at_any_earlier_point);
        tcase_add_test(t, a_failed_flush_is_never_made_good);
        tcase_add_test(t, the_nth_call_fails);
        tcase_add_test(t, space_ends_and_returns);
        tcase_add_test(t, a_kill_loses_nothing_but_the_descriptors);
        tcase_add_test(t, direct_wants_alignment);
        tcase_add_test(t, the_same_seed_gives_the_same_disk);
        tcase_add_test(t, damage_stays);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(sim_suite)
