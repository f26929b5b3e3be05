/* reply.c: answers, and the requests that wait for theirs. */
#include "edge.h"

#include "notify.h"

#include <fcntl.h>
#include <string.h>

/* --- the life of a request --- */

/* Guards parking, for all edges of the process: a request that is finished after its edge has gone must find that out without it. */
static pthread_mutex_t parking = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unparked = PTHREAD_COND_INITIALIZER;

static struct fuse_edge *edge_of(fuse_req_t req) {
        return fuse_req_userdata(req);
}

static void req_setup(struct edge_req *q, fuse_req_t req, bool waits) {
        struct fuse_edge *e = edge_of(req);
        const struct fuse_in_header *raw = worker_self->raw;
        *q = (struct edge_req){.reply = {.ops = &edge_reply_ops, .unique = raw->unique, .ctx = q},
                               .fs = e->config.fs,
                               .edge = e,
                               .req = req,
                               .ino = raw->nodeid};
        q->waits = waits;
}

void edge_sync_begin(struct edge_req *q, fuse_req_t req) {
        req_setup(q, req, false);
}

struct edge_req *edge_req_begin(fuse_req_t req) {
        struct worker *w = worker_self;
        struct edge_req *q = w->spare ? steal_pointer(&w->spare) : xmalloc(sizeof(*q));
        req_setup(q, req, true);
        w->submitting = q;
        return q;
}

static void park(struct fuse_edge *e, struct edge_req *q) {
        q->parked = true;
        q->next = e->parked;
        q->prev = NULL;
        if (q->next)
                q->next->prev = q;
        e->parked = q;
}

static void unpark(struct fuse_edge *e, struct edge_req *q) {
        q->parked = false;
        if (q->prev)
                q->prev->next = q->next;
        else
                e->parked = q->next;
        if (q->next)
                q->next->prev = q->prev;
}

/* Whoever finishes the request later only frees it. */
static fuse_req_t orphan(struct edge_req *q) {
        q->edge = NULL;
        return steal_pointer(&q->req);
}

void edge_req_end(struct edge_req *q) {
        struct worker *w = worker_self;
        struct fuse_edge *e = w->edge;
        if (w->submitting == q) { /* not answered from here */
                w->submitting = NULL;
                fuse_req_t refused = NULL;
                (void)pthread_mutex_lock(&parking);
                bool waits = !q->answered;
                if (waits && e->refusing)
                        refused = orphan(q);
                else if (waits)
                        park(e, q);
                (void)pthread_mutex_unlock(&parking);
                if (refused)
                        (void)fuse_reply_err(refused, EIO);
                if (waits)
                        return;
        }
        if (w->spare)
                free(q);
        else
                w->spare = q;
}

/* Makes the answer ours to give: after this q may be gone. */
static struct edge_req take(struct fs_reply *r) {
        struct edge_req *q = r->ctx;
        if (!q->waits)
                return *q;
        if (worker_self && worker_self->submitting == q) {
                worker_self->submitting = NULL;
                q->answered = true;
                return *q;
        }
        (void)pthread_mutex_lock(&parking);
        PRE(!q->answered);
        q->answered = true;
        struct edge_req copy = *q;
        if (q->edge) {
                if (q->parked)
                        unpark(q->edge, q);
                q->edge->replying++;
                copy.elsewhere = true;
        }
        (void)pthread_mutex_unlock(&parking);
        if (copy.parked || !copy.edge)
                free(q); /* else edge_req_end finds it answered */
        return copy;
}

/* The session must not go away under a thread that is not ours while it answers. */
static void answered(struct edge_req *q) {
        if (!q->elsewhere)
                return;
        (void)pthread_mutex_lock(&parking);
        q->edge->replying--;
        (void)pthread_cond_broadcast(&unparked);
        (void)pthread_mutex_unlock(&parking);
}

bool edge_req_interrupt(struct fuse_edge *e, uint64_t unique) {
        bool found = false;
        (void)pthread_mutex_lock(&parking);
        for (const struct edge_req *q = e->parked; q && !found; q = q->next)
                found = q->reply.unique == unique;
        (void)pthread_mutex_unlock(&parking);
        return found;
}

void edge_req_wait_all(struct fuse_edge *e, const struct timespec *until) {
        int r = 0;
        (void)pthread_mutex_lock(&parking);
        while (e->parked && r == 0)
                r = pthread_cond_clockwait(&unparked, &parking, CLOCK_MONOTONIC, until);
        (void)pthread_mutex_unlock(&parking);
}

