/* OP_WRITE: content, its limits, times, and what the change set says. */
#include "helper.h"

#include "base/compress.h"

static struct fixture f;
static uint64_t file;

static void begin(void) {
        fixture_begin(&f);
        file = make(&f, INO_ROOT, "file", S_IFREG | 0644);
}
static void done(void) {
        fixture_done(&f);
}

static const struct change *content_change(void) {
        const struct change *c = change_find(&f, CHANGE_CONTENT, file);
        ck_assert_ptr_nonnull(c);
        return c;
}

START_TEST(writes_and_cuts) {
        ck_assert_int_eq(do_write(&f, file, 0, "hello", 5), 0);
        ck_assert_uint_eq(f.result.ino, file);
        assert_content(&f, file, "hello", 5);
        ck_assert(content_change()->whole);
        struct attr a = attr_of(&f, file);
        ck_assert_int_eq(timestamp_cmp(a.mtime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_uint_eq(a.content_seq, f.seq);
        ck_assert_uint_eq(a.blocks, 1);
        ck_assert_int_eq(do_write(&f, file, 3, "p me", 4), 0);
        assert_content(&f, file, "help me", 7);
        ck_assert(!content_change()->whole);
        ck_assert_uint_eq(content_change()->offset, 3);
        ck_assert_uint_eq(content_change()->length, UINT64_MAX);
        ck_assert_int_eq(do_write(&f, file, 1, "EL", 2), 0);
        ck_assert_uint_eq(content_change()->offset, 1);
        ck_assert_uint_eq(content_change()->length, 2);
        ck_assert_int_eq(do_truncate(&f, file, 4), 0);
        assert_content(&f, file, "hELp", 4);
        ck_assert_uint_eq(content_change()->offset, 4);
        ck_assert_int_eq(do_truncate(&f, file, 6), 0);
        assert_content(&f, file, "hELp\0\0", 6);
        ck_assert_int_eq(do_replace(&f, file, "new", 3), 0);
        assert_content(&f, file, "new", 3);
        ck_assert(content_change()->whole);
        ck_assert_int_eq(do_write(&f, file, 0, "NEW!", 4), 0);
        ck_assert(content_change()->whole); /* nothing of the old bytes is left */
        ck_assert_int_eq(do_truncate(&f, file, 0), 0);
        ck_assert(content_change()->whole);
        ck_assert_uint_eq(attr_of(&f, file).blocks, 0);
}
END_TEST

START_TEST(append_is_resolved_here) {
        ck_assert_int_eq(do_append(&f, file, "one\n", 4), 0);
        ck_assert_uint_eq(f.result.offset, 0);
        ck_assert_int_eq(do_append(&f, file, "two\n", 4), 0);
        ck_assert_uint_eq(f.result.offset, 4);
        assert_content(&f, file, "one\ntwo\n", 8);
        ck_assert_uint_eq(content_change()->offset, 4);
        struct extent x[2] = {{0, 1, EXTENT_DATA}, {3, 1, EXTENT_DATA}};
        struct op op = op_of(OP_WRITE);
        op.write.ino = file;
        op.write.flags = WRITE_APPEND;
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        op.write.extents = x;
        op.write.n_extents = 2;
        op.payload = (struct op_payload){.raw_len = 2, .data = (const uint8_t *)"ab", .len = 2};
        ck_assert_int_eq(run(&f, &op), 0);
        assert_content(&f, file, "one\ntwo\na\0\0b", 12);
        ck_assert_uint_eq(x[0].offset, 0); /* the operation itself is not touched */
}
END_TEST

START_TEST(the_same_bytes_again) {
        ck_assert_int_eq(do_replace(&f, file, "same", 4), 0);
        uint64_t seq = attr_of(&f, file).content_seq;
        ck_assert_int_eq(do_replace(&f, file, "same", 4), 0);
        ck_assert_ptr_null(change_find(&f, CHANGE_CONTENT, file));
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_ATTR, file));
        ck_assert_uint_eq(attr_of(&f, file).content_seq, seq);
        ck_assert_int_eq(timestamp_cmp(attr_of(&f, file).mtime, f.now), 0);
        struct op op = op_of(OP_WRITE);
        op.write.ino = file;
        op.write.flags = WRITE_NO_MTIME;
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        op.write.size = 10000;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.changes.n, 1);
        ck_assert_int_lt(attr_of(&f, file).mtime.sec, f.now.sec);
}
END_TEST

START_TEST(suid_goes) {
        static const uint32_t modes[][2] = {{06755, 0755}, {06745, 02745}, {04644, 0644}, {01777, 01777}};
        for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
                struct op op = op_of(OP_WRITE);
                op.write.ino = file;
                op.write.flags = WRITE_KILL_SUID;
                op.write.keep = op.write.size = BLOB_KEEP_ALL;
                ck_assert_int_eq(do_chmod(&f, file, modes[i][0]), 0);
                ck_assert_int_eq(run(&f, &op), 0);
                ck_assert_uint_eq(attr_of(&f, file).mode, S_IFREG | modes[i][1]);
        }
}
END_TEST

