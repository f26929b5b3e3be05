/* Attributes and extended attributes. */
#include "fake.h"
#include "unit.h"

#include <linux/falloc.h>
#include <sys/xattr.h>

START_TEST(setattr) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct attr a, before = fake_attr(k, f);
        struct fs_set s = {.set = FS_SET_ATIME | FS_SET_MTIME, .atime = {-315619200, 1}, .mtime = {4417977600, 999999999}};
        ck_assert_int_eq(do_setattr(k, f, &s, 0, &a), 0);
        ck_assert_int_eq(a.atime.sec, -315619200); /* 1960 */
        ck_assert_int_eq(a.mtime.sec, 4417977600); /* 2110 */
        ck_assert_uint_eq(a.mtime.nsec, 999999999);
        ck_assert_int_gt(timestamp_cmp(a.ctime, before.ctime), 0);
        s = (struct fs_set){.set = FS_SET_ATIME_NOW | FS_SET_MTIME_NOW};
        ck_assert_int_eq(do_setattr(k, f, &s, 0, &a), 0);
        ck_assert_int_eq(timestamp_cmp(a.atime, a.ctime), 0);
        ck_assert_int_eq(timestamp_cmp(a.mtime, a.ctime), 0);
        s = (struct fs_set){.set = FS_SET_UID | FS_SET_GID | FS_SET_MODE, .uid = 1, .gid = 2, .mode = 06755};
        ck_assert_int_eq(do_setattr(k, f, &s, 0, &a), 0);
        ck_assert_uint_eq(a.uid, 1);
        ck_assert_uint_eq(a.gid, 2);
        ck_assert_uint_eq(a.mode, S_IFREG | 06755);
        s = (struct fs_set){.set = FS_SET_GID, .gid = 3};
        ck_assert_int_eq(do_setattr(k, f, &s, 0, &a), 0);
        ck_assert_uint_eq(a.mode, S_IFREG | 0755);
        uint64_t d = do_mkdir(k, INO_ROOT, "d", 02755);
        ck_assert_int_eq(do_setattr(k, d, &(struct fs_set){.set = FS_SET_MODE, .mode = 02755}, 0, NULL), 0);
        ck_assert_int_eq(do_setattr(k, d, &s, 0, &a), 0);
        ck_assert_uint_eq(a.mode, S_IFDIR | 02755);
        ck_assert_int_eq(do_setattr(k, 999, &s, 0, &a), -ESTALE);
        k->not_writable = -EROFS;
        ck_assert_int_eq(do_setattr(k, f, &s, 0, &a), -EROFS);
        k->not_writable = 0;
        do_release(k, f, fh);
        ck_assert_uint_gt(metric_get(&k->metrics, METRIC_OPENS), 0);
        fake_free(k);
}
END_TEST

START_TEST(gathered_times_equal_applied_times) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct attr shown, later;
        struct answer a;
        ck_assert_int_eq(do_text(k, f, fh, 0, "abc"), 0);
        ck_assert_int_eq(do_getattr(k, f, &shown), 0);
        answer_init(k, &a);
        fs_flush(k->fs, &root_caller, f, fh, 0, &a.reply);
        ck_assert_int_eq(do_getattr(k, f, &later), 0); /* under way */
        ck_assert_int_eq(timestamp_cmp(shown.mtime, later.mtime), 0);
        fake_apply(k);
        ck_assert_int_eq(do_getattr(k, f, &later), 0); /* applied */
        ck_assert_int_eq(timestamp_cmp(shown.mtime, later.mtime), 0);
        ck_assert_int_eq(timestamp_cmp(shown.ctime, later.ctime), 0);
        ck_assert_uint_eq(later.size, 3);
        fake_all(k);
        struct fs_entry e;
        ck_assert_int_eq(do_text(k, f, fh, 3, "defg"), 0); /* lookup shows it too */
        ck_assert_int_eq(do_lookup(k, INO_ROOT, "f", &e), 0);
        ck_assert_uint_eq(e.attr.size, 7);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static int list_names(struct fake *k, const struct fs_caller *c, uint64_t ino, size_t size, char *buf) {
        struct answer a;
        answer_init(k, &a);
        fs_listxattr(k->fs, c, ino, size, &a.reply);
        answer_wait(&a);
        int r = a.kind == ANSWER_ERR ? a.error : a.kind == ANSWER_SIZE ? (int)a.n : (int)a.len;
        if (a.kind == ANSWER_DATA && a.len > 0)
                memcpy(buf, a.data, a.len);
        answer_done(&a);
        return r;
}

