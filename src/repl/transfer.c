/* transfer.c: the messages of state transfer, byte by byte; see transfer.h. */
#include "transfer.h"

void transfer_head_encode(const struct transfer_head *h, struct enc *e) {
        enc_u32(e, h->target.node);
        enc_u32(e, h->target.pid);
        enc_u64(e, h->transfer);
}

void transfer_head_decode(struct dec *d, struct transfer_head *ret) {
        ret->target.node = dec_u32(d);
        ret->target.pid = dec_u32(d);
        ret->transfer = dec_u64(d);
}

void wish_encode(const struct wish *w, struct enc *e) {
        enc_u8(e, (uint8_t)w->kind);
        enc_varint(e, w->id);
        enc_varint(e, w->offset);
        if (w->kind == OBJECT_BEGIN)
                enc_hash128(e, w->history);
}

bool wish_decode(struct dec *d, struct wish *ret) {
        if (d->err || dec_left(d) == 0)
                return false;
        struct wish w = {.kind = (enum object_kind)dec_u8(d), .id = dec_varint(d)};
        w.offset = dec_varint(d);
        if (w.kind == OBJECT_BEGIN)
                w.history = dec_hash128(d);
        if (w.kind == 0 || w.kind >= OBJECT_KIND_COUNT)
                dec_fail(d);
        if (d->err)
                return false;
        *ret = w;
        return true;
}

void piece_encode(const struct piece *p, struct enc *e) {
        enc_u8(e, (uint8_t)p->kind);
        enc_varint(e, p->id);
        enc_varint(e, p->total);
        enc_varint(e, p->offset);
        enc_bytes(e, p->data, p->len);
}

bool piece_decode(struct dec *d, struct piece *ret) {
        if (d->err || dec_left(d) == 0)
                return false;
        struct piece p = {.kind = (enum object_kind)dec_u8(d), .id = dec_varint(d)};
        p.total = dec_varint(d);
        p.offset = dec_varint(d);
        p.data = dec_bytes(d, WIRE_BODY_MAX, &p.len);
        if (p.kind == 0 || p.kind >= OBJECT_KIND_COUNT || p.total > TRANSFER_OBJECT_MAX || p.offset > p.total || p.len > p.total - p.offset)
                dec_fail(d);
        if (d->err)
                return false;
        *ret = p;
        return true;
}

errint_t transfer_begin_decode(const uint8_t *p, size_t n, struct transfer_begin *ret) {
        struct dec d;
        dec_init(&d, p, n);
        struct transfer_begin b = {.mode = dec_u8(&d)};
        b.pos.epoch = dec_u64(&d);
        b.pos.seq = dec_u64(&d);
        b.history = dec_hash128(&d);
        b.digest = dec_hash128(&d);
        b.adopted = dec_u64(&d);
        b.next_ino = dec_varint(&d);
        b.height = dec_u8(&d);
        b.settings_at = n - dec_left(&d);
        uint64_t count = dec_varint(&d);
        if (count > TRANSFER_SETTINGS)
                dec_fail(&d);
        for (uint64_t i = 0; i < count && !d.err; i++) {
                size_t len;
                (void)dec_bytes(&d, LIMIT_NAME, &len);
                (void)dec_bytes(&d, LIMIT_PATH, &len);
        }
        bool good =
                (b.mode == TRANSFER_BY_LOG || b.mode == TRANSFER_BY_DIFFERENCE) && b.height < TRANSFER_LEVELS && b.next_ino <= INO_RESERVED;
        if (dec_finish(&d) < 0 || !good)
                return -EBADMSG;
        *ret = b;
        return 0;
}
