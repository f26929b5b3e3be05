/* Restoring: what is right comes back alike, what is wrong is named. */
#include "helper.h"

static struct tree *t;
static char fault[200];

static void begin(void) {
        t = tree_restore_begin();
        fault[0] = '\0';
}
static void done(void) {
        tree_free(t);
}

static struct tree_inode_state dir_state(uint64_t ino, uint32_t nlink, uint64_t next_cookie) {
        return (struct tree_inode_state){.attr = {.ino = ino, .mode = S_IFDIR | 0755, .nlink = nlink}, .next_cookie = next_cookie};
}
static errint_t put(struct tree_inode_state s) {
        return tree_restore_inode(t, &s, NULL, 0);
}
static errint_t put_file(uint64_t ino, uint32_t nlink) {
        return put((struct tree_inode_state){.attr = {.ino = ino, .mode = S_IFREG | 0644, .nlink = nlink}});
}
static errint_t entry(uint64_t parent, const char *name, uint64_t ino, uint64_t cookie) {
        return tree_restore_entry(t, parent, name, strlen(name), ino, cookie);
}
static void ends_well(uint64_t next_ino) {
        errint_t r = tree_restore_end(t, next_ino, fault, sizeof(fault));
        ck_assert_msg(r == 0, "%s", fault);
}
static void ends_with(uint64_t next_ino, const char *words) {
        ck_assert_int_eq(tree_restore_end(t, next_ino, fault, sizeof(fault)), -EBADMSG);
        ck_assert_msg(strstr(fault, words) != NULL, "fault is \"%s\"", fault);
}

START_TEST(any_order) {
        ck_assert_int_eq(entry(3, "child", 4, 3), 0);
        ck_assert_int_eq(entry(1, "b", 3, 9), 0);
        ck_assert_int_eq(entry(1, "a", 4, 5), 0);
        ck_assert_int_eq(put_file(4, 2), 0);
        ck_assert_int_eq(put(dir_state(3, 2, 4)), 0);
        ck_assert_int_eq(put(dir_state(1, 3, 20)), 0);
        ck_assert_int_eq(tree_restore_setting(t, "file_size_max", 13, "77", 2), 0);
        ends_well(10);
        ck_assert(hash128_equal(tree_digest(t), tree_digest_recompute(t)));
        ck_assert_uint_eq(tree_settings(t)->file_size_max, 77);
        struct tree_usage u;
        tree_usage(t, &u);
        ck_assert_uint_eq(u.next_ino, 10);
        ck_assert_uint_eq(u.bytes, 3 * 256 + 7);
}
END_TEST

START_TEST(an_empty_tree) {
        struct tree *fresh = tree_new();
        ck_assert_int_eq(put(dir_state(1, 2, 3)), 0);
        ends_well(2);
        ck_assert(hash128_equal(tree_digest(t), tree_digest(fresh)));
        tree_free(fresh);
}
END_TEST

START_TEST(bad_inodes) {
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        ck_assert_int_eq(blob_from_bytes("x", 1, &b), 0);
        struct tree_inode_state s = {.attr = {.ino = 2, .mode = S_IFREG | 0644, .nlink = 1}};
        ck_assert_int_eq(put(s), 0);
        ck_assert_int_eq(put(s), -EEXIST);
        s.attr.ino = 0;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.ino = INO_RESERVED;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.ino = 3;
        s.attr.nlink = 0;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.nlink = 1;
        s.attr.mode = 0644;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.mode = S_IFREG | 0200644;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.mode = S_IFREG;
        s.attr.mtime.nsec = 1000000000;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.mtime.nsec = 0;
        s.attr.size = 2;
        s.content = b;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.size = 1;
        s.attr.mode = S_IFIFO;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.mode = S_IFREG;
        s.attr.rdev = 1;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.attr.rdev = 0;
        s.next_cookie = 3;
        ck_assert_int_eq(put(s), -EBADMSG);
        s.next_cookie = 0;
        ck_assert_int_eq(tree_restore_inode(t, &s, (const uint8_t *)"\1b\0\1a\0", 6), -EBADMSG); /* not sorted */
        ck_assert_int_eq(tree_restore_inode(t, &s, (const uint8_t *)"\1a\0\1a\0", 6), -EBADMSG); /* twice */
        ck_assert_int_eq(tree_restore_inode(t, &s, (const uint8_t *)"\1a\0\1", 4), -EBADMSG);    /* cut */
        ck_assert_int_eq(tree_restore_inode(t, &s, (const uint8_t *)"\0\0", 2), -EBADMSG);       /* no name */
        ck_assert_int_eq(tree_restore_inode(t, &s, (const uint8_t *)"\1a\0\1b\0", 6), 0);
        ck_assert_int_eq(put((struct tree_inode_state){.attr = {.ino = 5, .mode = S_IFLNK | 0777, .nlink = 1}}), -EBADMSG); /* no target */
        ck_assert_int_eq(put(dir_state(5, 2, 2)), -EBADMSG);
}
END_TEST

