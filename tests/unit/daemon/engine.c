/* engine.c: the executor with the real machine, the loopback and the in-memory store: order, group commit, barriers, trouble,
 * back-pressure. */
#include "unit.h"

#include "base/log.h"
#include "daemon/engine.h"
#include "store/store_memory.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct store_backing *backing;
static struct shared_state *state;
static struct store *store;
static struct metrics metrics;
static struct engine *engine;
static struct net *net;
static struct store_config config;
static struct engine_hooks hooks;
static uint64_t interval_ms;

static void open_all(void) {
        struct store_loaded loaded = {0};
        memset(&metrics, 0, sizeof(metrics));
        state = shared_state_new();
        config.metrics = &metrics;
        config.boot_id = "boot";
        config.path = NULL;
        struct state *s = shared_state_write(state);
        config.backing = backing;
        errint_t error = store_open_memory(&config, s, &loaded, &store);
        shared_state_done_write(state);
        ck_assert_int_eq(error, 0);
        struct engine_config c = {.state = state,
                                  .store = store,
                                  .repl = {.node = 1,
                                           .incarnation = env_random64(env_system()),
                                           .cluster_id = {1},
                                           .promised = loaded.promised,
                                           .adopted = loaded.adopted},
                                  .clean = !loaded.unclean && !loaded.fresh,
                                  .level = config.level,
                                  .commit_interval_ms = interval_ms,
                                  .env = env_system(),
                                  .metrics = &metrics};
        engine = engine_new(&c);
        engine_set_hooks(engine, &hooks);
}

static bool wait_for(bool (*condition)(void)) {
        for (int i = 0; i < 5000; i++) {
                if (condition())
                        return true;
                usleep(1000);
        }
        return false;
}
static bool is_writable(void) {
        return engine_writable(engine) == 0;
}
static bool is_primary(void) {
        struct engine_status s;
        engine_status(engine, &s);
        return s.repl.primary;
}

static void start(void) {
        struct net_handler handler = engine_net_handler(engine);
        net = net_loop_new(1, &handler);
        ck_assert_int_eq(engine_start(engine, net), 0);
        ck_assert(wait_for(is_primary));
        ck_assert(is_writable());
}

static errint_t stop(void) {
        errint_t error = engine_stop(engine);
        net->ops->close(net);
        engine_free(engine);
        store->ops->close(store);
        shared_state_free(state);
        return error;
}

static void quiet(enum log_level level, const char *line, void *ctx) {
        (void)level;
        (void)line;
        (void)ctx;
}

static void setup(void) {
        log_set_sink(quiet, NULL); /* trouble is wanted here */
        backing = store_backing_new();
        config = (struct store_config){.level = LEVEL_FILESYSTEM};
        hooks = (struct engine_hooks){0};
        interval_ms = 60000;
}
static void teardown(void) {
        store_backing_free(backing);
}

/* What the disk saw so far, when it is quiet: the store's lock orders these reads behind its threads' writes. */
static uint64_t disk_calls(unsigned calls) {
        (void)store->ops->must_wait(store);
        return store_backing_calls(backing, calls);
}
static uint64_t disk_unflushed(void) {
        (void)store->ops->must_wait(store);
        return store_backing_unflushed(backing);
}

/* --- operations */

struct mkdir_op {
        struct op op;
        char name[32];
};
static struct op *mkdir_op(struct mkdir_op *m, unsigned thread, unsigned i) {
        snprintf(m->name, sizeof(m->name), "d%u-%u", thread, i);
        m->op = (struct op){.kind = OP_CREATE, .create = {.parent = INO_ROOT, .name = {m->name, strlen(m->name)}, .mode = S_IFDIR | 0755}};
        return &m->op;
}

struct answer {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool done;
        struct op_result result;
};
#define ANSWER                                                                                                                             \
        { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER }
