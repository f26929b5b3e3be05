#include "helper.h"

int main(void) {
        Suite *(*const suites[])(void) = {suite_change,     suite_settings,     suite_op,          suite_vectors,      suite_sessions,
                                          suite_state,      suite_tree,         suite_tree_rename, suite_tree_content, suite_tree_meta,
                                          suite_tree_local, suite_tree_restore, suite_tree_size,   suite_tree_memory};
        SRunner *r = srunner_create(suite_blob());
        for (size_t i = 0; i < ARRAY_LEN(suites); i++)
                srunner_add_suite(r, suites[i]());
        srunner_run_all(r, CK_ENV);
        int failed = srunner_ntests_failed(r);
        srunner_free(r);
        return failed == 0 ? 0 : 1;
}
