/* notify.c: see notify.h. Change sets become batches of tasks; batches are done in the order in which they came. */
#include "notify.h"

#include "base/env.h"
#include "base/log.h"
#include "core/limits.h"
#include "seen.h"

#include <string.h>
#include <time.h>

#define INODE_THREADS 2u
#define NAME_THREADS 4u
#define NAME_WAIT_NS UINT64_C(5000000) /* a name that takes longer waits for its directory's lock */
#define MONITOR_NS 2000000L
#define FENCE_SPINS 64

enum task_kind { TASK_INODE, TASK_NAME, TASK_FENCE, TASK_ALL };
struct batch {
        uint64_t seq, generation;
        size_t remaining;
        bool fence, ready;
        void (*done)(void *ctx, uint64_t seq);
        void *ctx;
        struct batch *next;
};
struct task {
        enum task_kind kind;
        uint64_t ino; /* of a name: its directory */
        int64_t offset, length;
        uint64_t queued_ns;
        struct batch *batch; /* NULL: nobody waits; of a name also: the epoch settles it */
        struct task *next;
        uint8_t name_len;
        char name[];
};
struct queue {
        struct task *head, **tail;
};
/* A thread that expires names, and what it is at. */
struct slot {
        struct task *task;
        uint64_t started_ns;
};
struct notify {
        struct fuse_edge *edge;
        struct seen *seen;
        _Atomic uint64_t generation, seq;
        pthread_mutex_t lock; /* guards all that follows */
        pthread_cond_t inode_work, name_work, name_busy, recheck_idle;
        struct queue inodes, rechecks, names;
        unsigned rechecks_running;
        struct slot slots[NAME_THREADS];
        unsigned next_slot;
        struct batch *first, **last; /* in order of seq */
        bool draining, stopping, monitor_sleeps;
        pthread_t threads[INODE_THREADS + NAME_THREADS + 1];
        unsigned n_threads;
};

static uint64_t now_ns(void) {
        return env_monotonic_ns(env_system());
}

/* --- queues and batches; the lock is held --- */

static void queue_init(struct queue *q) {
        q->head = NULL;
        q->tail = &q->head;
}

static void queue_add(struct queue *q, struct task *t) {
        t->next = NULL;
        *q->tail = t;
        q->tail = &t->next;
}

static struct task *queue_take(struct queue *q, struct task **link) {
        struct task *t = *link;
        if (!t)
                return NULL;
        *link = t->next;
        if (q->tail == &t->next)
                q->tail = link;
        return t;
}

static struct task *task_new(enum task_kind kind, uint64_t ino, struct batch *b, const char *name, size_t len) {
        struct task *t = xmalloc(sizeof(*t) + len);
        *t = (struct task){.kind = kind, .ino = ino, .batch = b, .name_len = (uint8_t)len};
        if (len)
                memcpy(t->name, name, len);
        if (b)
                b->remaining++;
        return t;
}

static void add_inode(struct notify *n, struct task *t) {
        queue_add(&n->inodes, t);
        pthread_cond_signal(&n->inode_work);
}

static void batch_settle(struct notify *n, struct batch *b) {
        if (!b || --b->remaining > 0)
                return;
        if (b->fence) {
                b->fence = false;
                add_inode(n, task_new(TASK_FENCE, 0, b, NULL, 0));
        } else {
                b->ready = true;
        }
}

/* Calls what is done, in order, one thread at a time; the lock is released around each call. */
static void drain(struct notify *n) {
        if (n->draining)
                return;
        n->draining = true;
        while (n->first && n->first->ready) {
                struct batch *b = n->first;
                n->first = b->next;
                if (!n->first)
                        n->last = &n->first;
                pthread_mutex_unlock(&n->lock);
                if (b->done)
                        b->done(b->ctx, b->seq);
                free(b);
                pthread_mutex_lock(&n->lock);
        }
        n->draining = false;
}

/* --- inodes --- */

static bool forget_one(void *ctx, uint64_t ino) {
        struct notify *n = ctx;
        return notify_send_inode(n->edge, ino, 0, 0) != -ENOENT;
}

static void forget_all(struct notify *n) {
        if (n->edge->epoch)
                (void)notify_send_epoch(n->edge); /* fails only when the session is gone */
        seen_each(n->seen, forget_one, n);
}

static bool workers_passed(const struct fuse_edge *e, uint64_t generation) {
        for (unsigned i = 0; i < e->n_workers; i++) {
                uint64_t active = atomic_load(&e->workers[i].active);
                if (active != 0 && active < generation)
                        return false;
        }
        return true;
}

