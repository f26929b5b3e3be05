/* home_load.c: from rows to a tree. In the good case each row goes straight into the tree; where rows are damaged, home_salvage.c takes
 * a second pass. A file whose content is damaged keeps its name and loses its permissions and its content: what cannot be vouched for is
 * not served. */
#include "home_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void loader_fault(struct home_loader *l, const char *fmt, ...) {
        char line[512];
        va_list args;
        if (l->again)
                return;
        va_start(args, fmt);
        (void)vsnprintf(line, sizeof(line), fmt, args); /* cut if need be */
        va_end(args);
        l->counts.faults++;
        l->ops->fault(l->ops->ctx, line);
}

errint_t loader_each(struct home_loader *l, const char *table, const char *sql, loader_row_fn fn, void *ctx) {
        sqlite3_stmt *st = NULL;
        errint_t damage = 0, r = home_error(l->h, sqlite3_prepare_v2(l->h->db, sql, -1, &st, NULL));
        int code = SQLITE_ROW;
        while (r == 0 && (code = sqlite3_step(st)) == SQLITE_ROW) {
                r = fn(l, st, ctx);
                if (r == -EBADMSG) {
                        damage = r;
                        r = 0;
                }
        }
        if (r == 0 && code != SQLITE_DONE)
                r = home_error(l->h, code);
        (void)sqlite3_finalize(st);       /* repeats an error that was told */
        if (r == -EBADMSG || r == -EIO) { /* the rest of the table cannot be read: what was read counts */
                loader_fault(l, "table %s cannot be read to its end: %s", table, r == -EIO ? "I/O error" : "its pages are damaged");
                damage = -EBADMSG;
                r = 0;
        }
        return r < 0 ? r : damage;
}

/* --- inodes with their xattrs and contents --- */

struct inode_pass {
        struct content_reader *contents; /* NULL: cannot be read at all */
        sqlite3_stmt *xattrs;
        bool xattrs_row;
        uint64_t stray;
        loader_fix_fn fix;
        void *ctx;
};

static void remember_bad(struct home_loader *l, uint64_t ino, const char *why) {
        if (l->n_bad == l->cap_bad) {
                l->cap_bad = l->cap_bad ? 2 * l->cap_bad : 16;
                l->bad = xrealloc(l->bad, l->cap_bad * sizeof(*l->bad));
        }
        l->bad[l->n_bad++] = (struct bad_content){ino, why};
}

static errint_t next_xattrs(struct home_loader *l, struct inode_pass *p) {
        int code = sqlite3_step(p->xattrs);
        p->xattrs_row = code == SQLITE_ROW;
        return home_error(l->h, code);
}

/* Xattrs that are damaged are left out: the inode is worth more than they are. */
static errint_t take_xattrs(struct home_loader *l, struct inode_pass *p, uint64_t ino, const uint8_t **ret, size_t *ret_len) {
        while (p->xattrs_row && (uint64_t)sqlite3_column_int64(p->xattrs, 0) < ino) {
                errint_t r = next_xattrs(l, p);
                if (r < 0)
                        return r;
        }
        if (!p->xattrs_row || (uint64_t)sqlite3_column_int64(p->xattrs, 0) != ino)
                return 0;
        if (home_row_xattrs(p->xattrs, ret, ret_len) < 0)
                loader_fault(l, "inode %ju: its extended attributes are damaged", (uintmax_t)ino);
        return 0;
}

static errint_t take_content(struct home_loader *l, struct inode_pass *p, struct tree_inode_state *s, uint64_t check, struct blob **ret) {
        const char *why = "the table of contents cannot be read";
        errint_t r = p->contents ? content_reader_get(p->contents, s->attr.ino, ret, &why, &p->stray) : -EBADMSG;
        if (r == 0 && (blob_size(*ret) != s->attr.size || home_content_check(*ret) != check)) { /* also if a row of it is lost */
                why = "it is not what the inode says";
                blob_unref(*ret);
                *ret = NULL;
                r = -EBADMSG;
        }
        if (r != -EBADMSG && r != -EIO)
                return r;
        remember_bad(l, s->attr.ino, why);
        s->attr.mode = S_IFREG;
        s->attr.size = 0;
        return 0;
}

