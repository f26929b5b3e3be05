/* blob.c: see core/blob.h.
 *
 * The form of a content is canonical, whatever edits led to it: a chunk ends at its last byte that is not zero, a chunk without such
 * a byte is a hole, holes at the end have no slot. So equal bytes mean equal holes, equal allocation and equal digests on every node,
 * also on one that got the content from its store or from another member.
 *
 * In memory a content whose only chunk is the first one has it inside, in one allocation: most files are small. Others have an array
 * of shared chunks and remember the sum over them, so that the digest of an edited version costs the chunks that changed. */
#include "core/blob.h"

#include "base/codec.h"
#include "core/limits.h"

#include <stdatomic.h>
#include <string.h>

#define BLOB_SIZE_MAX (UINT64_C(1) << 31) /* sizes are kept in 32 bits; far above LIMIT_FILE_SIZE_MAX */
static_assert(LIMIT_FILE_SIZE_MAX <= BLOB_SIZE_MAX, "any file fits in a blob");
static_assert(BLOB_CHUNK <= UINT16_MAX, "a chunk's length fits in 16 bits");

struct chunk {
        _Atomic uint32_t refs; /* 0: inside its blob, never shared */
        uint16_t len;          /* 1..BLOB_CHUNK; the rest of the chunk is zeros */
        _Atomic bool hashed;
        _Atomic uint64_t lo, hi; /* valid once `hashed` was seen true */
        uint8_t data[];
};
struct outer {
        _Atomic bool summed;
        _Atomic uint64_t lo, hi; /* valid once `summed` was seen true: the sum of chunk_element over the chunks */
        struct chunk *chunks[];  /* NULL: a hole */
};
struct blob { /* a struct chunk follows if `inner`, else a struct outer */
        _Atomic uint32_t refs;
        uint32_t n : 31; /* slots */
        uint32_t inner : 1;
        uint32_t size;
        uint32_t allocated;
};
static_assert(sizeof(struct blob) % _Alignof(struct chunk) == 0 && sizeof(struct blob) % _Alignof(struct outer) == 0,
              "what follows is aligned");

static const uint8_t zeros[BLOB_CHUNK];

static struct outer *blob_outer(const struct blob *b) {
        return (struct outer *)(uintptr_t)(b + 1);
}
static struct chunk *blob_chunk(const struct blob *b, uint64_t i) {
        if (!b || i >= b->n)
                return NULL;
        return b->inner ? (struct chunk *)(uintptr_t)(b + 1) : blob_outer(b)->chunks[i];
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
        for (uint32_t i = 0; !b->inner && i < b->n; i++)
                chunk_unref(blob_outer(b)->chunks[i]);
        free(b);
}

/* --- reading --- */

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

static bool chunk_equal(const struct chunk *x, const struct chunk *y) {
        return x == y || (x && y && x->len == y->len && memcmp(x->data, y->data, x->len) == 0);
}

bool blob_equal(const struct blob *a, const struct blob *b) {
        if (a == b)
                return true;
        if (!a || !b || a->size != b->size || a->n != b->n)
                return false;
        for (uint32_t i = 0; i < a->n; i++)
                if (!chunk_equal(blob_chunk(a, i), blob_chunk(b, i)))
                        return false;
        return true;
}

/* --- digest: H(size) plus the sum of H(index, hash of the chunk's trimmed bytes) over the chunks that are not holes --- */

static struct hash128 chunk_hash(struct chunk *c) {
        if (atomic_load_explicit(&c->hashed, memory_order_acquire))
                return (struct hash128){atomic_load_explicit(&c->lo, memory_order_relaxed),
                                        atomic_load_explicit(&c->hi, memory_order_relaxed)};
        struct hash128 h = hash128_of(c->data, c->len); /* two threads may both do it: they store the same */
        atomic_store_explicit(&c->lo, h.lo, memory_order_relaxed);
        atomic_store_explicit(&c->hi, h.hi, memory_order_relaxed);
        atomic_store_explicit(&c->hashed, true, memory_order_release);
        return h;
}

static struct hash128 chunk_element(uint64_t index, struct chunk *c) {
        uint8_t buf[24];
        if (!c)
                return (struct hash128){0};
        struct hash128 h = chunk_hash(c);
        le_put(buf, index, 8);
        le_put(buf + 8, h.lo, 8);
        le_put(buf + 16, h.hi, 8);
        return hash128_of(buf, sizeof(buf));
}

