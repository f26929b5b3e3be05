/* names.c: looking names up, making them, taking them away. Permissions are the kernel's (default_permissions); what is checked here is
 * what it leaves to filesystems: inheritance of groups and ACLs, and our reserved name. */
#include "internal.h"

#include <fcntl.h>

void fs_lookup(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r) {
        struct fs_entry e = {.cacheable = true};
        (void)c;
        fs_count(fs, METRIC_LOOKUPS, 1);
        if (fs_is_virtual(parent) || virtual_reserved(parent, name)) {
                errint_t error = virtual_lookup(fs, parent, name, &e);
                if (error < 0)
                        r->ops->err(r, error);
                else
                        r->ops->entry(r, &e);
                return;
        }
        struct attr dir;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t error = tree_getattr(s->tree, parent, &dir);
        if (error == -ENOENT)
                error = -ESTALE;
        else if (error == 0)
                error = tree_lookup(s->tree, parent, name, strlen(name), &e.ino);
        if (error == 0)
                error = attr_of(fs, s->tree, e.ino, &e.attr);
        shared_state_done_read(fs->config.state);
        if (error < 0 && error != -ENOENT) {
                r->ops->err(r, error);
                return;
        }
        if (error < 0)
                e.ino = 0;
        e.seq = e.ino != 0 ? e.attr.change_seq : dir.change_seq;
        r->ops->entry(r, &e);
}

/* --- new inodes */

/* What a name may not be, where a new one is made. */
static errint_t new_name_check(struct fs *fs, uint64_t parent, const char *name) {
        size_t len = strlen(name);
        if (fs_is_virtual(parent))
                return -EPERM;
        if (len > LIMIT_NAME)
                return -ENAMETOOLONG;
        if (virtual_reserved(parent, name))
                return -EEXIST;
        return op_name_valid(name, len) ? fs_writable(fs) : -EINVAL;
}

/* What a new inode gets from its directory. */
struct birth {
        uint32_t mode, gid;
        struct acl_inherited acl; /* to be given back with acl_inherited_done */
};

/* With a default ACL the umask does not count (the kernel leaves it to us: FUSE_DONT_MASK). A setgid directory gives its group on, and
 * the bit itself to directories. That a file loses setgid where its maker is not of the group is the kernel's part: it alone knows
 * the maker's groups, and has done it before it asks. */
static errint_t birth_make(struct fs *fs, const struct fs_caller *c, uint64_t parent, uint32_t mode, struct birth *ret) {
        struct birth b = {.mode = mode, .gid = c->gid};
        struct attr dir;
        const uint8_t *def = NULL;
        size_t def_len = 0;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = tree_getattr(s->tree, parent, &dir);
        if (r == 0 && !S_ISDIR(dir.mode))
                r = -ENOTDIR;
        bool acl = r == 0 && !S_ISLNK(mode) && tree_xattr_get(s->tree, parent, ACL_DEFAULT, strlen(ACL_DEFAULT), &def, &def_len) == 0 &&
                   fs_acl_inherit(def, def_len, mode, &b.acl) == 0;
        shared_state_done_read(fs->config.state);
        if (r < 0)
                return r == -ENOENT ? -ESTALE : r;
        if (acl)
                b.mode = b.acl.mode;
        else if (!S_ISLNK(mode))
                b.mode &= ~(c->umask & 0777);
        if (dir.mode & S_ISGID) {
                b.gid = dir.gid;
                b.mode |= S_ISDIR(mode) ? (uint32_t)S_ISGID : 0;
        }
        *ret = b;
        return 0;
}

static void finish_entry(struct flight *f, const struct op_result *r) {
        if (r->error < 0)
                reply_err(f->w.reply, r->error);
        else
                reply_entry(f->fs, r->ino, f->w.reply);
}

static void finish_plain(struct flight *f, const struct op_result *r) {
        reply_err(f->w.reply, r->error);
}

