/* What belongs to one node alone: pins, orphans, files without a name, and how they become part of the state. */
#include "helper.h"

static struct fixture f;

static void begin(void) {
        fixture_begin(&f);
}
static void done(void) {
        fixture_done(&f);
}

static struct op write_op(uint64_t ino, const struct extent *x, const char *text) {
        struct op op = op_of(OP_WRITE);
        op.write.ino = ino;
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        op.write.extents = x;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.raw_len = x->length, .data = (const uint8_t *)text, .len = x->length};
        return op;
}

START_TEST(an_open_file_outlives_its_name) {
        uint64_t file = make(&f, INO_ROOT, "f", S_IFREG | 0644);
        struct op_result result;
        struct extent x = {0, 3, EXTENT_DATA};
        ck_assert_int_eq(do_replace(&f, file, "old", 3), 0);
        ck_assert_int_eq(tree_pin(f.t, file), 0);
        ck_assert_int_eq(tree_pin(f.t, file), 0);
        ck_assert_int_eq(tree_pin(f.t, 99), -ENOENT);
        ck_assert(!tree_is_orphan(f.t, file));
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "f"), 0);
        ck_assert(tree_is_orphan(f.t, file));
        struct attr a = attr_of(&f, file);
        ck_assert_uint_eq(a.nlink, 0);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        assert_content(&f, file, "old", 3);
        struct hash128 before = tree_digest(f.t);
        struct tree_usage u, v;
        tree_usage(f.t, &u);
        ck_assert_uint_eq(u.inodes, 1);
        ck_assert_uint_eq(u.bytes, 256);
        ck_assert_int_eq(do_write(&f, file, 0, "new", 3), -ENOENT); /* to the state it is gone */
        ck_assert_int_eq(do_link(&f, file, INO_ROOT, "again"), -ENOENT);
        struct op op = write_op(file, &x, "new");
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, 0);
        ck_assert_uint_eq(result.ino, file);
        assert_content(&f, file, "new", 3);
        op = op_of(OP_SETATTR);
        op.setattr.ino = file;
        op.setattr.mask = SETATTR_MODE;
        op.setattr.mode = 0600;
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_uint_eq(attr_of(&f, file).mode, S_IFREG | 0600);
        op = op_of(OP_SETXATTR);
        op.setxattr.ino = file;
        op.setxattr.name = name_of("user.a");
        op.setxattr.value = (const uint8_t *)"1";
        op.setxattr.len = 1;
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, 0);
        op.kind = OP_UNLINK;
        op.unlink.parent = INO_ROOT;
        op.unlink.name = name_of("x");
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, -EINVAL);
        ck_assert(hash128_equal(before, tree_digest(f.t)));
        tree_usage(f.t, &v);
        ck_assert_uint_eq(u.bytes, v.bytes);
        char path[10];
        ck_assert_int_eq(tree_path(f.t, file, path, sizeof(path)), -ENOENT);
        tree_unpin(f.t, file);
        ck_assert(tree_is_orphan(f.t, file));
        tree_unpin(f.t, file);
        ck_assert_int_eq(tree_getattr(f.t, file, &a), -ENOENT);
        char fault[100];
        ck_assert_int_eq(tree_check(f.t, fault, sizeof(fault)), 0);
}
END_TEST

/* Each inode that goes is pinned once; the one that is in use as well needs both to let go. */
START_TEST(removed_inodes_are_kept_until_let_go) {
        uint64_t file = make(&f, INO_ROOT, "f", S_IFREG | 0644), used = make(&f, INO_ROOT, "g", S_IFREG | 0644);
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755);
        tree_keep_removed(f.t);
        ck_assert_int_eq(tree_pin(f.t, used), 0);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "f", INO_ROOT, "g", 0), 0);
        ck_assert_int_eq(do_rmdir(&f, INO_ROOT, "d"), 0);
        ck_assert_uint_eq(attr_of(&f, dir).nlink, 0);
        ck_assert(tree_is_orphan(f.t, used));
        ck_assert(!tree_is_orphan(f.t, file));
        tree_unpin(f.t, dir);
        ck_assert(!tree_is_orphan(f.t, dir));
        tree_unpin(f.t, used);
        ck_assert(tree_is_orphan(f.t, used));
        tree_unpin(f.t, used);
        ck_assert(!tree_is_orphan(f.t, used));
        char fault[200];
        ck_assert_msg(tree_check(f.t, fault, sizeof(fault)) == 0, "%s", fault);
}
END_TEST

