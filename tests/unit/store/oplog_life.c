/* oplog_life.c: the operation log over its life: restarts, failures, many threads, crashes and damage. */
#include "oplog_rig.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <pthread.h>
#include <string.h>

/* --- restarts ----------------------------------------------------------------------------------------------------------------------------
 */

/* Records 1..4, 3 damaged. After a restart at 2, the same 3 is appended again: the old 4 would fit behind it. */
START_TEST(a_record_of_an_earlier_life_never_fits) {
        struct oplog *l = logrig_make_default();
        uint64_t place[5], end;
        uint32_t chain;
        for (uint64_t i = 1; i <= 4; i++) {
                struct oplog_record r = logrig_op(i, 50, 0);
                ck_assert_int_eq(oplog_append(l, &r), 0);
                place[i] = r.log_offset;
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        for (unsigned life = 0; life < 3; life++) {
                ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, place[3] + 20, "!", 1), 0);
                l = logrig_reopen();
                ck_assert_uint_eq(logrig_replay(l, 0, SALT, &end, &chain, "behind sequence 2").n, 2);
                oplog_start(l, 0, SALT, end, chain);
                struct oplog_record r = logrig_op(3, 50, 0);
                ck_assert_int_eq(oplog_append(l, &r), 0);
                ck_assert_uint_ge(r.log_offset, OPLOG_PAGE + 4096); /* never on the old page */
                ck_assert_int_eq(oplog_flush(l, NULL), 0);
                struct oplog_record again = logrig_op(4, 50, 0);
                if (life < 2)
                        ck_assert_int_eq(oplog_append(l, &again), 0);
                ck_assert_int_eq(oplog_flush(l, NULL), 0);
                struct oplog_config c = logrig_config();
                (void)c;
                oplog_close(l);
                l = logrig_reopen();
                ck_assert_uint_eq(logrig_replay(l, 0, SALT, &end, &chain, "").n, life < 2 ? 4 : 3);
                /* The next life finds 3 damaged where it lies now. */
                place[3] = r.log_offset;
                oplog_close(l);
        }
}
END_TEST

START_TEST(reading_back_goes_on_after_a_restart) {
        struct oplog *l = logrig_make_default();
        struct oplog_record a = logrig_op(1, 100, 5000), b = logrig_op(2, 60, 0), c = logrig_op(3, 70, 10), back;
        void *buffer = NULL;
        uint64_t end;
        uint32_t chain;
        ck_assert_int_eq(oplog_append(l, &a), 0);
        ck_assert_int_eq(oplog_append(l, &b), 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        l = logrig_reopen();
        ck_assert_int_eq(oplog_read(l, a.log_offset, a.log_len, &back, &buffer), -ENOENT);
        (void)logrig_replay(l, 0, SALT, &end, &chain, "");
        (void)logrig_replay(l, 1, SALT + 9, NULL, NULL, "");
        oplog_start(l, 0, SALT, end, chain);
        ck_assert_int_eq(oplog_append(l, &c), 0);
        const struct oplog_record *all[] = {&a, &b, &c};
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                ck_assert_int_eq(oplog_read(l, all[i]->log_offset, all[i]->log_len, &back, &buffer), 0);
                ck_assert_uint_eq(back.pos.seq, i + 1);
                free(buffer);
                buffer = NULL;
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        uint8_t flip;
        ck_assert_int_eq(simdisk_peek(logrig_sim, PATH, a.log_offset + 3000, &flip, 1), 0);
        flip ^= 1;
        ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, a.log_offset + 3000, &flip, 1), 0);
        ck_assert_int_eq(oplog_read(l, a.log_offset, a.log_len, &back, &buffer), -EBADMSG);
        ck_assert_int_eq(oplog_read(l, 5, 10, &back, &buffer), -EINVAL);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE, 10, &back, &buffer), -EINVAL);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE / 2 - 5, 10, &back, &buffer), -EINVAL);
        oplog_close(l);
}
END_TEST

