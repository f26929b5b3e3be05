/* explore.c: random schedules over the real machine: deliveries, requests, views with different tails, killed daemons and power cuts,
 * hanging disks, expulsions. After each schedule the faults end and the cluster has to converge. Checked by what callers were told, not by
 * what the machine thinks. The seed decides everything.
 *
 * EXPLORE_RUNS and EXPLORE_SEED in the environment make it longer, or repeat one. */
#include "harness.h"

#include "suites.h"
#include "transfer.h"

#include <stdio.h>

#define OPS_MAX 4000

struct xop {
        size_t node;
        uint64_t token;
        bool answered;
        int32_t error;
        uint8_t applied; /* bit per node: in what that node had applied, as far as its disk kept it */
        bool conflict;
};
struct xdisk {
        struct state written, medium; /* what a killed daemon, or a power cut, leaves */
};
struct explorer {
        uint64_t rng;
        struct hcluster c;
        struct xop ops[OPS_MAX];
        size_t n_ops;
        struct xdisk disks[HNODES];
        bool up[HNODES];
        unsigned weights[12];
        bool power, strict, late_notices, lost_heads;
        struct {
                bool open;
                struct repl_ring ring;
                bool quorate;
                size_t votes;
        } notices[HNODES];    /* on their way */
        uint8_t lost[HNODES]; /* bit: of this sender's next messages this node misses one */
        size_t acked, primaries, replaces, expels;
        char what[160]; /* the violation */
};

static uint64_t rnd(struct explorer *x, uint64_t n) {
        uint64_t z = x->rng += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return (z ^ (z >> 31)) % n;
}

static void violated(struct explorer *x, const char *what, size_t node, size_t op) {
        if (!x->what[0])
                snprintf(x->what, sizeof(x->what), "%s: node %zu, operation %zu", what, node + 1, op);
}

/* --- disks */
static void state_copy(struct state *to, const struct state *from) {
        CLEANUP(capture_freep) struct capture *c = NULL;
        CLEANUP(enc_done) struct enc e;
        struct transfer_begin b;
        char fault[160];
        enc_init(&e, WIRE_BODY_MAX);
        ck_assert_int_eq(capture_take(from, 0, &c), 0);
        ck_assert_int_eq(capture_object(c, OBJECT_BEGIN, 0, TRANSFER_BY_DIFFERENCE, &e), 0);
        ck_assert_int_eq(transfer_begin_decode(e.data, e.len, &b), 0);
        state_done(to);
        ck_assert_msg(capture_build(c, &b, e.data, e.len, 7, to, fault, sizeof(fault)) == 0, "%s", fault);
}

/* Brings a copy up to seq from the node's log. */
static void state_follow(struct hnode *n, struct state *s, uint64_t seq) {
        struct change_set changes;
        change_set_init(&changes);
        for (size_t k = 0; k < n->n_log && s->pos.seq < seq; k++) {
                const struct hlog *l = &n->log[k];
                struct op op;
                void *scratch = NULL;
                struct op_result result;
                if (l->pos.seq != s->pos.seq + 1)
                        continue;
                ck_assert_int_eq(op_decode(l->op->bytes + l->op->head_at, l->op->head_len, l->op->bytes + l->op->payload_at,
                                           l->op->payload_len, &op, &scratch),
                                 0);
                ck_assert_int_eq(state_apply(s, l->pos.epoch, &op, l->op->bytes + l->op->head_at, l->op->head_len, &changes, &result), 0);
                free(scratch);
        }
        change_set_done(&changes);
}

/* Which of our operations: the number in the name of the file it creates; OPS_MAX: none. */
static size_t op_of(const struct op *op) {
        char name[24] = "";
        size_t k = OPS_MAX;
        if (op->kind == OP_CREATE) {
                memcpy(name, op->create.name.text, MIN_OF(op->create.name.len, sizeof(name) - 1));
                (void)sscanf(name, "o%zu", &k);
        }
        return k;
}

