/* engine.c: the monitor: events, the runner, requests. */
#include "engine_internal.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

struct event *event_new(enum event_kind kind, size_t extra) {
        struct event *ev = xcalloc(1, sizeof(*ev) + extra);
        ev->kind = kind;
        return ev;
}

static void queue_init(struct event_queue *q) {
        q->first = NULL;
        q->tail = &q->first;
}

static void queue_push(struct event_queue *q, struct event *ev) {
        ev->next = NULL;
        *q->tail = ev;
        q->tail = &ev->next;
}

static struct event *queue_pop(struct event_queue *q) {
        struct event *ev = q->first;
        if (ev && !(q->first = ev->next))
                q->tail = &q->first;
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

/* What the request layer must do before anybody else sees the state: an operation of its own was applied, another history taken over. */
static void under_lock(struct engine *e, const struct repl_effects *effects) {
        for (size_t i = 0; i < effects->n; i++) {
                const struct repl_effect *f = &effects->items[i];
                if (f->kind == EFFECT_COMMIT && f->commit.local && e->hooks.applied) {
                        const struct request *q = g_hash_table_lookup(e->requests, &f->commit.token);
                        if (q && q->from_backend)
                                e->hooks.applied(e->hooks.ctx, q->ctx, &f->commit.result);
                } else if (f->kind == EFFECT_REPLACE && e->hooks.replaced && f->replace.old) {
                        e->hooks.replaced(e->hooks.ctx, f->replace.old);
                }
        }
}

static bool step_once(struct engine *e, const struct repl_event *ev) {
        bool write = may_apply(ev->kind);
        struct repl_effects effects;

        if (write)
                (void)shared_state_write(e->config.state);
        else
                (void)shared_state_read(e->config.state);
        (void)pthread_mutex_lock(&e->repl_lock);
        effects = repl_step(e->repl, ev);
        (void)pthread_mutex_unlock(&e->repl_lock);
        if (write) {
                under_lock(e, &effects);
                shared_state_done_write(e->config.state);
        } else {
                shared_state_done_read(e->config.state);
        }
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

static void step_operation(struct engine *e, struct request *q, const struct op *op) {
        struct repl_event ev = {.kind = REPL_REQUEST, .now_ms = engine_now_ms(e), .request = {.kind = REQUEST_OPERATION, .token = q->token}};
        struct op numbered = *op;

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
                struct repl_event ev = {.kind = REPL_REQUEST, .now_ms = engine_now_ms(e), .request = {.kind = REQUEST_BARRIER, .token = q->token}};
                g_hash_table_insert(e->requests, &q->token, q);
                engine_step(e, &ev);
                return;
        }
        cleanup_free void *scratch = NULL;
        struct op op;
        errint_t error = op_decode(q->head, q->head_len, q->payload.data, q->payload.len, &op, &scratch);
        POST(error == 0); /* encoded by us */
        step_operation(e, q, &op);
}

static void run_event(struct engine *e, struct event *ev) {
        switch (ev->kind) {
        case EVENT_REPL:
                ev->repl.now_ms = engine_now_ms(e);
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

/* Gives up being the runner: true, or false when work has come meanwhile. */
static bool leave(struct engine *e, bool exhausted) {
        engine_lock(e);
        bool work = engine_has_work(e);
        if (work && !exhausted) {
                engine_unlock(e);
                return false;
        }
        e->running = false;
        if (work) {
                e->handover = true;
                (void)pthread_cond_signal(&e->engine_cond);
        }
        engine_unlock(e);
        return true;
}

void engine_run(struct engine *e, unsigned budget) {
        for (unsigned steps = 0;; steps++) {
                engine_check_stall(e);
                bool did = run_one(e);
                if (!did || ++e->since_settle >= ENGINE_SETTLE_EVERY) {
                        e->since_settle = 0;
                        engine_settle(e);
                }
                if (engine_wants_rescue(e))
                        continue; /* nobody else would begin it */
                if ((!did || steps >= budget) && leave(e, steps >= budget))
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
        free(q);
        if (atomic_fetch_sub(&e->in_flight, 1) == 1) {
                engine_lock(e);
                if (e->quiescing)
                        (void)pthread_cond_broadcast(&e->quiet_cond);
                engine_unlock(e);
        }
}

static struct request *request_new(struct engine *e, enum repl_request_kind kind, void (*done)(void *, const struct op_result *), void *ctx) {
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

void engine_submit(struct engine *e, const struct op *op, void (*done)(void *ctx, const struct op_result *result), void *ctx, uint64_t *ret_token) {
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
        return atomic_load_explicit(&e->accepts, memory_order_relaxed) && !atomic_load_explicit(&e->failed, memory_order_relaxed) ? 0 : -EROFS;
}

/* --- the request layer's backend */

static void backend_submit(void *ctx, struct op *op, void (*done)(void *, const struct op_result *), void *done_ctx, uint64_t *ret_token) {
        struct request *q = request_new(ctx, REQUEST_OPERATION, done, done_ctx);

        q->from_backend = true;
        if (ret_token)
                *ret_token = q->token;
        submit(ctx, q, op);
}
static void backend_barrier(void *ctx, void (*done)(void *, const struct op_result *), void *done_ctx) { engine_barrier(ctx, done, done_ctx); }
static void backend_withdraw(void *ctx, uint64_t token) { engine_withdraw(ctx, token); }
static errint_t backend_reserve(void *ctx, uint64_t bytes, bool frees) {
        struct engine *e = ctx;
        errint_t error = engine_writable(e);
        return error < 0 ? error : e->config.store->ops->reserve(e->config.store, bytes, frees);
}
static void backend_release(void *ctx, uint64_t bytes) {
        struct engine *e = ctx;
        e->config.store->ops->release(e->config.store, bytes);
}
static errint_t backend_writable(void *ctx) { return engine_writable(ctx); }
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
static uint64_t backend_monotonic_ms(void *ctx) { return engine_now_ms(ctx); }

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

/* --- life */

struct engine *engine_new(const struct engine_config *config) {
        struct engine *e = NEW(struct engine);
        pthread_condattr_t attr;

        e->config = *config;
        e->node = config->repl.node;
        e->level = config->level;
        e->commit_interval_ms = config->commit_interval_ms;
        queue_init(&e->urgent);
        queue_init(&e->queue);
        e->unsent_tail = &e->unsent;
        e->jobs_tail = &e->jobs;
        (void)pthread_mutex_init(&e->lock, NULL);
        (void)pthread_mutex_init(&e->repl_lock, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&e->engine_cond, &attr);
        (void)pthread_cond_init(&e->store_cond, &attr);
        (void)pthread_cond_init(&e->quiet_cond, &attr);
        (void)pthread_condattr_destroy(&attr);
        e->requests = g_hash_table_new(g_int64_hash, g_int64_equal);
        enc_init(&e->head, OP_HEAD_MAX);
        if (config->read_only_reason) {
                atomic_store(&e->failed, true);
                (void)snprintf(e->store_reason, sizeof(e->store_reason), "%s", config->read_only_reason);
        }
        e->shared = shared_state_write(config->state);
        atomic_store(&e->appended_seq, e->shared->pos.seq);
        atomic_store(&e->written_seq, e->shared->pos.seq);
        e->checkpoint_seq = config->clean ? e->shared->pos.seq : UINT64_MAX;
        e->repl = repl_new(&config->repl, e->shared);
        shared_state_done_write(config->state);
        return e;
}

void engine_set_hooks(struct engine *e, const struct engine_hooks *hooks) {
        PRE(!e->started);
        e->hooks = *hooks;
}

errint_t engine_start(struct engine *e, struct net *net) {
        PRE(!e->started);
        e->net = net;
        if (pthread_create(&e->store_thread, NULL, engine_store_main, e) != 0)
                return -EAGAIN;
        if (pthread_create(&e->engine_thread, NULL, engine_thread_main, e) != 0) {
                engine_lock(e);
                e->store_ending = true;
                (void)pthread_cond_signal(&e->store_cond);
                engine_unlock(e);
                (void)pthread_join(e->store_thread, NULL);
                return -EAGAIN;
        }
        e->started = true;
        struct event *ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = REPL_START;
        ev->repl.start.random = env_random64(e->config.env);
        engine_post(e, ev, false);
        if (e->config.read_only_reason) {
                ev = event_new(EVENT_REPL, 0);
                ev->repl.kind = REPL_STORE_FAILED;
                engine_post(e, ev, false);
        }
        return net->ops->start(net);
}

static void mono_deadline(uint64_t at_ms, struct timespec *ret) {
        *ret = (struct timespec){.tv_sec = (time_t)(at_ms / 1000u), .tv_nsec = (long)(at_ms % 1000u) * 1000000L};
}

bool engine_quiesce(struct engine *e, uint64_t timeout_ms) {
        struct timespec until;

        mono_deadline(engine_now_ms(e) + timeout_ms, &until);
        engine_lock(e);
        e->quiescing = true;
        while (atomic_load(&e->in_flight) > 0)
                if (pthread_cond_timedwait(&e->quiet_cond, &e->lock, &until) == ETIMEDOUT)
                        break;
        e->quiescing = false;
        engine_unlock(e);
        return atomic_load(&e->in_flight) == 0;
}

static void stop_machine(struct engine *e) {
        struct event *stop = event_new(EVENT_REPL, 0);
        struct timespec until;

        stop->repl.kind = REPL_STOP;
        engine_post(e, stop, false);
        mono_deadline(engine_now_ms(e) + ENGINE_STOP_MS, &until);
        engine_lock(e);
        while (!e->left)
                if (pthread_cond_timedwait(&e->quiet_cond, &e->lock, &until) == ETIMEDOUT)
                        break;
        engine_unlock(e);
}

/* What could not be stepped any more: a store that stayed stuck. */
static void refuse_leftovers(struct engine *e) {
        const struct op_result result = {.error = -EIO};
        GHashTableIter it;
        void *value;
        struct event *ev;

        while ((ev = queue_pop(&e->urgent)) || (ev = queue_pop(&e->queue))) {
                if (ev->kind == EVENT_REQUEST)
                        engine_finish(e, ev->request, &result);
                free(ev);
        }
        waiters_done(steal_pointer(&e->checkpoint_waiters), -EROFS);
        g_hash_table_iter_init(&it, e->requests);
        while (g_hash_table_iter_next(&it, NULL, &value)) {
                g_hash_table_iter_steal(&it);
                engine_finish(e, value, &result);
                g_hash_table_iter_init(&it, e->requests);
        }
}

errint_t engine_stop(struct engine *e) {
        errint_t error;

        PRE(e->started);
        stop_machine(e);
        engine_lock(e);
        e->ending = true;
        e->store_ending = true;
        (void)pthread_cond_signal(&e->engine_cond);
        (void)pthread_cond_signal(&e->store_cond);
        engine_unlock(e);
        (void)pthread_join(e->store_thread, NULL);
        (void)pthread_join(e->engine_thread, NULL);
        e->started = false;
        error = engine_bring_home(e);
        refuse_leftovers(e);
        return error;
}

void engine_free(struct engine *e) {
        PRE(!e->started);
        refuse_leftovers(e); /* never started */
        effects_drop_unsent(e);
        repl_free(e->repl);
        g_hash_table_destroy(e->requests);
        enc_done(&e->head);
        (void)pthread_cond_destroy(&e->engine_cond);
        (void)pthread_cond_destroy(&e->store_cond);
        (void)pthread_cond_destroy(&e->quiet_cond);
        (void)pthread_mutex_destroy(&e->lock);
        (void)pthread_mutex_destroy(&e->repl_lock);
        free(e);
}

void engine_status(struct engine *e, struct engine_status *ret) {
        memset(ret, 0, sizeof(*ret));
        (void)pthread_mutex_lock(&e->repl_lock);
        repl_status(e->repl, &ret->repl);
        (void)pthread_mutex_unlock(&e->repl_lock);
        engine_lock(e);
        ret->level = e->level;
        ret->commit_interval_ms = e->commit_interval_ms;
        ret->flushed_seq = e->flushed_seq;
        ret->stalled = e->stalled;
        ret->store_failed = atomic_load(&e->failed);
        memcpy(ret->store_reason, e->store_reason, sizeof(ret->store_reason));
        engine_unlock(e);
        ret->appended_seq = atomic_load(&e->appended_seq);
        ret->written_seq = atomic_load(&e->written_seq);
        ret->in_flight = atomic_load(&e->in_flight);
}
