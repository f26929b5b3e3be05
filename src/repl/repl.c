/* repl.c: events in, effects out; the table of states. See machine.h for what each part does. */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>

#define BIT(p) (UINT32_C(1) << (p))
/* A view or a round begins from anywhere but LEFT; a closed connection or a failed store ends from anywhere. */
#define ANYWHERE (BIT(PHASE_OFFLINE) | BIT(PHASE_WAITING) | BIT(PHASE_COLLECT) | BIT(PHASE_EXPELLED) | BIT(PHASE_LEFT))

static const char *const phase_names[PHASE_COUNT] = {
        [PHASE_OFFLINE] = "offline",   [PHASE_WAITING] = "waiting",     [PHASE_COLLECT] = "collecting", [PHASE_MINORITY] = "minority",
        [PHASE_HOLD] = "holding",      [PHASE_CATCHUP] = "catching up", [PHASE_PROMISE] = "promising",  [PHASE_JOINING] = "joining",
        [PHASE_ADOPTING] = "adopting", [PHASE_ACTIVE] = "active",       [PHASE_EXPELLED] = "expelled",  [PHASE_LEFT] = "left",
};
static const uint32_t phase_allowed[PHASE_COUNT] = {
        [PHASE_OFFLINE] = ANYWHERE,
        [PHASE_WAITING] = ANYWHERE,
        [PHASE_COLLECT] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_HOLD) | BIT(PHASE_CATCHUP) | BIT(PHASE_PROMISE),
        [PHASE_MINORITY] = ANYWHERE,
        [PHASE_HOLD] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_CATCHUP) | BIT(PHASE_PROMISE),
        [PHASE_CATCHUP] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_PROMISE),
        [PHASE_PROMISE] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_JOINING),
        [PHASE_JOINING] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_ADOPTING),
        [PHASE_ADOPTING] = ANYWHERE | BIT(PHASE_MINORITY) | BIT(PHASE_ACTIVE),
        [PHASE_ACTIVE] = ANYWHERE | BIT(PHASE_MINORITY),
        [PHASE_EXPELLED] = ANYWHERE,
        [PHASE_LEFT] = 0,
};
const struct state_table repl_phases = {.name = "repl", .state_name = phase_names, .allowed = phase_allowed, .n = PHASE_COUNT};

static bool phase_invariant(const void *object, unsigned state) {
        const struct repl *r = object;
        switch ((enum phase)state) {
        case PHASE_CATCHUP:
        case PHASE_PROMISE:
                return r->chosen && r->members[r->self].in_round && r->members[r->self].aside == ASIDE_NO;
        case PHASE_JOINING: /* nobody joins whose promise could be forgotten */
                return r->chosen && (r->persist_promised >= r->choice.epoch || repl_variant(VARIANT_PROMISE_NOT_PERSISTED) ||
                                     repl_variant(VARIANT_NO_PROMISE) || repl_variant(VARIANT_EPOCH_REUSED));
        case PHASE_ADOPTING:
                return r->epoch_active && r->members[r->self].synced;
        case PHASE_ACTIVE: /* nobody acknowledges whose adopted epoch could be forgotten */
                return r->epoch_active && r->members[r->self].synced && r->adopted == r->choice.epoch;
        case PHASE_EXPELLED:
                return !r->members[r->self].in_round;
        default:
                return true;
        }
}

struct repl *repl_new(const struct repl_config *config, struct state *state) {
        struct repl *r = NEW(struct repl);
        r->config = *config;
        r->state = state;
        r->phase.table = &repl_phases;
        r->reason = "not connected to the cluster";
        r->promised = r->persist_promised = MAX_OF(config->promised, config->adopted);
        r->adopted = config->adopted;
        r->forgetful = config->forgetful;
        r->next_number = 1;
        if (!r->config.ack_timeout_ms)
                r->config.ack_timeout_ms = REPL_ACK_TIMEOUT_MS;
        if (!r->config.forgetful_wait_ms)
                r->config.forgetful_wait_ms = REPL_FORGETFUL_WAIT_MS;
        if (!r->config.read_only_grace_ms)
                r->config.read_only_grace_ms = REPL_READ_ONLY_GRACE_MS;
        if (!r->config.window_bytes)
                r->config.window_bytes = REPL_WINDOW_DEFAULT;
        change_set_init(&r->changes);
        stable_rebase(r, false);
        return r;
}

