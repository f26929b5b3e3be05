/* home_schema.c: opening the database: whose file is it, pragmas set and read back, schema, migrations, the row of meta.
 *
 * Names of tables and columns are for people too: after a clean stop, plain sqlite3 reads the tree.
 *
 * Sizes that decide the bytes: content and metadata apart, so that a touch rewrites no content; entries keyed by (parent, name) in one
 * b-tree; xattrs in rows of their own, as few files have them; no row that every operation changes. */
#include "home_private.h"

#include <stdio.h>
#include <string.h>

static const char schema_1[] =
        "CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK(id = 1), epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, history BLOB NOT NULL,"
        " digest BLOB NOT NULL, next_ino INTEGER NOT NULL, promised INTEGER NOT NULL, adopted INTEGER NOT NULL, cluster_id BLOB NOT NULL,"
        " database_id BLOB NOT NULL, boot_id TEXT NOT NULL, clean INTEGER NOT NULL, log_half INTEGER NOT NULL, log_salt_0 INTEGER NOT NULL,"
        " log_salt_1 INTEGER NOT NULL, log_size INTEGER NOT NULL, content_size INTEGER NOT NULL, crc INTEGER NOT NULL);"
        "CREATE TABLE inodes(ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,"
        " nlink INTEGER NOT NULL, size INTEGER NOT NULL, rdev INTEGER NOT NULL, atime INTEGER NOT NULL, atime_ns INTEGER NOT NULL,"
        " mtime INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, parent INTEGER NOT NULL,"
        " next_cookie INTEGER NOT NULL, content_check INTEGER NOT NULL, crc INTEGER NOT NULL);"
        "CREATE TABLE xattrs(ino INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);"
        "CREATE TABLE entries(parent INTEGER NOT NULL, name TEXT NOT NULL, ino INTEGER NOT NULL, cookie INTEGER NOT NULL,"
        " crc INTEGER NOT NULL, PRIMARY KEY(parent, name)) WITHOUT ROWID;" /* unique, as names in a directory are */
        "CREATE TABLE contents(ino INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, form INTEGER NOT NULL, raw_len INTEGER NOT NULL,"
        " stored_len INTEGER NOT NULL, edit BLOB, data BLOB, crc INTEGER NOT NULL, row_crc INTEGER NOT NULL);"
        "CREATE TABLE edits(sequence INTEGER PRIMARY KEY, ino INTEGER NOT NULL, form INTEGER NOT NULL, raw_len INTEGER NOT NULL,"
        " stored_len INTEGER NOT NULL, edit BLOB, data BLOB, crc INTEGER NOT NULL, row_crc INTEGER NOT NULL);"
        "CREATE INDEX edits_of_inode ON edits(ino);"
        "CREATE TABLE extents(ino INTEGER NOT NULL, sequence INTEGER NOT NULL, n INTEGER NOT NULL, offset INTEGER NOT NULL,"
        " length INTEGER NOT NULL, PRIMARY KEY(ino, sequence, n)) WITHOUT ROWID;"
        "CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE sessions(id INTEGER PRIMARY KEY CHECK(id = 1), data BLOB NOT NULL, crc INTEGER NOT NULL);"
        "PRAGMA user_version = 1;";

/* migrations[v] brings a database from version v to v + 1, its user_version too, inside one transaction. Version 0 is an empty file. */
static const char *const migrations[] = {schema_1};
static_assert(ARRAY_LEN(migrations) == HOME_SCHEMA, "each version has its step");

errint_t home_exec(struct home *h, const char *sql) {
        return home_error(h, sqlite3_exec(h->db, sql, NULL, NULL, NULL));
}

