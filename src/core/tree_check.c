/* tree_check.c: every invariant of a tree, in words. */
#include "tree_internal.h"

#include <stdarg.h>
#include <stdio.h>

struct check {
        const struct tree *t;
        char *fault;
        size_t size;
        uint64_t bytes, entries, names, dirs;
};

static errint_t __attribute__((format(printf, 2, 3))) fault(const struct check *c, const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(c->fault, c->size, fmt, args); /* a cut line is good enough */
        va_end(args);
        return -EBADMSG;
}

#define INO(in) ((uintmax_t)(in)->ino)

static errint_t check_names(struct check *c, const struct inode *in) {
        uint64_t n = 0;
        const struct entry *before = NULL;
        for (const struct entry *e = in->names; e; before = e, e = e->next, n++) {
                if (e->child != in || e->prev != before)
                        return fault(c, "the list of names of inode %ju is broken", INO(in));
                if (inode_find(c->t, e->parent->ino) != e->parent)
                        return fault(c, "inode %ju has a name in a directory that is not in the tree", INO(in));
        }
        c->names += n;
        if (in->ino == INO_ROOT)
                return n == 0 ? 0 : fault(c, "the root has a name");
        if (n == 0)
                return fault(c, "inode %ju has no name", INO(in));
        if (inode_is_dir(in))
                return n == 1 ? 0 : fault(c, "directory %ju has %ju names", INO(in), (uintmax_t)n);
        return n == in->nlink ? 0 : fault(c, "inode %ju has %ju names but nlink %u", INO(in), (uintmax_t)n, in->nlink);
}

static errint_t check_dir(struct check *c, const struct inode *dir) {
        uint32_t subdirs = 0;
        uint64_t before = COOKIE_FIRST - 1, live = 0;
        const struct ordvec *v = &dir->dir->entries;
        for (uint32_t i = v->head; i < v->end; i++) {
                const struct entry *e = ordvec_at(v, i);
                uint64_t cookie = e ? e->cookie : (uint64_t)(v->slots[i] >> 1);
                if (cookie <= before || cookie >= dir->dir->next_cookie)
                        return fault(c, "directory %ju: cookie %ju is out of order", INO(dir), (uintmax_t)cookie);
                before = cookie;
                if (!e)
                        continue;
                live++;
                if (e->parent != dir || !op_name_valid(e->name, e->len))
                        return fault(c, "directory %ju: entry %ju is damaged", INO(dir), (uintmax_t)cookie);
                if (entry_find(c->t, dir->ino, e->name, e->len) != e)
                        return fault(c, "directory %ju: the name of entry %ju is there twice or not found", INO(dir), (uintmax_t)cookie);
                if (inode_find(c->t, e->child->ino) != e->child)
                        return fault(c, "directory %ju: entry %ju names an inode that is not in the tree", INO(dir), (uintmax_t)cookie);
                subdirs += inode_is_dir(e->child);
                c->bytes += e->len;
        }
        c->entries += live;
        if (live != v->live)
                return fault(c, "directory %ju has %ju entries but counts %u", INO(dir), (uintmax_t)live, v->live);
        return dir->nlink == 2 + subdirs ? 0 : fault(c, "directory %ju has %u subdirectories but nlink %u", INO(dir), subdirs, dir->nlink);
}

static errint_t check_inode(struct check *c, const struct inode *in) {
        uint32_t type = in->mode & S_IFMT;
        if (in->ino >= c->t->next_ino)
                return fault(c, "inode %ju is not below the next number, %ju", INO(in), (uintmax_t)c->t->next_ino);
        if (inode_find(c->t, in->ino) != in || in->flags != 0)
                return fault(c, "inode %ju is not found or wrongly marked", INO(in));
        if (type != S_IFREG && type != S_IFDIR && type != S_IFLNK && type != S_IFIFO && type != S_IFSOCK && type != S_IFBLK &&
            type != S_IFCHR)
                return fault(c, "inode %ju has mode %o", INO(in), in->mode);
        if (in->atime_nsec > 999999999u || in->mtime_nsec > 999999999u || in->ctime_nsec > 999999999u)
                return fault(c, "inode %ju has a bad time", INO(in));
        if (type == S_IFLNK && !in->content)
                return fault(c, "symlink %ju has no target", INO(in));
        if (!inode_is_dir(in) && !inode_has_content(in) && in->content)
                return fault(c, "inode %ju must have no content", INO(in));
        if (in->xattrs && (in->xattrs->len == 0 || !xattrs_valid(in->xattrs->data, in->xattrs->len)))
                return fault(c, "inode %ju has damaged attributes", INO(in));
        c->bytes += inode_bytes(in);
        errint_t r = check_names(c, in);
        if (r < 0 || !inode_is_dir(in))
                return r;
        c->dirs++;
        return check_dir(c, in);
}