START_TEST(apply_orphan_is_for_orphans) {
        uint64_t file = make(&f, INO_ROOT, "f", S_IFREG | 0644);
        struct extent x = {0, 3, EXTENT_DATA};
        struct op_result result;
        struct op op = write_op(file, &x, "new");
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, -ENOENT);
        op.write.ino = 99;
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, -ENOENT);
        ck_assert_int_eq(do_setting(&f, "file_size_max", "2"), 0);
        ck_assert_int_eq(tree_pin(f.t, file), 0);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "f"), 0);
        op.write.ino = file;
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        ck_assert_int_eq(result.error, -EFBIG);
        tree_unpin(f.t, file);
}
END_TEST

static bool no_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        (void)ctx;
        (void)cookie;
        (void)name;
        (void)len;
        (void)ino;
        (void)mode;
        ck_abort_msg("an entry");
        return true;
}

START_TEST(a_removed_working_directory) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755), ino = 0;
        ck_assert_int_eq(tree_pin(f.t, dir), 0);
        ck_assert_int_eq(do_rmdir(&f, INO_ROOT, "d"), 0);
        ck_assert_uint_eq(attr_of(&f, dir).nlink, 0);
        ck_assert_int_eq(tree_lookup(f.t, dir, "x", 1, &ino), -ENOENT);
        ck_assert_int_eq(tree_lookup(f.t, dir, "..", 2, &ino), -ENOENT);
        ck_assert_int_eq(tree_readdir(f.t, dir, 0, no_entry, NULL), -ENOENT);
        ck_assert_int_eq(do_create(&f, dir, "x", S_IFREG), -ENOENT);
        ck_assert_int_eq(do_rename(&f, dir, "x", INO_ROOT, "y", 0), -ENOENT);
        tree_unpin(f.t, dir);
}
END_TEST

START_TEST(a_pin_alone_changes_nothing) {
        uint64_t file = make(&f, INO_ROOT, "f", S_IFREG | 0644);
        struct hash128 before = tree_digest(f.t);
        ck_assert_int_eq(tree_pin(f.t, file), 0);
        ck_assert(hash128_equal(before, tree_digest(f.t)));
        tree_unpin(f.t, file);
        ck_assert_uint_eq(attr_of(&f, file).nlink, 1);
        ck_assert_int_eq(tree_pin(f.t, file), 0); /* freed with the tree, as orphans are */
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "f"), 0);
}
END_TEST

static struct op adopt_op(uint64_t ino, const char *name, const char *text) {
        struct op op = op_of(OP_ADOPT);
        op.adopt.ino = ino;
        op.adopt.parent = INO_ROOT;
        op.adopt.name = name_of(name);
        op.adopt.attr = (struct attr){.ino = ino,
                                      .mode = S_IFREG | 0640,
                                      .uid = 1,
                                      .gid = 2,
                                      .atime = {1, 1},
                                      .mtime = {2, 2},
                                      .ctime = {3, 3},
                                      .size = strlen(text)};
        op.payload = (struct op_payload){.raw_len = strlen(text), .data = (const uint8_t *)text, .len = strlen(text)};
        return op;
}

static uint64_t reserve(void) {
        struct op op = op_of(OP_RESERVE_INO);
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        return f.result.ino;
}

