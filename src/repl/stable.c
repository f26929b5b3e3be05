/* stable.c: what is applied, written, on the medium and clear of the kernel's caches here; what every member of S has acknowledged, with
 * the same digest; barriers. */
#include "machine.h"

#include <inttypes.h>

/* --- recent operations: after the stable position, in order */
static struct recent *recent_at(const struct repl *r, uint64_t seq) {
        PRE(seq >= r->recent_first && seq < r->recent_first + r->recent_n);
        return &r->recent[(r->recent_at + (seq - r->recent_first)) & (r->recent_cap - 1)];
}

static void recent_pop(struct repl *r) {
        struct recent *x = recent_at(r, r->recent_first);
        if (x->op)
                r->recent_bytes -= x->op->len;
        opbuf_unref(x->op);
        r->base_digest = x->digest;
        r->recent_at = (r->recent_at + 1) & (r->recent_cap - 1);
        r->recent_n--;
        r->recent_first++;
}

bool stable_digest_at(const struct repl *r, uint64_t seq, struct hash128 *ret) {
        if (seq + 1 < r->recent_first || seq >= r->recent_first + r->recent_n)
                return false;
        *ret = seq + 1 == r->recent_first ? r->base_digest : recent_at(r, seq)->digest;
        return true;
}

void stable_rebase(struct repl *r, bool same) {
        r->told_seq = r->told_medium = 0;
        if (same)
                return;
        while (r->recent_n > 0)
                recent_pop(r);
        uint64_t seq = r->state->pos.seq;
        r->recent_first = seq + 1;
        r->base_digest = r->state->tree ? state_digest(r->state) : (struct hash128){0, 0};
        r->written = r->invalidated = seq; /* it was loaded, or replaced as a whole */
        r->medium = 0;
        r->stable = 0; /* what was stable is not known any more; adopting settles it */
        r->flush_wanted = 0;
}

void stable_push(struct repl *r, struct opbuf *op, bool changed, struct hash128 digest) {
        if (r->recent_n == r->recent_cap) {
                size_t cap = r->recent_cap ? 2 * r->recent_cap : 64;
                struct recent *grown = xmalloc(cap * sizeof(*grown));
                for (size_t i = 0; i < r->recent_n; i++)
                        grown[i] = *recent_at(r, r->recent_first + i);
                free(r->recent);
                r->recent = grown;
                r->recent_at = 0;
                r->recent_cap = cap;
        }
        bool keep = r->recent_bytes + op->len <= REPL_CONFLICT_BYTES || r->recent_bytes == 0;
        r->recent[(r->recent_at + r->recent_n) & (r->recent_cap - 1)] =
                (struct recent){.digest = digest, .op = keep ? opbuf_ref(op) : NULL, .pos = r->state->pos, .changed = changed};
        r->recent_n++;
        if (keep)
                r->recent_bytes += op->len;
        if (!changed && r->invalidated + 1 == r->state->pos.seq)
                r->invalidated++;
}

/* --- acknowledgements. Ours: what is applied, as durable as the level says, and not served stale by the kernel. */
static void own_ack(struct repl *r) {
        struct member *me = repl_me(r);
        uint64_t seq = r->state->pos.seq;
        if (!repl_variant(VARIANT_ACK_BEFORE_LOG))
                seq = MIN_OF(seq, r->written);
        seq = MIN_OF(seq, r->invalidated);
        uint64_t medium = MIN_OF(r->medium, seq);
        if (seq < me->acked || r->n_members == 0)
                return;
        me->acked = seq;
        me->medium = MAX_OF(me->medium, medium);
        if (r->n_members > 1 && (me->acked > r->told_seq || me->medium > r->told_medium))
                r->ack_due = true;
}

/* Compares what a member claims with what we have; true: counted. */
static bool claim_settle(struct repl *r, struct member *m) {
        struct hash128 mine;
        if (!m->claim_open || m->claimed > r->state->pos.seq)
                return false;
        m->claim_open = false;
        bool counts = repl_variant(VARIANT_NO_DIGEST);
        if (!counts && stable_digest_at(r, m->claimed, &mine)) {
                counts = hash128_equal(mine, m->claimed_digest);
                if (!counts) {
                        repl_log(r, 3, "node %u has another state at %" PRIu64 ": a new round", m->id.node, m->claimed);
                        view_ask_round(r, ROUND_DIGEST);
                }
        }
        if (!counts)
                return false; /* also a position from before everything we remember: it says nothing new */
        m->acked = MAX_OF(m->acked, m->claimed);
        m->medium = MAX_OF(m->medium, MIN_OF(m->claimed_medium, m->claimed));
        return true;
}

void stable_ack(struct repl *r, size_t from, const struct wire_traffic *t) {
        struct member *m = &r->members[from];
        if (from == r->self)
                return;
        if (t->ack_seq > m->claimed || t->ack_medium > m->claimed_medium)
                expel_progress(r, from);
        m->claimed = t->ack_seq;
        m->claimed_medium = t->ack_medium;
        m->claimed_digest = t->ack_digest;
        m->claim_open = true;
        stable_update(r);
}

