/* reftree_ops.c: what each operation means, told in paths. */
#include "reftree_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* --- small rules --- */

static int name_rule(const struct op_name *n) {
        if (n->len < 1)
                return -EINVAL;
        if (n->len > 255)
                return -ENAMETOOLONG;
        for (size_t i = 0; i < n->len; i++)
                if (n->text[i] == '/' || n->text[i] == 0)
                        return -EINVAL;
        if ((n->len == 1 && n->text[0] == '.') || (n->len == 2 && n->text[0] == '.' && n->text[1] == '.'))
                return -EINVAL;
        return 0;
}

static int xattr_name_rule(const struct op_name *n) {
        if (n->len < 1)
                return -EINVAL;
        for (size_t i = 0; i < n->len; i++)
                if (n->text[i] == 0)
                        return -EINVAL;
        return n->len > 255 ? -ENAMETOOLONG : 0;
}

static int dir_rule(const struct reftree *r, uint64_t ino, const char **ret_path, struct ref_file **ret) {
        struct ref_file *f = reftree_file(r, ino);
        if (!f)
                return -ENOENT;
        if (!S_ISDIR(f->mode))
                return -ENOTDIR;
        *ret = f;
        *ret_path = ref_path(r, f);
        return 0;
}

/* What would be in use, compared with the limit; an operation that needs nothing more is always let through. */
static int space_rule(const struct reftree *r, int64_t more_bytes, size_t more_inodes) {
        if (more_bytes > 0 && reftree_bytes(r) + (uint64_t)more_bytes > r->settings.tree_size_max)
                return -ENOSPC;
        if (more_inodes > 0 && ref_inodes(r) + more_inodes > r->settings.inodes_max)
                return -ENOSPC;
        return 0;
}

static void stamp(struct ref_file *dir, struct timestamp t) {
        dir->mtime = dir->ctime = t;
}

/* --- xattrs --- */

static struct ref_xattr **xattr_place(struct ref_file *f, const char *name) {
        struct ref_xattr **p = &f->xattrs;
        while (*p && strcmp((*p)->name, name) < 0)
                p = &(*p)->next;
        return p;
}

static struct ref_xattr *xattr_at(struct ref_file *f, const char *name) {
        struct ref_xattr *x = *xattr_place(f, name);
        return x && strcmp(x->name, name) == 0 ? x : NULL;
}

static void xattr_remove(struct ref_file *f, const char *name) {
        struct ref_xattr **p = xattr_place(f, name), *gone = *p;
        *p = gone->next;
        gone->next = NULL;
        ref_xattrs_free(gone);
}

static void xattr_set(struct ref_file *f, const char *name, const uint8_t *value, size_t len) {
        if (xattr_at(f, name))
                xattr_remove(f, name);
        struct ref_xattr **p = xattr_place(f, name), *x = NEW(struct ref_xattr);
        x->name = xstrdup(name);
        x->value = xmalloc(len + 1);
        x->len = len;
        if (len > 0)
                memcpy(x->value, value, len);
        x->next = *p;
        *p = x;
}

static char *text_of(const struct op_name *n) {
        char *s = xmalloc(n->len + 1);
        memcpy(s, n->text, n->len);
        s[n->len] = '\0';
        return s;
}

/* --- names --- */

static void new_file(struct reftree *r, struct ref_file *dir, const char *path, const struct op_name *name, struct ref_file *f,
                     struct timestamp now) {
        (void)ref_name_add(r, path, name, f, dir->next_cookie++);
        stamp(dir, now);
}

