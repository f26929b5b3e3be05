/* contract_store.c: what store.h promises, asked of both implementations. */
#include "simdisk.h"
#include "store_rig.h"

#include <check.h>
#include <string.h>
#include <sys/stat.h>

enum { MEMORY, SQLITE, IMPLEMENTATIONS };

struct bench {
        struct rig r;
        struct simdisk *disk;
        struct store_backing *backing;
};

static void bench_begin(struct bench *b, int which, enum sync_level level) {
        *b = (struct bench){0};
        struct store_config config = {.path = "d/db", .level = level, .log_size = 256 * KIB, .boot_id = "boot-1"};
        if (which == SQLITE) {
                b->disk = simdisk_new(NULL);
                config.disk = simdisk_disk(b->disk);
        } else {
                b->backing = store_backing_new();
                config.backing = b->backing;
        }
        rig_init(&b->r, &config);
        b->r.memory = which == MEMORY;
}
static void bench_end(struct bench *b) {
        rig_done(&b->r);
        simdisk_free(b->disk);
        store_backing_free(b->backing);
}
static void power_cut(struct bench *b, uint64_t seed) {
        rig_close(&b->r);
        if (b->disk)
                simdisk_crash(b->disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = seed});
        else
                store_backing_power_cut(b->backing, seed);
}
static void kill_it(struct bench *b) {
        rig_close(&b->r);
        if (b->disk)
                simdisk_kill(b->disk);
}
static void some_operations(struct bench *b, int n) {
        for (int i = 0; i < n; i++)
                ck_assert_int_eq(rig_any(&b->r, 20000), 0);
}
#define OK(e) ck_assert_int_eq((e), 0)

START_TEST(fresh_is_empty) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        ck_assert(b.r.loaded.fresh);
        ck_assert(!b.r.loaded.unclean);
        ck_assert(!b.r.loaded.read_only);
        ck_assert_uint_eq(b.r.state.pos.seq, 0);
        OK(rig_verify(&b.r, 0, 0));
        kill_it(&b);
        OK(rig_open(&b.r));
        ck_assert(!b.r.loaded.fresh);
        ck_assert(b.r.loaded.unclean);
        ck_assert(!b.r.loaded.boot_changed);
        bench_end(&b);
}
END_TEST

/* A killed process loses nothing that was written out, at any level; a boot that changed is told. */
START_TEST(kill_keeps_what_was_written_out) {
        for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++) {
                struct bench b;
                bench_begin(&b, _i, (enum sync_level)level);
                OK(rig_open(&b.r));
                some_operations(&b, 50);
                OK(rig_write_out(&b.r));
                uint64_t written = b.r.written;
                ck_assert_uint_eq(written, b.r.state.pos.seq);
                some_operations(&b, 5);
                uint64_t end = b.r.state.pos.seq;
                kill_it(&b);
                b.r.config.boot_id = "boot-2";
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, written, end));
                ck_assert_uint_eq(b.r.loaded.replayed, b.r.state.pos.seq);
                ck_assert(b.r.loaded.unclean && b.r.loaded.boot_changed);
                OK(rig_barrier(&b.r)); /* what came back counts as written and flushed, though nothing was appended */
                ck_assert_uint_eq(b.r.written, b.r.state.pos.seq);
                ck_assert_uint_eq(b.r.durable, b.r.state.pos.seq);
                bench_end(&b);
        }
}
END_TEST

START_TEST(power_cut_keeps_what_was_flushed) {
        for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++) {
                for (uint64_t seed = 1; seed <= 20; seed++) {
                        struct bench b;
                        bench_begin(&b, _i, (enum sync_level)level);
                        b.r.random = seed;
                        OK(rig_open(&b.r));
                        some_operations(&b, 20);
                        OK(rig_barrier(&b.r));
                        ck_assert_uint_eq(b.r.durable, b.r.state.pos.seq);
                        some_operations(&b, 20);
                        OK(rig_write_out(&b.r));
                        uint64_t durable = b.r.durable, end = b.r.state.pos.seq;
                        ck_assert(level != LEVEL_FILE || durable == end);
                        power_cut(&b, seed);
                        OK(rig_open(&b.r));
                        OK(rig_verify(&b.r, durable, end));
                        bench_end(&b);
                }
        }
}
END_TEST

