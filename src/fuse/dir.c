/* dir.c: READDIR and READDIRPLUS: entries are packed straight into the answer. */
#include "edge.h"

#include "notify.h"

#include <string.h>
#include <sys/stat.h>

struct listing {
        const struct fuse_edge *edge;
        char *out;
        size_t used, size;
        bool plus;
};

/* Same layout for both: an entry_out in front of the dirent with `plus`. */
static bool fill(void *ctx, const char *name, size_t len, uint64_t cookie, uint32_t mode, const struct fs_entry *entry, uint64_t ino) {
        struct listing *l = ctx;
        size_t head = l->plus ? sizeof(struct fuse_entry_out) : 0;
        size_t raw = head + FUSE_NAME_OFFSET + len, padded = FUSE_REC_ALIGN(raw);
        if (padded > l->size - l->used)
                return false;
        char *at = l->out + l->used;
        if (l->plus) {
                struct fuse_entry_out out = {0}; /* node 0: a name without attributes, which the kernel does not count as looked up */
                if (entry && entry->ino != 0)
                        edge_entry_out(l->edge, entry, &out);
                memcpy(at, &out, sizeof(out));
        }
        struct fuse_dirent d = {.ino = ino, .off = cookie, .namelen = (uint32_t)len, .type = (mode & S_IFMT) >> 12};
        memcpy(at + head, &d, FUSE_NAME_OFFSET);
        memcpy(at + head + FUSE_NAME_OFFSET, name, len);
        memset(at + raw, 0, padded - raw);
        l->used += padded;
        return true;
}

/* Nothing was sent to anybody: what `plus` counted as looked up is given back. */
static void undo_lookups(const struct listing *l) {
        for (size_t at = 0; at < l->used;) {
                const struct fuse_direntplus *d = (const struct fuse_direntplus *)(const void *)(l->out + at);
                if (d->entry_out.nodeid != 0) {
                        notify_forgotten(l->edge->notify, d->entry_out.nodeid, 1);
                        fs_forget(l->edge->config.fs, d->entry_out.nodeid, 1);
                }
                at += FUSE_DIRENTPLUS_SIZE(d);
        }
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, uint64_t fh, bool plus) {
        struct fuse_edge *e = fuse_req_userdata(req);
        struct worker *w = worker_self;
        /* The request itself lies at the buffer's beginning; the answer is built behind it. */
        struct listing l = {.edge = e,
                            .out = w->memory + EDGE_HEADROOM + EDGE_REQUEST_HEAD,
                            .size = MIN_OF(size, w->size - EDGE_REQUEST_HEAD),
                            .plus = plus};
        atomic_store(&w->active, notify_generation(e->notify));
        errint_t r = fs_readdir(e->config.fs, ino, fh, (uint64_t)off, plus, fill, &l);
        if (r < 0) {
                (void)fuse_reply_err(req, -r); /* if it fails, nobody waits any more */
                return;
        }
        if (fuse_reply_buf(req, l.out, l.used) < 0 && plus)
                undo_lookups(&l);
}

void edge_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
        list(req, ino, size, off, fi->fh, false);
}

void edge_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
        list(req, ino, size, off, fi->fh, true);
}
