/* vfs.c: see vfs.h. */
#include "vfs.h"

#include <glib.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define BLOCK      4096u
#define CACHE_PAGE 4096u /* what the kernel writes back at least */

/* What a file became in memory, over what the disk has. Blocks start as copies of the disk's. */
struct layer {
        char *path;         /* NULL: a temporary file */
        GHashTable *blocks; /* block number -> uint8_t[BLOCK] */
        uint64_t size;
        bool deleted;
        struct layer *next;
};
struct vfs {
        sqlite3_vfs base; /* pAppData is the struct itself */
        char name[40];
        struct disk *disk;
        struct metrics *metrics;
        bool frozen;
        bool keep; /* the next close of the database keeps the locked file for the next open */
        struct disk_file *kept;
        errint_t error;
        struct layer *layers;
};
struct vfs_file {
        sqlite3_file base;
        struct vfs *vfs;
        struct disk_file *file; /* NULL: a temporary file, or one that exists only in memory */
        struct layer *layer;    /* NULL: everything goes to the disk */
        char *path;
        uint64_t counted; /* behind the last page that was counted since the last flush; 0: none */
        bool sync_dir;    /* created, and the directory was not flushed since */
        bool database;
};

static struct vfs *vfs_of(sqlite3_vfs *base) {
        return base->pAppData;
}
static struct vfs_file *file_of(sqlite3_file *base) {
        return (struct vfs_file *)(void *)base;
}
static sqlite3_vfs *os_vfs(void) {
        return sqlite3_vfs_find(NULL);
}

static int fail(struct vfs *v, errint_t error, int code) {
        if (v->error == 0)
                v->error = error;
        metric_add(v->metrics, METRIC_STORE_ERRORS, 1);
        return error == -ENOSPC || error == -EDQUOT ? SQLITE_FULL : code;
}

/* --- layers --- */

static struct layer *layer_new(const char *path, uint64_t size) {
        struct layer *l = NEW(struct layer);
        l->path = path ? xstrdup(path) : NULL;
        l->blocks = g_hash_table_new_full(g_int64_hash, g_int64_equal, free, free);
        l->size = size;
        return l;
}
static void layer_free(struct layer *l) {
        g_hash_table_destroy(l->blocks);
        free(l->path);
        free(l);
}
static struct layer *layer_find(const struct vfs *v, const char *path) {
        for (struct layer *l = v->layers; l; l = l->next)
                if (strcmp(l->path, path) == 0)
                        return l;
        return NULL;
}

/* The layer of a file of a frozen VFS. It outlives the file: SQLite closes and opens again what it believes to have changed. */
static errint_t layer_get(struct vfs_file *f, struct layer **ret) {
        struct layer *l = layer_find(f->vfs, f->path);
        if (!l) {
                uint64_t size = 0;
                errint_t r = f->file ? f->file->ops->size(f->file, &size) : 0;
                if (r < 0)
                        return r;
                l = layer_new(f->path, size);
                l->next = f->vfs->layers;
                f->vfs->layers = l;
        }
        *ret = l;
        return 0;
}

static errint_t layer_block(struct vfs_file *f, uint64_t index, bool create, uint8_t **ret) {
        uint8_t *block = g_hash_table_lookup(f->layer->blocks, &index);
        if (!block && create) {
                cleanup_free uint8_t *fresh = xcalloc(1, BLOCK);
                size_t got = 0;
                if (f->file) {
                        errint_t r = disk_pread(f->file, fresh, BLOCK, index * BLOCK, &got);
                        if (r < 0)
                                return r;
                }
                uint64_t *key = NEW(uint64_t);
                *key = index;
                block = steal_pointer(&fresh);
                g_hash_table_insert(f->layer->blocks, key, block);
        }
        *ret = block;
        return 0;
}

static errint_t layer_read(struct vfs_file *f, uint8_t *buf, size_t n, uint64_t offset, size_t *ret_n) {
        size_t want = offset >= f->layer->size ? 0 : (size_t)MIN_OF((uint64_t)n, f->layer->size - offset), done = 0;
        while (done < want) {
                uint64_t at = offset + done, index = at / BLOCK;
                size_t in = (size_t)(at % BLOCK), len = MIN_OF(BLOCK - in, want - done);
                uint8_t *block = NULL;
                errint_t r = layer_block(f, index, false, &block);
                if (r < 0)
                        return r;
                size_t got = 0;
                if (block)
                        memcpy(buf + done, block + in, len);
                else if (f->file && (r = disk_pread(f->file, buf + done, len, at, &got)) < 0)
                        return r;
                else
                        memset(buf + done + got, 0, len - got);
                done += len;
        }
        *ret_n = done;
        return 0;
}

