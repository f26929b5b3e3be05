/* store_replace.c: another history taken over, and the cluster's id: changes of the home that no log record brings. */
#include "store_private.h"

#include <string.h>
#include <sys/stat.h>

struct replacing {
        struct sqlite_store *s;
        const struct state *state;
        errint_t error;
        GHashTable *files;  /* ino -> struct file: large contents as the new home has them */
};

static errint_t put_new_content(struct replacing *x, const struct tree_inode_state *in) {
        cleanup_free uint8_t *inlined = NULL;
        struct file_piece p = {0};
        errint_t r = store_make_base(x->s, in->content, x->state->pos.seq, &p, &inlined);
        if (r < 0)
                return r;
        p.in_home = true;
        r = store_put_file_piece(x->s, in->attr.ino, &p, inlined);
        if (p.n_extents == 0) {
                piece_done(&p);
                return r;
        }
        struct file *f = NEW(struct file);
        f->ino = in->attr.ino;
        file_push(f, &p);
        g_hash_table_insert(x->files, &f->ino, f);
        return r;
}

static bool put_new_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode);
struct entry_ctx {
        struct replacing *x;
        uint64_t parent;
};

static bool put_new_inode(void *ctx, const struct tree_inode_state *in) {
        struct replacing *x = ctx;
        struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        errint_t r = home_put_inode(x->s->home, in);
        if (r == 0)
                r = tree_xattrs_encode(x->state->tree, in->attr.ino, &e);
        if (r == 0 && e.len > 0)
                r = home_put_xattrs(x->s->home, in->attr.ino, e.data, e.len);
        enc_done(&e);
        if (r == 0 && blob_size(in->content) > 0)
                r = put_new_content(x, in);
        struct entry_ctx entries = {x, in->attr.ino};
        if (r == 0 && S_ISDIR(in->attr.mode))
                r = tree_readdir(x->state->tree, in->attr.ino, 2, put_new_entry, &entries);
        if (x->error == 0)
                x->error = r;
        return x->error == 0;
}

static bool put_new_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct entry_ctx *e = ctx;
        (void)mode;
        e->x->error = home_put_entry(e->x->s->home, e->parent, name, len, ino, cookie);
        return e->x->error == 0;
}

static errint_t put_new_settings(struct replacing *x) {
        char text[24];
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                uint64_t v = settings_get(tree_settings(x->state->tree), info);
                (void)g_snprintf(text, sizeof(text), "%" G_GUINT64_FORMAT, v); /* fits */
                errint_t r = v == info->def ? 0 : home_put_setting(x->s->home, info->name, text);
                if (r < 0)
                        return r;
        }
        return 0;
}

static errint_t put_new_sessions(struct replacing *x) {
        struct enc e;
        enc_init(&e, SESSIONS_ENCODED_MAX);
        errint_t r = sessions_encode(x->state->sessions, &e);
        if (r == 0)
                r = home_put_sessions(x->s->home, e.data, e.len);
        enc_done(&e);
        return r;
}

/* The contents are flushed before the commit names them. */
static errint_t write_new_home(struct replacing *x, struct home_meta *meta) {
        struct sqlite_store *s = x->s;
        errint_t r = store_fresh_home(s);
        if (r == 0)
                r = home_begin(s->home);
        if (r < 0)
                return r;
        r = home_clear(s->home);
        if (r == 0) {
                tree_each_inode(x->state->tree, 0, put_new_inode, x);
                r = x->error;
        }
        if (r == 0)
                r = put_new_settings(x);
        if (r == 0)
                r = put_new_sessions(x);
        if (r == 0)
                r = store_flush_content(s);
        if (r < 0) {
                home_rollback(s->home);
                s->home_doubtful = true;
                return r;
        }
        meta->content_size = content_file_size(s->content);
        r = home_commit(s->home, meta);
        if (r < 0)
                s->home_doubtful = true;
        return r;
}

