/* oplog_file.c: the log's file: creation with zeros, opening, descriptors for each level and method. */
#include "oplog_private.h"

#include "base/env.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <string.h>

#define FILL_STEP (1 * MIB)

static uint8_t *page_alloc(size_t n) {
        void *p = NULL;
        int r = posix_memalign(&p, OPLOG_PAGE, n);
        PRE(r == 0); /* at most FILL_STEP */
        memset(p, 0, n);
        return p;
}

/* --- creation ------------------------------------------------------------------------------------------------------------------------ */

/* An interrupted creation, or a log that never had a record: nothing in it can be missed. */
static errint_t never_used(struct disk_file *f, bool *ret) {
        uint64_t size;
        errint_t r = f->ops->size(f, &size);
        if (r < 0)
                return r;
        cleanup_free uint8_t *buf = page_alloc(FILL_STEP);
        for (uint64_t at = OPLOG_PAGE; at < size;) {
                size_t got;
                r = disk_pread(f, buf, FILL_STEP, at, &got);
                if (r < 0)
                        return r;
                if (got == 0)
                        break;
                if (buf[0] != 0 || memcmp(buf, buf + 1, got - 1) != 0) {
                        *ret = false;
                        return 0;
                }
                at += got;
        }
        *ret = true;
        return 0;
}

/* Zeros first, durably; the header only then, so that a header means a whole file. */
static errint_t fill(struct disk_file *f, const struct oplog_config *config) {
        uint64_t total = OPLOG_PAGE + config->size, step;
        cleanup_free uint8_t *buf = page_alloc(FILL_STEP);
        errint_t r = f->ops->truncate(f, 0);
        for (uint64_t at = 0; r == 0 && at < total; at += step) {
                step = MIN_OF(FILL_STEP, total - at);
                r = failpoint("store.log.write");
                if (r == 0)
                        r = disk_pwrite(f, buf, step, at);
        }
        if (r == 0)
                r = disk_sync(f, SYNC_FSYNC);
        if (r < 0)
                return r;
        oplog_header_encode(buf, config->id, config->size);
        r = disk_pwrite(f, buf, OPLOG_PAGE, 0);
        if (r == 0)
                r = disk_sync(f, SYNC_FSYNC);
        if (r == 0 && config->metrics) {
                metric_add(config->metrics, METRIC_LOG_BYTES, total + OPLOG_PAGE);
                metric_add(config->metrics, METRIC_LOG_FLUSHES, 2);
        }
        return r;
}

static errint_t create_file(const struct oplog_config *config) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        bool unused = true, made = true;
        errint_t r = disk_open(config->disk, config->path, DISK_CREATE | DISK_EXCL, &f);
        if (r == -EEXIST) {
                made = false;
                r = disk_open(config->disk, config->path, 0, &f);
                if (r == 0)
                        r = never_used(f, &unused);
                if (r == 0 && !unused)
                        r = -EEXIST;
        }
        if (r < 0)
                return r;
        r = fill(f, config);
        if (r == 0)
                r = config->disk->ops->sync_dir(config->disk, config->path);
        if (r < 0 && made)
                (void)config->disk->ops->unlink(config->disk, config->path); /* the first error counts; a rest is taken over next time */
        return r;
}

/* --- descriptors --------------------------------------------------------------------------------------------------------------------- */

/* O_DIRECT is granted at open by filesystems that refuse it at the first transfer: one read of the smallest unit tells. */
static errint_t open_direct(struct oplog *l, unsigned flags, uint32_t unit, struct disk_file **ret) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        errint_t r = disk_open(l->disk, l->path, flags | DISK_DIRECT, &f);
        if (r < 0)
                return r;
        cleanup_free uint8_t *buf = page_alloc(OPLOG_PAGE);
        size_t got;
        r = disk_pread(f, buf, unit, unit, &got);
        if (r < 0)
                return r;
        *ret = steal_pointer(&f);
        return 0;
}

/* What no filesystem could make work. `path` need not exist. */
static errint_t check_method(struct disk *disk, const char *path, enum sync_level level, enum sync_method method, bool direct,
                             uint32_t padding, struct disk_info *ret) {
        if ((unsigned)level > LEVEL_FILE || (unsigned)method > SYNC_SYNCFS)
                return -EINVAL;
        if (padding && ((padding & (padding - 1)) || padding < OPLOG_SECTOR || padding > OPLOG_PAGE))
                return -EINVAL;
        errint_t r = disk->ops->info(disk, path, ret);
        if (r < 0)
                return r;
        return direct && padding && padding < ret->logical_sector ? -EINVAL : 0;
}

