/* node_io.c: changing and looking at the content of an inode in use, with the locks taken and the backend asked. */
#include "internal.h"

/* What a change of a gather has to be followed by, once the locks are released. */
void node_list_dirty(struct node *n) {
        struct fs *fs = n->fs;
        if (atomic_load(&n->listed))
                return;
        uint64_t at = backend_of(fs)->monotonic_ms(backend_of(fs)->ctx) + fs->config.gather_ms;
        bool arm = false;
        (void)pthread_mutex_lock(&fs->dirty_lock);
        if (!atomic_load(&n->listed)) {
                atomic_store(&n->listed, true);
                n->deadline_ms = at;
                arm = g_queue_is_empty(&fs->dirty);
                g_queue_push_tail(&fs->dirty, node_ref(n));
        }
        (void)pthread_mutex_unlock(&fs->dirty_lock);
        if (arm)
                backend_of(fs)->arm(backend_of(fs)->ctx, at);
}

/* In steps, so that not every write asks; exactly, where the steps are too large. */
static errint_t reserve(struct node *n, uint64_t bytes) {
        const struct fs_backend *b = backend_of(n->fs);
        uint64_t got = (bytes + GATHER_RESERVE - 1) / GATHER_RESERVE * GATHER_RESERVE;
        errint_t r = b->reserve(b->ctx, got, false);
        if (r == -ENOSPC && got != bytes) {
                got = bytes;
                r = b->reserve(b->ctx, got, false);
        }
        if (r < 0)
                return r;
        (void)pthread_mutex_lock(&n->lock);
        n->g.reserved += got;
        (void)pthread_mutex_unlock(&n->lock);
        return 0;
}

static errint_t content(struct node *n, bool past, struct blob **ret) {
        struct fs *fs = n->fs;
        CLEANUP(blob_unrefp) struct blob *base = NULL;
        struct blob *view = NULL;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = tree_content(s->tree, n->ino, &base);
        if (r == 0 && !atomic_load(&n->overlay)) {
                *ret = past ? past_content(fs, n->ino) : NULL;
                if (!*ret)
                        *ret = steal_pointer(&base);
        } else if (r == 0) {
                (void)pthread_mutex_lock(&n->lock);
                r = gather_view(n, base, &view);
                if (r == 0)
                        *ret = blob_ref(view);
                (void)pthread_mutex_unlock(&n->lock);
        }
        shared_state_done_read(fs->config.state);
        return r == -ENOENT ? -ESTALE : r;
}

errint_t node_content(struct node *n, struct blob **ret) {
        return content(n, false, ret);
}

errint_t node_shown(struct node *n, struct blob **ret) {
        return content(n, true, ret);
}

static errint_t change_once(struct node *n, struct gather_args *w) {
        CLEANUP(blob_unrefp) struct blob *base = NULL;
        const struct state *s = shared_state_read(n->fs->config.state);
        errint_t r = tree_content(s->tree, n->ino, &base);
        if (r == 0) {
                (void)pthread_mutex_lock(&n->lock);
                r = gather_change(n, s->tree, base, w);
                if (r == 0)
                        past_overrule(n->fs, n->ino);
                (void)pthread_mutex_unlock(&n->lock);
        }
        shared_state_done_read(n->fs->config.state);
        return r == -ENOENT ? -ESTALE : r;
}

errint_t node_change(struct node *n, struct gather_args *w) {
        errint_t r;
        while ((r = change_once(n, w)) == -EAGAIN) {
                r = reserve(n, w->want);
                if (r < 0)
                        break;
        }
        node_list_dirty(n); /* also after a failure: what was reserved is released when the timer finds nothing gathered */
        if (w->queued)
                node_pump(n);
        if (r == 0 && w->misplaced)
                backend_of(n->fs)->invalidate_inode(backend_of(n->fs)->ctx, n->ino);
        return r;
}

errint_t node_flush(struct node *n) {
        struct fs *fs = n->fs;
        CLEANUP(blob_unrefp) struct blob *base = NULL;
        const struct state *s = shared_state_read(fs->config.state);
        (void)tree_content(s->tree, n->ino, &base); /* gone: the operation will be told */
        (void)pthread_mutex_lock(&n->lock);
        errint_t r = gather_detach(n, base);
        uint64_t unused = 0;
        if (!n->g.dirty) {
                unused = n->g.reserved;
                n->g.reserved = 0;
        }
        (void)pthread_mutex_unlock(&n->lock);
        shared_state_done_read(fs->config.state);
        if (unused > 0)
                backend_of(fs)->release(backend_of(fs)->ctx, unused);
        node_pump(n);
        return r;
}

errint_t node_flush_behind(struct node *n, struct gate *g) {
        (void)pthread_mutex_lock(&n->lock);
        uint64_t seen = n->error_seq;
        (void)pthread_mutex_unlock(&n->lock);
        errint_t r = node_flush(n);
        (void)pthread_mutex_lock(&n->lock);
        gate_fence(g, n, seen);
        (void)pthread_mutex_unlock(&n->lock);
        return r;
}

void flush_all_behind(struct fs *fs, struct gate *g) {
        GPtrArray *all = node_all(fs);
        for (guint i = 0; i < all->len; i++)
                gate_fail(g, node_flush_behind(g_ptr_array_index(all, i), g));
        g_ptr_array_unref(all);
}
