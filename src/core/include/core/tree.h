/* tree.h: the tree itself: inodes, directory entries, content, xattrs, settings; and apply, the one way to change it.
 *
 * PURE: no I/O, clock, randomness, threads. The tree does not lock: whoever shares it between threads holds a lock around calls
 * (many readers with const struct tree *, one writer). Content comes out as blobs, which need no lock.
 *
 * Inode numbers come from a counter that is part of the state, are the same on all nodes and never reused. */
#pragma once

#include "core/change.h"
#include "core/op.h"
#include "core/settings.h"

struct tree;
struct tree *tree_new(void); /* an empty tree: the root directory (ino 1, mode 0755, root:root, times 0), default settings, next ino 2 */
void tree_free(struct tree *t);
/* Right after tree_new or tree_restore_begin: seeds the hash tables, so that nobody can choose names that collide. Changes nothing that
 * can be seen. */
void tree_hash_seed(struct tree *t, uint64_t seed);
uint64_t tree_hash_seed_of(const struct tree *t); /* for a tree that is to take this one's place */
DEFINE_FREEP(tree_free, struct tree)

/* Applies op at position `seq`. Deterministic in everything but blobs' memory layout. Returns 0 when the operation was decided
 * (result.error tells how: all checks are made here, before anything changes), -ENOMEM or -EBADMSG (a payload that does not
 * decompress) when it could not be: then nothing changed and the node must leave. `changes` is reset first. */
errint_t tree_apply(struct tree *t, const struct op *op, uint64_t seq, struct change_set *changes, struct op_result *ret);

/* --- reading ---- -ENOENT: no such inode (ESTALE is the caller's word for it) */
errint_t tree_getattr(const struct tree *t, uint64_t ino, struct attr *ret);
errint_t tree_lookup(const struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_ino); /* "." and ".." work; -ENOTDIR, -ENAMETOOLONG */
errint_t tree_content(const struct tree *t, uint64_t ino, struct blob **ret); /* a new reference; also a symlink's target */
/* Entries with cookie > after, in cookie order (that of creation). The callback returns false to stop. Cookies are stable and >= 3;
 * "." (1) and ".." (2) are given as entries too. O(log n) to start, O(1) per entry. A removed directory that is pinned: -ENOENT. A name that a
 * rename replaces or exchanges keeps its cookie. */
typedef bool (*tree_entry_fn)(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode);
errint_t tree_readdir(const struct tree *t, uint64_t dir, uint64_t after, tree_entry_fn fn, void *ctx);
errint_t tree_xattr_get(const struct tree *t, uint64_t ino, const char *name, size_t len, const uint8_t **ret, size_t *ret_len); /* valid until the next apply; -ENODATA */
typedef bool (*tree_xattr_fn)(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len);
errint_t tree_xattr_each(const struct tree *t, uint64_t ino, tree_xattr_fn fn, void *ctx); /* in byte order of names */
errint_t tree_xattrs_encode(const struct tree *t, uint64_t ino, struct enc *e);
/* A path of an inode ("/a/b"; one of several for hard links; orphans have none: -ENOENT). Writes at most size bytes with the NUL. */
errint_t tree_path(const struct tree *t, uint64_t ino, char *buf, size_t size);

struct tree_usage {
        uint64_t inodes, bytes;          /* in use: bytes counts allocated content plus names, xattrs and a fixed 256 bytes per inode */
        uint64_t inodes_max, bytes_max;  /* enforced by apply: -ENOSPC */
        uint64_t next_ino;
};
void tree_usage(const struct tree *t, struct tree_usage *ret);
const struct settings *tree_settings(const struct tree *t);

/* --- pins and orphans: local to a node, not part of the state. A pinned inode whose last name goes lives on as an orphan (nlink 0,
 * readable, writable by tree_apply_orphan) until the last unpin. */
errint_t tree_pin(struct tree *t, uint64_t ino);
/* From now on the end of its last name pins an inode once, for whoever follows the change sets: a tree_unpin is due for each
 * CHANGE_INODE_GONE, at once or when nobody can come back to the inode by its number. */
void tree_keep_removed(struct tree *t);
/* From now on called right before the content of a file is changed by the operation seq (not of an orphan): with what it is like till then. */
typedef void (*tree_content_fn)(void *ctx, uint64_t seq, const struct attr *was, struct blob *content);
void tree_watch_content(struct tree *t, tree_content_fn fn, void *ctx);
void tree_unpin(struct tree *t, uint64_t ino);
bool tree_is_orphan(const struct tree *t, uint64_t ino);
errint_t tree_orphan_new(struct tree *t, const struct attr *attr); /* O_TMPFILE: pinned once; attr.ino from OP_RESERVE_INO */
/* WRITE, SETATTR, SETXATTR, REMOVEXATTR on an orphan; no position, no change set, no digest. */
errint_t tree_apply_orphan(struct tree *t, const struct op *op, struct op_result *ret);

/* --- digest of the tree: rolling, and recomputed from scratch; both always agree. Covers inodes, entries, content, xattrs, settings,
 * next ino; nothing local. */
struct hash128 tree_digest(const struct tree *t);
struct hash128 tree_digest_recompute(const struct tree *t);

/* --- capturing and restoring, for the store and for state transfer. Iteration is in order of ino (entries: parent, cookie). */
struct tree_inode_state {
        struct attr attr;
        struct blob *content;       /* borrowed while iterating; take a reference to keep it */
        uint64_t parent;            /* directories: the parent; else 0 */
        uint64_t next_cookie;       /* directories */
};
errint_t tree_inode_state(const struct tree *t, uint64_t ino, struct tree_inode_state *ret);
typedef bool (*tree_inode_fn)(void *ctx, const struct tree_inode_state *inode);
void tree_each_inode(const struct tree *t, uint64_t from_ino, tree_inode_fn fn, void *ctx);
errint_t tree_entry_cookie(const struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_ino, uint64_t *ret_cookie);

/* Building a tree from stored state: any order of inodes and entries (a child may come before its parent). After restore_begin the
 * tree is empty (not even a root). tree_restore_end checks everything (root, types, nlink, reachability, duplicate names, cookies,
 * limits are not enforced) and names the first fault; the tree must be freed then. */
struct tree *tree_restore_begin(void);
errint_t tree_restore_inode(struct tree *t, const struct tree_inode_state *inode, const uint8_t *xattrs, size_t xattrs_len); /* takes a reference of content; -EEXIST, -EBADMSG */
errint_t tree_restore_entry(struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t ino, uint64_t cookie);
errint_t tree_restore_setting(struct tree *t, const char *name, size_t name_len, const char *text, size_t text_len);
errint_t tree_restore_end(struct tree *t, uint64_t next_ino, char *ret_fault, size_t fault_size);
/* Every invariant of a live tree; 0 or -EBADMSG with a line in ret_fault. For tests, `coterie check` and the simulator. */
errint_t tree_check(const struct tree *t, char *ret_fault, size_t fault_size);
