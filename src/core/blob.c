/* blob.c: see core/blob.h.
 *
 * The form of a content is canonical, whatever edits led to it: a chunk ends at its last byte that is not zero, a chunk without such
 * a byte is a hole, holes at the end have no slot. So equal bytes mean equal holes, equal allocation and equal digests on every node,
 * also on one that got the content from its store or from another member. */
#include "core/blob.h"

#include "core/limits.h"

#include <stdatomic.h>
#include <string.h>

#define BLOB_SIZE_MAX (UINT64_C(1) << 31) /* sizes are kept in 32 bits; far above LIMIT_FILE_SIZE_MAX */
static_assert(LIMIT_FILE_SIZE_MAX <= BLOB_SIZE_MAX, "any file fits in a blob");
static_assert(BLOB_CHUNK <= UINT16_MAX, "a chunk's length fits in 16 bits");

struct chunk {
        _Atomic uint32_t refs;
        uint16_t len; /* 1..BLOB_CHUNK; the rest of the chunk is zeros */
        _Atomic uint8_t hashed;
        _Atomic uint64_t lo, hi; /* valid once `hashed` was seen as 1 */
        uint8_t data[];
};
struct blob {
        _Atomic uint32_t refs;
        uint32_t n; /* slots */
        uint32_t size;
        uint32_t allocated;
        struct chunk *chunks[]; /* NULL: a hole */
};

static const uint8_t zeros[BLOB_CHUNK];

static struct chunk *chunk_ref(struct chunk *c) {
        if (c)
                (void)atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
        return c;
}
static void chunk_unref(struct chunk *c) {
        if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1)
                free(c);
}
struct blob *blob_ref(struct blob *b) {
        if (b)
                (void)atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
        return b;
}
void blob_unref(struct blob *b) {
        if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
                return;
        for (uint32_t i = 0; i < b->n; i++)
                chunk_unref(b->chunks[i]);
        free(b);
}

/* Length without the zeros at the end. */
static size_t trimmed(const uint8_t *p, size_t n) {
        while (n >= 8) {
                uint64_t word;
                memcpy(&word, p + n - 8, 8);
                if (word != 0)
                        break;
                n -= 8;
        }
        while (n > 0 && p[n - 1] == 0)
                n--;
        return n;
}

/* A chunk of these bytes: none if all are zero, `like` again if it already says the same. */
static errint_t chunk_make(const uint8_t *p, size_t n, struct chunk *like, struct chunk **ret) {
        n = trimmed(p, n);
        if (n == 0) {
                *ret = NULL;
                return 0;
        }
        if (like && like->len == n && memcmp(like->data, p, n) == 0) {
                *ret = chunk_ref(like);
                return 0;
        }
        struct chunk *c = try_malloc(sizeof(struct chunk) + n);
        if (!c)
                return -ENOMEM;
        atomic_init(&c->refs, 1);
        c->len = (uint16_t)n;
        atomic_init(&c->hashed, 0);
        atomic_init(&c->lo, 0);
        atomic_init(&c->hi, 0);
        memcpy(c->data, p, n);
        *ret = c;
        return 0;
}

static struct blob *blob_alloc(uint64_t size, uint64_t slots) {
        struct blob *b = try_malloc(sizeof(struct blob) + (size_t)slots * sizeof(struct chunk *));
        if (!b)
                return NULL;
        atomic_init(&b->refs, 1);
        b->n = (uint32_t)slots;
        b->size = (uint32_t)size;
        b->allocated = 0;
        memset(b->chunks, 0, (size_t)slots * sizeof(struct chunk *));
        return b;
}

/* Drops the slots of holes at the end and counts what is allocated. */
static struct blob *blob_finish(struct blob *b) {
        uint32_t slots = b->n;
        while (b->n > 0 && !b->chunks[b->n - 1])
                b->n--;
        if (b->n < slots) {
                struct blob *smaller = realloc(b, sizeof(struct blob) + b->n * sizeof(struct chunk *));
                if (smaller)
                        b = smaller;
        }
        uint64_t allocated = 0;
        for (uint32_t i = 0; i < b->n; i++)
                if (b->chunks[i])
                        allocated += MIN_OF(BLOB_CHUNK, b->size - i * BLOB_CHUNK);
        b->allocated = (uint32_t)allocated;
        return b;
}

static struct chunk *blob_chunk(const struct blob *b, uint64_t i) {
        return b && i < b->n ? b->chunks[i] : NULL;
}

