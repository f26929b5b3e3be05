/* catchup.c: a node that does not hold the best state: whom it asks, by log or by difference, and how it takes the new state over in one
 * step. Until then its state, on disk and in STATE, is its old one. */
#include "catchup.h"

#include <inttypes.h>

#define PROGRESS_MS         5000u  /* between two lines about one transfer */
#define REPLACE_PATIENCE_MS 60000u /* for the store to take a new state over, before this member counts as overdue */
#define CONFLICT_SPAN       4096u  /* operations of our own log that are looked at after a restart */

static void built_drop(struct catchup *c) {
        if (c->has_built)
                state_done(&c->built);
        c->has_built = false;
        order_queue_drop(&c->conflicts);
        c->conflict_tag = 0;
}

void catchup_stop(struct repl *r, bool keep_staged) {
        struct catchup *c = r->catchup;
        if (!c)
                return;
        difference_drop(c, !keep_staged);
        built_drop(c);
        free(c->begin_bytes);
        c->begin_bytes = NULL;
        c->transfer = 0;
        if (keep_staged)
                return;
        staged_done(&c->staged);
        free(c->wants);
        free(c->conflicts.items);
        free(c);
        r->catchup = NULL;
}

/* --- asking */
void catchup_send(struct repl *r, const struct wish *wishes, size_t n) {
        struct catchup *c = r->catchup;
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        struct transfer_head h = {.target = r->members[c->donor].id, .transfer = c->transfer};
        transfer_head_encode(&h, &e);
        for (size_t i = 0; i < n; i++)
                wish_encode(&wishes[i], &e);
        PRE(!e.err);
        send_message(r, WIRE_ASK, e.data, e.len, NULL, 0);
}

/* Before the epoch is active only the holder of the best state is sure to have it; then any member of S: another one at each attempt. */
static size_t pick_donor(const struct repl *r, unsigned attempt) {
        size_t able[REPL_MEMBERS_MAX], n = 0;
        for (size_t i = 0; i < r->n_members; i++)
                if (i != r->self && r->members[i].synced && r->members[i].in_round)
                        able[n++] = i;
        return n == 0 || (!r->epoch_active && attempt % 2 == 0) ? r->choice.best : able[(r->self + attempt) % n];
}

static void ask_begin(struct repl *r) {
        struct catchup *c = r->catchup;
        difference_drop(c, false);
        built_drop(c);
        free(c->begin_bytes);
        c->begin_bytes = NULL;
        c->stage = CATCHUP_BEGIN;
        c->donor = pick_donor(r, c->attempt);
        c->transfer = r->random + ++r->next_tag;
        c->last_piece = r->quiet;
        struct wish w = {.kind = OBJECT_BEGIN, .id = r->state->pos.seq, .offset = c->by_difference, .history = r->state->history};
        catchup_send(r, &w, 1);
}

/* The machine that catches up in place: what it had is gone from the first moment on. */
static void begin_in_place(struct repl *r) {
        r->old = *r->state;
        r->has_old = true;
        state_init(r->state);
        stable_rebase(r, false);
        struct repl_effect *e = repl_effect(r, EFFECT_REPLACE);
        e->replace.everything = true;
        e->replace.old = &r->old;
        e->replace.adopted = 0;
        r->persisting = r->replacing = true;
        r->adopted = 0;
}

void catchup_begin(struct repl *r) {
        if (!r->catchup)
                r->catchup = NEW(struct catchup);
        r->catchup->attempt = r->catchup->faults = 0;
        r->catchup->by_difference = false;
        if (repl_variant(VARIANT_IN_PLACE) && !r->persisting && !r->has_old)
                begin_in_place(r);
        if (repl_variant(VARIANT_ADOPTED_FIRST)) {
                r->promised = MAX_OF(r->promised, r->choice.epoch);
                r->want_promised = r->want_adopted = r->choice.epoch;
                join_persist(r);
        }
        ask_begin(r);
}

void catchup_restart(struct repl *r, const char *why) {
        struct catchup *c = r->catchup;
        repl_log(r, 4, "catching up with node %u: %s", r->members[c->donor].id.node, why);
        c->by_difference = true;
        c->attempt++;
        if (++c->faults > 3) { /* what is kept may be what does not fit */
                difference_drop(c, true);
                staged_done(&c->staged);
        }
        ask_begin(r);
}