static errint_t new_inode(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, struct fs_reply *r,
                          struct flight **ret) {
        struct birth b = {0};
        errint_t error = new_name_check(fs, parent, name);
        if (error == 0)
                error = birth_make(fs, c, parent, mode, &b);
        if (error < 0)
                return error;
        struct flight *f = flight_new(fs, NULL, c, OP_CREATE, r);
        f->op.create.parent = parent;
        f->op.create.name = flight_own_name(f, name);
        f->op.create.mode = b.mode;
        f->op.create.uid = c->uid;
        f->op.create.gid = b.gid;
        f->op.create.acl_access.data = flight_own(f, b.acl.access, b.acl.access_len);
        f->op.create.acl_access.len = b.acl.access_len;
        f->op.create.acl_default.data = flight_own(f, b.acl.def, b.acl.def_len);
        f->op.create.acl_default.len = b.acl.def_len;
        f->finish = finish_entry;
        acl_inherited_done(&b.acl);
        *ret = f;
        return 0;
}

void fs_mkdir(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, struct fs_reply *r) {
        struct flight *f = NULL;
        errint_t error = new_inode(fs, c, parent, name, S_IFDIR | (mode & 07777), r, &f);
        if (error < 0)
                r->ops->err(r, error);
        else
                flight_go(f);
}

void fs_mknod(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, uint32_t rdev,
              struct fs_reply *r) {
        struct flight *f = NULL;
        uint32_t type = mode & S_IFMT ? mode & S_IFMT : S_IFREG;
        bool fits = type == S_IFREG || type == S_IFIFO || type == S_IFSOCK || type == S_IFCHR || type == S_IFBLK;
        errint_t error = fits ? new_inode(fs, c, parent, name, type | (mode & 07777), r, &f) : -EINVAL;
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        f->op.create.rdev = type == S_IFCHR || type == S_IFBLK ? rdev : 0;
        flight_go(f);
}

void fs_symlink(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, const char *target, struct fs_reply *r) {
        struct flight *f = NULL;
        size_t len = strlen(target);
        errint_t error = len == 0 ? -ENOENT : len >= LIMIT_PATH ? -ENAMETOOLONG : 0;
        if (error == 0)
                error = new_inode(fs, c, parent, name, S_IFLNK | 0777, r, &f);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        f->op.create.target.text = flight_own(f, target, len);
        f->op.create.target.len = len;
        flight_go(f);
}

/* --- new inodes that are open at once. Pinned while the state is still locked by the apply: nobody can remove them in between. */

static struct node *open_new(struct flight *f, struct tree *t, uint64_t ino) {
        struct node *n = node_get(f->fs, ino);
        struct fs_caller c = {.uid = f->op.caller.uid, .gid = f->op.caller.gid, .pid = f->op.caller.pid};
        node_open_locked(n, t);
        f->handle = handle_new(n, HANDLE_FILE, f->flags, &c);
        f->handle->caller = f->op.caller;
        f->handle->caller_known = true;
        return n;
}

/* Applied again, in another history, an operation may get another number: what was opened in the first is nobody's, or somebody else's. It
 * is given up when no locks are held. */
static void lose_handle(struct flight *f) {
        f->handle->lost_next = f->lost;
        f->lost = steal_pointer(&f->handle);
}

static void drop_lost(struct flight *f) {
        while (f->lost) {
                struct handle *h = f->lost;
                f->lost = h->lost_next;
                handle_unref(h);
        }
}

static void created(struct flight *f, struct state *s, const struct op_result *r) {
        if (r->error < 0)
                return;
        if (f->handle && f->handle->node->ino == r->ino && f->handle->node->pinned) /* changes under the state's lock alone */
                return;
        if (f->handle)
                lose_handle(f);
        (void)open_new(f, s->tree, r->ino);
}

