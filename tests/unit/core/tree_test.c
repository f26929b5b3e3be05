/* Names: create, link, unlink, rmdir, lookup, readdir, path; errnos and times as Linux gives them. */
#include "helper.h"

static struct fixture f;

static void begin(void) {
        fixture_begin(&f);
}
static void done(void) {
        fixture_done(&f);
}

START_TEST(empty_tree) {
        struct attr a = attr_of(&f, INO_ROOT);
        struct tree_usage u;
        char fault[100], path[10];
        ck_assert_uint_eq(a.mode, S_IFDIR | 0755);
        ck_assert_uint_eq(a.nlink, 2);
        ck_assert_uint_eq(a.uid + a.gid + a.size, 0);
        ck_assert_int_eq(a.mtime.sec, 0);
        tree_usage(f.t, &u);
        ck_assert_uint_eq(u.inodes, 1);
        ck_assert_uint_eq(u.bytes, 256);
        ck_assert_uint_eq(u.next_ino, 2);
        ck_assert_int_eq(tree_check(f.t, fault, sizeof(fault)), 0);
        ck_assert_int_eq(tree_path(f.t, INO_ROOT, path, sizeof(path)), 0);
        ck_assert_str_eq(path, "/");
        ck_assert_int_eq(tree_path(f.t, INO_ROOT, path, 1), -ENAMETOOLONG);
        ck_assert_int_eq(tree_getattr(f.t, 2, &a), -ENOENT);
}
END_TEST

START_TEST(create_sets_everything) {
        struct op op = op_of(OP_CREATE);
        op.create.parent = INO_ROOT;
        op.create.name = name_of("file");
        op.create.mode = S_IFREG | 02640;
        op.create.uid = 5;
        op.create.gid = 6;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.result.ino, 2);
        struct attr a = attr_of(&f, 2), root = attr_of(&f, INO_ROOT);
        ck_assert_uint_eq(a.mode, S_IFREG | 02640);
        ck_assert_uint_eq(a.uid, 5);
        ck_assert_uint_eq(a.gid, 6);
        ck_assert_uint_eq(a.nlink, 1);
        ck_assert_uint_eq(a.change_seq, f.seq);
        ck_assert_uint_eq(a.content_seq, f.seq);
        ck_assert_int_eq(timestamp_cmp(a.atime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(a.mtime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(root.mtime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(root.ctime, f.now), 0);
        ck_assert_int_eq(root.atime.sec, 0);
        ck_assert_uint_eq(root.nlink, 2);
        ck_assert_uint_eq(f.changes.n, 3);
        ck_assert_int_eq(f.changes.items[0].kind, CHANGE_INODE_NEW);
        ck_assert_int_eq(f.changes.items[1].kind, CHANGE_ENTRY_ADD);
        ck_assert_uint_eq(f.changes.items[1].parent, INO_ROOT);
        ck_assert_str_eq(f.changes.items[1].name, "file");
        ck_assert_int_eq(f.changes.items[2].kind, CHANGE_ATTR);
        ck_assert_uint_eq(f.changes.items[2].ino, INO_ROOT);
}
END_TEST

START_TEST(create_errors) {
        uint64_t file = make(&f, INO_ROOT, "file", S_IFREG | 0644);
        char name[LIMIT_NAME + 2];
        memset(name, 'n', sizeof(name));
        name[LIMIT_NAME + 1] = '\0';
        ck_assert_int_eq(do_create(&f, INO_ROOT, "file", S_IFREG), -EEXIST);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "file", S_IFDIR), -EEXIST);
        ck_assert_int_eq(do_create(&f, file, "x", S_IFREG), -ENOTDIR);
        ck_assert_int_eq(do_create(&f, 99, "x", S_IFREG), -ENOENT);
        ck_assert_int_eq(do_create(&f, INO_ROOT, name, S_IFREG), -ENAMETOOLONG);
        name[LIMIT_NAME] = '\0';
        ck_assert_int_eq(do_create(&f, INO_ROOT, name, S_IFREG), 0);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "", S_IFREG), -EINVAL);
        ck_assert_int_eq(do_create(&f, INO_ROOT, ".", S_IFREG), -EINVAL);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "..", S_IFREG), -EINVAL);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "...", S_IFREG), 0);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "a/b", S_IFREG), -EINVAL);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "no type", 0644), -EINVAL);
        ck_assert_int_eq(do_symlink(&f, INO_ROOT, "l", ""), -EINVAL);
        char target[LIMIT_PATH + 1];
        memset(target, 't', sizeof(target));
        target[LIMIT_PATH] = '\0';
        ck_assert_int_eq(do_symlink(&f, INO_ROOT, "l", target), -ENAMETOOLONG);
        target[LIMIT_PATH - 1] = '\0';
        ck_assert_int_eq(do_symlink(&f, INO_ROOT, "l", target), 0);
        assert_content(&f, f.result.ino, target, LIMIT_PATH - 1);
        ck_assert_uint_eq(attr_of(&f, f.result.ino).size, LIMIT_PATH - 1);
}
END_TEST

