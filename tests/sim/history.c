/* history.c: see history.h. */
#include "history.h"

#include "reftree.h"
#include "simnet.h"

#include <stdio.h>
#include <string.h>

struct history {
        GHashTable *records; /* hash -> record */
        GPtrArray *all;
        GHashTable *values;      /* register value -> record */
        GHashTable *acked;       /* ino -> highest acknowledged seq of its writes */
        struct record *frontier; /* the highest acknowledged */
        GHashTable *conflicts;   /* request "node/incarnation/number" kept as a conflict record on some node */
        GPtrArray *dropped;      /* records that a node gave up for another history */
        GHashTable *submitted;   /* request -> hash of its bytes, as its node gave them */
        GHashTable *refused;     /* requests that were answered with "it did not happen" */
        uint64_t epoch;          /* the highest that has begun anywhere */
};

static guint hash_of(gconstpointer p) {
        return (guint)((const struct hash128 *)p)->lo;
}
static gboolean hash_same(gconstpointer a, gconstpointer b) {
        return hash128_equal(*(const struct hash128 *)a, *(const struct hash128 *)b);
}

struct history *history_new(struct sim *s) {
        struct history *h = NEW(struct history);

        (void)s;
        h->records = g_hash_table_new(hash_of, hash_same);
        h->all = g_ptr_array_new();
        h->values = g_hash_table_new(g_int64_hash, g_int64_equal);
        h->acked = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
        h->conflicts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        h->submitted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
        h->refused = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        h->dropped = g_ptr_array_new();
        return h;
}

void history_free(struct history *h) {
        if (!h)
                return;
        for (guint k = 0; k < h->all->len; k++) {
                struct record *r = h->all->pdata[k];

                free(r->head);
                free(r->payload);
                free(r);
        }
        g_ptr_array_free(h->all, TRUE);
        g_hash_table_destroy(h->records);
        g_hash_table_destroy(h->values);
        g_hash_table_destroy(h->acked);
        g_hash_table_destroy(h->conflicts);
        g_hash_table_destroy(h->refused);
        g_hash_table_destroy(h->submitted);
        g_ptr_array_free(h->dropped, TRUE);
        free(h);
}

static struct record *ancestor(struct record *r, uint64_t seq) {
        while (r && r->seq > seq)
                r = r->parent;
        return r;
}

static struct record *record_get(struct history *h, struct hash128 hash) {
        return g_hash_table_lookup(h->records, &hash);
}

static struct record *record_new(struct history *h, struct hash128 hash, struct record *parent, uint64_t seq) {
        struct record *r = NEW(struct record);

        r->hash = hash;
        r->parent = parent;
        r->seq = seq;
        g_hash_table_insert(h->records, &r->hash, r);
        g_ptr_array_add(h->all, r);
        return r;
}

uint64_t history_frontier(const struct sim *s) {
        return s->history->frontier ? s->history->frontier->seq : 0;
}

/* --- commits */

static char *request_key(const struct op_origin *o) {
        return g_strdup_printf("%u/%" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT, o->node, o->incarnation, o->number);
}

static uint64_t register_value(const struct op *op) {
        uint8_t raw[64];
        uint64_t value = 0;

        if (op->kind != OP_WRITE || op->payload.raw_len < 16 || op->payload.raw_len > MIB)
                return 0;
        if (op->payload.form == FORM_RAW) {
                memcpy(raw, op->payload.data, 16);
        } else {
                cleanup_free uint8_t *whole = xmalloc(op->payload.raw_len);

                if (decompress_zstd(op->payload.data, op->payload.len, whole, op->payload.raw_len) < 0)
                        return 0;
                memcpy(raw, whole, 16);
        }
        if (memcmp(raw, "register", 8) != 0)
                return 0;
        memcpy(&value, raw + 8, 8);
        return value;
}

static void fill(struct history *h, struct record *r, const struct repl_effect *f) {
        const struct op *op = f->commit.op;

        r->epoch = f->commit.pos.epoch;
        r->origin = op->origin;
        r->kind = op->kind;
        r->changed = f->commit.changes->n > 0;
        r->result = f->commit.result;
        r->head = xmalloc(f->commit.head_len);
        memcpy(r->head, f->commit.head, f->commit.head_len);
        r->head_len = f->commit.head_len;
        r->payload = xmalloc(op->payload.len + 1);
        if (op->payload.len)
                memcpy(r->payload, op->payload.data, op->payload.len);
        r->payload_len = op->payload.len;
        r->value = register_value(op);
        if (r->value && f->commit.result.error == 0) {
                r->ino = op->write.ino;
                g_hash_table_insert(h->values, &r->value, r);
        }
}

