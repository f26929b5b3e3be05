/* engine_life.c: an engine from making to freeing; status. */
#include "engine_internal.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

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

void *engine_hooks_ctx(const struct engine *e) {
        return e->hooks.ctx;
}

static void ping_call(struct engine *e, void *ctx) {
        (void)e;
        atomic_store((_Atomic bool *)ctx, true);
}

void engine_ping(struct engine *e, _Atomic bool *answered) {
        engine_post_call(e, ping_call, answered);
}

static void open_machine(struct engine *e) {
        struct event *ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = REPL_START;
        ev->repl.start.random = env_random64(e->config.env);
        engine_post(e, ev, false);
}

static void meet_call(struct engine *e, void *ctx) {
        (void)ctx;
        (void)pthread_mutex_lock(&e->repl_lock);
        repl_set_node(e->repl, e->node);
        (void)pthread_mutex_unlock(&e->repl_lock);
}

void engine_meet_node(struct engine *e) {
        uint32_t node = e->net->ops->node_id(e->net);

        if (node == e->told_node || node == 0)
                return;
        if (e->told_node != 0) { /* requests and sessions bear the old one */
                log_error("the node id in corosync.conf was changed from %u to %u: start coteried again", e->told_node, node);
                if (e->hooks.fatal)
                        e->hooks.fatal(e->hooks.ctx, "the node id was changed");
                return;
        }
        e->told_node = node;
        if (e->node != 0)
                return; /* configured */
        e->node = node;
        engine_post_queued_call(e, meet_call, NULL);
        open_machine(e);
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
        if (e->node != 0) /* else when the transport knows it */
                open_machine(e);
        if (e->config.read_only_reason) {
                struct event *ev = event_new(EVENT_REPL, 0);
                ev->repl.kind = REPL_STORE_FAILED;
                engine_post(e, ev, false);
        }
        return e->config.read_only_reason ? 0 : net->ops->start(net); /* who never speaks would only be waited for */
}

bool engine_quiesce(struct engine *e, uint64_t timeout_ms) {
        struct timespec until = engine_deadline(engine_now_ms(e) + timeout_ms);
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
        until = engine_deadline(engine_now_ms(e) + ENGINE_STOP_MS);
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
        engine_lock(e);
        while (e->running) /* a borrowed thread may still be carrying out what the machine said last */
                (void)pthread_cond_wait(&e->quiet_cond, &e->lock);
        engine_unlock(e);
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
