/* suites.h: the suites of this program. */
#pragma once

#include <check.h>

Suite *suite_alone(void);
Suite *suite_cluster(void);
Suite *suite_explore(void);
Suite *suite_wire(void);
