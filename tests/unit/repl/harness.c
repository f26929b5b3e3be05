/* harness.c: see harness.h. */
#include "harness.h"

#include <stdio.h>
#include <sys/stat.h>

static const uint8_t cluster_id[16] = "test cluster id";

void hc_init(struct hcluster *c, size_t n) {
        *c = (struct hcluster){.n = n, .now = 1000, .next_token = 1, .next_incarnation = 100};
        for (size_t i = 0; i < n; i++) {
                struct hnode *x = &c->nodes[i];
                x->node = (uint32_t)i + 1;
                x->pid = 1000 + (uint32_t)i;
                x->events_tail = &x->events;
                state_init(&x->state);
                memcpy(x->cluster_id, cluster_id, sizeof(cluster_id));
        }
}

static void drop_events(struct hnode *x) {
        while (x->events) {
                struct hevent *e = x->events;
                x->events = e->next;
                opbuf_unref(e->op);
                free(e);
        }
        x->events_tail = &x->events;
}

static void drop_log(struct hnode *x) {
        for (size_t i = 0; i < x->n_log; i++)
                opbuf_unref(x->log[i].op);
        x->n_log = 0;
}

void hc_done(struct hcluster *c) {
        for (size_t i = 0; i < c->n; i++) {
                struct hnode *x = &c->nodes[i];
                repl_free(x->r);
                drop_events(x);
                drop_log(x);
                free(x->log);
                free(x->replies);
                for (size_t k = 0; k < x->n_later; k++)
                        free(x->later[k].data);
                free(x->later);
                opbuf_unref(x->conflict);
                state_done(&x->state);
        }
        while (c->views) {
                struct hview *v = c->views;
                c->views = v->next;
                for (size_t i = 0; i < v->n_queue; i++)
                        free(v->queue[i].data);
                free(v->queue);
                free(v);
        }
}

/* --- the driver */
static struct hevent *push_event(struct hnode *x, enum repl_event_kind kind) {
        struct hevent *e = calloc(1, sizeof(*e));
        e->ev.kind = kind;
        *x->events_tail = e;
        x->events_tail = &e->next;
        return e;
}

static void send_to_view(struct hcluster *c, size_t i, const struct repl_effect *f) {
        struct hnode *x = &c->nodes[i];
        x->n_sends++;
        if (!x->view)
                return;
        struct hmessage m = {.from = i, .len = f->send.len + f->send.len2};
        m.data = malloc(m.len);
        memcpy(m.data, f->send.data, f->send.len);
        if (f->send.len2)
                memcpy(m.data + f->send.len, f->send.data2, f->send.len2);
        if (x->draining) {
                x->later = realloc(x->later, (x->n_later + 1) * sizeof(*x->later));
                x->later[x->n_later++] = m;
                return;
        }
        struct hview *v = x->view;
        v->queue = realloc(v->queue, (v->n_queue + 1) * sizeof(*v->queue));
        v->queue[v->n_queue++] = m;
}

static void commit(struct hnode *x, const struct repl_effect *f) {
        x->n_commits++;
        ck_assert_uint_eq(f->commit.pos.seq, x->state.pos.seq);
        x->log = realloc(x->log, (x->n_log + 1) * sizeof(*x->log));
        x->log[x->n_log++] = (struct hlog){
                .pos = f->commit.pos,
                .op = opbuf_new(f->commit.head, f->commit.head_len, f->commit.op->payload.data, f->commit.op->payload.len),
        };
        if (!x->hold_written)
                push_event(x, REPL_WRITTEN)->ev.seq.seq = f->commit.pos.seq;
}

static void read_log(struct hnode *x, const struct repl_effect *f) {
        errint_t error = 0;
        if (x->n_log == 0 || x->log[0].pos.seq > f->read_log.from_seq || x->log_from > f->read_log.from_seq)
                error = -ENOENT;
        for (size_t i = 0; i < x->n_log && !error; i++) {
                const struct hlog *l = &x->log[i];
                if (l->pos.seq < f->read_log.from_seq || l->pos.seq > f->read_log.to_seq)
                        continue;
                struct hevent *e = push_event(x, REPL_LOG_PART);
                e->op = opbuf_ref(l->op);
                e->ev.log_part.tag = f->read_log.tag;
                e->ev.log_part.pos = l->pos;
                e->ev.log_part.head = l->op->bytes + l->op->head_at;
                e->ev.log_part.head_len = l->op->head_len;
                e->ev.log_part.payload = l->op->bytes + l->op->payload_at;
                e->ev.log_part.payload_len = l->op->payload_len;
        }
        struct hevent *e = push_event(x, REPL_LOG_PART);
        e->ev.log_part.tag = f->read_log.tag;
        e->ev.log_part.end = true;
        e->ev.log_part.error = error;
}