errint_t oplog_writer_open(struct oplog *l, enum sync_level level, enum sync_method method, bool direct, uint32_t padding,
                           struct oplog_writer *ret) {
        struct disk_info info;
        struct oplog_writer w = {.unit = OPLOG_PAGE};
        errint_t r = check_method(l->disk, l->path, level, method, direct, padding, &info);
        if (r < 0)
                return r;
        unsigned flags = DISK_UNTIMED;
        if (level == LEVEL_FILE)
                flags |= method == SYNC_OPEN_DATASYNC ? DISK_DSYNC : method == SYNC_OPEN_SYNC ? DISK_SYNC : 0;
        if (direct && level == LEVEL_FILE) {
                uint32_t unit = padding ? padding : info.logical_sector;
                r = unit <= OPLOG_PAGE ? open_direct(l, flags, unit, &w.file) : -EINVAL;
                if (r == 0) {
                        w.direct = true;
                        w.unit = unit;
                } else if (r != -EINVAL) {
                        return r;
                } else {
                        log_notice("operation log: %s refuses O_DIRECT; going through the page cache, %u bytes a write", info.fs_type,
                                   OPLOG_PAGE);
                }
        }
        if (!w.file)
                r = disk_open(l->disk, l->path, flags, &w.file);
        if (r < 0)
                return r;
        *ret = w;
        return 0;
}

static errint_t check_header(struct oplog *l, const struct oplog_config *config) {
        uint8_t header[OPLOG_HEADER_SIZE], id[OPLOG_ID_SIZE];
        uint64_t file_size = 0, size;
        size_t got = 0;
        errint_t r = l->reader->ops->size(l->reader, &file_size);
        if (r == 0)
                r = disk_pread(l->reader, header, sizeof header, 0, &got);
        if (r < 0)
                return r;
        if (got < sizeof header || oplog_header_decode(header, id, &size) < 0)
                return -EBADMSG;
        if (memcmp(id, config->id, sizeof id) != 0)
                return -EXDEV;
        return size == config->size && (config->any_size || file_size == OPLOG_PAGE + size) ? 0 : -EBADMSG;
}

errint_t oplog_open(const struct oplog_config *config, bool create, struct oplog **ret) {
        if (config->size < OPLOG_SIZE_MIN || config->size > OPLOG_SIZE_MAX || config->size % (2 * OPLOG_PAGE) != 0)
                return -EINVAL;
        PRE(!(create && config->read_only));
        struct disk_info info;
        errint_t r = check_method(config->disk, config->path, config->level, config->method, config->direct, config->padding, &info);
        if (r == 0 && create)
                r = create_file(config);
        if (r < 0)
                return r;
        struct oplog *l = NEW(struct oplog);
        l->disk = config->disk;
        l->metrics = config->metrics;
        l->path = xstrdup(config->path);
        l->read_only = config->read_only;
        l->half_size = config->size / 2;
        l->life = config->life ? config->life : env_random64(env_system());
        l->level = config->level;
        l->method = config->method;
        l->unit = OPLOG_PAGE;
        (void)pthread_mutex_init(&l->flushing, NULL);
        (void)pthread_mutex_init(&l->writing, NULL);
        (void)pthread_mutex_init(&l->lock, NULL);
        enc_init(&l->front, OPLOG_RECORD_MAX);
        r = disk_open(l->disk, l->path, DISK_READ_ONLY, &l->reader);
        if (r == 0)
                r = check_header(l, config);
        if (r == 0 && !l->read_only) {
                struct oplog_writer w;
                r = oplog_writer_open(l, config->level, config->method, config->direct, config->padding, &w);
                if (r == 0) {
                        l->writer = w.file;
                        l->direct = w.direct;
                        l->unit = w.unit;
                        /* What a killed daemon wrote may be in the page cache only; what replay is about to give must stay. */
                        r = create ? 0 : disk_sync(l->writer, SYNC_FDATASYNC);
                }
        }
        if (r < 0) {
                oplog_close(l);
                return r;
        }
        *ret = l;
        return 0;
}

errint_t oplog_write_again(struct oplog *l, unsigned half, uint64_t end) {
        cleanup_free uint8_t *page = page_alloc(OPLOG_PAGE);
        errint_t r = 0;
        PRE(end <= l->half_size && !l->read_only);
        for (uint64_t at = 0; r == 0 && at < end; at += OPLOG_PAGE) {
                size_t got = 0;
                r = disk_pread(l->reader, page, OPLOG_PAGE, oplog_half_at(l, half) + at, &got);
                if (r == 0)
                        r = got == OPLOG_PAGE ? disk_pwrite(l->writer, page, OPLOG_PAGE, oplog_half_at(l, half) + at) : -EBADMSG;
        }
        if (r < 0)
                return r;
        if (l->metrics) {
                metric_add(l->metrics, METRIC_LOG_BYTES, (end + OPLOG_PAGE - 1) / OPLOG_PAGE * OPLOG_PAGE);
                metric_add(l->metrics, METRIC_LOG_FLUSHES, 1);
        }
        return disk_sync(l->writer, SYNC_FDATASYNC);
}

void oplog_close(struct oplog *l) {
        if (!l)
                return;
        disk_close(l->writer);
        disk_close(l->reader);
        free(l->pending.data);
        free(l->inflight.data);
        free(l->parked.data);
        free(l->spare.data);
        free(l->marks[0]);
        free(l->marks[1]);
        enc_done(&l->front);
        (void)pthread_mutex_destroy(&l->flushing);
        (void)pthread_mutex_destroy(&l->writing);
        (void)pthread_mutex_destroy(&l->lock);
        free(l->path);
        free(l);
}
