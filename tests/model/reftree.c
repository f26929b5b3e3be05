/* reftree.c: the naive tree itself; see reftree.h. reftree_ops.c has the operations, reftree_equal.c the comparison. */
#include "reftree_private.h"

#include <string.h>
#include <sys/stat.h>

struct reftree *reftree_new(void) {
        struct reftree *r = NEW(struct reftree);
        r->files = NEW(struct ref_file);
        r->files->ino = 1;
        r->files->mode = S_IFDIR | 0755;
        r->files->next_cookie = 3;
        r->names = NEW(struct ref_name);
        r->names->path = xstrdup("");
        r->names->file = r->files;
        r->next_ino = 2;
        settings_default(&r->settings);
        return r;
}

void ref_xattrs_free(struct ref_xattr *x) {
        while (x) {
                struct ref_xattr *next = x->next;
                free(x->name);
                free(x->value);
                free(x);
                x = next;
        }
}

static void ref_file_free(struct ref_file *f) {
        ref_xattrs_free(f->xattrs);
        free(f->bytes);
        free(f);
}

void reftree_free(struct reftree *r) {
        if (!r)
                return;
        while (r->names) {
                struct ref_name *n = r->names;
                r->names = n->next;
                free(n->path);
                free(n);
        }
        while (r->files) {
                struct ref_file *f = r->files;
                r->files = f->next;
                ref_file_free(f);
        }
        free(r);
}

static void *copy_bytes(const void *p, size_t n) {
        void *q = xmalloc(n + 1);
        if (n > 0)
                memcpy(q, p, n);
        return q;
}

static struct ref_xattr *copy_xattrs(const struct ref_xattr *x) {
        struct ref_xattr *first = NULL, **end = &first;
        for (; x; x = x->next, end = &(*end)->next) {
                *end = NEW(struct ref_xattr);
                **end = (struct ref_xattr){.name = xstrdup(x->name), .value = copy_bytes(x->value, x->len), .len = x->len};
        }
        return first;
}

struct reftree *reftree_copy(const struct reftree *r) {
        struct reftree *c = NEW(struct reftree);
        struct ref_file **files_end = &c->files;
        struct ref_name **names_end = &c->names;
        c->next_ino = r->next_ino;
        c->settings = r->settings;
        for (const struct ref_file *f = r->files; f; f = f->next, files_end = &(*files_end)->next) {
                *files_end = NEW(struct ref_file);
                **files_end = *f;
                (*files_end)->next = NULL;
                (*files_end)->bytes = copy_bytes(f->bytes, f->size);
                (*files_end)->xattrs = copy_xattrs(f->xattrs);
        }
        for (const struct ref_name *n = r->names; n; n = n->next, names_end = &(*names_end)->next) {
                *names_end = NEW(struct ref_name);
                **names_end = (struct ref_name){.path = xstrdup(n->path), .file = reftree_file(c, n->file->ino), .cookie = n->cookie};
        }
        return c;
}

struct ref_file *reftree_file(const struct reftree *r, uint64_t ino) {
        for (struct ref_file *f = r->files; f; f = f->next)
                if (f->ino == ino)
                        return f;
        return NULL;
}

struct ref_name *reftree_name(const struct reftree *r, const char *path) {
        for (struct ref_name *n = r->names; n; n = n->next)
                if (strcmp(n->path, path) == 0)
                        return n;
        return NULL;
}

const char *ref_path(const struct reftree *r, const struct ref_file *f) {
        for (const struct ref_name *n = r->names; n; n = n->next)
                if (n->file == f)
                        return n->path;
        return NULL;
}

bool ref_is_dir(const struct ref_file *f) {
        return S_ISDIR(f->mode);
}