static errint_t load_inode(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        struct inode_pass *p = ctx;
        struct tree_inode_state s;
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        const uint8_t *xattrs = NULL;
        size_t xattrs_len = 0;
        uint64_t check = 0;
        errint_t r = home_row_inode(st, &s, &check);
        if (r < 0) {
                loader_fault(l, "inode %ju: the checksum of its row differs", (uintmax_t)sqlite3_column_int64(st, 0));
                return r;
        }
        if (p->fix && !p->fix(p->ctx, &s))
                return 0;
        r = take_xattrs(l, p, s.attr.ino, &xattrs, &xattrs_len);
        if (r == 0 && (S_ISREG(s.attr.mode) || S_ISLNK(s.attr.mode)))
                r = take_content(l, p, &s, check, &content);
        if (r < 0)
                return r;
        s.content = content;
        r = tree_restore_inode(l->tree, &s, xattrs, xattrs_len);
        if (r == -EBADMSG || r == -EEXIST) {
                loader_fault(l, "inode %ju: its row makes no sense", (uintmax_t)s.attr.ino);
                return -EBADMSG;
        }
        l->counts.inodes++;
        l->counts.content_bytes += blob_size(content);
        return r;
}

errint_t loader_inodes(struct home_loader *l, loader_fix_fn fix, void *ctx) {
        struct inode_pass p = {.fix = fix, .ctx = ctx};
        const struct home_load_ops quiet = {.fault = l->ops->fault, .ctx = l->ops->ctx}; /* pieces were told in the first pass */
        errint_t r = content_reader_new(l->h, l->content, l->again ? &quiet : l->ops, &p.contents);
        if (r == -EBADMSG || r == -EIO) {
                loader_fault(l, "the tables of contents cannot be read");
                r = 0;
        }
        if (r == 0)
                r = home_error(l->h, sqlite3_prepare_v2(l->h->db, home_sql_xattrs, -1, &p.xattrs, NULL));
        if (r == 0)
                r = next_xattrs(l, &p);
        if (r == -EBADMSG || r == -EIO) {
                loader_fault(l, "the table of extended attributes cannot be read");
                r = 0;
        }
        if (r == 0)
                r = loader_each(l, "inodes", home_sql_inodes, load_inode, &p);
        if (p.contents && (r == 0 || r == -EBADMSG)) {
                errint_t end = content_reader_end(p.contents, &p.stray);
                if (end < 0)
                        loader_fault(l, "the tables of contents cannot be read to their end");
        }
        if (p.stray > 0)
                loader_fault(l, "%ju rows of contents belong to no inode", (uintmax_t)p.stray);
        (void)sqlite3_finalize(p.xattrs); /* repeats an error that was told */
        if (p.contents)
                content_reader_free(p.contents);
        return r;
}

/* --- the other tables --- */

static errint_t load_entry(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        (void)ctx;
        struct entry_row e;
        errint_t r = home_row_entry(st, &e);
        if (r == 0)
                r = tree_restore_entry(l->tree, e.parent, e.name, e.len, e.ino, e.cookie);
        if (r < 0) {
                char quoted[256] = "no name";
                if (sqlite3_column_type(st, 1) == SQLITE_TEXT)
                        (void)log_quote((const char *)sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1), quoted,
                                        sizeof(quoted));
                loader_fault(l, "an entry of directory %ju (%s) is damaged", (uintmax_t)sqlite3_column_int64(st, 0), quoted);
                return -EBADMSG;
        }
        l->counts.entries++;
        return 0;
}

errint_t loader_setting(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        (void)ctx;
        const char *name = (const char *)sqlite3_column_text(st, 0), *value = (const char *)sqlite3_column_text(st, 1);
        if (!name || !value || (uint64_t)sqlite3_column_int64(st, 2) != home_setting_crc(name, value) ||
            tree_restore_setting(l->tree, name, strlen(name), value, strlen(value)) < 0) {
                loader_fault(l, "a setting is damaged");
                return -EBADMSG;
        }
        return 0;
}

static errint_t load_sessions(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        struct sessions **ret = ctx;
        const void *p = sqlite3_column_blob(st, 0);
        size_t n = (size_t)sqlite3_column_bytes(st, 0);
        if ((uint64_t)sqlite3_column_int64(st, 1) != home_bytes_crc(1, p, n) || sessions_decode(p, n, ret) < 0) {
                loader_fault(l, "the results of requests are damaged");
                return -EBADMSG;
        }
        return 0;
}

static errint_t load_settings(struct home_loader *l) {
        return loader_each(l, "settings", "SELECT name, value, crc FROM settings", loader_setting, NULL);
}

/* --- all of it --- */