START_TEST(read_only_writes_nothing) {
        struct oplog *l = logrig_make_default();
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        uint64_t changes = simdisk_calls(logrig_sim, SIMDISK_CHANGES & ~SIMDISK_OPEN);
        struct oplog_config c = logrig_config();
        c.read_only = true;
        ck_assert_int_eq(oplog_open(&c, false, &l), 0);
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
        ck_assert_uint_eq(simdisk_calls(logrig_sim, SIMDISK_CHANGES & ~SIMDISK_OPEN), changes);
}
END_TEST

/* --- failures
 * ------------------------------------------------------------------------------------------------------------------------------ */
START_TEST(errors_stick_until_a_new_start) {
        static const char *const points[] = {"store.log.write=EIO@1", "store.log.flush=EIO@1"};
        struct oplog *l = logrig_make_default();
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        logrig_append(l, 2, 100, 0);
        ck_assert_int_eq(failpoint_set(points[_i]), 0);
        ck_assert_int_eq(oplog_flush(l, NULL), -EIO);
        (void)failpoint_set(NULL);
        struct oplog_record r = logrig_op(3, 100, 0), back;
        void *buffer = NULL;
        ck_assert_int_eq(oplog_append(l, &r), -EIO);
        ck_assert_int_eq(oplog_write_out(l, NULL), -EIO);
        ck_assert_int_eq(oplog_flush(l, NULL), -EIO);
        ck_assert_uint_eq(logrig_metric(METRIC_STORE_ERRORS), 1);
        oplog_start(l, 1, SALT + 1, 0, 0);
        logrig_append(l, 3, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE / 2, 110, &back, &buffer), 0);
        free(buffer);
        ck_assert_uint_eq(logrig_replay(l, 1, SALT + 1, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

START_TEST(what_was_dropped_is_gone) {
        struct oplog *l = logrig_make_default();
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        for (uint64_t i = 2; i < 200; i++)
                logrig_append(l, i, 93, 0);
        ck_assert_int_eq(failpoint_set("store.log.write=ENOSPC@1"), 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), -ENOSPC);
        oplog_drop_pending(l, 1);
        for (uint64_t i = 2; i < 100; i++) {
                struct oplog_record other = logrig_op(i, 50 + i % 7, 0), back;
                void *buffer = NULL;
                ck_assert_int_eq(oplog_append(l, &other), 0);
                ck_assert_int_eq(oplog_read(l, other.log_offset, other.log_len, &back, &buffer), 0);
                ck_assert_uint_eq(back.head_len, 50 + i % 7);
                free(buffer);
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        l = logrig_reopen();
        struct logrig_seen s = logrig_replay(l, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, 99);
        oplog_close(l);
}
END_TEST

/* --- threads
 * -------------------------------------------------------------------------------------------------------------------------------- */
#define WRITERS 16
#define EACH    50
struct group {
        struct oplog *log;
        pthread_mutex_t order;
        uint64_t seq;
};
static void *writer(void *ctx) {
        struct group *g = ctx;
        for (unsigned i = 0; i < EACH; i++) {
                uint64_t reached = 0;
                pthread_mutex_lock(&g->order);
                struct oplog_record r = {.kind = OPLOG_OP, .pos = {1, ++g->seq}, .head = logrig_text, .head_len = 60};
                errint_t err = oplog_append(g->log, &r);
                pthread_mutex_unlock(&g->order);
                if (err == 0)
                        err = oplog_write_out(g->log, &reached);
                if (err < 0 || reached < r.pos.seq)
                        return (void *)1;
                if (i % 10 == 5 && oplog_flush(g->log, &reached) < 0)
                        return (void *)1;
        }
        return NULL;
}

START_TEST(writers_share_flushes) {
        struct oplog_config c = logrig_config();
        c.level = _i ? LEVEL_FILE : LEVEL_FILESYSTEM;
        c.method = SYNC_OPEN_DATASYNC;
        c.direct = true;
        c.size = 2 * MIB;
        struct group g = {.log = logrig_make(&c), .order = PTHREAD_MUTEX_INITIALIZER};
        pthread_t t[WRITERS];
        for (unsigned i = 0; i < WRITERS; i++)
                ck_assert_int_eq(pthread_create(&t[i], NULL, writer, &g), 0);
        for (unsigned i = 0; i < WRITERS; i++) {
                void *bad;
                ck_assert_int_eq(pthread_join(t[i], &bad), 0);
                ck_assert_ptr_null(bad);
        }
        struct logrig_seen s = logrig_replay(g.log, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, WRITERS * EACH);
        oplog_close(g.log);
}
END_TEST

/* Deterministic: while one write is at the disk, fifteen appends gather, and one more write takes them all. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool at_gate;
static void hold_write(void *ctx, const char *path, uint64_t offset, uint64_t n, bool direct) {
        (void)ctx;
        (void)path;
        (void)offset;
        (void)n;
        (void)direct;
        at_gate = true;
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
}
static void *one_write(void *ctx) {
        return (void *)(intptr_t)oplog_write_out(ctx, NULL);
}

START_TEST(one_write_takes_all_that_wait) {
        struct oplog_config c = logrig_config();
        c.level = LEVEL_FILE;
        c.method = SYNC_OPEN_DATASYNC;
        c.direct = true;
        struct oplog *l = logrig_make(&c);
        pthread_t first, others[15];
        void *r;
        logrig_append(l, 1, 60, 0);
        simdisk_watch(logrig_sim, hold_write, NULL);
        pthread_mutex_lock(&gate);
        at_gate = false;
        ck_assert_int_eq(pthread_create(&first, NULL, one_write, l), 0);
        while (!at_gate)
                ;
        for (uint64_t i = 0; i < 15; i++) { /* appending does not wait for the disk */
                logrig_append(l, i + 2, 60, 0);
                ck_assert_int_eq(pthread_create(&others[i], NULL, one_write, l), 0);
        }
        pthread_mutex_unlock(&gate);
        ck_assert_int_eq(pthread_join(first, &r), 0);
        for (unsigned i = 0; i < 15; i++)
                ck_assert_int_eq(pthread_join(others[i], &r), 0);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 16);
        oplog_close(l);
}
END_TEST

