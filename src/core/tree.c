/* tree.c: life of trees and inodes, pins and orphans; see core/tree.h. */
#include "tree_internal.h"

static bool inode_eq(const void *inode, const void *ino) {
        return ((const struct inode *)inode)->ino == *(const uint64_t *)ino;
}

static bool pin_eq(const void *pin, const void *ino) {
        return ((const struct pin *)pin)->ino == *(const uint64_t *)ino;
}

uint64_t inode_key(const void *inode) {
        return ((const struct inode *)inode)->ino;
}

uint32_t inode_hash(const struct tree *t, uint64_t ino) {
        return (uint32_t)(hash_mix(ino ^ t->hash_seed) >> 32);
}

struct inode *inode_find(const struct tree *t, uint64_t ino) {
        return ptrtab_find(&t->inodes, inode_hash(t, ino), inode_eq, &ino);
}

static struct inode *orphan_find(const struct tree *t, uint64_t ino) {
        return ptrtab_find(&t->orphans, inode_hash(t, ino), inode_eq, &ino);
}

struct inode *inode_find_any(const struct tree *t, uint64_t ino) {
        struct inode *in = inode_find(t, ino);
        return in ? in : orphan_find(t, ino);
}

static struct pin *pin_find(const struct tree *t, uint64_t ino) {
        return ptrtab_find(&t->pins, inode_hash(t, ino), pin_eq, &ino);
}

struct inode *inode_new(uint64_t ino, uint32_t mode) {
        struct inode *in = NEW(struct inode);
        in->ino = ino;
        in->mode = (uint16_t)mode;
        if (S_ISDIR(mode)) {
                in->dir = NEW(struct dir);
                in->dir->next_cookie = COOKIE_FIRST;
        }
        return in;
}

void inode_free(struct inode *in) {
        if (!in)
                return;
        if (inode_is_dir(in)) {
                ordvec_done(&in->dir->entries);
                free(in->dir);
        } else {
                blob_unref(in->content);
        }
        free(in->xattrs);
        free(in);
}

uint64_t inode_bytes(const struct inode *in) {
        return INODE_BYTES + (inode_has_content(in) ? blob_allocated(in->content) : 0) + xattrs_len(in->xattrs);
}

static struct hash128 inode_elements(const struct inode *in) {
        return hash128_add(digest_inode(in), hash128_add(digest_content(in), digest_xattrs(in)));
}

void inode_add(struct tree *t, struct inode *in) {
        ptrtab_insert(&t->inodes, inode_hash(t, in->ino), in);
        ordvec_insert(&t->order, inode_key, in);
        t->bytes += inode_bytes(in);
        t->digest = hash128_add(t->digest, inode_elements(in));
}

static void pin_add(struct tree *t, uint64_t ino) {
        struct pin *p = pin_find(t, ino);
        if (!p) {
                p = NEW(struct pin);
                p->ino = ino;
                ptrtab_insert(&t->pins, inode_hash(t, ino), p);
        }
        p->count++;
}

void inode_forget(struct tree *t, struct inode *in) {
        PRE(!in->names);
        t->bytes -= inode_bytes(in);
        t->digest = hash128_sub(t->digest, inode_elements(in));
        ordvec_remove(&t->order, inode_key, in->ino);
        ptrtab_remove(&t->inodes, inode_hash(t, in->ino), in);
        if (t->keep_removed)
                pin_add(t, in->ino);
        if (!pin_find(t, in->ino)) {
                inode_free(in);
                return;
        }
        in->flags |= INODE_ORPHAN;
        in->nlink = 0;
        ptrtab_insert(&t->orphans, inode_hash(t, in->ino), in);
}

void inode_set_content(struct tree *t, struct inode *in, struct blob *content) {
        bool counted = !inode_is_orphan(in);
        if (counted) {
                t->bytes -= blob_allocated(in->content);
                t->digest = hash128_sub(t->digest, digest_content(in));
        }
        blob_unref(in->content);
        in->content = content;
        if (counted) {
                t->bytes += blob_allocated(in->content);
                t->digest = hash128_add(t->digest, digest_content(in));
        }
}

void inode_set_xattrs(struct tree *t, struct inode *in, struct xattrs *x) {
        bool counted = !inode_is_orphan(in);
        if (counted) {
                t->bytes -= xattrs_len(in->xattrs);
                t->digest = hash128_sub(t->digest, digest_xattrs(in));
        }
        free(in->xattrs);
        in->xattrs = x;
        if (counted) {
                t->bytes += xattrs_len(in->xattrs);
                t->digest = hash128_add(t->digest, digest_xattrs(in));
        }
}

