/* suites.h: the suites of the request layer, one per file. */
#pragma once

#include "fake.h"

Suite *suite_edit(void);
Suite *suite_acl(void);
Suite *suite_names(void);
Suite *suite_gather(void);
Suite *suite_order(void);
Suite *suite_orphans(void);
Suite *suite_attrs(void);
Suite *suite_virtual(void);
Suite *suite_model(void);
Suite *suite_memory(void);
Suite *suite_stress(void);

Suite *suite_of(const char *name, const TTest *const *tests, size_t n);
uint64_t next_random(uint64_t *seed); /* repeatable */
