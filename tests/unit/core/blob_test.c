/* Contents: canonical form, edits against a flat buffer, holes, digests, sharing. */
#include "helper.h"

#include <pthread.h>

#define MAX (10 * BLOB_CHUNK)

static void assert_is(const struct blob *b, const uint8_t *p, size_t n) {
        static uint8_t got[MAX + 1];
        ck_assert_uint_eq(blob_size(b), n);
        ck_assert_uint_eq(blob_read(b, 0, got, sizeof(got)), n);
        if (n > 0)
                ck_assert_mem_eq(got, p, n);
        CLEANUP(blob_unrefp) struct blob *same = NULL;
        ck_assert_int_eq(blob_from_bytes(p, n, &same), 0);
        ck_assert(blob_equal(b, same));
        ck_assert(hash128_equal(blob_digest(b), blob_digest(same)));
        ck_assert_uint_eq(blob_allocated(b), blob_allocated(same));
}

START_TEST(empty) {
        struct blob *b = (struct blob *)1;
        ck_assert_int_eq(blob_from_bytes("", 0, &b), 0);
        ck_assert_ptr_null(b);
        ck_assert_int_eq(blob_from_bytes(NULL, 0, &b), 0);
        ck_assert_ptr_null(b);
        ck_assert_uint_eq(blob_size(NULL), 0);
        ck_assert_uint_eq(blob_allocated(NULL), 0);
        ck_assert_ptr_null(blob_ref(NULL));
        blob_unref(NULL);
        ck_assert_int_eq(blob_next(NULL, 0, true), -ENXIO);
        ck_assert_int_eq(blob_next(NULL, 0, false), -ENXIO);
        ck_assert(blob_equal(NULL, NULL));
        ck_assert_uint_eq(blob_read(NULL, 0, &b, 1), 0);
}
END_TEST

START_TEST(holes) {
        CLEANUP(blob_unrefp) struct blob *b = NULL, *c = NULL, *d = NULL;
        ck_assert_int_eq(blob_from_bytes(NULL, 4 * BLOB_CHUNK + 5, &b), 0);
        ck_assert_uint_eq(blob_size(b), 4 * BLOB_CHUNK + 5);
        ck_assert_uint_eq(blob_allocated(b), 0);
        ck_assert_int_eq(blob_next(b, 0, true), -ENXIO);
        ck_assert_int_eq(blob_next(b, 7, false), 7);
        struct extent x = {2 * BLOB_CHUNK + 100, 1, EXTENT_DATA};
        ck_assert_int_eq(blob_edit(b, BLOB_KEEP_ALL, &x, 1, "x", 1, BLOB_KEEP_ALL, &c), 0);
        ck_assert_uint_eq(blob_size(c), 4 * BLOB_CHUNK + 5);
        ck_assert_uint_eq(blob_allocated(c), BLOB_CHUNK);
        ck_assert_int_eq(blob_next(c, 0, true), 2 * BLOB_CHUNK);
        ck_assert_int_eq(blob_next(c, 0, false), 0);
        ck_assert_int_eq(blob_next(c, 2 * BLOB_CHUNK + 7, true), 2 * BLOB_CHUNK + 7);
        ck_assert_int_eq(blob_next(c, 2 * BLOB_CHUNK + 7, false), 3 * BLOB_CHUNK);
        ck_assert_int_eq(blob_next(c, 3 * BLOB_CHUNK, true), -ENXIO);
        ck_assert_int_eq(blob_next(c, 4 * BLOB_CHUNK + 5, false), -ENXIO);
        ck_assert(!blob_equal(b, c));
        x.kind = EXTENT_ZERO;
        ck_assert_int_eq(blob_edit(c, BLOB_KEEP_ALL, &x, 1, NULL, 0, BLOB_KEEP_ALL, &d), 0);
        ck_assert(blob_equal(b, d));
        ck_assert(hash128_equal(blob_digest(b), blob_digest(d)));
}
END_TEST

START_TEST(hole_at_the_end_of_a_full_file) {
        static uint8_t p[2 * BLOB_CHUNK];
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        memset(p, 1, sizeof(p));
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p), &b), 0);
        ck_assert_int_eq(blob_next(b, 5, false), 2 * BLOB_CHUNK);
        ck_assert_int_eq(blob_next(b, 5, true), 5);
        ck_assert_uint_eq(blob_allocated(b), 2 * BLOB_CHUNK);
}
END_TEST

