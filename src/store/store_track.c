/* store_track.c: what the home lacks, learnt from change sets: which inodes, entries and settings changed, and of which pieces each
 * content consists since then. */
#include "store_private.h"

#include <string.h>
#include <sys/stat.h>

static guint entry_hash(gconstpointer p) {
        const struct entry_key *k = p;
        return (guint)hash128_chain((struct hash128){k->parent, 0}, k->name, k->len).lo;
}
static gboolean entry_equal(gconstpointer a, gconstpointer b) {
        const struct entry_key *x = a, *y = b;
        return x->parent == y->parent && x->len == y->len && memcmp(x->name, y->name, x->len) == 0;
}

void dirty_init(struct dirty *d) {
        *d = (struct dirty){
                .inodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, free, NULL),
                .entries = g_hash_table_new_full(entry_hash, entry_equal, free, NULL),
                .settings = g_hash_table_new_full(g_str_hash, g_str_equal, free, NULL),
        };
}
void dirty_done(struct dirty *d) {
        if (!d->inodes)
                return;
        g_hash_table_destroy(d->inodes);
        g_hash_table_destroy(d->entries);
        g_hash_table_destroy(d->settings);
        *d = (struct dirty){0};
}
bool dirty_any(const struct dirty *d) {
        return d->other || g_hash_table_size(d->inodes) > 0 || g_hash_table_size(d->entries) > 0 || g_hash_table_size(d->settings) > 0;
}

void dirty_mark(struct dirty *d, uint64_t ino, unsigned flags) {
        uint64_t *key = NEW(uint64_t);
        *key = ino;
        flags |= GPOINTER_TO_UINT(g_hash_table_lookup(d->inodes, &ino));
        g_hash_table_insert(d->inodes, key, GUINT_TO_POINTER(flags)); /* frees the new key if there is an old one */
}

static void mark_entry(struct dirty *d, const struct change *c) {
        struct entry_key *key = xmalloc(sizeof(struct entry_key) + c->name_len);
        key->parent = c->parent;
        key->len = (uint8_t)c->name_len;
        memcpy(key->name, c->name, c->name_len);
        g_hash_table_replace(d->entries, key, key);
        dirty_mark(d, c->parent, DIRTY_ATTR); /* its next cookie moved, even if its times did not */
        if (c->is_dir)
                dirty_mark(d, c->ino, DIRTY_ATTR); /* its parent may be another one */
}

void dirty_merge(struct dirty *into, struct dirty *from) {
        GHashTableIter it;
        gpointer key, value;
        g_hash_table_iter_init(&it, from->inodes);
        while (g_hash_table_iter_next(&it, &key, &value))
                dirty_mark(into, *(const uint64_t *)key, GPOINTER_TO_UINT(value));
        g_hash_table_iter_init(&it, from->entries);
        while (g_hash_table_iter_next(&it, &key, &value)) {
                g_hash_table_iter_steal(&it);
                g_hash_table_replace(into->entries, key, key);
        }
        g_hash_table_iter_init(&it, from->settings);
        while (g_hash_table_iter_next(&it, &key, &value)) {
                g_hash_table_iter_steal(&it);
                g_hash_table_replace(into->settings, key, key);
        }
        into->other |= from->other;
        dirty_done(from);
}

/* --- contents --- */

void piece_done(struct file_piece *p) {
        free(p->edit);
        free(p->extents);
        *p = (struct file_piece){0};
}
void file_free(void *file) {
        struct file *f = file;
        for (size_t i = 0; i < f->n; i++)
                piece_done(&f->pieces[i]);
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
                g_hash_table_insert(s->files, &f->ino, f);
        }
        return f;
}

