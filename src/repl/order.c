/* order.c: operations in the order in which they are delivered: pieces put together, positions counted, applied by those who hold the
 * state, kept for later by a newcomer. One operation is applied per step. */
#include "machine.h"

#include <inttypes.h>

/* --- operations as they travel */
static struct opbuf *opbuf_alloc(size_t len) {
        struct opbuf *b = xmalloc(sizeof(*b) + len);
        *b = (struct opbuf){.refs = 1, .len = len};
        return b;
}

static size_t put_varint(uint8_t *at, uint64_t v) {
        size_t n = 0;
        for (; v >= 0x80; v >>= 7)
                at[n++] = (uint8_t)(v | 0x80);
        at[n++] = (uint8_t)v;
        return n;
}

struct opbuf *opbuf_new(const void *head, size_t head_len, const void *payload, size_t payload_len) {
        uint8_t before[10], between[10];
        size_t n_before = put_varint(before, head_len), n_between = put_varint(between, payload_len);
        struct opbuf *b = opbuf_alloc(n_before + head_len + n_between + payload_len);
        b->head_at = n_before;
        b->head_len = head_len;
        b->payload_at = n_before + head_len + n_between;
        b->payload_len = payload_len;
        memcpy(b->bytes, before, n_before);
        memcpy(b->bytes + b->head_at, head, head_len);
        memcpy(b->bytes + b->head_at + head_len, between, n_between);
        if (payload_len > 0)
                memcpy(b->bytes + b->payload_at, payload, payload_len);
        return b;
}

struct opbuf *opbuf_ref(struct opbuf *b) {
        if (b)
                b->refs++;
        return b;
}

void opbuf_unref(struct opbuf *b) {
        if (b && --b->refs == 0)
                free(b);
}

/* --- one operation that was delivered */
static void conclude(struct repl *r, const struct op *op, struct opbuf *b, const struct op_result *result, struct request *q) {
        bool changed = r->changes.n > 0;
        struct repl_effect *e = repl_effect(r, EFFECT_COMMIT);
        e->commit.pos = r->state->pos;
        e->commit.op = op;
        e->commit.head = b->bytes + b->head_at;
        e->commit.head_len = b->head_len;
        e->commit.changes = &r->changes;
        e->commit.result = *result;
        e->commit.local = q != NULL;
        e->commit.token = q ? q->token : 0;
        if (changed) {
                struct repl_effect commit = *e;
                *repl_effect(r, EFFECT_INVALIDATE) = commit;
                r->effects[r->n_effects - 1].kind = EFFECT_INVALIDATE;
        }
        stable_push(r, b, changed, state_digest(r->state));
        if (q)
                request_applied(r, q, result);
        stable_update(r);
}

/* The broken machine that sends again without looking up applies what it knows once more. */
static errint_t apply_again(struct repl *r, uint64_t epoch, const struct op *op, const struct opbuf *b, struct op_result *ret) {
        struct op_result known;
        if (op->origin.incarnation == 0 ||
            sessions_find(r->state->sessions, op->origin.node, op->origin.incarnation, op->origin.number, &known) == SESSION_NEW)
                return state_apply(r->state, epoch, op, b->bytes + b->head_at, b->head_len, &r->changes, ret);
        errint_t err = tree_apply(r->state->tree, op, r->state->pos.seq + 1, &r->changes, ret);
        if (err < 0)
                return err;
        r->state->pos = (struct position){.epoch = epoch, .seq = r->state->pos.seq + 1};
        r->state->history = state_history_next(r->state->history, epoch, b->bytes + b->head_at, b->head_len, &op->payload);
        return 0;
}

/* Applies the operation in b at the next position. q: our own request, or NULL. */
static void apply_one(struct repl *r, struct opbuf *b, uint64_t epoch, struct request *q) {
        struct op *op = repl_scrap(r, sizeof(*op));
        void *scratch = NULL;
        errint_t err = op_decode(b->bytes + b->head_at, b->head_len, b->bytes + b->payload_at, b->payload_len, op, &scratch);
        repl_free_later(r, scratch);
        repl_hold(r, opbuf_ref(b));
        if (q)
                op->payload.source = q->source;
        struct op_result result = {0};
        if (err == 0 && repl_variant(VARIANT_SKIP_DELETIONS) && repl_phase(r) == PHASE_CATCHUP &&
            (op->kind == OP_UNLINK || op->kind == OP_RMDIR))
                op->kind = OP_NOTHING;
        if (err == 0 && repl_variant(VARIANT_APPLY_CLOCK))
                op->time.nsec = (uint32_t)(r->now % 1000) * 1000000u;
        if (err == 0)
                err = repl_variant(VARIANT_RESEND_BLIND)
                              ? apply_again(r, epoch, op, b, &result)
                              : state_apply(r->state, epoch, op, b->bytes + b->head_at, b->head_len, &r->changes, &result);
        if (err < 0) { /* others may have been able to: this node cannot follow them any more */
                repl_log(r, 3, "operation at %" PRIu64 " cannot be applied: %s", r->state->pos.seq + 1,
                         err == -ENOMEM ? "out of memory" : "not an operation");
                repl_fail(r, "an operation could not be applied");
                return;
        }
        conclude(r, op, b, &result, q);
}

