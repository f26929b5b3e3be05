/* trace.h: a ring of the last moves and events, cheap enough to be always on; dumped on request and by the assertion hook. Any
 * thread (one atomic to claim a slot). */
#pragma once

#include "base/base.h"

#define TRACE_SLOTS 4096
#define TRACE_TEXT 112
struct trace_ring;
struct trace_ring *trace_ring_new(void);
void trace_ring_free(struct trace_ring *t);
void trace_at(struct trace_ring *t, uint64_t monotonic_ns, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void trace_dump(const struct trace_ring *t, int fd); /* async-signal-safe */
DEFINE_FREEP(trace_ring_free, struct trace_ring)
