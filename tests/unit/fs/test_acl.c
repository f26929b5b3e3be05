/* POSIX ACLs: which are valid, what mode they give, what a new file inherits, what setxattr and chmod make of them. */
#include "fake.h"
#include "unit.h"

#include "internal.h"

enum { U = 0x01, UN = 0x02, G = 0x04, GN = 0x08, M = 0x10, O = 0x20 };
struct acl {
        uint8_t v[4 + 16 * 8];
        size_t len;
};
static struct acl acl_of(const unsigned *e, size_t n) { /* tag, perm, id */
        struct acl a = {.v = {2}, .len = 4 + 8 * n};
        for (size_t i = 0; i < n; i++) {
                uint8_t *p = a.v + 4 + 8 * i;
                p[0] = (uint8_t)e[3 * i];
                p[2] = (uint8_t)e[3 * i + 1];
                for (int b = 0; b < 4; b++)
                        p[4 + b] = (uint8_t)(e[3 * i + 2] >> (8 * b));
        }
        return a;
}
#define ACL(...) acl_of((const unsigned[]){__VA_ARGS__}, sizeof((const unsigned[]){__VA_ARGS__}) / (3 * sizeof(unsigned)))
#define NONE     0xffffffffu

START_TEST(validity) {
        struct {
                struct acl a;
                int want;
        } cases[] = {
                {ACL(U, 6, NONE, G, 4, NONE, O, 4, NONE), 0},
                {ACL(U, 6, NONE, UN, 7, 5, G, 4, NONE, M, 7, NONE, O, 4, NONE), 0},
                {ACL(U, 6, NONE, UN, 7, 5, UN, 1, 6, G, 4, NONE, GN, 4, 9, M, 7, NONE, O, 4, NONE), 0},
                {ACL(U, 6, NONE, UN, 7, 5, G, 4, NONE, O, 4, NONE), -EINVAL},                /* no mask */
                {ACL(U, 6, NONE, O, 4, NONE), -EINVAL},                                      /* no group */
                {ACL(U, 6, NONE, U, 6, NONE, G, 4, NONE, O, 4, NONE), -EINVAL},              /* twice */
                {ACL(G, 4, NONE, U, 6, NONE, O, 4, NONE), -EINVAL},                          /* order */
                {ACL(U, 8, NONE, G, 4, NONE, O, 4, NONE), -EINVAL},                          /* permissions */
                {ACL(U, 6, NONE, G, 4, NONE, O, 4, NONE, 0x40, 1, NONE), -EINVAL},           /* tag */
                {ACL(U, 6, NONE, UN, 7, NONE, G, 4, NONE, M, 7, NONE, O, 4, NONE), -EINVAL}, /* nobody's id */
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                ck_assert_msg(fs_acl_check(cases[i].a.v, cases[i].a.len) == cases[i].want, "case %zu", i);
        struct acl a = cases[0].a;
        ck_assert_int_eq(fs_acl_check(a.v, a.len - 1), -EINVAL);
        ck_assert_int_eq(fs_acl_check(a.v, 4), -EINVAL);
        ck_assert_int_eq(fs_acl_check(a.v, 0), -EINVAL);
        a.v[0] = 1;
        ck_assert_int_eq(fs_acl_check(a.v, a.len), -EOPNOTSUPP);
}
END_TEST

START_TEST(mode_of) {
        uint32_t mode = S_IFREG | 04000;
        struct acl a = ACL(U, 6, NONE, G, 4, NONE, O, 1, NONE);
        ck_assert(fs_acl_mode(a.v, a.len, &mode));
        ck_assert_uint_eq(mode, S_IFREG | 04641);
        a = ACL(U, 7, NONE, UN, 7, 5, G, 7, NONE, M, 2, NONE, O, 0, NONE);
        ck_assert(!fs_acl_mode(a.v, a.len, &mode));
        ck_assert_uint_eq(mode, S_IFREG | 04720); /* the group class is the mask */
}
END_TEST

static uint64_t caller_create(struct fake *k, uint64_t parent, const char *name, uint32_t mode, uint32_t umask) {
        struct answer a;
        struct fs_caller c = {.uid = 10, .gid = 20, .pid = 7, .umask = umask};
        answer_init(k, &a);
        fs_create(k->fs, &c, parent, name, mode, O_WRONLY, &a.reply);
        answer_wait(&a);
        ck_assert_int_eq(a.kind, ANSWER_CREATE);
        do_release(k, a.entry.ino, a.open.fh);
        return a.entry.ino;
}

START_TEST(inheritance) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint8_t got[256];
        uint64_t dir = do_mkdir(k, INO_ROOT, "d", 0755);
        uint64_t plain = caller_create(k, dir, "before", 0666, 022);
        ck_assert_uint_eq(fake_attr(k, plain).mode, S_IFREG | 0644);
        struct acl def = ACL(U, 7, NONE, UN, 6, 77, G, 5, NONE, M, 6, NONE, O, 0, NONE);
        ck_assert_int_eq(do_setxattr(k, plain, ACL_DEFAULT, def.v, def.len, 0), -EACCES);
        ck_assert_int_eq(do_setxattr(k, dir, ACL_DEFAULT, def.v, def.len, 0), 0);
        ck_assert_uint_eq(fake_attr(k, dir).mode, S_IFDIR | 0755);

        uint64_t f = caller_create(k, dir, "f", 0666, 077); /* the umask does not count */
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0660);
        struct acl want = ACL(U, 6, NONE, UN, 6, 77, G, 5, NONE, M, 6, NONE, O, 0, NONE);
        ck_assert_int_eq(do_getxattr(k, f, ACL_ACCESS, sizeof(got), got), (int)want.len);
        ck_assert_mem_eq(got, want.v, want.len);
        ck_assert_int_eq(do_getxattr(k, f, ACL_DEFAULT, 0, NULL), -ENODATA);

        f = caller_create(k, dir, "g", 0640, 0); /* the mode bounds each class */
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0640);
        want = ACL(U, 6, NONE, UN, 6, 77, G, 5, NONE, M, 4, NONE, O, 0, NONE);
        ck_assert_int_eq(do_getxattr(k, f, ACL_ACCESS, sizeof(got), got), (int)want.len);
        ck_assert_mem_eq(got, want.v, want.len);

        uint64_t sub = do_mkdir(k, dir, "sub", 0777);
        ck_assert_uint_eq(fake_attr(k, sub).mode, S_IFDIR | 0760);
        ck_assert_int_eq(do_getxattr(k, sub, ACL_DEFAULT, sizeof(got), got), (int)def.len);
        ck_assert_mem_eq(got, def.v, def.len);
        ck_assert_int_eq(do_getxattr(k, sub, ACL_ACCESS, sizeof(got), got), (int)def.len);

        struct acl small = ACL(U, 7, NONE, G, 1, NONE, O, 1, NONE); /* no more than a mode: no ACL on the file */
        ck_assert_int_eq(do_setxattr(k, dir, ACL_DEFAULT, small.v, small.len, 0), 0);
        f = caller_create(k, dir, "h", 0777, 0777);
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0711);
        ck_assert_int_eq(do_getxattr(k, f, ACL_ACCESS, 0, NULL), -ENODATA);

        struct answer a; /* symlinks inherit nothing */
        answer_init(k, &a);
        fs_symlink(k->fs, &root_caller, dir, "l", "x", &a.reply);
        answer_wait(&a);
        ck_assert_uint_eq(fake_attr(k, a.entry.ino).mode, S_IFLNK | 0777);
        ck_assert_int_eq(do_getxattr(k, a.entry.ino, ACL_ACCESS, 0, NULL), -ENODATA);
        fake_free(k);
}
END_TEST

