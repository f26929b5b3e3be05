#include "base/codec.h"
#include "base/failpoint.h"
#include "unit.h"
#include <string.h>

#define cleanup_enc CLEANUP(enc_cleanup)
static void enc_cleanup(struct enc *e) {
        enc_done(e);
}

START_TEST(layout_is_little_endian) {
        cleanup_enc struct enc e;
        enc_init(&e, 64);
        enc_u8(&e, 0x01);
        enc_u16(&e, 0x0203);
        enc_u32(&e, 0x04050607);
        enc_u64(&e, UINT64_C(0x08090a0b0c0d0e0f));
        const uint8_t want[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8};
        ck_assert_int_eq(e.err, 0);
        ck_assert_mem_eq(e.data, want, sizeof(want));
        ck_assert_uint_eq(e.len, sizeof(want));
}
END_TEST

static const struct {
        uint64_t v;
        size_t n;
        uint8_t bytes[10];
} varints[] = {
        {0, 1, {0}},
        {1, 1, {1}},
        {0x7f, 1, {0x7f}},
        {0x80, 2, {0x80, 1}},
        {300, 2, {0xac, 2}},
        {0x3fff, 2, {0xff, 0x7f}},
        {0x4000, 3, {0x80, 0x80, 1}},
        {UINT64_C(1) << 63, 10, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}},
        {UINT64_MAX, 10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
};

START_TEST(varints_have_these_bytes) {
        for (size_t i = 0; i < ARRAY_LEN(varints); i++) {
                cleanup_enc struct enc e;
                struct dec d;
                enc_init(&e, 10);
                enc_varint(&e, varints[i].v);
                ck_assert_int_eq(e.err, 0);
                ck_assert_uint_eq(e.len, varints[i].n);
                ck_assert_mem_eq(e.data, varints[i].bytes, e.len);
                dec_init(&d, e.data, e.len);
                ck_assert_uint_eq(dec_varint(&d), varints[i].v);
                ck_assert_int_eq(dec_finish(&d), 0);
        }
}
END_TEST

START_TEST(every_varint_width_round_trips) {
        for (unsigned bit = 0; bit < 64; bit++)
                for (int delta = -1; delta <= 1; delta++) {
                        cleanup_enc struct enc e;
                        struct dec d;
                        uint64_t v = (UINT64_C(1) << bit) + (uint64_t)delta;
                        enc_init(&e, 64);
                        enc_varint(&e, v);
                        enc_svarint(&e, (int64_t)v);
                        enc_svarint(&e, (int64_t)(0 - v));
                        dec_init(&d, e.data, e.len);
                        ck_assert_uint_eq(dec_varint(&d), v);
                        ck_assert_int_eq(dec_svarint(&d), (int64_t)v);
                        ck_assert_int_eq(dec_svarint(&d), (int64_t)(0 - v));
                        ck_assert_int_eq(dec_finish(&d), 0);
                }
}
END_TEST

START_TEST(small_signed_numbers_are_short) {
        const struct {
                int64_t v;
                uint8_t byte;
        } cases[] = {{0, 0}, {-1, 1}, {1, 2}, {-2, 3}, {63, 126}, {-64, 127}};
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                cleanup_enc struct enc e;
                enc_init(&e, 10);
                enc_svarint(&e, cases[i].v);
                ck_assert_uint_eq(e.len, 1);
                ck_assert_uint_eq(e.data[0], cases[i].byte);
        }
}
END_TEST

START_TEST(forms_of_varints_that_are_refused) {
        const struct {
                size_t n;
                uint8_t bytes[12];
        } bad[] = {
                {0, {0}},
                {1, {0x80}},
                {2, {0x80, 0x00}}, /* 0 in two bytes */
                {2, {0xff, 0x00}}, /* 127 in two bytes */
                {3, {0x80, 0x80, 0x00}},
                {10, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}},
                {10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}}, /* bit 64 */
                {10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}},
                {11, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}}, /* eleven bytes */
                {11, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0}},
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct dec d;
                dec_init(&d, bad[i].bytes, bad[i].n);
                ck_assert_uint_eq(dec_varint(&d), 0);
                ck_assert_int_eq(d.err, -EBADMSG);
                ck_assert_uint_eq(dec_left(&d), 0);
        }
}
END_TEST

