/* fuzz_oplog.c: the half of a log against any bytes. Input: u8 framed, u8 salt; then bytes as they lie in the half, or, when framed, bodies
 * of records, each u16 length and the bytes, which get a frame whose checksum fits: what lies behind it is reached as well.
 *
 * Checked: nothing is read out of bounds; what does not decode leaves the walk where it was; what decodes encodes to the very same bytes
 * (unless it states a position that follows by itself), and moves the walk on alike; a header that decodes encodes to itself. */
#include "oplog_format.h"

#include "base/hash.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct oplog_extent extents[OPLOG_EXTENTS_MAX];

static void check_encoding(const struct oplog_walk *before, const struct oplog_walk *after, const struct oplog_record *r, const uint8_t *p,
                           size_t len) {
        struct oplog_walk walk = *before;
        struct enc front;
        size_t body = 0;
        cleanup_free uint8_t *out = xmalloc(len + OPLOG_FRAME_MAX);
        size_t tag = 4;
        while (p[tag - 4] & 0x80)
                tag++;
        if ((int)r->kind == OPLOG_RESTART || p[tag + 1] & 0x10)
                return; /* its random number is no part of the record; its position need not have been stated */
        enc_init(&front, OPLOG_RECORD_MAX);
        POST(oplog_encode_front(&walk, r, &front, &body) == 0);
        POST(body + OPLOG_FRAME_MAX <= len + OPLOG_FRAME_MAX);
        POST(oplog_encode(&walk, r, &front, body, out) == len && memcmp(out, p, len) == 0);
        POST(walk.chain == after->chain && walk.has_epoch == after->has_epoch && walk.last.seq == after->last.seq &&
             walk.last.epoch == after->last.epoch);
        enc_done(&front);
}

static void walk_half(const uint8_t *p, size_t n, uint8_t salt) {
        struct oplog_walk walk;
        oplog_walk_init(&walk, salt);
        for (uint64_t at = 0, end = 0; at < n;) {
                struct oplog_walk before = walk;
                struct oplog_record r;
                size_t len = 0;
                bool ours = false;
                if (oplog_decode(p + at, n - at, &walk, extents, &r, &len, &ours) == 0) {
                        POST(len > 0 && len <= n - at);
                        check_encoding(&before, &walk, &r, p + at, len);
                        at = end = at + len;
                        continue;
                }
                POST(memcmp(&before, &walk, sizeof(walk)) == 0);
                at = oplog_next_place(end, at);
        }
}

/* Bodies with frames that fit, one behind the other. */
static size_t frame_all(struct dec *d, uint8_t *out, size_t room, uint8_t salt) {
        struct oplog_walk walk;
        size_t at = 0;
        oplog_walk_init(&walk, salt);
        while (dec_left(d) > 2) {
                size_t n = dec_u16(d);
                n = MIN_OF(n, dec_left(d));
                const uint8_t *body = dec_raw(d, n);
                struct enc e;
                enc_init(&e, 16);
                enc_varint(&e, n);
                if (n == 0 || at + e.len + 4 + n > room) {
                        enc_done(&e);
                        break;
                }
                enc_u32(&e, crc32c(crc32c(walk.chain, e.data, e.len), body, n));
                memcpy(out + at, e.data, e.len);
                memcpy(out + at + e.len, body, n);
                struct oplog_record r;
                size_t len = 0;
                bool ours = false;
                if (oplog_decode(out + at, e.len + n, &walk, extents, &r, &len, &ours) < 0) {
                        at += e.len + n; /* the reader must stop here, too */
                        enc_done(&e);
                        break;
                }
                at += e.len + n;
                enc_done(&e);
        }
        return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint8_t id[OPLOG_ID_SIZE], header[OPLOG_HEADER_SIZE];
        uint64_t log_size = 0;
        struct dec d;
        if (size >= OPLOG_HEADER_SIZE && oplog_header_decode(data, id, &log_size) == 0) {
                oplog_header_encode(header, id, log_size);
                POST(memcmp(header, data, sizeof(header)) == 0);
        }
        dec_init(&d, data, size);
        bool framed = dec_u8(&d) & 1;
        uint8_t salt = dec_u8(&d);
        if (d.err)
                return 0;
        size_t n = dec_left(&d), room = 8 * n + 64;
        cleanup_free uint8_t *half = xmalloc(room);
        if (framed)
                n = frame_all(&d, half, room, salt);
        else
                memcpy(half, dec_raw(&d, n), n);
        walk_half(half, n, salt);
        return 0;
}