static void on_effect(struct hcluster *c, size_t i, const struct repl_effect *f) {
        struct explorer *x = c->hooks.ctx;
        if (f->kind == EFFECT_COMMIT) {
                size_t k = op_of(f->commit.op);
                if (k < x->n_ops && f->commit.result.error == 0)
                        x->ops[k].applied |= (uint8_t)(1u << i);
                if (k < x->n_ops && f->commit.result.error == -EEXIST)
                        violated(x, "applied twice", i, k);
        } else if (f->kind == EFFECT_REPLY) {
                for (size_t k = 0; k < x->n_ops; k++) {
                        if (x->ops[k].token != f->reply.token || x->ops[k].node != i)
                                continue;
                        if (x->ops[k].answered)
                                violated(x, "answered twice", i, k);
                        x->ops[k].answered = true;
                        x->ops[k].error = f->reply.result.error;
                        x->acked += f->reply.result.error == 0;
                        if (f->reply.result.error != 0 && f->reply.result.error != -EROFS && f->reply.result.error != -EIO)
                                violated(x, "a strange answer", i, k);
                }
        } else if (f->kind == EFFECT_CONFLICT) {
                struct op op;
                void *scratch = NULL;
                ck_assert_int_eq(
                        op_decode(f->conflict.head, f->conflict.head_len, f->conflict.payload.data, f->conflict.payload.len, &op, &scratch),
                        0);
                size_t k = op_of(&op);
                if (k < x->n_ops)
                        x->ops[k].conflict = true;
                free(scratch);
        } else if (f->kind == EFFECT_REPLACE) {
                x->replaces++;
                for (size_t k = 0; k < x->n_ops; k++) {
                        char name[24];
                        snprintf(name, sizeof(name), "o%zu", k);
                        x->ops[k].applied = (uint8_t)((x->ops[k].applied & ~(1u << i)) | (hc_has(c, i, name) ? 1u << i : 0));
                }
        } else if (f->kind == EFFECT_ROLE && f->role.primary) {
                x->primaries++;
                for (size_t k = 0; k < x->n_ops; k++) {
                        char name[24];
                        snprintf(name, sizeof(name), "o%zu", k);
                        if (x->ops[k].answered && x->ops[k].error == 0 && !hc_has(c, i, name))
                                violated(x, "an epoch without an acknowledged operation", i, k);
                        if (x->ops[k].answered && x->ops[k].error == -EROFS && hc_has(c, i, name))
                                violated(x, "refused, yet applied", i, k);
                }
        }
}

static void on_event(struct hcluster *c, size_t i, const struct hevent *e) {
        struct explorer *x = c->hooks.ctx;
        struct hnode *n = &c->nodes[i];
        struct xdisk *d = &x->disks[i];
        switch (e->ev.kind) {
        case REPL_WRITTEN:
                state_follow(n, &d->written, e->ev.seq.seq);
                break;
        case REPL_FLUSHED:
                state_follow(n, &d->written, e->ev.seq.seq);
                state_follow(n, &d->medium, e->ev.seq.seq);
                break;
        case REPL_PERSISTED:
                if (e->replaced) {
                        state_copy(&d->written, &n->state);
                        state_copy(&d->medium, &n->state);
                } else if (e->adopted) { /* behind everything that was committed before */
                        state_follow(n, &d->written, n->state.pos.seq);
                        state_follow(n, &d->medium, n->state.pos.seq);
                }
                break;
        default:
                break;
        }
}

/* --- what can happen */
static void deliver_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (x->up[i])
                (void)hc_deliver(&x->c, i);
}
static void event_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (x->up[i])
                (void)hc_event(&x->c, i);
}
static void request_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (!x->up[i] || x->n_ops == OPS_MAX || (!x->c.nodes[i].primary && rnd(x, 8) != 0))
                return;
        char name[24];
        snprintf(name, sizeof(name), "o%zu", x->n_ops);
        x->ops[x->n_ops++] = (struct xop){.node = i, .token = x->c.next_token};
        (void)hc_mkdir(&x->c, i, name);
}
static void barrier_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (x->up[i])
                (void)hc_barrier(&x->c, i);
}
static void time_passes(struct explorer *x) {
        x->c.now += 1 + rnd(x, 150);
        for (size_t i = 0; i < x->c.n; i++) {
                struct hnode *n = &x->c.nodes[i];
                if (!x->up[i] || !n->timer_at || n->timer_at > x->c.now)
                        continue;
                n->timer_at = 0;
                hc_step(&x->c, i, &(struct repl_event){.kind = REPL_TIMER, .timer = {.id = 1}});
        }
}

