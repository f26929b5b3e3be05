/* files.c: open files. */
#include "internal.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

/* --- opening */

static void open_virtual(struct fs *fs, const struct fs_caller *c, uint64_t ino, int flags, struct fs_reply *r) {
        if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)) {
                r->ops->err(r, -EPERM);
                return;
        }
        struct handle *h = handle_new(node_get(fs, ino), HANDLE_VIRTUAL, flags, c);
        enc_init(&h->text, VIRTUAL_TEXT_MAX);
        errint_t error = virtual_open(fs, ino, &h->text);
        if (error == 0)
                error = h->text.err;
        if (error < 0) {
                handle_unref(h);
                r->ops->err(r, error);
                return;
        }
        struct fs_open_out out = handle_out(h);
        r->ops->open(r, &out);
}

static bool is_damaged(const struct fs *fs, uint64_t ino) {
        size_t low = 0, high = fs->config.n_damaged;
        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (fs->config.damaged[middle] == ino)
                        return true;
                if (fs->config.damaged[middle] < ino)
                        low = middle + 1;
                else
                        high = middle;
        }
        return false;
}

static errint_t open_check(struct fs *fs, uint64_t ino, int flags) {
        struct attr a;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = tree_getattr(s->tree, ino, &a);
        shared_state_done_read(fs->config.state);
        if (r < 0)
                return -ESTALE;
        if (!S_ISREG(a.mode))
                return S_ISDIR(a.mode) ? -EISDIR : S_ISLNK(a.mode) ? -ELOOP : -ENXIO;
        if (is_damaged(fs, ino))
                return -EIO;
        /* Programs that ignore the result of close(2) exist: what is known to fail fails here. */
        return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) ? fs_writable(fs) : 0;
}

void fs_open(struct fs *fs, const struct fs_caller *c, uint64_t ino, int flags, bool kill_suid, struct fs_reply *r) {
        fs_count(fs, METRIC_OPENS, 1);
        if (fs_is_virtual(ino)) {
                open_virtual(fs, c, ino, flags, r);
                return;
        }
        errint_t error = open_check(fs, ino, flags);
        CLEANUP(node_unrefp) struct node *n = error == 0 ? node_get(fs, ino) : NULL;
        if (error == 0)
                error = node_open(n);
        if (error < 0) {
                r->ops->err(r, error == -ENOENT ? -ESTALE : error);
                return;
        }
        struct handle *h = handle_new(steal_pointer(&n), HANDLE_FILE, flags, c);
        if (flags & O_TRUNC) { /* only where the kernel leaves it to us (FUSE_ATOMIC_O_TRUNC) */
                struct gather_args w = {.what = GATHER_TRUNCATE, .kill_suid = kill_suid, .now = fs_now(fs), .caller = handle_caller(h, c)};
                error = node_change(h->node, &w);
        }
        if (error < 0) {
                handle_unref(h);
                r->ops->err(r, error);
                return;
        }
        struct fs_open_out out = handle_out(h);
        r->ops->open(r, &out);
}

/* --- reading */

/* With the reply under way the kernel may already release the handle: a reader that has what it wanted closes. */
static void read_text(struct handle *h, uint64_t offset, size_t n, struct fs_reply *r) {
        const struct enc *text = &h->text;
        size_t at = offset < text->len ? (size_t)offset : text->len;
        struct iovec iov = {.iov_base = text->data + at, .iov_len = MIN_OF(n, text->len - at)};
        (void)handle_ref(h);
        r->ops->data(r, &iov, iov.iov_len > 0 ? 1 : 0);
        handle_unref(h);
}

void fs_read(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, size_t n, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        (void)ino;
        fs_count(fs, METRIC_READS, 1);
        if (h->kind == HANDLE_VIRTUAL) {
                read_text(h, offset, n, r);
                return;
        }
        errint_t error = node_shown(h->node, &content);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        fs_count(fs, METRIC_READ_BYTES, reply_blob(content, offset, n, r));
}

void fs_lseek(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, int whence, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        (void)fs;
        (void)ino;
        errint_t error = h->kind != HANDLE_FILE || (whence != SEEK_DATA && whence != SEEK_HOLE) ? -EINVAL : node_content(h->node, &content);
        int64_t at = error < 0 ? error : blob_next(content, offset, whence == SEEK_DATA);
        if (at < 0)
                r->ops->err(r, (errint_t)at);
        else
                r->ops->offset(r, (uint64_t)at);
}

/* --- writing */

static errint_t write_check(struct fs *fs, const struct handle *h, bool writeback) {
        if (h->kind != HANDLE_FILE || (!writeback && !handle_writes(h))) /* the kernel writes back through any handle */
                return -EBADF;
        return fs_writable(fs);
}

void fs_write(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, uint64_t offset, const void *p, size_t n, int flags,
              bool kill_suid, bool writeback, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        (void)ino;
        fs_count(fs, METRIC_FUSE_WRITE_CALLS, 1);
        fs_count(fs, METRIC_FUSE_WRITE_BYTES, n);
        metric_max(fs->config.metrics, METRIC_FUSE_WRITE_MAX, n);
        errint_t error = write_check(fs, h, writeback);
        if (error == 0 && n > 0) {
                struct gather_args w = {.what = GATHER_WRITE,
                                        .p = p,
                                        .offset = offset,
                                        .length = n,
                                        .append = (flags & O_APPEND) && !writeback,
                                        .kill_suid = kill_suid && !writeback,
                                        .keep_caps = writeback,
                                        .now = fs_now(fs),
                                        .caller = handle_caller(h, writeback ? &h->opener : c)};
                error = node_change(h->node, &w);
        }
        if (error < 0)
                r->ops->err(r, error);
        else
                r->ops->write(r, n);
}

