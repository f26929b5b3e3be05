#include "suites.h"

int main(void) {
        SRunner *r = srunner_create(suite_edit());
        srunner_add_suite(r, suite_acl());
        srunner_add_suite(r, suite_names());
        srunner_add_suite(r, suite_gather());
        srunner_add_suite(r, suite_order());
        srunner_add_suite(r, suite_orphans());
        srunner_add_suite(r, suite_attrs());
        srunner_add_suite(r, suite_virtual());
        srunner_add_suite(r, suite_model());
        srunner_add_suite(r, suite_memory());
        srunner_add_suite(r, suite_stress());
        srunner_run_all(r, CK_ENV);
        int failed = srunner_ntests_failed(r);
        srunner_free(r);
        return failed == 0 ? 0 : 1;
}

Suite *suite_of(const char *name, const TTest *const *tests, size_t n) {
        Suite *s = suite_create(name);
        TCase *tc = tcase_create(name);
        tcase_set_timeout(tc, 120);
        for (size_t i = 0; i < n; i++)
                tcase_add_test(tc, tests[i]);
        suite_add_tcase(s, tc);
        return s;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t next_random(uint64_t *seed) {
        uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}
