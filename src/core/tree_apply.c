/* tree_apply.c: the one way to change a tree. Each operation first checks everything, then allocates what can fail, and only then
 * changes: an operation that is refused, or could not be decided, leaves no trace.
 *
 * Errors and times are those that Linux's VFS and ext4 give, checks in their order. */
#include "op_internal.h"
#include "tree_internal.h"

#include "base/compress.h"

/* --- what the kinds share --- */

errint_t apply_fatal(struct apply *a, errint_t error) {
        a->fatal = error;
        return error;
}

struct change *apply_change(struct apply *a, enum change_kind kind, const struct inode *in) {
        if (!a->changes) /* an orphan's changes are nobody's business */
                return NULL;
        struct change *c = change_set_add(a->changes, kind, in->ino);
        c->is_dir = inode_is_dir(in);
        c->size = inode_has_content(in) ? blob_size(in->content) : 0;
        return c;
}

void apply_change_entry(struct apply *a, enum change_kind kind, const struct inode *parent, const struct op_name *name,
                        const struct inode *child) {
        struct change *c = apply_change(a, kind, child);
        if (!c)
                return;
        c->parent = parent->ino;
        change_set_name(a->changes, c, name->text, name->len);
}

struct touched apply_touch(struct inode *in) {
        return (struct touched){in, digest_inode(in)};
}

void apply_settle(struct apply *a, const struct touched *was) {
        struct inode *in = was->inode;
        struct hash128 now = digest_inode(in);
        if (hash128_equal(was->was, now))
                return;
        if (inode_is_orphan(in))
                return;
        a->t->digest = hash128_add(hash128_sub(a->t->digest, was->was), now);
        in->change_seq = a->seq;
        (void)apply_change(a, CHANGE_ATTR, in);
}

errint_t apply_room(const struct apply *a, uint64_t bytes_more, uint64_t inodes_more) {
        const struct settings *s = &a->t->settings;
        if (bytes_more > 0 && (a->t->bytes > s->tree_size_max || bytes_more > s->tree_size_max - a->t->bytes))
                return -ENOSPC;
        if (inodes_more > 0 && a->t->order.live + inodes_more > s->inodes_max)
                return -ENOSPC;
        return 0;
}

errint_t apply_dir(const struct apply *a, uint64_t ino, struct inode **ret) {
        struct inode *in = inode_find(a->t, ino);
        if (!in)
                return -ENOENT;
        if (!inode_is_dir(in))
                return -ENOTDIR;
        *ret = in;
        return 0;
}

/* The payload's bytes as they were before compression. */
errint_t apply_payload(struct apply *a, const uint8_t **ret, void **ret_scratch) {
        const struct op_payload *p = &a->op->payload;
        if (!p->data && p->len > 0)
                return apply_fatal(a, -EBADMSG);
        if (p->form == FORM_RAW) {
                *ret = p->data;
                return 0;
        }
        cleanup_free void *raw = try_malloc((size_t)p->raw_len);
        if (!raw)
                return apply_fatal(a, -ENOMEM);
        errint_t r = decompress_zstd(p->data, p->len, raw, (size_t)p->raw_len);
        if (r < 0)
                return apply_fatal(a, r);
        *ret = *ret_scratch = steal_pointer(&raw);
        return 0;
}

void apply_drop_name(struct apply *a, struct inode *child) {
        if (child->names && !inode_is_dir(child)) {
                struct touched was = apply_touch(child);
                child->nlink--;
                inode_set_ctime(child, a->op->time);
                apply_settle(a, &was);
                return;
        }
        (void)apply_change(a, CHANGE_INODE_GONE, child);
        struct touched was = apply_touch(child); /* seen only if it lives on as an orphan */
        inode_set_ctime(child, a->op->time);
        child->change_seq = a->seq;
        a->t->digest = hash128_add(hash128_sub(a->t->digest, was.was), digest_inode(child));
        inode_forget(a->t, child);
}

static void dir_changed(struct inode *dir, struct timestamp time) {
        inode_set_mtime(dir, time);
        inode_set_ctime(dir, time);
}

/* --- new names --- */

