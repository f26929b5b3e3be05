/* store_bench.c: what one content costs inside the store: append, without what applied it, and the write-out; in one thread, per sync
 * level. Processor time, so that what else runs on the machine hardly counts; a barrier every eight contents, not counted.
 *
 *     store_bench DIRECTORY [BYTES [COUNT]] */
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 8u

struct bench {
        struct state state;
        struct store *store;
        struct change_set changes;
        uint64_t number;
        double applying, appending, writing; /* us */
};

static double now_us(void) {
        struct timespec t;
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void must(errint_t r, const char *what) {
        if (r == 0)
                return;
        (void)fprintf(stderr, "store_bench: %s: %s\n", what, strerror(-r));
        exit(1);
}

static uint64_t take(struct bench *b, struct op *op) {
        struct op_result result;
        CLEANUP(enc_done) struct enc head;
        uint64_t seq = 0;
        op->origin = (struct op_origin){.node = 1, .incarnation = 1, .number = ++b->number, .lowest_waiting = b->number};
        op->time = (struct timestamp){(int64_t)(1760000000 + b->number), 1};
        enc_init(&head, OP_HEAD_MAX);
        must(op_encode_head(op, &head), "encode");
        double t = now_us();
        must(state_apply(&b->state, 1, op, head.data, head.len, &b->changes, &result), "apply");
        must(result.error, "operation");
        b->applying += now_us() - t;
        const struct store_record record = {
                .pos = b->state.pos, .op = op, .head = head.data, .head_len = head.len, .changes = &b->changes, .state = &b->state};
        t = now_us();
        must(b->store->ops->append(b->store, &record), "append");
        b->appending += now_us() - t;
        t = now_us();
        must(b->store->ops->write_out(b->store, &seq), "write_out");
        b->writing += now_us() - t;
        return result.ino;
}

static void settle(struct bench *b) {
        uint64_t seq = 0;
        must(b->store->ops->barrier(b->store, &seq), "barrier");
        if (!b->store->ops->wants_checkpoint(b->store))
                return;
        must(b->store->ops->checkpoint_prepare(b->store, &b->state, CHECKPOINT_NORMAL), "checkpoint");
        must(b->store->ops->checkpoint_run(b->store), "checkpoint");
}

static void run(const char *dir, enum sync_level level, size_t size, unsigned count) {
        char path[4096], reason[16];
        struct bench b = {0};
        struct store_loaded loaded;
        uint64_t inos[FILES], random = 1;
        (void)snprintf(path, sizeof(path), "%s/bench-%d.db", dir, (int)level);
        const struct store_config config = {.path = path, .level = level, .direct = true};
        state_init(&b.state);
        change_set_init(&b.changes);
        must(store_open_sqlite(&config, &b.state, &loaded, &b.store), loaded.reason);
        for (unsigned i = 0; i < FILES; i++) {
                struct op op;
                memset(&op, 0, sizeof(op));
                op.kind = OP_CREATE;
                op.create.parent = INO_ROOT;
                op.create.name = (struct op_name){reason, (size_t)snprintf(reason, sizeof(reason), "f%u", i)};
                op.create.mode = S_IFREG | 0644;
                inos[i] = take(&b, &op);
        }
        cleanup_free uint64_t *content = xmalloc(size + 8);
        b.applying = b.appending = b.writing = 0;
        for (unsigned i = 0; i < count; i++) {
                struct op op;
                struct extent extent = {0, size, EXTENT_DATA};
                for (size_t j = 0; j < size / 8 + 1; j++)
                        content[j] = (random = random * UINT64_C(6364136223846793005) + 1442695040888963407u) >> 11;
                memset(&op, 0, sizeof(op));
                op.kind = OP_WRITE;
                op.write.ino = inos[i % FILES];
                op.write.size = BLOB_KEEP_ALL;
                op.write.extents = &extent;
                op.write.n_extents = 1;
                op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = size, .data = (const void *)content, .len = size};
                (void)take(&b, &op);
                if (i % 8 == 7)
                        settle(&b);
        }
        (void)printf("%-10s apply %8.1f us, append %8.1f us, write-out %8.1f us per %zu bytes\n", sync_level_text(level),
                     b.applying / count, b.appending / count, b.writing / count, size);
        b.store->ops->close(b.store);
        change_set_done(&b.changes);
        state_done(&b.state);
}

int main(int argc, char **argv) {
        if (argc < 2) {
                (void)fprintf(stderr, "usage: store_bench DIRECTORY [BYTES [COUNT]]\n");
                return 2;
        }
        size_t size = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : (size_t)MIB;
        unsigned count = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 400;
        for (int level = LEVEL_NONE; level <= LEVEL_FILE; level++)
                run(argv[1], (enum sync_level)level, MAX_OF(size, (size_t)1), MAX_OF(count, 1u));
        return 0;
}
