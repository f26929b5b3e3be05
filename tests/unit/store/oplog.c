/* oplog.c: the operation log: its bytes, pages, flushes and counters, what is refused, what a full half does. */
#include "oplog_rig.h"

#include "base/codec.h"
#include "base/hash.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

/* --- bytes --------------------------------------------------------------------------------------------------------------------------- */
START_TEST(overhead_is_small) {
        struct oplog *l = logrig_make_default();
        struct oplog_record r = logrig_op(1, 40, 0);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_offset, OPLOG_PAGE);
        ck_assert_uint_eq(r.log_len, 40 + 1 + 4 + 3 + 2); /* the first of a half says its position in full */
        r = logrig_op(2, 40, 0);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_len, 40 + 8);
        r = logrig_op(3, 40, 100);
        ck_assert_int_eq(oplog_append(l, &r), 0);
        ck_assert_uint_eq(r.log_len, 140 + 10);
        ck_assert_uint_eq(oplog_used(l), 50 + 48 + 150);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_RECORDS), 3);
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
        struct oplog *l = logrig_make_default();
        struct oplog_extent e[OPLOG_EXTENTS_MAX];
        uint64_t sum = 0;
        for (size_t i = 0; i < ARRAY_LEN(e); i++) {
                e[i] = (struct oplog_extent){.offset = (i * 977 + 1) * 4096, .length = (uint32_t)(4096 * (i % 3) + 1)};
                sum += e[i].length;
        }
        struct oplog_record r[5] = {
                logrig_op(10, 30, 0),
                {.kind = OPLOG_ADOPTED, .pos = {.epoch = 9}},
                {.kind = OPLOG_OP_EXTENTS,
                 .pos = {9, 11},
                 .head = logrig_text,
                 .head_len = 5,
                 .form = FORM_ZSTD,
                 .raw_len = 12345678,
                 .payload_len = sum,
                 .payload_crc = 0xabcdef01,
                 .extents = e,
                 .n_extents = ARRAY_LEN(e)},
                {.kind = OPLOG_PROMISED, .pos = {.epoch = UINT64_MAX}},
                logrig_op(12, 3, 40000),
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
        l = logrig_reopen();
        struct logrig_seen s = logrig_replay(l, 0, SALT, NULL, NULL, "");
        ck_assert_uint_eq(s.n, 5);
        for (size_t i = 0; i < ARRAY_LEN(r); i++)
                ck_assert_int_eq(s.kinds[i], r[i].kind);
        ck_assert_uint_eq(logrig_replay(l, 0, SALT + 1, NULL, NULL, "").n, 0);
        ck_assert_uint_eq(logrig_replay(l, 1, SALT, NULL, NULL, "").n, 0);
        oplog_close(l);
}
END_TEST

/* --- pages, flushes, counters -----------------------------------------------------------------------------------------------------------
 */
START_TEST(a_page_is_counted_once_per_interval) {
        struct oplog *l = logrig_make_default();
        uint64_t seq = 0;
        for (uint64_t i = 1; i <= 20; i++) {
                logrig_append(l, i, 92, 0); /* 100 bytes each, 102 the first */
                ck_assert_int_eq(oplog_write_out(l, &seq), 0);
                ck_assert_uint_eq(seq, i);
        }
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_BYTES), 4096);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);                 /* nothing to do */
        ck_assert_uint_eq(simdisk_calls(logrig_sim, SIMDISK_SYNC), 2); /* creation's */
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        ck_assert_uint_eq(seq, 20);
        ck_assert_uint_eq(oplog_used(l), 4096);
        ck_assert_int_eq(oplog_flush(l, &seq), 0); /* nothing since */
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 1);
        logrig_append(l, 21, 5000, 0);
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        ck_assert_uint_eq(seq, 21);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_BYTES), 3 * 4096);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 21);
        oplog_close(l);
}
END_TEST

