/* Memory that is not there: for every allocation of a size that came from outside, an operation for which it fails is not decided and
 * leaves no trace; with memory again it is. */
#include "helper.h"

#include "base/compress.h"
#include "base/failpoint.h"

static const uint8_t acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255};

static struct fixture f;
static uint64_t file, reserved;
static uint8_t raw[5 * BLOB_CHUNK], *packed;
static size_t packed_len;
static struct extent extents[2] = {{0, sizeof(raw) - 1, EXTENT_DATA}, {sizeof(raw) + 10, 1, EXTENT_DATA}};

static void begin(void) {
        fixture_begin(&f);
        file = make(&f, INO_ROOT, "file", S_IFREG | 0644);
        ck_assert_int_eq(do_setxattr(&f, file, "system.posix_acl_access", acl, sizeof(acl), 0), 0);
        ck_assert_int_eq(do_replace(&f, file, "some text", 9), 0);
        struct op op = op_of(OP_RESERVE_INO);
        ck_assert_int_eq(run(&f, &op), 0);
        reserved = f.result.ino;
        memset(raw, 'z', sizeof(raw));
        ck_assert_int_eq(compress_zstd(raw, sizeof(raw), &packed, &packed_len), 0);
}
static void done(void) {
        (void)failpoint_set(NULL);
        free(packed);
        fixture_done(&f);
}

/* Each has several allocations. */
static struct op op_number(int i) {
        static const enum op_kind kinds[] = {OP_CREATE, OP_CREATE, OP_WRITE, OP_WRITE, OP_ADOPT, OP_SETXATTR, OP_REMOVEXATTR, OP_SETATTR};
        struct op op = op_of(kinds[i]);
        switch (op.kind) {
        case OP_CREATE:
                op.create.parent = INO_ROOT;
                op.create.name = name_of("new");
                op.create.mode = i == 0 ? S_IFDIR | 0755 : S_IFLNK | 0777;
                op.create.acl_access.data = op.create.acl_default.data = acl;
                op.create.acl_access.len = op.create.acl_default.len = i == 0 ? sizeof(acl) : 0;
                op.create.target.text = "target";
                op.create.target.len = i == 0 ? 0 : 6;
                break;
        case OP_WRITE:
                op.write.ino = file;
                op.write.flags = i == 2 ? WRITE_APPEND : 0;
                op.write.keep = op.write.size = BLOB_KEEP_ALL;
                op.write.extents = extents;
                op.write.n_extents = 2;
                op.payload = (struct op_payload){.form = FORM_ZSTD, .raw_len = sizeof(raw), .data = packed, .len = packed_len};
                break;
        case OP_ADOPT:
                op.adopt.ino = reserved;
                op.adopt.parent = INO_ROOT;
                op.adopt.name = name_of("new");
                op.adopt.attr = (struct attr){.ino = reserved, .mode = S_IFREG | 0600, .size = sizeof(raw)};
                op.adopt.xattrs = (const uint8_t *)"\6user.a\1x";
                op.adopt.xattrs_len = 9;
                op.payload = (struct op_payload){.form = FORM_ZSTD, .raw_len = sizeof(raw), .data = packed, .len = packed_len};
                break;
        case OP_SETXATTR:
                op.setxattr.ino = file;
                op.setxattr.name = name_of("user.long");
                op.setxattr.value = raw;
                op.setxattr.len = 1000;
                break;
        case OP_REMOVEXATTR: /* of two */
                ck_assert_int_eq(do_setxattr(&f, file, "user.a", "1", 1, 0), 0);
                op.removexattr.ino = file;
                op.removexattr.name = name_of("user.a");
                break;
        default:
                op.setattr.ino = file;
                op.setattr.mask = SETATTR_MODE;
                op.setattr.mode = 0777;
                break;
        }
        return op;
}

START_TEST(every_allocation) {
        struct op op = op_number(_i);
        struct hash128 before = tree_digest(f.t);
        char spec[40], fault[200] = "";
        int n = 0;
        errint_t r = -ENOMEM;
        for (op.time = f.now; r < 0; n++) {
                must(n < 100);
                (void)snprintf(spec, sizeof(spec), "alloc=ENOMEM@%d", n + 1);
                ck_assert_int_eq(failpoint_set(spec), 0);
                r = tree_apply(f.t, &op, f.seq + 1, &f.changes, &f.result);
                ck_assert_int_eq(failpoint_set(NULL), 0);
                ck_assert(r == 0 || r == -ENOMEM);
                if (r < 0) {
                        ck_assert(hash128_equal(before, tree_digest(f.t)));
                        ck_assert_uint_eq(f.changes.n, 0);
                }
                ck_assert_msg(tree_check(f.t, fault, sizeof(fault)) == 0, "allocation %d: %s", n + 1, fault);
        }
        ck_assert_int_eq(f.result.error, 0);
        ck_assert_int_ge(n, 2); /* at least one failed */
        ck_assert(!hash128_equal(before, tree_digest(f.t)));
}
END_TEST

static Suite *suite_tree_memory(void) {
        Suite *s = suite_create("memory");
        TCase *c = tcase_create("memory");
        tcase_add_checked_fixture(c, begin, done);
        tcase_add_loop_test(c, every_allocation, 0, 8);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_memory)
