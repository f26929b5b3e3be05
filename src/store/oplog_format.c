/* oplog_format.c: records of the operation log, to bytes and back. */
#include "oplog_format.h"

#include "base/hash.h"
#include <string.h>

enum { TAG_KIND = 7, TAG_ZSTD = 8, TAG_ABSOLUTE = 16, TAG_PAYLOAD = 32, TAG_UNUSED = 192 };
static const uint8_t magic[8] = "CoterieO";

void oplog_walk_init(struct oplog_walk *w, uint64_t salt) {
        uint8_t bytes[8];
        le_put(bytes, salt, 8);
        *w = (struct oplog_walk){.chain = crc32c(0, bytes, sizeof bytes), .salt = (uint16_t)salt};
}

void oplog_header_encode(uint8_t out[OPLOG_HEADER_SIZE], const uint8_t id[OPLOG_ID_SIZE], uint64_t size) {
        struct enc e;
        enc_init(&e, OPLOG_HEADER_SIZE);
        enc_raw(&e, magic, sizeof magic);
        enc_u32(&e, OPLOG_VERSION);
        enc_raw(&e, id, OPLOG_ID_SIZE);
        enc_u64(&e, size);
        enc_u32(&e, crc32c(0, e.data, e.len));
        POST(e.err == 0 && e.len == OPLOG_HEADER_SIZE);
        memcpy(out, e.data, OPLOG_HEADER_SIZE);
        enc_done(&e);
}

errint_t oplog_header_decode(const uint8_t in[OPLOG_HEADER_SIZE], uint8_t ret_id[OPLOG_ID_SIZE], uint64_t *ret_size) {
        struct dec d;
        dec_init(&d, in, OPLOG_HEADER_SIZE);
        const uint8_t *m = dec_raw(&d, sizeof magic);
        uint32_t version = dec_u32(&d);
        const uint8_t *id = dec_raw(&d, OPLOG_ID_SIZE);
        uint64_t size = dec_u64(&d);
        uint32_t crc = dec_u32(&d);
        if (d.err < 0 || memcmp(m, magic, sizeof magic) != 0 || version != OPLOG_VERSION || crc != crc32c(0, in, OPLOG_HEADER_SIZE - 4))
                return -EBADMSG;
        memcpy(ret_id, id, OPLOG_ID_SIZE);
        *ret_size = size;
        return 0;
}

static bool is_op(int kind) {
        return kind == OPLOG_OP || kind == OPLOG_OP_EXTENTS;
}

static errint_t front_extents(const struct oplog_record *r, struct enc *e) {
        uint64_t sum = 0;
        if (r->n_extents == 0 || r->n_extents > OPLOG_EXTENTS_MAX)
                return -EINVAL;
        enc_u32(e, r->payload_crc);
        enc_varint(e, r->n_extents);
        for (size_t i = 0; i < r->n_extents; i++) {
                if (r->extents[i].offset % OPLOG_PAGE != 0 || r->extents[i].length == 0)
                        return -EINVAL;
                enc_varint(e, r->extents[i].offset / OPLOG_PAGE);
                enc_varint(e, r->extents[i].length);
                sum += r->extents[i].length;
        }
        return sum == r->payload_len ? 0 : -EINVAL;
}

errint_t oplog_encode_front(const struct oplog_walk *w, const struct oplog_record *r, struct enc *e, size_t *ret_body) {
        bool op = is_op(r->kind), payload = r->payload_len > 0;
        bool absolute = !op || !w->has_epoch || r->pos.epoch != w->last.epoch;
        enc_reset(e);
        if (op && w->has_seq && r->pos.seq != w->last.seq + 1)
                return -EINVAL;
        if (r->head_len > OPLOG_RECORD_MAX || (r->kind == OPLOG_OP && r->payload_len > OPLOG_RECORD_MAX))
                return -EMSGSIZE;
        enc_u8(e, (uint8_t)(r->kind | (payload && r->form == FORM_ZSTD ? TAG_ZSTD : 0) | (absolute ? TAG_ABSOLUTE : 0) |
                            (payload ? TAG_PAYLOAD : 0)));
        enc_u16(e, (uint16_t)(r->pos.seq + w->salt));
        if (absolute) {
                enc_varint(e, r->pos.epoch);
                enc_varint(e, r->pos.seq);
        }
        if (r->kind == OPLOG_OP && payload)
                enc_varint(e, r->head_len);
        if (payload && r->form == FORM_ZSTD)
                enc_varint(e, r->raw_len);
        if (r->kind == OPLOG_OP_EXTENTS) {
                errint_t err = front_extents(r, e);
                if (err < 0)
                        return err;
        }
        size_t body = e->len + (op ? r->head_len : 0) + (r->kind == OPLOG_OP ? r->payload_len : 0);
        if (e->err < 0 || body + OPLOG_FRAME_MAX > OPLOG_RECORD_MAX)
                return -EMSGSIZE;
        *ret_body = body;
        return 0;
}

