/* expel.c: who owes what, and for how long without progress; the way out of the round and back in. Deadlines run on the quiet clock, which
 * stands still while the transport refuses our messages. */
#include "machine.h"

#include <inttypes.h>

#define READMIT_MAX_MS    60000u
#define READMIT_STEADY_MS 600000u /* in S for so long: the back-off falls */

void expel_progress(struct repl *r, size_t from) {
        r->members[from].progress = r->quiet;
}

/* What member i owes, as we see it. */
static bool owes(const struct repl *r, size_t i) {
        const struct member *m = &r->members[i];
        if (i == r->self || !m->in_round || m->aside != ASIDE_NO)
                return false;
        switch (repl_phase(r)) {
        case PHASE_COLLECT:
                return !m->has_state;
        case PHASE_CATCHUP:
        case PHASE_PROMISE:
        case PHASE_JOINING:
                /* JOINED, from those who need no transfer at once; from those who do as long as they ask for nothing. */
                return (!m->synced && !r->epoch_active) || catchup_owes(r, i);
        case PHASE_ADOPTING:
        case PHASE_ACTIVE:
                if (m->synced)
                        return m->acked < r->members[r->self].acked || (r->n_barriers > 0 && m->medium < r->barriers[0].seq);
                return false; /* a late newcomer stalls nobody */
        default:
                return false;
        }
}

static bool overdue(const struct repl *r, size_t i, uint64_t patience) {
        const struct member *m = &r->members[i];
        if (m->owes_since == 0)
                return false;
        uint64_t since = MAX_OF(m->owes_since - 1, m->progress);
        return r->quiet - MIN_OF(since, r->quiet) >= patience;
}

void expel_check(struct repl *r) {
        enum phase p = repl_phase(r);
        /* A STATE is asked for twice, in two rounds: both together, and a check late each, are not to take longer than one acknowledgement
         * may. */
        uint64_t patience = p == PHASE_COLLECT ? MAX_OF(repl_ack_timeout(r) / 3, (uint64_t)1) : repl_ack_timeout(r), late = 0;
        if (p == PHASE_HOLD && r->config.forgetful_wait_ms != UINT64_MAX && r->now - r->hold_since >= r->config.forgetful_wait_ms)
                join_forgive(r);
        if (p == PHASE_EXPELLED) {
                expel_out(r);
                return;
        }
        size_t rank = 0;
        for (size_t i = 0; i < r->n_members; i++) {
                struct member *m = &r->members[i];
                if (!owes(r, i))
                        m->owes_since = 0;
                else if (m->owes_since == 0)
                        m->owes_since = r->quiet + 1;
                if (overdue(r, i, patience))
                        late |= UINT64_C(1) << i;
                else if (i < r->self && m->in_round && m->aside == ASIDE_NO)
                        rank++; /* it is for those to speak first */
        }
        if (late == 0 || r->busy)
                return;
        if (p == PHASE_COLLECT && !r->state_retold) { /* its STATE may have been lost to us alone: begin anew before anybody is expelled */
                r->state_retold = true;
                view_ask_round(r, ROUND_OVERDUE);
                return;
        }
        for (size_t i = 0; i < r->n_members; i++)
                if (late >> i & 1 && !overdue(r, i, patience * (1 + rank)))
                        late &= ~(UINT64_C(1) << i);
        if (late == 0 || r->round_told)
                return;
        r->round_told = true;
        for (size_t i = 0; i < r->n_members; i++)
                if (late >> i & 1)
                        repl_log(r, 4, "node %u has made no progress for %" PRIu64 " ms: expelling it", r->members[i].id.node,
                                 patience * (1 + rank));
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, 8);
        enc_u64(&e, late);
        PRE(!e.err);
        send_message(r, WIRE_EXPEL, e.data, e.len, NULL, 0);
}

/* The rest goes on in a round of its own, or finds there that it has no quorum. */
void expel_delivered(struct repl *r, size_t from, const void *body, size_t len) {
        struct dec d;
        dec_init(&d, body, len);
        uint64_t out = dec_u64(&d), in = view_round_bits(r);
        if (dec_finish(&d) < 0 || out >> from & 1 || (out & in) == 0)
                return;
        if (repl_variant(VARIANT_EXPEL_WITHOUT_ROUND) && r->epoch_active) {
                for (size_t i = 0; i < r->n_members; i++)
                        if (out >> i & 1)
                                r->members[i].in_round = r->members[i].synced = false;
                if (out >> r->self & 1)
                        repl_move(r, PHASE_EXPELLED, "expelled");
                else
                        stable_update(r);
                return;
        }
        view_round(r, in & ~out, "a new round without members that made no progress");
}

void expel_readmit(struct repl *r, size_t from) {
        view_round(r, view_round_bits(r) | UINT64_C(1) << from, "a new round with a member that came back");
}

/* --- the expelled member's side: back only when a test write shows that its disk keeps up, and not before the back-off is over */
void expel_out(struct repl *r) {
        if (r->readmit_at == 0 || r->readmit_at + READMIT_MAX_MS < r->now) {
                if (r->active_since && r->now - r->active_since > READMIT_STEADY_MS)
                        r->readmit_k = 0;
                uint64_t wait = MIN_OF(UINT64_C(1000) << MIN_OF(r->readmit_k, 6u), (uint64_t)READMIT_MAX_MS);
                r->readmit_k++;
                r->readmit_at = r->now + wait;
        }
        if (r->now < r->readmit_at || r->busy || r->probing || !view_notice(r))
                return;
        r->probing = true;
        join_persist(r);
}

void expel_probed(struct repl *r, uint64_t took_ms) {
        if (repl_phase(r) != PHASE_EXPELLED)
                return;
        r->readmit_at = 0;
        if (took_ms * 4 < repl_ack_timeout(r))
                send_message(r, WIRE_READMIT, NULL, 0, NULL, 0);
        expel_out(r); /* should it be lost, or refused, the next one follows */
}