START_TEST(clean_stop_leaves_nothing_to_replay) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        for (int round = 0; round < 5; round++) {
                some_operations(&b, 100);
                uint64_t end = b.r.state.pos.seq;
                OK(rig_stop(&b.r));
                if (_i == SQLITE)
                        simdisk_crash(b.disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, end, end));
                ck_assert_uint_eq(b.r.loaded.replayed, 0);
                ck_assert(!b.r.loaded.unclean);
        }
        bench_end(&b);
}
END_TEST

START_TEST(nothing_is_taken_after_a_clean_stop) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        uint64_t seq;
        OK(rig_open(&b.r));
        some_operations(&b, 10);
        OK(rig_checkpoint(&b.r, CHECKPOINT_CLEAN_STOP));
        ck_assert_int_eq(rig_create(&b.r, "late", S_IFREG), -EROFS);
        ck_assert_int_eq(b.r.store->ops->write_out(b.r.store, &seq), -EROFS);
        ck_assert_int_eq(b.r.store->ops->reserve(b.r.store, 1, false), -EROFS);
        bench_end(&b);
}
END_TEST

/* Appends go on between prepare and run, and after; both are there after a power cut in which all that was flushed is kept. */
START_TEST(appends_go_on_beside_a_checkpoint) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        for (uint64_t round = 0; round < 30; round++) {
                struct store *s = b.r.store;
                some_operations(&b, 30);
                OK(rig_write_out(&b.r));
                OK(s->ops->checkpoint_prepare(s, &b.r.state, CHECKPOINT_NORMAL));
                ck_assert_int_eq(s->ops->checkpoint_prepare(s, &b.r.state, CHECKPOINT_NORMAL), -EBUSY);
                uint64_t captured = b.r.state.pos.seq;
                some_operations(&b, 30);
                if (round % 3)
                        OK(s->ops->checkpoint_run(s));
                if (round % 2) {
                        some_operations(&b, 10);
                        OK(rig_barrier(&b.r));
                }
                uint64_t least = MAX_OF(b.r.durable, round % 3 ? captured : 0), end = b.r.state.pos.seq;
                power_cut(&b, round);
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, least, end));
        }
        bench_end(&b);
}
END_TEST

START_TEST(promises_and_epochs) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_NONE);
        uint8_t id[CLUSTER_ID_SIZE] = "a cluster's id!";
        OK(rig_open(&b.r));
        ck_assert_uint_eq(b.r.loaded.promised, 0);
        some_operations(&b, 10);
        OK(b.r.store->ops->set_cluster_id(b.r.store, id));
        OK(b.r.store->ops->set_promised(b.r.store, 3));
        some_operations(&b, 10);
        OK(b.r.store->ops->set_adopted(b.r.store, 3));
        uint64_t adopted_at = b.r.state.pos.seq;
        b.r.epoch = 3;
        some_operations(&b, 10);
        uint64_t end = b.r.state.pos.seq;
        power_cut(&b, 1);
        OK(rig_open(&b.r));
        OK(rig_verify(&b.r, adopted_at, end)); /* adopted is durable, and the operations before it with it, at every level */
        ck_assert_uint_eq(b.r.loaded.promised, 3);
        ck_assert_uint_eq(b.r.loaded.adopted, 3);
        ck_assert_mem_eq(b.r.loaded.cluster_id, id, sizeof(id));
        OK(b.r.store->ops->set_promised(b.r.store, 5));
        OK(b.r.store->ops->set_promised(b.r.store, 4)); /* never back */
        OK(rig_stop(&b.r));
        OK(rig_open(&b.r));
        ck_assert_uint_eq(b.r.loaded.promised, 5);
        ck_assert_uint_eq(b.r.loaded.adopted, 3);
        ck_assert_mem_eq(b.r.loaded.cluster_id, id, sizeof(id));
        bench_end(&b);
}
END_TEST

static void count_call(void *ctx) {
        ++*(unsigned *)ctx;
}

