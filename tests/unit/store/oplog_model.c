/* oplog_model.c: see oplog_model.h. */
#include "oplog_model.h"

#include "base/hash.h"
#include <stdio.h>
#include <string.h>

#define LOG_PATH "/d/log"
#define LOG_SIZE (256 * KIB)
static const uint8_t log_id[OPLOG_ID_SIZE] = "0123456789abcdef";

/* One appended record, small enough to make its bytes again. */
struct truth {
        enum oplog_kind kind;
        struct position pos;
        uint64_t variant; /* seeds the bytes */
        uint32_t head_len, payload_len, n_extents;
};
/* What the home says, from a point of the disk's journal on. */
struct home_state {
        uint64_t at;
        unsigned half;
        uint64_t salt[2];
        guint done; /* entries of truth that are home */
};
/* Promises made at a point of the journal. */
struct promise {
        uint64_t at;
        guint durable;
};
struct model {
        struct model_config config;
        uint64_t random;
        struct simdisk *sim;
        struct oplog *log;
        GArray *truth;    /* of struct truth */
        GArray *lost;     /* those that the last restart did not find, to be sent again */
        guint lost_from;  /* index of the first of them */
        GArray *homes;    /* of struct home_state, this life's */
        GArray *promises; /* of struct promise, this life's */
        unsigned half;
        bool other_free;
        guint half_first[2]; /* index of the first entry appended to each half with its present salt */
        guint written;       /* entries that write_out has brought to the file */
        guint captured;      /* entries that the checkpoint under way will bring home; G_MAXUINT: none */
        bool appended;       /* in this life */
        uint64_t life_start, epoch, salts;
        uint64_t durable_to[2]; /* offset in each half: pages before it were flushed */
        unsigned records, replays, rescues;
        char broken[256];
};