static void encode_message(struct enc *e) {
        enc_u8(e, 7);
        enc_u16(e, 65535);
        enc_u32(e, 123456789);
        enc_u64(e, UINT64_C(0xfedcba9876543210));
        enc_varint(e, 1000000);
        enc_svarint(e, INT64_MIN);
        enc_bytes(e, "a name", 6);
        enc_bytes(e, NULL, 0);
        enc_raw(e, "raw", 3);
}

static errint_t decode_message(const uint8_t *p, size_t n) {
        struct dec d;
        size_t name_len, empty_len;
        dec_init(&d, p, n);
        uint8_t a = dec_u8(&d);
        uint16_t b = dec_u16(&d);
        uint32_t c = dec_u32(&d);
        uint64_t v = dec_u64(&d), w = dec_varint(&d);
        int64_t x = dec_svarint(&d);
        const uint8_t *name = dec_bytes(&d, 255, &name_len);
        const uint8_t *empty = dec_bytes(&d, 255, &empty_len);
        const uint8_t *raw = dec_raw(&d, 3);
        if (dec_finish(&d) < 0)
                return d.err;
        ck_assert(a == 7 && b == 65535 && c == 123456789 && v == UINT64_C(0xfedcba9876543210) && w == 1000000 && x == INT64_MIN);
        ck_assert(name_len == 6 && memcmp(name, "a name", 6) == 0);
        ck_assert(empty_len == 0 && empty);
        ck_assert_mem_eq(raw, "raw", 3);
        return 0;
}

START_TEST(every_truncation_is_refused) {
        cleanup_enc struct enc e;
        enc_init(&e, 256);
        encode_message(&e);
        ck_assert_int_eq(e.err, 0);
        ck_assert_int_eq(decode_message(e.data, e.len), 0);
        for (size_t n = 0; n < e.len; n++) {
                cleanup_free uint8_t *exact = xmalloc(n); /* its own block, so that a sanitizer sees one byte too many */
                memcpy(exact, e.data, n);
                ck_assert_int_eq(decode_message(exact, n), -EBADMSG);
        }
        enc_u8(&e, 0);
        ck_assert_int_eq(decode_message(e.data, e.len), -EBADMSG); /* left over */
}
END_TEST

START_TEST(every_limit_of_the_encoder_is_kept) {
        cleanup_enc struct enc whole;
        enc_init(&whole, 256);
        encode_message(&whole);
        for (size_t max = 0; max < whole.len; max++) {
                cleanup_enc struct enc e;
                enc_init(&e, max);
                encode_message(&e);
                ck_assert_int_eq(e.err, -EMSGSIZE);
                ck_assert_uint_le(e.len, max);
                ck_assert_uint_le(e.cap, max);
                ck_assert_ptr_null(enc_space(&e, 1));
                ck_assert_ptr_null(enc_space(&e, 0));
        }
        cleanup_enc struct enc e;
        enc_init(&e, whole.len);
        encode_message(&e);
        ck_assert_int_eq(e.err, 0);
        ck_assert_mem_eq(e.data, whole.data, whole.len);
}
END_TEST

START_TEST(errors_of_the_encoder_stick) {
        cleanup_enc struct enc e;
        enc_init(&e, 4);
        enc_u16(&e, 1);
        enc_u64(&e, 2);
        ck_assert_int_eq(e.err, -EMSGSIZE);
        enc_u8(&e, 3); /* would fit */
        enc_patch_u32(&e, 0, 4);
        ck_assert_uint_eq(e.len, 2);
        enc_reset(&e);
        enc_u32(&e, 5);
        ck_assert_int_eq(e.err, 0);
        ck_assert_uint_eq(e.len, 4);
}
END_TEST

