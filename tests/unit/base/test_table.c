#include "aborts.h"
#include "base/table.h"
#include "unit.h"
#include <string.h>

enum { DOOR_OPEN, DOOR_SHUT, DOOR_LOCKED, DOOR_N };
static const char *const door_names[DOOR_N] = {"open", "shut", "locked"};
static const uint32_t door_moves[DOOR_N] = {
        [DOOR_OPEN] = 1u << DOOR_SHUT,
        [DOOR_SHUT] = 1u << DOOR_OPEN | 1u << DOOR_LOCKED,
        [DOOR_LOCKED] = 1u << DOOR_SHUT,
};
static const struct state_table door = {.name = "door", .state_name = door_names, .allowed = door_moves, .n = DOOR_N};

static bool key_is_there(const void *object, unsigned state) {
        const bool *key = object;
        return state != DOOR_LOCKED || *key;
}

START_TEST(allowed_moves_move) {
        struct state_cell cell = {.table = &door, .state = DOOR_OPEN};
        bool key = true;
        ck_assert_str_eq(state_text(&cell), "open");
        ck_assert_str_eq(state_move(&cell, DOOR_SHUT, NULL, NULL), "open");
        ck_assert_str_eq(state_move(&cell, DOOR_LOCKED, key_is_there, &key), "shut");
        ck_assert_uint_eq(cell.state, DOOR_LOCKED);
        ck_assert_str_eq(state_text(&cell), "locked");
}
END_TEST

static void lock_open_door(void) {
        struct state_cell cell = {.table = &door, .state = DOOR_OPEN};
        state_move(&cell, DOOR_LOCKED, NULL, NULL);
}
static void stay(void) {
        struct state_cell cell = {.table = &door, .state = DOOR_OPEN};
        state_move(&cell, DOOR_OPEN, NULL, NULL); /* to itself is a move like any other */
}
static void leave_table(void) {
        struct state_cell cell = {.table = &door, .state = DOOR_OPEN};
        state_move(&cell, 33, NULL, NULL);
}
static void come_from_outside(void) {
        struct state_cell cell = {.table = &door, .state = DOOR_N};
        state_move(&cell, DOOR_SHUT, NULL, NULL);
}
static void lock_without_key(void) {
        struct state_cell cell = {.table = &door, .state = DOOR_SHUT};
        bool key = false;
        state_move(&cell, DOOR_LOCKED, key_is_there, &key);
}

START_TEST(other_moves_abort_and_say_which) {
        char out[512];
        ck_assert(aborts(lock_open_door, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "allowed move failed: door: open -> locked"));
        ck_assert(aborts(stay, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "door: open -> open"));
        ck_assert(aborts(leave_table, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "door: open -> ?"));
        ck_assert(aborts(come_from_outside, out, sizeof(out)));
}
END_TEST

START_TEST(a_broken_invariant_aborts) {
        char out[512];
        ck_assert(aborts(lock_without_key, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "invariant failed: door: shut -> locked"));
}
END_TEST

static Suite *suite_table(void) {
        const TTest *const tests[] = {allowed_moves_move, other_moves_abort_and_say_which, a_broken_invariant_aborts};
        return suite_of("table", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_table)