static struct hash128 bytes_hash(const void *head, size_t head_len, const void *payload, size_t payload_len) {
        struct hash128 parts[2] = {hash128_of(head, head_len), hash128_of(payload_len ? payload : "", payload_len)};

        return hash128_of(parts, sizeof parts);
}

void history_submitted(struct node *x, const struct op_origin *o, const void *head, size_t head_len, const struct op_payload *payload) {
        struct hash128 *hash = g_new(struct hash128, 1);

        *hash = bytes_hash(head, head_len, payload->data, payload->len);
        g_hash_table_replace(x->sim->history->submitted, request_key(o), hash);
}

static void check_bytes(struct node *x, const struct record *r) {
        cleanup_free char *key = request_key(&r->origin);
        const struct hash128 *hash = g_hash_table_lookup(x->sim->history->submitted, key);

        if (!hash || !hash128_equal(*hash, bytes_hash(r->head, r->head_len, r->payload, r->payload_len)))
                sim_violation(x->sim, VERDICT_SAFETY, "bytes",
                              "node %u applies request %s at %" G_GUINT64_FORMAT " with other bytes than were asked for", x->i + 1, key,
                              r->seq);
}

void history_commit(struct node *x, const struct repl_effect *f) {
        struct sim *s = x->sim;
        struct history *h = s->history;
        struct hash128 now = x->state->history, digest = state_digest(x->state);
        struct record *r = record_get(h, now);

        if (x->state->pos.seq != f->commit.pos.seq || (x->record ? x->record->seq : 0) + 1 != f->commit.pos.seq)
                sim_violation(s, VERDICT_SAFETY, "positions", "node %u commits %" G_GUINT64_FORMAT " after %" G_GUINT64_FORMAT, x->i + 1,
                              f->commit.pos.seq, x->record ? x->record->seq : 0);
        if (!r) {
                r = record_new(h, now, x->record, f->commit.pos.seq);
                fill(h, r, f);
                check_bytes(x, r);
        } else if (r->parent != x->record) {
                sim_violation(s, VERDICT_SAFETY, "history", "node %u reaches a known state at %" G_GUINT64_FORMAT " from another one",
                              x->i + 1, r->seq);
        }
        if (!r->digested && !x->damaged) {
                r->digest = digest;
                r->digested = true;
        }
        if (!x->damaged && (!hash128_equal(r->digest, digest) || r->result.error != f->commit.result.error))
                sim_violation(s, VERDICT_SAFETY, "digest",
                              "node %u at (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ") differs from others with the same history",
                              x->i + 1, r->epoch, r->seq);
        x->record = r;
        if (r->value)
                sim_trace(s, "node %u applies %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT " = %" G_GUINT64_FORMAT "%s", x->i + 1, r->seq,
                          r->ino, r->value, f->commit.local ? ", its own" : "");
        if (sim_chance(s, 2) && !hash128_equal(tree_digest(x->state->tree), tree_digest_recompute(x->state->tree)))
                sim_violation(s, VERDICT_SAFETY, "rolling", "node %u: the rolling digest differs from the recomputed one", x->i + 1);
}

/* --- acknowledgements */

static void on_one_chain(struct node *x, struct record *r) {
        struct sim *s = x->sim;
        struct history *h = s->history;
        struct record *f = h->frontier;

        if (f && ancestor(r->seq >= f->seq ? r : f, MIN_OF(r->seq, f->seq)) != (r->seq >= f->seq ? f : r))
                sim_violation(s, VERDICT_SAFETY, "acknowledged",
                              "node %u acknowledges (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                              "), which is not in one history with the acknowledged (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ")",
                              x->i + 1, r->epoch, r->seq, f->epoch, f->seq);
        for (unsigned i = 0; i < s->n; i++) {
                const struct node *y = &s->nodes[i];

                if (!y->up || !node_synced(y) || y->epoch < r->epoch || !y->record || y->paused)
                        continue;
                if (y->epoch > r->epoch)
                        sim_probe(s, PROBE_ACK_LATE);
                if (y->epoch > r->epoch && ancestor(y->record, r->seq) != r)
                        sim_violation(s, VERDICT_SAFETY, "acknowledged",
                                      "node %u acknowledges (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                                      "), which node %u, primary in epoch %" G_GUINT64_FORMAT ", does not have",
                                      x->i + 1, r->epoch, r->seq, y->i + 1, y->epoch);
        }
        if (!f || r->seq > f->seq)
                h->frontier = r;
        r->acked = true;
}