static bool outer_sum(const struct outer *o, struct hash128 *ret) {
        if (!atomic_load_explicit(&o->summed, memory_order_acquire))
                return false;
        *ret = (struct hash128){atomic_load_explicit(&o->lo, memory_order_relaxed), atomic_load_explicit(&o->hi, memory_order_relaxed)};
        return true;
}

static void outer_set_sum(struct outer *o, struct hash128 sum) {
        atomic_store_explicit(&o->lo, sum.lo, memory_order_relaxed);
        atomic_store_explicit(&o->hi, sum.hi, memory_order_relaxed);
        atomic_store_explicit(&o->summed, true, memory_order_release);
}

struct hash128 blob_digest(const struct blob *b) {
        uint8_t buf[8];
        le_put(buf, blob_size(b), 8);
        struct hash128 size = hash128_of(buf, sizeof(buf)), sum = {0};
        if (!b)
                return size;
        if (b->inner)
                return hash128_add(size, chunk_element(0, blob_chunk(b, 0)));
        if (!outer_sum(blob_outer(b), &sum)) {
                for (uint32_t i = 0; i < b->n; i++)
                        sum = hash128_add(sum, chunk_element(i, blob_chunk(b, i)));
                outer_set_sum(blob_outer(b), sum); /* two threads may both do it */
        }
        return hash128_add(size, sum);
}

/* --- making --- */

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

/* What a chunk of the new content will be: bytes, and an old chunk if one has just these. No bytes: a hole. */
struct piece {
        const uint8_t *p;
        size_t n;
        struct chunk *like;
};

static struct piece piece_of(const uint8_t *p, size_t n, struct chunk *old) {
        n = trimmed(p, n);
        bool same = old && old->len == n && memcmp(old->data, p, n) == 0;
        return (struct piece){p, n, same ? old : NULL};
}

static void chunk_fill(struct chunk *c, uint32_t refs, const struct piece *x) {
        bool hashed = x->like && atomic_load_explicit(&x->like->hashed, memory_order_acquire);
        atomic_init(&c->refs, refs);
        c->len = (uint16_t)x->n;
        atomic_init(&c->hashed, hashed);
        atomic_init(&c->lo, hashed ? atomic_load_explicit(&x->like->lo, memory_order_relaxed) : 0);
        atomic_init(&c->hi, hashed ? atomic_load_explicit(&x->like->hi, memory_order_relaxed) : 0);
        memcpy(c->data, x->p, x->n);
}

static errint_t chunk_make(const struct piece *x, struct chunk **ret) {
        if (x->n == 0)
                return 0;
        if (x->like && atomic_load_explicit(&x->like->refs, memory_order_relaxed) > 0) {
                (void)atomic_fetch_add_explicit(&x->like->refs, 1, memory_order_relaxed);
                *ret = x->like;
                return 0;
        }
        struct chunk *c = try_malloc(sizeof(struct chunk) + x->n);
        if (!c)
                return -ENOMEM;
        chunk_fill(c, 1, x);
        *ret = c;
        return 0;
}

static struct blob *blob_alloc(uint64_t size, uint64_t slots, bool inner, size_t more) {
        struct blob *b = try_malloc(sizeof(struct blob) + more);
        if (!b)
                return NULL;
        atomic_init(&b->refs, 1);
        b->n = (uint32_t)slots & INT32_MAX;
        b->inner = inner;
        b->size = (uint32_t)size;
        b->allocated = 0;
        return b;
}

static struct blob *blob_new_inner(uint64_t size, const struct piece *x) {
        struct blob *b = blob_alloc(size, 1, true, sizeof(struct chunk) + x->n);
        if (!b)
                return NULL;
        chunk_fill(blob_chunk(b, 0), 0, x);
        b->allocated = (uint32_t)MIN_OF(BLOB_CHUNK, size);
        return b;
}

static struct blob *blob_new_outer(uint64_t size, uint64_t slots) {
        struct blob *b = blob_alloc(size, slots, false, sizeof(struct outer) + (size_t)slots * sizeof(struct chunk *));
        if (!b)
                return NULL;
        struct outer *o = blob_outer(b);
        atomic_init(&o->summed, false);
        atomic_init(&o->lo, 0);
        atomic_init(&o->hi, 0);
        memset(o->chunks, 0, (size_t)slots * sizeof(struct chunk *));
        return b;
}

