/* fuzz_repl.c: a machine in a view of three, and a second member that says whatever the input says: well-named messages with any
 * body, the right ones a little changed, answers of a donor, questions of a newcomer. Input: a series of commands, see `command`.
 *
 * Checked: the machine's own assertions hold, whatever a member sends; and it never calls itself primary without the other's JOINED. */
#include "transfer.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OWN_KEPT 64u

struct world {
        struct repl *r;
        struct state state;
        uint64_t now;
        uint32_t peer_number;
        struct {
                uint8_t *data;
                size_t len;
        } own[OWN_KEPT]; /* our messages, to be delivered to us */
        size_t n_own;
        uint64_t written, invalidated, flush, token;
        unsigned persists;
        bool peer_joined;
};
static const struct repl_member members[] = {{1, 10}, {2, 20}, {3, 30}};

static void run(struct world *w, const struct repl_effects *fx) {
        for (size_t i = 0; i < fx->n; i++) {
                const struct repl_effect *f = &fx->items[i];
                switch (f->kind) {
                case EFFECT_SEND:
                        if (w->n_own == OWN_KEPT)
                                break;
                        w->own[w->n_own].len = f->send.len + f->send.len2;
                        w->own[w->n_own].data = xmalloc(f->send.len + f->send.len2);
                        memcpy(w->own[w->n_own].data, f->send.data, f->send.len);
                        if (f->send.len2)
                                memcpy(w->own[w->n_own].data + f->send.len, f->send.data2, f->send.len2);
                        w->n_own++;
                        break;
                case EFFECT_COMMIT:
                        w->written = f->commit.pos.seq;
                        break;
                case EFFECT_INVALIDATE:
                        w->invalidated = f->commit.pos.seq;
                        break;
                case EFFECT_FLUSH:
                        w->flush = f->flush.seq;
                        break;
                case EFFECT_PERSIST:
                        w->persists++;
                        break;
                case EFFECT_REPLACE:
                        w->persists++;
                        w->written = w->invalidated = w->flush = 0;
                        break;
                case EFFECT_ROLE:
                        POST(!f->role.primary || w->peer_joined);
                        break;
                default:
                        break;
                }
        }
}

static void step(struct world *w, struct repl_event ev) {
        for (;;) {
                ev.now_ms = w->now;
                struct repl_effects fx = repl_step(w->r, &ev);
                run(w, &fx);
                if (!fx.more)
                        return;
                ev = (struct repl_event){.kind = REPL_MORE};
        }
}

/* A message of member 2 in the round that the machine is in. */
static void peer(struct world *w, enum wire_type type, uint32_t skip, const void *body, size_t len) {
        struct wire_header h = {.version = 1,
                                .lowest = 1,
                                .highest = 1,
                                .type = (uint8_t)type,
                                .ring = w->r->ring,
                                .members = w->r->members_hash,
                                .round = w->r->round,
                                .incarnation = 22,
                                .instance = 1,
                                .number = w->r->members[1].next_number + skip};
        cleanup_free uint8_t *data = xmalloc(WIRE_HEADER + len + 1);
        if (len > WIRE_BODY_MAX)
                return;
        wire_header_encode(&h, body, len, NULL, 0, data);
        memcpy(data + WIRE_HEADER, body, len);
        w->peer_joined = w->peer_joined || type == WIRE_JOINED;
        step(w, (struct repl_event){.kind = REPL_DELIVER, .deliver = {.sender = members[1], .data = data, .len = WIRE_HEADER + len}});
}

static void peer_state(struct world *w, uint8_t change) {
        struct wire_state s = {.promised = w->r->promised,
                               .adopted = w->r->adopted,
                               .seq = w->state.pos.seq,
                               .digest = state_digest(&w->state),
                               .votes = 1,
                               .needed = 2,
                               .expected = 3,
                               .flags = STATE_QUORATE,
                               .members = view_round_bits(w->r)};
        CLEANUP(enc_done) struct enc e;
        memcpy(s.cluster_id, w->r->config.cluster_id, 16);
        if (change & 1)
                s.seq += change >> 4; /* further on: we have to catch up */
        if (change & 2)
                s.adopted = s.promised += 2;
        if (change & 4)
                s.digest.lo++;
        if (change & 8)
                s.flags |= STATE_FORGETFUL;
        enc_init(&e, WIRE_BODY_MAX);
        wire_state_encode(&s, &e);
        peer(w, WIRE_STATE, 0, e.data, e.len);
}

static void peer_joined(struct world *w, uint8_t change) {
        struct wire_joined j = {
                .epoch = w->r->choice.epoch + (change & 1), .seq = w->r->best.seq + (change >> 1 & 1), .digest = w->r->best.digest};
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        wire_joined_encode(&j, &e);
        peer(w, WIRE_JOINED, 0, e.data, e.len);
}

