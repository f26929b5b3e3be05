/* Names: looking up, making, removing, moving, listing. */
#include "fake.h"
#include "unit.h"

#include <stdio.h>

START_TEST(lookup) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct fs_entry e;
        ck_assert_int_eq(do_lookup(k, INO_ROOT, "none", &e), 0);
        ck_assert_uint_eq(e.ino, 0); /* a negative entry may be kept */
        ck_assert(e.cacheable);
        uint64_t d = do_mkdir(k, INO_ROOT, "d", 0700);
        ck_assert_int_eq(do_lookup(k, INO_ROOT, "d", &e), 0);
        ck_assert_uint_eq(e.ino, d);
        ck_assert_uint_eq(e.attr.mode, S_IFDIR | 0700);
        ck_assert(e.cacheable);
        ck_assert_uint_eq(e.seq, e.attr.change_seq);
        ck_assert(!fs_changed_since(k->fs, d, e.seq));
        uint64_t sub = do_mkdir(k, d, "sub", 0700);
        ck_assert(fs_changed_since(k->fs, d, e.seq)); /* its times and links */
        ck_assert_int_eq(do_lookup(k, sub, "..", &e), 0);
        ck_assert_uint_eq(e.ino, d);
        ck_assert_int_eq(do_lookup(k, 999, "x", &e), -ESTALE);
        ck_assert(fs_changed_since(k->fs, 999, 0));
        char name[300];
        memset(name, 'n', sizeof(name));
        name[256] = '\0';
        ck_assert_int_eq(do_lookup(k, d, name, &e), -ENAMETOOLONG);
        name[255] = '\0';
        ck_assert_int_eq(do_lookup(k, d, name, &e), 0);
        fs_forget(k->fs, d, 3);
        ck_assert_uint_gt(metric_get(&k->metrics, METRIC_LOOKUPS), 0);
        ck_assert_uint_eq(metric_get(&k->metrics, METRIC_FUSE_FORGETS), 1);
        fake_free(k);
}
END_TEST

static int make(struct fake *k, const struct fs_caller *c, uint64_t parent, const char *name, uint32_t mode, struct attr *ret) {
        struct answer a;
        answer_init(k, &a);
        if (S_ISDIR(mode))
                fs_mkdir(k->fs, c, parent, name, mode & 07777, &a.reply);
        else if (S_ISLNK(mode))
                fs_symlink(k->fs, c, parent, name, "/target", &a.reply);
        else
                fs_mknod(k->fs, c, parent, name, mode, 0x0103, &a.reply);
        answer_wait(&a);
        *ret = a.entry.attr;
        return a.kind == ANSWER_ERR ? a.error : 0;
}

START_TEST(types_and_owners) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct fs_caller c = {.uid = 5, .gid = 6, .pid = 42, .umask = 027};
        struct attr a;
        ck_assert_int_eq(make(k, &c, INO_ROOT, "fifo", S_IFIFO | 0666, &a), 0);
        ck_assert_uint_eq(a.mode, S_IFIFO | 0640);
        ck_assert_uint_eq(a.rdev, 0);
        ck_assert_uint_eq(a.uid, 5);
        ck_assert_uint_eq(a.gid, 6);
        ck_assert_str_eq(k->last_caller.program, "prog42");
        ck_assert_int_eq(k->last_caller.pid, 42);
        ck_assert_int_eq(make(k, &c, INO_ROOT, "sock", S_IFSOCK | 0666, &a), 0);
        ck_assert_int_eq(make(k, &c, INO_ROOT, "null", S_IFCHR | 0666, &a), 0);
        ck_assert_uint_eq(a.rdev, 0x0103);
        ck_assert_int_eq(make(k, &c, INO_ROOT, "reg", S_IFREG | 0666, &a), 0);
        ck_assert_int_eq(make(k, &c, INO_ROOT, "reg", S_IFREG | 0666, &a), -EEXIST);
        ck_assert_int_eq(make(k, &c, INO_ROOT, "link", S_IFLNK, &a), 0);
        ck_assert_uint_eq(a.size, 7);
        struct answer r;
        answer_init(k, &r);
        fs_readlink(k->fs, &c, a.ino, &r.reply);
        ck_assert_str_eq((char *)r.data, "/target");
        answer_done(&r);
        answer_init(k, &r);
        fs_readlink(k->fs, &c, INO_ROOT, &r.reply);
        ck_assert_int_eq(r.error, -EINVAL);
        /* a setgid directory */
        ck_assert_int_eq(make(k, &c, INO_ROOT, "d", S_IFDIR | 0777, &a), 0);
        ck_assert_uint_eq(a.nlink, 2);
        uint64_t d = a.ino;
        ck_assert_int_eq(do_setattr(k, d, &(struct fs_set){.set = FS_SET_MODE | FS_SET_GID, .mode = 02777, .gid = 99}, 0, NULL), 0);
        ck_assert_int_eq(make(k, &c, d, "f", S_IFREG | 0666, &a), 0);
        ck_assert_uint_eq(a.gid, 99);
        ck_assert_uint_eq(a.mode, S_IFREG | 0640);
        ck_assert_int_eq(make(k, &c, d, "sub", S_IFDIR | 0777, &a), 0);
        ck_assert_uint_eq(a.gid, 99);
        ck_assert_uint_eq(a.mode, S_IFDIR | 02750);
        ck_assert_int_eq(make(k, &c, d, "sock", S_IFLNK, &a), 0);
        ck_assert_uint_eq(a.gid, 99);
        /* errors */
        ck_assert_int_eq(make(k, &c, 999, "x", S_IFDIR | 0777, &a), -ESTALE);
        ck_assert_int_eq(make(k, &c, fake_lookup(k, INO_ROOT, "reg"), "x", S_IFDIR | 0777, &a), -ENOTDIR);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "d"), -EISDIR);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "nothing"), -ENOENT);
        k->not_writable = -EROFS;
        ck_assert_int_eq(make(k, &c, INO_ROOT, "ro", S_IFDIR | 0777, &a), -EROFS);
        ck_assert_int_eq(do_unlink(k, INO_ROOT, "reg"), -EROFS);
        fake_free(k);
}
END_TEST

