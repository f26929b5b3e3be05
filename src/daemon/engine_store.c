/* engine_store.c: the store's thread and what the runner asks of it.
 *
 * Level none and filesystem: the runner writes out by itself, once the queue is empty: a page cache write. Level file: the store's thread
 * does, one flush for all that came meanwhile. Barriers: when asked for (fsync), after commit_interval with something unflushed, or
 * after commit_bytes. Nothing is written while nothing changes.
 *
 * Trouble: the first failed call stops stepping (the machine's deadlines show it to the others); a rescue checkpoint brings all home from
 * memory. If that fails for want of room, it is tried again until there is some. If it fails otherwise, the store has failed: the machine
 * is told, and the node is read-only from there on. */
#include "engine_internal.h"

#include "base/log.h"
#include <malloc.h>
#include <stdio.h>
#include <string.h>

void engine_update_stall(struct engine *e) {
        engine_lock(e);
        e->stalled = atomic_load(&e->troubled) || e->exclusive > 0 || e->full;
        engine_unlock(e);
}

/* --- what is known to be written and flushed; lock held */

void engine_mark_flushed(struct engine *e, uint64_t seq) {
        e->flushed_seq = MAX_OF(e->flushed_seq, seq);
        e->pending_flushed = MAX_OF(e->pending_flushed, seq);
        e->dirty_since_ms = seq < atomic_load(&e->written_seq) && e->level == LEVEL_FILESYSTEM ? engine_now_ms(e) : 0;
}

void engine_mark_written(struct engine *e, uint64_t seq) {
        if (seq > atomic_load(&e->written_seq))
                atomic_store(&e->written_seq, seq);
        e->pending_written = MAX_OF(e->pending_written, seq);
        if (e->level == LEVEL_FILESYSTEM && e->dirty_since_ms == 0 && seq > e->flushed_seq) {
                e->dirty_since_ms = engine_now_ms(e);
                (void)pthread_cond_signal(&e->store_cond); /* it sleeps without a deadline */
        }
}

/* --- jobs */

static void job_call(struct engine *e, void *ctx) {
        struct store_job *job = ctx;
        if (job->exclusive)
                e->exclusive--;
        job->done(e, job, job->error);
        engine_update_stall(e);
}

void engine_job_start(struct engine *e, struct store_job *job) {
        if (job->exclusive) {
                e->exclusive++;
                engine_update_stall(e);
        }
        engine_lock(e);
        job->next = NULL;
        *e->jobs_tail = job;
        e->jobs_tail = &job->next;
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
}

void waiters_done(struct waiter *w, errint_t error) {
        while (w) {
                struct waiter *next = w->next;
                w->done(w->ctx, error);
                free(w);
                w = next;
        }
}

/* --- failing for good */

void engine_failed(struct engine *e, errint_t error) {
        struct store *store = e->config.store;
        const char *why = store->ops->fail(store);
        struct event *ev;

        engine_lock(e);
        (void)snprintf(e->store_reason, sizeof(e->store_reason), "%s", why ? why : strerror(-error));
        atomic_store(&e->troubled, false);
        e->dirty_since_ms = 0;
        e->retry_at = 0;
        engine_unlock(e);
        atomic_store(&e->failed, true);
        e->full = false;
        engine_update_stall(e);
        log_error("store failed, the mount is read-only now: %s; free space or repair the disk, then restart coteried", e->store_reason);
        while (e->retry) {
                struct store_job *job = e->retry;
                e->retry = job->next;
                waiters_done(job->waiters, -EROFS);
                free(job);
        }
        waiters_done(steal_pointer(&e->checkpoint_waiters), -EROFS);
        ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = REPL_STORE_FAILED;
        engine_post(e, ev, true);
}

/* --- checkpoints */

static void checkpoint_start(struct engine *e, enum store_checkpoint_kind kind);

static errint_t checkpoint_job_run(struct engine *e, struct store_job *job) {
        (void)job;
        errint_t error = e->config.store->ops->checkpoint_run(e->config.store);
        (void)malloc_trim(0); /* what it captured is freed all over the heap: 16 MB for 50,000 files, which would stay otherwise */
        return error;
}

static void rescue_over(struct engine *e) {
        atomic_store(&e->troubled, false);
        log_notice("store: written again elsewhere; work goes on");
        while (e->retry) {
                struct store_job *job = e->retry;
                e->retry = job->next;
                engine_job_start(e, job);
        }
}

