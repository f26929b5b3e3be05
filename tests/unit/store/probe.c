/* probe.c: the engine of probe-sync: that it measures all it promises and leaves nothing behind, and that its judgement is sound. */
#include "probe_private.h"
#include "simdisk.h"
#include "unit.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct calls {
        unsigned before, after, phases, stop_at;
};
static bool count_calls(void *ctx, const struct probe_result *r, bool finished, unsigned done, unsigned total, const char *phase) {
        struct calls *c = ctx;
        ck_assert_uint_le(done, total);
        ck_assert_ptr_nonnull(phase);
        c->phases += !r;
        c->before += r && !finished;
        c->after += r && finished;
        return c->stop_at == 0 || c->after < c->stop_at;
}

START_TEST(every_combination_is_measured) {
        CLEANUP(simdisk_freep) struct simdisk *sim = simdisk_new(NULL);
        CLEANUP(probe_report_freep) struct probe_report *r = NULL;
        struct calls calls = {0};
        static const uint32_t records[] = {100, 5000};
        struct probe_config c = {.dir = "/d",
                                 .seconds = 0.001,
                                 .records = records,
                                 .n_records = 2,
                                 .progress = count_calls,
                                 .ctx = &calls,
                                 .disk = simdisk_disk(sim)};
        uint64_t size;
        ck_assert_int_eq(probe_run(&c, &r), 0);
        ck_assert_uint_eq(r->n, 60);
        ck_assert_uint_eq(calls.before, 60);
        ck_assert_uint_eq(calls.after, 60);
        for (size_t i = 0; i < r->n; i++) {
                const struct probe_result *x = &r->results[i];
                ck_assert_int_eq(x->error, 0);
                ck_assert_uint_ge(x->ops, 3);
                ck_assert(x->p99_us >= x->p50_us && x->ops_per_s > 0);
                ck_assert(!x->counted && !x->no_flush); /* no device below */
                ck_assert_uint_eq(x->written, x->record == 100 ? (x->direct ? 512 : 4096) : (x->direct ? 5120 : 8192));
        }
        ck_assert(!r->trailing_measured);
        ck_assert_str_eq(r->fs_type, "sim");
        ck_assert_uint_gt(strlen(r->advice.reason), 0);
        ck_assert_int_eq(simdisk_file_size(sim, "/d/x", &size), -ENOENT);
        ck_assert_uint_eq(simdisk_used(sim), 0); /* nothing left behind */
}
END_TEST

START_TEST(it_stops_when_told_and_cleans_up) {
        CLEANUP(simdisk_freep) struct simdisk *sim = simdisk_new(NULL);
        struct probe_report *r = NULL;
        struct calls calls = {.stop_at = 7};
        struct probe_config c = {.dir = "/d", .seconds = 0.001, .progress = count_calls, .ctx = &calls, .disk = simdisk_disk(sim)};
        ck_assert_int_eq(probe_run(&c, &r), -ECANCELED);
        ck_assert_ptr_null(r);
        ck_assert_uint_eq(calls.after, 7);
        ck_assert_uint_eq(simdisk_used(sim), 0);
}
END_TEST

START_TEST(failures_are_told) {
        static const uint32_t none[] = {0}, huge[] = {PROBE_RECORD_MAX + 1}, one[] = {512};
        struct probe_report *r = NULL;
        CLEANUP(simdisk_freep) struct simdisk *small = simdisk_new(&(struct simdisk_config){.capacity = 4 * MIB});
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/tmp", .records = none, .n_records = 1}, &r), -EINVAL);
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/tmp", .records = huge, .n_records = 1}, &r), -EINVAL);
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/tmp", .records = one}, &r), -EINVAL);
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/nowhere/at/all"}, &r), -ENOENT);
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/dev/null"}, &r), -ENOTDIR);
        ck_assert_int_eq(
                probe_run(
                        &(struct probe_config){.dir = "/d", .seconds = 0.001, .records = one, .n_records = 1, .disk = simdisk_disk(small)},
                        &r),
                -ENOSPC);
        ck_assert_uint_eq(simdisk_used(small), 0);
        ck_assert_ptr_null(r);
}
END_TEST