static void scrap_reset(struct repl *r, bool all) {
        while (r->scrap && (all || r->scrap->next)) {
                struct scrap *next = r->scrap->next;
                free(r->scrap);
                r->scrap = next;
        }
        if (r->scrap)
                r->scrap->used = 0;
        for (size_t i = 0; i < r->n_held; i++)
                opbuf_unref(r->held[i]);
        for (size_t i = 0; i < r->n_freed; i++)
                free(r->freed[i]);
        r->n_held = r->n_freed = r->n_effects = 0;
        if (r->has_old) {
                state_done(&r->old);
                r->has_old = false;
        }
}

void repl_free(struct repl *r) {
        if (!r)
                return;
        scrap_reset(r, true);
        donor_stop(r);
        catchup_stop(r, false);
        order_queue_drop(&r->late);
        order_queue_drop(&r->replay);
        free(r->late.items);
        free(r->replay.items);
        for (size_t i = 0; i < r->n_members; i++)
                order_reset_part(&r->members[i]);
        request_free_all(r);
        stable_rebase(r, false);
        free(r->recent);
        free(r->barriers);
        free(r->effects);
        free(r->held);
        free(r->freed);
        change_set_done(&r->changes);
        free(r);
}

/* --- effects */
struct repl_effect *repl_effect(struct repl *r, enum repl_effect_kind kind) {
        if (r->n_effects == r->cap_effects) {
                r->cap_effects = r->cap_effects ? 2 * r->cap_effects : 16;
                r->effects = xrealloc(r->effects, r->cap_effects * sizeof(*r->effects));
        }
        struct repl_effect *e = &r->effects[r->n_effects++];
        memset(e, 0, sizeof(*e));
        e->kind = kind;
        return e;
}

void *repl_scrap(struct repl *r, size_t n) {
        n = (n + 15) & ~(size_t)15;
        if (!r->scrap || r->scrap->cap - r->scrap->used < n) {
                size_t cap = MAX_OF(n, (size_t)(16 * KIB));
                struct scrap *s = xmalloc(sizeof(*s) + cap);
                *s = (struct scrap){.next = r->scrap, .cap = cap};
                r->scrap = s;
        }
        void *p = r->scrap->bytes + r->scrap->used;
        r->scrap->used += n;
        return p;
}

void repl_hold(struct repl *r, struct opbuf *b) {
        if (r->n_held == r->cap_held) {
                r->cap_held = r->cap_held ? 2 * r->cap_held : 16;
                r->held = xrealloc(r->held, r->cap_held * sizeof(struct opbuf *));
        }
        r->held[r->n_held++] = b;
}

void repl_free_later(struct repl *r, void *p) {
        if (!p)
                return;
        if (r->n_freed == r->cap_freed) {
                r->cap_freed = r->cap_freed ? 2 * r->cap_freed : 16;
                r->freed = xrealloc(r->freed, r->cap_freed * sizeof(void *));
        }
        r->freed[r->n_freed++] = p;
}

__attribute__((format(printf, 2, 0))) static const char *scrap_text(struct repl *r, const char *fmt, va_list ap) {
        char line[400];
        int n = vsnprintf(line, sizeof(line), fmt, ap);
        size_t len = n < 0 ? 0 : MIN_OF((size_t)n, sizeof(line) - 1);
        char *text = repl_scrap(r, len + 1);
        memcpy(text, line, len);
        text[len] = '\0';
        return text;
}

void repl_log(struct repl *r, int level, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        const char *text = scrap_text(r, fmt, ap);
        va_end(ap);
        struct repl_effect *e = repl_effect(r, EFFECT_LOG);
        e->text.level = level;
        e->text.text = text;
}

static void trace_move(struct repl *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void trace_move(struct repl *r, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        const char *text = scrap_text(r, fmt, ap);
        va_end(ap);
        repl_effect(r, EFFECT_TRACE)->text.text = text;
}

void repl_move(struct repl *r, enum phase to, const char *reason) {
        bool was_active = repl_phase(r) == PHASE_ACTIVE;
        const char *from = state_move(&r->phase, to, phase_invariant, r);
        r->reason = reason;
        trace_move(r, "%s -> %s, ring %u.%llu round %u, epoch %llu, at %llu%s%s", from, state_text(&r->phase), r->ring.node,
                   (unsigned long long)r->ring.seq, r->round, (unsigned long long)r->choice.epoch, (unsigned long long)r->state->pos.seq,
                   *reason ? ": " : "", reason);
        if (was_active && to != PHASE_ACTIVE)
                r->lost_at = r->now;
        if (to == PHASE_ACTIVE) {
                r->refusing = false;
                r->active_since = r->now;
        }
        if (to == PHASE_MINORITY || to == PHASE_LEFT)
                request_refuse_all(r, reason);
}

void repl_move_text(struct repl *r, enum phase to, const char *fmt, ...) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(r->reason_text, sizeof(r->reason_text), fmt, ap);
        va_end(ap);
        repl_move(r, to, r->reason_text);
}

