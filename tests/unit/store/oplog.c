/* oplog.c: the operation log: bytes, pages, flushes, replay, reading back, and what is refused. */
#include "base/codec.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "oplog_format.h"
#include "oplog_model.h"
#include "unit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PATH "/d/db-oplog"
#define SIZE (128 * KIB)
#define SALT UINT64_C(0x1122334455667788)

static struct metrics metrics;
static struct simdisk *sim;

static struct oplog_config config(void) {
        return (struct oplog_config){.path = PATH,
                                     .id = "an id of 16 byte",
                                     .life = 7,
                                     .level = LEVEL_FILESYSTEM,
                                     .size = SIZE,
                                     .disk = simdisk_disk(sim),
                                     .metrics = &metrics};
}

static void setup(void) {
        memset(&metrics, 0, sizeof metrics);
        sim = simdisk_new(&(struct simdisk_config){.seed = 3, .history = true});
}

static void teardown(void) {
        (void)failpoint_set(NULL);
        simdisk_free(sim);
}

static struct oplog *make(const struct oplog_config *c) {
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(c, true, &l), 0);
        oplog_start(l, 0, SALT, 0, 0);
        memset(&metrics, 0, sizeof metrics);
        return l;
}

static struct oplog *make_default(void) {
        struct oplog_config c = config();
        return make(&c);
}

static struct oplog *reopen(void) {
        struct oplog_config c = config();
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(&c, false, &l), 0);
        return l;
}

static uint8_t text[300 * 1024];
static struct oplog_record op(uint64_t seq, size_t head, size_t payload) {
        if (!text[1])
                for (size_t i = 0; i < sizeof text; i++)
                        text[i] = (uint8_t)(i * 7 + i / 251);
        return (struct oplog_record){.kind = OPLOG_OP,
                                     .pos = {1, seq},
                                     .head = text,
                                     .head_len = head,
                                     .payload = payload ? text + head : NULL,
                                     .payload_len = payload};
}

static void append_ok(struct oplog *l, uint64_t seq, size_t head, size_t payload) {
        struct oplog_record r = op(seq, head, payload);
        ck_assert_int_eq(oplog_append(l, &r), 0);
}

static uint64_t metric(enum metric id) {
        return metric_get(&metrics, id);
}

struct seen {
        unsigned n;
        uint64_t first, last;
        enum oplog_kind kinds[16];
};
static errint_t count(void *ctx, const struct oplog_record *r) {
        struct seen *s = ctx;
        if (s->n == 0)
                s->first = r->pos.seq;
        if (s->n < ARRAY_LEN(s->kinds))
                s->kinds[s->n] = r->kind;
        s->n++;
        s->last = r->pos.seq;
        return 0;
}
static struct seen replay(struct oplog *l, unsigned half, uint64_t salt, uint64_t *ret_end, uint32_t *ret_chain, const char *want_torn) {
        struct seen s = {0};
        char torn[128] = "?";
        uint64_t end;
        uint32_t chain;
        ck_assert_int_eq(oplog_replay(l, half, salt, count, &s, &end, &chain, torn, sizeof torn), 0);
        if (want_torn)
                ck_assert_msg(*want_torn ? strstr(torn, want_torn) != NULL : *torn == '\0', "torn: '%s'", torn);
        if (ret_end)
                *ret_end = end;
        if (ret_chain)
                *ret_chain = chain;
        return s;
}

/* --- bytes --------------------------------------------------------------------------------------------------------------------------- */
START_TEST(overhead_is_small) {
        struct oplog *l = make_default();
        struct oplog_record r = op(1, 40, 0);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_offset, OPLOG_PAGE);
        ck_assert_uint_eq(r.log_len, 40 + 1 + 4 + 3 + 2); /* the first of a half says its position in full */
        r = op(2, 40, 0);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_len, 40 + 8);
        r = op(3, 40, 100);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_len, 140 + 10);
        ck_assert_uint_eq(oplog_used(l), 50 + 48 + 150);
        ck_assert_uint_eq(metric(METRIC_LOG_RECORDS), 3);
        for (size_t head = 0; head < 40000; head += 997)
                ck_assert_uint_ge(oplog_record_room(head, 100, 0), head + 100 + 20);
        oplog_close(l);
}
END_TEST

