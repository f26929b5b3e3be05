/* view.c: views and their rounds, quorum notices, and the way in for messages: which of them belong to this round, in which order. */
#include "machine.h"

/* --- quorum notices, kept by ring: they come early, late, again with another verdict, or not at all */
static bool ring_equal(struct repl_ring a, struct repl_ring b) {
        return a.node == b.node && a.seq == b.seq;
}

const struct quorum_notice *view_notice(const struct repl *r) {
        const struct quorum_notice *found = NULL;
        if (repl_phase(r) == PHASE_OFFLINE)
                return NULL;
        for (size_t i = 0; i < REPL_RINGS_KEPT; i++) {
                const struct quorum_notice *q = &r->notices[i];
                bool fits = ring_equal(q->ring, r->ring) || (repl_variant(VARIANT_OTHER_RING) && q->ring.seq + 8 >= r->ring.seq) ||
                            repl_variant(VARIANT_NEWEST_QUORUM);
                if (q->known && fits && (!found || q->stamp > found->stamp))
                        found = q;
        }
        return found;
}

static struct quorum_notice *notice_slot(struct repl *r, struct repl_ring ring) {
        struct quorum_notice *oldest = NULL;
        for (size_t i = 0; i < REPL_RINGS_KEPT; i++) {
                struct quorum_notice *q = &r->notices[i];
                if (q->known && ring_equal(q->ring, ring))
                        return q;
                bool ours = q->known && repl_phase(r) != PHASE_OFFLINE && ring_equal(q->ring, r->ring);
                if (!ours && (!oldest || q->stamp < oldest->stamp))
                        oldest = q;
        }
        return oldest;
}

/* --- rounds */
uint64_t view_round_bits(const struct repl *r) {
        uint64_t bits = 0;
        for (size_t i = 0; i < r->n_members; i++)
                if (r->members[i].in_round)
                        bits |= UINT64_C(1) << i;
        return bits;
}

void view_ask_round(struct repl *r, unsigned why) {
        uint8_t body = (uint8_t)why;
        if (r->round_told || !repl_me(r)->in_round)
                return;
        r->round_told = true;
        send_message(r, WIRE_ROUND, &body, 1, NULL, 0);
}

static void send_state(struct repl *r) {
        const struct quorum_notice *q = view_notice(r);
        struct wire_state s = {
                .promised = r->promised,
                .adopted = r->adopted,
                .seq = r->state->pos.seq,
                .digest = state_digest(r->state),
                .votes = q->votes,
                .needed = q->needed,
                .extra = q->extra,
                .expected = q->expected,
                .flags = (uint8_t)((q->quorate ? STATE_QUORATE : 0) | (r->forgetful ? STATE_FORGETFUL : 0) | (q->weak ? STATE_WEAK : 0)),
                .members = view_round_bits(r),
        };
        memcpy(s.cluster_id, r->config.cluster_id, sizeof(s.cluster_id));
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        wire_state_encode(&s, &e);
        PRE(!e.err);
        send_message(r, WIRE_STATE, e.data, e.len, NULL, 0);
}

/* Everything that belongs to the round alone goes. */
static void round_reset(struct repl *r) {
        request_round_ended(r);
        for (size_t i = 0; i < r->n_members; i++) {
                struct member *m = &r->members[i];
                struct repl_member id = m->id;
                bool in_round = m->in_round, keep = repl_variant(VARIANT_MIXED_PARTS);
                if (!keep)
                        order_reset_part(m);
                *m = (struct member){.id = id,
                                     .in_round = in_round,
                                     .next_number = 1,
                                     .part = m->part,
                                     .part_total = m->part_total,
                                     .part_cap = m->part_cap};
        }
        r->own_number = r->own_seen = 0;
        r->round_told = r->round_unsure = false;
        r->chosen = r->epoch_active = r->forgiven = r->forgive_told = false;
        r->choice = (struct choice){0};
        r->delivered_seq = 0;
        r->ack_number = 0;
        r->ack_due = false;
        r->barrier_due = r->barrier_told = 0;
        r->flush_wanted = 0; /* asked for again where it is still wanted */
        r->want_adopted = 0;
        r->round_began = r->quiet;
        r->work_traffic = r->work_replay = r->work_late = false;
        order_queue_drop(&r->late);
        order_queue_drop(&r->replay);
        catchup_stop(r, true);
        donor_stop(r);
        stable_rebase(r, true);
}

