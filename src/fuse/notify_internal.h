/* notify_internal.h: what the parts of the notification pool share. Private to notify*.c. */
#pragma once

#include "notify.h"

#include "known.h"

#define INODE_THREADS 2u
#define NAME_THREADS 4u

struct task;
struct queue {
        struct task *head, **tail;
};
struct batch { /* a change set on its way */
        uint64_t seq, generation;
        struct queue inodes; /* run by one task, behind the fence */
        bool everything;     /* that task forgets all inodes instead */
        size_t remaining;    /* tasks: that one, and its names */
        bool ready;
        void (*done)(void *ctx, uint64_t seq);
        void *ctx;
        struct batch *next;
};
struct task {
        uint64_t ino; /* of a name: its directory; 0: all of the batch's inodes */
        int64_t offset, length;
        uint64_t queued_ns;
        struct batch *batch; /* NULL: nobody waits; of a running name: an epoch has settled it */
        struct task *next;
        bool drop;    /* a name: not only asked for again */
        bool content; /* an inode: until it is notified, its content is shown as it was before */
        uint8_t name_len;
        char name[];
};
struct slot { /* a thread that expires names, and what it is at */
        struct task *task;
        uint64_t started_ns;
};
struct notify {
        struct fuse_edge *edge;
        struct known *known;
        _Atomic uint64_t generation, seq;
        pthread_mutex_t lock; /* guards all that follows */
        pthread_cond_t inode_work, name_work, monitor_work;
        struct queue inodes, names, doubts;
        struct slot slots[NAME_THREADS];
        unsigned next_slot;
        struct batch *first, **last; /* in order of seq */
        bool draining, stopping, monitor_sleeps;
        pthread_t threads[INODE_THREADS + NAME_THREADS + 1];
        unsigned n_threads;
};

uint64_t notify_now_ns(void);
void queue_init(struct queue *q);
void queue_add(struct queue *q, struct task *t);
struct task *queue_take(struct queue *q, struct task **link); /* NULL when there is none at link */
void queue_clear(struct queue *q);
struct task *task_new(uint64_t ino, struct batch *b, const char *name, size_t len);

/* With the lock held: a task of the batch is done; the monitor has something to look at; call what is done, in order (the lock is released
 * around each call). */
void batch_settle(struct notify *n, struct batch *b);
void monitor_wake(struct notify *n);
void batches_drain(struct notify *n);

/* Threads; argument: the struct notify. */
void *notify_inode_main(void *n);
void *notify_name_main(void *n);
void *notify_monitor_main(void *n);

/* notify_inode.c */
void notify_inode_surely(struct notify *n, uint64_t ino, int64_t offset, int64_t length);
/* Tries inodes in doubt once more. The lock is held, and released while sending. */
void notify_doubts(struct notify *n);
/* notify_name.c */
bool names_waiting(const struct notify *n);
