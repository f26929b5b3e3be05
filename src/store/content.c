/* content.c: the content file: opening, writing, reading, flushing. Its header, one unit:
 *
 *   "CoterieC"  u32 version (1)  16 bytes id of the database  u32 CRC-32C of what is before it; zeros to 4096
 *
 * Everything behind it belongs to whom the home and the log say. What is not used of the last unit of an extent is zeros. */
#include "content_private.h"

#include "base/codec.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include <string.h>

#define HEADER_SIZE 32u
#define VERSION     1u
#define BOUNCE      (1 * MIB) /* O_DIRECT wants aligned memory; divides into units */
static const uint8_t magic[8] = "CoterieC";

static uint8_t *aligned(size_t n) {
        void *p = NULL;
        int r = posix_memalign(&p, CONTENT_UNIT, n);
        PRE(r == 0); /* at most BOUNCE */
        return p;
}

/* --- opening ---------------------------------------------------------------------------------------------------------------------------
 */
static void header_encode(uint8_t *out, const uint8_t id[OPLOG_ID_SIZE]) {
        struct enc e;
        enc_init(&e, HEADER_SIZE);
        enc_raw(&e, magic, sizeof magic);
        enc_u32(&e, VERSION);
        enc_raw(&e, id, OPLOG_ID_SIZE);
        enc_u32(&e, crc32c(0, e.data, e.len));
        POST(e.err == 0 && e.len == HEADER_SIZE);
        memcpy(out, e.data, HEADER_SIZE);
        enc_done(&e);
}

static errint_t header_check(struct disk_file *f, const uint8_t id[OPLOG_ID_SIZE]) {
        uint8_t in[HEADER_SIZE], want[HEADER_SIZE];
        size_t got;
        errint_t r = disk_pread(f, in, sizeof in, 0, &got);
        if (r < 0)
                return r;
        if (got < sizeof in || memcmp(in, magic, sizeof magic) != 0)
                return -EBADMSG;
        header_encode(want, id);
        if (memcmp(in, want, sizeof in) == 0)
                return 0;
        header_encode(want, in + sizeof magic + 4); /* sound, but with its own id? */
        return memcmp(in, want, sizeof in) == 0 ? -EXDEV : -EBADMSG;
}

static errint_t create_file(struct disk *disk, const char *path, const uint8_t id[OPLOG_ID_SIZE], struct metrics *m) {
        CLEANUP(disk_closep) struct disk_file *f = NULL;
        bool made = true;
        uint64_t size = 0;
        errint_t r = disk_open(disk, path, DISK_CREATE | DISK_EXCL, &f);
        if (r == -EEXIST) {
                made = false;
                r = disk_open(disk, path, 0, &f);
                if (r == 0)
                        r = f->ops->size(f, &size);
                if (r == 0 && size > CONTENT_UNIT)
                        r = -EEXIST;
        }
        if (r < 0)
                return r;
        cleanup_free uint8_t *page = aligned(CONTENT_UNIT);
        memset(page, 0, CONTENT_UNIT);
        header_encode(page, id);
        r = failpoint("store.content.write");
        if (r == 0)
                r = disk_pwrite(f, page, CONTENT_UNIT, 0);
        if (r == 0)
                r = disk_sync(f, SYNC_FSYNC);
        if (r == 0)
                r = disk->ops->sync_dir(disk, path);
        if (r == 0 && m) {
                metric_add(m, METRIC_CONTENT_BYTES, CONTENT_UNIT);
                metric_add(m, METRIC_CONTENT_FLUSHES, 1);
        }
        if (r < 0 && made)
                (void)disk->ops->unlink(disk, path); /* the first error counts; a rest is taken over next time */
        return r;
}

