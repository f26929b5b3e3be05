/* codec.h: explicit little-endian encoding, bounds-checked both ways. Errors are sticky: check once, at the end.
 *
 * Everything on disk and on the wire passes through here; no struct is written as it lies in memory. Pure, any thread. */
#pragma once

#include "base/hash.h"

#include <endian.h>
#include <string.h>

/* The n low bytes of v, for what is no stream: digests, places in a buffer. */
static inline void le_put(uint8_t *at, uint64_t v, size_t n) {
        v = htole64(v);
        memcpy(at, &v, n);
}

/* Encoder: a growing buffer up to `max` bytes. After an error (-EMSGSIZE, -ENOMEM) further calls do nothing. */
struct enc {
        uint8_t *data;
        size_t len, cap, max;
        errint_t err;
};
void enc_init(struct enc *e, size_t max);
void enc_done(struct enc *e);  /* frees; `= {0}` is a valid empty encoder for this */
void enc_reset(struct enc *e); /* keeps the memory */
void enc_u8(struct enc *e, uint8_t v);
void enc_u16(struct enc *e, uint16_t v);
void enc_u32(struct enc *e, uint32_t v);
void enc_u64(struct enc *e, uint64_t v);
void enc_varint(struct enc *e, uint64_t v);  /* LEB128, at most 10 bytes */
void enc_svarint(struct enc *e, int64_t v);  /* zigzag */
void enc_hash128(struct enc *e, struct hash128 h); /* lo, hi */
void enc_raw(struct enc *e, const void *p, size_t n);
void enc_bytes(struct enc *e, const void *p, size_t n); /* varint length, then the bytes */
uint8_t *enc_space(struct enc *e, size_t n);            /* n bytes to fill in; NULL after an error */
void enc_patch_u32(struct enc *e, size_t at, uint32_t v); /* overwrite 4 bytes written before */

/* Decoder over memory it does not own. After an error (-EBADMSG) every read returns zeros. */
struct dec {
        const uint8_t *p, *end;
        errint_t err;
};
void dec_init(struct dec *d, const void *p, size_t n);
size_t dec_left(const struct dec *d);
uint8_t dec_u8(struct dec *d);
uint16_t dec_u16(struct dec *d);
uint32_t dec_u32(struct dec *d);
uint64_t dec_u64(struct dec *d);
uint64_t dec_varint(struct dec *d); /* refuses non-minimal and overlong forms */
int64_t dec_svarint(struct dec *d);
struct hash128 dec_hash128(struct dec *d);
const uint8_t *dec_raw(struct dec *d, size_t n);                  /* points into the input; NULL after an error */
const uint8_t *dec_bytes(struct dec *d, size_t max, size_t *ret); /* varint length <= max, then the bytes */
errint_t dec_finish(struct dec *d);                               /* -EBADMSG also when bytes are left over */
void dec_fail(struct dec *d);                                     /* mark bad by the caller's own rule */
