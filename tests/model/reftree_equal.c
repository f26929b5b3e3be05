/* reftree_equal.c: is a tree what the reference tree says? */
#include "reftree_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct out {
        char *text;
        size_t size;
};

static bool __attribute__((format(printf, 2, 3))) differs(const struct out *o, const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(o->text, o->size, fmt, args); /* a cut line is good enough */
        va_end(args);
        return false;
}

static bool time_equal(struct timestamp a, struct timestamp b) {
        return a.sec == b.sec && a.nsec == b.nsec;
}

static bool equal_attr(const struct reftree *r, const struct ref_file *f, const struct attr *a, const struct out *o) {
        uintmax_t ino = f->ino;
        if (a->ino != f->ino || a->mode != f->mode || a->uid != f->uid || a->gid != f->gid || a->rdev != f->rdev)
                return differs(o, "inode %ju: mode %o uid %u gid %u, expected %o %u %u", ino, a->mode, a->uid, a->gid, f->mode, f->uid,
                               f->gid);
        if (a->nlink != reftree_nlink(r, f))
                return differs(o, "inode %ju: nlink %u, expected %u", ino, a->nlink, reftree_nlink(r, f));
        if (a->size != f->size)
                return differs(o, "inode %ju: size %ju, expected %zu", ino, (uintmax_t)a->size, f->size);
        if (a->blocks != (ref_allocated(f->bytes, f->size) + 511) / 512)
                return differs(o, "inode %ju: %ju blocks", ino, (uintmax_t)a->blocks);
        if (!time_equal(a->atime, f->atime))
                return differs(o, "inode %ju: atime %jd, expected %jd", ino, (intmax_t)a->atime.sec, (intmax_t)f->atime.sec);
        if (!time_equal(a->mtime, f->mtime))
                return differs(o, "inode %ju: mtime %jd, expected %jd", ino, (intmax_t)a->mtime.sec, (intmax_t)f->mtime.sec);
        if (!time_equal(a->ctime, f->ctime))
                return differs(o, "inode %ju: ctime %jd, expected %jd", ino, (intmax_t)a->ctime.sec, (intmax_t)f->ctime.sec);
        return true;
}

static bool equal_content(const struct ref_file *f, const struct tree *t, const struct out *o) {
        if (!S_ISREG(f->mode) && !S_ISLNK(f->mode))
                return true;
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        if (tree_content(t, f->ino, &b) < 0 || blob_size(b) != f->size)
                return differs(o, "inode %ju: content is missing or cut", (uintmax_t)f->ino);
        cleanup_free uint8_t *got = xmalloc(f->size + 1);
        if (blob_read(b, 0, got, f->size + 1) != f->size || memcmp(got, f->bytes, f->size) != 0)
                return differs(o, "inode %ju: other content", (uintmax_t)f->ino);
        return true;
}

struct xattr_walk {
        const struct ref_xattr *next;
        bool same;
};
static bool xattr_same(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len) {
        struct xattr_walk *w = ctx;
        const struct ref_xattr *x = w->next;
        w->same = x && strlen(x->name) == len && memcmp(x->name, name, len) == 0 && x->len == value_len &&
                  memcmp(x->value, value, value_len) == 0;
        w->next = x ? x->next : NULL;
        return w->same;
}

bool reftree_equal_file(const struct reftree *r, const struct ref_file *f, const struct tree *t, char *ret_what, size_t size) {
        struct out o = {ret_what, size};
        struct attr a;
        if (tree_getattr(t, f->ino, &a) < 0)
                return differs(&o, "inode %ju is missing", (uintmax_t)f->ino);
        if (!equal_attr(r, f, &a, &o) || !equal_content(f, t, &o))
                return false;
        struct xattr_walk w = {f->xattrs, true};
        if (tree_xattr_each(t, f->ino, xattr_same, &w) < 0 || !w.same || w.next)
                return differs(&o, "inode %ju: other attributes", (uintmax_t)f->ino);
        return true;
}

