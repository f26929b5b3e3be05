/* Files without a name: unlinked but open, and O_TMPFILE. */
#include "fake.h"
#include "unit.h"

static struct answer tmpfile_of(struct fake *k, uint64_t dir, uint32_t mode) {
        struct answer a;
        answer_init(k, &a);
        fs_tmpfile(k->fs, &root_caller, dir, mode, O_RDWR, &a.reply);
        answer_wait(&a);
        ck_assert_msg(a.kind == ANSWER_CREATE, "tmpfile: %d", a.error);
        return a;
}

START_TEST(unlinked_lives_on_while_open) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), second = do_open(k, f, O_RDONLY);
        struct attr a;
        ck_assert_int_eq(do_text(k, f, fh, 0, "hello"), 0);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "f"), 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 0); /* nobody else would see it */
        ck_assert_str_eq(do_read_text(k, f, second), "hello");
        ck_assert_int_eq(do_text(k, f, fh, 5, " world"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_str_eq(do_read_text(k, f, second), "hello world");
        ck_assert_int_eq(do_truncate(k, f, fh, 4), 0);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0444}, fh, &a), 0);
        ck_assert_uint_eq(a.mode, S_IFREG | 0444);
        ck_assert_uint_eq(a.nlink, 0);
        ck_assert_uint_eq(a.size, 4);
        ck_assert_int_eq(do_setxattr(k, f, "user.a", "b", 1, 0), 0);
        ck_assert_int_eq(do_getxattr(k, f, "user.a", 0, NULL), 1);
        ck_assert_int_eq(do_fsync(k, f, fh), 0);
        ck_assert_uint_eq(k->barriers, 0); /* it lives in memory alone */
        ck_assert_uint_eq(k->kinds[OP_WRITE] + k->kinds[OP_SETATTR] + k->kinds[OP_SETXATTR], 0);
        ck_assert_int_eq(do_link(k, f, INO_ROOT, "back"), -ENOENT); /* gone is gone */
        do_release(k, f, fh);
        ck_assert_str_eq(do_read_text(k, f, second), "hell");
        do_release(k, f, second);
        ck_assert_int_eq(do_getattr(k, f, &a), -ESTALE);
        fake_free(k);
}
END_TEST

START_TEST(too_late_for_the_last_name) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a, b, c;
        struct attr attr;
        ck_assert_int_eq(do_text(k, f, fh, 0, "first"), 0);
        answer_init(k, &a);
        fs_flush(k->fs, &root_caller, f, fh, 0, &a.reply); /* under way … */
        answer_init(k, &b);
        fs_setattr(k->fs, &root_caller, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0640}, fh, &b.reply);
        fake_remote_unlink(k, INO_ROOT, "f"); /* … when somebody removes it */
        ck_assert_int_eq(do_text(k, f, fh, 1, "I"), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "fIrst");
        answer_init(k, &c);
        fs_flush(k->fs, &root_caller, f, fh, 0, &c.reply); /* must wait for the older one, which is still with the backend */
        ck_assert(!answer_there(&c));
        ck_assert_uint_eq(fake_waiting(k), 2);
        fake_apply(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "fIrst");
        fake_all(k);
        ck_assert_int_eq(a.error, 0);
        ck_assert_int_eq(b.kind, ANSWER_ATTR);
        ck_assert_uint_eq(b.entry.attr.mode, S_IFREG | 0640);
        ck_assert_int_eq(c.kind, ANSWER_ERR);
        ck_assert_int_eq(c.error, 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "fIrst");
        ck_assert_int_eq(do_getattr(k, f, &attr), 0);
        ck_assert_uint_eq(attr.nlink, 0);
        do_release(k, f, fh);
        /* with nobody who has it open, there is nothing to apply it to */
        uint64_t gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        do_release(k, g, gh);
        answer_init(k, &b);
        fs_setattr(k->fs, &root_caller, g, &(struct fs_set){.set = FS_SET_MODE, .mode = 0640}, 0, &b.reply);
        answer_init(k, &c);
        fs_setattr(k->fs, &root_caller, g, &(struct fs_set){.set = FS_SET_SIZE, .size = 5}, 0, &c.reply);
        fake_remote_unlink(k, INO_ROOT, "g");
        fake_all(k);
        ck_assert_int_eq(b.error, -ESTALE);
        ck_assert_int_eq(c.error, -ESTALE);
        fake_free(k);
}
END_TEST

