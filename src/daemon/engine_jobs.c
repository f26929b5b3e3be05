/* engine_jobs.c: what the store's thread does while the runner steps nothing: epochs, another history, another level; and reading the log
 * back. */
#include "engine_internal.h"

#include <string.h>

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
                engine_trouble(e, error, what);
        else
                engine_failed(e, error); /* a rescue works, this never does */
        return true;
}

static errint_t persist_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        errint_t error = job->promised ? store->ops->set_promised(store, job->promised) : 0;

        if (error == 0 && job->has_cluster_id) /* behind the promise: who has the id and promised nothing is the founder */
                error = store->ops->set_cluster_id(store, job->cluster_id);
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
                engine_mark_written(e, atomic_load(&e->appended_seq));
                engine_mark_flushed(e, atomic_load(&e->appended_seq));
                engine_unlock(e);
        }
        post_persisted(e, job->promised, job->adopted);
        free(job);
}

static void exclusive_start(struct engine *e, struct store_job *job) {
        engine_write_out(e);
        job->exclusive = true;
        engine_job_start(e, job);
}

void engine_persist(struct engine *e, const struct repl_effect *f) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = persist_run, .done = persist_done, .promised = f->persist.promised, .adopted = f->persist.adopted};
        if (f->persist.cluster_id) {
                job->has_cluster_id = true;
                memcpy(job->cluster_id, f->persist.cluster_id, sizeof(job->cluster_id));
        }
        exclusive_start(e, job);
}

static void replace_captured(void *ctx) {
        struct engine *e = ctx;
        shared_state_done_read(e->config.state);
}

static errint_t replace_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;

        if (e->hooks.keep_conflicts)
                e->hooks.keep_conflicts(e->hooks.ctx);
        const struct state *state = shared_state_read(e->config.state);
        job->seq = state->pos.seq;
        return store->ops->replace(store, state, job->adopted, replace_captured, e);
}

static errint_t keep_run(struct engine *e, struct store_job *job) {
        (void)job;
        if (e->hooks.keep_conflicts)
                e->hooks.keep_conflicts(e->hooks.ctx);
        return 0;
}
static void keep_done(struct engine *e, struct store_job *job, errint_t error) {
        (void)e;
        (void)error;
        free(job);
}
void engine_keep_conflicts(struct engine *e) {
        struct store_job *job = NEW(struct store_job);

        *job = (struct store_job){.run = keep_run, .done = keep_done};
        engine_job_start(e, job);
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
        engine_update_stall(e);
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

        if (!all) /* nobody waits for it */
                return;
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

void engine_replace(struct engine *e, const struct repl_effect *f) {
        struct store_job *job = NEW(struct store_job);

        *job = (struct store_job){.run = replace_run, .done = replace_done, .adopted = f->replace.adopted, .tag = invalidate_all(e)};
        exclusive_start(e, job);
}

/* --- founding a cluster */

static errint_t found_run(struct engine *e, struct store_job *job) {
        return e->config.store->ops->set_cluster_id(e->config.store, job->cluster_id);
}

static void found_done(struct engine *e, struct store_job *job, errint_t error) {
        if (error == 0) {
                struct repl_event ev = {.kind = REPL_FOUND, .now_ms = engine_now_ms(e)};
                memcpy(ev.found.cluster_id, job->cluster_id, sizeof(ev.found.cluster_id));
                engine_step(e, &ev);
        }
        waiters_done(job->waiters, error);
        free(job);
}

static void found_call(struct engine *e, void *ctx) {
        struct store_job *job = ctx;
        struct repl_status status;

        (void)pthread_mutex_lock(&e->repl_lock);
        repl_status(e->repl, &status);
        (void)pthread_mutex_unlock(&e->repl_lock);
        if (status.founded || atomic_load(&e->failed)) {
                waiters_done(job->waiters, status.founded ? -EEXIST : -EROFS);
                free(job);
                return;
        }
        exclusive_start(e, job);
}

void engine_found(struct engine *e, const uint8_t cluster_id[CLUSTER_ID_SIZE], void (*done)(void *ctx, errint_t error), void *ctx) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = found_run, .done = found_done, .waiters = waiter_new(done, ctx)};
        memcpy(job->cluster_id, cluster_id, sizeof(job->cluster_id));
        engine_post_queued_call(e, found_call, job);
}

/* --- another sync level */

static errint_t level_run(struct engine *e, struct store_job *job) {
        struct store *store = e->config.store;
        return store->ops->set_level(store, job->level.level, job->level.method, job->level.direct, job->level.padding);
}

static void level_done(struct engine *e, struct store_job *job, errint_t error) {
        if (error == 0) {
                engine_lock(e);
                e->level = job->level.level;
                engine_mark_written(e, atomic_load(&e->appended_seq)); /* a change of level begins with a barrier */
                engine_mark_flushed(e, atomic_load(&e->appended_seq));
                engine_unlock(e);
        } else if (error != -EINVAL && error != -EOPNOTSUPP && !atomic_load(&e->failed)) {
                engine_trouble(e, error, "changing the sync level");
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

void engine_set_level(struct engine *e, const struct engine_level *level, void (*done)(void *ctx, errint_t error), void *ctx) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = level_run, .done = level_done, .level = *level, .waiters = waiter_new(done, ctx)};
        engine_post_queued_call(e, level_call, job);
}

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

void engine_read_log(struct engine *e, uint64_t tag, uint64_t from_seq, uint64_t to_seq) {
        struct store_job *job = NEW(struct store_job);
        *job = (struct store_job){.run = read_log_run, .done = read_log_done, .tag = tag, .from_seq = from_seq, .to_seq = to_seq};
        engine_job_start(e, job);
}
