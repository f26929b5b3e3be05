/* store.h: what keeps a node's state over restarts: an operation log in front of an SQLite home, large content written once into extents
 * of a content file (docs/FORMAT.md). One contract, two implementations: store_open_sqlite, and store_open_memory for tests.
 *
 * Threads: append, write_out and checkpoint_prepare are called by one thread at a time (the executor, which holds the state); barrier,
 * checkpoint_run and write_out at level `file` may run on another thread meanwhile. The store starts no threads. Nothing here
 * waits for anything but the disk.
 *
 * Life of an operation: reserve (at the origin, before it is sent) -> append (into the pending buffer; large content goes to the
 * content file) -> write_out (pending records reach the log as the level says) -> barrier (on the medium) -> checkpoint (in the home).
 *
 * Failure: append and write_out return the error of the first call that failed and the store is `troubled`: the records since the last
 * good write stay pending. The caller then checkpoints (prepare + run with rescue): everything comes home from memory, elsewhere on
 * the disk, and the log starts on its other half; success ends the trouble (unless something was appended between prepare and the end
 * of run: wants_checkpoint stays true then, and it takes another one). A rescue that finds the disk full (-ENOSPC, -EDQUOT) changes
 * nothing: it is tried again until there is room, and reserve says -ENOSPC meanwhile. If it fails otherwise, store_fail has the reason and
 * every later call returns -EROFS; the caller turns read-only and serves the state that it has, which holds all that was acknowledged. A
 * failed flush is treated alike: nothing is flushed again in place. */
#pragma once

#include "base/metrics.h"
#include "core/state.h"
#include "store/disk.h"

enum sync_level { LEVEL_NONE = 0, LEVEL_FILESYSTEM = 1, LEVEL_FILE = 2 };
const char *sync_level_text(enum sync_level l);
const char *sync_method_text(enum sync_method m);

struct store_config {
        const char *path; /* of the database; "-oplog" and "-content" beside it */
        enum sync_level level;
        enum sync_method method; /* of the log */
        bool direct;             /* O_DIRECT at level file; falls back with one log line where refused */
        uint32_t padding;        /* 0: the logical sector; else 512 or 4096 */
        uint64_t log_size;       /* 0: 16 MiB; both halves together */
        uint64_t barrier_bytes;  /* commit_bytes: wants_barrier after so many appended bytes since the last barrier; 0: 8 MiB */
        bool read_only;          /* rescue mount, `coterie check`: opens without writing a byte */
        const char *boot_id;     /* of this boot, to tell whether an unclean log may have forgotten */
        struct disk *disk;
        struct metrics *metrics;
        struct store_backing *backing; /* store_open_memory alone (store_memory.h); NULL: nothing survives close */
};
#define CLUSTER_ID_SIZE 16
#define STORE_REASON (4096u + 256u) /* room for a path */
struct store_loaded {
        bool fresh;         /* the database was created now */
        bool unclean;       /* the log was not empty: killed or cut */
        bool boot_changed;  /* and the boot id is another: what was not flushed may be forgotten */
        bool read_only;     /* damaged: opened for rescue; reason says what is wrong, in one line */
        char reason[STORE_REASON];
        uint64_t replayed;  /* operations */
        uint64_t promised, adopted;
        uint8_t cluster_id[CLUSTER_ID_SIZE]; /* zeros: none yet */
        uint32_t schema;
        /* Opened for rescue: regular files whose content could not be read back, ascending; free() it. They are in the tree, empty and
         * without permissions: whoever serves it answers EIO to open, read and readlink of them. */
        uint64_t *damaged;
        size_t n_damaged;
};

struct store_record {
        struct position pos; /* that of the state after it */
        const struct op *op;
        const void *head; /* as encoded; payload is op->payload */
        size_t head_len;
        const struct change_set *changes;
        const struct state *state; /* after the operation, not locked: of it, position and checksums are looked at, during the call only */
};

enum store_checkpoint_kind { CHECKPOINT_NORMAL, CHECKPOINT_RESCUE, CHECKPOINT_CLEAN_STOP /* log empty and marked clean afterwards */ };

