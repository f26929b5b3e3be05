/* repl.h: the replication state machine. PURE: everything comes in as an event and leaves as an effect; time and random numbers arrive
 * inside events. Only the daemon's executor and the simulator's node drive repl_step, one call at a time, holding the state's
 * write lock (reads of the state elsewhere take the read lock). Standalone is the same machine over a transport with one member.
 *
 * The rules are in docs/PROTOCOL.md; src/repl/wire.h has the messages.
 *
 * What the driver owes (all under the state's write lock, effects executed in order):
 * - After repl_step, execute the effects; while `more` is set, call repl_step again with REPL_MORE before any other event. The data of a
 *   REPL_DELIVER or REPL_REQUEST event must stay valid until `more` is clear. One step applies at most one operation, so that
 *   the state is the one right after it when its EFFECT_COMMIT is executed.
 * - EFFECT_SEND: hand to the transport in order. When it refuses (TRY_AGAIN), keep that message and those behind it, give REPL_BUSY once, send them
 *   in order when the transport is writable and give REPL_SENT when nothing is left. On CLOSED drop what is kept.
 * - EFFECT_COMMIT: append to the store. REPL_WRITTEN(seq) when all up to seq is as durable as the sync level says (may lag and cover
 *   many). EFFECT_INVALIDATE: clear kernel caches, then REPL_INVALIDATED(seq); an operation without changes sends no INVALIDATE and
 *   needs no answer.
 * - EFFECT_FLUSH(seq): a barrier; then REPL_FLUSHED. A barrier of the driver's own (commit_interval) is told by REPL_FLUSHED too.
 * - EFFECT_PERSIST and EFFECT_REPLACE: one of them is under way at a time; each is answered by one REPL_PERSISTED. PERSIST with `adopted`:
 *   store->set_adopted, behind all COMMITs executed before, which are then on the medium as well. REPLACE: store->replace, and the kernel's
 *   caches are clear of the old history, before PERSISTED; WRITTEN, FLUSHED and INVALIDATED of the old history must not be
 *   given after that PERSISTED. `old` is the state that was replaced (pins and orphans live there); it is freed in the next step.
 * - EFFECT_READ_LOG(tag, from, to): one REPL_LOG_PART per operation from..to in order, then one with end (error: -ENOENT when the log does
 *   not reach back so far; parts before it may have come). A read that was begun runs to its end; parts of a tag no longer wanted are ignored.
 * - EFFECT_ARM(id, at): one timer per id; arming again moves it; 0 disarms.
 * - EFFECT_LEAVE: leave the group; then no more views come. EFFECT_FATAL: the state can not be trusted: stop the process. */
#pragma once

#include "core/state.h"

struct repl_ring {
        uint32_t node;
        uint64_t seq;
};
struct repl_member {
        uint32_t node, pid;
};
#define REPL_MEMBERS_MAX 64u

enum repl_event_kind {
        REPL_START = 1,   /* the transport is open; now_ms, random */
        REPL_DELIVER,     /* deliver: also our own messages */
        REPL_VIEW,        /* view: after a CPG and/or totem change; members sorted by (node, pid) */
        REPL_QUORUM,      /* quorum: votequorum's verdict for a ring, in any order relative to views */
        REPL_REQUEST,     /* request */
        REPL_WITHDRAW,    /* withdraw: the caller was interrupted: answer soon (EINTR where it surely did not happen) */
        REPL_WRITTEN,     /* seq: every operation up to it is as durable as the sync level says */
        REPL_FLUSHED,     /* seq: every operation up to it is on the medium */
        REPL_INVALIDATED, /* seq: the kernel's caches are clear of everything older than it */
        REPL_PERSISTED,   /* persisted: an EFFECT_PERSIST is on the medium */
        REPL_STORE_FAILED, /* the store refuses everything: leave, turn read-only */
        REPL_SENT,        /* the transport takes messages again / the last EFFECT_SEND went out */
        REPL_BUSY,        /* the transport refused a message (TRY_AGAIN): it is sent again by the driver, deadlines stand still */
        REPL_TIMER,       /* timer id */
        REPL_LOG_PART,    /* answer to EFFECT_READ_LOG */
        REPL_CLOSED,      /* the transport's connection is gone: not primary at once, no view until the next REPL_VIEW */
        REPL_STOP,        /* finish: answer or refuse what waits, leave */
        REPL_MORE,        /* go on with the event before: the effects said `more` */
        REPL_FORGIVE,     /* an administrator: choose without those who may have forgotten, do not wait for forgetful_wait_ms */
        REPL_FOUND        /* an administrator: this node, which belonged to no cluster, founds one; found.cluster_id is on the medium */
};

