/* Write gathering: what becomes an operation, when, with what in it; what readers see meanwhile. */
#include "fake.h"
#include "unit.h"

#include <linux/falloc.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint8_t *pattern(size_t n) {
        uint8_t *p = xmalloc(n);
        uint64_t seed = n;
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)next_random(&seed);
        return p;
}

static void check_bytes(struct fake *k, uint64_t ino, uint64_t fh, const uint8_t *want, size_t n) {
        cleanup_free uint8_t *got = xmalloc(n + 1);
        ck_assert_int_eq(do_read(k, ino, fh, 0, got, n + 1), (ssize_t)n);
        ck_assert_int_eq(memcmp(got, want, n), 0);
}

START_TEST(small_writes_are_one_operation) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        cleanup_free uint8_t *p = pattern(512000);
        for (size_t i = 0; i < 1000; i++)
                ck_assert_int_eq(do_write(k, f, fh, i * 512, p + i * 512, 512, 0), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 0);
        check_bytes(k, f, fh, p, 512000); /* seen here at once */
        ck_assert_uint_eq(fake_attr(k, f).size, 0);
        struct attr shown;
        ck_assert_int_eq(do_getattr(k, f, &shown), 0);
        ck_assert_uint_eq(shown.size, 512000);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        ck_assert_uint_eq(k->last_write.n_extents, 1);
        ck_assert_uint_eq(k->payload_raw, 512000);
        struct attr applied = fake_attr(k, f), after; /* nothing that was shown changed by it */
        ck_assert_uint_eq(applied.size, shown.size);
        ck_assert_uint_eq(applied.blocks, shown.blocks);
        ck_assert_int_eq(timestamp_cmp(applied.mtime, shown.mtime), 0);
        ck_assert_int_eq(timestamp_cmp(applied.ctime, shown.ctime), 0);
        ck_assert_int_eq(do_getattr(k, f, &after), 0);
        ck_assert_uint_eq(after.blocks, shown.blocks);
        check_bytes(k, f, fh, p, 512000);
        ck_assert_int_eq(do_flush(k, f, fh), 0); /* nothing more to say */
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        ck_assert_uint_eq(metric_get(&k->metrics, METRIC_FUSE_WRITE_CALLS), 1000);
        ck_assert_uint_eq(metric_get(&k->metrics, METRIC_FUSE_WRITE_BYTES), 512000);
        ck_assert_uint_eq(metric_get(&k->metrics, METRIC_FUSE_WRITE_MAX), 512);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(compressed_when_it_shrinks) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        uint8_t text[4096], back[4096];
        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = (uint8_t)("abcdefgh"[i % 8]);
        ck_assert_int_eq(do_write(k, f, fh, 0, text, sizeof(text), 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq((int)k->last_write.form, FORM_ZSTD);
        ck_assert_uint_lt(k->payload_stored, 200);
        ck_assert_int_eq(do_read(k, f, fh, 0, back, sizeof(back)), (ssize_t)sizeof(back));
        ck_assert_mem_eq(back, text, sizeof(text));
        cleanup_free uint8_t *p = pattern(4096);
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 4096, 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq((int)k->last_write.form, FORM_RAW);
        ck_assert_int_eq(do_write(k, f, fh, 0, text, 63, 0), 0); /* not worth trying */
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq((int)k->last_write.form, FORM_RAW);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(identical_rewrites_carry_nothing) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        cleanup_free uint8_t *p = pattern(100000);
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 100000, 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        uint64_t raw = k->payload_raw;
        struct attr before = fake_attr(k, f);
        ck_assert_int_eq(do_write(k, f, fh, 5000, p + 5000, 700, 0), 0); /* in place */
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->last_write.n_extents, 0);
        ck_assert_uint_eq(k->last_write.keep, BLOB_KEEP_ALL);
        ck_assert_int_eq(do_truncate(k, f, fh, 0), 0); /* O_TRUNC, then the same bytes */
        for (size_t i = 0; i < 25; i++)
                ck_assert_int_eq(do_write(k, f, fh, i * 4000, p + i * 4000, 4000, 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->last_write.n_extents, 0);
        ck_assert_uint_eq(k->last_write.size, BLOB_KEEP_ALL);
        ck_assert_uint_eq(k->payload_raw, raw);
        struct attr after = fake_attr(k, f);
        ck_assert_int_gt(timestamp_cmp(after.mtime, before.mtime), 0); /* but a write it was */
        ck_assert_uint_eq(after.content_seq, before.content_seq);
        check_bytes(k, f, fh, p, 100000);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(replaced_content_is_whole) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "the old content, longer"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_truncate(k, f, fh, 0), 0);
        struct attr a;
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 0);
        ck_assert_uint_eq(a.blocks, 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "new"), 0);
        ck_assert_int_eq(do_append(k, f, fh, 3, " and more"), 0); /* after a truncation the end is known: the same operation */
        unsigned writes = k->kinds[OP_WRITE];
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], writes + 1);
        ck_assert_uint_eq(k->last_write.keep, 0);
        ck_assert_uint_eq(k->last_write.n_extents, 1);
        ck_assert_uint_eq(k->last_write.first.length, 12);
        ck_assert_uint_eq(k->last_write.size, 12);
        ck_assert_str_eq(do_read_text(k, f, fh), "new and more");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static void set_limit(struct fake *k, const char *name, const char *text) {
        struct op op = {.kind = OP_SETTING};
        op.setting.name = (struct op_name){name, strlen(name)};
        op.setting.text = text;
        op.setting.len = strlen(text);
        ck_assert_int_eq(fake_remote(k, &op).error, 0);
}

