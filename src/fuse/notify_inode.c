/* notify_inode.c: attributes, pages and listings; inodes in doubt; the fence behind a change set. */
#include "notify_internal.h"

#include <time.h>

#define FENCE_SPINS   64
#define PAUSE_NS      50000
#define CONTENT_TRIES 3
#define DOUBT_WAIT_NS UINT64_C(20000000) /* how long a change set waits for an inode in doubt */

static void pause_ns(long ns) {
        (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); /* too short a pause is looked at again */
}

/* The kernel does not know the inode, but either is about to or is about to say that it has forgotten it. */
static bool in_doubt(const struct notify *n, uint64_t ino, errint_t error) {
        return error == -ENOENT && known_has(n->known, ino);
}

void notify_inode_surely(struct notify *n, uint64_t ino, int64_t offset, int64_t length) {
        uint64_t began = notify_now_ns();
        for (;;) {
                if (!in_doubt(n, ino, notify_send_inode(n->edge, ino, offset, length)))
                        return; /* any other error: the session is ending */
                if (notify_now_ns() - began >= DOUBT_WAIT_NS)
                        break;
                pause_ns(PAUSE_NS);
        }
        if (n->edge->epoch)
                (void)notify_send_epoch(n->edge); /* fails only when the session is ending */
        /* Who has it open already finds out as soon as the kernel knows it. */
        struct task *t = task_new(ino, NULL, NULL, 0);
        t->offset = offset;
        t->length = length;
        (void)pthread_mutex_lock(&n->lock);
        queue_add(&n->doubts, t);
        monitor_wake(n);
        (void)pthread_mutex_unlock(&n->lock);
}

void notify_doubts(struct notify *n) {
        struct queue again;
        queue_init(&again);
        for (struct task *t; !n->stopping && (t = queue_take(&n->doubts, &n->doubts.head));) {
                (void)pthread_mutex_unlock(&n->lock);
                bool still = in_doubt(n, t->ino, notify_send_inode(n->edge, t->ino, t->offset, t->length));
                (void)pthread_mutex_lock(&n->lock);
                if (still)
                        queue_add(&again, t);
                else
                        free(t);
        }
        while (again.head)
                queue_add(&n->doubts, queue_take(&again, &again.head));
}

/* --- everything: another history was taken over --- */

static void forget_one(void *ctx, uint64_t ino) {
        notify_inode_surely(ctx, ino, 0, 0);
}

static void forget_all(struct notify *n) {
        if (n->edge->epoch)
                (void)notify_send_epoch(n->edge); /* fails only when the session is ending */
        forget_one(n, INO_ROOT);                  /* which is known without having been answered */
        known_each(n->known, forget_one, n);
}

/* --- the fence --- */

static bool workers_passed(const struct fuse_edge *e, uint64_t generation) {
        for (unsigned i = 0; i < e->n_workers; i++) {
                uint64_t active = atomic_load(&e->workers[i].active);
                if (active != 0 && active < generation)
                        return false;
        }
        return true;
}

/* Waits until no worker is within a request that began before the change set. */
static void fence(const struct notify *n, uint64_t generation) {
        for (int i = 0; !workers_passed(n->edge, generation); i++)
                pause_ns(i < FENCE_SPINS ? 0 : PAUSE_NS);
}

/* Somebody who reads all the time may be shown old content at each try: the last one is made with the new. */
static void forget_content(struct notify *n, const struct batch *b, const struct task *t) {
        struct fs *fs = n->edge->config.fs;
        int64_t offset = t->offset, length = t->length;
        for (int i = 1;; i++) {
                /* An answer with what was before that began behind the batch's own fence. */
                if (fs_telling(fs, t->ino, b->seq) || i > 1)
                        fence(n, atomic_fetch_add(&n->generation, 1) + 1);
                notify_inode_surely(n, t->ino, offset, length);
                if (fs_told(fs, t->ino, b->seq, i >= CONTENT_TRIES))
                        return;
                offset = length = 0;
        }
}

static void run_batch(struct notify *n, struct batch *b) {
        fence(n, b->generation);
        if (b->everything)
                forget_all(n);
        for (struct task *t; (t = queue_take(&b->inodes, &b->inodes.head)); free(t))
                if (t->content)
                        forget_content(n, b, t);
                else
                        notify_inode_surely(n, t->ino, t->offset, t->length);
}

void *notify_inode_main(void *arg) {
        struct notify *n = arg;
        (void)pthread_mutex_lock(&n->lock);
        while (!n->stopping) {
                struct task *t = queue_take(&n->inodes, &n->inodes.head);
                if (!t) {
                        (void)pthread_cond_wait(&n->inode_work, &n->lock);
                        continue;
                }
                (void)pthread_mutex_unlock(&n->lock);
                if (t->batch)
                        run_batch(n, t->batch);
                else
                        notify_inode_surely(n, t->ino, t->offset, t->length);
                (void)pthread_mutex_lock(&n->lock);
                batch_settle(n, t->batch);
                free(t);
                batches_drain(n);
        }
        (void)pthread_mutex_unlock(&n->lock);
        return NULL;
}
