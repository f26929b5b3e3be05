/* fs.c: the request layer as a whole: start, timer, end, and what it is told of changes. */
#include "internal.h"

#include "base/log.h"

struct fs *fs_new(const struct fs_config *config) {
        struct fs *fs = NEW(struct fs);
        fs->config = *config;
        for (size_t i = 0; i < FS_SHARDS; i++) {
                (void)pthread_mutex_init(&fs->shards[i].lock, NULL);
                fs->shards[i].nodes = g_hash_table_new(g_int64_hash, g_int64_equal);
        }
        (void)pthread_mutex_init(&fs->dirty_lock, NULL);
        (void)pthread_mutex_init(&fs->waiting_lock, NULL);
        (void)pthread_mutex_init(&fs->handles_lock, NULL);
        g_queue_init(&fs->dirty);
        fs->waiting = g_hash_table_new(g_int64_hash, g_int64_equal);
        fs->kept = g_hash_table_new(g_direct_hash, g_direct_equal);
        past_init(fs);
        if (config->backend.kernel_knows) {
                struct tree *t = shared_state_write(config->state)->tree;
                tree_keep_removed(t);
                past_follow(fs, t);
                shared_state_done_write(config->state);
        }
        fs->started = fs_now(fs);
        return fs;
}

/* The next that is due; its reference. */
static struct node *dirty_pop(struct fs *fs, uint64_t now_ms, uint64_t *ret_next) {
        (void)pthread_mutex_lock(&fs->dirty_lock);
        struct node *n = g_queue_peek_head(&fs->dirty);
        if (n && n->deadline_ms > now_ms) {
                *ret_next = n->deadline_ms;
                n = NULL;
        } else if (n) {
                (void)g_queue_pop_head(&fs->dirty);
                atomic_store(&n->listed, false);
        }
        (void)pthread_mutex_unlock(&fs->dirty_lock);
        return n;
}

void fs_tick(struct fs *fs, uint64_t now_ms) {
        uint64_t next = 0;
        struct node *n;
        (void)pthread_mutex_lock(&fs->dirty_lock);
        size_t left = g_queue_get_length(&fs->dirty); /* each once */
        (void)pthread_mutex_unlock(&fs->dirty_lock);
        while (left-- > 0 && (n = dirty_pop(fs, now_ms, &next))) {
                if (node_flush(n) < 0)
                        node_list_dirty(n); /* out of memory: later */
                node_unref(n);
        }
        if (next != 0)
                backend_of(fs)->arm(backend_of(fs)->ctx, next);
        else
                flight_spare_drop(fs); /* nobody writes */
}

static void finish_shutdown(struct gate *g, errint_t error) {
        if (error < 0)
                log_warning("writes that were not closed could not be kept at the end: %s", strerror(-error));
        g->on_done(g->ctx);
}

void fs_shutdown(struct fs *fs, void (*done)(void *ctx), void *ctx) {
        struct gate *g = gate_new(fs, NULL, finish_shutdown);
        g->on_done = done;
        g->ctx = ctx;
        flush_all_behind(fs, g);
        gate_pass(g);
}

void fs_free(struct fs *fs) {
        struct node *n;
        uint64_t next = 0;
        if (!fs)
                return;
        while (fs->handles) /* never released: the mount was detached while in use */
                handle_unref(fs->handles);
        while ((n = dirty_pop(fs, UINT64_MAX, &next))) {
                (void)pthread_mutex_lock(&n->lock);
                (void)gather_drop(n);
                (void)pthread_mutex_unlock(&n->lock);
                node_unref(n);
        }
        PRE(g_hash_table_size(fs->waiting) == 0);
        for (size_t i = 0; i < FS_SHARDS; i++) {
                PRE(g_hash_table_size(fs->shards[i].nodes) == 0); /* else operations are under way */
                g_hash_table_destroy(fs->shards[i].nodes);
                (void)pthread_mutex_destroy(&fs->shards[i].lock);
        }
        flight_spare_drop(fs);
        g_hash_table_destroy(fs->waiting);
        past_done(fs);
        g_hash_table_destroy(fs->kept); /* the pins end with the tree */
        (void)pthread_mutex_destroy(&fs->dirty_lock);
        (void)pthread_mutex_destroy(&fs->waiting_lock);
        (void)pthread_mutex_destroy(&fs->handles_lock);
        free(fs);
}

