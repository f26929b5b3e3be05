/* store_append.c: from an applied operation to a record on the medium: append, write out, barrier. */
#include "store_private.h"

#include "base/env.h"

uint64_t store_random(void) {
        return env_random64(env_system());
}

errint_t store_usable(const struct sqlite_store *s) {
        return s->failed[0] || s->stopped || s->read_only ? -EROFS : s->trouble;
}

static errint_t usable(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = store_usable(s);
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}

errint_t store_trouble(struct sqlite_store *s, errint_t error) {
        (void)pthread_mutex_lock(&s->lock);
        if (s->trouble == 0)
                s->trouble = error;
        (void)pthread_mutex_unlock(&s->lock);
        return error;
}

/* --- append --- */

static_assert(OP_KIND_COUNT <= METRIC_KINDS, "each kind of operation has its counters");

static void count_record(struct sqlite_store *s, const struct store_record *r, const struct oplog_record *rec) {
        uint64_t content = 0;
        for (size_t i = 0; i < rec->n_extents; i++)
                content += (rec->extents[i].length + (uint64_t)CONTENT_UNIT - 1) / CONTENT_UNIT * CONTENT_UNIT;
        metric_add_kind(s->metrics, r->op->kind, rec->log_len, content);
}

static bool size_after(const struct change_set *changes, uint64_t ino, uint64_t *ret) {
        for (size_t i = 0; i < changes->n; i++) {
                if (changes->items[i].ino != ino)
                        continue;
                *ret = changes->items[i].size;
                return true;
        }
        return false;
}

/* Large, and no small part of a large file: then it is written once, to the content file. What does not fit in a record has to go there. */
static bool goes_to_extents(const struct sqlite_store *s, const struct store_record *r) {
        const struct op *op = r->op;
        uint64_t size = 0;
        if (op->payload.len == 0)
                return false;
        if (oplog_record_room(r->head_len, op->payload.len, 0) > s->record_max)
                return true;
        if (op->payload.len < CONTENT_THRESHOLD || r->changes->n == 0)
                return false;
        if (op->kind == OP_WRITE && !size_after(r->changes, op->write.ino, &size))
                return false;
        return op->payload.raw_len > size / 2;
}

static errint_t write_content(struct sqlite_store *s, const struct op_payload *p, bool direct, struct oplog_record *rec) {
        struct oplog_extent *extents = NULL;
        size_t n = 0;
        errint_t r = content_write(s->content, p->data, p->len, direct, &extents, &n);
        if (disk_is_full(r) && ballast_give_up(s))
                r = content_write(s->content, p->data, p->len, direct, &extents, &n);
        if (r < 0)
                return r;
        rec->kind = OPLOG_OP_EXTENTS;
        rec->extents = extents;
        rec->n_extents = n;
        rec->payload = NULL;
        (void)pthread_mutex_lock(&s->lock);
        s->content_new = true;
        (void)pthread_mutex_unlock(&s->lock);
        return 0;
}

void store_move_half(struct sqlite_store *s) {
        PRE(s->other_free);
        s->half = 1 - s->half;
        s->other_free = false;
        index_clear(s, s->half);
        oplog_start(s->log, s->half, s->salt[s->half], 0, 0); /* in memory; what is pending still goes to the half it belongs to */
}

/* Under lock. */
static errint_t append_to_log(struct sqlite_store *s, struct oplog_record *rec) {
        errint_t r = oplog_append(s->log, rec);
        if (r == -ENOSPC && s->other_free) {
                store_move_half(s);
                r = oplog_append(s->log, rec);
        }
        if (r < 0)
                rec->log_len = 0;
        return r;
}

/* Applying it has summed it up, unless the state has gone on since. */
static uint32_t payload_crc(const struct store_record *r) {
        if (r->op->payload.len == 0)
                return 0;
        if (r->state->crc_seq == r->pos.seq && r->state->pos.seq == r->pos.seq)
                return r->state->payload_crc;
        return crc32c(0, r->op->payload.data, r->op->payload.len);
}