START_TEST(small_edits_of_large_files_are_cheap) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        size_t size = 16 * MIB;
        cleanup_free uint8_t *p = pattern(size);
        for (size_t at = 0; at < size; at += MIB)
                ck_assert_int_eq(do_write(k, f, fh, at, p + at, MIB, 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        struct timespec t0, t1;
        (void)clock_gettime(CLOCK_MONOTONIC, &t0);
        uint64_t seed = 1, raw = k->payload_raw;
        for (int i = 0; i < 2000; i++) {
                size_t at = next_random(&seed) % (size - 100);
                memset(p + at, i, 100);
                ck_assert_int_eq(do_write(k, f, fh, at, p + at, 100, 0), 0);
        }
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &t1);
        ck_assert_uint_le(k->payload_raw - raw, 2000 * 100);
        double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
        ck_assert_msg(s < 10, "%.1f s", s); /* copying all each time would take a minute */
        check_bytes(k, f, fh, p, size);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(sequential_pieces_are_linear) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        set_limit(k, "file_size_max", "64M");
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        static uint8_t piece[4096];
        struct timespec t0, t1, t2;
        (void)clock_gettime(CLOCK_MONOTONIC, &t0);
        for (size_t at = 0; at < 8 * MIB; at += sizeof(piece))
                ck_assert_int_eq(do_write(k, f, fh, at, memset(piece, (int)(at >> 12) | 1, sizeof(piece)), sizeof(piece), 0), 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &t1);
        for (size_t at = 8 * MIB; at < 64 * MIB; at += sizeof(piece))
                ck_assert_int_eq(do_write(k, f, fh, at, memset(piece, (int)(at >> 12) | 1, sizeof(piece)), sizeof(piece), 0), 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &t2);
        double a = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
        double b = (double)(t2.tv_sec - t1.tv_sec) + (double)(t2.tv_nsec - t1.tv_nsec) / 1e9;
        ck_assert_msg(b < 7 * a * 4 + 1, "the first 8 MiB: %.3f s, the next 56: %.3f s", a, b);
        ck_assert_int_eq(do_write(k, f, fh, 64 * MIB, piece, 1, 0), -EFBIG);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        ck_assert_uint_eq(fake_attr(k, f).size, 64 * MIB);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(timer_flushes) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "one"), 0);
        ck_assert_uint_eq(k->armed_ms, 6000);
        fake_advance(k, 600);
        ck_assert_int_eq(do_text(k, g, gh, 0, "two"), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 0);
        fake_advance(k, 399);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 0);
        fake_advance(k, 1);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        ck_assert_uint_eq(k->armed_ms, 6600);
        fake_advance(k, 600);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 2);
        fake_advance(k, 5000);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 2);
        do_release(k, f, fh);
        do_release(k, g, gh);
        fake_free(k);
}
END_TEST