enum repl_request_kind {
        REQUEST_OPERATION, /* op: REPLY when stable */
        REQUEST_BARRIER    /* REPLY when everything applied before it is on the medium of every member of S */
};

struct repl_event {
        enum repl_event_kind kind;
        uint64_t now_ms;  /* monotonic, in every event */
        union {
                struct { uint64_t random; } start;
                struct { struct repl_member sender; const void *data; size_t len; } deliver;
                struct { struct repl_ring ring; const struct repl_member *members; size_t n; } view;
                struct { struct repl_ring ring; bool quorate; const uint32_t *nodes; size_t n_nodes; uint32_t expected_votes, total_votes; bool weak;
                         uint32_t node_votes /* this node's own; 0: 1 */, quorum_votes /* needed; 0: half of expected, rounded down, and 1 */,
                                  device_votes /* of a quorum device, counted in total_votes now */; } quorum;
                struct { enum repl_request_kind kind; uint64_t token; /* the driver's, comes back in the reply */
                         const void *head; size_t head_len; struct op_payload payload; } request; /* head: encoded by op_encode_head; its origin is filled in by repl_origin */
                struct { uint64_t token; } withdraw;
                struct { uint64_t seq; } seq; /* WRITTEN, FLUSHED, INVALIDATED */
                struct { uint64_t promised, adopted; } persisted;
                struct { unsigned id; } timer;
                struct { uint8_t cluster_id[16]; } found;
                struct { uint64_t tag; bool end; errint_t error; struct position pos; const void *head; size_t head_len; const void *payload; size_t payload_len; } log_part;
        };
};

enum repl_effect_kind {
        EFFECT_SEND = 1,   /* send: hand to the transport, in order */
        EFFECT_COMMIT,     /* commit: append to the store; then WRITTEN; FLUSHED after barriers */
        EFFECT_INVALIDATE, /* commit.seq, changes, local_token: clear kernel caches; then INVALIDATED. Follows its COMMIT */
        EFFECT_FLUSH,      /* flush.seq: a barrier is wanted up to seq; then FLUSHED */
        EFFECT_PERSIST,    /* persist: promised and/or adopted (0: unchanged), flushed; then PERSISTED */
        EFFECT_REPLY,      /* reply */
        EFFECT_ARM,        /* arm: TIMER(id) at at_ms; 0: disarm */
        EFFECT_READ_LOG,   /* read_log */
        EFFECT_REPLACE,    /* another history was taken over (already in the state): store->replace, invalidate everything that `changes` names (or all), then PERSISTED */
        EFFECT_ROLE,       /* role changed: primary or read-only, with the reason in words for status */
        EFFECT_CONFLICT,   /* conflict record to keep */
        EFFECT_LEAVE,      /* leave the group */
        EFFECT_FATAL,      /* the node must stop: reason */
        EFFECT_LOG,        /* one line for the log: text, level */
        EFFECT_TRACE       /* text of a state move */
};
struct repl_effect {
        enum repl_effect_kind kind;
        union {
                struct { const void *data; size_t len; const void *data2; size_t len2; } send; /* two pieces, one message */
                struct { struct position pos; const struct op *op; const void *head; size_t head_len; const struct change_set *changes;
                         struct op_result result; bool local; uint64_t token; } commit; /* local: our own request `token` */
                struct { uint64_t seq; } flush;
                struct { uint64_t promised, adopted; const uint8_t *cluster_id; /* NULL: unchanged; else 16 bytes for store->set_cluster_id */ } persist;
                struct { uint64_t token; struct op_result result; struct position pos; } reply; /* result.error also EROFS, EIO, EINTR (rule 13) */
                struct { unsigned id; uint64_t at_ms; } arm;
                struct { uint64_t tag, from_seq, to_seq; } read_log;
                struct { const struct change_set *changes; uint64_t adopted; bool everything; struct state *old; } replace;
                struct { bool primary; const char *reason; uint64_t epoch;
                         bool settling; /* not primary, but a view change is under way: requests wait for it, at most read_only_grace_ms */ } role;
                struct { const void *head; size_t head_len; struct op_payload payload; struct position pos; } conflict;
                struct { int level; const char *text; } text; /* FATAL, LOG, TRACE */
        };
};
struct repl_effects {
        const struct repl_effect *items; /* valid, with all they point to, until the next repl_step */
        size_t n;
        bool more; /* call repl_step with REPL_MORE next */
};

