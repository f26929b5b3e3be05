/* Many threads, random requests, a backend with threads of its own, somebody else's operations in between: for the sanitizers, and for
 * what must hold all the same: whole lines in an appended file, no torn reads of a replaced one, every request answered. */
#include "fake.h"
#include "unit.h"

#include <stdio.h>
#include <unistd.h>

#define THREADS 6u
#define STEPS   1500u
#define LINE    32u

struct worker {
        struct fake *k;
        unsigned id;
        uint64_t log_ino;
        pthread_t thread;
        _Atomic bool *stop;
};

/* A file replaced by rename: each version is one byte over and over. */
static void replace(struct worker *w, uint64_t *seed) {
        char tmp[16];
        uint8_t bytes[3000];
        struct answer a, r;
        (void)snprintf(tmp, sizeof(tmp), "tmp%u", w->id);
        memset(bytes, (int)(next_random(seed) % 255 + 1), sizeof(bytes));
        answer_init(w->k, &a);
        fs_create(w->k->fs, &root_caller, INO_ROOT, tmp, 0600, O_CREAT | O_WRONLY, &a.reply);
        answer_wait(&a);
        ck_assert_int_eq(a.kind, ANSWER_CREATE);
        for (size_t at = 0; at < sizeof(bytes); at += 500)
                ck_assert_int_eq(do_write(w->k, a.entry.ino, a.open.fh, at, bytes + at, 500, 0), 0);
        if (next_random(seed) % 2)
                ck_assert_int_eq(do_flush(w->k, a.entry.ino, a.open.fh), 0);
        answer_init(w->k, &r);
        fs_rename(w->k->fs, &root_caller, INO_ROOT, tmp, INO_ROOT, "shared", 0, &r.reply);
        answer_wait(&r);
        ck_assert_int_eq(r.error, 0);
        do_release(w->k, a.entry.ino, a.open.fh);
}

static void read_shared(struct worker *w) {
        struct fs_entry e;
        uint8_t bytes[4000];
        ck_assert_int_eq(do_lookup(w->k, INO_ROOT, "shared", &e), 0);
        if (e.ino == 0)
                return;
        struct answer a;
        answer_init(w->k, &a);
        fs_open(w->k->fs, &root_caller, e.ino, O_RDONLY, false, &a.reply);
        answer_wait(&a);
        if (a.kind == ANSWER_ERR) {
                ck_assert_int_eq(a.error, -ESTALE); /* replaced in between */
                return;
        }
        ssize_t n = do_read(w->k, e.ino, a.open.fh, 0, bytes, sizeof(bytes));
        ck_assert_int_eq(n, 3000);
        for (ssize_t i = 1; i < n; i++)
                ck_assert_uint_eq(bytes[i], bytes[0]);
        do_release(w->k, e.ino, a.open.fh);
}

static void make_line(char line[LINE + 1], const char *who, unsigned number) {
        memset(line, '.', LINE);
        memcpy(line, who, strlen(who));
        for (size_t i = LINE - 2; number > 0; number /= 10)
                line[i--] = (char)('0' + number % 10);
        line[LINE - 1] = '\n';
        line[LINE] = '\0';
}

static void append_line(struct worker *w, uint64_t fh, unsigned number) {
        char line[LINE + 1];
        make_line(line, "worker", number);
        ck_assert_int_eq(do_write(w->k, w->log_ino, fh, 0, line, LINE, O_APPEND), 0);
}