/* Begins the round that r->round and in_round name. */
static void round_start(struct repl *r, const char *why) {
        round_reset(r);
        if (!repl_me(r)->in_round) {
                repl_move(r, PHASE_EXPELLED, "expelled: this node was too slow, or was stopped");
                expel_out(r);
                return;
        }
        if (!view_notice(r)) {
                repl_move(r, PHASE_WAITING, "waiting for the quorum verdict of this ring");
                return;
        }
        repl_move(r, PHASE_COLLECT, why);
        send_state(r);
}

void view_round(struct repl *r, uint64_t members, const char *why) {
        for (size_t i = 0; i < r->n_members; i++)
                r->members[i].in_round = members >> i & 1;
        r->round++;
        r->state_retold = r->state_retold && repl_phase(r) == PHASE_COLLECT;
        round_start(r, why);
}

/* --- events */
static bool same_members(const struct repl *r, const struct repl_event *ev) {
        if (ev->view.n != r->n_members || repl_phase(r) == PHASE_OFFLINE)
                return false;
        for (size_t i = 0; i < r->n_members; i++)
                if (ev->view.members[i].node != r->members[i].id.node || ev->view.members[i].pid != r->members[i].id.pid)
                        return false;
        return true;
}

static int member_cmp(const void *a, const void *b) {
        const struct member *x = a, *y = b;
        if (x->id.node != y->id.node)
                return x->id.node < y->id.node ? -1 : 1;
        return x->id.pid < y->id.pid ? -1 : x->id.pid > y->id.pid;
}

void view_begin(struct repl *r, const struct repl_event *ev) {
        if (repl_phase(r) == PHASE_LEFT)
                return;
        if (repl_variant(VARIANT_TOTEM_IGNORED) && same_members(r, ev))
                return;
        if (ev->view.n == 0 || ev->view.n > REPL_MEMBERS_MAX) {
                repl_log(r, 3, "a view of %zu members; at most %u can work together", ev->view.n, REPL_MEMBERS_MAX);
                view_closed(r);
                return;
        }
        request_round_ended(r); /* while the old names still hold */
        for (size_t i = 0; i < r->n_members; i++)
                order_reset_part(&r->members[i]);
        r->n_members = ev->view.n;
        struct repl_member ids[REPL_MEMBERS_MAX];
        for (size_t i = 0; i < r->n_members; i++)
                r->members[i] = (struct member){.id = ev->view.members[i], .in_round = true, .next_number = 1};
        qsort(r->members, r->n_members, sizeof(r->members[0]), member_cmp);
        r->self = r->n_members;
        for (size_t i = 0; i < r->n_members; i++) {
                ids[i] = r->members[i].id;
                if (ids[i].node == r->config.node)
                        r->self = i;
        }
        r->ring = ev->view.ring;
        r->members_hash = wire_members_hash(ids, r->n_members);
        r->instance++;
        r->round = 0;
        r->damaged = 0;
        r->state_retold = false;
        if (r->self == r->n_members) {
                r->n_members = r->self = 0;
                repl_log(r, 3, "a view without this node");
                view_closed(r);
                return;
        }
        if (repl_phase(r) == PHASE_OFFLINE)
                repl_move(r, PHASE_WAITING, "connected");
        round_start(r, "a view change is under way");
}

void view_quorum(struct repl *r, const struct repl_event *ev) {
        const struct quorum_notice *had = view_notice(r);
        bool was_known = had != NULL, was = had && had->quorate;
        struct quorum_notice *q = notice_slot(r, ev->quorum.ring);
        uint32_t needed = ev->quorum.quorum_votes ? ev->quorum.quorum_votes : ev->quorum.expected_votes / 2 + 1;
        if (ev->quorum.quorate && (repl_variant(VARIANT_OTHER_RING) || repl_variant(VARIANT_NEWEST_QUORUM)))
                needed = 1; /* the flag alone counts there */
        if (ev->quorum.quorate && ev->quorum.total_votes > 0 && ev->quorum.total_votes < needed)
                needed = ev->quorum.total_votes; /* votequorum's own rule (a tie-breaker) says that these are enough */
        *q = (struct quorum_notice){
                .ring = ev->quorum.ring,
                .known = true,
                .quorate = ev->quorum.quorate,
                .weak = ev->quorum.weak,
                .expected = ev->quorum.expected_votes,
                .needed = needed,
                .votes = ev->quorum.node_votes ? ev->quorum.node_votes : 1,
                .extra = ev->quorum.device_votes,
                .stamp = ++r->notice_stamp,
        };
        const struct quorum_notice *now = view_notice(r);
        if (!now || repl_phase(r) == PHASE_LEFT)
                return;
        if (!was_known && repl_phase(r) == PHASE_WAITING) { /* others' STATEs may be here already: they stay */
                r->round_began = r->quiet;
                repl_move(r, PHASE_COLLECT, "a view change is under way");
                send_state(r);
        } else if (was && !now->quorate) {
                enum phase p = repl_phase(r);
                if (p != PHASE_EXPELLED && p != PHASE_MINORITY && p != PHASE_WAITING && p != PHASE_COLLECT)
                        repl_move(r, PHASE_MINORITY, "quorum was lost");
        } else if (!was && now->quorate) {
                view_ask_round(r, ROUND_QUORUM);
        }
}

