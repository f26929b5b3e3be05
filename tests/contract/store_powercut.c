/* store_powercut.c: power cuts at every point. The disk under log, content file and SQLite remembers every write and flush; the disks that
 * a power cut could have left are made from that, opened, and compared with every state that there ever was.
 *
 *   exhaustive   all sequences of up to two operations, at each level, with a checkpoint behind them or not, cut at every event; with
 *                few unflushed sectors every subset of them, else nothing, everything, and drawn ones
 *   random       sequences of up to 20 operations with barriers, checkpoints and kills between them, cut at drawn events
 *   opening      cut at every event of the creation, of the first start and of a start that replays
 *
 * Asked each time: a state that there was; at least what was told to be durable; and that the store goes on from there. */
#include "simdisk.h"
#include "store_rig.h"

#include "base/log.h"
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#define LOG_SIZE (64 * KIB)

/* What was told, and when: position in the disk's journal -> operation. */
struct told {
        uint64_t at, durable, written, epoch_floor;
};
struct run {
        struct rig r;
        struct simdisk *disk;
        GArray *told;
        uint64_t cuts;
        const char *what;
        uint64_t seed;
};
static uint64_t total_cuts;

static void tell(struct run *x) {
        struct told t = {.at = simdisk_position(x->disk), .durable = x->r.durable, .written = x->r.written};
        g_array_append_val(x->told, t);
}
static uint64_t durable_at(const struct run *x, uint64_t at) {
        uint64_t durable = 0;
        for (guint i = 0; i < x->told->len; i++) {
                const struct told *t = &g_array_index(x->told, struct told, i);
                if (t->at <= at)
                        durable = MAX_OF(durable, t->durable);
        }
        return durable;
}

static void run_begin(struct run *x, enum sync_level level, uint64_t seed, const char *what) {
        *x = (struct run){.what = what, .seed = seed};
        x->disk = simdisk_new(&(struct simdisk_config){.seed = seed, .history = true});
        x->told = g_array_new(FALSE, FALSE, sizeof(struct told));
        rig_init(&x->r, &(struct store_config){
                                .path = "d/db", .level = level, .log_size = LOG_SIZE, .boot_id = "1", .disk = simdisk_disk(x->disk)});
        x->r.random = seed;
}
static void run_end(struct run *x) {
        total_cuts += x->cuts;
        rig_done(&x->r);
        simdisk_free(x->disk);
        g_array_free(x->told, TRUE);
}

static int complain(const struct run *x, const struct simdisk_crash *how, const char *why) {
        fprintf(stderr, "%s, seed %" PRIu64 ", level %s: cut at %" PRIu64 ", keep %d, seed %" PRIu64 ": %s\n", x->what, x->seed,
                sync_level_text(x->r.config.level), how->at, (int)how->keep, how->seed, why);
        return -1;
}

/* The store goes on: two more operations, stopped, opened. */
static int goes_on(struct run *x, struct rig *r, const struct simdisk_crash *how) {
        if (rig_replace(r, "a", "later", 5) < 0 || rig_create(r, "later", 0100644) < 0 || rig_barrier(r) < 0)
                return complain(x, how, "does not take operations afterwards");
        uint64_t end = r->state.pos.seq;
        if (how->seed % 2)
                rig_close(r);
        else if (rig_stop(r) < 0)
                return complain(x, how, "does not stop");
        if (rig_open(r) < 0 || r->loaded.read_only)
                return complain(x, how, "does not open a second time");
        return rig_verify(r, end, end) < 0 ? complain(x, how, "a second start") : 0;
}

static int cut(struct run *x, const struct simdisk_crash *how, bool go_on) {
        struct rig r;
        struct simdisk *after = simdisk_crashed(x->disk, how);
        struct store_config config = x->r.config;
        int bad = 0;
        x->cuts++;
        config.disk = simdisk_disk(after);
        config.boot_id = "2";
        rig_init(&r, &config);
        g_array_set_size(r.digests, 0);
        g_array_append_vals(r.digests, x->r.digests->data, x->r.digests->len);
        errint_t e = rig_open(&r);
        if (e < 0 || r.loaded.read_only)
                bad = complain(x, how, r.loaded.reason);
        else if (rig_verify(&r, durable_at(x, how->at), x->r.digests->len - 1) < 0)
                bad = complain(x, how, "not a state that it should be");
        else if (go_on)
                bad = goes_on(x, &r, how);
        rig_done(&r);
        simdisk_free(after);
        return bad;
}

