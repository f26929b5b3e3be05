/* main.c: runs all suites of the replication machine. */
#include "suites.h"

int main(void) {
        SRunner *r = srunner_create(suite_alone());
        srunner_add_suite(r, suite_wire());
        srunner_add_suite(r, suite_cluster());
        srunner_add_suite(r, suite_explore());
        srunner_run_all(r, CK_NORMAL);
        int failed = srunner_ntests_failed(r);
        srunner_free(r);
        return failed == 0 ? 0 : 1;
}