/* --- where we are now, seen from where we have to be */
static void reached(struct repl *r) {
        struct catchup *c = r->catchup;
        uint64_t at = r->state->pos.seq, end = r->epoch_active ? r->delivered_seq : r->best.seq;
        const struct op_queue *late = &r->late;
        if (at == end && !r->epoch_active && !hash128_equal(state_digest(r->state), r->best.digest)) {
                catchup_restart(r, "its state is not the one that was chosen");
                return;
        }
        if (at >= end) {
                if (c->begin.adopted > r->adopted)
                        r->want_adopted = c->begin.adopted; /* what we hold now is of that epoch */
                r->promised = MAX_OF(r->promised, c->begin.adopted);
                order_queue_drop(&r->late);
                catchup_stop(r, false);
                join_ready(r);
        } else if (late->at < late->n && late->items[late->at].seq <= at + 1) {
                r->work_late = true;
        } else { /* what lies between has fallen out of the buffer */
                c->attempt++;
                c->by_difference = false;
                ask_begin(r);
        }
}

void catchup_replayed(struct repl *r) {
        struct catchup *c = r->catchup;
        if (!c || c->stage != CATCHUP_LOG) { /* the late buffer, behind a state that was taken over */
                reached(r);
                return;
        }
        if (r->state->pos.seq == c->begin.pos.seq && !hash128_equal(state_digest(r->state), c->begin.digest)) {
                catchup_restart(r, "the operations of its log lead to another state");
        } else if (r->state->pos.seq >= c->begin.pos.seq) {
                reached(r);
        } else if (c->log_next > r->state->pos.seq) {
                struct wish w = {.kind = OBJECT_LOG, .id = r->state->pos.seq + 1};
                c->log_next = 0;
                catchup_send(r, &w, 1);
        }
}

/* --- by log */
static void log_operation(struct repl *r, struct wanted *x) {
        struct catchup *c = r->catchup;
        struct dec d;
        struct wire_op op;
        dec_init(&d, x->data, x->have);
        uint64_t epoch = dec_u64(&d);
        bool good = wire_op_decode(&d, &op) && dec_finish(&d) == 0;
        uint64_t next = r->replay.at < r->replay.n ? r->replay.items[r->replay.n - 1].seq + 1 : r->state->pos.seq + 1;
        uint64_t before = r->replay.at < r->replay.n ? r->replay.items[r->replay.n - 1].epoch : r->state->pos.epoch;
        if (!good || x->w.id != next || epoch < before) {
                catchup_restart(r, "it sent operations that do not follow");
                return;
        }
        if (x->w.id > c->begin.pos.seq && !r->epoch_active)
                return; /* nobody goes beyond the chosen state */
        order_queue(&r->replay, next, epoch, opbuf_new(op.head, op.head_len, op.payload, op.payload_len));
        r->work_replay = true;
}

static void wanted_free(struct wanted *x) {
        free(x->data);
        *x = (struct wanted){0};
}

/* One operation arrives after the other: a single place for the one under way is enough. */
static void log_piece(struct repl *r, const struct piece *p) {
        struct catchup *c = r->catchup;
        struct wanted *x = &c->out[0];
        if (p->kind == OBJECT_LOG_END) {
                c->log_next = p->id;
                if (p->id <= r->state->pos.seq + 1 && !r->work_replay)
                        catchup_restart(r, "its log does not reach back so far");
                else if (!r->work_replay)
                        catchup_replayed(r);
                return;
        }
        if (p->offset == 0) {
                wanted_free(x);
                x->w = (struct want){.kind = OBJECT_LOG, .id = p->id};
                x->total = p->total;
        }
        if (p->id != x->w.id || p->offset != x->have || p->total != x->total || p->total > WIRE_OP_MAX + 8) {
                catchup_restart(r, "it sent pieces that do not follow");
                return;
        }
        x->data = xrealloc(x->data, x->have + p->len + 1);
        memcpy(x->data + x->have, p->data, p->len);
        x->have += p->len;
        if (x->have == x->total) {
                struct wanted whole = *x;
                *x = (struct wanted){0};
                log_operation(r, &whole);
                free(whole.data);
        }
}