START_TEST(create_or_open) {
        uint64_t file = make(&f, INO_ROOT, "file", S_IFREG | 0600);
        struct op op = op_of(OP_CREATE);
        op.create.parent = INO_ROOT;
        op.create.name = name_of("file");
        op.create.mode = S_IFREG | 0644;
        op.create.or_open = true;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.result.ino, file);
        ck_assert_uint_eq(f.changes.n, 0);
        op.create.name = name_of("other");
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_ne(f.result.ino, file);
}
END_TEST

START_TEST(create_every_type) {
        static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR};
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
                struct op op = op_of(OP_CREATE);
                char name[2] = {(char)('a' + i), 0};
                op.create.parent = INO_ROOT;
                op.create.name = name_of(name);
                op.create.mode = types[i] | 0600;
                op.create.rdev = 0x12345;
                bool device = types[i] == S_IFBLK || types[i] == S_IFCHR;
                ck_assert_int_eq(run(&f, &op), device ? 0 : -EINVAL);
                op.create.rdev = 0;
                ck_assert_int_eq(run(&f, &op), device ? -EEXIST : 0);
                struct attr a = attr_of(&f, look(&f, INO_ROOT, name));
                ck_assert_uint_eq(a.mode, types[i] | 0600);
                ck_assert_uint_eq(a.rdev, device ? 0x12345 : 0);
        }
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 3);
}
END_TEST

START_TEST(create_inherits_acls) {
        struct op op = op_of(OP_CREATE);
        size_t len = 0;
        const uint8_t *value = NULL;
        op.create.parent = INO_ROOT;
        op.create.name = name_of("d");
        op.create.mode = S_IFDIR | 0750;
        op.create.acl_access.data = (const uint8_t *)"access";
        op.create.acl_access.len = 6;
        op.create.acl_default.data = (const uint8_t *)"default";
        op.create.acl_default.len = 7;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_int_eq(tree_xattr_get(f.t, 2, "system.posix_acl_access", 23, &value, &len), 0);
        ck_assert_uint_eq(len, 6);
        ck_assert_int_eq(tree_xattr_get(f.t, 2, "system.posix_acl_default", 24, &value, &len), 0);
        ck_assert_mem_eq(value, "default", 7);
}
END_TEST

