#include "base/failpoint.h"
#include "unit.h"
#include <pthread.h>
#include <string.h>

START_TEST(off_nothing_fails_and_nothing_counts) {
        ck_assert_int_eq(failpoint("a"), 0);
        ck_assert_uint_eq(failpoint_passed("a"), 0);
}
END_TEST

START_TEST(the_nth_passage_fails) {
        ck_assert_int_eq(failpoint_set("a=EIO@3;b=ENOSPC@2+;a=EINTR@5"), 0);
        const errint_t a[] = {0, 0, -EIO, 0, -EINTR, 0}, b[] = {0, -ENOSPC, -ENOSPC, -ENOSPC};
        for (size_t i = 0; i < ARRAY_LEN(a); i++)
                ck_assert_int_eq(failpoint("a"), a[i]);
        for (size_t i = 0; i < ARRAY_LEN(b); i++)
                ck_assert_int_eq(failpoint("b"), b[i]);
        ck_assert_int_eq(failpoint("c"), 0);
        ck_assert_uint_eq(failpoint_passed("a"), 6);
        ck_assert_uint_eq(failpoint_passed("b"), 4);
        ck_assert_uint_eq(failpoint_passed("c"), 1); /* a probe: counted without a rule of its own */
        ck_assert_int_eq(failpoint_set(NULL), 0);
        ck_assert_int_eq(failpoint("b"), 0);
        ck_assert_uint_eq(failpoint_passed("b"), 4); /* clearing keeps the count */
        ck_assert_int_eq(failpoint_set("a=EIO@2"), 0);
        ck_assert_uint_eq(failpoint_passed("b"), 0);
        ck_assert_int_eq(failpoint("a"), 0); /* counted from the new spec on */
        ck_assert_int_eq(failpoint("a"), -EIO);
}
END_TEST

START_TEST(specs_that_are_not_understood) {
        const char *const bad[] = {
                "a",
                "=EIO@1",
                "a=EIO",
                "a=@1",
                "a=EIO@",
                "a=EIO@0",
                "a=EIO@-1",
                "a=EIO@ 1",
                "a=EIO@1 ",
                "a=EIO@1x",
                "a=EIO@1++",
                "a=EIO@+",
                "a=NOSUCH@1",
                "a=5@1",
                "a=eio@1",
                ";",
                ";a=EIO@1",
                "a=EIO@1;;",
                "a@1=EIO",
                "a=EI@1",
                "a=EIOO@1",
                "a",
                "a=EIO@1;b",
                "a=EIO@99999999999999999999",
                "a-name-of-more-than-sixty-three-bytes-is-longer-than-any-name-used=EIO@1",
        };
        ck_assert_int_eq(failpoint_set("kept=EIO@1+"), 0);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                ck_assert_msg(failpoint_set(bad[i]) == -EINVAL, "taken: %s", bad[i]);
                ck_assert_int_eq(failpoint("kept"), -EIO); /* a refused text changes nothing */
        }
        char many[65 * 8 + 1] = "";
        for (int i = 0; i < 65; i++)
                strcat(many, "a=EIO@1;");
        ck_assert_int_eq(failpoint_set(many), -EINVAL); /* one rule too many */
        many[64 * 8] = '\0';
        ck_assert_int_eq(failpoint_set(many), 0);
        ck_assert_int_eq(failpoint_set(""), 0);
        ck_assert_int_eq(failpoint("kept"), 0);
}
END_TEST

static void *pass_many(void *arg) {
        uintptr_t failed = 0;
        (void)arg;
        for (int i = 0; i < 1000; i++)
                failed += failpoint("shared") != 0;
        return (void *)failed;
}

START_TEST(threads_share_the_count) {
        pthread_t threads[4];
        uintptr_t sum = 0;
        ck_assert_int_eq(failpoint_set("shared=EIO@1000"), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, pass_many, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
                void *failed;
                ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
                sum += (uintptr_t)failed;
        }
        ck_assert_uint_eq(sum, 1);
        ck_assert_uint_eq(failpoint_passed("shared"), 4000);
}
END_TEST

static Suite *suite_failpoint(void) {
        const TTest *const tests[] = {
                off_nothing_fails_and_nothing_counts,
                the_nth_passage_fails,
                specs_that_are_not_understood,
                threads_share_the_count,
        };
        return suite_of("failpoint", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_failpoint)
