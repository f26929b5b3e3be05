/* engine_store.c: the store's thread and what the runner asks of it.
 *
 * Level none and filesystem: the runner writes out by itself, once the queue is empty: a page cache write. Level file: the store's thread
 * does, one flush for all that came meanwhile. Barriers: when asked for (fsync), after commit_interval with something unflushed, or
 * after commit_bytes. Nothing is written while nothing changes.
 *
 * Trouble: the first failed call stops stepping (the machine's deadlines show it to the others); a rescue checkpoint brings all home from
 * memory; if that fails as well, the store has failed: the machine is told, and the node is read-only from there on. */
#include "engine_internal.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

static void update_stall(struct engine *e) {
        engine_lock(e);
        e->stalled = e->troubled || e->exclusive > 0 || e->full;
        engine_unlock(e);
}

/* --- what is known to be written and flushed; lock held */

static void mark_flushed(struct engine *e, uint64_t seq) {
        e->flushed_seq = MAX_OF(e->flushed_seq, seq);
        e->pending_flushed = MAX_OF(e->pending_flushed, seq);
        e->dirty_since_ms = seq < atomic_load(&e->written_seq) && e->level == LEVEL_FILESYSTEM ? engine_now_ms(e) : 0;
}

static void mark_written(struct engine *e, uint64_t seq) {
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
        update_stall(e);
}

static void job_start(struct engine *e, struct store_job *job) {
        if (job->exclusive) {
                e->exclusive++;
                update_stall(e);
        }
        engine_lock(e);
        job->next = NULL;
        *e->jobs_tail = job;
        e->jobs_tail = &job->next;
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
}

static void waiters_done(struct waiter *w, errint_t error) {
        while (w) {
                struct waiter *next = w->next;
                w->done(w->ctx, error);
                free(w);
                w = next;
        }
}

/* --- failing for good */

static void store_failed(struct engine *e, errint_t error) {
        struct store *store = e->config.store;
        const char *why = store->ops->fail(store);
        struct event *ev;

        engine_lock(e);
        (void)snprintf(e->store_reason, sizeof(e->store_reason), "%s", why ? why : strerror(-error));
        e->troubled = false;
        e->dirty_since_ms = 0;
        engine_unlock(e);
        atomic_store(&e->failed, true);
        e->full = false;
        update_stall(e);
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
        return e->config.store->ops->checkpoint_run(e->config.store);
}

static void rescue_over(struct engine *e) {
        engine_lock(e);
        e->troubled = false;
        engine_unlock(e);
        log_notice("store: written again elsewhere; work goes on");
        while (e->retry) {
                struct store_job *job = e->retry;
                e->retry = job->next;
                job_start(e, job);
        }
}

static void checkpoint_job_done(struct engine *e, struct store_job *job, errint_t error) {
        e->checkpoint_running = false;
        if (error == 0) {
                e->checkpoint_seq = job->seq;
                engine_lock(e);
                mark_written(e, job->seq);
                mark_flushed(e, job->seq);
                engine_unlock(e);
                if (job->kind == CHECKPOINT_RESCUE)
                        rescue_over(e);
        }
        waiters_done(job->waiters, error);
        if (error < 0 && job->kind == CHECKPOINT_RESCUE)
                store_failed(e, error);
        else if (error < 0)
                store_trouble(e, error, "checkpoint");
        else if (e->troubled)
                checkpoint_start(e, CHECKPOINT_RESCUE); /* trouble came while this one ran */
        else if (e->checkpoint_waiters)
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
                job_start(e, job);
}

void store_trouble(struct engine *e, errint_t error, const char *what) {
        if (atomic_load(&e->failed))
                return;
        engine_lock(e);
        e->troubled = true;
        engine_unlock(e);
        update_stall(e);
        metric_add(e->config.metrics, METRIC_STORE_ERRORS, 1);
        log_error("store: %s failed: %s", what, strerror(-error));
        if (!e->checkpoint_running) /* else its end starts the rescue */
                checkpoint_start(e, CHECKPOINT_RESCUE);
}

