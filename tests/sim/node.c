/* node.c: the lives of nodes: power, daemon, disk; what corosync has for the daemon; the kernel's cache. */
#include "node.h"

#include "client.h"
#include "history.h"
#include "simnet.h"

#include <stdio.h>
#include <string.h>

void nodes_new(struct sim *s) {
        s->nodes = xcalloc(s->n, sizeof *s->nodes);
        for (unsigned i = 0; i < s->n; i++) {
                struct node *x = &s->nodes[i];

                x->sim = s;
                x->i = i;
                x->pids = 1000;
                x->events_tail = &x->events;
                x->unsent_tail = &x->unsent;
                x->input_tail = &x->input;
                x->requests = g_hash_table_new(g_int64_hash, g_int64_equal);
                x->cache = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
                if (s->config.store)
                        x->disk = simdisk_new(&(struct simdisk_config){.seed = sim_draw(s)});
                else
                        x->backing = store_backing_new();
        }
}

void nodes_free(struct sim *s) {
        for (unsigned i = 0; i < s->n; i++) {
                struct node *x = &s->nodes[i];

                if (x->up)
                        node_daemon_kill(x);
                g_hash_table_destroy(x->requests);
                g_hash_table_destroy(x->cache);
                simdisk_free(x->disk);
                store_backing_free(x->backing);
        }
        free(s->nodes);
}

void nodes_found_cluster(struct sim *s) {
        for (unsigned i = 0; i < s->n; i++)
                node_boot(&s->nodes[i]);
}

/* --- daemon */

static void open_cluster(struct node *x, struct store_loaded *loaded) {
        static const uint8_t none[CLUSTER_ID_SIZE];

        if (x->i != 0 || memcmp(loaded->cluster_id, none, sizeof none) != 0 || history_frontier(x->sim) > 0 || x->life > 1)
                return;
        memcpy(loaded->cluster_id, "simulated group", CLUSTER_ID_SIZE); /* `coterie cluster init` on the first node */
        POST(x->store->ops->set_cluster_id(x->store, loaded->cluster_id) == 0);
}

static void machine_start(struct node *x, const struct store_loaded *loaded) {
        struct sim *s = x->sim;
        struct pending_event *ev;
        bool forgetful = (loaded->unclean && loaded->boot_changed && s->level != LEVEL_FILE) || loaded->fresh;

        if (x->i == 0 && x->life == 1)
                forgetful = false; /* the founder */
        if (forgetful)
                sim_probe(s, PROBE_RESTART_FORGETFUL);
        x->repl_config = (struct repl_config){.node = x->i + 1,
                                              .incarnation = sim_draw(s) | 1,
                                              .promised = loaded->promised,
                                              .adopted = loaded->adopted,
                                              .forgetful = forgetful,
                                              .ack_timeout_ms = 3000,
                                              .forgetful_wait_ms = UINT64_MAX};
        memcpy(x->repl_config.cluster_id, loaded->cluster_id, sizeof x->repl_config.cluster_id);
        x->repl = repl_new(&x->repl_config, x->state);
        ev = driver_event(REPL_START, 0);
        ev->ev.start.random = sim_draw(s);
        driver_post(x, ev);
}