START_TEST(replace_is_one_switch) {
        for (uint64_t seed = 0; seed < 6; seed++) {
                struct bench b;
                struct rig other;
                bench_begin(&b, _i, LEVEL_FILESYSTEM);
                OK(rig_open(&b.r));
                some_operations(&b, 60);
                OK(rig_barrier(&b.r));
                rig_init(&other, &(struct store_config){0});
                other.random = seed + 99;
                other.epoch = 7;
                for (int i = 0; i < 40; i++)
                        OK(rig_any(&other, 20000));
                unsigned captured = 0;
                OK(b.r.store->ops->replace(b.r.store, &other.state, 7, count_call, &captured));
                ck_assert_uint_eq(captured, 1);
                /* From here on the other's history is ours. */
                state_done(&b.r.state);
                GArray *digests = b.r.digests;
                b.r.digests = other.digests;
                other.digests = digests;
                b.r.state = other.state;
                state_init(&other.state);
                b.r.epoch = 7;
                uint64_t switched = b.r.state.pos.seq;
                b.r.durable = b.r.written = 0;
                OK(rig_barrier(&b.r));
                ck_assert_uint_le(b.r.durable, switched);       /* positions of the old history count no more */
                OK(b.r.store->ops->set_promised(b.r.store, 9)); /* before its first operation: at its position, not at the old history's */
                OK(b.r.store->ops->set_adopted(b.r.store, 9));
                b.r.epoch = 9;
                some_operations(&b, 20);
                if (seed % 2)
                        OK(rig_barrier(&b.r));
                some_operations(&b, 20);
                OK(rig_write_out(&b.r));
                uint64_t end = b.r.state.pos.seq;
                switched = MAX_OF(switched, b.r.durable);
                power_cut(&b, seed);
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, switched, end));
                ck_assert_uint_eq(b.r.loaded.adopted, 9);
                ck_assert_uint_eq(b.r.loaded.promised, 9);
                some_operations(&b, 20);
                OK(rig_stop(&b.r));
                OK(rig_open(&b.r));
                rig_done(&other);
                bench_end(&b);
        }
}
END_TEST

struct seen {
        uint64_t next, n, stop_at;
};
static bool see(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len) {
        struct seen *s = ctx;
        struct op op;
        cleanup_free void *scratch = NULL;
        ck_assert_uint_eq(pos.seq, s->next);
        OK(op_decode(head, head_len, payload, payload_len, &op, &scratch));
        s->next++;
        s->n++;
        return s->n != s->stop_at;
}

START_TEST(log_is_read_back) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        some_operations(&b, 40);
        struct seen seen = {.next = 1};
        OK(b.r.store->ops->read_log(b.r.store, 1, see, &seen)); /* also what is pending */
        ck_assert_uint_eq(seen.n, b.r.state.pos.seq);
        seen = (struct seen){.next = 10, .stop_at = 3};
        OK(b.r.store->ops->read_log(b.r.store, 10, see, &seen));
        ck_assert_uint_eq(seen.n, 3);
        seen = (struct seen){.next = b.r.state.pos.seq + 1};
        OK(b.r.store->ops->read_log(b.r.store, seen.next, see, &seen));
        ck_assert_uint_eq(seen.n, 0);
        /* In the end the oldest are gone, and that is said. */
        for (int i = 0; i < 4; i++) {
                some_operations(&b, 20);
                OK(rig_write_out(&b.r));
                OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        }
        seen = (struct seen){.next = 1};
        ck_assert_int_eq(b.r.store->ops->read_log(b.r.store, 1, see, &seen), -ENOENT);
        bench_end(&b);
}
END_TEST

