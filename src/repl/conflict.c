/* conflict.c: operations that this node had applied and that the history it takes over lacks: they are kept, never dropped silently. */
#include "machine.h"

#include <inttypes.h>

static bool still_waits(const struct repl *r, const struct op_origin *o) {
        if (o->node != r->config.node || o->incarnation != r->config.incarnation)
                return false;
        for (const struct request *q = r->first; q; q = q->next)
                if (q->number == o->number)
                        return true; /* it is sent again: nothing is lost */
        for (size_t i = r->given_up.at; i < r->given_up.n; i++)
                if (r->given_up.items[i].seq == o->number)
                        return true; /* judged when the next epoch is adopted */
        return false;
}

/* One operation that we had applied at pos. Kept unless the other history has it. */
bool conflict_one(struct repl *r, const struct state *now, struct opbuf *b, struct position pos) {
        struct op op;
        void *scratch = NULL;
        if (op_decode(b->bytes + b->head_at, b->head_len, b->bytes + b->payload_at, b->payload_len, &op, &scratch) < 0)
                return false;
        repl_free_later(r, scratch);
        bool known = op.origin.incarnation != 0 &&
                     sessions_find(now->sessions, op.origin.node, op.origin.incarnation, op.origin.number, NULL) != SESSION_NEW;
        if (known || still_waits(r, &op.origin))
                return false;
        struct repl_effect *e = repl_effect(r, EFFECT_CONFLICT);
        e->conflict.head = b->bytes + b->head_at;
        e->conflict.head_len = b->head_len;
        e->conflict.payload = op.payload;
        e->conflict.pos = pos;
        repl_hold(r, opbuf_ref(b));
        return true;
}

void conflict_replaced(struct repl *r, const struct state *now) {
        size_t kept = 0, lost = 0;
        for (size_t i = 0; i < r->recent_n; i++) {
                const struct recent *x = &r->recent[(r->recent_at + i) & (r->recent_cap - 1)];
                if (!x->op)
                        lost++;
                else
                        kept += conflict_one(r, now, x->op, x->pos);
        }
        if (kept > 0)
                repl_log(r, 4, "%zu operations that were applied here are not in the history of the cluster: kept as conflicts", kept);
        if (lost > 0)
                repl_log(r, 3, "%zu operations that were applied here are too many to be kept; the log of this node may still have them",
                         lost);
}
