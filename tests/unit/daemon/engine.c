/* engine.c: the executor with the real machine, the loopback and the in-memory store: order, group commit, callbacks, a busy
 * transport. */
#include "engine_rig.h"
#include "unit.h"

#include <unistd.h>

START_TEST(one_operation) {
        rig_open();
        rig_start();
        ck_assert_int_eq(do_mkdir(0, 0), 0);
        ck_assert_int_eq(do_mkdir(0, 0), -EEXIST);
        ck_assert_uint_eq(inodes(), 2);
        ck_assert_uint_eq(metric_get(&rig.metrics, METRIC_OPERATIONS), 2);
        ck_assert_uint_eq(metric_get(&rig.metrics, METRIC_OPERATIONS_REFUSED), 1);
        ck_assert_int_eq(rig_stop(), 0);
        rig_open();
        rig_start();
        ck_assert_uint_eq(inodes(), 2);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* --- many threads */

START_TEST(many_threads) {
        rig.config.level = (enum sync_level)_i;
        rig_open();
        rig_start();
        run_writers(200);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 200);
        ck_assert_int_eq(rig_stop(), 0);
        rig_open();
        ck_assert_uint_eq(inodes(), 1 + THREADS * 200);
        rig_start();
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

/* Level file: whoever comes while a flush is under way shares the next one. The memory store flushes at once, so writers are held
 * back at the door until all have come. */
static struct answer held[THREADS];
START_TEST(group_commit) {
        rig.config.level = LEVEL_FILE;
        rig_open();
        rig_start();
        uint64_t before = disk_calls(STORE_WRITE_OUT);
        const struct state *s = shared_state_read(rig.state); /* no step that applies passes meanwhile */
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
        rig.per_thread = 1;
        ck_assert_int_eq(pthread_create(&threads[0], NULL, rig_writer, &zero), 0);
        usleep(20000);
        for (unsigned i = 1; i < THREADS; i++)
                engine_submit(rig.engine, &ops[i].op, answered, &held[i], NULL);
        shared_state_done_read(rig.state);
        pthread_join(threads[0], NULL);
        for (unsigned i = 1; i < THREADS; i++)
                ck_assert_int_eq(wait_answer(&held[i]), 0);
        uint64_t calls = disk_calls(STORE_WRITE_OUT) - before;
        ck_assert_msg(calls < 4, "%llu flushes for 16 operations", (unsigned long long)calls);
        ck_assert_int_eq(rig_stop(), 0);
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
                engine_submit(rig.engine, mkdir_op(&m, chain_name, chain_left), chain_next, NULL, NULL);
}
/* A borrowed thread that has done its share while the queue is empty still has to write out: at whatever step its share ends. */
static unsigned shift_left;
static void shift_next(void *ctx, const struct op_result *result) {
        for (; shift_left > 0; shift_left--)
                engine_withdraw(rig.engine, UINT64_MAX); /* nobody's: one step each */
        chain_next(ctx, result);
}
START_TEST(a_share_ends_anywhere) {
        struct mkdir_op m;
        rig_open();
        rig_start();
        shift_left = (unsigned)_i;
        chain_name = 3;
        chain_left = 200;
        chain_end = (struct answer)ANSWER;
        engine_submit(rig.engine, mkdir_op(&m, 96, 0), shift_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_int_eq(rig_stop(), 0);
}
END_TEST

START_TEST(submitting_from_callbacks) {
        struct mkdir_op m;
        rig_open();
        rig_start();
        chain_name = 1;
        chain_left = 20; /* by one thread: its depth is measured */
        chain_end = (struct answer)ANSWER;
        stack_low = stack_high = 0;
        engine_submit(rig.engine, mkdir_op(&m, 98, 0), chain_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_uint_lt(stack_high - stack_low, 4096);
        chain_name = 2;
        chain_left = 5000;
        chain_end = (struct answer)ANSWER;
        engine_submit(rig.engine, mkdir_op(&m, 97, 0), chain_next, NULL, NULL);
        ck_assert_int_eq(wait_answer(&chain_end), 0);
        ck_assert_int_eq(rig_stop(), 0);
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
        engine_invalidated(rig.engine, (uintptr_t)arg);
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
        rig.hooks = (struct engine_hooks){.applied = hook_applied, .changed = hook_changed, .invalidate = hook_invalidate};
        last_changed = invalidations = applied = 0;
        rig_open();
        rig_start();
        struct fs_backend backend = engine_backend(rig.engine);
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
        ck_assert_int_eq(rig_stop(), 0);
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
        rig_open();
        busy = (struct busy_net){.net.ops = &busy_ops, .handler = engine_net_handler(rig.engine), .lock = PTHREAD_MUTEX_INITIALIZER};
        busy.loop = net_loop_new(1, &busy.handler);
        rig.net = &busy.net;
        atomic_store(&busy_end, false);
        ck_assert_int_eq(pthread_create(&thread, NULL, busy_thread, NULL), 0);
        ck_assert_int_eq(engine_start(rig.engine, rig.net), 0);
        ck_assert(rig_wait_for(rig_is_primary));
        run_writers(50);
        ck_assert_uint_eq(inodes(), 1 + THREADS * 50);
        ck_assert_int_eq(rig_stop(), 0);
        atomic_store(&busy_end, true);
        pthread_join(thread, NULL);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("daemon.engine");
        TCase *t = tcase_create("engine");
        tcase_add_checked_fixture(t, rig_setup, rig_teardown);
        tcase_set_timeout(t, 60);
        tcase_add_test(t, one_operation);
        tcase_add_loop_test(t, many_threads, 0, 3);
        tcase_add_test(t, group_commit);
        tcase_add_loop_test(t, a_share_ends_anywhere, 0, 8);
        tcase_add_test(t, submitting_from_callbacks);
        tcase_add_test(t, hooks_in_order);
        tcase_add_test(t, a_busy_transport);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
