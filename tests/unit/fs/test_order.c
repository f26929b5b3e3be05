/* Operations under way: order, what readers see meanwhile, appends, late errors, fsync, interrupts. */
#include "fake.h"
#include "unit.h"

#include <stdio.h>

static struct answer *start_flush(struct fake *k, struct answer *a, uint64_t ino, uint64_t fh) {
        answer_init(k, a);
        fs_flush(k->fs, &root_caller, ino, fh, 0, &a->reply);
        return a;
}

START_TEST(own_writes_are_always_seen) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a, b;
        struct attr attr;
        ck_assert_int_eq(do_text(k, f, fh, 0, "11111"), 0);
        (void)start_flush(k, &a, f, fh);
        ck_assert(!answer_there(&a));
        ck_assert_str_eq(do_read_text(k, f, fh), "11111"); /* under way */
        ck_assert_int_eq(do_text(k, f, fh, 3, "2222"), 0); /* gathers anew on top */
        ck_assert_str_eq(do_read_text(k, f, fh), "1112222");
        (void)start_flush(k, &b, f, fh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "3"), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "3112222");
        fake_apply(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "3112222");
        char text[16];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "11111");
        fake_apply(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "3112222");
        ck_assert(!answer_there(&a));
        fake_answer(k);
        ck_assert(answer_there(&a));
        ck_assert(!answer_there(&b));
        fake_answer(k);
        ck_assert(answer_there(&b));
        ck_assert_int_eq(do_getattr(k, f, &attr), 0);
        ck_assert_uint_eq(attr.size, 7);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "3112222");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(others_writes_are_seen_beneath) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a;
        ck_assert_int_eq(do_text(k, f, fh, 0, "aaaaaaaa"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_text(k, f, fh, 2, "XX"), 0);
        fake_remote_write(k, f, BLOB_KEEP_ALL, BLOB_KEEP_ALL, 0, "bbbbbbbb"); /* before ours */
        ck_assert_str_eq(do_read_text(k, f, fh), "bbXXbbbb");
        (void)start_flush(k, &a, f, fh);
        fake_remote_write(k, f, BLOB_KEEP_ALL, BLOB_KEEP_ALL, 3, "ccccccc");
        ck_assert_str_eq(do_read_text(k, f, fh), "bbXXcccccc");
        fake_apply(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "bbXXcccccc");
        fake_remote_write(k, f, BLOB_KEEP_ALL, BLOB_KEEP_ALL, 2, "dd"); /* after ours, and acknowledged perhaps: ours must not hide it */
        ck_assert_str_eq(do_read_text(k, f, fh), "bbddcccccc");
        fake_answer(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "bbddcccccc");
        /* a whole replacement beneath a truncation */
        ck_assert_int_eq(do_truncate(k, f, fh, 3), 0);
        fake_remote_write(k, f, 0, 5, 0, "eeeee");
        ck_assert_str_eq(do_read_text(k, f, fh), "eee");
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "eee");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(appends) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "log", 0600, &fh);
        struct answer a;
        struct attr attr;
        ck_assert_int_eq(do_append(k, f, fh, 0, "one "), 0);
        ck_assert_int_eq(do_append(k, f, fh, 4, "two "), 0);
        ck_assert_uint_eq(k->invalidated, 0);
        (void)start_flush(k, &a, f, fh);
        ck_assert_uint_eq(k->last_write.flags, WRITE_APPEND);
        ck_assert_uint_eq(k->last_write.n_extents, 1);
        ck_assert_uint_eq(k->last_write.first.offset, 0);
        ck_assert_int_eq(do_append(k, f, fh, 8, "three "), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "one two three ");
        fake_remote_append(k, f, "OTHER ");
        ck_assert_str_eq(do_read_text(k, f, fh), "OTHER one two three ");
        ck_assert_int_eq(do_getattr(k, f, &attr), 0);
        ck_assert_uint_eq(attr.size, 20);
        fake_apply(k);
        ck_assert_str_eq(do_read_text(k, f, fh), "OTHER one two three ");
        fake_remote_append(k, f, "AGAIN ");
        ck_assert_str_eq(do_read_text(k, f, fh), "OTHER one two AGAIN three ");
        ck_assert_uint_eq(k->invalidated, 0);
        fake_answer(k); /* it landed at 6, the kernel thought 0 */
        ck_assert_uint_eq(k->invalidated, 1);
        ck_assert_uint_eq(k->last_invalidated, f);
        ck_assert_int_eq(do_append(k, f, fh, 14, "four "), 0); /* an offset that is out of date is told at once */
        ck_assert_uint_eq(k->invalidated, 2);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "OTHER one two AGAIN three four ");
        /* positioned and appended, in their order */
        unsigned writes = k->kinds[OP_WRITE];
        ck_assert_int_eq(do_text(k, f, fh, 0, "other"), 0);
        ck_assert_int_eq(do_append(k, f, fh, 31, "five "), 0);
        ck_assert_int_eq(do_text(k, f, fh, 31, "FIVE"), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "other one two AGAIN three four FIVE ");
        ck_assert_uint_eq(k->kinds[OP_WRITE], writes + 2);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        char text[64];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "other one two AGAIN three four FIVE ");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(identical_is_judged_against_what_is_there) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a, b;
        ck_assert_int_eq(do_text(k, f, fh, 0, "one"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "two"), 0);
        (void)start_flush(k, &a, f, fh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "one"), 0); /* as the tree has it, but not after the one under way */
        (void)start_flush(k, &b, f, fh);
        fake_all(k);
        char text[8];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "one");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(rename_follows_the_content) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "tmp", 0600, &fh);
        struct answer a, b;
        ck_assert_int_eq(do_text(k, f, fh, 0, "content"), 0);
        answer_init(k, &a);
        fs_rename(k->fs, &root_caller, INO_ROOT, "tmp", INO_ROOT, "real", 0, &a.reply);
        answer_init(k, &b);
        fs_setattr(k->fs, &root_caller, f, &(struct fs_set){.set = FS_SET_MODE, .mode = 0644}, 0, &b.reply);
        ck_assert_uint_eq(fake_waiting(k), 3);
        fake_apply(k);
        char text[16];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "content");
        ck_assert_uint_eq(fake_lookup(k, INO_ROOT, "real"), 0);
        fake_apply(k);
        ck_assert_uint_eq(fake_lookup(k, INO_ROOT, "real"), f);
        fake_all(k);
        ck_assert_int_eq(a.error, 0);
        ck_assert_int_eq(b.kind, ANSWER_ATTR);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(late_errors_stay) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), other = do_open(k, f, O_RDWR), reader = do_open(k, f, O_RDONLY);
        ck_assert_int_eq(do_text(k, f, fh, 0, "good"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "lost"), 0);
        k->refuse = -ENOSPC;
        fake_advance(k, 1000);
        fake_advance(k, 1000);
        fake_all(k);
        k->refuse = 0;
        ck_assert_uint_ge(k->invalidated, 1); /* the kernel's pages show what is not there */
        ck_assert_str_eq(do_read_text(k, f, fh), "good");
        ck_assert_int_eq(do_flush(k, f, reader), 0);
        ck_assert_int_eq(do_fsync(k, f, fh), -ENOSPC); /* once to everybody who writes */
        ck_assert_int_eq(do_fsync(k, f, fh), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_flush(k, f, other), -ENOSPC);
        ck_assert_int_eq(do_flush(k, f, other), 0);
        /* nobody was told: the next who opens it is */
        ck_assert_int_eq(do_text(k, f, fh, 0, "lost"), 0);
        k->refuse = -EIO;
        fake_advance(k, 1000);
        fake_all(k);
        k->refuse = 0;
        uint64_t third = do_open(k, f, O_RDWR);
        ck_assert_int_eq(do_flush(k, f, third), -EIO);
        ck_assert_int_eq(do_flush(k, f, fh), -EIO);
        uint64_t fourth = do_open(k, f, O_RDWR);
        ck_assert_int_eq(do_flush(k, f, fourth), 0);
        /* the failing flush itself */
        ck_assert_int_eq(do_text(k, f, fh, 0, "lost"), 0);
        k->refuse = -EROFS;
        ck_assert_int_eq(do_flush(k, f, fh), -EROFS);
        k->refuse = 0;
        ck_assert_str_eq(do_read_text(k, f, fh), "good");
        do_release(k, f, fh);
        do_release(k, f, other);
        do_release(k, f, reader);
        do_release(k, f, third);
        do_release(k, f, fourth);
        fake_free(k);
}
END_TEST