/* Drops the slots of holes at the end and counts what is allocated. */
static struct blob *blob_finish_outer(struct blob *b) {
        uint32_t slots = b->n;
        while (b->n > 0 && !blob_chunk(b, b->n - 1u))
                b->n--;
        if (b->n < slots) {
                struct blob *smaller = realloc(b, sizeof(struct blob) + sizeof(struct outer) + b->n * sizeof(struct chunk *));
                if (smaller)
                        b = smaller;
        }
        uint64_t allocated = 0;
        for (uint32_t i = 0; i < b->n; i++)
                if (blob_chunk(b, i))
                        allocated += MIN_OF(BLOB_CHUNK, b->size - i * BLOB_CHUNK);
        b->allocated = (uint32_t)allocated;
        return b;
}

/* If the old version knows its sum, so does the new one: only what differs is hashed. */
static void blob_roll_sum(struct blob *b, const struct blob *old) {
        struct hash128 sum;
        if (!old || old->inner || !outer_sum(blob_outer(old), &sum))
                return;
        for (uint32_t i = 0; i < MAX_OF(b->n, old->n); i++) {
                struct chunk *was = blob_chunk(old, i), *is = blob_chunk(b, i);
                if (was != is)
                        sum = hash128_add(hash128_sub(sum, chunk_element(i, was)), chunk_element(i, is));
        }
        outer_set_sum(blob_outer(b), sum);
}

/* --- editing --- */

struct edit {
        const struct blob *old;
        uint64_t kept, size, end; /* end: of the last extent */
        const struct extent *extents;
        size_t n;
        const uint8_t *data;       /* or: */
        const struct blob *source; /* with the bytes where they belong */
        size_t next;               /* first extent that ends behind the chunk's start */
        uint64_t data_pos;         /* where its bytes are */
        uint8_t buf[BLOB_CHUNK];
};

static errint_t edit_check(struct edit *e, uint64_t *ret_bytes) {
        uint64_t end = 0, bytes = 0;
        for (size_t i = 0; i < e->n; i++) {
                const struct extent *x = &e->extents[i];
                if (x->offset < end || x->length > UINT64_MAX - x->offset || (x->kind != EXTENT_DATA && x->kind != EXTENT_ZERO))
                        return -EINVAL;
                end = x->offset + x->length;
                if (x->kind == EXTENT_DATA)
                        bytes += x->length; /* cannot overflow: the extents do not overlap */
        }
        e->end = end;
        *ret_bytes = bytes;
        return 0;
}

/* Lays old bytes and all extents that touch [start, end) over each other. */
static struct piece edit_mixed_chunk(struct edit *e, struct chunk *old, uint64_t start, uint64_t end) {
        memset(e->buf, 0, (size_t)(end - start));
        if (old && e->kept > start)
                memcpy(e->buf, old->data, (size_t)MIN_OF(MIN_OF((uint64_t)old->len, e->kept - start), end - start));
        uint64_t pos = e->data_pos;
        for (size_t i = e->next; i < e->n && e->extents[i].offset < end; i++) {
                const struct extent *x = &e->extents[i];
                uint64_t from = MAX_OF(x->offset, start), to = MIN_OF(x->offset + x->length, end);
                if (from < to && x->kind == EXTENT_DATA && e->source)
                        (void)blob_read(e->source, from, e->buf + (from - start), (size_t)(to - from)); /* all of it is there */
                else if (from < to && x->kind == EXTENT_DATA)
                        memcpy(e->buf + (from - start), e->data + pos + (from - x->offset), (size_t)(to - from));
                else if (from < to)
                        memset(e->buf + (from - start), 0, (size_t)(to - from));
                if (x->kind == EXTENT_DATA)
                        pos += x->length;
        }
        return piece_of(e->buf, (size_t)(end - start), old);
}

static struct piece edit_source_chunk(const struct edit *e, struct chunk *old, uint64_t index, size_t n) {
        struct chunk *c = blob_chunk(e->source, index);
        if (!c)
                return (struct piece){0};
        if (c->len > n)
                return piece_of(c->data, n, old);
        return (struct piece){c->data, c->len, chunk_equal(c, old) ? old : c};
}