START_TEST(links) {
        uint64_t file = make(&f, INO_ROOT, "a", S_IFREG | 0644), dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755);
        struct timestamp born = attr_of(&f, file).mtime;
        char path[100];
        ck_assert_int_eq(do_link(&f, file, dir, "b"), 0);
        ck_assert_uint_eq(f.result.ino, file);
        struct attr a = attr_of(&f, file);
        ck_assert_uint_eq(a.nlink, 2);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_int_eq(timestamp_cmp(a.mtime, born), 0);
        ck_assert_int_eq(timestamp_cmp(attr_of(&f, dir).mtime, f.now), 0);
        ck_assert_int_eq(do_link(&f, file, dir, "b"), -EEXIST);
        ck_assert_int_eq(do_link(&f, dir, INO_ROOT, "e"), -EPERM);
        ck_assert_int_eq(do_link(&f, dir, INO_ROOT, "a"), -EEXIST);
        ck_assert_int_eq(do_link(&f, 99, INO_ROOT, "e"), -ENOENT);
        ck_assert_int_eq(do_link(&f, file, 99, "e"), -ENOENT);
        ck_assert_int_eq(do_link(&f, file, file, "e"), -ENOTDIR);
        ck_assert_int_eq(tree_path(f.t, file, path, sizeof(path)), 0);
        ck_assert_str_eq(path, "/a");
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "a"), 0);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_ATTR, file));
        ck_assert_ptr_null(change_find(&f, CHANGE_INODE_GONE, file));
        ck_assert_int_eq(tree_path(f.t, file, path, sizeof(path)), 0);
        ck_assert_str_eq(path, "/d/b");
        a = attr_of(&f, file);
        ck_assert_uint_eq(a.nlink, 1);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_int_eq(do_unlink(&f, dir, "b"), 0);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_INODE_GONE, file));
        ck_assert_int_eq(tree_getattr(f.t, file, &a), -ENOENT);
}
END_TEST

START_TEST(too_many_links) {
        uint64_t file = make(&f, INO_ROOT, "file", S_IFREG | 0644);
        char name[20];
        f.light = true;
        for (unsigned i = 1; i < LIMIT_LINKS; i++) {
                (void)snprintf(name, sizeof(name), "%u", i);
                must(do_link(&f, file, INO_ROOT, name) == 0);
        }
        must(do_link(&f, file, INO_ROOT, "one more") == -EMLINK);
        must(attr_of(&f, file).nlink == LIMIT_LINKS);
        for (unsigned i = 1; i < LIMIT_LINKS; i++) {
                (void)snprintf(name, sizeof(name), "%u", i);
                must(do_unlink(&f, INO_ROOT, name) == 0);
        }
        f.light = false;
        must(do_unlink(&f, INO_ROOT, "file") == 0);
}
END_TEST

START_TEST(unlink_and_rmdir) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755), sub = make(&f, dir, "s", S_IFDIR | 0755),
                 file = make(&f, dir, "f", S_IFREG);
        ck_assert_uint_eq(attr_of(&f, INO_ROOT).nlink, 3);
        ck_assert_uint_eq(attr_of(&f, dir).nlink, 3);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "d"), -EISDIR);
        ck_assert_int_eq(do_rmdir(&f, INO_ROOT, "d"), -ENOTEMPTY);
        ck_assert_int_eq(do_rmdir(&f, dir, "f"), -ENOTDIR);
        ck_assert_int_eq(do_rmdir(&f, dir, "none"), -ENOENT);
        ck_assert_int_eq(do_unlink(&f, dir, "none"), -ENOENT);
        ck_assert_int_eq(do_unlink(&f, file, "x"), -ENOTDIR);
        ck_assert_int_eq(do_unlink(&f, 77, "x"), -ENOENT);
        ck_assert_int_eq(do_rmdir(&f, dir, "s"), 0);
        ck_assert_uint_eq(f.result.ino, sub);
        const struct change *gone = change_find(&f, CHANGE_INODE_GONE, sub);
        ck_assert(gone && gone->is_dir);
        ck_assert_uint_eq(attr_of(&f, dir).nlink, 2);
        ck_assert_int_eq(do_unlink(&f, dir, "f"), 0);
        ck_assert_int_eq(do_rmdir(&f, INO_ROOT, "d"), 0);
        ck_assert_int_eq(do_create(&f, dir, "late", S_IFREG), -ENOENT);
        struct tree_usage u;
        tree_usage(f.t, &u);
        ck_assert_uint_eq(u.bytes, 256);
        ck_assert_uint_eq(make(&f, INO_ROOT, "n", S_IFREG), 5); /* numbers are not used again */
}
END_TEST

