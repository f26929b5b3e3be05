/* suites.h: the suites of the base layer, one per file, and what they share. */
#pragma once

#include "base/base.h"
#include <check.h>

Suite *suite_base(void);
Suite *suite_codec(void);
Suite *suite_hash(void);
Suite *suite_compress(void);
Suite *suite_log(void);
Suite *suite_failpoint(void);
Suite *suite_table(void);
Suite *suite_trace(void);
Suite *suite_env(void);
Suite *suite_metrics(void);

/* Runs fn in a child with stderr captured into out (a string). True if the child died of SIGABRT. */
bool aborts(void (*fn)(void), char *out, size_t out_size);
/* A suite with one case of these tests. */
Suite *suite_of(const char *name, const TTest *const *tests, size_t n);
/* Repeatable bytes: the same seed, the same sequence. */
uint64_t next_random(uint64_t *seed);
