/* home.h (private to store): the SQLite home: one connection, exclusive, through a VFS over disk.h. Tables for inodes, entries, small
 * contents, edits, the extent map, settings, sessions and one row of meta; the schema stands in home_schema.c and docs/FORMAT.md. Opened
 * with pragmas that are read back. Every row carries a CRC-32C over all that it says, its key included; meta keeps the tree's digest.
 *
 * Threads: one at a time (store_sqlite.c holds a lock around all of it). */
#pragma once

#include "content.h"

#define HOME_APPLICATION_ID 0x436f5465 /* "CoTe" */
#define HOME_SCHEMA 1u
#define HOME_PAGE_SIZE 2048u /* docs/decisions/0001-home-journal-and-page-size.md */

/* A content as the home keeps it: a base piece that replaces everything, then edits in order. */
struct piece {
        uint64_t seq; /* of the operation that brought it: order of edits */
        bool base;
        /* Of an edit: what of the payload goes where (home_edit_encode); a base may have one too: it is laid over nothing then. */
        const void *edit;
        size_t edit_len;
        enum content_form form;
        uint64_t raw_len;
        const void *inline_data; /* stored form; NULL when in the content file */
        size_t stored_len;
        uint32_t crc; /* of the stored form */
        const struct oplog_extent *extents;
        size_t n_extents;
};
/* How an edit is written down: `keep`, `size` and the extents as for blob_edit, offsets resolved (no appends). */
errint_t home_edit_encode(uint64_t keep, uint64_t size, const struct extent *extents, size_t n, struct enc *e);
/* *ret_extents is malloc'ed. -EBADMSG: not such an edit, or beyond a limit; sums and overlaps are checked by blob_edit. -ENOMEM. */
errint_t home_edit_decode(const void *p, size_t len, uint64_t *ret_keep, uint64_t *ret_size, struct extent **ret_extents, size_t *ret_n);

struct home_meta {
        struct position pos;
        struct hash128 history, digest; /* digest: tree_digest at pos */
        uint64_t next_ino, promised, adopted;
        uint8_t cluster_id[CLUSTER_ID_SIZE];
        uint8_t database_id[16]; /* random; the log and content file of this database carry it */
        char boot_id[40];
        bool clean;    /* log empty, stopped properly: the log is not needed */
        unsigned half; /* where replay begins */
        uint64_t salt[2];
        uint64_t log_size;
        uint64_t content_size;
};

struct home;
/* Creates schema and first meta row when the file is new or empty: fresh meta is what *ret_meta said before the call then. Errors have
 * one line in ret_reason. A database that is damaged (home_damage) opens all the same, frozen: it reads, and what is written stays in
 * memory. */
errint_t home_open(const struct store_config *config, struct home **ret, struct home_meta *ret_meta, bool *ret_fresh, char *ret_reason, size_t reason_size);
void home_close(struct home *h);
const char *home_damage(const struct home *h); /* NULL: none known so far */

/* --- loading: tree, settings and sessions into *state (tree and sessions are new; position and history are meta's). Damage is no
 * error: each fault is told once, and the state is what could be saved, which a writer must not go on from. */
struct home_load_ops {
        void (*fault)(void *ctx, const char *line);
        void (*piece)(void *ctx, uint64_t ino, const struct piece *p); /* each one with extents, and each edit; may be NULL */
        void *ctx;
};
struct home_loaded {
        uint64_t faults, inodes, entries, content_bytes;
        uint64_t *bad; /* malloc'ed, ascending: inodes whose content could not be read; they are empty and without permissions */
        size_t n_bad;
};
errint_t home_load(struct home *h, const struct home_meta *meta, struct content *content, const struct home_load_ops *ops, uint64_t hash_seed, struct state *state, struct home_loaded *ret);
errint_t home_has_extents(struct home *h, bool *ret);
errint_t home_integrity(struct home *h, void (*fault)(void *ctx, const char *line), void *ctx, uint64_t *ret_faults); /* SQLite's own check */

/* --- one checkpoint = one transaction: begin, puts and deletes, commit. commit returns only when the home is flushed. Any error: the
 * transaction is rolled back and the home is as before, or, after a failed commit, as before or as after: home_reopen tells.
 * All puts and deletes may be repeated, also over a home that has them already. */
errint_t home_begin(struct home *h);
uint64_t home_content_check(const struct blob *content); /* what the inode's row says of its content: 0 for none */
errint_t home_put_inode(struct home *h, const struct tree_inode_state *inode, uint64_t content_check);
errint_t home_put_xattrs(struct home *h, uint64_t ino, const uint8_t *xattrs, size_t len); /* len 0: none */
errint_t home_delete_inode(struct home *h, uint64_t ino); /* with its xattrs and content */
errint_t home_put_entry(struct home *h, uint64_t parent, const char *name, size_t len, uint64_t ino, uint64_t cookie);
errint_t home_delete_entry(struct home *h, uint64_t parent, const char *name, size_t len);
errint_t home_put_piece(struct home *h, uint64_t ino, const struct piece *p); /* base: drops all pieces before it */
errint_t home_delete_content(struct home *h, uint64_t ino);                   /* the file is empty now */
errint_t home_put_setting(struct home *h, const char *name, const char *text); /* NULL text: default */
errint_t home_put_sessions(struct home *h, const void *p, size_t n);
errint_t home_clear(struct home *h); /* everything but meta, for store replace */
errint_t home_commit(struct home *h, const struct home_meta *meta);
void home_rollback(struct home *h);
/* After a failed transaction: a new connection, which rolls back what the old one left. ret_meta: what the home says now. */
errint_t home_reopen(struct home *h, struct home_meta *ret_meta);
