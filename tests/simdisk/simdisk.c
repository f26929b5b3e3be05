/* simdisk.c: what processes see: open files, names, faults, space; every change goes on as an event to the medium (simdisk_track.c). */
#include "simdisk_private.h"

#include <string.h>

/* --- inodes and names -------------------------------------------------------------------------------------------------------------- */
void sim_inode_drop(struct simdisk *d, struct sim_inode *i) {
        if (i->names || i->handles)
                return;
        for (guint b = 0; b < i->blocks->len; b++)
                d->used -= i->blocks->data[b] ? BLOCK : 0;
        g_byte_array_unref(i->blocks);
        free(i->data.data);
        free(i);
}

struct sim_name *sim_name_find(const struct simdisk *d, const char *path) {
        for (guint i = 0; i < d->names->len; i++) {
                struct sim_name *n = d->names->pdata[i];
                if (strcmp(n->path, path) == 0)
                        return n;
        }
        return NULL;
}

void sim_name_remove(struct simdisk *d, struct sim_name *n) {
        g_ptr_array_remove(d->names, n);
        n->inode->names--;
        sim_inode_drop(d, n->inode);
        free(n->path);
        free(n);
}

struct sim_inode *sim_name_create(struct simdisk *d, const char *path, uint64_t id) {
        struct sim_inode *i = NEW(struct sim_inode);
        i->id = id;
        i->names = 1;
        i->blocks = g_byte_array_new();
        struct sim_name *n = NEW(struct sim_name);
        n->path = xstrdup(path);
        n->inode = i;
        g_ptr_array_add(d->names, n);
        return i;
}

/* Allocates blocks for [offset, offset + n); returns how many bytes of it fit. */
uint64_t sim_blocks_take(struct simdisk *d, struct sim_inode *i, uint64_t offset, uint64_t n) {
        for (uint64_t b = offset / BLOCK; n > 0 && b <= (offset + n - 1) / BLOCK; b++) {
                if (b >= i->blocks->len) {
                        guint was = i->blocks->len;
                        g_byte_array_set_size(i->blocks, (guint)b + 1);
                        memset(i->blocks->data + was, 0, b + 1 - was);
                }
                if (i->blocks->data[b])
                        continue;
                if (d->config.capacity && d->used + BLOCK > d->config.capacity)
                        return b * BLOCK > offset ? b * BLOCK - offset : 0;
                i->blocks->data[b] = 1;
                d->used += BLOCK;
        }
        return n;
}

static void blocks_give(struct simdisk *d, struct sim_inode *i, uint64_t from, uint64_t to) {
        for (uint64_t b = (from + BLOCK - 1) / BLOCK; b < i->blocks->len && b < to / BLOCK; b++) {
                d->used -= i->blocks->data[b] ? BLOCK : 0;
                i->blocks->data[b] = 0;
        }
}

/* --- events ------------------------------------------------------------------------------------------------------------------------ */
void sim_emit(struct simdisk *d, struct event *e) {
        track_feed(d->medium, e);
        d->positions++;
        if (d->config.history)
                g_ptr_array_add(d->journal, event_ref(e));
        event_unref(e);
}

static void emit_names(struct simdisk *d, enum event_kind kind, uint64_t inode, const char *path, const char *path2) {
        struct event *e = event_new(kind, inode);
        e->path = xstrdup(path);
        e->path2 = path2 ? xstrdup(path2) : NULL;
        sim_emit(d, e);
}

/* The sectors of [from, to) as they are now. */
void sim_emit_write(struct simdisk *d, const struct sim_inode *i, uint64_t from, uint64_t to, bool zeros, uint64_t size_before) {
        uint64_t sector = d->config.sector, end = to > from ? (to + sector - 1) / sector * sector : from;
        struct event *e = event_new(EVENT_WRITE, i->id);
        e->offset = from / sector * sector;
        e->len = to > from ? end - e->offset : 0;
        e->size_changed = i->data.size != size_before;
        e->size_after = i->data.size;
        e->end = MIN_OF(to, i->data.size);
        if (e->len && !zeros) {
                uint64_t have = i->data.size > e->offset ? MIN_OF(e->len, i->data.size - e->offset) : 0;
                e->data = xmalloc(e->len);
                if (have)
                        memcpy(e->data, i->data.data + e->offset, have);
                memset(e->data + have, 0, e->len - have);
        }
        sim_emit(d, e);
}