/* The store switches; answers about the old history are not given any more. */
static void replaced(struct hnode *x, const struct repl_effect *f) {
        x->n_replaces++;
        drop_log(x);
        for (struct hevent **p = &x->events; *p;) {
                struct hevent *e = *p;
                if (e->ev.kind == REPL_WRITTEN || e->ev.kind == REPL_FLUSHED || e->ev.kind == REPL_INVALIDATED) {
                        *p = e->next;
                        if (!e->next)
                                x->events_tail = p;
                        free(e);
                } else
                        p = &e->next;
        }
        struct hevent *done = push_event(x, REPL_PERSISTED);
        done->adopted = f->replace.adopted;
        done->replaced = true;
}

static void run_effect(struct hcluster *c, size_t i, const struct repl_effect *f) {
        struct hnode *x = &c->nodes[i];
        switch (f->kind) {
        case EFFECT_SEND:
                send_to_view(c, i, f);
                break;
        case EFFECT_COMMIT:
                commit(x, f);
                break;
        case EFFECT_INVALIDATE:
                if (!x->hold_invalidated)
                        push_event(x, REPL_INVALIDATED)->ev.seq.seq = f->commit.pos.seq;
                break;
        case EFFECT_FLUSH:
                x->n_flushes++;
                if (!x->hold_flushed)
                        push_event(x, REPL_FLUSHED)->ev.seq.seq = f->flush.seq;
                break;
        case EFFECT_PERSIST:
                x->n_persists++;
                if (f->persist.cluster_id)
                        memcpy(x->cluster_id, f->persist.cluster_id, 16);
                if (!x->hold_persisted) {
                        struct hevent *e = push_event(x, REPL_PERSISTED);
                        e->promised = f->persist.promised;
                        e->adopted = f->persist.adopted;
                }
                break;
        case EFFECT_REPLY:
                x->replies = realloc(x->replies, (x->n_replies + 1) * sizeof(*x->replies));
                x->replies[x->n_replies++] = (struct hreply){f->reply.token, f->reply.result, f->reply.pos};
                break;
        case EFFECT_ARM:
                x->timer_at = f->arm.at_ms;
                break;
        case EFFECT_READ_LOG:
                read_log(x, f);
                break;
        case EFFECT_REPLACE:
                replaced(x, f);
                break;
        case EFFECT_ROLE:
                x->primary = f->role.primary;
                x->settling = f->role.settling;
                x->reason = f->role.reason;
                x->epoch = f->role.epoch;
                break;
        case EFFECT_CONFLICT:
                x->n_conflicts++;
                opbuf_unref(x->conflict);
                x->conflict = opbuf_new(f->conflict.head, f->conflict.head_len, f->conflict.payload.data, f->conflict.payload.len);
                break;
        case EFFECT_LEAVE:
                x->left = true;
                break;
        case EFFECT_FATAL:
                x->fatal = true;
                break;
        case EFFECT_LOG:
                x->n_lines++;
                strncpy(x->last_line, f->text.text, sizeof(x->last_line) - 1);
                if (getenv("HARNESS_TRACE"))
                        fprintf(stderr, "%zu log  %s\n", i, f->text.text);
                break;
        case EFFECT_TRACE:
                if (getenv("HARNESS_TRACE"))
                        fprintf(stderr, "%zu move %s\n", i, f->text.text);
                break;
        }
}

void hc_step(struct hcluster *c, size_t i, const struct repl_event *ev) {
        struct hnode *x = &c->nodes[i];
        struct repl_event e = *ev;
        for (;;) {
                e.now_ms = c->now;
                struct repl_effects f = repl_step(x->r, &e);
                for (size_t k = 0; k < f.n; k++) {
                        if (c->hooks.effect)
                                c->hooks.effect(c, i, &f.items[k]);
                        run_effect(c, i, &f.items[k]);
                }
                if (!f.more)
                        break;
                e = (struct repl_event){.kind = REPL_MORE};
        }
}

void hc_config(struct hcluster *c, size_t i, struct repl_config *config) {
        struct hnode *x = &c->nodes[i];
        *config = (struct repl_config){
                .node = x->node,
                .incarnation = x->incarnation,
                .promised = x->promised,
                .adopted = x->adopted,
                .forgetful = x->forgetful,
                .ack_timeout_ms = 400,
                .forgetful_wait_ms = 60000,
                .read_only_grace_ms = 2000,
        };
        memcpy(config->cluster_id, x->cluster_id, 16);
}

