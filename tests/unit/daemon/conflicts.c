/* conflicts.c: records are kept as files that decode to what was lost, with its paths; twice is once; a full directory is told. */
#include "daemon_internal.h"

#include "base/env.h"
#include "core/conflict.h"
#include "unit.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], db[96];

static void make_dir(void) {
        (void)snprintf(dir, sizeof(dir), "/tmp/coterie-unit.XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(dir));
        (void)snprintf(db, sizeof(db), "%s/tree.db", dir);
}
static void remove_dir(void) {
        char command[128];
        (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
        ck_assert_int_eq(system(command), 0);
}

/* An operation applied to the state, and its head. */
static void apply(struct state *s, struct op *op, struct enc *head) {
        struct change_set changes;
        struct op_result result;

        change_set_init(&changes);
        enc_init(head, OP_HEAD_MAX);
        ck_assert_int_eq(op_encode_head(op, head), 0);
        ck_assert_int_eq(state_apply(s, 3, op, head->data, head->len, &changes, &result), 0);
        ck_assert_int_eq(result.error, 0);
        change_set_done(&changes);
}

static struct op create_op(uint64_t parent, const char *name, uint32_t mode) {
        return (struct op){.kind = OP_CREATE, .create = {.parent = parent, .name = {.text = name, .len = strlen(name)}, .mode = mode}};
}

static size_t read_record(const char *name, uint8_t *buf, size_t size) {
        char path[256];
        struct stat st;

        (void)snprintf(path, sizeof(path), "%s" CONFLICTS_SUFFIX "/%s", db, name);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
        ssize_t n = read(fd, buf, size);
        ck_assert_int_gt(n, 0);
        return (size_t)n;
}

START_TEST(kept) {
        CLEANUP(enc_done) struct enc a = {0}, b = {0}, c = {0};
        struct op nothing = {.kind = OP_NOTHING}, dir_op = create_op(1, "dir", S_IFDIR | 0755),
                  file_op = create_op(2, "file", S_IFREG | 0644);
        struct conflicts_count count;
        struct conflict x;
        struct state s;
        uint8_t buf[4096];
        char name[64];

        make_dir();
        state_init(&s);
        apply(&s, &dir_op, &a);
        apply(&s, &file_op, &b);
        apply(&s, &nothing, &c);
        struct conflicts *keeper = conflicts_new(db);
        struct engine_conflict lost = {.pos = {.epoch = 3, .seq = 2}, .head = b.data, .head_len = b.len, .old = &s};
        struct engine_conflict void_ = {.pos = {.epoch = 3, .seq = 3}, .head = c.data, .head_len = c.len, .old = &s};
        for (int twice = 0; twice < 2; twice++) {
                conflicts_add(keeper, &lost);
                conflicts_add(keeper, &void_);
                conflicts_count(keeper, &count);
                ck_assert_uint_eq(count.waiting, 1);
                conflicts_write(keeper);
                conflicts_count(keeper, &count);
                ck_assert_uint_eq(count.waiting, 0);
                ck_assert_uint_eq(count.records, 1);
        }
        (void)snprintf(name, sizeof(name), "3-2-%08x", (unsigned)hash128_chain(hash128_of(b.data, b.len), NULL, 0).lo);
        size_t n = read_record(name, buf, sizeof(buf));
        ck_assert_int_eq(conflict_decode(buf, n, &x), 0);
        ck_assert_uint_eq(x.pos.seq, 2);
        ck_assert_uint_eq(x.path_len, strlen("/dir/file"));
        ck_assert_mem_eq(x.path, "/dir/file", x.path_len);
        ck_assert_uint_eq(x.head_len, b.len);
        ck_assert_mem_eq(x.head, b.data, b.len);
        for (size_t i = 0; i < n; i++) { /* each byte counts */
                buf[i] ^= 1;
                ck_assert_int_lt(conflict_decode(buf, n, &x), 0);
                buf[i] ^= 1;
                ck_assert_int_lt(conflict_decode(buf, i, &x), 0);
        }
        conflicts_free(keeper);
        state_done(&s);
        remove_dir();
}
END_TEST

START_TEST(not_writable) {
        CLEANUP(enc_done) struct enc a = {0};
        struct op op = create_op(1, "dir", S_IFDIR | 0755);
        struct conflicts_count count;
        struct state s;
        char path[160];

        make_dir();
        state_init(&s);
        apply(&s, &op, &a);
        struct conflicts *keeper = conflicts_new(db);
        struct engine_conflict lost = {.pos = {.epoch = 3, .seq = 1}, .head = a.data, .head_len = a.len};
        (void)snprintf(path, sizeof(path), "%s" CONFLICTS_SUFFIX, db);
        int fd = creat(path, 0600); /* a file where the directory should be */
        ck_assert_int_ge(fd, 0);
        (void)close(fd);
        conflicts_add(keeper, &lost);
        conflicts_write(keeper);
        conflicts_count(keeper, &count);
        ck_assert_uint_eq(count.waiting, 1);
        ck_assert_int_eq(unlink(path), 0);
        lost.pos.seq = 2;
        conflicts_add(keeper, &lost);
        conflicts_write(keeper);
        conflicts_count(keeper, &count);
        ck_assert_uint_eq(count.waiting, 0);
        ck_assert_uint_eq(count.records, 2);
        conflicts_free(keeper);
        state_done(&s);
        remove_dir();
}
END_TEST

START_TEST(memory_has_a_limit) {
        CLEANUP(enc_done) struct enc a = {0};
        struct op op = create_op(1, "dir", S_IFDIR | 0755);
        struct conflicts_count count;
        struct state s;

        state_init(&s);
        apply(&s, &op, &a);
        struct conflicts *keeper = conflicts_new("/dev/null/tree.db");
        struct engine_conflict lost = {.head = a.data, .head_len = a.len};
        for (unsigned i = 0; i < 4100; i++) {
                lost.pos = (struct position){.epoch = 3, .seq = i};
                conflicts_add(keeper, &lost);
                if (i == 7)
                        conflicts_write(keeper); /* fails: they wait on */
        }
        conflicts_write(keeper);
        conflicts_count(keeper, &count);
        ck_assert_uint_eq(count.waiting, 4096);
        conflicts_free(keeper);
        state_done(&s);
}
END_TEST

static Suite *conflicts_suite(void) {
        const TTest *const tests[] = {kept, not_writable, memory_has_a_limit};
        return suite_of("conflicts", tests, sizeof(tests) / sizeof(tests[0]));
}
UNIT_SUITE(conflicts_suite)