/* Anything on a handful of names; errors are expected, answers too. */
static void anything(struct worker *w, uint64_t *seed) {
        struct fake *k = w->k;
        char name[8], other[8];
        struct answer a;
        struct fs_entry e;
        (void)snprintf(name, sizeof(name), "n%u", (unsigned)(next_random(seed) % 5));
        (void)snprintf(other, sizeof(other), "n%u", (unsigned)(next_random(seed) % 5));
        (void)do_lookup(k, INO_ROOT, name, &e);
        answer_init(k, &a);
        switch (next_random(seed) % 12) {
        case 0:
                fs_mkdir(k->fs, &root_caller, INO_ROOT, name, 0700, &a.reply);
                break;
        case 1:
                fs_unlink(k->fs, &root_caller, INO_ROOT, name, &a.reply);
                break;
        case 2:
                fs_rmdir(k->fs, &root_caller, INO_ROOT, name, &a.reply);
                break;
        case 3:
                fs_rename(k->fs, &root_caller, INO_ROOT, name, INO_ROOT, other, 0, &a.reply);
                break;
        case 4:
                fs_link(k->fs, &root_caller, e.ino ? e.ino : 1u << 30, INO_ROOT, other, &a.reply);
                break;
        case 5:
                fs_setattr(k->fs, &root_caller, e.ino ? e.ino : 1u << 30,
                           &(struct fs_set){.set = FS_SET_SIZE, .size = next_random(seed) % 5000}, 0, &a.reply);
                break;
        case 6:
                fs_setattr(k->fs, &root_caller, e.ino ? e.ino : 1u << 30, &(struct fs_set){.set = FS_SET_MODE, .mode = 0600}, 0, &a.reply);
                break;
        case 7:
                fs_setxattr(k->fs, &root_caller, e.ino ? e.ino : 1u << 30, "user.x", "y", 1, 0, false, &a.reply);
                break;
        case 8:
                fs_fsyncdir(k->fs, INO_ROOT, &a.reply);
                break;
        case 9:
                fs_tmpfile(k->fs, &root_caller, INO_ROOT, 0600, O_RDWR, &a.reply);
                break;
        default:
                fs_create(k->fs, &root_caller, INO_ROOT, name, 0600, O_CREAT | O_EXCL | O_RDWR, &a.reply);
        }
        if (next_random(seed) % 16 == 0)
                fs_interrupt(k->fs, a.reply.unique);
        answer_wait(&a);
        if (a.kind != ANSWER_CREATE)
                return;
        uint8_t bytes[2000] = {1, 2, 3};
        uint64_t ino = a.entry.ino, fh = a.open.fh;
        ck_assert_int_eq(do_write(k, ino, fh, next_random(seed) % 50000, bytes, 1 + next_random(seed) % sizeof(bytes), 0), 0);
        ck_assert_int_ge(do_read(k, ino, fh, 0, bytes, sizeof(bytes)), 0);
        if (next_random(seed) % 4 == 0)
                (void)do_link(k, ino, INO_ROOT, other);
        if (next_random(seed) % 2)
                ck_assert_int_eq(do_flush(k, ino, fh), 0);
        if (next_random(seed) % 4 == 0)
                ck_assert_int_eq(do_fsync(k, ino, fh), 0);
        do_release(k, ino, fh);
}

static void *work(void *arg) {
        struct worker *w = arg;
        uint64_t seed = w->id, fh = do_open(w->k, w->log_ino, O_RDWR | O_APPEND);
        unsigned lines = 0;
        for (unsigned i = 0; i < STEPS; i++) {
                switch (next_random(&seed) % 8) {
                case 0:
                        replace(w, &seed);
                        break;
                case 1:
                case 2:
                        read_shared(w);
                        break;
                case 3:
                case 4:
                        append_line(w, fh, lines++);
                        if (lines % 7 == 0)
                                ck_assert_int_eq(do_flush(w->k, w->log_ino, fh), 0);
                        break;
                default:
                        anything(w, &seed);
                }
        }
        ck_assert_int_eq(do_flush(w->k, w->log_ino, fh), 0);
        do_release(w->k, w->log_ino, fh);
        return (void *)(uintptr_t)lines;
}

/* The timer, and another node that appends whole lines. */
static void *others(void *arg) {
        struct worker *w = arg;
        unsigned lines = 0;
        while (!atomic_load(w->stop)) {
                char line[LINE + 1];
                make_line(line, "another node", lines);
                fake_remote_append(w->k, w->log_ino, line);
                lines++;
                fs_tick(w->k->fs, UINT64_MAX - 1);
                (void)usleep(500);
        }
        return (void *)(uintptr_t)lines;
}

START_TEST(everything_at_once) {
        struct fake *k = fake_new(FAKE_THREAD);
        struct worker workers[THREADS + 1];
        _Atomic bool stop = false;
        uint64_t fh, log = do_create(k, INO_ROOT, "log", 0600, &fh);
        uintptr_t lines = 0;
        for (unsigned i = 0; i <= THREADS; i++) {
                workers[i] = (struct worker){.k = k, .id = i, .log_ino = log, .stop = &stop};
                ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, i < THREADS ? work : others, &workers[i]), 0);
        }
        for (unsigned i = 0; i <= THREADS; i++) {
                void *n = NULL;
                if (i == THREADS)
                        atomic_store(&stop, true);
                (void)pthread_join(workers[i].thread, &n);
                lines += (uintptr_t)n;
        }
        struct attr a;
        ck_assert_int_eq(do_getattr(k, log, &a), 0);
        ck_assert_uint_eq(a.size, lines * LINE); /* every line, */
        cleanup_free char *bytes = xmalloc(a.size);
        ck_assert_int_eq(do_read(k, log, fh, 0, bytes, a.size), (ssize_t)a.size);
        for (size_t i = 0; i < lines; i++) { /* whole */
                ck_assert_int_eq(bytes[i * LINE + LINE - 1], '\n');
                ck_assert(memcmp(bytes + i * LINE, "worker", 6) == 0 || memcmp(bytes + i * LINE, "anothe", 6) == 0);
        }
        do_release(k, log, fh);
        fake_free(k);
}
END_TEST

static Suite *suite_stress(void) {
        const TTest *const tests[] = {everything_at_once};
        return suite_of("stress", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_stress)
