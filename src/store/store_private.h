/* store_private.h: what the files of the SQLite store share (store_sqlite.c, store_replay.c, store_dirty.c, store_track.c, store_append.c,
 * store_capture.c, store_checkpoint.c, store_replace.c, store_space.c).
 *
 * --- the log's halves and checkpoints -------------------------------------------------------------------------------------------
 * Records go to the current half. The home's meta row says where replay begins (`half`) and the salt of each half; replay reads that half
 * and then the other one, taking a record only if its sequence is the next. The other half is *free* when the durable home has a salt for
 * it that was never used: then no record in it fits, and appending may move there at any time.
 *
 *      home says half A │ A: records 101.. (salt a)   B: free (salt b)            append to A
 *      prepare at 150   │ A: 101..150                 B: free                     capture; append moves to B at once
 *      run ...          │ A: 101..150                 B: 151.. (salt b)           a crash replays A, then B
 *      commit           │ home: position 150, half B, salts a', b                 A is free from here on; a crash replays B
 *
 * If the other half is not free at prepare (a checkpoint before this one failed, or the current half ran full before it came), nothing
 * moves: everything up to the captured position comes home all the same, replay then begins in the current half, of which it skips
 * what the home has, and the other half becomes free.
 * A failed commit may have happened or not. Nothing is reused or freed then; the next one that succeeds covers both cases.
 *
 * --- contents ----------------------------------------------------------------------------------------------------------------------
 * A content that is in extents, or will be, has a struct file with the pieces that make it up, for as long as it is so. A small one that
 * the home lacks has nothing but the place of its record in the log, in struct dirty. Where there is neither, no list of pieces is worth
 * keeping: the next checkpoint writes the content anew from memory.
 *
 * --- locks: home_lock, then log_use, then lock. No I/O under `lock`. Who writes out or flushes the log holds log_use for reading; a change
 * of level, which exchanges its descriptor, for writing. */
#pragma once

#include "home.h"
#include "pool.h"

#include <glib.h>
#include <pthread.h>

#define EDITS_MAX 64u
#define BARRIER_BYTES_DEFAULT (8 * MIB)

/* A content as the store keeps track of it; see home.h for the meaning. */
struct file_piece {
        uint64_t seq, raw_len, stored_len;
        uint8_t *edit;
        struct oplog_extent *extents;
        uint32_t edit_len, n_extents;
        uint32_t crc;
        uint32_t log_len; /* 0: not in the log */
        uint32_t log_offset;
        uint8_t form; /* enum content_form */
        bool base, in_home;
        bool pending; /* base: what the checkpoint that is under way will make of the content */
};
struct file {
        uint64_t ino;
        struct file_piece *pieces; /* the first one is a base, unless the home is damaged */
        uint32_t n, cap;           /* n > 0, but for a moment */
        struct file_piece one;     /* where `pieces` are while they are one */
};

/* What the home lacks. All of it is given back at once. */
enum { DIRTY_ATTR = 1, DIRTY_XATTRS = 2, DIRTY_GONE = 4, DIRTY_CONTENT = 8 };
struct dirty_inode {
        uint64_t ino; /* 0: a free slot */
        uint64_t seq; /* of the record that is the whole content; valid if log_len > 0 */
        uint32_t log_offset;
        uint32_t log_len : 24, flags : 8;
};
static_assert(OPLOG_RECORD_MAX < UINT32_C(1) << 24, "a record's length has 24 bits");
static_assert(OPLOG_SIZE_MAX + OPLOG_PAGE <= UINT32_MAX, "a place in the log has 32 bits");
struct entry_key {
        uint64_t parent;
        uint32_t hash;
        uint8_t len;
        char name[];
};
struct dirty {
        struct dirty_inode *inodes; /* [inode_slots], hashed; once sorted: [n_inodes] */
        struct entry_key **entries; /* likewise; NULL: a free slot */
        size_t inode_slots, n_inodes, entry_slots, n_entries;
        struct pool names;
        uint64_t seed;
        uint64_t settings; /* a bit for each, in their order */
        bool other;        /* position, sessions, epochs */
};

