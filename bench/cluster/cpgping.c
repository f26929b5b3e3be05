/* cpgping: what corosync's CPG itself needs, to compare with: a message to the group and its own delivery.
 *
 *   cpgping SIZE COUNT WINDOW
 *
 * Multicasts COUNT messages of SIZE bytes, at most WINDOW of them under way. Prints one line of JSON: percentiles of the time between a
 * message's sending and its delivery here in microseconds, messages and bytes per second. */
#include <corosync/cpg.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t *times;
static long sent, delivered, in_group;

static uint64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *msg, size_t len) {
        (void)handle;
        (void)group;
        (void)node;
        (void)msg;
        (void)len;
        if (pid != (uint32_t)getpid())
                return;
        times[delivered] = now_ns() - times[delivered];
        delivered++;
}

static void on_confchg(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t n,
                       const struct cpg_address *left, size_t n_left, const struct cpg_address *joined, size_t n_joined) {
        (void)handle;
        (void)group;
        (void)members;
        (void)left;
        (void)n_left;
        (void)joined;
        (void)n_joined;
        in_group = (long)n;
}

static int by_value(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
        cpg_callbacks_t callbacks = {.cpg_deliver_fn = on_deliver, .cpg_confchg_fn = on_confchg};
        struct cpg_name name = {.length = 7, .value = "cpgping"};
        cpg_handle_t cpg;
        int fd;

        if (argc != 4) {
                fprintf(stderr, "usage: cpgping SIZE COUNT WINDOW\n");
                return 2;
        }
        size_t size = strtoul(argv[1], NULL, 10);
        long count = strtol(argv[2], NULL, 10), window = strtol(argv[3], NULL, 10);
        char *message = calloc(1, size);
        times = calloc((size_t)count, sizeof *times);
        if (!message || !times || cpg_initialize(&cpg, &callbacks) != CS_OK || cpg_fd_get(cpg, &fd) != CS_OK ||
            cpg_join(cpg, &name) != CS_OK) {
                fprintf(stderr, "cpgping: no corosync, or no memory\n");
                return 1;
        }
        while (!in_group)
                if (cpg_dispatch(cpg, CS_DISPATCH_ONE) != CS_OK)
                        return 1;
        uint64_t began = now_ns();
        while (delivered < count) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                struct iovec iov = {.iov_base = message, .iov_len = size};

                while (sent < count && sent - delivered < window) {
                        times[sent] = now_ns();
                        if (cpg_mcast_joined(cpg, CPG_TYPE_AGREED, &iov, 1) != CS_OK)
                                break; /* busy: it gives no notice */
                        sent++;
                }
                poll(&p, 1, 1);
                if (cpg_dispatch(cpg, CS_DISPATCH_ALL) != CS_OK)
                        return 1;
        }
        double seconds = (double)(now_ns() - began) / 1e9;
        qsort(times, (size_t)count, sizeof *times, by_value);
        printf("{\"size\": %zu, \"count\": %ld, \"window\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"per_second\": %.1f, "
               "\"bytes_per_second\": %.0f}\n",
               size, count, window, (double)times[count / 2] / 1e3, (double)times[count * 99 / 100] / 1e3, (double)count / seconds,
               (double)count * (double)size / seconds);
        cpg_finalize(cpg);
        return 0;
}
