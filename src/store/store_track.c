/* store_track.c: what the home lacks, learnt from change sets: which inodes, entries and settings changed, and of which pieces each
 * content consists since then. */
#include "store_private.h"

#include <string.h>

void piece_done(struct file_piece *p) {
        free(p->edit);
        free(p->extents);
        *p = (struct file_piece){0};
}
void file_free(void *file) {
        struct file *f = file;
        for (size_t i = 0; i < f->n; i++)
                piece_done(&f->pieces[i]);
        if (f->pieces != &f->one)
                free(f->pieces);
        free(f);
}
struct file *file_find(struct sqlite_store *s, uint64_t ino) {
        return g_hash_table_lookup(s->files, &ino);
}
struct file *file_get(struct sqlite_store *s, uint64_t ino) {
        struct file *f = file_find(s, ino);
        if (!f) {
                f = NEW(struct file);
                f->ino = ino;
                f->pieces = &f->one;
                f->cap = 1;
                g_hash_table_insert(s->files, &f->ino, f);
        }
        return f;
}

void file_push(struct file *f, const struct file_piece *p) {
        if (f->n == f->cap) {
                f->cap *= 2;
                f->pieces = f->pieces == &f->one ? memcpy(xmalloc(f->cap * sizeof(*f->pieces)), &f->one, sizeof(f->one))
                                                 : xrealloc(f->pieces, f->cap * sizeof(*f->pieces));
        }
        f->pieces[f->n++] = *p;
}

void file_drop_pieces(struct sqlite_store *s, struct file *f) {
        for (size_t i = 0; i < f->n; i++) {
                if (f->pieces[i].n_extents > 0)
                        content_free_at(s->content, f->pieces[i].extents, f->pieces[i].n_extents, s->tick);
                piece_done(&f->pieces[i]);
        }
        f->n = 0;
}

void file_forget(struct sqlite_store *s, uint64_t ino) {
        struct file *f = file_find(s, ino);
        if (!f)
                return;
        file_drop_pieces(s, f);
        g_hash_table_remove(s->files, &ino);
}

void file_rewrite(struct sqlite_store *s, uint64_t ino) {
        file_forget(s, ino);
        dirty_mark(&s->dirty, ino, DIRTY_CONTENT)->log_len = 0;
}

/* Edits cost room and time: beyond these bounds the whole content is cheaper. */
static bool too_many_edits(const struct file *f) {
        uint64_t inlined = 0, in_extents = 0;
        for (size_t i = 1; i < f->n; i++)
                *(f->pieces[i].n_extents > 0 ? &in_extents : &inlined) += f->pieces[i].stored_len;
        return f->n > EDITS_MAX || inlined > f->pieces[0].stored_len / 2 || in_extents > f->pieces[0].stored_len;
}

static struct file_piece piece_of(const struct store_record *r, struct oplog_record *placed, bool base) {
        struct file_piece p = {
                .seq = r->pos.seq,
                .base = base,
                .form = (uint8_t)r->op->payload.form,
                .raw_len = r->op->payload.raw_len,
                .stored_len = r->op->payload.len,
                .crc = placed->payload_crc,
                .log_offset = (uint32_t)placed->log_offset,
                .log_len = placed->log_len,
                .n_extents = (uint32_t)placed->n_extents,
                .extents = (struct oplog_extent *)(uintptr_t)placed->extents,
        };
        placed->extents = NULL;
        placed->n_extents = 0;
        return p;
}

/* Offsets of an append count from where the file ended; where that was follows from where it ends now. */
static void encode_edit(const struct op *op, uint64_t size_now, struct file_piece *p) {
        struct enc e;
        uint64_t shift = 0;
        size_t n = op->write.n_extents;
        if ((op->write.flags & WRITE_APPEND) && n > 0)
                shift = size_now - (op->write.extents[n - 1].offset + op->write.extents[n - 1].length);
        struct extent *moved = xcalloc(n + 1, sizeof(struct extent));
        for (size_t i = 0; i < n; i++) {
                moved[i] = op->write.extents[i];
                moved[i].offset += shift;
        }
        enc_init(&e, OP_HEAD_MAX);
        errint_t r = home_edit_encode(op->write.keep, op->write.size, moved, n, &e);
        POST(r == 0); /* a head that holds as much was encoded before */
        free(moved);
        p->edit_len = (uint32_t)e.len;
        p->edit = xmalloc(e.len);
        memcpy(p->edit, e.data, e.len);
        enc_done(&e);
}

/* The payload is the whole content, byte for byte. */
static bool payload_is_content(const struct op *op, uint64_t size_now) {
        if (op->kind == OP_ADOPT)
                return true;
        const struct extent *x = op->write.extents;
        return op->write.n_extents == 1 && x->kind == EXTENT_DATA && x->offset == 0 && x->length == size_now;
}

