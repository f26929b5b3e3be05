/* notify.c: see notify.h. Change sets become batches of tasks; batches are done in the order in which they came. */
#include "notify_internal.h"

#include "base/env.h"
#include "core/limits.h"

#include <string.h>

uint64_t notify_now_ns(void) {
        return env_monotonic_ns(env_system());
}

/* --- queues and batches; the lock is held --- */

void queue_init(struct queue *q) {
        q->head = NULL;
        q->tail = &q->head;
}

void queue_add(struct queue *q, struct task *t) {
        t->next = NULL;
        *q->tail = t;
        q->tail = &t->next;
}

struct task *queue_take(struct queue *q, struct task **link) {
        struct task *t = *link;
        if (!t)
                return NULL;
        *link = t->next;
        if (q->tail == &t->next)
                q->tail = link;
        return t;
}

void queue_clear(struct queue *q) {
        while (q->head)
                free(queue_take(q, &q->head));
}

struct task *task_new(uint64_t ino, struct batch *b, const char *name, size_t len) {
        struct task *t = xmalloc(sizeof(*t) + len);
        *t = (struct task){.ino = ino, .batch = b, .name_len = (uint8_t)len, .queued_ns = notify_now_ns()};
        if (len)
                memcpy(t->name, name, len);
        if (b)
                b->remaining++;
        return t;
}

static void add_inode(struct notify *n, struct task *t) {
        queue_add(&n->inodes, t);
        (void)pthread_cond_signal(&n->inode_work);
}

void batch_settle(struct notify *n, struct batch *b) {
        (void)n;
        if (b && --b->remaining == 0)
                b->ready = true;
}

void monitor_wake(struct notify *n) {
        if (n->monitor_sleeps)
                (void)pthread_cond_signal(&n->monitor_work);
}

void batches_drain(struct notify *n) {
        if (n->draining)
                return;
        n->draining = true;
        while (n->first && n->first->ready) {
                struct batch *b = n->first;
                n->first = b->next;
                if (!n->first)
                        n->last = &n->first;
                (void)pthread_mutex_unlock(&n->lock);
                if (b->done)
                        b->done(b->ctx, b->seq);
                free(b);
                (void)pthread_mutex_lock(&n->lock);
        }
        n->draining = false;
}

/* --- from changes to tasks --- */

static struct task *want_inode(struct batch *b, uint64_t ino, int64_t offset, int64_t length) {
        struct task *t = task_new(ino, NULL, NULL, 0);
        t->offset = offset;
        t->length = length;
        queue_add(&b->inodes, t);
        return t;
}

static bool is_entry(const struct change *c) {
        return c->kind == CHANGE_ENTRY_ADD || c->kind == CHANGE_ENTRY_DEL;
}

/* Whether all of the inode is notified because of an earlier item: an operation changes few things, often one directory twice. */
static bool listed_before(const struct change_set *s, size_t i, uint64_t ino) {
        for (size_t j = i < 8 ? 0 : i - 8; j < i; j++)
                if (is_entry(&s->items[j]) && s->items[j].parent == ino)
                        return true;
        return false;
}

static bool goes_away(const struct change_set *s, const struct change *c) {
        if (c->kind != CHANGE_ENTRY_DEL || !c->is_dir)
                return c->kind == CHANGE_ENTRY_DEL;
        for (size_t i = 0; i < s->n; i++)
                if (s->items[i].kind == CHANGE_INODE_GONE && s->items[i].ino == c->ino)
                        return true;
        return false;
}

static void want_entry(struct notify *n, struct batch *b, const struct change_set *s, size_t i) {
        const struct change *c = &s->items[i];
        if (n->edge->entry_valid_s == 0) { /* the kernel asks for names each time */
                if (!listed_before(s, i, c->parent))
                        (void)want_inode(b, c->parent, 0, 0);
                return;
        }
        PRE(c->name_len <= LIMIT_NAME);
        struct task *t = task_new(c->parent, b, c->name, c->name_len);
        t->drop = goes_away(s, c);
        queue_add(&n->names, t); /* and the directory after it */
        (void)pthread_cond_signal(&n->name_work);
}

static void want_change(struct notify *n, struct batch *b, const struct change_set *s, size_t i) {
        const struct change *c = &s->items[i];
        switch (c->kind) {
        case CHANGE_CONTENT:
                want_inode(b, c->ino, (int64_t)c->offset, c->length > INT64_MAX ? 0 : (int64_t)c->length)->content = true;
                break;
        case CHANGE_ATTR:
        case CHANGE_XATTR:
        case CHANGE_INODE_GONE:
                (void)want_inode(b, c->ino, -1, 0);
                break;
        case CHANGE_ENTRY_ADD:
        case CHANGE_ENTRY_DEL:
                want_entry(n, b, s, i);
                break;
        case CHANGE_INODE_NEW: /* numbers are never reused: the kernel cannot know it */
        case CHANGE_SETTING:
                break;
        }
}

