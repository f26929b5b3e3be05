/* driver.c: what coteried's executor does, in virtual time: feeds the machine one event at a time and carries out its effects. */
#include "history.h"
#include "node.h"
#include "simnet.h"

#include <stdio.h>
#include <string.h>

struct planned { /* for a moment later in the same life */
        struct node *x;
        uint64_t life, value;
};

static struct planned *plan(struct node *x, uint64_t value) {
        struct planned *p = NEW(struct planned);

        *p = (struct planned){.x = x, .life = x->life, .value = value};
        return p;
}
static struct node *planned_node(const struct planned *p, uint64_t *ret_value) {
        struct node *x = p->life == p->x->life ? p->x : NULL;

        if (ret_value)
                *ret_value = p->value;
        return x;
}

struct pending_event *driver_event(enum repl_event_kind kind, size_t extra) {
        struct pending_event *e = xcalloc(1, sizeof *e + extra);

        e->ev.kind = kind;
        return e;
}

void driver_post(struct node *x, struct pending_event *ev) {
        *x->events_tail = ev;
        x->events_tail = &ev->next;
}

void request_free(struct request *q) {
        free(q->head);
        free(q->payload);
        free(q);
}

/* --- effects */

static void keep_unsent(struct node *x, const struct repl_effect *f) {
        struct message *m = xmalloc(sizeof *m + f->send.len + f->send.len2);

        m->next = NULL;
        m->len = f->send.len + f->send.len2;
        memcpy(m->data, f->send.data, f->send.len);
        if (f->send.len2)
                memcpy(m->data + f->send.len, f->send.data2, f->send.len2);
        *x->unsent_tail = m;
        x->unsent_tail = &m->next;
}

static void resend_later(struct sim *s, void *object, uint64_t value) {
        struct node *x = planned_node(object, NULL);

        (void)s;
        (void)value;
        if (x && x->up)
                driver_resend(x);
}

static void effect_send(struct node *x, const struct repl_effect *f) {
        errint_t e = -EAGAIN;

        if (!x->unsent && x->refuse_until <= x->sim->now)
                e = simnet_send(x->sim, x->i, f->send.data, f->send.len, f->send.data2, f->send.len2);
        if (e != -EAGAIN)
                return;
        if (!x->unsent)
                driver_post(x, driver_event(REPL_BUSY, 0));
        if (x->refuse_until > x->sim->now) {
                sim_probe(x->sim, PROBE_REFUSED_SEND);
                if (!x->unsent)
                        sim_after_owned(x->sim, x->refuse_until - x->sim->now, resend_later, plan(x, 0), 0, free);
        }
        keep_unsent(x, f);
}

void driver_resend(struct node *x) {
        if (!x->unsent)
                return;
        while (x->unsent && x->refuse_until <= x->sim->now) {
                struct message *m = x->unsent;
                errint_t e = simnet_send(x->sim, x->i, m->data, m->len, NULL, 0);

                if (e == -EAGAIN) {
                        sim_after_owned(x->sim, 20 * SIM_MS, resend_later, plan(x, 0), 0, free);
                        return;
                }
                x->unsent = m->next;
                free(m);
        }
        if (x->unsent) { /* refused again meanwhile */
                sim_after_owned(x->sim, x->refuse_until - x->sim->now, resend_later, plan(x, 0), 0, free);
                return;
        }
        x->unsent_tail = &x->unsent;
        driver_post(x, driver_event(REPL_SENT, 0));
        driver_run(x);
}

/* The kernel drops what it cached when its daemon says so; the answer comes later. */
struct invalidation {
        struct planned p;
        struct change_set changes;
};
static void invalidate_now(struct sim *s, void *object, uint64_t value) {
        struct invalidation *v = object;
        struct node *x = v->p.life == v->p.x->life ? v->p.x : NULL;

        (void)value;
        if (!x)
                return;
        cache_invalidate(x, &v->changes);
        sim_trace(s, "node %u clears its caches up to %" G_GUINT64_FORMAT, x->i + 1, v->p.value);
        if (!x->up)
                return;
        x->pending_invalidated = MAX_OF(x->pending_invalidated, v->p.value);
        driver_run(x);
}

