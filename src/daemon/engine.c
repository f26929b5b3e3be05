/* engine.c: the monitor: events, the runner, requests. */
#include "engine_internal.h"

#include <string.h>

struct event *event_new(enum event_kind kind, size_t extra) {
        struct event *ev = xmalloc(sizeof(*ev) + extra); /* the data is the caller's to fill */
        *ev = (struct event){.kind = kind};
        return ev;
}

bool engine_has_work(const struct engine *e) {
        return e->urgent.first || (!e->stalled && (e->queue.first || e->pending_written || e->pending_flushed || e->pending_invalidated));
}

void engine_kick(struct engine *e, unsigned budget) {
        engine_lock(e);
        bool mine = !e->running && engine_has_work(e);
        if (mine)
                e->running = true;
        engine_unlock(e);
        if (mine)
                engine_run(e, budget);
}

void engine_post(struct engine *e, struct event *ev, bool urgent) {
        engine_lock(e);
        queue_push(urgent ? &e->urgent : &e->queue, ev);
        bool mine = !e->running && engine_has_work(e);
        if (mine)
                e->running = true;
        engine_unlock(e);
        if (mine)
                engine_run(e, ENGINE_BUDGET);
}

void engine_post_async(struct engine *e, struct event *ev, bool urgent) {
        engine_lock(e);
        queue_push(urgent ? &e->urgent : &e->queue, ev);
        if (!e->running) {
                e->handover = true;
                (void)pthread_cond_signal(&e->engine_cond);
        }
        engine_unlock(e);
}

void engine_post_call(struct engine *e, void (*call)(struct engine *e, void *ctx), void *ctx) {
        struct event *ev = event_new(EVENT_CALL, 0);
        ev->call = call;
        ev->call_ctx = ctx;
        engine_post_async(e, ev, true);
}

/* --- stepping */

/* Applying happens on delivery, at view changes and when something waited for ends; the others only read the state. */
static bool may_apply(enum repl_event_kind kind) {
        switch (kind) {
        case REPL_REQUEST:
        case REPL_WITHDRAW:
        case REPL_WRITTEN:
        case REPL_FLUSHED:
        case REPL_INVALIDATED:
        case REPL_SENT:
        case REPL_BUSY:
                return false;
        default:
                return true;
        }
}

/* `old`: the state that had the operations, or is to be searched for their paths. */
static bool tell_conflicts(struct engine *e, const struct repl_effects *effects, const struct state *old) {
        bool told = false;
        for (size_t i = 0; i < effects->n; i++) {
                const struct repl_effect *f = &effects->items[i];
                struct engine_conflict lost = {.old = old};
                if (f->kind != EFFECT_CONFLICT)
                        continue;
                lost.pos = f->conflict.pos;
                lost.head = f->conflict.head;
                lost.head_len = f->conflict.head_len;
                lost.payload = f->conflict.payload;
                if (e->hooks.conflict)
                        e->hooks.conflict(e->hooks.ctx, &lost);
                told = true;
        }
        return told;
}

/* What the request layer must do before anybody else sees the state: an operation of its own was applied, another history taken over. True:
 * there are conflict records that no new history waits for. */
static bool under_lock(struct engine *e, const struct repl_effects *effects) {
        bool replaced = false;
        for (size_t i = 0; i < effects->n; i++) {
                const struct repl_effect *f = &effects->items[i];
                if (f->kind == EFFECT_COMMIT && f->commit.local && e->hooks.applied) {
                        const struct request *q = g_hash_table_lookup(e->requests, &f->commit.token);
                        if (q && q->from_backend)
                                e->hooks.applied(e->hooks.ctx, q->ctx, &f->commit.result);
                } else if (f->kind == EFFECT_REPLACE && f->replace.old) {
                        replaced = true;
                        (void)tell_conflicts(e, effects, f->replace.old); /* written before the new history is */
                        if (e->hooks.replaced)
                                e->hooks.replaced(e->hooks.ctx, f->replace.old);
                }
        }
        return !replaced && tell_conflicts(e, effects, e->shared);
}