/* When a write returns, every member of S has it: in the history that it keeps, or kept until its disk lost some of it. */
static void held_by_all(const struct node *x, const struct record *r) {
        struct sim *s = x->sim;
        struct repl_status st;

        repl_status(x->repl, &st);
        for (size_t k = 0; k < st.n_members; k++) {
                const struct node *y = &s->nodes[st.members[k].node - 1];

                if (st.members[k].synced && ((y->damaged && r->seq > y->damaged_at) ||
                                             (ancestor(y->kept_written, r->seq) != r && ancestor(y->lost_written, r->seq) != r)))
                        sim_violation(s, VERDICT_SAFETY, "held",
                                      "node %u acknowledges (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                                      "), which node %u, a member of S, does not hold%s",
                                      x->i + 1, r->epoch, r->seq, y->i + 1, y->damaged ? ": its state is damaged" : "");
        }
}

static void history_barrier(struct sim *s, const struct node *x, uint64_t seq);

void history_reply(struct node *x, const struct request *q, const struct repl_effect *f) {
        struct sim *s = x->sim;
        struct record *r;
        int32_t error = f->reply.result.error;

        if (q->kind == REQUEST_BARRIER) {
                if (error == 0)
                        history_barrier(s, x, q->applied);
                return;
        }
        if (error == -EROFS || error == -EIO || error == -EINTR) { /* rule 13: no operation of these clients is applied with one of them */
                sim_probe(s, error == -EIO ? PROBE_REPLY_EIO : PROBE_REPLY_EROFS);
                if (error != -EIO)
                        g_hash_table_add(s->history->refused, request_key(&q->origin));
                return;
        }
        for (r = x->record; r && !(r->origin.node == q->origin.node && r->origin.incarnation == q->origin.incarnation &&
                                   r->origin.number == q->origin.number && r->seq <= f->reply.pos.seq);)
                r = r->parent;
        if (!r) {
                sim_violation(s, VERDICT_SAFETY, "reply", "node %u answers request %" G_GUINT64_FORMAT " that its history lacks", x->i + 1,
                              q->origin.number);
                return;
        }
        if (r->result.error != error)
                sim_violation(s, VERDICT_SAFETY, "reply", "node %u answers request %" G_GUINT64_FORMAT " with %d, it was applied with %d",
                              x->i + 1, q->origin.number, error, r->result.error);
        if (r->seq <= q->frontier)
                sim_violation(s, VERDICT_SAFETY, "real-time",
                              "node %u: request %" G_GUINT64_FORMAT " got position %" G_GUINT64_FORMAT ", but %" G_GUINT64_FORMAT
                              " had been acknowledged before it began",
                              x->i + 1, q->origin.number, r->seq, q->frontier);
        on_one_chain(x, r);
        held_by_all(x, r);
}

/* A node says that its epoch is running: it must have all that was acknowledged. */
void history_role(struct node *x) {
        struct sim *s = x->sim;
        struct record *f = s->history->frontier;

        if (!x->primary)
                return;
        sim_probe(s, PROBE_EPOCH_BEGUN);
        s->history->epoch = MAX_OF(s->history->epoch, x->epoch);
        if (node_synced(x) && f && f->epoch < x->epoch && ancestor(x->record, f->seq) != f)
                sim_violation(s, VERDICT_SAFETY, "acknowledged",
                              "epoch %" G_GUINT64_FORMAT " begins on node %u without the acknowledged (%" G_GUINT64_FORMAT
                              ", %" G_GUINT64_FORMAT "); it is at %" G_GUINT64_FORMAT,
                              x->epoch, x->i + 1, f->epoch, f->seq, x->record ? x->record->seq : 0);
        if (node_synced(x))
                x->amnesia = false;
}

/* --- another history, conflict records */

void history_conflict(struct node *x, const struct repl_effect *f) {
        struct op op;
        cleanup_free void *scratch = NULL;

        sim_probe(x->sim, PROBE_CONFLICT);
        x->conflicts++;
        if (op_decode(f->conflict.head, f->conflict.head_len, f->conflict.payload.data, f->conflict.payload.len, &op, &scratch) < 0) {
                sim_violation(x->sim, VERDICT_SAFETY, "conflicts", "node %u keeps a conflict record that is no operation", x->i + 1);
                return;
        }
        g_hash_table_add(x->sim->history->conflicts, request_key(&op.origin));
}

