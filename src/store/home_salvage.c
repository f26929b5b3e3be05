/* home_salvage.c: rows that do not make a tree, because some are damaged or missing: as much of it as hangs together from the root, for
 * a mount that only reads. Inodes without a good row, entries without a good row, and what no name leads to any more are left out; links
 * are counted anew. A lost root is replaced by an empty one with the old entries. */
#include "home_load.h"

#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct salvaged_entry {
        uint64_t parent, ino, cookie;
        char *name;
        size_t len;
};
struct salvaged_inode {
        uint64_t ino, next_cookie;
        bool dir, reached;
        uint32_t names, subdirs;
};
struct salvage {
        GHashTable *inodes;   /* ino -> struct salvaged_inode */
        uint64_t last_ino;    /* the highest of them */
        GPtrArray *entries;   /* struct salvaged_entry */
        GHashTable *children; /* parent ino -> GPtrArray of struct salvaged_entry, borrowed */
        GPtrArray *kept;      /* struct salvaged_entry, borrowed: reachable ones */
        GPtrArray *lost;      /* struct salvaged_entry, borrowed: their inodes have no good row */
};

static struct salvaged_inode *find(const struct salvage *s, uint64_t ino) {
        return g_hash_table_lookup(s->inodes, &ino);
}

static void add_inode(struct salvage *s, uint64_t ino, bool dir, uint64_t next_cookie) {
        struct salvaged_inode *in = NEW(struct salvaged_inode);
        *in = (struct salvaged_inode){.ino = ino, .dir = dir, .next_cookie = next_cookie};
        g_hash_table_insert(s->inodes, &in->ino, in);
        s->last_ino = MAX_OF(s->last_ino, ino);
}

static errint_t see_inode(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        (void)l;
        struct salvage *s = ctx;
        struct tree_inode_state state;
        uint64_t check;
        if (home_row_inode(st, &state, &check) < 0 || find(s, state.attr.ino))
                return -EBADMSG;
        add_inode(s, state.attr.ino, S_ISDIR(state.attr.mode), state.next_cookie);
        return 0;
}

static errint_t see_entry(struct home_loader *l, sqlite3_stmt *st, void *ctx) {
        (void)l;
        struct salvage *s = ctx;
        struct entry_row row;
        if (home_row_entry(st, &row) < 0)
                return -EBADMSG;
        struct salvaged_entry *e = NEW(struct salvaged_entry);
        *e = (struct salvaged_entry){row.parent, row.ino, row.cookie, xmalloc(row.len + 1), row.len};
        memcpy(e->name, row.name, row.len);
        e->name[row.len] = '\0';
        g_ptr_array_add(s->entries, e);
        GPtrArray *list = g_hash_table_lookup(s->children, &e->parent);
        if (!list) {
                list = g_ptr_array_new();
                g_hash_table_insert(s->children, &e->parent, list);
        }
        g_ptr_array_add(list, e);
        return 0;
}

/* Names of one directory, in the order of its names. A directory has one name only, so it is reached once. */
static void reach_children(struct salvage *s, struct salvaged_inode *dir, GPtrArray *queue) {
        GPtrArray *list = g_hash_table_lookup(s->children, &dir->ino);
        size_t first = s->kept->len;
        GHashTable *cookies = g_hash_table_new(g_int64_hash, g_int64_equal);
        for (guint i = 0; list && i < list->len; i++) {
                struct salvaged_entry *e = list->pdata[i];
                struct salvaged_inode *child = find(s, e->ino);
                const struct salvaged_entry *before = s->kept->len > first ? s->kept->pdata[s->kept->len - 1] : NULL;
                if (!child)
                        g_ptr_array_add(s->lost, e);
                if (!child || child->ino == INO_ROOT || (child->dir && child->reached) || e->cookie >= dir->next_cookie)
                        continue;
                if (before && before->len == e->len && memcmp(before->name, e->name, e->len) == 0)
                        continue;
                if (!g_hash_table_add(cookies, &e->cookie))
                        continue;
                g_ptr_array_add(s->kept, e);
                child->names++;
                if (child->dir)
                        dir->subdirs++;
                if (child->dir && !child->reached)
                        g_ptr_array_add(queue, child);
                child->reached = true;
        }
        g_hash_table_destroy(cookies);
}

static void reach(struct salvage *s) {
        GPtrArray *queue = g_ptr_array_new();
        struct salvaged_inode *root = find(s, INO_ROOT);
        root->reached = true;
        g_ptr_array_add(queue, root);
        for (guint i = 0; i < queue->len; i++)
                reach_children(s, queue->pdata[i], queue);
        g_ptr_array_free(queue, TRUE);
}

