/* core_bench.c: how fast the tree is, alone and in one thread: operations applied, names looked up, entries listed per second, and memory
 * per inode. Times are processor time, so that what else runs on the machine hardly counts.
 *
 *     core_bench [INODES] */
#include "core/tree.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct bench {
        struct tree *tree;
        struct change_set changes;
        uint64_t seq, dirs[256];
        struct timespec start;
};

static void begin(struct bench *b) {
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b->start);
}

static void report(const struct bench *b, const char *what, uint64_t n) {
        struct timespec now;
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        double s = (double)(now.tv_sec - b->start.tv_sec) + 1e-9 * (double)(now.tv_nsec - b->start.tv_nsec);
        (void)printf("%-44s %10.0f per second, %7.2f us each\n", what, (double)n / s, 1e6 * s / (double)n);
}

static uint64_t apply(struct bench *b, struct op *op) {
        struct op_result result;
        b->seq++;
        op->time = (struct timestamp){(int64_t)(1760000000 + b->seq / 1000), (uint32_t)(b->seq % 1000)};
        if (tree_apply(b->tree, op, b->seq, &b->changes, &result) < 0 || result.error < 0) {
                (void)fprintf(stderr, "%s: %d\n", op_kind_text(op->kind), result.error);
                exit(1);
        }
        return result.ino;
}

static uint64_t create(struct bench *b, uint64_t parent, const char *name, uint32_t mode) {
        struct op op;
        memset(&op, 0, sizeof(op));
        op.kind = OP_CREATE;
        op.create.parent = parent;
        op.create.name = (struct op_name){name, strlen(name)};
        op.create.mode = mode;
        return apply(b, &op);
}

static void write_at(struct bench *b, uint64_t ino, uint64_t keep, uint64_t offset, const void *p, size_t n) {
        struct extent x = {offset, n, EXTENT_DATA};
        struct op op;
        memset(&op, 0, sizeof(op));
        op.kind = OP_WRITE;
        op.write.ino = ino;
        op.write.keep = keep;
        op.write.size = BLOB_KEEP_ALL;
        op.write.extents = &x;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.raw_len = n, .data = p, .len = n};
        (void)apply(b, &op);
}

static void name_of(char out[32], uint64_t i) {
        (void)snprintf(out, 32, "file-%07ju", (uintmax_t)i);
}

static size_t resident(void) {
        FILE *f = fopen("/proc/self/statm", "re");
        unsigned long size = 0, pages = 0;
        if (!f || fscanf(f, "%lu %lu", &size, &pages) != 2)
                pages = 0;
        if (f)
                (void)fclose(f); /* only read */
        return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void memory(const char *what, size_t heap_before, size_t resident_before, uint64_t n) {
        struct mallinfo2 m = mallinfo2();
        (void)printf("%-44s %10.1f bytes of heap, %.1f resident\n", what, (double)(m.uordblks + m.hblkhd - heap_before) / (double)n,
                     ((double)resident() - (double)resident_before) / (double)n);
}

static bool count_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        (void)cookie;
        (void)name;
        (void)len;
        (void)ino;
        (void)mode;
        ++*(uint64_t *)ctx;
        return true;
}

static void bench_names(struct bench *b, uint64_t n) {
        char name[32];
        uint64_t ino = 0, seen = 0;
        struct attr a;
        begin(b);
        for (uint64_t i = 0; i < n; i++) {
                name_of(name, i);
                (void)create(b, b->dirs[i % 256], name, S_IFREG | 0644);
        }
        report(b, "create", n);
        begin(b);
        for (uint64_t i = 0; i < n; i++) {
                uint64_t k = i * 7919 % n;
                name_of(name, k);
                if (tree_lookup(b->tree, b->dirs[k % 256], name, strlen(name), &ino) < 0 || tree_getattr(b->tree, ino, &a) < 0)
                        exit(1);
        }
        report(b, "lookup and getattr, any order", n);
        begin(b);
        for (uint64_t i = 0; i < n; i++) {
                name_of(name, n + i);
                if (tree_lookup(b->tree, b->dirs[i % 256], name, strlen(name), &ino) != -ENOENT)
                        exit(1);
        }
        report(b, "lookup of what is not there", n);
        begin(b);
        for (size_t i = 0; i < 256; i++)
                (void)tree_readdir(b->tree, b->dirs[i], 0, count_entry, &seen);
        report(b, "entries listed", seen);
}

static void bench_content(struct bench *b, uint64_t n) {
        char name[32];
        cleanup_free uint8_t *large = xmalloc(16 * MIB);
        memset(large, 'x', 16 * MIB);
        begin(b);
        for (uint64_t i = 0; i < n; i++)
                write_at(b, 258 + i, 0, 0, large, 100);
        report(b, "write 100 bytes, small files", n);
        uint64_t ino = create(b, INO_ROOT, "large", S_IFREG | 0644);
        begin(b);
        for (int i = 0; i < 10; i++) {
                large[i] = (uint8_t)i;
                write_at(b, ino, 0, 0, large, 16 * MIB);
        }
        report(b, "write 16 MiB whole", 10);
        begin(b);
        for (uint64_t i = 0; i < 10000; i++) {
                (void)snprintf(name, sizeof(name), "%07ju", (uintmax_t)i);
                write_at(b, ino, BLOB_KEEP_ALL, i * 104729 % (16 * MIB - 8), name, 7);
        }
        report(b, "write 7 bytes into 16 MiB", 10000);
}

static void bench_rename(struct bench *b, uint64_t n) {
        char name[32], tmp[] = "file.tmp";
        begin(b);
        for (uint64_t i = 0; i < n; i++) {
                struct op op;
                (void)create(b, b->dirs[i % 256], tmp, S_IFREG | 0644);
                name_of(name, i);
                memset(&op, 0, sizeof(op));
                op.kind = OP_RENAME;
                op.rename.parent = op.rename.new_parent = b->dirs[i % 256];
                op.rename.name = (struct op_name){tmp, strlen(tmp)};
                op.rename.new_name = (struct op_name){name, strlen(name)};
                (void)apply(b, &op);
        }
        report(b, "create and rename over a file", n);
}

int main(int argc, char **argv) {
        uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 500000;
        struct bench b = {.tree = tree_new()};
        char name[32];
        size_t heap_before = mallinfo2().uordblks + mallinfo2().hblkhd, resident_before = resident();
        change_set_init(&b.changes);
        for (uint64_t i = 0; i < 256; i++) {
                (void)snprintf(name, sizeof(name), "dir-%03ju", (uintmax_t)i);
                b.dirs[i] = create(&b, INO_ROOT, name, S_IFDIR | 0755);
        }
        bench_names(&b, n);
        memory("an empty file with a name of 12 bytes", heap_before, resident_before, n);
        bench_content(&b, n);
        memory("with 100 bytes, and one file of 16 MiB", heap_before + 16 * MIB, resident_before + 16 * MIB, n);
        bench_rename(&b, n);
        begin(&b);
        struct hash128 h = tree_digest_recompute(b.tree);
        report(&b, "digest recomputed (inodes)", n);
        if (!hash128_equal(h, tree_digest(b.tree)))
                return 1;
        tree_free(b.tree);
        change_set_done(&b.changes);
        return 0;
}
