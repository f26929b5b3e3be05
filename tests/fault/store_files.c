/* store_files.c: the operation log and the content file while calls of the disk fail.
 *
 *   fault_store_files RUNS [SEED]
 *
 * First every n-th call of a fixed series fails, once and for good, with EIO and ENOSPC: each failure is told, nothing crashes, what was
 * flushed before is intact, and without the fault everything goes on. Then RUNS random runs of the log's model, with faults, kills and
 * power cuts. Prints the seed first; a run that failed is repeated by its seed alone. Exit 0, or 1 at the first broken promise. */
#include "base/hash.h"
#include "base/log.h"
#include "content.h"
#include "oplog_model.h"

#include <stdio.h>
#include <string.h>

static const uint8_t id[OPLOG_ID_SIZE] = "an id of 16 byte";
static unsigned checks;

#define CHECK(cond, ...)                                                                                                                   \
        do {                                                                                                                               \
                checks++;                                                                                                                  \
                if (!(cond)) {                                                                                                             \
                        (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                                                   \
                        (void)fprintf(stderr, __VA_ARGS__);                                                                                \
                        (void)fputc('\n', stderr);                                                                                         \
                        exit(1);                                                                                                           \
                }                                                                                                                          \
        } while (0)

/* --- the content file ------------------------------------------------------------------------------------------------------------------
 */
#define CONTENT_PATH "/d/content"
#define PIECES       12u

struct piece {
        struct oplog_extent *e;
        size_t n;
        uint32_t crc;
        bool flushed;
};

static size_t piece_len(unsigned i) {
        return 3000 + (size_t)i * 9001;
}
static uint8_t *piece_bytes(unsigned i) {
        uint8_t *p = xmalloc(piece_len(i));
        for (size_t j = 0; j < piece_len(i); j++)
                p[j] = (uint8_t)(j * (i + 3) + j / 256);
        return p;
}

static errint_t piece_check(struct content *c, unsigned i, const struct piece *p) {
        cleanup_free uint8_t *got = xmalloc(piece_len(i)), *want = piece_bytes(i);
        errint_t r = content_read(c, p->e, p->n, got, piece_len(i), p->crc);
        CHECK(r < 0 || memcmp(got, want, piece_len(i)) == 0, "piece %u is another one", i);
        return r;
}

/* One series; returns the number of calls that gave an error. */
static unsigned content_series(struct simdisk *sim, struct piece piece[PIECES], bool direct) {
        struct content *c = NULL;
        unsigned errors = 0;
        errint_t r = content_open(simdisk_disk(sim), CONTENT_PATH, id, true, false, NULL, &c);
        if (r < 0)
                return 1;
        for (unsigned i = 0; i < PIECES; i++) {
                cleanup_free uint8_t *bytes = piece_bytes(i);
                piece[i].crc = crc32c(0, bytes, piece_len(i));
                bool reserved = content_reserve(c, piece_len(i)) == 0;
                errors += !reserved;
                uint64_t live = content_live_bytes(c);
                r = content_write(c, bytes, piece_len(i), direct, &piece[i].e, &piece[i].n);
                errors += r < 0;
                CHECK(r == 0 || (!piece[i].e && content_live_bytes(c) == live), "a failed write left something allocated");
                if (reserved)
                        content_release(c, piece_len(i));
                if (i % 3 == 2) {
                        r = content_flush(c);
                        errors += r < 0;
                        for (unsigned j = 0; r == 0 && j <= i; j++)
                                piece[j].flushed = piece[j].e && errors == 0; /* a flush after a failed one covers nothing older */
                }
                if (i == 7 && piece[4].e && piece[5].e) {
                        content_free_at(c, piece[4].e, piece[4].n, 1);
                        content_home_durable(c, 1);
                        free(piece[4].e);
                        piece[4] = (struct piece){0};
                }
        }
        for (unsigned i = 0; i < PIECES; i++)
                if (piece[i].e)
                        errors += piece_check(c, i, &piece[i]) < 0;
        content_close(c);
        return errors;
}

static void content_nth(uint64_t nth, bool sticky, errint_t error, bool direct, bool *ret_done) {
        CLEANUP(simdisk_freep) struct simdisk *sim = simdisk_new(&(struct simdisk_config){.seed = nth});
        struct piece piece[PIECES] = {{0}};
        simdisk_fail(sim, &(struct simdisk_fault){.kinds = SIMDISK_ALL, .nth = nth, .sticky = sticky, .error = error});
        unsigned errors = content_series(sim, piece, direct);
        uint64_t hits = simdisk_fault_hits(sim);
        /* A refused allocation ahead of need is tried again with less; the others are told. */
        CHECK((hits == 0) == (errors == 0) || error == -ENOSPC, "call %llu failed and nobody was told", (unsigned long long)nth);
        *ret_done = hits == 0;
        simdisk_fail(sim, NULL);
        simdisk_crash(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = nth});
        struct content *c = NULL;
        errint_t r = content_open(simdisk_disk(sim), CONTENT_PATH, id, false, false, NULL, &c);
        for (unsigned i = 0; i < PIECES; i++) {
                if (piece[i].flushed) {
                        CHECK(r == 0, "the file is gone");
                        CHECK(content_mark_used(c, piece[i].e, piece[i].n) == 0, "piece %u overlaps", i);
                        CHECK(piece_check(c, i, &piece[i]) == 0, "piece %u was flushed", i);
                }
                free(piece[i].e);
        }
        content_close(c);
}