void oplog_encode_restart(const struct oplog_walk *w, uint64_t life, struct enc *e) {
        enc_reset(e);
        enc_u8(e, OPLOG_RESTART);
        enc_u16(e, w->salt);
        enc_u64(e, life);
}

/* What a good record does to the walk, alike for writer and reader. */
static void walk_past(struct oplog_walk *w, int kind, struct position pos, uint32_t crc) {
        w->chain = crc;
        w->has_epoch = is_op(kind);
        if (is_op(kind)) {
                w->last = pos;
                w->has_seq = true;
        }
}

size_t oplog_encode(struct oplog_walk *w, const struct oplog_record *r, const struct enc *front, size_t body, uint8_t *out) {
        size_t n = 0;
        for (size_t v = body;; v >>= 7) {
                out[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
                if (v <= 0x7f)
                        break;
        }
        uint32_t crc = crc32c(w->chain, out, n);
        uint8_t *p = out + n + 4;
        memcpy(p, front->data, front->len);
        size_t at = front->len;
        if (r && is_op(r->kind) && r->head_len) {
                memcpy(p + at, r->head, r->head_len);
                at += r->head_len;
        }
        if (r && r->kind == OPLOG_OP && r->payload_len) {
                memcpy(p + at, r->payload, r->payload_len);
                at += r->payload_len;
        }
        POST(at == body);
        crc = crc32c(crc, p, body);
        le_put(out + n, crc, 4);
        walk_past(w, r ? (int)r->kind : OPLOG_RESTART, r ? r->pos : (struct position){0}, crc);
        return n + 4 + body;
}

static errint_t decode_extents(struct dec *d, struct oplog_extent *extents, struct oplog_record *r) {
        uint64_t sum = 0;
        r->payload_crc = dec_u32(d);
        uint64_t n = dec_varint(d);
        if (d->err < 0 || n == 0 || n > OPLOG_EXTENTS_MAX)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++) {
                uint64_t unit = dec_varint(d), length = dec_varint(d);
                if (d->err < 0 || unit > UINT64_MAX / OPLOG_PAGE / 2 || length == 0 || length > UINT32_MAX)
                        return -EBADMSG;
                extents[i] = (struct oplog_extent){.offset = unit * OPLOG_PAGE, .length = (uint32_t)length};
                sum += length;
        }
        r->extents = extents;
        r->n_extents = n;
        r->payload_len = sum;
        return 0;
}

/* The body of an operation behind its position. */
static errint_t decode_op(struct dec *d, unsigned tag, struct oplog_extent *extents, struct oplog_record *r) {
        bool inline_payload = r->kind == OPLOG_OP && (tag & TAG_PAYLOAD);
        if (r->kind == OPLOG_OP_EXTENTS && !(tag & TAG_PAYLOAD))
                return -EBADMSG;
        if ((tag & TAG_ZSTD) && !(tag & TAG_PAYLOAD))
                return -EBADMSG;
        uint64_t head_len = inline_payload ? dec_varint(d) : 0;
        r->form = tag & TAG_ZSTD ? FORM_ZSTD : FORM_RAW;
        uint64_t raw_len = tag & TAG_ZSTD ? dec_varint(d) : 0;
        if (r->kind == OPLOG_OP_EXTENTS) {
                errint_t err = decode_extents(d, extents, r);
                if (err < 0)
                        return err;
        }
        if (!inline_payload)
                head_len = dec_left(d);
        if (d->err < 0 || head_len > dec_left(d))
                return -EBADMSG;
        r->head_len = head_len;
        r->head = dec_raw(d, head_len);
        if (inline_payload) {
                r->payload_len = dec_left(d);
                if (r->payload_len == 0)
                        return -EBADMSG;
                r->payload = dec_raw(d, r->payload_len);
                r->payload_crc = crc32c(0, r->payload, r->payload_len);
        }
        r->raw_len = r->form == FORM_ZSTD ? raw_len : r->payload_len;
        return d->err;
}