/* The byte counter goes back to zero at every barrier, whatever caused it: it does not stay over the threshold once that was crossed. */
START_TEST(barriers_by_size) {
        struct bench b;
        uint8_t data[3000];
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        b.r.config.barrier_bytes = 100000;
        b.r.config.log_size = 16 * MIB;
        OK(rig_open(&b.r));
        OK(rig_create(&b.r, "f", S_IFREG | 0644));
        OK(rig_barrier(&b.r));
        unsigned barriers = 0, since = 0;
        for (int i = 0; i < 400; i++) {
                rig_bytes(&b.r, data, sizeof(data));
                OK(rig_replace(&b.r, "f", data, sizeof(data)));
                OK(rig_write_out(&b.r));
                since++;
                if (i == 200 || i == 301) { /* one from elsewhere starts it anew */
                        OK(i == 200 ? rig_barrier(&b.r) : rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                        since = 0;
                }
                if (b.r.store->ops->wants_barrier(b.r.store)) {
                        OK(rig_barrier(&b.r));
                        ck_assert_uint_ge(since, 32);
                        ck_assert_uint_le(since, 34);
                        since = 0;
                        barriers++;
                }
        }
        ck_assert_uint_ge(barriers, 10);
        ck_assert_uint_le(barriers, 12);
        bench_end(&b);
}
END_TEST

START_TEST(levels_change_while_running) {
        static const enum sync_level levels[] = {LEVEL_NONE, LEVEL_FILE, LEVEL_FILESYSTEM, LEVEL_FILE, LEVEL_NONE, LEVEL_FILESYSTEM};
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
                some_operations(&b, 20);
                OK(rig_write_out(&b.r));
                OK(b.r.store->ops->set_level(b.r.store, levels[i], SYNC_FDATASYNC, i % 2, 0));
                b.r.config.level = levels[i];
                b.r.durable = b.r.state.pos.seq; /* a change is a barrier */
                some_operations(&b, 20);
                OK(rig_write_out(&b.r));
                uint64_t durable = b.r.durable, end = b.r.state.pos.seq;
                power_cut(&b, i);
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, durable, end));
        }
        bench_end(&b);
}
END_TEST

START_TEST(one_at_a_time) {
        struct bench b;
        struct state state;
        struct store_loaded loaded;
        struct store *second = NULL;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        state_init(&state);
        errint_t e = _i == MEMORY ? store_open_memory(&b.r.config, &state, &loaded, &second)
                                  : store_open_sqlite(&b.r.config, &state, &loaded, &second);
        ck_assert_int_eq(e, -EBUSY);
        ck_assert_str_ne(loaded.reason, "");
        state_done(&state);
        some_operations(&b, 20);
        OK(rig_stop(&b.r));
        bench_end(&b);
}
END_TEST

/* A call that fails is trouble: nothing is taken until a rescue has brought everything home, and nothing is lost by it. */
START_TEST(trouble_and_rescue) {
        static const unsigned calls[] = {STORE_APPEND, STORE_WRITE_OUT, STORE_BARRIER};
        for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
                struct bench b;
                bench_begin(&b, _i, LEVEL_FILESYSTEM);
                OK(rig_open(&b.r));
                some_operations(&b, 20);
                OK(rig_barrier(&b.r));
                if (_i == MEMORY)
                        store_backing_fail(b.backing, &(struct store_fault){.calls = calls[i], .nth = 1, .error = -EIO});
                else
                        simdisk_fail(b.disk, &(struct simdisk_fault){.kinds = calls[i] == STORE_BARRIER ? SIMDISK_SYNC : SIMDISK_WRITE,
                                                                     .path_part = "-oplog",
                                                                     .nth = 1,
                                                                     .error = -EIO});
                (void)rig_create(&b.r, "x", S_IFREG); /* fails where the append itself is to */
                ck_assert_int_eq(rig_barrier(&b.r), -EIO);
                ck_assert(b.r.store->ops->wants_checkpoint(b.r.store));
                ck_assert_int_eq(rig_create(&b.r, "y", S_IFREG), -EIO);
                ck_assert_int_eq(rig_barrier(&b.r), -EIO); /* no flush is tried again in place */
                if (_i == SQLITE)
                        ck_assert_uint_eq(simdisk_fault_hits(b.disk), 1);
                OK(rig_checkpoint(&b.r, CHECKPOINT_RESCUE));
                ck_assert(!b.r.store->ops->wants_checkpoint(b.r.store));
                uint64_t rescued = b.r.state.pos.seq;
                some_operations(&b, 10);
                OK(rig_write_out(&b.r));
                uint64_t end = b.r.state.pos.seq;
                power_cut(&b, 5);
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, rescued, end));
                bench_end(&b);
        }
}
END_TEST

