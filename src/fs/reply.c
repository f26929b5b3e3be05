/* reply.c: answers that several requests share, and attributes as this node's processes see them. */
#include "internal.h"

void reply_err(struct fs_reply *r, errint_t error) {
        if (r)
                r->ops->err(r, error);
}

errint_t attr_of(struct fs *fs, const struct tree *t, uint64_t ino, struct attr *ret) {
        errint_t r = tree_getattr(t, ino, ret);
        if (r < 0 || !S_ISREG(ret->mode))
                return r;
        bool any = atomic_load_explicit(&fs->overlays, memory_order_acquire) != 0;
        CLEANUP(node_unrefp) struct node *n = any ? node_find(fs, ino) : NULL;
        if (!n || !atomic_load(&n->overlay)) {
                past_attr(fs, ret);
                return 0;
        }
        CLEANUP(blob_unrefp) struct blob *base = NULL;
        (void)tree_content(t, ino, &base); /* it was there just now, and the state is locked */
        (void)pthread_mutex_lock(&n->lock);
        gather_attr(n, base, ret);
        (void)pthread_mutex_unlock(&n->lock);
        return 0;
}

errint_t entry_of(struct fs *fs, uint64_t ino, struct fs_entry *ret) {
        if (fs_is_virtual(ino))
                return virtual_attr(fs, ino, ret);
        struct fs_entry e = {.ino = ino, .cacheable = true};
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = attr_of(fs, s->tree, ino, &e.attr);
        shared_state_done_read(fs->config.state);
        if (r < 0)
                return r == -ENOENT ? -ESTALE : r;
        e.seq = e.attr.change_seq;
        *ret = e;
        return 0;
}

void reply_attr(struct fs *fs, uint64_t ino, struct fs_reply *r) {
        struct fs_entry e;
        errint_t error = entry_of(fs, ino, &e);
        if (error < 0)
                r->ops->err(r, error);
        else
                r->ops->attr(r, &e);
}

void reply_entry(struct fs *fs, uint64_t ino, struct fs_reply *r) {
        struct fs_entry e;
        errint_t error = entry_of(fs, ino, &e);
        if (error < 0)
                r->ops->err(r, error);
        else
                r->ops->entry(r, &e);
}

/* Straight from the chunks: a version of a content never changes, so nothing is copied and no lock is held. */
size_t reply_blob(struct blob *b, uint64_t offset, size_t n, struct fs_reply *r) {
        struct iovec few[72], *iov = few; /* 512 KiB */
        n = offset < blob_size(b) ? (size_t)MIN_OF((uint64_t)n, blob_size(b) - offset) : 0;
        cleanup_free struct iovec *many = NULL;
        size_t most = (n / BLOB_CHUNK + 2) * 2 /* a chunk's data, and the zeros behind */, done = 0;
        int n_iov = 0;
        if (most > ARRAY_LEN(few)) {
                many = xmalloc(most * sizeof(*many));
                iov = many;
        }
        while (done < n) {
                const uint8_t *p = NULL;
                size_t len = MIN_OF(blob_span(b, offset + done, &p), n - done);
                if (len == 0)
                        break;
                iov[n_iov++] = (struct iovec){.iov_base = (void *)(uintptr_t)p, .iov_len = len};
                done += len;
        }
        r->ops->data(r, iov, n_iov);
        return done;
}