START_TEST(spans) {
        static uint8_t p[BLOB_CHUNK + 100];
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        const uint8_t *at = NULL;
        memset(p, 7, 50);
        p[BLOB_CHUNK + 99] = 1;
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p), &b), 0);
        ck_assert_uint_eq(blob_span(b, 0, &at), 50);
        ck_assert_uint_eq(at[49], 7);
        ck_assert_uint_eq(blob_span(b, 50, &at), BLOB_CHUNK - 50);
        ck_assert_uint_eq(at[BLOB_CHUNK - 51], 0);
        ck_assert_uint_eq(blob_span(b, BLOB_CHUNK + 98, &at), 2);
        ck_assert_uint_eq(at[1], 1);
        ck_assert_uint_eq(blob_span(b, BLOB_CHUNK + 100, &at), 0);
        ck_assert_uint_eq(blob_span(b, UINT64_MAX, &at), 0);
        ck_assert_uint_eq(blob_read(b, BLOB_CHUNK + 90, p, 100), 10);
}
END_TEST

START_TEST(bad_edits) {
        struct blob *b = NULL;
        struct extent overlap[] = {{0, 10, EXTENT_DATA}, {9, 1, EXTENT_ZERO}}, wraps = {UINT64_MAX, 2, EXTENT_ZERO},
                      far = {UINT64_C(1) << 40, 1, EXTENT_ZERO};
        struct extent kind = {0, 1, (enum extent_kind)7}, more = {0, 5, EXTENT_DATA};
        ck_assert_int_eq(blob_edit(NULL, 0, overlap, 2, "0123456789", 10, BLOB_KEEP_ALL, &b), -EINVAL);
        ck_assert_int_eq(blob_edit(NULL, 0, &wraps, 1, NULL, 0, BLOB_KEEP_ALL, &b), -EINVAL);
        ck_assert_int_eq(blob_edit(NULL, 0, &kind, 1, "x", 1, BLOB_KEEP_ALL, &b), -EINVAL);
        ck_assert_int_eq(blob_edit(NULL, 0, &more, 1, "four", 4, BLOB_KEEP_ALL, &b), -EINVAL);
        ck_assert_int_eq(blob_edit(NULL, 0, &more, 1, "sixsix", 6, BLOB_KEEP_ALL, &b), -EINVAL);
        ck_assert_int_eq(blob_edit(NULL, 0, &far, 1, NULL, 0, BLOB_KEEP_ALL, &b), -EFBIG);
        ck_assert_int_eq(blob_edit(NULL, 0, NULL, 0, NULL, 0, UINT64_C(1) << 40, &b), -EFBIG);
        ck_assert_int_eq(blob_edit_from(NULL, 0, &more, 1, NULL, BLOB_KEEP_ALL, &b), -EINVAL); /* it does not reach that far */
        ck_assert_ptr_null(b);
}
END_TEST

/* One random edit, made on a flat buffer as well. */
static size_t edit_both(struct blob **b, uint8_t *flat, size_t size, uint64_t *state) {
        static uint8_t data[MAX], next[MAX];
        struct extent extents[4];
        size_t n = next_random(state) % 5, bytes = 0;
        uint64_t keep = next_random(state) % 3 ? BLOB_KEEP_ALL : next_random(state) % (size + 10), end = 0;
        for (size_t i = 0; i < n; i++) {
                uint64_t at = end + (next_random(state) % 2 ? 0 : next_random(state) % BLOB_CHUNK),
                         len = next_random(state) % (next_random(state) % 2 ? 20 : 30000);
                if (next_random(state) % 3 == 0)
                        at = (at + BLOB_CHUNK - 1) / BLOB_CHUNK * BLOB_CHUNK;
                if (at + len > MAX)
                        len = at < MAX ? MAX - at : 0;
                extents[i] = (struct extent){at, len, next_random(state) % 3 ? EXTENT_DATA : EXTENT_ZERO};
                end = at + len;
                if (extents[i].kind == EXTENT_DATA) {
                        for (uint64_t j = 0; j < len; j++)
                                data[bytes++] = next_random(state) % 8 ? (uint8_t)(at % 3) : 0;
                }
        }
        uint64_t cut = next_random(state) % 3 ? BLOB_KEEP_ALL : next_random(state) % MAX;
        size_t kept = MIN_OF(keep, size), now = cut == BLOB_KEEP_ALL ? MAX_OF(kept, n > 0 ? end : 0) : cut, pos = 0;
        memset(next, 0, sizeof(next));
        if (kept > 0)
                memcpy(next, flat, kept);
        for (size_t i = 0; i < n; i++) {
                for (uint64_t j = 0; j < extents[i].length; j++)
                        next[extents[i].offset + j] = extents[i].kind == EXTENT_DATA ? data[pos++] : 0;
        }
        CLEANUP(blob_unrefp) struct blob *source = NULL, *from = NULL;
        ck_assert_int_eq(blob_from_bytes(next, next_random(state) % 2 ? MAX : end, &source), 0);
        memset(next + now, 0, MAX - now);
        memcpy(flat, next, MAX);
        struct blob *edited = NULL;
        ck_assert_int_eq(blob_edit(*b, keep, extents, n, data, bytes, cut, &edited), 0);
        ck_assert_int_eq(blob_edit_from(*b, keep, extents, n, source, cut, &from), 0);
        assert_is(from, flat, now);
        ck_assert(hash128_equal(blob_digest(from), blob_digest(edited)));
        blob_unref(*b);
        *b = edited;
        return now;
}

