/* sim.c: the world's frame: random numbers, virtual time, a run from its seed to its verdict. */
#include "sim.h"

#include "client.h"
#include "history.h"
#include "nemesis.h"
#include "node.h"
#include "simnet.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- random */

static uint64_t splitmix(uint64_t *x) {
        uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, unsigned k) {
        return (x << k) | (x >> (64 - k));
}

static inline uint64_t draw_next(uint64_t random[2]) {
        uint64_t a = random[0], b = random[1], result = a + b;

        b ^= a;
        random[0] = rotate(a, 24) ^ b ^ (b << 16);
        random[1] = rotate(b, 37);
        return result;
}

uint64_t sim_draw(struct sim *s) {
        return draw_next(s->random);
}
void sim_fill(struct sim *s, uint8_t *p, size_t n) {
        uint64_t word;

        for (size_t k = 0; k < n; k += sizeof word) {
                word = htole64(draw_next(s->random));
                memcpy(p + k, &word, MIN_OF(sizeof word, n - k));
        }
}

uint64_t sim_below(struct sim *s, uint64_t n) {
        return n ? (sim_draw(s) >> 11) % n : 0;
}
bool sim_chance(struct sim *s, unsigned percent) {
        return sim_below(s, 100) < percent;
}
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high) {
        return low + sim_below(s, high - low + 1);
}

/* --- virtual time: a heap by (time, order of asking) */

struct timed {
        uint64_t at, order;
        sim_fn fn;
        void *object;
        uint64_t value;
        void (*free_fn)(void *object);
};
struct sim_queue {
        struct timed *heap;
        size_t n, cap;
        uint64_t order;
};

static bool before(const struct timed *a, const struct timed *b) {
        return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void sim_after(struct sim *s, uint64_t us, sim_fn fn, void *object, uint64_t value) {
        sim_after_owned(s, us, fn, object, value, NULL);
}

void sim_after_owned(struct sim *s, uint64_t us, sim_fn fn, void *object, uint64_t value, void (*free_fn)(void *object)) {
        struct sim_queue *q = s->queue;
        struct timed t = {.at = s->now + us, .order = q->order++, .fn = fn, .object = object, .value = value, .free_fn = free_fn};
        size_t i = q->n++;

        if (q->n > q->cap) {
                q->cap = MAX_OF(q->cap * 2, (size_t)256);
                q->heap = xrealloc(q->heap, q->cap * sizeof *q->heap);
        }
        for (; i > 0 && before(&t, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
                q->heap[i] = q->heap[(i - 1) / 2];
        q->heap[i] = t;
}

static struct timed queue_pop(struct sim_queue *q) {
        struct timed top = q->heap[0], last = q->heap[--q->n];
        size_t i = 0;

        for (;;) {
                size_t child = 2 * i + 1;

                if (child + 1 < q->n && before(&q->heap[child + 1], &q->heap[child]))
                        child++;
                if (child >= q->n || !before(&q->heap[child], &last))
                        break;
                q->heap[i] = q->heap[child];
                i = child;
        }
        if (q->n > 0)
                q->heap[i] = last;
        return top;
}

uint64_t sim_now_ms(const struct sim *s) {
        return s->now / SIM_MS + 1000;
} /* never 0: that means `not armed` */

/* --- telling */

void sim_mix(struct sim *s, uint64_t value) {
        s->hash = (rotate(s->hash, 5) ^ value) * UINT64_C(0x517cc1b727220a95);
}

void sim_trace(struct sim *s, const char *fmt, ...) {
        va_list ap;

        if (!s->config.trace)
                return;
        printf("%10.3f ", (double)s->now / 1000.0);
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        putchar('\n');
}

void sim_violation(struct sim *s, enum verdict verdict, const char *checker, const char *fmt, ...) {
        va_list ap;

        if (s->verdict != VERDICT_OK)
                return;
        s->verdict = verdict;
        (void)snprintf(s->checker, sizeof s->checker, "%s", checker);
        va_start(ap, fmt);
        (void)vsnprintf(s->what, sizeof s->what, fmt, ap);
        va_end(ap);
        s->ended = true;
        sim_trace(s, "VIOLATION %s: %s", s->checker, s->what);
}

/* --- a run */

static void run_until(struct sim *s, uint64_t until) {
        while (!s->ended && s->queue->n > 0 && s->queue->heap[0].at <= until) {
                struct timed t = queue_pop(s->queue);

                s->now = t.at;
                t.fn(s, t.object, t.value);
                if (t.free_fn)
                        t.free_fn(t.object);
        }
        if (!s->ended)
                s->now = until;
}

static void draw(struct sim *s) {
        static const unsigned sizes[] = {3, 3, 3, 3, 4, 5, 5, 7};
        static const enum sync_level levels[] = {LEVEL_FILE, LEVEL_FILESYSTEM, LEVEL_FILESYSTEM, LEVEL_NONE};
        unsigned n = sizes[sim_below(s, ARRAY_LEN(sizes))];
        uint64_t ticks = sim_between(s, 12, 40) * 1000;
        int store = sim_chance(s, 25);

        s->level = levels[sim_below(s, ARRAY_LEN(levels))];
        if (s->config.nodes == 0)
                s->config.nodes = n;
        if (s->config.ticks == 0)
                s->config.ticks = ticks;
        if (s->config.store < 0)
                s->config.store = store;
        s->n = s->config.nodes;
}

void sim_run(struct sim *s, const struct sim_config *config) {
        uint64_t x = config->seed;

        *s = (struct sim){.config = *config};
        s->random[0] = splitmix(&x);
        s->random[1] = splitmix(&x);
        s->queue = NEW(struct sim_queue);
        draw(s);
        s->history = history_new(s);
        s->net = simnet_new(s);
        nodes_new(s);
        sim_trace(s, "seed %" G_GUINT64_FORMAT ": %u nodes, %s, %s", config->seed, s->n, sync_level_text(s->level),
                  s->config.store ? "sqlite" : "memory");
        nodes_found_cluster(s);
        s->clients = clients_new(s);
        nemesis_start(s);
        run_until(s, s->config.ticks * SIM_MS);
        if (!s->ended) {
                sim_trace(s, "faults end");
                s->quiet_phase = true;
                nemesis_end(s);
                run_until(s, s->now + 10 * SIM_S);
        }
        if (!s->ended) {
                clients_stop(s);
                run_until(s, s->now + 70 * SIM_S); /* a member that was expelled again and again waits up to a minute */
        }
        if (!s->ended)
                history_final(s);
        sim_mix(s, s->now);
}

void sim_done(struct sim *s) {
        nodes_free(s);
        clients_free(s);
        simnet_free(s->net);
        history_free(s->history);
        for (size_t k = 0; k < s->queue->n; k++)
                if (s->queue->heap[k].free_fn)
                        s->queue->heap[k].free_fn(s->queue->heap[k].object);
        free(s->queue->heap);
        free(s->queue);
}