START_TEST(lookups) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755), file = make(&f, dir, "f", S_IFREG), ino = 0;
        ck_assert_uint_eq(look(&f, dir, "."), dir);
        ck_assert_uint_eq(look(&f, dir, ".."), INO_ROOT);
        ck_assert_uint_eq(look(&f, INO_ROOT, ".."), INO_ROOT);
        ck_assert_uint_eq(look(&f, dir, "f"), file);
        ck_assert_uint_eq(look(&f, dir, "F"), 0);
        ck_assert_int_eq(tree_lookup(f.t, file, "x", 1, &ino), -ENOTDIR);
        ck_assert_int_eq(tree_lookup(f.t, 99, "x", 1, &ino), -ENOENT);
        char name[300] = {0};
        ck_assert_int_eq(tree_lookup(f.t, dir, name, 256, &ino), -ENAMETOOLONG);
}
END_TEST

struct listing {
        uint64_t cookies[64];
        char names[64][16];
        size_t n, stop;
};
static bool list(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct listing *l = ctx;
        (void)ino;
        (void)mode;
        l->cookies[l->n] = cookie;
        (void)snprintf(l->names[l->n++], sizeof(l->names[0]), "%.*s", (int)len, name);
        return l->n < l->stop;
}

START_TEST(readdir_order) {
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 0755);
        for (char c = 'z'; c > 'p'; c--)
                (void)make(&f, dir, (char[]){c, 0}, S_IFREG);
        struct listing l = {.stop = 64};
        ck_assert_int_eq(tree_readdir(f.t, dir, 0, list, &l), 0);
        ck_assert_uint_eq(l.n, 12);
        ck_assert_str_eq(l.names[0], ".");
        ck_assert_str_eq(l.names[1], "..");
        ck_assert_uint_eq(l.cookies[0], 1);
        ck_assert_uint_eq(l.cookies[1], 2);
        ck_assert_uint_eq(l.cookies[2], 3);
        ck_assert_str_eq(l.names[2], "z");
        ck_assert_str_eq(l.names[11], "q");
        /* The middle goes while somebody has read up to it: nothing is given twice, nothing is left out. */
        ck_assert_int_eq(do_unlink(&f, dir, "x"), 0);
        ck_assert_int_eq(do_unlink(&f, dir, "w"), 0);
        ck_assert_int_eq(do_unlink(&f, dir, "v"), 0);
        (void)make(&f, dir, "new", S_IFREG);
        l = (struct listing){.stop = 64};
        ck_assert_int_eq(tree_readdir(f.t, dir, 5 /* "x" */, list, &l), 0);
        ck_assert_str_eq(l.names[0], "u");
        ck_assert_str_eq(l.names[l.n - 1], "new");
        ck_assert_uint_eq(l.n, 6);
        l = (struct listing){.stop = 2};
        ck_assert_int_eq(tree_readdir(f.t, dir, 1, list, &l), 0);
        ck_assert_uint_eq(l.n, 2);
        ck_assert_str_eq(l.names[0], "..");
        ck_assert_str_eq(l.names[1], "z");
        l = (struct listing){.stop = 64};
        ck_assert_int_eq(tree_readdir(f.t, dir, UINT64_MAX, list, &l), 0);
        ck_assert_uint_eq(l.n, 0);
        ck_assert_int_eq(tree_readdir(f.t, 3, 0, list, &l), -ENOTDIR);
}
END_TEST