/* --- the log
 * ------------------------------------------------------------------------------------------------------------------------------ */
#define LOG_PATH "/d/log"
#define SALT     77u
#define RECORDS  30u

static struct oplog_config log_config(struct simdisk *sim, enum sync_level level) {
        struct oplog_config c = {.path = LOG_PATH,
                                 .life = 1,
                                 .level = level,
                                 .method = SYNC_OPEN_DATASYNC,
                                 .direct = true,
                                 .size = OPLOG_SIZE_MIN,
                                 .disk = simdisk_disk(sim)};
        memcpy(c.id, id, sizeof c.id);
        return c;
}

static errint_t log_check(void *ctx, const struct oplog_record *r) {
        unsigned *n = ctx;
        uint8_t want[200];
        memset(want, (int)(*n + 1), sizeof want);
        CHECK(r->pos.seq == *n + 1 && r->head_len == 20 + *n && memcmp(r->head, want, r->head_len) == 0, "record %u is another one",
              *n + 1);
        (*n)++;
        return 0;
}

static unsigned log_replay(struct oplog *l) {
        unsigned n = 0;
        uint64_t end;
        uint32_t chain;
        char torn[128];
        errint_t r = oplog_replay(l, 0, SALT, log_check, &n, &end, &chain, torn, sizeof torn);
        return r < 0 ? 0 : n;
}

/* Appends until the first error; returns the last sequence that was promised. */
static unsigned log_series(struct simdisk *sim, enum sync_level level, unsigned *ret_errors) {
        struct oplog_config c = log_config(sim, level);
        struct oplog *l = NULL;
        unsigned promised = 0;
        if (oplog_open(&c, true, &l) < 0) {
                *ret_errors = 1;
                return 0;
        }
        oplog_start(l, 0, SALT, 0, 0);
        for (unsigned i = 1; i <= RECORDS && !*ret_errors; i++) {
                uint8_t head[200];
                uint64_t seq = 0;
                memset(head, (int)i, sizeof head);
                struct oplog_record r = {.kind = OPLOG_OP, .pos = {1, i}, .head = head, .head_len = 19 + i};
                CHECK(oplog_append(l, &r) == 0, "append");
                errint_t err = i % 2 ? oplog_write_out(l, &seq) : 0;
                if (err == 0 && level == LEVEL_FILE && i % 2)
                        promised = (unsigned)seq;
                if (err == 0 && i % 5 == 0) {
                        err = oplog_flush(l, &seq);
                        promised = err == 0 ? (unsigned)seq : promised;
                }
                if (err == 0 && i == RECORDS / 2)
                        err = oplog_set_level(l, level, SYNC_FDATASYNC, true, 0);
                *ret_errors += err < 0;
        }
        oplog_close(l);
        return promised;
}