void edge_req_orphan_all(struct fuse_edge *e) {
        (void)pthread_mutex_lock(&parking);
        e->refusing = true;
        while (e->parked) {
                struct edge_req *q = e->parked;
                unpark(e, q);
                fuse_req_t req = orphan(q);
                (void)pthread_mutex_unlock(&parking);
                (void)fuse_reply_err(req, EIO);
                (void)pthread_mutex_lock(&parking);
        }
        while (e->replying > 0)
                (void)pthread_cond_wait(&unparked, &parking);
        (void)pthread_mutex_unlock(&parking);
}

/* --- when nobody waits any more: what the request layer has counted for the kernel is given back --- */

static void nothing_err(struct fs_reply *r, int error) {
        (void)r, (void)error;
}
static const struct fs_reply_ops nothing_ops = {.err = nothing_err};
static struct fs_reply nothing = {.ops = &nothing_ops};

static void undo_entry(const struct edge_req *q, uint64_t ino) {
        if (q->req)
                notify_forgotten(q->edge->notify, ino, 1);
        fs_forget(q->fs, ino, 1);
}

static void undo_open(const struct edge_req *q, uint64_t ino, uint64_t fh) {
        if (q->is_dir)
                fs_releasedir(q->fs, ino, fh, &nothing);
        else
                fs_release(q->fs, ino, fh, &nothing);
}

/* --- from the request layer's words to the kernel's --- */

static void attr_out(const struct attr *a, struct fuse_attr *out) {
        *out = (struct fuse_attr){
                .ino = a->ino,
                .size = a->size,
                .blocks = a->blocks,
                .atime = (uint64_t)a->atime.sec,
                .mtime = (uint64_t)a->mtime.sec,
                .ctime = (uint64_t)a->ctime.sec,
                .atimensec = a->atime.nsec,
                .mtimensec = a->mtime.nsec,
                .ctimensec = a->ctime.nsec,
                .mode = a->mode,
                .nlink = a->nlink,
                .uid = a->uid,
                .gid = a->gid,
                .rdev = a->rdev,
                .blksize = 4096,
        };
}

void edge_entry_out(const struct fuse_edge *e, const struct fs_entry *entry, struct fuse_entry_out *out) {
        *out = (struct fuse_entry_out){.nodeid = entry->ino};
        if (entry->cacheable) {
                out->entry_valid = e->entry_valid_s;
                out->attr_valid = e->attr_valid_s;
        }
        if (entry->ino != 0) {
                attr_out(&entry->attr, &out->attr);
                notify_known(e->notify, entry->ino);
        }
}

static struct fuse_open_out open_out(const struct fuse_edge *e, const struct fs_open_out *o) {
        bool cache_dir = o->cache_readdir && e->entry_valid_s != 0; /* notify.h says why not otherwise */
        return (struct fuse_open_out){
                .fh = o->fh,
                .open_flags = (o->keep_cache ? FOPEN_KEEP_CACHE : 0u) | (o->direct_io ? FOPEN_DIRECT_IO : 0u) |
                              (o->nonseekable ? FOPEN_NONSEEKABLE : 0u) | (cache_dir ? FOPEN_CACHE_DIR : 0u) |
                              (o->noflush ? FOPEN_NOFLUSH : 0u),
        };
}

/* An answer from a thread that no fence waits for may have been overtaken by a change: then what the kernel has just been told is wrong. */
static void recheck(struct fuse_edge *e, uint64_t ino, uint64_t seq) {
        if (worker_self && atomic_load_explicit(&worker_self->active, memory_order_relaxed) != 0)
                return;
        if (fs_changed_since(e->config.fs, ino, seq))
                notify_inode(e->notify, ino, -1);
}

/* --- fs_reply_ops --- */

static void reply_err(struct fs_reply *r, int error) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (q.req)
                (void)fuse_reply_err(q.req, -error); /* if it fails, nobody waits any more: true of every (void) in this file */
}

static void reply_entry(struct fs_reply *r, const struct fs_entry *entry) {
        CLEANUP(answered) struct edge_req q = take(r);
        struct fuse_entry_out out = {0};
        if (q.req)
                edge_entry_out(q.edge, entry, &out);
        if (q.req && fuse_reply_buf(q.req, (const char *)&out, sizeof(out)) == 0) {
                if (out.attr_valid != 0 && out.nodeid != 0)
                        recheck(q.edge, entry->ino, entry->seq);
        } else if (entry->ino != 0) {
                undo_entry(&q, entry->ino);
        }
}

