/* store_memory.c: see store/store_memory.h. A backing holds a state, and the operations since it. */
#include "store/store_memory.h"

#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

struct kept_record {
        struct position pos; /* of PROMISED and ADOPTED: the value, and the operation before */
        enum { KEPT_OP, KEPT_PROMISED, KEPT_ADOPTED } kind;
        size_t head_len, payload_len;
        uint8_t data[]; /* head, payload */
};
#define CALL_KINDS 6
struct store_backing {
        struct state base;
        uint64_t promised, adopted;
        uint8_t cluster_id[CLUSTER_ID_SIZE];
        char boot_id[40];
        bool exists, clean, open;
        GPtrArray *records;         /* struct kept_record, written out */
        size_t durable;             /* so many of them */
        GPtrArray *older;           /* those before the base, for catching up; until the next checkpoint */
        pthread_mutex_t calls_lock; /* guards the rest, which is set and asked for while a store runs */
        struct store_fault fault;
        uint64_t fault_seen, calls[CALL_KINDS];
};
struct memory_store {
        struct store base;
        pthread_mutex_t lock; /* guards everything below */
        struct store_backing *backing;
        bool own_backing;
        struct metrics *metrics, own_metrics;
        enum sync_level level;
        uint64_t log_size, barrier_bytes, since_barrier, used;
        GPtrArray *pending; /* appended, not written out */
        struct position pos;
        uint64_t promised, adopted;
        struct state captured;
        uint64_t captured_adopted;
        enum store_checkpoint_kind kind;
        bool active, stopped, failed, read_only;
        errint_t trouble;
        bool waits_for_room; /* in trouble, and the rescue found no room */
        char boot_id[40];
};

static struct memory_store *store_of(const struct store *base) {
        return CONTAINER_OF((struct store *)(uintptr_t)base, struct memory_store, base);
}
static void unlockp(struct memory_store **s) {
        (void)pthread_mutex_unlock(&(*s)->lock);
}
static struct memory_store *locked(const struct store *base) {
        struct memory_store *s = store_of(base);
        (void)pthread_mutex_lock(&s->lock);
        return s;
}
#define LOCKED(name, base) CLEANUP(unlockp) struct memory_store *name = locked(base)

/* --- a state of its own --- */

struct cloning {
        const struct tree *from;
        struct tree *to;
};
static bool clone_entry_to(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode);
struct clone_dir {
        struct cloning *c;
        uint64_t dir;
};
static bool clone_inode(void *ctx, const struct tree_inode_state *in) {
        struct cloning *c = ctx;
        struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        errint_t r = tree_xattrs_encode(c->from, in->attr.ino, &e);
        if (r == 0)
                r = tree_restore_inode(c->to, in, e.data, e.len);
        POST(r == 0); /* from a tree that is one */
        enc_done(&e);
        struct clone_dir dir = {c, in->attr.ino};
        if (S_ISDIR(in->attr.mode))
                (void)tree_readdir(c->from, in->attr.ino, 2, clone_entry_to, &dir); /* it is a directory */
        return true;
}
static bool clone_entry_to(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct clone_dir *d = ctx;
        (void)mode;
        errint_t r = tree_restore_entry(d->c->to, d->dir, name, len, ino, cookie);
        POST(r == 0);
        return true;
}

static void state_clone(const struct state *from, struct state *to, uint64_t hash_seed) {
        struct cloning c = {from->tree, tree_restore_begin()};
        struct tree_usage usage;
        char text[24], fault[128];
        tree_hash_seed(c.to, hash_seed);
        tree_each_inode(from->tree, 0, clone_inode, &c);
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                (void)g_snprintf(text, sizeof(text), "%" G_GUINT64_FORMAT, settings_get(tree_settings(from->tree), info)); /* fits */
                (void)tree_restore_setting(c.to, info->name, strlen(info->name), text, strlen(text)); /* was taken once */
        }
        tree_usage(from->tree, &usage);
        errint_t r = tree_restore_end(c.to, usage.next_ino, fault, sizeof(fault));
        POST(r == 0);
        struct enc e;
        struct sessions *sessions = NULL;
        enc_init(&e, SESSIONS_ENCODED_MAX);
        r = sessions_encode(from->sessions, &e);
        if (r == 0)
                r = sessions_decode(e.data, e.len, &sessions);
        POST(r == 0);
        enc_done(&e);
        *to = (struct state){.tree = c.to, .sessions = sessions, .pos = from->pos, .history = from->history};
}