static errint_t open_file(struct content *c, const uint8_t id[OPLOG_ID_SIZE], bool created) {
        struct disk_info info = {0};
        uint64_t size = 0;
        errint_t r = disk_open(c->disk, c->path, c->read_only ? DISK_READ_ONLY : DISK_UNTIMED, &c->file);
        if (r == 0 && id)
                r = header_check(c->file, id);
        if (r == 0)
                r = c->file->ops->size(c->file, &size);
        if (r == 0)
                r = c->disk->ops->info(c->disk, c->path, &info);
        /* What a killed daemon wrote may be in the page cache only; what replay is about to find must stay. */
        if (r == 0 && !c->read_only && !created)
                r = disk_sync(c->file, SYNC_FDATASYNC);
        if (r < 0)
                return r;
        c->sector = info.logical_sector;
        c->direct_refused = c->sector > CONTENT_UNIT;
        map_grow(&c->map, size / CONTENT_UNIT);
        if (c->map.total > 0)
                map_take(&c->map, 0, 1); /* the header */
        return 0;
}

errint_t content_open(struct disk *disk, const char *path, const uint8_t id[OPLOG_ID_SIZE], bool create, bool read_only, struct metrics *m,
                      struct content **ret) {
        PRE(!(create && read_only) && (id || read_only));
        errint_t r = create ? create_file(disk, path, id, m) : 0;
        if (r < 0)
                return r;
        struct content *c = NEW(struct content);
        c->disk = disk;
        c->metrics = m;
        c->path = xstrdup(path);
        c->read_only = read_only;
        (void)pthread_mutex_init(&c->growing, NULL);
        (void)pthread_mutex_init(&c->flushing, NULL);
        (void)pthread_mutex_init(&c->lock, NULL);
        map_init(&c->map);
        c->dead = g_array_new(FALSE, FALSE, sizeof(struct content_dead));
        r = open_file(c, id, create);
        if (r < 0) {
                content_close(c);
                return r;
        }
        *ret = c;
        return 0;
}

void content_close(struct content *c) {
        if (!c)
                return;
        disk_close(c->direct);
        disk_close(c->file);
        free(c->bounce);
        map_done(&c->map);
        g_array_unref(c->dead);
        (void)pthread_mutex_destroy(&c->growing);
        (void)pthread_mutex_destroy(&c->flushing);
        (void)pthread_mutex_destroy(&c->lock);
        free(c->path);
        free(c);
}

/* --- writing ---------------------------------------------------------------------------------------------------------------------------
 */

/* The O_DIRECT descriptor; NULL where the filesystem refuses it (the log has said so in its line). */
static errint_t direct_file(struct content *c, struct disk_file **ret) {
        HOLD(&c->growing);
        if (!c->direct && !c->direct_refused) {
                struct disk_file *f = NULL;
                cleanup_free uint8_t *probe = aligned(CONTENT_UNIT);
                size_t got;
                errint_t r = disk_open(c->disk, c->path, DISK_DIRECT | DISK_UNTIMED, &f);
                if (r == 0) /* some refuse only the transfer */
                        r = disk_pread(f, probe, c->sector, 0, &got);
                if (r < 0)
                        disk_close(f);
                if (r < 0 && r != -EINVAL)
                        return r;
                c->direct = r == 0 ? f : NULL;
                c->direct_refused = r < 0;
        }
        *ret = c->direct;
        return 0;
}

/* Whole pages, so that the kernel need not read the rest of the last one first. */
static errint_t write_cached(struct content *c, const struct oplog_extent *e, const uint8_t *p) {
        static const uint8_t zeros[CONTENT_UNIT];
        size_t pad = (CONTENT_UNIT - e->length % CONTENT_UNIT) % CONTENT_UNIT;
        const struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)p, .iov_len = e->length},
                                     {.iov_base = (void *)(uintptr_t)zeros, .iov_len = pad}};
        content_count(c, METRIC_CONTENT_BYTES, e->length + pad);
        return disk_pwritev(c->file, iov, pad ? 2 : 1, e->offset);
}

static uint8_t *bounce_take(struct content *c) {
        uint8_t *buf = NULL;
        {
                HOLD(&c->lock);
                buf = steal_pointer(&c->bounce);
        }
        return buf ? buf : aligned(BOUNCE);
}
static void bounce_give(struct content *c, uint8_t *buf) {
        HOLD(&c->lock);
        free(c->bounce); /* two writers: one is enough to keep */
        c->bounce = buf;
}

