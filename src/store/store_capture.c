/* store_capture.c: what a checkpoint will bring home, taken from memory while the caller holds the state: attributes, references to
 * contents, entries, the encoded sessions. Nothing here waits for a disk. From here on the checkpoint and the appends that go on do not
 * meet: appends have sets of changes of their own, and another half of the log. */
#include "store_private.h"

#include <string.h>
#include <sys/stat.h>

void capture_done(struct capture *c) {
        for (size_t i = 0; i < c->n_inodes; i++)
                free(c->inodes[i].xattrs);
        for (size_t i = 0; i < c->n_entries; i++)
                free(c->entries[i].key);
        for (size_t i = 0; i < c->n_contents; i++) {
                struct captured_content *k = &c->contents[i];
                blob_unref(k->blob);
                for (size_t j = 0; j < k->n; j++)
                        piece_done(&k->pieces[j]);
                free(k->pieces);
                piece_done(&k->made);
        }
        for (size_t i = 0; i < c->n_settings; i++)
                free(c->settings[i]);
        free(c->inodes);
        free(c->entries);
        free(c->contents);
        free(c->settings);
        enc_done(&c->sessions);
        dirty_done(&c->dirty);
        *c = (struct capture){0};
}

static int inode_order(const void *a, const void *b) {
        uint64_t x = ((const struct captured_inode *)a)->state.attr.ino, y = ((const struct captured_inode *)b)->state.attr.ino;
        return x < y ? -1 : x > y;
}
static int entry_order(const void *a, const void *b) {
        const struct entry_key *x = ((const struct captured_entry *)a)->key, *y = ((const struct captured_entry *)b)->key;
        if (x->parent != y->parent)
                return x->parent < y->parent ? -1 : 1;
        int c = memcmp(x->name, y->name, MIN_OF(x->len, y->len));
        return c != 0 ? c : (int)x->len - (int)y->len;
}
static int content_order(const void *a, const void *b) {
        uint64_t x = ((const struct captured_content *)a)->ino, y = ((const struct captured_content *)b)->ino;
        return x < y ? -1 : x > y;
}

/* Rows are written in the order of their keys, so that each page is touched once. */
static errint_t capture_inodes(struct capture *c, const struct tree *tree) {
        GHashTableIter it;
        gpointer key, value;
        c->inodes = xcalloc(g_hash_table_size(c->dirty.inodes) + 1, sizeof(*c->inodes));
        g_hash_table_iter_init(&it, c->dirty.inodes);
        while (g_hash_table_iter_next(&it, &key, &value)) {
                struct captured_inode *in = &c->inodes[c->n_inodes++];
                in->flags = GPOINTER_TO_UINT(value);
                if (tree_inode_state(tree, *(const uint64_t *)key, &in->state) < 0) {
                        in->state = (struct tree_inode_state){.attr.ino = *(const uint64_t *)key};
                        in->flags = DIRTY_GONE;
                        continue;
                }
                in->content_check = home_content_check(in->state.content);
                in->state.content = NULL;
                if (!(in->flags & (DIRTY_XATTRS | DIRTY_GONE)))
                        continue;
                struct enc e;
                enc_init(&e, OP_HEAD_MAX);
                errint_t r = tree_xattrs_encode(tree, in->state.attr.ino, &e);
                if (r < 0) {
                        enc_done(&e);
                        return r;
                }
                in->xattrs = e.data; /* free() frees it */
                in->xattrs_len = e.len;
        }
        qsort(c->inodes, c->n_inodes, sizeof(*c->inodes), inode_order);
        return 0;
}

static void capture_entries(struct capture *c, const struct tree *tree) {
        GHashTableIter it;
        gpointer key, value;
        c->entries = xcalloc(g_hash_table_size(c->dirty.entries) + 1, sizeof(*c->entries));
        g_hash_table_iter_init(&it, c->dirty.entries);
        while (g_hash_table_iter_next(&it, &key, &value)) {
                const struct entry_key *k = key;
                struct captured_entry *e = &c->entries[c->n_entries++];
                e->key = xmalloc(sizeof(struct entry_key) + k->len);
                memcpy(e->key, k, sizeof(struct entry_key) + k->len);
                (void)tree_entry_cookie(tree, k->parent, k->name, k->len, &e->ino, &e->cookie); /* ino stays 0: gone */
        }
        qsort(c->entries, c->n_entries, sizeof(*c->entries), entry_order);
}

