/* failpoint.h: named places where a test can make the n-th passage fail, and probes that count that a rare branch was reached.
 * Off, a failpoint costs one relaxed load. Set by failpoint_set("name=errno@n[+]", …) or the environment variable
 * COTERIE_FAILPOINTS in coteried ("store.log.write=EIO@3;alloc=ENOMEM@1+": '+' means from then on). Any thread. */
#pragma once

#include "base/base.h"
#include <stdatomic.h>

errint_t failpoint_set(const char *spec); /* -EINVAL: the text is not understood; NULL or "" clears all */
errint_t failpoint_check_(const char *name);
extern _Atomic int failpoint_active_;
/* 0, or the negative errno that the test wants here. */
#define failpoint(name) (__builtin_expect(atomic_load_explicit(&failpoint_active_, memory_order_relaxed) != 0, 0) ? failpoint_check_(name) : 0)
/* Passages seen since the last failpoint_set of a spec that was not empty; clearing stops the count and keeps it. */
uint64_t failpoint_passed(const char *name);
