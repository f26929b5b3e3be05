/* dirs.c: open directories. */
#include "internal.h"

void fs_opendir(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r) {
        struct attr a;
        struct handle *h = NULL;
        if (fs_is_virtual(ino)) {
                if (ino != INO_VIRTUAL_DIR) {
                        r->ops->err(r, -ENOTDIR);
                        return;
                }
                h = handle_new(node_get(fs, ino), HANDLE_VIRTUAL, 0, c);
        } else {
                const struct state *s = shared_state_read(fs->config.state);
                errint_t error = tree_getattr(s->tree, ino, &a);
                shared_state_done_read(fs->config.state);
                error = error < 0 ? -ESTALE : S_ISDIR(a.mode) ? 0 : -ENOTDIR;
                CLEANUP(node_unrefp) struct node *n = error == 0 ? node_get(fs, ino) : NULL;
                if (error == 0)
                        error = node_open(n);
                if (error < 0) {
                        r->ops->err(r, error == -ENOENT ? -ESTALE : error);
                        return;
                }
                h = handle_new(steal_pointer(&n), HANDLE_DIR, 0, c);
        }
        struct fs_open_out out = handle_out(h);
        out.direct_io = false; /* means nothing here */
        r->ops->open(r, &out);
}

void fs_releasedir(struct fs *fs, uint64_t ino, uint64_t fh, struct fs_reply *r) {
        (void)fs;
        (void)ino;
        handle_unref(handle_of(fh));
        r->ops->err(r, 0);
}

struct listing {
        struct fs *fs;
        const struct tree *tree;
        fs_fill_fn fill;
        void *ctx;
        bool plus, root;
};

static bool list_one(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct listing *l = ctx;
        bool dots = name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
        struct fs_entry e = {.ino = dots ? 0 : ino, .cacheable = true};
        if (l->root && len == strlen(FS_VIRTUAL_DIR) && memcmp(name, FS_VIRTUAL_DIR, len) == 0)
                return true; /* cannot be made through this layer; hidden if it came some other way */
        if (!l->plus)
                return l->fill(l->ctx, name, len, cookie, mode, NULL, ino);
        if (attr_of(l->fs, l->tree, ino, &e.attr) < 0)
                return true;
        e.seq = e.attr.change_seq;
        return l->fill(l->ctx, name, len, cookie, mode, &e, ino);
}

errint_t fs_readdir(struct fs *fs, uint64_t ino, uint64_t fh, uint64_t offset, bool plus, fs_fill_fn fill, void *ctx) {
        (void)fh;
        fs_count(fs, METRIC_READDIRS, 1);
        if (fs_is_virtual(ino))
                return virtual_readdir(fs, offset, plus, fill, ctx);
        const struct state *s = shared_state_read(fs->config.state);
        struct listing l = {.fs = fs, .tree = s->tree, .fill = fill, .ctx = ctx, .plus = plus, .root = ino == INO_ROOT};
        errint_t r = tree_readdir(s->tree, ino, offset, list_one, &l);
        shared_state_done_read(fs->config.state);
        return r;
}

static void finish_barrier(struct gate *g, errint_t error) {
        reply_err(gate_take_reply(g), error);
}

/* fsync of any directory is the full barrier: all that is gathered, of all files, then everything onto the medium. */
void fs_fsyncdir(struct fs *fs, uint64_t ino, struct fs_reply *r) {
        (void)ino;
        struct gate *g = gate_new(fs, r, finish_barrier);
        g->barrier = true;
        flush_all_behind(fs, g);
        gate_pass(g);
}
