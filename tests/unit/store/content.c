/* content.c: the content file: what is free, where contents go, what they cost, and when their units return. */
#include "base/failpoint.h"
#include "base/hash.h"
#include "content_map.h"
#include "content_private.h"
#include "simdisk.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>

#define PATH "/d/db-content"
static const uint8_t id[OPLOG_ID_SIZE] = "an id of 16 byte";
static struct metrics metrics;
static struct simdisk *sim;
static struct content *c;

static struct content *open_content(bool create, bool read_only) {
        struct content *ret = NULL;
        ck_assert_int_eq(content_open(simdisk_disk(sim), PATH, id, create, read_only, &metrics, &ret), 0);
        return ret;
}

static void setup(void) {
        sim = simdisk_new(&(struct simdisk_config){.seed = 1, .history = true});
        c = open_content(true, false);
        memset(&metrics, 0, sizeof metrics);
}

static void teardown(void) {
        (void)failpoint_set(NULL);
        content_close(c);
        simdisk_free(sim);
}

static uint8_t *bytes(size_t n, uint64_t seed) {
        uint8_t *p = xmalloc(n);
        for (size_t i = 0; i < n; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                p[i] = (uint8_t)(seed >> 56);
        }
        return p;
}

struct stored {
        struct oplog_extent *e;
        size_t n, len;
        uint64_t seed;
        uint32_t crc;
};
static struct stored put(size_t len, uint64_t seed, bool direct) {
        cleanup_free uint8_t *p = bytes(len, seed);
        struct stored s = {.len = len, .seed = seed, .crc = crc32c(0, p, len)};
        ck_assert_int_eq(content_write(c, p, len, direct, &s.e, &s.n), 0);
        return s;
}
static errint_t get(struct content *from, const struct stored *s) {
        cleanup_free uint8_t *want = bytes(s->len, s->seed), *got = xcalloc(1, s->len);
        errint_t r = content_read(from, s->e, s->n, got, s->len, s->crc);
        if (r == 0)
                ck_assert_mem_eq(want, got, s->len);
        return r;
}
static void drop(struct stored *s, uint64_t seq) {
        content_free_at(c, s->e, s->n, seq);
        free(s->e);
        s->e = NULL;
}
static uint64_t metric(enum metric m) {
        return metric_get(&metrics, m);
}

/* --- the map -------------------------------------------------------------------------------------------------------------------------- */
START_TEST(the_map_agrees_with_a_simple_one) {
        enum { N = 300 };
        struct content_map m;
        bool used[N];
        uint64_t state = 9;
        map_init(&m);
        map_grow(&m, N / 2);
        memset(used, 0, sizeof used);
        for (unsigned step = 0; step < 20000; step++) {
                uint64_t draw = (state = state * 6364136223846793005u + 1442695040888963407u) >> 33;
                uint64_t n = draw % 12 + 1, start = (draw >> 8) % N, best = 0;
                bool free_all = start + n <= m.total, used_all = free_all;
                for (uint64_t i = start; i < start + n && i < m.total; i++) {
                        free_all = free_all && !used[i];
                        used_all = used_all && used[i];
                }
                ck_assert_int_eq(map_is_free(&m, start, n), free_all);
                ck_assert_int_eq(map_is_used(&m, start, n), used_all);
                if (free_all)
                        map_take(&m, start, n);
                else if (used_all)
                        map_give(&m, start, n);
                for (uint64_t i = start; (free_all || used_all) && i < start + n; i++)
                        used[i] = free_all;
                if (step == 10000)
                        map_grow(&m, N);
                uint64_t shortest = UINT64_MAX, run = 0, free_units = 0;
                for (uint64_t i = 0; i <= m.total; i++)
                        if (i < m.total && !used[i]) {
                                run++;
                                free_units++;
                        } else {
                                if (run >= n && run < shortest) {
                                        shortest = run;
                                        best = i - run;
                                }
                                run = 0;
                        }
                uint64_t found = 0;
                ck_assert_uint_eq(m.free, free_units);
                ck_assert_int_eq(map_best(&m, n, &found), shortest != UINT64_MAX);
                ck_assert_uint_eq(found, shortest != UINT64_MAX ? best : 0);
        }
        map_done(&m);
}
END_TEST

/* --- opening ----------------------------------------------------------------------------------------------------------------------------
 */
