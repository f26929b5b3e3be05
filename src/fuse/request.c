/* request.c: each request of the kernel becomes one call of the request layer. */
#include "edge.h"

#include "notify.h"

#include <string.h>
#include <sys/stat.h>

static struct fs *fs_of(fuse_req_t req) {
        return ((struct fuse_edge *)fuse_req_userdata(req))->config.fs;
}

static struct fs_caller caller_of(fuse_req_t req) {
        const struct fuse_ctx *c = fuse_req_ctx(req);
        return (struct fs_caller){.uid = c->uid, .gid = c->gid, .pid = c->pid, .umask = c->umask};
}

/* The kernel will keep what is answered: change sets that pass from now on wait for it (notify.h). */
static void track(fuse_req_t req) {
        struct fuse_edge *e = fuse_req_userdata(req);
        atomic_store(&worker_self->active, notify_generation(e->notify));
}

/* What of a request libfuse drops is read from the kernel's own message. */
static const void *raw_body(void) {
        return worker_self->raw + 1;
}

/* --- names --- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        struct fs_caller c = caller_of(req);
        track(req);
        if (strcmp(name, ".") == 0) {
                q.reply.ops = &edge_self_ops;
                fs_getattr(fs_of(req), &c, parent, &q.reply);
                return;
        }
        fs_lookup(fs_of(req), &c, parent, name, &q.reply);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n) {
        struct fuse_edge *e = fuse_req_userdata(req);
        notify_forgotten(e->notify, ino, n);
        fs_forget(e->config.fs, ino, n);
        fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets) {
        struct fuse_edge *e = fuse_req_userdata(req);
        for (size_t i = 0; i < count; i++) {
                notify_forgotten(e->notify, forgets[i].ino, forgets[i].nlookup);
                fs_forget(e->config.fs, forgets[i].ino, forgets[i].nlookup);
        }
        fuse_reply_none(req);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi) {
        bool tmpfile = worker_self->tmpfile;
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        if (tmpfile)
                fs_tmpfile(fs_of(req), &c, parent, mode, fi->flags, &q->reply);
        else
                fs_create(fs_of(req), &c, parent, name, mode, fi->flags, &q->reply);
        edge_req_end(q);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_mknod(fs_of(req), &c, parent, name, mode, (uint32_t)rdev, &q->reply);
        edge_req_end(q);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_mkdir(fs_of(req), &c, parent, name, mode, &q->reply);
        edge_req_end(q);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_symlink(fs_of(req), &c, parent, name, target, &q->reply);
        edge_req_end(q);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_link(fs_of(req), &c, ino, parent, name, &q->reply);
        edge_req_end(q);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_unlink(fs_of(req), &c, parent, name, &q->reply);
        edge_req_end(q);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_rmdir(fs_of(req), &c, parent, name, &q->reply);
        edge_req_end(q);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name, unsigned flags) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_rename(fs_of(req), &c, parent, name, new_parent, new_name, flags, &q->reply);
        edge_req_end(q);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        struct fs_caller c = caller_of(req);
        fs_readlink(fs_of(req), &c, ino, &q.reply);
}

/* --- attributes --- */

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        (void)fi;
        struct edge_req q;
        edge_sync_begin(&q, req);
        struct fs_caller c = caller_of(req);
        track(req);
        fs_getattr(fs_of(req), &c, ino, &q.reply);
}

static struct timestamp time_of(uint64_t sec, uint32_t nsec) {
        return (struct timestamp){.sec = (int64_t)sec, .nsec = nsec};
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi) {
        (void)st, (void)to_set; /* libfuse drops KILL_SUIDGID: all is taken from the message itself */
        static const struct {
                uint32_t kernel;
                unsigned ours;
        } bits[] = {
                {FATTR_MODE, FS_SET_MODE},
                {FATTR_UID, FS_SET_UID},
                {FATTR_GID, FS_SET_GID},
                {FATTR_SIZE, FS_SET_SIZE},
                {FATTR_ATIME, FS_SET_ATIME},
                {FATTR_MTIME, FS_SET_MTIME},
                {FATTR_ATIME_NOW, FS_SET_ATIME_NOW},
                {FATTR_MTIME_NOW, FS_SET_MTIME_NOW},
                {FATTR_CTIME, FS_SET_CTIME},
                {FATTR_KILL_SUIDGID, FS_SET_KILL_SUID},
        };
        const struct fuse_setattr_in *in = raw_body();
        struct fs_set set = {
                .mode = in->mode,
                .uid = in->uid,
                .gid = in->gid,
                .size = in->size,
                .atime = time_of(in->atime, in->atimensec),
                .mtime = time_of(in->mtime, in->mtimensec),
                .ctime = time_of(in->ctime, in->ctimensec),
        };
        for (size_t i = 0; i < ARRAY_LEN(bits); i++)
                if (in->valid & bits[i].kernel)
                        set.set |= bits[i].ours;
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_setattr(fs_of(req), &c, ino, &set, fi ? fi->fh : 0, &q->reply);
        edge_req_end(q);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags) {
        bool kill_sgid = worker_self->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID;
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_setxattr(fs_of(req), &c, ino, name, value, size, flags, kill_sgid, &q->reply);
        edge_req_end(q);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        struct fs_caller c = caller_of(req);
        fs_getxattr(fs_of(req), &c, ino, name, size, &q.reply);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        struct fs_caller c = caller_of(req);
        fs_listxattr(fs_of(req), &c, ino, size, &q.reply);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_removexattr(fs_of(req), &c, ino, name, &q->reply);
        edge_req_end(q);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino) {
        (void)ino;
        struct edge_req q;
        edge_sync_begin(&q, req);
        fs_statfs(fs_of(req), &q.reply);
}

