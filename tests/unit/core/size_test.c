/* Large trees: memory per inode, and work that must not grow with the square. */
#include "helper.h"

#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define MANY      20000u
#else
#define SANITIZED 0
#define MANY      100000u
#endif
#define BYTES_PER_INODE 300u /* the project's bound, all included but content and name */

static struct fixture f;

static void begin(void) {
        fixture_begin(&f);
        f.light = true;
}
static void done(void) {
        fixture_done(&f);
}

static size_t heap(void) {
        struct mallinfo2 m = mallinfo2();
        return m.uordblks + m.hblkhd; /* chunks with their headers, and what was mapped */
}

static void fill(uint32_t n, bool content) {
        char name[16];
        for (uint32_t i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "entry%07u", i);
                uint64_t ino = make(&f, INO_ROOT, name, S_IFREG | 0644);
                if (content)
                        must(do_replace(&f, ino, name, 12) == 0);
        }
}

START_TEST(memory_per_inode) {
        /* The tables are fullest and emptiest at different sizes: measure along the way. */
        static const uint32_t steps[] = {1000, 3000, 10000, 20000, 30000, 50000, 70000, 100000, 130000, 160000, 200000};
        size_t before = heap(), worst = 0;
        char name[16];
        uint32_t n = 0;
        if (SANITIZED)
                return; /* another allocator */
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                for (; n < steps[i]; n++) {
                        (void)snprintf(name, sizeof(name), "entry%07u", n);
                        uint64_t ino = make(&f, INO_ROOT, name, S_IFREG | 0644);
                        if (_i == 1)
                                must(do_replace(&f, ino, name, 12) == 0);
                }
                size_t each = (heap() - before) / n - 12 /* name */ - (_i == 1 ? 12 : 0) /* content */;
                worst = MAX_OF(worst, each);
                if (getenv("COTERIE_PRINT_SIZES"))
                        (void)printf("%u inodes%s: %zu bytes each\n", n, _i == 1 ? " with content" : "", each);
        }
        ck_assert_uint_le(worst, _i == 1 ? BYTES_PER_INODE : 235);
}
END_TEST

/* 100,000 entries removed from the front, from the back, and in an order as good as random; a listing now and then. */
static bool count(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        (void)cookie;
        (void)name;
        (void)len;
        (void)ino;
        (void)mode;
        return ++*(uint32_t *)ctx < 10;
}
START_TEST(removing_is_cheap) {
        char name[16];
        fill(MANY, false);
        for (uint32_t i = 0; i < MANY; i++) {
                uint32_t k = _i == 0 ? i : _i == 1 ? MANY - 1 - i : (uint32_t)((uint64_t)i * 61379 % MANY), seen = 0;
                (void)snprintf(name, sizeof(name), "entry%07u", k);
                must(do_unlink(&f, INO_ROOT, name) == 0);
                must(tree_readdir(f.t, INO_ROOT, 0, count, &seen) == 0); /* as "rm -r" that lists again and again */
        }
        struct tree_usage u;
        tree_usage(f.t, &u);
        must(u.inodes == 1);
        must(u.bytes == 256);
        char fault[100];
        must(tree_check(f.t, fault, sizeof(fault)) == 0);
}
END_TEST

struct page {
        uint64_t last;
        uint32_t n, total;
};
static bool page(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct page *p = ctx;
        (void)name;
        (void)len;
        (void)ino;
        (void)mode;
        must(cookie > p->last);
        p->last = cookie;
        p->total++;
        return ++p->n < 100;
}
START_TEST(listing_in_pages) {
        struct page p = {0};
        fill(MANY, false);
        do {
                p.n = 0;
                must(tree_readdir(f.t, INO_ROOT, p.last, page, &p) == 0);
        } while (p.n == 100);
        must(p.total == MANY + 2);
}
END_TEST

START_TEST(a_deep_path) {
        uint64_t dir = INO_ROOT;
        char path[3000];
        for (int i = 0; i < 1000; i++)
                dir = make(&f, dir, "d", S_IFDIR | 0755);
        must(tree_path(f.t, dir, path, sizeof(path)) == 0);
        must(strlen(path) == 2000);
        must(tree_path(f.t, dir, path, 2000) == -ENAMETOOLONG);
        must(tree_path(f.t, dir, path, 2001) == 0);
        must(do_rename(&f, INO_ROOT, "d", dir, "x", 0) == -EINVAL);
        char fault[100];
        must(tree_check(f.t, fault, sizeof(fault)) == 0);
}
END_TEST

/* The digest of a large file moves with the chunk that changed: 2,000 small edits of 16 MiB take no time to speak of. */
START_TEST(small_edits_of_a_large_file) {
        cleanup_free uint8_t *p = xmalloc(16 * MIB);
        uint64_t file = make(&f, INO_ROOT, "large", S_IFREG | 0644);
        memset(p, 1, 16 * MIB);
        must(do_replace(&f, file, p, 16 * MIB) == 0);
        for (uint64_t i = 0; i < 2000; i++) {
                uint64_t at = i * 7919 % (16 * MIB - 3);
                struct op op = op_of(OP_WRITE);
                struct extent x = {at, 3, EXTENT_DATA};
                op.write.ino = file;
                op.write.keep = op.write.size = BLOB_KEEP_ALL;
                op.write.extents = &x;
                op.write.n_extents = 1;
                op.payload = (struct op_payload){.raw_len = 3, .data = (const uint8_t *)"abc", .len = 3};
                memcpy(p + at, "abc", 3);
                must(run(&f, &op) == 0);
        }
        assert_content(&f, file, p, 16 * MIB);
        must(hash128_equal(tree_digest(f.t), tree_digest_recompute(f.t)));
}
END_TEST

static Suite *suite_tree_size(void) {
        Suite *s = suite_create("size");
        TCase *c = tcase_create("size");
        tcase_add_checked_fixture(c, begin, done);
        tcase_set_timeout(c, 120);
        tcase_add_loop_test(c, memory_per_inode, 0, 2);
        tcase_add_loop_test(c, removing_is_cheap, 0, 3);
        tcase_add_test(c, listing_in_pages);
        tcase_add_test(c, a_deep_path);
        tcase_add_test(c, small_edits_of_a_large_file);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_tree_size)