void node_daemon_start(struct node *x) {
        struct sim *s = x->sim;
        struct store_loaded loaded = {0};
        struct fs_config fs = {.metrics = &x->metrics, .gather_ms = 1000, .gather_bytes_max = 4 * MIB};
        bool power_cut = x->boot & 1; /* odd: the first start after power came back */
        errint_t e;

        if (!x->powered || x->up || !simnet_is_up(s, x->i))
                return;
        x->life++;
        /* Another seed in each life of each node: nothing that is seen may depend on it. Not drawn: seeds do what they did. */
        x->shared = shared_state_new(s->config.seed * 1000003 + x->i * 1009 + x->life);
        x->state = (struct state *)(uintptr_t)shared_state_read(x->shared);
        shared_state_done_read(x->shared);
        e = disk_open_store(x, &loaded);
        free(loaded.damaged);
        if (e < 0 || loaded.read_only) {
                if (e == 0)
                        x->store->ops->close(x->store);
                sim_trace(s, "node %u cannot open its store: %d %s", x->i + 1, e, loaded.reason);
                if (e != -EIO && e != -ENOSPC)
                        sim_violation(s, VERDICT_SAFETY, "restart", "node %u cannot open its store: %d %s", x->i + 1, e, loaded.reason);
                shared_state_free(x->shared);
                x->store = NULL;
                return;
        }
        x->up = true;
        x->paused = false;
        x->flushed = x->written = x->appended = x->state->pos.seq;
        history_start(x, &loaded, power_cut);
        x->boot &= ~UINT64_C(1);
        open_cluster(x, &loaded);
        fs.state = x->shared;
        driver_backend(x, &fs.backend);
        x->fs = fs_new(&fs);
        machine_start(x, &loaded);
        disk_start(x);
        sim_trace(s, "node %u daemon starts at seq %" G_GUINT64_FORMAT "%s", x->i + 1, x->state->pos.seq,
                  x->repl_config.forgetful ? ", forgetful" : "");
        driver_run(x);
        if (x->up)
                simnet_join(s, x->i, (uint32_t)++x->pids);
}

static void nothing(void *ctx) {
        (void)ctx;
}

/* The request layer is freed only when nothing is under way in it: whatever was asked is answered, to callers who are dead. */
static void drop_requests(struct node *x) {
        x->dying = true;
        for (struct pending_event *e = x->events; e; e = e->next)
                if (e->request) {
                        g_hash_table_insert(x->requests, &e->request->token, e->request);
                        e->request = NULL;
                }
        for (uint64_t token = 1; g_hash_table_size(x->requests) > 0; token++) { /* in an order that depends on nothing but the seed */
                struct request *q = g_hash_table_lookup(x->requests, &token);

                if (!q)
                        continue;
                g_hash_table_remove(x->requests, &token);
                q->done(q->ctx, &(struct op_result){.error = -EIO});
                request_free(q);
        }
        fs_shutdown(x->fs, nothing, NULL);
        fs_free(x->fs);
        x->dying = false;
}

/* The process is gone, with all that it had not written. */
static void forget_process(struct node *x) {
        x->up = false;
        x->life++;
        if (x->checkpoint_open)
                sim_probe(x->sim, PROBE_CRASH_IN_CHECKPOINT);
        drop_requests(x);
        clients_node_died(x);
        driver_clear(x);
        repl_free(x->repl);
        x->store->ops->close(x->store);
        shared_state_free(x->shared);
        x->fs = NULL;
        x->repl = NULL;
        x->store = NULL;
        x->state = NULL;
        cache_clear(x);
}

void node_daemon_kill(struct node *x) {
        if (!x->up)
                return;
        sim_trace(x->sim, "node %u daemon killed", x->i + 1);
        if (x->disk)
                simdisk_kill(x->disk); /* what close() would still write never reaches it */
        forget_process(x);
        simnet_leave(x->sim, x->i);
}

static void stop_now(struct node *x) {
        errint_t e;

        disk_finish(x);
        e = x->failed || x->troubled || x->checkpoint_open ? -EBUSY
                                                           : x->store->ops->checkpoint_prepare(x->store, x->state, CHECKPOINT_CLEAN_STOP);
        if (e == 0)
                e = x->store->ops->checkpoint_run(x->store);
        if (e == 0)
                history_flushed(x, x->state->pos.seq);
}

void node_daemon_stop(struct node *x) {
        if (!x->up || x->paused)
                return;
        sim_trace(x->sim, "node %u daemon stops", x->i + 1);
        driver_post(x, driver_event(REPL_STOP, 0));
        driver_run(x);
        stop_now(x);
        forget_process(x);
        simnet_leave(x->sim, x->i);
}

