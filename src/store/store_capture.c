/* store_capture.c: what a checkpoint will bring home, taken from memory while the caller holds the state: attributes, references to
 * contents, entries, the encoded sessions. Nothing here waits for a disk. From here on the checkpoint and the appends that go on do not
 * meet: appends have sets of changes of their own, and another half of the log. */
#include "store_private.h"

#include <string.h>
#include <sys/stat.h>

void capture_done(struct capture *c) {
        for (size_t i = 0; i < c->n_inodes; i++) {
                blob_unref(c->inodes[i].blob);
                free(c->inodes[i].xattrs);
        }
        for (size_t i = 0; i < c->n_contents; i++) {
                piece_done(&c->contents[i].made);
                free(c->contents[i].inlined);
        }
        for (size_t i = 0; i < c->n_settings; i++)
                free(c->settings[i]);
        free(c->settings);
        enc_done(&c->sessions);
        dirty_done(&c->dirty);
        pool_done(&c->memory);
        *c = (struct capture){0};
}

/* Rows are written in the order of their keys, so that each page is touched once. */
static errint_t capture_inode(struct captured_inode *in, unsigned flags, const struct tree *tree) {
        struct tree_inode_state t;
        if (tree_inode_state(tree, in->ino, &t) < 0)
                return 0;
        in->size = t.attr.size;
        in->parent = t.parent;
        in->next_cookie = t.next_cookie;
        in->content_check = home_content_check(t.content);
        in->atime = t.attr.atime.sec;
        in->atime_ns = t.attr.atime.nsec;
        in->mtime = t.attr.mtime.sec;
        in->mtime_ns = t.attr.mtime.nsec;
        in->ctime = t.attr.ctime.sec;
        in->ctime_ns = t.attr.ctime.nsec;
        in->mode = t.attr.mode;
        in->uid = t.attr.uid;
        in->gid = t.attr.gid;
        in->nlink = t.attr.nlink;
        in->rdev = t.attr.rdev;
        if (flags & DIRTY_CONTENT)
                in->blob = blob_ref(t.content);
        if (!(flags & DIRTY_XATTRS))
                return 0;
        struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        errint_t r = tree_xattrs_encode(tree, in->ino, &e);
        if (r < 0 || e.len == 0) {
                enc_done(&e);
                return r;
        }
        in->xattrs = e.data; /* free() frees it */
        in->xattrs_len = e.len;
        return 0;
}

