/* rename(2) and renameat2(2). Before the tests that follow: /d (2), /d/s (3), /d/s/f (4), /e (5), /e/g (6), /h (7) = /e/h2 (7). */
#include "helper.h"

static struct fixture f;
enum { D = 2, S, F, E, G, H };

static void begin(void) {
        fixture_begin(&f);
        (void)make(&f, INO_ROOT, "d", S_IFDIR | 0755);
        (void)make(&f, D, "s", S_IFDIR | 0755);
        (void)make(&f, S, "f", S_IFREG | 0644);
        (void)make(&f, INO_ROOT, "e", S_IFDIR | 0755);
        (void)make(&f, E, "g", S_IFREG | 0644);
        (void)make(&f, INO_ROOT, "h", S_IFREG | 0644);
        ck_assert_int_eq(do_link(&f, H, E, "h2"), 0);
}
static void done(void) {
        fixture_done(&f);
}

static void assert_now(struct timestamp t) {
        ck_assert_int_eq(timestamp_cmp(t, f.now), 0);
}

START_TEST(a_file_moves) {
        struct timestamp mtime = attr_of(&f, G).mtime;
        ck_assert_int_eq(do_rename(&f, E, "g", S, "new", 0), 0);
        ck_assert_uint_eq(f.result.ino, G);
        ck_assert_uint_eq(look(&f, E, "g"), 0);
        ck_assert_uint_eq(look(&f, S, "new"), G);
        assert_now(attr_of(&f, E).mtime);
        assert_now(attr_of(&f, E).ctime);
        assert_now(attr_of(&f, S).mtime);
        assert_now(attr_of(&f, S).ctime);
        assert_now(attr_of(&f, G).ctime);
        ck_assert_int_eq(timestamp_cmp(attr_of(&f, G).mtime, mtime), 0);
        ck_assert(timestamp_cmp(attr_of(&f, D).mtime, f.now) != 0);
        ck_assert_int_eq(f.changes.items[0].kind, CHANGE_ENTRY_DEL);
        ck_assert_int_eq(f.changes.items[1].kind, CHANGE_ENTRY_ADD);
        ck_assert_str_eq(f.changes.items[1].name, "new");
        char path[30];
        ck_assert_int_eq(tree_path(f.t, G, path, sizeof(path)), 0);
        ck_assert_str_eq(path, "/d/s/new");
}
END_TEST

START_TEST(a_directory_moves) {
        ck_assert_int_eq(do_rename(&f, D, "s", E, "t", 0), 0);
        ck_assert_uint_eq(attr_of(&f, D).nlink, 2);
        ck_assert_uint_eq(attr_of(&f, E).nlink, 3);
        ck_assert_uint_eq(look(&f, S, ".."), E);
        ck_assert_uint_eq(look(&f, S, "f"), F);
        ck_assert(change_find(&f, CHANGE_ENTRY_ADD, S)->is_dir);
        ck_assert_int_eq(do_rename(&f, E, "t", E, "u", 0), 0);
        ck_assert_uint_eq(attr_of(&f, E).nlink, 3);
}
END_TEST

START_TEST(loops) {
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", D, "x", 0), -EINVAL);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", S, "x", 0), -EINVAL);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", S, "f", 0), -EINVAL);
        ck_assert_int_eq(do_rename(&f, S, "f", INO_ROOT, "d", 0), -ENOTEMPTY);
        ck_assert_int_eq(do_rename(&f, D, "s", INO_ROOT, "d", 0), -ENOTEMPTY);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", S, "f", RENAME_EXCHANGE), -EINVAL);
        ck_assert_int_eq(do_rename(&f, S, "f", INO_ROOT, "d", RENAME_EXCHANGE), -EINVAL);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", INO_ROOT, "d", 0), 0);
        ck_assert_uint_eq(f.changes.n, 0);
}
END_TEST

START_TEST(refusals) {
        ck_assert_int_eq(do_rename(&f, E, "none", E, "x", 0), -ENOENT);
        ck_assert_int_eq(do_rename(&f, 99, "g", E, "x", 0), -ENOENT);
        ck_assert_int_eq(do_rename(&f, E, "g", 99, "x", 0), -ENOENT);
        ck_assert_int_eq(do_rename(&f, G, "g", E, "x", 0), -ENOTDIR);
        ck_assert_int_eq(do_rename(&f, E, "g", G, "x", 0), -ENOTDIR);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "h", INO_ROOT, "d", 0), -EISDIR);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", INO_ROOT, "h", 0), -ENOTDIR);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", INO_ROOT, "e", 0), -ENOTEMPTY);
        ck_assert_int_eq(do_rename(&f, E, "g", INO_ROOT, "h", RENAME_NOREPLACE), -EEXIST);
        ck_assert_int_eq(do_rename(&f, E, "g", E, "g", RENAME_NOREPLACE), -EEXIST);
        ck_assert_int_eq(do_rename(&f, E, "g", E, "none", RENAME_EXCHANGE), -ENOENT);
        ck_assert_int_eq(do_rename(&f, E, "g", E, "x", RENAME_WHITEOUT | RENAME_EXCHANGE), -EINVAL);
        ck_assert_int_eq(do_rename(&f, E, "g", E, "x", 8), -EINVAL);
        ck_assert_int_eq(do_rename(&f, E, "g", INO_ROOT, "h", RENAME_NOREPLACE | RENAME_EXCHANGE), -EINVAL);
        ck_assert_int_eq(do_rename(&f, E, "g", E, "x", RENAME_NOREPLACE), 0);
}
END_TEST