START_TEST(access_acl) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint8_t got[256];
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0644, &fh);
        struct acl a = ACL(U, 6, NONE, UN, 7, 5, G, 4, NONE, M, 7, NONE, O, 0, NONE);
        ck_assert_int_eq(do_setxattr(k, f, ACL_ACCESS, a.v, a.len - 1, 0), -EINVAL);
        ck_assert_int_eq(do_setxattr(k, f, ACL_ACCESS, a.v, a.len, 0), 0);
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0670);
        struct fs_set s = {.set = FS_SET_MODE, .mode = 0640}; /* chmod changes the mask */
        ck_assert_int_eq(do_setattr(k, f, &s, 0, NULL), 0);
        struct acl want = ACL(U, 6, NONE, UN, 7, 5, G, 4, NONE, M, 4, NONE, O, 0, NONE);
        ck_assert_int_eq(do_getxattr(k, f, ACL_ACCESS, sizeof(got), got), (int)want.len);
        ck_assert_mem_eq(got, want.v, want.len);
        struct acl plain = ACL(U, 6, NONE, G, 0, NONE, O, 4, NONE); /* says what a mode says: the ACL goes */
        ck_assert_int_eq(do_setxattr(k, f, ACL_ACCESS, plain.v, plain.len, 0), 0);
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0604);
        ck_assert_int_eq(do_getxattr(k, f, ACL_ACCESS, 0, NULL), -ENODATA);
        ck_assert_int_eq(do_setxattr(k, f, ACL_ACCESS, plain.v, plain.len, 0), 0); /* with none there */
        ck_assert_int_eq(do_removexattr(k, f, ACL_ACCESS), 0);
        ck_assert_int_eq(do_removexattr(k, f, "user.none"), -ENODATA);
        /* kill_sgid: the caller is not of the group */
        s.mode = 02755;
        ck_assert_int_eq(do_setattr(k, f, &s, 0, NULL), 0);
        struct answer r;
        answer_init(k, &r);
        fs_setxattr(k->fs, &root_caller, f, ACL_ACCESS, a.v, a.len, 0, true, &r.reply);
        answer_wait(&r);
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0670);
        s.mode = 02755;
        ck_assert_int_eq(do_setattr(k, f, &s, 0, NULL), 0);
        answer_init(k, &r);
        fs_setxattr(k->fs, &root_caller, f, ACL_ACCESS, plain.v, plain.len, 0, true, &r.reply);
        answer_wait(&r);
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0604);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static Suite *suite_acl(void) {
        const TTest *const tests[] = {validity, mode_of, inheritance, access_acl};
        return suite_of("acl", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_acl)