static bool found_in_log(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len) {
        *(bool *)ctx = true;
        (void)pos;
        (void)head;
        (void)head_len;
        (void)payload;
        (void)payload_len;
        return false;
}

static bool in_log(const struct node *x, uint64_t seq) {
        bool found = false;

        return !x->failed && x->store->ops->read_log(x->store, seq, found_in_log, &found) == 0 && found;
}

void history_replace(struct node *x) {
        struct sim *s = x->sim;
        struct record *r = record_get(s->history, x->state->history), *old = x->record, *a = r, *b = old;

        sim_probe(s, PROBE_REPLACED);
        if (!r && x->state->pos.seq > 0) {
                sim_violation(s, VERDICT_SAFETY, "transfer", "node %u takes over a state that nobody had, at %" G_GUINT64_FORMAT, x->i + 1,
                              x->state->pos.seq);
                return;
        }
        x->damaged = false;
        if (r && r->digested && !hash128_equal(r->digest, state_digest(x->state)))
                sim_violation(s, VERDICT_SAFETY, "transfer",
                              "node %u takes over (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ") with another digest", x->i + 1, r->epoch,
                              r->seq);
        x->record = r;
        while (a != b) { /* down to where the two histories part */
                if (b && (!a || b->seq >= a->seq)) {
                        /* What is of an earlier life, and was taken out of the log by a checkpoint, is known to nobody. */
                        if (b->changed && (b->seq > x->loaded || in_log(x, b->seq)))
                                g_ptr_array_add(s->history->dropped, b);
                        b = b->parent;
                } else {
                        a = a->parent;
                }
        }
}

void history_replaced(struct node *x) {
        x->kept_written = x->kept_flushed = x->record;
        x->loaded = MIN_OF(x->loaded, x->record ? x->record->seq : 0);
}

/* --- restarts */

void history_written(struct node *x, uint64_t seq) {
        struct record *r = ancestor(x->record, seq);

        if (r && (!x->kept_written || r->seq > x->kept_written->seq))
                x->kept_written = r;
}
void history_flushed(struct node *x, uint64_t seq) {
        struct record *r = ancestor(x->record, seq);

        if (r && (!x->kept_flushed || r->seq > x->kept_flushed->seq))
                x->kept_flushed = r;
        history_written(x, seq);
}

void history_start(struct node *x, const struct store_loaded *loaded, bool power_cut) {
        struct sim *s = x->sim;
        struct record *r = record_get(s->history, x->state->history), *must;

        if (loaded->unclean)
                sim_probe(s, PROBE_RESTART_UNCLEAN);
        if (!r && x->state->pos.seq > 0) {
                sim_violation(s, VERDICT_SAFETY, "restart", "node %u starts with a state that nobody had, at %" G_GUINT64_FORMAT, x->i + 1,
                              x->state->pos.seq);
                return;
        }
        if (r && r->digested && hash128_equal(r->digest, state_digest(x->state)))
                x->damaged = false; /* its log made good what memory had wrong */
        else if (r && r->digested && !x->damaged)
                sim_violation(s, VERDICT_SAFETY, "restart", "node %u starts at %" G_GUINT64_FORMAT " with another digest than it had",
                              x->i + 1, r->seq);
        must = power_cut && s->level != LEVEL_FILE ? x->kept_flushed : x->kept_written;
        /* An append may be there before it is known to be written, so more is fine; what is there must hold what was kept. */
        if (must && ancestor(r, must->seq) != must)
                sim_violation(s, VERDICT_SAFETY, "durability",
                              "node %u starts at %" G_GUINT64_FORMAT " without what it had kept, (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                              ")%s",
                              x->i + 1, r ? r->seq : 0, must->epoch, must->seq, power_cut ? " after a power cut" : "");
        x->record = r;
        x->loaded = r ? r->seq : 0;
        x->kept_written = r;
        x->kept_flushed = power_cut || !r ? r : ancestor(r, x->kept_flushed ? x->kept_flushed->seq : 0);
}

