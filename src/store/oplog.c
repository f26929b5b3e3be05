/* oplog.c: appending, writing out, flushing.
 *
 * Appends go into `pending`. A write_out takes the whole of it (it becomes `inflight`) and writes whole pages, or at level file whole
 * units; meanwhile the next appends go into a new `pending`. In the page cache a page goes on being filled by later write_outs, until a
 * flush begins: what is appended from then on goes to the next page, so that a page which a flush may have made durable is never written
 * again. At level file each write begins on a unit of its own, for the same reason. */
#include "hold.h"
#include "oplog_private.h"

#include "base/failpoint.h"
#include <string.h>

#define SPARE_MAX (1 * MIB) /* larger buffers are not kept */

/* --- spans --------------------------------------------------------------------------------------------------------------------------- */

/* Makes room for `n` bytes behind the end, and for zeros up to the next page. */
static void span_room(struct oplog_span *s, size_t n) {
        size_t used = s->end - s->base, need = round_up(used + n, OPLOG_PAGE);
        if (need <= s->cap)
                return;
        size_t cap = MAX_OF(need, MAX_OF(2 * s->cap, 16 * OPLOG_PAGE));
        void *p = NULL;
        int r = posix_memalign(&p, OPLOG_PAGE, cap);
        PRE(r == 0); /* at most twice a half */
        if (used)
                memcpy(p, s->data, used);
        free(s->data);
        s->data = p;
        s->cap = cap;
}

static void span_free(struct oplog_span *s) {
        free(s->data);
        *s = (struct oplog_span){0};
}

/* --- appending ----------------------------------------------------------------------------------------------------------------------- */
void oplog_marks_reset(struct oplog *l, unsigned half) {
        size_t n = l->half_size / OPLOG_PAGE;
        if (!l->marks[half])
                l->marks[half] = xcalloc(n, sizeof *l->marks[half]);
        memset(l->marks[half], 0, n * sizeof *l->marks[half]);
}

void oplog_mark_record(struct oplog *l, unsigned half, uint64_t at, const struct oplog_walk *before) {
        struct oplog_mark *m = &l->marks[half][at / OPLOG_PAGE];
        if (m->first == 0)
                *m = (struct oplog_mark){.first = (uint32_t)(at % OPLOG_PAGE) + 1, .before = *before};
}

static void marks_clear_from(struct oplog *l, unsigned half, uint64_t at) {
        size_t first = at / OPLOG_PAGE, n = l->half_size / OPLOG_PAGE;
        if (l->marks[half] && first < n)
                memset(l->marks[half] + first, 0, (n - first) * sizeof *l->marks[half]);
}

/* Appending goes on at a fresh page of `half`, behind `walk`. Under lock. */
static void begin_at(struct oplog *l, unsigned half, uint64_t end, const struct oplog_walk *walk, bool restart) {
        uint64_t from = round_up(end, OPLOG_PAGE);
        struct oplog_span *p = &l->pending;
        l->half = p->half = half;
        p->base = p->from = p->end = p->counted = from;
        p->walk = l->walk_written = *walk;
        l->end_written = end;
        l->restart = restart;
        marks_clear_from(l, half, from);
}

void oplog_start(struct oplog *l, unsigned half, uint64_t salt, uint64_t at, uint32_t chain) {
        HOLD(&l->lock);
        PRE(half < 2 && at <= l->half_size);
        struct oplog_span *p = &l->pending;
        struct oplog_walk walk;
        bool replayed = at > 0 && l->replayed[half].has_seq && l->replayed[half].salt == (uint16_t)salt && l->replayed[half].chain == chain;
        if (l->error == 0 && p->end > p->from) { /* what the other half still has to get */
                PRE(l->parked.end == l->parked.from && half != l->half);
                span_free(&l->parked);
                l->parked = *p;
                *p = (struct oplog_span){.seq = l->parked.seq};
        } else if (l->error < 0) {
                span_free(&l->parked); /* trouble: the home has it all */
                l->seq_written = p->seq;
                l->error = 0;
                l->writes_flushed = l->writes;
        }
        if (replayed) {
                walk = l->replayed[half];
                p->seq = l->seq_written = walk.last.seq;
        } else {
                oplog_marks_reset(l, half);
                oplog_walk_init(&walk, salt);
                if (at > 0)
                        walk.chain = chain;
        }
        l->replayed[half] = (struct oplog_walk){0};
        begin_at(l, half, at, &walk, at > 0);
}

/* One record, or a restart when r is NULL, behind what is pending. Room was checked. */
static size_t put(struct oplog *l, const struct oplog_record *r, size_t body, uint64_t *ret_at) {
        struct oplog_span *s = &l->pending;
        span_room(s, OPLOG_FRAME_MAX + body);
        struct oplog_walk before = s->walk;
        uint64_t at = s->end;
        size_t n = oplog_encode(&s->walk, r, &l->front, body, s->data + (at - s->base));
        s->end += n;
        oplog_mark_record(l, l->half, at, &before);
        *ret_at = at;
        return n;
}

