/* probe_advice.c: what is known of the mount and the device, and what follows from facts and figures: warnings, recommendation. */
#include "disk_private.h"
#include "probe_private.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FLUSHES           (0.9)    /* of a method that flushes at each operation, some lost to rounding */
#define AFFORDABLE_P99_US (2000.0) /* up to this a durable acknowledgement is hardly felt */

static const struct {
        unsigned bit;
        const char *text;
} warnings[] = {
        {PROBE_WARN_BTRFS, "btrfs writes 70 to 140 KB for each small durable commit; put the database on ext4 or XFS"},
        {PROBE_WARN_DATA_JOURNAL, "mounted with data=journal: everything is written twice; mount with data=ordered"},
        {PROBE_WARN_NO_BARRIER, "mounted without barriers: a power cut can lose what was acknowledged; remount with barriers"},
        {PROBE_WARN_VOLATILE_CACHE, "the device has a volatile write cache: only methods that flush it are durable"},
        {PROBE_WARN_NO_FLUSH, "some methods return without a flush of the device's cache: they are not durable here and must not be used"},
        {PROBE_WARN_NOT_A_DISK,
         "this is memory, a network or a FUSE filesystem: durability is what it says, not what can be measured here"},
        {PROBE_WARN_NO_DEVICE, "no block device was found below this directory: bytes and flushes could not be counted"},
        {PROBE_WARN_NO_DIRECT, "this filesystem refuses O_DIRECT: small records cost whole pages"},
        {PROBE_WARN_FLUSHES_UNSEEN,
         "no method caused a flush that the device counted: its cache may be safe, or the layers above it ignore flushes"},
        {PROBE_WARN_BUSY, "others wrote to the device during the measurement: bytes and flushes include theirs"},
        {PROBE_WARN_SHARED_BLOCK,
         "logical sectors are smaller than physical ones: padding=4096 if a torn physical block must not harm the record before"},
};
static_assert(ARRAY_LEN(warnings) == PROBE_WARN_COUNT, "each warning has its text");

const char *probe_warning_text(unsigned bit) {
        for (size_t i = 0; i < ARRAY_LEN(warnings); i++)
                if (warnings[i].bit == bit)
                        return warnings[i].text;
        return NULL;
}

const char *probe_state_text(enum probe_state s) {
        static const char *const text[] = {"growing", "fallocated", "zeroed"};
        return (unsigned)s < ARRAY_LEN(text) ? text[s] : "unknown";
}

void probe_facts(const char *dir, struct probe_report *r) {
        struct disk_mount mount;
        char device[DISK_SYS_PATH], queue[DISK_SYS_PATH], text[32];
        if (disk_mount_of(dir, &mount) == 0) {
                (void)snprintf(r->source, sizeof r->source, "%s", mount.source);    /* same sizes */
                (void)snprintf(r->options, sizeof r->options, "%s", mount.options); /* same sizes */
        }
        if (disk_block_of(dir, device, queue) < 0)
                return;
        (void)snprintf(r->device, sizeof r->device, "%.*s", (int)sizeof r->device - 1, device); /* "/sys/dev/block/259:12345" */
        if (disk_sys_read(queue, "queue/write_cache", r->write_cache, sizeof r->write_cache) < 0)
                r->write_cache[0] = '\0';
        r->rotational = disk_sys_read(queue, "queue/rotational", text, sizeof text) == 0 && strcmp(text, "1") == 0;
        r->fua = disk_sys_read(queue, "queue/fua", text, sizeof text) == 0 && strcmp(text, "1") == 0;
}

static bool has_option(const char *options, const char *name) {
        size_t n = strlen(name);
        for (const char *p = options; (p = strstr(p, name)); p += n)
                if ((p == options || p[-1] == ',') && (p[n] == '\0' || p[n] == ','))
                        return true;
        return false;
}

static bool one_of(const char *text, const char *const *list) {
        for (; *list; list++)
                if (strcmp(text, *list) == 0)
                        return true;
        return false;
}

/* --- flushes ------------------------------------------------------------------------------------------------------------------------- */

static bool volatile_cache(const struct probe_report *r) {
        return strcmp(r->write_cache, "write back") == 0;
}

/* A write that carries FUA needs no flush: O_DSYNC over blocks that exist, with O_DIRECT, on a device that can. */
static bool may_use_fua(const struct probe_report *r, const struct probe_result *x) {
        return r->fua && x->direct && (x->method == SYNC_OPEN_DATASYNC || x->method == SYNC_OPEN_SYNC);
}

/* Whether the device counts flushes at all shows in the methods that surely ask for one. */
static void judge_flushes(struct probe_report *r) {
        bool seen = false, counted = false;
        for (size_t i = 0; i < r->n; i++) {
                const struct probe_result *x = &r->results[i];
                counted |= x->counted && x->error == 0;
                seen |= x->counted && x->error == 0 && x->method == SYNC_FDATASYNC && x->device_flushes >= FLUSHES;
        }
        if (!counted || !volatile_cache(r))
                return;
        if (!seen) {
                r->warnings |= PROBE_WARN_FLUSHES_UNSEEN;
                return;
        }
        for (size_t i = 0; i < r->n; i++) {
                struct probe_result *x = &r->results[i];
                x->no_flush = x->error == 0 && x->counted && x->device_flushes < FLUSHES && !may_use_fua(r, x);
                if (x->no_flush)
                        r->warnings |= PROBE_WARN_NO_FLUSH;
        }
}

