#include "helper.h"

int main(void) {
        SRunner *r = srunner_create(suite_tree());
        srunner_add_suite(r, suite_sessions());
        srunner_add_suite(r, suite_state());
        srunner_run_all(r, CK_ENV);
        int failed = srunner_ntests_failed(r);
        srunner_free(r);
        return failed == 0 ? 0 : 1;
}
