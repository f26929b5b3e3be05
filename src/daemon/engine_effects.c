/* engine_effects.c: carrying out what a step asked for, in its order, as the runner and without locks; and events of the transport. */
#include "engine_internal.h"

#include "base/log.h"
#include <string.h>

/* --- sending */

static void keep_unsent(struct engine *e, const struct iovec *iov, int n) {
        size_t len = 0, at = 0;
        for (int i = 0; i < n; i++)
                len += iov[i].iov_len;
        struct message *m = xmalloc(sizeof(*m) + len);
        m->next = NULL;
        m->len = len;
        for (int i = 0; i < n; i++) {
                memcpy(m->data + at, iov[i].iov_base, iov[i].iov_len);
                at += iov[i].iov_len;
        }
        *e->unsent_tail = m;
        e->unsent_tail = &m->next;
}

void effects_drop_unsent(struct engine *e) {
        while (e->unsent) {
                struct message *m = e->unsent;
                e->unsent = m->next;
                free(m);
        }
        e->unsent_tail = &e->unsent;
}

static void post_plain(struct engine *e, enum repl_event_kind kind) {
        struct event *ev = event_new(EVENT_REPL, 0);
        ev->repl.kind = kind;
        engine_post(e, ev, false);
}

static void effect_send(struct engine *e, const struct repl_effect *f) {
        struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)f->send.data, .iov_len = f->send.len},
                               {.iov_base = (void *)(uintptr_t)f->send.data2, .iov_len = f->send.len2}};
        int n = f->send.len2 > 0 ? 2 : 1;

        if (e->unsent) {
                keep_unsent(e, iov, n);
                return;
        }
        errint_t error = e->net->ops->send(e->net, iov, n);
        if (error == 0) {
                metric_add(e->config.metrics, METRIC_MESSAGES_SENT, 1);
        } else if (error == -EAGAIN) {
                keep_unsent(e, iov, n);
                post_plain(e, REPL_BUSY);
        } else if (error != -ENOTCONN) { /* a message into a closed connection is lost, as in any view change */
                log_error("transport refused a message of %zu bytes: %s", f->send.len + f->send.len2, strerror(-error));
        }
}

void effects_resend(struct engine *e, void *ctx) {
        (void)ctx;
        if (!e->unsent)
                return;
        while (e->unsent) {
                struct message *m = e->unsent;
                errint_t error = e->net->ops->send(e->net, &(struct iovec){.iov_base = m->data, .iov_len = m->len}, 1);
                if (error == -EAGAIN)
                        return;
                if (error == 0)
                        metric_add(e->config.metrics, METRIC_MESSAGES_SENT, 1);
                if (!(e->unsent = m->next))
                        e->unsent_tail = &e->unsent;
                free(m);
        }
        post_plain(e, REPL_SENT);
}

/* --- operations */

static void count_operation(struct engine *e, const struct repl_effect *f) {
        struct metrics *m = e->config.metrics;

        metric_add(m, METRIC_OPERATIONS, 1);
        if (f->commit.result.error < 0)
                metric_add(m, METRIC_OPERATIONS_REFUSED, 1);
        else if (f->commit.op->kind == OP_WRITE || f->commit.op->kind == OP_ADOPT)
                metric_add(m, METRIC_CONTENT_OPERATIONS, 1);
}

/* Content goes to the disk here. Without the state's lock, under which readers would wait for that: what the store needs to know is in the
 * change set, and of the state in its position and checksum, which the runner alone moves. */
static errint_t append(struct engine *e, const struct repl_effect *f) {
        struct store *store = e->config.store;
        struct store_record record = {.pos = f->commit.pos,
                                      .op = f->commit.op,
                                      .head = f->commit.head,
                                      .head_len = f->commit.head_len,
                                      .changes = f->commit.changes,
                                      .state = e->shared};

        return store->ops->append(store, &record);
}