START_TEST(foreign_and_other_files_are_told_apart) {
        struct content *x = NULL;
        struct disk *d = simdisk_disk(sim);
        uint8_t other[OPLOG_ID_SIZE] = "another id";
        ck_assert_int_eq(content_open(d, "/d/none", id, false, false, NULL, &x), -ENOENT);
        ck_assert_int_eq(content_open(d, PATH, other, false, false, NULL, &x), -EXDEV);
        ck_assert_int_eq(content_open(d, PATH, other, true, false, NULL, &x), 0); /* holds nothing: taken over */
        content_close(x);
        ck_assert_int_eq(content_open(d, PATH, id, true, false, NULL, &x), 0);
        content_close(x);
        struct stored s = put(100, 1, false);
        ck_assert_int_eq(content_open(d, PATH, id, true, false, NULL, &x), -EEXIST);
        for (uint64_t i = 0; i < 32; i++) {
                uint8_t b, flipped;
                ck_assert_int_eq(simdisk_peek(sim, PATH, i, &b, 1), 0);
                flipped = b ^ 1;
                ck_assert_int_eq(simdisk_poke(sim, PATH, i, &flipped, 1), 0);
                ck_assert_int_eq(content_open(d, PATH, id, false, true, NULL, &x), -EBADMSG);
                ck_assert_int_eq(simdisk_poke(sim, PATH, i, &b, 1), 0);
        }
        free(s.e);
}
END_TEST

START_TEST(creation_is_durable_or_begins_again) {
        uint64_t end = simdisk_position(sim);
        for (uint64_t at = 0; at <= end; at++)
                for (unsigned seed = 0; seed < 8; seed++) {
                        CLEANUP(simdisk_freep)
                        struct simdisk *cut = simdisk_crashed(sim, &(struct simdisk_crash){.at = at, .keep = SIMDISK_ANY, .seed = seed});
                        struct content *x = NULL;
                        errint_t r = content_open(simdisk_disk(cut), PATH, id, false, false, NULL, &x);
                        ck_assert(r == 0 || (r != -EXDEV && at < end));
                        content_close(x);
                        ck_assert_int_eq(content_open(simdisk_disk(cut), PATH, id, true, false, NULL, &x), 0);
                        content_close(x);
                }
}
END_TEST

START_TEST(read_only_writes_nothing) {
        struct stored s = put(5000, 1, false);
        uint64_t changes = simdisk_calls(sim, SIMDISK_CHANGES & ~SIMDISK_OPEN);
        struct content *x = open_content(false, true);
        ck_assert_int_eq(content_mark_used(x, s.e, s.n), 0);
        ck_assert_int_eq(get(x, &s), 0);
        content_free_at(x, s.e, s.n, 5);
        content_home_durable(x, 5);
        ck_assert_int_eq(content_flush(x), 0);
        content_close(x);
        ck_assert_uint_eq(simdisk_calls(sim, SIMDISK_CHANGES & ~SIMDISK_OPEN), changes);
        free(s.e);
}
END_TEST

/* --- writing and reading
 * ------------------------------------------------------------------------------------------------------------------- */
START_TEST(contents_come_back_and_cost_what_they_should) {
        static const size_t sizes[] = {1, 512, 513, 4095, 4096, 4097, 65536, 100001, 1 << 20, (1 << 20) + 5, 3000000};
        bool direct = _i;
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                uint64_t before = metric(METRIC_CONTENT_BYTES), unit = direct ? 512 : 4096;
                struct stored s = put(sizes[i], i, direct);
                ck_assert_uint_eq(s.n, 1);
                ck_assert_uint_eq(s.e[0].length, sizes[i]);
                ck_assert_uint_eq(s.e[0].offset % CONTENT_UNIT, 0);
                ck_assert_uint_eq(metric(METRIC_CONTENT_BYTES) - before, (sizes[i] + unit - 1) / unit * unit);
                ck_assert_int_eq(get(c, &s), 0);
                s.crc++;
                ck_assert_int_eq(get(c, &s), -EBADMSG);
                free(s.e);
        }
        ck_assert_int_eq(content_flush(c), 0);
        ck_assert_int_eq(content_flush(c), 0);
        ck_assert_uint_eq(metric(METRIC_CONTENT_FLUSHES), 1);
        ck_assert_uint_eq(metric(METRIC_STORE_ERRORS), 0);
}
END_TEST