START_TEST(refused_direct_is_a_result) {
        CLEANUP(simdisk_freep) struct simdisk *sim = simdisk_new(&(struct simdisk_config){.refuse_direct = true});
        CLEANUP(probe_report_freep) struct probe_report *r = NULL;
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = "/d", .seconds = 0.001, .disk = simdisk_disk(sim)}, &r), 0);
        for (size_t i = 0; i < r->n; i++)
                ck_assert_int_eq(r->results[i].error, r->results[i].direct ? -EINVAL : 0);
        ck_assert(r->warnings & PROBE_WARN_NO_DIRECT);
        ck_assert(!r->advice.direct);
}
END_TEST

START_TEST(a_real_directory_is_measured) {
        CLEANUP(probe_report_freep) struct probe_report *r = NULL;
        static const uint32_t one[] = {512};
        char dir[] = "/tmp/coterie-probe-XXXXXX";
        ck_assert_ptr_nonnull(mkdtemp(dir));
        ck_assert_int_eq(probe_run(&(struct probe_config){.dir = dir, .seconds = 0.01, .records = one, .n_records = 1}, &r), 0);
        ck_assert_uint_eq(r->n, 30);
        ck_assert_uint_gt(strlen(r->fs_type), 0);
        ck_assert_uint_gt(strlen(r->options), 0);
        ck_assert_int_eq(r->device[0] != '\0', r->info.block_device_found);
        ck_assert_int_eq(rmdir(dir), 0); /* nothing left behind */
}
END_TEST

/* --- judgement --------------------------------------------------------------------------------------------------------------------------
 */
static struct probe_report *report(struct probe_result *results, size_t n) {
        static struct probe_report r;
        r = (struct probe_report){.results = results,
                                  .n = n,
                                  .fs_type = "ext4",
                                  .options = "rw,relatime,errors=remount-ro",
                                  .write_cache = "write back",
                                  .info = {.logical_sector = 512, .physical_sector = 512, .block_device_found = true}};
        return &r;
}
#define ZEROED(m, d, bytes, flushes, speed)                                                                                                \
        {                                                                                                                                  \
                .state = PROBE_ZEROED, .method = (m), .direct = (d), .record = 512, .written = (d) ? 512 : 4096, .ops = 100,               \
                .ops_per_s = (speed), .p50_us = 1e6 / (speed), .p99_us = 2e6 / (speed), .counted = true, .device_bytes = (bytes),          \
                .device_flushes = (flushes)                                                                                                \
        }

START_TEST(methods_without_a_flush_are_found_out) {
        struct probe_result x[] = {ZEROED(SYNC_FDATASYNC, false, 4096, 1, 300), ZEROED(SYNC_SYNCFS, false, 4100, 0.06, 90000),
                                   ZEROED(SYNC_OPEN_DATASYNC, true, 512, 0.01, 80000)};
        struct probe_report *r = report(x, ARRAY_LEN(x));
        probe_judge(r);
        ck_assert(!x[0].no_flush && x[1].no_flush && x[2].no_flush);
        ck_assert_uint_eq(r->warnings, PROBE_WARN_VOLATILE_CACHE | PROBE_WARN_NO_FLUSH);
        ck_assert_int_eq(r->advice.method, SYNC_FDATASYNC);
        ck_assert(!r->advice.direct);
        ck_assert_int_eq(r->advice.level, LEVEL_FILESYSTEM);
        /* A device with FUA needs none for O_DSYNC over what exists; one whose cache is safe needs none at all. */
        r = report(x, ARRAY_LEN(x));
        r->fua = true;
        probe_judge(r);
        ck_assert(x[1].no_flush && !x[2].no_flush);
        ck_assert_int_eq(r->advice.method, SYNC_OPEN_DATASYNC);
        ck_assert(r->advice.direct);
        ck_assert_int_eq(r->advice.level, LEVEL_FILE);
        x[1].no_flush = false;
        r = report(x, ARRAY_LEN(x));
        (void)snprintf(r->write_cache, sizeof r->write_cache, "write through");
        probe_judge(r);
        ck_assert(!x[1].no_flush && !x[2].no_flush);
        ck_assert_uint_eq(r->warnings, 0);
        ck_assert_int_ne(r->advice.method, SYNC_SYNCFS); /* fast, but promised by nobody */
}
END_TEST

