/* change.h: what one apply changed. The change set alone drives the store, kernel invalidation, the event feed and metrics.
 *
 * A set owns its items and the names in them; it is reused (change_set_reset keeps the memory). An operation that was refused or
 * that changed nothing leaves it empty. Order: as the change happened; an ENTRY_ADD of a new inode comes after its INODE_NEW. */
#pragma once

#include "core/attr.h"

enum change_kind {
        CHANGE_INODE_NEW = 1, /* ino */
        CHANGE_ATTR = 2,      /* ino: mode, owner, times, nlink */
        CHANGE_CONTENT = 3,   /* ino, offset, length (length UINT64_MAX: to the end), whole: no byte of the old version remains */
        CHANGE_XATTR = 4,     /* ino */
        CHANGE_INODE_GONE = 5, /* ino: last name gone (a pinned inode lives on, locally, as an orphan) */
        CHANGE_ENTRY_ADD = 6, /* parent, name, ino */
        CHANGE_ENTRY_DEL = 7, /* parent, name, ino */
        CHANGE_SETTING = 8    /* name */
};
struct change {
        enum change_kind kind;
        uint64_t ino, parent;
        uint64_t offset, length;
        uint64_t size;    /* of ino's content (a symlink's: its target), after the change */
        const char *name; /* name_len bytes, zero-terminated for convenience */
        uint16_t name_len;
        bool whole;
        bool is_dir;
};
struct change_set {
        struct change *items;
        size_t n;
        /* private */
        size_t cap_;
        void *names_;
};
void change_set_init(struct change_set *s);
void change_set_done(struct change_set *s);
void change_set_reset(struct change_set *s);
void change_set_copy(struct change_set *to, const struct change_set *from);
/* For tree.c alone. */
struct change *change_set_add(struct change_set *s, enum change_kind kind, uint64_t ino);
void change_set_name(struct change_set *s, struct change *c, const char *name, size_t len);
