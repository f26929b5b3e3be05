/* disk.c: a node's disk work, as coteried's store thread does it: one job at a time, each after the time that its disk takes. */
#include "history.h"
#include "node.h"

#include <stdio.h>
#include <string.h>

#define BARRIER_INTERVAL (5 * SIM_S)

struct due {
        struct node *x;
        uint64_t life;
};

static struct due *due_new(struct node *x) {
        struct due *d = NEW(struct due);

        *d = (struct due){.x = x, .life = x->life};
        return d;
}

errint_t disk_open_store(struct node *x, struct store_loaded *ret) {
        char boot[40];
        struct store_config config = {.path = "/tree.db",
                                      .level = x->sim->level,
                                      .method = SYNC_FDATASYNC,
                                      .log_size = 256 * KIB,
                                      .boot_id = boot,
                                      .disk = x->sim->config.store ? simdisk_disk(x->disk) : NULL,
                                      .metrics = &x->metrics,
                                      .backing = x->backing};

        (void)snprintf(boot, sizeof boot, "boot-%u-%" G_GUINT64_FORMAT, x->i + 1, x->boot);
        return x->sim->config.store ? store_open_sqlite(&config, x->state, ret, &x->store)
                                    : store_open_memory(&config, x->state, ret, &x->store);
}

/* --- trouble, as coteried meets it: rescue, else read-only */

void disk_update_stall(struct node *x) {
        bool exclusive = false;

        for (unsigned k = 0; k < x->n_jobs; k++)
                exclusive |= x->jobs[k]->kind == JOB_PERSIST || x->jobs[k]->kind == JOB_REPLACE ||
                             (x->jobs[k]->kind == JOB_CHECKPOINT && x->jobs[k]->checkpoint == CHECKPOINT_RESCUE);
        x->stalled = exclusive || x->troubled || x->full;
}

static void store_failed(struct node *x) {
        sim_probe(x->sim, PROBE_STORE_FAILED);
        sim_trace(x->sim, "node %u store failed: %s", x->i + 1, x->store->ops->fail(x->store) ? x->store->ops->fail(x->store) : "?");
        x->failed = true;
        x->troubled = x->full = false;
        disk_update_stall(x);
        driver_post(x, driver_event(REPL_STORE_FAILED, 0));
        driver_run(x);
}

void disk_trouble(struct node *x, errint_t error) {
        sim_trace(x->sim, "node %u disk trouble %d", x->i + 1, error);
        if (x->failed)
                return;
        x->troubled = true;
        disk_update_stall(x);
}

static void checkpoint_begin(struct node *x, enum store_checkpoint_kind kind) {
        struct job job = {.kind = JOB_CHECKPOINT, .checkpoint = kind, .seq = x->state->pos.seq};
        errint_t e;

        sim_probe(x->sim, kind == CHECKPOINT_RESCUE ? PROBE_RESCUE : PROBE_CHECKPOINT);
        x->checkpoint_open = true;
        e = x->store->ops->checkpoint_prepare(x->store, x->state, kind);
        if (e < 0) {
                x->checkpoint_open = false;
                if (kind == CHECKPOINT_RESCUE)
                        store_failed(x);
                else
                        disk_trouble(x, e);
                return;
        }
        disk_job(x, &job);
}

/* --- what is done */

static void mark_written(struct node *x, uint64_t seq) {
        x->written = MAX_OF(x->written, seq);
        x->pending_written = MAX_OF(x->pending_written, seq);
        history_written(x, seq);
        if (x->dirty_since == 0 && seq > x->flushed)
                x->dirty_since = x->sim->now;
}

static void mark_flushed(struct node *x, uint64_t seq) {
        x->flushed = MAX_OF(x->flushed, seq);
        x->pending_flushed = MAX_OF(x->pending_flushed, seq);
        history_flushed(x, seq);
        x->dirty_since = seq < x->written ? x->sim->now : 0;
}

void disk_write_out(struct node *x) {
        uint64_t seq = 0;
        errint_t e;

        if (x->troubled || x->failed || x->appended == x->written)
                return;
        if (x->sim->level == LEVEL_FILE) {
                if (!x->write_out_asked)
                        disk_job(x, &(struct job){.kind = JOB_WRITE_OUT});
                x->write_out_asked = true;
                return;
        }
        e = x->store->ops->write_out(x->store, &seq);
        if (e < 0)
                disk_trouble(x, e);
        else
                mark_written(x, seq);
}