static void kill_node(struct explorer *x, size_t i, bool power) {
        struct hnode *n = &x->c.nodes[i];
        hc_crash(&x->c, i);
        x->up[i] = n->busy = x->notices[i].open = false;
        struct state *from = power ? &x->disks[i].medium : &x->disks[i].written;
        if (from->pos.seq != n->state.pos.seq || !hash128_equal(from->history, n->state.history)) {
                while (n->n_log > 0 && n->log[n->n_log - 1].pos.seq > from->pos.seq)
                        opbuf_unref(n->log[--n->n_log].op);
                state_copy(&n->state, from);
        }
        if (power) {
                state_copy(&x->disks[i].written, from);
                n->forgetful = true;
        }
        for (size_t k = 0; k < x->n_ops; k++) {
                char name[24];
                snprintf(name, sizeof(name), "o%zu", k);
                if (!hc_has(&x->c, i, name))
                        x->ops[k].applied &= (uint8_t) ~(1u << i);
                if (x->ops[k].node == i && !x->ops[k].answered) { /* nobody is left to be told */
                        x->ops[k].answered = true;
                        x->ops[k].error = -EIO;
                }
        }
}

static bool forgetful_somewhere(const struct explorer *x) {
        for (size_t i = 0; i < x->c.n; i++)
                if (x->c.nodes[i].forgetful)
                        return true;
        return false;
}

static void crash_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (!x->up[i]) {
                x->up[i] = true;
                hc_boot(&x->c, i);
        } else {
                kill_node(x, i, x->power && !forgetful_somewhere(x) && rnd(x, 2));
        }
}

static void notice_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        if (!x->up[i])
                return;
        if (x->notices[i].open) {
                x->notices[i].open = false;
                hc_quorum(&x->c, i, x->notices[i].ring, x->notices[i].quorate, x->notices[i].votes);
        } else if (x->late_notices && x->c.nodes[i].view && rnd(x, 4) == 0) { /* the verdict changes within the ring, for all, and back */
                struct hview *v = x->c.nodes[i].view;
                for (size_t k = 0; k < v->n; k++)
                        if (x->c.nodes[v->members[k]].view == v)
                                hc_quorum(&x->c, v->members[k], v->ring, false, v->n);
                for (size_t k = 0; k < v->n; k++)
                        if (x->c.nodes[v->members[k]].view == v) {
                                x->notices[v->members[k]].open = true;
                                x->notices[v->members[k]].ring = v->ring;
                                x->notices[v->members[k]].quorate = 2 * v->n > x->c.n;
                                x->notices[v->members[k]].votes = v->n;
                        }
        }
}

static bool drop_message(struct hcluster *c, size_t from, size_t to, const struct wire_header *h) {
        struct explorer *x = c->hooks.ctx;
        (void)h;
        if (!(x->lost[to] & 1u << from))
                return false;
        x->lost[to] &= (uint8_t) ~(1u << from);
        return from != to;
}

static void busy_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        struct hnode *n = &x->c.nodes[i];
        if (!x->up[i])
                return;
        n->busy = !n->busy;
        hc_step(&x->c, i, &(struct repl_event){.kind = n->busy ? REPL_BUSY : REPL_SENT});
}

/* Operations that nobody counts: they make states differ, and travel in pieces. */
static void fill_some(struct explorer *x) {
        size_t i = rnd(x, x->c.n);
        struct hnode *n = &x->c.nodes[i];
        if (!x->up[i])
                return;
        char name[24];
        snprintf(name, sizeof(name), "f%u", (unsigned)rnd(x, 5));
        uint64_t ino;
        if (tree_lookup(n->state.tree, INO_ROOT, name, strlen(name), &ino) < 0) {
                (void)hc_mkdir(&x->c, i, name);
        } else if (rnd(x, 3) == 0) {
                (void)hc_unlink(&x->c, i, name);
        } else {
                size_t len = 1 + rnd(x, rnd(x, 4) ? 2000 : 200000);
                uint8_t *data = malloc(len);
                memset(data, (int)rnd(x, 256), len);
                (void)hc_write(&x->c, i, ino, data, len);
                free(data);
        }
}

/* Views: those who move together deliver one common tail; behind its end only what they sent themselves. */
static void move_group(struct explorer *x, const size_t *group, size_t n) {
        struct hview *old = x->c.nodes[group[0]].view;
        size_t low = 0;
        for (size_t k = 0; k < n; k++) {
                low = MAX_OF(low, x->c.nodes[group[k]].at);
                x->c.nodes[group[k]].draining = !x->strict;
        }
        size_t end = old->n_queue, cut = low + rnd(x, end - low + 1);
        for (size_t k = 0; k < n; k++) {
                struct hnode *node = &x->c.nodes[group[k]];
                for (size_t at = node->at; at < end; at++) {
                        bool own = false;
                        for (size_t j = 0; j < n; j++)
                                own = own || old->queue[at].from == group[j];
                        if (at < cut || own)
                                hc_deliver_at(&x->c, group[k], at);
                }
                node->at = end;
        }
}

