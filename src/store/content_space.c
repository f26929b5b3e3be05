/* content_space.c: which units are free, dead or reserved, and how the file grows: docs/decisions/0002-content-file-growth.md. */
#include "content_private.h"

#include <string.h>

#define GROW_MIN    (4 * MIB)
#define GROW_MAX    (64 * MIB)
#define FEW_EXTENTS 8u        /* rather this many pieces than a longer file, if a quarter of it is free */
#define ZERO_STEP   (1 * MIB) /* where fallocate does not exist */
#define TAIL_KEEP   (64 * MIB)

/* --- growth -------------------------------------------------------------------------------------------------------------------------- */

/* Makes blocks for [from, to) bytes where fallocate(2) does not exist. */
static errint_t zero_fill(struct content *c, uint64_t from, uint64_t to) {
        cleanup_free uint8_t *zeros = xcalloc(1, ZERO_STEP);
        for (uint64_t at = from; at < to;) {
                uint64_t n = MIN_OF(ZERO_STEP, to - at);
                errint_t r = disk_pwrite(c->file, zeros, n, at);
                if (r < 0)
                        return r;
                content_count(c, METRIC_CONTENT_BYTES, n);
                at += n;
        }
        return 0;
}

static errint_t extend(struct content *c, uint64_t from, uint64_t to) {
        errint_t r = c->file->ops->allocate(c->file, from * CONTENT_UNIT, (to - from) * CONTENT_UNIT);
        if (r == -EOPNOTSUPP)
                r = zero_fill(c, from * CONTENT_UNIT, to * CONTENT_UNIT);
        return r;
}

/* Makes the file at least `need` units longer, by a step that suits its length and the space there is. */
static errint_t grow(struct content *c, uint64_t need) {
        HOLD(&c->growing);
        struct disk_info info;
        (void)pthread_mutex_lock(&c->lock);
        uint64_t total = c->map.total;
        (void)pthread_mutex_unlock(&c->lock);
        errint_t r = c->disk->ops->info(c->disk, c->path, &info);
        if (r < 0)
                return r;
        uint64_t step = MIN_OF(MAX_OF(total * CONTENT_UNIT / 4, GROW_MIN), GROW_MAX);
        step = MIN_OF(step, info.fs_free / 8) / CONTENT_UNIT; /* a full disk is not filled up ahead of need */
        if (need > info.fs_free / CONTENT_UNIT)
                return -ENOSPC; /* a failing fallocate may take what there is before it fails */
        uint64_t to = total + MAX_OF(need, step);
        r = extend(c, total, to);
        if (r == -ENOSPC && to > total + need)
                r = extend(c, total, to = total + need);
        if (r < 0)
                content_count(c, METRIC_STORE_ERRORS, 1);
        (void)pthread_mutex_lock(&c->lock);
        if (r == 0)
                map_grow(&c->map, to);
        (void)pthread_mutex_unlock(&c->lock);
        return r;
}

/* --- allocating ---------------------------------------------------------------------------------------------------------------------- */
struct pieces {
        struct oplog_extent *e;
        size_t n, max;
        uint64_t bytes; /* still to be placed */
};

static bool take_piece(void *ctx, uint64_t start, uint64_t length) {
        struct pieces *p = ctx;
        uint64_t bytes = MIN_OF(p->bytes, length * CONTENT_UNIT);
        if (p->n == p->max)
                return false;
        if (p->e)
                p->e[p->n] = (struct oplog_extent){.offset = start * CONTENT_UNIT, .length = (uint32_t)bytes};
        p->n++;
        p->bytes -= bytes;
        return p->bytes > 0;
}

/* One run, or at most `max` pieces, the longest first. Under lock. With `e` NULL: only whether it could. */
static bool place(const struct content_map *m, uint64_t bytes, size_t max, struct oplog_extent *e, size_t *ret_n) {
        struct pieces p = {.e = e, .max = max, .bytes = bytes};
        uint64_t start;
        if (map_best(m, content_units(bytes), &start))
                (void)take_piece(&p, start, content_units(bytes));
        else if (max > 1 && content_units(bytes) <= m->free)
                map_longest(m, take_piece, &p);
        *ret_n = p.n;
        return p.bytes == 0;
}

static void take_all(struct content_map *m, const struct oplog_extent *e, size_t n) {
        for (size_t i = 0; i < n; i++)
                map_take(m, e[i].offset / CONTENT_UNIT, content_units(e[i].length));
}

static bool try_place(struct content *c, uint64_t bytes, size_t max, struct oplog_extent *e, size_t *ret_n, uint64_t *ret_tail) {
        HOLD(&c->lock);
        const struct content_map *m = &c->map;
        if (max == 0) /* a few pieces, if the file has much free space anyway */
                max = m->free >= m->total / 4 ? FEW_EXTENTS : 1;
        *ret_tail = map_tail(m);
        if (!place(m, bytes, max, e, ret_n))
                return false;
        take_all(&c->map, e, *ret_n);
        return true;
}