START_TEST(create_of_what_exists) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, ino = do_create(k, INO_ROOT, "f", 0600, &fh);
        do_release(k, ino, fh);
        struct answer a;
        answer_init(k, &a); /* the kernel thought it was not there: it shall look again, and check permissions */
        fs_create(k->fs, &root_caller, INO_ROOT, "f", 0600, O_CREAT | O_WRONLY, &a.reply);
        ck_assert_int_eq(a.error, -ESTALE);
        answer_init(k, &a);
        fs_create(k->fs, &root_caller, INO_ROOT, "f", 0600, O_CREAT | O_EXCL | O_WRONLY, &a.reply);
        ck_assert_int_eq(a.error, -EEXIST);
        fake_free(k);
}
END_TEST

START_TEST(created_is_pinned_at_apply) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        struct answer a;
        answer_init(k, &a);
        fs_create(k->fs, &root_caller, INO_ROOT, "f", 0600, O_CREAT | O_RDWR, &a.reply);
        fake_apply(k);
        ck_assert(!answer_there(&a));
        fake_remote_unlink(k, INO_ROOT, "f"); /* before the kernel knows it exists */
        fake_answer(k);
        ck_assert_int_eq(a.kind, ANSWER_CREATE);
        ck_assert_uint_eq(a.entry.attr.nlink, 0);
        ck_assert_int_eq(do_text(k, a.entry.ino, a.open.fh, 0, "mine"), 0);
        ck_assert_str_eq(do_read_text(k, a.entry.ino, a.open.fh), "mine");
        do_release(k, a.entry.ino, a.open.fh);
        struct attr attr;
        ck_assert_int_eq(do_getattr(k, a.entry.ino, &attr), -ESTALE);
        fake_free(k);
}
END_TEST

START_TEST(create_refused_leaves_nothing) {
        struct fake *k = fake_new(FAKE_BY_HAND);
        struct answer a;
        answer_init(k, &a);
        fs_create(k->fs, &root_caller, INO_ROOT, "f", 0600, O_CREAT | O_RDWR, &a.reply);
        k->refuse = -EROFS;
        fake_all(k);
        ck_assert_int_eq(a.error, -EROFS);
        k->refuse = 0;
        ck_assert_uint_eq(fake_lookup(k, INO_ROOT, "f"), 0);
        fake_free(k);
}
END_TEST

START_TEST(rename_and_link) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        uint64_t fh, f = do_create(k, INO_ROOT, "f", 0600, &fh), gh, g = do_create(k, INO_ROOT, "g", 0600, &gh);
        ck_assert_int_eq(do_text(k, f, fh, 0, "new"), 0);
        ck_assert_int_eq(do_text(k, g, gh, 0, "old"), 0);
        ck_assert_int_eq(do_flush(k, g, gh), 0);
        unsigned writes = k->kinds[OP_WRITE];
        ck_assert_int_eq(do_rename(k, INO_ROOT, "f", INO_ROOT, "g", 0), 0); /* without a close before */
        ck_assert_uint_eq(k->kinds[OP_WRITE], writes + 1);
        char text[16];
        fake_content(k, fake_lookup(k, INO_ROOT, "g"), text, sizeof(text));
        ck_assert_str_eq(text, "new");
        ck_assert_str_eq(do_read_text(k, g, gh), "old"); /* for those who have it open */
        struct attr a;
        ck_assert_int_eq(do_getattr(k, g, &a), 0);
        ck_assert_uint_eq(a.nlink, 0);
        do_release(k, g, gh);
        ck_assert_int_eq(do_rename(k, INO_ROOT, "none", INO_ROOT, "g", 0), -ENOENT);
        ck_assert_int_eq(do_rename(k, INO_ROOT, "g", INO_ROOT, "g2", 6 /* WHITEOUT | EXCHANGE */), -EINVAL);
        ck_assert_int_eq(do_text(k, f, fh, 3, " more"), 0);
        ck_assert_int_eq(do_link(k, f, INO_ROOT, "h"), 0);
        fake_content(k, f, text, sizeof(text));
        ck_assert_str_eq(text, "new more");
        ck_assert_int_eq(do_getattr(k, f, &a), 0);
        ck_assert_uint_eq(a.nlink, 2);
        ck_assert_int_eq(do_link(k, f, INO_ROOT, "h"), -EEXIST);
        ck_assert_int_eq(do_link(k, 999, INO_ROOT, "i"), -ESTALE);
        uint64_t d = do_mkdir(k, INO_ROOT, "d", 0700);
        ck_assert_int_eq(do_link(k, d, INO_ROOT, "dd"), -EPERM);
        struct answer r;
        answer_init(k, &r);
        fs_rmdir(k->fs, &root_caller, INO_ROOT, "d", &r.reply);
        ck_assert_int_eq(r.error, 0);
        ck_assert_int_eq(r.kind, ANSWER_ERR);
        do_release(k, f, fh);
        fake_free(k);
}
END_TEST

