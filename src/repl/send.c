/* send.c: messages out: their names and numbers; acknowledgements and operations that travel together; the window. */
#include "machine.h"

uint32_t send_under_way(const struct repl *r) {
        return r->own_number - r->own_seen;
}

void send_message(struct repl *r, enum wire_type type, const void *body, size_t len, const void *body2, size_t len2) {
        struct wire_header h = {
                .version = r->chosen && r->choice.version ? r->choice.version : WIRE_VERSION_MIN,
                .lowest = WIRE_VERSION_MIN,
                .highest = WIRE_VERSION_MAX,
                .type = (uint8_t)type,
                .ring = r->ring,
                .members = r->members_hash,
                .round = r->round,
                .incarnation = r->config.incarnation,
                .instance = r->instance,
                .number = ++r->own_number,
        };
        uint8_t *data = repl_scrap(r, WIRE_HEADER + len);
        if (len > 0)
                memcpy(data + WIRE_HEADER, body, len);
        wire_header_encode(&h, body, len, body2, len2, data);
        struct repl_effect *e = repl_effect(r, EFFECT_SEND);
        e->send.data = data;
        e->send.len = WIRE_HEADER + len;
        e->send.data2 = body2;
        e->send.len2 = len2;
}

/* --- operations */
static bool window_open(const struct repl *r, const struct request *q) {
        bool fits = q->sent > 0 /* counted already */ || r->window_used == 0 || r->window_used + q->op->len <= r->config.window_bytes;
        return fits && q->number - r->first->number < SESSION_RESULTS; /* its result must still be kept when it is looked up */
}

static void mark_sent(struct repl *r, struct request *q, uint32_t number) {
        q->last = number;
        q->fate = FATE_SENT;
        q->sent = q->op->len;
        r->next_send = q->next;
}

static void mark_begun(struct repl *r, struct request *q, uint32_t number) {
        q->instance = r->instance;
        q->round = r->round;
        q->first = q->last = number;
        r->window_used += q->op->len;
}

/* Pieces point into the operation itself: nothing is copied before the transport. */
static void pump_parts(struct repl *r, struct request *q) {
        if (q->sent == 0)
                mark_begun(r, q, r->own_number + 1);
        while (q->sent < q->op->len && send_under_way(r) < REPL_PIPELINE_PARTS) {
                size_t n = MIN_OF(q->op->len - q->sent, (size_t)WIRE_PIECE_MAX);
                struct wire_part part = {.epoch = r->choice.epoch, .total = (uint32_t)q->op->len, .offset = (uint32_t)q->sent};
                CLEANUP(enc_done) struct enc e;
                enc_init(&e, WIRE_PART_HEAD);
                wire_part_encode(&part, &e);
                PRE(!e.err);
                repl_hold(r, opbuf_ref(q->op));
                send_message(r, WIRE_PART, e.data, e.len, q->op->bytes + q->sent, n);
                q->sent += n;
        }
        if (q->sent == q->op->len)
                mark_sent(r, q, r->own_number);
}

static void pump_small(struct repl *r, struct wire_traffic *t) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        wire_traffic_encode(t, &e);
        uint32_t number = r->own_number + 1;
        struct request *q = r->next_send;
        while (q && window_open(r, q) && e.len + q->op->len <= WIRE_BODY_MAX) {
                mark_begun(r, q, number);
                mark_sent(r, q, number);
                enc_raw(&e, q->op->bytes, q->op->len);
                q = r->next_send;
        }
        PRE(!e.err);
        send_message(r, WIRE_TRAFFIC, e.data, e.len, NULL, 0);
}

/* What is due besides operations; fills `t` and marks it as told. */
static bool take_due(struct repl *r, struct wire_traffic *t) {
        *t = (struct wire_traffic){.epoch = r->choice.epoch};
        if (r->ack_due && r->ack_number == 0) {
                const struct member *me = repl_me(r);
                t->flags |= TRAFFIC_ACK;
                t->ack_seq = me->acked;
                t->ack_medium = me->medium;
                bool known = stable_digest_at(r, me->acked, &t->ack_digest); /* nothing is stable beyond what we acknowledge */
                POST(known || repl_variant(VARIANT_MAJORITY));
                r->told_seq = me->acked;
                r->told_medium = me->medium;
                r->ack_due = false;
                r->ack_number = r->own_number + 1;
        }
        if (r->barrier_due > r->barrier_told) {
                t->flags |= TRAFFIC_BARRIER;
                t->barrier = r->barrier_told = r->barrier_due;
        }
        return t->flags != 0;
}

void send_pump(struct repl *r) {
        if (repl_phase(r) != PHASE_ACTIVE || r->busy)
                return;
        if (r->ack_number && r->own_seen >= r->ack_number)
                r->ack_number = 0;
        struct wire_traffic t;
        while (r->next_send && window_open(r, r->next_send)) {
                if (WIRE_TRAFFIC_MAX + r->next_send->op->len > WIRE_PIECE_MAX) {
                        if (send_under_way(r) >= REPL_PIPELINE_PARTS)
                                break;
                        pump_parts(r, r->next_send);
                        continue;
                }
                if (send_under_way(r) >= REPL_PIPELINE_SMALL)
                        break; /* what waits travels together in the next */
                (void)take_due(r, &t);
                pump_small(r, &t);
        }
        if (take_due(r, &t))
                pump_small(r, &t);
}