/* --- advice -------------------------------------------------------------------------------------------------------------------------- */

/* A method is trusted only if no measurement caught it without a flush. syncfs is no barrier by its documentation, only by habit. */
static bool trusted(const struct probe_report *r, enum sync_method m, bool direct) {
        if (m == SYNC_SYNCFS)
                return false;
        for (size_t i = 0; i < r->n; i++)
                if (r->results[i].method == m && r->results[i].direct == direct && r->results[i].no_flush)
                        return false;
        return true;
}

/* fsync and O_SYNC also bring the file's times to the disk, which nobody needs: only where the others cannot be had. */
static bool plain(const struct probe_result *x) {
        return x->method == SYNC_FDATASYNC || x->method == SYNC_OPEN_DATASYNC;
}

/* What a record costs: as counted, unless others wrote as well; then what was handed over. */
static double cost(const struct probe_report *r, const struct probe_result *x) {
        return x->counted && r->idle_bytes == 0 ? x->device_bytes : x->written;
}

/* Fewer bytes; alike within 5 %: faster by more than 10 %; then the first, which is the simpler. */
static bool better(const struct probe_report *r, const struct probe_result *a, const struct probe_result *b) {
        if (plain(a) != plain(b))
                return plain(a);
        if (cost(r, a) < cost(r, b) * 0.95)
                return true;
        return cost(r, a) <= cost(r, b) * 1.05 && a->ops_per_s > b->ops_per_s * 1.1;
}

static const struct probe_result *best(const struct probe_report *r) {
        const struct probe_result *b = NULL;
        uint32_t smallest = UINT32_MAX;
        for (size_t i = 0; i < r->n; i++)
                smallest = MIN_OF(smallest, r->results[i].record);
        for (size_t i = 0; i < r->n; i++) {
                const struct probe_result *x = &r->results[i];
                if (x->state == PROBE_ZEROED && x->record == smallest && x->error == 0 && x->ops > 0 && trusted(r, x->method, x->direct) &&
                    (!b || better(r, x, b)))
                        b = x;
        }
        return b;
}

static void judge_advice(struct probe_report *r, bool memory) {
        const struct probe_result *b = best(r);
        r->advice.level = LEVEL_FILESYSTEM;
        r->advice.method = SYNC_FDATASYNC;
        if (!b) {
                (void)snprintf(r->advice.reason, sizeof r->advice.reason,
                               "no method could be trusted in these measurements; fdatasync is what filesystems promise");
                return;
        }
        r->advice.method = b->method;
        r->advice.direct = b->direct;
        r->advice.padding = b->direct && r->rotational && r->info.physical_sector > r->info.logical_sector ? 4096 : 0;
        bool cheap =
                b->p99_us <= AFFORDABLE_P99_US && !(r->warnings & (PROBE_WARN_BTRFS | PROBE_WARN_NO_BARRIER | PROBE_WARN_DATA_JOURNAL));
        if (memory)
                r->advice.level = LEVEL_NONE;
        else if (cheap)
                r->advice.level = LEVEL_FILE;
        const char *why = memory  ? "nothing here survives a power cut anyway"
                          : cheap ? "a durable write is cheap enough for every operation"
                                  : "a durable write for every operation would be felt; once per interval is not";
        if (b->counted && r->idle_bytes == 0)
                (void)snprintf(r->advice.reason, sizeof r->advice.reason,
                               "%.0f bytes and %.2f flushes of the device per record of %u bytes, p99 %.0f us: %s", b->device_bytes,
                               b->device_flushes, b->record, b->p99_us, why);
        else
                (void)snprintf(r->advice.reason, sizeof r->advice.reason, "%.0f records of %u bytes a second, p99 %.0f us: %s",
                               b->ops_per_s, b->record, b->p99_us, why);
}

void probe_judge(struct probe_report *r) {
        static const char *const memory[] = {"tmpfs", "ramfs", NULL};
        static const char *const remote[] = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuseblk", "ceph", "glusterfs", NULL};
        bool in_memory = one_of(r->fs_type, memory), direct_works = false, direct_tried = false;
        for (size_t i = 0; i < r->n; i++) {
                direct_tried |= r->results[i].direct;
                direct_works |= r->results[i].direct && r->results[i].error == 0;
        }
        r->warnings |= strcmp(r->fs_type, "btrfs") == 0 ? PROBE_WARN_BTRFS : 0;
        r->warnings |= has_option(r->options, "data=journal") ? PROBE_WARN_DATA_JOURNAL : 0;
        r->warnings |= has_option(r->options, "nobarrier") || has_option(r->options, "barrier=0") ? PROBE_WARN_NO_BARRIER : 0;
        r->warnings |= volatile_cache(r) ? PROBE_WARN_VOLATILE_CACHE : 0;
        r->warnings |= in_memory || one_of(r->fs_type, remote) || strncmp(r->fs_type, "fuse.", 5) == 0 ? PROBE_WARN_NOT_A_DISK : 0;
        r->warnings |= r->info.block_device_found ? 0 : PROBE_WARN_NO_DEVICE;
        r->warnings |= direct_tried && !direct_works ? PROBE_WARN_NO_DIRECT : 0;
        r->warnings |= r->idle_bytes > 0 ? PROBE_WARN_BUSY : 0;
        r->warnings |= r->info.block_device_found && r->info.physical_sector > r->info.logical_sector ? PROBE_WARN_SHARED_BLOCK : 0;
        judge_flushes(r);
        judge_advice(r, in_memory);
}