/* At one event: every subset when there are few unflushed sectors, else the extremes and some. */
static int cut_all_ways(struct run *x, uint64_t at, unsigned draws) {
        unsigned pending = simdisk_pending(x->disk, at);
        int bad = 0;
        if (pending <= 3) {
                for (uint64_t mask = 0; mask < (UINT64_C(1) << pending) && !bad; mask++)
                        bad = cut(x, &(struct simdisk_crash){.at = at, .keep = SIMDISK_MASK, .seed = mask}, mask % 5 == 0);
                return bad;
        }
        bad = cut(x, &(struct simdisk_crash){.at = at, .keep = SIMDISK_LOST, .seed = at}, at % 7 == 0);
        if (!bad)
                bad = cut(x, &(struct simdisk_crash){.at = at, .keep = SIMDISK_KEPT, .seed = at}, false);
        for (uint64_t i = 0; i < draws && !bad; i++)
                bad = cut(x, &(struct simdisk_crash){.at = at, .keep = i % 2 ? SIMDISK_TORN : SIMDISK_WHOLE, .seed = at * 31 + i},
                          i % 4 == 0);
        return bad;
}

/* --- exhaustive: sequences of the fixed operations, over a tree that has two files and is at rest --- */

static int sequence(enum sync_level level, const unsigned *ops, size_t n, bool checkpoint, bool each_event) {
        struct run x;
        int bad = 0;
        uint8_t base[9000];
        run_begin(&x, level, 1, "exhaustive");
        memset(base, 'z', sizeof(base));
        if (rig_open(&x.r) < 0)
                return -1;
        rig_bytes(&x.r, base, sizeof(base));
        if (rig_create(&x.r, "b", 0100644) < 0 || rig_replace(&x.r, "b", base, sizeof(base)) < 0 ||
            rig_checkpoint(&x.r, CHECKPOINT_NORMAL) < 0)
                return -1;
        simdisk_settle(x.disk);
        tell(&x);
        for (size_t i = 0; i < n; i++) {
                if (rig_fixed(&x.r, ops[i]) < 0 || rig_write_out(&x.r) < 0)
                        return -1;
                tell(&x);
        }
        if (level == LEVEL_FILESYSTEM && !checkpoint && rig_barrier(&x.r) < 0)
                return -1;
        if (checkpoint && rig_checkpoint(&x.r, CHECKPOINT_NORMAL) < 0)
                return -1;
        tell(&x);
        uint64_t end = simdisk_position(x.disk);
        for (uint64_t at = 0; at <= end && !bad; at += each_event ? 1 : 1 + rig_random(&x.r, 12))
                bad = cut_all_ways(&x, at, each_event ? 3 : 0);
        if (bad) {
                fprintf(stderr, "  sequence:");
                for (size_t i = 0; i < n; i++)
                        fprintf(stderr, " %u", ops[i]);
                fprintf(stderr, "%s\n", checkpoint ? ", checkpoint" : "");
        }
        run_end(&x);
        return bad;
}

static int exhaustive(bool full) {
        for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++)
                for (unsigned a = 0; a < RIG_FIXED; a++) {
                        unsigned ops[2] = {a, 0};
                        if (sequence((enum sync_level)level, ops, 1, false, true) < 0 ||
                            sequence((enum sync_level)level, ops, 1, true, full) < 0)
                                return -1;
                        for (unsigned b = 0; b < RIG_FIXED; b++) {
                                ops[1] = b;
                                if (full && (sequence((enum sync_level)level, ops, 2, false, true) < 0 ||
                                             sequence((enum sync_level)level, ops, 2, true, false) < 0))
                                        return -1;
                        }
                }
        return 0;
}

/* --- opening --- */

