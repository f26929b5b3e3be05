/* xattr.c: extended attributes and POSIX ACLs. Who may touch which namespace is the kernel's to check; which there are, ours. */
#include "internal.h"

#include <sys/xattr.h>

static bool is_acl(const char *name) {
        return strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;
}

static errint_t xattr_name_check(const char *name) {
        static const char *const spaces[] = {"user.", "trusted.", "security."};
        if (is_acl(name))
                return 0;
        for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
                size_t len = strlen(spaces[i]);
                if (strncmp(name, spaces[i], len) == 0)
                        return name[len] == '\0' ? -EINVAL : strlen(name) > LIMIT_XATTR_NAME ? -ERANGE : 0;
        }
        return -EOPNOTSUPP;
}

static errint_t target_check(struct fs *fs, uint64_t ino, const char *name, struct attr *ret) {
        if (fs_is_virtual(ino))
                return -EPERM;
        errint_t r = xattr_name_check(name);
        if (r < 0)
                return r;
        const struct state *s = shared_state_read(fs->config.state);
        r = tree_getattr(s->tree, ino, ret);
        shared_state_done_read(fs->config.state);
        return r < 0 ? -ESTALE : fs_writable(fs);
}

static void finish_done(struct flight *f, const struct op_result *r) {
        reply_err(f->w.reply, r->error == -ENOENT ? -ESTALE : r->error);
}

/* Removing an ACL that is not there is fine, as on other filesystems. */
static void finish_acl_gone(struct flight *f, const struct op_result *r) {
        struct op_result gone = {.error = r->error == -ENODATA ? 0 : r->error};
        finish_done(f, &gone);
}

/* An operation that is queued behind what is gathered: the order of their ctimes is that of the calls. */
static struct flight *flight_behind(struct fs *fs, struct node *n, const struct fs_caller *c, enum op_kind kind, struct fs_reply *r) {
        struct flight *f = flight_new(fs, n, c, kind, r);
        f->finish = finish_done;
        return f;
}

static struct flight *remove_flight(struct fs *fs, struct node *n, const struct fs_caller *c, uint64_t ino, const char *name,
                                    struct fs_reply *r) {
        struct flight *f = flight_behind(fs, n, c, OP_REMOVEXATTR, r);
        f->op.removexattr.ino = ino;
        f->op.removexattr.name = flight_own_name(f, name);
        if (is_acl(name))
                f->finish = finish_acl_gone;
        return f;
}

/* An access ACL that says no more than the mode is not kept: the mode is set, then an ACL that is there goes. In this order nobody has
 * more rights in between than before or after: the mode's group class bounds the old ACL. */
static void set_plain_acl(struct fs *fs, struct node *n, const struct fs_caller *c, const struct attr *a, uint32_t mode, bool kill_sgid,
                          struct fs_reply *r) {
        struct flight *f = flight_behind(fs, n, c, OP_SETATTR, NULL);
        f->op.setattr.ino = a->ino;
        f->op.setattr.mask = SETATTR_MODE;
        f->op.setattr.mode = mode & (kill_sgid ? ~(uint32_t)S_ISGID : UINT32_MAX) & 07777;
        f->finish = NULL;
        flight_go(f);
        flight_go(remove_flight(fs, n, c, a->ino, ACL_ACCESS, r));
}

/* Checks an ACL; *ret_mode: what an access ACL makes of the mode, *ret_plain: that says it all. */
static errint_t acl_examine(const struct attr *a, const char *name, const void *value, size_t len, uint32_t *ret_mode, bool *ret_plain) {
        bool access = strcmp(name, ACL_ACCESS) == 0;
        if (S_ISLNK(a->mode))
                return -EOPNOTSUPP;
        errint_t r = fs_acl_check(value, len);
        if (r < 0)
                return r;
        if (!access)
                return S_ISDIR(a->mode) ? 0 : -EACCES;
        *ret_mode = a->mode;
        *ret_plain = fs_acl_mode(value, len, ret_mode);
        return 0;
}

