/* tree_restore.c: a tree from what a store or another member had, in any order. What comes from outside is checked here, as soon as it
 * can be: each inode by itself, each entry by itself, and at the end how they fit together (tree_check). */
#include "tree_internal.h"

#include <stdarg.h>
#include <stdio.h>

static void restore_insert(struct tree *t, struct inode *in) {
        ptrtab_insert(&t->inodes, inode_hash(t, in->ino), in);
        ordvec_append_unsorted(&t->order, in);
}

/* The inode, or a placeholder until it comes. */
static struct inode *restore_find(struct tree *t, uint64_t ino) {
        struct inode *in = inode_find(t, ino);
        if (!in) {
                in = inode_new(ino, 0);
                in->flags = INODE_PLACEHOLDER;
                restore_insert(t, in);
        }
        return in;
}

static bool attr_valid(const struct tree_inode_state *s) {
        const struct attr *a = &s->attr;
        uint32_t type = a->mode & S_IFMT;
        bool device = type == S_IFCHR || type == S_IFBLK, content = type == S_IFREG || type == S_IFLNK;
        if (a->ino < INO_ROOT || a->ino >= INO_RESERVED || (a->mode & ~(uint32_t)(S_IFMT | 07777)) != 0)
                return false;
        if (!device && !content && type != S_IFDIR && type != S_IFIFO && type != S_IFSOCK)
                return false;
        if (a->atime.nsec > 999999999u || a->mtime.nsec > 999999999u || a->ctime.nsec > 999999999u)
                return false;
        if (a->nlink == 0 || (!device && a->rdev != 0) || a->size != blob_size(s->content) || (!content && s->content))
                return false;
        if (type == S_IFLNK && (a->size == 0 || a->size >= LIMIT_PATH))
                return false;
        return type == S_IFDIR ? s->next_cookie >= COOKIE_FIRST && s->next_cookie <= COOKIE_END : s->next_cookie == 0;
}

/* Entries may have made it a directory already. */
static bool placeholder_becomes(struct inode *in, uint32_t mode) {
        if (inode_is_dir(in) && !S_ISDIR(mode))
                return false;
        if (!inode_is_dir(in) && S_ISDIR(mode))
                in->dir = NEW(struct dir);
        in->mode = (uint16_t)mode;
        in->flags = 0;
        return true;
}

errint_t tree_restore_inode(struct tree *t, const struct tree_inode_state *s, const uint8_t *xattrs, size_t xattrs_len) {
        const struct attr *a = &s->attr;
        if (!attr_valid(s) || !xattrs_valid(xattrs, xattrs_len))
                return -EBADMSG;
        struct inode *in = inode_find(t, a->ino);
        if (in && !(in->flags & INODE_PLACEHOLDER))
                return -EEXIST;
        cleanup_free struct xattrs *x = NULL;
        errint_t r = xattrs_copy(xattrs, xattrs_len, &x);
        if (r < 0)
                return r;
        in = restore_find(t, a->ino);
        if (!placeholder_becomes(in, a->mode))
                return -EBADMSG;
        in->uid = a->uid;
        in->gid = a->gid;
        in->nlink = a->nlink;
        in->rdev = a->rdev;
        inode_set_atime(in, a->atime);
        inode_set_mtime(in, a->mtime);
        inode_set_ctime(in, a->ctime);
        in->xattrs = steal_pointer(&x);
        if (inode_is_dir(in))
                in->dir->next_cookie = s->next_cookie;
        else
                in->content = blob_ref(s->content);
        return 0;
}

errint_t tree_restore_entry(struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t ino, uint64_t cookie) {
        if (!op_name_valid(name, len) || cookie < COOKIE_FIRST || cookie >= COOKIE_END)
                return -EBADMSG;
        if (parent < INO_ROOT || parent >= INO_RESERVED || ino <= INO_ROOT || ino >= INO_RESERVED)
                return -EBADMSG;
        if (entry_find(t, parent, name, len))
                return -EEXIST;
        struct inode *dir = restore_find(t, parent);
        if (dir->flags & INODE_PLACEHOLDER && !inode_is_dir(dir)) {
                dir->mode = S_IFDIR;
                dir->dir = NEW(struct dir);
        }
        if (!inode_is_dir(dir))
                return -EBADMSG;
        (void)entry_restore(t, dir, name, len, cookie, restore_find(t, ino));
        return 0;
}

errint_t tree_restore_setting(struct tree *t, const char *name, size_t name_len, const char *text, size_t text_len) {
        return settings_set(&t->settings, name, name_len, text, text_len) < 0 ? -EBADMSG : 0;
}

static errint_t __attribute__((format(printf, 3, 4))) fault_at(char *out, size_t size, const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(out, size, fmt, args); /* a cut line is good enough */
        va_end(args);
        return -EBADMSG;
}

errint_t tree_restore_end(struct tree *t, uint64_t next_ino, char *ret_fault, size_t fault_size) {
        if (next_ino <= INO_ROOT || next_ino > INO_RESERVED)
                return fault_at(ret_fault, fault_size, "next inode number %ju is out of range", (uintmax_t)next_ino);
        t->next_ino = next_ino;
        (void)ordvec_sort(&t->order, inode_key); /* numbers are unique: the table says so */
        uint64_t bytes = 0;
        for (uint32_t i = t->order.head; i < t->order.end; i++) {
                struct inode *in = ordvec_at(&t->order, i);
                if (in->flags & INODE_PLACEHOLDER)
                        return fault_at(ret_fault, fault_size, "an entry names inode %ju, which does not exist", (uintmax_t)in->ino);
                bytes += inode_bytes(in);
                if (inode_is_dir(in) && !ordvec_sort(&in->dir->entries, entry_key))
                        return fault_at(ret_fault, fault_size, "directory %ju has two entries with one cookie", (uintmax_t)in->ino);
                for (const struct entry *e = in->names; e; e = e->next)
                        bytes += e->len;
        }
        t->bytes = bytes;
        t->digest = tree_digest_recompute(t);
        return tree_check(t, ret_fault, fault_size);
}