/* A new inode comes under a name: last step of CREATE and ADOPT. */
static void new_inode_named(struct apply *a, struct inode *parent, const struct op_name *name, struct inode *in) {
        in->change_seq = in->content_seq = a->seq;
        inode_add(a->t, in);
        (void)apply_change(a, CHANGE_INODE_NEW, in);
        struct touched was = apply_touch(parent);
        (void)entry_add(a->t, parent, name->text, name->len, in);
        apply_change_entry(a, CHANGE_ENTRY_ADD, parent, name, in);
        if (inode_is_dir(in))
                parent->nlink++;
        dir_changed(parent, a->op->time);
        apply_settle(a, &was);
        a->result.ino = in->ino;
}

static void take_next_ino(struct apply *a) {
        a->t->digest = hash128_sub(a->t->digest, digest_next_ino(a->t->next_ino));
        a->t->next_ino++;
        a->t->digest = hash128_add(a->t->digest, digest_next_ino(a->t->next_ino));
}

/* What RENAME_WHITEOUT leaves in the old place: the device 0,0 of whoever renamed. */
void apply_whiteout(struct apply *a, struct inode *parent, const struct op_name *name) {
        const struct op *op = a->op;
        uint64_t moved = a->result.ino;
        struct inode *in = inode_new(a->t->next_ino, S_IFCHR);
        in->uid = op->caller.uid;
        in->gid = parent->mode & S_ISGID ? parent->gid : op->caller.gid;
        in->nlink = 1;
        inode_set_atime(in, op->time);
        inode_set_mtime(in, op->time);
        inode_set_ctime(in, op->time);
        take_next_ino(a);
        new_inode_named(a, parent, name, in);
        a->result.ino = moved;
}

static errint_t create_xattrs(struct apply *a, struct xattrs **ret) {
        const struct op *op = a->op;
        cleanup_free struct xattrs *access = NULL, *both = NULL;
        errint_t r = 0;
        if (op->create.acl_access.len > 0)
                r = xattrs_put(NULL, XATTR_ACL_ACCESS, strlen(XATTR_ACL_ACCESS), op->create.acl_access.data, op->create.acl_access.len,
                               &access);
        if (r == 0 && op->create.acl_default.len > 0)
                r = xattrs_put(access, XATTR_ACL_DEFAULT, strlen(XATTR_ACL_DEFAULT), op->create.acl_default.data,
                               op->create.acl_default.len, &both);
        if (r < 0)
                return apply_fatal(a, r);
        *ret = both ? steal_pointer(&both) : steal_pointer(&access);
        return xattrs_len(*ret) > a->t->settings.xattr_inode_max ? -ENOSPC : 0;
}

static errint_t apply_create(struct apply *a) {
        const struct op *op = a->op;
        struct inode *parent = NULL;
        errint_t r = apply_dir(a, op->create.parent, &parent);
        if (r < 0)
                return r;
        const struct entry *there = entry_find(a->t, parent->ino, op->create.name.text, op->create.name.len);
        if (there) {
                a->result.ino = there->child->ino;
                return op->create.or_open ? 0 : -EEXIST;
        }
        cleanup_free struct xattrs *xattrs = NULL;
        CLEANUP(blob_unrefp) struct blob *target = NULL;
        r = create_xattrs(a, &xattrs);
        if (r < 0)
                return r;
        r = blob_from_bytes(op->create.target.text, op->create.target.len, &target);
        if (r < 0)
                return apply_fatal(a, r);
        r = apply_room(a, INODE_BYTES + op->create.name.len + blob_allocated(target) + xattrs_len(xattrs), 1);
        if (r < 0)
                return r;
        if (a->t->next_ino >= INO_RESERVED)
                return -ENOSPC;
        struct inode *in = inode_new(a->t->next_ino, op->create.mode);
        in->uid = op->create.uid;
        in->gid = op->create.gid;
        in->rdev = op->create.rdev;
        in->nlink = inode_is_dir(in) ? 2 : 1;
        inode_set_atime(in, op->time);
        inode_set_mtime(in, op->time);
        inode_set_ctime(in, op->time);
        if (target)
                in->content = steal_pointer(&target);
        in->xattrs = steal_pointer(&xattrs);
        take_next_ino(a);
        new_inode_named(a, parent, &op->create.name, in);
        return 0;
}