static void invalidation_free(void *object) {
        struct invalidation *v = object;

        change_set_done(&v->changes);
        free(v);
}

static void effect_invalidate(struct node *x, const struct repl_effect *f) {
        struct invalidation *v = NEW(struct invalidation);
        uint64_t us;

        v->p = (struct planned){.x = x, .life = x->life, .value = f->commit.pos.seq};
        change_set_init(&v->changes);
        change_set_copy(&v->changes, f->commit.changes);
        if (f->commit.local) { /* the kernel of the writer knows */
                cache_invalidate(x, &v->changes);
        }
        us = sim_chance(x->sim, 10) ? sim_between(x->sim, 1 * SIM_MS, 6 * SIM_MS) : sim_between(x->sim, 5, 100);
        if (x->slow_kernel_until > x->sim->now) { /* a page is locked, a directory is busy */
                sim_probe(x->sim, PROBE_LATE_INVALIDATION);
                us += sim_below(x->sim, 800 * SIM_MS);
        }
        x->invalidate_at = MAX_OF(x->invalidate_at, x->sim->now + us); /* answers come in order of seq, as the edge gives them */
        sim_after_owned(x->sim, x->invalidate_at - x->sim->now, invalidate_now, v, 0, invalidation_free);
}

static void effect_commit(struct node *x, const struct repl_effect *f) {
        struct store_record record = {.pos = f->commit.pos,
                                      .op = f->commit.op,
                                      .head = f->commit.head,
                                      .head_len = f->commit.head_len,
                                      .changes = f->commit.changes,
                                      .state = x->state};
        errint_t e;

        history_commit(x, f);
        fs_changed(x->fs, f->commit.changes, f->commit.pos.seq, f->commit.local);
        x->appended = f->commit.pos.seq;
        if (x->failed)
                return;
        e = x->store->ops->append(x->store, &record);
        if (e < 0 && !x->troubled)
                disk_trouble(x, e);
}

static void effect_reply(struct node *x, const struct repl_effect *f) {
        struct request *q = g_hash_table_lookup(x->requests, &f->reply.token);

        POST(q != NULL);
        g_hash_table_remove(x->requests, &f->reply.token);
        history_reply(x, q, f);
        if (q->done)
                q->done(q->ctx, &f->reply.result);
        request_free(q);
}

static void timer_fired(struct sim *s, void *object, uint64_t id) {
        uint64_t at;
        struct node *x = planned_node(object, &at);
        struct pending_event *ev;

        if (!x || !x->up || x->timer_at[id] != at)
                return;
        if (x->paused) { /* it fires when the process runs again */
                sim_after_owned(s, 10 * SIM_MS, timer_fired, plan(x, at), id, free);
                return;
        }
        x->timer_at[id] = 0;
        ev = driver_event(REPL_TIMER, 0);
        ev->ev.timer.id = (unsigned)id;
        driver_post(x, ev);
        driver_run(x);
}

static void effect_arm(struct node *x, const struct repl_effect *f) {
        uint64_t now = sim_now_ms(x->sim);

        POST(f->arm.id < ARRAY_LEN(x->timer_at));
        x->timer_at[f->arm.id] = f->arm.at_ms;
        if (f->arm.at_ms != 0)
                sim_after_owned(x->sim, f->arm.at_ms > now ? (f->arm.at_ms - now) * SIM_MS : 0, timer_fired, plan(x, f->arm.at_ms),
                                f->arm.id, free);
}

