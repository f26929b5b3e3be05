/* op.h: everything that changes the tree, as plain data.
 *
 * An operation is a head (encoded here, at most OP_HEAD_MAX bytes) and, for content, a payload that travels, is logged and is
 * stored as it is. Encoding is explicit little-endian with varints; docs/FORMAT.md has the layout and tests/data the golden bytes.
 * Pure, any thread. */
#pragma once

#include "base/codec.h"
#include "base/compress.h"
#include "core/attr.h"
#include "core/blob.h"
#include "core/limits.h"

enum op_kind {
        OP_NOTHING = 0,    /* takes a position, changes nothing (barriers, tests) */
        OP_CREATE = 1,     /* a new inode of any type under a name */
        OP_LINK = 2,       /* a further name for an inode */
        OP_UNLINK = 3,     /* -EISDIR for a directory */
        OP_RMDIR = 4,      /* -ENOTDIR, -ENOTEMPTY */
        OP_RENAME = 5,     /* flags as renameat2(2): RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT; others -EINVAL */
        OP_SETATTR = 6,    /* mode (an access ACL follows it, as chmod(2) does), owner, times; sizes go through OP_WRITE */
        OP_WRITE = 7,      /* content: extents, truncation, append */
        OP_SETXATTR = 8,   /* flags XATTR_CREATE, XATTR_REPLACE; may change the mode with it (POSIX ACLs) */
        OP_REMOVEXATTR = 9,
        OP_RESERVE_INO = 10, /* takes a number from the counter for an O_TMPFILE that is local until it is linked */
        OP_ADOPT = 11,       /* links such a file: the inode with all its attributes, xattrs and content (the payload), under a name */
        OP_SETTING = 12,     /* a replicated setting: name and text; empty text: back to the default */
        OP_KIND_COUNT
};

/* Who asked. A request is (node, incarnation, number); numbers have no gaps within an incarnation. */
struct op_origin {
        uint32_t node;
        uint64_t incarnation;
        uint64_t number;
        uint64_t lowest_waiting; /* every request below this one has been answered: its result may be forgotten */
};
struct op_caller {
        uint32_t uid, gid;
        int32_t pid; /* 0: the kernel itself (writeback) */
        char program[LIMIT_PROGRAM]; /* zero-terminated if shorter */
};
struct op_name {
        const char *text; /* not zero-terminated */
        size_t len;       /* 1..LIMIT_NAME; any byte but '/' and NUL; not "." or ".." */
};
struct op_payload {
        enum content_form form;
        uint64_t raw_len;    /* bytes after decompression */
        const uint8_t *data; /* as stored and sent */
        size_t len;
        struct blob *source; /* WRITE without APPEND, where it was made: a content with these bytes at their places; NULL: unknown */
};

enum { SETATTR_MODE = 1, SETATTR_UID = 2, SETATTR_GID = 4, SETATTR_ATIME = 8, SETATTR_MTIME = 16,
       SETATTR_KILL_SUID = 32, /* drop setuid always, setgid if group-executable (as Linux's chown and write by others) */
};
enum { WRITE_APPEND = 1, /* extent offsets count from the end of the file at apply; only EXTENT_DATA, keep and size are KEEP_ALL */
       WRITE_KILL_SUID = 2,
       WRITE_NO_MTIME = 4 /* fallocate that keeps times */
};

struct op {
        enum op_kind kind;
        struct op_origin origin;
        struct op_caller caller;
        struct timestamp time; /* the origin's wall clock; ctime of whatever changes, mtime of directories and content */
        union {
                struct {
                        uint64_t parent;
                        struct op_name name;
                        uint32_t mode; /* type and permissions; final (umask, default ACL and setgid directory already counted) */
                        uint32_t uid, gid;
                        uint32_t rdev;
                        struct { const char *text; size_t len; } target; /* symlink */
                        struct { const uint8_t *data; size_t len; } acl_access, acl_default; /* inherited ACLs as xattr values; len 0: none */
                        bool or_open; /* O_CREAT without O_EXCL: an existing name is a success that changes nothing, result.ino names it */
                } create;
                struct { uint64_t ino, parent; struct op_name name; } link;
                struct { uint64_t parent; struct op_name name; } unlink, rmdir;
                struct { uint64_t parent; struct op_name name; uint64_t new_parent; struct op_name new_name; uint32_t flags; } rename;
                struct { uint64_t ino; uint32_t mask; uint32_t mode /* permissions */, uid, gid; struct timestamp atime, mtime; } setattr;
                struct {
                        uint64_t ino;
                        uint32_t flags;
                        uint64_t keep, size; /* as blob_edit */
                        const struct extent *extents; /* sorted, none empty */
                        size_t n_extents;
                } write; /* payload: the bytes of all EXTENT_DATA extents, one after the other; mtime = op.time */
                struct { uint64_t ino; struct op_name name; const uint8_t *value; size_t len; uint32_t flags;
                         bool set_mode; uint32_t mode; /* permissions that go with a POSIX ACL; only 0777 count */
                         bool kill_sgid; } setxattr;
                struct { uint64_t ino; struct op_name name; } removexattr;
                struct { uint64_t ino; uint64_t parent; struct op_name name; struct attr attr;
                         const uint8_t *xattrs; size_t xattrs_len; /* as tree_xattrs_encode gives */ } adopt; /* payload: the content */
                struct { struct op_name name; const char *text; size_t len; } setting;
        };
        struct op_payload payload;
};

/* Appends the head. Refuses (-EINVAL, -ENAMETOOLONG, -E2BIG) what apply would have to abort on; a decoded op always encodes to the
 * same bytes. */
errint_t op_encode_head(const struct op *op, struct enc *e);
/* Decodes one head; names, values and ret->write.extents point into `head` or into `scratch` (freed by the caller with free()).
 * payload_data/len: the payload's stored bytes. -EBADMSG: not an operation, or one that breaks a limit or rule above. */
errint_t op_decode(const void *head, size_t head_len, const void *payload_data, size_t payload_len, struct op *ret, void **ret_scratch);
const char *op_kind_text(enum op_kind kind); /* "create", … */
bool op_name_valid(const char *text, size_t len);

/* What apply answered; recorded and replicated. */
struct op_result {
        int32_t error; /* 0 or a negative errno */
        uint64_t ino;  /* CREATE, LINK, ADOPT, RESERVE_INO; of the inode written or changed otherwise */
        uint64_t offset; /* WRITE_APPEND: where the first byte went */
};