static errint_t layer_write(struct vfs_file *f, const uint8_t *p, size_t n, uint64_t offset) {
        for (size_t done = 0; done < n;) {
                uint64_t at = offset + done;
                size_t in = (size_t)(at % BLOCK), len = MIN_OF(BLOCK - in, n - done);
                uint8_t *block = NULL;
                errint_t r = layer_block(f, at / BLOCK, true, &block);
                if (r < 0)
                        return r;
                memcpy(block + in, p + done, len);
                done += len;
        }
        f->layer->size = MAX_OF(f->layer->size, offset + n);
        return 0;
}

/* Cuts or extends; what lies behind the end must read as zeros if the file grows again. */
static errint_t layer_truncate(struct vfs_file *f, uint64_t size) {
        uint64_t end = (f->layer->size + BLOCK - 1) / BLOCK;
        for (uint64_t i = size / BLOCK; i < end && size < f->layer->size; i++) {
                uint8_t *block = NULL;
                errint_t r = layer_block(f, i, true, &block);
                if (r < 0)
                        return r;
                size_t keep = i == size / BLOCK ? (size_t)(size % BLOCK) : 0;
                memset(block + keep, 0, BLOCK - keep);
        }
        f->layer->size = size;
        return 0;
}

/* A frozen VFS gives every open file a layer before it is changed. */
static errint_t freeze_file(struct vfs_file *f) {
        return f->vfs->frozen && !f->layer ? layer_get(f, &f->layer) : 0;
}

/* --- files --- */

static int file_close(sqlite3_file *base) {
        struct vfs_file *f = file_of(base);
        if (f->database && f->vfs->keep) {
                f->vfs->kept = f->file;
                f->vfs->keep = false;
        } else {
                disk_close(f->file);
        }
        if (f->layer && !f->layer->path)
                layer_free(f->layer);
        free(f->path);
        return SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *buf, int n, sqlite3_int64 offset) {
        struct vfs_file *f = file_of(base);
        size_t got = 0;
        errint_t r = f->layer ? layer_read(f, buf, (size_t)n, (uint64_t)offset, &got)
                              : disk_pread(f->file, buf, (size_t)n, (uint64_t)offset, &got);
        if (r < 0)
                return fail(f->vfs, r, SQLITE_IOERR_READ);
        if (got == (size_t)n)
                return SQLITE_OK;
        memset((uint8_t *)buf + got, 0, (size_t)n - got);
        return SQLITE_IOERR_SHORT_READ;
}

/* Counted as the page cache hands them to the device: whole pages, once for writes that follow each other. SQLite writes its pages in
 * ascending order, and flushes before it comes back to one. */
static void count_bytes(struct vfs_file *f, uint64_t offset, uint64_t n) {
        uint64_t first = offset / CACHE_PAGE, end = (offset + n + CACHE_PAGE - 1) / CACHE_PAGE;
        if (f->counted == first + 1)
                first++;
        f->counted = end;
        metric_add(f->vfs->metrics, METRIC_HOME_BYTES, (end - first) * CACHE_PAGE);
}

static int file_write(sqlite3_file *base, const void *p, int n, sqlite3_int64 offset) {
        struct vfs_file *f = file_of(base);
        errint_t r = freeze_file(f);
        if (r == 0 && f->layer) {
                r = layer_write(f, p, (size_t)n, (uint64_t)offset);
        } else if (r == 0) {
                r = disk_pwrite(f->file, p, (size_t)n, (uint64_t)offset);
                count_bytes(f, (uint64_t)offset, (uint64_t)n);
        }
        return r < 0 ? fail(f->vfs, r, SQLITE_IOERR_WRITE) : SQLITE_OK;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size) {
        struct vfs_file *f = file_of(base);
        errint_t r = freeze_file(f);
        if (r == 0)
                r = f->layer ? layer_truncate(f, (uint64_t)size) : f->file->ops->truncate(f->file, (uint64_t)size);
        return r < 0 ? fail(f->vfs, r, SQLITE_IOERR_TRUNCATE) : SQLITE_OK;
}