/* As the rows say. -EBADMSG: they do not make a tree; l->tree is gone then. */
static errint_t load_tree(struct home_loader *l) {
        char fault[256] = "";
        l->tree = tree_restore_begin();
        tree_hash_seed(l->tree, l->hash_seed);
        errint_t damage = loader_inodes(l, NULL, NULL);
        if (damage < 0 && damage != -EBADMSG)
                return damage;
        errint_t r = loader_each(l, "entries", home_sql_entries, load_entry, NULL);
        if (r < 0 && r != -EBADMSG)
                return r;
        damage = damage < 0 ? damage : r;
        r = load_settings(l);
        if (r < 0 && r != -EBADMSG)
                return r;
        if (damage == 0 && home_damage(l->h)) /* it was told, and the meta row may say nothing */
                damage = -EBADMSG;
        if (damage == 0) {
                damage = tree_restore_end(l->tree, l->meta->next_ino, fault, sizeof(fault));
                if (damage < 0)
                        loader_fault(l, "%s", fault);
        }
        return damage;
}

static int bad_order(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

static void tell_bad(struct home_loader *l) {
        l->again = false;
        l->counts.bad = l->n_bad > 0 ? xcalloc(l->n_bad, sizeof(uint64_t)) : NULL;
        for (size_t i = 0; i < l->n_bad; i++) {
                char path[LIMIT_PATH + 1] = "no path", quoted[256];
                (void)tree_path(l->tree, l->bad[i].ino, path, sizeof(path)); /* "no path" stays if there is none */
                loader_fault(l, "inode %ju (%s): its content is damaged: %s", (uintmax_t)l->bad[i].ino,
                             log_quote(path, strlen(path), quoted, sizeof(quoted)), l->bad[i].why);
                l->counts.bad[l->counts.n_bad++] = l->bad[i].ino;
        }
        if (l->n_bad > 1)
                qsort(l->counts.bad, l->n_bad, sizeof(uint64_t), bad_order);
}

static errint_t load_all(struct home_loader *l, struct sessions **ret_sessions) {
        errint_t r = load_tree(l);
        if (r == -EBADMSG) {
                tree_free(steal_pointer(&l->tree));
                l->again = true;
                l->n_bad = 0;
                l->counts.inodes = l->counts.entries = l->counts.content_bytes = 0;
                r = home_salvage(l);
        }
        if (r < 0)
                return r;
        tell_bad(l);
        r = loader_each(l, "sessions", "SELECT data, crc FROM sessions", load_sessions, ret_sessions);
        if (r < 0 && r != -EBADMSG)
                return r;
        if (l->counts.faults == 0 && !home_damage(l->h) && !hash128_equal(tree_digest(l->tree), l->meta->digest))
                loader_fault(l, "the digest of the tree is not the one that was stored with it");
        return 0;
}

errint_t home_load(struct home *h, const struct home_meta *meta, struct content *content, const struct home_load_ops *ops,
                   uint64_t hash_seed, struct state *state, struct home_loaded *ret) {
        struct home_loader l = {.h = h, .meta = meta, .content = content, .ops = ops, .hash_seed = hash_seed};
        struct sessions *sessions = NULL;
        errint_t r = load_all(&l, &sessions);
        free(l.bad);
        if (r < 0) {
                tree_free(l.tree);
                sessions_free(sessions);
                free(l.counts.bad);
                return r;
        }
        *state = (struct state){
                .tree = l.tree,
                .sessions = sessions ? sessions : sessions_new(),
                .pos = meta->pos,
                .history = meta->history,
        };
        *ret = l.counts;
        return 0;
}

errint_t home_has_extents(struct home *h, bool *ret) {
        sqlite3_stmt *st = NULL;
        int code = sqlite3_prepare_v2(h->db, "SELECT 1 FROM extents LIMIT 1", -1, &st, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(st);
        errint_t r = home_error(h, code);
        if (r == 0)
                *ret = code == SQLITE_ROW;
        (void)sqlite3_finalize(st); /* repeats an error that was told */
        return r;
}

static errint_t integrity_row(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        (void)ctx;
        const char *line = (const char *)sqlite3_column_text(st, 0);
        if (line && strcmp(line, "ok") != 0)
                loader_fault(l, "SQLite: %s", line);
        return 0;
}

errint_t home_integrity(struct home *h, void (*fault)(void *ctx, const char *line), void *ctx, uint64_t *ret_faults) {
        struct home_load_ops ops = {.fault = fault, .ctx = ctx};
        struct home_loader l = {.h = h, .ops = &ops};
        errint_t r = loader_each(&l, "(all)", "PRAGMA integrity_check(100)", integrity_row, NULL);
        *ret_faults = l.counts.faults;
        return r == -EBADMSG ? 0 : r;
}