errint_t content_allocate(struct content *c, uint64_t bytes, struct oplog_extent **ret, size_t *ret_n) {
        cleanup_free struct oplog_extent *e = xmalloc(OPLOG_EXTENTS_MAX * sizeof *e);
        uint64_t units = content_units(bytes), tail;
        size_t n;
        bool ok = try_place(c, bytes, 0, e, &n, &tail);
        while (!ok) {
                errint_t r = grow(c, units - MIN_OF(tail, units - 1));
                ok = try_place(c, bytes, r < 0 ? OPLOG_EXTENTS_MAX : 1, e, &n, &tail);
                if (!ok && r < 0)
                        return r;
        }
        *ret = xmalloc(n * sizeof *e);
        memcpy(*ret, e, n * sizeof *e);
        *ret_n = n;
        return 0;
}

void content_give_back(struct content *c, const struct oplog_extent *e, size_t n) {
        HOLD(&c->lock);
        for (size_t i = 0; i < n; i++)
                map_give(&c->map, e[i].offset / CONTENT_UNIT, content_units(e[i].length));
}

/* --- reserving ----------------------------------------------------------------------------------------------------------------------- */
errint_t content_reserve(struct content *c, uint64_t bytes) {
        uint64_t units = content_units(bytes);
        if (bytes == 0)
                return 0;
        for (;;) {
                uint64_t missing, tail;
                size_t n;
                {
                        HOLD(&c->lock);
                        const struct content_map *m = &c->map;
                        uint64_t unreserved = m->free - MIN_OF(m->free, c->reserved);
                        if (unreserved >= units && place(m, bytes, OPLOG_EXTENTS_MAX, NULL, &n)) {
                                c->reserved += units;
                                return 0;
                        }
                        tail = map_tail(m);
                        missing = unreserved < units ? units - unreserved : units - MIN_OF(tail, units - 1);
                }
                errint_t r = grow(c, missing);
                if (r < 0)
                        return r;
        }
}

void content_release(struct content *c, uint64_t bytes) {
        HOLD(&c->lock);
        PRE(c->reserved >= content_units(bytes));
        c->reserved -= content_units(bytes);
}

/* --- used, dead, free ------------------------------------------------------------------------------------------------------------------
 */
errint_t content_mark_used(struct content *c, const struct oplog_extent *e, size_t n) {
        HOLD(&c->lock);
        for (size_t i = 0; i < n; i++) {
                uint64_t start = e[i].offset / CONTENT_UNIT, units = content_units(e[i].length);
                if (e[i].offset % CONTENT_UNIT != 0 || units == 0 || !map_is_free(&c->map, start, units)) {
                        while (i-- > 0)
                                map_give(&c->map, e[i].offset / CONTENT_UNIT, content_units(e[i].length));
                        return -EBADMSG;
                }
                map_take(&c->map, start, units);
        }
        return 0;
}

void content_free_at(struct content *c, const struct oplog_extent *e, size_t n, uint64_t superseded_by_seq) {
        HOLD(&c->lock);
        for (size_t i = 0; i < n; i++) {
                struct content_dead d = {
                        .seq = superseded_by_seq, .start = e[i].offset / CONTENT_UNIT, .units = content_units(e[i].length)};
                PRE(d.start > 0 && map_is_used(&c->map, d.start, d.units));
                if (d.seq <= c->home_seq) {
                        map_give(&c->map, d.start, d.units);
                } else {
                        g_array_append_val(c->dead, d);
                        c->dead_units += d.units;
                }
        }
}

/* Gives a long free tail back to the filesystem. What lies there is free in the durable home too. */
static void trim(struct content *c) {
        HOLD(&c->growing);
        uint64_t to = 0;
        (void)pthread_mutex_lock(&c->lock);
        struct content_map *m = &c->map;
        uint64_t tail = map_tail(m), keep = MAX_OF(TAIL_KEEP / CONTENT_UNIT, m->total / 4);
        if (tail > 2 * keep && m->free - (tail - keep) >= c->reserved) {
                to = m->total - (tail - keep);
                map_shrink(m, to);
        }
        (void)pthread_mutex_unlock(&c->lock);
        if (to && c->file->ops->truncate(c->file, to * CONTENT_UNIT) < 0)
                content_count(c, METRIC_STORE_ERRORS, 1); /* the file is longer than need be, which is no harm */
}

void content_home_durable(struct content *c, uint64_t seq) {
        {
                HOLD(&c->lock);
                guint kept = 0;
                c->home_seq = MAX_OF(c->home_seq, seq);
                for (guint i = 0; i < c->dead->len; i++) {
                        struct content_dead d = g_array_index(c->dead, struct content_dead, i);
                        if (d.seq > c->home_seq) {
                                g_array_index(c->dead, struct content_dead, kept++) = d;
                        } else {
                                map_give(&c->map, d.start, d.units);
                                c->dead_units -= d.units;
                        }
                }
                g_array_set_size(c->dead, kept);
        }
        if (!c->read_only)
                trim(c);
}

static struct content *unconst(const struct content *c) {
        return (struct content *)(uintptr_t)c;
}

uint64_t content_live_bytes(const struct content *c) {
        HOLD(&unconst(c)->lock);
        return (c->map.total - c->map.free - c->dead_units - MIN_OF(c->map.total, 1)) * CONTENT_UNIT;
}

uint64_t content_dead_bytes(const struct content *c) {
        HOLD(&unconst(c)->lock);
        return c->dead_units * CONTENT_UNIT;
}

uint64_t content_file_size(const struct content *c) {
        HOLD(&unconst(c)->lock);
        return c->map.total * CONTENT_UNIT;
}