START_TEST(limits_of_space) {
        ck_assert_int_eq(do_setting(&f, "inodes_max", "16"), 0);
        char name[20];
        for (int i = 0; i < 15; i++) {
                (void)snprintf(name, sizeof(name), "%d", i);
                (void)make(&f, INO_ROOT, name, S_IFREG);
        }
        ck_assert_int_eq(do_create(&f, INO_ROOT, "x", S_IFREG), -ENOSPC);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "x", S_IFDIR), -ENOSPC);
        ck_assert_int_eq(do_link(&f, 2, INO_ROOT, "x"), 0);
        ck_assert_int_eq(do_unlink(&f, INO_ROOT, "7"), 0);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "y", S_IFREG), 0);
        struct tree_usage u;
        tree_usage(f.t, &u);
        ck_assert_uint_eq(u.inodes, 16);
        ck_assert_uint_eq(u.inodes_max, 16);
        ck_assert_int_eq(do_setting(&f, "inodes_max", ""), 0);
        ck_assert_int_eq(do_setting(&f, "tree_size_max", "1M"), 0);
        cleanup_free uint8_t *full = xmalloc(MIB);
        memset(full, 1, MIB);
        tree_usage(f.t, &u);
        uint64_t left = MIB - u.bytes;
        ck_assert_int_eq(do_write(&f, 2, 0, full, left + 1), -ENOSPC);
        ck_assert_int_eq(do_write(&f, 2, 0, full, left), 0);
        tree_usage(f.t, &u);
        ck_assert_uint_eq(u.bytes, MIB);
        ck_assert_int_eq(do_link(&f, 2, INO_ROOT, "z"), -ENOSPC);
        ck_assert_int_eq(do_create(&f, INO_ROOT, "z", S_IFREG), -ENOSPC);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "x", INO_ROOT, "xx", 0), -ENOSPC);
        ck_assert_int_eq(do_rename(&f, INO_ROOT, "x", INO_ROOT, "z", 0), 0);
        ck_assert_int_eq(do_setxattr(&f, 2, "user.a", "", 0, 0), -ENOSPC);
        ck_assert_int_eq(do_chmod(&f, 2, 0600), 0);
        ck_assert_int_eq(do_truncate(&f, 2, 10), 0);
        ck_assert_int_eq(do_setxattr(&f, 2, "user.a", "", 0, 0), 0);
}
END_TEST

START_TEST(times_of_any_century) {
        static const int64_t secs[] = {-315619200 /* 1960 */, 4417977600 /* 2110 */, -1, 0, INT64_MIN, INT64_MAX};
        for (size_t i = 0; i < ARRAY_LEN(secs); i++) {
                struct op op = op_of(OP_CREATE);
                op.create.parent = INO_ROOT;
                op.create.name = name_of((char[]){(char)('a' + i), 0});
                op.create.mode = S_IFREG;
                op.time = (struct timestamp){secs[i], 999999999};
                ck_assert_int_eq(tree_apply(f.t, &op, ++f.seq, &f.changes, &f.result), 0);
                ck_assert_int_eq(f.result.error, 0);
                struct attr a = attr_of(&f, f.result.ino);
                ck_assert_int_eq(a.mtime.sec, secs[i]);
                ck_assert_uint_eq(a.mtime.nsec, 999999999);
                op.time.nsec = 1000000000;
                op.create.name = name_of("bad");
                ck_assert_int_eq(tree_apply(f.t, &op, ++f.seq, &f.changes, &f.result), 0);
                ck_assert_int_eq(f.result.error, -EINVAL);
        }
}
END_TEST

START_TEST(hash_seed_is_not_seen) {
        struct fixture g;
        fixture_begin(&g);
        tree_hash_seed(g.t, 0x123456789abcdef);
        for (int i = 0; i < 100; i++) {
                char name[20];
                (void)snprintf(name, sizeof(name), "%d", i);
                (void)make(&f, INO_ROOT, name, S_IFREG);
                (void)make(&g, INO_ROOT, name, S_IFREG);
        }
        ck_assert(hash128_equal(tree_digest(f.t), tree_digest(g.t)));
        fixture_done(&g);
}
END_TEST

static Suite *suite_tree(void) {
        Suite *s = suite_create("tree");
        TCase *c = tcase_create("names");
        tcase_add_checked_fixture(c, begin, done);
        tcase_set_timeout(c, 60);
        tcase_add_test(c, empty_tree);
        tcase_add_test(c, create_sets_everything);
        tcase_add_test(c, create_errors);
        tcase_add_test(c, create_or_open);
        tcase_add_test(c, create_every_type);
        tcase_add_test(c, create_inherits_acls);
        tcase_add_test(c, links);
        tcase_add_test(c, too_many_links);
        tcase_add_test(c, unlink_and_rmdir);
        tcase_add_test(c, lookups);
        tcase_add_test(c, readdir_order);
        tcase_add_test(c, limits_of_space);
        tcase_add_test(c, times_of_any_century);
        tcase_add_test(c, hash_seed_is_not_seen);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree)
