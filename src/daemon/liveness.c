/* liveness.c: the main loop beats; before each beat the engine and the control server are asked to make a step, and at the next one it is
 * looked at who did. The guardian measures how long somebody has not; the service manager's watchdog is fed only while all do. */
#include "daemon_internal.h"

#include <limits.h>

#define BEATS_PER_LIMIT 4u /* so that a limit is met with an error of a quarter */

static int interval_ms(const struct daemon *d) {
        uint64_t ms = d->options->hang_report.number, service = service_watchdog_ms();

        ms = MIN_OF(ms, d->options->hang_kill.number);
        if (service > 0)
                ms = MIN_OF(ms, service);
        return ms == DURATION_NEVER ? -1 : (int)MIN_OF(MAX_OF(ms / BEATS_PER_LIMIT, 1u), (uint64_t)INT_MAX);
}

static uint64_t now_ms(void) {
        return env_monotonic_ns(env_system()) / 1000000u;
}

/* Who has not made a step since the last call; asks again. */
static uint32_t late_loops(struct liveness *l, struct daemon *d) {
        uint32_t late = 0;
        uint64_t turns = ctl_server_turns(d->ctl);

        if (!atomic_exchange(&l->engine_answered, false))
                late |= 1u << LOOP_ENGINE; /* the question is still there */
        else
                engine_ping(d->engine, &l->engine_answered);
        if (turns == l->control_turns)
                late |= 1u << LOOP_CONTROL;
        l->control_turns = turns;
        return late;
}

void liveness_begin(struct daemon *d) {
        struct liveness *l = &d->liveness;

        l->interval_ms = interval_ms(d);
        l->next_ms = now_ms() + (uint64_t)MAX_OF(l->interval_ms, 0);
        if (l->interval_ms < 0)
                return;
        atomic_store(&l->engine_answered, true);
        l->control_turns = UINT64_MAX;
        guardian_beat(d->guardian, late_loops(l, d));
}

int liveness_beat(struct daemon *d) {
        struct liveness *l = &d->liveness;
        uint64_t now = now_ms();

        if (l->interval_ms < 0)
                return -1;
        if (now >= l->next_ms) {
                uint32_t late = late_loops(l, d);
                guardian_beat(d->guardian, late);
                if (late == 0 && service_watchdog_ms() > 0)
                        service_notify("WATCHDOG=1");
                l->next_ms = now + (uint64_t)l->interval_ms;
        }
        return (int)(l->next_ms - now);
}

void liveness_end(struct daemon *d) {
        if (d->guardian)
                guardian_rest(d->guardian);
}