/* Where the configuration below has 0. The daemon's options have the same defaults, which a test compares. */
#define REPL_ACK_TIMEOUT_MS     5000u
#define REPL_FORGETFUL_WAIT_MS  60000u
#define REPL_READ_ONLY_GRACE_MS 5000u
#define REPL_WINDOW_DEFAULT     (8u * 1024u * 1024u)

struct repl_config {
        uint32_t node;
        uint64_t incarnation; /* 64 random bits, new per start */
        uint8_t cluster_id[16];     /* zeros: none yet. Such a node founds nothing: it joins a cluster whose id another member brings. Standalone makes one first */
        uint64_t promised, adopted; /* as stored */
        bool forgetful;             /* may have forgotten acknowledged operations (rule 5) */
        uint64_t ack_timeout_ms;    /* no progress for so long: overdue (rule 11) */
        uint64_t forgetful_wait_ms; /* UINT64_MAX: never */
        uint64_t read_only_grace_ms; /* how long requests wait for a primary view during a view change before they are refused */
        uint64_t window_bytes;      /* sent and not yet acknowledged */
};
struct repl;
struct repl *repl_new(const struct repl_config *config, struct state *state); /* state stays the driver's; repl_step changes it */
void repl_free(struct repl *r);
DEFINE_FREEP(repl_free, struct repl)
struct repl_effects repl_step(struct repl *r, const struct repl_event *ev);
/* Where the transport has to tell who we are: a machine made with node 0 gets its number here, once, before REPL_START. */
void repl_set_node(struct repl *r, uint32_t node);

/* The origin for the next request: number it, encode the head with it, then give it in REPL_REQUEST, in this order and under the same lock. */
struct op_origin repl_next_origin(struct repl *r);

struct repl_progress { /* of catching up; donor 0: none is under way */
        uint32_t donor;
        uint64_t received; /* bytes */
        uint64_t to_seq;   /* the donor's position; 0: not known yet */
        bool by_log;       /* else by difference, with so many objects asked for or known to be missing: */
        uint64_t known;
        bool writing; /* all is here and being written */
};
struct repl_status {
        const char *state; /* the machine's state in words */
        bool primary;
        const char *reason; /* why not, else "" */
        uint64_t epoch, seq, stable_seq, promised, adopted;
        struct repl_ring ring;
        size_t n_members;
        struct { uint32_t node, pid; bool synced, expelled; uint64_t acked_seq, acked_medium; } members[REPL_MEMBERS_MAX];
        size_t waiting; /* requests */
        struct repl_progress progress;
        bool founded;   /* belongs to a cluster */
        bool weak;      /* quorums of the running epoch need not intersect */
};
void repl_status(const struct repl *r, struct repl_status *ret);