static int ref_create(struct reftree *r, const struct op *op, struct op_result *res) {
        const char *path = NULL;
        struct ref_file *dir = NULL;
        int e = dir_rule(r, op->create.parent, &path, &dir);
        if (e)
                return e;
        cleanup_free char *full = ref_join(path, &op->create.name);
        struct ref_name *there = reftree_name(r, full);
        if (there && op->create.or_open) {
                res->ino = there->file->ino;
                return 0;
        }
        if (there)
                return -EEXIST;
        struct ref_file probe = {0};
        if (op->create.acl_access.len)
                xattr_set(&probe, "system.posix_acl_access", op->create.acl_access.data, op->create.acl_access.len);
        if (op->create.acl_default.len)
                xattr_set(&probe, "system.posix_acl_default", op->create.acl_default.data, op->create.acl_default.len);
        size_t xattr_bytes = ref_xattrs_bytes(probe.xattrs);
        e = xattr_bytes > r->settings.xattr_inode_max ? -ENOSPC : 0;
        if (!e)
                e = space_rule(r, (int64_t)(256 + op->create.name.len + op->create.target.len + xattr_bytes), 1);
        if (e) {
                ref_xattrs_free(probe.xattrs);
                return e;
        }
        struct ref_file *f = ref_file_add(r, r->next_ino++);
        f->mode = op->create.mode;
        f->uid = op->create.uid;
        f->gid = op->create.gid;
        f->rdev = op->create.rdev;
        f->atime = f->mtime = f->ctime = op->time;
        f->next_cookie = S_ISDIR(f->mode) ? 3 : 0;
        f->xattrs = probe.xattrs;
        f->size = op->create.target.len;
        f->bytes = xmalloc(f->size + 1);
        if (f->size > 0)
                memcpy(f->bytes, op->create.target.text, f->size);
        f->allocated = ref_allocated(f->bytes, f->size);
        new_file(r, dir, path, &op->create.name, f, op->time);
        res->ino = f->ino;
        return 0;
}

static int ref_link(struct reftree *r, const struct op *op, struct op_result *res) {
        const char *path = NULL;
        struct ref_file *dir = NULL, *f = reftree_file(r, op->link.ino);
        if (!f)
                return -ENOENT;
        int e = dir_rule(r, op->link.parent, &path, &dir);
        if (e)
                return e;
        cleanup_free char *full = ref_join(path, &op->link.name);
        if (reftree_name(r, full))
                return -EEXIST;
        if (S_ISDIR(f->mode))
                return -EPERM;
        if (reftree_nlink(r, f) >= 65000)
                return -EMLINK;
        e = space_rule(r, (int64_t)op->link.name.len, 0);
        if (e)
                return e;
        new_file(r, dir, path, &op->link.name, f, op->time);
        f->ctime = op->time;
        res->ino = f->ino;
        return 0;
}

static int ref_remove(struct reftree *r, const struct op *op, struct op_result *res) {
        bool rmdir = op->kind == OP_RMDIR;
        const struct op_name *name = rmdir ? &op->rmdir.name : &op->unlink.name;
        const char *path = NULL;
        struct ref_file *dir = NULL;
        int e = dir_rule(r, rmdir ? op->rmdir.parent : op->unlink.parent, &path, &dir);
        if (e)
                return e;
        cleanup_free char *full = ref_join(path, name);
        struct ref_name *n = reftree_name(r, full);
        if (!n)
                return -ENOENT;
        if (rmdir && !S_ISDIR(n->file->mode))
                return -ENOTDIR;
        if (!rmdir && S_ISDIR(n->file->mode))
                return -EISDIR;
        if (rmdir && ref_children(r, full, false) > 0)
                return -ENOTEMPTY;
        struct ref_file *f = n->file;
        res->ino = f->ino;
        ref_name_remove(r, n);
        f->ctime = op->time;
        stamp(dir, op->time);
        ref_file_collect(r, f);
        return 0;
}

/* Everything whose path begins with `from` moves to `to`. */
static void move_paths(struct reftree *r, const char *from, const char *to) {
        size_t n = strlen(from), m = strlen(to);
        for (struct ref_name *i = r->names; i; i = i->next) {
                if (!ref_is_under(i->path, from))
                        continue;
                size_t rest = strlen(i->path) - n;
                char *path = xmalloc(m + rest + 1);
                memcpy(path, to, m);
                memcpy(path + m, i->path + n, rest + 1);
                free(i->path);
                i->path = path;
        }
}

static void swap_names(struct reftree *r, struct ref_name *a, struct ref_name *b) {
        cleanup_free char *x = xstrdup(a->path), *y = xstrdup(b->path);
        uint64_t cookie = a->cookie;
        a->cookie = b->cookie;
        b->cookie = cookie;
        move_paths(r, x, "//"); /* no path looks like that */
        move_paths(r, y, x);
        move_paths(r, "//", y);
}

