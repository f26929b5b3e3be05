/* bench.c: `coterie bench write`: replaces files in a directory with pseudo-random bytes (changed a little each time, so that neither
 * compression nor deduplication helps) or text, and tells how fast and how many bytes reached the disk.
 *
 * Bytes to disk are counted at the block device under the database of the daemon that serves the directory, or under the directory
 * itself when no daemon does; where no block device can be found, by write_bytes of the daemon's /proc/PID/io, labelled so. */
#include "cli.h"
#include "interrupt.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define BENCH_SIZE_MIN     1u
#define BENCH_SIZE_MAX     (64u * 1024u * 1024u)
#define BENCH_THREADS_MAX  64u
#define BENCH_CHANGE_EVERY 512u /* a changed word per so many bytes */
#define MB                 1e6

struct bench {
        struct cli *cli;
        const char *dir;
        uint64_t size_min, size_max, max_bytes, max_time_s, interval_s, threads, files;
        bool fsync, text;
        _Atomic uint64_t count, bytes;
        _Atomic bool stop;
        _Atomic int error;
        /* Where bytes to disk are read from. */
        char stat_path[512];
        bool by_process;    /* /proc/PID/io */
        char run_dir[4096]; /* of the daemon that serves the directory; empty: none does */
        char synced[4096];  /* on the filesystem that the bytes go to */
};
struct writer {
        struct bench *b;
        unsigned index;
        pthread_t thread;
        uint8_t *buffer;
        uint64_t seed;
};

/* xorshift64* (Marsaglia, Vigna): fast and good enough that nothing compresses it. */
static uint64_t next_random(uint64_t *seed) {
        *seed ^= *seed >> 12;
        *seed ^= *seed << 25;
        *seed ^= *seed >> 27;
        return *seed * UINT64_C(2685821657736338717);
}

