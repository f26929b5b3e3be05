/* aborts.h: for tests of what must end the program. */
#pragma once

#include "base/base.h"

/* Runs fn in a child with stderr captured into out (a string). True if the child died of SIGABRT. */
bool aborts(void (*fn)(void), char *out, size_t out_size);
