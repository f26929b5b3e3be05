/* failpoint.h: named places where a test can make the n-th passage fail, and probes that count that a rare branch was reached.
 * Off, a failpoint costs one relaxed load. Set by failpoint_set("name=errno@n[+]", …) or the environment variable
 * COTERIE_FAILPOINTS in coteried ("store.log.write=EIO@3;alloc=ENOMEM@1+": '+' means from then on). Any thread. */
#pragma once

#include "base/base.h"

errint_t failpoint_set(const char *spec); /* -EINVAL: the text is not understood; NULL or "" clears all */
errint_t failpoint_check_(const char *name);
extern _Atomic int failpoint_active_;
/* 0, or the negative errno that the test wants here. */
#define failpoint(name) (__builtin_expect(failpoint_active_ != 0, 0) ? failpoint_check_(name) : 0)
uint64_t failpoint_passed(const char *name); /* passages seen while any failpoint was set */