struct tree *tree_restore_begin(void) {
        struct tree *t = NEW(struct tree);
        settings_default(&t->settings);
        t->next_ino = INO_ROOT;
        return t;
}

struct tree *tree_new(void) {
        struct tree *t = tree_restore_begin();
        struct inode *root = inode_new(INO_ROOT, S_IFDIR | 0755);
        root->nlink = 2;
        inode_add(t, root);
        t->next_ino = INO_ROOT + 1;
        t->digest = hash128_add(t->digest, digest_next_ino(t->next_ino));
        return t;
}

void tree_hash_seed(struct tree *t, uint64_t seed) {
        PRE(t->order.live <= 1 && t->entries.n == 0 && t->orphans.n == 0 && t->pins.n == 0);
        struct inode *root = t->order.live == 1 ? ordvec_at(&t->order, t->order.head) : NULL;
        if (root)
                ptrtab_remove(&t->inodes, inode_hash(t, root->ino), root);
        t->hash_seed = seed;
        if (root)
                ptrtab_insert(&t->inodes, inode_hash(t, root->ino), root);
}

uint64_t tree_hash_seed_of(const struct tree *t) {
        return t->hash_seed;
}

void tree_free(struct tree *t) {
        if (!t)
                return;
        for (uint32_t i = 0; i < t->entries.cap; i++)
                free(t->entries.slots[i]);
        for (uint32_t i = 0; i < t->inodes.cap; i++)
                inode_free(t->inodes.slots[i]);
        for (uint32_t i = 0; i < t->orphans.cap; i++)
                inode_free(t->orphans.slots[i]);
        for (uint32_t i = 0; i < t->pins.cap; i++)
                free(t->pins.slots[i]);
        ptrtab_done(&t->entries);
        ptrtab_done(&t->inodes);
        ptrtab_done(&t->orphans);
        ptrtab_done(&t->pins);
        ordvec_done(&t->order);
        free(t);
}

void tree_usage(const struct tree *t, struct tree_usage *ret) {
        *ret = (struct tree_usage){
                .inodes = t->order.live,
                .bytes = t->bytes,
                .inodes_max = t->settings.inodes_max,
                .bytes_max = t->settings.tree_size_max,
                .next_ino = t->next_ino,
        };
}

const struct settings *tree_settings(const struct tree *t) {
        return &t->settings;
}

/* --- pins and orphans --- */

errint_t tree_pin(struct tree *t, uint64_t ino) {
        if (!inode_find_any(t, ino))
                return -ENOENT;
        pin_add(t, ino);
        return 0;
}

void tree_keep_removed(struct tree *t) {
        t->keep_removed = true;
}

void tree_watch_content(struct tree *t, tree_content_fn fn, void *ctx) {
        t->content_fn = fn;
        t->content_ctx = ctx;
}

void tree_unpin(struct tree *t, uint64_t ino) {
        struct pin *p = pin_find(t, ino);
        PRE(p);
        if (--p->count > 0)
                return;
        ptrtab_remove(&t->pins, inode_hash(t, ino), p);
        free(p);
        orphan_drop(t, ino);
}

bool tree_is_orphan(const struct tree *t, uint64_t ino) {
        return orphan_find(t, ino) != NULL;
}

void orphan_drop(struct tree *t, uint64_t ino) {
        struct inode *in = orphan_find(t, ino);
        if (!in)
                return;
        ptrtab_remove(&t->orphans, inode_hash(t, ino), in);
        inode_free(in);
}

errint_t tree_orphan_new(struct tree *t, const struct attr *attr) {
        if (!S_ISREG(attr->mode) || attr->ino <= INO_ROOT || attr->ino >= t->next_ino)
                return -EINVAL;
        if (inode_find_any(t, attr->ino))
                return -EEXIST;
        struct inode *in = inode_new(attr->ino, attr->mode);
        in->uid = attr->uid;
        in->gid = attr->gid;
        inode_set_atime(in, attr->atime);
        inode_set_mtime(in, attr->mtime);
        inode_set_ctime(in, attr->ctime);
        in->flags = INODE_ORPHAN;
        ptrtab_insert(&t->orphans, inode_hash(t, in->ino), in);
        return tree_pin(t, attr->ino);
}
