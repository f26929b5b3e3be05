/* store_faults.c: every n-th call to the disk fails, for every n, over a whole life: creation, operations of all kinds, barriers,
 * checkpoints, clean stop, start again. And disks that are full for a while.
 *
 * Asked each time: what was told to be durable is there afterwards, and after a mere kill what was told to be written out; what comes back
 * is a state that there was; whoever is refused gets the errno of the fault or -EROFS; and once the disk is well, a start succeeds. */
#include "simdisk.h"
#include "store_rig.h"

#include "base/log.h"
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#define LOG_SIZE (64 * KIB)

struct variant {
        const char *name;
        unsigned kinds;
        errint_t error;
        bool sticky;
        const char *path_part;
};
static const struct variant variants[] = {
        {"any call once", SIMDISK_ALL, -EIO, false, NULL},
        {"any change from then on", SIMDISK_CHANGES, -EIO, true, NULL},
        {"flushes", SIMDISK_SYNC | SIMDISK_SYNC_DIR, -EIO, false, NULL},
        {"flushes from then on", SIMDISK_SYNC, -EIO, true, NULL},
        {"writes find no room", SIMDISK_WRITE | SIMDISK_ALLOCATE | SIMDISK_TRUNCATE, -ENOSPC, false, NULL},
        {"writes find no room from then on", SIMDISK_WRITE | SIMDISK_ALLOCATE, -ENOSPC, true, NULL},
        {"the log alone", SIMDISK_CHANGES, -EIO, true, "-oplog"},
        {"the content file alone", SIMDISK_CHANGES, -EIO, true, "-content"},
        {"the journal alone", SIMDISK_CHANGES, -EIO, true, "-journal"},
};

struct life {
        struct rig r;
        struct simdisk *disk;
        const struct variant *v;
        uint64_t nth;
        enum sync_level level;
        const char *where;
};
static uint64_t lives, refused, failed_for_good, waits;

static int complain(const struct life *x, const char *why) {
        fprintf(stderr, "%s, call %" PRIu64 ", level %s, at %s: %s (%s)\n", x->v->name, x->nth, sync_level_text(x->level), x->where, why,
                x->r.loaded.reason);
        return -1;
}

/* In trouble on a full disk: nothing is let in, and the next rescue that finds room ends it. */
static int room_returns(struct life *x) {
        struct store *store = x->r.store;
        waits++;
        if (store->ops->reserve(store, 10, true) != -ENOSPC || store->ops->reserve(store, 10000, false) != -ENOSPC)
                return complain(x, "something is let in while nothing can be written");
        simdisk_fail(x->disk, NULL);
        if (rig_checkpoint(&x->r, CHECKPOINT_RESCUE) < 0)
                return complain(x, "there is room again, and the rescue fails");
        if (store->ops->wants_checkpoint(store) || store->ops->reserve(store, 10, true) < 0)
                return complain(x, "there is room again, and the store is in trouble");
        return 0;
}

/* What the executor does with an error: a rescue, once; then the store has failed. 0: goes on; 1: it has ended. */
static int after_error(struct life *x, errint_t e) {
        if (e == 0)
                return 0;
        if (e != x->v->error && e != -EROFS)
                return complain(x, strerror(-e));
        refused++;
        for (int i = 0; i < 3; i++) {
                bool over = (x->r.store->ops->fail)(x->r.store) != NULL;
                if (over)
                        break;
                if (rig_checkpoint(&x->r, CHECKPOINT_RESCUE) == 0)
                        return 0;
        }
        bool over = (x->r.store->ops->fail)(x->r.store) != NULL;
        if (x->v->error == -ENOSPC && !over)
                return room_returns(x);
        if (!over)
                return complain(x, "a rescue failed, and the store has not");
        failed_for_good++;
        return 1;
}

static int step(struct life *x, int i) {
        struct rig *r = &x->r;
        errint_t e = i < (int)RIG_FIXED ? rig_fixed(r, (unsigned)i) : rig_any(r, 12000);
        if (e == 0)
                e = i % 5 == 4 ? rig_barrier(r) : rig_write_out(r);
        if (e == 0 && i % 9 == 8) {
                e = rig_checkpoint(r, CHECKPOINT_NORMAL);
                if (e == -ENOSPC && x->v->error == -ENOSPC)
                        e = 0; /* a full disk is no trouble */
        }
        if (e == 0 && i == 16)
                e = r->store->ops->set_promised(r->store, 4);
        if (e == 0 && i == 17)
                e = r->store->ops->set_adopted(r->store, 4);
        return after_error(x, e);
}