static double now_s(void) {
        struct timespec ts;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- writing */

static void fill_random(struct writer *w, size_t n, bool whole) {
        size_t step = whole ? sizeof(uint64_t) : BENCH_CHANGE_EVERY;
        for (size_t at = 0; at + sizeof(uint64_t) <= n; at += step) {
                uint64_t r = next_random(&w->seed);
                memcpy(w->buffer + at, &r, sizeof(r));
        }
}

/* Lines as configuration files have them: words repeat, values differ. */
static void fill_text(struct writer *w, size_t n) {
        static const char *const words[] = {"server", "listen", "address", "port",  "timeout", "enabled",
                                            "path",   "user",   "group",   "limit", "cache",   "log"};
        size_t at = 0;

        while (at < n) {
                char line[96];
                uint64_t r = next_random(&w->seed);
                int len = snprintf(line, sizeof(line), "%s.%s = %" PRIu64 "\n", words[r % ARRAY_LEN(words)],
                                   words[(r >> 8) % ARRAY_LEN(words)], (r >> 16) % 100000);
                size_t part = MIN_OF((size_t)len, n - at);
                memcpy(w->buffer + at, line, part);
                at += part;
        }
}

static errint_t replace_file(struct writer *w, const char *temporary, const char *path, size_t n) {
        cleanup_fd int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        if (fd < 0)
                return -errno;
        errint_t error = cli_write_all(fd, w->buffer, n);
        if (error == 0 && w->b->fsync && fsync(fd) < 0)
                error = -errno;
        if (close(steal_fd(&fd)) < 0 && error == 0)
                error = -errno;
        if (error == 0 && rename(temporary, path) < 0)
                error = -errno;
        return error;
}

static void file_name(char *buf, size_t size, const struct bench *b, unsigned writer, const char *what, uint64_t i) {
        (void)snprintf(buf, size, "%s/bench-%ld-%u-%s%" PRIu64, b->dir, (long)getpid(), writer, what, i);
}

static void *writer_main(void *arg) {
        struct writer *w = arg;
        struct bench *b = w->b;
        char path[4096], temporary[4096];

        fill_random(w, b->size_max, true);
        for (uint64_t i = 0; !atomic_load(&b->stop); i++) {
                size_t n =
                        (size_t)(b->size_min + (b->size_max > b->size_min ? next_random(&w->seed) % (b->size_max - b->size_min + 1) : 0));
                if (b->text)
                        fill_text(w, n);
                else
                        fill_random(w, n, false);
                file_name(path, sizeof(path), b, w->index, "", i % b->files);
                file_name(temporary, sizeof(temporary), b, w->index, "tmp", 0);
                errint_t error = replace_file(w, temporary, path, n);
                if (error < 0) {
                        int zero = 0;
                        (void)atomic_compare_exchange_strong(&b->error, &zero, error); /* the first one is told */
                        atomic_store(&b->stop, true);
                        break;
                }
                atomic_fetch_add(&b->count, 1);
                if (atomic_fetch_add(&b->bytes, n) + n >= b->max_bytes)
                        atomic_store(&b->stop, true);
        }
        return NULL;
}

static void remove_files(const struct bench *b) {
        char path[4096];

        for (unsigned t = 0; t < b->threads; t++) {
                file_name(path, sizeof(path), b, t, "tmp", 0);
                (void)unlink(path); /* only after a failure */
                for (uint64_t i = 0; i < b->files; i++) {
                        file_name(path, sizeof(path), b, t, "", i);
                        (void)unlink(path); /* not all were written */
                }
        }
}

/* --- bytes to disk */

static bool device_stat_path(const char *path, char *buf, size_t size) {
        struct stat st;

        if (stat(path, &st) < 0)
                return false;
        (void)snprintf(buf, size, "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
        return access(buf, R_OK) == 0;
}

/* The status of the daemon that serves a directory, from the virtual file in the root of its mount; NULL if there is none. */
static json_t *status_above(const char *dir) {
        char path[4096 + sizeof("/.coterie/status")];

        if (!realpath(dir, path))
                return NULL;
        for (;;) {
                size_t n = strlen(path);
                (void)strcpy(path + n, "/.coterie/status"); /* fits: realpath gives less than 4,096 */
                json_t *s = json_load_file(path, 0, NULL);
                if (s || n <= 1)
                        return s;
                path[n] = '\0';
                char *slash = strrchr(path, '/');
                slash[slash == path] = '\0';
        }
}

static void find_disk(struct bench *b) {
        json_t *s = status_above(b->dir);
        const char *db = json_string_value(json_object_get(s, "database")), *run_dir = json_string_value(json_object_get(s, "run_dir"));

        if (db && run_dir)
                (void)snprintf(b->run_dir, sizeof(b->run_dir), "%s", run_dir);
        (void)snprintf(b->synced, sizeof(b->synced), "%s", b->run_dir[0] ? db : b->dir);
        if (!device_stat_path(b->synced, b->stat_path, sizeof(b->stat_path))) {
                b->stat_path[0] = '\0';
                if (b->run_dir[0]) {
                        b->by_process = true;
                        (void)snprintf(b->stat_path, sizeof(b->stat_path), "/proc/%" PRIu64 "/io",
                                       (uint64_t)json_integer_value(json_object_get(s, "pid")));
                }
        }
        json_decref(s);
}

static bool read_disk(const struct bench *b, uint64_t *ret) {
        cleanup_fd int fd = b->stat_path[0] ? open(b->stat_path, O_RDONLY | O_CLOEXEC) : -1;
        char text[1024];
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        const char *at;

        if (n <= 0)
                return false;
        text[n] = '\0';
        if (b->by_process)
                return (at = strstr(text, "\nwrite_bytes: ")) && sscanf(at, "\nwrite_bytes: %" SCNu64, ret) == 1;
        if (sscanf(text, "%*u %*u %*u %*u %*u %*u %" SCNu64, ret) != 1)
                return false;
        *ret *= 512u; /* the seventh field counts sectors of 512 bytes, whatever the device's are: Documentation/block/stat.rst */
        return true;
}

/* Whatever still lies in caches is charged as well. */
static void settle_disk(const struct bench *b) {
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        cleanup_fd int fd = -1;

        if (b->run_dir[0] && ctl_connect(b->run_dir, CLI_TIMEOUT_MS, &fd) == 0)
                (void)ctl_ask(fd, 2, (const char *const[]){"sync", "checkpoint"}, &r); /* the count is then a little low */
        cleanup_fd int below = open(b->synced, O_RDONLY | O_CLOEXEC);
        if (below >= 0)
                (void)syncfs(below); /* likewise */
}

/* --- telling */

struct sample {
        double at;
        uint64_t count, bytes, disk;
        bool has_disk;
};

static struct sample take_sample(const struct bench *b, double start) {
        struct sample s = {.at = now_s() - start, .count = atomic_load(&b->count), .bytes = atomic_load(&b->bytes)};
        s.has_disk = read_disk(b, &s.disk);
        return s;
}

static void print_header(const struct bench *b) {
        if (!b->cli->json)
                (void)printf("%9s %9s %10s %9s %9s %12s %8s\n", "seconds", "files", "MB", "MB/s", "avg MB/s",
                             b->by_process ? "disk MB*" : "disk MB", "ampl.");
}

static void print_sample(const struct bench *b, const struct sample *first, const struct sample *before, const struct sample *s,
                         const char *kind) {
        double rate = s->at > before->at ? (double)(s->bytes - before->bytes) / MB / (s->at - before->at) : 0;
        double average = s->at > 0 ? (double)s->bytes / MB / s->at : 0;
        double disk = s->has_disk ? (double)(s->disk - first->disk) : 0, amplification = s->bytes > 0 ? disk / (double)s->bytes : 0;

        if (b->cli->json) {
                json_t *o = json_pack("{s:s, s:f, s:I, s:I, s:f, s:f}", "kind", kind, "seconds", s->at, "files", (json_int_t)s->count,
                                      "bytes", (json_int_t)s->bytes, "mb_per_second", rate, "average_mb_per_second", average);
                if (s->has_disk) {
                        (void)json_object_set_new(o, "disk_bytes", json_integer((json_int_t)disk));
                        (void)json_object_set_new(o, "amplification", json_real(amplification));
                        (void)json_object_set_new(o, "disk_source", json_string(b->by_process ? "process" : "device"));
                }
                (void)json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
                (void)putchar('\n');
                json_decref(o);
        } else if (s->has_disk) {
                (void)printf("%9.2f %9" PRIu64 " %10.2f %9.2f %9.2f %12.2f %8.2f%s\n", s->at, s->count, (double)s->bytes / MB, rate,
                             average, disk / MB, amplification, strcmp(kind, "settled") == 0 ? "  settled" : "");
        } else {
                (void)printf("%9.2f %9" PRIu64 " %10.2f %9.2f %9.2f %12s %8s\n", s->at, s->count, (double)s->bytes / MB, rate, average, "-",
                             "-");
        }
        (void)fflush(stdout);
}

static void watch(struct bench *b, double start, const struct sample *first) {
        struct sample before = *first;
        double next = (double)b->interval_s;

        while (!atomic_load(&b->stop)) {
                (void)usleep(20000);
                double at = now_s() - start;
                if (at >= (double)b->max_time_s || interrupted())
                        atomic_store(&b->stop, true);
                if (at < next || atomic_load(&b->stop))
                        continue;
                struct sample s = take_sample(b, start);
                print_sample(b, first, &before, &s, "interval");
                before = s;
                next += (double)b->interval_s;
        }
}

static int run_bench(struct bench *b) {
        cleanup_free struct writer *writers = xcalloc(b->threads, sizeof(*writers));
        unsigned started = 0;

        interrupt_catch();
        find_disk(b);
        settle_disk(b);
        double start = now_s();
        struct sample first = take_sample(b, start);
        print_header(b);
        for (; started < b->threads; started++) {
                struct writer *w = &writers[started];
                *w = (struct writer){.b = b,
                                     .index = started,
                                     .buffer = xmalloc(b->size_max + sizeof(uint64_t)),
                                     .seed = (uint64_t)time(NULL) * 1000003u + started + 1};
                if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
                        free(w->buffer);
                        atomic_store(&b->error, -EAGAIN);
                        atomic_store(&b->stop, true);
                        break;
                }
        }
        watch(b, start, &first);
        for (unsigned i = 0; i < started; i++) {
                (void)pthread_join(writers[i].thread, NULL);
                free(writers[i].buffer);
        }
        struct sample end = take_sample(b, start);
        print_sample(b, &first, &first, &end, "total");
        settle_disk(b);
        struct sample settled = take_sample(b, start);
        settled.at = end.at; /* the rate is that of writing */
        print_sample(b, &first, &first, &settled, "settled");
        if (b->by_process && !b->cli->json)
                (void)printf("* bytes the daemon sent to the disk (/proc/PID/io): no block device was found\n");
        remove_files(b);
        int error = atomic_load(&b->error);
        return error < 0 ? cli_fail(b->cli, CTL_FAILED, "%s: %s", b->dir, strerror(-error)) : 0;
}

/* --- arguments */

static bool parse_size(const char *text, uint64_t *ret, char **ret_end) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(text, &end, 10);

        if (end == text || errno != 0 || text[0] == '-')
                return false;
        unsigned shift = *end == 'K' ? 10u : *end == 'M' ? 20u : *end == 'G' ? 30u : 0u;
        if (v > UINT64_MAX >> shift)
                return false;
        *ret = v << shift;
        *ret_end = end + (shift ? 1 : 0);
        return true;
}

