/* Operations as bytes: golden files, sizes, rules, damaged input. */
#include "op_samples.h"

#include "base/compress.h"

static errint_t encode(const struct op *op, struct enc *e) {
        enc_init(e, OP_HEAD_MAX);
        return op_encode_head(op, e);
}

static void golden_path(char *out, size_t size, const char *name) {
        (void)snprintf(out, size, "%s/op/%s.bin", TEST_DATA_DIR, name);
}

static size_t golden_read(const char *name, uint8_t *buf, size_t size) {
        char path[300];
        golden_path(path, sizeof(path), name);
        FILE *f = fopen(path, "rb");
        ck_assert_msg(f != NULL, "%s is missing; COTERIE_WRITE_GOLDEN=1 writes it", path);
        size_t n = fread(buf, 1, size, f);
        (void)fclose(f); /* read only */
        return n;
}

/* Writes a golden file that is not there yet; one that is there never changes. */
static void golden_write(const char *name, const struct enc *e) {
        char path[300];
        golden_path(path, sizeof(path), name);
        FILE *f = fopen(path, "wbx");
        if (!f)
                return;
        ck_assert_uint_eq(fwrite(e->data, 1, e->len, f), e->len);
        ck_assert_int_eq(fclose(f), 0);
}

/* The same operation, aimed at inodes that the fuzz target's tree has, as the target reads it: u16 length, head, u16 length, payload. */
static void corpus_write(const struct op_sample *s) {
        CLEANUP(enc_done) struct enc head = {0}, all = {0};
        char path[300];
        struct op op = s->op;
        enum { ROOT = 1, FILE_INO = 2, DIR_INO = 3 };
        switch (op.kind) {
        case OP_CREATE:
                op.create.parent = DIR_INO;
                break;
        case OP_LINK:
                op.link.ino = FILE_INO;
                op.link.parent = DIR_INO;
                break;
        case OP_UNLINK:
        case OP_RMDIR:
                op.unlink.parent = ROOT;
                op.unlink.name = name_of(op.kind == OP_RMDIR ? "d" : "f");
                break;
        case OP_RENAME:
                op.rename.parent = ROOT;
                op.rename.name = name_of("f");
                op.rename.new_parent = DIR_INO;
                break;
        case OP_ADOPT:
                op.adopt.ino = 5; /* after a RESERVE_INO */
                op.adopt.parent = DIR_INO;
                break;
        default: /* the others begin with the inode */
                op.setattr.ino = op.kind == OP_SETTING || op.kind == OP_NOTHING || op.kind == OP_RESERVE_INO ? op.setattr.ino : FILE_INO;
                break;
        }
        ck_assert_int_eq(encode(&op, &head), 0);
        enc_init(&all, 4000);
        enc_u16(&all, (uint16_t)head.len);
        enc_raw(&all, head.data, head.len);
        enc_u16(&all, (uint16_t)op.payload.len);
        enc_raw(&all, op.payload.data, op.payload.len);
        (void)snprintf(path, sizeof(path), "%s/../fuzz/corpus/op/%s", TEST_DATA_DIR, s->name);
        FILE *f = fopen(path, "wbx");
        if (!f)
                return;
        ck_assert_uint_eq(fwrite(all.data, 1, all.len, f), all.len);
        ck_assert_int_eq(fclose(f), 0);
}

START_TEST(golden) {
        struct op_sample s = op_sample((size_t)_i);
        uint8_t golden_bytes[1000];
        CLEANUP(enc_done) struct enc e = {0}, again = {0};
        cleanup_free void *scratch = NULL;
        struct op back;
        ck_assert_int_eq(encode(&s.op, &e), 0);
        if (getenv("COTERIE_WRITE_GOLDEN")) {
                golden_write(s.name, &e);
                corpus_write(&s);
        }
        size_t n = golden_read(s.name, golden_bytes, sizeof(golden_bytes));
        ck_assert_uint_eq(n, e.len);
        ck_assert_mem_eq(golden_bytes, e.data, n);
        ck_assert_int_eq(op_decode(golden_bytes, n, s.op.payload.data, s.op.payload.len, &back, &scratch), 0);
        ck_assert_int_eq(encode(&back, &again), 0);
        ck_assert_uint_eq(again.len, n);
        ck_assert_mem_eq(golden_bytes, again.data, n);
        ck_assert_int_eq(back.kind, s.op.kind);
        ck_assert_mem_eq(&back.origin, &s.op.origin, sizeof(back.origin));
        ck_assert_mem_eq(&back.caller, &s.op.caller, sizeof(back.caller));
        ck_assert_int_eq(timestamp_cmp(back.time, s.op.time), 0);
        ck_assert_uint_eq(back.payload.raw_len, s.op.payload.raw_len);
        ck_assert_str_ne(op_kind_text(back.kind), "unknown");
}
END_TEST