static uint64_t rnd(struct model *m, uint64_t n) {
        uint64_t z = (m->random += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return (z ^ (z >> 31)) % n;
}

#define TRUTH(m, i) (&g_array_index((m)->truth, struct truth, i))

static void broken(struct model *m, const char *what, uint64_t a, uint64_t b) {
        if (!m->broken[0])
                (void)snprintf(m->broken, sizeof m->broken, "%s (%llu, %llu)", what, (unsigned long long)a, (unsigned long long)b);
}

/* --- records and their bytes --------------------------------------------------------------------------------------------------------- */
struct made {
        struct oplog_record r;
        uint8_t *bytes;
        struct oplog_extent extents[8];
};
static void made_done(struct made *m) {
        free(m->bytes);
}

static void make(const struct truth *t, struct made *ret) {
        uint64_t state = t->variant * 1000003 + t->pos.seq;
        size_t n = t->head_len + t->payload_len;
        *ret = (struct made){.bytes = xmalloc(n)};
        for (size_t i = 0; i < n; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                ret->bytes[i] = (uint8_t)(state >> 56);
        }
        struct oplog_record *r = &ret->r;
        *r = (struct oplog_record){.kind = t->kind, .pos = t->pos};
        if (t->kind != OPLOG_OP && t->kind != OPLOG_OP_EXTENTS)
                return;
        r->head = ret->bytes;
        r->head_len = t->head_len;
        r->payload_len = t->payload_len;
        r->form = t->payload_len && t->variant % 2 ? FORM_ZSTD : FORM_RAW;
        r->raw_len = r->form == FORM_ZSTD ? t->payload_len + 100 : t->payload_len;
        r->payload_crc = t->payload_len ? crc32c(0, ret->bytes + t->head_len, t->payload_len) : 0;
        if (t->kind == OPLOG_OP) {
                r->payload = t->payload_len ? ret->bytes + t->head_len : NULL;
                return;
        }
        r->extents = ret->extents;
        r->n_extents = t->n_extents;
        for (uint32_t i = 0, left = t->payload_len; i < t->n_extents; i++) {
                uint32_t len = i + 1 == t->n_extents ? left : left / 2;
                ret->extents[i] = (struct oplog_extent){.offset = (t->variant % 1000 + i * 7 + 1) * 4096, .length = len};
                left -= len;
        }
}

static bool same(const struct truth *t, const struct oplog_record *r) {
        CLEANUP(made_done) struct made w;
        make(t, &w);
        bool op = t->kind == OPLOG_OP || t->kind == OPLOG_OP_EXTENTS;
        if (r->kind != w.r.kind || position_cmp(r->pos, w.r.pos) != 0)
                return false;
        if (!op)
                return true;
        if (r->head_len != w.r.head_len || memcmp(r->head, w.r.head, r->head_len) != 0 || r->form != w.r.form || r->raw_len != w.r.raw_len)
                return false;
        if (r->payload_len != w.r.payload_len || r->payload_crc != w.r.payload_crc || r->n_extents != w.r.n_extents)
                return false;
        if (w.r.payload && (!r->payload || memcmp(r->payload, w.r.payload, r->payload_len) != 0))
                return false;
        for (size_t i = 0; i < r->n_extents; i++)
                if (r->extents[i].offset != w.extents[i].offset || r->extents[i].length != w.extents[i].length)
                        return false;
        return true;
}

/* --- replay and its checks ----------------------------------------------------------------------------------------------------------- */
struct replayed {
        struct model *m;
        guint next;        /* entry of truth that must come */
        uint64_t last_seq; /* of the last operation taken */
        bool taking, second;
        guint taken;
        guint wanted_first; /* where the second half must begin */
};

static errint_t on_record(void *ctx, const struct oplog_record *r) {
        struct replayed *p = ctx;
        struct model *m = p->m;
        bool op = r->kind == OPLOG_OP || r->kind == OPLOG_OP_EXTENTS;
        if (p->second && p->taken == 0 && !p->taking) {
                if (r->pos.seq != p->last_seq + op)
                        return 0; /* the first half lost its end: what is here is void */
                p->taking = true;
                if (p->next != p->wanted_first)
                        broken(m, "second half taken behind the wrong entry", p->next, p->wanted_first);
        }
        if (p->second && !p->taking)
                return 0;
        if (p->next >= m->truth->len || !same(TRUTH(m, p->next), r)) {
                broken(m, "replay gave a record that was not appended there", p->next, r->pos.seq);
                return -EPROTO;
        }
        if (op)
                p->last_seq = r->pos.seq;
        p->next++;
        p->taken++;
        return 0;
}

struct outcome {
        guint reached; /* entries found */
        unsigned half;
        uint64_t end;
        uint32_t chain;
};

static errint_t open_log(struct model *m, struct disk *disk, bool create, struct oplog **ret) {
        struct oplog_config c = {.path = LOG_PATH,
                                 .life = rnd(m, UINT64_MAX) | 1,
                                 .level = m->config.level,
                                 .method = m->config.method,
                                 .direct = m->config.direct,
                                 .padding = m->config.padding,
                                 .size = LOG_SIZE,
                                 .disk = disk};
        memcpy(c.id, log_id, sizeof c.id);
        return oplog_open(&c, create, ret);
}

/* Replays as the store does: the home's half, then the other. */
static bool replay(struct model *m, struct oplog *log, const struct home_state *h, guint durable, struct outcome *ret) {
        char torn[128];
        struct replayed p = {.m = m, .next = m->half_first[h->half], .taking = true};
        uint64_t end[2];
        uint32_t chain[2];
        m->replays++;
        p.last_seq = p.next > 0 ? TRUTH(m, p.next - 1)->pos.seq : 0;
        errint_t r = oplog_replay(log, h->half, h->salt[h->half], on_record, &p, &end[0], &chain[0], torn, sizeof torn);
        *ret = (struct outcome){.half = h->half, .end = end[0], .chain = chain[0]};
        p.second = true;
        p.taking = false;
        p.taken = 0;
        p.wanted_first = m->half_first[!h->half];
        if (r == 0)
                r = oplog_replay(log, !h->half, h->salt[!h->half], on_record, &p, &end[1], &chain[1], torn, sizeof torn);
        if (r == 0 && p.taken)
                *ret = (struct outcome){.half = !h->half, .end = end[1], .chain = chain[1]};
        ret->reached = MAX_OF(p.next, h->done);
        if (r < 0)
                broken(m, "replay failed", (uint64_t)-r, 0);
        else if (ret->reached < durable)
                broken(m, "something durable is gone", ret->reached, durable);
        return !m->broken[0];
}

static const struct home_state *home_at(const struct model *m, uint64_t at) {
        const struct home_state *h = &g_array_index(m->homes, struct home_state, 0);
        for (guint i = 0; i < m->homes->len; i++)
                if (g_array_index(m->homes, struct home_state, i).at <= at)
                        h = &g_array_index(m->homes, struct home_state, i);
        return h;
}

static guint durable_at(const struct model *m, uint64_t at) {
        guint n = 0;
        for (guint i = 0; i < m->promises->len; i++)
                if (g_array_index(m->promises, struct promise, i).at <= at)
                        n = MAX_OF(n, g_array_index(m->promises, struct promise, i).durable);
        return n;
}

/* The halves' firsts are those of the newest home; an older one had others. */
static bool try_cut(struct model *m, uint64_t at, enum simdisk_keep keep, uint64_t seed) {
        CLEANUP(simdisk_freep) struct simdisk *c = simdisk_crashed(m->sim, &(struct simdisk_crash){.at = at, .keep = keep, .seed = seed});
        struct oplog *log = NULL;
        struct outcome o;
        errint_t r = open_log(m, simdisk_disk(c), false, &log);
        if (r < 0) {
                broken(m, "the log cannot be opened after a cut", (uint64_t)-r, at);
                return false;
        }
        bool ok = replay(m, log, home_at(m, at), durable_at(m, at), &o);
        oplog_close(log);
        return ok;
}

/* --- steps --------------------------------------------------------------------------------------------------------------------------- */
static uint64_t last_seq(const struct model *m) {
        return m->truth->len ? TRUTH(m, m->truth->len - 1)->pos.seq : 0;
}

static void promise(struct model *m, guint durable) {
        struct promise p = {.at = simdisk_position(m->sim), .durable = durable};
        g_array_append_val(m->promises, p);
}

static void commit_home(struct model *m, unsigned half, const uint64_t salt[2], guint done) {
        struct home_state h = {.at = simdisk_position(m->sim), .half = half, .salt = {salt[0], salt[1]}, .done = done};
        g_array_append_val(m->homes, h);
        promise(m, done);
}

/* A call of the log failed. Only a fault excuses it; then everything comes home from memory, and the log begins anew in the other half. */
static void rescue(struct model *m, const char *what, errint_t error) {
        if (!simdisk_fault_hits(m->sim)) {
                broken(m, what, (uint64_t)-error, last_seq(m));
                return;
        }
        uint64_t salt[2] = {++m->salts * 0x9E3779B97F4A7C15u, ++m->salts * 0x9E3779B97F4A7C15u};
        m->rescues++;
        m->half = !m->half;
        m->half_first[m->half] = m->truth->len;
        m->half_first[!m->half] = G_MAXUINT;
        m->durable_to[0] = m->durable_to[1] = 0;
        m->other_free = true;
        m->captured = G_MAXUINT;
        m->written = m->truth->len;
        commit_home(m, m->half, salt, m->truth->len);
        oplog_start(m->log, m->half, salt[m->half], 0, 0);
        m->appended = false;
        simdisk_fail(m->sim, NULL);
}

static guint entries_to(const struct model *m, uint64_t seq) {
        guint n = m->truth->len;
        while (n > 0 && TRUTH(m, n - 1)->pos.seq > seq)
                n--;
        return n;
}

static void step_flush(struct model *m) {
        uint64_t seq = 0;
        errint_t r = oplog_flush(m->log, &seq);
        if (r < 0) {
                rescue(m, "flush failed", r);
                return;
        }
        if (seq != last_seq(m) && (seq != 0 || m->appended))
                broken(m, "flush did not reach the end", seq, last_seq(m));
        promise(m, m->truth->len);
        m->durable_to[m->half] = oplog_used(m->log);
        m->written = m->truth->len;
}

static void step_append(struct model *m) {
        struct truth t = {.kind = OPLOG_OP, .pos = {.epoch = m->epoch, .seq = last_seq(m) + 1}, .variant = rnd(m, 4)};
        uint64_t draw = rnd(m, 20);
        t.head_len = (uint32_t)(draw == 0 ? 3000 + rnd(m, 6000) : 20 + rnd(m, 100));
        if (draw < 8)
                t.payload_len = (uint32_t)(draw == 1 ? rnd(m, 20000) + 1 : rnd(m, 600) + 1);
        if (draw == 7) {
                t.kind = OPLOG_OP_EXTENTS;
                t.n_extents = (uint32_t)rnd(m, 5) + 1;
                t.payload_len += 64;
        }
        if (draw == 19) {
                t.kind = OPLOG_ADOPTED;
                t.pos = (struct position){.epoch = ++m->epoch, .seq = last_seq(m)};
                t.head_len = 0;
        }
        guint again = m->truth->len - m->lost_from;
        if (again < m->lost->len && rnd(m, 4)) /* as it was, at the place that it had in the history */
                t = g_array_index(m->lost, struct truth, again);
        else
                g_array_set_size(m->lost, 0);
        CLEANUP(made_done) struct made w;
        make(&t, &w);
        errint_t r = oplog_append(m->log, &w.r);
        if (r == -ENOSPC)
                return;
        if (r < 0) {
                rescue(m, "append failed", r);
                return;
        }
        g_array_append_val(m->truth, t);
        m->records++;
        m->appended |= t.kind != OPLOG_ADOPTED;
        /* Reading back, now and then, whatever has or has not reached the file. */
        if (rnd(m, 4) == 0) {
                struct oplog_record back;
                void *buffer = NULL;
                r = oplog_read(m->log, w.r.log_offset, w.r.log_len, &back, &buffer);
                if (r < 0 || !same(&t, &back))
                        broken(m, "reading back failed", (uint64_t)-r, t.pos.seq);
                free(buffer);
        }
        m->epoch = MAX_OF(m->epoch, t.pos.epoch);
        if (t.kind == OPLOG_ADOPTED)
                step_flush(m);
}

static void step_write_out(struct model *m) {
        uint64_t seq = 0;
        errint_t r = oplog_write_out(m->log, &seq);
        if (r < 0) {
                rescue(m, "write_out failed", r);
                return;
        }
        if (seq != last_seq(m) && (seq != 0 || m->appended))
                broken(m, "write_out did not reach the end", seq, last_seq(m));
        m->written = m->truth->len;
        if (m->config.level == LEVEL_FILE) {
                promise(m, entries_to(m, seq));
                m->durable_to[m->half] = oplog_used(m->log);
        }
}

static void step_checkpoint(struct model *m) {
        const struct home_state h = g_array_index(m->homes, struct home_state, m->homes->len - 1);
        if (m->captured == G_MAXUINT) { /* prepare */
                m->captured = m->truth->len;
                if (m->other_free && m->truth->len > m->half_first[m->half]) {
                        m->half = !m->half;
                        m->half_first[m->half] = m->truth->len;
                        m->durable_to[m->half] = 0;
                        m->other_free = false;
                        oplog_start(m->log, m->half, h.salt[m->half], 0, 0);
                }
                return;
        }
        step_flush(m);
        if (m->captured == G_MAXUINT) /* a rescue has done it all */
                return;
        uint64_t salt[2] = {h.salt[0], h.salt[1]};
        salt[!m->half] = ++m->salts * 0x9E3779B97F4A7C15u;
        /* Before the commit, so that a cut right behind it sees both. */
        commit_home(m, m->half, salt, m->captured);
        m->half_first[!m->half] = G_MAXUINT;
        m->other_free = true;
        m->captured = G_MAXUINT;
}

/* --- lives --------------------------------------------------------------------------------------------------------------------------- */
static void restart(struct model *m, const struct home_state *h, guint durable) {
        struct outcome o;
        if (open_log(m, simdisk_disk(m->sim), false, &m->log) < 0) {
                broken(m, "the log cannot be opened again", 0, 0);
                return;
        }
        if (!replay(m, m->log, h, durable, &o))
                return;
        guint first = m->half_first[o.half];
        g_array_set_size(m->lost, 0);
        g_array_append_vals(m->lost, m->truth->data + o.reached * sizeof(struct truth), m->truth->len - o.reached);
        m->lost_from = o.reached;
        g_array_set_size(m->truth, o.reached);
        uint64_t salt[2] = {h->salt[0], h->salt[1]};
        salt[!o.half] = ++m->salts * 0x9E3779B97F4A7C15u;
        if (o.end == 0) /* nothing good in it, but what lies there may belong to its salt */
                salt[o.half] = ++m->salts * 0x9E3779B97F4A7C15u;
        g_array_set_size(m->homes, 0);
        g_array_set_size(m->promises, 0);
        m->half = o.half;
        m->half_first[o.half] = first;
        m->half_first[!o.half] = G_MAXUINT;
        m->other_free = true;
        m->captured = G_MAXUINT;
        m->written = o.reached;
        m->appended = false;
        m->durable_to[o.half] = o.end;
        m->life_start = simdisk_position(m->sim);
        commit_home(m, o.half, salt, o.reached);
        oplog_start(m->log, o.half, salt[o.half], o.end, o.chain);
}

static void end_life(struct model *m) {
        uint64_t now = simdisk_position(m->sim);
        for (unsigned i = 0; i < m->config.cuts_per_life && !m->broken[0]; i++) {
                /* Points before the last commit had other halves: replay there is checked by the cut that ends a life. */
                uint64_t from = g_array_index(m->homes, struct home_state, m->homes->len - 1).at;
                (void)try_cut(m, from + rnd(m, now - from + 1), (enum simdisk_keep)rnd(m, 5), rnd(m, UINT64_MAX));
        }
        oplog_close(m->log);
        m->log = NULL;
        if (m->broken[0])
                return;
        struct home_state h = g_array_index(m->homes, struct home_state, m->homes->len - 1);
        guint durable = durable_at(m, now);
        if (rnd(m, 3) == 0) {
                simdisk_kill(m->sim); /* takes nothing that was written out */
                durable = MAX_OF(durable, m->written);
        } else {
                simdisk_crash(m->sim,
                              &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = (enum simdisk_keep)rnd(m, 5), .seed = rnd(m, UINT64_MAX)});
        }
        restart(m, &h, durable);
}