/* --- backings --- */

static GPtrArray *record_list(void) {
        return g_ptr_array_new_with_free_func(free);
}

struct store_backing *store_backing_new(void) {
        struct store_backing *b = NEW(struct store_backing);
        (void)pthread_mutex_init(&b->calls_lock, NULL);
        state_init(&b->base);
        b->records = record_list();
        b->older = record_list();
        b->clean = true;
        return b;
}
void store_backing_free(struct store_backing *b) {
        if (!b)
                return;
        PRE(!b->open);
        state_done(&b->base);
        g_ptr_array_free(b->records, TRUE);
        g_ptr_array_free(b->older, TRUE);
        (void)pthread_mutex_destroy(&b->calls_lock);
        free(b);
}
void store_backing_wipe(struct store_backing *b) {
        PRE(!b->open);
        state_done(&b->base);
        state_init(&b->base);
        g_ptr_array_set_size(b->records, 0);
        g_ptr_array_set_size(b->older, 0);
        b->durable = 0;
        b->promised = b->adopted = 0;
        memset(b->cluster_id, 0, sizeof(b->cluster_id));
        b->exists = false;
        b->clean = true;
}
uint64_t store_backing_unflushed(const struct store_backing *b) {
        return b->records->len - b->durable;
}
void store_backing_power_cut(struct store_backing *b, uint64_t random) {
        PRE(!b->open);
        size_t keep = b->durable + (size_t)(random % (store_backing_unflushed(b) + 1));
        g_ptr_array_set_size(b->records, (gint)keep);
        b->durable = keep;
}
void store_backing_fail(struct store_backing *b, const struct store_fault *f) {
        (void)pthread_mutex_lock(&b->calls_lock);
        b->fault = f ? *f : (struct store_fault){0};
        b->fault_seen = 0;
        (void)pthread_mutex_unlock(&b->calls_lock);
}
uint64_t store_backing_calls(struct store_backing *b, unsigned calls) {
        uint64_t n = 0;
        (void)pthread_mutex_lock(&b->calls_lock);
        for (unsigned i = 0; i < CALL_KINDS; i++)
                n += (calls & (1u << i)) ? b->calls[i] : 0;
        (void)pthread_mutex_unlock(&b->calls_lock);
        return n;
}

/* Counts the call. Returns what it is to fail with, 0: it is not. Lock held. */
static errint_t fault_of(struct store_backing *b, enum store_call call) {
        for (unsigned i = 0; i < CALL_KINDS; i++)
                b->calls[i] += (unsigned)call == (1u << i);
        if (!(b->fault.calls & call) || b->fault.nth == 0)
                return 0;
        b->fault_seen++;
        bool hit = b->fault_seen == b->fault.nth || (b->fault.sticky && b->fault_seen > b->fault.nth);
        return hit ? b->fault.error : 0;
}
static errint_t passes(struct memory_store *s, enum store_call call) {
        (void)pthread_mutex_lock(&s->backing->calls_lock);
        errint_t r = fault_of(s->backing, call);
        (void)pthread_mutex_unlock(&s->backing->calls_lock);
        if (r < 0)
                metric_add(s->metrics, METRIC_STORE_ERRORS, 1);
        return r;
}

/* --- the store; all under lock --- */

static errint_t usable(const struct memory_store *s) {
        return s->failed || s->stopped || s->read_only ? -EROFS : s->trouble;
}
static errint_t troubled(struct memory_store *s, errint_t r) {
        if (r < 0 && s->trouble == 0)
                s->trouble = r;
        return r;
}