START_TEST(fields_survive) {
        CLEANUP(enc_done) struct enc e = {0}, f = {0};
        cleanup_free void *scratch = NULL, *more = NULL;
        struct op_sample s = op_sample(9), t = op_sample(8);
        struct op w, a;
        ck_assert_int_eq(encode(&s.op, &e), 0);
        ck_assert_int_eq(op_decode(e.data, e.len, s.op.payload.data, s.op.payload.len, &w, &scratch), 0);
        ck_assert_uint_eq(w.write.keep, 5000);
        ck_assert_uint_eq(w.write.size, 30000);
        ck_assert_uint_eq(w.write.flags, WRITE_KILL_SUID | WRITE_NO_MTIME);
        ck_assert_uint_eq(w.write.n_extents, 3);
        ck_assert_uint_eq(w.write.extents[2].offset, 20000);
        ck_assert_uint_eq(w.write.extents[1].length, 16384);
        ck_assert_int_eq(w.write.extents[1].kind, EXTENT_ZERO);
        ck_assert_int_eq(encode(&t.op, &f), 0);
        ck_assert_int_eq(op_decode(f.data, f.len, NULL, 0, &a, &more), 0);
        ck_assert_uint_eq(a.setattr.gid, UINT32_MAX - 1);
        ck_assert_int_eq(a.setattr.atime.sec, -315619200);
        ck_assert_uint_eq(a.setattr.mtime.nsec, 999999999);
}
END_TEST

/* The head is what the log holds per operation, so its size is a promise. */
START_TEST(heads_are_small) {
        CLEANUP(enc_done) struct enc e = {0}, f = {0}, g = {0};
        struct op create = op_sample(2).op, move = op_sample(7).op, write = op_sample(10).op;
        ck_assert_int_eq(encode(&create, &e), 0);
        ck_assert_int_eq(encode(&move, &f), 0);
        ck_assert_int_eq(encode(&write, &g), 0);
        ck_assert_uint_le(e.len, 60);
        ck_assert_uint_le(f.len, 66);
        ck_assert_uint_le(g.len, 50);
}
END_TEST

START_TEST(truncated) {
        struct op_sample s = op_sample((size_t)_i);
        CLEANUP(enc_done) struct enc e = {0};
        must(encode(&s.op, &e) == 0);
        for (size_t n = 0; n < e.len; n++) {
                cleanup_free uint8_t *head = xmalloc(n + 1); /* its own allocation: a sanitizer sees any byte too far */
                struct op op;
                void *scratch = NULL;
                memcpy(head, e.data, n);
                must(op_decode(head, n, s.op.payload.data, s.op.payload.len, &op, &scratch) == -EBADMSG);
                must(!scratch);
        }
        cleanup_free uint8_t *longer = xmalloc(e.len + 1);
        struct op op;
        void *scratch = NULL;
        memcpy(longer, e.data, e.len);
        longer[e.len] = 0;
        must(op_decode(longer, e.len + 1, s.op.payload.data, s.op.payload.len, &op, &scratch) == -EBADMSG);
}
END_TEST

