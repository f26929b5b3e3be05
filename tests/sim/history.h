/* history.h: what really happened, kept apart from the nodes, and the checkers that judge it.
 *
 * Every state that any node ever had is a record: the operation that led to it and the record before. Records of one history form a chain;
 * where members of a broken view applied different tails, the chains fork. What was acknowledged must lie on one chain for ever. */
#pragma once

#include "node.h"

struct record {
        struct hash128 hash; /* state.history */
        struct record *parent;
        uint64_t seq, epoch;
        struct op_origin origin;
        enum op_kind kind;
        bool changed, acked, digested;
        struct hash128 digest; /* state_digest, once an undamaged node was there */
        uint8_t *head, *payload;
        size_t head_len, payload_len;
        struct op_result result;
        uint64_t ino, value; /* a register's write */
};

struct history *history_new(struct sim *s);
void history_free(struct history *h);

uint64_t history_frontier(const struct sim *s); /* highest acknowledged position */
/* What nodes do. */
void history_start(struct node *x, const struct store_loaded *loaded, bool power_cut); /* after a restart: the state found again */
/* A request, as its node gives it to the machine: nothing else may ever be applied under its name. */
void history_submitted(struct node *x, const struct op_origin *o, const void *head, size_t head_len, const struct op_payload *payload);
void history_commit(struct node *x, const struct repl_effect *f);
void history_reply(struct node *x, const struct request *q, const struct repl_effect *f);
void history_replace(struct node *x);  /* the state is another one now */
void history_replaced(struct node *x); /* and it is stored */
void history_role(struct node *x);
void history_conflict(struct node *x, const struct repl_effect *f);
void history_written(struct node *x, uint64_t seq);
void history_flushed(struct node *x, uint64_t seq);

/* Reads: what must be seen at the least when a read begins, and the judgement of what it saw. */
bool history_synced(const struct node *x);
uint64_t history_must_see(const struct sim *s, uint64_t ino);
void history_read(struct node *x, uint64_t ino, uint64_t value, bool synced, uint64_t must_see, uint64_t last_value);
void history_wrote(struct sim *s, uint64_t ino, uint64_t value); /* a register's write was acknowledged to its caller */

void history_final(struct sim *s); /* everything has come to rest: convergence, and the whole chain against the reference tree */
