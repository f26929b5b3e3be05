/* engine.h: the executor: the one place that drives repl_step and carries out its effects.
 *
 * A monitor: any thread posts events; whoever finds nobody running becomes the runner and steps the machine until the queue is empty,
 * else it only enqueues. So on a quiet node the thread that asks completes its own operation without a thread switch; on a busy one
 * a runner hands over to the engine's own thread after a while.
 *
 * Threads: the engine's own (timers, hand-over) and the store's (flushes, group commit, checkpoints). Hooks and `done` callbacks run on
 * whichever thread is the runner, without any lock; they may post, submit and withdraw, but must not wait for the engine.
 *
 * Lock order: none of the engine's locks is held while a hook, a callback, the store or the transport is called. The state's lock is
 * held around repl_step, store->append and store->checkpoint_prepare only. */
#pragma once

#include "base/env.h"
#include "base/metrics.h"
#include "base/trace.h"
#include "fs/fs.h"
#include "net/net.h"
#include "repl/repl.h"
#include "store/store.h"

struct engine;

/* An operation that was applied here and that the history which was taken over lacks. */
struct engine_conflict {
        struct position pos;
        const void *head;
        size_t head_len;
        struct op_payload payload;
        const struct state *old; /* that had it; NULL: not known */
};

/* The rest of the daemon, as the engine sees it. Any may be NULL. */
struct engine_hooks {
        /* Under the state's write lock: an operation that came through the backend was applied; another history was taken over. */
        void (*applied)(void *ctx, void *done_ctx, const struct op_result *result);
        void (*replaced)(void *ctx, struct state *old);
        /* Likewise, before `replaced`; what it points to is valid during the call. */
        void (*conflict)(void *ctx, const struct engine_conflict *lost);
        /* On the store's thread, before the log is overwritten that has those operations. */
        void (*keep_conflicts)(void *ctx);
        /* After each operation, without locks, in order of seq. */
        void (*changed)(void *ctx, const struct change_set *changes, uint64_t seq, bool local);
        /* Clear the kernel's caches, then call engine_invalidated, from here or from another thread. NULL: nothing caches. */
        void (*invalidate)(void *ctx, const struct change_set *changes, uint64_t seq, bool local);
        /* Of everything; then call engine_all_invalidated(done_ctx). */
        void (*invalidate_all)(void *ctx, void *done_ctx);
        void (*tick)(void *ctx, uint64_t now_ms);     /* what the backend's `arm` asked for; from the engine's thread */
        void (*role)(void *ctx, bool primary, const char *reason);
        void (*fatal)(void *ctx, const char *reason); /* the node must stop */
        void *ctx;
};
void engine_all_invalidated(void *done_ctx);

struct engine_config {
        struct shared_state *state;
        struct store *store; /* stays the caller's */
        struct repl_config repl; /* node 0: the transport tells it when it knows; until then the machine does not run */
        const char *read_only_reason; /* the database is damaged and open for rescue; else NULL */
        bool clean; /* the log was empty at start: the home has everything */
        enum sync_level level;
        uint64_t commit_interval_ms;
        const struct env *env;
        struct metrics *metrics;
        struct trace_ring *trace;
};
struct engine *engine_new(const struct engine_config *config);
void engine_set_hooks(struct engine *e, const struct engine_hooks *hooks); /* before engine_start */
void *engine_hooks_ctx(const struct engine *e);
void engine_ping(struct engine *e, _Atomic bool *answered); /* set at the next step: it lives. Waits for nothing. */
struct net_handler engine_net_handler(struct engine *e);
/* Starts the threads, opens the machine, then the transport. */
errint_t engine_start(struct engine *e, struct net *net);
/* Waits until no request is under way, at most so long. */
bool engine_quiesce(struct engine *e, uint64_t timeout_ms);
/* Answers what waits, leaves the group, ends the threads, brings everything home and marks the store clean. Call once; free afterwards. */
errint_t engine_stop(struct engine *e);
void engine_free(struct engine *e); /* never started, or stopped */
DEFINE_FREEP(engine_free, struct engine)

/* The request layer's backend; the functions that the engine does not know (program, virtual_text, invalidate_inode) are left NULL. */
struct fs_backend engine_backend(struct engine *e);
void engine_submit(struct engine *e, const struct op *op, void (*done)(void *ctx, const struct op_result *result), void *ctx, uint64_t *ret_token);
void engine_barrier(struct engine *e, void (*done)(void *ctx, const struct op_result *result), void *ctx);
void engine_withdraw(struct engine *e, uint64_t token); /* never becomes the runner: may be called under a lock */
void engine_invalidated(struct engine *e, uint64_t seq);
errint_t engine_writable(const struct engine *e);

/* Brings everything home now; done(error) from any thread. */
void engine_checkpoint(struct engine *e, void (*done)(void *ctx, errint_t error), void *ctx);
/* Another sync level or method, while mounted. */
struct engine_level {
        enum sync_level level;
        enum sync_method method;
        bool direct;
        uint32_t padding;
};
void engine_set_level(struct engine *e, const struct engine_level *level, void (*done)(void *ctx, errint_t error), void *ctx);
/* This node, which belongs to no cluster, founds one with this id. -EEXIST: it belongs to one already. */
void engine_found(struct engine *e, const uint8_t cluster_id[CLUSTER_ID_SIZE], void (*done)(void *ctx, errint_t error), void *ctx);
void engine_set_commit_interval(struct engine *e, uint64_t ms);

struct engine_status {
        struct repl_status repl;
        enum sync_level level;
        uint64_t commit_interval_ms;
        uint64_t appended_seq, written_seq, flushed_seq;
        uint64_t in_flight; /* requests */
        bool stalled;       /* waits for the store */
        bool store_failed;
        char store_reason[160]; /* why, else "" */
};
void engine_status(struct engine *e, struct engine_status *ret); /* any thread; waits for a step of the machine at most */