static struct kept_record *record_new(int kind, struct position pos, const void *head, size_t head_len, const void *payload,
                                      size_t payload_len) {
        struct kept_record *k = xmalloc(sizeof(*k) + head_len + payload_len);
        *k = (struct kept_record){.pos = pos, .head_len = head_len, .payload_len = payload_len};
        k->kind = kind;
        if (head_len > 0)
                memcpy(k->data, head, head_len);
        if (payload_len > 0)
                memcpy(k->data + head_len, payload, payload_len);
        return k;
}

static errint_t memory_append(struct store *base, const struct store_record *r) {
        LOCKED(s, base);
        if (usable(s) == -EROFS)
                return -EROFS;
        s->pos = r->pos;
        if (s->trouble < 0)
                return s->trouble;
        errint_t e = passes(s, STORE_APPEND);
        if (e < 0)
                return troubled(s, e);
        g_ptr_array_add(s->pending, record_new(KEPT_OP, r->pos, r->head, r->head_len, r->op->payload.data, r->op->payload.len));
        s->since_barrier += r->head_len + r->op->payload.len;
        s->used += r->head_len + r->op->payload.len;
        metric_add(s->metrics, METRIC_LOG_RECORDS, 1);
        return 0;
}

static uint64_t last_seq(const struct memory_store *s, size_t n) {
        for (size_t i = n; i > 0; i--) {
                const struct kept_record *k = s->backing->records->pdata[i - 1];
                if (k->kind == KEPT_OP)
                        return k->pos.seq;
        }
        return s->backing->base.pos.seq;
}

static errint_t write_out(struct memory_store *s) {
        errint_t r = passes(s, STORE_WRITE_OUT);
        if (r < 0)
                return r;
        for (guint i = 0; i < s->pending->len; i++) {
                g_ptr_array_add(s->backing->records, s->pending->pdata[i]);
                s->pending->pdata[i] = NULL;
        }
        g_ptr_array_set_size(s->pending, 0);
        if (s->level == LEVEL_FILE) {
                s->backing->durable = s->backing->records->len;
                s->since_barrier = 0;
        }
        return 0;
}

static errint_t memory_write_out(struct store *base, uint64_t *ret_seq) {
        LOCKED(s, base);
        errint_t r = usable(s);
        if (r == 0)
                r = troubled(s, write_out(s));
        if (r == 0)
                *ret_seq = last_seq(s, s->backing->records->len);
        return r;
}

static errint_t flush(struct memory_store *s) {
        errint_t r = write_out(s);
        if (r == 0)
                r = passes(s, STORE_BARRIER);
        if (r == 0) {
                s->backing->durable = s->backing->records->len;
                s->since_barrier = 0;
        }
        return r;
}

static errint_t memory_barrier(struct store *base, uint64_t *ret_seq) {
        LOCKED(s, base);
        errint_t r = usable(s);
        if (r == 0)
                r = troubled(s, flush(s));
        if (r == 0) {
                *ret_seq = last_seq(s, s->backing->durable);
                metric_add(s->metrics, METRIC_BARRIERS, 1);
        }
        return r;
}

static bool memory_wants_barrier(const struct store *base) {
        LOCKED(s, base);
        return usable(s) == 0 && s->since_barrier >= s->barrier_bytes;
}
static bool memory_wants_checkpoint(const struct store *base) {
        LOCKED(s, base);
        return !s->failed && !s->stopped && !s->read_only && !s->active && (s->trouble < 0 || s->used > s->log_size / 2);
}
static bool memory_must_wait(const struct store *base) {
        LOCKED(s, base);
        return s->used > s->log_size;
}

/* --- checkpoints --- */