static bool step_once(struct engine *e, const struct repl_event *ev) {
        bool write = may_apply(ev->kind), keep;
        struct repl_effects effects;

        if (write)
                (void)shared_state_write(e->config.state);
        else
                (void)shared_state_read(e->config.state);
        (void)pthread_mutex_lock(&e->repl_lock);
        effects = repl_step(e->repl, ev);
        (void)pthread_mutex_unlock(&e->repl_lock);
        if (write) {
                keep = under_lock(e, &effects);
                shared_state_done_write(e->config.state);
        } else {
                keep = tell_conflicts(e, &effects, e->shared);
                shared_state_done_read(e->config.state);
        }
        if (keep)
                engine_keep_conflicts(e);
        effects_run(e, &effects);
        return effects.more;
}

void engine_step(struct engine *e, const struct repl_event *ev) {
        struct repl_event more = {.kind = REPL_MORE, .now_ms = ev->now_ms};
        for (bool again = step_once(e, ev); again; again = step_once(e, &more))
                ;
}

static void step_seq(struct engine *e, enum repl_event_kind kind, uint64_t seq) {
        struct repl_event ev = {.kind = kind, .now_ms = engine_now_ms(e), .seq.seq = seq};
        engine_step(e, &ev);
}

/* The machine does not run yet: this node does not know who it is in the cluster. */
static bool refuse_early(struct engine *e, struct request *q) {
        if (e->opened)
                return false;
        engine_finish(e, q, &(struct op_result){.error = -EROFS});
        return true;
}

static void step_operation(struct engine *e, struct request *q, const struct op *op) {
        struct repl_event ev = {
                .kind = REPL_REQUEST, .now_ms = engine_now_ms(e), .request = {.kind = REQUEST_OPERATION, .token = q->token}};
        struct op numbered = *op;

        if (refuse_early(e, q))
                return;
        (void)pthread_mutex_lock(&e->repl_lock);
        numbered.origin = repl_next_origin(e->repl);
        (void)pthread_mutex_unlock(&e->repl_lock);
        enc_reset(&e->head);
        errint_t error = op_encode_head(&numbered, &e->head);
        POST(error == 0); /* the submitter tried it with the longest origin */
        ev.request.head = e->head.data;
        ev.request.head_len = e->head.len;
        ev.request.payload = op->payload;
        g_hash_table_insert(e->requests, &q->token, q);
        engine_step(e, &ev);
}

static void step_request(struct engine *e, struct request *q) {
        if (q->kind == REQUEST_BARRIER) {
                if (refuse_early(e, q))
                        return;
                struct repl_event ev = {
                        .kind = REPL_REQUEST, .now_ms = engine_now_ms(e), .request = {.kind = REQUEST_BARRIER, .token = q->token}};
                g_hash_table_insert(e->requests, &q->token, q);
                engine_step(e, &ev);
                return;
        }
        cleanup_free void *scratch = NULL;
        struct op op;
        errint_t error = op_decode(q->head, q->head_len, q->payload.data, q->payload.len, &op, &scratch);
        POST(error == 0); /* encoded by us */
        op.payload.source = q->payload.source;
        step_operation(e, q, &op);
}

static void run_event(struct engine *e, struct event *ev) {
        switch (ev->kind) {
        case EVENT_REPL:
                ev->repl.now_ms = engine_now_ms(e);
                e->opened = e->opened || ev->repl.kind == REPL_START;
                engine_step(e, &ev->repl);
                break;
        case EVENT_REQUEST:
                step_request(e, ev->request);
                break;
        case EVENT_CALL:
                ev->call(e, ev->call_ctx);
                break;
        }
        free(ev);
}

/* Takes the next piece of work; false: none that may run now. */
static bool run_one(struct engine *e) {
        uint64_t written = 0, flushed = 0, invalidated = 0;
        struct event *ev;

        engine_lock(e);
        ev = queue_pop(&e->urgent);
        if (!ev && !e->stalled) {
                written = e->pending_written;
                flushed = e->pending_flushed;
                invalidated = e->pending_invalidated;
                e->pending_written = e->pending_flushed = e->pending_invalidated = 0;
                if (!written && !flushed && !invalidated)
                        ev = queue_pop(&e->queue);
        }
        engine_unlock(e);
        if (written)
                step_seq(e, REPL_WRITTEN, written);
        if (flushed)
                step_seq(e, REPL_FLUSHED, flushed);
        if (invalidated)
                step_seq(e, REPL_INVALIDATED, invalidated);
        if (ev)
                run_event(e, ev);
        return ev || written || flushed || invalidated;
}