START_TEST(wrong_inodes) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755), fifo = make(&f, INO_ROOT, "p", S_IFIFO | 0644);
        ck_assert_int_eq(do_write(&f, dir, 0, "x", 1), -EISDIR);
        ck_assert_int_eq(do_write(&f, fifo, 0, "x", 1), -EINVAL);
        ck_assert_int_eq(do_write(&f, 99, 0, "x", 1), -ENOENT);
        ck_assert_int_eq(do_symlink(&f, INO_ROOT, "l", "target"), 0);
        ck_assert_int_eq(do_write(&f, f.result.ino, 0, "x", 1), -EINVAL);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "file"), 0);
        ck_assert_int_eq(do_write(&f, file, 0, "x", 1), -ENOENT);
}
END_TEST

START_TEST(largest_file) {
        ck_assert_int_eq(do_setting(&f, "file_size_max", "1000"), 0);
        ck_assert_int_eq(do_write(&f, file, 999, "x", 1), 0);
        ck_assert_int_eq(do_write(&f, file, 1000, "x", 1), -EFBIG);
        ck_assert_int_eq(do_append(&f, file, "x", 1), -EFBIG);
        ck_assert_int_eq(do_truncate(&f, file, 1001), -EFBIG);
        ck_assert_int_eq(do_write(&f, file, UINT64_MAX - 1, "x", 1), -EFBIG);
        ck_assert_int_eq(do_truncate(&f, file, UINT64_MAX - 1), -EFBIG);
        ck_assert_int_eq(do_setting(&f, "file_size_max", "10"), 0);
        ck_assert_int_eq(do_write(&f, file, 500, "x", 1), 0); /* larger than the new limit: may change, may shrink */
        ck_assert_int_eq(do_truncate(&f, file, 900), 0);
        ck_assert_int_eq(do_truncate(&f, file, 901), -EFBIG);
        ck_assert_int_eq(do_truncate(&f, file, 5), 0);
        ck_assert_int_eq(do_write(&f, file, 10, "x", 1), -EFBIG);
        ck_assert_int_eq(do_setting(&f, "file_size_max", ""), 0);
        ck_assert_int_eq(do_write(&f, file, 16 * MIB - 1, "x", 1), 0);
        ck_assert_uint_eq(attr_of(&f, file).size, 16 * MIB);
        ck_assert_uint_eq(attr_of(&f, file).blocks, BLOB_CHUNK / 512);
}
END_TEST

START_TEST(compressed) {
        static uint8_t raw[100000];
        cleanup_free uint8_t *packed = NULL;
        size_t packed_len = 0;
        for (size_t i = 0; i < sizeof(raw); i++)
                raw[i] = (uint8_t)("configuration"[i % 13]);
        ck_assert_int_eq(compress_zstd(raw, sizeof(raw), &packed, &packed_len), 0);
        struct extent x = {0, sizeof(raw), EXTENT_DATA};
        struct op op = op_of(OP_WRITE);
        op.write.ino = file;
        op.write.keep = 0;
        op.write.size = BLOB_KEEP_ALL;
        op.write.extents = &x;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.form = FORM_ZSTD, .raw_len = sizeof(raw), .data = packed, .len = packed_len};
        ck_assert_int_eq(run(&f, &op), 0);
        assert_content(&f, file, raw, sizeof(raw));
        struct hash128 before = tree_digest(f.t);
        packed[packed_len / 2] ^= 0xff;
        packed[packed_len - 1] ^= 0xff;
        op.payload.len--;
        ck_assert_int_eq(tree_apply(f.t, &op, ++f.seq, &f.changes, &f.result), -EBADMSG);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert(hash128_equal(before, tree_digest(f.t)));
        assert_content(&f, file, raw, sizeof(raw));
        op.payload.data = NULL; /* its bytes got lost */
        ck_assert_int_eq(tree_apply(f.t, &op, ++f.seq, &f.changes, &f.result), -EBADMSG);
}
END_TEST

START_TEST(readers_keep_their_version) {
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        char buf[10];
        ck_assert_int_eq(do_replace(&f, file, "old", 3), 0);
        ck_assert_int_eq(tree_content(f.t, file, &b), 0);
        ck_assert_int_eq(do_write(&f, file, 0, "new", 3), 0);
        ck_assert_uint_eq(blob_read(b, 0, buf, sizeof(buf)), 3);
        ck_assert_mem_eq(buf, "old", 3);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "file"), 0);
        ck_assert_uint_eq(blob_read(b, 0, buf, sizeof(buf)), 3);
}
END_TEST

static Suite *suite_tree_content(void) {
        Suite *s = suite_create("content");
        TCase *c = tcase_create("content");
        tcase_add_checked_fixture(c, begin, done);
        tcase_set_timeout(c, 60);
        tcase_add_test(c, writes_and_cuts);
        tcase_add_test(c, append_is_resolved_here);
        tcase_add_test(c, the_same_bytes_again);
        tcase_add_test(c, suid_goes);
        tcase_add_test(c, wrong_inodes);
        tcase_add_test(c, largest_file);
        tcase_add_test(c, compressed);
        tcase_add_test(c, readers_keep_their_version);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_content)
