/* The set of inodes that the kernel knows, against a plain array. */
#include "fixture.h"

#include "known.h"

#define N 3000u

static unsigned counts[N];

static uint64_t ino_of(unsigned i) {
        /* Dense, far apart, and multiples of a power of two: what counters and unlucky trees give. */
        return i < N / 3 ? i + 2 : i < 2 * N / 3 ? (uint64_t)i << 16 : (uint64_t)i * 1000003;
}

static void check_listed(void *ctx, uint64_t ino) {
        for (unsigned i = 0; i < N; i++)
                if (ino_of(i) == ino) {
                        ck_assert_uint_gt(counts[i], 0);
                        ++*(unsigned *)ctx;
                        return;
                }
        ck_abort_msg("%lu was never added", (unsigned long)ino);
}

static void check_all(struct known *k) {
        unsigned want = 0, listed = 0;
        for (unsigned i = 0; i < N; i++) {
                want += counts[i] > 0;
                ck_assert_int_eq(known_has(k, ino_of(i)), counts[i] > 0);
        }
        known_each(k, check_listed, &listed);
        ck_assert_uint_eq(listed, want);
}

START_TEST(counts_as_the_kernel_does) {
        struct known *k = known_new();
        srand(7);
        for (unsigned round = 0; round < 20; round++) {
                for (unsigned j = 0; j < 4 * N; j++) {
                        unsigned i = (unsigned)rand() % N, n = (unsigned)rand() % 4;
                        if ((unsigned)rand() % 20 >= round) { /* grows first, empties then */
                                known_add(k, ino_of(i));
                                counts[i]++;
                        } else {
                                n = n == 0 ? counts[i] : n; /* all at once, as usual */
                                known_forget(k, ino_of(i), n);
                                counts[i] -= n < counts[i] ? n : counts[i];
                        }
                }
                check_all(k);
        }
        for (unsigned i = 0; i < N; i++) {
                known_forget(k, ino_of(i), UINT64_MAX);
                counts[i] = 0;
        }
        check_all(k);
        known_free(k);
}
END_TEST

Suite *suite_known(void) {
        Suite *s = suite_create("known");
        TCase *c = tcase_create("known");
        tcase_add_test(c, counts_as_the_kernel_does);
        suite_add_tcase(s, c);
        return s;
}
