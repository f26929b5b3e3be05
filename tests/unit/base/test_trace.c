#include "base/trace.h"
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The dump as a stream to read from. */
static FILE *dump_of(const struct trace_ring *t) {
        int fd = memfd_create("dump", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        trace_dump(t, fd);
        ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
        return fdopen(fd, "r");
}

START_TEST(events_come_out_in_order) {
        CLEANUP(trace_ring_freep) struct trace_ring *t = trace_ring_new();
        char text[256];
        trace_at(t, 0, "first %d", 1);
        trace_at(t, UINT64_C(12000000034), "second");
        trace_at(t, UINT64_MAX, "%s", "third");
        FILE *f = dump_of(t);
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = '\0';
        ck_assert_str_eq(text, "0.000000000 first 1\n12.000000034 second\n18446744073.709551615 third\n");
        (void)fclose(f);
}
END_TEST

START_TEST(the_last_round_stays) {
        CLEANUP(trace_ring_freep) struct trace_ring *t = trace_ring_new();
        char line[256];
        unsigned expected = 10;
        for (unsigned i = 0; i < TRACE_SLOTS + 10; i++)
                trace_at(t, i, "event %u", i);
        FILE *f = dump_of(t);
        while (fgets(line, sizeof(line), f)) {
                unsigned ns, event;
                ck_assert_int_eq(sscanf(line, "0.%u event %u\n", &ns, &event), 2);
                ck_assert_uint_eq(event, expected);
                ck_assert_uint_eq(ns, expected);
                expected++;
        }
        ck_assert_uint_eq(expected, TRACE_SLOTS + 10);
        (void)fclose(f);
}
END_TEST

START_TEST(long_events_are_cut) {
        CLEANUP(trace_ring_freep) struct trace_ring *t = trace_ring_new();
        char text[400], line[400];
        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        trace_at(t, 1, "%s", text);
        FILE *f = dump_of(t);
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
        ck_assert_uint_eq(strspn(line + strlen("0.000000001 "), "x"), TRACE_TEXT - 1);
        ck_assert_ptr_null(fgets(line, sizeof(line), f));
        (void)fclose(f);
}
END_TEST

START_TEST(dump_keeps_errno_and_survives_a_bad_descriptor) {
        CLEANUP(trace_ring_freep) struct trace_ring *t = trace_ring_new();
        trace_at(t, 1, "x");
        errno = ENOTTY;
        trace_dump(t, -1);
        ck_assert_int_eq(errno, ENOTTY);
        trace_ring_free(NULL);
}
END_TEST

static atomic_bool stop;
static void *write_events(void *arg) {
        struct trace_ring *t = arg;
        /* Every word of an event names the event, so that a torn one shows. */
        for (unsigned i = 0; !atomic_load(&stop); i++)
                trace_at(t, i, "%08x%08x%08x%08x", i, i, i, i);
        return NULL;
}

START_TEST(dumps_among_writers_show_whole_events) {
        CLEANUP(trace_ring_freep) struct trace_ring *t = trace_ring_new();
        pthread_t threads[3];
        char line[256];
        unsigned lines = 0;
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, write_events, t), 0);
        for (int round = 0; round < 20 || lines == 0; round++) {
                FILE *f = dump_of(t);
                while (fgets(line, sizeof(line), f)) {
                        unsigned ns, w[4];
                        ck_assert_int_eq(sscanf(line, "%*u.%u %8x%8x%8x%8x\n", &ns, &w[0], &w[1], &w[2], &w[3]), 5);
                        ck_assert(w[0] == w[1] && w[0] == w[2] && w[0] == w[3] && w[0] % 1000000000u == ns);
                        lines++;
                }
                (void)fclose(f);
        }
        atomic_store(&stop, true);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

static Suite *suite_trace(void) {
        const TTest *const tests[] = {
                events_come_out_in_order,
                the_last_round_stays,
                long_events_are_cut,
                dump_keeps_errno_and_survives_a_bad_descriptor,
                dumps_among_writers_show_whole_events,
        };
        return suite_of("trace", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_trace)
