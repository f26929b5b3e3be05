/* donor.c: the donor's side of state transfer: proves whether a newcomer's history is the beginning of ours, freezes a position, gives what
 * is asked for, never more than a few messages at a time, because everybody gets them. */
#include "transfer.h"

#include <inttypes.h>

struct given_op {
        uint64_t seq, epoch;
        struct opbuf *op;
};
struct transfer {
        struct transfer *next;
        size_t member;
        uint64_t id, last_ask; /* on the quiet clock */
        struct wish wishes[TRANSFER_WISHES];
        size_t n_wishes;
        uint8_t mode;          /* 0: not decided yet */
        struct capture *begin; /* BY_LOG: the position to reach, without inodes */
        uint64_t tag;          /* of the log being read; 0: none */
        bool proving;
        struct hash128 chain;
        uint64_t chained; /* sequence */
        struct given_op *ops;
        size_t n_ops, cap_ops, at_op;
        uint64_t op_bytes, next_seq; /* next_seq: what LOG_END tells */
        bool log_ready;
};
struct donor {
        struct transfer *list;
        struct capture *capture; /* shared by all who catch up in this round */
        uint32_t numbers[TRANSFER_UNDER_WAY];
};

static void ops_drop(struct transfer *t) {
        for (size_t i = 0; i < t->n_ops; i++)
                opbuf_unref(t->ops[i].op);
        t->n_ops = t->at_op = 0;
        t->op_bytes = 0;
        t->log_ready = false;
}

static void transfer_free(struct transfer *t) {
        ops_drop(t);
        free(t->ops);
        capture_free(t->begin);
        free(t);
}

void donor_stop(struct repl *r) {
        if (!r->donor)
                return;
        while (r->donor->list) {
                struct transfer *t = r->donor->list;
                r->donor->list = t->next;
                transfer_free(t);
        }
        capture_free(r->donor->capture);
        free(r->donor);
        r->donor = NULL;
}

static struct transfer *transfer_of(struct repl *r, size_t member, uint64_t id) {
        if (!r->donor)
                r->donor = NEW(struct donor);
        struct transfer **p = &r->donor->list;
        while (*p && (*p)->member != member)
                p = &(*p)->next;
        struct transfer *old = *p;
        if (old && old->id == id)
                return old;
        if (old) { /* it began anew */
                *p = old->next;
                transfer_free(old);
        }
        struct transfer *t = NEW(struct transfer);
        *t = (struct transfer){.member = member, .id = id, .next = r->donor->list};
        return r->donor->list = t;
}

/* --- beginning */
static void by_difference(struct repl *r, struct transfer *t) {
        t->mode = TRANSFER_BY_DIFFERENCE;
        if (!r->donor->capture && capture_take(r->state, r->adopted, &r->donor->capture) < 0)
                repl_log(r, 3, "the state cannot be captured for node %u", r->members[t->member].id.node);
}

static void read_log(struct repl *r, struct transfer *t, uint64_t from, uint64_t to) {
        t->tag = ++r->next_tag;
        struct repl_effect *e = repl_effect(r, EFFECT_READ_LOG);
        e->read_log.tag = t->tag;
        e->read_log.from_seq = from;
        e->read_log.to_seq = to;
}

static void begin(struct repl *r, struct transfer *t, const struct wish *w) {
        const struct state *s = r->state;
        if (w->offset != 0 || w->id > s->pos.seq || (w->id == s->pos.seq && !hash128_equal(w->history, s->history))) {
                by_difference(r, t);
                return;
        }
        t->begin = NEW(struct capture);
        *t->begin = (struct capture){.pos = s->pos,
                                     .history = s->history,
                                     .digest = state_digest(s),
                                     .adopted = r->adopted,
                                     .settings = *tree_settings(s->tree)};
        if (w->id == s->pos.seq) {
                t->mode = TRANSFER_BY_LOG;
                return;
        }
        t->proving = true;
        t->chain = w->history;
        t->chained = w->id;
        read_log(r, t, w->id + 1, s->pos.seq);
}

/* One link from the newcomer's history towards ours. */
static void prove(struct transfer *t, const struct repl_event *ev) {
        struct op op;
        void *scratch = NULL;
        if (ev->log_part.pos.seq != t->chained + 1 ||
            op_decode(ev->log_part.head, ev->log_part.head_len, ev->log_part.payload, ev->log_part.payload_len, &op, &scratch) < 0)
                return; /* the chain does not reach the end: by difference */
        t->chain = state_history_next(t->chain, ev->log_part.pos.epoch, ev->log_part.head, ev->log_part.head_len, &op.payload);
        t->chained++;
        free(scratch);
}