static errint_t apply_link(struct apply *a) {
        const struct op *op = a->op;
        struct inode *in = inode_find(a->t, op->link.ino), *parent = NULL;
        if (!in)
                return -ENOENT;
        errint_t r = apply_dir(a, op->link.parent, &parent);
        if (r < 0)
                return r;
        if (entry_find(a->t, parent->ino, op->link.name.text, op->link.name.len))
                return -EEXIST;
        if (inode_is_dir(in))
                return -EPERM;
        if (in->nlink >= LIMIT_LINKS)
                return -EMLINK;
        r = apply_room(a, op->link.name.len, 0);
        if (r < 0)
                return r;
        struct touched was_parent = apply_touch(parent), was = apply_touch(in);
        (void)entry_add(a->t, parent, op->link.name.text, op->link.name.len, in);
        apply_change_entry(a, CHANGE_ENTRY_ADD, parent, &op->link.name, in);
        in->nlink++;
        inode_set_ctime(in, op->time);
        dir_changed(parent, op->time);
        apply_settle(a, &was);
        apply_settle(a, &was_parent);
        a->result.ino = in->ino;
        return 0;
}

static errint_t adopt_check(const struct apply *a, const struct inode *parent) {
        const struct op *op = a->op;
        if (op->adopt.ino <= INO_ROOT || op->adopt.ino >= a->t->next_ino || !xattrs_valid(op->adopt.xattrs, op->adopt.xattrs_len))
                return -EINVAL;
        if (inode_find(a->t, op->adopt.ino) || entry_find(a->t, parent->ino, op->adopt.name.text, op->adopt.name.len))
                return -EEXIST;
        if (op->payload.raw_len > a->t->settings.file_size_max)
                return -EFBIG;
        return op->adopt.xattrs_len > a->t->settings.xattr_inode_max ? -ENOSPC : 0;
}

/* A file without a name (O_TMPFILE) gets one. On the node that made it, it is an orphan until now, perhaps with files open: pins go by
 * number. So the new inode takes the place of whatever is left locally under that number, of any kind. */
static errint_t apply_adopt(struct apply *a) {
        const struct op *op = a->op;
        const struct attr *attr = &op->adopt.attr;
        struct inode *parent = NULL;
        errint_t r = apply_dir(a, op->adopt.parent, &parent);
        if (r == 0)
                r = adopt_check(a, parent);
        if (r < 0)
                return r;
        const uint8_t *data = NULL;
        cleanup_free void *scratch = NULL;
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        cleanup_free struct xattrs *xattrs = NULL;
        r = apply_payload(a, &data, &scratch);
        if (r < 0)
                return r;
        r = blob_from_bytes(data, (size_t)op->payload.raw_len, &content);
        if (r == 0)
                r = xattrs_copy(op->adopt.xattrs, op->adopt.xattrs_len, &xattrs);
        if (r < 0)
                return apply_fatal(a, r);
        r = apply_room(a, INODE_BYTES + op->adopt.name.len + blob_allocated(content) + xattrs_len(xattrs), 1);
        if (r < 0)
                return r;
        orphan_drop(a->t, op->adopt.ino);
        struct inode *in = inode_new(op->adopt.ino, attr->mode);
        in->content = steal_pointer(&content);
        in->xattrs = steal_pointer(&xattrs);
        in->uid = attr->uid;
        in->gid = attr->gid;
        in->nlink = 1;
        inode_set_atime(in, attr->atime);
        inode_set_mtime(in, attr->mtime);
        inode_set_ctime(in, op->time);
        new_inode_named(a, parent, &op->adopt.name, in);
        return 0;
}

static errint_t apply_reserve_ino(struct apply *a) {
        if (a->t->next_ino >= INO_RESERVED)
                return -ENOSPC;
        a->result.ino = a->t->next_ino;
        take_next_ino(a);
        return 0;
}

/* --- names that go --- */

static errint_t apply_unlink(struct apply *a) {
        const struct op_name *name = &a->op->unlink.name;
        bool rmdir = a->op->kind == OP_RMDIR;
        struct inode *parent = NULL;
        errint_t r = apply_dir(a, a->op->unlink.parent, &parent);
        if (r < 0)
                return r;
        struct entry *e = entry_find(a->t, parent->ino, name->text, name->len);
        if (!e)
                return -ENOENT;
        struct inode *child = e->child;
        if (rmdir != inode_is_dir(child))
                return rmdir ? -ENOTDIR : -EISDIR;
        if (rmdir && child->dir->entries.live > 0)
                return -ENOTEMPTY;
        struct touched was = apply_touch(parent);
        a->result.ino = child->ino;
        apply_change_entry(a, CHANGE_ENTRY_DEL, parent, name, child);
        entry_remove(a->t, e);
        if (rmdir)
                parent->nlink--;
        dir_changed(parent, a->op->time);
        apply_drop_name(a, child);
        apply_settle(a, &was);
        return 0;
}