void hc_boot(struct hcluster *c, size_t i) {
        struct hnode *x = &c->nodes[i];
        struct repl_config config;
        x->incarnation = ++c->next_incarnation;
        hc_config(c, i, &config);
        x->r = repl_new(&config, &x->state);
        hc_step(c, i, &(struct repl_event){.kind = REPL_START, .start = {.random = 7 + i}});
}

void hc_crash(struct hcluster *c, size_t i) {
        struct hnode *x = &c->nodes[i];
        repl_free(x->r);
        x->r = NULL;
        x->view = NULL;
        x->primary = false;
        x->timer_at = 0;
        x->draining = false;
        for (size_t k = 0; k < x->n_later; k++)
                free(x->later[k].data);
        x->n_later = 0;
        drop_events(x);
}

void hc_wipe(struct hcluster *c, size_t i) {
        struct hnode *x = &c->nodes[i];
        drop_log(x);
        state_done(&x->state);
        state_init(&x->state);
        memset(x->cluster_id, 0, sizeof(x->cluster_id));
        x->promised = x->adopted = 0;
        x->forgetful = true;
}

/* --- the group */
void hc_deliver_at(struct hcluster *c, size_t i, size_t at) {
        struct hnode *x = &c->nodes[i];
        struct hview *v = x->view;
        struct hmessage m = v->queue[at];
        struct wire_header h;
        const uint8_t *body;
        size_t len;
        if (c->drop && wire_decode(m.data, m.len, &h, &body, &len) == 0 && c->drop(c, m.from, i, &h))
                return;
        struct repl_event ev = {.kind = REPL_DELIVER};
        for (size_t k = 0; k < v->n; k++)
                if (v->members[k] == m.from)
                        ev.deliver.sender = v->ids[k];
        ev.deliver.data = m.data;
        ev.deliver.len = m.len;
        hc_step(c, i, &ev);
}

bool hc_deliver(struct hcluster *c, size_t i) {
        struct hnode *x = &c->nodes[i];
        if (!x->r || !x->view || x->at >= x->view->n_queue)
                return false;
        hc_deliver_at(c, i, x->at++);
        return true;
}

bool hc_event(struct hcluster *c, size_t i) {
        struct hnode *x = &c->nodes[i];
        struct hevent *e = x->events;
        if (!x->r || !e)
                return false;
        x->events = e->next;
        if (!x->events)
                x->events_tail = &x->events;
        if (e->ev.kind == REPL_PERSISTED) {
                if (e->promised)
                        x->promised = e->promised;
                if (e->adopted || e->replaced)
                        x->adopted = e->adopted;
        }
        if (c->hooks.event)
                c->hooks.event(c, i, e);
        hc_step(c, i, &e->ev);
        opbuf_unref(e->op);
        free(e);
        return true;
}

void hc_events(struct hcluster *c, size_t i) {
        while (hc_event(c, i))
                ;
}

void hc_settle(struct hcluster *c) {
        for (bool more = true; more;) {
                more = false;
                for (size_t i = 0; i < c->n; i++) {
                        more = hc_deliver(c, i) || c->nodes[i].events || more;
                        hc_events(c, i);
                }
        }
}

void hc_tick(struct hcluster *c, uint64_t ms) {
        uint64_t end = c->now + ms;
        hc_settle(c);
        while (c->now < end) {
                c->now += MIN_OF((uint64_t)10, end - c->now);
                for (size_t i = 0; i < c->n; i++) {
                        struct hnode *x = &c->nodes[i];
                        if (!x->r || !x->timer_at || x->timer_at > c->now)
                                continue;
                        x->timer_at = 0;
                        hc_step(c, i, &(struct repl_event){.kind = REPL_TIMER, .timer = {.id = 1}});
                }
                hc_settle(c);
        }
}