START_TEST(direct_falls_back_where_refused) {
        content_close(c);
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.refuse_direct = true});
        c = open_content(true, false);
        struct stored s = put(5000, 1, true);
        ck_assert_int_eq(get(c, &s), 0);
        free(s.e);
}
END_TEST

START_TEST(bad_extents_are_refused) {
        struct stored s = put(9000, 1, false);
        cleanup_free uint8_t *buf = xmalloc(10000);
        struct oplog_extent far = {.offset = UINT64_C(1) << 40, .length = 9000}, huge = {.offset = s.e[0].offset, .length = UINT32_MAX};
        ck_assert_int_eq(content_read(c, &far, 1, buf, 9000, s.crc), -EBADMSG);
        ck_assert_int_eq(content_read(c, &huge, 1, buf, 9000, s.crc), -EBADMSG);
        ck_assert_int_eq(content_read(c, s.e, 1, buf, 9001, s.crc), -EBADMSG);
        ck_assert_int_eq(content_read(c, s.e, 0, buf, 9000, s.crc), -EBADMSG);
        free(s.e);
}
END_TEST

/* Each byte of a stored content flipped: never served. */
START_TEST(no_flip_is_served) {
        struct stored s = put(3000, 1, false);
        for (uint64_t i = 0; i < 3000; i++) {
                uint8_t b, flipped;
                ck_assert_int_eq(simdisk_peek(sim, PATH, s.e[0].offset + i, &b, 1), 0);
                flipped = (uint8_t)(b ^ (1u << (i % 8)));
                ck_assert_int_eq(simdisk_poke(sim, PATH, s.e[0].offset + i, &flipped, 1), 0);
                ck_assert_int_eq(get(c, &s), -EBADMSG);
                ck_assert_int_eq(simdisk_poke(sim, PATH, s.e[0].offset + i, &b, 1), 0);
        }
        ck_assert_int_eq(get(c, &s), 0);
        free(s.e);
}
END_TEST

/* --- space
 * ------------------------------------------------------------------------------------------------------------------------------------ */
START_TEST(units_return_only_when_the_home_is_durable) {
        struct stored a = put(10000, 1, false), b = put(4096, 2, false);
        uint64_t live = content_live_bytes(c), at = a.e[0].offset;
        ck_assert_uint_eq(live, 4 * 4096);
        drop(&a, 7);
        ck_assert_uint_eq(content_live_bytes(c), 4096);
        ck_assert_uint_eq(content_dead_bytes(c), 3 * 4096);
        content_home_durable(c, 6);
        ck_assert_uint_eq(content_dead_bytes(c), 3 * 4096);
        struct stored d = put(12288, 3, false);
        ck_assert_uint_ne(d.e[0].offset, at);
        content_home_durable(c, 7);
        ck_assert_uint_eq(content_dead_bytes(c), 0);
        struct stored f = put(12288, 4, false);
        ck_assert_uint_eq(f.e[0].offset, at); /* the shortest run that fits */
        drop(&d, 3);                          /* superseded at or below what is durable: at once */
        ck_assert_uint_eq(content_dead_bytes(c), 0);
        free(b.e);
        free(f.e);
}
END_TEST

START_TEST(marking_finds_overlaps) {
        struct stored a = put(10000, 1, false);
        uint64_t offset = a.e[0].offset, size = content_file_size(c);
        content_close(c);
        c = open_content(false, false);
        ck_assert_uint_eq(content_file_size(c), size);
        ck_assert_uint_eq(content_live_bytes(c), 0);
        struct oplog_extent bad[] = {{0, 10},
                                     {offset + 1, 10},
                                     {offset, 0},
                                     {size - 4096, 4097},
                                     {size, 1},
                                     {UINT64_MAX - 4095, 1},
                                     {UINT64_MAX - 4095, UINT32_MAX}};
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct oplog_extent two[2] = {{offset, 10000}, bad[i]};
                ck_assert_int_eq(content_mark_used(c, &bad[i], 1), -EBADMSG);
                ck_assert_int_eq(content_mark_used(c, two, 2), -EBADMSG); /* and nothing is marked */
        }
        ck_assert_int_eq(content_mark_used(c, a.e, a.n), 0);
        ck_assert_int_eq(content_mark_used(c, &(struct oplog_extent){offset + 8192, 5}, 1), -EBADMSG);
        ck_assert_uint_eq(content_live_bytes(c), 3 * 4096);
        ck_assert_int_eq(get(c, &a), 0);
        free(a.e);
}
END_TEST

