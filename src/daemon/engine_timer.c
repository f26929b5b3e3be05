/* engine_timer.c: the engine's own thread: timers of the machine, ticks of the request layer, and work that a runner handed over. An
 * idle engine sleeps without a deadline. */
#include "engine_internal.h"

void timer_arm(struct engine *e, unsigned id, uint64_t at_ms) {
        PRE(id < ENGINE_TIMERS);
        engine_lock(e);
        e->timer_at[id] = at_ms;
        if (at_ms != 0)
                (void)pthread_cond_signal(&e->engine_cond);
        engine_unlock(e);
}

/* Takes one timer that is due; lock held. Events are made outside: UINT_MAX, none. */
static unsigned take_due(struct engine *e, uint64_t now_ms) {
        for (unsigned id = 0; id < ENGINE_TIMERS; id++)
                if (e->timer_at[id] != 0 && e->timer_at[id] <= now_ms) {
                        e->timer_at[id] = 0;
                        return id;
                }
        return UINT32_MAX;
}

static uint64_t next_deadline(const struct engine *e) {
        uint64_t at = e->tick_at;
        if (e->retry_at != 0 && (at == 0 || e->retry_at < at))
                at = e->retry_at;
        for (unsigned id = 0; id < ENGINE_TIMERS; id++)
                if (e->timer_at[id] != 0 && (at == 0 || e->timer_at[id] < at))
                        at = e->timer_at[id];
        return at;
}

/* One piece of work, without the lock; false: nothing to do. Lock held at entry and at return. */
static bool work_once(struct engine *e) {
        uint64_t now = engine_now_ms(e);
        unsigned id = take_due(e, now);

        if (id != UINT32_MAX) {
                engine_unlock(e);
                struct event *ev = event_new(EVENT_REPL, 0);
                ev->repl.kind = REPL_TIMER;
                ev->repl.timer.id = id;
                engine_post(e, ev, false);
        } else if (e->tick_at != 0 && e->tick_at <= now) {
                e->tick_at = 0;
                engine_unlock(e);
                if (e->hooks.tick)
                        e->hooks.tick(e->hooks.ctx, now);
        } else if (e->retry_at != 0 && e->retry_at <= now) {
                e->retry_at = 0;
                engine_unlock(e);
                engine_retry(e);
        } else if (e->handover) {
                e->handover = false;
                engine_unlock(e);
                engine_kick(e, UINT32_MAX);
        } else {
                return false;
        }
        engine_lock(e);
        return true;
}

void *engine_thread_main(void *arg) {
        struct engine *e = arg;

        engine_lock(e);
        while (!e->ending) {
                if (work_once(e))
                        continue;
                uint64_t at = next_deadline(e);
                if (at == 0) {
                        (void)pthread_cond_wait(&e->engine_cond, &e->lock);
                } else {
                        struct timespec until = engine_deadline(at);
                        (void)pthread_cond_timedwait(&e->engine_cond, &e->lock, &until);
                }
        }
        engine_unlock(e);
        return NULL;
}