/* Is `path` a name in the directory `dir`, not deeper? */
bool ref_is_child(const char *path, const char *dir) {
        size_t n = strlen(dir);
        return strncmp(path, dir, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* Is `path` the directory `dir` or anything below it? */
bool ref_is_under(const char *path, const char *dir) {
        size_t n = strlen(dir);
        return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

size_t ref_children(const struct reftree *r, const char *dir, bool dirs_only) {
        size_t count = 0;
        for (const struct ref_name *n = r->names; n; n = n->next)
                if (ref_is_child(n->path, dir) && (!dirs_only || ref_is_dir(n->file)))
                        count++;
        return count;
}

uint32_t reftree_nlink(const struct reftree *r, const struct ref_file *f) {
        if (ref_is_dir(f))
                return 2 + (uint32_t)ref_children(r, ref_path(r, f), true);
        uint32_t count = 0;
        for (const struct ref_name *n = r->names; n; n = n->next)
                count += n->file == f;
        return count;
}

struct ref_name *ref_name_add(struct reftree *r, const char *dir, const struct op_name *name, struct ref_file *f, uint64_t cookie) {
        struct ref_name *n = NEW(struct ref_name), **end = &r->names;
        n->path = ref_join(dir, name);
        n->file = f;
        n->cookie = cookie;
        while (*end)
                end = &(*end)->next;
        *end = n;
        return n;
}

void ref_name_remove(struct reftree *r, struct ref_name *gone) {
        for (struct ref_name **p = &r->names; *p; p = &(*p)->next) {
                if (*p != gone)
                        continue;
                *p = gone->next;
                free(gone->path);
                free(gone);
                return;
        }
        abort();
}

/* A file without names is gone. */
void ref_file_collect(struct reftree *r, struct ref_file *gone) {
        if (ref_path(r, gone))
                return;
        for (struct ref_file **p = &r->files; *p; p = &(*p)->next) {
                if (*p != gone)
                        continue;
                *p = gone->next;
                ref_file_free(gone);
                return;
        }
        abort();
}

struct ref_file *ref_file_add(struct reftree *r, uint64_t ino) {
        struct ref_file *f = NEW(struct ref_file), **end = &r->files;
        f->ino = ino;
        while (*end)
                end = &(*end)->next;
        *end = f;
        return f;
}

char *ref_join(const char *dir, const struct op_name *name) {
        size_t n = strlen(dir);
        char *path = xmalloc(n + 1 + name->len + 1);
        memcpy(path, dir, n);
        path[n] = '/';
        memcpy(path + n + 1, name->text, name->len);
        path[n + 1 + name->len] = '\0';
        return path;
}

/* --- counting --- */

static size_t varint_len(size_t v) {
        return v < 128 ? 1 : v < 16384 ? 2 : 3;
}

size_t ref_xattrs_bytes(const struct ref_xattr *x) {
        size_t sum = 0;
        for (; x; x = x->next)
                sum += varint_len(strlen(x->name)) + strlen(x->name) + varint_len(x->len) + x->len;
        return sum;
}

/* Pieces of 16 KiB that have a byte that is not zero. */
uint64_t ref_allocated(const uint8_t *bytes, size_t size) {
        uint64_t sum = 0;
        for (size_t start = 0; start < size; start += 16384) {
                size_t n = size - start < 16384 ? size - start : 16384;
                for (size_t i = 0; i < n; i++) {
                        if (bytes[start + i] != 0) {
                                sum += n;
                                break;
                        }
                }
        }
        return sum;
}

uint64_t reftree_bytes(const struct reftree *r) {
        uint64_t sum = 0;
        for (const struct ref_file *f = r->files; f; f = f->next)
                sum += 256 + f->allocated + ref_xattrs_bytes(f->xattrs);
        for (const struct ref_name *n = r->names; n; n = n->next)
                if (n->path[0] != '\0')
                        sum += strlen(strrchr(n->path, '/') + 1);
        return sum;
}

size_t ref_inodes(const struct reftree *r) {
        size_t n = 0;
        for (const struct ref_file *f = r->files; f; f = f->next)
                n++;
        return n;
}