static int operate(struct life *x, int from, int to) {
        x->where = "operations";
        for (int i = from; i < to; i++) {
                int r = step(x, i);
                if (r != 0)
                        return r;
        }
        return 0;
}

/* The disk is well again: everything that was told to be durable is there. */
static int come_back(struct life *x, bool power_cut, uint64_t durable, uint64_t written, uint64_t end) {
        rig_close(&x->r);
        simdisk_fail(x->disk, NULL);
        if (power_cut)
                simdisk_crash(x->disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = x->nth});
        else
                simdisk_kill(x->disk);
        x->where = "coming back";
        errint_t e = rig_open(&x->r);
        if (e < 0 || x->r.loaded.read_only)
                return complain(x, "does not open once the disk is well");
        return rig_verify(&x->r, power_cut ? durable : MAX_OF(durable, written), end) < 0 ? complain(x, "not a state that it should be")
                                                                                          : 0;
}

/* 0: the whole life passed; ret_hit: the fault was met. */
static int live(struct life *x, bool *ret_hit) {
        struct rig *r = &x->r;
        int ended = 0;
        lives++;
        simdisk_fail(
                x->disk,
                &(struct simdisk_fault){
                        .kinds = x->v->kinds, .path_part = x->v->path_part, .nth = x->nth, .sticky = x->v->sticky, .error = x->v->error});
        x->where = "creation";
        errint_t e = rig_open(r);
        if (e < 0 && e != x->v->error)
                return complain(x, strerror(-e));
        if (e < 0 && r->loaded.reason[0] == '\0')
                return complain(x, "refused without a reason");
        if (e == 0 && r->loaded.read_only)
                return complain(x, "a new database opens as damaged");
        if (e == 0)
                ended = operate(x, 0, 30);
        if (ended < 0)
                return -1;
        if (e == 0 && !ended) {
                x->where = "clean stop";
                e = rig_checkpoint(r, CHECKPOINT_CLEAN_STOP);
        }
        uint64_t durable = r->durable, written = r->written, end = r->digests->len - 1;
        if (e == 0 && !ended) {
                rig_close(r);
                x->where = "second start";
                e = rig_open(r);
                if (e == 0 && !r->loaded.read_only) {
                        if (rig_verify(r, durable, end) < 0)
                                return complain(x, "not a state that it should be");
                        if (operate(x, 30, 36) < 0)
                                return -1;
                        durable = MAX_OF(durable, r->durable);
                        written = MAX_OF(written, r->written);
                        end = r->digests->len - 1;
                }
        }
        *ret_hit = simdisk_fault_hits(x->disk) > 0;
        return come_back(x, x->nth % 3 == 0, durable, written, end);
}

static int all_lives(const struct variant *v, enum sync_level level, uint64_t stride) {
        bool hit = true;
        for (uint64_t nth = 1; hit; nth += stride) {
                struct life x = {.v = v, .nth = nth, .level = level};
                x.disk = simdisk_new(&(struct simdisk_config){.seed = nth});
                rig_init(&x.r, &(struct store_config){
                                       .path = "d/db", .level = level, .log_size = LOG_SIZE, .boot_id = "1", .disk = simdisk_disk(x.disk)});
                x.r.random = 77;
                int bad = live(&x, &hit);
                rig_done(&x.r);
                simdisk_free(x.disk);
                if (bad)
                        return -1;
        }
        return 0;
}

/* --- a disk that is full for a while --- */

/* As the request layer does it: room first, then the operation. */
static errint_t with_room(struct rig *r, uint64_t bytes, bool frees,
                          errint_t (*fn)(struct rig *r, const char *name, const void *p, size_t n), const char *name, const void *p) {
        errint_t e = r->store->ops->reserve(r->store, bytes, frees);
        if (e < 0)
                return e;
        e = fn(r, name, p, (size_t)bytes);
        r->store->ops->release(r->store, bytes);
        return e;
}
static errint_t create(struct rig *r, const char *name, const void *p, size_t n) {
        (void)p;
        (void)n;
        return rig_create(r, name, 0100644);
}
static errint_t unlink_(struct rig *r, const char *name, const void *p, size_t n) {
        (void)p;
        (void)n;
        return rig_unlink(r, name);
}