/* Requests that have not begun: they surely did not happen. False: more than may wait is left. */
static bool refuse_waiting(struct engine *e, errint_t error) {
        struct event_queue all, refused;
        struct event *ev;
        unsigned left = 0;

        queue_init(&refused);
        engine_lock(e);
        all = e->queue;
        if (!all.first)
                queue_init(&all);
        queue_init(&e->queue);
        while ((ev = queue_pop(&all))) {
                left += ev->kind != EVENT_REQUEST;
                queue_push(ev->kind == EVENT_REQUEST ? &refused : &e->queue, ev);
        }
        engine_unlock(e);
        while ((ev = queue_pop(&refused))) {
                engine_finish(e, ev->request, &(struct op_result){.error = error});
                free(ev);
        }
        return left <= ENGINE_WAITING_MAX;
}

/* Rolled back for want of room. The log goes on while it can; after that, or when it is the log that cannot be written, only time helps:
 * what has begun waits for it, what has not is refused. */
static void disk_full(struct engine *e) {
        if (!e->no_room_told)
                log_error("store: no room on the disk for a checkpoint; free some, work goes on by itself then");
        e->no_room_told = true;
        e->no_room = atomic_load(&e->troubled);
        if (e->no_room && !refuse_waiting(e, -ENOSPC)) {
                e->no_room = false;
                engine_failed(e, -ENOSPC);
                return;
        }
        engine_lock(e);
        e->retry_at = engine_now_ms(e) + ENGINE_RETRY_MS;
        (void)pthread_cond_signal(&e->engine_cond);
        engine_unlock(e);
}

static void checkpoint_job_done(struct engine *e, struct store_job *job, errint_t error) {
        e->checkpoint_running = false;
        if (error == 0) {
                e->checkpoint_seq = job->seq;
                e->no_room_told = false;
                engine_lock(e);
                engine_mark_written(e, job->seq);
                engine_mark_flushed(e, job->seq);
                engine_unlock(e);
                if (job->kind == CHECKPOINT_RESCUE)
                        rescue_over(e);
        }
        waiters_done(job->waiters, error);
        if (error == -ENOSPC || error == -EDQUOT)
                disk_full(e);
        else if (error < 0 && job->kind == CHECKPOINT_RESCUE)
                engine_failed(e, error);
        else if (error < 0)
                engine_trouble(e, error, "checkpoint");
        else if (e->checkpoint_waiters && !atomic_load(&e->troubled))
                checkpoint_start(e, CHECKPOINT_NORMAL);
        free(job);
}

static void checkpoint_start(struct engine *e, enum store_checkpoint_kind kind) {
        struct store *store = e->config.store;
        struct store_job *job = NEW(struct store_job);
        const struct state *state = shared_state_read(e->config.state);

        job->seq = state->pos.seq;
        errint_t error = store->ops->checkpoint_prepare(store, state, kind);
        shared_state_done_read(e->config.state);
        job->kind = kind;
        job->exclusive = kind == CHECKPOINT_RESCUE;
        job->run = checkpoint_job_run;
        job->done = checkpoint_job_done;
        job->waiters = steal_pointer(&e->checkpoint_waiters);
        e->checkpoint_running = true;
        if (error < 0)
                checkpoint_job_done(e, job, error);
        else
                engine_job_start(e, job);
}

void engine_trouble(struct engine *e, errint_t error, const char *what) {
        if (atomic_load(&e->failed))
                return;
        atomic_store(&e->troubled, true);
        engine_update_stall(e);
        metric_add(e->config.metrics, METRIC_STORE_ERRORS, 1);
        log_error("store: %s failed: %s", what, strerror(-error));
}