/* The children of a directory, sorted by cookie by looking for the smallest one again and again. */
struct dir_walk {
        const struct reftree *r;
        const char *dir;
        uint64_t last;
        size_t seen;
        bool same;
};
static bool entry_same(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct dir_walk *w = ctx;
        if (cookie < 3)
                return true;
        const struct ref_name *next = NULL;
        for (const struct ref_name *n = w->r->names; n; n = n->next)
                if (ref_is_child(n->path, w->dir) && n->cookie > w->last && (!next || n->cookie < next->cookie))
                        next = n;
        w->same = next && next->cookie == cookie && next->file->ino == ino && next->file->mode == mode &&
                  strlen(strrchr(next->path, '/') + 1) == len && memcmp(strrchr(next->path, '/') + 1, name, len) == 0;
        w->last = cookie;
        w->seen++;
        return w->same;
}

static bool equal_dirs(const struct reftree *r, const struct tree *t, const struct out *o) {
        for (const struct ref_name *n = r->names; n; n = n->next) {
                if (!ref_is_dir(n->file))
                        continue;
                struct dir_walk w = {.r = r, .dir = n->path, .same = true};
                if (tree_readdir(t, n->file->ino, 0, entry_same, &w) < 0 || !w.same || w.seen != ref_children(r, n->path, false))
                        return differs(o, "directory \"%s\" lists other entries (%zu seen)", n->path, w.seen);
        }
        return true;
}

/* Walks down the path of each name, and up again with tree_path. */
static bool equal_paths(const struct reftree *r, const struct tree *t, const struct out *o) {
        for (const struct ref_name *n = r->names; n; n = n->next) {
                uint64_t ino = INO_ROOT;
                for (const char *p = n->path; *p; p = strchr(p + 1, '/') ? strchr(p + 1, '/') : p + strlen(p)) {
                        const char *end = strchr(p + 1, '/');
                        size_t len = end ? (size_t)(end - p - 1) : strlen(p + 1);
                        if (tree_lookup(t, ino, p + 1, len, &ino) < 0)
                                return differs(o, "\"%s\" is not found", n->path);
                }
                if (ino != n->file->ino)
                        return differs(o, "\"%s\" is inode %ju, expected %ju", n->path, (uintmax_t)ino, (uintmax_t)n->file->ino);
                cleanup_free char *path = xmalloc(65536);
                if (tree_path(t, ino, path, 65536) < 0)
                        return differs(o, "inode %ju has no path", (uintmax_t)ino);
                const struct ref_name *back = reftree_name(r, strcmp(path, "/") == 0 ? "" : path);
                if (!back || back->file->ino != ino)
                        return differs(o, "inode %ju has the wrong path \"%s\"", (uintmax_t)ino, path);
        }
        return true;
}

struct inode_walk {
        const struct reftree *r;
        uint64_t last;
        size_t seen;
        bool same;
};
static bool inode_same(void *ctx, const struct tree_inode_state *s) {
        struct inode_walk *w = ctx;
        const struct ref_file *f = reftree_file(w->r, s->attr.ino);
        w->same = f && s->attr.ino > w->last && s->next_cookie == f->next_cookie;
        w->last = s->attr.ino;
        w->seen++;
        return w->same;
}

bool reftree_equal(const struct reftree *r, const struct tree *t, char *ret_what, size_t size) {
        struct out o = {ret_what, size};
        for (const struct ref_file *f = r->files; f; f = f->next)
                if (!reftree_equal_file(r, f, t, ret_what, size))
                        return false;
        struct inode_walk w = {.r = r, .same = true};
        tree_each_inode(t, 0, inode_same, &w);
        if (!w.same || w.seen != ref_inodes(r))
                return differs(&o, "inodes: %zu seen, %zu expected, stopped at %ju", w.seen, ref_inodes(r), (uintmax_t)w.last);
        struct tree_usage u;
        tree_usage(t, &u);
        if (u.bytes != reftree_bytes(r) || u.inodes != ref_inodes(r) || u.next_ino != r->next_ino)
                return differs(&o, "%ju bytes in use, expected %ju", (uintmax_t)u.bytes, (uintmax_t)reftree_bytes(r));
        if (memcmp(tree_settings(t), &r->settings, sizeof(r->settings)) != 0)
                return differs(&o, "other settings");
        return equal_dirs(r, t, &o) && equal_paths(r, t, &o);
}