static void answered(void *ctx, const struct op_result *result) {
        struct answer *a = ctx;
        pthread_mutex_lock(&a->lock);
        a->done = true;
        a->result = *result;
        pthread_cond_signal(&a->cond);
        pthread_mutex_unlock(&a->lock);
}
static int wait_answer(struct answer *a) {
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
static int do_mkdir(unsigned thread, unsigned i) {
        struct answer a = ANSWER;
        struct mkdir_op m;
        engine_submit(engine, mkdir_op(&m, thread, i), answered, &a, NULL);
        return wait_answer(&a);
}
static int do_barrier(void) {
        struct answer a = ANSWER;
        engine_barrier(engine, answered, &a);
        return wait_answer(&a);
}
static uint64_t inodes(void) {
        struct tree_usage u;
        const struct state *s = shared_state_read(state);
        tree_usage(s->tree, &u);
        shared_state_done_read(state);
        return u.inodes;
}

START_TEST(one_operation) {
        open_all();
        start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(do_mkdir(0, 0), -EEXIST);
        ck_assert_uint_eq(inodes(), 2);
        ck_assert_uint_eq(metric_get(&metrics, METRIC_OPERATIONS), 2);
        ck_assert_uint_eq(metric_get(&metrics, METRIC_OPERATIONS_REFUSED), 1);
        ck_assert_int_eq(stop(), 0);
        open_all();
        start();
        ck_assert_uint_eq(inodes(), 2);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- many threads */

#define THREADS 16u
static unsigned per_thread;
static void *writer(void *arg) {
        unsigned index = *(unsigned *)arg;
        for (unsigned i = 0; i < per_thread; i++)
                ck_assert_int_eq(do_mkdir(index, i), 0);
        return NULL;
}
static void run_writers(unsigned n) {
        pthread_t threads[THREADS];
        unsigned index[THREADS];
        per_thread = n;
        for (unsigned i = 0; i < THREADS; i++) {
                index[i] = i;
                ck_assert_int_eq(pthread_create(&threads[i], NULL, writer, &index[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
}

START_TEST(many_threads) {
        config.level = (enum sync_level)_i;
        open_all();
        start();
        run_writers(200);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 200);
        ck_assert_int_eq(stop(), 0);
        open_all();
        ck_assert_uint_eq(inodes(), 1 + THREADS * 200);
        start();
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* Level file: whoever comes while a flush is under way shares the next one. The memory store flushes at once, so writers are held
 * back at the door until all have come. */
static struct answer held[THREADS];
START_TEST(group_commit) {
        config.level = LEVEL_FILE;
        open_all();
        start();
        uint64_t before = disk_calls(STORE_WRITE_OUT);
        const struct state *s = shared_state_read(state); /* no step that applies passes meanwhile */
        (void)s;
        pthread_t threads[THREADS];
        struct mkdir_op ops[THREADS];
        (void)threads;
        for (unsigned i = 0; i < THREADS; i++) {
                held[i] = (struct answer)ANSWER;
                mkdir_op(&ops[i], i, 0);
        }
        /* The first becomes the runner and waits for the lock in a thread of its own; the others only enqueue. */
        unsigned zero = 0;
        per_thread = 1;
        ck_assert_int_eq(pthread_create(&threads[0], NULL, writer, &zero), 0);
        usleep(20000);
        for (unsigned i = 1; i < THREADS; i++)
                engine_submit(engine, &ops[i].op, answered, &held[i], NULL);
        shared_state_done_read(state);
        pthread_join(threads[0], NULL);
        for (unsigned i = 1; i < THREADS; i++)
                ck_assert_int_eq(wait_answer(&held[i]), 0);
        uint64_t calls = disk_calls(STORE_WRITE_OUT) - before;
        ck_assert_msg(calls < 4, "%llu flushes for 16 operations", (unsigned long long)calls);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- callbacks may submit; the stack does not grow */

static unsigned chain_left, chain_name;
static struct answer chain_end;
static uintptr_t stack_low, stack_high;
static void chain_next(void *ctx, const struct op_result *result) {
        struct mkdir_op m;
        char here;
        (void)ctx;
        ck_assert_int_eq(result->error, 0);
        if (stack_low == 0 || (uintptr_t)&here < stack_low)
                stack_low = (uintptr_t)&here;
        stack_high = MAX_OF(stack_high, (uintptr_t)&here);
        if (chain_left-- == 0)
                answered(&chain_end, result);
        else
                engine_submit(engine, mkdir_op(&m, chain_name, chain_left), chain_next, NULL, NULL);
}
/* A borrowed thread that has done its share while the queue is empty still has to write out: at whatever step its share ends. */
static unsigned shift_left;
static void shift_next(void *ctx, const struct op_result *result) {
        for (; shift_left > 0; shift_left--)
                engine_withdraw(engine, UINT64_MAX); /* nobody's: one step each */
        chain_next(ctx, result);
}
START_TEST(a_share_ends_anywhere) {
        struct mkdir_op m;
        open_all();
        start();
        shift_left = (unsigned)_i;
        chain_name = 3;
        chain_left = 200;
        chain_end = (struct answer)ANSWER;
        engine_submit(engine, mkdir_op(&m, 96, 0), shift_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(submitting_from_callbacks) {
        struct mkdir_op m;
        open_all();
        start();
        chain_name = 1;
        chain_left = 20; /* by one thread: its depth is measured */
        chain_end = (struct answer)ANSWER;
        stack_low = stack_high = 0;
        engine_submit(engine, mkdir_op(&m, 98, 0), chain_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_uint_lt(stack_high - stack_low, 4096);
        chain_name = 2;
        chain_left = 5000;
        chain_end = (struct answer)ANSWER;
        engine_submit(engine, mkdir_op(&m, 97, 0), chain_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- barriers */

START_TEST(a_barrier_flushes) {
        open_all();
        start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_uint_gt(disk_unflushed(), 0);
        ck_assert_int_eq(do_barrier(), 0);
        ck_assert_uint_eq(disk_unflushed(), 0);
        uint64_t calls = disk_calls(STORE_BARRIER);
        ck_assert_int_eq(do_barrier(), 0); /* nothing new: no flush */
        ck_assert_uint_eq(disk_calls(STORE_BARRIER), calls);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(interval_and_idleness) {
        interval_ms = 100;
        open_all();
        start();
        usleep(300000);
        uint64_t before = disk_calls(STORE_BARRIER);
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        usleep(400000);
        ck_assert_uint_eq(disk_unflushed(), 0);
        ck_assert_uint_eq(disk_calls(STORE_BARRIER), before + 1);
        uint64_t all = disk_calls(~0u);
        usleep(500000);
        ck_assert_uint_eq(disk_calls(~0u), all); /* an idle engine asks nothing of the disk */
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* The count of bytes begins anew at every barrier, whatever caused it. */
START_TEST(bytes_between_barriers) {
        config.barrier_bytes = 64 * KIB;
        open_all();
        start();
        static uint8_t bytes[16 * KIB];
        struct answer made = ANSWER;
        struct mkdir_op m;
        mkdir_op(&m, 0, 0);
        m.op.create.mode = S_IFREG | 0644;
        engine_submit(engine, &m.op, answered, &made, NULL);
        ck_assert_int_eq(wait_answer(&made), 0);
        ck_assert_int_eq(do_barrier(), 0);
        uint64_t before = disk_calls(STORE_BARRIER);
        for (unsigned i = 0; i < 50; i++) { /* 16 KiB each: 10 to 12 thresholds */
                struct answer a = ANSWER;
                struct extent x = {.offset = 0, .length = sizeof(bytes)};
                struct op op = {
                        .kind = OP_WRITE,
                        .write = {.ino = made.result.ino, .keep = BLOB_KEEP_ALL, .size = BLOB_KEEP_ALL, .extents = &x, .n_extents = 1},
                        .payload = {.raw_len = sizeof(bytes), .data = bytes, .len = sizeof(bytes)}};
                bytes[0] = (uint8_t)i;
                engine_submit(engine, &op, answered, &a, NULL);
                ck_assert_int_eq(wait_answer(&a), 0);
                usleep(2000); /* the flush happens beside */
        }
        uint64_t barriers = disk_calls(STORE_BARRIER) - before;
        ck_assert_msg(barriers >= 9 && barriers <= 13, "%llu barriers", (unsigned long long)barriers);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- trouble */

START_TEST(trouble_is_rescued) {
        static const unsigned calls[] = {STORE_APPEND, STORE_WRITE_OUT, STORE_BARRIER};
        config.level = _i == 3 ? LEVEL_FILE : LEVEL_FILESYSTEM;
        open_all();
        start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        store_backing_fail(backing, &(struct store_fault){.calls = calls[_i % 3], .nth = 1, .error = -EIO});
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        ck_assert_int_eq(do_barrier(), 0);
        ck_assert_int_eq(do_mkdir(0, 2), 0);
        ck_assert_int_eq(engine_writable(engine), 0);
        ck_assert_uint_ge(metric_get(&metrics, METRIC_STORE_ERRORS), 1);
        store_backing_fail(backing, NULL);
        ck_assert_int_eq(stop(), 0);
        open_all();
        ck_assert_uint_eq(inodes(), 4);
        start();
        ck_assert_int_eq(stop(), 0);
}
END_TEST

static bool has_failed(void) {
        struct engine_status s;
        engine_status(engine, &s);
        return s.store_failed;
}
START_TEST(a_store_that_fails_for_good) {
        open_all();
        start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        store_backing_fail(backing, &(struct store_fault){.calls = ~(unsigned)STORE_RESERVE, .nth = 1, .sticky = true, .error = -EIO});
        struct answer a = ANSWER;
        struct mkdir_op m;
        engine_submit(engine, mkdir_op(&m, 0, 1), answered, &a, NULL);
        ck_assert_int_lt(wait_answer(&a), 0);
        ck_assert(wait_for(has_failed));
        ck_assert_int_eq(engine_writable(engine), -EROFS);
        ck_assert_int_lt(do_barrier(), 0);
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        ck_assert_int_lt(stop(), 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        ck_assert_int_lt(end.tv_sec - begin.tv_sec, 2);
        store_backing_fail(backing, NULL);
        open_all();
        ck_assert_uint_ge(inodes(), 2); /* what was acknowledged is there */
        start();
        ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(reservations) {
        open_all();
        start();
        store_backing_fail(backing, &(struct store_fault){.calls = STORE_RESERVE, .nth = 1, .error = -ENOSPC});
        ck_assert_int_eq(do_mkdir(0, 0), -ENOSPC);
        ck_assert_uint_eq(metric_get(&metrics, METRIC_OPERATIONS), 0); /* it was not sent */
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

START_TEST(a_small_log_makes_writers_wait) {
        config.log_size = MIB;
        open_all();
        start();
        run_writers(1000);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 1000);
        ck_assert_uint_gt(metric_get(&metrics, METRIC_CHECKPOINTS), 0);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- checkpoints and levels on request */

static void error_answered(void *ctx, errint_t error) {
        answered(ctx, &(struct op_result){.error = error});
}
START_TEST(checkpoint_and_level_on_request) {
        open_all();
        start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        struct answer a = ANSWER, b = ANSWER, c = ANSWER;
        uint64_t before = disk_calls(STORE_CHECKPOINT);
        engine_checkpoint(engine, error_answered, &a);
        ck_assert_int_eq(wait_answer(&a), 0);
        uint64_t once = disk_calls(STORE_CHECKPOINT);
        ck_assert_uint_gt(once, before);
        engine_checkpoint(engine, error_answered, &b); /* nothing new */
        ck_assert_int_eq(wait_answer(&b), 0);
        ck_assert_uint_eq(disk_calls(STORE_CHECKPOINT), once);
        engine_set_level(engine, &(struct engine_level){.level = LEVEL_FILE}, error_answered, &c);
        ck_assert_int_eq(wait_answer(&c), 0);
        ck_assert_int_eq(do_mkdir(0, 1), 0);
        ck_assert_uint_eq(disk_unflushed(), 0); /* at file, acknowledged means flushed */
        struct engine_status s;
        engine_status(engine, &s);
        ck_assert_int_eq(s.level, LEVEL_FILE);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- what the rest of the daemon is told */

static uint64_t last_changed, invalidations;
static unsigned applied;
static void hook_applied(void *ctx, void *done_ctx, const struct op_result *result) {
        (void)ctx;
        (void)result;
        ck_assert_ptr_nonnull(done_ctx);
        applied++;
}
static void hook_changed(void *ctx, const struct change_set *changes, uint64_t seq, bool local) {
        (void)ctx;
        (void)changes;
        ck_assert(local);
        ck_assert_uint_eq(seq, last_changed + 1);
        last_changed = seq;
}
static void *invalidate_later(void *arg) {
        usleep(1000);
        engine_invalidated(engine, (uintptr_t)arg);
        return NULL;
}
static void hook_invalidate(void *ctx, const struct change_set *changes, uint64_t seq, bool local) {
        pthread_t thread;
        (void)ctx;
        (void)changes;
        (void)local;
        ck_assert_uint_eq(seq, last_changed); /* after the request layer */
        invalidations++;
        ck_assert_int_eq(pthread_create(&thread, NULL, invalidate_later, (void *)(uintptr_t)seq), 0);
        pthread_detach(thread);
}
START_TEST(hooks_in_order) {
        hooks = (struct engine_hooks){.applied = hook_applied, .changed = hook_changed, .invalidate = hook_invalidate};
        last_changed = invalidations = applied = 0;
        open_all();
        start();
        struct fs_backend backend = engine_backend(engine);
        for (unsigned i = 0; i < 50; i++) {
                struct answer a = ANSWER;
                struct mkdir_op m;
                uint64_t token = 0;
                mkdir_op(&m, 0, i);
                backend.submit(backend.ctx, &m.op, answered, &a, &token);
                ck_assert_uint_ne(token, 0);
                ck_assert_int_eq(wait_answer(&a), 0);
                backend.withdraw(backend.ctx, token); /* too late: ignored */
        }
        ck_assert_int_eq(do_mkdir(1, 0), 0); /* not the request layer's: it is not asked */
        ck_assert_uint_eq(applied, 50);
        ck_assert_uint_eq(last_changed, 51);
        ck_assert_uint_eq(invalidations, 51);
        ck_assert_int_eq(stop(), 0);
}
END_TEST

/* --- a transport that is busy now and then */

struct busy_net {
        struct net net;
        struct net *loop;
        struct net_handler handler;
        unsigned calls;
        bool writable_due;
        pthread_mutex_t lock;
};
static struct busy_net busy;
static errint_t busy_start(struct net *n) {
        (void)n;
        return busy.loop->ops->start(busy.loop);
}
static errint_t busy_send(struct net *n, const struct iovec *iov, int n_iov) {
        (void)n;
        pthread_mutex_lock(&busy.lock);
        bool refuse = ++busy.calls % 3 == 0;
        if (refuse)
                busy.writable_due = true;
        pthread_mutex_unlock(&busy.lock);
        return refuse ? -EAGAIN : busy.loop->ops->send(busy.loop, iov, n_iov);
}
static void busy_leave(struct net *n) {
        (void)n;
        busy.loop->ops->leave(busy.loop);
}
static void busy_close(struct net *n) {
        (void)n;
        busy.loop->ops->close(busy.loop);
}
static uint32_t busy_node(struct net *n) {
        (void)n;
        return 1;
}
static const struct net_ops busy_ops = {
        .start = busy_start, .send = busy_send, .leave = busy_leave, .close = busy_close, .node_id = busy_node};
static _Atomic bool busy_end;
static void *busy_thread(void *arg) {
        (void)arg;
        while (!atomic_load(&busy_end)) {
                pthread_mutex_lock(&busy.lock);
                bool due = busy.writable_due;
                busy.writable_due = false;
                pthread_mutex_unlock(&busy.lock);
                if (due)
                        busy.handler.writable(busy.handler.ctx);
                usleep(500);
        }
        return NULL;
}
START_TEST(a_busy_transport) {
        pthread_t thread;
        open_all();
        busy = (struct busy_net){.net.ops = &busy_ops, .handler = engine_net_handler(engine), .lock = PTHREAD_MUTEX_INITIALIZER};
        busy.loop = net_loop_new(1, &busy.handler);
        net = &busy.net;
        atomic_store(&busy_end, false);
        ck_assert_int_eq(pthread_create(&thread, NULL, busy_thread, NULL), 0);
        ck_assert_int_eq(engine_start(engine, net), 0);
        ck_assert(wait_for(is_primary));
        run_writers(50);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 50);
        ck_assert_int_eq(stop(), 0);
        atomic_store(&busy_end, true);
        pthread_join(thread, NULL);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("daemon.engine");
        TCase *t = tcase_create("engine");
        tcase_add_checked_fixture(t, setup, teardown);
        tcase_set_timeout(t, 60);
        tcase_add_test(t, one_operation);
        tcase_add_loop_test(t, many_threads, 0, 3);
        tcase_add_test(t, group_commit);
        tcase_add_loop_test(t, a_share_ends_anywhere, 0, 8);
        tcase_add_test(t, submitting_from_callbacks);
        tcase_add_test(t, a_barrier_flushes);
        tcase_add_test(t, interval_and_idleness);
        tcase_add_test(t, bytes_between_barriers);
        tcase_add_loop_test(t, trouble_is_rescued, 0, 4);
        tcase_add_test(t, a_store_that_fails_for_good);
        tcase_add_test(t, reservations);
        tcase_add_test(t, a_small_log_makes_writers_wait);
        tcase_add_test(t, checkpoint_and_level_on_request);
        tcase_add_test(t, hooks_in_order);
        tcase_add_test(t, a_busy_transport);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