/* Between steps, so that a rescue captures all that the store was given. */
void engine_check_stall(struct engine *e) {
        struct store *store = e->config.store;

        if (atomic_load_explicit(&e->failed, memory_order_relaxed))
                return;
        if (engine_wants_rescue(e)) {
                checkpoint_start(e, CHECKPOINT_RESCUE);
                return;
        }
        bool full = store->ops->must_wait(store);
        if (full == e->full)
                return;
        e->full = full;
        engine_update_stall(e);
        if (full && !e->checkpoint_running)
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

static void retry_call(struct engine *e, void *ctx) {
        struct store *store = e->config.store;

        (void)ctx;
        if (e->checkpoint_running || atomic_load(&e->failed))
                return;
        e->no_room = false;
        if (engine_wants_rescue(e))
                checkpoint_start(e, CHECKPOINT_RESCUE);
        else if (e->full || store->ops->wants_checkpoint(store))
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

void engine_retry(struct engine *e) {
        engine_post_call(e, retry_call, NULL);
}

/* --- writing out, barriers */

void engine_write_out(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0, appended = atomic_load(&e->appended_seq);

        if (atomic_load(&e->troubled) || atomic_load(&e->failed) || appended == atomic_load(&e->written_seq))
                return;
        if (e->level == LEVEL_FILE) { /* level: changed by the runner alone */
                if (e->asked_seq == appended)
                        return;
                e->asked_seq = appended;
                engine_lock(e);
                e->want_write_out = true;
                (void)pthread_cond_signal(&e->store_cond);
                engine_unlock(e);
                return;
        }
        errint_t error = store->ops->write_out(store, &seq);
        if (error < 0) {
                engine_trouble(e, error, "writing the log");
                return;
        }
        engine_lock(e);
        engine_mark_written(e, seq);
        engine_unlock(e);
}

static void ask_barrier(struct engine *e) {
        engine_lock(e);
        e->want_barrier = true;
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
}

void engine_want_barrier(struct engine *e, uint64_t seq) {
        engine_write_out(e);
        engine_lock(e);
        bool known = e->flushed_seq >= seq;
        if (known)
                e->pending_flushed = MAX_OF(e->pending_flushed, e->flushed_seq);
        engine_unlock(e);
        if (!known)
                ask_barrier(e);
}

/* The store's count of bytes goes back to zero when a barrier has begun there: one that is under way, or came in between, is the one that
 * was wanted, and no second one follows it for the same bytes. */
static void barrier_by_size(struct engine *e) {
        struct store *store = e->config.store;

        engine_lock(e);
        uint64_t moves = e->barrier_moves;
        engine_unlock(e);
        if (moves % 2 == 1 || !store->ops->wants_barrier(store))
                return;
        engine_lock(e);
        if (e->barrier_moves == moves) {
                e->want_barrier = true;
                (void)pthread_cond_signal(&e->store_cond);
        }
        engine_unlock(e);
}

void engine_settle(struct engine *e) {
        struct store *store = e->config.store;

        engine_write_out(e);
        if (atomic_load_explicit(&e->troubled, memory_order_relaxed) || atomic_load_explicit(&e->failed, memory_order_relaxed))
                return;
        if (e->level == LEVEL_FILESYSTEM)
                barrier_by_size(e);
        /* Once per position: what a checkpoint could not make better it does not better by being repeated. */
        if (!e->checkpoint_running && e->exclusive == 0 && e->checkpoint_seq != atomic_load(&e->appended_seq) &&
            store->ops->wants_checkpoint(store))
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

/* --- the thread */

#define GROUP_WAIT_MIN_NS UINT64_C(200000)
#define GROUP_WAIT_MAX_NS UINT64_C(2000000)

struct thread_trouble {
        errint_t error;
        const char *what;
};

static void trouble_call(struct engine *e, void *ctx) {
        struct thread_trouble *t = ctx;

        engine_trouble(e, t->error, t->what);
        free(t);
}

/* Lock held. */
static void thread_trouble(struct engine *e, errint_t error, const char *what) {
        struct thread_trouble *t = NEW(struct thread_trouble);

        *t = (struct thread_trouble){.error = error, .what = what};
        atomic_store(&e->troubled, true); /* keeps this thread still until the runner knows */
        engine_unlock(e);
        engine_post_call(e, trouble_call, t);
        engine_lock(e);
}

/* Whoever the last flush answered is about to come again: waits for as many, as long as a flush takes, so that they share the next.
 * A single writer never waits. Lock held. */
static void gather_group(struct engine *e) {
        uint64_t now = env_monotonic_ns(env_system());
        uint64_t until_ns = now + MIN_OF(MAX_OF(e->flush_ns, GROUP_WAIT_MIN_NS), GROUP_WAIT_MAX_NS);
        struct timespec until = engine_deadline_ns(until_ns);

        while (atomic_load(&e->appended_seq) < e->flushed_seq + e->group && !e->store_ending && now < until_ns) {
                (void)pthread_cond_timedwait(&e->store_cond, &e->lock, &until);
                now = env_monotonic_ns(env_system());
        }
}

static void thread_write_out(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0, before = e->flushed_seq;

        if (e->level == LEVEL_FILE)
                gather_group(e);
        e->want_write_out = false;
        engine_unlock(e);
        uint64_t began = env_monotonic_ns(env_system());
        errint_t error = store->ops->write_out(store, &seq);
        uint64_t took = env_monotonic_ns(env_system()) - began;
        engine_lock(e);
        if (error < 0) {
                thread_trouble(e, error, "writing the log");
                return;
        }
        engine_mark_written(e, seq);
        if (e->level == LEVEL_FILE) {
                e->flush_ns = took;
                e->group = seq > before ? seq - before : 0;
                engine_mark_flushed(e, seq);
        }
}

static void thread_barrier(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0;

        e->want_barrier = false;
        e->dirty_since_ms = 0;
        e->barrier_moves++;
        engine_unlock(e);
        errint_t error = store->ops->barrier(store, &seq);
        engine_lock(e);
        e->barrier_moves++;
        if (error < 0)
                thread_trouble(e, error, "flushing the log");
        else
                engine_mark_flushed(e, seq);
}

static void thread_job(struct engine *e) {
        struct store_job *job = e->jobs;

        if (!(e->jobs = job->next))
                e->jobs_tail = &e->jobs;
        engine_unlock(e);
        job->error = job->run(e, job);
        engine_post_call(e, job_call, job);
        engine_lock(e);
}

/* A twentieth early: so the flush is over within the interval. And ext4 commits its journal five seconds after the first write, too: what a
 * flush adds to that commit before it begins costs no second one, which a flush at the same moment does (12 KiB). */
static uint64_t barrier_due_ms(const struct engine *e) {
        return e->dirty_since_ms + e->commit_interval_ms - e->commit_interval_ms / 20u;
}

static bool interval_over(const struct engine *e) {
        return e->dirty_since_ms != 0 && engine_now_ms(e) >= barrier_due_ms(e);
}

static bool thread_work(struct engine *e) {
        bool may_write = !atomic_load(&e->troubled) && !atomic_load(&e->failed);

        if (may_write && e->want_write_out)
                thread_write_out(e);
        else if (may_write && (e->want_barrier || interval_over(e)))
                thread_barrier(e);
        else if (e->jobs)
                thread_job(e);
        else
                return false;
        return true;
}

void *engine_store_main(void *arg) {
        struct engine *e = arg;

        engine_lock(e);
        for (;;) {
                if (thread_work(e)) {
                        /* Results pass through the engine's thread if nobody is the runner: this one has flushes to do. */
                        if (!e->running && engine_has_work(e)) {
                                e->handover = true;
                                (void)pthread_cond_signal(&e->engine_cond);
                        }
                        continue;
                }
                if (e->store_ending)
                        break;
                if (e->dirty_since_ms == 0 || atomic_load(&e->troubled) || atomic_load(&e->failed)) {
                        (void)pthread_cond_wait(&e->store_cond, &e->lock);
                } else {
                        struct timespec until = engine_deadline(barrier_due_ms(e));
                        (void)pthread_cond_timedwait(&e->store_cond, &e->lock, &until);
                }
        }
        engine_unlock(e);
        return NULL;
}

struct waiter *waiter_new(void (*done)(void *ctx, errint_t error), void *ctx) {
        struct waiter *w = NEW(struct waiter);
        w->done = done;
        w->ctx = ctx;
        return w;
}

void engine_post_queued_call(struct engine *e, void (*call)(struct engine *e, void *ctx), void *ctx) {
        struct event *ev = event_new(EVENT_CALL, 0);
        ev->call = call;
        ev->call_ctx = ctx;
        engine_post(e, ev, false);
}

void engine_set_commit_interval(struct engine *e, uint64_t ms) {
        engine_lock(e);
        e->commit_interval_ms = ms;
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
}

static void checkpoint_call(struct engine *e, void *ctx) {
        struct waiter *w = ctx;

        if (atomic_load(&e->failed)) {
                waiters_done(w, -EROFS);
                return;
        }
        if (e->checkpoint_seq == atomic_load(&e->appended_seq)) {
                waiters_done(w, 0);
                return;
        }
        w->next = e->checkpoint_waiters;
        e->checkpoint_waiters = w;
        engine_write_out(e);
        if (!e->checkpoint_running && !atomic_load(&e->troubled))
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

void engine_checkpoint(struct engine *e, void (*done)(void *ctx, errint_t error), void *ctx) {
        engine_post_queued_call(e, checkpoint_call, waiter_new(done, ctx));
}

/* --- the end: this thread is the only one left */

errint_t engine_bring_home(struct engine *e) {
        struct store *store = e->config.store;

        for (;;) {
                engine_kick(e, UINT32_MAX);
                engine_lock(e);
                bool worked = thread_work(e);
                engine_unlock(e);
                if (!worked)
                        break;
        }
        if (atomic_load(&e->failed))
                return -EROFS;
        const struct state *state = shared_state_read(e->config.state);
        errint_t error = store->ops->checkpoint_prepare(store, state, CHECKPOINT_CLEAN_STOP);
        shared_state_done_read(e->config.state);
        return error < 0 ? error : store->ops->checkpoint_run(store);
}