START_TEST(bad_entries) {
        ck_assert_int_eq(put(dir_state(1, 2, 100)), 0);
        ck_assert_int_eq(put_file(2, 1), 0);
        ck_assert_int_eq(entry(1, "a", 2, 3), 0);
        ck_assert_int_eq(entry(1, "a", 2, 4), -EEXIST);
        ck_assert_int_eq(entry(1, "a/b", 2, 4), -EBADMSG);
        ck_assert_int_eq(entry(1, "..", 2, 4), -EBADMSG);
        ck_assert_int_eq(entry(1, "b", 2, 2), -EBADMSG);
        ck_assert_int_eq(entry(1, "b", 0, 4), -EBADMSG);
        ck_assert_int_eq(entry(1, "b", 1, 4), -EBADMSG); /* the root has no name */
        ck_assert_int_eq(entry(2, "b", 2, 4), -EBADMSG); /* not a directory */
        ck_assert_int_eq(entry(7, "x", 8, 3), 0);
        ck_assert_int_eq(put_file(7, 1), -EBADMSG); /* it has entries */
        ck_assert_int_eq(tree_restore_setting(t, "file_size_max", 13, "-", 1), -EBADMSG);
}
END_TEST

START_TEST(no_root) {
        ck_assert_int_eq(put_file(2, 1), 0);
        ends_with(10, "no root");
}
END_TEST

START_TEST(root_is_a_file) {
        ck_assert_int_eq(put_file(1, 1), 0);
        ends_with(10, "no root directory");
}
END_TEST

START_TEST(missing_inode) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(entry(1, "a", 7, 3), 0);
        ends_with(10, "inode 7, which does not exist");
}
END_TEST

START_TEST(missing_directory) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(7, 1), 0);
        ck_assert_int_eq(entry(8, "a", 7, 3), 0);
        ends_with(10, "inode 8, which does not exist");
}
END_TEST

START_TEST(no_name) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(7, 1), 0);
        ends_with(10, "inode 7 has no name");
}
END_TEST

START_TEST(wrong_nlink) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(7, 2), 0);
        ck_assert_int_eq(entry(1, "a", 7, 3), 0);
        ends_with(10, "inode 7 has 1 names but nlink 2");
}
END_TEST

START_TEST(wrong_dir_nlink) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put(dir_state(7, 2, 3)), 0);
        ck_assert_int_eq(entry(1, "a", 7, 3), 0);
        ends_with(10, "directory 1 has 1 subdirectories but nlink 2");
}
END_TEST

START_TEST(directory_with_two_names) {
        ck_assert_int_eq(put(dir_state(1, 4, 10)), 0);
        ck_assert_int_eq(put(dir_state(7, 2, 3)), 0);
        ck_assert_int_eq(entry(1, "a", 7, 3), 0);
        ck_assert_int_eq(entry(1, "b", 7, 4), 0);
        ends_with(10, "directory 7 has 2 names");
}
END_TEST

START_TEST(ring) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put(dir_state(7, 3, 4)), 0);
        ck_assert_int_eq(put(dir_state(8, 3, 4)), 0);
        ck_assert_int_eq(entry(7, "a", 8, 3), 0);
        ck_assert_int_eq(entry(8, "b", 7, 3), 0);
        ends_with(10, "2 directories cannot be reached");
}
END_TEST

START_TEST(same_cookie) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(7, 2), 0);
        ck_assert_int_eq(entry(1, "a", 7, 3), 0);
        ck_assert_int_eq(entry(1, "b", 7, 3), 0);
        ends_with(10, "two entries with one cookie");
}
END_TEST

START_TEST(cookie_not_given_yet) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(7, 1), 0);
        ck_assert_int_eq(entry(1, "a", 7, 10), 0);
        ends_with(10, "cookie 10 is out of order");
}
END_TEST

