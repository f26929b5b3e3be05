/* request.c: this node's own requests, from their number to their answer. They stand in order of number: applied ones, then those under
 * way, then those that wait. What is sent again goes in that order too and before anything new. */
#include "machine.h"

#include <inttypes.h>

static void reply(struct repl *r, uint64_t token, const struct op_result *result, struct position pos) {
        struct repl_effect *e = repl_effect(r, EFFECT_REPLY);
        e->reply.token = token;
        e->reply.result = *result;
        e->reply.pos = pos;
}

static void reply_error(struct repl *r, uint64_t token, int error) {
        struct op_result result = {.error = error};
        reply(r, token, &result, r->state->pos);
}

static void request_remove(struct repl *r, struct request *q) {
        *(q->prev ? &q->prev->next : &r->first) = q->next;
        *(q->next ? &q->next->prev : &r->last) = q->prev;
        if (r->next_send == q)
                r->next_send = q->next;
        if (r->next_apply == q)
                r->next_apply = q->next;
        if (q->fate == FATE_SENT || q->fate == FATE_APPLIED)
                r->window_used -= MIN_OF(r->window_used, (uint64_t)q->op->len);
        r->n_requests--;
        opbuf_unref(q->op);
        blob_unref(q->source);
        free(q);
}

void request_free_all(struct repl *r) {
        while (r->first)
                request_remove(r, r->first);
        order_queue_drop(&r->given_up);
        free(steal_pointer(&r->given_up.items));
}

/* Its caller is told that nobody knows; it is never sent again. */
static void give_up(struct repl *r, struct request *q) {
        reply_error(r, q->token, -EIO);
        if (r->given_up.bytes + q->op->len <= REPL_CONFLICT_BYTES)
                order_queue(&r->given_up, q->number, 0, opbuf_ref(q->op));
        else
                repl_log(r, 4,
                         "request %" PRIu64
                         ", whose fate is not known, gets no conflict record should it be lost: too many wait for an epoch",
                         q->number);
        request_remove(r, q);
}

/* What was given up and is not in the state of the adopted epoch is lost, unless nobody else adopts it. Other members that had applied it
 * cannot tell, once later requests of ours have passed it by. */
static void judge_given_up(struct repl *r) {
        struct op_queue lost = r->given_up;
        size_t kept = 0;
        r->given_up = (struct op_queue){0};
        for (size_t i = lost.at; i < lost.n; i++)
                kept += conflict_one(r, r->state, lost.items[i].op, r->state->pos);
        order_queue_drop(&lost);
        free(lost.items);
        if (kept > 0)
                repl_log(r, 4, "%zu requests whose fate was not known are not in the history of the cluster: kept as conflicts", kept);
}

uint64_t request_lowest(const struct repl *r) {
        return r->first ? r->first->number : 0;
}

/* --- events */
void request_submit(struct repl *r, const struct repl_event *ev) {
        bool refused = repl_phase(r) != PHASE_ACTIVE && r->refusing;
        if (refused || r->stopping || repl_phase(r) == PHASE_LEFT || r->n_requests + r->n_barriers >= REPL_REQUESTS_MAX) {
                reply_error(r, ev->request.token, -EROFS);
                return;
        }
        if (ev->request.kind == REQUEST_BARRIER) {
                stable_request_barrier(r, ev->request.token);
                return;
        }
        PRE(ev->request.head_len <= OP_HEAD_MAX && ev->request.payload.len <= OP_PAYLOAD_MAX);
        struct request *q = NEW(struct request);
        *q = (struct request){
                .prev = r->last,
                .token = ev->request.token,
                .number = r->next_number - 1, /* repl_next_origin gave it out just before */
                .fate = FATE_QUEUED,
                .op = opbuf_new(ev->request.head, ev->request.head_len, ev->request.payload.data, ev->request.payload.len),
                .source = blob_ref(ev->request.payload.source),
                .since_ms = r->now,
        };
        PRE(!r->last || r->last->number < q->number);
        *(r->last ? &r->last->next : &r->first) = q;
        r->last = q;
        r->n_requests++;
        if (repl_phase(r) != PHASE_ACTIVE)
                return;
        if (!r->next_send)
                r->next_send = q;
        if (!r->next_apply)
                r->next_apply = q;
}

void request_withdraw(struct repl *r, uint64_t token) {
        for (struct request *q = r->first; q; q = q->next) {
                if (q->token != token)
                        continue;
                if (q->fate == FATE_QUEUED && q->sent == 0 && !q->unsure) { /* surely in nobody's history, and never will be */
                        reply_error(r, token, -EINTR);
                        request_remove(r, q);
                } else if (!q->withdrawn_at) {
                        q->withdrawn_at = MAX_OF(r->now, (uint64_t)1);
                        if (!r->withdrawn_at)
                                r->withdrawn_at = q->withdrawn_at;
                }
                return;
        }
        for (size_t i = 0; i < r->n_barriers; i++)
                if (r->barriers[i].token == token) {
                        reply_error(r, token, -EINTR);
                        memmove(&r->barriers[i], &r->barriers[i + 1], (--r->n_barriers - i) * sizeof(r->barriers[0]));
                        return;
                }
}