START_TEST(a_length_near_the_top_does_not_wrap) {
        cleanup_enc struct enc e;
        enc_init(&e, SIZE_MAX);
        enc_u8(&e, 1);
        ck_assert_ptr_null(enc_space(&e, SIZE_MAX));
        ck_assert_int_eq(e.err, -EMSGSIZE);

        uint8_t bytes[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x'};
        struct dec d;
        size_t n = 99;
        dec_init(&d, bytes, sizeof(bytes));
        ck_assert_ptr_null(dec_bytes(&d, SIZE_MAX, &n));
        ck_assert_uint_eq(n, 0);
        ck_assert_int_eq(d.err, -EBADMSG);
        dec_init(&d, bytes, sizeof(bytes));
        ck_assert_ptr_null(dec_raw(&d, SIZE_MAX));
        ck_assert_int_eq(d.err, -EBADMSG);
}
END_TEST

START_TEST(patch_overwrites_what_was_reserved) {
        cleanup_enc struct enc e;
        enc_init(&e, 1000);
        enc_u8(&e, 9);
        size_t at = e.len;
        enc_u32(&e, 0);
        for (int i = 0; i < 100; i++)
                enc_u8(&e, 0xee); /* the buffer moves meanwhile */
        enc_patch_u32(&e, at, 0x01020304);
        const uint8_t want[] = {9, 4, 3, 2, 1, 0xee};
        ck_assert_mem_eq(e.data, want, sizeof(want));
}
END_TEST

START_TEST(memory_that_cannot_be_had_is_an_error) {
        cleanup_enc struct enc e;
        enc_init(&e, 1000);
        ck_assert_int_eq(failpoint_set("alloc=ENOMEM@2"), 0);
        for (unsigned i = 0; i < 500; i++)
                enc_u8(&e, (uint8_t)i);
        ck_assert_int_eq(failpoint_set(""), 0);
        ck_assert_int_eq(e.err, -ENOMEM);
        ck_assert_uint_gt(e.len, 0);
        for (size_t i = 0; i < e.len; i++)
                ck_assert_uint_eq(e.data[i], (uint8_t)i);
}
END_TEST

START_TEST(bytes_beyond_the_callers_limit_are_refused) {
        const uint8_t bytes[] = {3, 'a', 'b', 'c'};
        struct dec d;
        size_t n;
        dec_init(&d, bytes, sizeof(bytes));
        ck_assert_ptr_eq(dec_bytes(&d, 3, &n), bytes + 1);
        ck_assert_uint_eq(n, 3);
        ck_assert_int_eq(dec_finish(&d), 0);
        dec_init(&d, bytes, sizeof(bytes));
        ck_assert_ptr_null(dec_bytes(&d, 2, &n));
        ck_assert_int_eq(d.err, -EBADMSG);
        ck_assert_uint_eq(dec_u8(&d), 0); /* sticky: zeros from now on */
        ck_assert_ptr_null(dec_raw(&d, 0));
        ck_assert_int_eq(dec_finish(&d), -EBADMSG);
}
END_TEST

START_TEST(empty_input_is_empty) {
        struct dec d;
        dec_init(&d, NULL, 0);
        ck_assert_uint_eq(dec_left(&d), 0);
        ck_assert_ptr_nonnull(dec_raw(&d, 0));
        ck_assert_int_eq(dec_finish(&d), 0);
        dec_init(&d, NULL, 0);
        dec_fail(&d);
        ck_assert_int_eq(dec_finish(&d), -EBADMSG);
        struct enc never = {0};
        enc_done(&never);
        enc_u8(&never, 1);
        ck_assert_int_eq(never.err, -EMSGSIZE);
}
END_TEST

static Suite *suite_codec(void) {
        const TTest *const tests[] = {
                layout_is_little_endian,
                varints_have_these_bytes,
                every_varint_width_round_trips,
                small_signed_numbers_are_short,
                forms_of_varints_that_are_refused,
                every_truncation_is_refused,
                every_limit_of_the_encoder_is_kept,
                errors_of_the_encoder_stick,
                a_length_near_the_top_does_not_wrap,
                patch_overwrites_what_was_reserved,
                memory_that_cannot_be_had_is_an_error,
                bytes_beyond_the_callers_limit_are_refused,
                empty_input_is_empty,
        };
        return suite_of("codec", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_codec)
