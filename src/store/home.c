/* home.c: see home.h. The transaction of a checkpoint: statements prepared once, for the life of the connection. */
#include "home_private.h"

#include <stdio.h>
#include <string.h>

static const char *const statements[ST_COUNT] = {
        [ST_BEGIN] = "BEGIN IMMEDIATE",
        [ST_COMMIT] = "COMMIT",
        [ST_ROLLBACK] = "ROLLBACK",
        [ST_PUT_META] =
                "INSERT INTO meta(id, epoch, sequence, history, digest, next_ino, promised, adopted, cluster_id, database_id, boot_id, "
                "clean,"
                " log_half, log_salt_0, log_salt_1, log_size, content_size, crc)"
                " VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) ON CONFLICT(id) DO UPDATE SET"
                " epoch = ?1, sequence = ?2, history = ?3, digest = ?4, next_ino = ?5, promised = ?6, adopted = ?7, cluster_id = ?8,"
                " database_id = ?9, boot_id = ?10, clean = ?11, log_half = ?12, log_salt_0 = ?13, log_salt_1 = ?14, log_size = ?15,"
                " content_size = ?16, crc = ?17",
        [ST_PUT_INODE] =
                "INSERT INTO inodes(ino, mode, uid, gid, nlink, size, rdev, atime, atime_ns, mtime, mtime_ns, ctime, ctime_ns, parent,"
                " next_cookie, content_check, crc) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
                " ON CONFLICT(ino) DO UPDATE SET mode = ?2, uid = ?3, gid = ?4, nlink = ?5, size = ?6, rdev = ?7, atime = ?8,"
                " atime_ns = ?9, mtime = ?10, mtime_ns = ?11, ctime = ?12, ctime_ns = ?13, parent = ?14, next_cookie = ?15,"
                " content_check = ?16, crc = ?17",
        [ST_PUT_XATTRS] = "INSERT INTO xattrs(ino, data, crc) VALUES(?1, ?2, ?3) ON CONFLICT(ino) DO UPDATE SET data = ?2, crc = ?3",
        [ST_PUT_ENTRY] = "INSERT INTO entries(parent, name, ino, cookie, crc) VALUES(?1, ?2, ?3, ?4, ?5)"
                         " ON CONFLICT(parent, name) DO UPDATE SET ino = ?3, cookie = ?4, crc = ?5",
        [ST_PUT_CONTENT] =
                "INSERT INTO contents(ino, sequence, form, raw_len, stored_len, edit, data, crc, row_crc)"
                " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(ino) DO UPDATE SET sequence = ?2, form = ?3, raw_len = ?4,"
                " stored_len = ?5, edit = ?6, data = ?7, crc = ?8, row_crc = ?9",
        [ST_PUT_EDIT] = "INSERT INTO edits(ino, sequence, form, raw_len, stored_len, edit, data, crc, row_crc)"
                        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(sequence) DO UPDATE SET ino = ?1, form = ?3, raw_len = ?4,"
                        " stored_len = ?5, edit = ?6, data = ?7, crc = ?8, row_crc = ?9",
        [ST_PUT_EXTENT] = "INSERT INTO extents(ino, sequence, n, offset, length) VALUES(?1, ?2, ?3, ?4, ?5)"
                          " ON CONFLICT(ino, sequence, n) DO UPDATE SET offset = ?4, length = ?5",
        [ST_PUT_SETTING] = "INSERT INTO settings(name, value, crc) VALUES(?1, ?2, ?3) ON CONFLICT(name) DO UPDATE SET value = ?2, crc = ?3",
        [ST_PUT_SESSIONS] = "INSERT INTO sessions(id, data, crc) VALUES(1, ?1, ?2) ON CONFLICT(id) DO UPDATE SET data = ?1, crc = ?2",
        [ST_DELETE_INODE] = "DELETE FROM inodes WHERE ino = ?1",
        [ST_DELETE_XATTRS] = "DELETE FROM xattrs WHERE ino = ?1",
        [ST_DELETE_ENTRY] = "DELETE FROM entries WHERE parent = ?1 AND name = ?2",
        [ST_DELETE_CONTENT] = "DELETE FROM contents WHERE ino = ?1",
        [ST_DELETE_EDITS] = "DELETE FROM edits WHERE ino = ?1",
        [ST_DELETE_EXTENTS] = "DELETE FROM extents WHERE ino = ?1",
        [ST_DELETE_SETTING] = "DELETE FROM settings WHERE name = ?1",
};