static void effect_run(struct node *x, const struct repl_effect *f) {
        struct job job;

        switch (f->kind) {
        case EFFECT_SEND:
                effect_send(x, f);
                break;
        case EFFECT_COMMIT:
                effect_commit(x, f);
                break;
        case EFFECT_INVALIDATE:
                effect_invalidate(x, f);
                break;
        case EFFECT_FLUSH:
                disk_want_barrier(x, f->flush.seq);
                break;
        case EFFECT_PERSIST:
                job = (struct job){.kind = JOB_PERSIST,
                                   .promised = f->persist.promised,
                                   .adopted = f->persist.adopted,
                                   .has_cluster_id = f->persist.cluster_id};
                if (f->persist.cluster_id)
                        memcpy(job.cluster_id, f->persist.cluster_id, 16);
                disk_write_out(x);
                disk_job(x, &job);
                break;
        case EFFECT_REPLACE:
                history_replace(x);
                x->appended = x->written = x->flushed = x->state->pos.seq;
                x->pending_written = x->pending_flushed = x->pending_invalidated = 0;
                disk_job(x, &(struct job){.kind = JOB_REPLACE, .adopted = f->replace.adopted});
                break;
        case EFFECT_REPLY:
                effect_reply(x, f);
                break;
        case EFFECT_ARM:
                effect_arm(x, f);
                break;
        case EFFECT_READ_LOG:
                sim_probe(x->sim, PROBE_LOG_READ);
                disk_job(x, &(struct job){
                                    .kind = JOB_READ_LOG, .tag = f->read_log.tag, .from = f->read_log.from_seq, .to = f->read_log.to_seq});
                break;
        case EFFECT_ROLE:
                x->primary = f->role.primary;
                x->settling = f->role.settling;
                x->epoch = f->role.epoch;
                sim_trace(x->sim, "node %u %s epoch %" G_GUINT64_FORMAT " seq %" G_GUINT64_FORMAT ": %s", x->i + 1,
                          f->role.primary ? "PRIMARY" : "not primary", f->role.epoch, x->state->pos.seq,
                          f->role.reason ? f->role.reason : "");
                history_role(x);
                break;
        case EFFECT_CONFLICT:
                history_conflict(x, f);
                break;
        case EFFECT_LEAVE:
                simnet_leave(x->sim, x->i);
                break;
        case EFFECT_FATAL:
                sim_violation(x->sim, VERDICT_SAFETY, "fatal", "node %u: %s", x->i + 1, f->text.text);
                break;
        case EFFECT_LOG:
                sim_trace(x->sim, "node %u log: %s", x->i + 1, f->text.text);
                break;
        case EFFECT_TRACE:
                sim_trace(x->sim, "node %u move: %s", x->i + 1, f->text.text);
                break;
        }
}

/* --- stepping */

static void under_lock(struct node *x, const struct repl_effects *fx) {
        for (size_t k = 0; k < fx->n; k++) {
                const struct repl_effect *f = &fx->items[k];

                if (f->kind == EFFECT_COMMIT && f->commit.local) {
                        const struct request *q = g_hash_table_lookup(x->requests, &f->commit.token);

                        if (q && q->from_fs)
                                fs_applied(x->fs, q->ctx, &f->commit.result);
                } else if (f->kind == EFFECT_REPLACE && f->replace.old) {
                        fs_replaced(x->fs, f->replace.old);
                }
        }
}

static void step(struct node *x, const struct repl_event *ev) {
        struct repl_event e = *ev;
        struct repl_effects fx;

        do {
                e.now_ms = sim_now_ms(x->sim);
                sim_mix(x->sim, ((uint64_t)e.kind << 32) ^ x->i ^ x->sim->now << 8);
                (void)shared_state_write(x->shared);
                fx = repl_step(x->repl, &e);
                under_lock(x, &fx);
                shared_state_done_write(x->shared);
                for (size_t k = 0; k < fx.n && !x->sim->ended; k++)
                        effect_run(x, &fx.items[k]);
                sim_mix(x->sim, x->state->history.lo);
                e = (struct repl_event){.kind = REPL_MORE};
        } while (fx.more && !x->sim->ended);
}

static void step_request(struct node *x, struct request *q) {
        struct repl_event ev = {.kind = REPL_REQUEST, .request = {.kind = q->kind, .token = q->token}};
        CLEANUP(enc_done) struct enc e = {0};

        if (q->kind == REQUEST_OPERATION) {
                struct op op;
                cleanup_free void *scratch = NULL;

                POST(op_decode(q->head, q->head_len, q->payload, q->form.len, &op, &scratch) == 0);
                op.origin = q->origin = repl_next_origin(x->repl);
                enc_init(&e, OP_HEAD_MAX);
                POST(op_encode_head(&op, &e) == 0);
                ev.request.head = e.data;
                ev.request.head_len = e.len;
                ev.request.payload = op.payload;
                history_submitted(x, &op.origin, e.data, e.len, &op.payload);
                if (op.payload.len > 60 * 1024)
                        sim_probe(x->sim, PROBE_FRAGMENTED);
        }
        q->applied = x->state->pos.seq;
        g_hash_table_insert(x->requests, &q->token, q);
        step(x, &ev);
}

