/* store_replay.c: what the log has and the home has not, applied again. Records that the home has are passed over; the first one that is
 * not the next, or whose content is not what it says, ends it. */
#include "store_private.h"

#include <stdio.h>
#include <string.h>

struct replay {
        struct sqlite_store *s;
        struct state *state;
        struct replayed *out;
        unsigned half;
        uint64_t home_seq;
        struct change_set changes;
};
#define REPLAY_END (-ECANCELED) /* ends it, without being an error */

static errint_t cut(struct replay *x, const struct oplog_record *r, const char *why) {
        x->out->cut = true;
        (void)snprintf(x->out->reason, sizeof(x->out->reason), "the log is cut behind operation %ju: the record of %ju %s",
                       (uintmax_t)x->state->pos.seq, (uintmax_t)r->pos.seq, why); /* fits */
        return REPLAY_END;
}

static errint_t take_epoch(struct replay *x, const struct oplog_record *r) {
        struct sqlite_store *s = x->s;
        if (r->pos.seq > x->state->pos.seq)
                return cut(x, r, "is an epoch's, and operations before it are missing");
        if (r->pos.seq < x->home_seq)
                return 0;
        if (r->kind == OPLOG_ADOPTED)
                s->adopted = MAX_OF(s->adopted, r->pos.epoch);
        else
                s->promised = MAX_OF(s->promised, r->pos.epoch);
        s->dirty.other = true;
        return 0;
}

/* Its extents are in use from here on, whatever becomes of the operation. */
static errint_t read_extents(struct replay *x, const struct oplog_record *r, void **ret_payload, struct oplog_record *placed) {
        struct sqlite_store *s = x->s;
        cleanup_free void *payload = try_malloc(r->payload_len);
        if (!payload)
                return -ENOMEM;
        if (!s->content)
                return cut(x, r, "names the content file, which is missing");
        errint_t e = content_read(s->content, r->extents, r->n_extents, payload, r->payload_len, r->payload_crc);
        if (e == -EBADMSG)
                return cut(x, r, "names content that is not in the content file");
        if (e < 0)
                return e;
        if (!s->read_only && content_mark_used(s->content, r->extents, r->n_extents) < 0)
                return cut(x, r, "names extents that are in use");
        e = s->read_only ? 0 : content_write_again(s->content, r->extents, r->n_extents, payload, r->payload_len);
        if (e < 0)
                return e;
        s->content_new = true;
        struct oplog_extent *extents = xcalloc(r->n_extents, sizeof(*extents));
        memcpy(extents, r->extents, r->n_extents * sizeof(*extents));
        placed->extents = s->read_only ? NULL : extents;
        placed->n_extents = s->read_only ? 0 : r->n_extents;
        if (s->read_only)
                free(extents);
        *ret_payload = steal_pointer(&payload);
        return 0;
}

static errint_t apply_record(struct replay *x, const struct oplog_record *r, const void *payload, struct oplog_record *placed) {
        struct op op;
        cleanup_free void *scratch = NULL;
        struct op_result result;
        errint_t e = op_decode(r->head, r->head_len, payload, r->payload_len, &op, &scratch);
        if (e == -EBADMSG || (e == 0 && (op.payload.form != r->form || op.payload.raw_len != r->raw_len)))
                return cut(x, r, "is no operation");
        if (e == 0)
                e = state_apply(x->state, r->pos.epoch, &op, r->head, r->head_len, &x->changes, &result);
        if (e == -EBADMSG)
                return cut(x, r, "does not decompress");
        if (e < 0)
                return e;
        const struct store_record record = {
                .pos = x->state->pos, .op = &op, .head = r->head, .head_len = r->head_len, .changes = &x->changes, .state = x->state};
        if (!x->s->read_only)
                track_record(x->s, &record, placed);
        x->out->operations++;
        return 0;
}

static errint_t take_operation(struct replay *x, const struct oplog_record *r) {
        struct oplog_record placed = *r;
        cleanup_free void *payload = NULL;
        if (r->pos.seq <= x->state->pos.seq) {
                index_add(x->s, x->half, r);
                return 0;
        }
        if (r->pos.seq != x->state->pos.seq + 1 || r->pos.epoch < x->state->pos.epoch)
                return cut(x, r, "does not follow it");
        placed.extents = NULL;
        placed.n_extents = 0;
        errint_t e = r->kind == OPLOG_OP_EXTENTS ? read_extents(x, r, &payload, &placed) : 0;
        if (e == 0)
                e = apply_record(x, r, payload ? payload : r->payload, &placed);
        if (e == 0)
                index_add(x->s, x->half, r);
        free((void *)(uintptr_t)placed.extents); /* of a record that was not applied: they stay marked until the next start */
        return e;
}

static errint_t take(void *ctx, const struct oplog_record *r) {
        struct replay *x = ctx;
        x->out->used[x->half] = true;
        return r->kind == OPLOG_ADOPTED || r->kind == OPLOG_PROMISED ? take_epoch(x, r) : take_operation(x, r);
}

static errint_t replay_half(struct replay *x, unsigned half) {
        char torn[128] = "";
        x->half = half;
        errint_t r = oplog_replay(x->s->log, half, x->s->salt[half], take, x, &x->out->end[half], &x->out->chain[half], torn, sizeof(torn));
        if (r == REPLAY_END)
                return 0;
        if (r == 0 && torn[0] && !x->out->reason[0])
                (void)snprintf(x->out->reason, sizeof(x->out->reason), "the log is cut behind operation %ju: %s",
                               (uintmax_t)x->state->pos.seq, torn); /* fits */
        return r;
}

errint_t store_replay(struct sqlite_store *s, struct state *state, struct replayed *ret) {
        struct replay x = {.s = s, .state = state, .out = ret, .home_seq = s->meta.pos.seq};
        change_set_init(&x.changes);
        errint_t r = replay_half(&x, s->meta.half);
        if (r == 0 && !ret->cut)
                r = replay_half(&x, 1 - s->meta.half);
        change_set_done(&x.changes);
        return r;
}