/* No page that a flush has covered is written again. */
static void on_write(void *ctx, const char *path, uint64_t offset, uint64_t n, bool direct) {
        struct model *m = ctx;
        (void)path;
        uint64_t unit = direct ? m->config.sector : 4096, half_size = LOG_SIZE / 2;
        if (offset < OPLOG_PAGE || !m->log)
                return;
        unsigned half = offset - OPLOG_PAGE >= half_size;
        uint64_t at = offset - OPLOG_PAGE - half * half_size;
        if (at < (m->durable_to[half] + unit - 1) / unit * unit)
                broken(m, "a durable page is written again", at, m->durable_to[half]);
        if (n % unit || offset % unit)
                broken(m, "a write is not of whole units", offset, n);
}

struct model *model_new(const struct model_config *config) {
        struct model *m = NEW(struct model);
        m->config = *config;
        if (m->config.sector == 0)
                m->config.sector = 512;
        m->random = config->seed;
        m->sim = simdisk_new(&(struct simdisk_config){
                .seed = config->seed, .sector = m->config.sector, .refuse_direct = config->refuse_direct, .history = true});
        m->truth = g_array_new(FALSE, FALSE, sizeof(struct truth));
        m->lost = g_array_new(FALSE, FALSE, sizeof(struct truth));
        m->homes = g_array_new(FALSE, FALSE, sizeof(struct home_state));
        m->promises = g_array_new(FALSE, FALSE, sizeof(struct promise));
        m->epoch = 1;
        m->captured = m->half_first[1] = G_MAXUINT;
        m->other_free = true;
        return m;
}

