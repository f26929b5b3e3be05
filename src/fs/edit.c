/* edit.c: see edit.h. */
#include "edit.h"

#include <string.h>

void edit_done(struct edit *e) {
        free(e->extents);
        *e = EDIT_NONE;
}

bool edit_is_none(const struct edit *e) {
        return e->n == 0 && e->keep == BLOB_KEEP_ALL && e->size == BLOB_KEEP_ALL;
}

bool edit_is_full(const struct edit *e) {
        return e->n + 2 > OP_EXTENTS_MAX;
}

static uint64_t extent_end(const struct extent *x) {
        return x->offset + x->length;
}

/* The first extent that ends behind `offset`. */
static size_t edit_seek(const struct edit *e, uint64_t offset) {
        size_t low = 0, high = e->n;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (extent_end(&e->extents[mid]) <= offset)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

static void edit_replace(struct edit *e, size_t from, size_t to, const struct extent *with, size_t n) {
        size_t after = e->n - to, total = from + n + after;
        if (total > e->cap) {
                e->cap = MAX_OF(total, e->cap * 2);
                e->extents = xrealloc(e->extents, e->cap * sizeof(struct extent));
        }
        memmove(e->extents + from + n, e->extents + to, after * sizeof(struct extent));
        memcpy(e->extents + from, with, n * sizeof(struct extent));
        e->n = total;
}

struct pieces {
        struct extent x[5];
        size_t n;
};
static void pieces_add(struct pieces *p, struct extent x) {
        struct extent *last = p->n > 0 ? &p->x[p->n - 1] : NULL;
        if (last && last->kind == x.kind && extent_end(last) == x.offset)
                last->length += x.length;
        else
                p->x[p->n++] = x;
}
static uint64_t data_in(const struct extent *x, size_t n) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++)
                sum += x[i].kind == EXTENT_DATA ? x[i].length : 0;
        return sum;
}

/* What lies under the new extent goes; what it cuts stays as remnants; neighbours of its kind melt into it. */
static void edit_lay(struct edit *e, struct extent x) {
        PRE(e->n == 0 || e->extents);
        uint64_t end = extent_end(&x);
        struct extent *last = e->n > 0 ? &e->extents[e->n - 1] : NULL;
        if (last && last->kind == x.kind && x.offset >= last->offset &&
            x.offset <= extent_end(last)) { /* sequential writes: most of them */
                uint64_t more = end > extent_end(last) ? end - extent_end(last) : 0;
                last->length += more;
                e->data_bytes += x.kind == EXTENT_DATA ? more : 0;
                return;
        }
        size_t from = edit_seek(e, x.offset), to = from;
        while (to < e->n && e->extents[to].offset < end)
                to++;
        struct pieces p = {0};
        size_t first = from, behind = to;
        if (from > 0 && extent_end(&e->extents[from - 1]) == x.offset)
                pieces_add(&p, e->extents[first = from - 1]);
        if (from < to && e->extents[from].offset < x.offset)
                pieces_add(&p, (struct extent){e->extents[from].offset, x.offset - e->extents[from].offset, e->extents[from].kind});
        pieces_add(&p, x);
        if (from < to && extent_end(&e->extents[to - 1]) > end)
                pieces_add(&p, (struct extent){end, extent_end(&e->extents[to - 1]) - end, e->extents[to - 1].kind});
        if (to < e->n && e->extents[to].offset == end)
                pieces_add(&p, e->extents[(behind = to + 1) - 1]);
        e->data_bytes += data_in(p.x, p.n) - data_in(e->extents + first, behind - first);
        edit_replace(e, first, behind, p.x, p.n);
}

static void edit_extend(struct edit *e, uint64_t end) {
        if (e->size != BLOB_KEEP_ALL && e->size < end)
                e->size = end;
}

void edit_write(struct edit *e, uint64_t offset, uint64_t length) {
        if (length == 0)
                return;
        edit_lay(e, (struct extent){offset, length, EXTENT_DATA});
        edit_extend(e, offset + length);
}

void edit_zero(struct edit *e, uint64_t offset, uint64_t length) {
        if (length == 0)
                return;
        edit_lay(e, (struct extent){offset, length, EXTENT_ZERO});
        edit_extend(e, offset + length);
}

void edit_truncate(struct edit *e, uint64_t size) {
        PRE(!e->append && (e->n == 0 || e->extents));
        size_t n = edit_seek(e, size);
        if (n < e->n && e->extents[n].offset < size) {
                e->extents[n].length = size - e->extents[n].offset;
                n++;
        }
        e->n = n;
        e->data_bytes = data_in(e->extents, e->n);
        e->keep = MIN_OF(e->keep, size);
        e->size = size;
}

void edit_simplify(struct edit *e, uint64_t size) {
        if (e->append || e->keep != 0 || e->size != size || e->n <= 1 || e->data_bytes < size / 2)
                return;
        e->extents[0] = (struct extent){0, size, EXTENT_DATA};
        e->n = 1;
        e->data_bytes = size;
}

void edit_bytes(const struct edit *e, const struct blob *source, uint8_t *p) {
        for (size_t i = 0; i < e->n; i++) {
                if (e->extents[i].kind != EXTENT_DATA)
                        continue;
                size_t got = blob_read(source, e->extents[i].offset, p, (size_t)e->extents[i].length);
                POST(got == e->extents[i].length); /* whoever made the edit wrote these bytes */
                p += got;
        }
}

errint_t edit_payload(const struct edit *e, const struct blob *source, uint8_t **ret, size_t *ret_len) {
        if (e->data_bytes == 0) {
                *ret = NULL;
                *ret_len = 0;
                return 0;
        }
        uint8_t *p = try_malloc((size_t)e->data_bytes);
        if (!p)
                return -ENOMEM;
        edit_bytes(e, source, p);
        *ret = p;
        *ret_len = (size_t)e->data_bytes;
        return 0;
}

errint_t edit_replay(const struct edit *e, struct blob *source, struct blob *onto, struct blob **ret, uint64_t *ret_at) {
        cleanup_free uint8_t *data = NULL;
        size_t len = 0;
        uint64_t end = blob_size(onto);
        errint_t r;
        if (e->append) {
                r = edit_payload(e, source, &data, &len);
                struct extent x = {end, len, EXTENT_DATA};
                if (r == 0)
                        r = blob_edit(onto, BLOB_KEEP_ALL, &x, len > 0 ? 1 : 0, data, len, BLOB_KEEP_ALL, ret);
        } else {
                r = blob_edit_from(onto, e->keep, e->extents, e->n, source, e->size, ret);
        }
        if (r == 0)
                *ret_at = end;
        return r;
}