/* Golden bytes: what is on disk today must be readable for ever. */
START_TEST(bytes_are_pinned) {
        struct oplog_walk w;
        struct enc front = {0};
        enc_init(&front, 1000);
        uint8_t out[64];
        size_t body;
        char hex[2 * sizeof out + 1] = "";
        oplog_walk_init(&w, SALT);
        struct oplog_record r = {.kind = OPLOG_OP,
                                 .pos = {5, 300},
                                 .head = "head",
                                 .head_len = 4,
                                 .payload = "load",
                                 .payload_len = 4,
                                 .form = FORM_ZSTD,
                                 .raw_len = 9};
        ck_assert_int_eq(oplog_encode_front(&w, &r, &front, &body), 0);
        size_t n = oplog_encode(&w, &r, &front, body, out);
        r = (struct oplog_record){.kind = OPLOG_OP, .pos = {5, 301}, .head = "x", .head_len = 1};
        ck_assert_int_eq(oplog_encode_front(&w, &r, &front, &body), 0);
        n += oplog_encode(&w, &r, &front, body, out + n);
        for (size_t i = 0; i < n; i++)
                (void)sprintf(hex + 2 * i, "%02x", out[i]);
        ck_assert_str_eq(hex, "10b732cbaa39b47805ac020409686561646c6f61640453d47cf301b57878");
        enc_done(&front);
}
END_TEST

START_TEST(every_kind_comes_back) {
        struct oplog *l = make_default();
        struct oplog_extent e[OPLOG_EXTENTS_MAX];
        uint64_t sum = 0;
        for (size_t i = 0; i < ARRAY_LEN(e); i++) {
                e[i] = (struct oplog_extent){.offset = (i * 977 + 1) * 4096, .length = (uint32_t)(4096 * (i % 3) + 1)};
                sum += e[i].length;
        }
        struct oplog_record r[5] = {
                op(10, 30, 0),
                {.kind = OPLOG_ADOPTED, .pos = {.epoch = 9}},
                {.kind = OPLOG_OP_EXTENTS,
                 .pos = {9, 11},
                 .head = text,
                 .head_len = 5,
                 .form = FORM_ZSTD,
                 .raw_len = 12345678,
                 .payload_len = sum,
                 .payload_crc = 0xabcdef01,
                 .extents = e,
                 .n_extents = ARRAY_LEN(e)},
                {.kind = OPLOG_PROMISED, .pos = {.epoch = UINT64_MAX}},
                op(12, 3, 40000),
        };
        r[4].pos.epoch = 9;
        for (size_t i = 0; i < ARRAY_LEN(r); i++)
                ck_assert_int_eq(oplog_append(l, &r[i]), 0);
        ck_assert_uint_eq(r[1].pos.seq, 10);
        for (unsigned round = 0; round < 2; round++) { /* from memory, then from the file */
                for (size_t i = 0; i < ARRAY_LEN(r); i++) {
                        struct oplog_record b;
                        void *buffer = NULL;
                        ck_assert_int_eq(oplog_read(l, r[i].log_offset, r[i].log_len, &b, &buffer), 0);
                        ck_assert_int_eq(b.kind, r[i].kind);
                        ck_assert_int_eq(position_cmp(b.pos, r[i].pos), 0);
                        ck_assert_uint_eq(b.head_len, r[i].head_len);
                        if (b.head_len)
                                ck_assert_mem_eq(b.head, r[i].head, b.head_len);
                        ck_assert_uint_eq(b.payload_len, r[i].payload_len);
                        ck_assert_uint_eq(b.n_extents, r[i].n_extents);
                        if (b.n_extents) {
                                for (size_t j = 0; j < b.n_extents; j++)
                                        ck_assert(b.extents[j].offset == e[j].offset && b.extents[j].length == e[j].length);
                                ck_assert_uint_eq(b.payload_crc, 0xabcdef01);
                                ck_assert_uint_eq(b.raw_len, 12345678);
                                ck_assert_int_eq(b.form, FORM_ZSTD);
                        } else if (b.payload_len) {
                                ck_assert_mem_eq(b.payload, r[i].payload, b.payload_len);
                                ck_assert_uint_eq(b.payload_crc, crc32c(0, b.payload, b.payload_len));
                        }
                        ck_assert_uint_eq(b.log_offset, r[i].log_offset);
                        free(buffer);
                        ck_assert_int_eq(oplog_read(l, r[i].log_offset + 1, r[i].log_len, &b, &buffer), -EBADMSG);
                        ck_assert_int_eq(oplog_read(l, r[i].log_offset, r[i].log_len - 1, &b, &buffer), -EBADMSG);
                }
                ck_assert_int_eq(oplog_flush(l, NULL), 0);
        }
        oplog_close(l);
        l = reopen();
        struct seen s = replay(l, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, 5);
        for (size_t i = 0; i < ARRAY_LEN(r); i++)
                ck_assert_int_eq(s.kinds[i], r[i].kind);
        ck_assert_uint_eq(replay(l, 0, SALT + 1, NULL, NULL, "").n, 0);
        ck_assert_uint_eq(replay(l, 1, SALT, NULL, NULL, "").n, 0);
        oplog_close(l);
}
END_TEST

