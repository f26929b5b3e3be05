/* Attributes, extended attributes, ACLs that follow chmod, settings. */
#include "helper.h"

static struct fixture f;
static uint64_t file;

static void begin(void) {
        fixture_begin(&f);
        file = make(&f, INO_ROOT, "file", S_IFREG | 0644);
}
static void done(void) {
        fixture_done(&f);
}

static int setattr(uint64_t ino, uint32_t mask, uint32_t mode, uint32_t uid, uint32_t gid) {
        struct op op = op_of(OP_SETATTR);
        op.setattr.ino = ino;
        op.setattr.mask = mask;
        op.setattr.mode = mode;
        op.setattr.uid = uid;
        op.setattr.gid = gid;
        op.setattr.atime = (struct timestamp){-5, 1};
        op.setattr.mtime = (struct timestamp){5000000000, 2};
        return run(&f, &op);
}

START_TEST(attributes) {
        ck_assert_int_eq(setattr(file, SETATTR_MODE, S_IFDIR | 07751, 1, 1), 0);
        struct attr a = attr_of(&f, file);
        ck_assert_uint_eq(a.mode, S_IFREG | 07751);
        ck_assert_uint_eq(a.uid, 0);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_int_ne(timestamp_cmp(a.mtime, f.now), 0);
        ck_assert_uint_eq(f.changes.n, 1);
        ck_assert_int_eq(setattr(file, SETATTR_UID | SETATTR_GID | SETATTR_KILL_SUID, 0, 10, 20), 0);
        a = attr_of(&f, file);
        ck_assert_uint_eq(a.uid, 10);
        ck_assert_uint_eq(a.gid, 20);
        ck_assert_uint_eq(a.mode, S_IFREG | 01751);
        ck_assert_int_eq(setattr(file, SETATTR_ATIME | SETATTR_MTIME, 0, 0, 0), 0);
        a = attr_of(&f, file);
        ck_assert_int_eq(a.atime.sec, -5);
        ck_assert_int_eq(a.mtime.sec, 5000000000);
        ck_assert_int_eq(timestamp_cmp(a.ctime, f.now), 0);
        ck_assert_int_eq(setattr(99, SETATTR_MODE, 0, 0, 0), -ENOENT);
        ck_assert_int_eq(setattr(file, 64, 0, 0, 0), -EINVAL);
}
END_TEST