static bool parse_number(const char *text, uint64_t *ret) {
        char *end;
        return parse_size(text, ret, &end) && *end == '\0';
}

static bool parse_range(const char *text, uint64_t *min, uint64_t *max) {
        char *end;

        if (!parse_size(text, min, &end))
                return false;
        *max = *min;
        if (strncmp(end, "..", 2) == 0)
                return parse_number(end + 2, max) && *max >= *min;
        return *end == '\0';
}

static bool take_value(struct bench *b, const char *name, const char *value) {
        if (strcmp(name, "--size") == 0)
                return parse_range(value, &b->size_min, &b->size_max) && b->size_min >= BENCH_SIZE_MIN && b->size_max <= BENCH_SIZE_MAX;
        if (strcmp(name, "--max-bytes") == 0)
                return parse_number(value, &b->max_bytes) && b->max_bytes > 0;
        if (strcmp(name, "--max-time") == 0)
                return parse_number(value, &b->max_time_s) && b->max_time_s > 0 && b->max_time_s <= 86400;
        if (strcmp(name, "--interval") == 0)
                return parse_number(value, &b->interval_s) && b->interval_s > 0 && b->interval_s <= 3600;
        if (strcmp(name, "--threads") == 0)
                return parse_number(value, &b->threads) && b->threads > 0 && b->threads <= BENCH_THREADS_MAX;
        if (strcmp(name, "--files") == 0)
                return parse_number(value, &b->files) && b->files > 0 && b->files <= 1000000;
        return false;
}