/* --- faults ------------------------------------------------------------------------------------------------------------------------ */
static errint_t fault_check(struct simdisk *d, unsigned kind, const char *path) {
        d->calls[__builtin_ctz(kind)]++;
        if (!(d->fault.kinds & kind) || (d->fault_path && !strstr(path, d->fault_path)))
                return 0;
        d->fault_seen++;
        if (d->fault_seen != d->fault.nth && !(d->fault.sticky && d->fault_seen > d->fault.nth))
                return 0;
        d->fault_hits++;
        return d->fault.error;
}

/* --- disk_ops on paths -------------------------------------------------------------------------------------------------------------- */
static struct simdisk *of_disk(struct disk *d) {
        return CONTAINER_OF(d, struct simdisk, base);
}

static errint_t sim_open(struct disk *disk, const char *path, unsigned flags, struct disk_file **ret) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_OPEN, path);
        if (r < 0)
                return r;
        struct sim_name *n = sim_name_find(d, path);
        if (!n && !(flags & DISK_CREATE))
                return -ENOENT;
        if (n && (flags & DISK_CREATE) && (flags & DISK_EXCL))
                return -EEXIST;
        struct sim_inode *i = n ? n->inode : NULL;
        if (!i) {
                i = sim_name_create(d, path, d->next_inode++);
                emit_names(d, EVENT_CREATE, i->id, path, NULL);
        }
        if ((flags & DISK_DIRECT) && d->config.refuse_direct)
                return -EINVAL; /* with the file created, as Linux does it */
        struct sim_file *f = NEW(struct sim_file);
        f->base.ops = &sim_ops;
        f->disk = d;
        f->inode = i;
        f->path = xstrdup(path);
        f->flags = flags;
        i->handles++;
        g_ptr_array_add(d->files, f);
        *ret = &f->base;
        return 0;
}

static errint_t sim_unlink(struct disk *disk, const char *path) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_UNLINK, path);
        if (r < 0)
                return r;
        struct sim_name *n = sim_name_find(d, path);
        if (!n)
                return -ENOENT;
        emit_names(d, EVENT_UNLINK, 0, path, NULL);
        sim_name_remove(d, n);
        return 0;
}

static errint_t sim_rename(struct disk *disk, const char *from, const char *to) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_RENAME, from);
        if (r < 0)
                return r;
        struct sim_name *n = sim_name_find(d, from), *old = sim_name_find(d, to);
        if (!n)
                return -ENOENT;
        if (n == old)
                return 0;
        emit_names(d, EVENT_RENAME, 0, from, to);
        if (old)
                sim_name_remove(d, old);
        free(n->path);
        n->path = xstrdup(to);
        return 0;
}

static errint_t sim_exists(struct disk *disk, const char *path, bool *ret) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_QUERY, path);
        if (r < 0)
                return r;
        *ret = sim_name_find(d, path) != NULL;
        return 0;
}

static errint_t sim_sync_dir(struct disk *disk, const char *path) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_SYNC_DIR, path);
        if (r < 0)
                return r;
        const char *slash = strrchr(path, '/');
        cleanup_free char *dir = xstrdup(path);
        dir[slash ? slash + 1 - path : 0] = '\0';
        emit_names(d, EVENT_SYNC_DIR, 0, dir, NULL);
        return 0;
}

static errint_t sim_info(struct disk *disk, const char *path, struct disk_info *ret) {
        LOCKED(d, of_disk(disk));
        errint_t r = fault_check(d, SIMDISK_QUERY, path);
        if (r < 0)
                return r;
        uint64_t size = d->config.capacity ? d->config.capacity : (uint64_t)1 << 40;
        *ret = (struct disk_info){.fs_size = size,
                                  .fs_free = size > d->used ? size - d->used : 0,
                                  .logical_sector = d->config.sector,
                                  .physical_sector = 4096,
                                  .fs_type = "sim",
                                  .block_device_found = true};
        return 0;
}