/* Of each inode in `dirty`, in the same order; mode 0: gone. */
struct captured_inode {
        uint64_t ino, size, parent, next_cookie, content_check;
        int64_t atime, mtime, ctime;
        uint32_t atime_ns, mtime_ns, ctime_ns;
        uint32_t mode, uid, gid, nlink, rdev;
        struct blob *blob; /* NULL too: of an empty content, or one that did not change */
        uint8_t *xattrs;
        size_t xattrs_len;
};
struct captured_entry { /* likewise */
        uint64_t ino, cookie; /* ino 0: gone */
};
/* Of each inode whose content changed and is not one record of the log, in order. */
struct captured_content {
        size_t at; /* in `inodes` */
        bool rewrite;
        struct file_piece *pieces; /* those that the home lacks; deep copies, in `memory` */
        size_t n;
        struct file_piece made; /* of a rewrite */
        uint8_t *inlined;       /* its stored form, if it is small */
};
struct capture {
        enum store_checkpoint_kind kind;
        bool active, nothing;
        bool everything; /* the home is emptied first */
        bool first_replace; /* by store->replace: if it fails, the rescue tries again */
        uint64_t tick;   /* what is superseded up to here is not named by this home */
        errint_t error; /* capturing failed */
        struct dirty dirty; /* sorted; given back if the checkpoint fails */
        struct pool memory; /* of the arrays */
        struct captured_inode *inodes;
        size_t n_inodes; /* as `dirty` has, until that is given back */
        struct captured_entry *entries;
        struct captured_content *contents; /* has room for all inodes */
        size_t n_contents;
        char **settings; /* name, value, name, value ... */
        size_t n_settings;
        struct enc sessions;
        struct home_meta meta;
        int free_half; /* becomes free with the commit; -1: is free already */
};

/* Where the records of one half lie, for reading back. */
struct record_place {
        uint32_t offset, len; /* the log is at most OPLOG_SIZE_MAX */
};
struct record_index {
        uint64_t first_seq;
        struct record_place *places;
        size_t n, cap;
};

struct sqlite_store {
        struct store base;
        char *path, *log_path, *content_path, *ballast_path;
        struct disk *disk;
        struct metrics *metrics;
        struct metrics own_metrics; /* when the caller has none */
        char boot_id[40];
        uint64_t log_size, record_max;
        bool read_only;

        pthread_mutex_t home_lock;
        struct home *home;     /* protected by home_lock */
        struct home_meta meta; /* what the durable home says; protected by home_lock */
        bool home_doubtful;    /* a transaction failed: open it again before the next; protected by home_lock */
        struct capture capture; /* built under lock by prepare, then the runner's (home_lock) until `active` falls */

        pthread_rwlock_t log_use;
        struct oplog *log;
        struct content *content; /* serialised inside */

        pthread_mutex_t lock;
        /* protected by lock: */
        struct dirty dirty;
        GHashTable *files; /* ino -> struct file */
        struct record_index index[2];
        unsigned half;
        bool other_free;
        uint64_t salt[2]; /* as in the durable home */
        struct position pos; /* last appended */
        uint64_t opened_seq; /* all up to here was on the medium when it was opened: the log counts from there */
        uint64_t tick;       /* counts records and checkpoints: when extents were superseded, and what a durable home covers. Sequences would
                                not do: another history that is taken over may have lower ones */
        bool replacing;      /* the state is of another history than the home: the next checkpoint writes all of it */
        uint64_t promised, adopted;
        enum sync_level level;
        bool direct;
        bool content_new;         /* content was written since the last content flush began */
        uint64_t content_ok_seq;  /* contents of records up to here are on the medium */
        bool content_lost;        /* a flush failed: extents of pieces above content_ok_seq cannot be trusted */
        uint64_t since_barrier;   /* bytes appended */
        uint64_t barrier_bytes;
        errint_t trouble;
        bool stopped;
        char failed[256];
        /* space */
        bool no_space;            /* the last checkpoint found the disk full */
        bool want_dead_freed;     /* a reservation failed while dead extents wait for a checkpoint */
        uint64_t retry_used;      /* the next checkpoint is wanted from here */
        bool waits_for_room;      /* in trouble, and the rescue found the disk full */
        bool ballast;
        uint64_t ballast_again_ns, ballast_left; /* making it failed: when again, and what was free then */
        bool told_full;            /* that there is no room for it */
};
#define STORE_OF(s) CONTAINER_OF(s, struct sqlite_store, base)

/* store_dirty.c. All under lock. */
void dirty_done(struct dirty *d); /* zeros are an empty one */
struct dirty_inode *dirty_mark(struct dirty *d, uint64_t ino, unsigned flags); /* valid until the next one */
struct dirty_inode *dirty_find(const struct dirty *d, uint64_t ino);          /* NULL: not dirty */
void dirty_entry(struct dirty *d, uint64_t parent, const char *name, size_t len);
void dirty_merge(struct dirty *into, struct dirty *from); /* `from`, the older one, is emptied */
bool dirty_any(const struct dirty *d);
void dirty_sort(struct dirty *d); /* by the keys of their rows; nothing can be looked up or marked afterwards */
unsigned setting_index(const struct setting_info *info);