static errint_t memory_prepare(struct store *base, const struct state *state, enum store_checkpoint_kind kind) {
        LOCKED(s, base);
        if (s->failed || s->stopped || s->read_only)
                return -EROFS;
        if (s->active)
                return -EBUSY;
        state_clone(state, &s->captured, tree_hash_seed_of(state->tree));
        s->captured_adopted = s->adopted;
        s->kind = s->trouble < 0 && kind == CHECKPOINT_NORMAL ? CHECKPOINT_RESCUE : kind;
        s->active = true;
        s->stopped = kind == CHECKPOINT_CLEAN_STOP;
        return 0;
}

/* Records up to the base are history. */
static void rebase(struct memory_store *s) {
        struct store_backing *b = s->backing;
        size_t n = 0;
        g_ptr_array_set_size(b->older, 0);
        while (n < b->records->len && ((struct kept_record *)b->records->pdata[n])->pos.seq <= b->base.pos.seq) {
                struct kept_record *k = b->records->pdata[n];
                b->records->pdata[n++] = NULL;
                if (k->kind == KEPT_OP)
                        g_ptr_array_add(b->older, k);
                else
                        free(k);
        }
        if (n > 0)
                g_ptr_array_remove_range(b->records, 0, (guint)n);
        b->durable -= MIN_OF(b->durable, n);
}

static errint_t run(struct memory_store *s) {
        struct store_backing *b = s->backing;
        errint_t r = s->kind == CHECKPOINT_NORMAL ? flush(s) : 0;
        if (r == 0)
                r = passes(s, STORE_CHECKPOINT);
        if (r < 0)
                return r;
        state_done(&b->base);
        b->base = s->captured;
        s->captured = (struct state){0};
        b->promised = s->promised;
        b->adopted = s->captured_adopted;
        if (s->kind != CHECKPOINT_NORMAL) { /* all of it is in the base; what did not get into the log must not follow it there */
                g_ptr_array_set_size(s->pending, 0);
                g_ptr_array_set_size(b->records, 0);
                g_ptr_array_set_size(b->older, 0);
                b->durable = 0;
                if (s->pos.seq == b->base.pos.seq)
                        s->trouble = 0;
        } else {
                rebase(s);
        }
        s->used = 0;
        b->clean = s->kind == CHECKPOINT_CLEAN_STOP;
        metric_add(s->metrics, METRIC_CHECKPOINTS, 1);
        return 0;
}

static errint_t memory_run(struct store *base) {
        LOCKED(s, base);
        if (s->failed || !s->active)
                return s->failed ? -EROFS : -EINVAL;
        errint_t r = run(s);
        s->active = false;
        if (r < 0) {
                state_done(&s->captured);
                s->stopped = false;
                s->waits_for_room = r == -ENOSPC && s->kind == CHECKPOINT_RESCUE;
                s->failed = s->kind == CHECKPOINT_RESCUE && !s->waits_for_room;
                if (r != -ENOSPC || s->kind != CHECKPOINT_NORMAL)
                        (void)troubled(s, r);
        }
        return r;
}

/* --- the rest --- */

static errint_t put_epoch(struct memory_store *s, int kind, uint64_t epoch) {
        errint_t r = usable(s);
        if (r < 0)
                return r;
        g_ptr_array_add(s->pending, record_new(kind, (struct position){epoch, s->pos.seq}, NULL, 0, NULL, 0));
        return troubled(s, flush(s));
}
static errint_t memory_set_promised(struct store *base, uint64_t promised) {
        LOCKED(s, base);
        errint_t r = put_epoch(s, KEPT_PROMISED, promised);
        if (r == 0)
                s->promised = MAX_OF(s->promised, promised);
        return r;
}
static errint_t memory_set_adopted(struct store *base, uint64_t epoch) {
        LOCKED(s, base);
        errint_t r = put_epoch(s, KEPT_ADOPTED, epoch);
        if (r == 0)
                s->adopted = MAX_OF(s->adopted, epoch);
        return r;
}
static errint_t memory_set_cluster_id(struct store *base, const uint8_t id[CLUSTER_ID_SIZE]) {
        LOCKED(s, base);
        errint_t r = usable(s);
        if (r == 0)
                r = passes(s, STORE_CHECKPOINT);
        if (r == 0)
                memcpy(s->backing->cluster_id, id, CLUSTER_ID_SIZE);
        return r;
}