START_TEST(random_edits) {
        static uint8_t flat[MAX];
        uint64_t state = (uint64_t)_i;
        size_t size = 0;
        struct blob *b = NULL;
        memset(flat, 0, sizeof(flat));
        for (int i = 0; i < 400; i++) {
                size = edit_both(&b, flat, size, &state);
                assert_is(b, flat, size);
        }
        blob_unref(b);
}
END_TEST

START_TEST(versions_share_chunks) {
        static uint8_t p[16 * BLOB_CHUNK];
        CLEANUP(blob_unrefp) struct blob *b = NULL, *c = NULL;
        const uint8_t *x = NULL, *y = NULL;
        memset(p, 3, sizeof(p));
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p), &b), 0);
        struct extent e = {5 * BLOB_CHUNK + 1, 1, EXTENT_DATA};
        ck_assert_int_eq(blob_edit(b, BLOB_KEEP_ALL, &e, 1, "!", 1, BLOB_KEEP_ALL, &c), 0);
        for (uint64_t i = 0; i < 16; i++) {
                (void)blob_span(b, i * BLOB_CHUNK, &x);
                (void)blob_span(c, i * BLOB_CHUNK, &y);
                ck_assert((x == y) == (i != 5));
        }
        /* The same bytes again keep the old chunk, too. */
        blob_unref(steal_pointer(&c));
        ck_assert_int_eq(blob_edit(b, BLOB_KEEP_ALL, &e, 1, "\3", 1, BLOB_KEEP_ALL, &c), 0);
        (void)blob_span(b, 5 * BLOB_CHUNK, &x);
        (void)blob_span(c, 5 * BLOB_CHUNK, &y);
        ck_assert_ptr_eq(x, y);
        blob_unref(steal_pointer(&c));
        ck_assert_int_eq(blob_edit(b, BLOB_KEEP_ALL, &e, 1, "!", 1, BLOB_KEEP_ALL, &c), 0);
        blob_unref(steal_pointer(&b)); /* the younger version does not need the older one */
        ck_assert_uint_eq(blob_read(c, 0, p, sizeof(p)), sizeof(p));
        ck_assert_uint_eq(p[5 * BLOB_CHUNK + 1], '!');
}
END_TEST

START_TEST(sources_are_shared) {
        static uint8_t bytes[3 * BLOB_CHUNK];
        memset(bytes, 'x', sizeof(bytes));
        CLEANUP(blob_unrefp) struct blob *source = NULL, *whole = NULL, *part = NULL;
        ck_assert_int_eq(blob_from_bytes(bytes, sizeof(bytes), &source), 0);
        struct extent all = {0, sizeof(bytes), EXTENT_DATA}, middle = {BLOB_CHUNK, BLOB_CHUNK, EXTENT_DATA};
        ck_assert_int_eq(blob_edit_from(NULL, 0, &all, 1, source, BLOB_KEEP_ALL, &whole), 0);
        ck_assert_ptr_eq(whole, source);
        ck_assert_int_eq(blob_edit_from(NULL, 0, &middle, 1, source, BLOB_KEEP_ALL, &part), 0);
        const uint8_t *p = NULL, *q = NULL;
        ck_assert_uint_eq(blob_span(part, BLOB_CHUNK, &p), BLOB_CHUNK);
        ck_assert_uint_eq(blob_span(source, BLOB_CHUNK, &q), BLOB_CHUNK);
        ck_assert_ptr_eq(p, q);
}
END_TEST