/* --- pages, flushes, counters -----------------------------------------------------------------------------------------------------------
 */
START_TEST(a_page_is_counted_once_per_interval) {
        struct oplog *l = make_default();
        uint64_t seq = 0;
        for (uint64_t i = 1; i <= 20; i++) {
                append_ok(l, i, 92, 0); /* 100 bytes each, 102 the first */
                ck_assert_int_eq(oplog_write_out(l, &seq), 0);
                ck_assert_uint_eq(seq, i);
        }
        ck_assert_uint_eq(metric(METRIC_LOG_BYTES), 4096);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);          /* nothing to do */
        ck_assert_uint_eq(simdisk_calls(sim, SIMDISK_SYNC), 2); /* creation's */
        ck_assert(oplog_dirty(l));
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        ck_assert_uint_eq(seq, 20);
        ck_assert(!oplog_dirty(l));
        ck_assert_uint_eq(oplog_used(l), 4096);
        ck_assert_int_eq(oplog_flush(l, &seq), 0); /* nothing since */
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 1);
        append_ok(l, 21, 5000, 0);
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        ck_assert_uint_eq(seq, 21);
        ck_assert_uint_eq(metric(METRIC_LOG_BYTES), 3 * 4096);
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 21);
        oplog_close(l);
}
END_TEST

START_TEST(level_file_writes_sectors_and_flushes_once) {
        struct oplog_config c = config();
        c.level = LEVEL_FILE;
        c.method = (enum sync_method)_i;
        c.direct = true;
        struct oplog *l = make(&c);
        uint64_t seq = 0, syncs = simdisk_calls(sim, SIMDISK_SYNC);
        bool by_write = c.method == SYNC_OPEN_DATASYNC || c.method == SYNC_OPEN_SYNC;
        ck_assert(oplog_is_direct(l));
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);
        ck_assert_uint_eq(metric(METRIC_LOG_BYTES), 512);
        for (uint64_t i = 2; i <= 9; i++)
                append_ok(l, i, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);
        ck_assert_uint_eq(seq, 9);
        ck_assert_uint_eq(metric(METRIC_LOG_BYTES), 512 + 1024);
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(simdisk_calls(sim, SIMDISK_SYNC) - syncs, by_write ? 0 : 2);
        ck_assert_int_eq(oplog_flush(l, &seq), 0); /* is durable already */
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 2);
        oplog_close(l);
        simdisk_crash(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
        l = reopen();
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 9);
        oplog_close(l);
}
END_TEST

static char notice[256];
static unsigned notices;
static void keep_notice(enum log_level level, const char *line, void *ctx) {
        (void)level;
        (void)ctx;
        notices++;
        (void)snprintf(notice, sizeof notice, "%s", line);
}

START_TEST(refused_direct_falls_back_with_one_line) {
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.refuse_direct = true});
        struct oplog_config c = config();
        c.level = LEVEL_FILE;
        c.direct = true;
        notices = 0;
        log_set_sink(keep_notice, NULL);
        struct oplog *l = make(&c);
        log_set_sink(NULL, NULL);
        ck_assert_uint_eq(notices, 1);
        ck_assert_ptr_nonnull(strstr(notice, "O_DIRECT"));
        ck_assert(!oplog_is_direct(l));
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        append_ok(l, 2, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        ck_assert_uint_eq(metric(METRIC_LOG_BYTES), 2 * 4096); /* a page that is durable is not shared */
        oplog_close(l);
}
END_TEST

