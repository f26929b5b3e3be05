/* engine_store.c: when the executor writes, flushes and checkpoints, and what it does when that fails. */
#include "engine_rig.h"
#include "unit.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void error_answered(void *ctx, errint_t error) {
        answered(ctx, &(struct op_result){.error = error});
}

/* --- barriers */

START_TEST(a_barrier_flushes) {
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_uint_gt(disk_unflushed(), 0);
        ck_assert_int_eq(do_barrier(), 0);
        ck_assert_uint_eq(disk_unflushed(), 0);
        uint64_t calls = disk_calls(STORE_BARRIER);
        ck_assert_int_eq(do_barrier(), 0); /* nothing new: no flush */
        ck_assert_uint_eq(disk_calls(STORE_BARRIER), calls);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

START_TEST(interval_and_idleness) {
        rig.interval_ms = 100;
        rig_open();
        rig_start();
        usleep(300000);
        uint64_t before = disk_calls(STORE_BARRIER);
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        usleep(400000);
        ck_assert_uint_eq(disk_unflushed(), 0);
        ck_assert_uint_eq(disk_calls(STORE_BARRIER), before + 1);
        uint64_t all = disk_calls(~0u);
        usleep(500000);
        ck_assert_uint_eq(disk_calls(~0u), all); /* an idle engine asks nothing of the disk */
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* The count of bytes begins anew at every barrier, whatever caused it. */
START_TEST(bytes_between_barriers) {
        rig.config.barrier_bytes = 64 * KIB;
        rig_open();
        rig_start();
        static uint8_t bytes[16 * KIB];
        struct answer made = ANSWER;
        struct mkdir_op m;
        mkdir_op(&m, 0, 0);
        m.op.create.mode = S_IFREG | 0644;
        engine_submit(rig.engine, &m.op, answered, &made, NULL);
        ck_assert_int_eq(wait_answer(&made), 0);
        ck_assert_int_eq(do_barrier(), 0);
        uint64_t before = disk_calls(STORE_BARRIER);
        for (unsigned i = 0; i < 50; i++) { /* 16 KiB each: 10 to 12 thresholds */
                struct answer a = ANSWER;
                struct extent x = {.offset = 0, .length = sizeof(bytes)};
                struct op op = {
                        .kind = OP_WRITE,
                        .write = {.ino = made.result.ino, .keep = BLOB_KEEP_ALL, .size = BLOB_KEEP_ALL, .extents = &x, .n_extents = 1},
                        .payload = {.raw_len = sizeof(bytes), .data = bytes, .len = sizeof(bytes)}};
                bytes[0] = (uint8_t)i;
                engine_submit(rig.engine, &op, answered, &a, NULL);
                ck_assert_int_eq(wait_answer(&a), 0);
                usleep(2000); /* the flush happens beside */
        }
        uint64_t barriers = disk_calls(STORE_BARRIER) - before;
        ck_assert_msg(barriers >= 9 && barriers <= 13, "%llu barriers", (unsigned long long)barriers);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* --- trouble */

START_TEST(trouble_is_rescued) {
        static const unsigned calls[] = {STORE_APPEND, STORE_WRITE_OUT, STORE_BARRIER};
        rig.config.level = _i == 3 ? LEVEL_FILE : LEVEL_FILESYSTEM;
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        store_backing_fail(rig.backing, &(struct store_fault){.calls = calls[_i % 3], .nth = 1, .error = -EIO});
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        ck_assert_int_eq(do_barrier(), 0);
        ck_assert_int_eq(do_mkdir(0, 2), 0);
        ck_assert_int_eq(engine_writable(rig.engine), 0);
        ck_assert_uint_ge(metric_get(&rig.metrics, METRIC_STORE_ERRORS), 1);
        store_backing_fail(rig.backing, NULL);
        ck_assert_int_eq(rig_stop(), 0);
        rig_open();
        ck_assert_uint_eq(inodes(), 4);
        rig_start();
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

static bool has_failed(void) {
        struct engine_status s;
        engine_status(rig.engine, &s);
        return s.store_failed;
}
START_TEST(a_store_that_fails_for_good) {
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        store_backing_fail(rig.backing, &(struct store_fault){.calls = ~(unsigned)STORE_RESERVE, .nth = 1, .sticky = true, .error = -EIO});
        struct answer a = ANSWER;
        struct mkdir_op m;
        engine_submit(rig.engine, mkdir_op(&m, 0, 1), answered, &a, NULL);
        ck_assert_int_lt(wait_answer(&a), 0);
        ck_assert(rig_wait_for(has_failed));
        ck_assert_int_eq(engine_writable(rig.engine), -EROFS);
        ck_assert_int_lt(do_barrier(), 0);
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        ck_assert_int_lt(rig_stop(), 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        ck_assert_int_lt(end.tv_sec - begin.tv_sec, 2);
        store_backing_fail(rig.backing, NULL);
        rig_open();
        ck_assert_uint_ge(inodes(), 2); /* what was acknowledged is there */
        rig_start();
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* A rescue that finds no room is no failure: what has begun waits, what has not is refused, and when there is room it goes on. */
static bool waits_for_room(void) {
        return rig.store->ops->reserve(rig.store, 0, true) == -ENOSPC;
}
START_TEST(trouble_waits_for_room) {
        rig.config.level = _i == 1 ? LEVEL_FILE : LEVEL_FILESYSTEM;
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        store_backing_fail(rig.backing, &(struct store_fault){.calls = STORE_APPEND | STORE_WRITE_OUT | STORE_BARRIER | STORE_CHECKPOINT,
                                                              .nth = 1,
                                                              .sticky = true,
                                                              .error = -ENOSPC});
        struct answer a = ANSWER, b = ANSWER, c = ANSWER;
        struct mkdir_op m, n;
        engine_submit(rig.engine, mkdir_op(&m, 0, 1), answered, &a, NULL);
        engine_submit(rig.engine, mkdir_op(&n, 0, 2), answered, &b, NULL);
        ck_assert(rig_wait_for(waits_for_room));
        if (rig.config.level == LEVEL_FILESYSTEM)
                ck_assert_int_eq(wait_answer(&b), -ENOSPC); /* it had not begun; at level file it may have */
        ck_assert_int_eq(do_mkdir(9, 9), -ENOSPC);
        if (_i != 2)
                engine_checkpoint(rig.engine, error_answered, &c);
        ck_assert(!a.done);
        ck_assert(!has_failed());
        if (_i == 2) { /* told to stop, it does not wait for room */
                ck_assert_int_lt(rig_stop(), 0);
                store_backing_fail(rig.backing, NULL);
                rig_open();
                ck_assert_uint_ge(inodes(), 2);
                rig_start();
                ck_assert_int_eq(rig_stop(), 0);
                return;
        }
        store_backing_fail(rig.backing, NULL);
        ck_assert_int_eq(wait_answer(&a), 0);
        ck_assert_int_eq(wait_answer(&c), 0);
        unsigned more = wait_answer(&b) == 0;
        ck_assert_int_eq(do_mkdir(0, 3), 0);
        ck_assert_int_eq(do_barrier(), 0);
        ck_assert_int_eq(rig_stop(), 0);
        rig_open();
        ck_assert_uint_eq(inodes(), 4 + more);
        rig_start();
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

START_TEST(reservations) {
        rig_open();
        rig_start();
        store_backing_fail(rig.backing, &(struct store_fault){.calls = STORE_RESERVE, .nth = 1, .error = -ENOSPC});
        ck_assert_int_eq(do_mkdir(0, 0), -ENOSPC);
        ck_assert_uint_eq(metric_get(&rig.metrics, METRIC_OPERATIONS), 0); /* it was not sent */
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

START_TEST(a_small_log_makes_writers_wait) {
        rig.config.log_size = MIB;
        rig_open();
        rig_start();
        run_writers(1000);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 1000);
        ck_assert_uint_gt(metric_get(&rig.metrics, METRIC_CHECKPOINTS), 0);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* --- checkpoints and levels on request */

START_TEST(checkpoint_and_level_on_request) {
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        struct answer a = ANSWER, b = ANSWER, c = ANSWER;
        uint64_t before = disk_calls(STORE_CHECKPOINT);
        engine_checkpoint(rig.engine, error_answered, &a);
        ck_assert_int_eq(wait_answer(&a), 0);
        uint64_t once = disk_calls(STORE_CHECKPOINT);
        ck_assert_uint_gt(once, before);
        engine_checkpoint(rig.engine, error_answered, &b); /* nothing new */
        ck_assert_int_eq(wait_answer(&b), 0);
        ck_assert_uint_eq(disk_calls(STORE_CHECKPOINT), once);
        engine_set_level(rig.engine, &(struct engine_level){.level = LEVEL_FILE}, error_answered, &c);
        ck_assert_int_eq(wait_answer(&c), 0);
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        ck_assert_uint_eq(disk_unflushed(), 0); /* at file, acknowledged means flushed */
        struct engine_status s;
        engine_status(rig.engine, &s);
        ck_assert_int_eq(s.level, LEVEL_FILE);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("daemon.engine_store");
        TCase *t = tcase_create("engine_store");
        tcase_add_checked_fixture(t, rig_setup, rig_teardown);
        tcase_set_timeout(t, 60);
        tcase_add_test(t, a_barrier_flushes);
        tcase_add_test(t, interval_and_idleness);
        tcase_add_test(t, bytes_between_barriers);
        tcase_add_loop_test(t, trouble_is_rescued, 0, 4);
        tcase_add_test(t, a_store_that_fails_for_good);
        tcase_add_loop_test(t, trouble_waits_for_room, 0, 3);
        tcase_add_test(t, reservations);
        tcase_add_test(t, a_small_log_makes_writers_wait);
        tcase_add_test(t, checkpoint_and_level_on_request);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
