/* The directory of virtual files. */
#include "fake.h"
#include "unit.h"

struct listed {
        char names[512];
};
static bool list(void *ctx, const char *name, size_t len, uint64_t cookie, uint32_t mode, const struct fs_entry *e, uint64_t ino) {
        struct listed *l = ctx;
        (void)cookie;
        (void)mode;
        (void)ino;
        (void)strncat(l->names, name, len);
        (void)strcat(l->names, e ? "+" : ",");
        return true;
}

START_TEST(listing_and_lookup) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct listed l = {0};
        struct fs_entry e, file;
        ck_assert_int_eq(fs_readdir(k->fs, INO_ROOT, 0, 0, false, list, &l), 0);
        ck_assert_str_eq(l.names, ".,..,"); /* hidden */
        ck_assert_int_eq(do_lookup(k, INO_ROOT, FS_VIRTUAL_DIR, &e), 0);
        ck_assert(fs_is_virtual(e.ino));
        ck_assert(S_ISDIR(e.attr.mode));
        ck_assert(!e.cacheable);
        ck_assert_int_eq(do_lookup(k, e.ino, "status", &file), 0);
        ck_assert(S_ISREG(file.attr.mode));
        ck_assert(!file.cacheable);
        ck_assert(!fs_changed_since(k->fs, file.ino, 0));
        struct fs_entry up;
        ck_assert_int_eq(do_lookup(k, e.ino, "..", &up), 0);
        ck_assert_uint_eq(up.ino, INO_ROOT);
        ck_assert_int_eq(do_lookup(k, e.ino, "none", &up), 0);
        ck_assert_uint_eq(up.ino, 0);
        ck_assert(!up.cacheable);
        ck_assert_int_eq(do_lookup(k, file.ino, "x", &up), -ENOTDIR);
        struct answer a;
        answer_init(k, &a);
        fs_opendir(k->fs, &root_caller, e.ino, &a.reply);
        ck_assert_int_eq(a.kind, ANSWER_OPEN);
        ck_assert_int_eq(fs_readdir(k->fs, e.ino, a.open.fh, 2, true, list, &l), 0);
        ck_assert_str_eq(l.names, ".,..,status+metrics+version+members+");
        struct answer done;
        answer_init(k, &done);
        fs_releasedir(k->fs, e.ino, a.open.fh, &done.reply);
        struct attr attr;
        ck_assert_int_eq(do_getattr(k, file.ino, &attr), 0);
        ck_assert_int_eq(do_getattr(k, file.ino + 1000, &attr), -ESTALE);
        fake_free(k);
}
END_TEST

static const char *read_virtual(struct fake *k, const char *name) {
        struct fs_entry dir, e;
        ck_assert_int_eq(do_lookup(k, INO_ROOT, FS_VIRTUAL_DIR, &dir), 0);
        ck_assert_int_eq(do_lookup(k, dir.ino, name, &e), 0);
        uint64_t fh = do_open(k, e.ino, O_RDONLY);
        const char *text = do_read_text(k, e.ino, fh);
        do_release(k, e.ino, fh);
        return text;
}

START_TEST(texts) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        ck_assert_str_eq(read_virtual(k, "version"), "0 0\n");
        (void)do_mkdir(k, INO_ROOT, "d", 0700);
        ck_assert_str_eq(read_virtual(k, "version"), "1 1\n");
        ck_assert_str_eq(read_virtual(k, "status"), "status text\n");
        ck_assert_str_eq(read_virtual(k, "members"), "members text\n");
        ck_assert_str_eq(read_virtual(k, "metrics"), "metrics text\n");
        /* of the moment of the open, in pieces */
        struct fs_entry dir, e;
        ck_assert_int_eq(do_lookup(k, INO_ROOT, FS_VIRTUAL_DIR, &dir), 0);
        ck_assert_int_eq(do_lookup(k, dir.ino, "version", &e), 0);
        struct answer a;
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, e.ino, O_RDONLY, false, &a.reply);
        ck_assert(a.open.direct_io);
        ck_assert(!a.open.keep_cache);
        (void)do_mkdir(k, INO_ROOT, "d2", 0700);
        char buf[8];
        ck_assert_int_eq(do_read(k, e.ino, a.open.fh, 1, buf, 2), 2);
        ck_assert_mem_eq(buf, " 1", 2);
        ck_assert_int_eq(do_read(k, e.ino, a.open.fh, 100, buf, 2), 0);
        do_release(k, e.ino, a.open.fh);
        fake_free(k);
}
END_TEST

/* A reader that has what it wanted closes, and the kernel's RELEASE is served before the thread that answered has returned. */
struct closing_reader {
        struct fs_reply reply;
        struct fake *k;
        uint64_t ino, fh;
        char got[64];
};
static void closes_meanwhile(struct fs_reply *r, const struct iovec *iov, int n) {
        struct closing_reader *c = CONTAINER_OF(r, struct closing_reader, reply);
        ck_assert_int_eq(n, 1);
        do_release(c->k, c->ino, c->fh);
        memcpy(c->got, iov->iov_base, MIN_OF(iov->iov_len, sizeof(c->got) - 1));
}