static uint64_t synced_min(const struct repl *r, bool medium) {
        uint64_t values[REPL_MEMBERS_MAX], min = UINT64_MAX;
        size_t n = 0;
        for (size_t i = 0; i < r->n_members; i++)
                if (r->members[i].synced) {
                        values[n] = medium ? r->members[i].medium : r->members[i].acked;
                        min = MIN_OF(min, values[n]);
                        n++;
                }
        if (repl_variant(VARIANT_MAJORITY) && !medium) {
                size_t enough = 0;
                uint64_t best = 0;
                for (size_t i = 0; i < n; i++) {
                        enough = 0;
                        for (size_t j = 0; j < n; j++)
                                enough += values[j] >= values[i];
                        if (2 * enough > n)
                                best = MAX_OF(best, values[i]);
                }
                return best;
        }
        return medium && repl_variant(VARIANT_FSYNC_ORIGIN) ? r->members[r->self].medium : n ? min : 0;
}

static void barriers_answer(struct repl *r) {
        uint64_t medium = synced_min(r, true);
        size_t kept = 0;
        for (size_t i = 0; i < r->n_barriers; i++) {
                if (r->barriers[i].seq > medium || r->barriers[i].seq > r->stable) {
                        r->barriers[kept++] = r->barriers[i];
                        continue;
                }
                struct repl_effect *e = repl_effect(r, EFFECT_REPLY);
                e->reply.token = r->barriers[i].token;
                e->reply.pos = r->state->pos;
        }
        r->n_barriers = kept;
}

void stable_update(struct repl *r) {
        if (repl_phase(r) != PHASE_ACTIVE)
                return;
        own_ack(r);
        for (size_t i = 0; i < r->n_members; i++)
                if (r->members[i].synced)
                        (void)claim_settle(r, &r->members[i]);
        if (repl_phase(r) != PHASE_ACTIVE)
                return;
        uint64_t reached = synced_min(r, false);
        if (reached > r->stable) {
                r->stable = reached;
                while (r->recent_n > 0 && r->recent_first <= reached)
                        recent_pop(r);
                request_stable(r);
        }
        if (r->n_barriers > 0)
                barriers_answer(r);
}

void stable_begin(struct repl *r) {
        r->told_seq = r->told_medium = 0;
        r->ack_due = r->n_members > 1;
        own_ack(r);
        for (size_t i = 0; i < r->n_barriers; i++) {
                stable_barrier(r, r->barriers[i].seq);
                if (r->n_members > 1)
                        r->barrier_due = MAX_OF(r->barrier_due, r->barriers[i].seq);
        }
}

/* --- the driver's news */
void stable_written(struct repl *r, uint64_t seq) {
        if (r->replacing)
                return;
        r->written = MAX_OF(r->written, MIN_OF(seq, r->state->pos.seq));
        stable_update(r);
}

void stable_flushed(struct repl *r, uint64_t seq) {
        if (r->replacing)
                return;
        r->medium = MAX_OF(r->medium, MIN_OF(seq, r->state->pos.seq));
        r->written = MAX_OF(r->written, r->medium);
        stable_update(r);
}

void stable_invalidated(struct repl *r, uint64_t seq) {
        if (r->replacing)
                return;
        r->invalidated = MAX_OF(r->invalidated, MIN_OF(seq, r->state->pos.seq));
        while (r->invalidated + 1 >= r->recent_first && r->invalidated + 1 < r->recent_first + r->recent_n &&
               !recent_at(r, r->invalidated + 1)->changed)
                r->invalidated++; /* operations without changes need no answer */
        stable_update(r);
}

/* --- barriers */
void stable_barrier(struct repl *r, uint64_t seq) {
        if (r->medium >= seq || r->flush_wanted >= seq)
                return;
        r->flush_wanted = seq;
        repl_effect(r, EFFECT_FLUSH)->flush.seq = seq;
}

void stable_request_barrier(struct repl *r, uint64_t token) {
        if (r->n_barriers == r->cap_barriers) {
                r->cap_barriers = r->cap_barriers ? 2 * r->cap_barriers : 8;
                r->barriers = xrealloc(r->barriers, r->cap_barriers * sizeof(*r->barriers));
        }
        uint64_t seq = r->state->pos.seq;
        r->barriers[r->n_barriers++] = (struct barrier){.token = token, .seq = seq, .since_ms = r->now};
        if (repl_phase(r) != PHASE_ACTIVE)
                return;
        stable_barrier(r, seq);
        if (r->n_members > 1 && synced_min(r, true) < seq)
                r->barrier_due = MAX_OF(r->barrier_due, seq);
        stable_update(r);
}

void stable_refuse_barriers(struct repl *r, int error) {
        for (size_t i = 0; i < r->n_barriers; i++) {
                struct repl_effect *e = repl_effect(r, EFFECT_REPLY);
                e->reply.token = r->barriers[i].token;
                e->reply.result.error = error;
                e->reply.pos = r->state->pos;
        }
        r->n_barriers = 0;
}