START_TEST(other_operations_come_after_it) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct attr a;
        struct {
                const char *what;
                int writes;
        } seen[] = {{"chmod", 1}, {"setxattr", 2}, {"removexattr", 3}, {"link", 4}, {"unlink", 5}, {"fsync", 6}};
        for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
                char text[16];
                (void)snprintf(text, sizeof(text), "%zu", i);
                ck_assert_int_eq(do_text(k, f, fh, i, text), 0);
                switch (i) {
                case 0:
                        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0640}, fh, &a), 0);
                        break;
                case 1:
                        ck_assert_int_eq(do_setxattr(k, f, "user.a", "b", 1, 0), 0);
                        break;
                case 2:
                        ck_assert_int_eq(do_removexattr(k, f, "user.a"), 0);
                        break;
                case 3:
                        ck_assert_int_eq(do_link(k, f, INO_ROOT, "second"), 0);
                        break;
                case 4:
                        ck_assert_int_eq(do_unlink(k, INO_ROOT, "second"), 0);
                        break;
                default:
                        ck_assert_int_eq(do_fsync(k, f, fh), 0);
                        ck_assert_uint_eq(k->barriers, 1);
                }
                ck_assert_msg(k->kinds[OP_WRITE] == (unsigned)seen[i].writes, "%s", seen[i].what);
                ck_assert_int_eq(do_getattr(k, f, &a), 0);
                ck_assert_int_ge(timestamp_cmp(a.ctime, a.mtime), 0);
        }
        ck_assert_str_eq(do_read_text(k, f, fh), "012345");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(many_extents_are_flushed_early) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        cleanup_free uint8_t *want = xcalloc(1, 40000);
        for (size_t i = 0; i < 20000; i++) {
                size_t at = (i * 7919) % 20000 * 2;
                want[at] = (uint8_t)(i | 1);
                ck_assert_int_eq(do_write(k, f, fh, at, want + at, 1, 0), 0);
        }
        ck_assert_uint_ge(k->kinds[OP_WRITE], 1);
        ck_assert_uint_le(k->last_write.n_extents, OP_EXTENTS_MAX);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        check_bytes(k, f, fh, want, 39999);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static void small_gather(struct fs_config *c) {
        c->gather_bytes_max = 100000;
}