static void finish_create(struct flight *f, const struct op_result *r) {
        struct fs *fs = f->fs;
        errint_t error = r->error;
        struct fs_entry e;
        drop_lost(f);
        if (error == 0 && f->handle && f->handle->node->ino != r->ino) /* found in a history where another number was given */
                handle_unref(steal_pointer(&f->handle));
        if (error == 0 && !f->handle) {
                struct node *n = node_get(fs, r->ino); /* the answer to a request that was applied before a restart of the view */
                struct fs_caller c = {.uid = f->op.caller.uid, .gid = f->op.caller.gid, .pid = f->op.caller.pid};
                error = node_open(n);
                if (error == 0)
                        f->handle = handle_new(n, HANDLE_FILE, f->flags, &c);
                else
                        node_unref(n);
        }
        if (error == 0)
                error = entry_of(fs, r->ino, &e);
        /* Somebody else made it since the kernel looked. Not for us to open: nobody checked the permissions of what is there now.
         * ESTALE makes the kernel look again, and open it like any file that exists. */
        if (error == -EEXIST && !(f->flags & O_EXCL))
                error = -ESTALE;
        if (error < 0) {
                handle_unref(steal_pointer(&f->handle));
                reply_err(f->w.reply, error);
                return;
        }
        struct fs_open_out out = handle_out(f->handle);
        f->handle = NULL; /* the kernel's now */
        f->w.reply->ops->create(f->w.reply, &e, &out);
}

void fs_create(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, int flags, struct fs_reply *r) {
        struct flight *f = NULL;
        fs_count(fs, METRIC_OPENS, 1);
        errint_t error = new_inode(fs, c, parent, name, S_IFREG | (mode & 07777), r, &f);
        if (error == -EEXIST && !(flags & O_EXCL))
                error = -EISDIR; /* the virtual directory */
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        f->flags = flags;
        f->applied_fn = created;
        f->finish = finish_create;
        flight_go(f);
}

static errint_t tmpfile_acl(struct tree *t, uint64_t ino, const struct flight *f) {
        struct op op = {.kind = OP_SETXATTR, .caller = f->op.caller, .time = f->op.time};
        struct op_result r = {0};
        op.setxattr.ino = ino;
        op.setxattr.name = (struct op_name){ACL_ACCESS, strlen(ACL_ACCESS)};
        op.setxattr.value = f->tmp_acl;
        op.setxattr.len = f->tmp_acl_len;
        errint_t error = f->tmp_acl_len > 0 ? tree_apply_orphan(t, &op, &r) : 0;
        return error < 0 ? error : r.error;
}

static void tmpfile_made(struct flight *f, struct state *s, const struct op_result *r) {
        struct attr a = f->tmp_attr;
        if (r->error < 0 || (f->handle && f->handle->node->ino == r->ino && tree_is_orphan(s->tree, r->ino)))
                return;
        if (f->handle)
                lose_handle(f);
        a.ino = r->ino;
        f->failed = tree_orphan_new(s->tree, &a);
        if (f->failed < 0)
                return;
        f->failed = tmpfile_acl(s->tree, a.ino, f);
        struct node *n = f->failed == 0 ? open_new(f, s->tree, a.ino) : NULL;
        tree_unpin(s->tree, a.ino); /* pinned by tree_orphan_new, and by its node now: once is enough */
        if (!n)
                return;
        (void)pthread_mutex_lock(&n->lock);
        n->tmpfile = true;
        (void)pthread_mutex_unlock(&n->lock);
}

void fs_tmpfile(struct fs *fs, const struct fs_caller *c, uint64_t parent, uint32_t mode, int flags, struct fs_reply *r) {
        struct birth b = {0};
        fs_count(fs, METRIC_OPENS, 1);
        errint_t error = fs_is_virtual(parent) ? -EPERM : fs_writable(fs);
        if (error == 0)
                error = birth_make(fs, c, parent, S_IFREG | (mode & 07777), &b);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        struct flight *f = flight_new(fs, NULL, c, OP_RESERVE_INO, r);
        struct timestamp now = f->op.time;
        f->tmp_attr = (struct attr){.mode = b.mode, .uid = c->uid, .gid = b.gid, .atime = now, .mtime = now, .ctime = now};
        f->tmp_acl = flight_own(f, b.acl.access, b.acl.access_len);
        f->tmp_acl_len = b.acl.access_len;
        acl_inherited_done(&b.acl);
        f->flags = flags;
        f->applied_fn = tmpfile_made;
        f->finish = finish_create;
        flight_go(f);
}