static struct batch *batch_new(struct notify *n, uint64_t seq, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        struct batch *b = NEW(struct batch);
        *b = (struct batch){.seq = seq, .generation = atomic_fetch_add(&n->generation, 1) + 1, .done = done, .ctx = ctx};
        queue_init(&b->inodes);
        return b;
}

static void batch_add(struct notify *n, struct batch *b) {
        if (b->inodes.head || b->everything)
                add_inode(n, task_new(0, b, NULL, 0));
        b->ready = b->remaining == 0;
        *n->last = b;
        n->last = &b->next;
        batches_drain(n);
}

/* Of its own operations the kernel knows everything that it keeps: tests/unit/fuse/test_local.c is the proof. */
void notify_changes(struct notify *n, const struct change_set *changes, uint64_t seq, bool local, void (*done)(void *ctx, uint64_t seq),
                    void *ctx) {
        atomic_store(&n->seq, seq);
        struct batch *b = batch_new(n, seq, done, ctx);
        (void)pthread_mutex_lock(&n->lock);
        if (!n->stopping && !local)
                for (size_t i = 0; i < changes->n; i++)
                        want_change(n, b, changes, i);
        batch_add(n, b);
        (void)pthread_mutex_unlock(&n->lock);
}

void notify_inode(struct notify *n, uint64_t ino, int64_t offset) {
        (void)atomic_fetch_add(&n->generation, 1);
        struct task *t = task_new(ino, NULL, NULL, 0);
        t->offset = offset;
        (void)pthread_mutex_lock(&n->lock);
        if (n->stopping)
                free(t);
        else
                add_inode(n, t);
        (void)pthread_mutex_unlock(&n->lock);
}

void notify_all(struct notify *n, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        struct batch *b = batch_new(n, notify_seq(n), done, ctx);
        (void)pthread_mutex_lock(&n->lock);
        b->everything = !n->stopping;
        batch_add(n, b);
        (void)pthread_mutex_unlock(&n->lock);
}

void notify_known(struct notify *n, uint64_t ino) {
        known_add(n->known, ino);
}

bool notify_knows(const struct notify *n, uint64_t ino) {
        return known_has(n->known, ino);
}

void notify_forgotten(struct notify *n, uint64_t ino, uint64_t count) {
        known_forget(n->known, ino, count);
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
        n->known = known_new();
        atomic_init(&n->generation, 1);
        (void)pthread_mutex_init(&n->lock, NULL);
        (void)pthread_cond_init(&n->inode_work, NULL);
        (void)pthread_cond_init(&n->name_work, NULL);
        (void)pthread_cond_init(&n->monitor_work, NULL);
        queue_init(&n->inodes);
        queue_init(&n->names);
        queue_init(&n->doubts);
        n->last = &n->first;
        for (unsigned i = 0; i < ARRAY_LEN(n->threads); i++) {
                void *(*run)(void *) = i < INODE_THREADS                  ? notify_inode_main
                                       : i < INODE_THREADS + NAME_THREADS ? notify_name_main
                                                                          : notify_monitor_main;
                if (pthread_create(&n->threads[i], NULL, run, n) != 0)
                        break;
                n->n_threads++;
        }
        if (n->n_threads == ARRAY_LEN(n->threads))
                return n;
        notify_stop(n);
        notify_free(n);
        return NULL;
}

void notify_stop(struct notify *n) {
        (void)pthread_mutex_lock(&n->lock);
        n->stopping = true;
        (void)pthread_cond_broadcast(&n->inode_work);
        (void)pthread_cond_broadcast(&n->name_work);
        (void)pthread_cond_broadcast(&n->monitor_work);
        (void)pthread_mutex_unlock(&n->lock);
        for (unsigned i = 0; i < n->n_threads; i++)
                (void)pthread_join(n->threads[i], NULL);
        n->n_threads = 0;
        (void)pthread_mutex_lock(&n->lock);
        queue_clear(&n->inodes);
        queue_clear(&n->names);
        for (struct batch *b = n->first; b; b = b->next) {
                queue_clear(&b->inodes);
                b->ready = true;
        }
        batches_drain(n);
        (void)pthread_mutex_unlock(&n->lock);
}

void notify_free(struct notify *n) {
        queue_clear(&n->doubts);
        known_free(n->known);
        (void)pthread_mutex_destroy(&n->lock);
        (void)pthread_cond_destroy(&n->inode_work);
        (void)pthread_cond_destroy(&n->name_work);
        (void)pthread_cond_destroy(&n->monitor_work);
        free(n);
}
