/* machine.h (private to repl): the state of the machine, and what its parts call of each other.
 *
 *   repl.c      events in, effects out          choose.c   which state, which epoch: a pure function of the STATEs
 *   view.c      views, rounds, messages in      join.c     promise, JOINED, activation, adopting
 *   send.c      messages out                    order.c    operations in their order: parts, apply, the newcomer's buffer
 *   stable.c    acknowledgements, barriers      request.c  requests that wait
 *   expel.c     who owes what, back-off         conflict.c operations that a losing side had applied
 *   catchup.c   the newcomer's side of a transfer; difference.c what differs; staged.c content that has come
 *   donor.c     the donor's side                capture.c  a frozen position; transfer.c messages */
#pragma once

#include "base/table.h"
#include "variant.h"
#include "wire.h"

#include <string.h>

#define REPL_PIPELINE_SMALL 4u  /* messages under way; more requests travel together in the next */
#define REPL_PIPELINE_PARTS 16u /* pieces of a large operation under way */
#define REPL_RINGS_KEPT     8u        /* quorum notices of rings other than ours */
#define REPL_LATE_BUFFER    (8 * MIB) /* operations delivered to a newcomer that still catches up */
#define REPL_REQUESTS_MAX   65536u
#define REPL_CONFLICT_BYTES (64 * MIB) /* kept of operations that are not yet stable */
#define REPL_TIMER_CHECK    1u         /* what is owed; grace; forgetful wait; back-off */
#define REPL_WITHDRAWN_MS   300u       /* for an operation under way whose caller was interrupted */

/* --- the machine's states */
enum phase {
        PHASE_OFFLINE,  /* no view */
        PHASE_WAITING,  /* a view, but no quorum notice of its ring: read-only, silent */
        PHASE_COLLECT,  /* STATE sent, others' awaited */
        PHASE_MINORITY, /* no primary view can come of this round */
        PHASE_HOLD,     /* all are here, but too few that surely remember */
        PHASE_CATCHUP,  /* the best state is elsewhere */
        PHASE_PROMISE,  /* we hold it; the promise is on its way to the medium */
        PHASE_JOINING,  /* JOINED sent */
        PHASE_ADOPTING, /* in S of an active epoch; the adopted record is on its way to the medium */
        PHASE_ACTIVE,   /* primary */
        PHASE_EXPELLED, /* in the view, not in the round */
        PHASE_LEFT,     /* stopped, or the store failed: never again */
        PHASE_COUNT
};
extern const struct state_table repl_phases;

/* An operation as it travels: one piece of memory, shared by whoever needs it. */
struct opbuf {
        unsigned refs;
        size_t len; /* of bytes */
        size_t head_at, head_len, payload_at, payload_len;
        uint8_t bytes[];
};
struct opbuf *opbuf_new(const void *head, size_t head_len, const void *payload, size_t payload_len);
struct opbuf *opbuf_ref(struct opbuf *b);
void opbuf_unref(struct opbuf *b);
DEFINE_FREEP(opbuf_unref, struct opbuf)

/* --- requests of this node, in order of number */
enum fate {
        FATE_QUEUED,  /* surely in nobody's history: never sent, or it came back in a later round */
        FATE_SENT,    /* under way in this round */
        FATE_UNKNOWN, /* was under way when a round ended */
        FATE_APPLIED  /* in our history at `seq` */
};
struct request {
        struct request *next, *prev;
        uint64_t token, number;
        enum fate fate;
        uint64_t withdrawn_at; /* now, when its caller was interrupted; 0: was not */
        bool unsure;           /* absent when an epoch began, but until that epoch has lasted a history that has it may still win */
        struct opbuf *op;
        struct blob *source;                   /* of its payload; see op.h */
        size_t sent;                           /* bytes of it handed to the transport in this round */
        uint32_t instance, round, first, last; /* messages that carried it: for FATE_SENT and FATE_UNKNOWN */
        uint64_t seq;
        struct position pos;
        struct op_result result;
        uint64_t since_ms;
};
struct barrier {
        uint64_t token, seq, since_ms;
};

/* --- operations applied here and not yet stable; the first one kept is number recent_first */
struct recent {
        struct hash128 digest; /* of the state after it */
        struct opbuf *op;      /* for conflict records; NULL when the bound was reached */
        struct position pos;
        bool changed; /* the kernel's caches are concerned */
};