START_TEST(closed_during_the_reply) {
        static const struct fs_reply_ops ops = {.data = closes_meanwhile};
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct fs_entry dir, e;
        ck_assert_int_eq(do_lookup(k, INO_ROOT, FS_VIRTUAL_DIR, &dir), 0);
        ck_assert_int_eq(do_lookup(k, dir.ino, "status", &e), 0);
        struct closing_reader c = {.reply = {.ops = &ops}, .k = k, .ino = e.ino, .fh = do_open(k, e.ino, O_RDONLY)};
        fs_read(k->fs, e.ino, c.fh, 0, 64, &c.reply);
        ck_assert_str_eq(c.got, "status text\n");
        fake_free(k);
}
END_TEST

static int outcome(struct answer *a) {
        ck_assert_int_eq(a->kind, ANSWER_ERR);
        return a->error;
}

START_TEST(nothing_can_be_changed) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct fs_entry dir, e;
        struct answer a;
        ck_assert_int_eq(do_lookup(k, INO_ROOT, FS_VIRTUAL_DIR, &dir), 0);
        ck_assert_int_eq(do_lookup(k, dir.ino, "status", &e), 0);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        do_release(k, f, fh);
        answer_init(k, &a);
        fs_mkdir(k->fs, &root_caller, INO_ROOT, FS_VIRTUAL_DIR, 0700, &a.reply);
        ck_assert_int_eq(outcome(&a), -EEXIST);
        answer_init(k, &a);
        fs_create(k->fs, &root_caller, INO_ROOT, FS_VIRTUAL_DIR, 0600, O_CREAT | O_EXCL, &a.reply);
        ck_assert_int_eq(outcome(&a), -EEXIST);
        answer_init(k, &a);
        fs_create(k->fs, &root_caller, dir.ino, "new", 0600, O_CREAT, &a.reply);
        ck_assert_int_eq(outcome(&a), -EPERM);
        answer_init(k, &a);
        fs_tmpfile(k->fs, &root_caller, dir.ino, 0600, O_RDWR, &a.reply);
        ck_assert_int_eq(outcome(&a), -EPERM);
        ck_assert_int_eq(do_unlink(k, dir.ino, "status"), -EPERM);
        answer_init(k, &a);
        fs_rmdir(k->fs, &root_caller, INO_ROOT, FS_VIRTUAL_DIR, &a.reply);
        ck_assert_int_eq(outcome(&a), -EPERM);
        ck_assert_int_eq(do_rename(k, INO_ROOT, "f", INO_ROOT, FS_VIRTUAL_DIR, 0), -EPERM);
        ck_assert_int_eq(do_rename(k, INO_ROOT, FS_VIRTUAL_DIR, INO_ROOT, "g", 0), -EPERM);
        ck_assert_int_eq(do_rename(k, INO_ROOT, "f", dir.ino, "f", 0), -EPERM);
        ck_assert_int_eq(do_link(k, e.ino, INO_ROOT, "l"), -EPERM);
        ck_assert_int_eq(do_link(k, f, dir.ino, "l"), -EPERM);
        ck_assert_int_eq(do_truncate(k, e.ino, 0, 0), -EPERM);
        ck_assert_int_eq(do_setxattr(k, e.ino, "user.a", "b", 1, 0), -EPERM);
        ck_assert_int_eq(do_getxattr(k, e.ino, "user.a", 0, NULL), -ENODATA);
        answer_init(k, &a);
        fs_listxattr(k->fs, &root_caller, e.ino, 0, &a.reply);
        ck_assert_int_eq(a.kind, ANSWER_SIZE);
        ck_assert_uint_eq(a.n, 0);
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, e.ino, O_RDWR, false, &a.reply);
        ck_assert_int_eq(outcome(&a), -EPERM);
        answer_init(k, &a);
        fs_open(k->fs, &root_caller, dir.ino, O_RDONLY, false, &a.reply);
        ck_assert_int_eq(outcome(&a), -EISDIR);
        answer_init(k, &a);
        fs_opendir(k->fs, &root_caller, e.ino, &a.reply);
        ck_assert_int_eq(outcome(&a), -ENOTDIR);
        uint64_t vh = do_open(k, e.ino, O_RDONLY);
        ck_assert_int_eq(do_text(k, e.ino, vh, 0, "x"), -EBADF);
        ck_assert_int_eq(do_fsync(k, e.ino, vh), 0);
        ck_assert_int_eq(do_flush(k, e.ino, vh), 0);
        do_release(k, e.ino, vh);
        ck_assert_uint_eq(fake_lookup(k, INO_ROOT, FS_VIRTUAL_DIR), 0);
        fake_free(k);
}
END_TEST

static Suite *suite_virtual(void) {
        const TTest *const tests[] = {listing_and_lookup, texts, closed_during_the_reply, nothing_can_be_changed};
        return suite_of("virtual", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_virtual)