static int file_sync(sqlite3_file *base, int flags) {
        struct vfs_file *f = file_of(base);
        (void)flags; /* fdatasync brings the size with it; nothing here needs more */
        if (f->layer || f->vfs->frozen)
                return SQLITE_OK;
        metric_add(f->vfs->metrics, METRIC_HOME_FLUSHES, 1);
        f->counted = 0;
        errint_t r = disk_sync(f->file, SYNC_FDATASYNC);
        if (r < 0)
                return fail(f->vfs, r, SQLITE_IOERR_FSYNC);
        if (f->sync_dir) {
                r = f->vfs->disk->ops->sync_dir(f->vfs->disk, f->path);
                if (r < 0)
                        return fail(f->vfs, r, SQLITE_IOERR_DIR_FSYNC);
                f->sync_dir = false;
        }
        return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *ret) {
        struct vfs_file *f = file_of(base);
        uint64_t size = f->layer ? f->layer->size : 0;
        errint_t r = f->layer ? 0 : f->file->ops->size(f->file, &size);
        if (r < 0)
                return fail(f->vfs, r, SQLITE_IOERR_FSTAT);
        *ret = (sqlite3_int64)size;
        return SQLITE_OK;
}

static int file_lock(sqlite3_file *base, int level) {
        (void)base;
        (void)level; /* the file is locked for good since it was opened */
        return SQLITE_OK;
}
static int file_reserved(sqlite3_file *base, int *ret) {
        (void)base;
        *ret = 0;
        return SQLITE_OK;
}
static int file_control(sqlite3_file *base, int op, void *arg) {
        (void)base;
        (void)op;
        (void)arg;
        return SQLITE_NOTFOUND;
}
static int file_sector(sqlite3_file *base) {
        (void)base;
        return 512;
}
static int file_characteristics(sqlite3_file *base) {
        (void)base;
        return SQLITE_IOCAP_POWERSAFE_OVERWRITE; /* a torn write leaves the bytes beside it alone: true from the sector up */
}

static const sqlite3_io_methods file_methods = {
        .iVersion = 1,
        .xClose = file_close,
        .xRead = file_read,
        .xWrite = file_write,
        .xTruncate = file_truncate,
        .xSync = file_sync,
        .xFileSize = file_size,
        .xLock = file_lock,
        .xUnlock = file_lock,
        .xCheckReservedLock = file_reserved,
        .xFileControl = file_control,
        .xSectorSize = file_sector,
        .xDeviceCharacteristics = file_characteristics,
};

/* --- the VFS --- */

