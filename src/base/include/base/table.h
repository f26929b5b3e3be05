/* table.h: state machines as tables. A machine names its states, says which moves are allowed, and has an invariant that is checked
 * at every move. A move that the table does not allow aborts. Pure. */
#pragma once

#include "base/base.h"

struct state_table {
        const char *name;              /* "repl", "checkpoint" */
        const char *const *state_name; /* [n] */
        const uint32_t *allowed;       /* [n]: bit j set: state i may move to j */
        unsigned n;                    /* at most 32 */
};
typedef bool (*state_invariant_fn)(const void *object, unsigned state);

struct state_cell {
        const struct state_table *table;
        unsigned state;
};
/* Moves; returns the name of the state left, for the one log or trace line that each move gets. */
const char *state_move(struct state_cell *cell, unsigned to, state_invariant_fn invariant, const void *object);
static inline const char *state_text(const struct state_cell *cell) { return cell->table->state_name[cell->state]; }