int cli_bench(struct cli *cli, int argc, char **argv) {
        struct bench b = {.cli = cli,
                          .size_min = 65536,
                          .size_max = 65536,
                          .max_bytes = 64u << 20,
                          .max_time_s = 30,
                          .interval_s = 1,
                          .threads = 1,
                          .files = 16};
        struct stat st;

        if (argc < 2 || strcmp(argv[0], "write") != 0)
                return cli_usage(cli);
        for (int i = 1; i < argc; i++) {
                char *value = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
                if (strcmp(argv[i], "--fsync") == 0)
                        b.fsync = true;
                else if (strcmp(argv[i], "--text") == 0)
                        b.text = true;
                else if (strncmp(argv[i], "--", 2) != 0 && !b.dir)
                        b.dir = argv[i];
                else if (value || i + 1 < argc) {
                        const char *name = argv[i];
                        if (value)
                                *value++ = '\0';
                        else
                                value = argv[++i];
                        if (!take_value(&b, name, value))
                                return cli_fail(cli, CTL_USAGE, "%s %s is not understood or out of range; coterie bench --help", name,
                                                value);
                } else
                        return cli_usage(cli);
        }
        if (!b.dir)
                return cli_usage(cli);
        if (stat(b.dir, &st) < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", b.dir, strerror(errno));
        if (!S_ISDIR(st.st_mode))
                return cli_fail(cli, CTL_FAILED, "%s is not a directory", b.dir);
        return run_bench(&b);
}