/* --- disk_ops on files -------------------------------------------------------------------------------------------------------------- */
static struct sim_file *of_file(struct disk_file *f) {
        return CONTAINER_OF(f, struct sim_file, base);
}

static void unlock_file(struct sim_file *f) {
        if (!f->locked)
                return;
        if (f->flags & DISK_READ_ONLY)
                f->inode->locks_shared--;
        else
                f->inode->locked = false;
        f->locked = false;
}

void sim_file_detach(struct simdisk *d, struct sim_file *f) {
        unlock_file(f);
        g_ptr_array_remove(d->files, f);
        f->inode->handles--;
        sim_inode_drop(d, f->inode);
        f->inode = NULL;
        f->disk = NULL;
}

static void sim_close(struct disk_file *file) {
        struct sim_file *f = of_file(file);
        if (f->disk) {
                LOCKED(d, f->disk);
                sim_file_detach(d, f);
        }
        free(f->path);
        free(f);
}

static bool misaligned(const struct sim_file *f, const void *p, size_t n, uint64_t offset) {
        return (f->flags & DISK_DIRECT) && ((uintptr_t)p | n | offset) % f->disk->config.sector != 0;
}

static errint_t sim_pread(struct disk_file *file, void *buf, size_t n, uint64_t offset, size_t *ret_n) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_READ, f->path);
        if (r < 0)
                return r;
        if (misaligned(f, buf, n, offset))
                return -EINVAL;
        const struct image *im = &f->inode->data;
        size_t got = offset >= im->size ? 0 : MIN_OF(n, im->size - offset);
        if (got)
                memcpy(buf, im->data + offset, got);
        *ret_n = got;
        return 0;
}

static void count_written(struct simdisk *d, const char *path, uint64_t n) {
        for (guint i = 0; i < d->written->len; i++) {
                struct written *w = d->written->pdata[i];
                if (strcmp(w->path, path) == 0) {
                        w->bytes += n;
                        return;
                }
        }
        struct written *w = NEW(struct written);
        w->path = xstrdup(path);
        w->bytes = n;
        g_ptr_array_add(d->written, w);
}

static errint_t sim_pwritev(struct disk_file *file, const struct iovec *iov, int n_iov, uint64_t offset) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        if (f->flags & DISK_READ_ONLY)
                return -EBADF;
        uint64_t n = 0;
        for (int i = 0; i < n_iov; i++) {
                if (misaligned(f, iov[i].iov_base, iov[i].iov_len, offset + n))
                        return -EINVAL;
                n += iov[i].iov_len;
        }
        if (d->watch)
                d->watch(d->watch_ctx, f->path, offset, n, f->flags & DISK_DIRECT);
        uint64_t take = n;
        errint_t r = fault_check(d, SIMDISK_WRITE, f->path);
        if (r < 0) { /* nothing, some leading sectors, or all of it */
                uint64_t draw = sim_random(&d->random), sector = d->config.sector;
                take = draw % 3 == 0 ? 0 : draw % 3 == 1 ? n : MIN_OF(n, (draw >> 8) % (n / sector + 1) * sector);
        }
        uint64_t fits = sim_blocks_take(d, f->inode, offset, take);
        if (fits < take) {
                take = fits;
                r = r < 0 ? r : -ENOSPC;
        }
        if (take == 0)
                return r;
        uint64_t size_before = f->inode->data.size, at = offset, left = take;
        if (offset + take > size_before)
                image_resize(&f->inode->data, offset + take);
        for (int i = 0; i < n_iov && left > 0; i++) {
                uint64_t part = MIN_OF(left, iov[i].iov_len);
                if (part)
                        memcpy(f->inode->data.data + at, iov[i].iov_base, part);
                at += part;
                left -= part;
        }
        count_written(d, f->path, take);
        sim_emit_write(d, f->inode, offset, offset + take, false, size_before);
        if (r == 0 && (f->flags & (DISK_DSYNC | DISK_SYNC)))
                sim_emit(d, event_new(EVENT_DSYNC, f->inode->id));
        return r;
}