/* The lock is held, and released while working. */
static void run_recheck(struct notify *n) {
        struct task *t = queue_take(&n->rechecks, &n->rechecks.head);
        n->rechecks_running++;
        pthread_mutex_unlock(&n->lock);
        (void)notify_send_inode(n->edge, t->ino, t->offset, t->length); /* ENOENT: already forgotten */
        free(t);
        pthread_mutex_lock(&n->lock);
        if (--n->rechecks_running == 0)
                pthread_cond_broadcast(&n->recheck_idle);
}

/* Waits, without the lock, until no worker is within a request that began before the change set; those requests are answered from
 * memory. Then what these workers found stale is notified. */
static void run_fence(struct notify *n, uint64_t generation) {
        for (int i = 0; !workers_passed(n->edge, generation); i++) {
                struct timespec pause = {.tv_nsec = i < FENCE_SPINS ? 0 : 50000};
                (void)nanosleep(&pause, NULL); /* too short a pause is looked at again */
        }
        pthread_mutex_lock(&n->lock);
        while (n->rechecks.head || n->rechecks_running > 0)
                if (n->rechecks.head)
                        run_recheck(n);
                else
                        pthread_cond_wait(&n->recheck_idle, &n->lock);
        pthread_mutex_unlock(&n->lock);
}

static void run_inode_task(struct notify *n, const struct task *t) {
        switch (t->kind) {
        case TASK_INODE:
                (void)notify_send_inode(n->edge, t->ino, t->offset, t->length); /* ENOENT: not known to the kernel */
                break;
        case TASK_FENCE:
                run_fence(n, t->batch->generation);
                break;
        case TASK_ALL:
                forget_all(n);
                break;
        case TASK_NAME:
                UNREACHABLE();
        }
}

static void *inode_main(void *arg) {
        struct notify *n = arg;
        pthread_mutex_lock(&n->lock);
        while (!n->stopping) {
                if (n->rechecks.head) {
                        run_recheck(n);
                        continue;
                }
                struct task *t = queue_take(&n->inodes, &n->inodes.head);
                if (!t) {
                        pthread_cond_wait(&n->inode_work, &n->lock);
                        continue;
                }
                pthread_mutex_unlock(&n->lock);
                run_inode_task(n, t);
                pthread_mutex_lock(&n->lock);
                batch_settle(n, t->batch);
                free(t);
                drain(n);
        }
        pthread_mutex_unlock(&n->lock);
        return NULL;
}

/* --- names --- */

static bool dir_is_busy(const struct notify *n, uint64_t dir) {
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (n->slots[i].task && n->slots[i].task->ino == dir)
                        return true;
        return false;
}

static struct task *take_name(struct notify *n) {
        for (struct task **link = &n->names.head; *link; link = &(*link)->next)
                if (!dir_is_busy(n, (*link)->ino))
                        return queue_take(&n->names, link);
        return NULL;
}

static void *name_main(void *arg) {
        struct notify *n = arg;
        pthread_mutex_lock(&n->lock);
        struct slot *slot = &n->slots[n->next_slot++];
        while (!n->stopping) {
                struct task *t = take_name(n);
                if (!t) {
                        pthread_cond_wait(&n->name_work, &n->lock);
                        continue;
                }
                *slot = (struct slot){.task = t, .started_ns = now_ns()};
                if (n->monitor_sleeps)
                        pthread_cond_signal(&n->name_busy);
                pthread_mutex_unlock(&n->lock);
                (void)notify_send_expire(n->edge, t->ino, t->name, t->name_len); /* ENOENT: not cached */
                pthread_mutex_lock(&n->lock);
                slot->task = NULL;
                batch_settle(n, t->batch);
                free(t);
                drain(n);
        }
        pthread_mutex_unlock(&n->lock);
        return NULL;
}

static bool name_is_late(const struct notify *n, uint64_t now) {
        unsigned stuck = 0;
        for (unsigned i = 0; i < NAME_THREADS; i++) {
                const struct slot *s = &n->slots[i];
                if (!s->task || now - s->started_ns < NAME_WAIT_NS)
                        continue;
                if (s->task->batch)
                        return true;
                stuck++; /* settled by an epoch before, and still held up: others may wait behind it */
        }
        for (const struct task *t = stuck ? n->names.head : NULL; t; t = t->next)
                if ((stuck == NAME_THREADS || dir_is_busy(n, t->ino)) && now - t->queued_ns >= NAME_WAIT_NS)
                        return true;
        return false;
}

