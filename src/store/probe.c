/* probe.c: see store/probe.h. Measures; probe_advice.c judges. */
#include "disk_private.h"
#include "probe_private.h"

#include "base/env.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEFAULT_SECONDS 30.0
#define MIN_OPS         3u      /* of each measurement, whatever the budget */
#define MAX_OPS         100000u /* of each: latencies are kept */
#define NS              1e9
/* Phases besides the measurements. */
#define IDLE_SECONDS 1
static_assert(PROBE_SECONDS_FOR_TRAILING >= IDLE_SECONDS + 2 * PROBE_TRAILING_SECONDS, "half of the time is for the measurements");

struct probe {
        const struct probe_config *config;
        struct disk *disk;
        const struct env *env;
        struct probe_report *report;
        char *path;
        char queue[DISK_SYS_PATH]; /* whole disk: flushes are counted there, also for a partition */
        uint8_t *buf;              /* PROBE_RECORD_MAX bytes, aligned */
        uint32_t *latency_us10;    /* in tenths of a microsecond */
        bool zeroed;               /* the file is PROBE_AREA bytes of what was written before */
        unsigned done, total;
};

static uint64_t now(const struct probe *p) {
        return env_monotonic_ns(p->env);
}

static void pause_ms(unsigned ms) {
        struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

static bool tell(const struct probe *p, const struct probe_result *r, bool finished, const char *phase) {
        return !p->config->progress || p->config->progress(p->config->ctx, r, finished, p->done, p->total, phase);
}

/* --- the device's counters: Documentation/block/stat.rst ---------------------------------------------------------------------------- */
struct counters {
        bool known;
        uint64_t bytes, flushes;
};

static bool stat_field(const char *dir, unsigned field, uint64_t *ret) {
        char text[512], *save = NULL;
        if (disk_sys_read(dir, "stat", text, sizeof text) < 0)
                return false;
        char *word = strtok_r(text, " ", &save);
        for (unsigned i = 1; word && i < field; i++)
                word = strtok_r(NULL, " ", &save);
        if (!word)
                return false;
        *ret = strtoull(word, NULL, 10);
        return true;
}

static struct counters counters_read(const struct probe *p) {
        struct counters c = {0};
        uint64_t sectors;
        if (!p->report->device[0] || !stat_field(p->report->device, 7, &sectors) || !stat_field(p->queue, 16, &c.flushes))
                return c;
        c.bytes = sectors * 512; /* always of 512 bytes there */
        c.known = true;
        return c;
}

/* --- one measurement ----------------------------------------------------------------------------------------------------------------- */
static errint_t open_file(struct probe *p, unsigned flags, struct disk_file **ret) {
        return disk_open(p->disk, p->path, flags | DISK_UNTIMED, ret); /* as the log is opened */
}

static errint_t prepare(struct probe *p, enum probe_state state) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        if (state == PROBE_ZEROED && p->zeroed)
                return 0;
        errint_t r = open_file(p, 0, &f);
        if (r == 0)
                r = f->ops->truncate(f, 0);
        p->zeroed = false;
        if (r == 0 && state == PROBE_FALLOCATED)
                r = f->ops->allocate(f, 0, PROBE_AREA);
        if (r == 0 && state == PROBE_ZEROED) {
                cleanup_free uint8_t *zeros = xcalloc(1, MIB);
                for (uint64_t at = 0; r == 0 && at < PROBE_AREA; at += MIB)
                        r = disk_pwrite(f, zeros, MIB, at);
        }
        if (r == 0)
                r = disk_sync(f, SYNC_FSYNC);
        p->zeroed = r == 0 && state == PROBE_ZEROED;
        return r;
}

static errint_t one_write(struct disk_file *f, const struct probe *p, const struct probe_result *x, uint64_t at) {
        errint_t r = disk_pwrite(f, p->buf, x->written, at);
        if (r == 0 && x->method != SYNC_OPEN_DATASYNC && x->method != SYNC_OPEN_SYNC)
                r = disk_sync(f, x->method);
        return r;
}