errint_t blob_from_bytes(const void *p, size_t n, struct blob **ret) {
        struct extent all = {0, n, p ? EXTENT_DATA : EXTENT_ZERO};
        return blob_edit(NULL, 0, &all, n > 0 ? 1 : 0, p, p ? n : 0, n, ret);
}

uint64_t blob_size(const struct blob *b) {
        return b ? b->size : 0;
}

uint64_t blob_allocated(const struct blob *b) {
        return b ? b->allocated : 0;
}

size_t blob_span(const struct blob *b, uint64_t offset, const uint8_t **ret_ptr) {
        if (offset >= blob_size(b))
                return 0;
        const struct chunk *c = blob_chunk(b, offset / BLOB_CHUNK);
        size_t in = (size_t)(offset % BLOB_CHUNK), end = (size_t)MIN_OF(BLOB_CHUNK, b->size - (offset - in));
        if (c && in < c->len) {
                *ret_ptr = c->data + in;
                return MIN_OF(c->len, end) - in;
        }
        *ret_ptr = zeros;
        return end - in;
}

size_t blob_read(const struct blob *b, uint64_t offset, void *buf, size_t n) {
        size_t done = 0;
        while (done < n) {
                const uint8_t *p = NULL;
                size_t len = blob_span(b, offset + done, &p);
                if (len == 0)
                        break;
                len = MIN_OF(len, n - done);
                memcpy((uint8_t *)buf + done, p, len);
                done += len;
        }
        return done;
}

int64_t blob_next(const struct blob *b, uint64_t offset, bool data) {
        uint64_t size = blob_size(b);
        if (offset >= size)
                return -ENXIO;
        uint64_t first = offset / BLOB_CHUNK, i = first, n = (size + BLOB_CHUNK - 1) / BLOB_CHUNK;
        while (i < n && (blob_chunk(b, i) != NULL) != data)
                i++;
        if (i == n)
                return data ? -ENXIO : (int64_t)size;
        return (int64_t)(i == first ? offset : i * BLOB_CHUNK);
}

bool blob_equal(const struct blob *a, const struct blob *b) {
        if (a == b)
                return true;
        if (!a || !b || a->size != b->size || a->n != b->n)
                return false;
        for (uint32_t i = 0; i < a->n; i++) {
                const struct chunk *x = a->chunks[i], *y = b->chunks[i];
                if (x != y && (!x || !y || x->len != y->len || memcmp(x->data, y->data, x->len) != 0))
                        return false;
        }
        return true;
}

static void put64(uint8_t *p, uint64_t v) {
        for (int i = 0; i < 8; i++)
                p[i] = (uint8_t)(v >> (8 * i));
}

static struct hash128 chunk_hash(struct chunk *c) {
        if (atomic_load_explicit(&c->hashed, memory_order_acquire))
                return (struct hash128){atomic_load_explicit(&c->lo, memory_order_relaxed),
                                        atomic_load_explicit(&c->hi, memory_order_relaxed)};
        struct hash128 h = hash128_of(c->data, c->len); /* two threads may both do it: they store the same */
        atomic_store_explicit(&c->lo, h.lo, memory_order_relaxed);
        atomic_store_explicit(&c->hi, h.hi, memory_order_relaxed);
        atomic_store_explicit(&c->hashed, 1, memory_order_release);
        return h;
}

/* H(size) plus the sum of H(index, hash of the chunk's trimmed bytes) over the chunks that are not holes. */
struct hash128 blob_digest(const struct blob *b) {
        uint8_t buf[24];
        put64(buf, blob_size(b));
        struct hash128 sum = hash128_of(buf, 8);
        for (uint32_t i = 0; b && i < b->n; i++) {
                if (!b->chunks[i])
                        continue;
                struct hash128 h = chunk_hash(b->chunks[i]);
                put64(buf, i);
                put64(buf + 8, h.lo);
                put64(buf + 16, h.hi);
                sum = hash128_add(sum, hash128_of(buf, sizeof(buf)));
        }
        return sum;
}

/* --- editing --- */

struct edit {
        const struct blob *old;
        uint64_t kept, size, end; /* end: of the last extent */
        const struct extent *extents;
        size_t n;
        const uint8_t *data;
        size_t next;       /* first extent that ends behind the chunk's start */
        uint64_t data_pos; /* where its bytes are */
};