START_TEST(a_nameless_file_gets_a_name) {
        uint64_t ino = reserve(), next = reserve();
        static const uint8_t xattrs[] = "\6user.a\1x";
        struct attr attr = {.ino = ino, .mode = S_IFREG | 0600, .atime = {9, 9}};
        ck_assert_uint_eq(ino, 2);
        ck_assert_uint_eq(next, 3);
        ck_assert_int_eq(tree_orphan_new(f.t, &attr), 0);
        ck_assert_int_eq(tree_orphan_new(f.t, &attr), -EEXIST);
        ck_assert(tree_is_orphan(f.t, ino));
        struct extent x = {0, 5, EXTENT_DATA};
        struct op_result result;
        struct op op = write_op(ino, &x, "local");
        ck_assert_int_eq(tree_apply_orphan(f.t, &op, &result), 0);
        op = adopt_op(ino, "named", "final");
        op.adopt.xattrs = xattrs;
        op.adopt.xattrs_len = sizeof(xattrs) - 1;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.result.ino, ino);
        ck_assert(!tree_is_orphan(f.t, ino));
        ck_assert_int_eq(f.changes.items[0].kind, CHANGE_INODE_NEW);
        assert_content(&f, ino, "final", 5);
        struct attr a = attr_of(&f, ino);
        ck_assert_uint_eq(a.nlink, 1);
        ck_assert_uint_eq(a.mode, S_IFREG | 0640);
        ck_assert_uint_eq(a.uid, 1);
        ck_assert_int_eq(a.mtime.sec, 2);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        struct hash128 digest = tree_digest(f.t);
        tree_unpin(f.t, ino);
        ck_assert(hash128_equal(digest, tree_digest(f.t)));
        ck_assert_int_eq(run(&f, &op), -EEXIST);
        op.adopt.ino = next;
        ck_assert_int_eq(run(&f, &op), -EEXIST);
        op.adopt.name = name_of("other");
        op.adopt.ino = 77;
        ck_assert_int_eq(run(&f, &op), -EINVAL); /* never reserved */
        op.adopt.ino = INO_ROOT;
        ck_assert_int_eq(run(&f, &op), -EINVAL);
        op.adopt.ino = next;
        op.adopt.xattrs_len = 4;
        ck_assert_int_eq(run(&f, &op), -EINVAL); /* damaged attributes */
        op.adopt.xattrs_len = 0;
        op.adopt.attr.mode = S_IFDIR;
        ck_assert_int_eq(run(&f, &op), -EINVAL);
        op.adopt.attr.mode = S_IFREG;
        op.adopt.parent = 99;
        ck_assert_int_eq(run(&f, &op), -ENOENT);
        op.adopt.parent = INO_ROOT;
        ck_assert_int_eq(do_setting(&f, "file_size_max", "4"), 0);
        ck_assert_int_eq(run(&f, &op), -EFBIG);
        ck_assert_int_eq(do_setting(&f, "file_size_max", ""), 0);
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "other"), 0);
        ck_assert_int_eq(run(&f, &op), 0); /* a retry after it was removed: nobody else has the number */
}
END_TEST

/* A number that was a directory's, which is still somebody's working directory: no node but this one knows, so it must not matter. */
START_TEST(adopting_over_an_orphan_of_another_kind) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755);
        ck_assert_int_eq(tree_pin(f.t, dir), 0);
        ck_assert_int_eq(do_rmdir(&f, INO_ROOT, "d"), 0);
        ck_assert(tree_is_orphan(f.t, dir));
        struct op op = adopt_op(dir, "file", "text");
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert(!tree_is_orphan(f.t, dir));
        assert_content(&f, dir, "text", 4);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "file"), 0);
        assert_content(&f, dir, "text", 4);
        tree_unpin(f.t, dir);
}
END_TEST

START_TEST(nameless_files_that_cannot_be) {
        struct attr attr = {.ino = 2, .mode = S_IFREG | 0600};
        ck_assert_int_eq(tree_orphan_new(f.t, &attr), -EINVAL); /* not reserved */
        attr.ino = reserve();
        attr.mode = S_IFDIR;
        ck_assert_int_eq(tree_orphan_new(f.t, &attr), -EINVAL);
}
END_TEST

static Suite *suite_tree_local(void) {
        Suite *s = suite_create("local");
        TCase *c = tcase_create("local");
        tcase_add_checked_fixture(c, begin, done);
        tcase_add_test(c, an_open_file_outlives_its_name);
        tcase_add_test(c, removed_inodes_are_kept_until_let_go);
        tcase_add_test(c, apply_orphan_is_for_orphans);
        tcase_add_test(c, a_removed_working_directory);
        tcase_add_test(c, a_pin_alone_changes_nothing);
        tcase_add_test(c, a_nameless_file_gets_a_name);
        tcase_add_test(c, adopting_over_an_orphan_of_another_kind);
        tcase_add_test(c, nameless_files_that_cannot_be);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_local)