errint_t home_error(struct home *h, int code) {
        switch (code & 0xff) {
        case SQLITE_OK:
        case SQLITE_ROW:
        case SQLITE_DONE:
                return 0;
        default:
                break;
        }
        errint_t below = vfs_take_error(h->vfs);
        if (below < 0)
                return below;
        switch (code & 0xff) {
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
        case SQLITE_ERROR: /* a statement that does not fit the schema: the schema is damaged */
        case SQLITE_MISMATCH:
        case SQLITE_CONSTRAINT:
        case SQLITE_SCHEMA:
                return -EBADMSG;
        case SQLITE_FULL:
                return -ENOSPC;
        case SQLITE_NOMEM:
                return -ENOMEM;
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return -EBUSY;
        case SQLITE_READONLY:
                return -EROFS;
        case SQLITE_TOOBIG:
                return -EFBIG;
        default:
                return -EIO;
        }
}

errint_t home_prepare(struct home *h) {
        for (int i = 0; i < ST_COUNT; i++) {
                if (h->st[i])
                        continue;
                errint_t r = home_error(h, sqlite3_prepare_v3(h->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &h->st[i], NULL));
                if (r < 0)
                        return r;
        }
        return 0;
}

/* --- binding: errors stick, run() tells --- */

struct bind {
        struct home *h;
        sqlite3_stmt *st;
        int code, n;
};
static struct bind bind_start(struct home *h, enum home_statement which) {
        return (struct bind){.h = h, .st = h->st[which], .code = SQLITE_OK};
}
static void bind_number(struct bind *b, uint64_t v) {
        int code = sqlite3_bind_int64(b->st, ++b->n, (sqlite3_int64)v);
        b->code = b->code != SQLITE_OK ? b->code : code;
}
static void bind_null(struct bind *b) {
        int code = sqlite3_bind_null(b->st, ++b->n);
        b->code = b->code != SQLITE_OK ? b->code : code;
}
/* Bytes stay the caller's: they must live until run(). */
static void bind_bytes(struct bind *b, const void *p, size_t n) {
        int code = sqlite3_bind_blob64(b->st, ++b->n, n > 0 ? p : "", n, SQLITE_STATIC);
        b->code = b->code != SQLITE_OK ? b->code : code;
}
static void bind_text(struct bind *b, const char *p, size_t n) {
        int code = sqlite3_bind_text64(b->st, ++b->n, p, n, SQLITE_STATIC, SQLITE_UTF8);
        b->code = b->code != SQLITE_OK ? b->code : code;
}
static errint_t run(struct bind *b) {
        int code = b->code;
        if (code == SQLITE_OK)
                code = sqlite3_step(b->st);
        errint_t r = home_error(b->h, code);
        (void)sqlite3_reset(b->st); /* repeats the error of step */
        return r;
}
static errint_t run_number(struct home *h, enum home_statement which, uint64_t v) {
        struct bind b = bind_start(h, which);
        bind_number(&b, v);
        return run(&b);
}
static errint_t run_plain(struct home *h, enum home_statement which) {
        struct bind b = bind_start(h, which);
        return run(&b);
}

/* --- the transaction --- */

errint_t home_begin(struct home *h) {
        PRE(!h->in_transaction);
        (void)vfs_take_error(h->vfs); /* an older one is not this transaction's */
        errint_t r = run_plain(h, ST_BEGIN);
        h->in_transaction = r == 0;
        return r;
}