static int by_value(const void *a, const void *b) {
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

static void summarize(struct probe *p, struct probe_result *x, uint64_t elapsed_ns, const struct counters *before,
                      const struct counters *after) {
        qsort(p->latency_us10, x->ops, sizeof *p->latency_us10, by_value);
        uint64_t half = (x->ops - 1) / 2, most = (x->ops - 1) * 99 / 100;
        x->p50_us = p->latency_us10[half] / 10.0;
        x->p99_us = p->latency_us10[most] / 10.0;
        x->ops_per_s = (double)x->ops * NS / (double)MAX_OF(elapsed_ns, 1);
        x->counted = before->known && after->known;
        if (x->counted) {
                x->device_bytes = (double)(after->bytes - before->bytes) / (double)x->ops;
                x->device_flushes = (double)(after->flushes - before->flushes) / (double)x->ops;
        }
}

/* Fills in what comes of it; an error that lies in the combination stays in the result, others are returned. */
static errint_t measure(struct probe *p, struct probe_result *x, double seconds) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        unsigned flags = (x->direct ? DISK_DIRECT : 0) | (x->method == SYNC_OPEN_DATASYNC ? DISK_DSYNC : 0) |
                         (x->method == SYNC_OPEN_SYNC ? DISK_SYNC : 0);
        errint_t r = prepare(p, x->state);
        if (r == 0)
                r = open_file(p, flags, &f);
        if (r != 0) {
                x->error = r;
                return r == -EINVAL || r == -EOPNOTSUPP ? 0 : r;
        }
        struct counters before = counters_read(p);
        uint64_t start = now(p), last = start, at = 0;
        while (x->ops < MAX_OPS && (x->ops < MIN_OPS || (double)(last - start) < seconds * NS)) {
                if (at + x->written > PROBE_AREA) {
                        if (x->state != PROBE_ZEROED)
                                break; /* what comes now would be another state */
                        at = 0;
                }
                r = one_write(f, p, x, at);
                if (r < 0) {
                        x->error = r;
                        return r == -EINVAL ? 0 : r; /* O_DIRECT refused at the transfer */
                }
                uint64_t t = now(p);
                p->latency_us10[x->ops++] = (uint32_t)MIN_OF((t - last) / 100, UINT32_MAX);
                last = t;
                at += x->written;
        }
        struct counters after = counters_read(p);
        summarize(p, x, last - start, &before, &after);
        return 0;
}

/* --- the isolated write ----------------------------------------------------------------------------------------------------------------
 */
static errint_t settle(struct probe *p) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        errint_t r = open_file(p, 0, &f);
        return r < 0 ? r : disk_sync(f, SYNC_SYNCFS);
}

/* What one small update costs that comes alone: the filesystem commits the file's time stamp some seconds later. */
static errint_t isolated(struct probe *p) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        struct probe_result x = {.state = PROBE_ZEROED, .method = SYNC_FDATASYNC, .record = 512, .written = 4096};
        struct probe_report *r = p->report;
        errint_t err = prepare(p, PROBE_ZEROED);
        if (err == 0)
                err = settle(p);
        if (err < 0)
                return err;
        err = open_file(p, 0, &f);
        if (err < 0)
                return err;
        struct counters before = counters_read(p);
        err = one_write(f, p, &x, 0);
        struct counters at_once = counters_read(p);
        if (err < 0)
                return err;
        for (unsigned i = 0; i < PROBE_TRAILING_SECONDS * 4; i++) {
                pause_ms(250);
                if (!tell(p, NULL, false, "waiting for what follows an isolated write"))
                        return -ECANCELED;
        }
        struct counters after = counters_read(p);
        r->trailing_measured = before.known && at_once.known && after.known;
        if (!r->trailing_measured)
                return 0;
        r->isolated_bytes = at_once.bytes - before.bytes;
        r->isolated_flushes = at_once.flushes - before.flushes;
        r->trailing_bytes = after.bytes - at_once.bytes;
        r->trailing_flushes = after.flushes - at_once.flushes;
        return 0;
}

static errint_t idle(struct probe *p) {
        errint_t r = settle(p);
        struct counters before = counters_read(p);
        if (r < 0 || !before.known)
                return r;
        if (!tell(p, NULL, false, "looking whether the device is idle"))
                return -ECANCELED;
        pause_ms(IDLE_SECONDS * 1000);
        struct counters after = counters_read(p);
        p->report->idle_bytes = after.known ? after.bytes - before.bytes : 0;
        return 0;
}

/* --- all of it ---------------------------------------------------------------------------------------------------------------------------
 */
