/* state.c: see core/state.h. */
#include "core/state.h"

#include "base/codec.h"

#include <string.h>

void state_init(struct state *s) {
        *s = (struct state){.tree = tree_new(), .sessions = sessions_new()};
}

void state_done(struct state *s) {
        tree_free(s->tree);
        sessions_free(s->sessions);
        *s = (struct state){0};
}

static struct hash128 history_next(struct hash128 before, uint64_t epoch, const void *head, size_t head_len,
                                   const struct op_payload *payload, uint32_t crc) {
        uint8_t meta[32];
        le_put(meta, epoch, 8);
        le_put(meta + 8, head_len, 4);
        le_put(meta + 12, crc, 4);
        le_put(meta + 16, payload->len, 8);
        le_put(meta + 24, payload->raw_len, 8);
        return hash128_chain(hash128_chain(before, meta, sizeof(meta)), head, head_len);
}

struct hash128 state_history_next(struct hash128 before, uint64_t epoch, const void *head, size_t head_len,
                                  const struct op_payload *payload) {
        return history_next(before, epoch, head, head_len, payload, crc32c(0, payload->data, payload->len));
}

errint_t state_apply(struct state *s, uint64_t epoch, const struct op *op, const void *head, size_t head_len, struct change_set *changes,
                     struct op_result *ret) {
        PRE(epoch >= s->pos.epoch);
        struct op_result result = {0};
        enum session_verdict verdict = SESSION_NEW;
        if (op->origin.incarnation != 0)
                verdict = sessions_find(s->sessions, op->origin.node, op->origin.incarnation, op->origin.number, &result);
        switch (verdict) {
        case SESSION_NEW: {
                errint_t r = tree_apply(s->tree, op, s->pos.seq + 1, changes, &result);
                if (r < 0)
                        return r;
                sessions_record(s->sessions, &op->origin, &result);
                break;
        }
        case SESSION_KNOWN:
                change_set_reset(changes);
                break;
        case SESSION_FORGOTTEN:
                change_set_reset(changes);
                result = (struct op_result){.error = -EIO};
                break;
        }
        s->pos = (struct position){.epoch = epoch, .seq = s->pos.seq + 1};
        s->payload_crc = crc32c(0, op->payload.data, op->payload.len);
        s->crc_seq = s->pos.seq;
        s->history = history_next(s->history, epoch, head, head_len, &op->payload, s->payload_crc);
        *ret = result;
        return 0;
}

struct hash128 state_digest(const struct state *s) {
        uint8_t bytes[64];
        struct hash128 parts[] = {s->history, tree_digest(s->tree), sessions_digest(s->sessions)};
        le_put(bytes, s->pos.epoch, 8);
        le_put(bytes + 8, s->pos.seq, 8);
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
                le_put(bytes + 16 + 16 * i, parts[i].lo, 8);
                le_put(bytes + 24 + 16 * i, parts[i].hi, 8);
        }
        return hash128_of(bytes, sizeof(bytes));
}