/* --- further names */

static errint_t adopt_content(struct flight *f, struct blob *content) {
        size_t len = (size_t)blob_size(content), packed_len = 0;
        uint8_t *packed = NULL;
        if (len == 0)
                return 0;
        cleanup_free uint8_t *raw = try_malloc(len);
        if (!raw)
                return -ENOMEM;
        (void)blob_read(content, 0, raw, len);
        f->op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = len, .data = raw, .len = len};
        if (len >= COMPRESS_MIN && compress_zstd(raw, len, &packed, &packed_len) == 0)
                f->op.payload = (struct op_payload){.form = FORM_ZSTD, .raw_len = len, .data = packed, .len = packed_len};
        f->owned[f->n_owned++] = packed ? packed : steal_pointer(&raw);
        return 0;
}

/* What the file is when its turn comes: writes queued before have reached it by then, later ones wait. */
static errint_t adopt_prepare(struct flight *f) {
        CLEANUP(enc_done) struct enc xattrs = {0};
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        uint64_t ino = f->op.adopt.ino;
        enc_init(&xattrs, OP_HEAD_MAX);
        const struct state *s = shared_state_read(f->fs->config.state);
        errint_t r = tree_is_orphan(s->tree, ino) ? tree_getattr(s->tree, ino, &f->op.adopt.attr) : -ENOENT;
        if (r == 0)
                r = tree_xattrs_encode(s->tree, ino, &xattrs);
        if (r == 0)
                r = tree_content(s->tree, ino, &content);
        shared_state_done_read(f->fs->config.state);
        if (r < 0)
                return r;
        f->op.adopt.xattrs = flight_own(f, xattrs.data, xattrs.len);
        f->op.adopt.xattrs_len = xattrs.len;
        return adopt_content(f, content);
}

static void adopted(struct flight *f, struct state *s, const struct op_result *r) {
        (void)s;
        if (r->error < 0)
                return;
        (void)pthread_mutex_lock(&f->node->lock);
        f->node->tmpfile = false;
        (void)pthread_mutex_unlock(&f->node->lock);
}

/* Is it without a name, and may it have one again? */
static errint_t link_check(struct fs *fs, struct node *n, uint64_t ino, bool *ret_orphan) {
        const struct state *s = shared_state_read(fs->config.state);
        struct attr a;
        errint_t r = tree_getattr(s->tree, ino, &a);
        bool orphan = r == 0 && tree_is_orphan(s->tree, ino);
        shared_state_done_read(fs->config.state);
        if (r < 0)
                return -ESTALE;
        (void)pthread_mutex_lock(&n->lock);
        bool tmpfile = n->tmpfile;
        (void)pthread_mutex_unlock(&n->lock);
        if (orphan && !tmpfile)
                return -ENOENT;
        *ret_orphan = orphan;
        return 0;
}

void fs_link(struct fs *fs, const struct fs_caller *c, uint64_t ino, uint64_t parent, const char *name, struct fs_reply *r) {
        bool orphan = false;
        errint_t error = fs_is_virtual(ino) ? -EPERM : new_name_check(fs, parent, name);
        CLEANUP(node_unrefp) struct node *n = error == 0 ? node_get(fs, ino) : NULL;
        if (error == 0)
                error = link_check(fs, n, ino, &orphan);
        if (error == 0)
                error = node_flush(n);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        struct flight *f = flight_new(fs, n, c, orphan ? OP_ADOPT : OP_LINK, r);
        f->finish = finish_entry;
        if (orphan) {
                f->op.adopt.ino = ino;
                f->op.adopt.parent = parent;
                f->op.adopt.name = flight_own_name(f, name);
                f->prepare = adopt_prepare;
                f->applied_fn = adopted;
        } else {
                f->op.link.ino = ino;
                f->op.link.parent = parent;
                f->op.link.name = flight_own_name(f, name);
        }
        flight_go(f);
}

