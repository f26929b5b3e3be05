/* op_decode.c: heads back into operations; the layout is in op_encode.c. Whatever comes out passes op_check and encodes to the very
 * bytes it came from, so a head can be compared, hashed and logged as it is. */
#include "op_internal.h"

#include <string.h>
#include <sys/stat.h>

static uint32_t dec_varint32(struct dec *d) {
        uint64_t v = dec_varint(d);
        if (v > UINT32_MAX)
                dec_fail(d);
        return (uint32_t)v;
}

static struct timestamp dec_time(struct dec *d) {
        struct timestamp t = {.sec = dec_svarint(d)};
        t.nsec = dec_u32(d);
        return t;
}

static struct op_name dec_name(struct dec *d) {
        struct op_name name = {0};
        name.text = (const char *)dec_bytes(d, LIMIT_NAME, &name.len);
        return name;
}

static const uint8_t *dec_some(struct dec *d, size_t max, size_t *ret) {
        const uint8_t *p = dec_bytes(d, max, ret);
        if (*ret == 0) /* the bit says that there is something */
                dec_fail(d);
        return p;
}

static void decode_create(struct dec *d, unsigned bits, struct op *op) {
        op->create.or_open = (bits & HEAD_CREATE_OR_OPEN) != 0;
        op->create.parent = dec_varint(d);
        op->create.name = dec_name(d);
        op->create.mode = dec_varint32(d);
        op->create.uid = dec_varint32(d);
        op->create.gid = dec_varint32(d);
        uint32_t type = op->create.mode & S_IFMT;
        if (type == S_IFBLK || type == S_IFCHR)
                op->create.rdev = dec_varint32(d);
        if (type == S_IFLNK)
                op->create.target.text = (const char *)dec_bytes(d, LIMIT_PATH, &op->create.target.len);
        if (bits & HEAD_CREATE_ACL_ACCESS)
                op->create.acl_access.data = dec_some(d, LIMIT_XATTR_VALUE, &op->create.acl_access.len);
        if (bits & HEAD_CREATE_ACL_DEFAULT)
                op->create.acl_default.data = dec_some(d, LIMIT_XATTR_VALUE, &op->create.acl_default.len);
}

static void decode_rename(struct dec *d, struct op *op) {
        op->rename.parent = dec_varint(d);
        op->rename.name = dec_name(d);
        op->rename.new_parent = op->rename.parent + (uint64_t)dec_svarint(d);
        op->rename.new_name = dec_name(d);
        op->rename.flags = dec_varint32(d);
}

static void decode_setattr(struct dec *d, struct op *op) {
        op->setattr.ino = dec_varint(d);
        op->setattr.mask = dec_varint32(d);
        if (op->setattr.mask & SETATTR_MODE)
                op->setattr.mode = dec_varint32(d);
        if (op->setattr.mask & SETATTR_UID)
                op->setattr.uid = dec_varint32(d);
        if (op->setattr.mask & SETATTR_GID)
                op->setattr.gid = dec_varint32(d);
        if (op->setattr.mask & SETATTR_ATIME)
                op->setattr.atime = dec_time(d);
        if (op->setattr.mask & SETATTR_MTIME)
                op->setattr.mtime = dec_time(d);
}

/* A value under a bit is never the one that the bit's absence means. */
static uint64_t dec_limit(struct dec *d) {
        uint64_t v = dec_varint(d);
        if (v == BLOB_KEEP_ALL)
                dec_fail(d);
        return v;
}

static errint_t decode_write(struct dec *d, unsigned bits, struct op *op, void **scratch) {
        op->write.flags = (bits & HEAD_WRITE_APPEND ? WRITE_APPEND : 0u) | (bits & HEAD_WRITE_KILL_SUID ? WRITE_KILL_SUID : 0u) |
                          (bits & HEAD_WRITE_NO_MTIME ? WRITE_NO_MTIME : 0u);
        op->write.ino = dec_varint(d);
        op->write.keep = bits & HEAD_WRITE_KEEP ? dec_limit(d) : BLOB_KEEP_ALL;
        op->write.size = bits & HEAD_WRITE_SIZE ? dec_limit(d) : BLOB_KEEP_ALL;
        uint64_t n = dec_varint(d), end = 0, bytes = 0;
        if (n > OP_EXTENTS_MAX || n > dec_left(d) / 2) /* an extent takes two bytes at least */
                dec_fail(d);
        if (d->err || n == 0)
                return 0;
        struct extent *extents = try_malloc((size_t)n * sizeof(struct extent));
        if (!extents)
                return -ENOMEM;
        *scratch = extents;
        for (uint64_t i = 0; i < n; i++) {
                uint64_t gap = dec_varint(d), length = dec_varint(d);
                extents[i].kind = length & 1 ? EXTENT_ZERO : EXTENT_DATA;
                length >>= 1;
                if (gap > UINT64_MAX - end || length > UINT64_MAX - end - gap) {
                        dec_fail(d);
                        return 0;
                }
                extents[i].offset = end + gap;
                extents[i].length = length;
                end += gap + length;
                if (extents[i].kind == EXTENT_DATA)
                        bytes += length;
        }
        op->write.extents = extents;
        op->write.n_extents = (size_t)n;
        op->payload.raw_len = bytes;
        return 0;
}