static bool fix_inode(void *ctx, struct tree_inode_state *state) {
        const struct salvaged_inode *in = find(ctx, state->attr.ino);
        if (!in || !in->reached || in->dir != S_ISDIR(state->attr.mode))
                return false;
        state->attr.nlink = in->dir ? 2 + in->subdirs : in->names;
        return true;
}

/* The root's row is lost: one that only root may enter stands in. */
static void stand_in_root(struct salvage *s) {
        const struct salvaged_inode *root = find(s, INO_ROOT);
        if (root && root->dir)
                return;
        g_hash_table_remove(s->inodes, &(uint64_t){INO_ROOT});
        add_inode(s, INO_ROOT, true, UINT64_MAX >> 2);
}

static errint_t build(struct home_loader *l, struct salvage *s, bool root_lost) {
        char fault[256];
        l->tree = tree_restore_begin();
        tree_hash_seed(l->tree, l->hash_seed);
        errint_t r = loader_inodes(l, fix_inode, s);
        if (r < 0 && r != -EBADMSG)
                return r;
        if (root_lost) {
                struct tree_inode_state root = {
                        .attr = {.ino = INO_ROOT, .mode = S_IFDIR | 0700, .nlink = 2 + find(s, INO_ROOT)->subdirs},
                        .parent = INO_ROOT,
                        .next_cookie = UINT64_MAX >> 2,
                };
                r = tree_restore_inode(l->tree, &root, NULL, 0);
                if (r < 0)
                        return r;
                l->counts.inodes++;
        }
        for (guint i = 0; i < s->kept->len; i++) {
                const struct salvaged_entry *e = s->kept->pdata[i];
                r = tree_restore_entry(l->tree, e->parent, e->name, e->len, e->ino, e->cookie);
                if (r < 0)
                        return r == -EEXIST ? -EBADMSG : r;
                l->counts.entries++;
        }
        r = loader_each(l, "settings", "SELECT name, value, crc FROM settings", loader_setting, NULL);
        if (r < 0 && r != -EBADMSG)
                return r;
        return tree_restore_end(l->tree, MAX_OF(l->meta->next_ino, s->last_ino + 1), fault, sizeof(fault));
}

static void tell_lost(struct home_loader *l, const struct salvage *s) {
        l->again = false;
        for (guint i = 0; i < s->lost->len; i++) {
                const struct salvaged_entry *e = s->lost->pdata[i];
                char path[LIMIT_PATH + 1] = "", quoted[256];
                (void)tree_path(l->tree, e->parent, path, sizeof(path)); /* the name says enough if the path is too long */
                size_t at = strcmp(path, "/") == 0 ? 0 : strlen(path);
                (void)snprintf(path + at, sizeof(path) - at, "/%s", e->name); /* cut if need be */
                loader_fault(l, "inode %ju (%s): it is lost", (uintmax_t)e->ino, log_quote(path, strlen(path), quoted, sizeof(quoted)));
        }
        l->again = true;
}

static void free_entry(void *p) {
        free(((struct salvaged_entry *)p)->name);
        free(p);
}
static void free_list(void *p) {
        g_ptr_array_free(p, TRUE);
}

errint_t home_salvage(struct home_loader *l) {
        struct salvage s = {
                .inodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free),
                .entries = g_ptr_array_new_with_free_func(free_entry),
                .children = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_list),
                .kept = g_ptr_array_new(),
                .lost = g_ptr_array_new(),
        };
        bool root_lost = false;
        errint_t r = loader_each(l, "inodes", home_sql_inodes, see_inode, &s);
        if (r == 0 || r == -EBADMSG)
                r = loader_each(l, "entries", home_sql_entries, see_entry, &s);
        if (r == 0 || r == -EBADMSG) {
                const struct salvaged_inode *root = find(&s, INO_ROOT);
                root_lost = !root || !root->dir;
                stand_in_root(&s);
                reach(&s);
                r = build(l, &s, root_lost);
        }
        if (r == 0)
                tell_lost(l, &s);
        if (r == -EBADMSG) { /* not even that: an empty tree, so that the reason can at least be asked for */
                tree_free(l->tree);
                l->tree = tree_new();
                l->n_bad = 0;
                l->counts.inodes = 1;
                l->counts.entries = l->counts.content_bytes = 0;
                r = 0;
        }
        g_ptr_array_free(s.kept, TRUE);
        g_ptr_array_free(s.lost, TRUE);
        g_hash_table_destroy(s.children);
        g_ptr_array_free(s.entries, TRUE);
        g_hash_table_destroy(s.inodes);
        return r;
}