static void effect_commit(struct engine *e, const struct repl_effect *f) {
        count_operation(e, f);
        if (e->hooks.changed)
                e->hooks.changed(e->hooks.ctx, f->commit.changes, f->commit.pos.seq, f->commit.local);
        atomic_store(&e->appended_seq, f->commit.pos.seq);
        if (atomic_load(&e->failed))
                return;
        errint_t error = append(e, f); /* in trouble too: the store keeps track of what a rescue has to bring home */
        if (error < 0 && !atomic_load(&e->troubled))
                engine_trouble(e, error, "append to the log");
}

static void effect_invalidate(struct engine *e, const struct repl_effect *f) {
        if (e->hooks.invalidate)
                e->hooks.invalidate(e->hooks.ctx, f->commit.changes, f->commit.pos.seq, f->commit.local);
        else
                engine_invalidated(e, f->commit.pos.seq);
}

static void effect_reply(struct engine *e, const struct repl_effect *f) {
        struct request *q = g_hash_table_lookup(e->requests, &f->reply.token);

        POST(q != NULL); /* one reply per request */
        g_hash_table_remove(e->requests, &f->reply.token);
        engine_finish(e, q, &f->reply.result);
}

static void effect_role(struct engine *e, const struct repl_effect *f) {
        atomic_store(&e->accepts, f->role.primary || f->role.settling);
        if (f->role.primary)
                log_info("primary: epoch %llu", (unsigned long long)f->role.epoch);
        else if (f->role.settling)
                log_debug("requests wait: %s", f->role.reason);
        else
                log_notice("read-only: %s", f->role.reason);
        if (e->hooks.role)
                e->hooks.role(e->hooks.ctx, f->role.primary, f->role.reason);
}

static void effect_leave(struct engine *e) {
        e->net->ops->leave(e->net);
        engine_lock(e);
        e->left = true;
        (void)pthread_cond_broadcast(&e->quiet_cond);
        engine_unlock(e);
}

static void effect_conflict(struct engine *e, const struct repl_effect *f) {
        metric_add(e->config.metrics, METRIC_CONFLICTS, 1);
        log_warning("conflict: operation (%llu, %llu), %zu bytes, is not in the history of the cluster",
                    (unsigned long long)f->conflict.pos.epoch, (unsigned long long)f->conflict.pos.seq,
                    f->conflict.head_len + f->conflict.payload.len);
}

static void effect_run(struct engine *e, const struct repl_effect *f) {
        switch (f->kind) {
        case EFFECT_SEND:
                effect_send(e, f);
                break;
        case EFFECT_COMMIT:
                effect_commit(e, f);
                break;
        case EFFECT_INVALIDATE:
                effect_invalidate(e, f);
                break;
        case EFFECT_FLUSH:
                engine_want_barrier(e, f->flush.seq);
                break;
        case EFFECT_PERSIST:
                engine_persist(e, f);
                break;
        case EFFECT_REPLY:
                effect_reply(e, f);
                break;
        case EFFECT_ARM:
                timer_arm(e, f->arm.id, f->arm.at_ms);
                break;
        case EFFECT_READ_LOG:
                engine_read_log(e, f->read_log.tag, f->read_log.from_seq, f->read_log.to_seq);
                break;
        case EFFECT_REPLACE:
                engine_replace(e, f);
                break;
        case EFFECT_ROLE:
                effect_role(e, f);
                break;
        case EFFECT_CONFLICT:
                effect_conflict(e, f);
                break;
        case EFFECT_LEAVE:
                effect_leave(e);
                break;
        case EFFECT_FATAL:
                log_error("%s", f->text.text);
                if (e->hooks.fatal)
                        e->hooks.fatal(e->hooks.ctx, f->text.text);
                break;
        case EFFECT_LOG:
                log_at((enum log_level)f->text.level, "%s", f->text.text);
                break;
        case EFFECT_TRACE:
                if (e->config.trace)
                        trace_at(e->config.trace, env_monotonic_ns(e->config.env), "%s", f->text.text);
                break;
        }
}