/* Lock held. */
static void stop_running(struct engine *e) {
        e->running = false;
        if (e->ending)
                (void)pthread_cond_broadcast(&e->quiet_cond);
}

/* Nothing was found to do, and what was done is settled. False: work has come meanwhile. */
static bool leave(struct engine *e) {
        engine_lock(e);
        bool work = engine_has_work(e);
        if (!work)
                stop_running(e);
        engine_unlock(e);
        return !work;
}

/* A borrowed thread has done enough for others. False: there is nothing to hand over, or nobody who would take it; what is not settled
 * yet must be settled by this one. */
static bool hand_over(struct engine *e) {
        engine_lock(e);
        bool work = engine_has_work(e) && !e->ending;
        if (work) {
                stop_running(e);
                e->handover = true;
                (void)pthread_cond_signal(&e->engine_cond);
        }
        engine_unlock(e);
        return work;
}

void engine_run(struct engine *e, unsigned budget) {
        for (unsigned steps = 1;; steps++) {
                engine_check_stall(e);
                bool did = run_one(e);
                if (!did || ++e->since_settle >= ENGINE_SETTLE_EVERY) {
                        e->since_settle = 0;
                        engine_settle(e);
                }
                if (engine_wants_rescue(e))
                        continue; /* nobody else would begin it */
                if (did ? steps >= budget && hand_over(e) : leave(e))
                        return;
        }
}

/* --- requests */

void engine_finish(struct engine *e, struct request *q, const struct op_result *result) {
        struct store *store = e->config.store;

        if (q->reserved)
                store->ops->release(store, q->reserved);
        q->done(q->ctx, result);
        free(q->head);
        free((void *)(uintptr_t)q->payload.data);
        blob_unref(q->payload.source);
        free(q);
        if (atomic_fetch_sub(&e->in_flight, 1) == 1) {
                engine_lock(e);
                if (e->quiescing)
                        (void)pthread_cond_broadcast(&e->quiet_cond);
                engine_unlock(e);
        }
}

static struct request *request_new(struct engine *e, enum repl_request_kind kind, void (*done)(void *, const struct op_result *),
                                   void *ctx) {
        struct request *q = NEW(struct request);
        q->token = atomic_fetch_add(&e->next_token, 1) + 1;
        q->kind = kind;
        q->done = done;
        q->ctx = ctx;
        atomic_fetch_add(&e->in_flight, 1);
        return q;
}

/* Operations that give room back, or that an administrator needs to get there, may use the ballast. */
static bool frees_room(const struct op *op) {
        switch (op->kind) {
        case OP_NOTHING:
        case OP_UNLINK:
        case OP_RMDIR:
        case OP_REMOVEXATTR:
        case OP_SETTING:
                return true;
        case OP_WRITE:
                return op->write.n_extents == 0;
        default:
                return false;
        }
}

