/* check.c: the offline check: a database, its log and its content file are opened as for reading only (a hot journal is rolled back in
 * memory), loaded and replayed as a start would, and everything that a start would notice is told, and some that it would not: SQLite's
 * own integrity, the tree's invariants, the rolling digest against one computed from scratch. */
#include "store_private.h"

#include <stdio.h>
#include <string.h>

struct checking {
        void (*fault)(void *ctx, const char *line);
        void *ctx;
        struct store_check_result *out;
};

static void tell(void *ctx, const char *line) {
        struct checking *c = ctx;
        c->out->faults++;
        c->fault(c->ctx, line);
}

static bool add_content(void *ctx, const struct tree_inode_state *in) {
        struct store_check_result *out = ctx;
        out->content_bytes += blob_size(in->content);
        out->inodes++;
        return true;
}
static bool add_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        (void)cookie;
        (void)name;
        (void)len;
        (void)ino;
        (void)mode;
        ++*(uint64_t *)ctx;
        return true;
}
struct counting_entries {
        const struct tree *tree;
        uint64_t n;
};
static bool add_entries(void *ctx, const struct tree_inode_state *in) {
        struct counting_entries *e = ctx;
        (void)tree_readdir(e->tree, in->attr.ino, 2, add_entry, &e->n); /* -ENOTDIR: none */
        return true;
}

static void check_tree(struct checking *c, const struct state *state) {
        char fault[256] = "";
        struct counting_entries entries = {.tree = state->tree};
        if (tree_check(state->tree, fault, sizeof(fault)) < 0)
                tell(c, fault);
        struct hash128 rolling = tree_digest(state->tree);
        if (!hash128_equal(rolling, tree_digest_recompute(state->tree)))
                tell(c, "the rolling digest of the tree is not the one computed from scratch");
        tree_each_inode(state->tree, 0, add_content, c->out);
        tree_each_inode(state->tree, 0, add_entries, &entries);
        c->out->entries = entries.n;
        c->out->pos = state->pos;
        c->out->digest = state_digest(state);
}

errint_t store_check(const char *path, struct disk *disk, void (*fault)(void *ctx, const char *line), void *ctx,
                     struct store_check_result *ret) {
        struct store_check_result out = {0};
        struct checking c = {.fault = fault, .ctx = ctx, .out = &out};
        struct store_config config = {.path = path, .level = LEVEL_FILESYSTEM, .read_only = true, .disk = disk};
        struct state state;
        char reason[256] = "";
        state_init(&state);
        errint_t r = store_inspect(&config, &state, tell, &c, &out, reason, sizeof(reason));
        if (r < 0)
                tell(&c, reason);
        else
                check_tree(&c, &state);
        state_done(&state);
        *ret = out;
        return r == -EBADMSG ? 0 : r;
}
