/* fuzz_wire.c: the decoders of messages against any bytes. Input: a choice, then a body; or, with choice 0, a whole message.
 *
 * Checked: nothing is read outside; what was decoded encodes to the same bytes, where the form is fixed. */
#include "transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct enc *e, const uint8_t *p, size_t n) {
        POST(!e->err && e->len == n && (n == 0 || memcmp(e->data, p, n) == 0));
}

static void state(const uint8_t *p, size_t n, struct enc *e) {
        struct wire_state s;
        if (wire_state_decode(p, n, &s) < 0)
                return;
        wire_state_encode(&s, e);
        same(e, p, e->len);
}

static void traffic(const uint8_t *p, size_t n, struct enc *e) {
        struct wire_traffic t;
        struct wire_op op;
        struct dec d;
        dec_init(&d, p, n);
        if (wire_traffic_decode(&d, &t) < 0)
                return;
        wire_traffic_encode(&t, e);
        while (wire_op_decode(&d, &op)) {
                POST(op.head_len <= OP_HEAD_MAX && op.payload_len <= OP_PAYLOAD_MAX);
                CLEANUP(opbuf_unrefp) struct opbuf *b = opbuf_new(op.head, op.head_len, op.payload, op.payload_len);
                enc_raw(e, b->bytes, b->len);
        }
        if (!d.err)
                same(e, p, n);
}

static void ask(const uint8_t *p, size_t n, struct enc *e) {
        struct transfer_head h;
        struct wish w;
        struct dec d;
        dec_init(&d, p, n);
        transfer_head_decode(&d, &h);
        transfer_head_encode(&h, e);
        while (wish_decode(&d, &w))
                wish_encode(&w, e);
        if (!d.err)
                same(e, p, n);
}

static void give(const uint8_t *p, size_t n, struct enc *e) {
        struct transfer_head h;
        struct piece piece;
        struct dec d;
        dec_init(&d, p, n);
        transfer_head_decode(&d, &h);
        transfer_head_encode(&h, e);
        while (piece_decode(&d, &piece)) {
                POST(piece.offset + piece.len <= piece.total && piece.total <= TRANSFER_OBJECT_MAX);
                piece_encode(&piece, e);
        }
        if (!d.err)
                same(e, p, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        CLEANUP(enc_done) struct enc e;
        struct wire_header h;
        struct wire_joined j;
        struct wire_part part;
        struct transfer_begin b;
        struct record rec;
        const uint8_t *body;
        size_t len;
        if (size == 0)
                return 0;
        const uint8_t *p = data + 1;
        size_t n = size - 1;
        enc_init(&e, 4 * MIB);
        switch (data[0] % 9) {
        case 0:
                (void)wire_decode(p, n, &h, &body, &len); /* any answer is right that reads nothing outside */
                break;
        case 1:
                state(p, n, &e);
                break;
        case 2:
                if (wire_joined_decode(p, n, &j) == 0) {
                        wire_joined_encode(&j, &e);
                        same(&e, p, n);
                }
                break;
        case 3:
                traffic(p, n, &e);
                break;
        case 4:
                if (wire_part_decode(p, n, &part) == 0) {
                        POST(part.offset + part.len <= part.total);
                        wire_part_encode(&part, &e);
                        same(&e, p, WIRE_PART_HEAD);
                }
                break;
        case 5:
                ask(p, n, &e);
                break;
        case 6:
                give(p, n, &e);
                break;
        case 7:
                (void)transfer_begin_decode(p, n, &b);
                break;
        default:
                (void)record_decode(p, n, &rec);
                break;
        }
        return 0;
}
