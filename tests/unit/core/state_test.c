/* state_test.c: the one way to move a node's state on: positions, history, requests that come twice. */
#include "core/state.h"
#include "unit.h"

#include <string.h>
#include <sys/stat.h>

struct world {
        struct state state;
        struct change_set changes;
};
static void world_init(struct world *w) {
        state_init(&w->state);
        change_set_init(&w->changes);
}
static void world_done(struct world *w) {
        change_set_done(&w->changes);
        state_done(&w->state);
}

static struct op mkdir_op(const char *name, uint64_t number) {
        return (struct op){
                .kind = OP_CREATE,
                .origin = {.node = 1, .incarnation = 7, .number = number, .lowest_waiting = 1},
                .time = {.sec = 1000},
                .create = {.parent = INO_ROOT, .name = {name, strlen(name)}, .mode = S_IFDIR | 0755},
        };
}

static struct op_result apply(struct world *w, uint64_t epoch, const struct op *op) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        ck_assert_int_eq(op_encode_head(op, &e), 0);
        struct op_result r = {.error = 1};
        ck_assert_int_eq(state_apply(&w->state, epoch, op, e.data, e.len, &w->changes, &r), 0);
        return r;
}

START_TEST(positions_and_history) {
        struct world a, b;
        world_init(&a);
        world_init(&b);
        ck_assert(hash128_equal(state_digest(&a.state), state_digest(&b.state)));
        struct op x = mkdir_op("x", 1), y = mkdir_op("y", 2);
        ck_assert_int_eq(apply(&a, 3, &x).error, 0);
        ck_assert_uint_eq(a.state.pos.epoch, 3);
        ck_assert_uint_eq(a.state.pos.seq, 1);
        ck_assert(!hash128_equal(state_digest(&a.state), state_digest(&b.state)));
        ck_assert_int_eq(apply(&b, 3, &x).error, 0);
        ck_assert(hash128_equal(state_digest(&a.state), state_digest(&b.state)));
        /* The same operation in another epoch is another history, though the trees are alike. */
        ck_assert_int_eq(apply(&a, 3, &y).error, 0);
        ck_assert_int_eq(apply(&b, 4, &y).error, 0);
        ck_assert(hash128_equal(tree_digest(a.state.tree), tree_digest(b.state.tree)));
        ck_assert(!hash128_equal(a.state.history, b.state.history));
        ck_assert(!hash128_equal(state_digest(&a.state), state_digest(&b.state)));
        world_done(&a);
        world_done(&b);
}
END_TEST

START_TEST(refused_operations_take_a_position) {
        struct world w;
        world_init(&w);
        struct op x = mkdir_op("x", 1), again = mkdir_op("x", 2);
        struct op_result first = apply(&w, 1, &x);
        ck_assert_int_eq(first.error, 0);
        ck_assert_uint_gt(w.changes.n, 0);
        struct hash128 tree = tree_digest(w.state.tree);
        ck_assert_int_eq(apply(&w, 1, &again).error, -EEXIST);
        ck_assert_uint_eq(w.state.pos.seq, 2);
        ck_assert_uint_eq(w.changes.n, 0);
        ck_assert(hash128_equal(tree, tree_digest(w.state.tree)));
        struct op_result r;
        ck_assert_int_eq(sessions_find(w.state.sessions, 1, 7, 2, &r), SESSION_KNOWN);
        ck_assert_int_eq(r.error, -EEXIST);
        world_done(&w);
}
END_TEST

START_TEST(a_request_is_applied_once) {
        struct world w;
        world_init(&w);
        struct op x = mkdir_op("x", 1);
        struct op_result first = apply(&w, 1, &x);
        struct op gone = {.kind = OP_RMDIR, .origin = {1, 7, 2, 1}, .rmdir = {INO_ROOT, {"x", 1}}};
        ck_assert_int_eq(apply(&w, 1, &gone).error, 0);
        struct hash128 tree = tree_digest(w.state.tree), history = w.state.history;
        struct op_result second = apply(&w, 2, &x); /* would succeed again */
        ck_assert_int_eq(second.error, 0);
        ck_assert_uint_eq(second.ino, first.ino);
        ck_assert_uint_eq(w.changes.n, 0);
        ck_assert_uint_eq(w.state.pos.seq, 3);
        ck_assert(hash128_equal(tree, tree_digest(w.state.tree)));
        ck_assert(!hash128_equal(history, w.state.history));
        /* One whose result is no longer kept is not applied either. */
        struct op late = mkdir_op("z", 3);
        late.origin.lowest_waiting = 3;
        ck_assert_int_eq(apply(&w, 2, &late).error, 0);
        ck_assert_int_eq(apply(&w, 2, &x).error, -EIO);
        ck_assert_uint_eq(w.changes.n, 0);
        world_done(&w);
}
END_TEST

START_TEST(the_payload_is_part_of_history) {
        struct op_payload p = {.data = (const uint8_t *)"abc", .len = 3, .raw_len = 3},
                          q = {.data = (const uint8_t *)"abd", .len = 3, .raw_len = 3};
        struct hash128 zero = {0, 0};
        struct hash128 a = state_history_next(zero, 1, "head", 4, &p), b = state_history_next(zero, 1, "head", 4, &q);
        ck_assert(!hash128_equal(a, b));
        ck_assert(hash128_equal(a, state_history_next(zero, 1, "head", 4, &p)));
        ck_assert(!hash128_equal(a, state_history_next(zero, 1, "heae", 4, &p)));
        ck_assert(!hash128_equal(a, state_history_next(zero, 2, "head", 4, &p)));
        ck_assert(!hash128_equal(a, state_history_next(a, 1, "head", 4, &p)));
}
END_TEST

static Suite *suite_state(void) {
        Suite *s = suite_create("state");
        TCase *t = tcase_create("state");
        tcase_add_test(t, positions_and_history);
        tcase_add_test(t, refused_operations_take_a_position);
        tcase_add_test(t, a_request_is_applied_once);
        tcase_add_test(t, the_payload_is_part_of_history);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite_state)