/* Nothing of the old history is named any more: its extents are free, its dirty marks and log records meaningless. Under lock. */
static void switch_over(struct replacing *x, const struct home_meta *meta) {
        struct sqlite_store *s = x->s;
        GHashTableIter it;
        gpointer value;
        g_hash_table_iter_init(&it, s->files);
        while (g_hash_table_iter_next(&it, NULL, &value))
                file_drop_pieces(s, value, 0);
        g_hash_table_destroy(s->files);
        s->files = steal_pointer(&x->files);
        dirty_done(&s->dirty);
        dirty_init(&s->dirty);
        s->meta = *meta;
        s->pos = meta->pos;
        s->home_seq = meta->pos.seq;
        s->content_ok_seq = meta->pos.seq;
        s->promised = meta->promised;
        s->adopted = meta->adopted;
        s->half = meta->half;
        s->salt[0] = meta->salt[0];
        s->salt[1] = meta->salt[1];
        s->other_free = true;
        s->trouble = 0;
        s->content_lost = s->no_space = false;
        index_clear(s, 0);
        index_clear(s, 1);
        oplog_drop_pending(s->log);
        oplog_start(s->log, s->half, s->salt[s->half], 0, 0);
}

/* A failed switch happened or not: what the new home names, if it is there, stays in use until the next switch or start. */
static void give_back(struct replacing *x) {
        GHashTableIter it;
        gpointer value;
        g_hash_table_iter_init(&it, x->files);
        while (g_hash_table_iter_next(&it, NULL, &value)) {
                struct file *f = value;
                if (!x->s->home_doubtful)
                        file_drop_pieces(x->s, f, 0);
        }
}

errint_t store_replace(struct store *base, const struct state *state, uint64_t adopted) {
        struct sqlite_store *s = STORE_OF(base);
        struct tree_usage usage;
        pthread_mutex_lock(&s->home_lock);
        pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] || s->read_only || s->stopped ? -EROFS : s->capture.active ? -EBUSY : 0;
        struct home_meta meta = s->meta;
        meta.half = 1 - s->half;
        meta.promised = MAX_OF(s->promised, adopted);
        pthread_mutex_unlock(&s->lock);
        if (r < 0) {
                pthread_mutex_unlock(&s->home_lock);
                return r;
        }
        tree_usage(state->tree, &usage);
        meta.pos = state->pos;
        meta.history = state->history;
        meta.digest = tree_digest(state->tree);
        meta.next_ino = usage.next_ino;
        meta.adopted = adopted;
        meta.clean = false;
        meta.salt[0] = store_random();
        meta.salt[1] = store_random();
        struct replacing x = {.s = s, .state = state, .files = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, file_free)};
        r = write_new_home(&x, &meta);
        if (r == 0) {
                pthread_mutex_lock(&s->lock);
                switch_over(&x, &meta);
                pthread_mutex_unlock(&s->lock);
                content_home_durable(s->content, state->pos.seq);
                metric_add(s->metrics, METRIC_CHECKPOINTS, 1);
        } else {
                give_back(&x);
                if (!disk_is_full(r))
                        (void)store_trouble(s, r);
        }
        if (x.files)
                g_hash_table_destroy(x.files);
        pthread_mutex_unlock(&s->home_lock);
        return r;
}

errint_t store_set_cluster_id(struct store *base, const uint8_t id[CLUSTER_ID_SIZE]) {
        struct sqlite_store *s = STORE_OF(base);
        pthread_mutex_lock(&s->home_lock);
        pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] || s->read_only || s->stopped ? -EROFS : 0;
        pthread_mutex_unlock(&s->lock);
        if (r == 0)
                r = store_fresh_home(s);
        if (r == 0) {
                struct home_meta meta = s->meta;
                memcpy(meta.cluster_id, id, CLUSTER_ID_SIZE);
                r = home_begin(s->home);
                if (r == 0)
                        r = home_commit(s->home, &meta);
                if (r == 0)
                        s->meta = meta;
                else
                        s->home_doubtful = true;
        }
        pthread_mutex_unlock(&s->home_lock);
        return r;
}