static struct file_piece piece_copy(const struct file_piece *p) {
        struct file_piece q = *p;
        q.edit = p->edit_len > 0 ? memcpy(xmalloc(p->edit_len), p->edit, p->edit_len) : NULL;
        q.extents = p->n_extents > 0 ? memcpy(xcalloc(p->n_extents, sizeof(*p->extents)), p->extents, p->n_extents * sizeof(*p->extents))
                                     : NULL;
        return q;
}

/* A rewrite leaves a piece that is pending in the file: edits that come meanwhile are edits of it. */
static void capture_content(struct sqlite_store *s, struct capture *c, const struct tree *tree, struct file *f) {
        struct captured_content *k = &c->contents[c->n_contents++];
        k->ino = f->ino;
        errint_t r = tree_content(tree, f->ino, &k->blob);
        POST(r == 0); /* a file that is gone is not in the table */
        k->rewrite = f->rewrite || f->n == 0 ||
                     (f->pieces[0].base && !f->pieces[0].in_home && f->pieces[0].log_len == 0 && f->pieces[0].n_extents == 0);
        if (k->rewrite) {
                file_drop_pieces(s, f);
                file_push(f, &(struct file_piece){.seq = c->meta.pos.seq, .base = true, .pending = true});
        } else {
                k->pieces = xcalloc(f->n, sizeof(*k->pieces));
                for (size_t i = 0; i < f->n; i++)
                        if (!f->pieces[i].in_home)
                                k->pieces[k->n++] = piece_copy(&f->pieces[i]);
        }
        f->rewrite = f->dirty = false;
}

/* Extents that a failed flush may have lost are not believed: those contents are written anew from memory. */
static void distrust_contents(struct sqlite_store *s) {
        GHashTableIter it;
        gpointer value;
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value)) {
                struct file *f = value;
                bool lost = false;
                for (size_t i = 0; i < f->n; i++)
                        lost |= !f->pieces[i].in_home && f->pieces[i].n_extents > 0 && f->pieces[i].seq > s->content_ok_seq;
                if (lost)
                        file_rewrite(s, f);
        }
}

static void capture_contents(struct sqlite_store *s, struct capture *c, const struct tree *tree) {
        GHashTableIter it;
        gpointer value;
        size_t n = 0;
        if (s->content_lost)
                distrust_contents(s);
        s->content_lost = false; /* set again if the flush of this checkpoint fails */
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value))
                n += ((struct file *)value)->dirty;
        c->contents = xcalloc(n + 1, sizeof(*c->contents));
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value))
                if (((struct file *)value)->dirty)
                        capture_content(s, c, tree, value);
        qsort(c->contents, c->n_contents, sizeof(*c->contents), content_order);
}

static void capture_settings(struct capture *c, const struct tree *tree) {
        GHashTableIter it;
        gpointer key;
        char text[24];
        c->settings = xcalloc(2 * (size_t)g_hash_table_size(c->dirty.settings) + 1, sizeof(char *));
        g_hash_table_iter_init(&it, c->dirty.settings);
        while (g_hash_table_iter_next(&it, &key, NULL)) {
                const struct setting_info *info = settings_find(key, strlen(key));
                uint64_t v = settings_get(tree_settings(tree), info);
                (void)g_snprintf(text, sizeof(text), "%" G_GUINT64_FORMAT, v); /* fits */
                c->settings[c->n_settings++] = xstrdup(key);
                c->settings[c->n_settings++] = v == info->def ? NULL : xstrdup(text);
        }
}

/* Where the log goes on. Under lock. */
static void capture_halves(struct sqlite_store *s, struct capture *c) {
        struct home_meta *m = &c->meta;
        if (c->kind != CHECKPOINT_NORMAL) { /* the log begins anew afterwards */
                m->half = 1 - s->half;
                m->salt[0] = store_random();
                m->salt[1] = store_random();
                return;
        }
        if (s->other_free && oplog_used(s->log) > 0)
                store_move_half(s);
        m->half = s->half;
        m->salt[s->half] = s->salt[s->half];
        c->free_half = s->other_free ? -1 : (int)(1 - s->half);
        m->salt[1 - s->half] = s->other_free ? s->salt[1 - s->half] : store_random();
}

