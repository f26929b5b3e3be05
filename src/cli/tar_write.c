/* tar_write.c: a tree as a tar stream (pax): hard links, holes, extended attributes, POSIX ACLs, nanoseconds. Sockets are left out, as tar
 * has none; so are the inode numbers and times of change, which only a backup keeps. */
#include "tar.h"

#include "base/codec.h"
#include <archive.h>
#include <archive_entry.h>
#include <glib.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>

#define ACL_ACCESS  "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"
#define ACL_VERSION 2u /* of the xattr: u32 version; per entry u16 tag, u16 permissions, u32 id (linux/posix_acl_xattr.h) */
#define PIECE       (1u << 20)

void tar_locale(void) {
        (void)setlocale(LC_CTYPE, "C.UTF-8"); /* where it is missing, names that are not ASCII are told as problems */
}

struct name {
        uint64_t parent;
        size_t len;
        char text[LIMIT_NAME + 1];
};
struct writer {
        const struct tree *tree;
        struct archive *a;
        struct tar_counts counts;
        char *path; /* of what is written now, "./a/b" */
        size_t path_len, path_cap;
        GHashTable *first; /* of inodes with several names: number -> path of the first one */
        errint_t err;
        char *fault;
        size_t fault_size;
};

static bool failed(struct writer *w, int code) {
        if (code >= ARCHIVE_WARN || w->err < 0)
                return w->err < 0;
        w->err = -EIO;
        (void)snprintf(w->fault, w->fault_size, "%s",
                       archive_error_string(w->a) ? archive_error_string(w->a) : "the archive cannot be written");
        return true;
}

/* --- attributes */
static int acl_tag(unsigned tag) {
        switch (tag) {
        case 0x01:
                return ARCHIVE_ENTRY_ACL_USER_OBJ;
        case 0x02:
                return ARCHIVE_ENTRY_ACL_USER;
        case 0x04:
                return ARCHIVE_ENTRY_ACL_GROUP_OBJ;
        case 0x08:
                return ARCHIVE_ENTRY_ACL_GROUP;
        case 0x10:
                return ARCHIVE_ENTRY_ACL_MASK;
        case 0x20:
                return ARCHIVE_ENTRY_ACL_OTHER;
        default:
                return 0;
        }
}

static void add_acl(struct archive_entry *entry, int type, const uint8_t *value, size_t len) {
        struct dec d;

        dec_init(&d, value, len);
        if (dec_u32(&d) != ACL_VERSION)
                return;
        while (dec_left(&d) >= 8) {
                int tag = acl_tag(dec_u16(&d));
                int bits = dec_u16(&d) & 7; /* read, write, execute, as libarchive numbers them */
                uint32_t id = dec_u32(&d);
                bool named = tag == ARCHIVE_ENTRY_ACL_USER || tag == ARCHIVE_ENTRY_ACL_GROUP;
                if (tag != 0)
                        (void)archive_entry_acl_add_entry(entry, type, bits, tag, named ? (int)id : -1, NULL);
        }
}

static bool add_xattr(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len) {
        struct archive_entry *entry = ctx;
        char text[LIMIT_XATTR_NAME + 1];

        memcpy(text, name, len);
        text[len] = '\0';
        if (strcmp(text, ACL_ACCESS) == 0)
                add_acl(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, value, value_len);
        else if (strcmp(text, ACL_DEFAULT) == 0)
                add_acl(entry, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, value, value_len);
        else
                archive_entry_xattr_add_entry(entry, text, value, value_len);
        return true;
}

static void add_holes(struct archive_entry *entry, const struct blob *content) {
        uint64_t size = blob_size(content), allocated = blob_allocated(content);
        int64_t at = 0;

        if (allocated >= size)
                return;
        while ((at = blob_next(content, (uint64_t)at, true)) >= 0) {
                int64_t end = blob_next(content, (uint64_t)at, false);
                archive_entry_sparse_add_entry(entry, at, (end < 0 ? (int64_t)size : end) - at);
                if (end < 0)
                        return;
                at = end;
        }
        if (allocated == 0)
                archive_entry_sparse_add_entry(entry, (int64_t)size, 0); /* nothing but a hole */
}

/* --- one name */
static void set_target(struct archive_entry *entry, struct blob *content) {
        char target[LIMIT_PATH + 1];
        size_t n = blob_read(content, 0, target, sizeof(target) - 1);
        target[n] = '\0';
        archive_entry_set_symlink(entry, target);
}

static void fill(struct writer *w, struct archive_entry *entry, const struct tree_inode_state *s) {
        const struct attr *a = &s->attr;

        archive_entry_set_pathname(entry, w->path);
        archive_entry_set_mode(entry, a->mode);
        archive_entry_set_uid(entry, a->uid);
        archive_entry_set_gid(entry, a->gid);
        archive_entry_set_mtime(entry, a->mtime.sec, (long)a->mtime.nsec);
        archive_entry_set_atime(entry, a->atime.sec, (long)a->atime.nsec);
        archive_entry_set_size(entry, S_ISREG(a->mode) ? (int64_t)blob_size(s->content) : 0);
        if (S_ISLNK(a->mode))
                set_target(entry, s->content);
        if (S_ISCHR(a->mode) || S_ISBLK(a->mode))
                archive_entry_set_rdev(entry, a->rdev);
        if (S_ISREG(a->mode))
                add_holes(entry, s->content);
        (void)tree_xattr_each(w->tree, a->ino, add_xattr, entry); /* the inode is there */
}