void disk_want_barrier(struct node *x, uint64_t seq) {
        disk_write_out(x);
        if (x->flushed >= seq) {
                x->pending_flushed = MAX_OF(x->pending_flushed, x->flushed);
                return;
        }
        disk_job(x, &(struct job){.kind = JOB_BARRIER});
}

/* Between steps: what is due. */
void disk_settle(struct node *x) {
        bool full;

        if (!x->up || x->failed)
                return;
        disk_write_out(x);
        if (x->troubled) {
                if (!x->checkpoint_open)
                        checkpoint_begin(x, CHECKPOINT_RESCUE);
                return;
        }
        full = x->store->ops->must_wait(x->store);
        if (full != x->full) {
                x->full = full;
                disk_update_stall(x);
        }
        if (!x->checkpoint_open && (full || x->store->ops->wants_checkpoint(x->store)))
                checkpoint_begin(x, CHECKPOINT_NORMAL);
}

static void barrier(struct node *x) {
        uint64_t seq = 0;
        errint_t e;

        if (x->troubled || x->failed)
                return;
        e = x->store->ops->barrier(x->store, &seq);
        if (e < 0)
                disk_trouble(x, e);
        else
                mark_flushed(x, seq);
}

static void write_out(struct node *x) {
        uint64_t seq = 0;
        errint_t e;

        x->write_out_asked = false;
        if (x->troubled || x->failed)
                return;
        e = x->store->ops->write_out(x->store, &seq);
        if (e < 0) {
                disk_trouble(x, e);
                return;
        }
        mark_written(x, seq);
        mark_flushed(x, seq);
}

static void persisted(struct node *x, errint_t e) {
        if (e < 0) {
                disk_trouble(x, e); /* not answered: the machine waits; a rescue brings the state home, then it is tried again */
                return;
        }
        driver_post(x, driver_event(REPL_PERSISTED, 0));
}

static errint_t persist(struct node *x, const struct job *job) {
        const struct store_ops *ops = x->store->ops;
        errint_t e = 0;

        if (job->promised)
                e = ops->set_promised(x->store, job->promised);
        if (e == 0 && job->has_cluster_id)
                e = ops->set_cluster_id(x->store, job->cluster_id);
        if (e == 0 && job->adopted)
                e = ops->set_adopted(x->store, job->adopted);
        if (e == 0 && job->adopted) {
                x->written = MAX_OF(x->written, x->appended);
                mark_written(x, x->appended);
                mark_flushed(x, x->appended);
        }
        return e;
}

static errint_t replace(struct node *x, const struct job *job) {
        errint_t e = x->store->ops->replace(x->store, x->state, job->adopted, NULL, NULL);

        if (e < 0)
                return e;
        cache_clear(x);
        history_replaced(x);
        return 0;
}

struct reading {
        struct node *x;
        uint64_t tag, to;
};
static bool log_part(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len) {
        struct reading *r = ctx;
        struct pending_event *e;

        if (pos.seq > r->to)
                return false;
        e = driver_event(REPL_LOG_PART, head_len + payload_len);
        memcpy(e->data, head, head_len);
        if (payload_len)
                memcpy(e->data + head_len, payload, payload_len);
        e->ev.log_part.tag = r->tag;
        e->ev.log_part.pos = pos;
        e->ev.log_part.head = e->data;
        e->ev.log_part.head_len = head_len;
        e->ev.log_part.payload = e->data + head_len;
        e->ev.log_part.payload_len = payload_len;
        driver_post(r->x, e);
        return pos.seq < r->to;
}

static void read_log(struct node *x, const struct job *job) {
        struct reading r = {.x = x, .tag = job->tag, .to = job->to};
        struct pending_event *e;
        errint_t error = x->failed ? -EIO : x->store->ops->read_log(x->store, job->from, log_part, &r);

        if (error == -ENOENT)
                sim_probe(x->sim, PROBE_LOG_TOO_OLD);
        e = driver_event(REPL_LOG_PART, 0);
        e->ev.log_part.tag = job->tag;
        e->ev.log_part.end = true;
        e->ev.log_part.error = error;
        driver_post(x, e);
}

static void checkpoint_end(struct node *x, const struct job *job) {
        errint_t e = x->store->ops->checkpoint_run(x->store);

        x->checkpoint_open = false;
        if (e == 0) {
                mark_written(x, job->seq);
                mark_flushed(x, job->seq);
                if (job->checkpoint == CHECKPOINT_RESCUE)
                        x->troubled = false;
        } else if (job->checkpoint == CHECKPOINT_RESCUE) {
                store_failed(x);
        } else if (e != -ENOSPC) { /* that one was rolled back and is tried again */
                disk_trouble(x, e);
        }
}

