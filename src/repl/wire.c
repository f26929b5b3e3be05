/* wire.c: see wire.h. */
#include "wire.h"

#include <string.h>

void wire_header_encode(const struct wire_header *h, const void *body, size_t body_len, const void *body2, size_t body2_len,
                        uint8_t out[WIRE_HEADER]) {
        PRE(body_len + body2_len <= WIRE_BODY_MAX);
        le_put(out, WIRE_MAGIC, 4);
        out[4] = h->version;
        out[5] = h->lowest;
        out[6] = h->highest;
        out[7] = h->type;
        le_put(out + 8, h->ring.node, 4);
        le_put(out + 12, h->round, 4);
        le_put(out + 16, h->ring.seq, 8);
        le_put(out + 24, h->members, 8);
        le_put(out + 32, h->incarnation, 8);
        le_put(out + 40, h->instance, 4);
        le_put(out + 44, h->number, 4);
        le_put(out + 48, body_len + body2_len, 4);
        uint32_t crc = crc32c(crc32c(0, out, 52), body, body_len);
        le_put(out + 52, crc32c(crc, body2, body2_len), 4);
}

errint_t wire_decode(const void *p, size_t n, struct wire_header *ret, const uint8_t **ret_body, size_t *ret_len) {
        if (n < WIRE_HEADER || n > WIRE_HEADER + WIRE_BODY_MAX)
                return -EBADMSG;
        struct dec d;
        dec_init(&d, p, n);
        struct wire_header h = {0};
        uint32_t magic = dec_u32(&d);
        h.version = dec_u8(&d);
        h.lowest = dec_u8(&d);
        h.highest = dec_u8(&d);
        h.type = dec_u8(&d);
        h.ring.node = dec_u32(&d);
        h.round = dec_u32(&d);
        h.ring.seq = dec_u64(&d);
        h.members = dec_u64(&d);
        h.incarnation = dec_u64(&d);
        h.instance = dec_u32(&d);
        h.number = dec_u32(&d);
        uint32_t length = dec_u32(&d), crc = dec_u32(&d);
        if (magic != WIRE_MAGIC || length != dec_left(&d) || h.number == 0 || h.lowest > h.version || h.version > h.highest ||
            h.lowest == 0)
                return -EBADMSG;
        if (crc32c(crc32c(0, p, 52), d.p, length) != crc)
                return -EBADMSG;
        *ret = h;
        *ret_body = d.p;
        *ret_len = length;
        if (h.version < WIRE_VERSION_MIN || h.version > WIRE_VERSION_MAX || h.type == 0 || h.type >= WIRE_TYPE_COUNT)
                return -EPROTONOSUPPORT;
        return 0;
}

uint64_t wire_members_hash(const struct repl_member *members, size_t n) {
        uint8_t bytes[8 * REPL_MEMBERS_MAX];
        PRE(n <= REPL_MEMBERS_MAX);
        for (size_t i = 0; i < n; i++) {
                le_put(bytes + 8 * i, members[i].node, 4);
                le_put(bytes + 8 * i + 4, members[i].pid, 4);
        }
        return hash128_of(bytes, 8 * n).lo;
}

void wire_state_encode(const struct wire_state *s, struct enc *e) {
        enc_raw(e, s->cluster_id, sizeof(s->cluster_id));
        enc_u64(e, s->promised);
        enc_u64(e, s->adopted);
        enc_u64(e, s->seq);
        enc_hash128(e, s->digest);
        enc_u32(e, s->votes);
        enc_u32(e, s->needed);
        enc_u32(e, s->extra);
        enc_u32(e, s->expected);
        enc_u8(e, s->flags);
        enc_u64(e, s->members);
}

errint_t wire_state_decode(const void *p, size_t n, struct wire_state *ret) {
        struct wire_state s = {0};
        struct dec d;
        dec_init(&d, p, n);
        const uint8_t *id = dec_raw(&d, sizeof(s.cluster_id));
        if (id)
                memcpy(s.cluster_id, id, sizeof(s.cluster_id));
        s.promised = dec_u64(&d);
        s.adopted = dec_u64(&d);
        s.seq = dec_u64(&d);
        s.digest = dec_hash128(&d);
        s.votes = dec_u32(&d);
        s.needed = dec_u32(&d);
        s.extra = dec_u32(&d);
        s.expected = dec_u32(&d);
        s.flags = dec_u8(&d);
        s.members = dec_u64(&d);
        /* An epoch near the end of the numbers could not be followed by another. What later versions append is not read. */
        if (d.err || s.promised > UINT64_MAX / 2 || s.adopted > s.promised || s.seq > UINT64_MAX / 2)
                return -EBADMSG;
        *ret = s;
        return 0;
}

void wire_joined_encode(const struct wire_joined *j, struct enc *e) {
        enc_u64(e, j->epoch);
        enc_u64(e, j->seq);
        enc_hash128(e, j->digest);
}

errint_t wire_joined_decode(const void *p, size_t n, struct wire_joined *ret) {
        struct dec d;
        dec_init(&d, p, n);
        struct wire_joined j = {.epoch = dec_u64(&d)};
        j.seq = dec_u64(&d);
        j.digest = dec_hash128(&d);
        errint_t r = dec_finish(&d);
        if (r < 0)
                return r;
        *ret = j;
        return 0;
}

void wire_traffic_encode(const struct wire_traffic *t, struct enc *e) {
        enc_u64(e, t->epoch);
        enc_u8(e, t->flags);
        if (t->flags & TRAFFIC_ACK) {
                enc_varint(e, t->ack_seq);
                enc_varint(e, t->ack_medium);
                enc_hash128(e, t->ack_digest);
        }
        if (t->flags & TRAFFIC_BARRIER)
                enc_varint(e, t->barrier);
}

errint_t wire_traffic_decode(struct dec *d, struct wire_traffic *ret) {
        struct wire_traffic t = {.epoch = dec_u64(d)};
        t.flags = dec_u8(d);
        if (t.flags & ~(TRAFFIC_ACK | TRAFFIC_BARRIER))
                dec_fail(d);
        if (t.flags & TRAFFIC_ACK) {
                t.ack_seq = dec_varint(d);
                t.ack_medium = dec_varint(d);
                t.ack_digest = dec_hash128(d);
        }
        if (t.flags & TRAFFIC_BARRIER)
                t.barrier = dec_varint(d);
        if (d->err)
                return d->err;
        *ret = t;
        return 0;
}

bool wire_op_decode(struct dec *d, struct wire_op *ret) {
        struct wire_op op;
        if (d->err || dec_left(d) == 0)
                return false;
        op.head = dec_bytes(d, OP_HEAD_MAX, &op.head_len);
        op.payload = dec_bytes(d, OP_PAYLOAD_MAX, &op.payload_len);
        if (d->err)
                return false;
        *ret = op;
        return true;
}

void wire_part_encode(const struct wire_part *p, struct enc *e) {
        enc_u64(e, p->epoch);
        enc_u32(e, p->total);
        enc_u32(e, p->offset);
}

errint_t wire_part_decode(const void *p, size_t n, struct wire_part *ret) {
        struct dec d;
        dec_init(&d, p, n);
        struct wire_part part = {.epoch = dec_u64(&d)};
        part.total = dec_u32(&d);
        part.offset = dec_u32(&d);
        part.len = dec_left(&d);
        part.data = dec_raw(&d, part.len);
        if (d.err || part.len == 0 || part.total > WIRE_OP_MAX || part.offset > part.total || part.len > part.total - part.offset)
                return -EBADMSG;
        *ret = part;
        return 0;
}
