/* tree_digest.c: the digest of a tree is the sum of the hashes of its elements, lane by lane, so it moves with each change and does
 * not depend on any order. An element begins with a letter that tells its kind; numbers are little-endian.
 *
 *   'I' u64 ino · u32 mode uid gid nlink rdev · atime mtime ctime, each u64 seconds, u32 nanoseconds · u64 next cookie (directories)
 *   'C' u64 ino · blob_digest lo, hi                      files and symlinks that are not empty
 *   'X' u64 ino, chained with the encoded xattrs          inodes that have any
 *   'E' u64 parent, cookie, ino · name
 *   'S' u64 value · name                                  settings that are not at their default
 *   'N' u64 next inode number */
#include "tree_internal.h"

struct element {
        uint8_t *p;
        uint8_t buf[32 + LIMIT_NAME];
};
static_assert(sizeof(((struct element *)0)->buf) >= 1 + 8 + 5 * 4 + 3 * 12 + 8, "an inode's element fits");

static void element_u64(struct element *e, uint64_t v) {
        le_put(e->p, v, 8);
        e->p += 8;
}

static void element_begin(struct element *e, char kind, uint64_t n) {
        e->p = e->buf;
        *e->p++ = (uint8_t)kind;
        element_u64(e, n);
}

static void element_u32(struct element *e, uint32_t v) {
        le_put(e->p, v, 4);
        e->p += 4;
}

static void element_time(struct element *e, int64_t sec, uint32_t nsec) {
        element_u64(e, (uint64_t)sec);
        element_u32(e, nsec);
}

static void element_text(struct element *e, const char *text, size_t len) {
        PRE(len <= LIMIT_NAME);
        memcpy(e->p, text, len);
        e->p += len;
}

static struct hash128 element_hash(const struct element *e) {
        return hash128_of(e->buf, (size_t)(e->p - e->buf));
}

struct hash128 digest_inode(const struct inode *in) {
        struct element e;
        element_begin(&e, 'I', in->ino);
        element_u32(&e, in->mode);
        element_u32(&e, in->uid);
        element_u32(&e, in->gid);
        element_u32(&e, in->nlink);
        element_u32(&e, in->rdev);
        element_time(&e, in->atime_sec, in->atime_nsec);
        element_time(&e, in->mtime_sec, in->mtime_nsec);
        element_time(&e, in->ctime_sec, in->ctime_nsec);
        if (inode_is_dir(in))
                element_u64(&e, in->dir->next_cookie);
        return element_hash(&e);
}

struct hash128 digest_content(const struct inode *in) {
        if (!inode_has_content(in) || !in->content)
                return (struct hash128){0};
        struct hash128 h = blob_digest(in->content);
        struct element e;
        element_begin(&e, 'C', in->ino);
        element_u64(&e, h.lo);
        element_u64(&e, h.hi);
        return element_hash(&e);
}

struct hash128 digest_xattrs(const struct inode *in) {
        if (!in->xattrs)
                return (struct hash128){0};
        struct element e;
        element_begin(&e, 'X', in->ino);
        return hash128_chain(element_hash(&e), in->xattrs->data, in->xattrs->len);
}

struct hash128 digest_entry(const struct entry *entry) {
        struct element e;
        element_begin(&e, 'E', entry->parent->ino);
        element_u64(&e, entry->cookie);
        element_u64(&e, entry->child->ino);
        element_text(&e, entry->name, entry->len);
        return element_hash(&e);
}

struct hash128 digest_setting(const struct settings *s, const struct setting_info *info) {
        uint64_t value = settings_get(s, info);
        if (value == info->def)
                return (struct hash128){0};
        struct element e;
        element_begin(&e, 'S', value);
        element_text(&e, info->name, strlen(info->name));
        return element_hash(&e);
}

struct hash128 digest_next_ino(uint64_t next_ino) {
        struct element e;
        element_begin(&e, 'N', next_ino);
        return element_hash(&e);
}

struct hash128 tree_digest(const struct tree *t) {
        return t->digest;
}

struct hash128 tree_digest_recompute(const struct tree *t) {
        struct hash128 sum = digest_next_ino(t->next_ino);
        for (uint32_t i = t->order.head; i < t->order.end; i++) {
                const struct inode *in = ordvec_at(&t->order, i);
                if (!in)
                        continue;
                sum = hash128_add(sum, digest_inode(in));
                sum = hash128_add(sum, digest_content(in));
                sum = hash128_add(sum, digest_xattrs(in));
                if (!inode_is_dir(in))
                        continue;
                const struct ordvec *entries = &in->dir->entries;
                for (uint32_t j = entries->head; j < entries->end; j++)
                        if (ordvec_at(entries, j))
                                sum = hash128_add(sum, digest_entry(ordvec_at(entries, j)));
        }
        for (size_t i = 0; i < settings_count(); i++)
                sum = hash128_add(sum, digest_setting(&t->settings, settings_info(i)));
        return sum;
}