static int rename_rules(const struct reftree *r, const struct op *op, const struct ref_name *s, const struct ref_name *t,
                        const char *from_dir, const char *to_dir) {
        unsigned flags = op->rename.flags;
        if (!s)
                return -ENOENT;
        if (t && flags & RENAME_NOREPLACE)
                return -EEXIST;
        if (!t && flags == RENAME_EXCHANGE)
                return -ENOENT;
        if (S_ISDIR(s->file->mode) && strcmp(from_dir, to_dir) != 0 && ref_is_under(to_dir, s->path))
                return -EINVAL;
        if (t && S_ISDIR(t->file->mode) && strcmp(from_dir, to_dir) != 0 && ref_is_under(from_dir, t->path))
                return flags == RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
        if ((t && t->file == s->file) || flags == RENAME_EXCHANGE)
                return 0;
        int64_t more = (t ? 0 : (int64_t)op->rename.new_name.len) + (flags & RENAME_WHITEOUT ? 256 : -(int64_t)op->rename.name.len);
        if (t && S_ISDIR(s->file->mode) && !S_ISDIR(t->file->mode))
                return -ENOTDIR;
        if (t && !S_ISDIR(s->file->mode) && S_ISDIR(t->file->mode))
                return -EISDIR;
        if (t && S_ISDIR(t->file->mode) && ref_children(r, t->path, false) > 0)
                return -ENOTEMPTY;
        return space_rule(r, more, flags & RENAME_WHITEOUT ? 1 : 0);
}

static void whiteout(struct reftree *r, const struct op *op, const char *dir_path, struct ref_file *dir) {
        struct ref_file *f = ref_file_add(r, r->next_ino++);
        f->mode = S_IFCHR;
        f->uid = op->caller.uid;
        f->gid = dir->mode & 02000 ? dir->gid : op->caller.gid;
        f->atime = f->mtime = f->ctime = op->time;
        f->bytes = xmalloc(1);
        new_file(r, dir, dir_path, &op->rename.name, f, op->time);
}

static int ref_rename(struct reftree *r, const struct op *op, struct op_result *res) {
        const char *from_dir = NULL, *to_dir = NULL;
        struct ref_file *from = NULL, *to = NULL;
        if (op->rename.flags > 7 || (op->rename.flags & RENAME_EXCHANGE && op->rename.flags != RENAME_EXCHANGE))
                return -EINVAL;
        int e = dir_rule(r, op->rename.parent, &from_dir, &from);
        if (!e)
                e = dir_rule(r, op->rename.new_parent, &to_dir, &to);
        if (e)
                return e;
        cleanup_free char *old_path = ref_join(from_dir, &op->rename.name), *new_path = ref_join(to_dir, &op->rename.new_name);
        struct ref_name *s = reftree_name(r, old_path), *t = reftree_name(r, new_path);
        e = rename_rules(r, op, s, t, from_dir, to_dir);
        if (e)
                return e;
        res->ino = s->file->ino;
        if (t && t->file == s->file)
                return 0;
        s->file->ctime = op->time;
        stamp(from, op->time);
        stamp(to, op->time);
        if (op->rename.flags == RENAME_EXCHANGE) {
                t->file->ctime = op->time;
                swap_names(r, s, t);
                return 0;
        }
        if (t) { /* the name stays where it is in the directory */
                struct ref_file *replaced = t->file;
                s->cookie = t->cookie;
                replaced->ctime = op->time;
                ref_name_remove(r, t);
                ref_file_collect(r, replaced);
        } else {
                s->cookie = to->next_cookie++;
        }
        move_paths(r, old_path, new_path);
        if (op->rename.flags & RENAME_WHITEOUT)
                whiteout(r, op, from_dir, from);
        return 0;
}

/* --- attributes --- */

static void kill_suid(struct ref_file *f) {
        if (S_ISDIR(f->mode))
                return;
        if ((f->mode & 010) != 0)
                f->mode &= ~02000u;
        f->mode &= ~04000u;
}