void store_check_stall(struct engine *e) {
        struct store *store = e->config.store;
        bool full = !atomic_load_explicit(&e->failed, memory_order_relaxed) && store->ops->must_wait(store);

        if (full == e->full)
                return;
        e->full = full;
        update_stall(e);
        if (full && !e->checkpoint_running && !e->troubled)
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

/* --- writing out, barriers */

static void write_out(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0, appended = atomic_load(&e->appended_seq);

        if (e->troubled || atomic_load(&e->failed) || appended == atomic_load(&e->written_seq))
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
                store_trouble(e, error, "writing the log");
                return;
        }
        engine_lock(e);
        mark_written(e, seq);
        engine_unlock(e);
}

static void ask_barrier(struct engine *e) {
        engine_lock(e);
        e->want_barrier = true;
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
}

void store_want_barrier(struct engine *e, uint64_t seq) {
        write_out(e);
        engine_lock(e);
        bool known = e->flushed_seq >= seq;
        if (known)
                e->pending_flushed = MAX_OF(e->pending_flushed, e->flushed_seq);
        engine_unlock(e);
        if (!known)
                ask_barrier(e);
}

void store_settle(struct engine *e) {
        struct store *store = e->config.store;

        write_out(e);
        if (e->troubled || atomic_load_explicit(&e->failed, memory_order_relaxed))
                return;
        if (e->level == LEVEL_FILESYSTEM && store->ops->wants_barrier(store))
                ask_barrier(e);
        /* Once per position: what a checkpoint could not make better it does not better by being repeated. */
        if (!e->checkpoint_running && e->exclusive == 0 && e->checkpoint_seq != atomic_load(&e->appended_seq) && store->ops->wants_checkpoint(store))
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

/* --- the thread */

struct thread_trouble {
        errint_t error;
        const char *what;
};

static void trouble_call(struct engine *e, void *ctx) {
        struct thread_trouble *t = ctx;

        store_trouble(e, t->error, t->what);
        free(t);
}

/* Lock held. */
static void thread_trouble(struct engine *e, errint_t error, const char *what) {
        struct thread_trouble *t = NEW(struct thread_trouble);

        *t = (struct thread_trouble){.error = error, .what = what};
        e->troubled = true; /* keeps this thread still until the runner knows */
        engine_unlock(e);
        engine_post_call(e, trouble_call, t);
        engine_lock(e);
}

static void thread_write_out(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0;

        e->want_write_out = false;
        engine_unlock(e);
        errint_t error = store->ops->write_out(store, &seq);
        engine_lock(e);
        if (error < 0) {
                thread_trouble(e, error, "writing the log");
                return;
        }
        mark_written(e, seq);
        if (e->level == LEVEL_FILE)
                mark_flushed(e, seq);
}

static void thread_barrier(struct engine *e) {
        struct store *store = e->config.store;
        uint64_t seq = 0;

        e->want_barrier = false;
        e->dirty_since_ms = 0;
        engine_unlock(e);
        errint_t error = store->ops->barrier(store, &seq);
        engine_lock(e);
        if (error < 0)
                thread_trouble(e, error, "flushing the log");
        else
                mark_flushed(e, seq);
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

static bool interval_over(const struct engine *e) { return e->dirty_since_ms != 0 && engine_now_ms(e) >= e->dirty_since_ms + e->commit_interval_ms; }

static bool thread_work(struct engine *e) {
        bool may_write = !e->troubled && !atomic_load(&e->failed);

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

void *store_thread_main(void *arg) {
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
                if (e->dirty_since_ms == 0 || e->troubled || atomic_load(&e->failed)) {
                        (void)pthread_cond_wait(&e->store_cond, &e->lock);
                } else {
                        uint64_t at = e->dirty_since_ms + e->commit_interval_ms;
                        struct timespec until = {.tv_sec = (time_t)(at / 1000u), .tv_nsec = (long)(at % 1000u) * 1000000L};
                        (void)pthread_cond_timedwait(&e->store_cond, &e->lock, &until);
                }
        }
        engine_unlock(e);
        return NULL;
}

/* --- exclusive jobs: nothing is appended meanwhile */

/* A failed job is done again after the rescue: the machine waits for its answer. */
static bool retry_later(struct engine *e, struct store_job *job, errint_t error, const char *what) {
        if (error == 0)
                return false;
        if (atomic_load(&e->failed)) {
                waiters_done(job->waiters, error);
                free(job);
                return true;
        }
        job->next = e->retry;
        e->retry = job;
        if (++job->tries < ENGINE_JOB_TRIES)
                store_trouble(e, error, what);
        else
                store_failed(e, error); /* a rescue works, this never does */
        return true;
}

static errint_t persist_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        errint_t error = job->has_cluster_id ? store->ops->set_cluster_id(store, job->cluster_id) : 0;
        if (error == 0 && job->promised)
                error = store->ops->set_promised(store, job->promised);
        return error == 0 && job->adopted ? store->ops->set_adopted(store, job->adopted) : error;
}

static void post_persisted(struct engine *e, uint64_t promised, uint64_t adopted) {
        struct event *ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = REPL_PERSISTED;
        ev->repl.persisted.promised = promised;
        ev->repl.persisted.adopted = adopted;
        engine_post(e, ev, false);
}

static void persist_done(struct engine *e, struct store_job *job, errint_t error) {
        if (retry_later(e, job, error, "recording the epoch"))
                return;
        if (job->adopted) { /* a record behind the operations, flushed with them */
                engine_lock(e);
                mark_written(e, atomic_load(&e->appended_seq));
                mark_flushed(e, atomic_load(&e->appended_seq));
                engine_unlock(e);
        }
        post_persisted(e, job->promised, job->adopted);
        free(job);
}

static void exclusive_start(struct engine *e, struct store_job *job) {
        write_out(e);
        job->exclusive = true;
        job_start(e, job);
}

void store_persist(struct engine *e, const struct repl_effect *f) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = persist_run, .done = persist_done, .promised = f->persist.promised, .adopted = f->persist.adopted};
        if (f->persist.cluster_id) {
                job->has_cluster_id = true;
                memcpy(job->cluster_id, f->persist.cluster_id, sizeof(job->cluster_id));
        }
        exclusive_start(e, job);
}

