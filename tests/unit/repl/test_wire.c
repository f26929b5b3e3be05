/* test_wire.c: the bytes of version 1, pinned by tests/data/wire/v1 (one hex line per file; COTERIE_GOLDEN_WRITE=1 writes those that are
 * missing), and what is no message. */
#include "suites.h"
#include "transfer.h"

#include <stdio.h>

static const struct hash128 digest = {UINT64_C(0x1122334455667788), UINT64_C(0x99aabbccddeeff00)};
static const struct wire_header header = {
        .version = 1,
        .lowest = 1,
        .highest = 1,
        .ring = {7, 0x1234},
        .members = UINT64_C(0xfedcba9876543210),
        .round = 3,
        .incarnation = UINT64_C(0xaabbccdd00112233),
        .instance = 9,
        .number = 5,
};

/* A whole message around a body. */
static struct enc message(enum wire_type type, const struct enc *body) {
        struct wire_header h = header;
        struct enc e;
        h.type = (uint8_t)type;
        enc_init(&e, WIRE_HEADER + WIRE_BODY_MAX);
        wire_header_encode(&h, body->data, body->len, NULL, 0, enc_space(&e, WIRE_HEADER));
        enc_raw(&e, body->data, body->len);
        ck_assert_int_eq(e.err, 0);
        return e;
}

static void golden(const char *name, const struct enc *e) {
        char path[400], *line = malloc(2 * e->len + 2), *want = malloc(2 * e->len + 3);
        for (size_t i = 0; i < e->len; i++)
                snprintf(line + 2 * i, 3, "%02x", e->data[i]);
        strcpy(line + 2 * e->len, "\n");
        snprintf(path, sizeof(path), "%s/wire/v1/%s.hex", TEST_DATA_DIR, name);
        FILE *f = fopen(path, "r");
        if (!f && getenv("COTERIE_GOLDEN_WRITE")) {
                f = fopen(path, "w");
                ck_assert_ptr_nonnull(f);
                fputs(line, f);
                fclose(f);
                f = fopen(path, "r");
        }
        ck_assert_msg(f != NULL, "%s is missing", path);
        ck_assert_ptr_nonnull(fgets(want, (int)(2 * e->len + 3), f));
        fclose(f);
        ck_assert_str_eq(line, want);
        free(line);
        free(want);
}

static void sample_body(enum wire_type type, struct enc *e) {
        switch (type) {
        case WIRE_STATE: {
                struct wire_state s = {.promised = 12,
                                       .adopted = 11,
                                       .seq = 345,
                                       .digest = digest,
                                       .votes = 1,
                                       .needed = 2,
                                       .extra = 0,
                                       .expected = 3,
                                       .flags = STATE_QUORATE | STATE_FORGETFUL,
                                       .members = 7};
                memcpy(s.cluster_id, "0123456789abcdef", 16);
                wire_state_encode(&s, e);
                break;
        }
        case WIRE_JOINED: {
                struct wire_joined j = {.epoch = 13, .seq = 345, .digest = digest};
                wire_joined_encode(&j, e);
                break;
        }
        case WIRE_TRAFFIC: {
                struct wire_traffic t = {.epoch = 13,
                                         .flags = TRAFFIC_ACK | TRAFFIC_BARRIER,
                                         .ack_seq = 400,
                                         .ack_medium = 300,
                                         .ack_digest = digest,
                                         .barrier = 399};
                wire_traffic_encode(&t, e);
                struct opbuf *a = opbuf_new("head", 4, "payload", 7), *b = opbuf_new("h", 1, NULL, 0);
                enc_raw(e, a->bytes, a->len);
                enc_raw(e, b->bytes, b->len);
                opbuf_unref(a);
                opbuf_unref(b);
                break;
        }
        case WIRE_PART: {
                struct wire_part p = {.epoch = 13, .total = 100000, .offset = 65536};
                wire_part_encode(&p, e);
                enc_raw(e, "a piece", 7);
                break;
        }
        case WIRE_ROUND:
                enc_u8(e, ROUND_GAP);
                break;
        case WIRE_EXPEL:
                enc_u64(e, 5);
                break;
        case WIRE_ASK: {
                struct transfer_head h = {.target = {2, 1001}, .transfer = 77};
                transfer_head_encode(&h, e);
                wish_encode(&(struct wish){.kind = OBJECT_BEGIN, .id = 345, .offset = 1, .history = digest}, e);
                wish_encode(&(struct wish){.kind = OBJECT_NODE, .id = 2 * 16 + 1}, e);
                break;
        }
        case WIRE_GIVE: {
                struct transfer_head h = {.target = {1, 1000}, .transfer = 77};
                transfer_head_encode(&h, e);
                piece_encode(
                        &(struct piece){
                                .kind = OBJECT_CONTENT, .id = 9, .total = 300, .offset = 200, .data = (const uint8_t *)"bytes", .len = 5},
                        e);
                piece_encode(&(struct piece){.kind = OBJECT_LOG_END, .id = 401, .data = (const uint8_t *)""}, e);
                break;
        }
        default:
                break; /* READMIT and FORGIVE have no body */
        }
        ck_assert_int_eq(e->err, 0);
}

