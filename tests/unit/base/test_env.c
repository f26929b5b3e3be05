#include "base/env.h"
#include "unit.h"
#include <time.h>

START_TEST(the_system_has_time_and_chance) {
        const struct env *e = env_system();
        uint64_t before = env_monotonic_ns(e);
        struct timespec pause = {.tv_nsec = 2000000};
        ck_assert_int_eq(nanosleep(&pause, NULL), 0);
        ck_assert_uint_ge(env_monotonic_ns(e), before + 2000000);

        int64_t sec = 0;
        uint32_t nsec = UINT32_MAX;
        e->realtime(e->ctx, &sec, &nsec);
        ck_assert_int_ge(sec, time(NULL) - 1);
        ck_assert_int_le(sec, time(NULL) + 1);
        ck_assert_uint_lt(nsec, 1000000000);

        ck_assert_uint_ne(env_random64(e), env_random64(e)); /* by mistake once in 2^64 */
}
END_TEST

static Suite *suite_env(void) {
        const TTest *const tests[] = {the_system_has_time_and_chance};
        return suite_of("env", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_env)