START_TEST(failed_beneath_gathered) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a;
        ck_assert_int_eq(do_text(k, f, fh, 0, "good"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_text(k, f, fh, 0, "lost!!"), 0);
        (void)start_flush(k, &a, f, fh);
        ck_assert_int_eq(do_text(k, f, fh, 1, "ee"), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "leet!!");
        k->refuse = -EIO;
        fake_all(k);
        k->refuse = 0;
        ck_assert_int_eq(a.error, -EIO);
        ck_assert_str_eq(do_read_text(k, f, fh), "geed");
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_str_eq(do_read_text(k, f, fh), "geed");
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

START_TEST(fsync_waits_for_both) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        struct answer a, b;
        ck_assert_int_eq(do_text(k, f, fh, 0, "x"), 0);
        answer_init(k, &a);
        fs_fsync(k->fs, f, fh, true, &a.reply);
        ck_assert_uint_eq(k->barriers, 0);
        fake_apply(k);
        fake_answer(k);
        ck_assert_uint_eq(k->barriers, 1);
        ck_assert(!answer_there(&a));
        fake_all(k);
        ck_assert_int_eq(a.kind, ANSWER_ERR);
        ck_assert_int_eq(a.error, 0);
        ck_assert_int_eq(do_fsync(k, f, fh), 0); /* nothing gathered: the barrier alone */
        ck_assert_uint_eq(k->barriers, 2);
        /* of a directory: all files */
        ck_assert_int_eq(do_text(k, f, fh, 0, "y"), 0);
        ck_assert_int_eq(do_text(k, g, gh, 0, "z"), 0);
        answer_init(k, &b);
        fs_fsyncdir(k->fs, INO_ROOT, &b.reply);
        ck_assert_uint_eq(fake_waiting(k), 2);
        fake_apply(k);
        fake_apply(k);
        fake_answer(k);
        fake_answer(k);
        ck_assert(!answer_there(&b));
        ck_assert_uint_eq(k->barriers, 3);
        k->refuse = -EIO; /* the barrier's own failure */
        fake_all(k);
        k->refuse = 0;
        ck_assert_int_eq(b.error, -EIO);
        ck_assert_int_eq(do_text(k, g, gh, 0, "w"), 0); /* a write that fails is no success of the barrier */
        k->refuse = -ENOSPC;
        answer_init(k, &b);
        fs_fsyncdir(k->fs, INO_ROOT, &b.reply);
        fake_all(k);
        k->refuse = 0;
        ck_assert_int_eq(b.error, -ENOSPC);
        ck_assert_int_eq(do_flush(k, g, gh), -ENOSPC); /* and its own writer hears of it */
        do_release(k, f, fh);
        do_release(k, g, gh);
        fake_free(k);
}
END_TEST