static bool run_one(struct node *x) {
        struct {
                enum repl_event_kind kind;
                uint64_t *seq;
        } settled[] = {
                {REPL_WRITTEN, &x->pending_written}, {REPL_FLUSHED, &x->pending_flushed}, {REPL_INVALIDATED, &x->pending_invalidated}};
        struct pending_event *e;

        if (x->stalled || x->paused)
                return false;
        for (size_t k = 0; k < ARRAY_LEN(settled); k++)
                if (*settled[k].seq != 0) {
                        struct repl_event ev = {.kind = settled[k].kind, .seq.seq = *settled[k].seq};

                        *settled[k].seq = 0;
                        step(x, &ev);
                        return true;
                }
        if (!(e = x->events))
                return false;
        if (!(x->events = e->next))
                x->events_tail = &x->events;
        if (e->request)
                step_request(x, e->request);
        else
                step(x, &e->ev);
        free(e);
        return true;
}

/* Until nothing is left to do now. Not re-entered: what effects cause is queued. */
void driver_run(struct node *x) {
        uint64_t life = x->life;

        if (x->running || !x->up)
                return;
        x->running = true;
        while (!x->sim->ended && x->life == life) {
                if (!run_one(x)) {
                        disk_settle(x);
                        if (x->stalled || x->paused ||
                            (!x->events && !x->pending_written && !x->pending_flushed && !x->pending_invalidated))
                                break;
                }
        }
        if (x->life == life)
                x->running = false;
}

/* --- the request layer's backend */

static void submit_copy(struct node *x, enum repl_request_kind kind, const struct op *op, bool from_fs,
                        void (*done)(void *, const struct op_result *), void *ctx, uint64_t *ret_token) {
        struct request *q;
        struct pending_event *ev;

        if (x->dying) {
                done(ctx, &(struct op_result){.error = -EIO});
                return;
        }
        q = NEW(struct request);
        q->token = ++x->next_token;
        q->kind = kind;
        q->done = done;
        q->ctx = ctx;
        q->from_fs = from_fs;
        q->begun = x->sim->now;
        q->frontier = history_frontier(x->sim);
        if (ret_token)
                *ret_token = q->token;
        if (op) {
                struct op plain = *op;
                CLEANUP(enc_done) struct enc e;

                enc_init(&e, OP_HEAD_MAX);
                plain.origin = (struct op_origin){0};
                POST(op_encode_head(&plain, &e) == 0);
                q->head_len = e.len;
                q->head = e.data;
                e.data = NULL;
                q->form = op->payload;
                q->payload = xmalloc(op->payload.len + 1);
                if (op->payload.len)
                        memcpy(q->payload, op->payload.data, op->payload.len);
        }
        ev = driver_event(REPL_REQUEST, 0);
        ev->request = q;
        driver_post(x, ev);
        driver_run(x);
}

