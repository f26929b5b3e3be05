/* limits.h: every limit in one place, with asserts between them. Numbers that an administrator can change are settings
 * (settings.h); here are their bounds and the compiled-in ones. */
#pragma once

#include <assert.h>
#include <stdint.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

#define LIMIT_NAME 255u                /* bytes in one name, as NAME_MAX */
#define LIMIT_PATH 4096u               /* bytes in a path and in a symlink target, as PATH_MAX */
#define LIMIT_LINKS 65000u             /* names of one inode, as ext4's */
#define LIMIT_XATTR_NAME 255u
#define LIMIT_XATTR_VALUE (64 * KIB)   /* one value, as Linux's XATTR_SIZE_MAX */
#define LIMIT_XATTR_INODE (64 * KIB)   /* names and values of one inode together: default of the setting */
#define LIMIT_FILE_SIZE_DEFAULT (16 * MIB)
#define LIMIT_FILE_SIZE_MAX (64 * MIB) /* the setting's upper end: one operation can carry a whole file */
#define LIMIT_TREE_SIZE_DEFAULT (1 * GIB)
#define LIMIT_TREE_SIZE_MAX (64 * GIB)
#define LIMIT_INODES_DEFAULT 1048576u
#define LIMIT_INODES_MAX 16777216u
#define LIMIT_PROGRAM 16u              /* bytes of a process name kept with an operation, as TASK_COMM_LEN */

#define BLOB_CHUNK (16 * KIB)          /* unit of sharing between versions of a content */
#define OP_HEAD_MAX (192 * KIB)        /* an encoded operation without its payload; holds a whole xattr and a full extent list */
#define OP_EXTENTS_MAX 8192u           /* extents in one write operation: more are merged or flushed by the gatherer */
#define OP_PAYLOAD_MAX LIMIT_FILE_SIZE_MAX

static_assert(LIMIT_XATTR_VALUE + LIMIT_XATTR_NAME + 1024 < OP_HEAD_MAX, "a SETXATTR fits in a head");
static_assert(OP_EXTENTS_MAX * 20 < OP_HEAD_MAX, "an extent takes at most 20 bytes encoded");