errint_t home_put_inode(struct home *h, const struct tree_inode_state *s, uint64_t content_check) {
        const struct attr *a = &s->attr;
        const uint64_t v[] = {a->ino,
                              a->mode,
                              a->uid,
                              a->gid,
                              a->nlink,
                              a->size,
                              a->rdev,
                              (uint64_t)a->atime.sec,
                              a->atime.nsec,
                              (uint64_t)a->mtime.sec,
                              a->mtime.nsec,
                              (uint64_t)a->ctime.sec,
                              a->ctime.nsec,
                              s->parent,
                              s->next_cookie,
                              content_check,
                              home_inode_crc(s, content_check)};
        struct bind b = bind_start(h, ST_PUT_INODE);
        for (size_t i = 0; i < ARRAY_LEN(v); i++)
                bind_number(&b, v[i]);
        return run(&b);
}

errint_t home_put_xattrs(struct home *h, uint64_t ino, const uint8_t *xattrs, size_t len) {
        if (len == 0)
                return run_number(h, ST_DELETE_XATTRS, ino);
        struct bind b = bind_start(h, ST_PUT_XATTRS);
        bind_number(&b, ino);
        bind_bytes(&b, xattrs, len);
        bind_number(&b, home_bytes_crc(ino, xattrs, len));
        return run(&b);
}

static errint_t drop_pieces(struct home *h, uint64_t ino) {
        errint_t r = run_number(h, ST_DELETE_EDITS, ino);
        return r < 0 ? r : run_number(h, ST_DELETE_EXTENTS, ino);
}

errint_t home_delete_content(struct home *h, uint64_t ino) {
        errint_t r = drop_pieces(h, ino);
        return r < 0 ? r : run_number(h, ST_DELETE_CONTENT, ino);
}

errint_t home_delete_inode(struct home *h, uint64_t ino) {
        errint_t r = home_delete_content(h, ino);
        if (r == 0)
                r = run_number(h, ST_DELETE_XATTRS, ino);
        return r < 0 ? r : run_number(h, ST_DELETE_INODE, ino);
}

errint_t home_put_entry(struct home *h, uint64_t parent, const char *name, size_t len, uint64_t ino, uint64_t cookie) {
        struct bind b = bind_start(h, ST_PUT_ENTRY);
        bind_number(&b, parent);
        bind_text(&b, name, len);
        bind_number(&b, ino);
        bind_number(&b, cookie);
        bind_number(&b, home_entry_crc(parent, name, len, ino, cookie));
        return run(&b);
}

errint_t home_delete_entry(struct home *h, uint64_t parent, const char *name, size_t len) {
        struct bind b = bind_start(h, ST_DELETE_ENTRY);
        bind_number(&b, parent);
        bind_text(&b, name, len);
        return run(&b);
}

static errint_t put_extents(struct home *h, uint64_t ino, const struct piece *p) {
        for (size_t i = 0; i < p->n_extents; i++) {
                struct bind b = bind_start(h, ST_PUT_EXTENT);
                bind_number(&b, ino);
                bind_number(&b, p->seq);
                bind_number(&b, i);
                bind_number(&b, p->extents[i].offset);
                bind_number(&b, p->extents[i].length);
                errint_t r = run(&b);
                if (r < 0)
                        return r;
        }
        return 0;
}

errint_t home_put_piece(struct home *h, uint64_t ino, const struct piece *p) {
        errint_t r = p->base ? drop_pieces(h, ino) : 0;
        if (r < 0)
                return r;
        struct bind b = bind_start(h, p->base ? ST_PUT_CONTENT : ST_PUT_EDIT);
        bind_number(&b, ino);
        bind_number(&b, p->seq);
        bind_number(&b, (uint64_t)p->form);
        bind_number(&b, p->raw_len);
        bind_number(&b, p->stored_len);
        if (p->edit_len > 0)
                bind_bytes(&b, p->edit, p->edit_len);
        else
                bind_null(&b);
        if (p->inline_data)
                bind_bytes(&b, p->inline_data, p->stored_len);
        else
                bind_null(&b);
        bind_number(&b, p->crc);
        bind_number(&b, home_piece_crc(ino, p));
        r = run(&b);
        return r < 0 ? r : put_extents(h, ino, p);
}