/* The record is the content. */
static void track_whole(struct sqlite_store *s, const struct store_record *r, uint64_t ino, struct oplog_record *placed) {
        file_rewrite(s, ino);
        if (placed->n_extents > 0) {
                struct file_piece p = piece_of(r, placed, true);
                file_push(file_get(s, ino), &p);
                return;
        }
        struct dirty_inode *in = dirty_mark(&s->dirty, ino, DIRTY_CONTENT);
        in->seq = r->pos.seq;
        in->log_offset = (uint32_t)placed->log_offset;
        in->log_len = placed->log_len & 0xffffffu;
}

static void track_content(struct sqlite_store *s, const struct store_record *r, const struct change *c, struct oplog_record *placed) {
        bool with_payload = r->op->kind == OP_ADOPT || r->op->kind == OP_WRITE;
        bool stored = with_payload && r->op->payload.len > 0 && (placed->n_extents > 0 || placed->log_len > 0);
        if (stored && c->size > 0 && payload_is_content(r->op, c->size)) {
                track_whole(s, r, c->ino, placed);
                return;
        }
        struct file *f = file_find(s, c->ino);
        bool on_extents = f && f->pieces[0].base && (f->pieces[0].n_extents > 0 || f->pieces[0].pending);
        bool holes = stored && c->whole && placed->n_extents > 0;
        if (c->size == 0 || r->op->kind != OP_WRITE || !(on_extents || holes) || (!stored && r->op->payload.len > 0)) {
                file_rewrite(s, c->ino);
                return;
        }
        if (holes)
                file_rewrite(s, c->ino);
        struct file_piece p = piece_of(r, placed, holes);
        encode_edit(r->op, c->size, &p);
        f = file_get(s, c->ino);
        file_push(f, &p);
        (void)dirty_mark(&s->dirty, c->ino, DIRTY_CONTENT);
        if (!holes && !f->pieces[0].pending && too_many_edits(f))
                file_rewrite(s, c->ino);
}

static void track_gone(struct sqlite_store *s, uint64_t ino) {
        struct dirty_inode *in = dirty_mark(&s->dirty, ino, DIRTY_GONE);
        in->flags &= (unsigned)~DIRTY_CONTENT & 0xffu;
        in->log_len = 0;
        file_forget(s, ino);
}

/* Which entry, and what else changes with it: the directory's next cookie, even if its times did not; a directory's parent. */
static void track_entry(struct dirty *d, const struct change *c) {
        dirty_entry(d, c->parent, c->name, c->name_len);
        (void)dirty_mark(d, c->parent, DIRTY_ATTR);
        if (c->is_dir)
                (void)dirty_mark(d, c->ino, DIRTY_ATTR);
}

static void track_change(struct sqlite_store *s, const struct store_record *r, const struct change *c, struct oplog_record *placed) {
        switch (c->kind) {
        case CHANGE_INODE_NEW:
                (void)dirty_mark(&s->dirty, c->ino, DIRTY_ATTR | DIRTY_XATTRS);
                if (c->size > 0)
                        track_content(s, r, c, placed);
                break;
        case CHANGE_ATTR:
                (void)dirty_mark(&s->dirty, c->ino, DIRTY_ATTR);
                break;
        case CHANGE_CONTENT:
                (void)dirty_mark(&s->dirty, c->ino, DIRTY_ATTR);
                track_content(s, r, c, placed);
                break;
        case CHANGE_XATTR:
                (void)dirty_mark(&s->dirty, c->ino, DIRTY_ATTR | DIRTY_XATTRS);
                break;
        case CHANGE_INODE_GONE:
                track_gone(s, c->ino);
                break;
        case CHANGE_ENTRY_ADD:
        case CHANGE_ENTRY_DEL:
                track_entry(&s->dirty, c);
                break;
        case CHANGE_SETTING:
                s->dirty.settings |= UINT64_C(1) << setting_index(settings_find(c->name, c->name_len));
                break;
        }
}

void track_record(struct sqlite_store *s, const struct store_record *r, struct oplog_record *placed) {
        s->pos = r->pos;
        s->tick++;
        s->dirty.other = true;
        for (size_t i = 0; i < r->changes->n; i++)
                track_change(s, r, &r->changes->items[i], placed);
        if (placed->n_extents > 0) /* refused, or nobody's content: needed by replay alone */
                content_free_at(s->content, placed->extents, placed->n_extents, s->tick);
        free((void *)(uintptr_t)placed->extents);
        placed->extents = NULL;
        placed->n_extents = 0;
}

/* --- where records lie --- */

void index_clear(struct sqlite_store *s, unsigned half) {
        struct record_index *x = &s->index[half];
        x->places = pages_resize(x->places, x->cap * sizeof(*x->places), 0);
        x->n = x->cap = 0;
}
void index_add(struct sqlite_store *s, unsigned half, const struct oplog_record *r) {
        struct record_index *x = &s->index[half];
        if (x->n == 0 || x->first_seq + x->n != r->pos.seq) {
                x->n = 0;
                x->first_seq = r->pos.seq;
        }
        if (x->n == x->cap) {
                size_t cap = MAX_OF(2 * x->cap, (size_t)512);
                x->places = pages_resize(x->places, x->cap * sizeof(*x->places), cap * sizeof(*x->places));
                x->cap = cap;
        }
        x->places[x->n++] = (struct record_place){(uint32_t)r->log_offset, r->log_len};
}
