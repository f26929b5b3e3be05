/* sessions.c: see core/sessions.h. One entry per node (a new incarnation takes its node's entry over), sorted by node, each with the
 * results kept in a ring. What stays is decided by the operations alone, so that every node keeps the same.
 *
 * Encoded: version u8 = 1, clock varint, count varint; per entry node u32, incarnation u64, highest varint, used varint, results varint;
 * per result: distance of its number below `highest` varint (descending), error svarint, ino varint, offset varint. */
#include "core/sessions.h"

#include <string.h>

#define SESSIONS_VERSION   1u
#define SESSIONS_NODES_MAX 128u /* beyond it the one that was silent longest goes; twice what a view can hold */
#define RESULT_BYTES_MAX   40u  /* encoded: four varints */
static_assert(SESSIONS_NODES_MAX * (SESSION_RESULTS * RESULT_BYTES_MAX + 64) < SESSIONS_ENCODED_MAX, "full sessions can be encoded");
static_assert((SESSION_RESULTS & (SESSION_RESULTS - 1)) == 0, "the ring's size is a power of two");

struct kept {
        uint64_t number;
        struct op_result result;
};
struct session {
        uint32_t node;
        uint64_t incarnation;
        uint64_t highest;  /* number applied */
        uint64_t used;     /* the clock at its last operation */
        struct kept *ring; /* numbers ascend from `first` */
        uint32_t first, n, cap;
};
struct sessions {
        struct session *items; /* sorted by node */
        size_t n, cap;
        uint64_t clock; /* operations recorded */
        struct hash128 digest;
};

struct sessions *sessions_new(void) {
        return NEW(struct sessions);
}

void sessions_free(struct sessions *s) {
        if (!s)
                return;
        for (size_t i = 0; i < s->n; i++)
                free(s->items[i].ring);
        free(s->items);
        free(s);
}

static const struct kept *session_at(const struct session *e, uint32_t i) {
        return &e->ring[(e->first + i) & (e->cap - 1)];
}

/* What an entry and a result put into the rolling digest. */
static struct hash128 session_hash(const struct session *e) {
        uint8_t bytes[33] = {'S'};
        le_put(bytes + 1, e->node, 8);
        le_put(bytes + 9, e->incarnation, 8);
        le_put(bytes + 17, e->highest, 8);
        le_put(bytes + 25, e->used, 8);
        return hash128_of(bytes, sizeof(bytes));
}

static struct hash128 kept_hash(const struct session *e, const struct kept *k) {
        uint8_t bytes[49] = {'R'};
        le_put(bytes + 1, e->node, 8);
        le_put(bytes + 9, e->incarnation, 8);
        le_put(bytes + 17, k->number, 8);
        le_put(bytes + 25, (uint64_t)(int64_t)k->result.error, 8);
        le_put(bytes + 33, k->result.ino, 8);
        le_put(bytes + 41, k->result.offset, 8);
        return hash128_of(bytes, sizeof(bytes));
}

static void digest_add(struct sessions *s, struct hash128 h) {
        s->digest = hash128_add(s->digest, h);
}
static void digest_sub(struct sessions *s, struct hash128 h) {
        s->digest = hash128_sub(s->digest, h);
}

