/* tree_internal.h: how a tree lies in memory, and what its parts offer each other. Private to core.
 *
 * An inode is found by number in `inodes`, an entry by (parent, name) in `entries`; a directory has its entries in the order of their
 * cookies, an inode has the list of its names. Every function here that changes something also moves the rolling digest and the byte
 * count along, for inodes that belong to the state; orphans belong to this node alone and are in neither. */
#pragma once

#include "core/tree.h"
#include "ordvec.h"
#include "ptrtab.h"

#include <string.h>
#include <sys/stat.h>

#define COOKIE_DOT     UINT64_C(1)
#define COOKIE_DOT_DOT UINT64_C(2)
#define COOKIE_FIRST   UINT64_C(3)
#define COOKIE_END     (UINT64_MAX >> 2) /* keys of an ordvec have 63 bits */
#define INODE_BYTES    UINT64_C(256)     /* what an inode counts in tree_usage besides names, content and xattrs */

struct inode;
struct entry {
        struct inode *parent, *child;
        uint64_t cookie;
        struct entry *next, *prev; /* other names of the child */
        uint8_t len;
        char name[];
};
struct dir {
        uint64_t next_cookie;
        struct ordvec entries;
};
struct xattrs { /* as tree_xattrs_encode gives: per attribute, in byte order of names: bytes name, bytes value */
        uint32_t len;
        uint8_t data[];
};
enum { INODE_ORPHAN = 1, INODE_PLACEHOLDER = 2 /* restoring: named by an entry, not yet seen itself */ };
struct inode {
        uint64_t ino;
        int64_t atime_sec, mtime_sec, ctime_sec; /* apart from their nanoseconds: no padding */
        uint32_t atime_nsec, mtime_nsec, ctime_nsec;
        uint16_t mode, flags;
        uint32_t uid, gid, nlink, rdev;
        union {
                struct blob *content; /* regular files; symlinks: the target */
                struct dir *dir;      /* directories */
        };
        struct xattrs *xattrs; /* NULL: none */
        struct entry *names;   /* the oldest first; NULL: the root, orphans */
        uint64_t change_seq, content_seq;
};
static_assert(sizeof(struct inode) <= 104, "an inode fits in a malloc chunk of 112 bytes");

struct pin {
        uint64_t ino, count;
};
struct tree {
        struct ptrtab inodes;  /* struct inode, of the state */
        struct ptrtab entries; /* struct entry */
        struct ptrtab orphans; /* struct inode, local */
        struct ptrtab pins;    /* struct pin, local */
        struct ordvec order;   /* struct inode by number */
        struct settings settings;
        uint64_t next_ino, bytes, hash_seed;
        struct hash128 digest;
        bool keep_removed; /* local */
        tree_content_fn content_fn; /* local; NULL: nobody asks */
        void *content_ctx;
};

static inline bool inode_is_dir(const struct inode *in) {
        return S_ISDIR(in->mode);
}
static inline bool inode_has_content(const struct inode *in) {
        return S_ISREG(in->mode) || S_ISLNK(in->mode);
}
static inline bool inode_is_orphan(const struct inode *in) {
        return (in->flags & INODE_ORPHAN) != 0;
}
static inline void inode_set_mtime(struct inode *in, struct timestamp t) {
        in->mtime_sec = t.sec;
        in->mtime_nsec = t.nsec;
}
static inline void inode_set_ctime(struct inode *in, struct timestamp t) {
        in->ctime_sec = t.sec;
        in->ctime_nsec = t.nsec;
}
static inline void inode_set_atime(struct inode *in, struct timestamp t) {
        in->atime_sec = t.sec;
        in->atime_nsec = t.nsec;
}

/* tree.c */
struct inode *inode_find(const struct tree *t, uint64_t ino);     /* of the state */
struct inode *inode_find_any(const struct tree *t, uint64_t ino); /* orphans too */
struct inode *inode_new(uint64_t ino, uint32_t mode);             /* in no tree yet; a directory has its struct dir */
void inode_free(struct inode *in);
void inode_add(struct tree *t, struct inode *in);    /* complete but for its names */
void inode_forget(struct tree *t, struct inode *in); /* last name gone: freed, or an orphan if it is pinned */
uint64_t inode_bytes(const struct inode *in);
uint64_t inode_key(const void *inode);
uint32_t inode_hash(const struct tree *t, uint64_t ino);
void inode_set_content(struct tree *t, struct inode *in, struct blob *content); /* takes the reference */
void inode_set_xattrs(struct tree *t, struct inode *in, struct xattrs *x);      /* takes it; NULL: none */
void orphan_drop(struct tree *t, uint64_t ino);                                 /* if there is one; its pins stay */