START_TEST(interrupts) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a, b;
        answer_init(k, &a);
        fs_mkdir(k->fs, &root_caller, INO_ROOT, "d", 0700, &a.reply);
        fs_interrupt(k->fs, a.reply.unique);
        ck_assert_uint_eq(k->withdrawn, 1);
        ck_assert(!answer_there(&a)); /* the backend answers */
        fake_all(k);
        ck_assert_int_eq(a.error, -EINTR);
        ck_assert_uint_eq(fake_lookup(k, INO_ROOT, "d"), 0);
        fs_interrupt(k->fs, a.reply.unique); /* too late: nothing */
        fs_interrupt(k->fs, 12345);
        /* waiting for a flush: the caller goes, the bytes go on */
        ck_assert_int_eq(do_text(k, f, fh, 0, "kept"), 0);
        answer_init(k, &b);
        fs_fsync(k->fs, f, fh, false, &b.reply);
        fs_interrupt(k->fs, b.reply.unique);
        ck_assert_int_eq(b.error, -EINTR);
        do_release(k, f, fh); /* while its gate is still shut */
        fake_all(k);
        char text[8];
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "kept");
        fake_free(k);
}
END_TEST

START_TEST(closing_sends_once) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh);
        struct answer a, b;
        ck_assert_int_eq(do_text(k, f, fh, 0, "x"), 0);
        (void)start_flush(k, &a, f, fh); /* and a copy of the handle in another process */
        (void)start_flush(k, &b, f, fh);
        ck_assert(!answer_there(&b)); /* what it wrote is not stable either */
        fake_all(k);
        ck_assert_int_eq(a.error, 0);
        ck_assert_int_eq(b.error, 0);
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        uint64_t rh = do_open(k, f, O_RDONLY);
        ck_assert_int_eq(do_text(k, f, fh, 0, "y"), 0);
        (void)start_flush(k, &a, f, rh); /* a reader waits for nothing */
        ck_assert(answer_there(&a));
        ck_assert_uint_eq(k->kinds[OP_WRITE], 1);
        do_release(k, f, rh);
        do_release(k, f, fh); /* written after the last close (mmap): the release sends it */
        ck_assert_uint_eq(k->kinds[OP_WRITE], 2);
        fake_all(k);
        fake_free(k);
}
END_TEST