static errint_t measure_all(struct probe *p, const uint32_t *records, size_t n_records, double seconds) {
        struct probe_report *r = p->report;
        uint32_t sector = MIN_OF(p->report->info.logical_sector, 4096);
        for (unsigned state = 0; state < PROBE_STATES; state++)
                for (unsigned direct = 0; direct < 2; direct++)
                        for (unsigned method = 0; method < PROBE_METHODS; method++)
                                for (size_t i = 0; i < n_records; i++) {
                                        uint32_t unit = direct ? sector : 4096;
                                        struct probe_result *x = &r->results[r->n];
                                        *x = (struct probe_result){.state = (enum probe_state)state,
                                                                   .method = (enum sync_method)method,
                                                                   .direct = direct,
                                                                   .record = records[i],
                                                                   .written = (records[i] + unit - 1) / unit * unit};
                                        if (!tell(p, x, false, "measuring"))
                                                return -ECANCELED;
                                        errint_t err = measure(p, x, seconds);
                                        if (err < 0)
                                                return err;
                                        r->n++;
                                        p->done++;
                                        if (!tell(p, x, true, "measuring"))
                                                return -ECANCELED;
                                }
        return 0;
}

static errint_t run(struct probe *p, const uint32_t *records, size_t n_records, double seconds) {
        bool has_device = p->report->device[0];
        double rest = seconds - (has_device ? IDLE_SECONDS : 0);
        bool trailing = has_device && seconds >= PROBE_SECONDS_FOR_TRAILING;
        rest -= trailing ? PROBE_TRAILING_SECONDS : 0;
        errint_t r = idle(p);
        if (r == 0)
                r = measure_all(p, records, n_records, MAX_OF(rest, 0.0) / p->total);
        if (r == 0 && trailing)
                r = isolated(p);
        return r;
}

static errint_t create(struct probe *p) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        size_t size = strlen(p->config->dir) + 48;
        p->path = xmalloc(size);
        (void)snprintf(p->path, size, "%s/.coterie-probe-%016llx", p->config->dir, (unsigned long long)env_random64(p->env)); /* fits */
        return disk_open(p->disk, p->path, DISK_CREATE | DISK_EXCL, &f);
}

static errint_t check(const uint32_t *records, size_t n) {
        if (n == 0 || n > 64)
                return -EINVAL;
        for (size_t i = 0; i < n; i++)
                if (records[i] == 0 || records[i] > PROBE_RECORD_MAX)
                        return -EINVAL;
        return 0;
}

static void look(struct probe *p) {
        char device[DISK_SYS_PATH];
        if (p->disk != disk_system())
                return;
        probe_facts(p->config->dir, p->report);
        if (disk_block_of(p->config->dir, device, p->queue) < 0)
                p->report->device[0] = '\0';
}

static void probe_done(struct probe *p) {
        free(p->path);
        free(p->buf);
        free(p->latency_us10);
}

errint_t probe_run(const struct probe_config *config, struct probe_report **ret) {
        static const uint32_t usual[] = {512, 4096, 65536};
        const uint32_t *records = config->records ? config->records : usual;
        size_t n_records = config->records ? config->n_records : ARRAY_LEN(usual);
        CLEANUP(probe_done) struct probe p = {.config = config, .disk = config->disk ? config->disk : disk_system(), .env = env_system()};
        CLEANUP(probe_report_freep) struct probe_report *report = NEW(struct probe_report);
        p.report = report;
        errint_t r = check(records, n_records);
        if (r == 0)
                r = create(&p);
        if (r < 0)
                return r;
        p.total = (unsigned)(PROBE_STATES * 2 * PROBE_METHODS * n_records);
        report->results = xcalloc(p.total, sizeof *report->results);
        p.latency_us10 = xcalloc(MAX_OPS, sizeof *p.latency_us10);
        void *buf = NULL;
        int failed = posix_memalign(&buf, 4096, PROBE_RECORD_MAX);
        PRE(failed == 0);
        p.buf = buf;
        for (size_t i = 0; i < PROBE_RECORD_MAX; i++)
                p.buf[i] = (uint8_t)((i * 2654435761u) >> 11);
        r = p.disk->ops->info(p.disk, p.path, &report->info);
        if (r == 0) {
                (void)snprintf(report->fs_type, sizeof report->fs_type, "%s", report->info.fs_type); /* same size */
                look(&p);
                r = run(&p, records, n_records, config->seconds > 0 ? config->seconds : DEFAULT_SECONDS);
        }
        errint_t removed = p.disk->ops->unlink(p.disk, p.path);
        if (r == 0)
                r = removed;
        if (r < 0)
                return r;
        probe_judge(report);
        *ret = steal_pointer(&report);
        return 0;
}

void probe_report_free(struct probe_report *r) {
        if (!r)
                return;
        free(r->results);
        free(r);
}