static errint_t edit_check(struct edit *e, size_t data_len) {
        uint64_t end = 0, bytes = 0;
        for (size_t i = 0; i < e->n; i++) {
                const struct extent *x = &e->extents[i];
                if (x->offset < end || x->length > UINT64_MAX - x->offset || (x->kind != EXTENT_DATA && x->kind != EXTENT_ZERO))
                        return -EINVAL;
                end = x->offset + x->length;
                if (x->kind == EXTENT_DATA)
                        bytes += x->length; /* cannot overflow: the extents do not overlap */
        }
        if (bytes != data_len)
                return -EINVAL;
        e->end = end;
        return 0;
}

/* Lays old bytes and all extents that touch [start, end) over each other. */
static errint_t edit_mixed_chunk(const struct edit *e, struct chunk *old, uint64_t start, uint64_t end, struct chunk **ret) {
        uint8_t buf[BLOB_CHUNK];
        memset(buf, 0, (size_t)(end - start));
        if (old && e->kept > start)
                memcpy(buf, old->data, (size_t)MIN_OF(MIN_OF((uint64_t)old->len, e->kept - start), end - start));
        uint64_t pos = e->data_pos;
        for (size_t i = e->next; i < e->n && e->extents[i].offset < end; i++) {
                const struct extent *x = &e->extents[i];
                uint64_t from = MAX_OF(x->offset, start), to = MIN_OF(x->offset + x->length, end);
                if (from < to && x->kind == EXTENT_DATA)
                        memcpy(buf + (from - start), e->data + pos + (from - x->offset), (size_t)(to - from));
                else if (from < to)
                        memset(buf + (from - start), 0, (size_t)(to - from));
                if (x->kind == EXTENT_DATA)
                        pos += x->length;
        }
        return chunk_make(buf, (size_t)(end - start), old, ret);
}

static errint_t edit_chunk(struct edit *e, uint64_t index, struct chunk **ret) {
        uint64_t start = index * BLOB_CHUNK, end = MIN_OF(start + BLOB_CHUNK, e->size);
        struct chunk *old = blob_chunk(e->old, index);
        while (e->next < e->n && e->extents[e->next].offset + e->extents[e->next].length <= start) {
                if (e->extents[e->next].kind == EXTENT_DATA)
                        e->data_pos += e->extents[e->next].length;
                e->next++;
        }
        const struct extent *x = e->next < e->n ? &e->extents[e->next] : NULL;
        if (!x || x->offset >= end) { /* untouched, but perhaps cut */
                uint64_t limit = MIN_OF(e->kept, end);
                if (!old || limit <= start)
                        *ret = NULL;
                else if (limit - start >= old->len)
                        *ret = chunk_ref(old);
                else
                        return chunk_make(old->data, (size_t)(limit - start), NULL, ret);
                return 0;
        }
        if (x->offset <= start && x->offset + x->length >= end) { /* covered as a whole */
                if (x->kind == EXTENT_ZERO)
                        *ret = NULL;
                else
                        return chunk_make(e->data + e->data_pos + (start - x->offset), (size_t)(end - start), old, ret);
                return 0;
        }
        return edit_mixed_chunk(e, old, start, end, ret);
}

errint_t blob_edit(struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents, const void *data, size_t data_len,
                   uint64_t size, struct blob **ret) {
        struct edit e = {.old = old, .kept = MIN_OF(keep, blob_size(old)), .extents = extents, .n = n_extents, .data = data};
        errint_t r = edit_check(&e, data_len);
        if (r < 0)
                return r;
        e.size = size == BLOB_KEEP_ALL ? MAX_OF(e.kept, e.end) : size;
        if (e.size > BLOB_SIZE_MAX)
                return -EFBIG;
        if (e.size == 0) {
                *ret = NULL;
                return 0;
        }
        uint64_t written = MIN_OF(e.size, MAX_OF(e.kept, e.end)); /* a hole behind it */
        CLEANUP(blob_unrefp) struct blob *b = blob_alloc(e.size, (written + BLOB_CHUNK - 1) / BLOB_CHUNK);
        if (!b)
                return -ENOMEM;
        for (uint32_t i = 0; i < b->n; i++) {
                r = edit_chunk(&e, i, &b->chunks[i]);
                if (r < 0)
                        return r;
        }
        *ret = blob_finish(steal_pointer(&b));
        return 0;
}
