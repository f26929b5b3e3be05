/* unit.h: what the unit test programs share. A file of tests registers its suite with UNIT_SUITE(function); main.c runs all of them.
 * A program that must prepare something first has a main.c of its own, which calls unit_run. One thread. */
#pragma once

#include <check.h>
#include <stddef.h>
#include <stdint.h>

void unit_add(Suite *(*make)(void));
#define UNIT_SUITE(make)                                                                                                                   \
        __attribute__((constructor)) static void make##_register(void) { unit_add(make); }
/* Returns the exit code: 1 also when nothing is registered, so that a program without tests is noticed. */
int unit_run(void);

/* A suite with one case of these tests; each may take two minutes, as sanitizers are slow. */
Suite *suite_of(const char *name, const TTest *const *tests, size_t n);
/* splitmix64 (Steele, Lea, Flood 2014): the same seed, the same sequence. */
uint64_t next_random(uint64_t *seed);
