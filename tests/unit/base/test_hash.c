#include "base/hash.h"
#include "unit.h"
#include <string.h>

/* The definition, one bit at a time, to compare both fast forms with. */
static uint32_t crc32c_slow(uint32_t chain, const uint8_t *p, size_t n) {
        uint32_t c = ~chain;
        for (size_t i = 0; i < n; i++) {
                c ^= p[i];
                for (int bit = 0; bit < 8; bit++)
                        c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
        }
        return ~c;
}

START_TEST(crc32c_known_values) {
        uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
        memset(ones, 0xff, sizeof(ones));
        for (unsigned i = 0; i < 32; i++) {
                up[i] = (uint8_t)i;
                down[i] = (uint8_t)(31 - i);
        }
        /* The first is the check value of the usual catalogues, the others RFC 3720 B.4. */
        ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xE3069283u);
        ck_assert_uint_eq(crc32c(0, zeros, 32), 0x8A9136AAu);
        ck_assert_uint_eq(crc32c(0, ones, 32), 0x62A8AB43u);
        ck_assert_uint_eq(crc32c(0, up, 32), 0x46DD794Eu);
        ck_assert_uint_eq(crc32c(0, down, 32), 0x113FDB5Cu);
        ck_assert_uint_eq(crc32c_table_(0, "123456789", 9), 0xE3069283u);
        ck_assert_uint_eq(crc32c(0, NULL, 0), 0);
        ck_assert_uint_eq(crc32c(0x12345678, NULL, 0), 0x12345678u);
}
END_TEST

START_TEST(crc32c_forms_agree_at_every_length_and_alignment) {
        uint8_t bytes[128];
        uint64_t seed = 1;
        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)next_random(&seed);
        for (size_t from = 0; from < 9; from++)
                for (size_t n = 0; n <= 100; n++) {
                        uint32_t chain = (uint32_t)next_random(&seed);
                        uint32_t want = crc32c_slow(chain, bytes + from, n);
                        ck_assert_uint_eq(crc32c(chain, bytes + from, n), want);
                        ck_assert_uint_eq(crc32c_table_(chain, bytes + from, n), want);
                        size_t cut = n / 3;
                        ck_assert_uint_eq(crc32c(crc32c(chain, bytes + from, cut), bytes + from + cut, n - cut), want);
                }
}
END_TEST

START_TEST(crc32c_of_long_input_in_lanes) {
        static uint8_t bytes[3 * 6144 + 64];
        uint64_t seed = 2;
        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)next_random(&seed);
        for (size_t from = 0; from < 3; from++)
                for (size_t n = 6000; n + from <= sizeof(bytes); n += 71) {
                        uint32_t chain = (uint32_t)next_random(&seed);
                        ck_assert_uint_eq(crc32c(chain, bytes + from, n), crc32c_slow(chain, bytes + from, n));
                }
}
END_TEST

START_TEST(hash128_known_values) {
        char text[HASH128_TEXT];
        /* XXH3-128 of nothing, seed 0, as the reference xxhsum prints it. */
        hash128_text(hash128_of(NULL, 0), text);
        ck_assert_str_eq(text, "99aa06d3014798d86001c324468d497f");
        hash128_text((struct hash128){.lo = 0x1, .hi = UINT64_C(0xfedcba9876543210)}, text);
        ck_assert_str_eq(text, "fedcba98765432100000000000000001");
}
END_TEST

START_TEST(hash128_chain_is_the_hash_of_both) {
        uint8_t bytes[16 + 2000];
        uint64_t seed = 2;
        struct hash128 before = {.lo = UINT64_C(0x0102030405060708), .hi = UINT64_C(0x1112131415161718)};
        for (unsigned i = 0; i < 8; i++) {
                bytes[i] = (uint8_t)(8 - i);
                bytes[8 + i] = (uint8_t)(0x18 - i);
        }
        for (size_t i = 16; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)next_random(&seed);
        for (size_t n = 0; n <= 2000; n += n < 300 ? 1 : 97)
                ck_assert(hash128_equal(hash128_chain(before, bytes + 16, n), hash128_of(bytes, 16 + n)));
        struct hash128 ab = hash128_chain(hash128_chain(before, "a", 1), "b", 1);
        struct hash128 ba = hash128_chain(hash128_chain(before, "b", 1), "a", 1);
        ck_assert(!hash128_equal(ab, ba)); /* order matters */
}
END_TEST

START_TEST(hash128_sums_roll) {
        struct hash128 a = hash128_of("a", 1), b = hash128_of("b", 1), c = hash128_of("c", 1);
        struct hash128 sum = hash128_add(hash128_add(a, b), c);
        ck_assert(hash128_equal(sum, hash128_add(hash128_add(c, a), b)));
        ck_assert(hash128_equal(hash128_sub(sum, b), hash128_add(a, c)));
        ck_assert(!hash128_equal(sum, hash128_add(a, c)));
}
END_TEST

static Suite *suite_hash(void) {
        const TTest *const tests[] = {
                crc32c_known_values,  crc32c_forms_agree_at_every_length_and_alignment,
                crc32c_known_values,  crc32c_of_long_input_in_lanes,
                hash128_known_values, hash128_chain_is_the_hash_of_both,
                hash128_sums_roll,
        };
        return suite_of("hash", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_hash)