/* The operation goes on its way without its caller, who learns that its fate is not known. One that was handed over in part goes on until
 * it is complete: its pieces must follow each other. */
void request_withdrawn(struct repl *r) {
        uint64_t first = 0;
        for (struct request *q = r->first, *next; q; q = next) {
                next = q->next;
                if (!q->withdrawn_at)
                        continue;
                bool due = r->now - q->withdrawn_at >= REPL_WITHDRAWN_MS, partly = q->fate == FATE_QUEUED && q->sent > 0;
                if (due && !partly) {
                        give_up(r, q);
                        continue;
                }
                if (due)
                        q->withdrawn_at = r->now; /* looked at again */
                if (!first || q->withdrawn_at < first)
                        first = q->withdrawn_at;
        }
        r->withdrawn_at = first;
}

/* --- rounds */
void request_round_ended(struct repl *r) {
        for (struct request *q = r->first; q; q = q->next) {
                if (q->fate == FATE_SENT)
                        q->fate = FATE_UNKNOWN;
                q->sent = 0; /* one that was sent in part was delivered to nobody */
        }
        r->next_send = r->next_apply = NULL;
        r->window_used = 0;
}

void request_returned(struct repl *r, const struct wire_header *h) {
        if (h->type != WIRE_TRAFFIC && h->type != WIRE_PART)
                return;
        for (struct request *q = r->first; q; q = q->next)
                if (q->fate == FATE_UNKNOWN && q->instance == h->instance && q->round == h->round && q->first <= h->number &&
                    h->number <= q->last)
                        q->fate = FATE_QUEUED; /* it was not delivered in its round, so everybody drops it */
}

struct request *request_delivered(struct repl *r, const struct wire_op *op) {
        struct request *q = r->next_apply;
        if (!q || q->fate != FATE_SENT || q->op->head_len != op->head_len ||
            memcmp(q->op->bytes + q->op->head_at, op->head, op->head_len) != 0)
                return NULL;
        return q;
}

void request_applied(struct repl *r, struct request *q, const struct op_result *result) {
        q->fate = FATE_APPLIED;
        q->seq = r->state->pos.seq;
        q->pos = r->state->pos;
        q->result = *result;
        r->next_apply = q->next;
        if (repl_variant(VARIANT_ACK_SELF_DELIVERY)) {
                reply(r, q->token, result, q->pos);
                request_remove(r, q);
        }
}

/* The epoch is adopted: each request that waits is looked up. There: its recorded result, once stable. Not there: sent again. */
void request_adopted(struct repl *r) {
        judge_given_up(r);
        for (struct request *q = r->first, *next; q; q = next) {
                next = q->next;
                if (q->fate == FATE_QUEUED)
                        continue;
                enum session_verdict v = sessions_find(r->state->sessions, r->config.node, r->config.incarnation, q->number, &q->result);
                if (repl_variant(VARIANT_RESEND_BLIND))
                        v = SESSION_NEW;
                if (v == SESSION_KNOWN) {
                        q->fate = FATE_APPLIED;
                        q->pos = r->state->pos;
                        q->seq = r->state->pos.seq;
                        r->window_used += q->op->len;
                        if (repl_variant(VARIANT_ACK_AT_ACTIVATION)) {
                                reply(r, q->token, &q->result, q->pos);
                                request_remove(r, q);
                        }
                } else if (v == SESSION_NEW) {
                        q->fate = FATE_QUEUED;
                        q->unsure = true;
                } else {
                        repl_log(r, 4, "the fate of request %" PRIu64 " is not known", q->number);
                        reply_error(r, q->token, -EIO);
                        request_remove(r, q);
                }
        }
        struct request *q = r->first;
        while (q && q->fate == FATE_APPLIED)
                q = q->next;
        r->next_send = r->next_apply = q;
}

void request_stable(struct repl *r) {
        while (r->first && r->first->fate == FATE_APPLIED && r->first->seq <= r->stable) {
                reply(r, r->first->token, &r->first->result, r->first->pos);
                request_remove(r, r->first);
        }
}

/* --- refusing */
void request_refuse_all(struct repl *r, const char *why) {
        size_t unknown = 0;
        r->refusing = true;
        while (r->first) {
                struct request *q = r->first;
                bool surely = q->fate == FATE_QUEUED && !q->unsure;
                unknown += !surely;
                if (!surely) {
                        give_up(r, q);
                        continue;
                }
                reply_error(r, q->token, -EROFS);
                request_remove(r, q);
        }
        if (unknown > 0)
                repl_log(r, 4, "the fate of %zu requests is not known: %s", unknown, why);
        stable_refuse_barriers(r, -EIO);
}

void request_grace(struct repl *r) {
        enum phase p = repl_phase(r);
        if (p == PHASE_ACTIVE || p == PHASE_LEFT || r->refusing || r->now - r->lost_at < r->config.read_only_grace_ms)
                return;
        request_refuse_all(r, r->reason);
}
