/* hash.c: CRC-32C (Castagnoli, RFC 3720 B.4; reflected polynomial 0x82F63B78) and XXH3-128.
 *
 * crc32c takes the SSE4.2 instruction where the processor has it; elsewhere eight bytes at a time through tables. The instruction has a
 * latency of three cycles and a throughput of one, so long input is taken in three lanes at once, whose CRCs are joined through crc_skip.
 */
#include "base/codec.h"
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif
#define XXH_INLINE_ALL /* header only: the digest cannot change under us with a library update */
#include <xxhash.h>

#define CRC32C_POLY 0x82F63B78u

/* crc_table[k][b]: the CRC of byte b followed by k zero bytes. Filled before main, read-only from then on. */
static uint32_t crc_table[8][256];
/* crc_skip[k][b]: what byte k with value b of a CRC becomes when CRC_LANE zero bytes follow. */
#define CRC_LANE 2048u
static uint32_t crc_skip[4][256];

static uint32_t crc_skip_slowly(uint32_t c) {
        for (unsigned i = 0; i < CRC_LANE; i++)
                c = (c >> 8) ^ crc_table[0][c & 0xff];
        return c;
}

__attribute__((constructor)) static void crc_table_fill(void) {
        for (uint32_t b = 0; b < 256; b++) {
                uint32_t c = b;
                for (int bit = 0; bit < 8; bit++)
                        c = (c >> 1) ^ (c & 1 ? CRC32C_POLY : 0);
                crc_table[0][b] = c;
        }
        for (uint32_t b = 0; b < 256; b++)
                for (int k = 1; k < 8; k++)
                        crc_table[k][b] = (crc_table[k - 1][b] >> 8) ^ crc_table[0][crc_table[k - 1][b] & 0xff];
        for (unsigned bit = 0; bit < 32; bit++) { /* the rest follows: it is linear */
                uint32_t one = crc_skip_slowly(UINT32_C(1) << bit);
                for (unsigned b = 0; b < 256; b++)
                        if (b >> (bit % 8) & 1)
                                crc_skip[bit / 8][b] ^= one;
        }
}

uint32_t crc32c_table_(uint32_t chain, const void *p, size_t n) {
        const uint8_t *at = p;
        uint32_t c = ~chain;

        for (; n >= 8; n -= 8, at += 8) {
                c ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
                c = crc_table[7][c & 0xff] ^ crc_table[6][(c >> 8) & 0xff] ^ crc_table[5][(c >> 16) & 0xff] ^ crc_table[4][c >> 24] ^
                    crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
        }
        for (; n > 0; n--, at++)
                c = (c >> 8) ^ crc_table[0][(c ^ *at) & 0xff];
        return ~c;
}

#if defined(__x86_64__)
static uint64_t word_at(const uint8_t *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return word;
}

static uint32_t crc_skip_lane(uint64_t c) {
        return crc_skip[0][c & 0xff] ^ crc_skip[1][c >> 8 & 0xff] ^ crc_skip[2][c >> 16 & 0xff] ^ crc_skip[3][c >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) static uint64_t crc_three_lanes(uint64_t a, const uint8_t *at) {
        uint64_t b = 0, c = 0;

        for (unsigned i = 0; i < CRC_LANE; i += 8) {
                a = _mm_crc32_u64(a, word_at(at + i));
                b = _mm_crc32_u64(b, word_at(at + CRC_LANE + i));
                c = _mm_crc32_u64(c, word_at(at + 2 * CRC_LANE + i));
        }
        return crc_skip_lane(crc_skip_lane(a) ^ b) ^ c;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t chain, const void *p, size_t n) {
        const uint8_t *at = p;
        uint64_t c = (uint32_t)~chain;

        for (; n >= 3 * CRC_LANE; n -= 3 * CRC_LANE, at += 3 * CRC_LANE)
                c = crc_three_lanes(c, at);
        for (; n >= 8; n -= 8, at += 8)
                c = _mm_crc32_u64(c, word_at(at));
        uint32_t c32 = (uint32_t)c;
        for (; n > 0; n--, at++)
                c32 = _mm_crc32_u8(c32, *at);
        return ~c32;
}

uint32_t crc32c(uint32_t chain, const void *p, size_t n) {
        return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(chain, p, n) : crc32c_table_(chain, p, n);
}
#else
uint32_t crc32c(uint32_t chain, const void *p, size_t n) {
        return crc32c_table_(chain, p, n);
}
#endif

struct hash128 hash128_of(const void *p, size_t n) {
        XXH128_hash_t h = XXH3_128bits(p, n);
        return (struct hash128){.lo = h.low64, .hi = h.high64};
}

struct hash128 hash128_chain(struct hash128 before, const void *p, size_t n) {
        XXH3_state_t state;
        uint8_t head[16];

        le_put(head, before.lo, 8);
        le_put(head + 8, before.hi, 8);
        XXH3_INITSTATE(&state);
        (void)XXH3_128bits_reset(&state); /* these fail only for a NULL state */
        (void)XXH3_128bits_update(&state, head, sizeof(head));
        if (n > 0)
                (void)XXH3_128bits_update(&state, p, n);
        XXH128_hash_t h = XXH3_128bits_digest(&state);
        return (struct hash128){.lo = h.low64, .hi = h.high64};
}

void hash128_text(struct hash128 h, char out[HASH128_TEXT]) {
        static const char digits[] = "0123456789abcdef";

        for (unsigned i = 0; i < 16; i++) {
                out[i] = digits[(h.hi >> (60 - 4 * i)) & 15];
                out[16 + i] = digits[(h.lo >> (60 - 4 * i)) & 15];
        }
        out[HASH128_TEXT - 1] = '\0';
}