START_TEST(digests_differ) {
        static uint8_t p[3 * BLOB_CHUNK];
        CLEANUP(blob_unrefp) struct blob *a = NULL, *b = NULL, *c = NULL, *d = NULL;
        p[0] = 1;
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p), &a), 0);
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p) - 1, &b), 0);
        p[0] = 0;
        p[BLOB_CHUNK] = 1; /* the same chunk elsewhere */
        ck_assert_int_eq(blob_from_bytes(p, sizeof(p), &c), 0);
        ck_assert_int_eq(blob_from_bytes(NULL, sizeof(p), &d), 0);
        ck_assert(!hash128_equal(blob_digest(a), blob_digest(b)));
        ck_assert(!hash128_equal(blob_digest(a), blob_digest(c)));
        ck_assert(!hash128_equal(blob_digest(a), blob_digest(d)));
        ck_assert(!hash128_equal(blob_digest(d), blob_digest(NULL)));
}
END_TEST

/* Every length near the end of the data, in the first chunk (which is inside) and in a later one (which is shared). */
START_TEST(every_cut) {
        static uint8_t p[3 * BLOB_CHUNK];
        for (size_t base = 0; base <= 2 * BLOB_CHUNK; base += 2 * BLOB_CHUNK) {
                CLEANUP(blob_unrefp) struct blob *b = NULL;
                memset(p, 9, sizeof(p));
                memset(p + base + 100, 0, sizeof(p) - base - 100);
                ck_assert_int_eq(blob_from_bytes(p, base + 120, &b), 0);
                (void)blob_digest(b);
                for (size_t n = base; n < base + 130; n++) {
                        CLEANUP(blob_unrefp) struct blob *c = NULL;
                        ck_assert_int_eq(blob_edit(b, BLOB_KEEP_ALL, NULL, 0, NULL, 0, n, &c), 0);
                        assert_is(c, p, n);
                }
        }
}
END_TEST

/* The sum over the chunks is carried from version to version; it must be what counting anew gives. */
START_TEST(sums_roll) {
        static uint8_t flat[MAX];
        uint64_t state = 1000 + (uint64_t)_i;
        size_t size = 0;
        struct blob *b = NULL;
        memset(flat, 0, sizeof(flat));
        for (int i = 0; i < 400; i++) {
                (void)blob_digest(b); /* from here on the next version rolls it */
                size = edit_both(&b, flat, size, &state);
                assert_is(b, flat, size);
        }
        blob_unref(b);
}
END_TEST

/* Threads that read, count, edit and drop one content at once; what a thread sanitizer has to say about it is the test. */
static void *share(void *arg) {
        struct blob *b = arg;
        uint8_t buf[100];
        struct hash128 h = blob_digest(b);
        for (uint64_t i = 0; i < 300; i++) {
                struct blob *mine = blob_ref(b), *edited = NULL;
                struct extent x = {i * 997 % (4 * BLOB_CHUNK), 3, EXTENT_DATA};
                must(blob_edit(mine, BLOB_KEEP_ALL, &x, 1, "new", 3, BLOB_KEEP_ALL, &edited) == 0);
                must(hash128_equal(blob_digest(mine), h));
                blob_unref(mine);
                must(!hash128_equal(blob_digest(edited), h));
                must(blob_read(edited, x.offset, buf, 3) == 3 && memcmp(buf, "new", 3) == 0);
                blob_unref(edited);
        }
        blob_unref(b);
        return NULL;
}
START_TEST(threads) {
        static uint8_t p[4 * BLOB_CHUNK + 10];
        struct blob *b = NULL;
        pthread_t t[4];
        memset(p, 5, sizeof(p));
        ck_assert_int_eq(blob_from_bytes(p, _i == 0 ? sizeof(p) : 1000, &b), 0);
        for (size_t i = 0; i < ARRAY_LEN(t); i++)
                ck_assert_int_eq(pthread_create(&t[i], NULL, share, blob_ref(b)), 0);
        blob_unref(b);
        for (size_t i = 0; i < ARRAY_LEN(t); i++)
                ck_assert_int_eq(pthread_join(t[i], NULL), 0);
}
END_TEST

static Suite *suite_blob(void) {
        Suite *s = suite_create("blob");
        TCase *c = tcase_create("blob");
        tcase_set_timeout(c, 60);
        tcase_add_test(c, empty);
        tcase_add_test(c, holes);
        tcase_add_test(c, hole_at_the_end_of_a_full_file);
        tcase_add_test(c, spans);
        tcase_add_test(c, bad_edits);
        tcase_add_loop_test(c, random_edits, 0, 10);
        tcase_add_loop_test(c, sums_roll, 0, 5);
        tcase_add_test(c, every_cut);
        tcase_add_loop_test(c, threads, 0, 2);
        tcase_add_test(c, versions_share_chunks);
        tcase_add_test(c, sources_are_shared);
        tcase_add_test(c, digests_differ);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_blob)