void view_closed(struct repl *r) {
        if (repl_phase(r) == PHASE_LEFT || repl_phase(r) == PHASE_OFFLINE)
                return;
        round_reset(r);
        for (size_t i = 0; i < r->n_members; i++)
                r->members[i].in_round = false;
        r->busy = false;
        repl_move(r, PHASE_OFFLINE, "not connected to the cluster");
}

/* --- messages */
static size_t member_index(const struct repl *r, struct repl_member id) {
        for (size_t i = 0; i < r->n_members; i++)
                if (r->members[i].id.node == id.node && r->members[i].id.pid == id.pid)
                        return i;
        return r->n_members;
}

/* A round that we have not heard of: its STATE says who is in it. We restart there as if we had been told. */
static void round_follow(struct repl *r, size_t from, const struct wire_header *h, const struct wire_state *s) {
        if (!(s->members >> from & 1))
                return; /* nobody begins a round that he is not in */
        for (size_t i = 0; i < r->n_members; i++)
                r->members[i].in_round = s->members >> i & 1;
        r->round = h->round;
        round_start(r, "following the others into their round");
}

/* A message of a later round that is no STATE: we have missed how it began. Ask for one that we can begin with the others. */
static void round_jump(struct repl *r, const struct wire_header *h) {
        for (size_t i = 0; i < r->n_members; i++)
                r->members[i].in_round = true;
        r->round = h->round;
        round_start(r, "missed the beginning of a round");
        r->round_unsure = true;
        view_ask_round(r, ROUND_BEHIND);
}

static void on_state(struct repl *r, size_t from, const struct wire_header *h, const struct wire_state *s) {
        struct member *m = &r->members[from];
        if (r->round_unsure && s->members != view_round_bits(r)) {
                round_follow(r, from, h, s);
                m = &r->members[from];
                m->heard = true;
                m->incarnation = h->incarnation;
                m->instance = h->instance;
                m->next_number = h->number + 1;
        }
        if (m->has_state || (repl_phase(r) != PHASE_COLLECT && repl_phase(r) != PHASE_WAITING))
                return;
        m->has_state = true;
        m->state = *s;
        m->state.lowest = h->lowest;
        m->state.highest = h->highest;
        expel_progress(r, from);
        for (size_t i = 0; i < r->n_members; i++)
                if (r->members[i].in_round && !r->members[i].has_state)
                        return;
        join_chosen(r);
}

/* Which messages of a member that is heard belong to this round; false: dropped. */
static bool sender_fits(struct repl *r, size_t from, const struct wire_header *h) {
        struct member *m = &r->members[from];
        if (!m->heard) {
                m->heard = true;
                m->incarnation = h->incarnation;
                m->instance = h->instance;
        } else if (m->incarnation != h->incarnation || m->instance != h->instance) {
                /* The process began its view anew (it left and came back with the same pid): what we have of it is from before. */
                bool newer = m->incarnation != h->incarnation || h->instance > m->instance;
                if (newer && !m->restart_told) {
                        m->restart_told = true;
                        view_ask_round(r, ROUND_RESTART);
                }
                return false;
        }
        if (h->number < m->next_number)
                return false;
        if (h->number > m->next_number && !m->gapped) {
                m->gapped = true;
                repl_log(r, 4, "messages %u to %u of node %u are missing: a new round", m->next_number, h->number - 1, m->id.node);
                view_ask_round(r, ROUND_GAP);
        }
        m->next_number = h->number + 1;
        return true;
}