static errint_t sim_sync(struct disk_file *file, enum sync_method method) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        if (method != SYNC_FDATASYNC && method != SYNC_FSYNC && method != SYNC_SYNCFS)
                return -EINVAL;
        errint_t r = fault_check(d, SIMDISK_SYNC, f->path);
        if (r < 0) {
                struct event *e = event_new(EVENT_SYNC_LOST, f->inode->id);
                e->seed = sim_random(&d->random);
                sim_emit(d, e);
                return r;
        }
        if (method != SYNC_SYNCFS)
                sim_emit(d, event_new(EVENT_SYNC, f->inode->id));
        else if (!d->config.syncfs_no_barrier)
                sim_emit(d, event_new(EVENT_SYNCFS, 0));
        return 0;
}

static errint_t sim_allocate(struct disk_file *file, uint64_t offset, uint64_t n) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_ALLOCATE, f->path);
        if (r < 0)
                return r;
        if (f->flags & DISK_READ_ONLY)
                return -EBADF;
        if (sim_blocks_take(d, f->inode, offset, n) < n)
                return -ENOSPC; /* what was taken stays, as on most filesystems */
        uint64_t size_before = f->inode->data.size;
        if (offset + n > size_before) {
                image_resize(&f->inode->data, offset + n);
                sim_emit_write(d, f->inode, 0, 0, true, size_before);
        }
        return 0;
}

static errint_t sim_punch(struct disk_file *file, uint64_t offset, uint64_t n) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_PUNCH, f->path);
        if (r < 0)
                return r;
        if (f->flags & DISK_READ_ONLY)
                return -EBADF;
        struct image *im = &f->inode->data;
        if (n == 0 || offset >= im->size)
                return 0;
        n = MIN_OF(n, im->size - offset);
        memset(im->data + offset, 0, n);
        blocks_give(d, f->inode, offset, offset + n);
        sim_emit_write(d, f->inode, offset, offset + n, false, im->size);
        return 0;
}

static errint_t sim_truncate(struct disk_file *file, uint64_t size) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_TRUNCATE, f->path);
        if (r < 0)
                return r;
        if (f->flags & DISK_READ_ONLY)
                return -EBADF;
        struct image *im = &f->inode->data;
        uint64_t before = im->size, sector = d->config.sector, cut = (size + sector - 1) / sector * sector;
        image_resize(im, size);
        if (size < before) {
                blocks_give(d, f->inode, size, UINT64_MAX);
                if (size % sector) /* the rest of the last sector reads as zeros if the file grows again */
                        sim_emit_write(d, f->inode, size / sector * sector, size, false, size);
                sim_emit_write(d, f->inode, cut, MAX_OF(before, cut), true, before);
        } else if (size > before) {
                sim_emit_write(d, f->inode, 0, 0, true, before);
        }
        return 0;
}

static errint_t sim_size(struct disk_file *file, uint64_t *ret) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_QUERY, f->path);
        if (r < 0)
                return r;
        *ret = f->inode->data.size;
        return 0;
}

static errint_t sim_lock(struct disk_file *file) {
        struct sim_file *f = of_file(file);
        if (!f->disk)
                return -EIO;
        LOCKED(d, f->disk);
        errint_t r = fault_check(d, SIMDISK_LOCK, f->path);
        if (r < 0)
                return r;
        if (f->locked)
                return 0;
        bool shared = f->flags & DISK_READ_ONLY;
        if (f->inode->locked || (!shared && f->inode->locks_shared))
                return -EBUSY;
        if (shared)
                f->inode->locks_shared++;
        else
                f->inode->locked = true;
        f->locked = true;
        return 0;
}

const struct disk_ops sim_ops = {
        .open = sim_open,
        .unlink = sim_unlink,
        .rename = sim_rename,
        .exists = sim_exists,
        .sync_dir = sim_sync_dir,
        .info = sim_info,
        .close = sim_close,
        .pread = sim_pread,
        .pwritev = sim_pwritev,
        .sync = sim_sync,
        .allocate = sim_allocate,
        .punch = sim_punch,
        .truncate = sim_truncate,
        .size = sim_size,
        .lock = sim_lock,
};