START_TEST(replaced_by_rename_while_written) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        struct answer a;
        ck_assert_int_eq(do_text(k, g, gh, 0, "old"), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "new"), 0);
        answer_init(k, &a);
        fs_rename(k->fs, &root_caller, INO_ROOT, "f", INO_ROOT, "g", 0, &a.reply);
        fake_all(k);
        ck_assert_int_eq(a.error, 0);
        ck_assert_str_eq(do_read_text(k, g, gh), "old");
        ck_assert_int_eq(do_flush(k, g, gh), 0);
        ck_assert_str_eq(do_read_text(k, g, gh), "old");
        ck_assert_str_eq(do_read_text(k, f, fh), "new");
        do_release(k, g, gh);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(last_close_forgets) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "f"), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "nobody will know"), 0);
        do_release(k, f, fh); /* killed: no close came before */
        ck_assert_uint_eq(k->kinds[OP_WRITE], 0);
        fake_free(k); /* and no room stays reserved */
}
END_TEST

START_TEST(tmpfile_is_local_until_linked) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t dir = do_mkdir(k, INO_ROOT, "d", 0755);
        struct answer t = tmpfile_of(k, dir, 0640);
        uint64_t f = t.entry.ino, fh = t.open.fh;
        struct attr a;
        ck_assert_uint_eq(t.entry.attr.nlink, 0);
        ck_assert_uint_eq(t.entry.attr.mode, S_IFREG | 0640);
        ck_assert_int_eq(do_text(k, f, fh, 0, "written before"), 0);
        ck_assert_int_eq(do_setxattr(k, f, "user.a", "b", 1, 0), 0);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_UID | FS_SET_MTIME, .uid = 7, .mtime = {11, 12}}, fh, NULL), 0);
        ck_assert_uint_eq(k->submits, 2); /* the mkdir and the number */
        ck_assert_int_eq(do_link(k, f, dir, "named"), 0);
        ck_assert_uint_eq(fake_lookup(k, dir, "named"), f);
        ck_assert_uint_eq(k->kinds[OP_ADOPT], 1);
        a = fake_attr(k, f);
        ck_assert_uint_eq(a.nlink, 1);
        ck_assert_uint_eq(a.uid, 7);
        ck_assert_int_eq(a.mtime.sec, 11);
        char text[32];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "written before");
        ck_assert_int_eq(do_getxattr(k, f, "user.a", 0, NULL), 1);
        ck_assert_int_eq(do_text(k, f, fh, 8, "afterwards"), 0); /* the handle goes on */
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "written afterwards");
        ck_assert_int_eq(do_link(k, f, dir, "second"), 0);
        ck_assert_uint_eq(k->kinds[OP_LINK], 1);
        do_release(k, f, fh);
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        /* never linked */
        t = tmpfile_of(k, dir, 0600);
        ck_assert_int_eq(do_text(k, t.entry.ino, t.open.fh, 0, "x"), 0);
        do_release(k, t.entry.ino, t.open.fh);
        ck_assert_int_eq(do_getattr(k, t.entry.ino, &a), -ESTALE);
        fake_free(k);
}
END_TEST