static void decode_setxattr(struct dec *d, unsigned bits, struct op *op) {
        op->setxattr.ino = dec_varint(d);
        op->setxattr.name = dec_name(d);
        op->setxattr.value = dec_bytes(d, LIMIT_XATTR_VALUE, &op->setxattr.len);
        op->setxattr.flags = dec_varint32(d);
        op->setxattr.set_mode = (bits & HEAD_XATTR_SET_MODE) != 0;
        op->setxattr.kill_sgid = (bits & HEAD_XATTR_KILL_SGID) != 0;
        if (op->setxattr.set_mode)
                op->setxattr.mode = dec_varint32(d);
}

static void decode_adopt(struct dec *d, struct op *op) {
        struct attr *a = &op->adopt.attr;
        op->adopt.ino = a->ino = dec_varint(d);
        op->adopt.parent = dec_varint(d);
        op->adopt.name = dec_name(d);
        a->mode = dec_varint32(d);
        a->uid = dec_varint32(d);
        a->gid = dec_varint32(d);
        a->atime = dec_time(d);
        a->mtime = dec_time(d);
        a->ctime = dec_time(d);
        op->payload.raw_len = a->size = dec_varint(d);
        op->adopt.xattrs = dec_bytes(d, OP_HEAD_MAX, &op->adopt.xattrs_len);
}

static void decode_common(struct dec *d, struct op *op) {
        op->origin.node = dec_varint32(d);
        op->origin.incarnation = dec_u64(d);
        op->origin.number = dec_varint(d);
        op->origin.lowest_waiting = op->origin.number - (uint64_t)dec_svarint(d);
        op->caller.uid = dec_varint32(d);
        op->caller.gid = dec_varint32(d);
        int64_t pid = dec_svarint(d);
        if (pid < INT32_MIN || pid > INT32_MAX)
                dec_fail(d);
        op->caller.pid = (int32_t)pid;
        size_t len = 0;
        const uint8_t *program = dec_bytes(d, LIMIT_PROGRAM, &len);
        if (len > 0) {
                memcpy(op->caller.program, program, len);
                if (memchr(program, '\0', len))
                        dec_fail(d);
        }
        op->time = dec_time(d);
}

static errint_t decode_body(struct dec *d, unsigned bits, struct op *op, void **scratch) {
        switch (op->kind) {
        case OP_CREATE:
                decode_create(d, bits, op);
                return 0;
        case OP_LINK:
                op->link.ino = dec_varint(d);
                op->link.parent = dec_varint(d);
                op->link.name = dec_name(d);
                return 0;
        case OP_UNLINK:
        case OP_RMDIR:
                op->unlink.parent = dec_varint(d);
                op->unlink.name = dec_name(d);
                return 0;
        case OP_RENAME:
                decode_rename(d, op);
                return 0;
        case OP_SETATTR:
                decode_setattr(d, op);
                return 0;
        case OP_WRITE:
                return decode_write(d, bits, op, scratch);
        case OP_SETXATTR:
                decode_setxattr(d, bits, op);
                return 0;
        case OP_REMOVEXATTR:
                op->removexattr.ino = dec_varint(d);
                op->removexattr.name = dec_name(d);
                return 0;
        case OP_ADOPT:
                decode_adopt(d, op);
                return 0;
        case OP_SETTING:
                op->setting.name = dec_name(d);
                op->setting.text = (const char *)dec_bytes(d, LIMIT_NAME, &op->setting.len);
                return 0;
        case OP_NOTHING:
        case OP_RESERVE_INO:
        case OP_KIND_COUNT:
                return 0;
        }
        return 0;
}

/* Bits that a kind knows. */
static unsigned known_bits(enum op_kind kind) {
        switch (kind) {
        case OP_CREATE:
                return HEAD_CREATE_OR_OPEN | HEAD_CREATE_ACL_ACCESS | HEAD_CREATE_ACL_DEFAULT;
        case OP_WRITE:
                return HEAD_ZSTD | HEAD_WRITE_KEEP | HEAD_WRITE_SIZE | HEAD_WRITE_APPEND | HEAD_WRITE_KILL_SUID | HEAD_WRITE_NO_MTIME;
        case OP_SETXATTR:
                return HEAD_XATTR_SET_MODE | HEAD_XATTR_KILL_SGID;
        case OP_ADOPT:
                return HEAD_ZSTD;
        default:
                return 0;
        }
}

errint_t op_decode(const void *head, size_t head_len, const void *payload_data, size_t payload_len, struct op *ret, void **ret_scratch) {
        if (head_len > OP_HEAD_MAX)
                return -EBADMSG;
        struct dec d;
        cleanup_free void *scratch = NULL;
        struct op op;
        memset(&op, 0, sizeof(op)); /* every member of the union */
        dec_init(&d, head, head_len);
        uint8_t kind = dec_u8(&d), bits = dec_u8(&d);
        if (kind >= OP_KIND_COUNT || (bits & ~known_bits((enum op_kind)kind)) != 0)
                return -EBADMSG;
        op.kind = (enum op_kind)kind;
        op.payload.form = bits & HEAD_ZSTD && known_bits(op.kind) & HEAD_ZSTD ? FORM_ZSTD : FORM_RAW;
        decode_common(&d, &op);
        errint_t r = decode_body(&d, bits, &op, &scratch);
        if (r < 0)
                return r;
        op.payload.data = payload_data;
        op.payload.len = payload_len;
        if (dec_finish(&d) < 0 || op_check(&op) < 0)
                return -EBADMSG;
        *ret = op;
        *ret_scratch = steal_pointer(&scratch);
        return 0;
}
