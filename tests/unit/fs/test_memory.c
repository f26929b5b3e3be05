/* Out of memory at every allocation of outside size: the request fails or succeeds, nothing else is lost, and later all goes on. */
#include "fake.h"
#include "unit.h"

#include "base/failpoint.h"
#include <linux/falloc.h>
#include <stdio.h>

#define SIZE (40 * 1000u)

struct world {
        struct fake *k;
        uint64_t ino, fh;
        uint8_t want[SIZE];
        size_t size;
};

static void fill(uint8_t *p, size_t n, uint64_t seed) {
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)(next_random(&seed) | 1);
}

static void try_write(struct world *w, size_t at, size_t n, uint64_t seed) {
        uint8_t bytes[SIZE];
        fill(bytes, n, seed);
        int r = do_write(w->k, w->ino, w->fh, at, bytes, n, 0);
        if (r == 0) {
                memcpy(w->want + at, bytes, n);
                w->size = MAX_OF(w->size, at + n);
        } else {
                ck_assert_int_eq(r, -ENOMEM);
        }
}

static void check(struct world *w) {
        uint8_t got[SIZE];
        ssize_t n = do_read(w->k, w->ino, w->fh, 0, got, sizeof(got));
        if (n == -ENOMEM)
                return;
        ck_assert_int_eq(n, (ssize_t)w->size);
        ck_assert_int_eq(memcmp(got, w->want, w->size), 0);
}

static unsigned failing_at(unsigned n) {
        struct world w = {.k = fake_new(FAKE_BY_HAND)};
        char spec[64];
        w.ino = do_create(w.k, INO_ROOT, "f", 0600, &w.fh);
        (void)snprintf(spec, sizeof(spec), "alloc=ENOMEM@%u", n);
        ck_assert_int_eq(failpoint_set(spec), 0);
        try_write(&w, 0, 1000, 1);
        try_write(&w, w.size, 5000, 2);
        check(&w);
        try_write(&w, 100, 50, 3);
        try_write(&w, 20000, 300, 4);
        check(&w);
        int r = do_fallocate(w.k, w.ino, w.fh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50, 2000);
        if (r == 0)
                memset(w.want + 50, 0, MIN_OF(w.size > 50 ? w.size - 50 : 0, (size_t)2000));
        else
                ck_assert_int_eq(r, -ENOMEM);
        r = do_truncate(w.k, w.ino, w.fh, 15000);
        if (r == 0) {
                memset(w.want + MIN_OF(w.size, (size_t)15000), 0, SIZE - MIN_OF(w.size, (size_t)15000));
                w.size = 15000;
        } else {
                ck_assert_int_eq(r, -ENOMEM);
        }
        check(&w);
        struct answer a;
        answer_init(w.k, &a);
        fs_flush(w.k->fs, &root_caller, w.ino, w.fh, 0, &a.reply); /* launched while memory is short */
        unsigned passed = (unsigned)failpoint_passed("alloc");
        ck_assert_int_eq(failpoint_set(NULL), 0); /* what apply does without memory is not our matter */
        fake_all(w.k);
        ck_assert_int_eq(a.kind, ANSWER_ERR);
        if (a.error == 0)
                check(&w);
        else
                ck_assert_int_eq(a.error, -ENOMEM);
        try_write(&w, 0, 10, 9);
        ck_assert_int_eq(do_flush(w.k, w.ino, w.fh), 0);
        uint8_t got[10];
        ck_assert_int_eq(do_read(w.k, w.ino, w.fh, 0, got, 10), 10);
        ck_assert_mem_eq(got, w.want, 10);
        do_release(w.k, w.ino, w.fh);
        fake_free(w.k);
        return passed;
}

START_TEST(every_allocation) {
        unsigned n = 0, passed = 1;
        while (n < passed)
                passed = failing_at(++n);
        ck_assert_uint_gt(n, 10);
}
END_TEST

static Suite *suite_memory(void) {
        const TTest *const tests[] = {every_allocation};
        return suite_of("memory", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_memory)