/* acl(5): owner, mask (or the group, without a mask) and others follow the mode. */
static void chmod_acl(struct ref_file *f) {
        struct ref_xattr *x = xattr_at(f, "system.posix_acl_access");
        if (!x || x->len < 4 || (x->len - 4) % 8 != 0 || memcmp(x->value, "\2\0\0\0", 4) != 0)
                return;
        bool mask = false;
        for (uint8_t *p = x->value + 4; p < x->value + x->len; p += 8)
                if (p[0] == 0x10 && p[1] == 0)
                        mask = true;
        for (uint8_t *p = x->value + 4; p < x->value + x->len; p += 8) {
                int shift = p[1] != 0 ? -1 : p[0] == 1 ? 6 : p[0] == 0x20 ? 0 : p[0] == (mask ? 0x10 : 4) ? 3 : -1;
                if (shift < 0)
                        continue;
                p[2] = (uint8_t)(f->mode >> shift & 7);
                p[3] = 0;
        }
}

static int ref_setattr(struct reftree *r, const struct op *op, struct op_result *res) {
        struct ref_file *f = reftree_file(r, op->setattr.ino);
        if (!f)
                return -ENOENT;
        uint32_t mask = op->setattr.mask, was = f->mode;
        if (mask & SETATTR_MODE) {
                f->mode = (f->mode & ~07777u) | (op->setattr.mode & 07777);
                chmod_acl(f);
        }
        if (mask & SETATTR_UID)
                f->uid = op->setattr.uid;
        if (mask & SETATTR_GID)
                f->gid = op->setattr.gid;
        if (mask & SETATTR_ATIME)
                f->atime = op->setattr.atime;
        if (mask & SETATTR_MTIME)
                f->mtime = op->setattr.mtime;
        if (mask & SETATTR_KILL_SUID)
                kill_suid(f);
        if (mask & (SETATTR_MODE | SETATTR_UID | SETATTR_GID | SETATTR_ATIME | SETATTR_MTIME) || f->mode != was)
                f->ctime = op->time;
        res->ino = f->ino;
        return 0;
}

static int ref_setxattr(struct reftree *r, const struct op *op, struct op_result *res) {
        struct ref_file *f = reftree_file(r, op->setxattr.ino);
        if (!f)
                return -ENOENT;
        if (op->setxattr.flags > 3)
                return -EINVAL;
        cleanup_free char *name = text_of(&op->setxattr.name);
        struct ref_xattr *there = xattr_at(f, name);
        if (there && op->setxattr.flags & XATTR_CREATE)
                return -EEXIST;
        if (!there && op->setxattr.flags & XATTR_REPLACE)
                return -ENODATA;
        struct ref_file probe = {0};
        xattr_set(&probe, name, op->setxattr.value, op->setxattr.len);
        int64_t more = (int64_t)ref_xattrs_bytes(probe.xattrs);
        ref_xattrs_free(probe.xattrs);
        if (there) {
                struct ref_xattr alone = *there;
                alone.next = NULL;
                more -= (int64_t)ref_xattrs_bytes(&alone);
        }
        if (more > 0 && ref_xattrs_bytes(f->xattrs) + (uint64_t)more > r->settings.xattr_inode_max)
                return -ENOSPC;
        int e = space_rule(r, more, 0);
        if (e)
                return e;
        unsigned mode = op->setxattr.set_mode ? (f->mode & ~0777u) | (op->setxattr.mode & 0777) : f->mode;
        if (op->setxattr.kill_sgid)
                mode &= ~02000u;
        bool same =
                there && there->len == op->setxattr.len && (there->len == 0 || memcmp(there->value, op->setxattr.value, there->len) == 0);
        res->ino = f->ino;
        if (same && mode == f->mode)
                return 0;
        xattr_set(f, name, op->setxattr.value, op->setxattr.len);
        f->mode = mode;
        f->ctime = op->time;
        return 0;
}

static int ref_removexattr(struct reftree *r, const struct op *op, struct op_result *res) {
        struct ref_file *f = reftree_file(r, op->removexattr.ino);
        cleanup_free char *name = text_of(&op->removexattr.name);
        if (!f)
                return -ENOENT;
        if (!xattr_at(f, name))
                return -ENODATA;
        xattr_remove(f, name);
        f->ctime = op->time;
        res->ino = f->ino;
        return 0;
}