void node_daemon_pause(struct node *x, bool paused) {
        if (!x->up || x->paused == paused)
                return;
        x->paused = paused;
        sim_trace(x->sim, "node %u daemon %s", x->i + 1, paused ? "paused" : "goes on");
        if (paused)
                return;
        node_net_writable(x->sim, x->i);
        driver_run(x);
        x->input_busy = false;
        node_net_deliver(x->sim, x->i, (struct repl_member){0}, NULL, 0); /* looks at its input again */
}

bool node_synced(const struct node *x) {
        struct repl_status st;

        if (!x->up || !x->repl || !x->primary)
                return false;
        repl_status(x->repl, &st);
        for (size_t k = 0; k < st.n_members; k++)
                if (st.members[k].node == x->i + 1)
                        return st.primary && st.members[k].synced;
        return false;
}

/* --- power */

void node_boot(struct node *x) {
        x->powered = true;
        simnet_corosync(x->sim, x->i, true);
        node_daemon_start(x);
}

void node_power_cut(struct node *x) {
        struct sim *s = x->sim;

        if (!x->powered)
                return;
        sim_trace(s, "node %u loses power", x->i + 1);
        if (x->disk && x->up)
                simdisk_kill(x->disk);
        if (x->up)
                forget_process(x);
        if (x->disk)
                simdisk_crash(x->disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = sim_draw(s)});
        else
                store_backing_power_cut(x->backing, sim_draw(s));
        simnet_corosync(s, x->i, false);
        x->powered = false;
        x->boot = (x->boot + 2) | 1;
        x->lost_written = x->kept_written;
        x->lost_flushed = x->kept_flushed;
        if (s->level != LEVEL_FILE)
                x->amnesia = true;
}

void node_wipe(struct node *x) {
        PRE(!x->powered);
        if (x->disk) {
                simdisk_free(x->disk);
                x->disk = simdisk_new(&(struct simdisk_config){.seed = sim_draw(x->sim)});
        } else {
                store_backing_wipe(x->backing);
        }
        x->kept_written = x->kept_flushed = NULL;
        x->amnesia = true;
}

void node_damage(struct node *x) {
        struct op op = {.kind = OP_SETATTR, .setattr = {.ino = INO_ROOT, .mask = SETATTR_MODE}};
        struct attr root;
        struct op_result result = {0};
        struct change_set changes;

        if (!x->up)
                return;
        POST(tree_getattr(x->state->tree, INO_ROOT, &root) == 0);
        op.setattr.mode = (root.mode & 0777u) ^ (1u + (uint32_t)sim_below(x->sim, 076)); /* another one than it was */
        change_set_init(&changes);
        (void)shared_state_write(x->shared);
        (void)tree_apply(x->state->tree, &op, x->state->pos.seq, &changes, &result);
        shared_state_done_write(x->shared);
        change_set_done(&changes);
        x->damaged = true;
        x->damaged_at = x->state->pos.seq;
        sim_trace(x->sim, "node %u is damaged", x->i + 1);
}

/* --- what corosync has for the daemon: it reads it at its own pace, and not while it is stopped */

static void take_input(struct sim *s, void *object, uint64_t life) {
        struct node *x = object;
        struct pending_event *in = x->input;

        if (life != x->life || !x->up)
                return;
        x->input_busy = false;
        if (x->paused || !in)
                return;
        if (!(x->input = in->next))
                x->input_tail = &x->input;
        in->next = NULL;
        driver_post(x, in);
        driver_run(x);
        if (x->up && x->life == life && x->input && !x->input_busy) {
                x->input_busy = true;
                sim_after(s, sim_below(s, x->slow_until > s->now ? 20 * SIM_MS : 50), take_input, x, x->life);
        }
}

static void input_add(struct node *x, struct pending_event *in) {
        if (in) {
                *x->input_tail = in;
                x->input_tail = &in->next;
        }
        if (x->paused || x->input_busy || !x->input)
                return;
        x->input_busy = true;
        sim_after(x->sim, sim_below(x->sim, 30), take_input, x, x->life);
}

