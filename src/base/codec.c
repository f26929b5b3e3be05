/* codec.c: little-endian bytes in and out. Values are copied and turned, never cast, so the host's byte order and alignment do not matter.
 */
#include "base/codec.h"
#include "base/failpoint.h"
#include <string.h>

#define VARINT_MAX 10u /* bytes of a 64-bit LEB128 */
#define ENC_FIRST  64u /* capacity of the first allocation */

void enc_init(struct enc *e, size_t max) {
        *e = (struct enc){.max = max};
}

void enc_done(struct enc *e) {
        free(e->data);
        *e = (struct enc){.max = e->max};
}

void enc_reset(struct enc *e) {
        e->len = 0;
        e->err = 0;
}

static errint_t enc_grow(struct enc *e, size_t need) {
        size_t cap = e->cap < ENC_FIRST ? ENC_FIRST : e->cap;

        while (cap < need)
                cap = cap > e->max / 2 ? e->max : cap * 2;
        cap = MIN_OF(cap, e->max);
        if (failpoint("alloc"))
                return -ENOMEM;
        uint8_t *data = realloc(e->data, cap);
        if (!data)
                return -ENOMEM;
        e->data = data;
        e->cap = cap;
        return 0;
}

uint8_t *enc_space(struct enc *e, size_t n) {
        static uint8_t nothing;

        if (e->err)
                return NULL;
        if (n > e->max - e->len) {
                e->err = -EMSGSIZE;
                return NULL;
        }
        if (n == 0)
                return e->data ? e->data + e->len : &nothing;
        if (n > e->cap - e->len) {
                e->err = enc_grow(e, e->len + n);
                if (e->err)
                        return NULL;
        }
        uint8_t *at = e->data + e->len;
        e->len += n;
        return at;
}

static void enc_le(struct enc *e, uint64_t v, size_t n) {
        uint8_t *at = enc_space(e, n);
        if (at)
                le_put(at, v, n);
}

void enc_u8(struct enc *e, uint8_t v) {
        enc_le(e, v, 1);
}
void enc_u16(struct enc *e, uint16_t v) {
        enc_le(e, v, 2);
}
void enc_u32(struct enc *e, uint32_t v) {
        enc_le(e, v, 4);
}
void enc_u64(struct enc *e, uint64_t v) {
        enc_le(e, v, 8);
}

void enc_varint(struct enc *e, uint64_t v) {
        uint8_t buf[VARINT_MAX];
        size_t n = 0;

        for (; v >= 0x80; v >>= 7)
                buf[n++] = (uint8_t)(v | 0x80);
        buf[n++] = (uint8_t)v;
        enc_raw(e, buf, n);
}

void enc_svarint(struct enc *e, int64_t v) {
        enc_varint(e, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

void enc_hash128(struct enc *e, struct hash128 h) {
        enc_u64(e, h.lo);
        enc_u64(e, h.hi);
}

void enc_raw(struct enc *e, const void *p, size_t n) {
        uint8_t *at = enc_space(e, n);
        if (at && n > 0)
                memcpy(at, p, n);
}

void enc_bytes(struct enc *e, const void *p, size_t n) {
        enc_varint(e, n);
        enc_raw(e, p, n);
}

void enc_patch_u32(struct enc *e, size_t at, uint32_t v) {
        if (e->err)
                return;
        PRE(at <= e->len && e->len - at >= 4);
        le_put(e->data + at, v, 4);
}

void dec_init(struct dec *d, const void *p, size_t n) {
        static const uint8_t nothing[1];

        PRE(p || n == 0);
        /* No arithmetic on NULL, and an empty read of an empty input is not mistaken for an error. */
        d->p = p ? p : nothing;
        d->end = d->p + n;
        d->err = 0;
}

size_t dec_left(const struct dec *d) {
        return (size_t)(d->end - d->p);
}

void dec_fail(struct dec *d) {
        d->err = -EBADMSG;
        d->p = d->end; /* so that loops over what is left end */
}

const uint8_t *dec_raw(struct dec *d, size_t n) {
        if (d->err)
                return NULL;
        if (n > dec_left(d)) {
                dec_fail(d);
                return NULL;
        }
        const uint8_t *at = d->p;
        d->p += n;
        return at;
}

static inline uint64_t dec_le(struct dec *d, size_t n) {
        const uint8_t *at = dec_raw(d, n);
        uint64_t v = 0;

        if (at)
                memcpy(&v, at, n);
        return le64toh(v);
}

uint8_t dec_u8(struct dec *d) {
        return (uint8_t)dec_le(d, 1);
}
uint16_t dec_u16(struct dec *d) {
        return (uint16_t)dec_le(d, 2);
}
uint32_t dec_u32(struct dec *d) {
        return (uint32_t)dec_le(d, 4);
}
uint64_t dec_u64(struct dec *d) {
        return dec_le(d, 8);
}

struct hash128 dec_hash128(struct dec *d) {
        struct hash128 h = {.lo = dec_u64(d)};
        h.hi = dec_u64(d);
        return h;
}

uint64_t dec_varint(struct dec *d) {
        uint64_t v = 0;

        for (unsigned i = 0; i < VARINT_MAX; i++) {
                uint8_t byte = dec_u8(d);
                bool last = byte < 0x80;
                /* One value has one form: no trailing zero group, and the tenth byte holds bit 63 alone. */
                if (d->err || (last && byte == 0 && i > 0) || (i == VARINT_MAX - 1 && byte > 1))
                        break;
                v |= (uint64_t)(byte & 0x7f) << (7 * i);
                if (last)
                        return v;
        }
        dec_fail(d);
        return 0;
}

int64_t dec_svarint(struct dec *d) {
        uint64_t v = dec_varint(d);
        return (int64_t)((v >> 1) ^ (v & 1 ? UINT64_MAX : 0));
}

const uint8_t *dec_bytes(struct dec *d, size_t max, size_t *ret) {
        uint64_t n = dec_varint(d);

        if (!d->err && n > max)
                dec_fail(d);
        const uint8_t *at = d->err ? NULL : dec_raw(d, (size_t)n);
        *ret = at ? (size_t)n : 0;
        return at;
}

errint_t dec_finish(struct dec *d) {
        if (!d->err && d->p != d->end)
                dec_fail(d);
        return d->err;
}