/* store_track.c. All under lock. */
void file_free(void *file);
void piece_done(struct file_piece *p);
struct file *file_find(struct sqlite_store *s, uint64_t ino);
struct file *file_get(struct sqlite_store *s, uint64_t ino);
void file_push(struct file *f, const struct file_piece *p); /* takes what p owns */
void file_drop_pieces(struct sqlite_store *s, struct file *f); /* their extents are superseded now */
void file_forget(struct sqlite_store *s, uint64_t ino);        /* with its pieces, if there is one */
void file_rewrite(struct sqlite_store *s, uint64_t ino);       /* the next checkpoint writes it anew */
/* One applied operation: `placed` says where its payload is (kind, extents, log place); its extents are taken (NULL afterwards). */
void track_record(struct sqlite_store *s, const struct store_record *r, struct oplog_record *placed);
void index_add(struct sqlite_store *s, unsigned half, const struct oplog_record *r);
void index_clear(struct sqlite_store *s, unsigned half); /* gives its memory back, too */

/* store_append.c */
errint_t store_append_record(struct store *base, const struct store_record *r);
errint_t store_write_out(struct store *base, uint64_t *ret_seq);
errint_t store_barrier(struct store *base, uint64_t *ret_seq);
bool store_must_wait(const struct store *base);
errint_t store_set_promised(struct store *base, uint64_t promised);
errint_t store_set_adopted(struct store *base, uint64_t epoch);
errint_t store_set_level(struct store *base, enum sync_level level, enum sync_method method, bool direct, uint32_t padding);
errint_t store_read_log(struct store *base, uint64_t from_seq,
                        bool (*fn)(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len), void *ctx);
errint_t store_trouble(struct sqlite_store *s, errint_t error); /* remembers it; returns it */
errint_t store_usable(const struct sqlite_store *s);            /* under lock: -EROFS, or the trouble */
void store_move_half(struct sqlite_store *s);  /* under lock: appending goes on in the other half, which is free */
errint_t store_flush_content(struct sqlite_store *s);
errint_t store_flush_all(struct sqlite_store *s, uint64_t *ret_seq); /* content, then log */
uint64_t store_random(void);

/* store_capture.c */
errint_t store_prepare(struct store *base, const struct state *state, enum store_checkpoint_kind kind);
errint_t store_prepare_locked(struct sqlite_store *s, const struct state *state, enum store_checkpoint_kind kind);
void capture_done(struct capture *c);

/* store_checkpoint.c */
bool store_wants_checkpoint(const struct store *base);
errint_t store_checkpoint_run(struct store *base);
errint_t store_fresh_home(struct sqlite_store *s); /* under home_lock: opens it again if it is doubtful */
void store_fail_with(struct sqlite_store *s, const char *what, errint_t error);
/* A content as one base piece, from memory: compressed, inline (ret_inline is malloc'ed) or in new extents. */
errint_t store_make_base(struct sqlite_store *s, struct blob *blob, uint64_t seq, struct file_piece *ret, uint8_t **ret_inline);
errint_t store_put_file_piece(struct sqlite_store *s, uint64_t ino, const struct file_piece *p, const void *inline_data);

/* store_replace.c */
errint_t store_replace(struct store *base, const struct state *state, uint64_t adopted, void (*captured)(void *ctx), void *ctx);
errint_t store_set_cluster_id(struct store *base, const uint8_t id[CLUSTER_ID_SIZE]);

/* store_space.c */
errint_t store_reserve(struct store *base, uint64_t bytes, bool frees);
void store_release(struct store *base, uint64_t bytes);
bool ballast_make(struct sqlite_store *s);    /* true: it is there */
void ballast_find(struct sqlite_store *s);    /* of an earlier life */
bool ballast_give_up(struct sqlite_store *s); /* true: there was one */
bool disk_is_full(errint_t r);

/* store_replay.c: the log's halves into the state, through the same door as any operation. */
struct replayed {
        uint64_t operations;
        uint64_t end[2];
        uint32_t chain[2];
        bool used[2];     /* the half holds records */
        bool cut;         /* what follows is not taken */
        char reason[192]; /* why, in words */
};
errint_t store_replay(struct sqlite_store *s, struct state *state, struct replayed *ret);

/* store_sqlite.c */
/* Opens for reading, tells every fault, closes. Errors as store_open_sqlite. */
errint_t store_inspect(const struct store_config *config, struct state *state, void (*fault)(void *ctx, const char *line), void *ctx,
                       struct store_check_result *out, char *ret_reason, size_t reason_size);
struct sqlite_store *sqlite_store_new(const struct store_config *config);
void sqlite_store_free(struct sqlite_store *s);
DEFINE_FREEP(sqlite_store_free, struct sqlite_store)