errint_t store_append_record(struct store *base, const struct store_record *r) {
        struct sqlite_store *s = STORE_OF(base);
        struct oplog_record rec = {
                .kind = OPLOG_OP,
                .pos = r->pos,
                .head = r->head,
                .head_len = r->head_len,
                .form = r->op->payload.form,
                .raw_len = r->op->payload.raw_len,
                .payload = r->op->payload.len > 0 ? r->op->payload.data : NULL,
                .payload_len = r->op->payload.len,
                .payload_crc = payload_crc(r),
        };
        errint_t error = usable(s);
        if (error == -EROFS)
                return error;
        (void)pthread_mutex_lock(&s->lock);
        bool direct = s->direct && s->level == LEVEL_FILE;
        (void)pthread_mutex_unlock(&s->lock);
        if (error == 0 && goes_to_extents(s, r))
                error = write_content(s, &r->op->payload, direct, &rec);
        (void)pthread_mutex_lock(&s->lock);
        if (error == 0)
                error = append_to_log(s, &rec);
        if (error == 0) {
                index_add(s, s->half, &rec);
                count_record(s, r, &rec);
                s->since_barrier += rec.log_len + (rec.n_extents > 0 ? rec.payload_len : 0);
        } else if (s->trouble == 0) {
                s->trouble = error;
        }
        track_record(s, r, &rec); /* in trouble too: the rescue brings it home */
        (void)pthread_mutex_unlock(&s->lock);
        return error;
}

bool store_must_wait(const struct store *base) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        bool wait = !s->read_only && !s->other_free && oplog_used(s->log) + 2 * s->record_max > oplog_half_size(s->log);
        (void)pthread_mutex_unlock(&s->lock);
        return wait;
}

/* --- durability --- */

/* What the log says, which knows nothing of earlier lives, and may remember another history's numbers. Under lock. */
static uint64_t known_seq(const struct sqlite_store *s, uint64_t seq) {
        return MIN_OF(MAX_OF(seq, s->opened_seq), s->pos.seq);
}

/* Contents of records up to content_ok_seq are on the medium. A record may become durable before its content (it was appended meanwhile):
 * that is no harm, as nobody was told that it is durable, and replay ends at a record whose content is not there. */
errint_t store_flush_content(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        uint64_t seq = s->pos.seq;
        bool needed = s->content_new;
        s->content_new = false;
        (void)pthread_mutex_unlock(&s->lock);
        errint_t r = needed ? content_flush(s->content) : 0;
        (void)pthread_mutex_lock(&s->lock);
        if (r == 0) {
                s->content_ok_seq = MAX_OF(s->content_ok_seq, seq);
        } else {
                s->content_new = true;
                s->content_lost = true;
        }
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}

errint_t store_flush_all(struct sqlite_store *s, uint64_t *ret_seq) {
        uint64_t seq = 0;
        (void)pthread_mutex_lock(&s->lock);
        uint64_t since = s->since_barrier;
        s->since_barrier = 0; /* whatever causes a barrier, the next one by size comes a whole barrier_bytes later */
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_rwlock_rdlock(&s->log_use);
        errint_t r = store_flush_content(s);
        if (r == 0)
                r = oplog_flush(s->log, &seq);
        (void)pthread_rwlock_unlock(&s->log_use);
        (void)pthread_mutex_lock(&s->lock);
        if (r < 0)
                s->since_barrier += since;
        else
                *ret_seq = known_seq(s, MIN_OF(seq, s->content_ok_seq));
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}

errint_t store_write_out(struct store *base, uint64_t *ret_seq) {
        struct sqlite_store *s = STORE_OF(base);
        uint64_t seq = 0;
        errint_t r = usable(s);
        if (r < 0)
                return r;
        (void)pthread_rwlock_rdlock(&s->log_use);
        (void)pthread_mutex_lock(&s->lock);
        bool durable = s->level == LEVEL_FILE;
        (void)pthread_mutex_unlock(&s->lock);
        if (durable)
                r = store_flush_content(s);
        if (r == 0)
                r = oplog_write_out(s->log, &seq);
        (void)pthread_rwlock_unlock(&s->log_use);
        if (r < 0)
                return store_trouble(s, r);
        (void)pthread_mutex_lock(&s->lock);
        if (durable) {
                seq = MIN_OF(seq, s->content_ok_seq);
                s->since_barrier = 0;
        }
        *ret_seq = known_seq(s, seq);
        (void)pthread_mutex_unlock(&s->lock);
        return 0;
}

errint_t store_barrier(struct store *base, uint64_t *ret_seq) {
        struct sqlite_store *s = STORE_OF(base);
        errint_t r = usable(s);
        if (r < 0)
                return r;
        r = store_flush_all(s, ret_seq);
        if (r < 0)
                return store_trouble(s, r);
        metric_add(s->metrics, METRIC_BARRIERS, 1);
        return 0;
}