/* The next chunk; indexes ascend from call to call. */
static struct piece edit_chunk(struct edit *e, uint64_t index) {
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
                        return (struct piece){0};
                if (limit - start >= old->len)
                        return (struct piece){old->data, old->len, old};
                return piece_of(old->data, (size_t)(limit - start), NULL);
        }
        if (x->offset <= start && x->offset + x->length >= end) { /* covered as a whole */
                if (x->kind == EXTENT_ZERO)
                        return (struct piece){0};
                if (e->source)
                        return edit_source_chunk(e, old, index, (size_t)(end - start));
                return piece_of(e->data + e->data_pos + (start - x->offset), (size_t)(end - start), old);
        }
        return edit_mixed_chunk(e, old, start, end);
}

static errint_t edit_small(struct edit *e, struct blob **ret) {
        struct piece x = edit_chunk(e, 0);
        struct blob *b = x.n > 0 ? blob_new_inner(e->size, &x) : blob_new_outer(e->size, 0);
        if (!b)
                return -ENOMEM;
        *ret = b;
        return 0;
}

static errint_t edit_large(struct edit *e, uint64_t slots, struct blob **ret) {
        CLEANUP(blob_unrefp) struct blob *b = blob_new_outer(e->size, slots);
        if (!b)
                return -ENOMEM;
        for (uint32_t i = 0; i < b->n; i++) {
                struct piece x = edit_chunk(e, i);
                errint_t r = chunk_make(&x, &blob_outer(b)->chunks[i]);
                if (r < 0)
                        return r;
        }
        b = blob_finish_outer(b);
        blob_roll_sum(b, e->old);
        *ret = steal_pointer(&b);
        return 0;
}

/* not `= {0}`: the buffer needs no clearing */
static void edit_init(struct edit *e, const struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents) {
        e->old = old;
        e->kept = MIN_OF(keep, blob_size(old));
        e->extents = extents;
        e->n = n_extents;
        e->data = NULL;
        e->source = NULL;
        e->next = 0;
        e->data_pos = 0;
}

static errint_t edit_run(struct edit *e, uint64_t size, struct blob **ret) {
        e->size = size == BLOB_KEEP_ALL ? MAX_OF(e->kept, e->end) : size;
        if (e->size > BLOB_SIZE_MAX)
                return -EFBIG;
        if (e->size == 0) {
                *ret = NULL;
                return 0;
        }
        uint64_t written = MIN_OF(e->size, MAX_OF(e->kept, e->end)); /* a hole behind it */
        uint64_t slots = (written + BLOB_CHUNK - 1) / BLOB_CHUNK;
        return slots <= 1 ? edit_small(e, ret) : edit_large(e, slots, ret);
}

errint_t blob_edit(struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents, const void *data, size_t data_len,
                   uint64_t size, struct blob **ret) {
        struct edit e;
        uint64_t bytes = 0;
        edit_init(&e, old, keep, extents, n_extents);
        e.data = data;
        errint_t r = edit_check(&e, &bytes);
        if (r < 0 || bytes != data_len)
                return -EINVAL;
        return edit_run(&e, size, ret);
}

errint_t blob_edit_from(struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents, struct blob *source, uint64_t size,
                        struct blob **ret) {
        struct edit e;
        uint64_t bytes = 0;
        edit_init(&e, old, keep, extents, n_extents);
        e.source = source;
        if (edit_check(&e, &bytes) < 0 || (bytes > 0 && e.end > blob_size(source)))
                return -EINVAL;
        bool whole = bytes == blob_size(source) && e.end == bytes; /* the extents cover it without a gap */
        if (whole && (size == bytes || (size == BLOB_KEEP_ALL && e.kept <= bytes))) {
                *ret = blob_ref(source);
                return 0;
        }
        return edit_run(&e, size, ret);
}

errint_t blob_from_bytes(const void *p, size_t n, struct blob **ret) {
        struct extent all = {0, n, p ? EXTENT_DATA : EXTENT_ZERO};
        return blob_edit(NULL, 0, &all, n > 0 ? 1 : 0, p, p ? n : 0, n, ret);
}
