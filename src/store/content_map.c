/* content_map.c: free runs, best fit. Two balanced trees over the same runs, so that taking, giving back (with merging) and finding the
 * shortest run that fits are all logarithmic in the number of runs. */
#include "content_map.h"

struct map_run {
        uint64_t start, length;
};

static gint cmp(uint64_t a, uint64_t b) {
        return a < b ? -1 : a > b;
}

static gint by_start(gconstpointer a, gconstpointer b, gpointer ctx) {
        (void)ctx;
        return cmp(((const struct map_run *)a)->start, ((const struct map_run *)b)->start);
}

static gint by_length(gconstpointer a, gconstpointer b, gpointer ctx) {
        const struct map_run *x = a, *y = b;
        (void)ctx;
        return x->length != y->length ? cmp(x->length, y->length) : cmp(x->start, y->start);
}

void map_init(struct content_map *m) {
        *m = (struct content_map){.by_start = g_tree_new_full(by_start, NULL, free, NULL),
                                  .by_length = g_tree_new_full(by_length, NULL, NULL, NULL)};
}

void map_done(struct content_map *m) {
        if (m->by_length)
                g_tree_unref(m->by_length);
        if (m->by_start)
                g_tree_unref(m->by_start);
        *m = (struct content_map){0};
}

static void run_add(struct content_map *m, uint64_t start, uint64_t length) {
        struct map_run *r = NEW(struct map_run);
        *r = (struct map_run){.start = start, .length = length};
        g_tree_insert(m->by_start, r, r);
        g_tree_insert(m->by_length, r, r);
}

static void run_remove(struct content_map *m, struct map_run *r) {
        g_tree_remove(m->by_length, r);
        g_tree_remove(m->by_start, r); /* frees it */
}

/* The last run that begins at or before `start`. */
static struct map_run *run_at(const struct content_map *m, uint64_t start) {
        struct map_run key = {.start = start};
        GTreeNode *after = g_tree_upper_bound(m->by_start, &key);
        GTreeNode *node = after ? g_tree_node_previous(after) : g_tree_node_last(m->by_start);
        return node ? g_tree_node_value(node) : NULL;
}

/* The first run that begins behind `start`. */
static struct map_run *run_behind(const struct content_map *m, uint64_t start) {
        struct map_run key = {.start = start};
        GTreeNode *node = g_tree_upper_bound(m->by_start, &key);
        return node ? g_tree_node_value(node) : NULL;
}

bool map_is_free(const struct content_map *m, uint64_t start, uint64_t n) {
        const struct map_run *r = run_at(m, start);
        return r && n <= r->length && start - r->start <= r->length - n;
}

bool map_is_used(const struct content_map *m, uint64_t start, uint64_t n) {
        if (n > m->total || start > m->total - n)
                return false;
        const struct map_run *r = run_at(m, start), *behind = run_behind(m, start);
        return (!r || r->start + r->length <= start) && (!behind || behind->start >= start + n);
}

void map_take(struct content_map *m, uint64_t start, uint64_t n) {
        PRE(n > 0 && map_is_free(m, start, n));
        struct map_run *r = run_at(m, start);
        const struct map_run was = *r;
        run_remove(m, r);
        if (start > was.start)
                run_add(m, was.start, start - was.start);
        if (start + n < was.start + was.length)
                run_add(m, start + n, was.start + was.length - start - n);
        m->free -= n;
}

void map_give(struct content_map *m, uint64_t start, uint64_t n) {
        PRE(n > 0 && map_is_used(m, start, n));
        struct map_run *before = run_at(m, start), *behind = run_behind(m, start);
        m->free += n;
        if (behind && behind->start == start + n) {
                n += behind->length;
                run_remove(m, behind);
        }
        if (before && before->start + before->length == start) {
                start = before->start;
                n += before->length;
                run_remove(m, before);
        }
        run_add(m, start, n);
}

void map_grow(struct content_map *m, uint64_t total) {
        uint64_t was = m->total;
        if (total <= was)
                return;
        m->total = total;
        map_give(m, was, total - was);
}

void map_shrink(struct content_map *m, uint64_t total) {
        if (total >= m->total)
                return;
        map_take(m, total, m->total - total);
        m->total = total;
}

bool map_best(const struct content_map *m, uint64_t n, uint64_t *ret_start) {
        struct map_run key = {.length = n};
        GTreeNode *node = g_tree_lower_bound(m->by_length, &key);
        if (!node)
                return false;
        *ret_start = ((const struct map_run *)g_tree_node_value(node))->start;
        return true;
}

void map_longest(const struct content_map *m, bool (*fn)(void *ctx, uint64_t start, uint64_t length), void *ctx) {
        for (GTreeNode *node = g_tree_node_last(m->by_length); node; node = g_tree_node_previous(node)) {
                const struct map_run *r = g_tree_node_value(node);
                if (!fn(ctx, r->start, r->length))
                        return;
        }
}

uint64_t map_tail(const struct content_map *m) {
        GTreeNode *node = g_tree_node_last(m->by_start);
        const struct map_run *r = node ? g_tree_node_value(node) : NULL;
        return r && r->start + r->length == m->total ? r->length : 0;
}
