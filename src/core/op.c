/* op.c: the rules of operations; see core/op.h. */
#include "op_internal.h"

#include <string.h>
#include <sys/stat.h>

const char *op_kind_text(enum op_kind kind) {
        static const char *const text[OP_KIND_COUNT] = {
                [OP_NOTHING] = "nothing",
                [OP_CREATE] = "create",
                [OP_LINK] = "link",
                [OP_UNLINK] = "unlink",
                [OP_RMDIR] = "rmdir",
                [OP_RENAME] = "rename",
                [OP_SETATTR] = "setattr",
                [OP_WRITE] = "write",
                [OP_SETXATTR] = "setxattr",
                [OP_ADOPT] = "adopt",
                [OP_REMOVEXATTR] = "removexattr",
                [OP_RESERVE_INO] = "reserve-ino",
                [OP_SETTING] = "setting",
        };
        return (unsigned)kind < OP_KIND_COUNT ? text[kind] : "unknown";
}

errint_t op_name_check(const struct op_name *name) {
        if (name->len == 0 || !name->text)
                return -EINVAL;
        if (name->len > LIMIT_NAME)
                return -ENAMETOOLONG;
        if (memchr(name->text, '/', name->len) || memchr(name->text, '\0', name->len))
                return -EINVAL;
        if (name->text[0] == '.' && (name->len == 1 || (name->len == 2 && name->text[1] == '.')))
                return -EINVAL;
        return 0;
}

bool op_name_valid(const char *text, size_t len) {
        return op_name_check(&(struct op_name){text, len}) == 0;
}

static errint_t xattr_name_check(const struct op_name *name) {
        if (name->len == 0 || !name->text || memchr(name->text, '\0', name->len))
                return -EINVAL;
        return name->len > LIMIT_XATTR_NAME ? -ENAMETOOLONG : 0;
}

static bool timestamp_valid(struct timestamp t) {
        return t.nsec <= NSEC_MAX;
}

static errint_t create_check(const struct op *op) {
        uint32_t mode = op->create.mode, type = mode & S_IFMT;
        bool device = type == S_IFBLK || type == S_IFCHR;
        if ((mode & ~(uint32_t)(S_IFMT | 07777)) != 0)
                return -EINVAL;
        if (type != S_IFREG && type != S_IFDIR && type != S_IFLNK && type != S_IFIFO && type != S_IFSOCK && !device)
                return -EINVAL;
        if (!device && op->create.rdev != 0)
                return -EINVAL;
        if (op->create.acl_access.len > LIMIT_XATTR_VALUE || op->create.acl_default.len > LIMIT_XATTR_VALUE)
                return -E2BIG;
        if (type != S_IFLNK)
                return op->create.target.len == 0 ? 0 : -EINVAL;
        if (op->create.target.len == 0 || memchr(op->create.target.text, '\0', op->create.target.len))
                return -EINVAL;
        return op->create.target.len >= LIMIT_PATH ? -ENAMETOOLONG : 0;
}

static errint_t write_check(const struct op *op) {
        bool append = (op->write.flags & WRITE_APPEND) != 0;
        uint64_t end = 0, bytes = 0;
        if ((op->write.flags & ~(uint32_t)WRITE_ALL) != 0)
                return -EINVAL;
        if (op->write.n_extents > OP_EXTENTS_MAX)
                return -E2BIG;
        if (append && (op->write.keep != BLOB_KEEP_ALL || op->write.size != BLOB_KEEP_ALL))
                return -EINVAL;
        for (size_t i = 0; i < op->write.n_extents; i++) {
                const struct extent *x = &op->write.extents[i];
                if (x->length == 0 || x->offset < end || x->length > (UINT64_MAX >> 1) || x->length > UINT64_MAX - x->offset)
                        return -EINVAL;
                if (x->kind != EXTENT_DATA && (x->kind != EXTENT_ZERO || append))
                        return -EINVAL;
                end = x->offset + x->length;
                if (x->kind == EXTENT_DATA)
                        bytes += x->length;
        }
        return bytes == op->payload.raw_len ? 0 : -EINVAL;
}

static errint_t payload_check(const struct op *op) {
        const struct op_payload *p = &op->payload;
        if (op->kind != OP_WRITE && op->kind != OP_ADOPT)
                return p->raw_len == 0 && p->len == 0 && p->form == FORM_RAW ? 0 : -EINVAL;
        if (p->raw_len > OP_PAYLOAD_MAX || p->len > OP_PAYLOAD_MAX)
                return -E2BIG;
        switch (p->form) {
        case FORM_RAW:
                return p->len == p->raw_len ? 0 : -EINVAL;
        case FORM_ZSTD: /* only when it shrinks */
                return p->len > 0 && p->len < p->raw_len ? 0 : -EINVAL;
        default:
                return -EINVAL;
        }
}

static errint_t rename_check(const struct op *op) {
        errint_t r = op_name_check(&op->rename.name);
        return r < 0 ? r : op_name_check(&op->rename.new_name);
}

static errint_t setxattr_check(const struct op *op) {
        errint_t r = xattr_name_check(&op->setxattr.name);
        if (r < 0)
                return r;
        return op->setxattr.len > LIMIT_XATTR_VALUE ? -E2BIG : 0;
}

static errint_t setattr_check(const struct op *op) {
        if ((op->setattr.mask & ~(uint32_t)SETATTR_ALL) != 0)
                return -EINVAL;
        if ((op->setattr.mask & SETATTR_ATIME) && !timestamp_valid(op->setattr.atime))
                return -EINVAL;
        return (op->setattr.mask & SETATTR_MTIME) && !timestamp_valid(op->setattr.mtime) ? -EINVAL : 0;
}

static errint_t adopt_check(const struct op *op) {
        const struct attr *a = &op->adopt.attr;
        if (!S_ISREG(a->mode) || (a->mode & ~(uint32_t)(S_IFMT | 07777)) != 0)
                return -EINVAL;
        if (!timestamp_valid(a->atime) || !timestamp_valid(a->mtime) || !timestamp_valid(a->ctime))
                return -EINVAL;
        return op_name_check(&op->adopt.name);
}

static errint_t setting_check(const struct op *op) {
        errint_t r = op_name_check(&op->setting.name);
        return r == 0 && op->setting.len > LIMIT_NAME ? -E2BIG : r;
}

static errint_t kind_check(const struct op *op) {
        errint_t r;
        switch (op->kind) {
        case OP_NOTHING:
        case OP_RESERVE_INO:
                return 0;
        case OP_CREATE:
                r = op_name_check(&op->create.name);
                return r < 0 ? r : create_check(op);
        case OP_LINK:
                return op_name_check(&op->link.name);
        case OP_UNLINK:
        case OP_RMDIR:
                return op_name_check(&op->unlink.name);
        case OP_RENAME:
                return rename_check(op);
        case OP_SETATTR:
                return setattr_check(op);
        case OP_WRITE:
                return write_check(op);
        case OP_SETXATTR:
                return setxattr_check(op);
        case OP_REMOVEXATTR:
                return xattr_name_check(&op->removexattr.name);
        case OP_ADOPT:
                return adopt_check(op);
        case OP_SETTING:
                return setting_check(op);
        case OP_KIND_COUNT:
        default:
                return -EINVAL;
        }
}

errint_t op_check(const struct op *op) {
        errint_t r = kind_check(op);
        if (r == 0)
                r = payload_check(op);
        return r < 0 ? r : timestamp_valid(op->time) ? 0 : -EINVAL;
}
