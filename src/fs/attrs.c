/* attrs.c: stat, chmod, chown, utimensat, truncate, statfs. */
#include "internal.h"

void fs_getattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r) {
        (void)c;
        fs_count(fs, METRIC_GETATTRS, 1);
        reply_attr(fs, ino, r);
}

static void finish_attr(struct flight *f, const struct op_result *r) {
        errint_t error = r->error;
        if (f->node && f->with_size) { /* the truncation that came with it may have failed */
                (void)pthread_mutex_lock(&f->node->lock);
                if (error == 0 && f->node->error_seq != f->error_seq)
                        error = f->node->error;
                (void)pthread_mutex_unlock(&f->node->lock);
        }
        if (error < 0)
                reply_err(f->w.reply, error == -ENOENT ? -ESTALE : error);
        else
                reply_attr(f->fs, f->ino, f->w.reply);
}

static void finish_truncate(struct gate *g, errint_t error) {
        struct fs_reply *r = gate_take_reply(g);
        if (!r)
                return;
        if (error < 0)
                r->ops->err(r, error == -ENOENT ? -ESTALE : error);
        else
                reply_attr(g->fs, g->ino, r);
}

/* The new size is gathered like a write. Where the file is open, its close sends it, together with what is written next (open with
 * O_TRUNC arrives like this). Else nobody would: it is sent now and answered when it is stable. */
static void truncate_alone(struct fs *fs, struct node *n, struct fs_reply *r) {
        (void)pthread_mutex_lock(&n->lock);
        bool open = n->open > 0;
        (void)pthread_mutex_unlock(&n->lock);
        if (open) {
                reply_attr(fs, n->ino, r);
                return;
        }
        struct gate *g = gate_new(fs, r, finish_truncate);
        g->ino = n->ino;
        gate_fail(g, node_flush_behind(n, g));
        gate_pass(g);
}

static errint_t truncate_gather(struct fs *fs, const struct fs_caller *c, struct node *n, const struct fs_set *s, uint64_t fh) {
        struct gather_args w = {
                .what = GATHER_TRUNCATE, .length = s->size, .kill_suid = (s->set & FS_SET_KILL_SUID) != 0, .now = fs_now(fs)};
        if (fh != 0)
                w.caller = handle_caller(handle_of(fh), c);
        else
                fill_caller(fs, c, &w.caller);
        return node_change(n, &w);
}

static errint_t type_check(struct fs *fs, uint64_t ino, bool size, struct attr *ret) {
        if (fs_is_virtual(ino))
                return -EPERM;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = tree_getattr(s->tree, ino, ret);
        shared_state_done_read(fs->config.state);
        if (r < 0)
                return -ESTALE;
        if (size && !S_ISREG(ret->mode))
                return S_ISDIR(ret->mode) ? -EISDIR : -EINVAL;
        return fs_writable(fs);
}

static void fill_setattr(struct flight *f, const struct attr *a, const struct fs_set *s) {
        struct op *op = &f->op;
        unsigned mask = 0;
        mask |= s->set & FS_SET_MODE ? SETATTR_MODE : 0u;
        mask |= s->set & FS_SET_UID ? SETATTR_UID : 0u;
        mask |= s->set & FS_SET_GID ? SETATTR_GID : 0u;
        mask |= s->set & (FS_SET_ATIME | FS_SET_ATIME_NOW) ? SETATTR_ATIME : 0u;
        mask |= s->set & (FS_SET_MTIME | FS_SET_MTIME_NOW) ? SETATTR_MTIME : 0u;
        /* chown(2) takes setuid away from everybody's files, root's too, unless the mode is set in the same breath. */
        bool kill = (s->set & FS_SET_KILL_SUID) || (!(s->set & FS_SET_MODE) && (s->set & (FS_SET_UID | FS_SET_GID)) && !S_ISDIR(a->mode));
        op->setattr.ino = f->ino = a->ino;
        op->setattr.mask = mask | (kill ? SETATTR_KILL_SUID : 0u);
        op->setattr.mode = s->mode & 07777;
        op->setattr.uid = s->uid;
        op->setattr.gid = s->gid;
        op->setattr.atime = s->set & FS_SET_ATIME_NOW ? op->time : s->atime;
        op->setattr.mtime = s->set & FS_SET_MTIME_NOW ? op->time : s->mtime;
        if ((s->set & FS_SET_CTIME) && !(s->set & FS_SET_SIZE))
                op->time = s->ctime;
        f->finish = finish_attr;
}