START_TEST(gather_bytes_max) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        fake_fs_config(k, small_gather);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        cleanup_free uint8_t *p = pattern(250000);
        for (size_t at = 0; at < 250000; at += 1000)
                ck_assert_int_eq(do_write(k, f, fh, at, p + at, 1000, 0), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 2);
        check_bytes(k, f, fh, p, 250000);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(limits_count_at_the_write) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        set_limit(k, "tree_size_max", "1M");
        set_limit(k, "file_size_max", "900K");
        cleanup_free uint8_t *p = pattern(MIB);
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 900 * KIB + 1, 0), -EFBIG);
        ck_assert_int_eq(do_write(k, f, fh, 900 * KIB, p, 1, 0), -EFBIG);
        ck_assert_int_eq(do_write(k, f, fh, UINT64_C(1) << 62, p, 1, 0), -EFBIG);
        ck_assert_int_eq(do_truncate(k, f, fh, 900 * KIB + 1), -EFBIG);
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 600 * KIB, 0), 0);
        ck_assert_int_eq(do_write(k, g, gh, 0, p, 500 * KIB, 0), -ENOSPC); /* what others gathered counts */
        ck_assert_int_eq(do_write(k, g, gh, 0, p, 300 * KIB, 0), 0);
        struct answer a;
        answer_init(k, &a);
        fs_statfs(k->fs, &a.reply);
        ck_assert_uint_le(a.st.f_bfree * a.st.f_bsize, 124 * KIB);
        ck_assert_uint_ge(a.st.f_bfree * a.st.f_bsize, 115 * KIB);
        ck_assert_uint_eq(a.st.f_blocks * a.st.f_bsize, MIB);
        ck_assert_uint_eq(a.st.f_namemax, 255);
        ck_assert_int_eq(do_write(k, f, fh, 0, p + 7, 600 * KIB, 0), 0); /* overwriting takes no room */
        ck_assert_int_eq(do_write(k, f, fh, 600 * KIB, p, 200 * KIB, 0), -ENOSPC);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_flush(k, g, gh), 0);
        set_limit(k, "file_size_max", "1K"); /* a larger file may still be changed and shrink */
        ck_assert_int_eq(do_write(k, f, fh, 100 * KIB, p, 100, 0), 0);
        ck_assert_int_eq(do_write(k, f, fh, 600 * KIB, p, 1, 0), -EFBIG);
        ck_assert_int_eq(do_truncate(k, f, fh, 500 * KIB), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(fake_attr(k, f).size, 500 * KIB);
        do_release(k, f, fh);
        do_release(k, g, gh);
        fake_free(k);
}
END_TEST

START_TEST(room_in_the_store) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        cleanup_free uint8_t *p = pattern(200000);
        k->room = 100000;
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 90000, 0), 0); /* exact where steps are too large */
        ck_assert_int_eq(do_write(k, f, fh, 90000, p, 20000, 0), -ENOSPC);
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 1000, 0), 0);
        ck_assert_int_gt(k->reserved, 89999);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(k->reserved, 0);
        k->room = UINT64_MAX;
        ck_assert_int_eq(do_write(k, f, fh, 90000, p + 90000, 20000, 0), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        k->not_writable = -EROFS;
        ck_assert_int_eq(do_write(k, f, fh, 0, p, 1, 0), -EROFS);
        struct answer a;
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, f, O_RDWR, false, &a.reply);
        ck_assert_int_eq(a.error, -EROFS); /* known early */
        uint64_t rh = do_open(k, f, O_RDONLY);
        check_bytes(k, f, rh, p, 110000);
        do_release(k, f, rh);
        k->not_writable = 0;
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(truncation) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "0123456789"), 0);
        ck_assert_int_eq(do_truncate(k, f, fh, 4), 0);
        ck_assert_int_eq(do_text(k, f, fh, 6, "x"), 0);
        char buf[16];
        ck_assert_int_eq(do_read(k, f, fh, 0, buf, 16), 7);
        ck_assert_mem_eq(buf, "0123\0\0x", 7);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        fake_content(k, f, buf, sizeof(buf));
        ck_assert_mem_eq(buf, "0123\0\0x", 7);
        struct attr before = fake_attr(k, f), a;
        unsigned writes = k->kinds[OP_WRITE];
        ck_assert_int_eq(do_truncate(k, f, fh, 7), 0); /* to the size it has: times move */
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_int_gt(timestamp_cmp(a.mtime, before.mtime), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], writes + 1);
        ck_assert_uint_eq(k->last_write.size, BLOB_KEEP_ALL);
        ck_assert_int_eq(timestamp_cmp(fake_attr(k, f).mtime, a.mtime), 0);
        do_release(k, f, fh);
        /* without an open file: at once */
        writes = k->kinds[OP_WRITE];
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_SIZE, .size = 100}, 0, &a), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], writes + 1);
        ck_assert_uint_eq(a.size, 100);
        ck_assert_uint_eq(fake_attr(k, f).size, 100);
        ck_assert_int_eq(
                do_setattr(k, f,
                           &(struct fs_set){.set = FS_SET_SIZE | FS_SET_MODE | FS_SET_MTIME, .mode = 0604, .size = 2, .mtime = {7, 8}}, 0,
                           &a),
                0);
        ck_assert_uint_eq(a.size, 2);
        ck_assert_uint_eq(a.mode & 07777, 0604);
        ck_assert_int_eq(a.mtime.sec, 7);
        k->refuse = -EIO; /* not found out before it was sent */
        ck_assert_int_eq(do_truncate(k, f, 0, 1), -EIO);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_SIZE | FS_SET_MODE, .mode = 0600, .size = 1}, 0, &a), -EIO);
        k->refuse = 0;
        uint64_t d = do_mkdir(k, INO_ROOT, "d", 0700);
        ck_assert_int_eq(do_truncate(k, d, 0, 1), -EISDIR);
        ck_assert_int_eq(do_truncate(k, 999, 0, 1), -ESTALE);
        fake_free(k);
}
END_TEST