static errint_t take_over(struct store *base, const struct state *state, uint64_t adopted) {
        LOCKED(s, base);
        if (s->failed || s->stopped || s->read_only)
                return -EROFS;
        errint_t r = s->active ? -EBUSY : passes(s, STORE_REPLACE);
        if (r < 0)
                return r == -EBUSY || r == -ENOSPC ? r : troubled(s, r);
        struct store_backing *b = s->backing;
        state_done(&b->base);
        state_clone(state, &b->base, tree_hash_seed_of(state->tree));
        g_ptr_array_set_size(s->pending, 0);
        g_ptr_array_set_size(b->records, 0);
        g_ptr_array_set_size(b->older, 0);
        b->durable = 0;
        b->adopted = s->adopted = adopted;
        b->promised = s->promised = MAX_OF(s->promised, adopted);
        s->pos = state->pos;
        s->trouble = 0;
        s->used = s->since_barrier = 0;
        return 0;
}

static errint_t memory_replace(struct store *base, const struct state *state, uint64_t adopted, void (*captured)(void *ctx), void *ctx) {
        errint_t r = take_over(base, state, adopted);
        if (captured)
                captured(ctx);
        return r;
}

typedef bool (*read_fn)(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len);

static const struct kept_record *find_op(const GPtrArray *list, uint64_t seq) {
        for (guint i = 0; i < list->len; i++) {
                const struct kept_record *k = list->pdata[i];
                if (k->kind == KEPT_OP && k->pos.seq == seq)
                        return k;
        }
        return NULL;
}

static errint_t memory_read_log(struct store *base, uint64_t from_seq, read_fn fn, void *ctx) {
        LOCKED(s, base);
        bool more = true;
        for (uint64_t seq = from_seq; seq <= s->pos.seq && more; seq++) {
                const struct kept_record *k = find_op(s->backing->older, seq);
                if (!k)
                        k = find_op(s->backing->records, seq);
                if (!k)
                        k = find_op(s->pending, seq);
                if (!k)
                        return -ENOENT;
                more = fn(ctx, k->pos, k->data, k->head_len, k->payload_len > 0 ? k->data + k->head_len : NULL, k->payload_len);
        }
        return 0;
}

static errint_t memory_reserve(struct store *base, uint64_t bytes, bool frees) {
        LOCKED(s, base);
        (void)bytes;
        if (s->failed || s->stopped || s->read_only)
                return -EROFS;
        if (s->trouble < 0 && s->waits_for_room)
                return -ENOSPC;
        return frees ? 0 : passes(s, STORE_RESERVE);
}
static void memory_release(struct store *base, uint64_t bytes) {
        (void)base;
        (void)bytes;
}
static errint_t memory_set_level(struct store *base, enum sync_level level, enum sync_method method, bool direct, uint32_t padding) {
        LOCKED(s, base);
        (void)method;
        (void)direct;
        (void)padding;
        errint_t r = usable(s);
        if (r == 0)
                r = troubled(s, flush(s));
        if (r == 0)
                s->level = level;
        return r;
}
static void memory_set_barrier_bytes(struct store *base, uint64_t bytes) {
        LOCKED(s, base);
        s->barrier_bytes = bytes ? bytes : 8 * MIB;
}
static const char *memory_fail(const struct store *base) {
        LOCKED(s, base);
        return s->failed ? "the in-memory store was told to fail" : NULL;
}

static void memory_close(struct store *base) {
        struct memory_store *s = store_of(base);
        if (s->active)
                state_done(&s->captured);
        g_ptr_array_free(s->pending, TRUE);
        s->backing->open = false;
        if (s->own_backing)
                store_backing_free(s->backing);
        (void)pthread_mutex_destroy(&s->lock);
        free(s);
}

