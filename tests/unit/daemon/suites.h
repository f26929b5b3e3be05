/* suites.h: each file of tests registers its suite with DAEMON_SUITE(function); main.c runs them all. */
#pragma once

#include <check.h>

void suites_add(Suite *(*make)(void));
#define DAEMON_SUITE(make)                                                                                                                  \
        __attribute__((constructor)) static void make##_register(void) {                                                                   \
                suites_add(make);                                                                                                          \
        }