START_TEST(shutdown_sends_all) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        uint64_t fh[10], ino[10];
        for (int i = 0; i < 10; i++) {
                char name[8];
                (void)snprintf(name, sizeof(name), "f%d", i);
                ino[i] = do_create(k, INO_ROOT, name, 0600, &fh[i]);
                ck_assert_int_eq(do_text(k, ino[i], fh[i], 0, name), 0);
        }
        fake_free(k); /* with everything open */
}
END_TEST

START_TEST(another_history) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "both", 0600, &fh), gh, g = do_create(k, INO_ROOT, "gone", 0640, &gh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "old"), 0);
        ck_assert_int_eq(do_flush(k, f, fh), 0);
        ck_assert_int_eq(do_text(k, g, gh, 0, "only here"), 0);
        ck_assert_int_eq(do_setxattr(k, g, "user.x", "y", 1, 0), 0);
        ck_assert_int_eq(do_text(k, f, fh, 3, "+gathered"), 0);
        struct state other;
        state_init(&other);
        struct change_set changes;
        struct op_result r;
        change_set_init(&changes);
        for (int i = 0; i < 3; i++) { /* a history in which 2 has another content, 3 was removed */
                struct op op = {.kind = OP_CREATE, .time = {1, 0}, .origin = {7, 1, (uint64_t)i + 1, 1}};
                op.create.parent = INO_ROOT;
                op.create.name = (struct op_name){i == 0 ? "both" : i == 1 ? "gone" : "new", i == 2 ? 3 : 4};
                op.create.mode = S_IFREG | 0600;
                ck_assert_int_eq(tree_apply(other.tree, &op, (uint64_t)i + 1, &changes, &r), 0);
        }
        struct op op = {.kind = OP_UNLINK, .time = {1, 0}};
        op.unlink.parent = INO_ROOT;
        op.unlink.name = (struct op_name){"gone", 4};
        ck_assert_int_eq(tree_apply(other.tree, &op, 4, &changes, &r), 0);
        change_set_done(&changes);
        struct state *s = shared_state_write(k->state);
        struct state old = *s;
        *s = other;
        fs_replaced(k->fs, &old);
        shared_state_done_write(k->state);
        state_done(&old);
        struct attr a;
        ck_assert_str_eq(do_read_text(k, g, gh), "only here");
        ck_assert_int_eq(do_getattr(k, g, &a), 0);
        ck_assert_uint_eq(a.nlink, 0);
        ck_assert_uint_eq(a.mode, S_IFREG | 0640);
        ck_assert_int_eq(do_getxattr(k, g, "user.x", 0, NULL), 1);
        char buf[16];
        ck_assert_int_eq(do_read(k, f, fh, 0, buf, sizeof(buf)), 12);
        ck_assert_mem_eq(buf, "\0\0\0+gathered", 12);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "both"), 0); /* pinned there too */
        ck_assert_int_eq(do_read(k, f, fh, 0, buf, sizeof(buf)), 12);
        do_release(k, f, fh);
        do_release(k, g, gh);
        ck_assert_int_eq(do_getattr(k, g, &a), -ESTALE);
        fake_free(k);
}
END_TEST