/* fsync and `coterie sync`: what was applied here when it was called is on the medium of every member of S, so of a quorum. */
static void history_barrier(struct sim *s, const struct node *x, uint64_t seq) {
        struct record *r = ancestor(x->record, seq);
        unsigned have = 0;

        if (!r || s->level == LEVEL_NONE) /* there a barrier promises nothing */
                return;
        for (unsigned i = 0; i < s->n; i++) {
                const struct node *y = &s->nodes[i];

                have += ancestor(y->kept_flushed, r->seq) == r || ancestor(y->lost_flushed, r->seq) == r;
        }
        if (2 * have <= s->n)
                sim_violation(s, VERDICT_SAFETY, "barrier",
                              "a barrier of node %u at %" G_GUINT64_FORMAT " returned with %u of %u media holding it", x->i + 1, seq, have,
                              s->n);
}

/* --- reads */

/* A member of S in truth: a stopped, expelled or cut-off node goes on believing that it is one until it learns of the newer epoch. */
bool history_synced(const struct node *x) {
        return node_synced(x) && x->epoch == x->sim->history->epoch;
}

uint64_t history_must_see(const struct sim *s, uint64_t ino) {
        const uint64_t *seq = g_hash_table_lookup(s->history->acked, &ino);

        return seq ? *seq : 0;
}

/* Where a value was written: in the acknowledged history when it is there, else on whatever tail. */
static struct record *value_record(const struct history *h, uint64_t value) {
        struct record *any = value ? g_hash_table_lookup(h->values, &value) : NULL;

        if (!any || ancestor(h->frontier, any->seq) == any)
                return any;
        for (struct record *r = h->frontier; r; r = r->parent)
                if (r->value == value)
                        return r;
        return any;
}

void history_wrote(struct sim *s, uint64_t ino, uint64_t value) {
        struct record *r = value_record(s->history, value);
        uint64_t *seq;

        if (!r)
                return; /* gathered with a later write of the same node */
        if (ancestor(s->history->frontier, r->seq) != r)
                sim_violation(s, VERDICT_SAFETY, "close", "a write returned before its operation was acknowledged, at %" G_GUINT64_FORMAT,
                              r->seq);
        seq = g_hash_table_lookup(s->history->acked, &ino);
        if (seq) {
                *seq = MAX_OF(*seq, r->seq);
                return;
        }
        seq = g_new(uint64_t, 1);
        *seq = r->seq;
        g_hash_table_insert(s->history->acked, g_memdup2(&ino, 8), seq);
}

void history_read(struct node *x, uint64_t ino, uint64_t value, bool synced, uint64_t must_see, uint64_t last_value) {
        struct sim *s = x->sim;
        struct record *r = value_record(s->history, value), *last = value_record(s->history, last_value);
        uint64_t seen = r ? r->seq : 0;

        if (value && !r)
                return; /* gathered here, not an operation yet */
        if (r && r->ino != ino)
                sim_violation(s, VERDICT_SAFETY, "reads", "node %u reads a value of another file", x->i + 1);
        if (!synced) {
                if (seen < must_see)
                        sim_probe(s, PROBE_STALE_ALLOWED);
                return;
        }
        if (seen < must_see)
                sim_violation(s, VERDICT_SAFETY, "reads",
                              "node %u, a member of S, reads the state of %" G_GUINT64_FORMAT " of inode %" G_GUINT64_FORMAT
                              ", but a write at %" G_GUINT64_FORMAT " had returned before the read began",
                              x->i + 1, seen, ino, must_see);
        if (last && seen < last->seq && ancestor(s->history->frontier, last->seq) == last) /* what a fault took away may be gone */
                sim_violation(s, VERDICT_SAFETY, "reads", "node %u goes back from %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT, x->i + 1,
                              last->seq, seen);
}

/* --- the end */

