/* oplog_rig.h: an operation log on a simulated disk, for the tests of the log. One log at a time; one thread but where a test says so. */
#pragma once

#include "oplog_format.h"
#include "oplog_model.h"
#include "unit.h"

#define PATH "/d/db-oplog"
#define SIZE (128 * KIB)
#define SALT UINT64_C(0x1122334455667788) /* of half 0 */

extern struct metrics logrig_metrics;
extern struct simdisk *logrig_sim;
extern uint8_t logrig_text[300 * 1024]; /* what heads and payloads are cut from; filled by logrig_op */

void logrig_setup(void);
void logrig_teardown(void);
struct oplog_config logrig_config(void);
struct oplog *logrig_make(const struct oplog_config *c); /* created, appending at the start of half 0, metrics from zero */
struct oplog *logrig_make_default(void);
struct oplog *logrig_reopen(void);
struct oplog_record logrig_op(uint64_t seq, size_t head, size_t payload); /* lengths */
void logrig_append(struct oplog *l, uint64_t seq, size_t head, size_t payload);
uint64_t logrig_metric(enum metric id);

struct logrig_seen {
        unsigned n;
        uint64_t first, last;
        enum oplog_kind kinds[16];
};
errint_t logrig_count(void *ctx, const struct oplog_record *r); /* ctx: struct logrig_seen */
/* want_torn: a part of the reason, "" for none; NULL: any. */
struct logrig_seen logrig_replay(struct oplog *l, unsigned half, uint64_t salt, uint64_t *ret_end, uint32_t *ret_chain, const char *want_torn);