/* --- crashes and damage
 * ------------------------------------------------------------------------------------------------------------------------ */
static const struct model_config models[] = {
        {.level = LEVEL_FILESYSTEM},
        {.level = LEVEL_NONE, .method = SYNC_FSYNC, .sector = 4096},
        {.level = LEVEL_FILESYSTEM, .method = SYNC_OPEN_DATASYNC},
        {.level = LEVEL_FILE, .method = SYNC_OPEN_DATASYNC, .direct = true},
        {.level = LEVEL_FILE, .method = SYNC_OPEN_SYNC, .direct = true, .sector = 4096},
        {.level = LEVEL_FILE, .method = SYNC_FDATASYNC, .direct = true, .padding = 4096},
        {.level = LEVEL_FILE, .method = SYNC_FSYNC},
        {.level = LEVEL_FILE, .method = SYNC_SYNCFS, .direct = true, .refuse_direct = true},
};

START_TEST(crashes_keep_a_prefix_with_all_that_was_flushed) {
        log_set_level(LOG_LEVEL_ERROR); /* one of the models is refused O_DIRECT, at each of its starts */
        for (uint64_t seed = 1; seed <= 12; seed++) {
                struct model_config c = models[_i];
                c.seed = seed;
                c.steps = 60;
                c.lives = 6;
                c.cuts_per_life = 6;
                CLEANUP(model_freep) struct model *m = model_new(&c);
                const char *broken = model_run(m);
                ck_assert_msg(!broken, "model %d seed %llu: %s", _i, (unsigned long long)seed, broken);
                ck_assert_uint_gt(model_replays(m), 6);
        }
}
END_TEST

/* Each byte of a small log flipped in turn: what replay gives is always a true prefix. */
static errint_t check_prefix(void *ctx, const struct oplog_record *r) {
        struct logrig_seen *s = ctx;
        size_t head = 20 + 10 * s->n, payload = s->n % 2 ? 30 * s->n : 0;
        ck_assert_uint_eq(r->pos.seq, ++s->n);
        ck_assert_uint_eq(r->head_len, head);
        ck_assert_mem_eq(r->head, logrig_text, head);
        ck_assert_uint_eq(r->payload_len, payload);
        if (payload)
                ck_assert_mem_eq(r->payload, logrig_text + head, payload);
        return 0;
}