/* TRAFFIC, PART, ASK or GIVE with the right beginning and any rest. */
static void peer_body(struct world *w, uint8_t which, const uint8_t *p, size_t n) {
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, WIRE_BODY_MAX);
        struct transfer_head h = {.target = members[0], .transfer = w->r->random + w->r->next_tag};
        switch (which % 4) {
        case 0:
        case 1:
                enc_u64(&e, w->r->choice.epoch);
                enc_raw(&e, p, n);
                peer(w, which % 4 ? WIRE_PART : WIRE_TRAFFIC, 0, e.data, e.len);
                break;
        default:
                transfer_head_encode(&h, &e);
                enc_raw(&e, p, n);
                peer(w, which % 4 == 2 ? WIRE_ASK : WIRE_GIVE, 0, e.data, e.len);
        }
}

static void own_messages(struct world *w) {
        size_t n = w->n_own;
        for (size_t i = 0; i < n; i++) {
                step(w, (struct repl_event){.kind = REPL_DELIVER,
                                            .deliver = {.sender = members[0], .data = w->own[i].data, .len = w->own[i].len}});
                free(w->own[i].data);
        }
        memmove(w->own, w->own + n, (w->n_own - n) * sizeof(w->own[0]));
        w->n_own -= n;
}

static void answers(struct world *w) {
        step(w, (struct repl_event){.kind = REPL_WRITTEN, .seq = {w->written}});
        step(w, (struct repl_event){.kind = REPL_INVALIDATED, .seq = {w->invalidated}});
        step(w, (struct repl_event){.kind = REPL_FLUSHED, .seq = {w->flush}});
        for (; w->persists > 0; w->persists--)
                step(w, (struct repl_event){.kind = REPL_PERSISTED});
}

static void request(struct world *w, uint8_t name) {
        struct op op = {.kind = OP_CREATE, .create = {.parent = INO_ROOT, .name = {(const char *)&name, 1}, .mode = S_IFREG | 0644}};
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        op.origin = repl_next_origin(w->r);
        if (op_encode_head(&op, &e) == 0)
                step(w, (struct repl_event){.kind = REPL_REQUEST, .request = {.token = ++w->token, .head = e.data, .head_len = e.len}});
}

static void command(struct world *w, uint8_t what, uint8_t arg, const uint8_t *p, size_t n) {
        switch (what % 10) {
        case 0:
                peer(w, (enum wire_type)(1 + arg % (WIRE_TYPE_COUNT - 1)), arg / 128, p, n);
                break;
        case 1:
                peer_state(w, arg);
                break;
        case 2:
                peer_joined(w, arg);
                break;
        case 3:
                peer_body(w, arg, p, n);
                break;
        case 4:
                own_messages(w);
                break;
        case 5:
                answers(w);
                break;
        case 6:
                request(w, arg);
                break;
        case 7:
                w->now += 20u * arg;
                step(w, (struct repl_event){.kind = REPL_TIMER, .timer = {1}});
                break;
        case 8:
                step(w, (struct repl_event){.kind = REPL_QUORUM,
                                            .quorum = {.ring = {1, 4}, .quorate = arg & 1, .expected_votes = 3, .total_votes = 3}});
                break;
        default:
                step(w, (struct repl_event){.kind = REPL_DELIVER, .deliver = {.sender = members[arg % 3], .data = p, .len = n}});
                break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct world w = {.now = 1000};
        struct repl_config config = {.node = 1, .incarnation = 11, .ack_timeout_ms = 400, .cluster_id = "fuzz"};
        state_init(&w.state);
        w.r = repl_new(&config, &w.state);
        step(&w, (struct repl_event){.kind = REPL_START, .start = {5}});
        step(&w,
             (struct repl_event){.kind = REPL_QUORUM, .quorum = {.ring = {1, 4}, .quorate = true, .expected_votes = 3, .total_votes = 3}});
        step(&w, (struct repl_event){.kind = REPL_VIEW,
                                     .view = {.ring = {1, 4}, .members = (const struct repl_member[]){{1, 10}, {2, 20}}, .n = 2}});
        /* Each command: what, argument, length of its bytes, bytes. */
        for (size_t at = 0; at + 3 <= size;) {
                size_t n = MIN_OF((size_t)data[at + 2], size - at - 3);
                command(&w, data[at], data[at + 1], data + at + 3, n);
                at += 3 + n;
        }
        repl_free(w.r);
        for (size_t i = 0; i < w.n_own; i++)
                free(w.own[i].data);
        state_done(&w.state);
        return 0;
}