static int full_disk(uint64_t seed, size_t size) {
        struct simdisk *disk = simdisk_new(&(struct simdisk_config){.seed = seed});
        struct rig r;
        char name[16];
        int bad = 0;
        uint8_t *data = xmalloc(size);
        rig_init(&r, &(struct store_config){.path = "d/db",
                                            .log_size = 512 * KIB,
                                            .boot_id = "1",
                                            .level = (enum sync_level)(seed % 3),
                                            .disk = simdisk_disk(disk)});
        r.random = seed;
        bad |= rig_open(&r) < 0;
        simdisk_set_capacity(disk, simdisk_used(disk) + 300 * KIB + rig_random(&r, MIB));
        int made = 0, refusals = 0, again = 0;
        for (int i = 0; i < 20000 && !bad && refusals < 20; i++) {
                (void)snprintf(name, sizeof(name), "f%d", i);
                rig_bytes(&r, data, size);
                errint_t e = with_room(&r, 100, false, create, name, NULL);
                if (e == 0)
                        e = with_room(&r, size, false, rig_replace, name, data);
                refusals += e == -ENOSPC;
                made = e == 0 ? i + 1 : made;
                if (e < 0 && e != -ENOSPC)
                        bad = 1;
                if (rig_settle(&r) < 0)
                        bad = 2;
        }
        if (!bad && refusals == 0)
                bad = 3;
        /* Unlinks are let in on the full disk. */
        for (int i = 0; i < made && i < 30 && !bad; i++) {
                (void)snprintf(name, sizeof(name), "f%d", i);
                if (with_room(&r, 0, true, unlink_, name, NULL) < 0 || rig_settle(&r) < 0)
                        bad = 4;
        }
        uint64_t end = r.state.pos.seq;
        if (!bad && seed % 2) { /* a kill on the full disk: it comes back, on the full disk too */
                rig_close(&r);
                simdisk_kill(disk);
                errint_t e = rig_open(&r);
                if (e == -ENOSPC) {
                        simdisk_set_capacity(disk, 0);
                        e = rig_open(&r);
                }
                bad |= e < 0 || rig_verify(&r, end, end) < 0 ? 5 : 0;
        }
        simdisk_set_capacity(disk, 0);
        (void)usleep(120000);                   /* a full disk is not asked at each refusal */
        for (int i = 0; i < 200 && !bad; i++) { /* space is there: work goes on, without a restart */
                (void)snprintf(name, sizeof(name), "g%d", i);
                again += with_room(&r, 100, false, create, name, NULL) == 0 && with_room(&r, size, false, rig_replace, name, data) == 0;
                if (rig_settle(&r) < 0)
                        bad = 6;
        }
        if (!bad && again < 199)
                bad = 7;
        end = r.state.pos.seq;
        bad = bad ? bad : rig_stop(&r) < 0 ? 8 : rig_open(&r) < 0 ? 9 : rig_verify(&r, end, end) < 0 ? 10 : 0;
        if (bad)
                fprintf(stderr, "full disk, seed %" PRIu64 ", size %zu: point %d, made %d, refused %d, again %d, error %d, %s\n", seed,
                        size, bad, made, refusals, again, r.error, r.loaded.reason);
        rig_done(&r);
        simdisk_free(disk);
        free(data);
        return bad ? -1 : 0;
}

int main(int argc, char **argv) {
        bool full = argc > 1 && strcmp(argv[1], "full") == 0;
        log_set_level((enum log_level)0); /* failures are what this is about */
        (void)mallopt(M_MMAP_THRESHOLD, 64 << 20);
        (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
        static const size_t sizes[] = {100, 3000, 20000, 200000};
        for (uint64_t seed = 1; seed <= (full ? 12u : 2u); seed++)
                for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                        if (full_disk(seed, sizes[i]) < 0)
                                return EXIT_FAILURE;
        printf("full disks: done\n");
        for (size_t i = 0; i < ARRAY_LEN(variants); i++)
                for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++)
                        if (all_lives(&variants[i], (enum sync_level)level, full ? 1 : 17) < 0)
                                return EXIT_FAILURE;
        printf("%" PRIu64 " lives, %" PRIu64 " refusals, %" PRIu64 " stores that failed for good, %" PRIu64 " that waited for room\n",
               lives, refused, failed_for_good, waits);
        return lives > 0 && refused > 0 && failed_for_good > 0 && waits > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
