/* sessions_test.c: request numbers and recorded results. */
#include "core/sessions.h"
#include "unit.h"

#include <string.h>

static void record(struct sessions *s, uint32_t node, uint64_t incarnation, uint64_t number, uint64_t lowest, int32_t error) {
        struct op_origin o = {.node = node, .incarnation = incarnation, .number = number, .lowest_waiting = lowest};
        struct op_result r = {.error = error, .ino = 10 * number, .offset = number + 1};
        sessions_record(s, &o, &r);
}

static struct sessions *copy(const struct sessions *s) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, SESSIONS_ENCODED_MAX);
        ck_assert_int_eq(sessions_encode(s, &e), 0);
        struct sessions *back = NULL;
        ck_assert_int_eq(sessions_decode(e.data, e.len, &back), 0);
        CLEANUP(enc_done) struct enc again;
        enc_init(&again, SESSIONS_ENCODED_MAX);
        ck_assert_int_eq(sessions_encode(back, &again), 0);
        ck_assert_uint_eq(e.len, again.len);
        ck_assert_int_eq(memcmp(e.data, again.data, e.len), 0);
        ck_assert(hash128_equal(sessions_digest(s), sessions_digest(back)));
        return back;
}

START_TEST(known_and_new) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        struct op_result r = {.ino = 77};
        ck_assert_int_eq(sessions_find(s, 1, 5, 1, &r), SESSION_NEW);
        record(s, 1, 5, 1, 1, 0);
        record(s, 1, 5, 2, 1, -ENOENT);
        ck_assert_int_eq(sessions_find(s, 1, 5, 2, &r), SESSION_KNOWN);
        ck_assert_int_eq(r.error, -ENOENT);
        ck_assert_uint_eq(r.ino, 20);
        ck_assert_uint_eq(r.offset, 3);
        ck_assert_int_eq(sessions_find(s, 1, 5, 3, NULL), SESSION_NEW);
        ck_assert_int_eq(sessions_find(s, 1, 6, 1, NULL), SESSION_NEW);
        ck_assert_int_eq(sessions_find(s, 2, 5, 1, NULL), SESSION_NEW);
        ck_assert_int_eq(sessions_find(s, 1, 5, 0, NULL), SESSION_FORGOTTEN);
}
END_TEST

START_TEST(answered_ones_are_forgotten) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        for (uint64_t i = 1; i <= 5; i++)
                record(s, 1, 5, i, 1, 0);
        record(s, 1, 5, 6, 4, 0);
        ck_assert_int_eq(sessions_find(s, 1, 5, 3, NULL), SESSION_FORGOTTEN);
        ck_assert_int_eq(sessions_find(s, 1, 5, 4, NULL), SESSION_KNOWN);
        record(s, 1, 5, 9, 9, 0); /* 7 and 8 were given up by their origin */
        ck_assert_int_eq(sessions_find(s, 1, 5, 8, NULL), SESSION_FORGOTTEN);
        ck_assert_int_eq(sessions_find(s, 1, 5, 6, NULL), SESSION_FORGOTTEN);
        ck_assert_int_eq(sessions_find(s, 1, 5, 9, NULL), SESSION_KNOWN);
}
END_TEST

START_TEST(results_are_bounded) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        for (uint64_t i = 1; i <= SESSION_RESULTS + 10; i++)
                record(s, 1, 5, i, 1, 0);
        ck_assert_int_eq(sessions_find(s, 1, 5, 10, NULL), SESSION_FORGOTTEN);
        struct op_result r;
        for (uint64_t i = 11; i <= SESSION_RESULTS + 10; i++) {
                ck_assert_int_eq(sessions_find(s, 1, 5, i, &r), SESSION_KNOWN);
                ck_assert_uint_eq(r.ino, 10 * i);
        }
        CLEANUP(sessions_freep) struct sessions *back = copy(s);
        ck_assert_int_eq(sessions_find(back, 1, 5, 11, &r), SESSION_KNOWN);
        ck_assert_int_eq(sessions_find(back, 1, 5, 10, &r), SESSION_FORGOTTEN);
}
END_TEST