START_TEST(nothing_to_do) {
        ck_assert_int_eq(setattr(file, 0, 0, 0, 0), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(setattr(file, SETATTR_KILL_SUID, 0, 0, 0), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(setattr(file, SETATTR_MODE, 0644, 0, 0), 0); /* the same mode: ctime moves */
        ck_assert_uint_eq(f.changes.n, 1);
        ck_assert_int_eq(setattr(file, SETATTR_MODE, 04644, 0, 0), 0);
        ck_assert_int_eq(setattr(file, SETATTR_KILL_SUID, 0, 0, 0), 0);
        ck_assert_uint_eq(f.changes.n, 1);
        ck_assert_uint_eq(attr_of(&f, file).mode, S_IFREG | 0644);
        uint64_t dir = make(&f, INO_ROOT, "d", S_IFDIR | 06755);
        ck_assert_int_eq(setattr(dir, SETATTR_UID | SETATTR_KILL_SUID, 0, 5, 0), 0);
        ck_assert_uint_eq(attr_of(&f, dir).mode, S_IFDIR | 06755); /* directories keep theirs at chown */
}
END_TEST

struct xlist {
        char text[200];
};
static bool xlist(void *ctx, const char *name, size_t len, const uint8_t *value, size_t value_len) {
        struct xlist *l = ctx;
        size_t n = strlen(l->text);
        (void)snprintf(l->text + n, sizeof(l->text) - n, "%.*s=%.*s;", (int)len, name, (int)value_len, (const char *)value);
        return true;
}

START_TEST(xattrs) {
        struct xlist l = {""};
        const uint8_t *value = NULL;
        size_t len = 0;
        ck_assert_int_eq(do_setxattr(&f, file, "user.b", "2", 1, 0), 0);
        ck_assert_uint_eq(f.changes.n, 2);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_XATTR, file));
        ck_assert_int_eq(timestamp_cmp(attr_of(&f, file).ctime, f.now), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "1", 1, XATTR_CREATE), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.bb", "", 0, 0), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "x", 1, XATTR_CREATE), -EEXIST);
        ck_assert_int_eq(do_setxattr(&f, file, "user.c", "x", 1, XATTR_REPLACE), -ENODATA);
        ck_assert_int_eq(do_setxattr(&f, file, "user.c", "x", 1, 3), -ENODATA);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "x", 1, 3), -EEXIST);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "x", 1, 4), -EINVAL);
        ck_assert_int_eq(do_setxattr(&f, file, "user.b", "longer", 6, XATTR_REPLACE), 0);
        ck_assert_int_eq(tree_xattr_each(f.t, file, xlist, &l), 0);
        ck_assert_str_eq(l.text, "user.a=1;user.b=longer;user.bb=;");
        ck_assert_int_eq(tree_xattr_get(f.t, file, "user.bb", 7, &value, &len), 0);
        ck_assert_uint_eq(len, 0);
        ck_assert_int_eq(tree_xattr_get(f.t, file, "user.", 5, &value, &len), -ENODATA);
        ck_assert_int_eq(tree_xattr_get(f.t, 99, "user.", 5, &value, &len), -ENOENT);
        ck_assert_int_eq(do_removexattr(&f, file, "user.b"), 0);
        ck_assert_int_eq(do_removexattr(&f, file, "user.b"), -ENODATA);
        ck_assert_int_eq(do_removexattr(&f, file, "user.a"), 0);
        ck_assert_int_eq(do_removexattr(&f, file, "user.bb"), 0);
        ck_assert_int_eq(do_removexattr(&f, 99, "user.bb"), -ENOENT);
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, 1000);
        ck_assert_int_eq(tree_xattrs_encode(f.t, file, &e), 0);
        ck_assert_uint_eq(e.len, 0);
        ck_assert_int_eq(do_setxattr(&f, file, "", "x", 1, 0), -EINVAL);
        char name[300];
        memset(name, 'n', sizeof(name));
        name[256] = '\0';
        ck_assert_int_eq(do_setxattr(&f, file, name, "x", 1, 0), -ENAMETOOLONG);
        name[255] = '\0';
        ck_assert_int_eq(do_setxattr(&f, file, name, "x", 1, 0), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a/b", "x", 1, 0), 0);
}
END_TEST

START_TEST(the_same_value_changes_nothing) {
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "1", 1, 0), 0);
        struct timestamp ctime = attr_of(&f, file).ctime;
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", "1", 1, 0), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(timestamp_cmp(attr_of(&f, file).ctime, ctime), 0);
}
END_TEST

START_TEST(xattr_limits) {
        cleanup_free uint8_t *big = xcalloc(LIMIT_XATTR_VALUE + 1, 1);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, LIMIT_XATTR_VALUE + 1, 0), -E2BIG);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, LIMIT_XATTR_VALUE, 0), -ENOSPC);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, LIMIT_XATTR_VALUE - 10, 0), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.b", big, 1, 0), -ENOSPC);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, 100, 0), 0);
        ck_assert_int_eq(do_setting(&f, "xattr_inode_max", "50"), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, 99, 0), 0); /* shrinking is always right */
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, 101, 0), -ENOSPC);
        ck_assert_int_eq(do_setting(&f, "xattr_inode_max", "128K"), 0);
        ck_assert_int_eq(do_setxattr(&f, file, "user.a", big, LIMIT_XATTR_VALUE, 0), 0);
}
END_TEST

/* user::rw- user:5:rwx group::r-x mask::rwx other::--- */
static const uint8_t acl[] = {2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,   7,  0, 5, 0, 0,   0,   4,   0,
                              5, 0, 255, 255, 255, 255, 16, 0, 7,   0,   255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255};

