/* store_threads.c: the threads that store.h allows, at once: one appends and writes out and prepares checkpoints, one makes barriers, one
 * runs checkpoints, one reads the log back. For ThreadSanitizer above all; what comes back after a power cut is checked too. */
#include "simdisk.h"
#include "store_rig.h"

#include "base/log.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct shared {
        struct rig *r;
        _Atomic bool stop, run, failed;
        _Atomic uint64_t durable, appended, barriers, checkpoints, read;
};

static void *barriers(void *ctx) {
        struct shared *x = ctx;
        while (!x->stop) {
                uint64_t seq = 0, appended = x->appended;
                if (x->r->store->ops->barrier(x->r->store, &seq) < 0)
                        x->failed = true;
                if (seq < appended) /* what was written out before it began is covered */
                        x->failed = true;
                x->durable = MAX_OF(x->durable, seq);
                x->barriers++;
        }
        return NULL;
}
static void *checkpoints(void *ctx) {
        struct shared *x = ctx;
        while (!x->stop) {
                if (!x->run)
                        continue;
                if (x->r->store->ops->checkpoint_run(x->r->store) < 0)
                        x->failed = true;
                x->checkpoints++;
                x->run = false;
        }
        return NULL;
}
static bool see(void *ctx, struct position pos, const void *head, size_t head_len, const void *payload, size_t payload_len) {
        struct shared *x = ctx;
        (void)pos;
        (void)head;
        (void)head_len;
        (void)payload;
        (void)payload_len;
        x->read++;
        return true;
}
static void *readers(void *ctx) {
        struct shared *x = ctx;
        while (!x->stop) {
                uint64_t from = x->appended;
                errint_t e = x->r->store->ops->read_log(x->r->store, from > 20 ? from - 20 : 1, see, x);
                if (e < 0 && e != -ENOENT)
                        x->failed = true;
                (void)x->r->store->ops->wants_checkpoint(x->r->store);
                if (x->r->store->ops->reserve(x->r->store, 10000, false) == 0)
                        x->r->store->ops->release(x->r->store, 10000);
        }
        return NULL;
}

static int round_of(uint64_t seed, bool memory, int operations) {
        struct simdisk *disk = simdisk_new(&(struct simdisk_config){.seed = seed});
        struct store_backing *backing = store_backing_new();
        struct rig r;
        rig_init(&r, &(struct store_config){.path = "d/db",
                                            .level = (enum sync_level)(seed % 3),
                                            .log_size = 256 * KIB,
                                            .boot_id = "1",
                                            .disk = simdisk_disk(disk),
                                            .backing = backing});
        r.memory = memory;
        r.random = seed;
        struct shared x = {.r = &r};
        int bad = rig_open(&r) < 0;
        pthread_t threads[3];
        void *(*const fns[])(void *) = {barriers, checkpoints, readers};
        for (size_t i = 0; i < ARRAY_LEN(fns); i++)
                (void)pthread_create(&threads[i], NULL, fns[i], &x);
        for (int i = 0; i < operations && !bad && !x.failed; i++) {
                while (r.store->ops->must_wait(r.store) && (x.run || x.failed))
                        ;
                bad = rig_any(&r, 9000) < 0 || rig_write_out(&r) < 0;
                x.appended = r.written;
                if (!x.run && (rig_random(&r, 10) == 0 || r.store->ops->must_wait(r.store))) {
                        bad |= r.store->ops->checkpoint_prepare(r.store, &r.state, CHECKPOINT_NORMAL) < 0;
                        x.run = true;
                }
        }
        while (x.run && !x.failed)
                ;
        x.stop = true;
        for (size_t i = 0; i < ARRAY_LEN(fns); i++)
                (void)pthread_join(threads[i], NULL);
        uint64_t durable = x.durable, end = r.state.pos.seq;
        rig_close(&r);
        if (memory)
                store_backing_power_cut(backing, seed);
        else
                simdisk_crash(disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = seed});
        bad |= x.failed || rig_open(&r) < 0 || r.loaded.read_only || rig_verify(&r, durable, end) < 0;
        printf("seed %" PRIu64 ": %" PRIu64 " operations, %" PRIu64 " barriers, %" PRIu64 " checkpoints, %" PRIu64 " read back%s\n", seed,
               end, x.barriers, x.checkpoints, x.read, bad ? ": FAILED" : "");
        rig_done(&r);
        simdisk_free(disk);
        store_backing_free(backing);
        return bad;
}

int main(int argc, char **argv) {
        bool full = argc > 1 && strcmp(argv[1], "full") == 0;
        log_set_level((enum log_level)0);
        for (uint64_t seed = 1; seed <= (full ? 30u : 6u); seed++)
                if (round_of(seed, seed % 6 == 0, full ? 1000 : 250))
                        return EXIT_FAILURE;
        return EXIT_SUCCESS;
}