struct store;
struct store_ops {
        errint_t (*append)(struct store *s, const struct store_record *r);
        errint_t (*write_out)(struct store *s, uint64_t *ret_seq); /* all records up to seq have reached the log as the level says */
        errint_t (*barrier)(struct store *s, uint64_t *ret_seq);   /* all written out up to seq are on the medium */
        bool (*wants_barrier)(const struct store *s);              /* commit_bytes reached; any barrier sets it back to zero */
        bool (*wants_checkpoint)(const struct store *s);           /* half full, too many dead extents, space short, trouble */
        bool (*must_wait)(const struct store *s);                  /* both halves full: no append until a checkpoint is done (bounded) */
        errint_t (*checkpoint_prepare)(struct store *s, const struct state *state, enum store_checkpoint_kind kind); /* captures; quick; no I/O */
        /* The flushes and the SQLite transaction; without the state lock. -ENOSPC of a NORMAL one is no trouble: it was rolled back, the log
         * goes on while it has room (must_wait), operations that only free something are let in (reserve), and wants_checkpoint says when
         * trying again makes sense. After any other error: RESCUE. */
        errint_t (*checkpoint_run)(struct store *s);
        errint_t (*set_promised)(struct store *s, uint64_t promised); /* durable at return, at every level */
        errint_t (*set_adopted)(struct store *s, uint64_t epoch);     /* a record behind the operations; durable at return, they with it */
        errint_t (*set_cluster_id)(struct store *s, const uint8_t id[CLUSTER_ID_SIZE]);
        /* Another history taken over: one atomic, flushed switch. `captured` (or NULL) is called once whatever happens: before the disk
         * is touched, and nothing of the state is looked at from then on, so that its lock can be released. */
        errint_t (*replace)(struct store *s, const struct state *state, uint64_t adopted, void (*captured)(void *ctx), void *ctx);
        /* Operations seq..., oldest first, while fn returns true; -ENOENT: older than the log holds. For catching up. */
        errint_t (*read_log)(struct store *s, uint64_t from_seq, bool (*fn)(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len), void *ctx);
        errint_t (*reserve)(struct store *s, uint64_t bytes, bool frees); /* room for an operation of so many stored bytes; -ENOSPC. `frees`: unlinks, truncations, locks: may use the ballast */
        void (*release)(struct store *s, uint64_t bytes);                 /* the reservation was used or is not needed */
        errint_t (*set_level)(struct store *s, enum sync_level level, enum sync_method method, bool direct, uint32_t padding); /* barrier, then a fresh page */
        void (*set_barrier_bytes)(struct store *s, uint64_t bytes); /* commit_bytes from now on; any thread */
        const char *(*fail)(const struct store *s); /* NULL: healthy; else why the store refuses everything */
        void (*close)(struct store *s); /* as it is: use CHECKPOINT_CLEAN_STOP before for a clean one */
};
struct store {
        const struct store_ops *ops;
};

/* Opens or creates; fills `state` (must be fresh from state_init; is replaced by what was stored). Errors, each with one line in
 * ret->reason: -EBUSY (another daemon has it), -ENOTSUP (newer schema: untouched), -EBADMSG (not ours, or log of another database),
 * -ENOSPC, -EACCES, -EROFS, -EIO. A damaged database is no error: it loads what it can, read_only is set. */
errint_t store_open_sqlite(const struct store_config *config, struct state *state, struct store_loaded *ret_loaded, struct store **ret);
errint_t store_open_memory(const struct store_config *config, struct state *state, struct store_loaded *ret_loaded, struct store **ret);

/* Offline check of a database, its log and content file: structure, checksums, tree invariants, rolling digest = recomputed. Calls
 * `fault` once per fault with one line; 0 when it could be checked at all. Writes nothing. */
struct store_check_result {
        uint64_t inodes, entries, content_bytes, log_records, faults;
        struct position pos;
        struct hash128 digest; /* of the state, as `coterie status` tells it */
};
errint_t store_check(const char *path, struct disk *disk, void (*fault)(void *ctx, const char *line), void *ctx, struct store_check_result *ret);