/* Position, and the rest of the body. Changes nothing in the walk. */
static errint_t decode_body(struct dec *d, const struct oplog_walk *w, struct oplog_extent *extents, struct oplog_record *r) {
        unsigned tag = dec_u8(d), low = dec_u16(d), kind = tag & TAG_KIND;
        if (d->err < 0 || (tag & TAG_UNUSED) || kind < OPLOG_OP || kind > OPLOG_RESTART)
                return -EBADMSG;
        r->kind = (enum oplog_kind)kind;
        if (kind == OPLOG_RESTART) {
                (void)dec_u64(d); /* any value; it has done its work in the CRC */
                return tag == OPLOG_RESTART && low == w->salt ? dec_finish(d) : -EBADMSG;
        }
        if (tag & TAG_ABSOLUTE) {
                r->pos.epoch = dec_varint(d);
                r->pos.seq = dec_varint(d);
        } else if (is_op((int)kind) && w->has_epoch) {
                r->pos = (struct position){.epoch = w->last.epoch, .seq = w->last.seq + 1};
        } else {
                return -EBADMSG;
        }
        if (d->err < 0 || (uint16_t)(r->pos.seq + w->salt) != low)
                return -EBADMSG;
        if (w->has_seq && r->pos.seq != w->last.seq + is_op((int)kind))
                return -EBADMSG;
        if (is_op((int)kind))
                return decode_op(d, tag, extents, r);
        return (tag & (TAG_ZSTD | TAG_PAYLOAD)) ? -EBADMSG : dec_finish(d);
}

errint_t oplog_decode(const uint8_t *p, size_t n, struct oplog_walk *w, struct oplog_extent extents[OPLOG_EXTENTS_MAX],
                      struct oplog_record *ret, size_t *ret_len, bool *ret_ours) {
        struct dec d;
        *ret_ours = false;
        dec_init(&d, p, n);
        if (n == 0 || p[0] == 0)
                return -ENODATA;
        uint64_t body = dec_varint(&d);
        uint32_t stored = dec_u32(&d);
        if (d.err < 0 || body > dec_left(&d) || body + OPLOG_FRAME_MAX > OPLOG_RECORD_MAX)
                return -EBADMSG;
        size_t frame = n - dec_left(&d);
        const uint8_t *bytes = dec_raw(&d, body);
        uint32_t crc = crc32c(crc32c(w->chain, p, frame - 4), bytes, body);
        struct oplog_record r = {0};
        dec_init(&d, bytes, body);
        errint_t err = decode_body(&d, w, extents, &r);
        if (crc != stored) {
                *ret_ours = err == 0;
                return -EBADMSG;
        }
        if (err < 0)
                return -EBADMSG;
        r.log_len = (uint32_t)(frame + body);
        walk_past(w, (int)r.kind, r.pos, crc);
        *ret = r;
        *ret_len = frame + body;
        return 0;
}

uint64_t oplog_next_place(uint64_t end, uint64_t at) {
        uint64_t last = (end + OPLOG_PAGE - 1) / OPLOG_PAGE * OPLOG_PAGE, next = (at / OPLOG_SECTOR + 1) * OPLOG_SECTOR;
        return next > last ? UINT64_MAX : next;
}

uint64_t oplog_record_room(size_t head_len, size_t payload_len, size_t n_extents) {
        /* A restart before it; frame, tag, low, absolute position, lengths, CRC and count of extents. */
        uint64_t restart = OPLOG_FRAME_MAX + 11, front = OPLOG_FRAME_MAX + 3 + 20 + 20 + 4 + 10;
        return restart + front + head_len + (n_extents ? 0 : payload_len) + (uint64_t)n_extents * 15;
}
