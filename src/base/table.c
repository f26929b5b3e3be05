/* table.c: the one place where a state machine changes its state. */
#include "base/table.h"
#include <stdio.h>

#define STATES_MAX 32u /* bits in an `allowed` row */

static _Noreturn void refuse(const struct state_table *t, unsigned from, unsigned to, const char *why) {
        char move[160];

        (void)snprintf(move, sizeof(move), "%s: %s -> %s", t->name, t->state_name[from], to < t->n ? t->state_name[to] : "?");
        base_assert_fail(why, move, __FILE__, __LINE__);
}

const char *state_move(struct state_cell *cell, unsigned to, state_invariant_fn invariant, const void *object) {
        const struct state_table *t = cell->table;
        unsigned from = cell->state;

        PRE(t->n <= STATES_MAX && from < t->n);
        if (to >= t->n || !(t->allowed[from] & UINT32_C(1) << to))
                refuse(t, from, to, "allowed move");
        cell->state = to;
        if (invariant && !invariant(object, to))
                refuse(t, from, to, "invariant");
        return t->state_name[from];
}
