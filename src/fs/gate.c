/* gate.c: requests that wait for flights, and how any waiting request is interrupted. */
#include "internal.h"

/* --- waiting requests */

void waiting_add(struct fs *fs, struct waiting *w) {
        if (w->unique == 0)
                return;
        (void)pthread_mutex_lock(&fs->waiting_lock);
        (void)g_hash_table_insert(fs->waiting, &w->unique, w);
        (void)pthread_mutex_unlock(&fs->waiting_lock);
}

static void waiting_drop(struct fs *fs, struct waiting *w) {
        if (w->unique != 0 && g_hash_table_lookup(fs->waiting, &w->unique) == w)
                (void)g_hash_table_remove(fs->waiting, &w->unique);
}

void waiting_remove(struct fs *fs, struct waiting *w) {
        (void)pthread_mutex_lock(&fs->waiting_lock);
        waiting_drop(fs, w);
        (void)pthread_mutex_unlock(&fs->waiting_lock);
}

void waiting_launched(struct fs *fs, struct waiting *w, uint64_t token) {
        if (w->unique == 0)
                return;
        (void)pthread_mutex_lock(&fs->waiting_lock);
        w->token = token;
        w->launched = true;
        bool withdrawn = w->withdrawn;
        (void)pthread_mutex_unlock(&fs->waiting_lock);
        if (withdrawn)
                backend_of(fs)->withdraw(backend_of(fs)->ctx, token);
}

/* An operation is withdrawn: the backend answers soon. A gate only waits: its caller goes, what it waited for goes on. */
void fs_interrupt(struct fs *fs, uint64_t unique) {
        struct fs_reply *reply = NULL;
        bool withdraw = false;
        uint64_t token = 0;
        (void)pthread_mutex_lock(&fs->waiting_lock);
        struct waiting *w = g_hash_table_lookup(fs->waiting, &unique);
        if (w && w->is_gate) {
                reply = steal_pointer(&w->reply);
                waiting_drop(fs, w);
        } else if (w) {
                w->withdrawn = true;
                withdraw = w->launched;
                token = w->token;
        }
        (void)pthread_mutex_unlock(&fs->waiting_lock);
        if (reply)
                reply_err(reply, -EINTR);
        if (withdraw)
                backend_of(fs)->withdraw(backend_of(fs)->ctx, token);
}

/* --- gates */

struct gate *gate_new(struct fs *fs, struct fs_reply *reply, void (*finish)(struct gate *g, errint_t error)) {
        struct gate *g = NEW(struct gate);
        g->fs = fs;
        g->w.reply = reply;
        g->w.is_gate = true;
        g->finish = finish;
        atomic_init(&g->count, 1);
        if (reply) {
                g->w.unique = reply->unique;
                waiting_add(fs, &g->w);
        }
        return g;
}

void gate_fail(struct gate *g, errint_t error) {
        int none = 0;
        if (error < 0)
                (void)atomic_compare_exchange_strong(&g->error, &none, error); /* the first counts */
}

struct fs_reply *gate_take_reply(struct gate *g) {
        (void)pthread_mutex_lock(&g->fs->waiting_lock);
        struct fs_reply *reply = steal_pointer(&g->w.reply);
        waiting_drop(g->fs, &g->w);
        (void)pthread_mutex_unlock(&g->fs->waiting_lock);
        return reply;
}

static void gate_open(struct gate *g) {
        g->finish(g, atomic_load(&g->error));
        waiting_remove(g->fs, &g->w);
        handle_unref(g->handle);
        free(g);
}

static void gate_barrier_done(void *ctx, const struct op_result *result) {
        struct gate *g = ctx;
        gate_fail(g, result->error);
        gate_open(g);
}

void gate_pass(struct gate *g) {
        const struct fs_backend *b = backend_of(g->fs);
        if (atomic_fetch_sub(&g->count, 1) != 1)
                return;
        if (g->barrier && atomic_load(&g->error) == 0)
                b->barrier(b->ctx, gate_barrier_done, g);
        else
                gate_open(g);
}

/* What a fence has to tell. node->lock held. */
errint_t gate_error(struct gate *g, struct node *n, uint64_t seen) {
        struct handle *h = g->handle;
        if ((h ? h->error_seen : seen) == n->error_seq)
                return 0;
        if (h) {
                h->error_seen = n->error_seq;
                n->error_seen = true;
        }
        return n->error;
}

void gate_fence(struct gate *g, struct node *n, uint64_t seen) {
        if (!n->queue) { /* all is answered already */
                gate_fail(g, gate_error(g, n, seen));
                return;
        }
        struct flight *f = flight_new(g->fs, n, NULL, OP_NOTHING, NULL);
        f->kind = FLIGHT_FENCE;
        f->launched = true;
        f->gate = g;
        f->error_seq = seen;
        (void)atomic_fetch_add(&g->count, 1);
        flight_queue(n, f);
}