errint_t fs_writable(struct fs *fs) {
        return backend_of(fs)->writable(backend_of(fs)->ctx);
}

void fs_applied(struct fs *fs, void *done_ctx, const struct op_result *result) {
        struct flight *f = done_ctx;
        PRE(f->fs == fs);
        flight_overrules(f);
        flight_applied(f, &fs->config.state->state, result);
}

/* --- inodes without a name that the kernel knows */

static gpointer kept_key(uint64_t ino) {
        return (gpointer)(uintptr_t)ino;
}

static void keep(struct fs *fs, const struct change_set *changes) {
        struct state *s = NULL;
        for (size_t i = 0; i < changes->n; i++) {
                uint64_t ino = changes->items[i].ino;
                if (changes->items[i].kind != CHANGE_INODE_GONE)
                        continue;
                if (!s)
                        s = shared_state_write(fs->config.state);
                if (tree_is_orphan(s->tree, ino) && g_hash_table_add(fs->kept, kept_key(ino)))
                        (void)atomic_fetch_add(&fs->n_kept, 1);
        }
        if (s)
                shared_state_done_write(fs->config.state);
}

/* Whoever comes second, this after the removal or this after the kernel's FORGET, finds the kernel ignorant and lets go. */
static void let_go(struct fs *fs, uint64_t ino) {
        const struct fs_backend *b = backend_of(fs);
        if (atomic_load(&fs->n_kept) == 0)
                return;
        (void)shared_state_read(fs->config.state);
        bool kept = g_hash_table_contains(fs->kept, kept_key(ino));
        shared_state_done_read(fs->config.state);
        if (!kept || b->kernel_knows(b->ctx, ino))
                return;
        struct state *s = shared_state_write(fs->config.state);
        if (g_hash_table_remove(fs->kept, kept_key(ino))) {
                (void)atomic_fetch_sub(&fs->n_kept, 1);
                tree_unpin(s->tree, ino);
        }
        shared_state_done_write(fs->config.state);
}

void fs_forget(struct fs *fs, uint64_t ino, uint64_t n) {
        (void)n; /* the tree is in memory as a whole: nothing else lives for the kernel's sake */
        fs_count(fs, METRIC_FUSE_FORGETS, 1);
        let_go(fs, ino);
}

/* The kernel is not told of what it asked for itself, and nobody would be told of an inode that it does not know. */
static void forget_past(struct fs *fs, const struct change_set *changes, uint64_t seq, bool local) {
        const struct fs_backend *b = backend_of(fs);
        for (size_t i = 0; i < changes->n; i++) {
                uint64_t ino = changes->items[i].ino;
                if (changes->items[i].kind != CHANGE_CONTENT || (!local && b->kernel_knows(b->ctx, ino)))
                        continue;
                if (local)
                        past_overrule(fs, ino);
                past_remove(fs, ino, seq);
        }
}

/* Nothing here repeats what the tree says, so there is nothing to make stale: views notice another content by themselves. What is gathered
 * for an inode that is gone for good (no handle, so not pinned) is given up. */
void fs_changed(struct fs *fs, const struct change_set *changes, uint64_t seq, bool local) {
        if (backend_of(fs)->kernel_knows) {
                keep(fs, changes);
                forget_past(fs, changes, seq, local);
        }
        for (size_t i = 0; i < changes->n; i++) {
                if (changes->items[i].kind != CHANGE_INODE_GONE)
                        continue;
                let_go(fs, changes->items[i].ino);
                CLEANUP(node_unrefp) struct node *n = node_find(fs, changes->items[i].ino);
                if (!n)
                        continue;
                (void)pthread_mutex_lock(&n->lock);
                uint64_t unused = n->open == 0 ? gather_drop(n) : 0;
                (void)pthread_mutex_unlock(&n->lock);
                if (unused > 0)
                        backend_of(fs)->release(backend_of(fs)->ctx, unused);
        }
}

