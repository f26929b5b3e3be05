/* probe.h: what a directory's filesystem and device cost the operation log: the engine of `coterie probe-sync DIR`.
 *
 * Each measurement writes records one after the other, as the log does (whole pages through the page cache, whole sectors with O_DIRECT,
 * none twice on the same page or sector), each made durable before the next, into a file that is
 *   growing      each write makes it longer
 *   fallocated   space was allocated, never written
 *   zeroed       written with zeros before, then written again: the log's own state
 * and counts what reaches the block device, where there is one to be found. The file is in the directory, at most PROBE_AREA bytes, and
 * removed at the end. Bytes and flushes that others cause on the same device in this time are counted too: `idle_bytes` says how many that
 * were in the second before.
 *
 * Any thread; blocks for about config.seconds. */
#pragma once

#include "store/store.h"

#define PROBE_AREA (16 * MIB)
#define PROBE_RECORD_MAX (1 * MIB)
#define PROBE_TRAILING_SECONDS 6
#define PROBE_SECONDS_FOR_TRAILING 13 /* with fewer in all, what follows an isolated write is not waited for */

enum probe_state { PROBE_GROWING = 0, PROBE_FALLOCATED = 1, PROBE_ZEROED = 2, PROBE_STATES = 3 };
#define PROBE_METHODS 5
const char *probe_state_text(enum probe_state s);

struct probe_result {
        enum probe_state state;
        enum sync_method method;
        bool direct;
        uint32_t record; /* bytes asked for */
        uint32_t written; /* bytes per write: rounded up to the page or sector */
        errint_t error;  /* 0, or why it could not be measured: -EINVAL: O_DIRECT refused, -EOPNOTSUPP: no fallocate */
        uint64_t ops;
        double ops_per_s, p50_us, p99_us;
        bool counted; /* the two below are known */
        double device_bytes, device_flushes; /* per operation */
        bool no_flush; /* claims durability, but the device has a volatile cache and was not told to flush it */
};

enum probe_warning { /* bits of warnings */
        PROBE_WARN_BTRFS = 1,
        PROBE_WARN_DATA_JOURNAL = 2,
        PROBE_WARN_NO_BARRIER = 4,
        PROBE_WARN_VOLATILE_CACHE = 8,
        PROBE_WARN_NO_FLUSH = 16,  /* some method: see no_flush of the results */
        PROBE_WARN_NOT_A_DISK = 32, /* memory, network, FUSE */
        PROBE_WARN_NO_DEVICE = 64, /* bytes and flushes cannot be counted */
        PROBE_WARN_NO_DIRECT = 128,
        PROBE_WARN_FLUSHES_UNSEEN = 256, /* no method showed a flush: the device does not count them, or ignores them */
        PROBE_WARN_BUSY = 512,     /* others write to the device meanwhile */
        PROBE_WARN_SHARED_BLOCK = 1024, /* logical sectors are smaller than physical ones */
};
#define PROBE_WARN_COUNT 11u
/* The warning of one bit as a sentence with its remedy; NULL for no such bit. */
const char *probe_warning_text(unsigned bit);

struct probe_report {
        char fs_type[16], source[256], options[512]; /* of the mount; empty where unknown */
        char device[128];                           /* in /sys; empty: none found */
        char write_cache[32];                       /* "write back", "write through"; empty: unknown */
        bool rotational, fua;
        struct disk_info info;
        uint64_t idle_bytes; /* written to the device in the second before */

        struct probe_result *results; /* n of them, in the order of measuring */
        size_t n;

        bool trailing_measured; /* there was time, and a device */
        uint64_t isolated_bytes, isolated_flushes; /* one record of 512 bytes, zeroed, fdatasync: when it returned */
        uint64_t trailing_bytes, trailing_flushes; /* and what followed within PROBE_TRAILING_SECONDS */

        unsigned warnings;
        struct {
                enum sync_level level;
                enum sync_method method;
                bool direct;
                uint32_t padding; /* as store_config */
                char reason[256];
        } advice;
};

struct probe_config {
        const char *dir;
        double seconds;          /* 0: 30 */
        const uint32_t *records; /* sizes, at most PROBE_RECORD_MAX; NULL: 512, 4096, 65536 */
        size_t n_records;
        /* Called before each measurement with its state, method, direct and record set (`result` NULL: another phase, named in `phase`), and
         * after it with all of it. False: stop; probe_run returns -ECANCELED. May be NULL. */
        bool (*progress)(void *ctx, const struct probe_result *result, bool finished, unsigned done, unsigned total, const char *phase);
        void *ctx;
        struct disk *disk; /* NULL: the system's */
};
/* -ENOTDIR, -ENOENT, -EACCES, -EROFS, -ENOSPC, -EINVAL (a size), -ECANCELED, -EIO. *ret is freed with probe_report_free. */
errint_t probe_run(const struct probe_config *config, struct probe_report **ret);
void probe_report_free(struct probe_report *r);
DEFINE_FREEP(probe_report_free, struct probe_report)