START_TEST(number_not_given_yet) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ck_assert_int_eq(put_file(10, 1), 0);
        ck_assert_int_eq(entry(1, "a", 10, 3), 0);
        ends_with(10, "inode 10 is not below the next number");
}
END_TEST

START_TEST(next_number_out_of_range) {
        ck_assert_int_eq(put(dir_state(1, 2, 10)), 0);
        ends_with(1, "out of range");
}
END_TEST

/* Each field, changed alone, gives another digest: a device, a file and a directory, `n` tells what is changed. */
static struct hash128 digest_of(int n) {
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        struct tree_inode_state root = dir_state(1, 3, n == 1 ? 21 : 20), dir = dir_state(4, 2, 3);
        struct tree_inode_state dev = {.attr = {.ino = 2, .mode = n == 2 ? S_IFBLK : S_IFCHR, .nlink = 1, .rdev = n == 3 ? 8 : 7}};
        struct tree_inode_state file = {.attr = {.ino = n == 4 ? 5 : 3, .mode = S_IFREG | (n == 5 ? 0600 : 0644), .nlink = 1}};
        ck_assert_int_eq(blob_from_bytes(n == 6 ? "X" : n == 7 ? "x\0" : "x", n == 7 ? 2 : 1, &b), 0);
        file.content = b;
        file.attr.size = blob_size(b);
        file.attr.uid = n == 8;
        file.attr.gid = n == 9;
        file.attr.atime.sec = n == 10;
        file.attr.atime.nsec = n == 11;
        file.attr.mtime.sec = n == 12;
        file.attr.mtime.nsec = n == 13;
        file.attr.ctime.sec = n == 14;
        file.attr.ctime.nsec = n == 15;
        tree_free(t);
        t = tree_restore_begin();
        ck_assert_int_eq(put(root), 0);
        ck_assert_int_eq(put(dir), 0);
        ck_assert_int_eq(put(dev), 0);
        ck_assert_int_eq(tree_restore_inode(t, &file,
                                            (const uint8_t *)(n == 16   ? "\1a\1y"
                                                              : n == 17 ? "\1b\1x"
                                                                        : "\1a\1x"),
                                            n == 18 ? 0 : 4),
                         0);
        ck_assert_int_eq(entry(1, "dir", 4, 3), 0);
        ck_assert_int_eq(entry(1, "dev", 2, 4), 0);
        ck_assert_int_eq(entry(n == 19 ? 4 : 1, n == 20 ? "fil" : "file", file.attr.ino, n == 21 ? 6 : 5), 0);
        if (n == 22)
                ck_assert_int_eq(tree_restore_setting(t, "inodes_max", 10, "99", 2), 0);
        if (n == 23)
                ck_assert_int_eq(tree_restore_setting(t, "tree_size_max", 13, "2G", 2), 0);
        (void)tree_restore_end(t, n == 24 ? 101 : 100, fault, sizeof(fault)); /* 19 does not fit: its digest counts all the same */
        return tree_digest_recompute(t);
}
START_TEST(digest_covers_all) {
        enum { N = 25 };
        struct hash128 h[N];
        for (int i = 0; i < N; i++) {
                h[i] = digest_of(i);
                for (int j = 0; j < i; j++)
                        ck_assert_msg(!hash128_equal(h[i], h[j]), "%d and %d have the same digest", i, j);
        }
        ck_assert(hash128_equal(h[0], digest_of(0)));
}
END_TEST

static Suite *suite_tree_restore(void) {
        Suite *s = suite_create("restore");
        TCase *c = tcase_create("restore");
        tcase_add_checked_fixture(c, begin, done);
        tcase_add_test(c, any_order);
        tcase_add_test(c, an_empty_tree);
        tcase_add_test(c, bad_inodes);
        tcase_add_test(c, bad_entries);
        tcase_add_test(c, no_root);
        tcase_add_test(c, root_is_a_file);
        tcase_add_test(c, missing_inode);
        tcase_add_test(c, missing_directory);
        tcase_add_test(c, no_name);
        tcase_add_test(c, wrong_nlink);
        tcase_add_test(c, wrong_dir_nlink);
        tcase_add_test(c, directory_with_two_names);
        tcase_add_test(c, ring);
        tcase_add_test(c, same_cookie);
        tcase_add_test(c, cookie_not_given_yet);
        tcase_add_test(c, number_not_given_yet);
        tcase_add_test(c, next_number_out_of_range);
        tcase_add_test(c, digest_covers_all);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_restore)