/* Every directory can be reached from the root: the others would be a ring. */
static errint_t check_reachable(const struct check *c) {
        cleanup_free const struct inode **stack = xmalloc((size_t)(c->dirs + 1) * sizeof(struct inode *));
        uint64_t depth = 0, seen = 0;
        stack[depth++] = inode_find(c->t, INO_ROOT);
        while (depth > 0) {
                const struct inode *dir = stack[--depth];
                seen++;
                for (uint32_t i = dir->dir->entries.head; i < dir->dir->entries.end; i++) {
                        const struct entry *e = ordvec_at(&dir->dir->entries, i);
                        if (e && inode_is_dir(e->child))
                                stack[depth++] = e->child; /* each once: it has one name, so there is room */
                }
        }
        return seen == c->dirs ? 0 : fault(c, "%ju directories cannot be reached from the root", (uintmax_t)(c->dirs - seen));
}

static errint_t check_local(const struct check *c) {
        const struct tree *t = c->t;
        for (uint32_t i = 0; i < t->orphans.cap; i++) {
                const struct inode *in = t->orphans.slots[i];
                if (in && (!inode_is_orphan(in) || in->nlink != 0 || in->names || inode_find(t, in->ino)))
                        return fault(c, "orphan %ju is not one", INO(in));
        }
        uint64_t orphans = 0;
        for (uint32_t i = 0; i < t->pins.cap; i++) {
                const struct pin *p = t->pins.slots[i];
                if (!p)
                        continue;
                if (p->count == 0 || !inode_find_any(t, p->ino))
                        return fault(c, "inode %ju is pinned but does not exist", (uintmax_t)p->ino);
                orphans += tree_is_orphan(t, p->ino);
        }
        return orphans == t->orphans.n ? 0 : fault(c, "%u orphans, of which %ju are pinned", t->orphans.n, (uintmax_t)orphans);
}

static errint_t check_sums(const struct check *c) {
        const struct tree *t = c->t;
        if (c->entries != t->entries.n || c->names != t->entries.n)
                return fault(c, "%u entries in the table, %ju in directories, %ju as names", t->entries.n, (uintmax_t)c->entries,
                             (uintmax_t)c->names);
        if (c->bytes != t->bytes)
                return fault(c, "%ju bytes counted, %ju found", (uintmax_t)t->bytes, (uintmax_t)c->bytes);
        if (!hash128_equal(t->digest, tree_digest_recompute(t)))
                return fault(c, "the rolling digest differs from the recomputed one");
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                uint64_t value = settings_get(&t->settings, info);
                if (value < info->min || value > info->max)
                        return fault(c, "setting %s is %ju", info->name, (uintmax_t)value);
        }
        return 0;
}

errint_t tree_check(const struct tree *t, char *ret_fault, size_t fault_size) {
        struct check c = {.t = t, .fault = ret_fault, .size = fault_size};
        const struct inode *root = inode_find(t, INO_ROOT);
        if (!root || !inode_is_dir(root))
                return fault(&c, "there is no root directory");
        uint64_t before = 0, live = 0;
        for (uint32_t i = t->order.head; i < t->order.end; i++) {
                const struct inode *in = ordvec_at(&t->order, i);
                uint64_t ino = in ? in->ino : (uint64_t)(t->order.slots[i] >> 1);
                if (ino <= before)
                        return fault(&c, "inode %ju is out of order", (uintmax_t)ino);
                before = ino;
                errint_t r = in ? check_inode(&c, in) : 0;
                if (r < 0)
                        return r;
                live += in != NULL;
        }
        if (live != t->order.live || live != t->inodes.n)
                return fault(&c, "%u inodes in the table, %ju in order", t->inodes.n, (uintmax_t)live);
        errint_t r = check_reachable(&c);
        if (r == 0)
                r = check_local(&c);
        return r < 0 ? r : check_sums(&c);
}