static void log_nth(uint64_t nth, bool sticky, errint_t error, enum sync_level level, bool *ret_done) {
        CLEANUP(simdisk_freep) struct simdisk *sim = simdisk_new(&(struct simdisk_config){.seed = nth});
        unsigned errors = 0;
        simdisk_fail(sim, &(struct simdisk_fault){.kinds = SIMDISK_ALL, .nth = nth, .sticky = sticky, .error = error});
        unsigned promised = log_series(sim, level, &errors);
        *ret_done = simdisk_fault_hits(sim) == 0;
        CHECK(*ret_done == (errors == 0), "call %llu failed and nobody was told", (unsigned long long)nth);
        CHECK(errors || promised == RECORDS, "promised %u", promised);
        simdisk_fail(sim, NULL);
        simdisk_crash(sim, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = nth});
        struct oplog_config c = log_config(sim, level);
        struct oplog *l = NULL;
        if (oplog_open(&c, false, &l) == 0) {
                unsigned n = log_replay(l);
                CHECK(n >= promised, "%u records of %u that were promised", n, promised);
        } else {
                CHECK(promised == 0, "the log is gone, with %u records", promised);
                CHECK(oplog_open(&c, true, &l) == 0, "and cannot be made anew");
        }
        oplog_close(l);
}

static void every_nth(void) {
        static const errint_t errors[] = {-EIO, -ENOSPC};
        for (unsigned v = 0; v < 8; v++) {
                bool sticky = v & 1, second = v & 4, done = false;
                uint64_t n = 1;
                for (; !done; n++)
                        content_nth(n, sticky, errors[(v >> 1) & 1], second, &done);
                (void)printf("content file: each of %llu calls failed (%s, %s)\n", (unsigned long long)n - 1,
                             strerror(-errors[(v >> 1) & 1]), sticky ? "from then on" : "once");
                done = false;
                for (n = 1; !done; n++)
                        log_nth(n, sticky, errors[(v >> 1) & 1], second ? LEVEL_FILE : LEVEL_FILESYSTEM, &done);
                (void)printf("log: each of %llu calls failed\n", (unsigned long long)n - 1);
        }
}

/* --- random runs
 * ----------------------------------------------------------------------------------------------------------------------------- */
static void random_run(uint64_t seed, unsigned *records, unsigned *replays, unsigned *rescues) {
        struct model_config c = {
                .seed = seed,
                .level = (enum sync_level)(seed % 3),
                .method = (enum sync_method)(seed / 3 % 5),
                .direct = seed / 15 % 2,
                .refuse_direct = seed / 30 % 8 == 7,
                .sector = seed / 240 % 4 == 3 ? 4096 : 512,
                .padding = seed / 7 % 3 == 2 ? 4096 : 0,
                .faults = seed / 2 % 2,
                .steps = 80,
                .lives = 8,
                .cuts_per_life = 4,
        };
        CLEANUP(model_freep) struct model *m = model_new(&c);
        const char *broken = model_run(m);
        CHECK(!broken, "seed %llu: %s", (unsigned long long)seed, broken);
        *records += model_records(m);
        *replays += model_replays(m);
        *rescues += model_rescues(m);
}

int main(int argc, char **argv) {
        uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 40, seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        unsigned records = 0, replays = 0, rescues = 0;
        (void)printf("seed %llu, %llu runs\n", (unsigned long long)seed, (unsigned long long)runs);
        (void)fflush(stdout); /* before anything can end the program */
        log_set_level(LOG_LEVEL_ERROR);
        if (argc <= 2)
                every_nth();
        for (uint64_t i = 0; i < runs; i++)
                random_run(seed + i, &records, &replays, &rescues);
        (void)printf("%u records, %u replays, %u rescues, %u checks\n", records, replays, rescues, checks);
        if (runs >= 40 && rescues == 0) {
                (void)fprintf(stderr, "no fault was met: the test cannot fail\n");
                return 1;
        }
        return 0;
}
