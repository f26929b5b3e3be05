/* The canonical form of writes: whatever the series, laying it over the old bytes gives what doing it one by one gives. */
#include "fake.h"
#include "unit.h"

#include "edit.h"

#define MAX 4096u

struct plain {
        uint8_t bytes[MAX];
        size_t size;
};
static void plain_extend(struct plain *p, size_t size) {
        if (size > p->size) {
                memset(p->bytes + p->size, 0, size - p->size);
                p->size = size;
        }
}

static void check_form(const struct edit *e) {
        uint64_t end = 0, data = 0;
        for (size_t i = 0; i < e->n; i++) {
                ck_assert_uint_gt(e->extents[i].length, 0);
                ck_assert_uint_ge(e->extents[i].offset, end);
                if (i > 0 && e->extents[i].offset == end)
                        ck_assert_int_ne((int)e->extents[i].kind, (int)e->extents[i - 1].kind); /* else they would be one */
                end = e->extents[i].offset + e->extents[i].length;
                data += e->extents[i].kind == EXTENT_DATA ? e->extents[i].length : 0;
        }
        ck_assert_uint_eq(data, e->data_bytes);
        if (e->size != BLOB_KEEP_ALL)
                ck_assert_uint_le(end, e->size);
}

static void step(struct edit *e, struct plain *p, uint64_t *seed) {
        uint64_t r = next_random(seed);
        size_t at = r % (MAX - 256), len = 1 + (r >> 16) % (r >> 60 ? 40 : 256), kind = (r >> 40) % 16;
        if (kind < 11) {
                plain_extend(p, at + len);
                for (size_t i = 0; i < len; i++)
                        p->bytes[at + i] = (uint8_t)(next_random(seed) | 1);
                edit_write(e, at, len);
        } else if (kind < 14) {
                plain_extend(p, at + len);
                memset(p->bytes + at, 0, len);
                edit_zero(e, at, len);
        } else {
                plain_extend(p, at);
                p->size = at;
                edit_truncate(e, at);
        }
        check_form(e);
}

START_TEST(any_series_is_one_edit) {
        for (uint64_t seed = 1; seed <= 400; seed++) {
                uint64_t s = seed;
                struct edit e = EDIT_NONE;
                struct plain p = {.size = next_random(&s) % 3000};
                for (size_t i = 0; i < p.size; i++)
                        p.bytes[i] = (uint8_t)next_random(&s);
                struct blob *old = NULL, *source = NULL, *got = NULL;
                ck_assert_int_eq(blob_from_bytes(p.bytes, p.size, &old), 0);
                unsigned steps = 1 + (unsigned)(next_random(&s) % 60);
                while (steps-- > 0)
                        step(&e, &p, &s);
                ck_assert_int_eq(blob_from_bytes(p.bytes, p.size, &source), 0);
                uint64_t at = 0;
                if (seed % 3 == 0)
                        edit_simplify(&e, p.size);
                check_form(&e);
                ck_assert_int_eq(edit_replay(&e, source, old, &got, &at), 0);
                ck_assert_msg(blob_equal(got, source), "seed %llu", (unsigned long long)seed);
                struct blob *twice = NULL; /* a reader may see it laid over itself for a moment */
                ck_assert_int_eq(edit_replay(&e, source, got, &twice, &at), 0);
                ck_assert(blob_equal(twice, source));
                blob_unref(old);
                blob_unref(source);
                blob_unref(got);
                blob_unref(twice);
                edit_done(&e);
                ck_assert(edit_is_none(&e));
        }
}
END_TEST

START_TEST(sequential_writes_are_one_extent) {
        struct edit e = EDIT_NONE;
        for (uint64_t i = 0; i < 1000; i++)
                edit_write(&e, i * 512, 512);
        ck_assert_uint_eq(e.n, 1);
        ck_assert_uint_eq(e.extents[0].length, 512000);
        edit_write(&e, 1000, 10);
        ck_assert_uint_eq(e.n, 1);
        edit_done(&e);
        for (uint64_t i = 1000; i-- > 0;) /* backwards as well */
                edit_write(&e, i * 512, 512);
        ck_assert_uint_eq(e.n, 1);
        edit_done(&e);
}
END_TEST

START_TEST(full_before_the_operation_is) {
        struct edit e = EDIT_NONE;
        uint64_t at = 0;
        while (!edit_is_full(&e)) {
                edit_write(&e, at, 1);
                at += 2;
                ck_assert_uint_le(e.n, OP_EXTENTS_MAX);
        }
        edit_zero(&e, 0, at + 1); /* and an edit over all makes room again */
        ck_assert(!edit_is_full(&e));
        edit_done(&e);
}
END_TEST

START_TEST(replaced_content_is_one_extent) {
        struct edit e = EDIT_NONE;
        edit_truncate(&e, 0);
        edit_write(&e, 0, 100);
        edit_write(&e, 150, 50);
        edit_simplify(&e, 200);
        ck_assert_uint_eq(e.n, 1);
        ck_assert_uint_eq(e.extents[0].length, 200);
        edit_done(&e);
        edit_truncate(&e, 0); /* mostly a hole: stays one */
        edit_write(&e, 0, 10);
        edit_write(&e, 1000000, 10);
        edit_simplify(&e, 1000010);
        ck_assert_uint_eq(e.n, 2);
        edit_done(&e);
}
END_TEST

static Suite *suite_edit(void) {
        const TTest *const tests[] = {any_series_is_one_edit, sequential_writes_are_one_extent, full_before_the_operation_is,
                                      replaced_content_is_one_extent};
        return suite_of("edit", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_edit)