/* tree_entry.c */
uint64_t entry_key(const void *entry);
uint32_t entry_hash(const struct tree *t, uint64_t parent, const char *name, size_t len);
struct entry *entry_find(const struct tree *t, uint64_t parent, const char *name, size_t len);
/* Under the parent's next cookie, which it takes; or under a given one while restoring (unsorted then). */
struct entry *entry_add(struct tree *t, struct inode *parent, const char *name, size_t len, struct inode *child);
struct entry *entry_restore(struct tree *t, struct inode *parent, const char *name, size_t len, uint64_t cookie, struct inode *child);
void entry_remove(struct tree *t, struct entry *e);
void entry_retarget(struct tree *t, struct entry *e, struct inode *child); /* the name and its cookie stay */
bool inode_is_below(const struct inode *in, const struct inode *dir);      /* or is it */

/* tree_digest.c: one element each */
struct hash128 digest_inode(const struct inode *in);
struct hash128 digest_content(const struct inode *in);
struct hash128 digest_xattrs(const struct inode *in);
struct hash128 digest_entry(const struct entry *e);
struct hash128 digest_setting(const struct settings *s, const struct setting_info *info);
struct hash128 digest_next_ino(uint64_t next_ino);

/* tree_xattr.c. Making one returns -ENOMEM; sizes are capped by the caller. A NULL x is empty. */
bool xattrs_valid(const uint8_t *p, size_t len);
bool xattrs_find(const struct xattrs *x, const char *name, size_t len, const uint8_t **ret, size_t *ret_len);
errint_t xattrs_copy(const uint8_t *p, size_t len, struct xattrs **ret);
errint_t xattrs_put(const struct xattrs *x, const char *name, size_t len, const uint8_t *value, size_t value_len, struct xattrs **ret);
errint_t xattrs_drop(const struct xattrs *x, const char *name, size_t len, struct xattrs **ret);
static inline size_t xattrs_len(const struct xattrs *x) {
        return x ? x->len : 0;
}

/* tree_acl.c */
#define XATTR_ACL_ACCESS  "system.posix_acl_access"
#define XATTR_ACL_DEFAULT "system.posix_acl_default"
/* What chmod(2) does to an access ACL; false: there is nothing to change (or it is not an ACL). Writes into value. */
bool acl_chmod(uint8_t *value, size_t len, uint32_t mode);

/* --- apply --- */
struct apply {
        struct tree *t;
        const struct op *op;
        uint64_t seq;
        struct change_set *changes; /* NULL: an orphan's */
        struct op_result result;
        errint_t fatal; /* not decided: -ENOMEM, -EBADMSG */
};
/* An inode's attributes are changed between apply_touch and apply_settle; nothing else may touch it in between. */
struct touched {
        struct inode *inode;
        struct hash128 was;
};
struct touched apply_touch(struct inode *in);
void apply_settle(struct apply *a, const struct touched *was);
struct change *apply_change(struct apply *a, enum change_kind kind, const struct inode *in);
void apply_change_entry(struct apply *a, enum change_kind kind, const struct inode *parent, const struct op_name *name,
                        const struct inode *child);
errint_t apply_room(const struct apply *a, uint64_t bytes_more, uint64_t inodes_more); /* -ENOSPC */
errint_t apply_fatal(struct apply *a, errint_t error);
errint_t apply_dir(const struct apply *a, uint64_t ino, struct inode **ret); /* -ENOENT, -ENOTDIR */
void apply_drop_name(struct apply *a, struct inode *child);                  /* a name of it is gone: one link less, or the end of it */
errint_t apply_payload(struct apply *a, const uint8_t **ret, void **ret_scratch);
void apply_whiteout(struct apply *a, struct inode *parent, const struct op_name *name); /* there is room for it */

errint_t apply_rename(struct apply *a);
errint_t apply_write(struct apply *a, struct inode *in);
errint_t apply_setattr(struct apply *a, struct inode *in);
errint_t apply_setxattr(struct apply *a, struct inode *in);
errint_t apply_removexattr(struct apply *a, struct inode *in);
uint32_t mode_without_suid(uint32_t mode);