static errint_t replace_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        const struct state *state = shared_state_read(e->config.state);

        job->seq = state->pos.seq;
        errint_t error = store->ops->replace(store, state, job->adopted);
        shared_state_done_read(e->config.state);
        return error;
}

/* The new history is on the disk and nobody's cache shows the old one. What is known of positions of the old one means nothing any more. */
static void replace_over(struct engine *e) {
        struct store_job *job = steal_pointer(&e->replacing);

        e->checkpoint_seq = job->seq;
        e->asked_seq = job->seq;
        engine_lock(e);
        e->pending_written = e->pending_flushed = e->pending_invalidated = 0;
        e->flushed_seq = job->seq;
        e->dirty_since_ms = 0;
        atomic_store(&e->appended_seq, job->seq);
        atomic_store(&e->written_seq, job->seq);
        engine_unlock(e);
        post_persisted(e, 0, job->adopted);
        e->exclusive--;
        update_stall(e);
        free(job);
}

static void replace_done(struct engine *e, struct store_job *job, errint_t error) {
        if (retry_later(e, job, error, "taking over another history"))
                return;
        e->exclusive++; /* until the caches are clear as well */
        e->replacing = job;
        if (e->all_cleared >= job->tag)
                replace_over(e);
}

struct all_cleared {
        struct engine *e;
        uint64_t serial;
};

static void all_cleared_call(struct engine *e, void *ctx) {
        struct all_cleared *all = ctx;

        e->all_cleared = MAX_OF(e->all_cleared, all->serial);
        free(all);
        if (e->replacing && e->all_cleared >= e->replacing->tag)
                replace_over(e);
}

void engine_all_invalidated(void *done_ctx) {
        struct all_cleared *all = done_ctx;
        engine_post_call(all->e, all_cleared_call, all);
}

static uint64_t invalidate_all(struct engine *e) {
        struct all_cleared *all = NEW(struct all_cleared);
        uint64_t serial = ++e->all_serial;

        *all = (struct all_cleared){.e = e, .serial = serial};
        if (e->hooks.invalidate_all)
                e->hooks.invalidate_all(e->hooks.ctx, all);
        else
                engine_all_invalidated(all);
        return serial;
}