START_TEST(what_cannot_work_is_refused_and_changes_nothing) {
        simdisk_free(sim);
        sim = simdisk_new(&(struct simdisk_config){.sector = 4096});
        static const struct {
                uint64_t size;
                int level, method;
                bool direct;
                uint32_t padding;
        } bad[] = {
                {SIZE, LEVEL_FILE, 0, true, 100},  {SIZE, LEVEL_FILE, 0, true, 512}, {SIZE, LEVEL_FILE, 0, false, 768},
                {SIZE, LEVEL_FILE, 0, true, 8192}, {SIZE, 3, 0, false, 0},           {SIZE, LEVEL_FILE, 5, false, 0},
                {SIZE + 4096, 1, 0, false, 0},     {4096, 1, 0, false, 0},           {UINT64_C(1) << 40, 1, 0, false, 0},
        };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct oplog_config c = config();
                struct oplog *l = NULL;
                uint64_t size;
                c.size = bad[i].size;
                c.level = (enum sync_level)bad[i].level;
                c.method = (enum sync_method)bad[i].method;
                c.direct = bad[i].direct;
                c.padding = bad[i].padding;
                ck_assert_int_eq(oplog_open(&c, true, &l), -EINVAL);
                ck_assert_ptr_null(l);
                ck_assert_int_eq(simdisk_file_size(sim, PATH, &size), -ENOENT);
        }
        struct oplog *l = make_default();
        append_ok(l, 1, 10, 0);
        ck_assert_int_eq(oplog_set_level(l, LEVEL_FILE, SYNC_FDATASYNC, true, 512), -EINVAL);
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 0);
        ck_assert_int_eq(oplog_set_level(l, LEVEL_FILE, SYNC_FDATASYNC, true, 0), 0);
        append_ok(l, 2, 10, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        ck_assert_uint_eq(oplog_used(l), 8192); /* sectors of 4096 */
        oplog_close(l);
}
END_TEST

START_TEST(foreign_and_other_files_are_told_apart) {
        struct oplog_config c = config();
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(&c, false, &l), -ENOENT);
        oplog_close(make_default());
        ck_assert_int_eq(oplog_open(&c, true, &l), 0); /* never used: may be made again */
        oplog_close(l);
        c.id[0]++;
        ck_assert_int_eq(oplog_open(&c, false, &l), -EXDEV);
        c.id[0]--;
        c.size *= 2;
        ck_assert_int_eq(oplog_open(&c, false, &l), -EBADMSG);
        l = reopen();
        oplog_start(l, 0, SALT, 0, 0);
        append_ok(l, 1, 10, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        c.size /= 2;
        ck_assert_int_eq(oplog_open(&c, true, &l), -EEXIST);
        for (uint64_t i = 0; i < OPLOG_HEADER_SIZE; i++) {
                uint8_t b, flipped;
                ck_assert_int_eq(simdisk_peek(sim, PATH, i, &b, 1), 0);
                flipped = b ^ 0x10;
                ck_assert_int_eq(simdisk_poke(sim, PATH, i, &flipped, 1), 0);
                ck_assert_int_eq(oplog_open(&c, false, &l), -EBADMSG);
                ck_assert_int_eq(simdisk_poke(sim, PATH, i, &b, 1), 0);
        }
        l = reopen();
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

START_TEST(creation_is_durable_or_begins_again) {
        oplog_close(make_default());
        uint64_t end = simdisk_position(sim), size;
        unsigned whole = 0;
        for (uint64_t at = 0; at <= end; at++)
                for (unsigned seed = 0; seed < 6; seed++) {
                        struct simdisk *kept = sim;
                        CLEANUP(simdisk_freep)
                        struct simdisk *c = simdisk_crashed(sim, &(struct simdisk_crash){.at = at, .keep = SIMDISK_ANY, .seed = seed});
                        sim = c;
                        struct oplog_config conf = config();
                        struct oplog *l = NULL;
                        errint_t r = oplog_open(&conf, false, &l);
                        ck_assert(r == 0 || r == -ENOENT || r == -EBADMSG);
                        if (r == 0) { /* a header means that the zeros are there */
                                whole++;
                                ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 0);
                                oplog_close(l);
                                l = NULL;
                        }
                        ck_assert_int_eq(oplog_open(&conf, true, &l), 0);
                        ck_assert_int_eq(simdisk_file_size(c, PATH, &size), 0);
                        ck_assert_uint_eq(size, SIZE + OPLOG_PAGE);
                        oplog_close(l);
                        sim = kept;
                }
        ck_assert_uint_gt(whole, 0);
}
END_TEST