START_TEST(golden_bytes) {
        static const char *const names[WIRE_TYPE_COUNT] = {"?",     "STATE",   "JOINED",  "TRAFFIC", "PART", "ROUND",
                                                           "EXPEL", "READMIT", "FORGIVE", "ASK",     "GIVE"};
        for (unsigned type = 1; type < WIRE_TYPE_COUNT; type++) {
                CLEANUP(enc_done) struct enc body = {0};
                enc_init(&body, WIRE_BODY_MAX);
                sample_body((enum wire_type)type, &body);
                CLEANUP(enc_done) struct enc e = message((enum wire_type)type, &body);
                golden(names[type], &e);
                struct wire_header h;
                const uint8_t *p;
                size_t n;
                ck_assert_int_eq(wire_decode(e.data, e.len, &h, &p, &n), 0);
                ck_assert_uint_eq(h.type, type);
                ck_assert_uint_eq(h.number, header.number);
                ck_assert_uint_eq(h.instance, header.instance);
                ck_assert_uint_eq(h.incarnation, header.incarnation);
                ck_assert_uint_eq(h.round, header.round);
                ck_assert_uint_eq(h.members, header.members);
                ck_assert_uint_eq(h.ring.node, header.ring.node);
                ck_assert_uint_eq(h.ring.seq, header.ring.seq);
                ck_assert_uint_eq(n, body.len);
                ck_assert_int_eq(n ? memcmp(p, body.data, n) : 0, 0);
        }
}
END_TEST

START_TEST(bodies_come_back) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        struct wire_state s;
        sample_body(WIRE_STATE, &e);
        ck_assert_uint_eq(e.len, 81);
        ck_assert_int_eq(wire_state_decode(e.data, e.len, &s), 0);
        ck_assert_uint_eq(s.promised, 12);
        ck_assert_uint_eq(s.seq, 345);
        ck_assert_uint_eq(s.members, 7);
        enc_raw(&e, "of a later version", 18);
        ck_assert_int_eq(wire_state_decode(e.data, e.len, &s), 0); /* its first bytes stay for ever */
        enc_reset(&e);
        sample_body(WIRE_TRAFFIC, &e);
        struct dec d;
        struct wire_traffic t;
        struct wire_op op;
        dec_init(&d, e.data, e.len);
        ck_assert_int_eq(wire_traffic_decode(&d, &t), 0);
        ck_assert_uint_eq(t.ack_seq, 400);
        ck_assert_uint_eq(t.ack_medium, 300);
        ck_assert_uint_eq(t.barrier, 399);
        ck_assert(hash128_equal(t.ack_digest, digest));
        ck_assert(wire_op_decode(&d, &op));
        ck_assert_uint_eq(op.head_len, 4);
        ck_assert_int_eq(memcmp(op.payload, "payload", 7), 0);
        ck_assert(wire_op_decode(&d, &op));
        ck_assert_uint_eq(op.payload_len, 0);
        ck_assert(!wire_op_decode(&d, &op));
        ck_assert_int_eq(dec_finish(&d), 0);
}
END_TEST