static const struct store_ops memory_ops = {
        .append = memory_append,
        .write_out = memory_write_out,
        .barrier = memory_barrier,
        .wants_barrier = memory_wants_barrier,
        .wants_checkpoint = memory_wants_checkpoint,
        .must_wait = memory_must_wait,
        .checkpoint_prepare = memory_prepare,
        .checkpoint_run = memory_run,
        .set_promised = memory_set_promised,
        .set_adopted = memory_set_adopted,
        .set_cluster_id = memory_set_cluster_id,
        .replace = memory_replace,
        .read_log = memory_read_log,
        .reserve = memory_reserve,
        .release = memory_release,
        .set_level = memory_set_level,
        .set_barrier_bytes = memory_set_barrier_bytes,
        .fail = memory_fail,
        .close = memory_close,
};

static errint_t replay(struct memory_store *s, struct state *state, uint64_t *ret_replayed) {
        struct change_set changes;
        errint_t r = 0;
        change_set_init(&changes);
        for (guint i = 0; r == 0 && i < s->backing->records->len; i++) {
                const struct kept_record *k = s->backing->records->pdata[i];
                struct op op;
                struct op_result result;
                cleanup_free void *scratch = NULL;
                if (k->kind != KEPT_OP) {
                        uint64_t *epoch = k->kind == KEPT_PROMISED ? &s->promised : &s->adopted;
                        *epoch = MAX_OF(*epoch, k->pos.epoch);
                        continue;
                }
                r = op_decode(k->data, k->head_len, k->data + k->head_len, k->payload_len, &op, &scratch);
                if (r == 0)
                        r = state_apply(state, k->pos.epoch, &op, k->data, k->head_len, &changes, &result);
                ++*ret_replayed;
        }
        change_set_done(&changes);
        return r;
}

static struct memory_store *memory_new(const struct store_config *config) {
        struct memory_store *s = NEW(struct memory_store);
        s->base.ops = &memory_ops;
        (void)pthread_mutex_init(&s->lock, NULL);
        s->own_backing = !config->backing;
        s->backing = config->backing ? config->backing : store_backing_new();
        s->metrics = config->metrics ? config->metrics : &s->own_metrics;
        s->level = config->level;
        s->log_size = config->log_size ? config->log_size : 16 * MIB;
        s->barrier_bytes = config->barrier_bytes ? config->barrier_bytes : 8 * MIB;
        s->read_only = config->read_only;
        s->pending = record_list();
        (void)g_strlcpy(s->boot_id, config->boot_id ? config->boot_id : "", sizeof(s->boot_id)); /* cut alike each time */
        s->promised = s->backing->promised;
        s->adopted = s->backing->adopted;
        return s;
}

errint_t store_open_memory(const struct store_config *config, struct state *state, struct store_loaded *ret_loaded, struct store **ret) {
        *ret_loaded = (struct store_loaded){0};
        if (config->backing && config->backing->open) {
                (void)g_strlcpy(ret_loaded->reason, "the backing is in use by another store", sizeof(ret_loaded->reason));
                return -EBUSY;
        }
        struct memory_store *s = memory_new(config);
        struct store_backing *b = s->backing;
        b->open = true;
        uint64_t hash_seed = tree_hash_seed_of(state->tree);
        state_done(state);
        state_clone(&b->base, state, hash_seed);
        errint_t r = replay(s, state, &ret_loaded->replayed);
        if (r < 0) {
                memory_close(&s->base);
                return r;
        }
        s->pos = state->pos;
        ret_loaded->fresh = !b->exists;
        ret_loaded->unclean = !b->clean;
        ret_loaded->boot_changed = !b->clean && strcmp(b->boot_id, s->boot_id) != 0;
        ret_loaded->promised = s->promised;
        ret_loaded->adopted = s->adopted;
        memcpy(ret_loaded->cluster_id, b->cluster_id, CLUSTER_ID_SIZE);
        ret_loaded->schema = 1;
        if (!s->read_only) {
                b->exists = true;
                b->clean = false;
                memcpy(b->boot_id, s->boot_id, sizeof(b->boot_id));
        }
        *ret = &s->base;
        return 0;
}
