/* tree_meta.c: OP_SETATTR, OP_SETXATTR, OP_REMOVEXATTR. */
#include "tree_internal.h"

#include <sys/xattr.h> /* XATTR_CREATE, XATTR_REPLACE */

static void change_xattrs(struct apply *a, struct inode *in, struct xattrs *x) {
        inode_set_xattrs(a->t, in, x);
        if (!inode_is_orphan(in))
                in->change_seq = a->seq;
        (void)apply_change(a, CHANGE_XATTR, in);
}

/* The access ACL as a chmod to `mode` leaves it; *ret stays NULL if it does not change. */
static errint_t chmod_acl(struct apply *a, const struct inode *in, uint32_t mode, struct xattrs **ret) {
        const uint8_t *value = NULL;
        size_t len = 0;
        if (!xattrs_find(in->xattrs, XATTR_ACL_ACCESS, strlen(XATTR_ACL_ACCESS), &value, &len) || len == 0)
                return 0;
        cleanup_free uint8_t *copy = try_malloc(len);
        if (!copy)
                return apply_fatal(a, -ENOMEM);
        memcpy(copy, value, len);
        if (!acl_chmod(copy, len, mode))
                return 0;
        errint_t r = xattrs_put(in->xattrs, XATTR_ACL_ACCESS, strlen(XATTR_ACL_ACCESS), copy, len, ret);
        return r < 0 ? apply_fatal(a, r) : 0;
}

errint_t apply_setattr(struct apply *a, struct inode *in) {
        const struct op *op = a->op;
        uint32_t mask = op->setattr.mask;
        struct xattrs *acl = NULL;
        errint_t r = mask & SETATTR_MODE ? chmod_acl(a, in, op->setattr.mode, &acl) : 0;
        if (r < 0)
                return r;
        struct touched was = apply_touch(in);
        uint16_t old_mode = in->mode;
        if (mask & SETATTR_MODE)
                in->mode = (uint16_t)((in->mode & S_IFMT) | (op->setattr.mode & 07777));
        if (mask & SETATTR_UID)
                in->uid = op->setattr.uid;
        if (mask & SETATTR_GID)
                in->gid = op->setattr.gid;
        if (mask & SETATTR_ATIME)
                inode_set_atime(in, op->setattr.atime);
        if (mask & SETATTR_MTIME)
                inode_set_mtime(in, op->setattr.mtime);
        if (mask & SETATTR_KILL_SUID)
                in->mode = (uint16_t)mode_without_suid(in->mode);
        if ((mask & ~(uint32_t)SETATTR_KILL_SUID) != 0 || in->mode != old_mode) /* dropping bits that are not set is no change */
                inode_set_ctime(in, op->time);
        if (acl)
                change_xattrs(a, in, acl);
        apply_settle(a, &was);
        return 0;
}

static errint_t setxattr_check(const struct apply *a, const struct inode *in) {
        const struct op *op = a->op;
        const uint8_t *old = NULL;
        size_t old_len = 0;
        if ((op->setxattr.flags & ~(uint32_t)(XATTR_CREATE | XATTR_REPLACE)) != 0)
                return -EINVAL;
        bool there = xattrs_find(in->xattrs, op->setxattr.name.text, op->setxattr.name.len, &old, &old_len);
        if (there && op->setxattr.flags & XATTR_CREATE)
                return -EEXIST;
        return !there && op->setxattr.flags & XATTR_REPLACE ? -ENODATA : 0; /* with both flags it fails either way */
}

errint_t apply_setxattr(struct apply *a, struct inode *in) {
        const struct op *op = a->op;
        errint_t r = setxattr_check(a, in);
        if (r < 0)
                return r;
        cleanup_free struct xattrs *x = NULL;
        r = xattrs_put(in->xattrs, op->setxattr.name.text, op->setxattr.name.len, op->setxattr.value, op->setxattr.len, &x);
        if (r < 0)
                return apply_fatal(a, r);
        if (x->len > xattrs_len(in->xattrs)) {
                if (x->len > a->t->settings.xattr_inode_max)
                        return -ENOSPC;
                r = inode_is_orphan(in) ? 0 : apply_room(a, x->len - xattrs_len(in->xattrs), 0);
                if (r < 0)
                        return r;
        }
        bool same = x->len == xattrs_len(in->xattrs) && memcmp(x->data, in->xattrs->data, x->len) == 0;
        uint32_t mode = in->mode;
        if (op->setxattr.set_mode)
                mode = (mode & ~0777u) | (op->setxattr.mode & 0777);
        if (op->setxattr.kill_sgid)
                mode &= ~(uint32_t)S_ISGID;
        if (same && mode == in->mode)
                return 0; /* what is there already: not even the ctime moves, as on ext4 */
        struct touched was = apply_touch(in);
        if (!same)
                change_xattrs(a, in, steal_pointer(&x));
        in->mode = (uint16_t)mode;
        inode_set_ctime(in, op->time);
        apply_settle(a, &was);
        return 0;
}

errint_t apply_removexattr(struct apply *a, struct inode *in) {
        const struct op_name *name = &a->op->removexattr.name;
        const uint8_t *old = NULL;
        size_t old_len = 0;
        if (!xattrs_find(in->xattrs, name->text, name->len, &old, &old_len))
                return -ENODATA;
        struct xattrs *x = NULL;
        errint_t r = xattrs_drop(in->xattrs, name->text, name->len, &x);
        if (r < 0)
                return apply_fatal(a, r);
        struct touched was = apply_touch(in);
        change_xattrs(a, in, x);
        inode_set_ctime(in, a->op->time);
        apply_settle(a, &was);
        return 0;
}