START_TEST(allocation_and_holes) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct attr a;
        ck_assert_int_eq(do_text(k, f, fh, 0, "abc"), 0);
        ck_assert_int_eq(do_fallocate(k, f, fh, 0, 0, 200000), 0);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 200000);
        ck_assert_uint_le(a.blocks, 32); /* the rest is a hole */
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_KEEP_SIZE, 0, 400000), 0);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 200000);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_KEEP_SIZE, 0, 2 * GIB), -ENOSPC);
        ck_assert_int_eq(do_fallocate(k, f, fh, 0, 0, 2 * GIB), -EFBIG);
        ck_assert_int_eq(do_fallocate(k, f, fh, 0, 0, 0), -EINVAL);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_COLLAPSE_RANGE, 0, 1), -EOPNOTSUPP);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_PUNCH_HOLE, 0, 1), -EOPNOTSUPP);
        ck_assert_int_eq(do_text(k, f, fh, 100000, "middle"), 0);
        struct answer r;
        answer_init(k, &r);
        fs_lseek(k->fs, f, fh, 20000, SEEK_DATA, &r.reply);
        ck_assert_int_eq(r.kind, ANSWER_OFFSET);
        ck_assert_uint_le(r.n, 100000);
        ck_assert_uint_gt(r.n, 20000);
        answer_init(k, &r);
        fs_lseek(k->fs, f, fh, 0, SEEK_HOLE, &r.reply);
        ck_assert_uint_eq(r.n, BLOB_CHUNK);
        answer_init(k, &r);
        fs_lseek(k->fs, f, fh, 200000, SEEK_DATA, &r.reply);
        ck_assert_int_eq(r.error, -ENXIO);
        answer_init(k, &r);
        fs_lseek(k->fs, f, fh, 0, SEEK_SET, &r.reply);
        ck_assert_int_eq(r.error, -EINVAL);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100002, 400000), 0);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 200000);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 1, 1), 0);
        ck_assert_int_eq(do_fallocate(k, f, fh, FALLOC_FL_ZERO_RANGE, 199999, 51), 0);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 200050);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        struct attr applied = fake_attr(k, f);
        ck_assert_uint_eq(applied.size, a.size);
        ck_assert_uint_eq(applied.blocks, a.blocks);
        char buf[8];
        ck_assert_int_eq(do_read(k, f, fh, 0, buf, 3), 3);
        ck_assert_mem_eq(buf, "a\0c", 3);
        ck_assert_int_eq(do_read(k, f, fh, 100000, buf, 4), 4);
        ck_assert_mem_eq(buf, "mi\0\0", 4);
        uint64_t rh = do_open(k, f, O_RDONLY);
        ck_assert_int_eq(do_fallocate(k, f, rh, 0, 0, 10), -EBADF);
        ck_assert_int_eq(do_text(k, f, rh, 0, "x"), -EBADF);
        do_release(k, f, rh);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(setuid_goes_with_a_write) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0777, &fh);
        struct attr a;
        const struct fs_set suid = {.set = FS_SET_MODE, .mode = 06777};
        struct answer r;
        ck_assert_int_eq(do_setattr(k, f, &suid, 0, NULL), 0);
        ck_assert_int_eq(do_setxattr(k, f, "security.capability", "caps", 4, 0), 0);
        answer_init(k, &r);
        fs_write(k->fs, &root_caller, f, fh, 0, "x", 1, 0, true, false, &r.reply);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.mode & 07777, 0777); /* seen at once */
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", 0, NULL), -ENODATA);
        ck_assert_uint_eq(fake_attr(k, f).mode & 07777, 06777);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(fake_attr(k, f).mode & 07777, 0777);
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", 0, NULL), -ENODATA);
        /* truncate, chown, and what root writes */
        ck_assert_int_eq(do_setattr(k, f, &suid, 0, NULL), 0);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_SIZE | FS_SET_KILL_SUID}, 0, &a), 0);
        ck_assert_uint_eq(a.mode & 07777, 0777);
        ck_assert_int_eq(do_setattr(k, f, &suid, 0, NULL), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "y"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_uint_eq(fake_attr(k, f).mode & 07777, 06777);
        ck_assert_int_eq(do_setxattr(k, f, "security.capability", "caps", 4, 0), 0);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_UID, .uid = 5}, 0, &a), 0);
        ck_assert_uint_eq(a.mode & 07777, 0777);
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", 0, NULL), -ENODATA);
        do_release(k, f, fh);
        answer_init(k, &r); /* open with O_TRUNC, where the kernel leaves that to us */
        ck_assert_int_eq(do_setattr(k, f, &suid, 0, NULL), 0);
        fs_open(k->fs, &root_caller, f, O_WRONLY | O_TRUNC, true, &r.reply);
        ck_assert_int_eq(r.kind, ANSWER_OPEN);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.size, 0);
        ck_assert_uint_eq(a.mode & 07777, 0777);
        do_release(k, f, r.open.fh);
        ck_assert_uint_eq(fake_attr(k, f).mode & 07777, 0777); /* the release sends what no close sent */
        fake_free(k);
}
END_TEST