static void new_view(struct explorer *x, const size_t *part, size_t n) {
        for (size_t k = 0; k < n; k++) {
                struct hview *old = x->c.nodes[part[k]].view;
                size_t group[HNODES], n_group = 0;
                bool first = old != NULL;
                for (size_t j = 0; j < n; j++)
                        if (x->c.nodes[part[j]].view == old) {
                                first = first && (j >= k);
                                group[n_group++] = part[j];
                        }
                if (first)
                        move_group(x, group, n_group);
        }
        struct repl_ring ring = {.node = x->c.nodes[part[0]].node, .seq = x->c.ring + 4}; /* the ring to come */
        uint8_t told = 0;
        for (size_t k = 0; k < n; k++) {
                if (x->late_notices && rnd(x, 4) == 0) { /* early */
                        hc_quorum(&x->c, part[k], ring, 2 * n > x->c.n, n);
                        told |= (uint8_t)(1u << part[k]);
                }
                if (x->lost_heads && rnd(x, 8) == 0)
                        x->lost[part[k]] = (uint8_t)(1u << rnd(x, x->c.n));
        }
        struct hview *v = hc_view_bare(&x->c, part, n);
        for (size_t k = 0; k < n; k++) {
                x->notices[part[k]].open = !(told & 1u << part[k]);
                x->notices[part[k]].ring = v->ring;
                x->notices[part[k]].quorate = 2 * n > x->c.n;
                x->notices[part[k]].votes = n;
                if (!x->late_notices && x->notices[part[k]].open) {
                        x->notices[part[k]].open = false;
                        hc_quorum(&x->c, part[k], v->ring, 2 * n > x->c.n, n);
                }
        }
}

static void view_some(struct explorer *x) {
        size_t ids[HNODES], n = 0;
        for (size_t i = 0; i < x->c.n; i++)
                if (x->up[i])
                        ids[n++] = i;
        for (size_t i = n; i > 1; i--) {
                size_t j = rnd(x, i), swap = ids[i - 1];
                ids[i - 1] = ids[j];
                ids[j] = swap;
        }
        size_t k = (const size_t[]){0, 0, 1, 1, 2}[rnd(x, 5)];
        k = MIN_OF(k, n);
        if (k > 0)
                new_view(x, ids, k);
        if (n > k)
                new_view(x, ids + k, n - k);
}

static void trouble_some(struct explorer *x) {
        struct hnode *n = &x->c.nodes[rnd(x, x->c.n)];
        n->hold_invalidated = rnd(x, 4) == 0;  /* the kernel hangs: its acknowledgements stop */
        n->log_from = rnd(x, 2) ? 0 : 1000000; /* its log does not reach back */
}

static void step(struct explorer *x) {
        static void (*const acts[])(struct explorer *) = {deliver_some, event_some,   request_some, time_passes, crash_some, view_some,
                                                          trouble_some, barrier_some, notice_some,  busy_some,   fill_some};
        unsigned total = 0;
        for (size_t k = 0; k < ARRAY_LEN(acts); k++)
                total += x->weights[k];
        uint64_t pick = rnd(x, total);
        for (size_t k = 0; k < ARRAY_LEN(acts); k++) {
                if (pick < x->weights[k]) {
                        acts[k](x);
                        return;
                }
                pick -= x->weights[k];
        }
}

/* Faults are over: everything has to come together. */
static void converge(struct explorer *x) {
        size_t all[HNODES];
        for (size_t i = 0; i < x->c.n; i++) {
                all[i] = i;
                x->c.nodes[i].hold_invalidated = false;
                if (x->up[i]) /* a kernel that hung answers */
                        hc_step(&x->c, i, &(struct repl_event){.kind = REPL_INVALIDATED, .seq = {x->c.nodes[i].state.pos.seq}});
                else {
                        x->up[i] = true;
                        hc_boot(&x->c, i);
                }
        }
        x->late_notices = x->lost_heads = false;
        memset(x->lost, 0, sizeof(x->lost));
        for (size_t i = 0; i < x->c.n; i++)
                if (x->c.nodes[i].busy) {
                        x->c.nodes[i].busy = false;
                        hc_step(&x->c, i, &(struct repl_event){.kind = REPL_SENT});
                }
        new_view(x, all, x->c.n);
        hc_tick(&x->c, 12000);
        for (size_t i = 0; i < x->c.n; i++)
                if (!x->c.nodes[i].primary && !x->what[0])
                        snprintf(x->what, sizeof(x->what), "node %zu does not come back: %s", i + 1, x->c.nodes[i].reason);
        for (size_t i = 1; i < x->c.n && !x->what[0]; i++)
                if (x->c.nodes[i].state.pos.seq != x->c.nodes[0].state.pos.seq ||
                    !hash128_equal(state_digest(&x->c.nodes[i].state), state_digest(&x->c.nodes[0].state)))
                        violated(x, "states differ", i, 0);
        for (size_t k = 0; k < x->n_ops && !x->what[0]; k++) {
                char name[24];
                snprintf(name, sizeof(name), "o%zu", k);
                bool there = hc_has(&x->c, 0, name);
                if (!x->ops[k].answered)
                        violated(x, "never answered", x->ops[k].node, k);
                else if (x->ops[k].error == 0 && !there)
                        violated(x, "acknowledged and lost", x->ops[k].node, k);
                else if (x->ops[k].error == -EROFS && there)
                        violated(x, "refused, yet applied", x->ops[k].node, k);
                else if (!there && x->ops[k].applied && !x->ops[k].conflict)
                        violated(x, "applied, gone, and no conflict record", x->ops[k].node, k);
        }
}