static void backend_submit(void *ctx, struct op *op, void (*done)(void *, const struct op_result *), void *done_ctx, uint64_t *ret_token) {
        submit_copy(ctx, REQUEST_OPERATION, op, true, done, done_ctx, ret_token);
}
static void backend_barrier(void *ctx, void (*done)(void *, const struct op_result *), void *done_ctx) {
        sim_probe(((struct node *)ctx)->sim, PROBE_BARRIER);
        submit_copy(ctx, REQUEST_BARRIER, NULL, true, done, done_ctx, NULL);
}
static void backend_withdraw(void *ctx, uint64_t token) {
        struct pending_event *ev = driver_event(REPL_WITHDRAW, 0);

        ev->ev.withdraw.token = token;
        driver_post(ctx, ev);
        driver_run(ctx);
}
static errint_t backend_writable(void *ctx) {
        const struct node *x = ctx;

        return (x->primary || x->settling) && !x->failed ? 0 : -EROFS;
}
static errint_t backend_reserve(void *ctx, uint64_t bytes, bool frees) {
        struct node *x = ctx;
        errint_t e = backend_writable(x);

        return e < 0 ? e : x->store->ops->reserve(x->store, bytes, frees);
}
static void backend_release(void *ctx, uint64_t bytes) {
        struct node *x = ctx;

        x->store->ops->release(x->store, bytes);
}
static void backend_invalidate_inode(void *ctx, uint64_t ino) {
        struct node *x = ctx;

        g_hash_table_remove(x->cache, &ino);
}
static void tick(struct sim *s, void *object, uint64_t value) {
        uint64_t at;
        struct node *x = planned_node(object, &at);

        (void)value;
        if (!x || !x->up || x->tick_at != at)
                return;
        x->tick_at = 0;
        fs_tick(x->fs, sim_now_ms(s));
}
static void backend_arm(void *ctx, uint64_t at_ms) {
        struct node *x = ctx;
        uint64_t now = sim_now_ms(x->sim);

        if (x->tick_at != 0 && x->tick_at <= at_ms)
                return;
        x->tick_at = at_ms;
        sim_after_owned(x->sim, at_ms > now ? (at_ms - now) * SIM_MS : 1, tick, plan(x, at_ms), 0, free);
}
static void backend_realtime(void *ctx, struct timestamp *ret) {
        const struct node *x = ctx;
        int64_t ms = (int64_t)sim_now_ms(x->sim) + x->clock_offset_ms;

        *ret = (struct timestamp){.sec = 1700000000 + ms / 1000, .nsec = (uint32_t)(ms % 1000 < 0 ? 0 : ms % 1000) * 1000000u};
}
static uint64_t backend_monotonic_ms(void *ctx) {
        return sim_now_ms(((struct node *)ctx)->sim);
}
static void backend_program(void *ctx, int32_t pid, char program[LIMIT_PROGRAM]) {
        (void)ctx;
        (void)pid;
        memset(program, 0, LIMIT_PROGRAM);
        memcpy(program, "client", 6);
}
static errint_t backend_text(void *ctx, const char *name, struct enc *e) {
        (void)ctx;
        (void)name;
        (void)e;
        return -ENOENT;
}

void driver_backend(struct node *x, struct fs_backend *ret) {
        *ret = (struct fs_backend){.submit = backend_submit,
                                   .barrier = backend_barrier,
                                   .withdraw = backend_withdraw,
                                   .reserve = backend_reserve,
                                   .release = backend_release,
                                   .writable = backend_writable,
                                   .invalidate_inode = backend_invalidate_inode,
                                   .arm = backend_arm,
                                   .realtime = backend_realtime,
                                   .monotonic_ms = backend_monotonic_ms,
                                   .program = backend_program,
                                   .virtual_text = backend_text,
                                   .ctx = x};
}

void driver_clear(struct node *x) {
        while (x->events) {
                struct pending_event *e = x->events;

                x->events = e->next;
                if (e->request)
                        request_free(e->request);
                free(e);
        }
        x->events_tail = &x->events;
        while (x->unsent) {
                struct message *m = x->unsent;

                x->unsent = m->next;
                free(m);
        }
        x->unsent_tail = &x->unsent;
        while (x->input) {
                struct pending_event *in = x->input;

                x->input = in->next;
                free(in);
        }
        x->input_tail = &x->input;
        for (unsigned k = 0; k < x->n_jobs; k++)
                free(x->jobs[k]);
        x->n_jobs = 0;
        memset(x->timer_at, 0, sizeof x->timer_at);
        x->tick_at = x->pending_written = x->pending_flushed = x->pending_invalidated = 0;
        x->running = x->stalled = x->input_busy = x->job_busy = x->checkpoint_open = x->troubled = x->failed = x->write_out_asked =
                x->full = false;
        x->primary = x->settling = false;
        x->dirty_since = x->refuse_until = 0;
}