struct hview *hc_view_bare(struct hcluster *c, const size_t *members, size_t n) {
        struct hview *v = calloc(1, sizeof(*v));
        v->next = c->views;
        c->views = v;
        v->ring = (struct repl_ring){.node = c->nodes[members[0]].node, .seq = c->ring += 4};
        v->n = n;
        for (size_t k = 0; k < n; k++) {
                v->members[k] = members[k];
                v->ids[k] = (struct repl_member){c->nodes[members[k]].node, c->nodes[members[k]].pid};
        }
        for (size_t k = 0; k < n; k++) {
                struct hnode *x = &c->nodes[members[k]];
                x->view = v;
                x->at = 0;
                x->draining = false;
                v->queue = realloc(v->queue, (v->n_queue + x->n_later + 1) * sizeof(*v->queue));
                for (size_t j = 0; j < x->n_later; j++)
                        v->queue[v->n_queue++] = x->later[j];
                x->n_later = 0;
        }
        for (size_t k = 0; k < n; k++) {
                struct repl_event ev = {.kind = REPL_VIEW, .view = {.ring = v->ring, .members = v->ids, .n = n}};
                hc_step(c, members[k], &ev);
        }
        return v;
}

void hc_quorum(struct hcluster *c, size_t i, struct repl_ring ring, bool quorate, size_t votes) {
        struct repl_event ev = {
                .kind = REPL_QUORUM,
                .quorum = {.ring = ring, .quorate = quorate, .expected_votes = (uint32_t)c->n, .total_votes = (uint32_t)votes}};
        hc_step(c, i, &ev);
}

struct hview *hc_view(struct hcluster *c, const size_t *members, size_t n) {
        for (size_t k = 0; k < n; k++)
                while (hc_deliver(c, members[k]))
                        hc_events(c, members[k]);
        struct hview *v = hc_view_bare(c, members, n);
        for (size_t k = 0; k < n; k++)
                hc_quorum(c, members[k], v->ring, 2 * n > c->n, n);
        return v;
}

/* --- requests */
static uint64_t submit(struct hcluster *c, size_t i, struct op *op, struct op_payload payload) {
        struct hnode *x = &c->nodes[i];
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        op->origin = repl_next_origin(x->r);
        op->payload = payload;
        ck_assert_int_eq(op_encode_head(op, &e), 0);
        struct repl_event ev = {
                .kind = REPL_REQUEST,
                .request = {.kind = REQUEST_OPERATION, .token = c->next_token++, .head = e.data, .head_len = e.len, .payload = payload}};
        hc_step(c, i, &ev);
        return ev.request.token;
}

uint64_t hc_mkdir(struct hcluster *c, size_t i, const char *name) {
        struct op op = {.kind = OP_CREATE,
                        .time = {.sec = 1},
                        .create = {.parent = INO_ROOT, .name = {name, strlen(name)}, .mode = S_IFREG | 0644}};
        return submit(c, i, &op, (struct op_payload){0});
}

uint64_t hc_unlink(struct hcluster *c, size_t i, const char *name) {
        struct op op = {.kind = OP_UNLINK, .time = {.sec = 3}, .unlink = {.parent = INO_ROOT, .name = {name, strlen(name)}}};
        return submit(c, i, &op, (struct op_payload){0});
}

uint64_t hc_write(struct hcluster *c, size_t i, uint64_t ino, const void *p, size_t n) {
        struct extent extent = {.offset = 0, .length = n, .kind = EXTENT_DATA};
        struct op op = {
                .kind = OP_WRITE, .time = {.sec = 2}, .write = {.ino = ino, .keep = 0, .size = n, .extents = &extent, .n_extents = 1}};
        return submit(c, i, &op, (struct op_payload){.raw_len = n, .data = p, .len = n});
}

uint64_t hc_barrier(struct hcluster *c, size_t i) {
        struct repl_event ev = {.kind = REPL_REQUEST, .request = {.kind = REQUEST_BARRIER, .token = c->next_token++}};
        hc_step(c, i, &ev);
        return ev.request.token;
}

const struct hreply *hc_reply(const struct hcluster *c, size_t i, uint64_t token) {
        const struct hnode *x = &c->nodes[i];
        for (size_t k = 0; k < x->n_replies; k++)
                if (x->replies[k].token == token)
                        return &x->replies[k];
        return NULL;
}

bool hc_has(const struct hcluster *c, size_t i, const char *name) {
        uint64_t ino;
        return tree_lookup(c->nodes[i].state.tree, INO_ROOT, name, strlen(name), &ino) == 0;
}

void hc_alike(struct hcluster *c, const size_t *members, size_t n) {
        for (size_t k = 1; k < n; k++) {
                struct hnode *a = &c->nodes[members[0]], *b = &c->nodes[members[k]];
                ck_assert_uint_eq(a->state.pos.seq, b->state.pos.seq);
                ck_assert(hash128_equal(state_digest(&a->state), state_digest(&b->state)));
        }
}
