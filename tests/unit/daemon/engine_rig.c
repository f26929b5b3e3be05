/* engine_rig.c: see engine_rig.h. */
#include "engine_rig.h"

#include "unit.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct engine_rig rig;

void rig_open(void) {
        struct store_loaded loaded = {0};
        memset(&rig.metrics, 0, sizeof(rig.metrics));
        rig.state = shared_state_new(1);
        rig.config.metrics = &rig.metrics;
        rig.config.boot_id = "boot";
        rig.config.path = NULL;
        struct state *s = shared_state_write(rig.state);
        rig.config.backing = rig.backing;
        errint_t error = store_open_memory(&rig.config, s, &loaded, &rig.store);
        shared_state_done_write(rig.state);
        ck_assert_int_eq(error, 0);
        struct engine_config c = {.state = rig.state,
                                  .store = rig.store,
                                  .repl = {.node = 1,
                                           .incarnation = env_random64(env_system()),
                                           .cluster_id = {1},
                                           .promised = loaded.promised,
                                           .adopted = loaded.adopted},
                                  .clean = !loaded.unclean && !loaded.fresh,
                                  .level = rig.config.level,
                                  .commit_interval_ms = rig.interval_ms,
                                  .env = env_system(),
                                  .metrics = &rig.metrics};
        rig.engine = engine_new(&c);
        engine_set_hooks(rig.engine, &rig.hooks);
}

bool rig_wait_for(bool (*condition)(void)) {
        for (int i = 0; i < 5000; i++) {
                if (condition())
                        return true;
                usleep(1000);
        }
        return false;
}
static bool is_writable(void) {
        return engine_writable(rig.engine) == 0;
}
bool rig_is_primary(void) {
        struct engine_status s;
        engine_status(rig.engine, &s);
        return s.repl.primary;
}

void rig_start(void) {
        struct net_handler handler = engine_net_handler(rig.engine);
        rig.net = net_loop_new(1, &handler);
        ck_assert_int_eq(engine_start(rig.engine, rig.net), 0);
        ck_assert(rig_wait_for(rig_is_primary));
        ck_assert(is_writable());
}

errint_t rig_stop(void) {
        errint_t error = engine_stop(rig.engine);
        rig.net->ops->close(rig.net);
        engine_free(rig.engine);
        rig.store->ops->close(rig.store);
        shared_state_free(rig.state);
        return error;
}

static void quiet(enum log_level level, const char *line, void *ctx) {
        (void)level;
        (void)line;
        (void)ctx;
}

void rig_setup(void) {
        log_set_sink(quiet, NULL); /* trouble is wanted here */
        rig.backing = store_backing_new();
        rig.config = (struct store_config){.level = LEVEL_FILESYSTEM};
        rig.hooks = (struct engine_hooks){0};
        rig.interval_ms = 60000;
}
void rig_teardown(void) {
        store_backing_free(rig.backing);
}

/* What the disk saw so far, when it is quiet: the store's lock orders these reads behind its threads' writes. */
uint64_t disk_calls(unsigned calls) {
        (void)rig.store->ops->must_wait(rig.store);
        return store_backing_calls(rig.backing, calls);
}
uint64_t disk_unflushed(void) {
        (void)rig.store->ops->must_wait(rig.store);
        return store_backing_unflushed(rig.backing);
}

struct op *mkdir_op(struct mkdir_op *m, unsigned thread, unsigned i) {
        snprintf(m->name, sizeof(m->name), "d%u-%u", thread, i);
        m->op = (struct op){.kind = OP_CREATE, .create = {.parent = INO_ROOT, .name = {m->name, strlen(m->name)}, .mode = S_IFDIR | 0755}};
        return &m->op;
}

void answered(void *ctx, const struct op_result *result) {
        struct answer *a = ctx;
        pthread_mutex_lock(&a->lock);
        a->done = true;
        a->result = *result;
        pthread_cond_signal(&a->cond);
        pthread_mutex_unlock(&a->lock);
}
int wait_answer(struct answer *a) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 10;
        pthread_mutex_lock(&a->lock);
        while (!a->done && pthread_cond_timedwait(&a->cond, &a->lock, &until) == 0)
                ;
        bool done = a->done;
        pthread_mutex_unlock(&a->lock);
        ck_assert_msg(done, "not answered in 10 s");
        return a->result.error;
}
int do_mkdir(unsigned thread, unsigned i) {
        struct answer a = ANSWER;
        struct mkdir_op m;
        engine_submit(rig.engine, mkdir_op(&m, thread, i), answered, &a, NULL);
        return wait_answer(&a);
}
int do_barrier(void) {
        struct answer a = ANSWER;
        engine_barrier(rig.engine, answered, &a);
        return wait_answer(&a);
}
uint64_t inodes(void) {
        struct tree_usage u;
        const struct state *s = shared_state_read(rig.state);
        tree_usage(s->tree, &u);
        shared_state_done_read(rig.state);
        return u.inodes;
}

void *rig_writer(void *arg) {
        unsigned index = *(unsigned *)arg;
        for (unsigned i = 0; i < rig.per_thread; i++)
                ck_assert_int_eq(do_mkdir(index, i), 0);
        return NULL;
}
void run_writers(unsigned n) {
        pthread_t threads[THREADS];
        unsigned index[THREADS];
        rig.per_thread = n;
        for (unsigned i = 0; i < THREADS; i++) {
                index[i] = i;
                ck_assert_int_eq(pthread_create(&threads[i], NULL, rig_writer, &index[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
}