static void deliver_here(struct repl *r, size_t from, const struct wire_header *h, const uint8_t *body, size_t len) {
        struct member *m = &r->members[from];
        bool moves =
                h->type == WIRE_ROUND || h->type == WIRE_EXPEL || h->type == WIRE_READMIT; /* everybody must follow these, gap or not */
        if (m->gapped && !moves)
                return;
        if (from == r->self)
                r->own_seen = h->number;
        if (m->in_round == (h->type == WIRE_READMIT))
                return;
        struct wire_state s;
        switch (h->type) {
        case WIRE_STATE:
                if (wire_state_decode(body, len, &s) == 0)
                        on_state(r, from, h, &s);
                break;
        case WIRE_ROUND:
                if (len == 1 && *body == ROUND_OVERDUE) /* for everybody the STATEs of the next round are the second ones */
                        r->state_retold = repl_phase(r) == PHASE_COLLECT;
                view_round(r, view_round_bits(r), "a new round");
                break;
        case WIRE_EXPEL:
                expel_delivered(r, from, body, len);
                break;
        case WIRE_READMIT:
                expel_readmit(r, from);
                break;
        case WIRE_FORGIVE:
                if (repl_phase(r) == PHASE_HOLD && m->aside == ASIDE_NO) {
                        r->forgiven = true;
                        join_chosen(r);
                }
                break;
        default:
                if (!r->chosen || m->aside != ASIDE_NO || repl_phase(r) == PHASE_MINORITY || repl_phase(r) == PHASE_EXPELLED)
                        break;
                switch (h->type) {
                case WIRE_JOINED:
                        join_joined(r, from, body, len);
                        break;
                case WIRE_TRAFFIC:
                        order_traffic(r, from, h, body, len);
                        break;
                case WIRE_PART:
                        order_part(r, from, h, body, len);
                        break;
                case WIRE_ASK:
                        donor_ask(r, from, body, len);
                        break;
                case WIRE_GIVE:
                        catchup_give(r, from, body, len);
                        break;
                default:
                        break;
                }
        }
}

static void deliver_strange(struct repl *r, size_t from, errint_t why, const struct wire_header *h) {
        if (r->damaged++ == 0)
                repl_log(r, 4,
                         why == -EPROTONOSUPPORT ? "node %u sent a message in protocol version %u, which is not spoken here"
                                                 : "node %u sent a damaged message",
                         r->members[from].id.node, h->version);
}

void view_deliver(struct repl *r, const struct repl_event *ev) {
        if (repl_phase(r) == PHASE_OFFLINE || repl_phase(r) == PHASE_LEFT)
                return;
        size_t from = member_index(r, ev->deliver.sender), len = 0;
        const uint8_t *body = NULL;
        struct wire_header h = {0};
        if (from == r->n_members)
                return;
        errint_t err = wire_decode(ev->deliver.data, ev->deliver.len, &h, &body, &len);
        if (err == -EPROTONOSUPPORT && h.type == WIRE_STATE)
                err = 0; /* its first bytes stay for ever: choosing sets it aside by name */
        if (err < 0) {
                deliver_strange(r, from, err, &h);
                return;
        }
        bool here = ring_equal(h.ring, r->ring) && h.members == r->members_hash;
        if (repl_variant(VARIANT_OLD_EPOCH) && (h.type == WIRE_TRAFFIC || h.type == WIRE_PART) && r->chosen &&
            (!here || h.round != r->round)) {
                h.type == WIRE_TRAFFIC ? order_traffic(r, from, &h, body, len) : order_part(r, from, &h, body, len);
                return;
        }
        bool earlier = from == r->self && (h.incarnation != r->config.incarnation || h.instance != r->instance);
        if (!here || h.round < r->round || earlier) {
                if (from == r->self && h.incarnation == r->config.incarnation)
                        request_returned(r, &h);
                return;
        }
        if (h.round > r->round) {
                struct wire_state s;
                if (h.type == WIRE_STATE && wire_state_decode(body, len, &s) == 0)
                        round_follow(r, from, &h, &s);
                else
                        round_jump(r, &h);
                if (h.round != r->round)
                        return;
        }
        if (repl_phase(r) == PHASE_WAITING && from == r->self)
                return; /* nothing of ours can name this round yet */
        if (sender_fits(r, from, &h))
                deliver_here(r, from, &h, body, len);
}
