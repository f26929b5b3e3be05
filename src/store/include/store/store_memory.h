/* store_memory.h: what the in-memory store keeps over restarts, for tests and the simulator: a backing stands for a node's disk.
 *
 * It obeys the contract of store.h to the letter: what was appended and not written out dies with the process, what was written out and
 * not flushed can be lost by a power cut, from some operation on. Only faults may be set, and calls counted, while a
 * store works on it. */
#pragma once

#include "store/store.h"

struct store_backing;
struct store_backing *store_backing_new(void);
void store_backing_free(struct store_backing *b); /* after the store on it is closed; NULL is fine */
DEFINE_FREEP(store_backing_free, struct store_backing)

/* What happens to a disk between close (without a clean stop: a killed process) and the next open. `random` decides how many of the
 * unflushed records are kept: always a prefix. */
void store_backing_power_cut(struct store_backing *b, uint64_t random);
void store_backing_wipe(struct store_backing *b);                /* an empty disk */
uint64_t store_backing_unflushed(const struct store_backing *b); /* records that a power cut may take */

enum store_call {
        STORE_APPEND = 1,
        STORE_WRITE_OUT = 2,
        STORE_BARRIER = 4, /* also those inside set_promised, set_adopted, set_level and checkpoints */
        STORE_CHECKPOINT = 8,
        STORE_RESERVE = 16,
        STORE_REPLACE = 32
};
struct store_fault {
        unsigned calls; /* bits of enum store_call */
        uint64_t nth;   /* the n-th of them from now on, from 1; 0: none */
        bool sticky;    /* and all after it */
        errint_t error;
};
void store_backing_fail(struct store_backing *b, const struct store_fault *f); /* one at a time; NULL: none */
uint64_t store_backing_calls(struct store_backing *b, unsigned calls);