/* Whole sectors. */
static errint_t write_direct(struct content *c, struct disk_file *f, const struct oplog_extent *e, const uint8_t *p) {
        uint8_t *buf = bounce_take(c);
        errint_t r = 0;
        for (size_t at = 0; r == 0 && at < e->length;) {
                size_t n = MIN_OF(BOUNCE, e->length - at), whole = (n + c->sector - 1) / c->sector * c->sector;
                memcpy(buf, p + at, n);
                memset(buf + n, 0, whole - n);
                content_count(c, METRIC_CONTENT_BYTES, whole);
                r = disk_pwrite(f, buf, whole, e->offset + at);
                at += n;
        }
        bounce_give(c, buf);
        return r;
}

static void set_dirty(struct content *c) {
        HOLD(&c->lock);
        c->dirty = true;
}

errint_t content_write(struct content *c, const void *p, size_t n, bool direct, struct oplog_extent **ret_extents, size_t *ret_n) {
        PRE(!c->read_only && n > 0 && n <= OP_PAYLOAD_MAX + MIB); /* a length in an extent has 32 bits */
        struct disk_file *f = NULL;
        cleanup_free struct oplog_extent *e = NULL;
        size_t n_extents;
        errint_t r = direct ? direct_file(c, &f) : 0;
        if (r == 0)
                r = content_allocate(c, n, &e, &n_extents);
        if (r < 0)
                return r;
        r = failpoint("store.content.write");
        const uint8_t *from = p;
        for (size_t i = 0; r == 0 && i < n_extents; i++) {
                r = f ? write_direct(c, f, &e[i], from) : write_cached(c, &e[i], from);
                from += e[i].length;
        }
        set_dirty(c); /* after the writes: a flush that began meanwhile does not cover them for certain */
        if (r < 0) {
                content_count(c, METRIC_STORE_ERRORS, 1);
                content_give_back(c, e, n_extents);
                return r;
        }
        *ret_extents = steal_pointer(&e);
        *ret_n = n_extents;
        return 0;
}

/* --- reading and flushing ----------------------------------------------------------------------------------------------------------------
 */
errint_t content_read(struct content *c, const struct oplog_extent *e, size_t n, void *buf, size_t len, uint32_t crc) {
        uint8_t *to = buf;
        size_t left = len, got;
        for (size_t i = 0; i < n; i++) {
                if (e[i].length > left)
                        return -EBADMSG;
                errint_t r = disk_pread(c->file, to, e[i].length, e[i].offset, &got);
                if (r < 0) {
                        content_count(c, METRIC_STORE_ERRORS, 1);
                        return r;
                }
                if (got < e[i].length)
                        return -EBADMSG;
                to += got;
                left -= got;
        }
        return left == 0 && crc32c(0, buf, len) == crc ? 0 : -EBADMSG;
}

errint_t content_write_again(struct content *c, const struct oplog_extent *e, size_t n, const void *p, size_t len) {
        const uint8_t *from = p;
        PRE(!c->read_only);
        for (size_t i = 0; i < n; i++) {
                PRE(e[i].length <= len - (size_t)(from - (const uint8_t *)p));
                errint_t r = write_cached(c, &e[i], from);
                if (r < 0) {
                        content_count(c, METRIC_STORE_ERRORS, 1);
                        return r;
                }
                from += e[i].length;
        }
        set_dirty(c);
        return 0;
}

errint_t content_flush(struct content *c) {
        HOLD(&c->flushing);
        (void)pthread_mutex_lock(&c->lock);
        bool dirty = c->dirty;
        c->dirty = false;
        (void)pthread_mutex_unlock(&c->lock);
        if (!dirty)
                return 0;
        errint_t r = failpoint("store.content.flush");
        if (r == 0)
                r = disk_sync(c->file, SYNC_FDATASYNC);
        content_count(c, METRIC_CONTENT_FLUSHES, 1);
        if (r < 0) {
                content_count(c, METRIC_STORE_ERRORS, 1);
                set_dirty(c);
        }
        return r;
}