static errint_t pragma_text(struct home *h, const char *name, char *ret, size_t size) {
        char sql[64];
        (void)snprintf(sql, sizeof(sql), "PRAGMA %s", name); /* names below are short */
        sqlite3_stmt *st = NULL;
        int code = sqlite3_prepare_v2(h->db, sql, -1, &st, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(st);
        const char *text = code == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
        if (text)
                (void)snprintf(ret, size, "%s", text); /* a longer answer differs from what is wanted anyway */
        (void)sqlite3_finalize(st);                    /* repeats the error of step */
        if (code == SQLITE_ROW)
                return text ? 0 : -EIO;
        return code == SQLITE_DONE ? -EIO : home_error(h, code);
}

struct pragma {
        const char *name, *value, *read_back;
        bool when_fresh; /* part of the file: counts only before the first page is written */
};
#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)
static_assert(HOME_PAGE_SIZE == 2048u, "as in the table below");
static const struct pragma pragmas[] = {
        {"page_size", "2048", "2048", true},
        {"auto_vacuum", "NONE", "0", true},
        {"locking_mode", "EXCLUSIVE", "exclusive", false},
        {"journal_mode", "PERSIST", "persist", false},
        {"synchronous", "FULL", "2", false},
        {"secure_delete", "OFF", "0", false},  /* Debian's SQLite writes zeros over all that is freed otherwise */
        {"foreign_keys", "OFF", "0", false},   /* tree_restore_end checks far more, and a child may come before its parent */
        {"cell_size_check", "ON", "1", false}, /* damaged pages are found when read */
        {"trusted_schema", "OFF", "0", false},
        {"temp_store", "MEMORY", "2", false},
        {"mmap_size", "0", "0", false}, /* a failed read is an error, not a SIGBUS */
        {"cache_size", "-2048", "-2048", false},
        {"cache_spill", "OFF", "0", false},        /* each page is written once per transaction */
        {"journal_size_limit", "-1", "-1", false}, /* the journal keeps its place on the disk */
};

static errint_t apply_pragma(struct home *h, const struct pragma *p, char *ret_reason, size_t reason_size) {
        char sql[96], back[32] = "";
        (void)snprintf(sql, sizeof(sql), "PRAGMA %s = %s", p->name, p->value); /* fits: see the table */
        errint_t r = home_exec(h, sql);
        if (r == 0)
                r = pragma_text(h, p->name, back, sizeof(back));
        if (r == 0 && p->when_fresh)
                return 0; /* a file that is there keeps what it was made with */
        /* A memory-mapped build option may answer nothing at all for mmap_size: then there is none. */
        if (r == -EIO && strcmp(p->name, "mmap_size") == 0)
                return 0;
        if (r < 0) {
                (void)snprintf(ret_reason, reason_size, "%s: SQLite refuses PRAGMA %s: %s", h->path, p->name, sqlite3_errmsg(h->db));
                return r;
        }
        if (strcasecmp(back, p->read_back) != 0) {
                (void)snprintf(ret_reason, reason_size, "%s: PRAGMA %s = %s was not taken: SQLite says %s", h->path, p->name, p->value,
                               back);
                return -ENOTSUP;
        }
        return 0;
}

/* --- whose file is it: looked at without SQLite, so that a file that is not ours is not touched, not even to roll back its journal. */

static uint32_t be32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The first page of a database whose creation was interrupted may be missing while later ones are there. */
static bool all_zeros(const uint8_t *p, size_t n) {
        while (n > 0 && p[n - 1] == 0)
                n--;
        return n == 0;
}

/* ret_new: it does not exist, or holds nothing yet. */
static errint_t peek(struct home *h, bool *ret_new, char *ret_reason, size_t reason_size) {
        bool exists = false;
        struct disk_file *f = NULL;
        uint8_t head[100] = {0};
        size_t got = 0;
        errint_t r = h->disk->ops->exists(h->disk, h->path, &exists);
        if (r == 0 && exists)
                r = disk_open(h->disk, h->path, DISK_READ_ONLY, &f);
        if (r == 0 && exists)
                r = disk_pread(f, head, sizeof(head), 0, &got);
        disk_close(f);
        if (r < 0) {
                (void)snprintf(ret_reason, reason_size, "%s: cannot be read: %s", h->path, strerror(-r));
                return r;
        }
        *ret_new = !exists;
        if (!exists && h->read_only) {
                (void)snprintf(ret_reason, reason_size, "%s: does not exist", h->path);
                return -ENOENT;
        }
        if (all_zeros(head, got))
                return 0;
        if (got < sizeof(head) || memcmp(head, "SQLite format 3", 16) != 0 || be32(head + 68) != HOME_APPLICATION_ID) {
                (void)snprintf(ret_reason, reason_size, "%s: is not a Coterie database; left as it is", h->path);
                return -EBADMSG;
        }
        if (be32(head + 60) > HOME_SCHEMA) {
                (void)snprintf(ret_reason, reason_size, "%s: has schema %u, this program knows up to %u: use a newer one; left as it is",
                               h->path, be32(head + 60), HOME_SCHEMA);
                return -ENOTSUP;
        }
        return 0;
}

static errint_t pragma_number(struct home *h, const char *name, unsigned *ret) {
        char text[32] = "";
        errint_t r = pragma_text(h, name, text, sizeof(text));
        if (r == 0)
                *ret = (unsigned)strtoul(text, NULL, 10);
        return r;
}

/* The tree of a new database is an empty one, which has a root. */
static errint_t put_root(struct home *h) {
        CLEANUP(tree_freep) struct tree *tree = tree_new();
        struct tree_inode_state root;
        errint_t r = tree_inode_state(tree, INO_ROOT, &root);
        return r < 0 ? r : home_put_inode(h, &root, 0);
}

/* Brings the schema up to date in one transaction; a fresh file gets its identity and the first row of meta with it. */
static errint_t migrate(struct home *h, const struct home_meta *fresh_meta) {
        unsigned version = 0;
        char sql[64];
        errint_t r = pragma_number(h, "user_version", &version);
        if (r < 0 || version >= HOME_SCHEMA)
                return r;
        r = home_exec(h, "BEGIN IMMEDIATE");
        for (; r == 0 && version < HOME_SCHEMA; version++)
                r = home_exec(h, migrations[version]);
        if (r == 0 && fresh_meta) {
                (void)snprintf(sql, sizeof(sql), "PRAGMA application_id = %d", HOME_APPLICATION_ID); /* fits */
                r = home_exec(h, sql);
                if (r == 0)
                        r = home_prepare(h);
                if (r == 0)
                        r = home_write_meta(h, fresh_meta);
                if (r == 0)
                        r = put_root(h);
        }
        if (r == 0)
                r = home_exec(h, "COMMIT");
        if (r < 0)
                (void)sqlite3_exec(h->db, "ROLLBACK", NULL, NULL, NULL); /* the first error counts */
        return r;
}

static bool is_damage(errint_t r) {
        return r == -EBADMSG;
}

/* What an interrupted creation left is rolled back by SQLite when it is first read: the file is empty then. */
static errint_t bring_up(struct home *h, const struct home_meta *fresh, bool *ret_fresh, char *ret_reason, size_t reason_size) {
        unsigned pages = 0;
        errint_t r = 0;
        for (size_t i = 0; r == 0 && i < ARRAY_LEN(pragmas); i++)
                r = apply_pragma(h, &pragmas[i], ret_reason, reason_size);
        if (r == 0)
                r = pragma_number(h, "page_count", &pages);
        if (r < 0)
                return r;
        *ret_fresh = pages == 0;
        if (pages == 0 && (h->read_only || !fresh)) {
                (void)snprintf(ret_reason, reason_size, "%s: is empty", h->path);
                return -ENOENT;
        }
        r = migrate(h, pages == 0 ? fresh : NULL);
        if (r == 0)
                r = home_prepare(h);
        if (r < 0 && !is_damage(r))
                (void)snprintf(ret_reason, reason_size, "%s: %s: %s", h->path, strerror(-r), sqlite3_errmsg(h->db));
        return r;
}

errint_t home_connect(struct home *h, const struct home_meta *fresh, bool *ret_fresh, char *ret_reason, size_t reason_size) {
        int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE | (h->read_only || !fresh ? 0 : SQLITE_OPEN_CREATE);
        errint_t r = home_error(h, sqlite3_open_v2(h->path, &h->db, flags, vfs_name(h->vfs)));
        if (r < 0) {
                if (r == -EBUSY)
                        (void)snprintf(ret_reason, reason_size, "%s: is in use by another process", h->path);
                else
                        (void)snprintf(ret_reason, reason_size, "%s: cannot be opened: %s", h->path, strerror(-r));
                return r;
        }
        /* Views and triggers are no part of the schema: with them, a file that somebody else wrote has rows without end. */
        (void)sqlite3_db_config(h->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL); /* knows them since 3.35, triggers longer */
        (void)sqlite3_db_config(h->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
        *ret_fresh = false;
        r = bring_up(h, fresh, ret_fresh, ret_reason, reason_size);
        if (is_damage(r) && !*ret_fresh) {
                home_damaged(h, sqlite3_errmsg(h->db));
                return 0;
        }
        return r;
}

void home_disconnect(struct home *h) {
        for (int i = 0; i < ST_COUNT; i++) {
                (void)sqlite3_finalize(h->st[i]); /* repeats an error that was told */
                h->st[i] = NULL;
        }
        int code = sqlite3_close(h->db);
        POST(code == SQLITE_OK); /* busy only with unfinalised statements, which would be our mistake */
        h->db = NULL;
        h->in_transaction = false;
}

/* --- meta --- */

static bool column_bytes(sqlite3_stmt *st, int col, void *ret, size_t n) {
        if (sqlite3_column_type(st, col) != SQLITE_BLOB || sqlite3_column_bytes(st, col) != (int)n)
                return false;
        memcpy(ret, sqlite3_column_blob(st, col), n);
        return true;
}
static struct hash128 hash_of_bytes(const uint8_t p[16]) {
        struct dec d;
        dec_init(&d, p, 16);
        uint64_t lo = dec_u64(&d);
        return (struct hash128){lo, dec_u64(&d)};
}
static uint64_t column_u64(sqlite3_stmt *st, int col) {
        return (uint64_t)sqlite3_column_int64(st, col);
}

static errint_t meta_from_row(sqlite3_stmt *st, struct home_meta *ret) {
        struct home_meta m = {.pos = {column_u64(st, 0), column_u64(st, 1)}};
        uint8_t history[16], digest[16];
        const char *boot = (const char *)sqlite3_column_text(st, 9);
        if (!column_bytes(st, 2, history, 16) || !column_bytes(st, 3, digest, 16) ||
            !column_bytes(st, 7, m.cluster_id, sizeof(m.cluster_id)) || !column_bytes(st, 8, m.database_id, sizeof(m.database_id)) ||
            !boot || strlen(boot) >= sizeof(m.boot_id))
                return -EBADMSG;
        m.history = hash_of_bytes(history);
        m.digest = hash_of_bytes(digest);
        m.next_ino = column_u64(st, 4);
        m.promised = column_u64(st, 5);
        m.adopted = column_u64(st, 6);
        (void)strcpy(m.boot_id, boot); /* length checked above */
        m.clean = sqlite3_column_int64(st, 10) != 0;
        m.half = (unsigned)sqlite3_column_int64(st, 11);
        m.salt[0] = column_u64(st, 12);
        m.salt[1] = column_u64(st, 13);
        m.log_size = column_u64(st, 14);
        m.content_size = column_u64(st, 15);
        if (column_u64(st, 16) != home_meta_crc(&m) || m.half > 1)
                return -EBADMSG;
        *ret = m;
        return 0;
}

errint_t home_read_meta(struct home *h, struct home_meta *ret) {
        sqlite3_stmt *st = NULL;
        int code =
                sqlite3_prepare_v2(h->db,
                                   "SELECT epoch, sequence, history, digest, next_ino, promised, adopted, cluster_id, database_id, boot_id,"
                                   " clean, log_half, log_salt_0, log_salt_1, log_size, content_size, crc FROM meta WHERE id = 1",
                                   -1, &st, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(st);
        errint_t r = code == SQLITE_ROW ? meta_from_row(st, ret) : code == SQLITE_DONE ? -EBADMSG : home_error(h, code);
        (void)sqlite3_finalize(st); /* repeats the error of step */
        return r;
}

/* --- open and close --- */

static struct home *home_new(const struct store_config *config) {
        struct home *h = NEW(struct home);
        h->path = xstrdup(config->path);
        h->disk = config->disk;
        h->metrics = config->metrics;
        h->read_only = config->read_only;
        h->vfs = vfs_new(config->disk, config->metrics, config->read_only);
        return h;
}

/* Nothing half made stays behind when a new database could not be finished. */
static void remove_half_made(const struct store_config *config) {
        cleanup_free char *journal = xmalloc(strlen(config->path) + sizeof("-journal"));
        (void)sprintf(journal, "%s-journal", config->path);
        (void)config->disk->ops->unlink(config->disk, config->path); /* the first error is the one to tell */
        (void)config->disk->ops->unlink(config->disk, journal);
}

errint_t home_open(const struct store_config *config, struct home **ret, struct home_meta *ret_meta, bool *ret_fresh, char *ret_reason,
                   size_t reason_size) {
        struct home *h = home_new(config);
        struct home_meta meta = *ret_meta;
        bool fresh = false, new = false;
        errint_t r = peek(h, &new, ret_reason, reason_size);
        if (r == 0)
                r = home_connect(h, &meta, &fresh, ret_reason, reason_size);
        if (r == 0) {
                r = home_read_meta(h, &meta);
                if (is_damage(r)) {
                        home_damaged(h, "the meta row is missing or its checksum differs");
                        meta = (struct home_meta){.clean = true};
                        r = 0;
                } else if (r < 0)
                        (void)snprintf(ret_reason, reason_size, "%s: %s", h->path, strerror(-r));
        }
        if (r < 0) {
                home_close(h);
                if (new &&r != -EBUSY)
                        remove_half_made(config);
                return r;
        }
        if (home_damage(h))
                (void)snprintf(ret_reason, reason_size, "%s", home_damage(h));
        *ret = h;
        *ret_meta = meta;
        *ret_fresh = fresh;
        return 0;
}

errint_t home_reopen(struct home *h, struct home_meta *ret_meta) {
        char reason[256] = "";
        vfs_keep(h->vfs); /* nobody else gets in */
        home_disconnect(h);
        (void)vfs_take_error(h->vfs); /* of the connection that is gone */
        bool fresh = false;
        errint_t r = home_connect(h, NULL, &fresh, reason, sizeof(reason));
        if (r == 0 && home_damage(h))
                r = -EBADMSG;
        return r < 0 ? r : home_read_meta(h, ret_meta);
}

void home_close(struct home *h) {
        if (!h)
                return;
        home_disconnect(h);
        vfs_free(h->vfs);
        free(h->path);
        free(h);
}

const char *home_damage(const struct home *h) {
        return h->damage[0] ? h->damage : NULL;
}

void home_damaged(struct home *h, const char *what) {
        if (!h->damage[0])
                (void)snprintf(h->damage, sizeof(h->damage), "%s: is damaged: %s", h->path, what); /* cut if need be */
        vfs_freeze(h->vfs);
}