/* Room for what fallocate(2) promises. It is a promise for the moment: holes take no room, here as on other sparse filesystems. */
static errint_t allocate_room(struct fs *fs, uint64_t length) {
        const struct fs_backend *b = backend_of(fs);
        struct tree_usage u;
        const struct state *s = shared_state_read(fs->config.state);
        tree_usage(s->tree, &u);
        shared_state_done_read(fs->config.state);
        if (u.bytes + atomic_load(&fs->growth) + length > u.bytes_max)
                return -ENOSPC;
        errint_t r = b->reserve(b->ctx, length, false);
        if (r == 0)
                b->release(b->ctx, length);
        return r;
}

/* The part of [offset, offset + length) that lies behind the end. */
static errint_t allocate_extend(struct fs *fs, struct handle *h, uint64_t offset, uint64_t length, struct gather_args *w) {
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        errint_t r = node_content(h->node, &content);
        if (r < 0)
                return r;
        uint64_t size = blob_size(content), end = offset + length;
        w->what = end > size ? GATHER_ZERO : GATHER_TOUCH;
        w->offset = size;
        w->length = end > size ? end - size : 0;
        if (end > LIMIT_FILE_SIZE_MAX && end > size)
                return -EFBIG;
        return end > size ? allocate_room(fs, end - size) : 0;
}

static errint_t allocate(struct fs *fs, struct handle *h, int mode, uint64_t offset, uint64_t length, struct gather_args *w) {
        errint_t r = 0;
        w->offset = offset;
        w->length = length;
        switch (mode) {
        case 0:
                r = allocate_extend(fs, h, offset, length, w);
                break;
        case FALLOC_FL_KEEP_SIZE: /* the times move all the same */
                r = allocate_room(fs, length);
                w->what = GATHER_TOUCH;
                break;
        case FALLOC_FL_ZERO_RANGE:
                w->what = GATHER_ZERO;
                break;
        case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
        case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
                w->what = GATHER_ZERO;
                w->keep_size = true;
                break;
        default:
                return -EOPNOTSUPP;
        }
        return r < 0 ? r : node_change(h->node, w);
}

void fs_fallocate(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, int mode, uint64_t offset, uint64_t length,
                  struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        (void)ino;
        errint_t error = write_check(fs, h, false);
        if (error == 0 && (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset))
                error = -EINVAL;
        if (error == 0) {
                /* The request does not say whether setuid has to go, as a WRITE does: root may keep it. */
                struct gather_args w = {.kill_suid = c->uid != 0, .now = fs_now(fs), .caller = handle_caller(h, c)};
                error = allocate(fs, h, mode, offset, length, &w);
        }
        r->ops->err(r, error);
}

/* --- closing and syncing */

static void finish_gate(struct gate *g, errint_t error) {
        reply_err(gate_take_reply(g), error);
}

/* close(2), also of a copy: what is gathered becomes an operation, and its outcome the answer. Readers wait for nothing, nor does anybody
 * for a file that nobody else can see. */
void fs_flush(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t fh, uint64_t lock_owner, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        (void)c;
        (void)ino;
        (void)lock_owner;
        fs_count(fs, METRIC_FLUSHES, 1);
        if (!handle_writes(h)) {
                r->ops->err(r, 0);
                return;
        }
        struct gate *g = gate_new(fs, r, finish_gate);
        g->handle = handle_ref(h);
        gate_fail(g, node_flush_behind(h->node, g));
        gate_pass(g);
}

void fs_fsync(struct fs *fs, uint64_t ino, uint64_t fh, bool datasync, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        (void)ino;
        (void)datasync; /* content, size and times travel together */
        if (h->kind != HANDLE_FILE) {
                r->ops->err(r, 0);
                return;
        }
        const struct state *s = shared_state_read(fs->config.state);
        bool orphan = tree_is_orphan(s->tree, h->node->ino);
        shared_state_done_read(fs->config.state);
        struct gate *g = gate_new(fs, r, finish_gate);
        g->handle = handle_ref(h);
        g->barrier = !orphan; /* it lives in memory alone */
        gate_fail(g, node_flush_behind(h->node, g));
        gate_pass(g);
}

/* What mmap(2) wrote after the last close has arrived by now. The last to leave an unlinked file leaves its bytes unwritten. */
void fs_release(struct fs *fs, uint64_t ino, uint64_t fh, struct fs_reply *r) {
        struct handle *h = handle_of(fh);
        struct node *n = h->node;
        uint64_t unused = 0;
        (void)ino;
        if (h->kind == HANDLE_FILE && atomic_load(&n->overlay)) {
                const struct state *s = shared_state_read(fs->config.state);
                bool orphan = tree_is_orphan(s->tree, n->ino);
                (void)pthread_mutex_lock(&n->lock);
                bool last = n->open == 1;
                if (orphan && last)
                        unused = gather_drop(n);
                (void)pthread_mutex_unlock(&n->lock);
                shared_state_done_read(fs->config.state);
                if (unused > 0)
                        backend_of(fs)->release(backend_of(fs)->ctx, unused);
                if (!orphan && last)
                        (void)node_flush(n); /* an error stays with the inode, or is logged */
        }
        handle_unref(h);
        r->ops->err(r, 0);
}