/* A history of `n` files, named after their place. */
static void other_history(struct fake *k, unsigned n) {
        struct state other, old;
        struct change_set changes;
        struct op_result r;
        state_init(&other);
        change_set_init(&changes);
        for (unsigned i = 0; i < n; i++) {
                char name[2] = {(char)('0' + i)};
                struct op op = {.kind = OP_CREATE, .time = {1, 0}, .origin = {7, 1, (uint64_t)i + 1, 1}};
                op.create.parent = INO_ROOT;
                op.create.name = (struct op_name){name, 1};
                op.create.mode = S_IFREG | 0600;
                ck_assert_int_eq(tree_apply(other.tree, &op, (uint64_t)i + 1, &changes, &r), 0);
        }
        change_set_done(&changes);
        struct state *s = shared_state_write(k->state);
        old = *s;
        *s = other;
        fs_replaced(k->fs, &old);
        shared_state_done_write(k->state);
        state_done(&old);
}

/* A file was made in a history that is given up before the answer, and is made again in another one: it is that one which is open then,
 * whatever number it has there, and whoever has its first number. */
START_TEST(created_in_two_histories) {
        for (unsigned others = 0; others < 4; others++) {
                struct fake *k = fake_new(FAKE_BY_HAND);
                struct answer a;
                char text[16];
                answer_init(k, &a);
                fs_create(k->fs, &root_caller, INO_ROOT, "mine", 0600, O_RDWR, &a.reply);
                fake_apply(k);
                other_history(k, others);
                fake_again(k);
                fake_apply(k);
                fake_answer(k);
                ck_assert_int_eq(a.kind, ANSWER_CREATE);
                uint64_t ino = fake_lookup(k, INO_ROOT, "mine");
                ck_assert_uint_eq(a.entry.ino, ino);
                k->mode = FAKE_AT_ONCE;
                ck_assert_int_eq(do_text(k, ino, a.open.fh, 0, "here"), 0);
                ck_assert_int_eq(do_flush(k, ino, a.open.fh), 0);
                fake_content(k, ino, text, sizeof(text));
                ck_assert_str_eq(text, "here");
                for (unsigned i = 0; i < others; i++) {
                        char name[2] = {(char)('0' + i)};
                        fake_content(k, fake_lookup(k, INO_ROOT, name), text, sizeof(text));
                        ck_assert_str_eq(text, "");
                }
                do_release(k, ino, a.open.fh);
                answer_done(&a);
                fake_free(k);
        }
}
END_TEST

static Suite *suite_order(void) {
        const TTest *const tests[] = {created_in_two_histories,
                                      own_writes_are_always_seen,
                                      others_writes_are_seen_beneath,
                                      appends,
                                      identical_is_judged_against_what_is_there,
                                      rename_follows_the_content,
                                      late_errors_stay,
                                      failed_beneath_gathered,
                                      fsync_waits_for_both,
                                      interrupts,
                                      closing_sends_once,
                                      shutdown_sends_all,
                                      another_history};
        return suite_of("order", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_order)