/* --- members of the view, sorted by (node, pid) */
enum aside { ASIDE_NO, ASIDE_FOREIGN, ASIDE_VERSION };
struct member {
        struct repl_member id;
        bool in_round, heard, has_state, gapped, synced, restart_told;
        enum aside aside;
        uint64_t incarnation; /* of its messages in this round */
        uint32_t instance;
        uint32_t next_number; /* of the message expected next */
        struct wire_state state;
        uint64_t acked, medium;           /* confirmed: the digest was ours */
        uint64_t claimed, claimed_medium; /* what its last ACK said */
        struct hash128 claimed_digest;
        bool claim_open;               /* not yet compared: we have not applied so far */
        uint64_t owes_since, progress; /* on the quiet clock; owes_since 0: owes nothing */
        struct opbuf *part;            /* an operation arriving in pieces */
        uint32_t part_total, part_cap; /* what it will have; what there is room for */
};

struct quorum_notice {
        struct repl_ring ring;
        bool known, quorate, weak;
        uint32_t expected, votes, needed, extra;
        uint64_t stamp;
};

/* What choose() finds: the same on every member, because the STATEs are. */
enum choice_kind { CHOICE_READY, CHOICE_MINORITY, CHOICE_HOLD };
struct choice {
        enum choice_kind kind;
        const char *why; /* not READY */
        enum aside aside[REPL_MEMBERS_MAX];
        uint8_t cluster_id[16];
        uint8_t version;
        size_t best;
        uint64_t epoch;
        uint32_t needed, extra; /* votes; extra: of a quorum device */
        bool weak, forgiven;    /* forgiven: who may have forgotten was counted */
        bool beginning;         /* of the cluster: the founder has promised nothing yet, so nobody has anything to forget */
};
void choose(const struct member *members, size_t n, bool forgive, struct choice *ret);
uint32_t choice_votes(const struct choice *c, const struct member *members, size_t n, bool (*counts)(const struct member *m));

/* --- memory of one step */
struct scrap {
        struct scrap *next;
        size_t used, cap;
        uint8_t bytes[];
};

struct late_op {
        uint64_t seq, epoch;
        struct opbuf *op;
};
struct op_queue { /* ascending sequences */
        struct late_op *items;
        size_t at, n, cap; /* items[at .. n) */
        uint64_t bytes;
};

struct catchup;
struct donor;

struct repl {
        struct repl_config config;
        struct state *state; /* the driver's */
        struct state_cell phase;
        const char *reason; /* why not primary */
        char reason_text[160];
        uint64_t now, quiet; /* quiet: ms that passed while the transport took messages */
        bool busy, stopping, forgetful;
        uint64_t random;

        /* the view and its round */
        struct repl_ring ring;
        uint64_t members_hash;
        struct member members[REPL_MEMBERS_MAX];
        size_t n_members, self;
        uint32_t instance, round;
        uint32_t own_number, own_seen; /* our messages in this round: sent, delivered to us */
        bool round_unsure;             /* we jumped here and do not know who is in it */
        bool round_told;               /* our ROUND is under way */
        uint64_t round_began;          /* on the quiet clock */
        bool state_retold;             /* an overdue STATE was answered with a ROUND once */
        struct quorum_notice notices[REPL_RINGS_KEPT];
        uint64_t notice_stamp;
        unsigned damaged; /* messages in this view that were none */

        /* the epoch of this round */
        struct choice choice;
        bool chosen, epoch_active, forgiven, forgive_told;
        uint64_t hold_since;    /* now, when HOLD began */
        struct wire_state best; /* the best state, as its holder told it */
        uint64_t delivered_seq; /* position of the last operation that was delivered in the active epoch */

        /* persisted, and on the way */
        uint64_t promised, adopted; /* promised counts what is on the way, too */
        uint64_t want_promised, want_adopted;
        bool want_id, persisting, replacing;
        uint64_t replaced_adopted;
        uint64_t persist_promised; /* on the medium */
        uint64_t asked_promised, asked_adopted, persist_seq, persist_began;
        uint64_t join_seq; /* what has to be written before JOINED, and clear of the caches before we count as a member */
        bool probing;      /* the persist is the test write of an expelled member */

        /* history */
        struct recent *recent;
        size_t recent_at, recent_n, recent_cap;
        uint64_t recent_first; /* sequence of recent[0]; base_digest is that of the position before */
        struct hash128 base_digest;
        uint64_t recent_bytes;
        uint64_t written, medium, invalidated, stable;
        uint64_t flush_wanted;