START_TEST(who_wrote) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct fs_caller opener = {.uid = 3, .gid = 4, .pid = 30}, other = {.uid = 5, .gid = 6, .pid = 50}, kernel = {0};
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0666, &fh);
        do_release(k, f, fh);
        struct answer a;
        answer_init(k, &a);
        fs_open(k->fs, &opener, f, O_RDWR, false, &a.reply);
        fh = a.open.fh;
        answer_init(k, &a);
        fs_write(k->fs, &kernel, f, fh, 0, "mmap", 4, 0, false, true, &a.reply); /* written back */
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(k->last_caller.pid, 30);
        ck_assert_uint_eq(k->last_caller.uid, 3);
        ck_assert_str_eq(k->last_caller.program, "prog30");
        answer_init(k, &a);
        fs_write(k->fs, &other, f, fh, 0, "fork", 4, 0, false, false, &a.reply);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(k->last_caller.pid, 50);
        ck_assert_str_eq(k->last_caller.program, "prog50");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static Suite *suite_gather(void) {
        const TTest *const tests[] = {small_writes_are_one_operation,
                                      compressed_when_it_shrinks,
                                      identical_rewrites_carry_nothing,
                                      replaced_content_is_whole,
                                      small_edits_of_large_files_are_cheap,
                                      sequential_pieces_are_linear,
                                      timer_flushes,
                                      other_operations_come_after_it,
                                      many_extents_are_flushed_early,
                                      gather_bytes_max,
                                      limits_count_at_the_write,
                                      room_in_the_store,
                                      truncation,
                                      allocation_and_holes,
                                      setuid_goes_with_a_write,
                                      who_wrote};
        return suite_of("gather", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_gather)
