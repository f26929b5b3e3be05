/* tree_read.c: looking at a tree without changing it. */
#include "tree_internal.h"

static void inode_attr(const struct inode *in, struct attr *ret) {
        bool content = inode_has_content(in);
        *ret = (struct attr){
                .ino = in->ino,
                .size = content ? blob_size(in->content) : 0,
                .blocks = content ? (blob_allocated(in->content) + 511) / 512 : 0,
                .atime = {in->atime_sec, in->atime_nsec},
                .mtime = {in->mtime_sec, in->mtime_nsec},
                .ctime = {in->ctime_sec, in->ctime_nsec},
                .mode = in->mode,
                .uid = in->uid,
                .gid = in->gid,
                .nlink = in->nlink,
                .rdev = in->rdev,
                .change_seq = in->change_seq,
                .content_seq = in->content_seq,
        };
}

errint_t tree_getattr(const struct tree *t, uint64_t ino, struct attr *ret) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        inode_attr(in, ret);
        return 0;
}

static const struct inode *dir_parent(const struct inode *dir) {
        return dir->names ? dir->names->parent : dir;
}

/* A directory of the state. A removed one that is still pinned exists (ENOENT for what is in it), as on Linux. */
static errint_t dir_find(const struct tree *t, uint64_t ino, const struct inode **ret) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        if (!inode_is_dir(in))
                return -ENOTDIR;
        if (inode_is_orphan(in))
                return -ENOENT;
        *ret = in;
        return 0;
}

errint_t tree_lookup(const struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_ino) {
        const struct inode *dir = NULL;
        errint_t r = dir_find(t, parent, &dir);
        if (r < 0)
                return r;
        if (len > LIMIT_NAME)
                return -ENAMETOOLONG;
        if (len == 1 && name[0] == '.') {
                *ret_ino = dir->ino;
                return 0;
        }
        if (len == 2 && name[0] == '.' && name[1] == '.') {
                *ret_ino = dir_parent(dir)->ino;
                return 0;
        }
        const struct entry *e = entry_find(t, parent, name, len);
        if (!e)
                return -ENOENT;
        *ret_ino = e->child->ino;
        return 0;
}

errint_t tree_entry_cookie(const struct tree *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_ino, uint64_t *ret_cookie) {
        const struct inode *dir = NULL;
        errint_t r = dir_find(t, parent, &dir);
        if (r < 0)
                return r;
        const struct entry *e = entry_find(t, parent, name, len);
        if (!e)
                return -ENOENT;
        *ret_ino = e->child->ino;
        *ret_cookie = e->cookie;
        return 0;
}

errint_t tree_content(const struct tree *t, uint64_t ino, struct blob **ret) {
        const struct inode *in = inode_find_any(t, ino);
        if (!in)
                return -ENOENT;
        if (!inode_has_content(in))
                return inode_is_dir(in) ? -EISDIR : -EINVAL;
        *ret = blob_ref(in->content);
        return 0;
}

errint_t tree_readdir(const struct tree *t, uint64_t dir, uint64_t after, tree_entry_fn fn, void *ctx) {
        const struct inode *in = NULL;
        errint_t r = dir_find(t, dir, &in);
        if (r < 0)
                return r;
        const struct inode *up = dir_parent(in);
        if (after < COOKIE_DOT && !fn(ctx, COOKIE_DOT, ".", 1, in->ino, in->mode))
                return 0;
        if (after < COOKIE_DOT_DOT && !fn(ctx, COOKIE_DOT_DOT, "..", 2, up->ino, up->mode))
                return 0;
        const struct ordvec *v = &in->dir->entries;
        if (after >= COOKIE_END)
                return 0;
        for (uint32_t i = after < COOKIE_FIRST ? v->head : ordvec_seek(v, entry_key, after + 1); i < v->end; i++) {
                const struct entry *e = ordvec_at(v, i);
                if (e && !fn(ctx, e->cookie, e->name, e->len, e->child->ino, e->child->mode))
                        return 0;
        }
        return 0;
}

errint_t tree_path(const struct tree *t, uint64_t ino, char *buf, size_t size) {
        const struct inode *in = inode_find(t, ino);
        if (!in)
                return -ENOENT;
        size_t need = 0;
        for (const struct inode *i = in; i->names; i = i->names->parent)
                need += 1u + i->names->len;
        if (MAX_OF(need, (size_t)1) >= size)
                return -ENAMETOOLONG;
        if (need == 0) {
                memcpy(buf, "/", 2);
                return 0;
        }
        char *p = buf + need;
        *p = '\0';
        for (const struct inode *i = in; i->names; i = i->names->parent) {
                p -= i->names->len;
                memcpy(p, i->names->name, i->names->len);
                *--p = '/';
        }
        return 0;
}

static void inode_state(const struct inode *in, struct tree_inode_state *ret) {
        *ret = (struct tree_inode_state){0};
        inode_attr(in, &ret->attr);
        if (inode_has_content(in))
                ret->content = in->content;
        if (inode_is_dir(in)) {
                ret->parent = dir_parent(in)->ino;
                ret->next_cookie = in->dir->next_cookie;
        }
}

errint_t tree_inode_state(const struct tree *t, uint64_t ino, struct tree_inode_state *ret) {
        const struct inode *in = inode_find(t, ino);
        if (!in)
                return -ENOENT;
        inode_state(in, ret);
        return 0;
}

void tree_each_inode(const struct tree *t, uint64_t from_ino, tree_inode_fn fn, void *ctx) {
        for (uint32_t i = ordvec_seek(&t->order, inode_key, from_ino); i < t->order.end; i++) {
                const struct inode *in = ordvec_at(&t->order, i);
                struct tree_inode_state state;
                if (!in)
                        continue;
                inode_state(in, &state);
                if (!fn(ctx, &state))
                        return;
        }
}
