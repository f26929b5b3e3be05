/* op_encode.c: the bytes of an operation's head. op_decode.c reads them.
 *
 * v: varint (LEB128, shortest form); s: zigzag varint; u8, u32, u64: fixed, little-endian; bytes: varint length, then the bytes;
 * time: s seconds, u32 nanoseconds.
 *
 *   u8 kind · u8 bits (op_internal.h)
 *   v node · u64 incarnation · v number · s number - lowest_waiting (wrapping)
 *   v uid · v gid · s pid · bytes program
 *   time
 * then by kind:
 *   CREATE       v parent · bytes name · v mode · v uid · v gid · [device: v rdev] · [symlink: bytes target]
 *                · [ACL_ACCESS: bytes] · [ACL_DEFAULT: bytes]
 *   LINK         v ino · v parent · bytes name
 *   UNLINK RMDIR v parent · bytes name
 *   RENAME       v parent · bytes name · s new_parent - parent (wrapping) · bytes new_name · v flags
 *   SETATTR      v ino · v mask · what the mask names, in this order: v mode · v uid · v gid · time atime · time mtime
 *   WRITE        v ino · [KEEP: v keep] · [SIZE: v size] · v extents · each: v gap after the end of the one before · v length * 2 + kind
 *   SETXATTR     v ino · bytes name · bytes value · v flags · [SET_MODE: v mode]
 *   REMOVEXATTR  v ino · bytes name
 *   ADOPT        v ino · v parent · bytes name · v mode · v uid · v gid · time atime · time mtime · time ctime · v size · bytes xattrs
 *   SETTING      bytes name · bytes text
 *   NOTHING, RESERVE_INO: nothing
 *
 * Nothing may follow. Every head has exactly one operation and every operation exactly one head. A layout never changes; a new one
 * is a new kind or a new bit, which an older decoder refuses. */
#include "op_internal.h"

#include <string.h>
#include <sys/stat.h>

static void enc_time(struct enc *e, struct timestamp t) {
        enc_svarint(e, t.sec);
        enc_u32(e, t.nsec);
}

static void enc_name(struct enc *e, const struct op_name *name) {
        enc_bytes(e, name->text, name->len);
}

static void encode_create(const struct op *op, struct enc *e) {
        uint32_t type = op->create.mode & S_IFMT;
        enc_varint(e, op->create.parent);
        enc_name(e, &op->create.name);
        enc_varint(e, op->create.mode);
        enc_varint(e, op->create.uid);
        enc_varint(e, op->create.gid);
        if (type == S_IFBLK || type == S_IFCHR)
                enc_varint(e, op->create.rdev);
        if (type == S_IFLNK)
                enc_bytes(e, op->create.target.text, op->create.target.len);
        if (op->create.acl_access.len > 0)
                enc_bytes(e, op->create.acl_access.data, op->create.acl_access.len);
        if (op->create.acl_default.len > 0)
                enc_bytes(e, op->create.acl_default.data, op->create.acl_default.len);
}

static void encode_setattr(const struct op *op, struct enc *e) {
        uint32_t mask = op->setattr.mask;
        enc_varint(e, op->setattr.ino);
        enc_varint(e, mask);
        if (mask & SETATTR_MODE)
                enc_varint(e, op->setattr.mode);
        if (mask & SETATTR_UID)
                enc_varint(e, op->setattr.uid);
        if (mask & SETATTR_GID)
                enc_varint(e, op->setattr.gid);
        if (mask & SETATTR_ATIME)
                enc_time(e, op->setattr.atime);
        if (mask & SETATTR_MTIME)
                enc_time(e, op->setattr.mtime);
}

static void encode_write(const struct op *op, struct enc *e) {
        uint64_t end = 0;
        enc_varint(e, op->write.ino);
        if (op->write.keep != BLOB_KEEP_ALL)
                enc_varint(e, op->write.keep);
        if (op->write.size != BLOB_KEEP_ALL)
                enc_varint(e, op->write.size);
        enc_varint(e, op->write.n_extents);
        for (size_t i = 0; i < op->write.n_extents; i++) {
                const struct extent *x = &op->write.extents[i];
                enc_varint(e, x->offset - end);
                enc_varint(e, x->length << 1 | (x->kind == EXTENT_ZERO));
                end = x->offset + x->length;
        }
}

static void encode_adopt(const struct op *op, struct enc *e) {
        const struct attr *a = &op->adopt.attr;
        enc_varint(e, op->adopt.ino);
        enc_varint(e, op->adopt.parent);
        enc_name(e, &op->adopt.name);
        enc_varint(e, a->mode);
        enc_varint(e, a->uid);
        enc_varint(e, a->gid);
        enc_time(e, a->atime);
        enc_time(e, a->mtime);
        enc_time(e, a->ctime);
        enc_varint(e, op->payload.raw_len);
        enc_bytes(e, op->adopt.xattrs, op->adopt.xattrs_len);
}