START_TEST(a_steady_load_does_not_grow_the_file) {
        struct stored s[40] = {{0}};
        uint64_t seq = 0, size_after_first = 0;
        for (unsigned round = 0; round < 60; round++) {
                for (size_t i = 0; i < ARRAY_LEN(s); i++) {
                        seq++;
                        if (s[i].e)
                                drop(&s[i], seq);
                        s[i] = put(4096 + (seq * 7919) % 60000, seq, false);
                        ck_assert_uint_le(s[i].n, 8);
                }
                content_home_durable(c, seq);
                if (round == 3)
                        size_after_first = content_file_size(c);
        }
        ck_assert_uint_eq(content_file_size(c), size_after_first);
        for (size_t i = 0; i < ARRAY_LEN(s); i++) {
                ck_assert_int_eq(get(c, &s[i]), 0);
                free(s[i].e);
        }
}
END_TEST

START_TEST(pieces_are_used_before_the_disk_is_full) {
        content_close(c);
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.capacity = 2 * MIB});
        c = open_content(true, false);
        struct stored s[600] = {{0}};
        size_t n = 0;
        uint8_t page[4096] = {1};
        for (; n < ARRAY_LEN(s); n++) {
                s[n].len = sizeof page;
                if (content_write(c, page, sizeof page, false, &s[n].e, &s[n].n) != 0)
                        break;
        }
        ck_assert_uint_eq(n, 511); /* all of the disk but the header */
        uint64_t written = simdisk_bytes_written(sim, NULL);
        struct oplog_extent *e = NULL;
        size_t got = 0;
        ck_assert_int_eq(content_write(c, page, sizeof page, false, &e, &got), -ENOSPC);
        ck_assert_uint_eq(simdisk_bytes_written(sim, NULL), written); /* before anything is written */
        for (size_t i = 0; i < n; i += 2)
                drop(&s[i], 0);
        struct stored big = put(100 * 4096, 5, false);
        ck_assert_uint_eq(big.n, 100);
        ck_assert_int_eq(get(c, &big), 0);
        drop(&big, 0);
        free(e);
        for (size_t i = 1; i < n; i += 2)
                free(s[i].e);
}
END_TEST

START_TEST(reserving_guarantees_space) {
        content_close(c);
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.capacity = 3 * MIB});
        c = open_content(true, false);
        size_t n = 0;
        while (content_reserve(c, 256 * KIB) == 0)
                n++;
        ck_assert_uint_eq(n, 11);     /* and what the header left */
        simdisk_set_capacity(sim, 1); /* others have taken the rest */
        struct stored s[11];
        for (size_t i = 0; i < n; i++) {
                s[i] = put(256 * KIB, i, false);
                content_release(c, 256 * KIB);
        }
        ck_assert_int_eq(content_reserve(c, 256 * KIB), -ENOSPC);
        for (size_t i = 0; i < n; i++)
                drop(&s[i], 0);
        ck_assert_int_eq(content_reserve(c, 256 * KIB), 0);
        content_release(c, 256 * KIB);
        ck_assert_int_eq(content_reserve(c, 0), 0);
}
END_TEST

START_TEST(a_full_disk_is_not_filled_ahead_of_need) {
        content_close(c);
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.capacity = 16 * MIB});
        c = open_content(true, false);
        struct stored s = put(100, 1, false);
        ck_assert_uint_le(content_file_size(c), 2 * MIB + 4096);
        ck_assert_uint_gt(content_file_size(c), 1 * MIB);
        free(s.e);
}
END_TEST

START_TEST(a_long_free_tail_goes_back) {
        struct stored s[8], first = put(100, 99, false);
        for (size_t i = 0; i < ARRAY_LEN(s); i++)
                s[i] = put(32 * MIB, i, false);
        uint64_t size = content_file_size(c), now;
        ck_assert_uint_ge(size, 256 * MIB);
        for (size_t i = 0; i < ARRAY_LEN(s); i++)
                drop(&s[i], 10);
        content_home_durable(c, 9);
        ck_assert_uint_eq(content_file_size(c), size);
        content_home_durable(c, 10);
        ck_assert_uint_lt(content_file_size(c), 100 * MIB);
        ck_assert_int_eq(simdisk_file_size(sim, PATH, &now), 0);
        ck_assert_uint_eq(now, content_file_size(c));
        ck_assert_int_eq(get(c, &first), 0);
        free(first.e);
}
END_TEST