START_TEST(no_flip_changes_a_record) {
        struct oplog *l = logrig_make_default();
        unsigned shorter = 0, told = 0;
        for (unsigned i = 0; i < 12; i++) {
                logrig_append(l, i + 1, 20 + 10 * i, i % 2 ? 30 * i : 0);
                if (i == 3)
                        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        uint64_t used = oplog_used(l);
        for (uint64_t at = OPLOG_PAGE; at < OPLOG_PAGE + used; at++)
                for (unsigned bit = 0; bit < 8; bit += (unsigned)(1 + at % 3)) {
                        uint8_t b, flipped;
                        struct logrig_seen s = {0};
                        char torn[128];
                        uint64_t end;
                        uint32_t chain;
                        ck_assert_int_eq(simdisk_peek(logrig_sim, PATH, at, &b, 1), 0);
                        flipped = (uint8_t)(b ^ (1u << bit));
                        ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, at, &flipped, 1), 0);
                        ck_assert_int_eq(oplog_replay(l, 0, SALT, check_prefix, &s, &end, &chain, torn, sizeof torn), 0);
                        shorter += s.n < 12;
                        told += *torn != '\0' && s.n < 12;
                        ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, at, &b, 1), 0);
                }
        ck_assert_uint_gt(shorter, 1000);
        ck_assert_uint_gt(told * 100, shorter * 95); /* nearly always it can be told from a clean end */
        oplog_close(l);
}
END_TEST

START_TEST(arbitrary_bytes_are_read_safely) {
        struct oplog *l = logrig_make_default();
        uint64_t state = 5;
        cleanup_free uint8_t *junk = xmalloc(SIZE);
        for (unsigned round = 0; round < 60; round++) {
                for (size_t i = 0; i < SIZE; i++) {
                        state = state * 6364136223846793005u + 1442695040888963407u;
                        junk[i] = (uint8_t)(round % 3 == 0 ? state >> 56 : round % 3 == 1 ? 0xff : (state >> 60) & 3);
                }
                ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, OPLOG_PAGE, junk, SIZE), 0);
                ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, NULL).n, 0);
                ck_assert_uint_eq(logrig_replay(l, 1, SALT, NULL, NULL, NULL).n, 0);
        }
        /* The decoder on its own, with every length that ends inside a record. */
        struct oplog_extent *extents = xmalloc(OPLOG_EXTENTS_MAX * sizeof *extents);
        for (size_t n = 0; n < 400; n++) {
                cleanup_free uint8_t *exact = xmalloc(n);
                struct oplog_walk w;
                struct oplog_record r;
                size_t len;
                bool ours;
                for (size_t i = 0; i < n; i++)
                        exact[i] = junk[i] | 1;
                oplog_walk_init(&w, SALT);
                ck_assert_int_lt(oplog_decode(exact, n, &w, extents, &r, &len, &ours), 0);
        }
        free(extents);
        oplog_close(l);
}
END_TEST

static Suite *oplog_life_suite(void) {
        Suite *s = suite_create("oplog_life");
        TCase *t = tcase_create("oplog_life");
        tcase_add_checked_fixture(t, logrig_setup, logrig_teardown);
        tcase_set_timeout(t, 120);
        tcase_add_test(t, a_record_of_an_earlier_life_never_fits);
        tcase_add_test(t, reading_back_goes_on_after_a_restart);
        tcase_add_test(t, read_only_writes_nothing);
        tcase_add_loop_test(t, errors_stick_until_a_new_start, 0, 2);
        tcase_add_test(t, what_was_dropped_is_gone);
        tcase_add_loop_test(t, writers_share_flushes, 0, 2);
        tcase_add_test(t, one_write_takes_all_that_wait);
        tcase_add_loop_test(t, crashes_keep_a_prefix_with_all_that_was_flushed, 0, (int)ARRAY_LEN(models));
        tcase_add_test(t, no_flip_changes_a_record);
        tcase_add_test(t, arbitrary_bytes_are_read_safely);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(oplog_life_suite)