START_TEST(damaged_messages_are_none) {
        for (unsigned type = 1; type < WIRE_TYPE_COUNT; type++) {
                CLEANUP(enc_done) struct enc body = {0};
                enc_init(&body, WIRE_BODY_MAX);
                sample_body((enum wire_type)type, &body);
                CLEANUP(enc_done) struct enc e = message((enum wire_type)type, &body);
                struct wire_header h;
                const uint8_t *p;
                size_t n;
                for (size_t len = 0; len < e.len; len++)
                        ck_assert_int_eq(wire_decode(e.data, len, &h, &p, &n), -EBADMSG);
                for (size_t bit = 0; bit < 8 * e.len; bit++) {
                        e.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
                        ck_assert_int_eq(wire_decode(e.data, e.len, &h, &p, &n), -EBADMSG);
                        e.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
                }
                enc_u8(&e, 0);
                ck_assert_int_eq(wire_decode(e.data, e.len, &h, &p, &n), -EBADMSG);
        }
}
END_TEST

START_TEST(other_versions_are_told_apart) {
        struct wire_header h = header, back;
        uint8_t bytes[WIRE_HEADER];
        const uint8_t *p;
        size_t n;
        h.type = WIRE_STATE;
        h.version = h.lowest = 2;
        h.highest = 4;
        wire_header_encode(&h, NULL, 0, NULL, 0, bytes);
        ck_assert_int_eq(wire_decode(bytes, sizeof(bytes), &back, &p, &n), -EPROTONOSUPPORT);
        ck_assert_uint_eq(back.lowest, 2);
        ck_assert_uint_eq(back.highest, 4);
        h = header;
        h.type = WIRE_TYPE_COUNT; /* a message that a later version has added */
        wire_header_encode(&h, NULL, 0, NULL, 0, bytes);
        ck_assert_int_eq(wire_decode(bytes, sizeof(bytes), &back, &p, &n), -EPROTONOSUPPORT);
}
END_TEST

START_TEST(bodies_cut_or_too_long_are_refused) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        struct wire_state s;
        struct wire_joined j;
        struct wire_part part;
        sample_body(WIRE_STATE, &e);
        for (size_t n = 0; n < e.len; n++)
                ck_assert_int_eq(wire_state_decode(e.data, n, &s), -EBADMSG);
        enc_reset(&e);
        sample_body(WIRE_JOINED, &e);
        for (size_t n = 0; n < e.len; n++)
                ck_assert_int_eq(wire_joined_decode(e.data, n, &j), -EBADMSG);
        enc_u8(&e, 1);
        ck_assert_int_eq(wire_joined_decode(e.data, e.len, &j), -EBADMSG);
        enc_reset(&e);
        struct wire_part p = {.epoch = 1, .total = 10, .offset = 8};
        wire_part_encode(&p, &e);
        ck_assert_int_eq(wire_part_decode(e.data, e.len, &part), -EBADMSG); /* no bytes */
        enc_raw(&e, "abc", 3);
        ck_assert_int_eq(wire_part_decode(e.data, e.len, &part), -EBADMSG); /* beyond the end */
        enc_reset(&e);
        p = (struct wire_part){.epoch = 1, .total = UINT32_MAX, .offset = 0};
        wire_part_encode(&p, &e);
        enc_raw(&e, "abc", 3);
        ck_assert_int_eq(wire_part_decode(e.data, e.len, &part), -EBADMSG); /* larger than an operation can be */
}
END_TEST

Suite *suite_wire(void) {
        Suite *s = suite_create("wire");
        TCase *t = tcase_create("wire");
        tcase_add_test(t, golden_bytes);
        tcase_add_test(t, bodies_come_back);
        tcase_add_test(t, damaged_messages_are_none);
        tcase_add_test(t, other_versions_are_told_apart);
        tcase_add_test(t, bodies_cut_or_too_long_are_refused);
        suite_add_tcase(s, t);
        return s;
}