struct listed {
        char names[8192];
        unsigned n, stop_after;
        uint64_t last;
        bool plus;
};
static bool list(void *ctx, const char *name, size_t len, uint64_t cookie, uint32_t mode, const struct fs_entry *e, uint64_t ino) {
        struct listed *l = ctx;
        bool dots = name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
        if (l->n == l->stop_after)
                return false;
        ck_assert_uint_gt(cookie, l->last);
        ck_assert_uint_ne(ino, 0);
        ck_assert_uint_ne(mode & S_IFMT, 0);
        ck_assert_int_eq(e != NULL, l->plus);
        if (e) {
                ck_assert_uint_eq(e->ino, dots ? 0 : ino);
                ck_assert_uint_eq(e->attr.ino, ino);
                ck_assert_uint_eq(e->attr.mode, mode);
        }
        l->last = cookie;
        l->n++;
        (void)strncat(l->names, name, len);
        (void)strcat(l->names, ",");
        return true;
}

START_TEST(listing) {
        struct fake *k = fake_new(FAKE_AT_ONCE);
        struct answer a;
        for (int i = 0; i < 5; i++) {
                char name[8];
                (void)snprintf(name, sizeof(name), "d%d", i);
                (void)do_mkdir(k, INO_ROOT, name, 0700);
        }
        answer_init(k, &a);
        fs_opendir(k->fs, &root_caller, INO_ROOT, &a.reply);
        ck_assert_int_eq(a.kind, ANSWER_OPEN);
        ck_assert(a.open.cache_readdir);
        struct listed l = {.stop_after = 3};
        ck_assert_int_eq(fs_readdir(k->fs, INO_ROOT, a.open.fh, 0, false, list, &l), 0);
        ck_assert_str_eq(l.names, ".,..,d0,");
        ck_assert_int_eq(do_rename(k, INO_ROOT, "d1", INO_ROOT, "x1", 0), 0); /* stable meanwhile: the others come once */
        l.stop_after = 100;
        l.plus = true;
        ck_assert_int_eq(fs_readdir(k->fs, INO_ROOT, a.open.fh, l.last, true, list, &l), 0);
        ck_assert_str_eq(l.names, ".,..,d0,d2,d3,d4,x1,");
        struct answer done;
        answer_init(k, &done);
        fs_releasedir(k->fs, INO_ROOT, a.open.fh, &done.reply);
        answer_wait(&done);
        ck_assert_int_eq(fs_readdir(k->fs, 999, 0, 0, false, list, &l), -ENOENT);
        answer_init(k, &a);
        fs_opendir(k->fs, &root_caller, 999, &a.reply);
        ck_assert_int_eq(a.error, -ESTALE);
        /* a removed directory that is open */
        uint64_t d = fake_lookup(k, INO_ROOT, "d0");
        answer_init(k, &a);
        fs_opendir(k->fs, &root_caller, d, &a.reply);
        answer_init(k, &done);
        fs_rmdir(k->fs, &root_caller, INO_ROOT, "d0", &done.reply);
        answer_wait(&done);
        struct attr attr;
        ck_assert_int_eq(do_getattr(k, d, &attr), 0);
        ck_assert_uint_eq(attr.nlink, 0);
        ck_assert_int_eq(fs_readdir(k->fs, d, a.open.fh, 0, false, list, &l), -ENOENT);
        answer_init(k, &done);
        fs_releasedir(k->fs, d, a.open.fh, &done.reply);
        ck_assert_int_eq(do_getattr(k, d, &attr), -ESTALE);
        fake_free(k);
}
END_TEST

static Suite *suite_names(void) {
        const TTest *const tests[] = {
                lookup,          types_and_owners, create_of_what_exists, created_is_pinned_at_apply, create_refused_leaves_nothing,
                rename_and_link, listing};
        return suite_of("names", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_names)