/* Is the head within bounds whatever its origin will be? An operation that takes a number must be sent. */
static errint_t encode_widest(const struct op *op, struct enc *ret) {
        struct op widest = *op;
        widest.origin = (struct op_origin){UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
        return op_encode_head(&widest, ret);
}

/* Becomes the runner only if there is nothing before this request: it need not be copied then. */
static bool become_runner_for_request(struct engine *e) {
        engine_lock(e);
        bool mine = !e->running && !e->stalled && !engine_has_work(e);
        if (mine)
                e->running = true;
        engine_unlock(e);
        return mine;
}

/* The request must outlive this call: it takes the encoded head and a copy of the payload. */
static struct event *request_event(struct request *q, struct enc *head, const struct op *op) {
        struct event *ev = event_new(EVENT_REQUEST, 0);

        q->head = head->data;
        q->head_len = head->len;
        *head = (struct enc){0};
        q->payload = op->payload;
        q->payload.data = NULL;
        (void)blob_ref(q->payload.source);
        if (op->payload.len > 0) {
                uint8_t *copy = xmalloc(op->payload.len);
                memcpy(copy, op->payload.data, op->payload.len);
                q->payload.data = copy;
        }
        ev->request = q;
        return ev;
}

static void submit(struct engine *e, struct request *q, const struct op *op) {
        struct store *store = e->config.store;
        CLEANUP(enc_done) struct enc head;

        enc_init(&head, OP_HEAD_MAX);
        errint_t error = encode_widest(op, &head);
        uint64_t room = head.len + op->payload.len;
        if (error == 0 && (error = store->ops->reserve(store, room, frees_room(op))) == 0)
                q->reserved = room;
        if (error < 0) {
                engine_finish(e, q, &(struct op_result){.error = error});
                return;
        }
        if (!become_runner_for_request(e)) {
                engine_post(e, request_event(q, &head, op), false);
                return;
        }
        engine_check_stall(e);
        if (!e->stalled) {
                step_operation(e, q, op);
        } else {
                engine_lock(e);
                queue_push(&e->queue, request_event(q, &head, op));
                engine_unlock(e);
        }
        engine_run(e, ENGINE_BUDGET);
}

void engine_submit(struct engine *e, const struct op *op, void (*done)(void *ctx, const struct op_result *result), void *ctx,
                   uint64_t *ret_token) {
        struct request *q = request_new(e, REQUEST_OPERATION, done, ctx);

        if (ret_token)
                *ret_token = q->token;
        submit(e, q, op);
}

void engine_barrier(struct engine *e, void (*done)(void *ctx, const struct op_result *result), void *ctx) {
        struct event *ev = event_new(EVENT_REQUEST, 0);
        ev->request = request_new(e, REQUEST_BARRIER, done, ctx);
        engine_post(e, ev, false);
}

void engine_withdraw(struct engine *e, uint64_t token) {
        struct event *ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = REPL_WITHDRAW;
        ev->repl.withdraw.token = token;
        engine_post_async(e, ev, false);
}

void engine_invalidated(struct engine *e, uint64_t seq) {
        engine_lock(e);
        e->pending_invalidated = MAX_OF(e->pending_invalidated, seq);
        engine_unlock(e);
        engine_kick(e, ENGINE_BUDGET);
}

errint_t engine_writable(const struct engine *e) {
        return atomic_load_explicit(&e->accepts, memory_order_relaxed) && !atomic_load_explicit(&e->failed, memory_order_relaxed) ? 0
                                                                                                                                  : -EROFS;
}

/* --- the request layer's backend */

static void backend_submit(void *ctx, struct op *op, void (*done)(void *, const struct op_result *), void *done_ctx, uint64_t *ret_token) {
        struct request *q = request_new(ctx, REQUEST_OPERATION, done, done_ctx);

        q->from_backend = true;
        if (ret_token)
                *ret_token = q->token;
        submit(ctx, q, op);
}
static void backend_barrier(void *ctx, void (*done)(void *, const struct op_result *), void *done_ctx) {
        engine_barrier(ctx, done, done_ctx);
}
static void backend_withdraw(void *ctx, uint64_t token) {
        engine_withdraw(ctx, token);
}
static errint_t backend_reserve(void *ctx, uint64_t bytes, bool frees) {
        struct engine *e = ctx;
        errint_t error = engine_writable(e);
        return error < 0 ? error : e->config.store->ops->reserve(e->config.store, bytes, frees);
}
static void backend_release(void *ctx, uint64_t bytes) {
        struct engine *e = ctx;
        e->config.store->ops->release(e->config.store, bytes);
}
static errint_t backend_writable(void *ctx) {
        return engine_writable(ctx);
}
static void backend_arm(void *ctx, uint64_t at_ms) {
        struct engine *e = ctx;
        engine_lock(e);
        if (e->tick_at == 0 || at_ms < e->tick_at) {
                e->tick_at = MAX_OF(at_ms, 1u);
                (void)pthread_cond_signal(&e->engine_cond);
        }
        engine_unlock(e);
}
static void backend_realtime(void *ctx, struct timestamp *ret) {
        struct engine *e = ctx;
        e->config.env->realtime(e->config.env->ctx, &ret->sec, &ret->nsec);
}
static uint64_t backend_monotonic_ms(void *ctx) {
        return engine_now_ms(ctx);
}

struct fs_backend engine_backend(struct engine *e) {
        return (struct fs_backend){
                .submit = backend_submit,
                .barrier = backend_barrier,
                .withdraw = backend_withdraw,
                .reserve = backend_reserve,
                .release = backend_release,
                .writable = backend_writable,
                .arm = backend_arm,
                .realtime = backend_realtime,
                .monotonic_ms = backend_monotonic_ms,
                .ctx = e,
        };
}