START_TEST(level_file_writes_sectors_and_flushes_once) {
        struct oplog_config c = logrig_config();
        c.level = LEVEL_FILE;
        c.method = (enum sync_method)_i;
        c.direct = true;
        struct oplog *l = logrig_make(&c);
        uint64_t seq = 0, syncs = simdisk_calls(logrig_sim, SIMDISK_SYNC);
        bool by_write = c.method == SYNC_OPEN_DATASYNC || c.method == SYNC_OPEN_SYNC;
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_BYTES), 512);
        for (uint64_t i = 2; i <= 9; i++)
                logrig_append(l, i, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, &seq), 0);
        ck_assert_uint_eq(seq, 9);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_BYTES), 512 + 1024);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 2);
        ck_assert_uint_eq(simdisk_calls(logrig_sim, SIMDISK_SYNC) - syncs, by_write ? 0 : 2);
        ck_assert_int_eq(oplog_flush(l, &seq), 0); /* is durable already */
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 2);
        oplog_close(l);
        simdisk_crash(logrig_sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
        l = logrig_reopen();
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 9);
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
        simdisk_free(logrig_sim);
        logrig_sim = simdisk_new(&(struct simdisk_config){.refuse_direct = true});
        struct oplog_config c = logrig_config();
        c.level = LEVEL_FILE;
        c.direct = true;
        notices = 0;
        log_set_sink(keep_notice, NULL);
        struct oplog *l = logrig_make(&c);
        log_set_sink(NULL, NULL);
        ck_assert_uint_eq(notices, 1);
        ck_assert_ptr_nonnull(strstr(notice, "O_DIRECT"));
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        logrig_append(l, 2, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_BYTES), 2 * 4096); /* a page that is durable is not shared */
        oplog_close(l);
}
END_TEST

START_TEST(what_cannot_work_is_refused_and_changes_nothing) {
        simdisk_free(logrig_sim);
        logrig_sim = simdisk_new(&(struct simdisk_config){.sector = 4096});
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
                struct oplog_config c = logrig_config();
                struct oplog *l = NULL;
                uint64_t size;
                c.size = bad[i].size;
                c.level = (enum sync_level)bad[i].level;
                c.method = (enum sync_method)bad[i].method;
                c.direct = bad[i].direct;
                c.padding = bad[i].padding;
                ck_assert_int_eq(oplog_open(&c, true, &l), -EINVAL);
                ck_assert_ptr_null(l);
                ck_assert_int_eq(simdisk_file_size(logrig_sim, PATH, &size), -ENOENT);
        }
        struct oplog *l = logrig_make_default();
        logrig_append(l, 1, 10, 0);
        ck_assert_int_eq(oplog_set_level(l, LEVEL_FILE, SYNC_FDATASYNC, true, 512), -EINVAL);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 0);
        ck_assert_int_eq(oplog_set_level(l, LEVEL_FILE, SYNC_FDATASYNC, true, 0), 0);
        logrig_append(l, 2, 10, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        ck_assert_uint_eq(oplog_used(l), 8192); /* sectors of 4096 */
        oplog_close(l);
}
END_TEST

START_TEST(foreign_and_other_files_are_told_apart) {
        struct oplog_config c = logrig_config();
        struct oplog *l = NULL;
        ck_assert_int_eq(oplog_open(&c, false, &l), -ENOENT);
        oplog_close(logrig_make_default());
        ck_assert_int_eq(oplog_open(&c, true, &l), 0); /* never used: may be made again */
        oplog_close(l);
        c.id[0]++;
        ck_assert_int_eq(oplog_open(&c, false, &l), -EXDEV);
        c.id[0]--;
        c.size *= 2;
        ck_assert_int_eq(oplog_open(&c, false, &l), -EBADMSG);
        l = logrig_reopen();
        oplog_start(l, 0, SALT, 0, 0);
        logrig_append(l, 1, 10, 0);
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        oplog_close(l);
        c.size /= 2;
        ck_assert_int_eq(oplog_open(&c, true, &l), -EEXIST);
        for (uint64_t i = 0; i < OPLOG_HEADER_SIZE; i++) {
                uint8_t b, flipped;
                ck_assert_int_eq(simdisk_peek(logrig_sim, PATH, i, &b, 1), 0);
                flipped = b ^ 0x10;
                ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, i, &flipped, 1), 0);
                ck_assert_int_eq(oplog_open(&c, false, &l), -EBADMSG);
                ck_assert_int_eq(simdisk_poke(logrig_sim, PATH, i, &b, 1), 0);
        }
        l = logrig_reopen();
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