void file_push(struct file *f, const struct file_piece *p) {
        if (f->n == f->cap) {
                f->cap = f->cap ? 2 * f->cap : 1;
                f->pieces = xrealloc(f->pieces, f->cap * sizeof(*f->pieces));
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

void file_settle(struct sqlite_store *s, struct file *f) {
        if (f->dirty || f->n > 1 || (f->n == 1 && (f->pieces[0].n_extents > 0 || f->pieces[0].pending || !f->pieces[0].base)))
                return;
        g_hash_table_remove(s->files, &f->ino);
}

void file_rewrite(struct sqlite_store *s, struct file *f) {
        file_drop_pieces(s, f);
        f->rewrite = f->dirty = true;
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
                .form = r->op->payload.form,
                .raw_len = r->op->payload.raw_len,
                .stored_len = r->op->payload.len,
                .crc = placed->payload_crc,
                .log_offset = placed->log_offset,
                .log_len = placed->log_len,
                .n_extents = placed->n_extents,
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
        p->edit_len = e.len;
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

static void track_content(struct sqlite_store *s, const struct store_record *r, const struct change *c, struct oplog_record *placed) {
        struct attr attr = {0};
        struct file *f = file_get(s, c->ino);
        errint_t e = tree_getattr(r->state->tree, c->ino, &attr);
        POST(e == 0); /* it was changed just now */
        bool with_payload = r->op->kind == OP_ADOPT || r->op->kind == OP_WRITE;
        bool stored = with_payload && r->op->payload.len > 0 && (placed->n_extents > 0 || placed->log_len > 0);
        f->dirty = true;
        if (attr.size == 0) {
                file_rewrite(s, f);
                return;
        }
        if (stored && payload_is_content(r->op, attr.size)) {
                file_drop_pieces(s, f);
                f->rewrite = false;
                struct file_piece p = piece_of(r, placed, true);
                file_push(f, &p);
                return;
        }
        bool on_extents = f->n > 0 && f->pieces[0].base && (f->pieces[0].n_extents > 0 || f->pieces[0].pending);
        bool holes = stored && c->whole && placed->n_extents > 0;
        if (r->op->kind != OP_WRITE || f->rewrite || !(on_extents || holes) || (!stored && r->op->payload.len > 0)) {
                file_rewrite(s, f);
                return;
        }
        if (holes)
                file_drop_pieces(s, f);
        struct file_piece p = piece_of(r, placed, holes);
        encode_edit(r->op, attr.size, &p);
        file_push(f, &p);
        if (!holes && !f->pieces[0].pending && too_many_edits(f))
                file_rewrite(s, f);
}

static void track_gone(struct sqlite_store *s, uint64_t ino) {
        struct file *f = file_find(s, ino);
        if (!f)
                return;
        file_drop_pieces(s, f);
        g_hash_table_remove(s->files, &ino);
}

static void track_change(struct sqlite_store *s, const struct store_record *r, const struct change *c, struct oplog_record *placed) {
        struct attr attr = {0};
        switch (c->kind) {
        case CHANGE_INODE_NEW:
                dirty_mark(&s->dirty, c->ino, DIRTY_ATTR | DIRTY_XATTRS);
                if (tree_getattr(r->state->tree, c->ino, &attr) == 0 && attr.size > 0)
                        track_content(s, r, c, placed);
                break;
        case CHANGE_ATTR:
                dirty_mark(&s->dirty, c->ino, DIRTY_ATTR);
                break;
        case CHANGE_CONTENT:
                dirty_mark(&s->dirty, c->ino, DIRTY_ATTR);
                track_content(s, r, c, placed);
                break;
        case CHANGE_XATTR:
                dirty_mark(&s->dirty, c->ino, DIRTY_ATTR | DIRTY_XATTRS);
                break;
        case CHANGE_INODE_GONE:
                dirty_mark(&s->dirty, c->ino, DIRTY_GONE);
                track_gone(s, c->ino);
                break;
        case CHANGE_ENTRY_ADD:
        case CHANGE_ENTRY_DEL:
                mark_entry(&s->dirty, c);
                break;
        case CHANGE_SETTING: {
                char *name = xmalloc((size_t)c->name_len + 1);
                memcpy(name, c->name, c->name_len);
                name[c->name_len] = '\0';
                g_hash_table_replace(s->dirty.settings, name, name);
                break;
        }
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
        g_array_set_size(s->index[half].places, 0);
}
void index_add(struct sqlite_store *s, unsigned half, const struct oplog_record *r) {
        struct record_index *x = &s->index[half];
        if (x->places->len == 0 || x->first_seq + x->places->len != r->pos.seq) {
                g_array_set_size(x->places, 0);
                x->first_seq = r->pos.seq;
        }
        struct record_place p = {(uint32_t)r->log_offset, r->log_len};
        g_array_append_val(x->places, p);
}
