/* op_internal.h: what encoder, decoder and apply of operations share. Private to core. */
#pragma once

#include "core/op.h"

/* Bits of the second byte of a head; the meaning depends on the kind, the rest is zero. */
enum {
        HEAD_ZSTD = 1, /* WRITE, ADOPT: the payload's form */
        HEAD_CREATE_OR_OPEN = 2,
        HEAD_CREATE_ACL_ACCESS = 4,
        HEAD_CREATE_ACL_DEFAULT = 8,
        HEAD_WRITE_KEEP = 2,
        HEAD_WRITE_SIZE = 4,
        HEAD_WRITE_APPEND = 8,
        HEAD_WRITE_KILL_SUID = 16,
        HEAD_WRITE_NO_MTIME = 32,
        HEAD_XATTR_SET_MODE = 2,
        HEAD_XATTR_KILL_SGID = 4,
};

#define SETATTR_ALL (SETATTR_MODE | SETATTR_UID | SETATTR_GID | SETATTR_ATIME | SETATTR_MTIME | SETATTR_KILL_SUID)
#define WRITE_ALL   (WRITE_APPEND | WRITE_KILL_SUID | WRITE_NO_MTIME)
#define NSEC_MAX    999999999u

/* The rules that an operation keeps, whoever made it; encoder, decoder and apply all refuse what breaks them. 0, -EINVAL,
 * -ENAMETOOLONG, -E2BIG. */
errint_t op_check(const struct op *op);
errint_t op_name_check(const struct op_name *name);
