/* engine_rig.h: the executor with the real machine, the loopback and the in-memory store, for tests. One at a time. */
#pragma once

#include "daemon/engine.h"
#include "store/store_memory.h"

#include <pthread.h>

#define THREADS 16u

struct engine_rig {
        struct store_backing *backing;
        struct shared_state *state;
        struct store *store;
        struct metrics metrics;
        struct engine *engine;
        struct net *net;
        struct store_config config;
        struct engine_hooks hooks;
        uint64_t interval_ms;
        unsigned per_thread;
};
extern struct engine_rig rig;

void rig_setup(void); /* a new backing; config, hooks and interval may be changed before rig_open */
void rig_teardown(void);
void rig_open(void);
void rig_start(void);
errint_t rig_stop(void); /* stops, and frees all but the backing */
bool rig_wait_for(bool (*condition)(void));
bool rig_is_primary(void);

uint64_t disk_calls(unsigned calls);
uint64_t disk_unflushed(void);

struct mkdir_op {
        struct op op;
        char name[32];
};
struct op *mkdir_op(struct mkdir_op *m, unsigned thread, unsigned i);

struct answer {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool done;
        struct op_result result;
};
#define ANSWER                                                                                                                             \
        { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER }
void answered(void *ctx, const struct op_result *result);
int wait_answer(struct answer *a); /* its error */
int do_mkdir(unsigned thread, unsigned i);
int do_barrier(void);
uint64_t inodes(void);

void *rig_writer(void *arg); /* makes rig.per_thread directories; arg: unsigned, its number */
void run_writers(unsigned n);
