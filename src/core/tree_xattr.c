/* tree_xattr.c: the extended attributes of an inode are one block in their encoded form, sorted by name. They are few and small, so a
 * change copies the block. */
#include "tree_internal.h"

#include "base/codec.h"

struct xattr {
        const uint8_t *start; /* of the encoded attribute */
        const char *name;
        size_t len;
        const uint8_t *value;
        size_t value_len;
};

static bool xattr_next(struct dec *d, struct xattr *ret) {
        if (d->err || dec_left(d) == 0)
                return false;
        ret->start = d->p;
        ret->name = (const char *)dec_bytes(d, LIMIT_XATTR_NAME, &ret->len);
        ret->value = dec_bytes(d, LIMIT_XATTR_VALUE, &ret->value_len);
        return d->err == 0;
}

static int name_cmp(const char *a, size_t a_len, const char *b, size_t b_len) {
        int c = memcmp(a, b, MIN_OF(a_len, b_len));
        return c != 0 ? c : a_len < b_len ? -1 : a_len > b_len;
}

bool xattrs_valid(const uint8_t *p, size_t len) {
        struct dec d;
        struct xattr x, before = {0};
        if (len > OP_HEAD_MAX)
                return false;
        dec_init(&d, p, len);
        while (xattr_next(&d, &x)) {
                if (x.len == 0 || memchr(x.name, '\0', x.len))
                        return false;
                if (before.name && name_cmp(before.name, before.len, x.name, x.len) >= 0)
                        return false;
                before = x;
        }
        return dec_finish(&d) == 0;
}

/* The attribute, or the first one behind where it would stand; false: only that place (ret->start) is known. */
static bool xattrs_seek(const struct xattrs *xs, const char *name, size_t len, struct xattr *ret) {
        struct dec d;
        dec_init(&d, xs ? xs->data : NULL, xattrs_len(xs));
        while (xattr_next(&d, ret)) {
                int c = name_cmp(ret->name, ret->len, name, len);
                if (c >= 0)
                        return c == 0;
        }
        ret->start = d.end;
        return false;
}

bool xattrs_find(const struct xattrs *xs, const char *name, size_t len, const uint8_t **ret, size_t *ret_len) {
        struct xattr x = {0};
        if (!xattrs_seek(xs, name, len, &x))
                return false;
        *ret = x.value;
        *ret_len = x.value_len;
        return true;
}

errint_t xattrs_copy(const uint8_t *p, size_t len, struct xattrs **ret) {
        if (len == 0) {
                *ret = NULL;
                return 0;
        }
        struct xattrs *xs = try_malloc(sizeof(struct xattrs) + len);
        if (!xs)
                return -ENOMEM;
        xs->len = (uint32_t)len;
        memcpy(xs->data, p, len);
        *ret = xs;
        return 0;
}

/* A copy in which the attribute at `at` (all of its bytes, or none) is replaced. */
static errint_t xattrs_splice(const struct xattrs *xs, const struct xattr *at, bool there, const uint8_t *fresh, size_t fresh_len,
                              struct xattrs **ret) {
        const uint8_t *old = xs ? xs->data : NULL;
        size_t len = xattrs_len(xs), before = xs ? (size_t)(at->start - old) : 0;
        size_t gone = there ? (size_t)(at->value + at->value_len - at->start) : 0, total = len - gone + fresh_len;
        if (total == 0) {
                *ret = NULL;
                return 0;
        }
        struct xattrs *copy = try_malloc(sizeof(struct xattrs) + total);
        if (!copy)
                return -ENOMEM;
        copy->len = (uint32_t)total;
        uint8_t *p = copy->data;
        if (before > 0)
                memcpy(p, old, before);
        if (fresh_len > 0)
                memcpy(p + before, fresh, fresh_len);
        if (len - before - gone > 0)
                memcpy(p + before + fresh_len, old + before + gone, len - before - gone);
        *ret = copy;
        return 0;
}

errint_t xattrs_put(const struct xattrs *xs, const char *name, size_t len, const uint8_t *value, size_t value_len, struct xattrs **ret) {
        CLEANUP(enc_done) struct enc e = {0};
        struct xattr at = {0};
        enc_init(&e, LIMIT_XATTR_NAME + LIMIT_XATTR_VALUE + 16);
        enc_bytes(&e, name, len);
        enc_bytes(&e, value, value_len);
        if (e.err)
                return -ENOMEM;
        bool there = xattrs_seek(xs, name, len, &at);
        return xattrs_splice(xs, &at, there, e.data, e.len, ret);
}

errint_t xattrs_drop(const struct xattrs *xs, const char *name, size_t len, struct xattrs **ret) {
        struct xattr at = {0};
        bool there = xattrs_seek(xs, name, len, &at);
        PRE(there);
        return xattrs_splice(xs, &at, there, NULL, 0, ret);
}

errint_t tree_xattr_get(const struct tree *t, uint64_t ino, const char *name, size_t len, const uint8_t **ret, size_t *ret_len) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        return xattrs_find(in->xattrs, name, len, ret, ret_len) ? 0 : -ENODATA;
}

errint_t tree_xattr_each(const struct tree *t, uint64_t ino, tree_xattr_fn fn, void *ctx) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        struct dec d;
        struct xattr x;
        dec_init(&d, in->xattrs ? in->xattrs->data : NULL, xattrs_len(in->xattrs));
        while (xattr_next(&d, &x))
                if (!fn(ctx, x.name, x.len, x.value, x.value_len))
                        break;
        return 0;
}

errint_t tree_xattrs_encode(const struct tree *t, uint64_t ino, struct enc *e) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        if (in->xattrs)
                enc_raw(e, in->xattrs->data, in->xattrs->len);
        return e->err;
}