START_TEST(acl_sets_the_mode) {
        struct op op = op_of(OP_SETXATTR);
        op.setxattr.ino = file;
        op.setxattr.name = name_of("system.posix_acl_access");
        op.setxattr.value = acl;
        op.setxattr.len = sizeof(acl);
        op.setxattr.set_mode = true;
        op.setxattr.mode = 0670;
        ck_assert_int_eq(do_chmod(&f, file, 07644), 0);
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(attr_of(&f, file).mode, S_IFREG | 07670);
        op.setxattr.kill_sgid = true;
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(attr_of(&f, file).mode, S_IFREG | 05670);
}
END_TEST

START_TEST(chmod_changes_the_acl) {
        const uint8_t *value = NULL;
        size_t len = 0;
        ck_assert_int_eq(do_setxattr(&f, file, "system.posix_acl_access", acl, sizeof(acl), 0), 0);
        ck_assert_int_eq(do_chmod(&f, file, 0124), 0);
        ck_assert_ptr_nonnull(change_find(&f, CHANGE_XATTR, file));
        ck_assert_int_eq(tree_xattr_get(f.t, file, "system.posix_acl_access", 23, &value, &len), 0);
        ck_assert_uint_eq(value[6], 1);  /* owner */
        ck_assert_uint_eq(value[14], 7); /* named user: the mask limits it */
        ck_assert_uint_eq(value[22], 5); /* owning group: likewise */
        ck_assert_uint_eq(value[30], 2); /* mask */
        ck_assert_uint_eq(value[38], 4); /* others */
        ck_assert_int_eq(do_chmod(&f, file, 0124), 0);
        ck_assert_ptr_null(change_find(&f, CHANGE_XATTR, file));
        uint8_t minimal[28]; /* without a mask the group entry follows */
        memcpy(minimal, acl, 12);
        memcpy(minimal + 12, acl + 20, 8);
        memcpy(minimal + 20, acl + 36, 8);
        ck_assert_int_eq(do_setxattr(&f, file, "system.posix_acl_access", minimal, sizeof(minimal), 0), 0);
        ck_assert_int_eq(do_chmod(&f, file, 0777), 0);
        ck_assert_int_eq(tree_xattr_get(f.t, file, "system.posix_acl_access", 23, &value, &len), 0);
        ck_assert_uint_eq(value[14], 7);
        ck_assert_int_eq(do_setxattr(&f, file, "system.posix_acl_access", acl, sizeof(acl) - 1, 0), 0); /* not an ACL */
        ck_assert_int_eq(do_chmod(&f, file, 0700), 0);
        ck_assert_ptr_null(change_find(&f, CHANGE_XATTR, file));
}
END_TEST

START_TEST(replicated_settings) {
        ck_assert_int_eq(do_setting(&f, "file_size_max", "1M"), 0);
        ck_assert_uint_eq(f.changes.n, 1);
        ck_assert_int_eq(f.changes.items[0].kind, CHANGE_SETTING);
        ck_assert_str_eq(f.changes.items[0].name, "file_size_max");
        ck_assert_uint_eq(tree_settings(f.t)->file_size_max, MIB);
        struct hash128 with = tree_digest(f.t);
        ck_assert_int_eq(do_setting(&f, "file_size_max", "1024K"), 0);
        ck_assert_uint_eq(f.changes.n, 0);
        ck_assert_int_eq(do_setting(&f, "file_size_max", ""), 0);
        ck_assert(!hash128_equal(with, tree_digest(f.t)));
        ck_assert_int_eq(do_setting(&f, "file_size_max", "x"), -EINVAL);
        ck_assert_int_eq(do_setting(&f, "what", "1"), -EINVAL);
        struct op op = op_of(OP_NOTHING);
        ck_assert_int_eq(run(&f, &op), 0);
        ck_assert_uint_eq(f.changes.n, 0);
}
END_TEST

static Suite *suite_tree_meta(void) {
        Suite *s = suite_create("meta");
        TCase *c = tcase_create("meta");
        tcase_add_checked_fixture(c, begin, done);
        tcase_add_test(c, attributes);
        tcase_add_test(c, nothing_to_do);
        tcase_add_test(c, xattrs);
        tcase_add_test(c, the_same_value_changes_nothing);
        tcase_add_test(c, xattr_limits);
        tcase_add_test(c, acl_sets_the_mode);
        tcase_add_test(c, chmod_changes_the_acl);
        tcase_add_test(c, replicated_settings);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_meta)