/* A rescue that fails as well is the end: everything is refused, with a reason, and what is on the disk is what was acknowledged. */
START_TEST(failed_rescue) {
        struct bench b;
        uint64_t seq;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        some_operations(&b, 20);
        OK(rig_barrier(&b.r));
        uint64_t durable = b.r.durable;
        if (_i == MEMORY)
                store_backing_fail(
                        b.backing,
                        &(struct store_fault){.calls = STORE_WRITE_OUT | STORE_CHECKPOINT, .nth = 1, .sticky = true, .error = -EIO});
        else
                simdisk_fail(b.disk, &(struct simdisk_fault){.kinds = SIMDISK_CHANGES, .nth = 1, .sticky = true, .error = -EIO});
        (void)rig_create(&b.r, "x", S_IFREG);
        ck_assert_int_eq(rig_barrier(&b.r), -EIO);
        ck_assert_int_eq(rig_checkpoint(&b.r, CHECKPOINT_RESCUE), -EIO);
        const char *why = (b.r.store->ops->fail)(b.r.store); /* check has a macro of that name */
        ck_assert_ptr_nonnull(why);
        ck_assert_int_eq(rig_create(&b.r, "y", S_IFREG), -EROFS);
        ck_assert_int_eq(b.r.store->ops->barrier(b.r.store, &seq), -EROFS);
        ck_assert_int_eq(b.r.store->ops->set_promised(b.r.store, 9), -EROFS);
        ck_assert_int_eq(b.r.store->ops->reserve(b.r.store, 1, true), -EROFS);
        ck_assert_int_eq(rig_checkpoint(&b.r, CHECKPOINT_RESCUE), -EROFS);
        uint64_t end = b.r.state.pos.seq;
        kill_it(&b);
        if (_i == MEMORY)
                store_backing_fail(b.backing, NULL);
        else
                simdisk_fail(b.disk, NULL);
        OK(rig_open(&b.r));
        OK(rig_verify(&b.r, durable, end));
        bench_end(&b);
}
END_TEST

START_TEST(a_second_checkpoint_writes_nothing) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        some_operations(&b, 20);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        if (_i == SQLITE) {
                uint64_t calls = simdisk_calls(b.disk, SIMDISK_CHANGES);
                OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                OK(rig_barrier(&b.r));
                ck_assert_uint_eq(simdisk_calls(b.disk, SIMDISK_CHANGES), calls);
        }
        bench_end(&b);
}
END_TEST

START_TEST(read_only_writes_nothing) {
        struct bench b;
        bench_begin(&b, _i, LEVEL_FILESYSTEM);
        OK(rig_open(&b.r));
        some_operations(&b, 20);
        OK(rig_write_out(&b.r));
        uint64_t end = b.r.written;
        kill_it(&b);
        b.r.config.read_only = true;
        uint64_t calls = _i == SQLITE ? simdisk_calls(b.disk, SIMDISK_CHANGES & ~(unsigned)SIMDISK_OPEN) : 0;
        OK(rig_open(&b.r));
        OK(rig_verify(&b.r, end, end));
        ck_assert(b.r.loaded.read_only || _i == MEMORY);
        ck_assert_int_eq(rig_create(&b.r, "x", S_IFREG), -EROFS);
        kill_it(&b);
        if (_i == SQLITE)
                ck_assert_uint_eq(simdisk_calls(b.disk, SIMDISK_CHANGES & ~(unsigned)SIMDISK_OPEN), calls);
        bench_end(&b);
}
END_TEST

static Suite *contract(void) {
        Suite *s = suite_create("store contract");
        TCase *t = tcase_create("both");
        tcase_set_timeout(t, 120);
        const TTest *const tests[] = {fresh_is_empty,
                                      kill_keeps_what_was_written_out,
                                      power_cut_keeps_what_was_flushed,
                                      clean_stop_leaves_nothing_to_replay,
                                      nothing_is_taken_after_a_clean_stop,
                                      appends_go_on_beside_a_checkpoint,
                                      promises_and_epochs,
                                      replace_is_one_switch,
                                      log_is_read_back,
                                      barriers_by_size,
                                      levels_change_while_running,
                                      one_at_a_time,
                                      trouble_and_rescue,
                                      failed_rescue,
                                      a_second_checkpoint_writes_nothing,
                                      read_only_writes_nothing};
        for (size_t i = 0; i < ARRAY_LEN(tests); i++)
                tcase_add_loop_test(t, tests[i], 0, IMPLEMENTATIONS);
        suite_add_tcase(s, t);
        return s;
}

int main(void) {
        SRunner *runner = srunner_create(contract());
        srunner_run_all(runner, CK_ENV);
        int failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
