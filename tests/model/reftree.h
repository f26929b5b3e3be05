/* reftree.h: what a tree must do, written a second time and as naively as possible: one linked list of whole paths, one of files with
 * their bytes in a flat buffer; whatever can be counted is counted anew each time. Slow, meant for some hundred names. It shares no
 * code with src/core but the operation's struct, the settings table and zstd.
 *
 * Used by the model test, and wherever a checker needs to know what a history of operations must have led to. */
#pragma once

#include "core/op.h"
#include "core/settings.h"
#include "core/tree.h"

struct ref_xattr {
        struct ref_xattr *next;
        char *name; /* zero-terminated: no name has a NUL */
        uint8_t *value;
        size_t len;
};
struct ref_file {
        struct ref_file *next;
        uint64_t ino;
        uint32_t mode, uid, gid, rdev;
        struct timestamp atime, mtime, ctime;
        uint8_t *bytes; /* content, or a symlink's target */
        size_t size;
        uint64_t allocated;       /* counted when the content was set: counting all content at each operation is too slow */
        struct ref_xattr *xattrs; /* sorted */
        uint64_t next_cookie;     /* directories */
};
struct ref_name {
        struct ref_name *next;
        char *path; /* "" is the root, "/a/b" */
        struct ref_file *file;
        uint64_t cookie;
};
struct reftree {
        struct ref_name *names;
        struct ref_file *files;
        uint64_t next_ino;
        struct settings settings;
};

struct reftree *reftree_new(void);
void reftree_free(struct reftree *r);
struct reftree *reftree_copy(const struct reftree *r);
/* The answer that tree_apply must give, and the change it must make. The operation must have no compressed payload that is damaged. */
void reftree_apply(struct reftree *r, const struct op *op, struct op_result *ret);

struct ref_file *reftree_file(const struct reftree *r, uint64_t ino);     /* NULL: not there */
struct ref_name *reftree_name(const struct reftree *r, const char *path); /* NULL: not there */
uint32_t reftree_nlink(const struct reftree *r, const struct ref_file *f);
uint64_t reftree_bytes(const struct reftree *r); /* as tree_usage counts */
bool reftree_equal_file(const struct reftree *r, const struct ref_file *f, const struct tree *t, char *ret_what, size_t size);
/* Compares everything: files, attributes, content, xattrs, names, readdir, paths, usage, settings. False: the first difference in words. */
bool reftree_equal(const struct reftree *r, const struct tree *t, char *ret_what, size_t size);