/* Whatever still decodes after flips encodes to the very same bytes, and can be applied. */
START_TEST(flipped) {
        struct op_sample s = op_sample((size_t)_i);
        struct fixture f;
        uint64_t state = (uint64_t)_i;
        CLEANUP(enc_done) struct enc e = {0};
        must(encode(&s.op, &e) == 0);
        fixture_begin(&f);
        for (uint32_t i = 0; i < 100; i++)
                (void)make(&f, INO_ROOT, (char[]){(char)('0' + i / 10), (char)('0' + i % 10), 0}, i % 2 ? S_IFREG : S_IFDIR);
        for (int round = 0; round < 5000; round++) {
                cleanup_free uint8_t *head = xmalloc(e.len);
                cleanup_free void *scratch = NULL;
                struct op op;
                memcpy(head, e.data, e.len);
                for (uint64_t n = 1 + next_random(&state) % 3; n > 0; n--)
                        head[next_random(&state) % e.len] ^= (uint8_t)(1u << (next_random(&state) % 8));
                errint_t r = op_decode(head, e.len, s.op.payload.data, s.op.payload.len, &op, &scratch);
                if (r < 0) {
                        must(r == -EBADMSG);
                        continue;
                }
                CLEANUP(enc_done) struct enc again = {0};
                must(encode(&op, &again) == 0);
                must(again.len == e.len);
                must(memcmp(again.data, head, e.len) == 0);
                r = tree_apply(f.t, &op, ++f.seq, &f.changes, &f.result);
                must(r == 0 || r == -EBADMSG);
        }
        char fault[200] = "";
        ck_assert_msg(tree_check(f.t, fault, sizeof(fault)) == 0, "%s", fault);
        fixture_done(&f);
}
END_TEST

/* Bytes that could be read, but that no encoder writes: one operation has one form. Offsets are those of the golden heads. */
static void refused(size_t sample, size_t at, const char *bytes, size_t n, size_t instead_of) {
        struct op_sample s = op_sample(sample);
        CLEANUP(enc_done) struct enc e = {0};
        struct op op;
        void *scratch = NULL;
        ck_assert_int_eq(encode(&s.op, &e), 0);
        ck_assert_uint_ge(e.len, at + instead_of);
        cleanup_free uint8_t *head = xmalloc(e.len - instead_of + n);
        memcpy(head, e.data, at);
        memcpy(head + at, bytes, n);
        memcpy(head + at + n, e.data + at + instead_of, e.len - at - instead_of);
        ck_assert_int_eq(op_decode(head, e.len - instead_of + n, s.op.payload.data, s.op.payload.len, &op, &scratch), -EBADMSG);
        ck_assert_ptr_null(scratch);
}
enum { COMMON = 33 }; /* bytes before what belongs to the kind */

START_TEST(one_form_only) {
        refused(0, 0, "\x0d", 1, 1); /* a kind that is not there */
        refused(0, 1, "\x01", 1, 1); /* a bit that the kind does not know */
        refused(1, 1, "\x10", 1, 1);
        refused(9, 1, "\x40", 1, 1);
        refused(0, 2, "\x80\x80\x80\x80\x10", 5, 1);                                /* node above 32 bits */
        refused(0, 2, "\x83\x00", 2, 1);                                            /* a varint longer than needed */
        refused(0, 24, "ba\0h", 4, 4);                                              /* a program with a NUL */
        refused(9, COMMON + 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, 2);  /* keep under its bit means "all" */
        refused(9, COMMON + 3, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, 3);  /* size likewise */
        refused(9, COMMON + 6, "\x80\x41", 2, 1);                                   /* 8,320 extents */
        refused(9, COMMON + 6, "\x7f", 1, 1);                                       /* more extents than bytes */
        refused(9, COMMON + 10, "\x01", 1, 3);                                      /* an empty extent */
        refused(9, COMMON + 13, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, 2); /* extents that wrap around */
        refused(9, COMMON + 8, "\x0c", 1, 1);                                       /* data that the payload has not */
        refused(1, COMMON + 18, "\0", 1, 11);                                       /* the ACL bit, and no ACL */
        refused(1, COMMON + 29, "\0", 1, 12);                                       /* likewise the default ACL */
        refused(8, COMMON + 1, "\x7f", 1, 1);                                       /* a mask bit that is not there */
        refused(15, COMMON, "\x02..", 3, 14);                                       /* a name that is none */
}
END_TEST

