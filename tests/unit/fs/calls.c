/* calls.c: replies that can be looked at, and one-line calls; see fake.h. */
#include "fake.h"

#include <sched.h>

const struct fs_caller root_caller = {.pid = 100};

/* --- answers */

static void landed(struct fs_reply *r, enum answer_kind kind) {
        struct answer *a = CONTAINER_OF(r, struct answer, reply);
        ck_assert_int_eq(atomic_exchange(&a->kind, (int)kind), ANSWER_NONE); /* one answer per request */
}
static struct answer *of(struct fs_reply *r) {
        return CONTAINER_OF(r, struct answer, reply);
}
static void on_err(struct fs_reply *r, int error) {
        of(r)->error = error;
        landed(r, ANSWER_ERR);
}
static void on_entry(struct fs_reply *r, const struct fs_entry *e) {
        of(r)->entry = *e;
        landed(r, ANSWER_ENTRY);
}
static void on_attr(struct fs_reply *r, const struct fs_entry *e) {
        of(r)->entry = *e;
        landed(r, ANSWER_ATTR);
}
static void on_open(struct fs_reply *r, const struct fs_open_out *o) {
        of(r)->open = *o;
        landed(r, ANSWER_OPEN);
}
static void on_create(struct fs_reply *r, const struct fs_entry *e, const struct fs_open_out *o) {
        of(r)->entry = *e;
        of(r)->open = *o;
        landed(r, ANSWER_CREATE);
}
static void on_write(struct fs_reply *r, size_t n) {
        of(r)->n = n;
        landed(r, ANSWER_WRITE);
}
static void on_data(struct fs_reply *r, const struct iovec *iov, int n_iov) {
        struct answer *a = of(r);
        for (int i = 0; i < n_iov; i++)
                a->len += iov[i].iov_len;
        a->data = xmalloc(a->len + 1);
        size_t at = 0;
        for (int i = 0; i < n_iov; at += iov[i++].iov_len)
                if (iov[i].iov_len > 0)
                        memcpy(a->data + at, iov[i].iov_base, iov[i].iov_len);
        a->data[a->len] = '\0';
        landed(r, ANSWER_DATA);
}
static void on_size(struct fs_reply *r, size_t n) {
        of(r)->n = n;
        landed(r, ANSWER_SIZE);
}
static void on_statfs(struct fs_reply *r, const struct statvfs *st) {
        of(r)->st = *st;
        landed(r, ANSWER_STATFS);
}
static void on_offset(struct fs_reply *r, uint64_t offset) {
        of(r)->n = offset;
        landed(r, ANSWER_OFFSET);
}
static const struct fs_reply_ops answer_ops = {.err = on_err,
                                               .entry = on_entry,
                                               .attr = on_attr,
                                               .open = on_open,
                                               .create = on_create,
                                               .write = on_write,
                                               .data = on_data,
                                               .size = on_size,
                                               .statfs = on_statfs,
                                               .offset = on_offset};

void answer_init(struct fake *k, struct answer *a) {
        static _Atomic uint64_t unique;
        *a = (struct answer){.reply = {.ops = &answer_ops, .unique = atomic_fetch_add(&unique, 2) + 2}, .k = k};
}
void answer_done(struct answer *a) {
        free(a->data);
        a->data = NULL;
}
void answer_wait(struct answer *a) {
        while (a->kind == ANSWER_NONE) {
                if (a->k->mode == FAKE_BY_HAND) {
                        ck_assert_int_gt(fake_waiting(a->k), 0);
                        fake_all(a->k);
                } else {
                        (void)sched_yield();
                }
        }
}

/* --- calls */

#define CALL(k, a, call)                                                                                                                   \
        struct answer a;                                                                                                                   \
        answer_init(k, &a);                                                                                                                \
        call;                                                                                                                              \
        answer_wait(&a)