void repl_fail(struct repl *r, const char *why) {
        if (repl_phase(r) == PHASE_LEFT)
                return;
        repl_move(r, PHASE_LEFT, why);
        r->work_traffic = r->work_replay = r->work_late = false;
        repl_effect(r, EFFECT_LEAVE);
        catchup_stop(r, false);
        donor_stop(r);
}

uint64_t repl_ack_timeout(const struct repl *r) {
        return r->config.ack_timeout_ms;
}

/* --- what every step ends with */
static void tell_role(struct repl *r) {
        bool primary = repl_phase(r) == PHASE_ACTIVE;
        bool settling = !primary && !r->refusing;
        const char *reason = primary ? "" : r->reason;
        if (primary == r->primary_told && settling == r->settling_told && r->role_epoch_told == r->adopted && r->role_reason_told == reason)
                return;
        struct repl_effect *e = repl_effect(r, EFFECT_ROLE);
        e->role.primary = r->primary_told = primary;
        e->role.settling = r->settling_told = settling;
        e->role.reason = r->role_reason_told = reason;
        e->role.epoch = r->role_epoch_told = r->adopted;
}

/* When something has to be looked at although no event may come. 0: nothing. */
static uint64_t next_check(const struct repl *r) {
        enum phase p = repl_phase(r);
        uint64_t at = 0, soon = r->now + MAX_OF(repl_ack_timeout(r) / 16, (uint64_t)1);
        bool settling = p != PHASE_ACTIVE && !r->refusing && p != PHASE_LEFT;
        if (settling)
                at = r->lost_at + r->config.read_only_grace_ms;
        if (p == PHASE_EXPELLED && (!at || r->readmit_at < at))
                at = r->readmit_at;
        if (p == PHASE_HOLD && r->config.forgetful_wait_ms != UINT64_MAX && !r->forgive_told) {
                uint64_t end = r->hold_since + r->config.forgetful_wait_ms;
                at = !at || end < at ? end : at;
        }
        bool owing = p == PHASE_COLLECT || p == PHASE_CATCHUP || p == PHASE_PROMISE || p == PHASE_JOINING || p == PHASE_ADOPTING;
        if (p == PHASE_ACTIVE)
                owing = (r->n_members > 1 && (r->recent_n > 0 || r->n_barriers > 0 || r->donor)) || r->stopping;
        if ((owing && r->n_members > 1) || r->donor || (p == PHASE_ACTIVE && r->stopping))
                at = !at || soon < at ? soon : at;
        if (r->withdrawn_at && (!at || r->withdrawn_at + REPL_WITHDRAWN_MS < at))
                at = r->withdrawn_at + REPL_WITHDRAWN_MS;
        return at && at <= r->now ? r->now + 1 : at;
}

static void settle(struct repl *r) {
        join_step(r);
        send_pump(r);
        donor_pump(r);
        if (r->stopping && r->n_requests == 0 && r->n_barriers == 0 && !r->persisting)
                repl_fail(r, "stopped");
        tell_role(r);
        uint64_t at = next_check(r);
        if (at && (!r->timer_at || at < r->timer_at)) {
                struct repl_effect *e = repl_effect(r, EFFECT_ARM);
                e->arm.id = REPL_TIMER_CHECK;
                e->arm.at_ms = r->timer_at = at;
        }
}

static void on_timer(struct repl *r) {
        r->timer_at = 0;
        if (r->stopping && r->now - r->lost_at >= repl_ack_timeout(r) && repl_phase(r) != PHASE_LEFT) {
                repl_fail(r, "stopped");
                return;
        }
        request_withdrawn(r);
        request_grace(r);
        expel_check(r);
        catchup_check(r);
}

static void on_stop(struct repl *r) {
        r->stopping = true;
        r->lost_at = r->now; /* what is under way has until the acknowledgement's time is over */
        if (repl_phase(r) != PHASE_ACTIVE)
                request_refuse_all(r, "stopping");
}

static bool is_founded(const struct repl *r) {
        static const uint8_t none[sizeof(r->config.cluster_id)];
        return memcmp(r->config.cluster_id, none, sizeof(none)) != 0;
}