START_TEST(tmpfile_written_while_it_is_linked) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        struct answer t = tmpfile_of(k, INO_ROOT, 0600), l, c, d;
        uint64_t f = t.entry.ino, fh = t.open.fh;
        ck_assert_int_eq(do_text(k, f, fh, 0, "one"), 0);
        answer_init(k, &l);
        fs_link(k->fs, &root_caller, f, INO_ROOT, "name", &l.reply);
        ck_assert_uint_eq(fake_waiting(k), 1);
        ck_assert_int_eq(do_text(k, f, fh, 3, "two"), 0); /* not in what is under way, and not lost either */
        answer_init(k, &c);
        fs_flush(k->fs, &root_caller, f, fh, 0, &c.reply);
        answer_init(k, &d);
        fs_setattr(k->fs, &root_caller, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0444}, fh, &d.reply);
        ck_assert_str_eq(do_read_text(k, f, fh), "onetwo");
        ck_assert_uint_eq(fake_waiting(k), 1);
        fake_all(k);
        ck_assert_int_eq(l.kind, ANSWER_ENTRY);
        ck_assert_uint_eq(l.entry.attr.nlink, 1);
        ck_assert_int_eq(c.error, 0);
        ck_assert_int_eq(d.kind, ANSWER_ATTR);
        char text[16];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "onetwo");
        ck_assert_uint_eq(fake_attr(k, f).mode, S_IFREG | 0444);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(tmpfile_name_taken) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        struct answer t = tmpfile_of(k, INO_ROOT, 0600);
        uint64_t f = t.entry.ino, fh = t.open.fh;
        (void)do_mkdir(k, INO_ROOT, "taken", 0700);
        ck_assert_int_eq(do_text(k, f, fh, 0, "x"), 0);
        ck_assert_int_eq(do_link(k, f, INO_ROOT, "taken"), -EEXIST);
        ck_assert_str_eq(do_read_text(k, f, fh), "x");
        ck_assert_int_eq(do_text(k, f, fh, 1, "y"), 0);
        ck_assert_int_eq(do_link(k, f, INO_ROOT, "free"), 0); /* it still can */
        ck_assert_str_eq(do_read_text(k, f, fh), "xy");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

static uint64_t known_to_kernel;
static bool kernel_knows(void *ctx, uint64_t ino) {
        (void)ctx;
        return ino == known_to_kernel;
}
static void with_kernel(struct fs_config *c) {
        c->backend.kernel_knows = kernel_knows;
}

/* Nobody has it open, but the kernel knows its number: an O_PATH descriptor, or a call that has found it by its path. */
START_TEST(what_the_kernel_knows_lives_on) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct attr a;
        fake_fs_config(k, with_kernel);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        do_release(k, f, fh);
        uint64_t g = do_create(k, INO_ROOT, "g", 0600, &fh);
        known_to_kernel = f;
        ck_assert_int_eq(do_rename(k, INO_ROOT, "g", INO_ROOT, "f", 0), 0);
        ck_assert_int_eq(do_setattr(k, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0711}, 0, &a), 0);
        ck_assert_uint_eq(a.mode, S_IFREG | 0711);
        ck_assert_uint_eq(a.nlink, 0);
        ck_assert_int_eq(do_setxattr(k, f, "user.a", "b", 1, 0), 0);
        ck_assert_int_eq(do_getxattr(k, f, "user.a", 0, NULL), 1);
        fs_forget(k->fs, f, 1); /* not all of it */
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        known_to_kernel = 0;
        fs_forget(k->fs, f, 1);
        ck_assert_int_eq(do_getattr(k, f, &a), -ESTALE);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "f"), 0); /* g, which nobody knows but a descriptor */
        do_release(k, g, fh);
        ck_assert_int_eq(do_getattr(k, g, &a), -ESTALE);
        fake_free(k);
}
END_TEST

static Suite *suite_orphans(void) {
        const TTest *const tests[] = {
                unlinked_lives_on_while_open,   too_late_for_the_last_name,    replaced_by_rename_while_written,   last_close_forgets,
                what_the_kernel_knows_lives_on, tmpfile_is_local_until_linked, tmpfile_written_while_it_is_linked, tmpfile_name_taken};
        return suite_of("orphans", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_orphans)