/* The lock is held, and released while sending: only names that waited before are settled. */
static void raise_epoch(struct notify *n) {
        struct queue waiting = n->names;
        queue_init(&n->names);
        if (!waiting.head)
                queue_init(&waiting);
        struct batch *running[NAME_THREADS] = {NULL};
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (n->slots[i].task)
                        running[i] = steal_pointer(&n->slots[i].task->batch);
        pthread_mutex_unlock(&n->lock);
        errint_t r = notify_send_epoch(n->edge);
        if (r < 0 && r != -ENODEV && r != -ENOTCONN)
                log_error("the kernel refused to raise the epoch of cached names: %s", strerror(-r));
        pthread_mutex_lock(&n->lock);
        for (unsigned i = 0; i < NAME_THREADS; i++)
                batch_settle(n, running[i]);
        while (waiting.head) {
                struct task *t = queue_take(&waiting, &waiting.head);
                batch_settle(n, t->batch);
                free(t);
        }
        drain(n);
}

static bool names_waiting(const struct notify *n) {
        if (n->names.head)
                return true;
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (n->slots[i].task)
                        return true;
        return false;
}

static void *monitor_main(void *arg) {
        struct notify *n = arg;
        pthread_mutex_lock(&n->lock);
        while (!n->stopping) {
                if (!names_waiting(n)) {
                        n->monitor_sleeps = true;
                        pthread_cond_wait(&n->name_busy, &n->lock);
                        n->monitor_sleeps = false;
                        continue;
                }
                if (name_is_late(n, now_ns())) {
                        raise_epoch(n);
                        continue;
                }
                pthread_mutex_unlock(&n->lock);
                (void)nanosleep(&(struct timespec){.tv_nsec = MONITOR_NS}, NULL); /* too short a pause is looked at again */
                pthread_mutex_lock(&n->lock);
        }
        pthread_mutex_unlock(&n->lock);
        return NULL;
}

/* --- change sets --- */

static void want_inode(struct notify *n, struct batch *b, uint64_t ino, int64_t offset, int64_t length) {
        struct task *t = task_new(TASK_INODE, ino, b, NULL, 0);
        t->offset = offset;
        t->length = length;
        add_inode(n, t);
}

static void want_name(struct notify *n, struct batch *b, const struct change *c) {
        if (n->edge->entry_valid_s == 0 || c->name_len > LIMIT_NAME)
                return; /* the kernel asks each time */
        struct task *t = task_new(TASK_NAME, c->parent, b, c->name, c->name_len);
        t->queued_ns = now_ns();
        queue_add(&n->names, t);
        pthread_cond_signal(&n->name_work);
}

static bool is_entry(const struct change *c) {
        return c->kind == CHANGE_ENTRY_ADD || c->kind == CHANGE_ENTRY_DEL;
}

/* Whether the whole inode `ino` is notified because of an earlier item: an operation changes few things, often the same directory twice. */
static bool listed_before(const struct change_set *s, size_t i, uint64_t ino) {
        for (size_t j = i < 8 ? 0 : i - 8; j < i; j++)
                if (is_entry(&s->items[j]) && s->items[j].parent == ino)
                        return true;
        return false;
}

static void want_change(struct notify *n, struct batch *b, const struct change_set *s, size_t i) {
        const struct change *c = &s->items[i];
        switch (c->kind) {
        case CHANGE_CONTENT:
                want_inode(n, b, c->ino, (int64_t)c->offset, c->length > INT64_MAX ? 0 : (int64_t)c->length);
                break;
        case CHANGE_ATTR:
        case CHANGE_XATTR:
        case CHANGE_INODE_GONE:
                if (!listed_before(s, i, c->ino))
                        want_inode(n, b, c->ino, -1, 0);
                break;
        case CHANGE_ENTRY_ADD:
        case CHANGE_ENTRY_DEL:
                want_name(n, b, c);
                if (!listed_before(s, i, c->parent))
                        want_inode(n, b, c->parent, 0, 0);
                break;
        case CHANGE_INODE_NEW: /* numbers are never reused: the kernel cannot know it */
        case CHANGE_SETTING:
                break;
        }
}

static struct batch *batch_new(struct notify *n, uint64_t seq, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        struct batch *b = NEW(struct batch);
        *b = (struct batch){.seq = seq, .generation = atomic_fetch_add(&n->generation, 1) + 1, .done = done, .ctx = ctx};
        return b;
}

