#include "base/compress.h"
#include "base/failpoint.h"
#include "unit.h"
#include <pthread.h>
#include <string.h>

/* Text that shrinks, different for each seed. */
static uint8_t *text_of(size_t n, uint64_t seed) {
        uint8_t *p = xmalloc(n);
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)("key = value;\n"[i % 13] + (next_random(&seed) % 50 == 0));
        return p;
}

START_TEST(round_trip) {
        const size_t sizes[] = {64, 1000, 4096, 65536, 1000001};
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                size_t n = sizes[i], len = 0;
                cleanup_free uint8_t *raw = text_of(n, i), *back = xmalloc(n), *packed = NULL;
                ck_assert_int_eq(compress_zstd(raw, n, &packed, &len), 0);
                ck_assert_uint_le(len, n - n / 16);
                ck_assert_int_eq(decompress_zstd(packed, len, back, n), 0);
                ck_assert_mem_eq(raw, back, n);
        }
}
END_TEST

START_TEST(what_does_not_shrink_stays_raw) {
        uint8_t noise[5000], *packed = (uint8_t *)noise;
        size_t len = 77;
        uint64_t seed = 3;
        for (size_t i = 0; i < sizeof(noise); i++)
                noise[i] = (uint8_t)next_random(&seed);
        ck_assert_int_eq(compress_zstd(noise, sizeof(noise), &packed, &len), -ENODATA);
        ck_assert_int_eq(compress_zstd("", 0, &packed, &len), -ENODATA);
        ck_assert_int_eq(compress_zstd("a", 1, &packed, &len), -ENODATA);
        ck_assert_int_eq(compress_zstd("aaaaaaa", 7, &packed, &len), -ENODATA);
        memset(noise, 0, sizeof(noise) / 20); /* shrinks, yet by less than a sixteenth */
        ck_assert_int_eq(compress_zstd(noise, sizeof(noise), &packed, &len), -ENODATA);
        ck_assert_ptr_eq(packed, noise); /* outputs untouched */
        ck_assert_uint_eq(len, 77);
}
END_TEST

START_TEST(damage_is_refused) {
        enum { N = 3000 };
        size_t len;
        cleanup_free uint8_t *raw = text_of(N, 4), *packed = NULL, *out = xmalloc(N + 1);
        ck_assert_int_eq(compress_zstd(raw, N, &packed, &len), 0);
        ck_assert_int_eq(decompress_zstd(packed, len, out, N - 1), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(packed, len, out, N + 1), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(packed, len, out, 0), -EBADMSG);
        ck_assert_int_eq(decompress_zstd("not a frame at all", 18, out, N), -EBADMSG);
        for (size_t n = 0; n < len; n++) {
                cleanup_free uint8_t *cut = xmalloc(n);
                memcpy(cut, packed, n);
                ck_assert_int_eq(decompress_zstd(cut, n, out, N), -EBADMSG);
        }
        cleanup_free uint8_t *longer = xcalloc(1, 2 * len);
        memcpy(longer, packed, len);
        ck_assert_int_eq(decompress_zstd(longer, len + 1, out, N), -EBADMSG); /* a byte behind the frame */
        memcpy(longer + len, packed, len);
        ck_assert_int_eq(decompress_zstd(longer, 2 * len, out, N), -EBADMSG); /* two frames */
        /* A flipped bit may still be a frame of that length; it must never do worse than give other bytes. */
        for (size_t bit = 0; bit < len * 8; bit++) {
                memcpy(longer, packed, len);
                longer[bit / 8] ^= (uint8_t)(1u << bit % 8);
                errint_t r = decompress_zstd(longer, len, out, N);
                ck_assert(r == 0 || r == -EBADMSG);
        }
        ck_assert_int_eq(decompress_zstd(packed, len, out, N), 0); /* the context survived all this */
        ck_assert_mem_eq(raw, out, N);
}
END_TEST

START_TEST(other_kinds_of_frames_are_refused) {
        const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
        const uint8_t empty[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00};
        const uint8_t silent[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x19, 0x00, 0x00, 'a', 'b', 'c'};  /* states no length */
        const uint8_t followed[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x03, 0x19, 0x00, 0x00, 'a', 'b', 'c', /* as it should be */
                                    0x50, 0x2a, 0x4d, 0x18, 0,    0,    0,    0};                        /* and a skippable one */
        uint8_t out[16];
        ck_assert_int_eq(decompress_zstd(followed, 12, out, 3), 0);
        ck_assert_mem_eq(out, "abc", 3);
        ck_assert_int_eq(decompress_zstd(followed, sizeof(followed), out, 3), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(silent, sizeof(silent), out, 3), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(skippable, sizeof(skippable), out, 0), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(skippable, sizeof(skippable), out, 16), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(empty, sizeof(empty), out, 0), -EBADMSG);
        ck_assert_int_eq(decompress_zstd(NULL, 0, out, 16), -EBADMSG);
}
END_TEST

START_TEST(no_memory_is_an_error) {
        size_t len;
        cleanup_free uint8_t *raw = text_of(3000, 5), *packed = NULL;
        ck_assert_int_eq(failpoint_set("alloc=ENOMEM@1"), 0);
        ck_assert_int_eq(compress_zstd(raw, 3000, &packed, &len), -ENOMEM);
        ck_assert_int_eq(failpoint_set(NULL), 0);
        ck_assert_ptr_null(packed);
}
END_TEST

static void *compress_some(void *arg) {
        uint64_t seed = (uint64_t)(uintptr_t)arg;
        for (unsigned i = 0; i < 20; i++) {
                size_t n = 2000 + 100 * i, len;
                cleanup_free uint8_t *raw = text_of(n, seed + i), *back = xmalloc(n), *packed = NULL;
                if (compress_zstd(raw, n, &packed, &len) < 0 || decompress_zstd(packed, len, back, n) < 0 || memcmp(raw, back, n) != 0)
                        return (void *)1;
        }
        return NULL;
}

/* The leak checker sees contexts that outlive their threads; the thread checker sees shared ones. */
START_TEST(each_thread_has_its_own_context) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, compress_some, (void *)(i * 1000)), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
                void *failed;
                ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
                ck_assert_ptr_null(failed);
        }
}
END_TEST

static Suite *suite_compress(void) {
        const TTest *const tests[] = {
                round_trip,
                what_does_not_shrink_stays_raw,
                damage_is_refused,
                other_kinds_of_frames_are_refused,
                no_memory_is_an_error,
                each_thread_has_its_own_context,
        };
        return suite_of("compress", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_compress)