void store_replace(struct engine *e, const struct repl_effect *f) {
        struct store_job *job = NEW(struct store_job);

        *job = (struct store_job){.run = replace_run, .done = replace_done, .adopted = f->replace.adopted, .tag = invalidate_all(e)};
        exclusive_start(e, job);
}

static errint_t level_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        return store->ops->set_level(store, job->level.level, job->level.method, job->level.direct, job->level.padding);
}

static void level_done(struct engine *e, struct store_job *job, errint_t error) {
        if (error == 0) {
                engine_lock(e);
                e->level = job->level.level;
                mark_written(e, atomic_load(&e->appended_seq)); /* a change of level begins with a barrier */
                mark_flushed(e, atomic_load(&e->appended_seq));
                engine_unlock(e);
        } else if (error != -EINVAL && error != -EOPNOTSUPP && !atomic_load(&e->failed)) {
                store_trouble(e, error, "changing the sync level");
        }
        waiters_done(job->waiters, error);
        free(job);
}

static void level_call(struct engine *e, void *ctx) {
        struct store_job *job = ctx;
        if (atomic_load(&e->failed)) {
                waiters_done(job->waiters, -EROFS);
                free(job);
                return;
        }
        exclusive_start(e, job);
}

static struct waiter *waiter_new(void (*done)(void *ctx, errint_t error), void *ctx) {
        struct waiter *w = NEW(struct waiter);
        w->done = done;
        w->ctx = ctx;
        return w;
}

static void post_queued_call(struct engine *e, void (*call)(struct engine *e, void *ctx), void *ctx) {
        struct event *ev = event_new(EVENT_CALL, 0);
        ev->call = call;
        ev->call_ctx = ctx;
        engine_post(e, ev, false);
}

void engine_set_level(struct engine *e, const struct engine_level *level, void (*done)(void *ctx, errint_t error), void *ctx) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = level_run, .done = level_done, .level = *level, .waiters = waiter_new(done, ctx)};
        post_queued_call(e, level_call, job);
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
        write_out(e);
        if (!e->checkpoint_running && !e->troubled)
                checkpoint_start(e, CHECKPOINT_NORMAL);
}

void engine_checkpoint(struct engine *e, void (*done)(void *ctx, errint_t error), void *ctx) { post_queued_call(e, checkpoint_call, waiter_new(done, ctx)); }

/* --- the log, for members that catch up */

struct log_reader {
        struct engine *e;
        struct store_job *job;
};

static struct event *log_part_event(const struct store_job *job, size_t extra) {
        struct event *ev = event_new(EVENT_REPL, extra);
        ev->repl.kind = REPL_LOG_PART;
        ev->repl.log_part.tag = job->tag;
        return ev;
}

static bool log_record(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len) {
        struct log_reader *r = ctx;
        struct event *ev;

        if (pos.seq > r->job->to_seq)
                return false;
        ev = log_part_event(r->job, head_len + payload_len);
        memcpy(ev->data, head, head_len);
        if (payload_len > 0)
                memcpy(ev->data + head_len, payload, payload_len);
        ev->repl.log_part.pos = pos;
        ev->repl.log_part.head = ev->data;
        ev->repl.log_part.head_len = head_len;
        ev->repl.log_part.payload = ev->data + head_len;
        ev->repl.log_part.payload_len = payload_len;
        engine_post_async(r->e, ev, false);
        return true;
}

static errint_t read_log_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        struct log_reader r = {.e = e, .job = job};
        return store->ops->read_log(store, job->from_seq, log_record, &r);
}

static void read_log_done(struct engine *e, struct store_job *job, errint_t error) {
        struct event *ev = log_part_event(job, 0);
        ev->repl.log_part.end = true;
        ev->repl.log_part.error = error;
        engine_post(e, ev, false);
        free(job);
}

void store_read_log(struct engine *e, uint64_t tag, uint64_t from_seq, uint64_t to_seq) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = read_log_run, .done = read_log_done, .tag = tag, .from_seq = from_seq, .to_seq = to_seq};
        job_start(e, job);
}

/* --- the end: this thread is the only one left */

errint_t store_finish(struct engine *e) {
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