/* --- content --- */

static uint8_t *payload(const struct op *op) {
        uint8_t *raw = xmalloc(op->payload.raw_len + 1);
        if (op->payload.form == FORM_ZSTD) {
                if (decompress_zstd(op->payload.data, op->payload.len, raw, op->payload.raw_len) < 0)
                        abort();
        } else if (op->payload.len > 0) {
                memcpy(raw, op->payload.data, op->payload.len);
        }
        return raw;
}

static int ref_write(struct reftree *r, const struct op *op, struct op_result *res) {
        struct ref_file *f = reftree_file(r, op->write.ino);
        if (!f)
                return -ENOENT;
        if (!S_ISREG(f->mode))
                return S_ISDIR(f->mode) ? -EISDIR : -EINVAL;
        bool append = (op->write.flags & WRITE_APPEND) != 0;
        uint64_t base = append ? f->size : 0, kept = op->write.keep < f->size ? op->write.keep : f->size, end = kept, reach = 0;
        for (size_t i = 0; i < op->write.n_extents; i++)
                reach = base + op->write.extents[i].offset + op->write.extents[i].length;
        if (reach > end)
                end = reach;
        uint64_t size = op->write.size == BLOB_KEEP_ALL ? end : op->write.size;
        uint64_t most = size > reach ? size : reach;
        if (most > f->size && most > r->settings.file_size_max)
                return -EFBIG;
        cleanup_free uint8_t *raw = payload(op);
        uint64_t room = most > kept ? most : kept;
        cleanup_free uint8_t *bytes = xcalloc(room + 1, 1);
        if (kept > 0)
                memcpy(bytes, f->bytes, kept);
        const uint8_t *p = raw;
        for (size_t i = 0; i < op->write.n_extents; i++) {
                const struct extent *x = &op->write.extents[i];
                if (x->kind == EXTENT_DATA) {
                        memcpy(bytes + base + x->offset, p, x->length);
                        p += x->length;
                } else {
                        memset(bytes + base + x->offset, 0, x->length);
                }
        }
        uint64_t allocated = ref_allocated(bytes, size);
        int e = space_rule(r, (int64_t)allocated - (int64_t)f->allocated, 0);
        if (e)
                return e;
        if (append)
                res->offset = f->size;
        free(f->bytes);
        f->bytes = steal_pointer(&bytes);
        f->size = size;
        f->allocated = allocated;
        if (op->write.flags & WRITE_KILL_SUID)
                kill_suid(f);
        if (!(op->write.flags & WRITE_NO_MTIME))
                f->mtime = f->ctime = op->time;
        res->ino = f->ino;
        return 0;
}

/* Attributes one after the other: length, name, length, value; sorted. False: they are not. */
static bool parse_xattrs(struct ref_file *f, const uint8_t *p, size_t n) {
        struct dec d;
        cleanup_free char *before = NULL;
        dec_init(&d, p, n);
        while (dec_left(&d) > 0) {
                size_t name_len = 0, len = 0;
                const char *name = (const char *)dec_bytes(&d, 255, &name_len);
                const uint8_t *value = dec_bytes(&d, 65536, &len);
                if (d.err || name_len == 0 || memchr(name, 0, name_len))
                        return false;
                cleanup_free char *text = text_of(&(struct op_name){name, name_len});
                if (before && strcmp(before, text) >= 0)
                        return false;
                xattr_set(f, text, value, len);
                free(before);
                before = steal_pointer(&text);
        }
        return d.err == 0;
}

