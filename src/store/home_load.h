/* home_load.h: what home_load.c and home_salvage.c share. */
#pragma once

#include "base/log.h"
#include "home_private.h"

/* Inodes whose content is damaged, and why; told with their paths once the tree stands. */
struct bad_content {
        uint64_t ino;
        const char *why;
};
struct home_loader {
        struct home *h;
        const struct home_meta *meta;
        struct content *content;
        const struct home_load_ops *ops;
        struct tree *tree;
        uint64_t hash_seed;
        struct home_loaded counts;
        struct bad_content *bad;
        size_t n_bad, cap_bad;
        bool again; /* second pass: faults of rows were told in the first */
};
void loader_fault(struct home_loader *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One pass over a table. fn's -EBADMSG is a damaged row: it was told, and the pass goes on. -EBADMSG: something is damaged. */
typedef errint_t (*loader_row_fn)(struct home_loader *l, sqlite3_stmt *st, void *ctx);
errint_t loader_each(struct home_loader *l, const char *table, const char *sql, loader_row_fn fn, void *ctx);
/* The inode of a row, with its xattrs and content, into the tree. `fix` may change it before. */
typedef bool (*loader_fix_fn)(void *ctx, struct tree_inode_state *s); /* false: leave it out */
errint_t loader_inodes(struct home_loader *l, loader_fix_fn fix, void *ctx);

errint_t loader_setting(struct home_loader *l, sqlite3_stmt *st, void *ctx); /* a row of settings, into the tree */

/* home_salvage.c: the tree could not be restored as the rows say: as much of it as hangs together. */
errint_t home_salvage(struct home_loader *l);