START_TEST(replaces_a_file) {
        uint64_t old_ino = 0, cookie = 0, new_ino = 0, new_cookie = 0;
        ck_assert_int_eq(tree_entry_cookie(f.t, S, "f", 1, &old_ino, &cookie), 0);
        ck_assert_int_eq(do_rename(&f, E, "g", S, "f", 0), 0);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_INODE_GONE, F));
        ck_assert_int_eq(f.changes.items[0].kind, CHANGE_ENTRY_DEL);
        ck_assert_uint_eq(f.changes.items[0].ino, F);
        ck_assert_int_eq(tree_entry_cookie(f.t, S, "f", 1, &new_ino, &new_cookie), 0);
        ck_assert_uint_eq(new_ino, G);
        ck_assert_uint_eq(new_cookie, cookie); /* the name never left the directory */
        /* One of two names goes: the inode stays. */
        ck_assert_int_eq(do_rename(&f, S, "f", E, "h2", 0), 0);
        ck_assert_uint_eq(attr_of(&f, H).nlink, 1);
        assert_now(attr_of(&f, H).ctime);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_ATTR, H));
        ck_assert_ptr_null(change_find(&f, CHANGE_INODE_GONE, H));
}
END_TEST

START_TEST(replaces_an_empty_directory) {
        uint64_t empty = make(&f, INO_ROOT, "x", S_IFDIR | 0755);
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 5);
        ck_assert_int_eq(do_rename(&f, D, "s", INO_ROOT, "x", 0), 0);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_INODE_GONE, empty));
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 5);
        ck_assert_uint_eq(attr_of(&f, D).nlink, 2);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "x", INO_ROOT, "d", 0), 0);
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 4);
        ck_assert_uint_eq(look(&f, INO_ROOT, "d"), S);
}
END_TEST

START_TEST(two_names_of_one_inode) {
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "h", E, "h2", 0), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "h", E, "h2", RENAME_EXCHANGE), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "h", E, "h2", RENAME_NOREPLACE), -EEXIST);
        ck_assert_uint_eq(look(&f, INO_ROOT, "h"), H);
        ck_assert_uint_eq(attr_of(&f, H).nlink, 2);
}
END_TEST

START_TEST(exchange) {
        ck_assert_int_eq(do_rename(&f, D, "s", E, "g", RENAME_EXCHANGE), 0);
        ck_assert_uint_eq(look(&f, D, "s"), G);
        ck_assert_uint_eq(look(&f, E, "g"), S);
        ck_assert_uint_eq(look(&f, S, ".."), E);
        ck_assert_uint_eq(attr_of(&f, D).nlink, 2);
        ck_assert_uint_eq(attr_of(&f, E).nlink, 3);
        assert_now(attr_of(&f, S).ctime);
        assert_now(attr_of(&f, G).ctime);
        assert_now(attr_of(&f, D).mtime);
        assert_now(attr_of(&f, E).mtime);
        ck_assert_int_eq(do_rename(&f, D, "s", E, "g", RENAME_EXCHANGE), 0); /* and back */
        ck_assert_uint_eq(attr_of(&f, D).nlink, 3);
        ck_assert_uint_eq(attr_of(&f, E).nlink, 2);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", INO_ROOT, "e", RENAME_EXCHANGE), 0);
        ck_assert_uint_eq(look(&f, INO_ROOT, "e"), D);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "d", INO_ROOT, "h", RENAME_EXCHANGE), 0);
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 4);
}
END_TEST

START_TEST(whiteout) {
        ck_assert_int_eq(do_rename(&f, E, "g", INO_ROOT, "h", RENAME_WHITEOUT | RENAME_NOREPLACE), -EEXIST);
        ck_assert_int_eq(do_rename(&f, E, "g", INO_ROOT, "h", RENAME_WHITEOUT), 0);
        ck_assert_uint_eq(f.result.ino, G);
        ck_assert_uint_eq(look(&f, INO_ROOT, "h"), G);
        struct attr a = attr_of(&f, look(&f, E, "g"));
        ck_assert_uint_eq(a.mode, S_IFCHR);
        ck_assert_uint_eq(a.rdev, 0);
        ck_assert_uint_eq(a.nlink, 1);
        assert_now(a.mtime);
}
END_TEST

static Suite *suite_tree_rename(void) {
        Suite *s = suite_create("rename");
        TCase *c = tcase_create("rename");
        tcase_add_checked_fixture(c, begin, done);
        tcase_add_test(c, a_file_moves);
        tcase_add_test(c, a_directory_moves);
        tcase_add_test(c, loops);
        tcase_add_test(c, refusals);
        tcase_add_test(c, replaces_a_file);
        tcase_add_test(c, replaces_an_empty_directory);
        tcase_add_test(c, two_names_of_one_inode);
        tcase_add_test(c, exchange);
        tcase_add_test(c, whiteout);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_rename)