static void proved(struct repl *r, struct transfer *t, errint_t error) {
        t->proving = false;
        if (error == 0 && t->chained == t->begin->pos.seq && hash128_equal(t->chain, t->begin->history)) {
                t->mode = TRANSFER_BY_LOG;
                return;
        }
        capture_free(t->begin);
        t->begin = NULL;
        by_difference(r, t);
}

void donor_log_part(struct repl *r, const struct repl_event *ev) {
        struct transfer *t = r->donor ? r->donor->list : NULL;
        while (t && t->tag != ev->log_part.tag)
                t = t->next;
        if (!t)
                return;
        if (ev->log_part.end) {
                t->tag = 0;
                if (t->proving)
                        proved(r, t, ev->log_part.error);
                else
                        t->log_ready = true;
        } else if (t->proving) {
                prove(t, ev);
        } else if (t->op_bytes < TRANSFER_LOG_BYTES && ev->log_part.pos.seq == t->next_seq) {
                if (t->n_ops == t->cap_ops) {
                        t->cap_ops = t->cap_ops ? 2 * t->cap_ops : 64;
                        t->ops = xrealloc(t->ops, t->cap_ops * sizeof(*t->ops));
                }
                struct opbuf *b = opbuf_new(ev->log_part.head, ev->log_part.head_len, ev->log_part.payload, ev->log_part.payload_len);
                t->ops[t->n_ops++] = (struct given_op){ev->log_part.pos.seq, ev->log_part.pos.epoch, b};
                t->op_bytes += b->len;
                t->next_seq++;
        }
}

void donor_ask(struct repl *r, size_t from, const void *body, size_t len) {
        struct transfer_head h;
        struct dec d;
        struct wish w;
        dec_init(&d, body, len);
        transfer_head_decode(&d, &h);
        expel_progress(r, from); /* it catches up, and is not idle */
        const struct repl_member *me = &repl_me(r)->id;
        if (d.err || h.target.node != me->node || h.target.pid != me->pid || from == r->self || !repl_applies(r))
                return;
        struct transfer *t = transfer_of(r, from, h.transfer);
        t->last_ask = r->quiet;
        while (wish_decode(&d, &w)) {
                if (t->n_wishes == TRANSFER_WISHES)
                        break; /* more than a newcomer may have outstanding */
                t->wishes[t->n_wishes++] = w;
                if (w.kind == OBJECT_BEGIN && t->mode == 0 && !t->proving)
                        begin(r, t, &w);
        }
}

/* --- giving. A piece of the wish w into e, as far as there is room; true: the wish is fulfilled. */
static size_t room(const struct enc *e) {
        return e->len + 64 < WIRE_PIECE_MAX ? WIRE_PIECE_MAX - e->len - 64 : 0;
}

static bool give_bytes(struct enc *e, struct wish *w, const uint8_t *data, size_t total) {
        size_t at = MIN_OF((size_t)w->offset, total), n = MIN_OF(total - at, room(e));
        struct piece p = {.kind = w->kind, .id = w->id, .total = total, .offset = at, .data = data + at, .len = n};
        piece_encode(&p, e);
        w->offset = at + n;
        return w->offset == total;
}

static bool give_content(const struct capture *c, struct enc *e, struct wish *w) {
        const struct capture_inode *x = capture_inode(c, w->id);
        uint64_t total = x ? blob_size(x->content) : 0, at = MIN_OF(w->offset, total);
        size_t n = (size_t)MIN_OF(total - at, (uint64_t)room(e));
        struct piece p = {.kind = w->kind, .id = w->id, .total = total, .offset = at, .data = (const uint8_t *)"", .len = 0};
        cleanup_free uint8_t *bytes = xmalloc(n + 1);
        p.data = bytes;
        p.len = x ? blob_read(x->content, at, bytes, n) : 0;
        piece_encode(&p, e);
        w->offset = at + p.len;
        return w->offset == total;
}

