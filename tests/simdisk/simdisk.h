/* simdisk.h: a disk in memory behind disk_ops, for tests and the simulator: it remembers what has been flushed and what has not, and
 * makes up the disk that a power cut would leave.
 *
 * The model
 * - Processes see every write at once (the page cache). Death of the process (simdisk_kill) loses nothing.
 * - A power cut keeps what was flushed. Everything since may be there or not, in any combination, torn at sector bounds: every sector
 *   touched since the last flush of its file holds any one of the contents it had since then. Sectors themselves are atomic.
 * - disk_sync (FDATASYNC, FSYNC) flushes one file: data and size. SYNCFS flushes all files and all names, unless the config says that it
 *   is no barrier. A write on a DISK_DSYNC or DISK_SYNC descriptor flushes its own bytes and nothing else of the file.
 * - Size changes (growing writes, truncate, allocate) are flushed with the file. Growth may be durable without the data: zeros then.
 * - Creation, unlink and rename are durable after sync_dir of the directory (or SYNCFS) and not before, not even by fsync of the file.
 *   A rename is atomic. Unflushed ones survive as a prefix of the directory's history or in any combination.
 * - A failed flush behaves as Linux does: what was dirty is clean now, may be on the medium or not (drawn by the seed, sector by sector),
 *   readers still see it, and no later flush will ever write it.
 * - A failed write may have written nothing, some leading sectors, or all.
 * - O_DIRECT needs offset, length and memory aligned to the sector.
 *
 * Every event goes into a journal; with `history` a power cut can be placed at any earlier point of it. Everything follows from the seeds:
 * the same calls give the same bytes. Paths are names in one flat space; the directory of a path is the part before its last slash, and
 * every directory exists. Thread-safe (one lock), but kill, crash and free only
 * while no other thread is in a call. */
#pragma once

#include "store/disk.h"

struct simdisk;
struct simdisk_config {
        uint64_t seed;
        uint64_t capacity; /* bytes, in blocks of 4096; 0: no limit */
        uint32_t sector;   /* 512 or 4096: bound of tearing, alignment of O_DIRECT; 0: 512 */
        bool refuse_direct; /* opening with DISK_DIRECT gives -EINVAL */
        bool syncfs_no_barrier; /* SYNCFS returns 0 and flushes nothing, as seen on XFS after an overwrite */
        bool history; /* keep the journal, so that a power cut can be placed anywhere in it; else at the end only */
};
struct simdisk *simdisk_new(const struct simdisk_config *config); /* NULL: all defaults */
/* Open files stay closeable; every other call on them gives -EIO. NULL is fine. */
void simdisk_free(struct simdisk *d);
DEFINE_FREEP(simdisk_free, struct simdisk)
struct disk *simdisk_disk(struct simdisk *d);

/* --- power cuts and kills ------------------------------------------------------------------------------------------------------ */
enum simdisk_keep {        /* what becomes of the unflushed */
        SIMDISK_LOST = 0,  /* nothing of it is there */
        SIMDISK_KEPT = 1,  /* all of it is there */
        SIMDISK_WHOLE = 2, /* each write as a whole is there or not */
        SIMDISK_TORN = 3,  /* each sector of each write is there or not */
        SIMDISK_ANY = 4,   /* one of the above, drawn by the seed */
        SIMDISK_MASK = 5   /* as TORN, but the bits of the seed decide in order, 1: there (units above 64: not) */
};
struct simdisk_crash {
        uint64_t at; /* journal position; SIMDISK_NOW: after the last event */
        enum simdisk_keep keep;
        uint64_t seed;
};
#define SIMDISK_NOW UINT64_MAX
uint64_t simdisk_position(const struct simdisk *d); /* events so far; without `history` only SIMDISK_NOW can be cut at */
unsigned simdisk_pending(const struct simdisk *d, uint64_t at); /* undecided units there: unflushed sector writes, size changes, name changes */
/* The disk after a power cut, as a new simdisk with the same config; `d` stays as it is. The new one's seed is how->seed's. */
struct simdisk *simdisk_crashed(const struct simdisk *d, const struct simdisk_crash *how);
void simdisk_crash(struct simdisk *d, const struct simdisk_crash *how); /* the same in place; open files are dead afterwards */
void simdisk_kill(struct simdisk *d);   /* process death: open files are dead, locks gone, everything written is there (unflushed as before) */
void simdisk_settle(struct simdisk *d); /* everything is durable now; the journal begins anew */

/* --- faults --------------------------------------------------------------------------------------------------------------------- */
enum { /* kinds of calls */
        SIMDISK_OPEN = 1,
        SIMDISK_UNLINK = 2,
        SIMDISK_RENAME = 4,
        SIMDISK_SYNC_DIR = 8,
        SIMDISK_READ = 16,
        SIMDISK_WRITE = 32,
        SIMDISK_SYNC = 64,
        SIMDISK_ALLOCATE = 128,
        SIMDISK_PUNCH = 256,
        SIMDISK_TRUNCATE = 512,
        SIMDISK_QUERY = 1024, /* exists, info, size */
        SIMDISK_LOCK = 2048,
        SIMDISK_CHANGES = SIMDISK_OPEN | SIMDISK_UNLINK | SIMDISK_RENAME | SIMDISK_SYNC_DIR | SIMDISK_WRITE | SIMDISK_SYNC | SIMDISK_ALLOCATE |
                          SIMDISK_PUNCH | SIMDISK_TRUNCATE,
        SIMDISK_ALL = 4095
};
struct simdisk_fault {
        unsigned kinds;
        const char *path_part; /* only paths that contain it; NULL: all. Copied */
        uint64_t nth;          /* the n-th matching call from now on, from 1 */
        bool sticky;           /* and all matching ones after it */
        errint_t error;        /* -EIO, -ENOSPC */
};
void simdisk_fail(struct simdisk *d, const struct simdisk_fault *fault); /* one at a time; NULL: none */
uint64_t simdisk_fault_hits(const struct simdisk *d);                    /* calls refused by the fault last set */
uint64_t simdisk_calls(const struct simdisk *d, unsigned kinds);         /* calls of these kinds since simdisk_new */
void simdisk_set_capacity(struct simdisk *d, uint64_t capacity);         /* space comes and goes */
uint64_t simdisk_used(const struct simdisk *d);

/* --- looking and damaging --------------------------------------------------------------------------------------------------------- */
errint_t simdisk_file_size(const struct simdisk *d, const char *path, uint64_t *ret);                      /* -ENOENT */
errint_t simdisk_peek(const struct simdisk *d, const char *path, uint64_t offset, void *buf, size_t n);    /* -ERANGE: beyond the end */
errint_t simdisk_poke(struct simdisk *d, const char *path, uint64_t offset, const void *p, size_t n);      /* damage: on the medium at once */
uint64_t simdisk_bytes_written(const struct simdisk *d, const char *path_part); /* through write calls, to files whose path contains it */
/* Called for every write before it is done, under the disk's lock: no calls of this disk in it. NULL: none. */
typedef void (*simdisk_watch_fn)(void *ctx, const char *path, uint64_t offset, uint64_t n, bool direct);
void simdisk_watch(struct simdisk *d, simdisk_watch_fn fn, void *ctx);