/* Index of node's entry, or where it would go. */
static size_t session_index(const struct sessions *s, uint32_t node) {
        size_t low = 0, high = s->n;
        while (low < high) {
                size_t mid = (low + high) / 2;
                if (s->items[mid].node < node)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

static const struct session *session_of(const struct sessions *s, uint32_t node, uint64_t incarnation) {
        size_t i = session_index(s, node);
        return i < s->n && s->items[i].node == node && s->items[i].incarnation == incarnation ? &s->items[i] : NULL;
}

enum session_verdict sessions_find(const struct sessions *s, uint32_t node, uint64_t incarnation, uint64_t number, struct op_result *ret) {
        const struct session *e = session_of(s, node, incarnation);
        if (number == 0) /* numbers begin at 1: nobody waits for this one */
                return SESSION_FORGOTTEN;
        if (!e || number > e->highest)
                return SESSION_NEW;
        uint32_t low = 0, high = e->n;
        while (low < high) {
                uint32_t mid = (low + high) / 2;
                if (session_at(e, mid)->number < number)
                        low = mid + 1;
                else
                        high = mid;
        }
        if (low == e->n || session_at(e, low)->number != number)
                return SESSION_FORGOTTEN;
        if (ret)
                *ret = session_at(e, low)->result;
        return SESSION_KNOWN;
}

static void session_drop_first(struct sessions *s, struct session *e) {
        digest_sub(s, kept_hash(e, session_at(e, 0)));
        e->first = (e->first + 1) & (e->cap - 1);
        e->n--;
}

static void session_push(struct session *e, const struct kept *k) {
        if (e->n == e->cap) {
                uint32_t cap = e->cap ? 2 * e->cap : 4;
                struct kept *ring = xmalloc(cap * sizeof(*ring));
                for (uint32_t i = 0; i < e->n; i++)
                        ring[i] = *session_at(e, i);
                free(e->ring);
                e->ring = ring;
                e->first = 0;
                e->cap = cap;
        }
        e->ring[(e->first + e->n) & (e->cap - 1)] = *k;
        e->n++;
}

static void session_remove(struct sessions *s, size_t i) {
        struct session *e = &s->items[i];
        while (e->n > 0)
                session_drop_first(s, e);
        digest_sub(s, session_hash(e));
        free(e->ring);
        memmove(e, e + 1, (s->n - i - 1) * sizeof(*e));
        s->n--;
}

static void session_evict(struct sessions *s) {
        size_t oldest = 0;
        for (size_t i = 1; i < s->n; i++)
                if (s->items[i].used < s->items[oldest].used)
                        oldest = i;
        session_remove(s, oldest);
}

static struct session *session_insert(struct sessions *s, size_t i, uint32_t node, uint64_t incarnation) {
        if (s->n == s->cap) {
                s->cap = s->cap ? 2 * s->cap : 4;
                s->items = xrealloc(s->items, s->cap * sizeof(*s->items));
        }
        memmove(&s->items[i + 1], &s->items[i], (s->n - i) * sizeof(*s->items));
        s->n++;
        s->items[i] = (struct session){.node = node, .incarnation = incarnation};
        return &s->items[i];
}

/* The entry for this origin, taken out of the digest: the caller puts it back when it has changed it. */
static struct session *session_take(struct sessions *s, const struct op_origin *origin) {
        size_t i = session_index(s, origin->node);
        if (i < s->n && s->items[i].node == origin->node) {
                if (s->items[i].incarnation == origin->incarnation) {
                        digest_sub(s, session_hash(&s->items[i]));
                        return &s->items[i];
                }
                session_remove(s, i);
        } else if (s->n == SESSIONS_NODES_MAX) {
                session_evict(s);
                i = session_index(s, origin->node);
        }
        return session_insert(s, i, origin->node, origin->incarnation);
}

void sessions_record(struct sessions *s, const struct op_origin *origin, const struct op_result *result) {
        if (origin->incarnation == 0)
                return;
        struct session *e = session_take(s, origin);
        PRE(origin->number > e->highest);
        e->highest = origin->number;
        e->used = ++s->clock;
        while (e->n > 0 && (e->n == SESSION_RESULTS || session_at(e, 0)->number < origin->lowest_waiting))
                session_drop_first(s, e);
        struct kept k = {.number = origin->number, .result = *result};
        session_push(e, &k);
        digest_add(s, kept_hash(e, &k));
        digest_add(s, session_hash(e));
}

struct hash128 sessions_digest(const struct sessions *s) {
        return s->digest;
}

errint_t sessions_encode(const struct sessions *s, struct enc *e) {
        enc_u8(e, SESSIONS_VERSION);
        enc_varint(e, s->clock);
        enc_varint(e, s->n);
        for (size_t i = 0; i < s->n; i++) {
                const struct session *x = &s->items[i];
                enc_u32(e, x->node);
                enc_u64(e, x->incarnation);
                enc_varint(e, x->highest);
                enc_varint(e, x->used);
                enc_varint(e, x->n);
                for (uint32_t j = 0; j < x->n; j++) {
                        const struct kept *k = session_at(x, j);
                        enc_varint(e, x->highest - k->number);
                        enc_svarint(e, k->result.error);
                        enc_varint(e, k->result.ino);
                        enc_varint(e, k->result.offset);
                }
        }
        return e->err;
}

/* One result; numbers ascend and the last one is `highest`, because every operation leaves its own. */
static bool kept_decode(struct dec *d, struct sessions *s, struct session *e, bool last) {
        uint64_t below = dec_varint(d);
        int64_t error = dec_svarint(d);
        struct kept k = {.number = e->highest - below, .result = {.error = (int32_t)error, .ino = dec_varint(d), .offset = dec_varint(d)}};
        bool good = !d->err && below < e->highest && error <= 0 && error >= -4095 && (below == 0) == last &&
                    (e->n == 0 || session_at(e, e->n - 1)->number < k.number);
        if (!good) {
                dec_fail(d);
                return false;
        }
        session_push(e, &k);
        digest_add(s, kept_hash(e, &k));
        return true;
}

static bool session_decode(struct dec *d, struct sessions *s) {
        uint32_t node = dec_u32(d);
        uint64_t incarnation = dec_u64(d);
        uint64_t highest = dec_varint(d), used = dec_varint(d), n = dec_varint(d);
        bool ordered = s->n == 0 || s->items[s->n - 1].node < node;
        if (d->err || !ordered || incarnation == 0 || highest == 0 || used == 0 || used > s->clock || n == 0 || n > SESSION_RESULTS) {
                dec_fail(d);
                return false;
        }
        struct session *e = session_insert(s, s->n, node, incarnation);
        e->highest = highest;
        e->used = used;
        for (uint64_t j = 0; j < n; j++)
                if (!kept_decode(d, s, e, j + 1 == n))
                        return false;
        digest_add(s, session_hash(e));
        return true;
}

errint_t sessions_decode(const void *p, size_t n, struct sessions **ret) {
        CLEANUP(sessions_freep) struct sessions *s = sessions_new();
        struct dec d;
        dec_init(&d, p, n);
        if (dec_u8(&d) != SESSIONS_VERSION)
                dec_fail(&d);
        s->clock = dec_varint(&d);
        uint64_t count = dec_varint(&d);
        if (count > SESSIONS_NODES_MAX)
                dec_fail(&d);
        for (uint64_t i = 0; i < count && !d.err; i++)
                if (!session_decode(&d, s))
                        break;
        errint_t r = dec_finish(&d);
        if (r < 0)
                return r;
        *ret = steal_pointer(&s);
        return 0;
}
