/* oplog_replay.c: reading records back: a whole half at start, one record later. Nothing read is trusted before its CRC fits. */
#include "oplog_private.h"

#include <stdio.h>
#include <string.h>

#define WINDOW (2 * MIB)

static_assert(WINDOW >= 2 * OPLOG_RECORD_MAX, "a window holds a record wherever it begins");

/* A half seen through a window. */
struct view {
        struct oplog *l;
        unsigned half;
        uint8_t *data;
        uint64_t at; /* offset in the half of data[0] */
        size_t len, cap;
        bool fixed; /* all there is: nothing is loaded */
};

/* The bytes from `at` on, as many as a record may have, or as are left. */
static errint_t view_get(struct view *v, uint64_t at, const uint8_t **ret, size_t *ret_n) {
        uint64_t left = v->fixed ? v->at + v->len - at : v->l->half_size - at, want = MIN_OF(left, OPLOG_RECORD_MAX);
        if (!v->fixed && (at < v->at || at + want > v->at + v->len)) {
                size_t got;
                v->len = 0;
                errint_t r = disk_pread(v->l->reader, v->data, MIN_OF(v->cap, left), oplog_half_at(v->l, v->half) + at, &got);
                if (r < 0)
                        return r;
                v->at = at;
                v->len = got;
        }
        *ret = v->data + (at - v->at);
        *ret_n = MIN_OF(want, v->at + v->len - at); /* less only when somebody cut the file */
        return 0;
}

struct found {
        struct oplog_record record;
        uint64_t at;
        struct oplog_walk before;
        bool damaged; /* nothing fits, but something looks as if it had */
        uint64_t damaged_at;
};

/* The next record behind `end`, restarts included. -ENODATA: none. */
static errint_t next_record(struct view *v, uint64_t end, struct oplog_walk *w, struct oplog_extent *extents, struct found *ret) {
        uint64_t limit = v->fixed ? v->at + v->len : v->l->half_size;
        ret->damaged = false;
        ret->before = *w;
        for (uint64_t at = end; at < limit; at = oplog_next_place(end, at)) {
                const uint8_t *p;
                size_t n, len;
                bool ours;
                errint_t r = view_get(v, at, &p, &n);
                if (r < 0)
                        return r;
                r = oplog_decode(p, n, w, extents, &ret->record, &len, &ours);
                if (r == 0) {
                        ret->at = at;
                        return 0;
                }
                /* Right behind a record come zeros up to the end of its sector at least, unless another record was there. */
                ours = ours || (r == -EBADMSG && at == end && at % OPLOG_SECTOR != 0);
                if (ours && !ret->damaged) {
                        ret->damaged = true;
                        ret->damaged_at = at;
                }
        }
        return -ENODATA;
}

errint_t oplog_replay(struct oplog *l, unsigned half, uint64_t salt, oplog_replay_fn fn, void *ctx, uint64_t *ret_end, uint32_t *ret_chain,
                      char *ret_torn, size_t torn_size) {
        PRE(half < 2 && torn_size > 0);
        cleanup_free uint8_t *data = xmalloc(WINDOW);
        cleanup_free struct oplog_extent *extents = xmalloc(OPLOG_EXTENTS_MAX * sizeof *extents);
        struct view v = {.l = l, .half = half, .data = data, .cap = WINDOW};
        struct oplog_walk w;
        struct found f;
        uint64_t end = 0;
        errint_t r;
        oplog_walk_init(&w, salt);
        oplog_marks_reset(l, half);
        while ((r = next_record(&v, end, &w, extents, &f)) == 0) {
                oplog_mark_record(l, half, f.at, &f.before);
                end = f.at + f.record.log_len;
                f.record.log_offset = oplog_half_at(l, half) + f.at;
                if ((int)f.record.kind == OPLOG_RESTART)
                        continue;
                r = fn(ctx, &f.record);
                if (r < 0)
                        return r;
        }
        if (r != -ENODATA)
                return r;
        l->replayed[half] = w; /* oplog_start may go on from here */
        *ret_end = end;
        *ret_chain = w.chain;
        ret_torn[0] = '\0';
        if (f.damaged)
                (void)snprintf(ret_torn, torn_size, "the record behind sequence %llu is damaged or torn (half %u, offset %llu)",
                               (unsigned long long)w.last.seq, half, (unsigned long long)f.damaged_at); /* cut, if ever */
        return 0;
}

