/* main.c: runs every registered suite; fails when there is none, so that a test program without tests is noticed. */
#include "suites.h"

#include <stdlib.h>

static Suite *(*makers[32])(void);
static size_t n_makers;

void suites_add(Suite *(*make)(void)) {
        if (n_makers == sizeof makers / sizeof makers[0])
                abort();
        makers[n_makers++] = make;
}

int main(void) {
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