bool fs_changed_since(struct fs *fs, uint64_t ino, uint64_t seq) {
        struct attr a;
        if (fs_is_virtual(ino))
                return false;
        const struct state *s = shared_state_read(fs->config.state);
        bool changed = tree_getattr(s->tree, ino, &a) < 0 || a.change_seq != seq;
        shared_state_done_read(fs->config.state);
        return changed;
}

/* --- another history */

struct copy {
        struct tree *to;
        uint64_t ino;
        struct timestamp time;
        errint_t error;
};
static bool copy_xattr(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len) {
        struct copy *c = ctx;
        struct op op = {.kind = OP_SETXATTR, .time = c->time};
        struct op_result r = {0};
        op.setxattr.ino = c->ino;
        op.setxattr.name = (struct op_name){name, len};
        op.setxattr.value = value;
        op.setxattr.len = value_len;
        c->error = tree_apply_orphan(c->to, &op, &r);
        return c->error == 0;
}
static errint_t orphan_xattrs(struct tree *to, const struct tree *from, const struct attr *a) {
        struct copy c = {.to = to, .ino = a->ino, .time = a->ctime};
        errint_t r = tree_xattr_each(from, a->ino, copy_xattr, &c);
        return r < 0 ? r : c.error;
}

/* The content as an edit of nothing: one extent; the bytes are copied once, in memory. */
static errint_t orphan_content(struct tree *to, const struct attr *a, struct blob *content) {
        struct extent x = {0, blob_size(content), EXTENT_DATA};
        struct op op = {.kind = OP_WRITE, .time = a->mtime};
        struct op_result r = {0};
        if (x.length == 0)
                return 0;
        cleanup_free uint8_t *data = try_malloc((size_t)x.length);
        if (!data)
                return -ENOMEM;
        (void)blob_read(content, 0, data, (size_t)x.length);
        op.write.ino = a->ino;
        op.write.flags = WRITE_NO_MTIME;
        op.write.size = x.length;
        op.write.extents = &x;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.raw_len = x.length, .data = data, .len = (size_t)x.length};
        errint_t error = tree_apply_orphan(to, &op, &r);
        return error < 0 ? error : r.error;
}

/* A file that the new history does not know goes on for those who have it open, like one that was unlinked. */
static errint_t keep_orphan(struct tree *to, const struct tree *from, uint64_t ino) {
        struct attr a;
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        errint_t r = tree_getattr(from, ino, &a);
        if (r == 0)
                r = tree_content(from, ino, &content); /* not of directories: they are empty then */
        if (r == 0)
                r = tree_orphan_new(to, &a);
        if (r < 0)
                return r;
        r = orphan_content(to, &a, content);
        if (r == 0)
                r = orphan_xattrs(to, from, &a);
        if (r < 0)
                tree_unpin(to, ino);
        return r;
}

void fs_replaced(struct fs *fs, struct state *old) {
        struct tree *now = fs->config.state->state.tree;
        if (backend_of(fs)->kernel_knows)
                tree_keep_removed(now);
        g_hash_table_remove_all(fs->kept);
        atomic_store(&fs->n_kept, 0);
        if (backend_of(fs)->kernel_knows)
                past_follow(fs, now);
        GPtrArray *all = node_all(fs);
        for (guint i = 0; i < all->len; i++) {
                struct node *n = g_ptr_array_index(all, i);
                (void)pthread_mutex_lock(&n->lock);
                if (n->pinned)
                        n->pinned = tree_pin(now, n->ino) == 0 || keep_orphan(now, old->tree, n->ino) == 0;
                (void)pthread_mutex_unlock(&n->lock);
        }
        g_ptr_array_unref(all);
}