static int opening(void) {
        for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++) {
                struct run x;
                int bad = 0;
                run_begin(&x, (enum sync_level)level, 7, "opening");
                if (rig_open(&x.r) < 0)
                        return -1;
                uint64_t opened = simdisk_position(x.disk);
                for (int i = 0; i < 12; i++)
                        if (rig_any(&x.r, 9000) < 0)
                                return -1;
                if (rig_barrier(&x.r) < 0)
                        return -1;
                tell(&x);
                rig_close(&x.r);
                simdisk_kill(x.disk);
                uint64_t closed = simdisk_position(x.disk);
                if (rig_open(&x.r) < 0 || rig_verify(&x.r, 0, x.r.digests->len) < 0)
                        return -1;
                uint64_t end = simdisk_position(x.disk);
                for (uint64_t at = 0; at <= end && !bad; at++)
                        if (at <= opened || at >= closed)
                                bad = cut_all_ways(&x, at, 4);
                run_end(&x);
                if (bad)
                        return -1;
        }
        return 0;
}

/* --- random --- */

static int random_step(struct run *x) {
        struct rig *r = &x->r;
        errint_t e = rig_any(r, 12000);
        switch (rig_random(r, 8)) {
        case 0:
                e = e < 0 ? e : rig_barrier(r);
                break;
        case 1:
                e = e < 0 ? e : rig_checkpoint(r, CHECKPOINT_NORMAL);
                break;
        case 2: /* something between prepare and run */
                e = e < 0 ? e : r->store->ops->checkpoint_prepare(r->store, &r->state, CHECKPOINT_NORMAL);
                e = e < 0 ? e : rig_any(r, 12000);
                e = e < 0 ? e : rig_write_out(r);
                e = e < 0 ? e : r->store->ops->checkpoint_run(r->store);
                break;
        case 3: { /* killed: nothing that was written out is lost */
                e = e < 0 ? e : rig_write_out(r);
                tell(x);
                uint64_t written = r->written, end = r->state.pos.seq;
                rig_close(r);
                simdisk_kill(x->disk);
                e = e < 0 ? e : rig_open(r);
                e = e < 0 ? e : rig_verify(r, written, end);
                break;
        }
        default:
                e = e < 0 ? e : rig_settle(r);
                break;
        }
        tell(x);
        if (e < 0)
                fprintf(stderr, "%s, seed %" PRIu64 ": a step failed: %s\n", x->what, x->seed, strerror(-e));
        return e;
}

static int random_run(uint64_t seed) {
        struct run x;
        int bad = 0;
        run_begin(&x, (enum sync_level)(seed % 3), seed, "random");
        if (rig_open(&x.r) < 0)
                return -1;
        uint64_t n = 1 + rig_random(&x.r, 20), start = rig_random(&x.r, 4) ? simdisk_position(x.disk) : 0;
        for (uint64_t i = 0; i < n && !bad; i++)
                bad = random_step(&x);
        uint64_t end = simdisk_position(x.disk), cuts = 1 + rig_random(&x.r, 3);
        for (uint64_t i = 0; i < cuts && !bad; i++) {
                uint64_t at = start + rig_random(&x.r, end - start + 1);
                bad = cut(&x, &(struct simdisk_crash){.at = at, .keep = SIMDISK_ANY, .seed = seed * 10 + i}, rig_random(&x.r, 3) == 0);
        }
        run_end(&x);
        return bad;
}

int main(int argc, char **argv) {
        bool full = argc > 1 && strcmp(argv[1], "full") == 0;
        uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, n = argc > 2 ? 1 : full ? 10000 : 300;
        log_set_level(LOG_LEVEL_ERROR);
        (void)mallopt(M_MMAP_THRESHOLD, 64 << 20); /* disks come and go by the thousand: their memory stays */
        (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
        if (argc <= 2 && (opening() < 0 || exhaustive(full) < 0))
                return EXIT_FAILURE;
        printf("opening and exhaustive: %" PRIu64 " cuts\n", total_cuts);
        for (uint64_t seed = first; seed < first + n; seed++)
                if (random_run(seed) < 0) {
                        fprintf(stderr, "again: store_powercut full %" PRIu64 "\n", seed);
                        return EXIT_FAILURE;
                }
        printf("all: %" PRIu64 " cuts\n", total_cuts);
        return EXIT_SUCCESS;
}