        /* our acknowledgements */
        uint64_t told_seq, told_medium;
        uint32_t ack_number; /* the message that carries the newest; 0: none under way */
        bool ack_due;
        uint64_t barrier_due, barrier_told;

        /* requests */
        struct request *first, *last;
        struct request *next_send, *next_apply; /* while active: the first one not wholly sent, and the first one not applied */
        size_t n_requests;
        uint64_t next_number, window_used;
        struct barrier *barriers;
        size_t n_barriers, cap_barriers;
        uint64_t withdrawn_at; /* of the first withdrawn request that waits; 0: none */
        uint64_t lost_at;      /* now, when the primary view ended; requests are refused after the grace */
        struct op_queue given_up; /* by number: answered EIO, their fate is not known before the next epoch is adopted */
        bool refusing;

        /* catching up */
        struct op_queue late;   /* delivered since the epoch began */
        struct op_queue replay; /* from the donor's log, to be applied now */
        uint64_t next_tag;
        struct catchup *catchup;
        struct donor *donor;

        /* expulsion */
        uint64_t readmit_at; /* now; 0: not wanted */
        unsigned readmit_k;
        uint64_t active_since;
        bool probe_good;

        /* the event under way */
        struct dec work; /* operations of a TRAFFIC message that are still to be applied */
        size_t work_member;
        bool work_traffic, work_replay, work_late;
        struct change_set changes;
        struct state old; /* what EFFECT_REPLACE replaced, until the next step */
        bool has_old;

        /* effects */
        struct repl_effect *effects;
        size_t n_effects, cap_effects;
        struct scrap *scrap;
        struct opbuf **held;
        size_t n_held, cap_held;
        void **freed; /* decoded operations' scratch */
        size_t n_freed, cap_freed;
        bool primary_told, settling_told;
        uint64_t role_epoch_told;
        const char *role_reason_told;
        uint64_t timer_at;
};

static inline enum phase repl_phase(const struct repl *r) {
        return (enum phase)r->phase.state;
}
/* A member in one of these holds the best state and applies what the active epoch delivers. */
static inline bool repl_applies(const struct repl *r) {
        enum phase p = repl_phase(r);
        return p == PHASE_PROMISE || p == PHASE_JOINING || p == PHASE_ADOPTING || p == PHASE_ACTIVE;
}
static inline bool repl_in_s(const struct repl *r) {
        return repl_phase(r) == PHASE_ADOPTING || repl_phase(r) == PHASE_ACTIVE;
}
static inline bool repl_works(const struct repl *r) {
        return r->work_traffic || r->work_replay || r->work_late;
}
static inline struct member *repl_me(struct repl *r) {
        return &r->members[r->self];
}

