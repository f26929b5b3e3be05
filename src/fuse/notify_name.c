/* notify_name.c: expiring and dropping names, each followed by its directory's listing; the monitor that does not let them wait. */
#include "notify_internal.h"

#include "base/log.h"

#include <string.h>
#include <time.h>

#define NAME_WAIT_NS UINT64_C(5000000) /* a name that takes longer waits for its directory's lock */
#define MONITOR_NS   2000000L

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

void *notify_name_main(void *arg) {
        struct notify *n = arg;
        (void)pthread_mutex_lock(&n->lock);
        struct slot *slot = &n->slots[n->next_slot++];
        while (!n->stopping) {
                struct task *t = take_name(n);
                if (!t) {
                        (void)pthread_cond_wait(&n->name_work, &n->lock);
                        continue;
                }
                *slot = (struct slot){.task = t, .started_ns = notify_now_ns()};
                monitor_wake(n);
                (void)pthread_mutex_unlock(&n->lock);
                (void)notify_send_name(n->edge, t->ino, t->name, t->name_len, t->drop); /* ENOENT: not cached */
                notify_inode_surely(n, t->ino, 0, 0);
                (void)pthread_mutex_lock(&n->lock);
                slot->task = NULL;
                batch_settle(n, t->batch);
                free(t);
                if (n->names.head) /* one that waited for this directory */
                        (void)pthread_cond_signal(&n->name_work);
                batches_drain(n);
        }
        (void)pthread_mutex_unlock(&n->lock);
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

/* The lock is held, and released while sending: only names that waited before are settled. Their directories are dropped here, and once
 * more when those that are held up get their lock. */
static void raise_epoch(struct notify *n) {
        struct queue waiting;
        queue_init(&waiting);
        while (n->names.head)
                queue_add(&waiting, queue_take(&n->names, &n->names.head));
        struct batch *running[NAME_THREADS] = {NULL};
        uint64_t dirs[NAME_THREADS];
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (n->slots[i].task) {
                        running[i] = steal_pointer(&n->slots[i].task->batch);
                        dirs[i] = n->slots[i].task->ino;
                }
        (void)pthread_mutex_unlock(&n->lock);
        errint_t r = notify_send_epoch(n->edge);
        if (r < 0 && r != -ENODEV && r != -ENOTCONN)
                log_error("the kernel refused to raise the epoch of cached names: %s", strerror(-r));
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (running[i])
                        notify_inode_surely(n, dirs[i], 0, 0);
        for (const struct task *t = waiting.head; t; t = t->next)
                notify_inode_surely(n, t->ino, 0, 0);
        (void)pthread_mutex_lock(&n->lock);
        for (unsigned i = 0; i < NAME_THREADS; i++)
                batch_settle(n, running[i]);
        while (waiting.head) {
                struct task *t = queue_take(&waiting, &waiting.head);
                batch_settle(n, t->batch);
                free(t);
        }
        batches_drain(n);
}

bool names_waiting(const struct notify *n) {
        if (n->names.head)
                return true;
        for (unsigned i = 0; i < NAME_THREADS; i++)
                if (n->slots[i].task)
                        return true;
        return false;
}

void *notify_monitor_main(void *arg) {
        struct notify *n = arg;
        (void)pthread_mutex_lock(&n->lock);
        while (!n->stopping) {
                if (!names_waiting(n) && !n->doubts.head) {
                        n->monitor_sleeps = true;
                        (void)pthread_cond_wait(&n->monitor_work, &n->lock);
                        n->monitor_sleeps = false;
                        continue;
                }
                if (name_is_late(n, notify_now_ns())) {
                        raise_epoch(n);
                        continue;
                }
                notify_doubts(n);
                (void)pthread_mutex_unlock(&n->lock);
                (void)nanosleep(&(struct timespec){.tv_nsec = MONITOR_NS}, NULL); /* too short a pause is looked at again */
                (void)pthread_mutex_lock(&n->lock);
        }
        (void)pthread_mutex_unlock(&n->lock);
        return NULL;
}
