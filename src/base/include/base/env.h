/* env.h: clocks and random numbers as an interface, so that the simulator can stand in for them. Implementations: env_system() for
 * programs, the simulator's own for tests. Nothing fails. env_system: any thread. */
#pragma once

#include "base/base.h"

struct env {
        uint64_t (*monotonic_ns)(void *ctx);                                /* as CLOCK_MONOTONIC: stands still while the machine sleeps */
        void (*realtime)(void *ctx, int64_t *ret_sec, uint32_t *ret_nsec); /* since 1970, UTC */
        uint64_t (*random64)(void *ctx);
        void *ctx;
};
const struct env *env_system(void);
static inline uint64_t env_monotonic_ns(const struct env *e) { return e->monotonic_ns(e->ctx); }
static inline uint64_t env_random64(const struct env *e) { return e->random64(e->ctx); }