void model_free(struct model *m) {
        if (!m)
                return;
        oplog_close(m->log);
        simdisk_free(m->sim);
        g_array_unref(m->truth);
        g_array_unref(m->lost);
        g_array_unref(m->homes);
        g_array_unref(m->promises);
        free(m);
}

const char *model_run(struct model *m) {
        const uint64_t salt[2] = {++m->salts, ++m->salts};
        if (open_log(m, simdisk_disk(m->sim), true, &m->log) < 0)
                return "cannot create the log";
        simdisk_settle(m->sim);
        simdisk_watch(m->sim, on_write, m);
        commit_home(m, 0, salt, 0);
        oplog_start(m->log, 0, salt[0], 0, 0);
        for (unsigned life = 0; life < m->config.lives && !m->broken[0]; life++) {
                unsigned steps = (unsigned)rnd(m, m->config.steps + 1);
                for (unsigned i = 0; i < steps && !m->broken[0]; i++) {
                        uint64_t draw = rnd(m, 16);
                        if (m->config.faults && rnd(m, 12) == 0)
                                simdisk_fail(m->sim, &(struct simdisk_fault){.kinds = rnd(m, 2) ? SIMDISK_WRITE : SIMDISK_SYNC,
                                                                             .nth = 1 + rnd(m, 3),
                                                                             .sticky = rnd(m, 2),
                                                                             .error = rnd(m, 2) ? -EIO : -ENOSPC});
                        if (draw < 10)
                                step_append(m);
                        else if (draw < 13)
                                step_write_out(m);
                        else if (draw < 15)
                                step_flush(m);
                        else
                                step_checkpoint(m);
                }
                simdisk_fail(m->sim, NULL);
                if (!m->broken[0])
                        end_life(m);
        }
        return m->broken[0] ? m->broken : NULL;
}

unsigned model_records(const struct model *m) {
        return m->records;
}
unsigned model_replays(const struct model *m) {
        return m->replays;
}
unsigned model_rescues(const struct model *m) {
        return m->rescues;
}