START_TEST(new_incarnation_drops_the_old) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        CLEANUP(sessions_freep) struct sessions *other = sessions_new();
        record(s, 2, 8, 1, 1, 0);
        record(s, 1, 5, 1, 1, 0);
        record(s, 1, 6, 1, 1, 0);
        ck_assert_int_eq(sessions_find(s, 1, 5, 1, NULL), SESSION_NEW);
        ck_assert_int_eq(sessions_find(s, 1, 6, 1, NULL), SESSION_KNOWN);
        ck_assert_int_eq(sessions_find(s, 2, 8, 1, NULL), SESSION_KNOWN);
        record(other, 2, 8, 1, 1, 0);
        ck_assert(!hash128_equal(sessions_digest(s), sessions_digest(other)));
}
END_TEST

START_TEST(incarnation_zero_is_not_kept) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        struct hash128 before = sessions_digest(s);
        record(s, 1, 0, 1, 1, 0);
        ck_assert(hash128_equal(before, sessions_digest(s)));
}
END_TEST

START_TEST(nodes_are_bounded_and_sorted) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        for (uint32_t node = 300; node > 0; node--)
                record(s, node, 5, 1, 1, 0);
        ck_assert_int_eq(sessions_find(s, 300, 5, 1, NULL), SESSION_NEW);
        for (uint32_t node = 1; node <= 128; node++)
                ck_assert_int_eq(sessions_find(s, node, 5, 1, NULL), SESSION_KNOWN);
        ck_assert_int_eq(sessions_find(s, 129, 5, 1, NULL), SESSION_NEW);
        CLEANUP(sessions_freep) struct sessions *back = copy(s);
        record(back, 1, 5, 2, 1, 0);
        record(s, 1, 5, 2, 1, 0);
        ck_assert(hash128_equal(sessions_digest(s), sessions_digest(back)));
}
END_TEST

START_TEST(hostile_bytes_are_refused) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        record(s, 1, 5, 1, 1, 0);
        record(s, 1, 5, 2, 1, -ENOSPC);
        record(s, 3, 9, 4, 4, 0);
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, SESSIONS_ENCODED_MAX);
        ck_assert_int_eq(sessions_encode(s, &e), 0);
        for (size_t n = 0; n < e.len; n++) {
                struct sessions *back = NULL;
                ck_assert_int_eq(sessions_decode(e.data, n, &back), -EBADMSG);
                ck_assert_ptr_null(back);
        }
        for (size_t at = 0; at < e.len; at++)
                for (unsigned flip = 1; flip < 256; flip++) {
                        e.data[at] ^= (uint8_t)flip;
                        struct sessions *back = NULL;
                        if (sessions_decode(e.data, e.len, &back) == 0) { /* still a table: then it is taken as it is */
                                CLEANUP(enc_done) struct enc again;
                                enc_init(&again, SESSIONS_ENCODED_MAX);
                                ck_assert_int_eq(sessions_encode(back, &again), 0);
                                ck_assert_int_eq(memcmp(e.data, again.data, e.len), 0);
                                sessions_free(back);
                        }
                        e.data[at] ^= (uint8_t)flip;
                }
}
END_TEST

static Suite *suite_sessions(void) {
        Suite *s = suite_create("sessions");
        TCase *t = tcase_create("sessions");
        tcase_add_test(t, known_and_new);
        tcase_add_test(t, answered_ones_are_forgotten);
        tcase_add_test(t, results_are_bounded);
        tcase_add_test(t, new_incarnation_drops_the_old);
        tcase_add_test(t, incarnation_zero_is_not_kept);
        tcase_add_test(t, nodes_are_bounded_and_sorted);
        tcase_add_test(t, hostile_bytes_are_refused);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite_sessions)