START_TEST(flushes_that_nobody_counts_condemn_nobody) {
        struct probe_result x[] = {ZEROED(SYNC_FDATASYNC, false, 4096, 0, 300), ZEROED(SYNC_OPEN_DATASYNC, true, 512, 0, 300)};
        struct probe_report *r = report(x, ARRAY_LEN(x));
        probe_judge(r);
        ck_assert(!x[0].no_flush && !x[1].no_flush);
        ck_assert_uint_eq(r->warnings, PROBE_WARN_VOLATILE_CACHE | PROBE_WARN_FLUSHES_UNSEEN);
}
END_TEST

START_TEST(fewest_bytes_then_speed_and_never_fsync_if_it_can_be_helped) {
        struct probe_result x[] = {ZEROED(SYNC_FSYNC, true, 400, 1, 9000), ZEROED(SYNC_FDATASYNC, false, 4096, 1, 5000),
                                   ZEROED(SYNC_FDATASYNC, true, 512, 1, 2000), ZEROED(SYNC_OPEN_DATASYNC, true, 513, 1, 4000)};
        struct probe_report *r = report(x, ARRAY_LEN(x));
        probe_judge(r);
        ck_assert_int_eq(r->advice.method, SYNC_OPEN_DATASYNC);
        ck_assert(r->advice.direct);
        ck_assert_uint_eq(r->advice.padding, 0);
        r = report(x, 1);
        probe_judge(r);
        ck_assert_int_eq(r->advice.method, SYNC_FSYNC);
        r = report(x, ARRAY_LEN(x));
        r->idle_bytes = 100000; /* the counts mean nothing then */
        x[1].device_bytes = 1;
        probe_judge(r);
        ck_assert(r->advice.direct);
        ck_assert(r->warnings & PROBE_WARN_BUSY);
        x[1].device_bytes = 4096;
        r = report(x, ARRAY_LEN(x));
        r->info.physical_sector = 4096;
        r->rotational = true;
        probe_judge(r);
        ck_assert_uint_eq(r->advice.padding, 4096);
        ck_assert(r->warnings & PROBE_WARN_SHARED_BLOCK);
}
END_TEST

START_TEST(mounts_are_judged) {
        static const struct {
                const char *fs, *options;
                unsigned warning;
        } cases[] = {
                {"btrfs", "rw", PROBE_WARN_BTRFS},
                {"ext4", "rw,data=journal", PROBE_WARN_DATA_JOURNAL},
                {"ext4", "rw,nobarrier,x", PROBE_WARN_NO_BARRIER},
                {"ext4", "barrier=0", PROBE_WARN_NO_BARRIER},
                {"ext4", "rw,barrier=01,nobarriers,mydata=journal", 0},
                {"tmpfs", "rw", PROBE_WARN_NOT_A_DISK},
                {"nfs4", "rw", PROBE_WARN_NOT_A_DISK},
                {"fuse.sshfs", "rw", PROBE_WARN_NOT_A_DISK},
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct probe_result x[] = {ZEROED(SYNC_FDATASYNC, false, 4096, 1, 300)};
                struct probe_report *r = report(x, 1);
                (void)snprintf(r->fs_type, sizeof r->fs_type, "%s", cases[i].fs);
                (void)snprintf(r->options, sizeof r->options, "%s", cases[i].options);
                probe_judge(r);
                ck_assert_uint_eq(r->warnings, cases[i].warning | PROBE_WARN_VOLATILE_CACHE);
        }
        for (unsigned b = 0; b < PROBE_WARN_COUNT; b++)
                ck_assert_ptr_nonnull(probe_warning_text(1u << b));
        ck_assert_ptr_null(probe_warning_text(1u << PROBE_WARN_COUNT));
        struct probe_report *r = report(NULL, 0);
        probe_judge(r);
        ck_assert_int_eq(r->advice.method, SYNC_FDATASYNC);
}
END_TEST

static Suite *probe_suite(void) {
        Suite *s = suite_create("probe");
        TCase *t = tcase_create("probe");
        tcase_set_timeout(t, 120);
        tcase_add_test(t, every_combination_is_measured);
        tcase_add_test(t, it_stops_when_told_and_cleans_up);
        tcase_add_test(t, failures_are_told);
        tcase_add_test(t, refused_direct_is_a_result);
        tcase_add_test(t, a_real_directory_is_measured);
        tcase_add_test(t, methods_without_a_flush_are_found_out);
        tcase_add_test(t, flushes_that_nobody_counts_condemn_nobody);
        tcase_add_test(t, fewest_bytes_then_speed_and_never_fsync_if_it_can_be_helped);
        tcase_add_test(t, mounts_are_judged);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(probe_suite)