static errint_t open_disk(struct vfs_file *f, int flags) {
        struct vfs *v = f->vfs;
        bool exists = false;
        errint_t r = v->disk->ops->exists(v->disk, f->path, &exists);
        if (r < 0)
                return r;
        struct layer *l = v->frozen ? layer_find(v, f->path) : NULL;
        if (l && l->deleted)
                exists = false;
        if (!exists && !(flags & SQLITE_OPEN_CREATE))
                return -ENOENT;
        if (exists || !v->frozen) {
                unsigned how = v->frozen ? DISK_READ_ONLY : exists ? 0 : DISK_CREATE;
                r = disk_open(v->disk, f->path, how, &f->file);
                if (r < 0)
                        return r;
        }
        f->sync_dir = !exists;
        if (l)
                l->deleted = false;
        if (l || !f->file)
                return layer_get(f, &f->layer);
        return 0;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *file, int flags, int *ret_flags) {
        struct vfs_file *f = file_of(file);
        *f = (struct vfs_file){.vfs = vfs_of(base)};
        if (!path) {
                f->layer = layer_new(NULL, 0);
        } else if ((flags & SQLITE_OPEN_MAIN_DB) && f->vfs->kept) {
                f->path = xstrdup(path);
                f->file = steal_pointer(&f->vfs->kept);
                f->database = true;
        } else {
                f->path = xstrdup(path);
                f->database = (flags & SQLITE_OPEN_MAIN_DB) != 0;
                errint_t r = open_disk(f, flags);
                if (r == 0 && (flags & SQLITE_OPEN_MAIN_DB))
                        r = f->file->ops->lock(f->file);
                if (r < 0) {
                        disk_close(f->file);
                        free(f->path);
                        return fail(f->vfs, r, SQLITE_CANTOPEN);
                }
        }
        f->base.pMethods = &file_methods;
        if (ret_flags)
                *ret_flags = flags;
        return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *path, int sync_dir) {
        struct vfs *v = vfs_of(base);
        if (v->frozen) {
                struct layer *l = layer_find(v, path);
                if (!l) {
                        l = layer_new(path, 0);
                        l->next = v->layers;
                        v->layers = l;
                }
                l->size = 0;
                g_hash_table_remove_all(l->blocks);
                l->deleted = true;
                return SQLITE_OK;
        }
        errint_t r = v->disk->ops->unlink(v->disk, path);
        if (r == -ENOENT)
                return SQLITE_IOERR_DELETE_NOENT;
        if (r == 0 && sync_dir)
                r = v->disk->ops->sync_dir(v->disk, path);
        return r < 0 ? fail(v, r, SQLITE_IOERR_DELETE) : SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *base, const char *path, int flags, int *ret) {
        struct vfs *v = vfs_of(base);
        (void)flags;
        struct layer *l = v->frozen ? layer_find(v, path) : NULL;
        if (l) {
                *ret = !l->deleted;
                return SQLITE_OK;
        }
        bool exists = false;
        errint_t r = v->disk->ops->exists(v->disk, path, &exists);
        if (r < 0)
                return fail(v, r, SQLITE_IOERR_ACCESS);
        *ret = exists;
        return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *base, const char *path, int n, char *out) {
        (void)base;
        return snprintf(out, (size_t)n, "%s", path) < n ? SQLITE_OK : SQLITE_CANTOPEN;
}
static int vfs_randomness(sqlite3_vfs *base, int n, char *out) {
        (void)base;
        return os_vfs()->xRandomness(os_vfs(), n, out);
}
static int vfs_sleep(sqlite3_vfs *base, int us) {
        (void)base;
        return os_vfs()->xSleep(os_vfs(), us);
}
static int vfs_time(sqlite3_vfs *base, double *ret) {
        (void)base;
        return os_vfs()->xCurrentTime(os_vfs(), ret);
}
static int vfs_last_error(sqlite3_vfs *base, int n, char *out) {
        (void)n;
        (void)out;
        return -vfs_of(base)->error;
}

struct vfs *vfs_new(struct disk *disk, struct metrics *metrics, bool frozen) {
        static _Atomic unsigned counter;
        struct vfs *v = NEW(struct vfs);
        v->disk = disk;
        v->metrics = metrics;
        v->frozen = frozen;
        (void)snprintf(v->name, sizeof(v->name), "coterie-%u", atomic_fetch_add(&counter, 1)); /* fits */
        v->base = (sqlite3_vfs){
                .iVersion = 1,
                .szOsFile = sizeof(struct vfs_file),
                .mxPathname = 4096,
                .zName = v->name,
                .pAppData = v,
                .xOpen = vfs_open,
                .xDelete = vfs_delete,
                .xAccess = vfs_access,
                .xFullPathname = vfs_full_path,
                .xRandomness = vfs_randomness,
                .xSleep = vfs_sleep,
                .xCurrentTime = vfs_time,
                .xGetLastError = vfs_last_error,
        };
        int code = sqlite3_vfs_register(&v->base, 0);
        POST(code == SQLITE_OK); /* fails only without memory */
        return v;
}

void vfs_free(struct vfs *v) {
        if (!v)
                return;
        disk_close(v->kept);
        (void)sqlite3_vfs_unregister(&v->base); /* cannot fail for a registered one */
        while (v->layers) {
                struct layer *next = v->layers->next;
                layer_free(v->layers);
                v->layers = next;
        }
        free(v);
}

const char *vfs_name(const struct vfs *v) {
        return v->name;
}

void vfs_freeze(struct vfs *v) {
        v->frozen = true;
}

void vfs_keep(struct vfs *v) {
        v->keep = true;
}

errint_t vfs_take_error(struct vfs *v) {
        errint_t e = v->error;
        v->error = 0;
        return e;
}
