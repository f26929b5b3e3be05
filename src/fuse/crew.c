/* crew.c: see crew.h. */
#include "crew.h"

#include "base/env.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PREEMPTED_NS UINT64_C(25000) /* between two looks: somebody else needs this processor */
#define PAUSES       24              /* between two looks, which take the lock of the kernel's queue: about a microsecond */
#define LOAD_ASK_NS  UINT64_C(1000000)

static uint64_t now_ns(void) {
        return env_monotonic_ns(env_system());
}

void crew_init(struct crew *p) {
        pthread_condattr_t attr;
        (void)pthread_condattr_init(&attr); /* none of these can fail with these arguments */
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&p->changed, &attr);
        (void)pthread_condattr_destroy(&attr);
        (void)pthread_mutex_init(&p->lock, NULL);
        p->load_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC); /* without it nothing is known to be idle */
}

void crew_done(struct crew *p) {
        if (p->load_fd >= 0)
                (void)close(p->load_fd);
        (void)pthread_cond_destroy(&p->changed);
        (void)pthread_mutex_destroy(&p->lock);
}

void crew_start(struct crew *p, int fd, unsigned workers) {
        cpu_set_t may;
        p->fd = fd;
        p->workers = workers;
        p->processors = sched_getaffinity(0, sizeof(may), &may) == 0 ? (unsigned)CPU_COUNT(&may) : 1;
        /* Each request was made by a thread that needs a processor as well. */
        p->active_max = MIN_OF(MAX_OF(p->processors / 2, 1u), workers);
        atomic_store(&p->last_ns, now_ns());
}

static bool is_dense(const struct crew *p) {
        return atomic_load_explicit(&p->dense, memory_order_relaxed) >= CREW_DENSE;
}

/* A hint; that it is changed by several at once does no harm. */
static void dense_add(struct crew *p, int by) {
        int now = atomic_load_explicit(&p->dense, memory_order_relaxed) + by;
        atomic_store_explicit(&p->dense, MIN_OF(MAX_OF(now, 0), CREW_DENSE_MAX), memory_order_relaxed);
}

static void pause_briefly(void) {
        for (unsigned i = 0; i < PAUSES; i++)
#if defined(__x86_64__)
                __builtin_ia32_pause();
#else
                atomic_signal_fence(memory_order_seq_cst);
#endif
}

static bool request_waits(const struct crew *p) {
        struct pollfd look = {.fd = p->fd, .events = POLLIN};
        return poll(&look, 1, 0) != 0; /* also when the mount is gone: read(2) tells */
}

/* --- resting --- */

static struct timespec next_tick(void) {
        uint64_t at = now_ns() + CREW_TICK_MS * UINT64_C(1000000);
        return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}

/* The guard's round: false: it goes to take requests itself, or all do. Lock held. */
static bool guard_tick(struct crew *p, uint64_t *seen, unsigned *quiet) {
        uint64_t taken = atomic_load(&p->taken);
        if (taken != *seen) {
                *seen = taken;
                *quiet = 0;
                return true;
        }
        if (atomic_load(&p->reading) == 0)
                return false; /* held up since the last tick */
        if (++*quiet < CREW_QUIET)
                return true;
        atomic_store_explicit(&p->dense, 0, memory_order_relaxed);
        p->releases++;
        (void)pthread_cond_broadcast(&p->changed);
        return false;
}

/* Returns when this worker is to go on. Lock held. */
static void rest(struct crew *p) {
        uint64_t releases = p->releases, seen = atomic_load(&p->taken);
        unsigned quiet = 0;
        bool guard = false;
        while (!p->ended && p->releases == releases) {
                if (p->wanted > 0) {
                        p->wanted--;
                        break;
                }
                if (!guard && p->guarded) {
                        (void)pthread_cond_wait(&p->changed, &p->lock);
                        continue;
                }
                guard = p->guarded = true;
                struct timespec until = next_tick();
                if (pthread_cond_timedwait(&p->changed, &p->lock, &until) == ETIMEDOUT && !guard_tick(p, &seen, &quiet))
                        break;
        }
        if (guard) {
                p->guarded = false;
                (void)pthread_cond_signal(&p->changed); /* another one guards */
        }
}