static void capture_meta(struct sqlite_store *s, struct capture *c, const struct state *state) {
        struct tree_usage usage;
        tree_usage(state->tree, &usage);
        c->meta = (struct home_meta){
                .pos = state->pos,
                .history = state->history,
                .digest = tree_digest(state->tree),
                .next_ino = usage.next_ino,
                .promised = s->promised,
                .adopted = s->adopted,
                .clean = c->kind == CHECKPOINT_CLEAN_STOP,
        };
        capture_halves(s, c);
}

/* Everything there is, as changes: for a home that is emptied first. */
struct all {
        struct sqlite_store *s;
        struct dirty *dirty;
        const struct tree *tree;
        uint64_t dir;
};
static bool all_entries(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct all *a = ctx;
        struct entry_key *key = xmalloc(sizeof(struct entry_key) + len);
        (void)cookie;
        (void)ino;
        (void)mode;
        key->parent = a->dir;
        key->len = (uint8_t)len;
        memcpy(key->name, name, len);
        g_hash_table_replace(a->dirty->entries, key, key);
        return true;
}
static bool all_inodes(void *ctx, const struct tree_inode_state *in) {
        struct all *a = ctx;
        dirty_mark(a->dirty, in->attr.ino, DIRTY_ATTR | DIRTY_XATTRS);
        if (blob_size(in->content) > 0)
                file_rewrite(a->s, file_get(a->s, in->attr.ino));
        a->dir = in->attr.ino;
        if (S_ISDIR(in->attr.mode))
                (void)tree_readdir(a->tree, in->attr.ino, 2, all_entries, a); /* it is a directory */
        return true;
}
static void mark_everything(struct sqlite_store *s, const struct tree *tree) {
        struct all a = {.s = s, .dirty = &s->dirty, .tree = tree};
        GHashTableIter it;
        gpointer value;
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value)) {
                file_drop_pieces(s, value);
                g_hash_table_iter_remove(&it);
        }
        dirty_done(&s->dirty);
        dirty_init(&s->dirty);
        tree_each_inode(tree, 0, all_inodes, &a);
        for (size_t i = 0; i < settings_count(); i++) {
                char *name = xstrdup(settings_info(i)->name);
                g_hash_table_replace(s->dirty.settings, name, name);
        }
        s->dirty.other = true;
}

errint_t store_prepare_locked(struct sqlite_store *s, const struct state *state, enum store_checkpoint_kind kind) {
        struct capture *c = &s->capture;
        if (s->failed[0] || s->read_only || s->stopped)
                return -EROFS;
        if (c->active)
                return -EBUSY;
        if ((s->trouble < 0 || s->replacing) && kind == CHECKPOINT_NORMAL)
                kind = CHECKPOINT_RESCUE;
        *c = (struct capture){.kind = kind, .active = true, .free_half = -1, .everything = s->replacing, .tick = ++s->tick};
        enc_init(&c->sessions, SESSIONS_ENCODED_MAX);
        c->nothing = kind == CHECKPOINT_NORMAL && !dirty_any(&s->dirty);
        if (c->nothing)
                return 0;
        if (c->everything)
                mark_everything(s, state->tree);
        c->dirty = s->dirty;
        dirty_init(&s->dirty);
        capture_meta(s, c, state);
        c->error = capture_inodes(c, state->tree);
        capture_entries(c, state->tree);
        capture_contents(s, c, state->tree);
        capture_settings(c, state->tree);
        if (c->error == 0)
                c->error = sessions_encode(state->sessions, &c->sessions);
        if (c->error == 0)
                s->stopped = kind == CHECKPOINT_CLEAN_STOP;
        return c->error; /* -ENOMEM: run gives everything back */
}

errint_t store_prepare(struct store *base, const struct state *state, enum store_checkpoint_kind kind) {
        struct sqlite_store *s = STORE_OF(base);
        pthread_mutex_lock(&s->lock);
        errint_t r = store_prepare_locked(s, state, kind);
        pthread_mutex_unlock(&s->lock);
        return r;
}