START_TEST(rules) {
        CLEANUP(enc_done) struct enc e;
        struct op op = op_sample(1).op;
        enc_init(&e, OP_HEAD_MAX);
        op.create.name = name_of("a/b");
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op.create.name = (struct op_name){"a\0b", 3};
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op = op_sample(0).op;
        op.time.nsec = 1000000000;
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op.time.nsec = 0;
        op.payload.raw_len = 1;
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op = op_sample(10).op;
        op.write.size = 5; /* with append */
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        struct extent empty = {7, 0, EXTENT_ZERO};
        op = op_sample(9).op;
        op.write.extents = &empty;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){0};
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op = op_sample(9).op;
        op.payload.raw_len = 10; /* not what the extents take */
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op.kind = OP_KIND_COUNT;
        ck_assert_int_eq(op_encode_head(&op, &e), -EINVAL);
        op = op_sample(11).op;
        op.setxattr.len = LIMIT_XATTR_VALUE + 1;
        ck_assert_int_eq(op_encode_head(&op, &e), -E2BIG);
        ck_assert_uint_eq(e.len, 0);
        ck_assert(op_name_valid("a", 1));
        ck_assert(!op_name_valid("", 0));
        ck_assert(!op_name_valid("..", 2));
        ck_assert(op_name_valid("..a", 3));
        ck_assert_str_eq(op_kind_text((enum op_kind)77), "unknown");
}
END_TEST

START_TEST(largest_write) {
        static struct extent x[OP_EXTENTS_MAX + 1];
        CLEANUP(enc_done) struct enc e;
        cleanup_free void *scratch = NULL;
        struct op op = op_of(OP_WRITE), back;
        enc_init(&e, OP_HEAD_MAX);
        uint64_t at = UINT64_C(1) << 62;
        for (size_t i = 0; i <= OP_EXTENTS_MAX; i++, at += UINT64_C(1) << 49)
                x[i] = (struct extent){at, UINT64_C(1) << 48, EXTENT_ZERO};
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        op.write.extents = x;
        op.write.n_extents = OP_EXTENTS_MAX + 1;
        must(op_encode_head(&op, &e) == -E2BIG);
        op.write.n_extents = OP_EXTENTS_MAX;
        must(op_encode_head(&op, &e) == 0);
        must(op_decode(e.data, e.len, NULL, 0, &back, &scratch) == 0);
        must(back.write.n_extents == OP_EXTENTS_MAX);
        for (size_t i = 0; i < OP_EXTENTS_MAX; i++) {
                must(back.write.extents[i].offset == x[i].offset);
                must(back.write.extents[i].length == x[i].length);
                must(back.write.extents[i].kind == x[i].kind);
        }
}
END_TEST

START_TEST(payload_forms) {
        CLEANUP(enc_done) struct enc e = {0};
        cleanup_free void *scratch = NULL, *more = NULL;
        struct op op = op_sample(10).op, back;
        op.payload.form = FORM_ZSTD;
        op.payload.len = 11; /* of 12 */
        ck_assert_int_eq(encode(&op, &e), 0);
        ck_assert_int_eq(op_decode(e.data, e.len, op.payload.data, 11, &back, &scratch), 0);
        ck_assert_int_eq(back.payload.form, FORM_ZSTD);
        ck_assert_int_eq(op_decode(e.data, e.len, op.payload.data, 12, &back, &more), -EBADMSG); /* does not shrink */
        ck_assert_int_eq(op_decode(e.data, e.len, op.payload.data, 0, &back, &more), -EBADMSG);
        struct fixture f;
        fixture_begin(&f);
        op.write.ino = make(&f, INO_ROOT, "f", S_IFREG);
        struct hash128 before = tree_digest(f.t);
        ck_assert_int_eq(tree_apply(f.t, &op, 9, &f.changes, &f.result), -EBADMSG); /* it is no zstd frame */
        ck_assert(hash128_equal(before, tree_digest(f.t)));
        fixture_done(&f);
}
END_TEST

static Suite *suite_op(void) {
        Suite *s = suite_create("op");
        TCase *c = tcase_create("op");
        tcase_set_timeout(c, 60);
        tcase_add_loop_test(c, golden, 0, OP_SAMPLES);
        tcase_add_test(c, fields_survive);
        tcase_add_test(c, heads_are_small);
        tcase_add_loop_test(c, truncated, 0, OP_SAMPLES);
        tcase_add_loop_test(c, flipped, 0, OP_SAMPLES);
        tcase_add_test(c, one_form_only);
        tcase_add_test(c, rules);
        tcase_add_test(c, largest_write);
        tcase_add_test(c, payload_forms);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_op)
