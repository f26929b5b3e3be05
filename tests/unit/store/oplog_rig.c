/* oplog_rig.c: see oplog_rig.h. */
#include "oplog_rig.h"

#include "base/failpoint.h"
#include <string.h>

struct metrics logrig_metrics;
struct simdisk *logrig_sim;

struct oplog_config logrig_config(void) {
        return (struct oplog_config){.path = PATH,
                                     .id = "an id of 16 byte",
                                     .life = 7,
                                     .level = LEVEL_FILESYSTEM,
                                     .size = SIZE,
                                     .disk = simdisk_disk(logrig_sim),
                                     .metrics = &logrig_metrics};
}

void logrig_setup(void) {
        memset(&logrig_metrics, 0, sizeof logrig_metrics);
        logrig_sim = simdisk_new(&(struct simdisk_config){.seed = 3, .history = true});
}

void logrig_teardown(void) {
        (void)failpoint_set(NULL);
        simdisk_free(logrig_sim);
}

struct oplog *logrig_make(const struct oplog_config *c) {
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(c, true, &l), 0);
        oplog_start(l, 0, SALT, 0, 0);
        memset(&logrig_metrics, 0, sizeof logrig_metrics);
        return l;
}

struct oplog *logrig_make_default(void) {
        struct oplog_config c = logrig_config();
        return logrig_make(&c);
}

struct oplog *logrig_reopen(void) {
        struct oplog_config c = logrig_config();
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(&c, false, &l), 0);
        return l;
}

uint8_t logrig_text[300 * 1024];
struct oplog_record logrig_op(uint64_t seq, size_t head, size_t payload) {
        if (!logrig_text[1])
                for (size_t i = 0; i < sizeof logrig_text; i++)
                        logrig_text[i] = (uint8_t)(i * 7 + i / 251);
        return (struct oplog_record){.kind = OPLOG_OP,
                                     .pos = {1, seq},
                                     .head = logrig_text,
                                     .head_len = head,
                                     .payload = payload ? logrig_text + head : NULL,
                                     .payload_len = payload};
}

void logrig_append(struct oplog *l, uint64_t seq, size_t head, size_t payload) {
        struct oplog_record r = logrig_op(seq, head, payload);
        ck_assert_int_eq(oplog_append(l, &r), 0);
}

uint64_t logrig_metric(enum metric id) {
        return metric_get(&logrig_metrics, id);
}

errint_t logrig_count(void *ctx, const struct oplog_record *r) {
        struct logrig_seen *s = ctx;
        if (s->n == 0)
                s->first = r->pos.seq;
        if (s->n < ARRAY_LEN(s->kinds))
                s->kinds[s->n] = r->kind;
        s->n++;
        s->last = r->pos.seq;
        return 0;
}
struct logrig_seen logrig_replay(struct oplog *l, unsigned half, uint64_t salt, uint64_t *ret_end, uint32_t *ret_chain,
                                 const char *want_torn) {
        struct logrig_seen s = {0};
        char torn[128] = "?";
        uint64_t end;
        uint32_t chain;
        ck_assert_int_eq(oplog_replay(l, half, salt, logrig_count, &s, &end, &chain, torn, sizeof torn), 0);
        if (want_torn)
                ck_assert_msg(*want_torn ? strstr(torn, want_torn) != NULL : *torn == '\0', "torn: '%s'", torn);
        if (ret_end)
                *ret_end = end;
        if (ret_chain)
                *ret_chain = chain;
        return s;
}
