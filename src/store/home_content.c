/* home_content.c: contents put together from pieces. Three statements run beside each other in the order of inodes, so that a whole tree
 * is loaded in one pass over each table. */
#include "home_private.h"

#include <string.h>

struct cursor {
        sqlite3_stmt *st;
        bool row; /* stands on a row */
        uint64_t ino;
};
struct content_reader {
        struct home *h;
        struct content *content;
        const struct home_load_ops *ops;
        struct cursor contents, edits, extents;
        uint64_t last; /* inode asked for last: what remains of its rows is no stray */
        struct oplog_extent *list;
        size_t n_list, cap_list;
};

static errint_t cursor_next(struct home *h, struct cursor *c) {
        int code = sqlite3_step(c->st);
        c->row = code == SQLITE_ROW;
        c->ino = c->row ? (uint64_t)sqlite3_column_int64(c->st, 0) : 0;
        return home_error(h, code);
}
static errint_t cursor_open(struct home *h, const char *sql, struct cursor *c) {
        errint_t r = home_error(h, sqlite3_prepare_v2(h->db, sql, -1, &c->st, NULL));
        return r < 0 ? r : cursor_next(h, c);
}

void content_reader_free(struct content_reader *r) {
        (void)sqlite3_finalize(r->contents.st); /* repeats errors that were told */
        (void)sqlite3_finalize(r->edits.st);
        (void)sqlite3_finalize(r->extents.st);
        free(r->list);
        free(r);
}

errint_t content_reader_new(struct home *h, struct content *content, const struct home_load_ops *ops, struct content_reader **ret) {
        CLEANUP(content_reader_freep) struct content_reader *r = NEW(struct content_reader);
        *r = (struct content_reader){.h = h, .content = content, .ops = ops};
        errint_t e = cursor_open(h, home_sql_contents, &r->contents);
        if (e == 0)
                e = cursor_open(h, home_sql_edits, &r->edits);
        if (e == 0)
                e = cursor_open(h, home_sql_extents, &r->extents);
        if (e < 0)
                return e;
        *ret = steal_pointer(&r);
        return 0;
}

/* To the first row of ino or behind it. Rows of other inodes on the way belong to nobody. */
static errint_t cursor_seek(struct content_reader *r, struct cursor *c, uint64_t ino, uint64_t *stray) {
        while (c->row && c->ino < ino) {
                if (c->ino != r->last)
                        ++*stray;
                errint_t e = cursor_next(r->h, c);
                if (e < 0)
                        return e;
        }
        return 0;
}

/* The extents of piece (ino, seq): those of superseded pieces, if there were any, are passed over. */
static errint_t read_extents(struct content_reader *r, uint64_t ino, uint64_t seq) {
        struct cursor *c = &r->extents;
        r->n_list = 0;
        while (c->row && c->ino == ino && (uint64_t)sqlite3_column_int64(c->st, 1) <= seq) {
                uint64_t n = (uint64_t)sqlite3_column_int64(c->st, 2), length = (uint64_t)sqlite3_column_int64(c->st, 4);
                if ((uint64_t)sqlite3_column_int64(c->st, 1) == seq) {
                        if (n != r->n_list || n >= OPLOG_EXTENTS_MAX || length > UINT32_MAX)
                                return -EBADMSG;
                        if (r->n_list == r->cap_list) {
                                r->cap_list = r->cap_list ? 2 * r->cap_list : 16;
                                r->list = xrealloc(r->list, r->cap_list * sizeof(*r->list));
                        }
                        r->list[r->n_list++] = (struct oplog_extent){(uint64_t)sqlite3_column_int64(c->st, 3), (uint32_t)length};
                }
                errint_t e = cursor_next(r->h, c);
                if (e < 0)
                        return e;
        }
        return 0;
}

/* The stored form, in the row or read from the content file into *ret_buffer. */
static errint_t stored_form(struct content_reader *r, const struct piece *p, const uint8_t **ret, void **ret_buffer, const char **ret_why) {
        if (p->inline_data) {
                *ret = p->inline_data;
                *ret_why = "its checksum differs";
                return crc32c(0, p->inline_data, p->stored_len) == p->crc ? 0 : -EBADMSG;
        }
        if (p->stored_len == 0) {
                *ret = (const uint8_t *)"";
                return 0;
        }
        *ret_why = "the content file is missing";
        if (!r->content)
                return -EBADMSG;
        void *buffer = try_malloc(p->stored_len);
        if (!buffer)
                return -ENOMEM;
        errint_t e = content_read(r->content, p->extents, p->n_extents, buffer, p->stored_len, p->crc);
        *ret = *ret_buffer = buffer;
        *ret_why = e == -EBADMSG ? "its checksum in the content file differs" : "it cannot be read from the content file";
        return e < 0 && e != -ENOMEM ? -EBADMSG : e;
}

static errint_t raw_form(const struct piece *p, const uint8_t *stored, const uint8_t **ret, void **ret_buffer) {
        if (p->form == FORM_RAW) {
                *ret = stored;
                return 0;
        }
        void *buffer = try_malloc(p->raw_len > 0 ? (size_t)p->raw_len : 1);
        if (!buffer)
                return -ENOMEM;
        *ret = *ret_buffer = buffer;
        return decompress_zstd(stored, p->stored_len, buffer, (size_t)p->raw_len);
}

