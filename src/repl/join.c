/* join.c: from the chosen state to an active epoch: catching up, the promise, JOINED from a quorum, the adopted record. And what is
 * persisted: one thing at a time. */
#include "machine.h"

#include <inttypes.h>

/* --- persisting */
void join_persist(struct repl *r) {
        if (r->persisting)
                return;
        bool promise = r->want_promised > r->persist_promised, adopt = r->want_adopted != 0;
        if (!promise && !adopt && !r->want_id && !r->probing)
                return;
        struct repl_effect *e = repl_effect(r, EFFECT_PERSIST);
        if (promise || r->probing)
                e->persist.promised = MAX_OF(r->want_promised, r->persist_promised);
        e->persist.adopted = r->want_adopted;
        if (r->want_id) {
                uint8_t *id = repl_scrap(r, sizeof(r->config.cluster_id));
                memcpy(id, r->config.cluster_id, sizeof(r->config.cluster_id));
                e->persist.cluster_id = id;
        }
        r->asked_promised = e->persist.promised;
        r->asked_adopted = r->want_adopted;
        r->want_adopted = 0;
        r->want_id = false;
        r->persisting = true;
        r->persist_seq = r->state->pos.seq;
        r->persist_began = r->now;
}

void join_persisted(struct repl *r, const struct repl_event *ev) {
        (void)ev; /* one is under way at a time: we know what was asked */
        PRE(r->persisting);
        r->persisting = false;
        if (r->replacing) {
                r->replacing = false;
                catchup_replaced(r);
        } else {
                r->persist_promised = MAX_OF(r->persist_promised, r->asked_promised);
                if (r->asked_adopted) {
                        r->adopted = r->asked_adopted;
                        if (repl_variant(VARIANT_NO_PROMISE))
                                r->promised = MAX_OF(r->promised, r->adopted); /* a STATE that says less is refused as damaged */
                        r->forgetful = false;                                  /* what we stand on now is a quorum's, and on our medium */
                        stable_flushed(r, r->persist_seq);
                }
                if (r->probing) {
                        r->probing = false;
                        expel_probed(r, r->now - r->persist_began);
                }
        }
        catchup_step(r);
        join_persist(r);
}

/* --- choosing */
static void log_aside(struct repl *r, size_t i, const struct choice *c) {
        const struct member *m = &r->members[i];
        if (c->aside[i] == ASIDE_FOREIGN)
                repl_log(r, 4, "node %u belongs to another cluster: set aside", m->id.node);
        if (c->aside[i] == ASIDE_VERSION)
                repl_log(r, 4, "node %u speaks protocol versions %u to %u, this view speaks %u: set aside", m->id.node, m->state.lowest,
                         m->state.highest, c->version);
}

static bool holds_best(const struct repl *r) {
        const struct wire_state *mine = &r->members[r->self].state;
        return mine->adopted == r->best.adopted && mine->seq == r->best.seq && hash128_equal(mine->digest, r->best.digest);
}

static void chosen_ready(struct repl *r) {
        r->chosen = true;
        r->best = r->members[r->choice.best].state;
        r->hold_since = 0;
        if (r->choice.forgiven)
                repl_log(r, 4,
                         "epoch %" PRIu64
                         " begins although members that may have forgotten acknowledged operations were needed to choose its state",
                         r->choice.epoch);
        if (holds_best(r) || repl_variant(VARIANT_ADOPT_BEFORE_CAUGHT_UP)) {
                join_ready(r);
                return;
        }
        repl_move_text(r, PHASE_CATCHUP, "catching up with node %u", r->members[r->choice.best].id.node);
        catchup_begin(r);
}

void join_chosen(struct repl *r) {
        choose(r->members, r->n_members, r->forgiven, &r->choice);
        const struct choice *c = &r->choice;
        for (size_t i = 0; i < r->n_members; i++) {
                r->members[i].aside = c->aside[i];
                log_aside(r, i, c);
        }
        const struct quorum_notice *q = view_notice(r);
        if (repl_me(r)->aside == ASIDE_FOREIGN)
                repl_move(r, PHASE_MINORITY, "this node belongs to another cluster than the others here");
        else if (repl_me(r)->aside == ASIDE_VERSION)
                repl_move_text(r, PHASE_MINORITY, "protocol version %u is spoken here, this node speaks %u to %u", c->version,
                               WIRE_VERSION_MIN, WIRE_VERSION_MAX);
        else if (c->kind == CHOICE_MINORITY)
                repl_move(r, PHASE_MINORITY, c->why);
        else if (!q || !q->quorate) /* lost since our STATE was sent */
                repl_move(r, PHASE_MINORITY, "quorum was lost");
        else if (c->kind == CHOICE_HOLD) {
                if (!r->hold_since)
                        r->hold_since = r->now;
                repl_move(r, PHASE_HOLD, c->why);
        } else
                chosen_ready(r);
}