/* --- epochs --- */

static errint_t append_epoch(struct sqlite_store *s, enum oplog_kind kind, uint64_t epoch) {
        uint64_t seq = 0;
        struct oplog_record rec = {.kind = kind, .pos = {.epoch = epoch}};
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = store_usable(s);
        rec.pos.seq = s->pos.seq;
        if (r == 0)
                r = append_to_log(s, &rec);
        if (r == 0)
                s->dirty.other = true;
        (void)pthread_mutex_unlock(&s->lock);
        if (r == 0)
                r = store_flush_all(s, &seq);
        return r < 0 && r != -EROFS ? store_trouble(s, r) : r;
}

errint_t store_set_promised(struct store *base, uint64_t promised) {
        struct sqlite_store *s = STORE_OF(base);
        errint_t r = append_epoch(s, OPLOG_PROMISED, promised);
        (void)pthread_mutex_lock(&s->lock);
        if (r == 0)
                s->promised = MAX_OF(s->promised, promised);
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}

errint_t store_set_adopted(struct store *base, uint64_t epoch) {
        struct sqlite_store *s = STORE_OF(base);
        errint_t r = append_epoch(s, OPLOG_ADOPTED, epoch);
        (void)pthread_mutex_lock(&s->lock);
        if (r == 0)
                s->adopted = MAX_OF(s->adopted, epoch);
        (void)pthread_mutex_unlock(&s->lock);
        return r;
}

errint_t store_set_level(struct store *base, enum sync_level level, enum sync_method method, bool direct, uint32_t padding) {
        struct sqlite_store *s = STORE_OF(base);
        uint64_t seq = 0;
        errint_t r = store_barrier(base, &seq);
        if (r < 0)
                return r;
        (void)pthread_rwlock_wrlock(&s->log_use);
        r = oplog_set_level(s->log, level, method, direct, padding);
        (void)pthread_rwlock_unlock(&s->log_use);
        if (r < 0)
                return r == -EINVAL ? r : store_trouble(s, r);
        (void)pthread_mutex_lock(&s->lock);
        s->level = level;
        s->direct = direct;
        (void)pthread_mutex_unlock(&s->lock);
        return 0;
}

/* --- reading back --- */

typedef bool (*read_fn)(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len);

/* Where the operation lies; false: in no half. */
static bool find_record(struct sqlite_store *s, uint64_t seq, struct record_place *ret) {
        (void)pthread_mutex_lock(&s->lock);
        bool found = false;
        for (unsigned h = 0; h < 2 && !found; h++) {
                const struct record_index *x = &s->index[h];
                found = seq >= x->first_seq && seq - x->first_seq < x->n;
                if (found)
                        *ret = x->places[seq - x->first_seq];
        }
        (void)pthread_mutex_unlock(&s->lock);
        return found;
}

/* -ENOENT also for what was overwritten since: an older half, or extents that are in use for something else now. */
static errint_t read_one(struct sqlite_store *s, uint64_t seq, const struct record_place *at, read_fn fn, void *ctx, bool *ret_more) {
        struct oplog_record rec;
        cleanup_free void *buffer = NULL, *content = NULL;
        errint_t r = oplog_read(s->log, at->offset, at->len, &rec, &buffer);
        if (r < 0 || rec.pos.seq != seq)
                return r == -EIO || r == -ENOMEM ? r : -ENOENT;
        if (rec.n_extents > 0) {
                content = try_malloc(rec.payload_len);
                if (!content)
                        return -ENOMEM;
                r = content_read(s->content, rec.extents, rec.n_extents, content, rec.payload_len, rec.payload_crc);
                if (r < 0)
                        return r == -EBADMSG ? -ENOENT : r;
        }
        *ret_more = fn(ctx, rec.pos, rec.head, rec.head_len, content ? content : rec.payload, rec.payload_len);
        return 0;
}

errint_t store_read_log(struct store *base, uint64_t from_seq, read_fn fn, void *ctx) {
        struct sqlite_store *s = STORE_OF(base);
        struct record_place at;
        (void)pthread_mutex_lock(&s->lock);
        uint64_t last = s->pos.seq;
        (void)pthread_mutex_unlock(&s->lock);
        bool more = true;
        for (uint64_t seq = from_seq; seq <= last && more; seq++) {
                errint_t r = find_record(s, seq, &at) ? read_one(s, seq, &at, fn, ctx, &more) : -ENOENT;
                if (r < 0)
                        return r;
        }
        return 0;
}