static errint_t apply_setting(struct apply *a) {
        const struct op *op = a->op;
        struct settings next = a->t->settings;
        errint_t r = settings_set(&next, op->setting.name.text, op->setting.name.len, op->setting.text, op->setting.len);
        if (r < 0)
                return r;
        const struct setting_info *info = settings_find(op->setting.name.text, op->setting.name.len);
        if (settings_get(&next, info) == settings_get(&a->t->settings, info))
                return 0;
        a->t->digest = hash128_sub(a->t->digest, digest_setting(&a->t->settings, info));
        a->t->settings = next;
        a->t->digest = hash128_add(a->t->digest, digest_setting(&a->t->settings, info));
        struct change *c = change_set_add(a->changes, CHANGE_SETTING, 0);
        change_set_name(a->changes, c, op->setting.name.text, op->setting.name.len);
        return 0;
}

/* --- by kind --- */

/* Kinds that change one inode and no name. */
static errint_t apply_to_inode(struct apply *a, uint64_t ino, bool orphan) {
        struct inode *in = orphan ? inode_find_any(a->t, ino) : inode_find(a->t, ino);
        if (!in || (orphan && !inode_is_orphan(in)))
                return -ENOENT;
        a->result.ino = ino;
        switch (a->op->kind) {
        case OP_SETATTR:
                return apply_setattr(a, in);
        case OP_WRITE:
                return apply_write(a, in);
        case OP_SETXATTR:
                return apply_setxattr(a, in);
        case OP_REMOVEXATTR:
                return apply_removexattr(a, in);
        default:
                return -EINVAL;
        }
}

static errint_t apply_kind(struct apply *a) {
        const struct op *op = a->op;
        switch (op->kind) {
        case OP_CREATE:
                return apply_create(a);
        case OP_LINK:
                return apply_link(a);
        case OP_UNLINK:
        case OP_RMDIR:
                return apply_unlink(a);
        case OP_RENAME:
                return apply_rename(a);
        case OP_SETATTR:
                return apply_to_inode(a, op->setattr.ino, false);
        case OP_WRITE:
                return apply_to_inode(a, op->write.ino, false);
        case OP_SETXATTR:
                return apply_to_inode(a, op->setxattr.ino, false);
        case OP_REMOVEXATTR:
                return apply_to_inode(a, op->removexattr.ino, false);
        case OP_RESERVE_INO:
                return apply_reserve_ino(a);
        case OP_ADOPT:
                return apply_adopt(a);
        case OP_SETTING:
                return apply_setting(a);
        case OP_NOTHING:
                return 0;
        case OP_KIND_COUNT:
        default:
                return -EINVAL;
        }
}

static errint_t apply_answer(struct apply *a, errint_t r, struct op_result *ret) {
        if (a->fatal)
                return a->fatal;
        a->result.error = r;
        if (r < 0)
                a->result.ino = a->result.offset = 0;
        *ret = a->result;
        return 0;
}

errint_t tree_apply(struct tree *t, const struct op *op, uint64_t seq, struct change_set *changes, struct op_result *ret) {
        struct apply a = {.t = t, .op = op, .seq = seq, .changes = changes};
        change_set_reset(changes);
        errint_t r = op_check(op);
        if (r == 0)
                r = apply_kind(&a);
        return apply_answer(&a, r, ret);
}

errint_t tree_apply_orphan(struct tree *t, const struct op *op, struct op_result *ret) {
        struct apply a = {.t = t, .op = op};
        errint_t r = op_check(op);
        if (r == 0) {
                switch (op->kind) {
                case OP_SETATTR:
                        r = apply_to_inode(&a, op->setattr.ino, true);
                        break;
                case OP_WRITE:
                        r = apply_to_inode(&a, op->write.ino, true);
                        break;
                case OP_SETXATTR:
                        r = apply_to_inode(&a, op->setxattr.ino, true);
                        break;
                case OP_REMOVEXATTR:
                        r = apply_to_inode(&a, op->removexattr.ino, true);
                        break;
                default:
                        r = -EINVAL;
                        break;
                }
        }
        return apply_answer(&a, r, ret);
}