/* --- names that go or move */

static errint_t old_name_check(struct fs *fs, uint64_t parent, const char *name) {
        size_t len = strlen(name);
        if (fs_is_virtual(parent) || virtual_reserved(parent, name))
                return -EPERM;
        if (len > LIMIT_NAME)
                return -ENAMETOOLONG;
        return op_name_valid(name, len) ? fs_writable(fs) : -EINVAL;
}

/* The node of the inode that has this name now, if it is in use. */
static struct node *node_named(struct fs *fs, uint64_t parent, const char *name, struct attr *ret_attr) {
        uint64_t ino = 0;
        const struct state *s = shared_state_read(fs->config.state);
        errint_t r = tree_lookup(s->tree, parent, name, strlen(name), &ino);
        if (r == 0)
                r = tree_getattr(s->tree, ino, ret_attr);
        shared_state_done_read(fs->config.state);
        return r == 0 ? node_find(fs, ino) : NULL;
}

/* What is gathered for a file that loses its last name need not be sent: nobody else would see it. With other names it is flushed,
 * so that the ctime that the unlink gives it comes last. */
static void go_away(struct fs *fs, const struct fs_caller *c, enum op_kind kind, uint64_t parent, const char *name, struct fs_reply *r) {
        struct attr a;
        errint_t error = old_name_check(fs, parent, name);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        CLEANUP(node_unrefp) struct node *n = node_named(fs, parent, name, &a);
        if (n && a.nlink > 1)
                (void)node_flush(n); /* an error stays with the inode */
        struct flight *f = flight_new(fs, n, c, kind, r);
        f->op.unlink.parent = parent;
        f->op.unlink.name = flight_own_name(f, name);
        f->finish = finish_plain;
        flight_go(f);
}

void fs_unlink(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r) {
        go_away(fs, c, OP_UNLINK, parent, name, r);
}

void fs_rmdir(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, struct fs_reply *r) {
        go_away(fs, c, OP_RMDIR, parent, name, r);
}

/* The content of what moves is sent first, in order: nobody sees the new name with the old bytes. What it replaces goes, and an
 * exchange does not care. */
void fs_rename(struct fs *fs, const struct fs_caller *c, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name,
               unsigned flags, struct fs_reply *r) {
        struct attr a;
        errint_t error = old_name_check(fs, parent, name);
        if (error == 0)
                error = old_name_check(fs, new_parent, new_name);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        CLEANUP(node_unrefp) struct node *n = node_named(fs, parent, name, &a);
        CLEANUP(node_unrefp) struct node *other = node_named(fs, new_parent, new_name, &a);
        if (n)
                (void)node_flush(n); /* errors stay with the inode */
        if (other && a.nlink > 1)
                (void)node_flush(other);
        struct flight *f = flight_new(fs, n, c, OP_RENAME, r);
        f->op.rename.parent = parent;
        f->op.rename.name = flight_own_name(f, name);
        f->op.rename.new_parent = new_parent;
        f->op.rename.new_name = flight_own_name(f, new_name);
        f->op.rename.flags = flags;
        f->finish = finish_plain;
        flight_go(f);
}

void fs_readlink(struct fs *fs, const struct fs_caller *c, uint64_t ino, struct fs_reply *r) {
        CLEANUP(blob_unrefp) struct blob *target = NULL;
        struct attr a;
        (void)c;
        if (fs_is_virtual(ino)) {
                r->ops->err(r, -EINVAL);
                return;
        }
        const struct state *s = shared_state_read(fs->config.state);
        errint_t error = tree_getattr(s->tree, ino, &a);
        if (error == 0)
                error = S_ISLNK(a.mode) ? tree_content(s->tree, ino, &target) : -EINVAL;
        shared_state_done_read(fs->config.state);
        if (error < 0)
                r->ops->err(r, error == -ENOENT ? -ESTALE : error);
        else
                (void)reply_blob(target, 0, LIMIT_PATH, r);
}
