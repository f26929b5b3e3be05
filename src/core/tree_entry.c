/* tree_entry.c: directory entries: the table by (parent, name), each directory's order, each inode's names. */
#include "tree_internal.h"

struct entry_name {
        uint64_t parent;
        const char *name;
        size_t len;
};

static bool entry_eq(const void *entry, const void *key) {
        const struct entry *e = entry;
        const struct entry_name *k = key;
        return e->parent->ino == k->parent && e->len == k->len && memcmp(e->name, k->name, k->len) == 0;
}

uint64_t entry_key(const void *entry) {
        return ((const struct entry *)entry)->cookie;
}

uint32_t entry_hash(const struct tree *t, uint64_t parent, const char *name, size_t len) {
        struct hash128 h = hash128_of(name, len);
        return (uint32_t)(hash_mix(h.lo ^ hash_mix(parent ^ t->hash_seed)) >> 32);
}

struct entry *entry_find(const struct tree *t, uint64_t parent, const char *name, size_t len) {
        struct entry_name key = {parent, name, len};
        return ptrtab_find(&t->entries, entry_hash(t, parent, name, len), entry_eq, &key);
}

/* The oldest name stays in front: tree_path prefers it. */
static void names_link(struct entry *e) {
        struct entry *first = e->child->names;
        e->prev = first;
        e->next = first ? first->next : NULL;
        if (!first)
                e->child->names = e;
        else
                first->next = e;
        if (e->next)
                e->next->prev = e;
}

static void names_unlink(struct entry *e) {
        if (e->prev)
                e->prev->next = e->next;
        else
                e->child->names = e->next;
        if (e->next)
                e->next->prev = e->prev;
        e->next = e->prev = NULL;
}

static struct entry *entry_new(struct tree *t, struct inode *parent, const char *name, size_t len, uint64_t cookie, struct inode *child) {
        PRE(len > 0 && len <= LIMIT_NAME);
        struct entry *e = xmalloc(
                MAX_OF(sizeof(struct entry), offsetof(struct entry, name) + len)); /* a short name: never less than the struct itself */
        *e = (struct entry){.parent = parent, .child = child, .cookie = cookie, .len = (uint8_t)len};
        memcpy(e->name, name, len);
        ptrtab_insert(&t->entries, entry_hash(t, parent->ino, name, len), e);
        names_link(e);
        t->bytes += len;
        t->digest = hash128_add(t->digest, digest_entry(e));
        return e;
}

struct entry *entry_add(struct tree *t, struct inode *parent, const char *name, size_t len, struct inode *child) {
        PRE(parent->dir->next_cookie < COOKIE_END);
        struct entry *e = entry_new(t, parent, name, len, parent->dir->next_cookie++, child);
        ordvec_insert(&parent->dir->entries, entry_key, e);
        return e;
}

struct entry *entry_restore(struct tree *t, struct inode *parent, const char *name, size_t len, uint64_t cookie, struct inode *child) {
        struct entry *e = entry_new(t, parent, name, len, cookie, child);
        ordvec_append_unsorted(&parent->dir->entries, e);
        return e;
}

void entry_remove(struct tree *t, struct entry *e) {
        t->bytes -= e->len;
        t->digest = hash128_sub(t->digest, digest_entry(e));
        ordvec_remove(&e->parent->dir->entries, entry_key, e->cookie);
        ptrtab_remove(&t->entries, entry_hash(t, e->parent->ino, e->name, e->len), e);
        names_unlink(e);
        free(e);
}

void entry_retarget(struct tree *t, struct entry *e, struct inode *child) {
        t->digest = hash128_sub(t->digest, digest_entry(e));
        names_unlink(e);
        e->child = child;
        names_link(e);
        t->digest = hash128_add(t->digest, digest_entry(e));
}

bool inode_is_below(const struct inode *in, const struct inode *dir) {
        while (in != dir && in->names)
                in = in->names->parent;
        return in == dir;
}