static void encode_setxattr(const struct op *op, struct enc *e) {
        enc_varint(e, op->setxattr.ino);
        enc_name(e, &op->setxattr.name);
        enc_bytes(e, op->setxattr.value, op->setxattr.len);
        enc_varint(e, op->setxattr.flags);
        if (op->setxattr.set_mode)
                enc_varint(e, op->setxattr.mode);
}

static void encode_rename(const struct op *op, struct enc *e) {
        enc_varint(e, op->rename.parent);
        enc_name(e, &op->rename.name);
        enc_svarint(e, (int64_t)(op->rename.new_parent - op->rename.parent));
        enc_name(e, &op->rename.new_name);
        enc_varint(e, op->rename.flags);
}

static uint8_t head_bits(const struct op *op) {
        unsigned bits = op->payload.form == FORM_ZSTD ? HEAD_ZSTD : 0;
        switch (op->kind) {
        case OP_CREATE:
                bits |= op->create.or_open ? HEAD_CREATE_OR_OPEN : 0;
                bits |= op->create.acl_access.len > 0 ? HEAD_CREATE_ACL_ACCESS : 0;
                bits |= op->create.acl_default.len > 0 ? HEAD_CREATE_ACL_DEFAULT : 0;
                break;
        case OP_WRITE:
                bits |= op->write.keep != BLOB_KEEP_ALL ? HEAD_WRITE_KEEP : 0;
                bits |= op->write.size != BLOB_KEEP_ALL ? HEAD_WRITE_SIZE : 0;
                bits |= op->write.flags & WRITE_APPEND ? HEAD_WRITE_APPEND : 0;
                bits |= op->write.flags & WRITE_KILL_SUID ? HEAD_WRITE_KILL_SUID : 0;
                bits |= op->write.flags & WRITE_NO_MTIME ? HEAD_WRITE_NO_MTIME : 0;
                break;
        case OP_SETXATTR:
                bits |= op->setxattr.set_mode ? HEAD_XATTR_SET_MODE : 0;
                bits |= op->setxattr.kill_sgid ? HEAD_XATTR_KILL_SGID : 0;
                break;
        default:
                break;
        }
        return (uint8_t)bits;
}

static void encode_common(const struct op *op, struct enc *e) {
        enc_u8(e, (uint8_t)op->kind);
        enc_u8(e, head_bits(op));
        enc_varint(e, op->origin.node);
        enc_u64(e, op->origin.incarnation);
        enc_varint(e, op->origin.number);
        enc_svarint(e, (int64_t)(op->origin.number - op->origin.lowest_waiting));
        enc_varint(e, op->caller.uid);
        enc_varint(e, op->caller.gid);
        enc_svarint(e, op->caller.pid);
        enc_bytes(e, op->caller.program, strnlen(op->caller.program, LIMIT_PROGRAM));
        enc_time(e, op->time);
}

static void encode_body(const struct op *op, struct enc *e) {
        switch (op->kind) {
        case OP_CREATE:
                encode_create(op, e);
                break;
        case OP_LINK:
                enc_varint(e, op->link.ino);
                enc_varint(e, op->link.parent);
                enc_name(e, &op->link.name);
                break;
        case OP_UNLINK:
        case OP_RMDIR:
                enc_varint(e, op->unlink.parent);
                enc_name(e, &op->unlink.name);
                break;
        case OP_RENAME:
                encode_rename(op, e);
                break;
        case OP_SETATTR:
                encode_setattr(op, e);
                break;
        case OP_WRITE:
                encode_write(op, e);
                break;
        case OP_SETXATTR:
                encode_setxattr(op, e);
                break;
        case OP_REMOVEXATTR:
                enc_varint(e, op->removexattr.ino);
                enc_name(e, &op->removexattr.name);
                break;
        case OP_ADOPT:
                encode_adopt(op, e);
                break;
        case OP_SETTING:
                enc_name(e, &op->setting.name);
                enc_bytes(e, op->setting.text, op->setting.len);
                break;
        case OP_NOTHING:
        case OP_RESERVE_INO:
        case OP_KIND_COUNT:
                break;
        }
}

errint_t op_encode_head(const struct op *op, struct enc *e) {
        errint_t r = op_check(op);
        if (r < 0)
                return r;
        size_t start = e->len;
        encode_common(op, e);
        encode_body(op, e);
        if (e->err)
                return e->err == -EMSGSIZE ? -E2BIG : e->err;
        return e->len - start > OP_HEAD_MAX ? -E2BIG : 0;
}