void effects_run(struct engine *e, const struct repl_effects *effects) {
        bool doubt = false;

        for (size_t i = 0; i < effects->n; i++) {
                effect_run(e, &effects->items[i]);
                doubt |= effects->items[i].kind == EFFECT_REPLY && effects->items[i].reply.result.error == -EIO;
        }
        /* The kernel takes a failed operation for one that did not happen, and is not told of its own ones: but this one may have, or may
         * yet. */
        if (doubt && e->hooks.invalidate_all)
                e->hooks.invalidate_all(e->hooks.ctx, NULL);
}

/* --- the transport's callbacks: hand over and return */

static void net_deliver(void *ctx, struct net_member sender, const void *data, size_t len) {
        struct engine *e = ctx;
        struct event *ev = event_new(EVENT_REPL, len);

        metric_add(e->config.metrics, METRIC_MESSAGES_DELIVERED, 1);
        memcpy(ev->data, data, len);
        ev->repl.kind = REPL_DELIVER;
        ev->repl.deliver.sender = (struct repl_member){.node = sender.node, .pid = sender.pid};
        ev->repl.deliver.data = ev->data;
        ev->repl.deliver.len = len;
        engine_post(e, ev, false);
}

static void net_view(void *ctx, struct net_ring ring, const struct net_member *members, size_t n) {
        struct engine *e = ctx;
        size_t kept = MIN_OF(n, REPL_MEMBERS_MAX);
        struct event *ev = event_new(EVENT_REPL, kept * sizeof(struct repl_member));
        struct repl_member *to = (struct repl_member *)(void *)ev->data;

        engine_meet_node(e);
        metric_add(e->config.metrics, METRIC_VIEW_CHANGES, 1);
        if (kept < n)
                log_error("the group has %zu members; at most %u are supported, the rest is not seen", n, REPL_MEMBERS_MAX);
        for (size_t i = 0; i < kept; i++)
                to[i] = (struct repl_member){.node = members[i].node, .pid = members[i].pid};
        ev->repl.kind = REPL_VIEW;
        ev->repl.view.ring = (struct repl_ring){.node = ring.node, .seq = ring.seq};
        ev->repl.view.members = to;
        ev->repl.view.n = kept;
        engine_post(e, ev, false);
}

static void net_quorum(void *ctx, const struct net_quorum *q) {
        struct engine *e = ctx;
        struct event *ev = event_new(EVENT_REPL, q->n_nodes * sizeof(uint32_t));

        engine_meet_node(e);
        if (q->n_nodes > 0)
                memcpy(ev->data, q->nodes, q->n_nodes * sizeof(uint32_t));
        ev->repl.kind = REPL_QUORUM;
        ev->repl.quorum.ring = (struct repl_ring){.node = q->ring.node, .seq = q->ring.seq};
        ev->repl.quorum.quorate = q->quorate;
        ev->repl.quorum.nodes = (const uint32_t *)(const void *)ev->data;
        ev->repl.quorum.n_nodes = q->n_nodes;
        ev->repl.quorum.expected_votes = q->expected_votes;
        ev->repl.quorum.total_votes = q->total_votes;
        ev->repl.quorum.weak = q->weak;
        ev->repl.quorum.node_votes = q->node_votes;
        ev->repl.quorum.quorum_votes = q->quorum_votes;
        ev->repl.quorum.device_votes = q->device_votes;
        engine_post(e, ev, false);
}

static void net_writable(void *ctx) {
        engine_post_call(ctx, effects_resend, NULL);
}

static void closed_call(struct engine *e, void *ctx) {
        (void)ctx;
        effects_drop_unsent(e);
}

static void net_closed(void *ctx, const char *reason) {
        log_warning("the transport is gone: %s", reason);
        engine_post_call(ctx, closed_call, NULL);
        post_plain(ctx, REPL_CLOSED);
}

struct net_handler engine_net_handler(struct engine *e) {
        return (struct net_handler){
                .deliver = net_deliver, .view = net_view, .quorum = net_quorum, .writable = net_writable, .closed = net_closed, .ctx = e};
}
