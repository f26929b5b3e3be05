/* engine_internal.h: what the engine's files share.
 * engine.c: queue, monitor, requests. engine_life.c: making, stopping, status. engine_effects.c: carrying out effects, the transport's
 * callbacks. engine_store.c: the store's thread, barriers, checkpoints, trouble. engine_jobs.c: what the store does while nothing is
 * stepped. engine_timer.c: the engine's own thread. */
#pragma once

#include "daemon/engine.h"

#include <glib.h>
#include <pthread.h>

#define ENGINE_TIMERS 64u         /* ids of EFFECT_ARM */
#define ENGINE_BUDGET 256u        /* steps of a borrowed thread before it hands over */
#define ENGINE_JOB_TRIES 3u       /* of an exclusive job, with a rescue between */
#define ENGINE_SETTLE_EVERY 64u   /* steps between write-outs while the queue does not run empty */
#define ENGINE_RETRY_MS 1000u     /* between checkpoints on a full disk */
#define ENGINE_WAITING_MAX 4096u  /* events that may wait for room: a cluster goes on without this node, which hears it all the same */
#define ENGINE_STOP_MS 10000u     /* for a stuck store, before stop goes on without it */

struct request {
        uint64_t token;
        enum repl_request_kind kind;
        void (*done)(void *ctx, const struct op_result *result);
        void *ctx;
        bool from_backend; /* the request layer's: it wants to know when it is applied */
        uint64_t reserved; /* bytes of the store */
        /* The operation, copied, where another thread will step it: head as encoded with an empty origin. */
        uint8_t *head;
        size_t head_len;
        struct op_payload payload;
};

enum event_kind { EVENT_REPL, EVENT_REQUEST, EVENT_CALL };
struct event {
        struct event *next;
        enum event_kind kind;
        struct repl_event repl;
        struct request *request;
        void (*call)(struct engine *e, void *ctx); /* runs as the runner */
        void *call_ctx;
        uint8_t data[]; /* what repl points to */
};
struct event_queue {
        struct event *first, **tail;
};

static inline void queue_init(struct event_queue *q) {
        q->first = NULL;
        q->tail = &q->first;
}

static inline void queue_push(struct event_queue *q, struct event *ev) {
        ev->next = NULL;
        *q->tail = ev;
        q->tail = &ev->next;
}

static inline struct event *queue_pop(struct event_queue *q) {
        struct event *ev = q->first;
        if (ev && !(q->first = ev->next))
                q->tail = &q->first;
        return ev;
}

struct message { /* refused by the transport; sent again in order */
        struct message *next;
        size_t len;
        uint8_t data[];
};

/* Work for the store's thread: exclusive, while the runner steps nothing, or a checkpoint beside it. */
struct store_job {
        struct store_job *next;
        errint_t (*run)(struct engine *e, struct store_job *job);              /* on the store's thread */
        void (*done)(struct engine *e, struct store_job *job, errint_t error); /* as the runner; frees the job */
        bool exclusive;
        unsigned tries;
        errint_t error;
        struct engine_level level;         /* set_level */
        uint64_t promised, adopted;        /* persist, replace */
        bool has_cluster_id;
        uint8_t cluster_id[CLUSTER_ID_SIZE]; /* persist, found */
        uint64_t seq;                      /* position that a checkpoint captured */
        enum store_checkpoint_kind kind;   /* checkpoint */
        uint64_t tag, from_seq, to_seq;    /* read_log; replace: tag is the serial of its invalidation */
        struct waiter *waiters;            /* checkpoint, set_level, found */
};
struct waiter {
        struct waiter *next;
        void (*done)(void *ctx, errint_t error);
        void *ctx;
};

struct engine {
        struct engine_config config;
        struct engine_hooks hooks;
        struct net *net;
        struct state *shared; /* the state itself; its lock is config.state's */
        uint32_t node;

        pthread_mutex_t lock;
        pthread_cond_t engine_cond, store_cond, quiet_cond;
        /* All protected by lock: */
        bool running;  /* somebody is the runner */
        bool stalled;  /* written by the runner alone: only urgent events pass */
        bool handover; /* the engine's thread should become the runner */
        bool ending, store_ending, left; /* left: the machine has finished */
        struct event_queue urgent, queue;
        uint64_t pending_written, pending_flushed, pending_invalidated; /* 0: none; coalesced events */
        uint64_t timer_at[ENGINE_TIMERS], tick_at;                      /* 0: not armed */
        bool want_write_out, want_barrier;
        uint64_t barrier_moves; /* barriers begun and ended: odd while one is under way */
        uint64_t retry_at; /* of a checkpoint that found the disk full; 0: none */
        struct store_job *jobs, **jobs_tail;
        uint64_t dirty_since_ms; /* 0: all is on the medium, or the level does not ask for it */
        uint64_t flushed_seq;    /* known to be on the medium */
        uint64_t group;          /* level file: operations that the last flush answered */
        uint64_t flush_ns;       /* and how long it took */
        uint64_t commit_interval_ms;
        enum sync_level level;
        bool quiescing;
        char store_reason[160];

        pthread_t engine_thread, store_thread;
        bool started;
        uint32_t told_node; /* the transport thread's own: as net told it; 0: not yet */

