/* home.h (private to store): the SQLite home: one connection, exclusive, through a VFS over disk.h. Tables for inodes, entries, small
 * contents, edits, the extent map, settings, sessions and one row of meta. Opened with pragmas that are read back. */
#pragma once

#include "store/content.h"

/* A content as the home keeps it: a base piece that replaces everything, then edits in order. */
struct piece {
        uint64_t seq; /* of the operation that brought it: order of edits */
        bool base;
        /* An edit: flags, keep, size, extents as in a WRITE operation (encoded by home.c). */
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

struct home_meta {
        struct position pos;
        struct hash128 history, digest; /* digest: tree_digest at pos */
        uint64_t next_ino, promised, adopted;
        uint8_t cluster_id[CLUSTER_ID_SIZE];
        char boot_id[40];
        bool clean;         /* log empty, stopped properly */
        unsigned half;      /* where the log goes on */
        uint64_t salt[2];
        uint64_t log_size;
        uint64_t content_size;
};

struct home;
/* ret_reason: one line when it fails or opens damaged (read-only). Creates schema and first meta row when the file is new. */
errint_t home_open(const struct store_config *config, struct home **ret, struct home_meta *ret_meta, bool *ret_fresh, char *ret_reason, size_t reason_size);
void home_close(struct home *h);
errint_t home_load(struct home *h, struct content *content, struct state *state, char *ret_reason, size_t reason_size); /* tree, settings, sessions */
typedef bool (*home_extents_fn)(void *ctx, uint64_t ino, const struct piece *p);
errint_t home_each_extent(struct home *h, home_extents_fn fn, void *ctx);

/* One checkpoint = one transaction: begin, puts and deletes, commit. commit returns only when the home is flushed. Any error: the
 * transaction is rolled back and the home is as before. */
errint_t home_begin(struct home *h);
errint_t home_put_inode(struct home *h, const struct tree_inode_state *inode, const uint8_t *xattrs, size_t xattrs_len);
errint_t home_delete_inode(struct home *h, uint64_t ino); /* with its content */
errint_t home_put_entry(struct home *h, uint64_t parent, const char *name, size_t len, uint64_t ino, uint64_t cookie);
errint_t home_delete_entry(struct home *h, uint64_t parent, const char *name, size_t len);
errint_t home_put_piece(struct home *h, uint64_t ino, const struct piece *p); /* base: drops all pieces before it */
errint_t home_put_setting(struct home *h, const char *name, const char *text); /* NULL text: default */
errint_t home_put_sessions(struct home *h, const void *p, size_t n);
errint_t home_clear(struct home *h); /* everything but meta, for store replace */
errint_t home_commit(struct home *h, const struct home_meta *meta);
void home_rollback(struct home *h);