static errint_t capture_inodes(struct capture *c, const struct tree *tree) {
        c->inodes = pool_take(&c->memory, (c->dirty.n_inodes + 1) * sizeof(*c->inodes));
        c->n_inodes = c->dirty.n_inodes;
        for (size_t i = 0; i < c->dirty.n_inodes; i++)
                c->inodes[i].ino = c->dirty.inodes[i].ino;
        for (size_t i = 0; i < c->dirty.n_inodes; i++) {
                errint_t r = capture_inode(&c->inodes[i], c->dirty.inodes[i].flags, tree);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void capture_entries(struct capture *c, const struct tree *tree) {
        c->entries = pool_take(&c->memory, (c->dirty.n_entries + 1) * sizeof(*c->entries));
        for (size_t i = 0; i < c->dirty.n_entries; i++) {
                const struct entry_key *k = c->dirty.entries[i];
                (void)tree_entry_cookie(tree, k->parent, k->name, k->len, &c->entries[i].ino,
                                        &c->entries[i].cookie); /* ino stays 0: gone */
        }
}

static const void *copy(struct capture *c, const void *p, size_t n) {
        return n > 0 ? memcpy(pool_take(&c->memory, n), p, n) : NULL;
}

/* A rewrite of what may end in extents leaves a piece that is pending: edits that come meanwhile are edits of it. */
static void capture_content(struct sqlite_store *s, struct capture *c, size_t at) {
        struct captured_content *k = &c->contents[c->n_contents++];
        struct file *f = file_find(s, c->inodes[at].ino);
        k->at = at;
        k->rewrite = !f;
        if (!f && blob_size(c->inodes[at].blob) >= CONTENT_THRESHOLD)
                file_push(file_get(s, c->inodes[at].ino), &(struct file_piece){.seq = c->meta.pos.seq, .base = true, .pending = true});
        if (!f)
                return;
        k->pieces = pool_take(&c->memory, f->n * sizeof(*k->pieces));
        for (size_t i = 0; i < f->n; i++) {
                if (f->pieces[i].in_home)
                        continue;
                struct file_piece *p = &k->pieces[k->n++];
                *p = f->pieces[i];
                p->edit = (uint8_t *)(uintptr_t)copy(c, p->edit, p->edit_len);
                p->extents = (struct oplog_extent *)(uintptr_t)copy(c, p->extents, p->n_extents * sizeof(*p->extents));
        }
}

static void capture_contents(struct sqlite_store *s, struct capture *c) {
        c->contents = pool_take(&c->memory, (c->dirty.n_inodes + 1) * sizeof(*c->contents));
        for (size_t i = 0; i < c->dirty.n_inodes; i++)
                if (c->dirty.inodes[i].flags & DIRTY_CONTENT && c->dirty.inodes[i].log_len == 0)
                        capture_content(s, c, i);
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
                if (!lost)
                        continue;
                (void)dirty_mark(&s->dirty, f->ino, DIRTY_CONTENT); /* with no pieces: written anew */
                file_drop_pieces(s, f);
                g_hash_table_iter_remove(&it);
        }
        s->content_lost = false; /* set again if the flush of this checkpoint fails */
}

static void capture_settings(struct capture *c, const struct tree *tree) {
        char text[24];
        c->settings = xcalloc(2 * settings_count() + 1, sizeof(char *));
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                uint64_t v = settings_get(tree_settings(tree), info);
                if (!(c->dirty.settings >> i & 1))
                        continue;
                (void)g_snprintf(text, sizeof(text), "%" G_GUINT64_FORMAT, v); /* fits */
                c->settings[c->n_settings++] = xstrdup(info->name);
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
        struct dirty *dirty;
        const struct tree *tree;
        uint64_t dir;
};
static bool all_entries(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct all *a = ctx;
        (void)cookie;
        (void)ino;
        (void)mode;
        dirty_entry(a->dirty, a->dir, name, len);
        return true;
}
static bool all_inodes(void *ctx, const struct tree_inode_state *in) {
        struct all *a = ctx;
        (void)dirty_mark(a->dirty, in->attr.ino, DIRTY_ATTR | DIRTY_XATTRS | (blob_size(in->content) > 0 ? DIRTY_CONTENT : 0u));
        a->dir = in->attr.ino;
        if (S_ISDIR(in->attr.mode))
                (void)tree_readdir(a->tree, in->attr.ino, 2, all_entries, a); /* it is a directory */
        return true;
}
static void mark_everything(struct sqlite_store *s, const struct tree *tree) {
        struct all a = {.dirty = &s->dirty, .tree = tree};
        GHashTableIter it;
        gpointer value;
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value)) {
                file_drop_pieces(s, value);
                g_hash_table_iter_remove(&it);
        }
        dirty_done(&s->dirty);
        tree_each_inode(tree, 0, all_inodes, &a);
        for (size_t i = 0; i < settings_count(); i++)
                s->dirty.settings |= UINT64_C(1) << i;
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
        if (s->content_lost)
                distrust_contents(s);
        c->dirty = s->dirty;
        s->dirty = (struct dirty){0};
        dirty_sort(&c->dirty);
        capture_meta(s, c, state);
        c->error = capture_inodes(c, state->tree);
        capture_entries(c, state->tree);
        capture_contents(s, c);
        capture_settings(c, state->tree);
        if (c->error == 0)
                c->error = sessions_encode(state->sessions, &c->sessions);
        if (c->error == 0)
                s->stopped = kind == CHECKPOINT_CLEAN_STOP;
        return c->error; /* -ENOMEM: run gives everything back */
}

errint_t store_prepare(struct store *base, const struct state *state, enum store_checkpoint_kind kind) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = store_prepare_locked(s, state, kind);
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}