static bool give_log(struct repl *r, struct transfer *t, struct enc *e, struct wish *w) {
        if (!t->log_ready) {
                if (t->tag == 0) {
                        ops_drop(t);
                        t->next_seq = w->id;
                        w->offset = 0;
                        if (w->id > r->state->pos.seq)
                                t->log_ready = true;
                        else
                                read_log(r, t, w->id, r->state->pos.seq);
                }
                if (!t->log_ready)
                        return false;
        }
        for (; t->at_op < t->n_ops && room(e) > 0; t->at_op++, w->offset = 0) {
                const struct given_op *g = &t->ops[t->at_op];
                cleanup_free uint8_t *bytes = xmalloc(8 + g->op->len);
                le_put(bytes, g->epoch, 8);
                memcpy(bytes + 8, g->op->bytes, g->op->len);
                struct wish one = {.kind = OBJECT_LOG, .id = g->seq, .offset = w->offset};
                bool whole = give_bytes(e, &one, bytes, 8 + g->op->len);
                w->offset = one.offset;
                if (!whole)
                        return false;
        }
        if (t->at_op < t->n_ops || room(e) == 0)
                return false;
        struct piece end = {.kind = OBJECT_LOG_END, .id = t->next_seq, .data = (const uint8_t *)""};
        piece_encode(&end, e);
        ops_drop(t);
        return true;
}

static bool give(struct repl *r, struct transfer *t, struct enc *e, struct wish *w) {
        const struct capture *c = r->donor->capture;
        if (w->kind == OBJECT_LOG)
                return give_log(r, t, e, w);
        if (w->kind == OBJECT_BEGIN && t->mode == 0)
                return false; /* still proving */
        if (w->kind == OBJECT_BEGIN && t->mode == TRANSFER_BY_LOG)
                c = t->begin;
        if (!c)
                return true; /* nothing to give it from: it will ask again */
        if (w->kind == OBJECT_CONTENT)
                return give_content(c, e, w);
        const struct capture_inode *x = w->kind == OBJECT_INODE ? capture_inode(c, w->id) : NULL;
        if (x)
                return give_bytes(e, w, x->record, x->len);
        if (w->kind == OBJECT_SESSIONS)
                return give_bytes(e, w, c->sessions, c->sessions_len);
        CLEANUP(enc_done) struct enc object;
        enc_init(&object, WIRE_PIECE_MAX);
        if (capture_object(c, w->kind, w->id, t->mode, &object) < 0)
                enc_reset(&object); /* an object that is not there is empty */
        if (w->kind == OBJECT_BEGIN)
                w->offset = 0; /* was a flag */
        return give_bytes(e, w, object.data ? object.data : (const uint8_t *)"", object.len);
}

static bool give_message(struct repl *r, struct transfer *t) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        struct transfer_head h = {.target = r->members[t->member].id, .transfer = t->id};
        transfer_head_encode(&h, &e);
        size_t before = e.len, done = 0;
        while (done < t->n_wishes && room(&e) > 0 && give(r, t, &e, &t->wishes[done]))
                done++;
        t->n_wishes -= done;
        memmove(t->wishes, t->wishes + done, t->n_wishes * sizeof(t->wishes[0]));
        PRE(!e.err);
        if (e.len == before)
                return false;
        send_message(r, WIRE_GIVE, e.data, e.len, NULL, 0);
        return true;
}

static size_t give_under_way(const struct repl *r) {
        size_t n = 0;
        for (size_t i = 0; i < TRANSFER_UNDER_WAY; i++)
                n += r->donor->numbers[i] > r->own_seen;
        return n;
}

void donor_pump(struct repl *r) {
        if (!r->donor || r->busy || !repl_applies(r))
                return;
        for (struct transfer **p = &r->donor->list; *p;) {
                struct transfer *t = *p;
                if (r->quiet - t->last_ask > 4 * repl_ack_timeout(r) || r->members[t->member].synced) {
                        *p = t->next;
                        transfer_free(t);
                } else
                        p = &t->next;
        }
        if (!r->donor->list) {
                donor_stop(r);
                return;
        }
        for (struct transfer *t = r->donor->list; t; t = t->next) {
                size_t most = r->recent_n > 0 ? 1 : TRANSFER_UNDER_WAY; /* operations come first */
                while (give_under_way(r) < most && give_message(r, t))
                        for (size_t i = 0; i < TRANSFER_UNDER_WAY; i++)
                                if (r->donor->numbers[i] <= r->own_seen) {
                                        r->donor->numbers[i] = r->own_number;
                                        break;
                                }
        }
}