        struct repl *repl;          /* protected by repl_lock */
        pthread_mutex_t repl_lock; /* held for a step and for status alone; inside the state's lock */

        /* The runner's own: */
        GHashTable *requests; /* token -> struct request */
        struct enc head;
        bool opened; /* REPL_START was stepped */
        _Atomic uint64_t appended_seq, written_seq; /* written by the runner, shown in status */
        bool checkpoint_running, full /* both halves of the log */;
        bool no_room; /* a rescue found the disk full: the next one comes with retry_at */
        bool no_room_told;
        unsigned exclusive;        /* jobs that are not done */
        struct store_job *retry;   /* failed with the store in trouble; again when that is over */
        struct store_job *replacing; /* another history is stored, the kernel's caches are not clear of the old one yet */
        uint64_t all_serial, all_cleared;
        struct waiter *checkpoint_waiters;
        uint64_t asked_seq;        /* write-out asked of the store's thread */
        uint64_t checkpoint_seq;   /* what the home has, UINT64_MAX: not known */
        struct message *unsent, **unsent_tail;
        unsigned since_settle;

        _Atomic uint64_t next_token, in_flight;
        _Atomic bool accepts; /* primary, or about to be: requests are taken */
        _Atomic bool troubled, failed; /* of the store */
};

static inline uint64_t engine_now_ms(const struct engine *e) { return env_monotonic_ns(e->config.env) / 1000000u; }
/* What a timed wait on one of the engine's conditions takes: they go by the monotonic clock. */
static inline struct timespec engine_deadline_ns(uint64_t ns) {
        return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}
static inline struct timespec engine_deadline(uint64_t ms) { return engine_deadline_ns(ms * 1000000u); }
static inline void engine_lock(struct engine *e) { (void)pthread_mutex_lock(&e->lock); } /* a default mutex used rightly does not fail */
static inline void engine_unlock(struct engine *e) { (void)pthread_mutex_unlock(&e->lock); }

/* As the runner: trouble that no checkpoint is ending yet, nor could a moment ago. */
static inline bool engine_wants_rescue(const struct engine *e) {
        return atomic_load_explicit(&e->troubled, memory_order_relaxed) && !atomic_load_explicit(&e->failed, memory_order_relaxed) &&
               !e->checkpoint_running && !e->no_room;
}

/* engine.c */
struct event *event_new(enum event_kind kind, size_t extra);
void engine_post(struct engine *e, struct event *ev, bool urgent);       /* may become the runner */
void engine_post_async(struct engine *e, struct event *ev, bool urgent); /* never does */
void engine_post_call(struct engine *e, void (*call)(struct engine *e, void *ctx), void *ctx); /* urgent, asynchronous */
void engine_kick(struct engine *e, unsigned budget); /* become the runner if there is work and nobody runs; with lock not held */
void engine_run(struct engine *e, unsigned budget);  /* is the runner; returns when it no longer is */
void engine_step(struct engine *e, const struct repl_event *ev);
void engine_finish(struct engine *e, struct request *q, const struct op_result *result);
bool engine_has_work(const struct engine *e); /* lock held */
/* engine_effects.c */
void effects_run(struct engine *e, const struct repl_effects *effects);
void effects_resend(struct engine *e, void *ctx);
void effects_drop_unsent(struct engine *e);
/* engine_life.c */
void engine_meet_node(struct engine *e); /* the transport's thread, before its first event: it knows the node now */
/* engine_store.c */
void *engine_store_main(void *arg);
void engine_settle(struct engine *e);                                    /* runner: write out, barriers, checkpoints that are due */
void engine_check_stall(struct engine *e);                               /* runner: trouble to end, both halves full? */
void engine_trouble(struct engine *e, errint_t error, const char *what); /* runner */
void engine_failed(struct engine *e, errint_t error);                    /* runner */
void engine_want_barrier(struct engine *e, uint64_t seq);                /* runner */
void engine_write_out(struct engine *e);                                 /* runner */
void engine_mark_written(struct engine *e, uint64_t seq);                /* lock held */
void engine_mark_flushed(struct engine *e, uint64_t seq);                /* lock held */
void engine_update_stall(struct engine *e);                              /* runner */
void engine_job_start(struct engine *e, struct store_job *job);          /* runner */
void engine_retry(struct engine *e);                                     /* the engine's thread: retry_at is over */
struct waiter *waiter_new(void (*done)(void *ctx, errint_t error), void *ctx);
void engine_post_queued_call(struct engine *e, void (*call)(struct engine *e, void *ctx), void *ctx);
void waiters_done(struct waiter *w, errint_t error);
errint_t engine_bring_home(struct engine *e); /* after the threads have ended: the clean stop */
/* engine_jobs.c: all as the runner */
void engine_persist(struct engine *e, const struct repl_effect *f);
void engine_replace(struct engine *e, const struct repl_effect *f);
void engine_keep_conflicts(struct engine *e);
void engine_read_log(struct engine *e, uint64_t tag, uint64_t from_seq, uint64_t to_seq);
/* engine_timer.c */
void *engine_thread_main(void *arg);
void timer_arm(struct engine *e, unsigned id, uint64_t at_ms);