errint_t oplog_append(struct oplog *l, struct oplog_record *r) {
        HOLD(&l->lock);
        PRE(!l->read_only && l->marks[l->half]);
        bool op = r->kind == OPLOG_OP || r->kind == OPLOG_OP_EXTENTS;
        size_t body, restart = 0;
        uint64_t at;
        if (l->error < 0)
                return l->error;
        struct oplog_walk w = l->pending.walk;
        if (!op)
                r->pos.seq = w.has_seq ? w.last.seq : MAX_OF(r->pos.seq, l->pending.seq);
        if (l->restart) {
                oplog_encode_restart(&w, l->life, &l->front);
                restart = OPLOG_FRAME_MAX + l->front.len;
                w.has_epoch = false;
        }
        errint_t err = oplog_encode_front(&w, r, &l->front, &body);
        if (err < 0)
                return err;
        if (l->pending.end + restart + OPLOG_FRAME_MAX + body > l->half_size)
                return -ENOSPC;
        if (l->restart) {
                oplog_encode_restart(&w, l->life++, &l->front);
                (void)put(l, NULL, l->front.len, &at);
                l->restart = false;
                err = oplog_encode_front(&l->pending.walk, r, &l->front, &body);
                POST(err == 0);
        }
        r->log_len = (uint32_t)put(l, r, body, &at);
        r->log_offset = oplog_half_at(l, l->half) + at;
        if (op)
                l->pending.seq = r->pos.seq;
        oplog_count(l, METRIC_LOG_RECORDS, 1);
        return 0;
}

/* --- writing ------------------------------------------------------------------------------------------------------------------------- */

/* `s` becomes inflight; its memory comes from what was there. Under `writing` and `lock`. */
static void fly(struct oplog *l, struct oplog_span *s) {
        if (l->spare.cap < l->inflight.cap && l->inflight.cap <= SPARE_MAX) {
                struct oplog_span t = l->spare;
                l->spare = l->inflight;
                l->inflight = t;
        }
        span_free(&l->inflight);
        l->inflight = *s;
        s->data = NULL;
        s->cap = 0;
}

/* Pending becomes inflight; the next appends go behind it, or on a fresh page. Under `writing` and `lock`. */
static void take(struct oplog *l, bool fresh) {
        struct oplog_span *p = &l->pending;
        uint64_t next = l->level == LEVEL_FILE ? round_up(p->end, l->unit) : p->end;
        if (fresh)
                next = round_up(next, OPLOG_PAGE);
        fly(l, p);
        p->data = l->spare.data;
        p->cap = l->spare.cap;
        l->spare = (struct oplog_span){0};
        p->counted = round_up(l->inflight.end, l->unit);
        p->base = p->end = l->level == LEVEL_FILE ? next : next / OPLOG_PAGE * OPLOG_PAGE;
        if (p->base < next) { /* the page goes on: it will be written again with its beginning */
                span_room(p, OPLOG_PAGE);
                memcpy(p->data, l->inflight.data + (p->base - l->inflight.base), next - p->base);
        }
        p->from = p->end = next;
}

static enum sync_method flush_method(const struct oplog *l) {
        switch (l->method) {
        case SYNC_OPEN_DATASYNC:
                return SYNC_FDATASYNC;
        case SYNC_OPEN_SYNC:
                return SYNC_FSYNC;
        default:
                return l->method;
        }
}

static bool write_is_flush(const struct oplog *l) {
        return l->level == LEVEL_FILE && (l->method == SYNC_OPEN_DATASYNC || l->method == SYNC_OPEN_SYNC);
}

static errint_t flush_file(struct oplog *l, bool done_by_write) {
        errint_t r = failpoint("store.log.flush");
        if (r == 0 && !done_by_write)
                r = disk_sync(l->writer, flush_method(l));
        oplog_count(l, METRIC_LOG_FLUSHES, 1);
        if (r < 0)
                oplog_count(l, METRIC_STORE_ERRORS, 1);
        return r;
}

