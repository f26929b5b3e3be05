/* hash.h: checksums and digests. crc32c guards bytes on disk and wire; hash128 (XXH3-128, seed 0, stored little-endian as lo, hi)
 * makes digests. hash128 values add and subtract as two independent 64-bit lanes, so a digest of a set can roll. Pure, any
 * thread; nothing fails. */
#pragma once

#include "base/base.h"

uint32_t crc32c(uint32_t chain, const void *p, size_t n); /* chain: 0, or the CRC of what came before */
uint32_t crc32c_table_(uint32_t chain, const void *p, size_t n); /* the form without SSE4.2, for tests */

struct hash128 {
        uint64_t lo, hi;
};
struct hash128 hash128_of(const void *p, size_t n);
struct hash128 hash128_chain(struct hash128 before, const void *p, size_t n); /* H(before || bytes) */
static inline struct hash128 hash128_add(struct hash128 a, struct hash128 b) { return (struct hash128){a.lo + b.lo, a.hi + b.hi}; }
static inline struct hash128 hash128_sub(struct hash128 a, struct hash128 b) { return (struct hash128){a.lo - b.lo, a.hi - b.hi}; }
static inline bool hash128_equal(struct hash128 a, struct hash128 b) { return a.lo == b.lo && a.hi == b.hi; }
#define HASH128_TEXT 33
void hash128_text(struct hash128 h, char out[HASH128_TEXT]); /* 32 hex digits, hi first */