void fs_setxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, const void *value, size_t len, int flags,
                 bool kill_sgid, struct fs_reply *r) {
        struct attr a;
        uint32_t mode = 0;
        bool plain = false;
        errint_t error = target_check(fs, ino, name, &a);
        if (error == 0 && len > LIMIT_XATTR_VALUE)
                error = -E2BIG;
        if (error == 0 && is_acl(name))
                error = acl_examine(&a, name, value, len, &mode, &plain);
        CLEANUP(node_unrefp) struct node *n = error == 0 ? node_find(fs, ino) : NULL;
        if (n)
                error = node_flush(n);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        if (plain) {
                set_plain_acl(fs, n, c, &a, mode, kill_sgid, r);
                return;
        }
        struct flight *f = flight_behind(fs, n, c, OP_SETXATTR, r);
        f->op.setxattr.ino = ino;
        f->op.setxattr.name = flight_own_name(f, name);
        f->op.setxattr.value = flight_own(f, value, len);
        f->op.setxattr.len = len;
        f->op.setxattr.flags = is_acl(name) ? 0 : (uint32_t)flags;
        f->op.setxattr.set_mode = strcmp(name, ACL_ACCESS) == 0;
        f->op.setxattr.mode = mode & 0777;
        f->op.setxattr.kill_sgid = kill_sgid;
        flight_go(f);
}

void fs_removexattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, struct fs_reply *r) {
        struct attr a;
        errint_t error = target_check(fs, ino, name, &a);
        CLEANUP(node_unrefp) struct node *n = error == 0 ? node_find(fs, ino) : NULL;
        if (n)
                error = node_flush(n);
        if (error < 0)
                r->ops->err(r, error);
        else
                flight_go(remove_flight(fs, n, c, ino, name, r));
}

/* Gathered writes take file capabilities away: with the operation for all, for this node's processes already now. */
static bool hidden(struct fs *fs, uint64_t ino, const char *name) {
        if (strcmp(name, XATTR_CAPABILITY) != 0)
                return false;
        CLEANUP(node_unrefp) struct node *n = node_find(fs, ino);
        if (!n)
                return false;
        (void)pthread_mutex_lock(&n->lock);
        bool drop = n->g.dirty && n->g.drop_caps;
        (void)pthread_mutex_unlock(&n->lock);
        return drop;
}

static void reply_bytes(const void *p, size_t len, size_t size, struct fs_reply *r) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = len};
        if (size == 0)
                r->ops->size(r, len);
        else if (len > size)
                r->ops->err(r, -ERANGE);
        else
                r->ops->data(r, &iov, 1);
}

void fs_getxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, const char *name, size_t size, struct fs_reply *r) {
        const uint8_t *value = NULL;
        cleanup_free uint8_t *copy = NULL;
        size_t len = 0;
        (void)c;
        fs_count(fs, METRIC_FUSE_GETXATTR, 1);
        errint_t error = fs_is_virtual(ino) || hidden(fs, ino, name) ? -ENODATA : xattr_name_check(name);
        if (error < 0) {
                r->ops->err(r, error);
                return;
        }
        const struct state *s = shared_state_read(fs->config.state);
        error = tree_xattr_get(s->tree, ino, name, strlen(name), &value, &len);
        if (error == 0 && len > 0 && len <= size) {
                copy = xmalloc(len); /* at most LIMIT_XATTR_VALUE */
                memcpy(copy, value, len);
        }
        shared_state_done_read(fs->config.state);
        if (error < 0)
                r->ops->err(r, error == -ENOENT ? -ESTALE : error);
        else
                reply_bytes(copy, len, size, r);
}

struct listing {
        struct enc names;
        bool all, no_caps;
};
static bool list_one(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len) {
        struct listing *l = ctx;
        (void)value;
        (void)value_len;
        if (!l->all && len > 8 && memcmp(name, "trusted.", 8) == 0)
                return true;
        if (l->no_caps && len == strlen(XATTR_CAPABILITY) && memcmp(name, XATTR_CAPABILITY, len) == 0)
                return true;
        enc_raw(&l->names, name, len);
        enc_u8(&l->names, 0);
        return l->names.err == 0;
}

void fs_listxattr(struct fs *fs, const struct fs_caller *c, uint64_t ino, size_t size, struct fs_reply *r) {
        struct listing l = {.all = c->uid == 0 /* trusted names are shown to administrators alone */,
                            .no_caps = hidden(fs, ino, XATTR_CAPABILITY)};
        errint_t error = 0;
        enc_init(&l.names, 4 * LIMIT_XATTR_VALUE);
        if (!fs_is_virtual(ino)) {
                const struct state *s = shared_state_read(fs->config.state);
                error = tree_xattr_each(s->tree, ino, list_one, &l);
                shared_state_done_read(fs->config.state);
        }
        if (error == 0)
                error = l.names.err;
        if (error < 0)
                r->ops->err(r, error == -ENOENT ? -ESTALE : error);
        else if (l.names.len > LIMIT_XATTR_VALUE)
                r->ops->err(r, -E2BIG);
        else
                reply_bytes(l.names.data, l.names.len, size, r);
        enc_done(&l.names);
}