static void count(struct writer *w, const struct tree_inode_state *s) {
        if (S_ISREG(s->attr.mode)) {
                w->counts.files++;
                w->counts.bytes += blob_size(s->content);
        } else if (S_ISDIR(s->attr.mode)) {
                w->counts.directories++;
        } else if (S_ISLNK(s->attr.mode)) {
                w->counts.symlinks++;
        } else {
                w->counts.others++;
        }
}

static void write_content(struct writer *w, const struct blob *content) {
        cleanup_free uint8_t *buffer = xmalloc(PIECE);
        size_t n;

        for (uint64_t at = 0; (n = blob_read(content, at, buffer, PIECE)) > 0; at += n)
                if (archive_write_data(w->a, buffer, n) < 0) {
                        (void)failed(w, ARCHIVE_FATAL);
                        return;
                }
}

static void write_inode(struct writer *w, uint64_t ino) {
        struct tree_inode_state s;
        struct archive_entry *entry;
        const char *first = NULL;

        w->err = tree_inode_state(w->tree, ino, &s);
        if (w->err < 0)
                return;
        if (S_ISSOCK(s.attr.mode)) {
                w->counts.left_out++;
                return;
        }
        entry = archive_entry_new();
        fill(w, entry, &s);
        if (!S_ISDIR(s.attr.mode) && s.attr.nlink > 1)
                first = g_hash_table_lookup(w->first, &ino);
        if (first) {
                archive_entry_set_hardlink(entry, first);
                archive_entry_unset_size(entry);
                w->counts.links++;
        } else {
                count(w, &s);
        }
        if (!failed(w, archive_write_header(w->a, entry)) && S_ISREG(s.attr.mode) && !first)
                write_content(w, s.content);
        if (!first && !S_ISDIR(s.attr.mode) && s.attr.nlink > 1)
                (void)g_hash_table_insert(w->first, g_memdup2(&ino, sizeof(ino)), g_strdup(w->path));
        archive_entry_free(entry);
}

/* --- all names */
static void path_set(struct writer *w, size_t at, const char *name, size_t len) {
        if (at + len + 2 > w->path_cap) {
                w->path_cap = 2 * (at + len + 2);
                w->path = xrealloc(w->path, w->path_cap);
        }
        w->path[at] = '/';
        memcpy(w->path + at + 1, name, len);
        w->path_len = at + 1 + len;
        w->path[w->path_len] = '\0';
}

struct level { /* of the walk: directories may be nested deeper than a stack should be */
        uint64_t dir, after;
        size_t path_len;
};
struct next_entry {
        bool found;
        uint64_t cookie, ino;
        uint32_t mode;
        size_t len;
        char name[LIMIT_NAME];
};
static bool take_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct next_entry *n = ctx;
        *n = (struct next_entry){.found = true, .cookie = cookie, .ino = ino, .mode = mode, .len = len};
        memcpy(n->name, name, len);
        return false;
}

static void walk(struct writer *w) {
        struct level *stack = NEW(struct level);
        size_t depth = 1;

        stack[0] = (struct level){.dir = 1, .after = 2 /* behind "." and ".." */, .path_len = w->path_len};
        while (depth > 0 && w->err == 0) {
                struct level *top = &stack[depth - 1];
                struct next_entry n = {0};
                w->err = tree_readdir(w->tree, top->dir, top->after, take_entry, &n);
                if (w->err < 0 || !n.found) {
                        depth--;
                        continue;
                }
                top->after = n.cookie;
                path_set(w, top->path_len, n.name, n.len);
                write_inode(w, n.ino);
                if (S_ISDIR(n.mode)) {
                        if ((depth & (depth - 1)) == 0)
                                stack = xrealloc(stack, 2 * depth * sizeof(*stack));
                        stack[depth++] = (struct level){.dir = n.ino, .after = 2, .path_len = w->path_len};
                }
        }
        free(stack);
}

static errint_t open_archive(struct writer *w, int fd) {
        w->a = archive_write_new();
        bool good = w->a && archive_write_set_format_pax(w->a) == ARCHIVE_OK &&
                    archive_write_set_format_option(w->a, "pax", "xattrheader", "SCHILY") == ARCHIVE_OK && /* as GNU tar reads them */
                    archive_write_set_bytes_in_last_block(w->a, 1) == ARCHIVE_OK && archive_write_open_fd(w->a, fd) == ARCHIVE_OK;
        return good ? 0 : -ENOMEM;
}

errint_t tar_write(const struct tree *t, int fd, struct tar_counts *ret, char *fault, size_t fault_size) {
        struct writer w = {.tree = t, .fault = fault, .fault_size = fault_size};

        w.first = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
        (void)snprintf(fault, fault_size, "the tree cannot be read");
        w.err = open_archive(&w, fd);
        if (w.err == 0) {
                w.path = xstrdup(".");
                w.path_len = 1;
                w.path_cap = 2;
                write_inode(&w, 1);
                walk(&w);
                (void)failed(&w, archive_write_close(w.a));
        }
        if (w.a)
                (void)archive_write_free(w.a); /* closed, or given up */
        g_hash_table_destroy(w.first);
        free(w.path);
        *ret = w.counts;
        return w.err;
}