START_TEST(xattrs) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        const struct fs_caller user = {.uid = 5, .pid = 1};
        char buf[256];
        ck_assert_int_eq(do_setxattr(k, f, "user.b", "value", 5, 0), 0);
        ck_assert_int_eq(do_setxattr(k, f, "user.a", "", 0, XATTR_CREATE), 0);
        ck_assert_int_eq(do_setxattr(k, f, "user.a", "x", 1, XATTR_CREATE), -EEXIST);
        ck_assert_int_eq(do_setxattr(k, f, "user.c", "x", 1, XATTR_REPLACE), -ENODATA);
        ck_assert_int_eq(do_setxattr(k, f, "trusted.t", "t", 1, 0), 0);
        ck_assert_int_eq(do_setxattr(k, f, "user.", "x", 1, 0), -EINVAL);
        ck_assert_int_eq(do_setxattr(k, f, "odd.name", "x", 1, 0), -EOPNOTSUPP);
        ck_assert_int_eq(do_setxattr(k, f, "system.other", "x", 1, 0), -EOPNOTSUPP);
        static char large[LIMIT_XATTR_VALUE + 1];
        ck_assert_int_eq(do_setxattr(k, f, "user.large", large, sizeof(large), 0), -E2BIG);
        ck_assert_int_eq(do_setxattr(k, f, "user.large", large, sizeof(large) - 1, 0), -ENOSPC); /* with what is there */
        ck_assert_int_eq(do_getxattr(k, f, "user.b", 0, NULL), 5);
        ck_assert_int_eq(do_getxattr(k, f, "user.b", 4, NULL), -ERANGE);
        ck_assert_int_eq(do_getxattr(k, f, "user.b", 5, buf), 5);
        ck_assert_mem_eq(buf, "value", 5);
        ck_assert_int_eq(do_getxattr(k, f, "user.a", 10, buf), 0);
        ck_assert_int_eq(do_getxattr(k, f, "user.none", 10, buf), -ENODATA);
        ck_assert_int_eq(do_getxattr(k, f, "odd.name", 10, buf), -EOPNOTSUPP);
        ck_assert_int_eq(do_getxattr(k, 999, "user.b", 10, buf), -ESTALE);
        ck_assert_int_eq(list_names(k, &root_caller, f, 0, buf), 24);
        ck_assert_int_eq(list_names(k, &root_caller, f, 23, buf), -ERANGE);
        ck_assert_int_eq(list_names(k, &root_caller, f, 24, buf), 24);
        ck_assert_mem_eq(buf, "trusted.t\0user.a\0user.b", 24);
        ck_assert_int_eq(list_names(k, &user, f, 24, buf), 14);
        ck_assert_int_eq(do_removexattr(k, f, "user.a"), 0);
        ck_assert_int_eq(do_removexattr(k, f, "user.a"), -ENODATA);
        ck_assert_int_eq(do_removexattr(k, 999, "user.a"), -ESTALE);
        ck_assert_uint_gt(metric_get(&k->metrics, METRIC_FUSE_GETXATTR), 0);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static void local_locks(struct fs_config *c) {
        c->posix_locks_local = true;
}