void node_net_view(struct sim *s, unsigned i, struct repl_ring ring, const struct repl_member *members, size_t n) {
        struct node *x = &s->nodes[i];
        struct pending_event *in;

        if (!x->up)
                return;
        in = driver_event(REPL_VIEW, n * sizeof *members);
        memcpy(in->data, members, n * sizeof *members);
        in->ev.view.ring = ring;
        in->ev.view.n = n;
        in->ev.view.members = (const struct repl_member *)(const void *)in->data;
        input_add(x, in);
}

void node_net_deliver(struct sim *s, unsigned i, struct repl_member sender, const void *p, size_t n) {
        struct node *x = &s->nodes[i];
        struct pending_event *in = NULL;

        if (!x->up)
                return;
        if (n > 0) { /* the message stays with its ring until the end of the run */
                in = driver_event(REPL_DELIVER, 0);
                in->ev.deliver.sender = sender;
                in->ev.deliver.len = n;
                in->ev.deliver.data = p;
        }
        input_add(x, in);
}

void node_net_quorum(struct sim *s, unsigned i, struct repl_ring ring, uint32_t nodes, unsigned extra_votes) {
        struct node *x = &s->nodes[i];
        struct pending_event *ev;
        uint32_t ids[SIM_NODES_MAX];
        size_t n = 0;

        if (!x->up)
                return;
        for (unsigned k = 0; k < s->n; k++)
                if (nodes & (1u << k))
                        ids[n++] = k + 1;
        ev = driver_event(REPL_QUORUM, sizeof ids);
        memcpy(ev->data, ids, sizeof ids);
        ev->ev.quorum.ring = ring;
        ev->ev.quorum.nodes = (const uint32_t *)(const void *)ev->data;
        ev->ev.quorum.n_nodes = n;
        ev->ev.quorum.expected_votes = s->n + extra_votes;
        ev->ev.quorum.total_votes = (uint32_t)n;
        ev->ev.quorum.quorate = 2 * n > s->n + extra_votes;
        driver_post(x, ev);
        driver_run(x);
}

void node_net_writable(struct sim *s, unsigned i) {
        if (s->nodes[i].up && !s->nodes[i].paused)
                driver_resend(&s->nodes[i]);
}

void node_net_closed(struct sim *s, unsigned i) {
        struct node *x = &s->nodes[i];

        if (!x->up)
                return;
        while (x->input) {
                struct pending_event *in = x->input;

                x->input = in->next;
                free(in);
        }
        x->input_tail = &x->input;
        while (x->unsent) {
                struct message *m = x->unsent;

                x->unsent = m->next;
                free(m);
        }
        x->unsent_tail = &x->unsent;
        driver_post(x, driver_event(REPL_CLOSED, 0));
        driver_run(x);
}

/* --- the kernel's cache */

bool cache_get(struct node *x, uint64_t ino, struct cached *ret) {
        const struct cached *c = g_hash_table_lookup(x->cache, &ino);

        if (!c)
                return false;
        sim_probe(x->sim, PROBE_CACHED_READ);
        *ret = *c;
        return true;
}

void cache_put(struct node *x, uint64_t ino, uint64_t value, uint64_t size) {
        struct cached *c = g_new(struct cached, 1);

        *c = (struct cached){.value = value, .size = size};
        g_hash_table_replace(x->cache, g_memdup2(&ino, sizeof ino), c);
}

void cache_invalidate(struct node *x, const struct change_set *changes) {
        for (size_t k = 0; k < changes->n; k++)
                if (changes->items[k].kind == CHANGE_CONTENT || changes->items[k].kind == CHANGE_INODE_GONE)
                        g_hash_table_remove(x->cache, &changes->items[k].ino);
}

void cache_clear(struct node *x) {
        g_hash_table_remove_all(x->cache);
}