/* --- pieces */
static void begin_piece(struct repl *r, const struct piece *p) {
        struct catchup *c = r->catchup;
        if (c->stage != CATCHUP_BEGIN)
                return;
        if (p->offset != 0 || p->len != p->total || transfer_begin_decode(p->data, p->len, &c->begin) < 0) {
                catchup_restart(r, "it did not say how");
                return;
        }
        free(c->begin_bytes);
        c->begin_bytes = xmalloc(p->len);
        memcpy(c->begin_bytes, p->data, p->len);
        c->begin_len = p->len;
        if (c->begin.mode == TRANSFER_BY_LOG) {
                c->stage = CATCHUP_LOG;
                repl_log(r, 6, "catching up with node %u by its log, from %" PRIu64 " to %" PRIu64, r->members[c->donor].id.node,
                         r->state->pos.seq, c->begin.pos.seq);
                c->log_next = UINT64_MAX;
                catchup_replayed(r);
        } else {
                c->stage = CATCHUP_DIFFERENCE;
                difference_begin(r);
        }
}

void catchup_give(struct repl *r, size_t from, const void *body, size_t len) {
        struct catchup *c = r->catchup;
        struct transfer_head h;
        struct dec d;
        struct piece p;
        dec_init(&d, body, len);
        transfer_head_decode(&d, &h);
        expel_progress(r, from);
        const struct repl_member *me = &repl_me(r)->id;
        if (!c || d.err || repl_phase(r) != PHASE_CATCHUP || from != c->donor || h.target.node != me->node || h.target.pid != me->pid)
                return;
        while (h.transfer == c->transfer && repl_phase(r) == PHASE_CATCHUP && r->catchup && piece_decode(&d, &p)) {
                c->last_piece = r->quiet;
                c->received += p.len;
                if (p.kind == OBJECT_BEGIN)
                        begin_piece(r, &p);
                else if (c->stage == CATCHUP_LOG && (p.kind == OBJECT_LOG || p.kind == OBJECT_LOG_END))
                        log_piece(r, &p);
                else if (c->stage == CATCHUP_DIFFERENCE)
                        difference_piece(r, &p);
                c = r->catchup;
                if (!c)
                        return;
        }
        if (c->stage == CATCHUP_DIFFERENCE && h.transfer == c->transfer)
                difference_pump(r);
}

bool catchup_owes(const struct repl *r, size_t member) {
        const struct catchup *c = r->catchup;
        return c && repl_phase(r) == PHASE_CATCHUP && c->stage <= CATCHUP_DIFFERENCE && c->donor == member;
}

void catchup_progress(const struct repl *r, struct repl_progress *ret) {
        const struct catchup *c = r->catchup;
        if (!c || repl_phase(r) != PHASE_CATCHUP)
                return;
        ret->donor = r->members[c->donor].id.node;
        ret->received = c->received;
        ret->to_seq = c->stage > CATCHUP_BEGIN ? c->begin.pos.seq : 0;
        ret->by_log = c->stage == CATCHUP_LOG;
        ret->known = c->n_out + (c->n_wants - c->wants_at);
        ret->writing = c->stage == CATCHUP_REPLACING;
}

static void tell_progress(struct repl *r) {
        struct catchup *c = r->catchup;
        if (c->told_at && r->now - c->told_at < PROGRESS_MS)
                return;
        if (c->told_at)
                repl_log(r, 6, "catching up with node %u: %" PRIu64 " KiB received%s", r->members[c->donor].id.node, c->received / 1024,
                         c->stage == CATCHUP_REPLACING ? ", writing it" : "");
        c->told_at = r->now;
}

/* Half the patience without a piece: another donor, if there is one, before anybody is called overdue. */
void catchup_check(struct repl *r) {
        struct catchup *c = r->catchup;
        if (!c || repl_phase(r) != PHASE_CATCHUP || r->busy)
                return;
        tell_progress(r);
        if (c->stage > CATCHUP_DIFFERENCE) { /* nothing to ask for, but not idle: a whole state is written */
                if (r->now - r->persist_began < REPLACE_PATIENCE_MS || !r->persisting)
                        catchup_send(r, NULL, 0);
                return;
        }
        if (r->quiet - c->last_piece < repl_ack_timeout(r) / 2)
                return;
        c->attempt++;
        ask_begin(r);
}