/* --- failures
 * --------------------------------------------------------------------------------------------------------------------------------- */
START_TEST(a_failed_write_allocates_nothing) {
        struct stored a = put(5000, 1, false);
        uint64_t live = content_live_bytes(c);
        uint8_t p[5000] = {0};
        struct oplog_extent *e = NULL;
        size_t n;
        ck_assert_int_eq(failpoint_set("store.content.write=EIO@1"), 0);
        ck_assert_int_eq(content_write(c, p, sizeof p, false, &e, &n), -EIO);
        simdisk_fail(sim, &(struct simdisk_fault){.kinds = SIMDISK_WRITE, .nth = 1, .error = -EIO});
        ck_assert_int_eq(content_write(c, p, sizeof p, false, &e, &n), -EIO);
        ck_assert_uint_eq(content_live_bytes(c), live);
        ck_assert_uint_eq(metric(METRIC_STORE_ERRORS), 2);
        ck_assert_ptr_null(e);
        free(a.e);
}
END_TEST

START_TEST(a_failed_flush_leaves_it_dirty) {
        struct stored a = put(5000, 1, false);
        ck_assert_int_eq(failpoint_set("store.content.flush=EIO@1"), 0);
        ck_assert_int_eq(content_flush(c), -EIO);
        ck_assert_int_eq(content_flush(c), 0);
        free(a.e);
}
END_TEST

/* What was flushed is there after any power cut; what a killed process wrote is there once the file is open again. */
START_TEST(flushed_contents_survive) {
        struct stored a = put(50000, 1, _i), b;
        ck_assert_int_eq(content_flush(c), 0);
        b = put(70000, 2, _i);
        for (unsigned seed = 0; seed < 30; seed++) {
                CLEANUP(simdisk_freep)
                struct simdisk *cut = simdisk_crashed(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = seed});
                struct content *x = NULL;
                ck_assert_int_eq(content_open(simdisk_disk(cut), PATH, id, false, false, NULL, &x), 0);
                ck_assert_int_eq(content_mark_used(x, a.e, a.n), 0);
                ck_assert_int_eq(get(x, &a), 0);
                (void)get(x, &b); /* may be there or not, but never wrong */
                content_close(x);
        }
        content_close(c);
        simdisk_kill(sim);
        c = open_content(false, false);
        simdisk_crash(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
        content_close(c);
        c = open_content(false, false);
        ck_assert_int_eq(get(c, &b), 0);
        free(a.e);
        free(b.e);
}
END_TEST

static Suite *content_suite(void) {
        Suite *s = suite_create("content");
        TCase *t = tcase_create("content");
        tcase_add_checked_fixture(t, setup, teardown);
        tcase_set_timeout(t, 120);
        tcase_add_test(t, the_map_agrees_with_a_simple_one);
        tcase_add_test(t, foreign_and_other_files_are_told_apart);
        tcase_add_test(t, creation_is_durable_or_begins_again);
        tcase_add_test(t, read_only_writes_nothing);
        tcase_add_loop_test(t, contents_come_back_and_cost_what_they_should, 0, 2);
        tcase_add_test(t, direct_falls_back_where_refused);
        tcase_add_test(t, bad_extents_are_refused);
        tcase_add_test(t, no_flip_is_served);
        tcase_add_test(t, units_return_only_when_the_home_is_durable);
        tcase_add_test(t, marking_finds_overlaps);
        tcase_add_test(t, a_steady_load_does_not_grow_the_file);
        tcase_add_test(t, pieces_are_used_before_the_disk_is_full);
        tcase_add_test(t, reserving_guarantees_space);
        tcase_add_test(t, a_full_disk_is_not_filled_ahead_of_need);
        tcase_add_test(t, a_long_free_tail_goes_back);
        tcase_add_test(t, a_failed_write_allocates_nothing);
        tcase_add_test(t, a_failed_flush_leaves_it_dirty);
        tcase_add_loop_test(t, flushed_contents_survive, 0, 2);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(content_suite)
