/* env.c: the real clocks and the real random numbers. For programs; pure layers get both inside events. */
#include "base/env.h"
#include <sys/random.h>
#include <time.h>

static uint64_t system_monotonic_ns(void *ctx) {
        (void)ctx;
        struct timespec ts;
        int r = clock_gettime(CLOCK_MONOTONIC, &ts);
        POST(r == 0); /* it fails for unknown clocks only */
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void system_realtime(void *ctx, int64_t *ret_sec, uint32_t *ret_nsec) {
        (void)ctx;
        struct timespec ts;
        int r = clock_gettime(CLOCK_REALTIME, &ts);
        POST(r == 0);
        *ret_sec = ts.tv_sec;
        *ret_nsec = (uint32_t)ts.tv_nsec;
}

static uint64_t system_random64(void *ctx) {
        (void)ctx;
        uint64_t v;
        ssize_t n;
        do {
                n = getrandom(&v, sizeof(v), 0);
        } while (n < 0 && errno == EINTR);
        POST(n == (ssize_t)sizeof(v)); /* up to 256 bytes come whole */
        return v;
}

const struct env *env_system(void) {
        static const struct env system = {
                .monotonic_ns = system_monotonic_ns,
                .realtime = system_realtime,
                .random64 = system_random64,
        };
        return &system;
}