errint_t home_put_setting(struct home *h, const char *name, const char *text) {
        struct bind b = bind_start(h, text ? ST_PUT_SETTING : ST_DELETE_SETTING);
        bind_text(&b, name, strlen(name));
        if (text) {
                bind_text(&b, text, strlen(text));
                bind_number(&b, home_setting_crc(name, text));
        }
        return run(&b);
}

errint_t home_put_sessions(struct home *h, const void *p, size_t n) {
        struct bind b = bind_start(h, ST_PUT_SESSIONS);
        bind_bytes(&b, p, n);
        bind_number(&b, home_bytes_crc(1, p, n));
        return run(&b);
}

/* Cache spill is allowed here: the whole tree is written in key order, and must not stand in the cache as a whole. */
errint_t home_clear(struct home *h) {
        return home_exec(h, "DELETE FROM inodes; DELETE FROM xattrs; DELETE FROM entries; DELETE FROM contents; DELETE FROM edits;"
                            "DELETE FROM extents; DELETE FROM settings; DELETE FROM sessions; PRAGMA cache_spill = ON");
}

static void bind_hash(struct bind *b, struct hash128 v, uint8_t buf[16]) {
        le_put(buf, v.lo, 8);
        le_put(buf + 8, v.hi, 8);
        bind_bytes(b, buf, 16);
}

errint_t home_write_meta(struct home *h, const struct home_meta *m) {
        uint8_t history[16], digest[16];
        struct bind b = bind_start(h, ST_PUT_META);
        bind_number(&b, m->pos.epoch);
        bind_number(&b, m->pos.seq);
        bind_hash(&b, m->history, history);
        bind_hash(&b, m->digest, digest);
        bind_number(&b, m->next_ino);
        bind_number(&b, m->promised);
        bind_number(&b, m->adopted);
        bind_bytes(&b, m->cluster_id, sizeof(m->cluster_id));
        bind_bytes(&b, m->database_id, sizeof(m->database_id));
        bind_text(&b, m->boot_id, strlen(m->boot_id));
        bind_number(&b, m->clean ? 1 : 0);
        bind_number(&b, m->half);
        bind_number(&b, m->salt[0]);
        bind_number(&b, m->salt[1]);
        bind_number(&b, m->log_size);
        bind_number(&b, m->content_size);
        bind_number(&b, home_meta_crc(m));
        return run(&b);
}

errint_t home_commit(struct home *h, const struct home_meta *meta) {
        PRE(h->in_transaction);
        errint_t r = home_write_meta(h, meta);
        if (r == 0)
                r = run_plain(h, ST_COMMIT);
        if (r < 0) {
                home_rollback(h);
                return r;
        }
        h->in_transaction = false;
        (void)home_exec(h, "PRAGMA cache_spill = OFF"); /* cannot fail: no I/O */
        (void)sqlite3_db_release_memory(h->db);         /* pages of a large checkpoint are not kept */
        return 0;
}

void home_rollback(struct home *h) {
        if (!h->in_transaction)
                return;
        if (!sqlite3_get_autocommit(h->db))
                (void)run_plain(h, ST_ROLLBACK); /* what cannot be undone now is, from the journal, when the home is opened again */
        h->in_transaction = false;
        (void)home_exec(h, "PRAGMA cache_spill = OFF"); /* cannot fail: no I/O */
}

errint_t home_edit_encode(uint64_t keep, uint64_t size, const struct extent *extents, size_t n, struct enc *e) {
        enc_varint(e, keep + 1); /* 0: BLOB_KEEP_ALL */
        enc_varint(e, size + 1);
        enc_varint(e, n);
        uint64_t end = 0;
        for (size_t i = 0; i < n; i++) {
                enc_varint(e, extents[i].offset - end);
                enc_varint(e, extents[i].length);
                enc_u8(e, (uint8_t)extents[i].kind);
                end = extents[i].offset + extents[i].length;
        }
        return e->err;
}