static int outcome(struct answer *a) {
        int r = a->kind == ANSWER_ERR ? a->error : 0;
        answer_done(a);
        return r;
}
uint64_t do_create(struct fake *k, uint64_t parent, const char *name, uint32_t mode, uint64_t *ret_fh) {
        CALL(k, a, fs_create(k->fs, &root_caller, parent, name, mode, O_RDWR | O_CREAT, &a.reply));
        ck_assert_msg(a.kind == ANSWER_CREATE, "create %s: %d", name, a.error);
        *ret_fh = a.open.fh;
        return a.entry.ino;
}
uint64_t do_mkdir(struct fake *k, uint64_t parent, const char *name, uint32_t mode) {
        CALL(k, a, fs_mkdir(k->fs, &root_caller, parent, name, mode, &a.reply));
        ck_assert_msg(a.kind == ANSWER_ENTRY, "mkdir %s: %d", name, a.error);
        return a.entry.ino;
}
int do_unlink(struct fake *k, uint64_t parent, const char *name) {
        CALL(k, a, fs_unlink(k->fs, &root_caller, parent, name, &a.reply));
        return outcome(&a);
}
int do_rename(struct fake *k, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name, unsigned flags) {
        CALL(k, a, fs_rename(k->fs, &root_caller, parent, name, new_parent, new_name, flags, &a.reply));
        return outcome(&a);
}
int do_link(struct fake *k, uint64_t ino, uint64_t parent, const char *name) {
        CALL(k, a, fs_link(k->fs, &root_caller, ino, parent, name, &a.reply));
        return outcome(&a);
}
uint64_t do_open(struct fake *k, uint64_t ino, int flags) {
        CALL(k, a, fs_open(k->fs, &root_caller, ino, flags, false, &a.reply));
        ck_assert_msg(a.kind == ANSWER_OPEN, "open: %d", a.error);
        return a.open.fh;
}
void do_release(struct fake *k, uint64_t ino, uint64_t fh) {
        CALL(k, a, fs_release(k->fs, ino, fh, &a.reply));
        ck_assert_int_eq(outcome(&a), 0);
}
int do_write(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const void *p, size_t n, int flags) {
        CALL(k, a, fs_write(k->fs, &root_caller, ino, fh, offset, p, n, flags, false, false, &a.reply));
        if (a.kind == ANSWER_WRITE)
                ck_assert_uint_eq(a.n, n);
        return outcome(&a);
}
int do_text(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const char *text) {
        return do_write(k, ino, fh, offset, text, strlen(text), 0);
}
int do_append(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const char *text) {
        return do_write(k, ino, fh, offset, text, strlen(text), O_APPEND);
}
int do_flush(struct fake *k, uint64_t ino, uint64_t fh) {
        CALL(k, a, fs_flush(k->fs, &root_caller, ino, fh, 1, &a.reply));
        return outcome(&a);
}
int do_fsync(struct fake *k, uint64_t ino, uint64_t fh) {
        CALL(k, a, fs_fsync(k->fs, ino, fh, false, &a.reply));
        return outcome(&a);
}
int do_setattr(struct fake *k, uint64_t ino, const struct fs_set *s, uint64_t fh, struct attr *ret) {
        CALL(k, a, fs_setattr(k->fs, &root_caller, ino, s, fh, &a.reply));
        if (ret)
                *ret = a.entry.attr;
        return outcome(&a);
}
int do_truncate(struct fake *k, uint64_t ino, uint64_t fh, uint64_t size) {
        return do_setattr(k, ino, &(struct fs_set){.set = FS_SET_SIZE, .size = size}, fh, NULL);
}
int do_fallocate(struct fake *k, uint64_t ino, uint64_t fh, int mode, uint64_t offset, uint64_t length) {
        CALL(k, a, fs_fallocate(k->fs, &root_caller, ino, fh, mode, offset, length, &a.reply));
        return outcome(&a);
}
int do_setxattr(struct fake *k, uint64_t ino, const char *name, const void *value, size_t len, int flags) {
        CALL(k, a, fs_setxattr(k->fs, &root_caller, ino, name, value, len, flags, false, &a.reply));
        return outcome(&a);
}
int do_removexattr(struct fake *k, uint64_t ino, const char *name) {
        CALL(k, a, fs_removexattr(k->fs, &root_caller, ino, name, &a.reply));
        return outcome(&a);
}
int do_getxattr(struct fake *k, uint64_t ino, const char *name, size_t size, void *ret) {
        CALL(k, a, fs_getxattr(k->fs, &root_caller, ino, name, size, &a.reply));
        int r = a.kind == ANSWER_ERR ? a.error : a.kind == ANSWER_SIZE ? (int)a.n : (int)a.len;
        if (a.kind == ANSWER_DATA && a.len > 0 && ret)
                memcpy(ret, a.data, a.len);
        answer_done(&a);
        return r;
}
int do_getattr(struct fake *k, uint64_t ino, struct attr *ret) {
        CALL(k, a, fs_getattr(k->fs, &root_caller, ino, &a.reply));
        *ret = a.entry.attr;
        return outcome(&a);
}
int do_lookup(struct fake *k, uint64_t parent, const char *name, struct fs_entry *ret) {
        CALL(k, a, fs_lookup(k->fs, &root_caller, parent, name, &a.reply));
        *ret = a.entry;
        return outcome(&a);
}
ssize_t do_read(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, void *buf, size_t n) {
        CALL(k, a, fs_read(k->fs, ino, fh, offset, n, &a.reply));
        ssize_t r = a.kind == ANSWER_ERR ? a.error : (ssize_t)a.len;
        if (r > 0)
                memcpy(buf, a.data, a.len);
        answer_done(&a);
        return r;
}
const char *do_read_text(struct fake *k, uint64_t ino, uint64_t fh) {
        static char buf[65536];
        ssize_t n = do_read(k, ino, fh, 0, buf, sizeof(buf) - 1);
        ck_assert_int_ge(n, 0);
        buf[n] = '\0';
        return buf;
}