static void explore_one(uint64_t seed, size_t totals[4]) {
        struct explorer *x = calloc(1, sizeof(*x));
        x->rng = seed;
        size_t n = (const size_t[]){3, 3, 4, 5}[rnd(x, 4)];
        x->power = rnd(x, 3) == 0;
        x->strict = rnd(x, 2);
        x->late_notices = rnd(x, 3) == 0;
        x->lost_heads = rnd(x, 3) == 0;
        const unsigned weights[12] = {(const unsigned[]){200, 400, 620}[rnd(x, 3)],
                                      (const unsigned[]){100, 300, 600}[rnd(x, 3)],
                                      (const unsigned[]){50, 180, 400}[rnd(x, 3)],
                                      (const unsigned[]){20, 60}[rnd(x, 2)],
                                      (const unsigned[]){0, 6, 20}[rnd(x, 3)],
                                      (const unsigned[]){5, 20, 60}[rnd(x, 3)],
                                      (const unsigned[]){0, 10}[rnd(x, 2)],
                                      (const unsigned[]){0, 20}[rnd(x, 2)],
                                      x->late_notices ? 60 : 0,
                                      (const unsigned[]){0, 0, 10}[rnd(x, 3)],
                                      (const unsigned[]){0, 60}[rnd(x, 2)]};
        memcpy(x->weights, weights, sizeof(weights));
        hc_init(&x->c, n);
        x->c.drop = drop_message;
        x->c.hooks = (struct hhooks){.effect = on_effect, .event = on_event, .ctx = x};
        for (size_t i = 0; i < n; i++) {
                state_init(&x->disks[i].written);
                state_init(&x->disks[i].medium);
                x->up[i] = true;
                hc_boot(&x->c, i);
        }
        view_some(x);
        size_t steps = (const size_t[]){600, 1500, 3000}[rnd(x, 3)];
        for (size_t k = 0; k < steps && !x->what[0]; k++)
                step(x);
        if (!x->what[0])
                converge(x);
        totals[0] += x->acked;
        totals[1] += x->primaries;
        totals[2] += x->replaces;
        totals[3] += x->n_ops;
        ck_assert_msg(!x->what[0], "seed %llu: %s", (unsigned long long)seed, x->what);
        for (size_t i = 0; i < n; i++) {
                state_done(&x->disks[i].written);
                state_done(&x->disks[i].medium);
        }
        hc_done(&x->c);
        free(x);
}

START_TEST(random_schedules) {
        const char *runs_text = getenv("EXPLORE_RUNS"), *seed_text = getenv("EXPLORE_SEED");
        unsigned long long runs = runs_text ? strtoull(runs_text, NULL, 10) : 150, first = seed_text ? strtoull(seed_text, NULL, 10) : 1;
        size_t totals[4] = {0};
        for (unsigned long long seed = first; seed < first + runs; seed++)
                explore_one(seed, totals);
        printf("%llu schedules: %zu operations, %zu acknowledged, %zu times primary, %zu states taken over\n", runs, totals[3], totals[0],
               totals[1], totals[2]);
        ck_assert_uint_gt(totals[0], runs); /* a machine that acknowledges nothing loses nothing */
}
END_TEST

Suite *suite_explore(void) {
        Suite *s = suite_create("explore");
        TCase *t = tcase_create("explore");
        tcase_set_timeout(t, 0);
        tcase_add_test(t, random_schedules);
        suite_add_tcase(s, t);
        return s;
}
