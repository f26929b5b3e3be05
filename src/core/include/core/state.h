/* state.h: the whole replicated state of a node and the one way to move it on: tree, request results, position, history.
 *
 * state_apply is what replication runs on delivery and what the store runs at replay: the same operations from the same state give the
 * same state, on every node. Pure; the caller locks as for tree.h. */
#pragma once

#include "core/sessions.h"
#include "core/tree.h"

struct position {
        uint64_t epoch; /* of the operation; 0: nothing yet */
        uint64_t seq;   /* of the last applied operation, counted from 1 without gaps over all epochs */
};
static inline int position_cmp(struct position a, struct position b) {
        return a.epoch != b.epoch ? (a.epoch < b.epoch ? -1 : 1) : a.seq == b.seq ? 0 : a.seq < b.seq ? -1 : 1;
}

struct state {
        struct tree *tree;
        struct sessions *sessions;
        struct position pos;
        struct hash128 history; /* chained over every applied head and the CRC-32C of its payload */
        /* That CRC, of the operation at `crc_seq`: megabytes are summed once. Not part of the state. */
        uint64_t crc_seq;
        uint32_t payload_crc;
};
void state_init(struct state *s); /* an empty tree at position (0, 0) */
void state_done(struct state *s);

/* Applies the operation that follows: position becomes (epoch, seq + 1), also when it is refused or already known. A request that the
 * sessions know gets its recorded result, changes nothing, and takes a position all the same. Errors as tree_apply: the state is
 * unchanged then and the node must not go on. */
errint_t state_apply(struct state *s, uint64_t epoch, const struct op *op, const void *head, size_t head_len, struct change_set *changes,
                     struct op_result *ret);
/* One link of the history chain: what state_apply puts in place of `before`. Lets a log be checked against a history without applying it. */
struct hash128 state_history_next(struct hash128 before, uint64_t epoch, const void *head, size_t head_len, const struct op_payload *payload);
/* What members compare: position, history, tree and sessions in one value. */
struct hash128 state_digest(const struct state *s);