START_TEST(creation_is_durable_or_begins_again) {
        oplog_close(logrig_make_default());
        uint64_t end = simdisk_position(logrig_sim), size;
        unsigned whole = 0;
        for (uint64_t at = 0; at <= end; at++)
                for (unsigned seed = 0; seed < 6; seed++) {
                        struct simdisk *kept = logrig_sim;
                        CLEANUP(simdisk_freep)
                        struct simdisk *c =
                                simdisk_crashed(logrig_sim, &(struct simdisk_crash){.at = at, .keep = SIMDISK_ANY, .seed = seed});
                        logrig_sim = c;
                        struct oplog_config conf = logrig_config();
                        struct oplog *l = NULL;
                        errint_t r = oplog_open(&conf, false, &l);
                        ck_assert(r == 0 || r == -ENOENT || r == -EBADMSG);
                        if (r == 0) { /* a header means that the zeros are there */
                                whole++;
                                ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 0);
                                oplog_close(l);
                                l = NULL;
                        }
                        ck_assert_int_eq(oplog_open(&conf, true, &l), 0);
                        ck_assert_int_eq(simdisk_file_size(c, PATH, &size), 0);
                        ck_assert_uint_eq(size, SIZE + OPLOG_PAGE);
                        oplog_close(l);
                        logrig_sim = kept;
                }
        ck_assert_uint_gt(whole, 0);
}
END_TEST

START_TEST(a_full_half_says_so) {
        struct oplog *l = logrig_make_default();
        uint64_t seq = 0;
        errint_t r;
        do {
                struct oplog_record rec = logrig_op(seq + 1, 3000, 0);
                r = oplog_append(l, &rec);
                seq += r == 0;
        } while (r == 0);
        ck_assert_int_eq(r, -ENOSPC);
        ck_assert_uint_gt(oplog_used(l) + 3100, oplog_half_size(l));
        logrig_append(l, seq + 1, 10, 0); /* a smaller one may fit */
        struct oplog_record big = logrig_op(seq + 2, 100, OPLOG_RECORD_MAX - 100);
        ck_assert_int_eq(oplog_append(l, &big), -EMSGSIZE);
        struct oplog_record gap = logrig_op(seq + 3, 10, 0);
        ck_assert_int_eq(oplog_append(l, &gap), -EINVAL);
        /* On to the other half, with what is pending here still to be written. */
        oplog_start(l, 1, SALT + 1, 0, 0);
        logrig_append(l, seq + 2, 100, 0);
        ck_assert_int_eq(oplog_flush(l, &seq), 0);
        struct logrig_seen a = logrig_replay(l, 0, SALT, NULL, NULL, ""), b = logrig_replay(l, 1, SALT + 1, NULL, NULL, "");
        ck_assert_uint_eq(a.last + 1, b.first);
        ck_assert_uint_eq(b.n, 1);
        ck_assert_uint_eq(seq, b.last);
        oplog_close(l);
}
END_TEST

START_TEST(the_other_half_written_before_goes_on) {
        struct oplog *l = logrig_make_default();
        logrig_append(l, 1, 100, 0);
        ck_assert_int_eq(oplog_write_out(l, NULL), 0);
        oplog_start(l, 1, SALT + 1, 0, 0); /* written, not flushed: a flush must not think it has nothing to do */
        ck_assert_int_eq(oplog_flush(l, NULL), 0);
        ck_assert_uint_eq(logrig_metric(METRIC_LOG_FLUSHES), 1);
        oplog_close(l);
        simdisk_crash(logrig_sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_LOST});
        l = logrig_reopen();
        ck_assert_uint_eq(logrig_replay(l, 0, SALT, NULL, NULL, "").n, 1);
        oplog_close(l);
}
END_TEST

static Suite *oplog_suite(void) {
        Suite *s = suite_create("oplog");
        TCase *t = tcase_create("oplog");
        tcase_add_checked_fixture(t, logrig_setup, logrig_teardown);
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
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(oplog_suite)