/* --- open files --- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        const struct fuse_open_in *in = raw_body();
        bool kill_suid = in->open_flags & FUSE_OPEN_KILL_SUIDGID;
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_open(fs_of(req), &c, ino, fi->flags, kill_suid, &q->reply);
        edge_req_end(q);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        fs_read(fs_of(req), ino, fi->fh, (uint64_t)off, size, &q.reply);
}

/* What fs_getattr answers, for the edge's own use. */
static void mode_err(struct fs_reply *r, int error) {
        (void)r, (void)error; /* the mode stays 0 */
}
static void mode_attr(struct fs_reply *r, const struct fs_entry *entry) {
        *(uint32_t *)r->ctx = entry->attr.mode;
}

static bool is_setuid(fuse_req_t req, uint64_t ino) {
        static const struct fs_reply_ops ops = {.err = mode_err, .attr = mode_attr};
        uint32_t mode = 0;
        struct fs_reply r = {.ops = &ops, .ctx = &mode};
        struct fs_caller c = caller_of(req);
        fs_getattr(fs_of(req), &c, ino, &r);
        return (mode & S_ISUID) || (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t size, off_t off, struct fuse_file_info *fi) {
        uint32_t flags = ((const struct fuse_write_in *)raw_body())->write_flags;
        bool loses_setuid = (flags & FUSE_WRITE_KILL_SUIDGID) && is_setuid(req, ino);
        struct edge_req *q = edge_req_begin(req);
        q->loses_setuid = loses_setuid;
        struct fs_caller c = caller_of(req);
        fs_write(fs_of(req), &c, ino, fi->fh, (uint64_t)off, p, size, fi->flags, flags & FUSE_WRITE_KILL_SUIDGID, flags & FUSE_WRITE_CACHE,
                 &q->reply);
        edge_req_end(q);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_flush(fs_of(req), &c, ino, fi->fh, fi->lock_owner, &q->reply);
        edge_req_end(q);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        struct edge_req *q = edge_req_begin(req);
        fs_release(fs_of(req), ino, fi->fh, &q->reply);
        edge_req_end(q);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi) {
        struct edge_req *q = edge_req_begin(req);
        fs_fsync(fs_of(req), ino, fi->fh, datasync != 0, &q->reply);
        edge_req_end(q);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi) {
        struct edge_req *q = edge_req_begin(req);
        struct fs_caller c = caller_of(req);
        fs_fallocate(fs_of(req), &c, ino, fi->fh, mode, (uint64_t)offset, (uint64_t)length, &q->reply);
        edge_req_end(q);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi) {
        struct edge_req q;
        edge_sync_begin(&q, req);
        fs_lseek(fs_of(req), ino, fi->fh, (uint64_t)off, whence, &q.reply);
}

/* --- directories; READDIR is in dir.c --- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        (void)fi;
        struct edge_req *q = edge_req_begin(req);
        q->is_dir = true;
        struct fs_caller c = caller_of(req);
        fs_opendir(fs_of(req), &c, ino, &q->reply);
        edge_req_end(q);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
        struct edge_req *q = edge_req_begin(req);
        fs_releasedir(fs_of(req), ino, fi->fh, &q->reply);
        edge_req_end(q);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi) {
        (void)datasync, (void)fi;
        struct edge_req *q = edge_req_begin(req);
        fs_fsyncdir(fs_of(req), ino, &q->reply);
        edge_req_end(q);
}

/* Not here on purpose. GETLK, SETLK, FLOCK: the kernel keeps locks; this is where they join when they cross nodes (with
 * FUSE_CAP_POSIX_LOCKS and FUSE_CAP_FLOCK_LOCKS in init.c; a SETLKW is a request that waits like any other). ACCESS: the kernel checks
 * (default_permissions). COPY_FILE_RANGE: the kernel copies. STATX: ENOSYS makes the kernel use GETATTR for good; an answer without a
 * birth time would make it ask again at every stat(1), which wants one. IOCTL, POLL, BMAP: not for a configuration tree. */
const struct fuse_lowlevel_ops edge_ops = {
        .init = edge_init,
        .lookup = op_lookup,
        .forget = op_forget,
        .forget_multi = op_forget_multi,
        .create = op_create,
        .mknod = op_mknod,
        .mkdir = op_mkdir,
        .symlink = op_symlink,
        .link = op_link,
        .unlink = op_unlink,
        .rmdir = op_rmdir,
        .rename = op_rename,
        .readlink = op_readlink,
        .getattr = op_getattr,
        .setattr = op_setattr,
        .setxattr = op_setxattr,
        .getxattr = op_getxattr,
        .listxattr = op_listxattr,
        .removexattr = op_removexattr,
        .statfs = op_statfs,
        .open = op_open,
        .read = op_read,
        .write = op_write,
        .flush = op_flush,
        .release = op_release,
        .fsync = op_fsync,
        .fallocate = op_fallocate,
        .lseek = op_lseek,
        .opendir = op_opendir,
        .readdir = edge_op_readdir,
        .readdirplus = edge_op_readdirplus,
        .releasedir = op_releasedir,
        .fsyncdir = op_fsyncdir,
};