void order_apply(struct repl *r, const struct wire_op *op, struct opbuf *kept, uint64_t epoch, bool own) {
        struct request *q = NULL;
        CLEANUP(opbuf_unrefp) struct opbuf *b = opbuf_ref(kept);
        if (own) {
                q = request_delivered(r, op);
                if (!q) {
                        repl_fail(r, "an operation came back to this node that it did not send");
                        return;
                }
                opbuf_unref(b);
                b = opbuf_ref(q->op); /* the very bytes: no copy of what was delivered */
        }
        if (!b)
                b = opbuf_new(op->head, op->head_len, op->payload, op->payload_len);
        apply_one(r, b, epoch, q);
}

/* --- queues. A newcomer keeps what is delivered while it catches up; bounded: what no longer fits comes from the donor's log. */
void order_queue(struct op_queue *q, uint64_t seq, uint64_t epoch, struct opbuf *op) {
        if (q->n == q->cap && q->at > 0) {
                memmove(q->items, q->items + q->at, (q->n - q->at) * sizeof(*q->items));
                q->n -= q->at;
                q->at = 0;
        }
        if (q->n == q->cap) {
                q->cap = q->cap ? 2 * q->cap : 64;
                q->items = xrealloc(q->items, q->cap * sizeof(*q->items));
        }
        q->items[q->n++] = (struct late_op){.seq = seq, .epoch = epoch, .op = op};
        q->bytes += op->len;
}

static void queue_pop(struct op_queue *q) {
        q->bytes -= q->items[q->at].op->len;
        opbuf_unref(q->items[q->at++].op);
}

void order_queue_drop(struct op_queue *q) {
        while (q->at < q->n)
                queue_pop(q);
        q->at = q->n = 0;
}

static void late_push(struct repl *r, const struct wire_op *op, struct opbuf *kept) {
        struct opbuf *b = kept ? opbuf_ref(kept) : opbuf_new(op->head, op->head_len, op->payload, op->payload_len);
        order_queue(&r->late, r->delivered_seq, r->choice.epoch, b);
        while (r->late.bytes > REPL_LATE_BUFFER)
                queue_pop(&r->late);
}

/* The next operation of a queue; false: none is left. */
static bool queue_apply(struct repl *r, struct op_queue *q) {
        while (q->at < q->n && q->items[q->at].seq <= r->state->pos.seq)
                queue_pop(q);
        if (q->at == q->n)
                return false;
        PRE(q->items[q->at].seq == r->state->pos.seq + 1);
        apply_one(r, q->items[q->at].op, q->items[q->at].epoch, NULL);
        queue_pop(q);
        return q->at < q->n && repl_phase(r) != PHASE_LEFT;
}

static void deliver_op(struct repl *r, size_t from, const struct wire_op *op, struct opbuf *kept) {
        r->delivered_seq++;
        if (repl_applies(r)) {
                PRE(r->state->pos.seq + 1 == r->delivered_seq || repl_variant(VARIANT_OLD_EPOCH) ||
                    repl_variant(VARIANT_ADOPT_BEFORE_CAUGHT_UP) || repl_variant(VARIANT_EXPEL_WITHOUT_ROUND));
                order_apply(r, op, kept, r->choice.epoch, from == r->self);
        } else if (repl_phase(r) == PHASE_CATCHUP) {
                late_push(r, op, kept);
        }
}

/* --- messages */
static bool of_epoch(const struct repl *r, uint64_t epoch, size_t from) {
        if (repl_variant(VARIANT_OLD_EPOCH))
                return r->epoch_active;
        return r->epoch_active && epoch == r->choice.epoch && r->members[from].synced;
}