static void batch_add(struct notify *n, struct batch *b) {
        b->ready = b->remaining == 0;
        *n->last = b;
        n->last = &b->next;
        drain(n);
}

void notify_changes(struct notify *n, const struct change_set *changes, uint64_t seq, bool local, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        atomic_store(&n->seq, seq);
        struct batch *b = batch_new(n, seq, done, ctx);
        pthread_mutex_lock(&n->lock);
        if (!n->stopping && !local)
                for (size_t i = 0; i < changes->n; i++)
                        want_change(n, b, changes, i);
        b->fence = b->remaining > 0;
        batch_add(n, b);
        pthread_mutex_unlock(&n->lock);
}

void notify_inode(struct notify *n, uint64_t ino) {
        (void)atomic_fetch_add(&n->generation, 1);
        pthread_mutex_lock(&n->lock);
        if (!n->stopping)
                want_inode(n, NULL, ino, 0, 0);
        pthread_mutex_unlock(&n->lock);
}

void notify_all(struct notify *n, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        struct batch *b = batch_new(n, notify_seq(n), done, ctx);
        pthread_mutex_lock(&n->lock);
        if (!n->stopping) {
                b->fence = true;
                add_inode(n, task_new(TASK_ALL, 0, b, NULL, 0));
        }
        batch_add(n, b);
        pthread_mutex_unlock(&n->lock);
}

void notify_recheck(struct notify *n, uint64_t ino, bool listing) {
        struct task *t = task_new(TASK_INODE, ino, NULL, NULL, 0);
        t->offset = listing ? 0 : -1;
        pthread_mutex_lock(&n->lock);
        queue_add(&n->rechecks, t);
        pthread_cond_signal(&n->inode_work);
        pthread_mutex_unlock(&n->lock);
}

void notify_known(struct notify *n, uint64_t ino) {
        seen_mark(n->seen, ino);
}

uint64_t notify_generation(const struct notify *n) {
        return atomic_load(&n->generation);
}

uint64_t notify_seq(const struct notify *n) {
        return atomic_load(&n->seq);
}

/* --- life --- */

struct notify *notify_start(struct fuse_edge *e) {
        struct notify *n = NEW(struct notify);
        n->edge = e;
        n->seen = seen_new();
        atomic_init(&n->generation, 1);
        pthread_mutex_init(&n->lock, NULL);
        pthread_cond_init(&n->inode_work, NULL);
        pthread_cond_init(&n->name_work, NULL);
        pthread_cond_init(&n->name_busy, NULL);
        pthread_cond_init(&n->recheck_idle, NULL);
        queue_init(&n->inodes);
        queue_init(&n->rechecks);
        queue_init(&n->names);
        n->last = &n->first;
        for (unsigned i = 0; i < ARRAY_LEN(n->threads); i++) {
                void *(*main_fn)(void *) = i < INODE_THREADS ? inode_main : i < INODE_THREADS + NAME_THREADS ? name_main : monitor_main;
                if (pthread_create(&n->threads[i], NULL, main_fn, n) != 0)
                        break;
                n->n_threads++;
        }
        if (n->n_threads == ARRAY_LEN(n->threads))
                return n;
        notify_stop(n);
        notify_free(n);
        return NULL;
}

static void queue_clear(struct queue *q) {
        while (q->head)
                free(queue_take(q, &q->head));
}

void notify_stop(struct notify *n) {
        pthread_mutex_lock(&n->lock);
        n->stopping = true;
        pthread_cond_broadcast(&n->inode_work);
        pthread_cond_broadcast(&n->name_work);
        pthread_cond_broadcast(&n->name_busy);
        pthread_mutex_unlock(&n->lock);
        for (unsigned i = 0; i < n->n_threads; i++)
                pthread_join(n->threads[i], NULL);
        n->n_threads = 0;
        pthread_mutex_lock(&n->lock);
        queue_clear(&n->inodes);
        queue_clear(&n->rechecks);
        queue_clear(&n->names);
        for (struct batch *b = n->first; b; b = b->next)
                b->ready = true;
        drain(n);
        pthread_mutex_unlock(&n->lock);
}

void notify_free(struct notify *n) {
        seen_free(n->seen);
        pthread_mutex_destroy(&n->lock);
        pthread_cond_destroy(&n->inode_work);
        pthread_cond_destroy(&n->name_work);
        pthread_cond_destroy(&n->name_busy);
        pthread_cond_destroy(&n->recheck_idle);
        free(n);
}
