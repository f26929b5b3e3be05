/* trace.c: a ring that writers share without a lock and that a signal handler can read.
 *
 * Event k goes to slot k % TRACE_SLOTS. A slot's `stamp` is 0 (never used), BUSY (being written), or k + 1 (holds event k). Writers
 * take a slot by exchanging its stamp for BUSY; one that finds it busy, or holding a later event, was overtaken by a whole
 * round and drops its event. A reader takes what it read only if the stamp is the same before and after. Text is stored in atomic
 * words, so that this race is a defined one; stores release and loads acquire, which keeps them between the two stamps. */
#include "base/trace.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUSY  UINT64_MAX
#define WORDS (TRACE_TEXT / sizeof(uint64_t))
_Static_assert(TRACE_TEXT % sizeof(uint64_t) == 0, "the text of a slot is whole words");

struct slot {
        _Atomic uint64_t stamp, ns, text[WORDS];
};
struct trace_ring {
        _Atomic uint64_t next; /* number of the next event */
        struct slot slots[TRACE_SLOTS];
};

struct trace_ring *trace_ring_new(void) {
        return NEW(struct trace_ring);
}

void trace_ring_free(struct trace_ring *t) {
        free(t);
}

static bool slot_take(struct slot *s, uint64_t event) {
        uint64_t was = atomic_load_explicit(&s->stamp, memory_order_relaxed);
        do {
                if (was == BUSY || was > event)
                        return false;
        } while (!atomic_compare_exchange_weak_explicit(&s->stamp, &was, BUSY, memory_order_acquire, memory_order_relaxed));
        return true;
}

void trace_at(struct trace_ring *t, uint64_t monotonic_ns, const char *fmt, ...) {
        union {
                char text[TRACE_TEXT];
                uint64_t words[WORDS];
        } u = {{0}};
        va_list ap;

        va_start(ap, fmt);
        (void)vsnprintf(u.text, sizeof(u.text), fmt, ap); /* longer events are cut */
        va_end(ap);

        uint64_t event = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        struct slot *s = &t->slots[event % TRACE_SLOTS];
        if (!slot_take(s, event))
                return;
        atomic_store_explicit(&s->ns, monotonic_ns, memory_order_release);
        for (size_t i = 0; i < WORDS; i++)
                atomic_store_explicit(&s->text[i], u.words[i], memory_order_release);
        atomic_store_explicit(&s->stamp, event + 1, memory_order_release);
}

static bool slot_read(struct slot *s, uint64_t event, uint64_t *ret_ns, uint64_t ret_words[WORDS]) {
        if (atomic_load_explicit(&s->stamp, memory_order_acquire) != event + 1)
                return false;
        *ret_ns = atomic_load_explicit(&s->ns, memory_order_acquire);
        for (size_t i = 0; i < WORDS; i++)
                ret_words[i] = atomic_load_explicit(&s->text[i], memory_order_acquire);
        return atomic_load_explicit(&s->stamp, memory_order_relaxed) == event + 1;
}

/* Decimal digits by hand: printf is not async-signal-safe. Writes exactly `width` digits, or as many as needed for 0. */
static size_t put_decimal(char *out, uint64_t v, size_t width) {
        char reversed[20];
        size_t n = 0;

        do {
                reversed[n++] = (char)('0' + v % 10);
                v /= 10;
        } while (width ? n < width : v > 0);
        for (size_t i = 0; i < n; i++)
                out[i] = reversed[n - 1 - i];
        return n;
}

static bool write_all(int fd, const char *p, size_t n) {
        while (n > 0) {
                ssize_t done = write(fd, p, n);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done <= 0)
                        return false;
                p += done;
                n -= (size_t)done;
        }
        return true;
}

void trace_dump(const struct trace_ring *t, int fd) {
        struct trace_ring *ring = (struct trace_ring *)(uintptr_t)t; /* atomic loads take no pointer to const before C23 */
        int saved = errno;
        uint64_t next = atomic_load_explicit(&ring->next, memory_order_acquire);

        for (uint64_t event = next > TRACE_SLOTS ? next - TRACE_SLOTS : 0; event < next; event++) {
                char line[40 + TRACE_TEXT];
                union {
                        char text[TRACE_TEXT];
                        uint64_t words[WORDS];
                } u;
                uint64_t ns;
                if (!slot_read(&ring->slots[event % TRACE_SLOTS], event, &ns, u.words))
                        continue;
                size_t n = put_decimal(line, ns / 1000000000u, 0);
                line[n++] = '.';
                n += put_decimal(line + n, ns % 1000000000u, 9);
                line[n++] = ' ';
                size_t len = strnlen(u.text, TRACE_TEXT);
                memcpy(line + n, u.text, len);
                n += len;
                line[n++] = '\n';
                if (!write_all(fd, line, n))
                        break;
        }
        errno = saved;
}