START_TEST(a_full_half_says_so) {
        struct oplog *l = make_default();
        uint64_t seq = 0;
        errint_t r;
        do {
                struct oplog_record rec = op(seq + 1, 3000, 0);
                r = oplog_append(l, &rec);
                seq += r == 0;
        } while (r == 0);
        ck_assert_int_eq(r, -ENOSPC);
        ck_assert_uint_gt(oplog_used(l) + 3100, oplog_half_size(l));
        append_ok(l, seq + 1, 10, 0); /* a smaller one may fit */
        struct oplog_record big = op(seq + 2, 100, OPLOG_RECORD_MAX - 100);
        ck_assert_int_eq(oplog_append(l, &big), -EMSGSIZE);
        struct oplog_record gap = op(seq + 3, 10, 0);
        ck_assert_int_eq(oplog_append(l, &gap), -EINVAL);
        /* On to the other half, with what is pending here still to be written. */
        oplog_start(l, 1, SALT + 1, 0, 0);
        append_ok(l, seq + 2, 100, 0);
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        struct seen a = replay(l, 0, SALT, NULL, NULL, ""), b = replay(l, 1, SALT + 1, NULL, NULL, "");
        ck_assert_uint_eq(a.last + 1, b.first);
        ck_assert_uint_eq(b.n, 1);
        ck_assert_uint_eq(seq, b.last);
        oplog_close(l);
}
END_TEST

START_TEST(the_other_half_written_before_goes_on) {
        struct oplog *l = make_default();
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        oplog_start(l, 1, SALT + 1, 0, 0); /* written, not flushed: a flush must not think it has nothing to do */
        ck_assert(oplog_dirty(l));
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 1);
        oplog_close(l);
        simdisk_crash(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
        l = reopen();
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

/* --- restarts ----------------------------------------------------------------------------------------------------------------------------
 */

/* Records 1..4, 3 damaged. After a restart at 2, the same 3 is appended again: the old 4 would fit behind it. */
START_TEST(a_record_of_an_earlier_life_never_fits) {
        struct oplog *l = make_default();
        uint64_t place[5], end;
        uint32_t chain;
        for (uint64_t i = 1; i <= 4; i++) {
                struct oplog_record r = op(i, 50, 0);
                ck_assert_int_eq(oplog_append(l, &r), 0);
                place[i] = r.log_offset;
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        for (unsigned life = 0; life < 3; life++) {
                ck_assert_int_eq(simdisk_poke(sim, PATH, place[3] + 20, "!", 1), 0);
                l = reopen();
                ck_assert_uint_eq(replay(l, 0, SALT, &end, &chain, "behind sequence 2").n, 2);
                oplog_start(l, 0, SALT, end, chain);
                struct oplog_record r = op(3, 50, 0);
                ck_assert_int_eq(oplog_append(l, &r), 0);
                ck_assert_uint_ge(r.log_offset, OPLOG_PAGE + 4096); /* never on the old page */
                ck_assert_int_eq(oplog_flush(l, NULL), 0);
                struct oplog_record again = op(4, 50, 0);
                if (life < 2)
                        ck_assert_int_eq(oplog_append(l, &again), 0);
                ck_assert_int_eq(oplog_flush(l, NULL), 0);
                struct oplog_config c = config();
                (void)c;
                oplog_close(l);
                l = reopen();
                ck_assert_uint_eq(replay(l, 0, SALT, &end, &chain, "").n, life < 2 ? 4 : 3);
                /* The next life finds 3 damaged where it lies now. */
                place[3] = r.log_offset;
                oplog_close(l);
        }
}
END_TEST

START_TEST(reading_back_goes_on_after_a_restart) {
        struct oplog *l = make_default();
        struct oplog_record a = op(1, 100, 5000), b = op(2, 60, 0), c = op(3, 70, 10), back;
        void *buffer = NULL;
        uint64_t end;
        uint32_t chain;
        ck_assert_int_eq(oplog_append(l, &a), 0);
        ck_assert_int_eq(oplog_append(l, &b), 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        l = reopen();
        ck_assert_int_eq(oplog_read(l, a.log_offset, a.log_len, &back, &buffer), -ENOENT);
        (void)replay(l, 0, SALT, &end, &chain, "");
        (void)replay(l, 1, SALT + 9, NULL, NULL, "");
        oplog_start(l, 0, SALT, end, chain);
        ck_assert_int_eq(oplog_append(l, &c), 0);
        const struct oplog_record *all[] = {&a, &b, &c};
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                ck_assert_int_eq(oplog_read(l, all[i]->log_offset, all[i]->log_len, &back, &buffer), 0);
                ck_assert_uint_eq(back.pos.seq, i + 1);
                free(buffer);
                buffer = NULL;
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        uint8_t flip;
        ck_assert_int_eq(simdisk_peek(sim, PATH, a.log_offset + 3000, &flip, 1), 0);
        flip ^= 1;
        ck_assert_int_eq(simdisk_poke(sim, PATH, a.log_offset + 3000, &flip, 1), 0);
        ck_assert_int_eq(oplog_read(l, a.log_offset, a.log_len, &back, &buffer), -EBADMSG);
        ck_assert_int_eq(oplog_read(l, 5, 10, &back, &buffer), -EINVAL);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE, 10, &back, &buffer), -EINVAL);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE / 2 - 5, 10, &back, &buffer), -EINVAL);
        oplog_close(l);
}
END_TEST