/* --- taking over */
static void replace(struct repl *r) {
        struct catchup *c = r->catchup;
        conflict_replaced(r, &c->built);
        for (size_t i = c->conflicts.at; i < c->conflicts.n; i++)
                (void)conflict_one(r, &c->built, c->conflicts.items[i].op,
                                   (struct position){c->conflicts.items[i].epoch, c->conflicts.items[i].seq});
        order_queue_drop(&c->conflicts);
        PRE(!r->has_old);
        r->old = *r->state;
        r->has_old = true;
        *r->state = c->built;
        c->has_built = false;
        stable_rebase(r, false);
        r->promised = MAX_OF(r->promised, c->begin.adopted);
        struct repl_effect *e = repl_effect(r, EFFECT_REPLACE);
        e->replace.everything = true;
        e->replace.old = &r->old;
        e->replace.adopted = c->begin.adopted;
        r->replaced_adopted = c->begin.adopted;
        r->persist_seq = r->state->pos.seq;
        r->persisting = r->replacing = true;
        r->persist_began = r->now;
        c->stage = CATCHUP_REPLACING;
}

void catchup_step(struct repl *r) {
        struct catchup *c = r->catchup;
        if (c && repl_phase(r) == PHASE_CATCHUP && c->stage == CATCHUP_BUILT && !r->persisting)
                replace(r);
}

void catchup_replaced(struct repl *r) {
        r->adopted = r->replaced_adopted;
        r->forgetful = false;
        stable_flushed(r, r->persist_seq);
        if (r->catchup && repl_phase(r) == PHASE_CATCHUP && r->catchup->stage == CATCHUP_REPLACING)
                reached(r);
}

/* After a restart what we had applied and what was not stable lies in our log alone: the operations of our last adopted epoch. How far back
 * the log reaches is not known: it is asked for more and for fewer until the most that it has is found. */
static void read_conflicts(struct repl *r) {
        struct catchup *c = r->catchup;
        uint64_t end = r->recent_first - 1;
        order_queue_drop(&c->conflicts);
        c->conflict_tag = ++r->next_tag;
        struct repl_effect *e = repl_effect(r, EFFECT_READ_LOG);
        e->read_log.tag = c->conflict_tag;
        e->read_log.from_seq = end - c->conflict_span + 1;
        e->read_log.to_seq = end;
}

static void conflicts_read(struct repl *r) {
        r->catchup->conflict_tag = 0;
        r->catchup->stage = CATCHUP_BUILT;
        catchup_step(r);
}

bool catchup_reads(const struct repl *r, uint64_t tag) {
        return r->catchup && r->catchup->conflict_tag == tag && tag != 0;
}

void catchup_log_part(struct repl *r, const struct repl_event *ev) {
        struct catchup *c = r->catchup;
        if (!ev->log_part.end) {
                if (ev->log_part.pos.epoch >= r->adopted && c->conflicts.bytes < REPL_CONFLICT_BYTES)
                        order_queue(&c->conflicts, ev->log_part.pos.seq, ev->log_part.pos.epoch,
                                    opbuf_new(ev->log_part.head, ev->log_part.head_len, ev->log_part.payload, ev->log_part.payload_len));
                return;
        }
        if (ev->log_part.error == 0)
                c->conflict_good = c->conflict_span;
        else
                c->conflict_bad = c->conflict_span;
        if (c->conflict_bad == 0 || (c->conflict_span == c->conflict_good && c->conflict_good + 1 >= c->conflict_bad)) {
                conflicts_read(r); /* what came with this answer is all there is */
        } else if (c->conflict_bad == 1) {
                order_queue_drop(&c->conflicts);
                conflicts_read(r);
        } else {
                c->conflict_span = MAX_OF((c->conflict_good + c->conflict_bad) / 2, UINT64_C(1));
                read_conflicts(r);
        }
}

void catchup_built(struct repl *r) {
        struct catchup *c = r->catchup;
        c->stage = CATCHUP_CONFLICTS;
        c->conflict_good = c->conflict_bad = 0;
        c->conflict_span = r->stable + 1 >= r->recent_first ? 0 : MIN_OF((uint64_t)CONFLICT_SPAN, r->recent_first - 1);
        if (c->conflict_span == 0) /* what is stable cannot be lacking */
                conflicts_read(r);
        else
                read_conflicts(r);
}