static void check_reference(struct sim *s, const struct node *x) {
        struct reftree *ref = reftree_new();
        GPtrArray *chain = g_ptr_array_new();
        GHashTable *applied = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        char what[256];

        for (struct record *r = x->record; r; r = r->parent)
                g_ptr_array_add(chain, r);
        for (guint k = chain->len; k-- > 0 && s->verdict == VERDICT_OK;) {
                const struct record *r = chain->pdata[k];
                cleanup_free void *scratch = NULL;
                struct op op;
                struct op_result result = {0};
                char *key = request_key(&r->origin);

                if (g_hash_table_contains(applied, key)) {
                        if (r->changed)
                                sim_violation(s, VERDICT_SAFETY, "once", "request %s is applied twice, again at %" G_GUINT64_FORMAT, key,
                                              r->seq);
                        g_free(key);
                        continue;
                }
                g_hash_table_add(applied, key);
                if (r->changed && g_hash_table_contains(s->history->refused, key))
                        sim_violation(s, VERDICT_SAFETY, "refused",
                                      "request %s was answered that it did not happen, and is in the history at %" G_GUINT64_FORMAT, key,
                                      r->seq);
                if (op_decode(r->head, r->head_len, r->payload, r->payload_len, &op, &scratch) < 0) {
                        sim_violation(s, VERDICT_SAFETY, "reference", "an applied operation does not decode");
                        break;
                }
                reftree_apply(ref, &op, &result);
                if (result.error != r->result.error || result.ino != r->result.ino || result.offset != r->result.offset)
                        sim_violation(s, VERDICT_SAFETY, "reference",
                                      "%s at %" G_GUINT64_FORMAT " was answered %d, the reference tree says %d", op_kind_text(op.kind),
                                      r->seq, r->result.error, result.error);
        }
        for (guint k = 0; k < s->history->dropped->len && s->verdict == VERDICT_OK; k++) {
                const struct record *r = s->history->dropped->pdata[k];
                cleanup_free char *key = request_key(&r->origin);

                if (g_hash_table_contains(applied, key))
                        sim_probe(s, PROBE_SENT_AGAIN);

                if (!g_hash_table_contains(applied, key) && !g_hash_table_contains(s->history->conflicts, key))
                        sim_violation(s, VERDICT_SAFETY, "conflicts",
                                      "request %s was applied at (%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                                      "), is not in the surviving history, and nobody kept a conflict record",
                                      key, r->epoch, r->seq);
        }
        if (s->verdict == VERDICT_OK && !reftree_equal(ref, x->state->tree, what, sizeof what))
                sim_violation(s, VERDICT_SAFETY, "reference", "the tree is not what its history makes: %s", what);
        g_hash_table_destroy(applied);
        g_ptr_array_free(chain, TRUE);
        reftree_free(ref);
}

static void check_store(struct sim *s, struct node *x) {
        struct hash128 before = state_digest(x->state);
        struct position pos = x->state->pos;

        node_daemon_kill(x);
        node_daemon_start(x);
        if (s->verdict == VERDICT_OK && (!hash128_equal(before, state_digest(x->state)) || position_cmp(pos, x->state->pos) != 0))
                sim_violation(s, VERDICT_SAFETY, "restart", "node %u has another state after a restart at rest", x->i + 1);
}

void history_final(struct sim *s) {
        const struct node *first = &s->nodes[0];
        char what[256];

        for (unsigned i = 0; i < s->n; i++) {
                const struct node *x = &s->nodes[i];

                if (!x->up || !node_synced(x)) {
                        sim_violation(s, VERDICT_LIVENESS, "convergence",
                                      "node %u is not a member of the synced set 80 s after the last fault", i + 1);
                        return;
                }
                if (!hash128_equal(state_digest(x->state), state_digest(first->state)))
                        sim_violation(s, VERDICT_LIVENESS, "convergence",
                                      "node %u is at %" G_GUINT64_FORMAT ", node 1 at %" G_GUINT64_FORMAT, i + 1, x->state->pos.seq,
                                      first->state->pos.seq);
                if (g_hash_table_size(x->requests) > 0)
                        sim_violation(s, VERDICT_LIVENESS, "requests", "node %u still owes %u answers", i + 1,
                                      g_hash_table_size(x->requests));
                if (!hash128_equal(tree_digest(x->state->tree), tree_digest_recompute(x->state->tree)))
                        sim_violation(s, VERDICT_SAFETY, "rolling", "node %u: the rolling digest differs from the recomputed one", i + 1);
                if (tree_check(x->state->tree, what, sizeof what) < 0)
                        sim_violation(s, VERDICT_SAFETY, "tree", "node %u: %s", i + 1, what);
        }
        if (s->history->frontier && ancestor(first->record, s->history->frontier->seq) != s->history->frontier)
                sim_violation(s, VERDICT_SAFETY, "acknowledged", "the final history lacks the acknowledged %" G_GUINT64_FORMAT,
                              s->history->frontier->seq);
        if (s->verdict == VERDICT_OK)
                check_reference(s, first);
        for (unsigned i = 0; i < s->n && s->verdict == VERDICT_OK; i++)
                check_store(s, &s->nodes[i]);
}