START_TEST(read_only_writes_nothing) {
        struct oplog *l = make_default();
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        uint64_t changes = simdisk_calls(sim, SIMDISK_CHANGES & ~SIMDISK_OPEN);
        struct oplog_config c = config();
        c.read_only = true;
        ck_assert_int_eq(oplog_open(&c, false, &l), 0);
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
        ck_assert_uint_eq(simdisk_calls(sim, SIMDISK_CHANGES & ~SIMDISK_OPEN), changes);
}
END_TEST

/* --- failures
 * ------------------------------------------------------------------------------------------------------------------------------ */
START_TEST(errors_stick_until_a_new_start) {
        static const char *const points[] = {"store.log.write=EIO@1", "store.log.flush=EIO@1"};
        struct oplog *l = make_default();
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        append_ok(l, 2, 100, 0);
        ck_assert_int_eq(failpoint_set(points[_i]), 0);
        ck_assert_int_eq(oplog_flush(l, NULL), -EIO);
        (void)failpoint_set(NULL);
        struct oplog_record r = op(3, 100, 0), back;
        void *buffer = NULL;
        ck_assert_int_eq(oplog_append(l, &r), -EIO);
        ck_assert_int_eq(oplog_write_out(l, NULL), -EIO);
        ck_assert_int_eq(oplog_flush(l, NULL), -EIO);
        ck_assert_uint_eq(metric(METRIC_STORE_ERRORS), 1);
        oplog_start(l, 1, SALT + 1, 0, 0);
        append_ok(l, 3, 100, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        ck_assert_int_eq(oplog_read(l, OPLOG_PAGE + SIZE / 2, 110, &back, &buffer), 0);
        free(buffer);
        ck_assert_uint_eq(replay(l, 1, SALT + 1, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

START_TEST(what_was_dropped_is_gone) {
        struct oplog *l = make_default();
        append_ok(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        for (uint64_t i = 2; i < 200; i++)
                append_ok(l, i, 93, 0);
        ck_assert_int_eq(failpoint_set("store.log.write=ENOSPC@1"), 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), -ENOSPC);
        oplog_drop_pending(l);
        for (uint64_t i = 2; i < 100; i++) {
                struct oplog_record other = op(i, 50 + i % 7, 0), back;
                void *buffer = NULL;
                ck_assert_int_eq(oplog_append(l, &other), 0);
                ck_assert_int_eq(oplog_read(l, other.log_offset, other.log_len, &back, &buffer), 0);
                ck_assert_uint_eq(back.head_len, 50 + i % 7);
                free(buffer);
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        l = reopen();
        struct seen s = replay(l, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, 99);
        oplog_close(l);
}
END_TEST

/* --- threads
 * -------------------------------------------------------------------------------------------------------------------------------- */
#define WRITERS 16
#define EACH    50
struct group {
        struct oplog *log;
        pthread_mutex_t order;
        uint64_t seq;
};
static void *writer(void *ctx) {
        struct group *g = ctx;
        for (unsigned i = 0; i < EACH; i++) {
                uint64_t reached = 0;
                pthread_mutex_lock(&g->order);
                struct oplog_record r = {.kind = OPLOG_OP, .pos = {1, ++g->seq}, .head = text, .head_len = 60};
                errint_t err = oplog_append(g->log, &r);
                pthread_mutex_unlock(&g->order);
                if (err == 0)
                        err = oplog_write_out(g->log, &reached);
                if (err < 0 || reached < r.pos.seq)
                        return (void *)1;
                if (i % 10 == 5 && oplog_flush(g->log, &reached) < 0)
                        return (void *)1;
        }
        return NULL;
}

START_TEST(writers_share_flushes) {
        struct oplog_config c = config();
        c.level = _i ? LEVEL_FILE : LEVEL_FILESYSTEM;
        c.method = SYNC_OPEN_DATASYNC;
        c.direct = true;
        c.size = 2 * MIB;
        struct group g = {.log = make(&c), .order = PTHREAD_MUTEX_INITIALIZER};
        pthread_t t[WRITERS];
        for (unsigned i = 0; i < WRITERS; i++)
                ck_assert_int_eq(pthread_create(&t[i], NULL, writer, &g), 0);
        for (unsigned i = 0; i < WRITERS; i++) {
                void *bad;
                ck_assert_int_eq(pthread_join(t[i], &bad), 0);
                ck_assert_ptr_null(bad);
        }
        struct seen s = replay(g.log, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, WRITERS * EACH);
        oplog_close(g.log);
}
END_TEST

/* Deterministic: while one write is at the disk, fifteen appends gather, and one more write takes them all. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool at_gate;
static void hold_write(void *ctx, const char *path, uint64_t offset, uint64_t n, bool direct) {
        (void)ctx;
        (void)path;
        (void)offset;
        (void)n;
        (void)direct;
        at_gate = true;
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
}
static void *one_write(void *ctx) {
        return (void *)(intptr_t)oplog_write_out(ctx, NULL);
}

START_TEST(one_write_takes_all_that_wait) {
        struct oplog_config c = config();
        c.level = LEVEL_FILE;
        c.method = SYNC_OPEN_DATASYNC;
        c.direct = true;
        struct oplog *l = make(&c);
        pthread_t first, others[15];
        void *r;
        append_ok(l, 1, 60, 0);
        simdisk_watch(sim, hold_write, NULL);
        pthread_mutex_lock(&gate);
        at_gate = false;
        ck_assert_int_eq(pthread_create(&first, NULL, one_write, l), 0);
        while (!at_gate)
                ;
        for (uint64_t i = 0; i < 15; i++) { /* appending does not wait for the disk */
                append_ok(l, i + 2, 60, 0);
                ck_assert_int_eq(pthread_create(&others[i], NULL, one_write, l), 0);
        }
        pthread_mutex_unlock(&gate);
        ck_assert_int_eq(pthread_join(first, &r), 0);
        for (unsigned i = 0; i < 15; i++)
                ck_assert_int_eq(pthread_join(others[i], &r), 0);
        ck_assert_uint_eq(metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, "").n, 16);
        oplog_close(l);
}
END_TEST

/* --- crashes and damage
 * ------------------------------------------------------------------------------------------------------------------------ */
static const struct model_config models[] = {
        {.level = LEVEL_FILESYSTEM},
        {.level = LEVEL_NONE, .method = SYNC_FSYNC, .sector = 4096},
        {.level = LEVEL_FILESYSTEM, .method = SYNC_OPEN_DATASYNC},
        {.level = LEVEL_FILE, .method = SYNC_OPEN_DATASYNC, .direct = true},
        {.level = LEVEL_FILE, .method = SYNC_OPEN_SYNC, .direct = true, .sector = 4096},
        {.level = LEVEL_FILE, .method = SYNC_FDATASYNC, .direct = true, .padding = 4096},
        {.level = LEVEL_FILE, .method = SYNC_FSYNC},
        {.level = LEVEL_FILE, .method = SYNC_SYNCFS, .direct = true, .refuse_direct = true},
};

START_TEST(crashes_keep_a_prefix_with_all_that_was_flushed) {
        log_set_level(LOG_LEVEL_ERROR); /* one of the models is refused O_DIRECT, at each of its starts */
        for (uint64_t seed = 1; seed <= 12; seed++) {
                struct model_config c = models[_i];
                c.seed = seed;
                c.steps = 60;
                c.lives = 6;
                c.cuts_per_life = 6;
                CLEANUP(model_freep) struct model *m = model_new(&c);
                const char *broken = model_run(m);
                ck_assert_msg(!broken, "model %d seed %llu: %s", _i, (unsigned long long)seed, broken);
                ck_assert_uint_gt(model_replays(m), 6);
        }
}
END_TEST

/* Each byte of a small log flipped in turn: what replay gives is always a true prefix. */
static errint_t check_prefix(void *ctx, const struct oplog_record *r) {
        struct seen *s = ctx;
        size_t head = 20 + 10 * s->n, payload = s->n % 2 ? 30 * s->n : 0;
        ck_assert_uint_eq(r->pos.seq, ++s->n);
        ck_assert_uint_eq(r->head_len, head);
        ck_assert_mem_eq(r->head, text, head);
        ck_assert_uint_eq(r->payload_len, payload);
        if (payload)
                ck_assert_mem_eq(r->payload, text + head, payload);
        return 0;
}

START_TEST(no_flip_changes_a_record) {
        struct oplog *l = make_default();
        unsigned shorter = 0, told = 0;
        for (unsigned i = 0; i < 12; i++) {
                append_ok(l, i + 1, 20 + 10 * i, i % 2 ? 30 * i : 0);
                if (i == 3)
                        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        }
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        uint64_t used = oplog_used(l);
        for (uint64_t at = OPLOG_PAGE; at < OPLOG_PAGE + used; at++)
                for (unsigned bit = 0; bit < 8; bit += (unsigned)(1 + at % 3)) {
                        uint8_t b, flipped;
                        struct seen s = {0};
                        char torn[128];
                        uint64_t end;
                        uint32_t chain;
                        ck_assert_int_eq(simdisk_peek(sim, PATH, at, &b, 1), 0);
                        flipped = (uint8_t)(b ^ (1u << bit));
                        ck_assert_int_eq(simdisk_poke(sim, PATH, at, &flipped, 1), 0);
                        ck_assert_int_eq(oplog_replay(l, 0, SALT, check_prefix, &s, &end, &chain, torn, sizeof torn), 0);
                        shorter += s.n < 12;
                        told += *torn != '\0' && s.n < 12;
                        ck_assert_int_eq(simdisk_poke(sim, PATH, at, &b, 1), 0);
                }
        ck_assert_uint_gt(shorter, 1000);
        ck_assert_uint_gt(told * 100, shorter * 95); /* nearly always it can be told from a clean end */
        oplog_close(l);
}
END_TEST

START_TEST(arbitrary_bytes_are_read_safely) {
        struct oplog *l = make_default();
        uint64_t state = 5;
        cleanup_free uint8_t *junk = xmalloc(SIZE);
        for (unsigned round = 0; round < 60; round++) {
                for (size_t i = 0; i < SIZE; i++) {
                        state = state * 6364136223846793005u + 1442695040888963407u;
                        junk[i] = (uint8_t)(round % 3 == 0 ? state >> 56 : round % 3 == 1 ? 0xff : (state >> 60) & 3);
                }
                ck_assert_int_eq(simdisk_poke(sim, PATH, OPLOG_PAGE, junk, SIZE), 0);
                ck_assert_uint_eq(replay(l, 0, SALT, NULL, NULL, NULL).n, 0);
                ck_assert_uint_eq(replay(l, 1, SALT, NULL, NULL, NULL).n, 0);
        }
        /* The decoder on its own, with every length that ends inside a record. */
        struct oplog_extent *extents = xmalloc(OPLOG_EXTENTS_MAX * sizeof *extents);
        for (size_t n = 0; n < 400; n++) {
                cleanup_free uint8_t *exact = xmalloc(n);
                struct oplog_walk w;
                struct oplog_record r;
                size_t len;
                bool ours;
                for (size_t i = 0; i < n; i++)
                        exact[i] = junk[i] | 1;
                oplog_walk_init(&w, SALT);
                ck_assert_int_lt(oplog_decode(exact, n, &w, extents, &r, &len, &ours), 0);
        }
        free(extents);
        oplog_close(l);
}
END_TEST

static Suite *oplog_suite(void) {
        Suite *s = suite_create("oplog");
        TCase *t = tcase_create("oplog");
        tcase_add_checked_fixture(t, setup, teardown);
        tcase_set_timeout(t, 120);
        tcase_add_test(t, overhead_is_small);
        tcase_add_test(t, bytes_are_pinned);
        tcase_add_test(t, every_kind_comes_back);
        tcase_add_test(t, a_page_is_counted_once_per_interval);
        tcase_add_loop_test(t, level_file_writes_sectors_and_flushes_once, 0, 5);
        tcase_add_test(t, refused_direct_falls_back_with_one_line);
        tcase_add_test(t, what_cannot_work_is_refused_and_changes_nothing);
        tcase_add_test(t, foreign_and_other_files_are_told_apart);
        tcase_add_test(t, creation_is_durable_or_begins_again);
        tcase_add_test(t, a_full_half_says_so);
        tcase_add_test(t, the_other_half_written_before_goes_on);
        tcase_add_test(t, a_record_of_an_earlier_life_never_fits);
        tcase_add_test(t, reading_back_goes_on_after_a_restart);
        tcase_add_test(t, read_only_writes_nothing);
        tcase_add_loop_test(t, errors_stick_until_a_new_start, 0, 2);
        tcase_add_test(t, what_was_dropped_is_gone);
        tcase_add_loop_test(t, writers_share_flushes, 0, 2);
        tcase_add_test(t, one_write_takes_all_that_wait);
        tcase_add_loop_test(t, crashes_keep_a_prefix_with_all_that_was_flushed, 0, (int)ARRAY_LEN(models));
        tcase_add_test(t, no_flip_changes_a_record);
        tcase_add_test(t, arbitrary_bytes_are_read_safely);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(oplog_suite)