static int ref_adopt(struct reftree *r, const struct op *op, struct op_result *res) {
        const char *path = NULL;
        struct ref_file *dir = NULL, probe = {0};
        int e = dir_rule(r, op->adopt.parent, &path, &dir);
        if (e)
                return e;
        cleanup_free char *full = ref_join(path, &op->adopt.name);
        cleanup_free uint8_t *raw = payload(op);
        uint64_t alloc = ref_allocated(raw, op->payload.raw_len);
        if (op->adopt.ino < 2 || op->adopt.ino >= r->next_ino || !parse_xattrs(&probe, op->adopt.xattrs, op->adopt.xattrs_len))
                e = -EINVAL;
        else if (reftree_file(r, op->adopt.ino) || reftree_name(r, full))
                e = -EEXIST;
        else if (op->payload.raw_len > r->settings.file_size_max)
                e = -EFBIG;
        else if (op->adopt.xattrs_len > r->settings.xattr_inode_max)
                e = -ENOSPC;
        else
                e = space_rule(r, (int64_t)(256 + op->adopt.name.len + alloc + op->adopt.xattrs_len), 1);
        if (e) {
                ref_xattrs_free(probe.xattrs);
                return e;
        }
        struct ref_file *f = ref_file_add(r, op->adopt.ino);
        f->mode = op->adopt.attr.mode;
        f->uid = op->adopt.attr.uid;
        f->gid = op->adopt.attr.gid;
        f->atime = op->adopt.attr.atime;
        f->mtime = op->adopt.attr.mtime;
        f->ctime = op->time;
        f->xattrs = probe.xattrs;
        f->bytes = steal_pointer(&raw);
        f->size = op->payload.raw_len;
        f->allocated = alloc;
        new_file(r, dir, path, &op->adopt.name, f, op->time);
        res->ino = f->ino;
        return 0;
}

/* --- by kind --- */

/* Rules that need no tree. */
static int op_rule(const struct op *op) {
        int e = 0;
        switch (op->kind) {
        case OP_CREATE:
                e = name_rule(&op->create.name);
                if (!e && (op->create.mode & S_IFMT) == S_IFLNK)
                        e = op->create.target.len == 0 ? -EINVAL : op->create.target.len > 4095 ? -ENAMETOOLONG : 0;
                return e;
        case OP_LINK:
                return name_rule(&op->link.name);
        case OP_UNLINK:
                return name_rule(&op->unlink.name);
        case OP_RMDIR:
                return name_rule(&op->rmdir.name);
        case OP_RENAME:
                e = name_rule(&op->rename.name);
                return e ? e : name_rule(&op->rename.new_name);
        case OP_SETXATTR:
                e = xattr_name_rule(&op->setxattr.name);
                return !e && op->setxattr.len > 65536 ? -E2BIG : e;
        case OP_REMOVEXATTR:
                return xattr_name_rule(&op->removexattr.name);
        case OP_ADOPT:
                return !S_ISREG(op->adopt.attr.mode) ? -EINVAL : name_rule(&op->adopt.name);
        case OP_SETTING:
                return name_rule(&op->setting.name);
        default:
                return 0;
        }
}

static int ref_kind(struct reftree *r, const struct op *op, struct op_result *res) {
        switch (op->kind) {
        case OP_NOTHING:
                return 0;
        case OP_CREATE:
                return ref_create(r, op, res);
        case OP_LINK:
                return ref_link(r, op, res);
        case OP_UNLINK:
        case OP_RMDIR:
                return ref_remove(r, op, res);
        case OP_RENAME:
                return ref_rename(r, op, res);
        case OP_SETATTR:
                return ref_setattr(r, op, res);
        case OP_WRITE:
                return ref_write(r, op, res);
        case OP_SETXATTR:
                return ref_setxattr(r, op, res);
        case OP_REMOVEXATTR:
                return ref_removexattr(r, op, res);
        case OP_RESERVE_INO:
                res->ino = r->next_ino++;
                return 0;
        case OP_ADOPT:
                return ref_adopt(r, op, res);
        case OP_SETTING:
                return settings_set(&r->settings, op->setting.name.text, op->setting.name.len, op->setting.text, op->setting.len);
        case OP_KIND_COUNT:
        default:
                return -EINVAL;
        }
}

void reftree_apply(struct reftree *r, const struct op *op, struct op_result *ret) {
        struct op_result res = {0};
        int e = op_rule(op);
        if (!e)
                e = ref_kind(r, op, &res);
        if (e)
                res = (struct op_result){.error = e};
        *ret = res;
}
