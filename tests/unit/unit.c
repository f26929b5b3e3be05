/* unit.c: see unit.h. */
#include "unit.h"

#include <stdlib.h>

#define SUITES_MAX 32u
#define TIMEOUT_S  120

static Suite *(*makers[SUITES_MAX])(void);
static size_t n_makers;

void unit_add(Suite *(*make)(void)) {
        if (n_makers == SUITES_MAX)
                abort();
        makers[n_makers++] = make;
}

int unit_run(void) {
        if (n_makers == 0)
                return EXIT_FAILURE;
        SRunner *runner = srunner_create(makers[0]());
        for (size_t i = 1; i < n_makers; i++)
                srunner_add_suite(runner, makers[i]());
        srunner_run_all(runner, CK_ENV);
        int failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

Suite *suite_of(const char *name, const TTest *const *tests, size_t n) {
        Suite *s = suite_create(name);
        TCase *tc = tcase_create(name);

        tcase_set_timeout(tc, TIMEOUT_S);
        for (size_t i = 0; i < n; i++)
                tcase_add_test(tc, tests[i]);
        suite_add_tcase(s, tc);
        return s;
}

uint64_t next_random(uint64_t *seed) {
        uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}