/* repl.c */
void repl_move(struct repl *r, enum phase to, const char *reason);
void repl_move_text(struct repl *r, enum phase to, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
struct repl_effect *repl_effect(struct repl *r, enum repl_effect_kind kind);
void *repl_scrap(struct repl *r, size_t n);      /* memory until the next step */
void repl_hold(struct repl *r, struct opbuf *b); /* takes the reference; dropped in the next step */
void repl_free_later(struct repl *r, void *p);
void repl_log(struct repl *r, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void repl_fail(struct repl *r, const char *why); /* leaves the group for ever */
uint64_t repl_ack_timeout(const struct repl *r);

/* view.c */
void view_begin(struct repl *r, const struct repl_event *ev);
void view_quorum(struct repl *r, const struct repl_event *ev);
void view_deliver(struct repl *r, const struct repl_event *ev);
void view_closed(struct repl *r);
void view_round(struct repl *r, uint64_t members, const char *why); /* the next round, with these */
void view_ask_round(struct repl *r, unsigned why);                  /* multicasts ROUND, once a round */
uint64_t view_round_bits(const struct repl *r);
const struct quorum_notice *view_notice(const struct repl *r);

/* join.c */
void join_chosen(struct repl *r); /* all STATEs are in */
void join_ready(struct repl *r);  /* we hold the best state: promise */
void join_step(struct repl *r);   /* goes on where a wait may be over */
void join_joined(struct repl *r, size_t from, const void *body, size_t len);
void join_forgive(struct repl *r);
void join_persisted(struct repl *r, const struct repl_event *ev);
void join_persist(struct repl *r); /* starts the next persist if one is wanted and none is under way */
bool join_quorum(const struct repl *r, bool (*counts)(const struct member *m));

/* send.c */
void send_message(struct repl *r, enum wire_type type, const void *body, size_t len, const void *body2, size_t len2);
void send_pump(struct repl *r); /* acknowledgements and operations that are due */
uint32_t send_under_way(const struct repl *r);

/* order.c */
void order_traffic(struct repl *r, size_t from, const struct wire_header *h, const void *body, size_t len);
void order_part(struct repl *r, size_t from, const struct wire_header *h, const void *body, size_t len);
void order_more(struct repl *r);
void order_apply(struct repl *r, const struct wire_op *op, struct opbuf *kept, uint64_t epoch,
                 bool own); /* the next operation; kept: a borrowed opbuf that holds it, or NULL */
void order_reset_part(struct member *m);
void order_queue(struct op_queue *q, uint64_t seq, uint64_t epoch, struct opbuf *op); /* takes the reference */
void order_queue_drop(struct op_queue *q);

/* stable.c */
void stable_rebase(struct repl *r, bool same); /* the state was loaded or replaced: nothing recent is kept; same: in a new view */
void stable_push(struct repl *r, struct opbuf *op, bool changed, struct hash128 digest);
bool stable_digest_at(const struct repl *r, uint64_t seq, struct hash128 *ret);
void stable_ack(struct repl *r, size_t from, const struct wire_traffic *t);
void stable_barrier(struct repl *r, uint64_t seq);
void stable_update(struct repl *r);
void stable_written(struct repl *r, uint64_t seq);
void stable_flushed(struct repl *r, uint64_t seq);
void stable_invalidated(struct repl *r, uint64_t seq);
void stable_begin(struct repl *r); /* the epoch was adopted: acknowledge */
void stable_request_barrier(struct repl *r, uint64_t token);
void stable_refuse_barriers(struct repl *r, int error);

/* request.c */
void request_submit(struct repl *r, const struct repl_event *ev);
void request_withdraw(struct repl *r, uint64_t token);
void request_withdrawn(struct repl *r); /* the timer: answers those that were withdrawn REPL_WITHDRAWN_MS ago */
void request_round_ended(struct repl *r);
void request_returned(struct repl *r, const struct wire_header *h); /* our own message of an earlier round came */
struct request *request_delivered(struct repl *r, const struct wire_op *op);
void request_applied(struct repl *r, struct request *q, const struct op_result *result);
void request_adopted(struct repl *r);
void request_stable(struct repl *r);
void request_grace(struct repl *r); /* refuses what has waited long enough */
void request_refuse_all(struct repl *r, const char *why);
void request_free_all(struct repl *r);
uint64_t request_lowest(const struct repl *r);

/* conflict.c */
void conflict_replaced(struct repl *r, const struct state *now); /* the state becomes `now`: what it lacks of ours is kept */
bool conflict_one(struct repl *r, const struct state *now, struct opbuf *b, struct position pos);

/* expel.c */
void expel_check(struct repl *r);
void expel_progress(struct repl *r, size_t from);
void expel_delivered(struct repl *r, size_t from, const void *body, size_t len);
void expel_readmit(struct repl *r, size_t from);
void expel_out(struct repl *r); /* we are not in the round */
void expel_probed(struct repl *r, uint64_t took_ms);

/* catchup.c and donor.c */
void catchup_begin(struct repl *r);
void catchup_stop(struct repl *r, bool keep_staged);
void catchup_give(struct repl *r, size_t from, const void *body, size_t len);
void catchup_check(struct repl *r);
void catchup_step(struct repl *r);     /* a persist has ended: the new state may be taken over */
void catchup_replaced(struct repl *r); /* and is, on the medium */
void catchup_replayed(struct repl *r); /* all of the queue that was at work is applied */
void catchup_log_part(struct repl *r, const struct repl_event *ev);
bool catchup_reads(const struct repl *r, uint64_t tag);
void catchup_progress(const struct repl *r, struct repl_progress *ret); /* untouched where nothing is under way */
bool catchup_owes(const struct repl *r, size_t member);                 /* the donor owes us a piece */
void donor_ask(struct repl *r, size_t from, const void *body, size_t len);
void donor_log_part(struct repl *r, const struct repl_event *ev);
void donor_pump(struct repl *r);
void donor_stop(struct repl *r);