static void reply_attr(struct fs_reply *r, const struct fs_entry *entry) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (!q.req)
                return;
        struct fuse_attr_out out = {.attr_valid = entry->cacheable ? q.edge->attr_valid_s : 0};
        attr_out(&entry->attr, &out.attr);
        if (fuse_reply_buf(q.req, (const char *)&out, sizeof(out)) == 0 && out.attr_valid != 0)
                recheck(q.edge, entry->ino, entry->seq);
}

static void reply_open(struct fs_reply *r, const struct fs_open_out *o) {
        CLEANUP(answered) struct edge_req q = take(r);
        struct fuse_open_out out = {0};
        if (q.req)
                out = open_out(q.edge, o);
        if (!q.req || fuse_reply_buf(q.req, (const char *)&out, sizeof(out)) < 0)
                undo_open(&q, q.ino, o->fh);
}

static void reply_create(struct fs_reply *r, const struct fs_entry *entry, const struct fs_open_out *o) {
        CLEANUP(answered) struct edge_req q = take(r);
        struct {
                struct fuse_entry_out entry;
                struct fuse_open_out open;
        } out = {0};
        if (q.req) {
                out.open = open_out(q.edge, o);
                edge_entry_out(q.edge, entry, &out.entry);
        }
        if (q.req && fuse_reply_buf(q.req, (const char *)&out, sizeof(out)) == 0) {
                if (out.entry.attr_valid != 0)
                        recheck(q.edge, entry->ino, entry->seq);
                return;
        }
        undo_open(&q, entry->ino, o->fh);
        undo_entry(&q, entry->ino);
}

static void reply_write(struct fs_reply *r, size_t n) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (!q.req)
                return;
        /* The kernel keeps the mode over a WRITE, and execve(2) goes by it. Attributes alone: this does not wait for anything. */
        if (q.loses_setuid)
                (void)notify_send_inode(q.edge, q.ino, -1, 0); /* it knows the inode: it writes to it */
        (void)fuse_reply_write(q.req, n);
}

static void reply_data(struct fs_reply *r, const struct iovec *iov, int n_iov) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (!q.req)
                return;
        if (n_iov > 1)
                (void)fuse_reply_iov(q.req, iov, n_iov);
        else
                (void)fuse_reply_buf(q.req, n_iov ? iov[0].iov_base : NULL, n_iov ? iov[0].iov_len : 0);
}

static void reply_size(struct fs_reply *r, size_t n) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (q.req)
                (void)fuse_reply_xattr(q.req, n);
}

static void reply_statfs(struct fs_reply *r, const struct statvfs *st) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (q.req)
                (void)fuse_reply_statfs(q.req, st);
}

static void reply_offset(struct fs_reply *r, uint64_t offset) {
        CLEANUP(answered) struct edge_req q = take(r);
        if (q.req)
                (void)fuse_reply_lseek(q.req, (off_t)offset);
}

static void reply_lock(struct fs_reply *r, const struct fs_lock_range *range) {
        CLEANUP(answered) struct edge_req q = take(r);
        struct fuse_lk_out out = {.lk = {.start = range->start, .end = range->end, .type = range->type, .pid = range->pid}};
        if (q.req)
                (void)fuse_reply_buf(q.req, (const char *)&out, sizeof(out));
}

const struct fs_reply_ops edge_reply_ops = {
        .err = reply_err,
        .entry = reply_entry,
        .attr = reply_attr,
        .open = reply_open,
        .create = reply_create,
        .write = reply_write,
        .data = reply_data,
        .size = reply_size,
        .statfs = reply_statfs,
        .offset = reply_offset,
        .lock = reply_lock,
};

/* A file handle is turned into an inode by a LOOKUP of "." in it, whatever its type: attributes answered as an entry. One without a name is
 * not given out anew: the kernel asks only when it has let go of it. */
static void reply_self(struct fs_reply *r, const struct fs_entry *e) {
        if (e->attr.nlink == 0)
                reply_err(r, -ESTALE);
        else
                reply_entry(r, e);
}
const struct fs_reply_ops edge_self_ops = {.err = reply_err, .attr = reply_self};
