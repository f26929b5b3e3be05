/* Random requests against a model of plain bytes: what is read, and what stat shows, is always what was written, whatever is gathered,
 * under way, or removed meanwhile; and others never see a content that was not there at a close. */
#include "fake.h"
#include "unit.h"

#include <linux/falloc.h>
#include <stdio.h>

#define FILES     3u
#define SIZE_MAX_ 60000u

struct model_file {
        uint8_t bytes[SIZE_MAX_ + 1];
        size_t size;
        uint64_t ino, fh;
        bool named;
};
struct model {
        struct fake *k;
        uint64_t seed;
        struct model_file files[FILES];
        struct answer flushes[256];
        unsigned n_flushes;
};

static size_t pick(struct model *m, size_t n) {
        return (size_t)(next_random(&m->seed) % n);
}

static void check(struct model *m, struct model_file *f) {
        static uint8_t buf[SIZE_MAX_ + 1];
        struct attr a;
        size_t at = pick(m, SIZE_MAX_), n = 1 + pick(m, SIZE_MAX_ - at), want = at < f->size ? MIN_OF(n, f->size - at) : 0;
        ck_assert_int_eq(do_getattr(m->k, f->ino, &a), 0);
        ck_assert_uint_eq(a.size, f->size);
        ck_assert_uint_eq(a.nlink, f->named ? 1 : 0);
        ck_assert_int_eq(do_read(m->k, f->ino, f->fh, at, buf, n), (ssize_t)want);
        ck_assert_int_eq(memcmp(buf, f->bytes + at, want), 0);
}

static void grow(struct model_file *f, size_t size) {
        if (size > f->size) {
                memset(f->bytes + f->size, 0, size - f->size);
                f->size = size;
        }
}

static void write_some(struct model *m, struct model_file *f, bool append) {
        size_t n = pick(m, 10) == 0 ? pick(m, 20000) + 1 : pick(m, 300) + 1, at = append ? f->size : pick(m, SIZE_MAX_);
        if (at + n > SIZE_MAX_)
                return;
        size_t stale = append && pick(m, 4) == 0 ? pick(m, SIZE_MAX_) : at; /* the offset of an append is the kernel's guess */
        grow(f, at + n);
        for (size_t i = 0; i < n; i++)
                f->bytes[at + i] = (uint8_t)(pick(m, 3) == 0 ? 0 : next_random(&m->seed));
        ck_assert_int_eq(do_write(m->k, f->ino, f->fh, stale, f->bytes + at, n, append ? O_APPEND : 0), 0);
}

static void punch(struct model *m, struct model_file *f) {
        size_t at = pick(m, SIZE_MAX_), n = 1 + pick(m, SIZE_MAX_ - at), end = MIN_OF(at + n, f->size);
        if (end > at)
                memset(f->bytes + at, 0, end - at);
        ck_assert_int_eq(do_fallocate(m->k, f->ino, f->fh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n), 0);
}

static void start_flush(struct model *m, struct model_file *f, bool sync) {
        if (m->n_flushes == ARRAY_LEN(m->flushes))
                return;
        struct answer *a = &m->flushes[m->n_flushes++];
        answer_init(m->k, a);
        if (sync)
                fs_fsync(m->k->fs, f->ino, f->fh, false, &a->reply);
        else
                fs_flush(m->k->fs, &root_caller, f->ino, f->fh, 0, &a->reply);
}

static void land(struct model *m, bool all) {
        unsigned steps = all ? UINT32_MAX : (unsigned)pick(m, 6);
        while (steps-- > 0 && fake_waiting(m->k) > 0) {
                if (m->k->to_apply && (!m->k->to_answer || pick(m, 2) == 0))
                        fake_apply(m->k);
                else
                        fake_answer(m->k);
        }
        if (!all)
                return;
        for (unsigned i = 0; i < m->n_flushes; i++) {
                ck_assert_int_eq(m->flushes[i].kind, ANSWER_ERR);
                ck_assert_int_eq(m->flushes[i].error, 0);
        }
        m->n_flushes = 0;
}

/* A close, then everything lands: others have the same bytes. */
static void settle(struct model *m, struct model_file *f) {
        static char buf[SIZE_MAX_ + 2];
        start_flush(m, f, false);
        land(m, true);
        fake_content(m->k, f->ino, buf, sizeof(buf));
        ck_assert_uint_eq(fake_attr(m->k, f->ino).size, f->size);
        ck_assert_int_eq(memcmp(buf, f->bytes, f->size), 0);
}

static void step(struct model *m, bool removals) {
        struct model_file *f = &m->files[pick(m, FILES)];
        char name[8];
        (void)snprintf(name, sizeof(name), "%d", (int)(f - m->files));
        switch (pick(m, 20)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
                write_some(m, f, false);
                break;
        case 6:
        case 7:
                write_some(m, f, true);
                break;
        case 8: {
                size_t size = pick(m, 3) == 0 ? 0 : pick(m, SIZE_MAX_);
                grow(f, size);
                f->size = size;
                ck_assert_int_eq(do_truncate(m->k, f->ino, f->fh, size), 0);
                break;
        }
        case 9:
                punch(m, f);
                break;
        case 10:
                start_flush(m, f, pick(m, 2) == 0);
                break;
        case 11:
                fake_advance(m->k, 300);
                break;
        case 12:
                settle(m, f);
                break;
        case 13:
                if (removals && f->named && pick(m, 8) == 0) {
                        fake_remote_unlink(m->k, INO_ROOT, name);
                        f->named = false;
                }
                break;
        case 14:
        case 15:
        case 16:
                land(m, false);
                break;
        default:
                check(m, f);
        }
}

static void run(uint64_t seed, enum fake_mode mode, unsigned steps) {
        struct model *m = NEW(struct model);
        m->k = fake_new(mode);
        m->seed = seed;
        for (unsigned i = 0; i < FILES; i++) {
                char name[8];
                (void)snprintf(name, sizeof(name), "%u", i);
                m->files[i].ino = do_create(m->k, INO_ROOT, name, 0600, &m->files[i].fh);
                m->files[i].named = true;
        }
        while (steps-- > 0)
                step(m, true);
        for (unsigned i = 0; i < FILES; i++) {
                settle(m, &m->files[i]);
                check(m, &m->files[i]);
                do_release(m->k, m->files[i].ino, m->files[i].fh);
        }
        fake_free(m->k);
        free(m);
}

START_TEST(by_hand) {
        for (uint64_t seed = 1; seed <= 60; seed++)
                run(seed, FAKE_BY_HAND, 400);
}
END_TEST

START_TEST(at_once) {
        for (uint64_t seed = 1; seed <= 20; seed++)
                run(seed, FAKE_AT_ONCE, 400);
}
END_TEST

static Suite *suite_model(void) {
        const TTest *const tests[] = {by_hand, at_once};
        return suite_of("model", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_model)