void join_forgive(struct repl *r) {
        if (repl_phase(r) != PHASE_HOLD || r->forgive_told)
                return;
        r->forgive_told = true;
        send_message(r, WIRE_FORGIVE, NULL, 0, NULL, 0);
}

/* --- joining */
static void promise(struct repl *r) {
        static const uint8_t none[16];
        if (memcmp(r->config.cluster_id, none, sizeof(none)) == 0) {
                memcpy(r->config.cluster_id, r->choice.cluster_id, sizeof(none));
                r->want_id = true;
        }
        if (!repl_variant(VARIANT_NO_PROMISE)) {
                r->promised = MAX_OF(r->promised, r->choice.epoch);
                if (!repl_variant(VARIANT_PROMISE_NOT_PERSISTED))
                        r->want_promised = MAX_OF(r->want_promised, r->choice.epoch);
        }
        join_persist(r);
}

/* At a cluster's beginning the founder promises first: see is_beginning. */
static bool may_promise(const struct repl *r) {
        return !r->choice.beginning || r->choice.best == r->self || r->members[r->choice.best].synced;
}

void join_ready(struct repl *r) {
        r->join_seq = r->state->pos.seq;
        repl_move(r, PHASE_PROMISE, "joining");
        if (may_promise(r))
                promise(r);
}

static void send_joined(struct repl *r) {
        struct wire_joined j = {.epoch = r->choice.epoch, .seq = r->state->pos.seq, .digest = state_digest(r->state)};
        if (repl_variant(VARIANT_ADOPT_BEFORE_CAUGHT_UP) && !r->epoch_active) {
                j.seq = r->best.seq;
                j.digest = r->best.digest;
        }
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        wire_joined_encode(&j, &e);
        PRE(!e.err);
        repl_move(r, PHASE_JOINING, "joining");
        send_message(r, WIRE_JOINED, e.data, e.len, NULL, 0);
}

void join_step(struct repl *r) {
        if (repl_phase(r) == PHASE_PROMISE) {
                bool careless = repl_variant(VARIANT_PROMISE_NOT_PERSISTED) || repl_variant(VARIANT_NO_PROMISE);
                bool promised = r->persist_promised >= r->choice.epoch || (careless && may_promise(r));
                bool clear = r->invalidated >= r->join_seq || repl_variant(VARIANT_JOINED_EARLY);
                if (promised && !r->persisting && r->written >= r->join_seq && clear)
                        send_joined(r);
        }
        if (repl_phase(r) == PHASE_ADOPTING && !r->persisting && r->adopted == r->choice.epoch &&
            (r->invalidated >= r->join_seq || repl_variant(VARIANT_JOINED_EARLY))) {
                repl_move(r, PHASE_ACTIVE, "");
                repl_log(r, 6, "epoch %" PRIu64 " is active at %" PRIu64, r->choice.epoch, r->state->pos.seq);
                stable_begin(r);
                request_adopted(r);
                stable_update(r);
        }
}

static bool is_synced(const struct member *m) {
        return m->synced;
}

bool join_quorum(const struct repl *r, bool (*counts)(const struct member *m)) {
        return choice_votes(&r->choice, r->members, r->n_members, counts) >= r->choice.needed;
}

static void adopt(struct repl *r) {
        r->join_seq = r->state->pos.seq; /* what came while we joined may be acknowledged without us: no cache may hide it from now on */
        repl_move(r, PHASE_ADOPTING, "adopting the epoch");
        r->want_adopted = r->choice.epoch;
        join_persist(r);
}

void join_joined(struct repl *r, size_t from, const void *body, size_t len) {
        struct wire_joined j;
        struct member *m = &r->members[from];
        if (wire_joined_decode(body, len, &j) < 0 || j.epoch != r->choice.epoch || m->synced)
                return;
        if (!r->epoch_active && (j.seq != r->best.seq || !hash128_equal(j.digest, r->best.digest))) {
                repl_log(r, 3, "node %u joined epoch %" PRIu64 " with another state than the chosen one: not counted", m->id.node, j.epoch);
                return;
        }
        m->synced = true;
        expel_progress(r, from);
        if (r->choice.beginning && from == r->choice.best && repl_phase(r) == PHASE_PROMISE && from != r->self)
                promise(r);
        if (!r->epoch_active && join_quorum(r, is_synced)) {
                r->epoch_active = true;
                r->delivered_seq = r->best.seq;
                if (repl_me(r)->synced)
                        adopt(r);
        } else if (r->epoch_active) {
                if (from == r->self)
                        adopt(r);
                else if (repl_phase(r) == PHASE_ACTIVE)
                        r->ack_due = true; /* the newcomer has not counted what we said before */
        }
}