/* What we said in this round is not true any more: it is said again in the next. */
static void on_found(struct repl *r, const uint8_t *cluster_id) {
        if (is_founded(r) || repl_phase(r) == PHASE_LEFT)
                return;
        memcpy(r->config.cluster_id, cluster_id, sizeof(r->config.cluster_id));
        r->forgetful = false; /* the founder knows all there is */
        if (view_notice(r) && r->n_members > 0)
                view_ask_round(r, ROUND_QUORUM);
}

static void dispatch(struct repl *r, const struct repl_event *ev) {
        switch (ev->kind) {
        case REPL_START:
                r->random = ev->start.random;
                r->lost_at = r->now;
                break;
        case REPL_DELIVER:
                view_deliver(r, ev);
                break;
        case REPL_VIEW:
                view_begin(r, ev);
                break;
        case REPL_QUORUM:
                view_quorum(r, ev);
                break;
        case REPL_REQUEST:
                request_submit(r, ev);
                break;
        case REPL_WITHDRAW:
                request_withdraw(r, ev->withdraw.token);
                break;
        case REPL_WRITTEN:
                stable_written(r, ev->seq.seq);
                break;
        case REPL_FLUSHED:
                stable_flushed(r, ev->seq.seq);
                break;
        case REPL_INVALIDATED:
                stable_invalidated(r, ev->seq.seq);
                break;
        case REPL_PERSISTED:
                join_persisted(r, ev);
                break;
        case REPL_STORE_FAILED:
                repl_fail(r, "the store failed");
                break;
        case REPL_SENT:
                r->busy = false;
                break;
        case REPL_BUSY:
                r->busy = true;
                break;
        case REPL_TIMER:
                on_timer(r);
                break;
        case REPL_LOG_PART:
                if (catchup_reads(r, ev->log_part.tag))
                        catchup_log_part(r, ev);
                else
                        donor_log_part(r, ev);
                break;
        case REPL_CLOSED:
                view_closed(r);
                break;
        case REPL_STOP:
                on_stop(r);
                break;
        case REPL_MORE:
                order_more(r);
                break;
        case REPL_FORGIVE:
                join_forgive(r);
                break;
        case REPL_FOUND:
                on_found(r, ev->found.cluster_id);
                break;
        }
}

struct repl_effects repl_step(struct repl *r, const struct repl_event *ev) {
        PRE((ev->kind == REPL_MORE) == repl_works(r)); /* `more` was said: nothing else comes before */
        scrap_reset(r, false);
        if (ev->now_ms > r->now) {
                if (!r->busy && r->now)
                        r->quiet += ev->now_ms - r->now;
                r->now = ev->now_ms;
        }
        dispatch(r, ev);
        bool more = repl_works(r);
        if (!more)
                settle(r);
        return (struct repl_effects){.items = r->effects, .n = r->n_effects, .more = repl_works(r)};
}

void repl_set_node(struct repl *r, uint32_t node) {
        PRE(r->config.node == 0 && node != 0 && r->instance == 0 && r->next_number == 1);
        r->config.node = node;
}

struct op_origin repl_next_origin(struct repl *r) {
        uint64_t number = r->next_number++;
        uint64_t lowest = request_lowest(r);
        return (struct op_origin){
                .node = r->config.node, .incarnation = r->config.incarnation, .number = number, .lowest_waiting = lowest ? lowest : number};
}

void repl_status(const struct repl *r, struct repl_status *ret) {
        *ret = (struct repl_status){
                .state = state_text(&r->phase),
                .primary = repl_phase(r) == PHASE_ACTIVE,
                .reason = repl_phase(r) == PHASE_ACTIVE ? "" : r->reason,
                .epoch = r->state->pos.epoch,
                .seq = r->state->pos.seq,
                .stable_seq = r->stable,
                .promised = r->persist_promised,
                .adopted = r->adopted,
                .ring = r->ring,
                .n_members = r->n_members,
                .waiting = r->n_requests + r->n_barriers,
                .founded = is_founded(r),
                .weak = r->choice.weak,
        };
        catchup_progress(r, &ret->progress);
        for (size_t i = 0; i < r->n_members; i++) {
                const struct member *m = &r->members[i];
                ret->members[i].node = m->id.node;
                ret->members[i].pid = m->id.pid;
                ret->members[i].synced = m->synced && r->epoch_active;
                ret->members[i].expelled = !m->in_round;
                ret->members[i].acked_seq = m->acked;
                ret->members[i].acked_medium = m->medium;
        }
}