void order_traffic(struct repl *r, size_t from, const struct wire_header *h, const void *body, size_t len) {
        struct wire_traffic t;
        struct dec d;
        (void)h;
        dec_init(&d, body, len);
        if (wire_traffic_decode(&d, &t) < 0 || !of_epoch(r, t.epoch, from))
                return;
        if (t.flags & TRAFFIC_ACK)
                stable_ack(r, from, &t);
        if (t.flags & TRAFFIC_BARRIER && repl_in_s(r) && !repl_variant(VARIANT_FSYNC_ORIGIN))
                stable_barrier(r, t.barrier);
        if (dec_left(&d) == 0)
                return;
        r->work = d;
        r->work_member = from;
        r->work_traffic = true;
        order_more(r);
}

void order_more(struct repl *r) {
        if (r->work_traffic) {
                struct wire_op op;
                if (wire_op_decode(&r->work, &op)) {
                        deliver_op(r, r->work_member, &op, NULL);
                } else {
                        repl_log(r, 3, "node %u sent a list of operations that is none", r->members[r->work_member].id.node);
                        r->work_traffic = false;
                }
                if (dec_left(&r->work) == 0)
                        r->work_traffic = false;
                return;
        }
        bool *work = r->work_replay ? &r->work_replay : &r->work_late;
        *work = queue_apply(r, r->work_replay ? &r->replay : &r->late);
        if (!*work && repl_phase(r) == PHASE_CATCHUP)
                catchup_replayed(r);
}

void order_reset_part(struct member *m) {
        opbuf_unref(m->part);
        m->part = NULL;
        m->part_total = m->part_cap = 0;
}

/* Room grows with what has come, never with what was announced. */
static void part_grow(struct member *m, size_t need) {
        if (need <= m->part_cap)
                return;
        size_t cap = MIN_OF((size_t)m->part_total, MAX_OF(2 * need, (size_t)(256 * KIB)));
        PRE(cap >= need && (!m->part || m->part->refs == 1));
        struct opbuf *b = xrealloc(m->part, sizeof(*b) + cap);
        if (!m->part)
                *b = (struct opbuf){.refs = 1};
        m->part = b;
        m->part_cap = (uint32_t)cap;
}

static bool part_finish(struct opbuf *b, struct wire_op *op) {
        struct dec d;
        dec_init(&d, b->bytes, b->len);
        if (!wire_op_decode(&d, op) || (dec_left(&d) != 0 && !repl_variant(VARIANT_MIXED_PARTS)))
                return false;
        b->head_at = (size_t)(op->head - b->bytes);
        b->head_len = op->head_len;
        b->payload_at = op->payload_len ? (size_t)(op->payload - b->bytes) : b->len;
        b->payload_len = op->payload_len;
        return true;
}

void order_part(struct repl *r, size_t from, const struct wire_header *h, const void *body, size_t len) {
        struct member *m = &r->members[from];
        struct wire_part p;
        (void)h;
        if (wire_part_decode(body, len, &p) < 0 || !of_epoch(r, p.epoch, from))
                return;
        expel_progress(r, from);
        if (from == r->self) { /* we have the whole already: it counts when its last piece has come */
                if (p.offset + p.len == p.total && r->next_apply && r->next_apply->op->len == p.total) {
                        const struct opbuf *b = r->next_apply->op;
                        struct wire_op own = {b->bytes + b->head_at, b->bytes + b->payload_at, b->head_len, b->payload_len};
                        deliver_op(r, from, &own, NULL);
                }
                return;
        }
        size_t have = m->part ? m->part->len : 0;
        if (p.offset == 0 && !repl_variant(VARIANT_MIXED_PARTS))
                order_reset_part(m);
        else if ((p.offset != have || p.total != m->part_total) && !repl_variant(VARIANT_MIXED_PARTS)) {
                repl_log(r, 3, "node %u sent a piece that does not follow the one before", m->id.node);
                order_reset_part(m);
                return;
        }
        size_t at = repl_variant(VARIANT_MIXED_PARTS) ? have : p.offset;
        m->part_total = repl_variant(VARIANT_MIXED_PARTS) ? (uint32_t)MAX_OF((size_t)p.total, at + p.len) : p.total;
        part_grow(m, at + p.len);
        memcpy(m->part->bytes + at, p.data, p.len);
        m->part->len = at + p.len;
        if (m->part->len < p.total)
                return;
        CLEANUP(opbuf_unrefp) struct opbuf *whole = steal_pointer(&m->part);
        m->part_total = m->part_cap = 0;
        struct wire_op op;
        if (part_finish(whole, &op))
                deliver_op(r, from, &op, whole);
        else
                repl_log(r, 3, "node %u sent pieces that are no operation", m->id.node);
}
