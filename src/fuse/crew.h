/* crew.h: which workers wait for requests, and how. Private to src/fuse.
 *
 * Waking a thread costs more than answering most requests does: 20 us on a virtual machine, where a processor without work has to be woken
 * by the hypervisor. So while requests follow one another closely, one worker alone takes them: it looks for the next one for a moment
 * before it sleeps, if a processor is idle, and the others rest where the kernel does not wake them for each request. As soon as more than
 * one request waits again and again, and there are processors enough, another one joins.
 *
 * Nobody may have to wait because the one worker is held up, on a slow disk for instance: one of those that rest, the guard, looks
 * every few milliseconds whether requests are still being taken, and takes over where they are not. When it gets quiet, all go back to
 * wait in read(2), and nothing ticks. */
#pragma once

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define CREW_LOOK_NS   UINT64_C(60000) /* how long the next request is looked for */
#define CREW_TICK_MS   4               /* of the guard */
#define CREW_QUIET     4u              /* ticks without any request: it is quiet */
#define CREW_DENSE_MAX 64              /* see crew->dense */
#define CREW_DENSE     16
#define CREW_CROWDED   4u /* times in a row that another request waited already */

struct crew {
        int fd;
        unsigned workers;
        unsigned processors;      /* that this process may use */
        unsigned active_max;      /* workers that do not rest while requests come densely */
        _Atomic unsigned reading; /* workers that look for a request or sleep in read(2) */
        _Atomic uint64_t taken;   /* requests */
        _Atomic uint64_t last_ns; /* when the last one had been handled */
        _Atomic int dense;        /* up to CREW_DENSE_MAX, for requests that came within CREW_LOOK_NS after the one before; down else */
        _Atomic unsigned crowded; /* see CREW_CROWDED */
        _Atomic unsigned resting; /* written under lock, read without by those who would wake somebody */
        /* Of the worker that looks for requests, of which there is one at a time: */
        int load_fd;
        _Atomic uint64_t asked_ns;
        _Atomic bool idle; /* a processor was, then */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        /* All below is protected by lock. */
        unsigned wanted;   /* who rest and are to go on */
        uint64_t releases; /* counts: all go on */
        bool guarded, ended;
};

void crew_init(struct crew *p);
void crew_start(struct crew *p, int fd, unsigned workers); /* before any of the below */
void crew_done(struct crew *p);
/* A worker without a request. Returns when it is to call read(2); then, once that has returned, crew_taken. */
void crew_wait(struct crew *p);
void crew_taken(struct crew *p, bool any);
void crew_handled(struct crew *p);
void crew_end(struct crew *p); /* nobody rests any more */