/* Writes inflight. Under `writing`. */
static errint_t write_inflight(struct oplog *l) {
        struct oplog_span *s = &l->inflight;
        uint64_t end = round_up(s->end, l->unit), counted = l->level == LEVEL_FILE ? s->base : MAX_OF(s->base, s->counted);
        memset(s->data + (s->end - s->base), 0, end - s->end);
        errint_t r = failpoint("store.log.write");
        if (r == 0)
                r = disk_pwrite(l->writer, s->data, end - s->base, oplog_half_at(l, s->half) + s->base);
        if (r < 0)
                oplog_count(l, METRIC_STORE_ERRORS, 1);
        if (end > counted)
                oplog_count(l, METRIC_LOG_BYTES, end - counted);
        if (r == 0 && l->level == LEVEL_FILE)
                r = flush_file(l, write_is_flush(l));
        HOLD(&l->lock);
        l->writes++;
        if (r < 0) {
                l->error = r;
                return r;
        }
        l->seq_written = s->seq;
        if (s->half == l->half) {
                l->walk_written = s->walk;
                l->end_written = s->end;
        }
        if (l->level == LEVEL_FILE)
                l->writes_flushed = l->writes;
        s->from = s->end;
        return 0;
}

/* Under `writing`. `fresh`: whatever is appended from now on begins on a fresh page. ret_writes: count of writes so far. */
static errint_t write_pending(struct oplog *l, bool fresh, uint64_t *ret_seq, uint64_t *ret_writes) {
        for (;;) {
                bool parked, any;
                errint_t r;
                {
                        HOLD(&l->lock);
                        struct oplog_span *p = &l->pending;
                        r = l->error;
                        parked = r == 0 && l->parked.end > l->parked.from;
                        any = r == 0 && !parked && p->end > p->from;
                        if (parked) {
                                fly(l, &l->parked);
                                l->parked = (struct oplog_span){0};
                        } else if (any) {
                                take(l, fresh);
                        } else if (r == 0 && fresh && p->end % OPLOG_PAGE != 0) {
                                p->base = p->from = p->end = round_up(p->end, OPLOG_PAGE);
                        }
                        if (r == 0 && !parked && !any) {
                                *ret_seq = l->seq_written;
                                *ret_writes = l->writes;
                        }
                }
                if (r == 0 && (parked || any))
                        r = write_inflight(l);
                if (r < 0 || !(parked || any))
                        return r;
                if (any) {
                        HOLD(&l->lock);
                        *ret_seq = l->seq_written;
                        *ret_writes = l->writes;
                        return 0;
                }
        }
}

errint_t oplog_write_out(struct oplog *l, uint64_t *ret_seq) {
        uint64_t seq, writes;
        PRE(!l->read_only);
        HOLD(&l->writing);
        errint_t r = write_pending(l, false, &seq, &writes);
        if (r == 0 && ret_seq)
                *ret_seq = seq;
        return r;
}

errint_t oplog_flush(struct oplog *l, uint64_t *ret_seq) {
        uint64_t seq = 0, writes = 0;
        PRE(!l->read_only);
        HOLD(&l->flushing);
        (void)pthread_mutex_lock(&l->writing);
        errint_t r = write_pending(l, true, &seq, &writes);
        (void)pthread_mutex_unlock(&l->writing);
        if (r < 0)
                return r;
        (void)pthread_mutex_lock(&l->lock);
        bool needed = l->writes_flushed < writes;
        (void)pthread_mutex_unlock(&l->lock);
        if (needed)
                r = flush_file(l, false);
        HOLD_AS(hold_lock, &l->lock);
        if (r < 0) {
                l->error = r;
                return r;
        }
        if (needed)
                l->writes_flushed = MAX_OF(l->writes_flushed, writes);
        if (ret_seq)
                *ret_seq = seq;
        return 0;
}

/* --- the rest ------------------------------------------------------------------------------------------------------------------------ */
errint_t oplog_set_level(struct oplog *l, enum sync_level level, enum sync_method method, bool direct, uint32_t padding) {
        struct oplog_writer w;
        errint_t r = oplog_writer_open(l, level, method, direct, padding, &w);
        if (r < 0)
                return r;
        r = oplog_flush(l, NULL);
        if (r < 0) {
                disk_close(w.file);
                return r;
        }
        HOLD(&l->lock);
        disk_close(l->writer);
        l->writer = w.file;
        l->direct = w.direct;
        l->unit = w.unit;
        l->level = level;
        l->method = method;
        struct oplog_span *p = &l->pending; /* empty: flushed, and nobody appends */
        p->base = p->from = p->end = p->counted = round_up(p->end, OPLOG_PAGE);
        return 0;
}

void oplog_drop_pending(struct oplog *l, uint64_t seq) {
        HOLD(&l->lock);
        span_free(&l->parked);
        l->pending.seq = l->seq_written = seq;
        struct oplog_walk walk = l->walk_written;
        begin_at(l, l->half, l->end_written, &walk, true); /* a reader looks there, and nothing that counts lies there */
        l->writes_flushed = l->writes;
        l->error = 0;
}

uint64_t oplog_used(const struct oplog *l) {
        struct oplog *m = (struct oplog *)(uintptr_t)l;
        HOLD(&m->lock);
        return l->pending.end;
}

uint64_t oplog_half_size(const struct oplog *l) {
        return l->half_size;
}