START_TEST(what_an_open_says) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a;
        do_release(k, f, fh);
        for (int local = 0; local < 2; local++) {
                if (local)
                        fake_fs_config(k, local_locks);
                for (int write = 0; write < 2; write++) {
                        answer_init(k, &a);
                        fs_open(k->fs, &root_caller, f, write ? O_RDWR : O_RDONLY, false, &a.reply);
                        ck_assert_uint_ne(a.open.fh, 0);
                        ck_assert(a.open.keep_cache);
                        ck_assert(!a.open.direct_io);
                        ck_assert_int_eq(a.open.noflush, local && !write);
                        do_release(k, f, a.open.fh);
                }
        }
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, INO_ROOT, O_RDONLY, false, &a.reply);
        ck_assert_int_eq(a.error, -EISDIR);
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, 999, O_RDONLY, false, &a.reply);
        ck_assert_int_eq(a.error, -ESTALE);
        fake_free(k);
}
END_TEST

static struct attr set_by(struct fake *k, uint64_t ino, const struct fs_set *s, uint32_t uid) {
        struct fs_caller c = {.uid = uid, .gid = uid};
        struct answer a;
        answer_init(k, &a);
        fs_setattr(k->fs, &c, ino, s, 0, &a.reply);
        answer_wait(&a);
        ck_assert_int_eq(a.kind, ANSWER_ATTR);
        struct attr got = a.entry.attr;
        answer_done(&a);
        return got;
}

/* What takes setuid away without a write: a chown to the same owner, and fallocate by anybody but root. */
START_TEST(setuid_goes) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct fs_set owned = {.set = FS_SET_UID | FS_SET_GID | FS_SET_MODE, .uid = 1, .gid = 2, .mode = 06775}, none = {0};
        static const struct { uint32_t uid, mode; } chowns[] = {{0, 0775}, {1, 0775}, {5, 06775}};
        for (size_t i = 0; i < ARRAY_LEN(chowns); i++) {
                ck_assert_int_eq(do_setattr(k, f, &owned, 0, NULL), 0);
                struct attr before = fake_attr(k, f), after = set_by(k, f, &none, chowns[i].uid);
                ck_assert_uint_eq(after.mode, S_IFREG | chowns[i].mode);
                ck_assert_int_eq(timestamp_cmp(after.ctime, before.ctime) > 0, chowns[i].uid != 5);
                ck_assert_int_eq(timestamp_cmp(after.atime, before.atime), 0);
        }
        for (uint32_t uid = 0; uid < 2; uid++) {
                struct fs_caller c = {.uid = uid};
                struct answer a;
                ck_assert_int_eq(do_setattr(k, f, &owned, 0, NULL), 0);
                struct attr before = fake_attr(k, f);
                answer_init(k, &a);
                fs_fallocate(k->fs, &c, f, fh, FALLOC_FL_KEEP_SIZE, 0, 100, &a.reply);
                answer_wait(&a);
                ck_assert_int_eq(do_flush(k, f, fh), 0);
                ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | (uid == 0 ? 06775 : 0775));
                ck_assert_int_gt(timestamp_cmp(fake_attr(k, f).mtime, before.mtime), 0);
                answer_done(&a);
        }
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

/* A store through mmap leaves file capabilities alone, a write does not. */
START_TEST(capabilities_go) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0700, &fh);
        struct answer a;
        char got[8];
        ck_assert_int_eq(do_setxattr(k, f, "security.capability", "cap", 3, 0), 0);
        answer_init(k, &a);
        fs_write(k->fs, &root_caller, f, fh, 0, "mapped", 6, 0, false, true, &a.reply);
        answer_wait(&a);
        answer_done(&a);
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", sizeof(got), got), 3);
        ck_assert_int_eq(do_text(k, f, fh, 0, "written"), 0);
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", sizeof(got), got), -ENODATA);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_getxattr(k, f, "security.capability", sizeof(got), got), -ENODATA);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static Suite *suite_attrs(void) {
        const TTest *const tests[] = {setattr, gathered_times_equal_applied_times, xattrs, what_an_open_says, setuid_goes, capabilities_go};
        return suite_of("attrs", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_attrs)