/* Somebody else takes the requests. */
static bool may_rest(const struct crew *p) {
        return is_dense(p) && atomic_load(&p->reading) > 0;
}

static void rest_while_dense(struct crew *p) {
        if (!may_rest(p))
                return;
        (void)pthread_mutex_lock(&p->lock);
        if (may_rest(p) && !p->ended) {
                (void)atomic_fetch_add(&p->resting, 1);
                rest(p);
                (void)atomic_fetch_sub(&p->resting, 1);
        }
        (void)pthread_mutex_unlock(&p->lock);
}

/* --- taking requests --- */

/* Would looking take a processor from somebody? "0.20 0.18 0.12 1/80 11206": one thread is running or waits to, of 80. */
static bool processor_idle(struct crew *p, uint64_t now) {
        char text[64];
        if (now < p->asked_ns + LOAD_ASK_NS)
                return p->idle;
        p->asked_ns = now;
        ssize_t n = p->load_fd < 0 ? -1 : pread(p->load_fd, text, sizeof(text) - 1, 0);
        text[MAX_OF(n, 0)] = '\0';
        unsigned running = 0;
        p->idle = sscanf(text, "%*s %*s %*s %u/", &running) == 1 && running <= p->processors;
        return p->idle;
}

/* Looks for a request until it is no longer worth it. By the one worker that waits for requests. */
static void look(struct crew *p) {
        uint64_t began = now_ns(), last = began;
        if (!processor_idle(p, began))
                return;
        while (!request_waits(p)) {
                pause_briefly();
                uint64_t now = now_ns();
                if (now - began > CREW_LOOK_NS || now - last > PREEMPTED_NS)
                        return;
                last = now;
        }
}

/* Another one joins where requests queue up behind those who take them. */
static void join_crowd(struct crew *p) {
        if (!request_waits(p)) {
                atomic_store_explicit(&p->crowded, 0, memory_order_relaxed);
                return;
        }
        if (atomic_fetch_add_explicit(&p->crowded, 1, memory_order_relaxed) + 1 < CREW_CROWDED)
                return;
        atomic_store_explicit(&p->crowded, 0, memory_order_relaxed);
        (void)pthread_mutex_lock(&p->lock);
        p->wanted = 1;
        (void)pthread_cond_signal(&p->changed);
        (void)pthread_mutex_unlock(&p->lock);
}

void crew_wait(struct crew *p) {
        rest_while_dense(p);
        bool only = atomic_fetch_add(&p->reading, 1) == 0;
        if (only && p->processors > 1 /* else whoever makes the next request needs it */ && is_dense(p))
                look(p);
}

void crew_taken(struct crew *p, bool any) {
        (void)atomic_fetch_sub(&p->reading, 1);
        if (!any)
                return;
        uint64_t since = now_ns() - atomic_load_explicit(&p->last_ns, memory_order_relaxed);
        dense_add(p, since < CREW_LOOK_NS || since > UINT64_MAX / 2 /* another's was handled just now */ ? 1 : -4);
        (void)atomic_fetch_add_explicit(&p->taken, 1, memory_order_relaxed);
        unsigned resting = atomic_load_explicit(&p->resting, memory_order_relaxed);
        if (resting > p->workers - p->active_max)
                join_crowd(p);
}

void crew_handled(struct crew *p) {
        atomic_store_explicit(&p->last_ns, now_ns(), memory_order_relaxed);
}

void crew_end(struct crew *p) {
        (void)pthread_mutex_lock(&p->lock);
        p->ended = true;
        (void)pthread_cond_broadcast(&p->changed);
        (void)pthread_mutex_unlock(&p->lock);
}