/* --- one record ---------------------------------------------------------------------------------------------------------------------- */

static void overlay(const struct oplog_span *s, unsigned half, uint64_t at, uint64_t end, uint8_t *to, uint64_t *covered) {
        if (!s->data || s->half != half || s->end <= at || s->base >= end)
                return;
        uint64_t from = MAX_OF(at, s->base), upto = MIN_OF(end, s->end);
        memcpy(to + (from - at), s->data + (from - s->base), upto - from);
        *covered = MIN_OF(*covered, from);
}

/* Bytes [at, end) of a half: from memory what is not in the file yet, the rest from the file. */
static errint_t fetch(struct oplog *l, unsigned half, uint64_t at, uint64_t end, uint8_t *to) {
        uint64_t covered = end; /* the spans reach without a gap up to what was appended last */
        size_t got = 0;
        (void)pthread_mutex_lock(&l->lock);
        overlay(&l->inflight, half, at, end, to, &covered);
        overlay(&l->parked, half, at, end, to, &covered);
        overlay(&l->pending, half, at, end, to, &covered);
        (void)pthread_mutex_unlock(&l->lock);
        if (covered == at)
                return 0;
        errint_t r = disk_pread(l->reader, to, covered - at, oplog_half_at(l, half) + at, &got);
        if (r < 0) {
                oplog_count(l, METRIC_STORE_ERRORS, 1);
                return r;
        }
        return got == covered - at ? 0 : -EBADMSG;
}

errint_t oplog_read(struct oplog *l, uint64_t log_offset, uint32_t log_len, struct oplog_record *ret, void **ret_buffer) {
        if (log_offset < OPLOG_PAGE || log_offset - OPLOG_PAGE >= 2 * l->half_size || log_len > OPLOG_RECORD_MAX)
                return -EINVAL;
        unsigned half = log_offset - OPLOG_PAGE >= l->half_size;
        uint64_t at = log_offset - oplog_half_at(l, half), end = at + log_len;
        if (end > l->half_size)
                return -EINVAL;
        (void)pthread_mutex_lock(&l->lock);
        struct oplog_mark mark = l->marks[half] ? l->marks[half][at / OPLOG_PAGE] : (struct oplog_mark){0};
        (void)pthread_mutex_unlock(&l->lock);
        uint64_t first = at / OPLOG_PAGE * OPLOG_PAGE + mark.first - 1;
        if (mark.first == 0 || first > at)
                return -ENOENT;
        /* Extents first, for their alignment; each takes two bytes at least. */
        size_t extents_size = MIN_OF(OPLOG_EXTENTS_MAX, (end - first) / 2) * sizeof(struct oplog_extent);
        cleanup_free uint8_t *buffer = xcalloc(1, extents_size + (end - first));
        struct view v = {.l = l, .half = half, .data = buffer + extents_size, .at = first, .len = end - first, .fixed = true};
        errint_t r = fetch(l, half, first, end, v.data);
        if (r < 0)
                return r;
        cleanup_free struct oplog_extent *extents = xmalloc(OPLOG_EXTENTS_MAX * sizeof *extents);
        struct found f;
        for (uint64_t place = first; (r = next_record(&v, place, &mark.before, extents, &f)) == 0 && f.at < at;)
                place = f.at + f.record.log_len;
        if (r < 0 || f.at != at || f.record.log_len != log_len || (int)f.record.kind == OPLOG_RESTART)
                return r < 0 && r != -ENODATA ? r : -EBADMSG;
        if (f.record.n_extents) {
                memcpy(buffer, extents, f.record.n_extents * sizeof *extents);
                f.record.extents = (struct oplog_extent *)(void *)buffer;
        }
        f.record.log_offset = log_offset;
        *ret = f.record;
        *ret_buffer = steal_pointer(&buffer);
        return 0;
}