/* A changed owner takes file capabilities with it. */
static void drop_caps(struct fs *fs, struct node *n, const struct fs_caller *c, uint64_t ino) {
        const uint8_t *value = NULL;
        size_t len = 0;
        const struct state *s = shared_state_read(fs->config.state);
        bool has = tree_xattr_get(s->tree, ino, XATTR_CAPABILITY, strlen(XATTR_CAPABILITY), &value, &len) == 0;
        shared_state_done_read(fs->config.state);
        if (!has)
                return;
        struct flight *f = flight_new(fs, n, c, OP_REMOVEXATTR, NULL);
        f->op.removexattr.ino = ino;
        f->op.removexattr.name = flight_own_name(f, XATTR_CAPABILITY);
        flight_go(f);
}

static uint64_t errors_seen(struct node *n) {
        (void)pthread_mutex_lock(&n->lock);
        uint64_t seen = n->error_seq;
        (void)pthread_mutex_unlock(&n->lock);
        return seen;
}

static bool more_than_size(const struct fs_set *s) {
        return (s->set & ~(unsigned)(FS_SET_SIZE | FS_SET_KILL_SUID | FS_SET_CTIME)) != 0;
}

/* A request that sets nothing is a chown(2) to what the owner is already, of which the kernel leaves the setuid bits to us, or precedes
 * an fallocate(2), which sees to them itself. Only the owner's and root's has an effect; the ctime moves with the access time that is
 * there. */
static void set_nothing(struct fs *fs, const struct fs_caller *c, const struct attr *a, struct fs_reply *r) {
        if (c->uid != 0 && c->uid != a->uid) {
                reply_attr(fs, a->ino, r);
                return;
        }
        struct fs_set s = {.set = FS_SET_KILL_SUID | FS_SET_ATIME, .atime = a->atime};
        fs_setattr(fs, c, a->ino, &s, 0, r);
}

void fs_setattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const struct fs_set *s, uint64_t fh, struct fs_reply *r) {
        struct attr a;
        bool size = (s->set & FS_SET_SIZE) != 0;
        errint_t error = type_check(fs, ino, size, &a);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        if (s->set == 0) {
                set_nothing(fs, c, &a, r);
                return;
        }
        CLEANUP(node_unrefp) struct node *n = size ? node_get(fs, ino) : node_find(fs, ino);
        uint64_t seen = n ? errors_seen(n) : 0;
        if (size)
                error = truncate_gather(fs, c, n, s, fh);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        PRE(n || !size);
        if (size && !more_than_size(s)) {
                truncate_alone(fs, n, r);
                return;
        }
        if (n)
                error = node_flush(n);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        if (s->set & (FS_SET_UID | FS_SET_GID))
                drop_caps(fs, n, c, ino);
        struct flight *f = flight_new(fs, n, c, OP_SETATTR, r);
        fill_setattr(f, &a, s);
        f->with_size = size;
        f->error_seq = seen;
        flight_go(f);
}

#define STATFS_BLOCK 4096u

void fs_statfs(struct fs *fs, struct fs_reply *r) {
        struct tree_usage u;
        const struct state *s = shared_state_read(fs->config.state);
        tree_usage(s->tree, &u);
        shared_state_done_read(fs->config.state);
        uint64_t used = u.bytes + atomic_load(&fs->growth), left = u.bytes_max > used ? u.bytes_max - used : 0;
        struct statvfs st = {
                .f_bsize = STATFS_BLOCK,
                .f_frsize = STATFS_BLOCK,
                .f_blocks = u.bytes_max / STATFS_BLOCK,
                .f_bfree = left / STATFS_BLOCK,
                .f_bavail = left / STATFS_BLOCK,
                .f_files = u.inodes_max,
                .f_ffree = u.inodes_max > u.inodes ? u.inodes_max - u.inodes : 0,
                .f_namemax = LIMIT_NAME,
        };
        st.f_favail = st.f_ffree;
        r->ops->statfs(r, &st);
}