/* --- the queue */

static void job_done(struct sim *s, void *object, uint64_t value);

static uint64_t disk_time(struct node *x, const struct job *job) {
        struct sim *s = x->sim;
        uint64_t us = job->kind == JOB_CHECKPOINT ? sim_between(s, 500, 40 * SIM_MS) : sim_between(s, 50, 2 * SIM_MS);

        us += x->slow_disk_us ? sim_below(s, x->slow_disk_us) : 0;
        if (x->stuck_until > s->now)
                us += x->stuck_until - s->now;
        return us;
}

static void next_job(struct node *x) {
        struct due *d;

        if (x->job_busy || x->n_jobs == 0)
                return;
        x->job_busy = true;
        d = due_new(x);
        sim_after_owned(x->sim, disk_time(x, x->jobs[0]), job_done, d, 0, free);
}

void disk_job(struct node *x, const struct job *job) {
        struct job *copy;

        if (job->kind == JOB_BARRIER)
                for (unsigned k = x->job_busy; k < x->n_jobs; k++)
                        if (x->jobs[k]->kind == JOB_BARRIER)
                                return; /* the one that waits covers it */
        POST(x->n_jobs < ARRAY_LEN(x->jobs));
        copy = NEW(struct job);
        *copy = *job;
        x->jobs[x->n_jobs++] = copy;
        disk_update_stall(x);
        next_job(x);
}

static void job_run(struct node *x, struct job *job) {
        switch (job->kind) {
        case JOB_WRITE_OUT:
                write_out(x);
                break;
        case JOB_BARRIER:
                barrier(x);
                break;
        case JOB_PERSIST:
                if (x->troubled && !x->failed) { /* after the rescue */
                        disk_job(x, job);
                        break;
                }
                if (!x->failed)
                        persisted(x, persist(x, job));
                if (x->troubled)
                        disk_job(x, job);
                break;
        case JOB_REPLACE:
                if (x->troubled && !x->failed) {
                        disk_job(x, job);
                        break;
                }
                if (!x->failed)
                        persisted(x, replace(x, job));
                if (x->troubled)
                        disk_job(x, job);
                break;
        case JOB_CHECKPOINT:
                checkpoint_end(x, job);
                break;
        case JOB_READ_LOG:
                read_log(x, job);
                break;
        }
}

static void job_done(struct sim *s, void *object, uint64_t value) {
        struct due *d = object;
        struct node *x = d->x;
        struct job *job;

        (void)value;
        if (d->life != x->life || !x->up)
                return;
        if (x->paused || x->stuck_until > s->now) { /* the process or its disk stands still */
                sim_after_owned(s, 20 * SIM_MS, job_done, due_new(x), 0, free);
                return;
        }
        job = x->jobs[0];
        memmove(x->jobs, x->jobs + 1, (x->n_jobs - 1) * sizeof x->jobs[0]);
        x->n_jobs--;
        x->job_busy = false;
        job_run(x, job);
        free(job);
        if (d->life != x->life || !x->up)
                return;
        disk_update_stall(x);
        next_job(x);
        driver_run(x);
        disk_settle(x);
}

void disk_finish(struct node *x) {
        disk_write_out(x);
        while (x->n_jobs > 0 && !x->troubled && !x->failed) {
                cleanup_free struct job *job = x->jobs[0];

                memmove(x->jobs, x->jobs + 1, --x->n_jobs * sizeof x->jobs[0]);
                job_run(x, job);
        }
}

static void interval(struct sim *s, void *object, uint64_t value) {
        struct due *d = object;

        (void)value;
        if (d->life != d->x->life || !d->x->up)
                return;
        if (s->level == LEVEL_FILESYSTEM && d->x->dirty_since != 0 && s->now - d->x->dirty_since >= BARRIER_INTERVAL - SIM_S &&
            !d->x->failed)
                disk_job(d->x, &(struct job){.kind = JOB_BARRIER});
        disk_settle(d->x); /* a full disk, a rescue that waits */
        sim_after_owned(s, SIM_S, interval, due_new(d->x), 0, free);
}

void disk_start(struct node *x) {
        sim_after_owned(x->sim, SIM_S, interval, due_new(x), 0, free);
}