errint_t home_edit_decode(const void *p, size_t len, uint64_t *ret_keep, uint64_t *ret_size, struct extent **ret_extents, size_t *ret_n) {
        struct dec d;
        dec_init(&d, p, len);
        uint64_t keep = dec_varint(&d) - 1, size = dec_varint(&d) - 1, n = dec_varint(&d), end = 0;
        if (d.err || n > OP_EXTENTS_MAX || (size != BLOB_KEEP_ALL && size > LIMIT_FILE_SIZE_MAX))
                return -EBADMSG;
        cleanup_free struct extent *extents = try_malloc(((size_t)n + 1) * sizeof(struct extent));
        if (!extents)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                uint64_t gap = dec_varint(&d), length = dec_varint(&d);
                extents[i] = (struct extent){end + gap, length, (enum extent_kind)dec_u8(&d)};
                end = extents[i].offset + length;
                if (gap > LIMIT_FILE_SIZE_MAX || length > LIMIT_FILE_SIZE_MAX || end > LIMIT_FILE_SIZE_MAX)
                        return -EBADMSG;
        }
        if (dec_finish(&d) < 0)
                return -EBADMSG;
        *ret_keep = keep;
        *ret_size = size;
        *ret_extents = steal_pointer(&extents);
        *ret_n = (size_t)n;
        return 0;
}

static errint_t lay_edit(struct blob *old, const struct piece *p, const uint8_t *raw, struct blob **ret) {
        uint64_t keep = 0, size = 0;
        cleanup_free struct extent *extents = NULL;
        size_t n = 0;
        errint_t r = home_edit_decode(p->edit, p->edit_len, &keep, &size, &extents, &n);
        if (r < 0)
                return r;
        r = blob_edit(old, keep, extents, n, raw, (size_t)p->raw_len, size, ret);
        return r < 0 && r != -ENOMEM ? -EBADMSG : r;
}

static errint_t lay_piece(struct content_reader *r, struct blob **content, const struct piece *p, const char **ret_why) {
        const uint8_t *stored = NULL, *raw = NULL;
        cleanup_free void *stored_buffer = NULL, *raw_buffer = NULL;
        struct blob *next = NULL;
        errint_t e = stored_form(r, p, &stored, &stored_buffer, ret_why);
        if (e < 0)
                return e;
        *ret_why = "it does not decompress";
        e = raw_form(p, stored, &raw, &raw_buffer);
        if (e < 0)
                return e;
        *ret_why = "an edit does not fit";
        e = p->edit_len > 0 ? lay_edit(p->base ? NULL : *content, p, raw, &next) : blob_from_bytes(raw, (size_t)p->raw_len, &next);
        if (e < 0)
                return e;
        blob_unref(*content);
        *content = next;
        return 0;
}

/* One row: what it says is checked and told (its extents are in use), then laid over *content unless *damage says that is in vain. */
static errint_t take_row(struct content_reader *r, const struct cursor *c, bool base, struct blob **content, errint_t *damage,
                         const char **ret_why) {
        struct piece p;
        const char *why = "a column is out of range";
        errint_t e = home_row_piece(c->st, base, &p);
        if (e == 0 && !p.inline_data)
                e = read_extents(r, c->ino, p.seq);
        if (e == 0 && !p.inline_data) {
                p.extents = r->list;
                p.n_extents = r->n_list;
        }
        if (e == 0 && (uint32_t)sqlite3_column_int64(c->st, 8) != home_piece_crc(c->ino, &p)) {
                why = "the checksum of its row differs";
                e = -EBADMSG;
        }
        if (e == 0 && r->ops->piece && (p.n_extents > 0 || !p.base))
                r->ops->piece(r->ops->ctx, c->ino, &p);
        if (e == 0 && *damage == 0)
                e = lay_piece(r, content, &p, &why);
        if (e == -EBADMSG) {
                if (*damage == 0)
                        *ret_why = why;
                *damage = e;
                return 0;
        }
        return e;
}

errint_t content_reader_get(struct content_reader *r, uint64_t ino, struct blob **ret, const char **ret_why, uint64_t *stray) {
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        errint_t damage = 0, e = cursor_seek(r, &r->contents, ino, stray);
        if (e == 0)
                e = cursor_seek(r, &r->edits, ino, stray);
        if (e == 0)
                e = cursor_seek(r, &r->extents, ino, stray);
        r->last = ino;
        if (e == 0 && r->contents.row && r->contents.ino == ino)
                e = take_row(r, &r->contents, true, &content, &damage, ret_why);
        while (e == 0 && r->edits.row && r->edits.ino == ino) {
                e = take_row(r, &r->edits, false, &content, &damage, ret_why);
                if (e == 0)
                        e = cursor_next(r->h, &r->edits);
        }
        if (e < 0 || damage < 0)
                return e < 0 ? e : damage;
        *ret = steal_pointer(&content);
        return 0;
}

errint_t content_reader_end(struct content_reader *r, uint64_t *stray) {
        errint_t e = cursor_seek(r, &r->contents, UINT64_MAX, stray);
        if (e == 0)
                e = cursor_seek(r, &r->edits, UINT64_MAX, stray);
        return e < 0 ? e : cursor_seek(r, &r->extents, UINT64_MAX, stray);
}
