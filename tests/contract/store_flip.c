/* store_flip.c: rot. Every byte of a small database, of its log and of its content file is changed, one at a time; then the store is
 * opened. Asked each time: it does not crash; it refuses with a reason, or opens for rescue with one, or what it opens is a state that
 * there was. And whatever it opens: no file has a content that it never had, no name stands for another inode than it ever did. The
 * offline check finds every flip that the start finds. */
#include "simdisk.h"
#include "store_rig.h"

#include "base/log.h"
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct sample {
        struct simdisk *disk;
        struct rig r;
        GHashTable *contents; /* of every inode at every position: (ino, digest) */
        GHashTable *names;    /* (parent, name, ino) */
};

static char *content_key(uint64_t ino, struct blob *b) {
        char text[HASH128_TEXT];
        hash128_text(blob_digest(b), text);
        return g_strdup_printf("%ju %s", (uintmax_t)ino, text);
}
static bool note_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct sample *x = ctx;
        (void)cookie;
        (void)mode;
        g_hash_table_add(x->names, g_strdup_printf("%.*s %ju", (int)len, name, (uintmax_t)ino));
        return true;
}
static bool note_inode(void *ctx, const struct tree_inode_state *in) {
        struct sample *x = ctx;
        g_hash_table_add(x->contents, content_key(in->attr.ino, in->content));
        if (S_ISDIR(in->attr.mode))
                (void)tree_readdir(x->r.state.tree, in->attr.ino, 2, note_entry, x); /* it is a directory */
        return true;
}
static void note(struct sample *x) {
        tree_each_inode(x->r.state.tree, 0, note_inode, x);
}

/* A database with everything in it: small and large contents, edits, links, xattrs, settings; a log that holds more of it if `with_log`. */
static int sample_make(struct sample *x, bool with_log) {
        *x = (struct sample){.disk = simdisk_new(NULL)};
        x->contents = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        x->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        rig_init(&x->r,
                 &(struct store_config){
                         .path = "d/db", .level = LEVEL_FILESYSTEM, .log_size = 64 * KIB, .boot_id = "1", .disk = simdisk_disk(x->disk)});
        x->r.random = 5;
        if (rig_open(&x->r) < 0)
                return -1;
        note(x);
        for (int i = 0; i < 120; i++) {
                errint_t e = i < (int)RIG_FIXED ? rig_fixed(&x->r, (unsigned)i) : rig_any(&x->r, 9000);
                if (e < 0 || rig_write_out(&x->r) < 0 || (i == 80 && rig_checkpoint(&x->r, CHECKPOINT_NORMAL) < 0))
                        return -1;
                note(x);
        }
        if (!with_log)
                return rig_stop(&x->r);
        rig_close(&x->r);
        simdisk_settle(x->disk);
        return 0;
}
static void sample_free(struct sample *x) {
        rig_done(&x->r);
        simdisk_free(x->disk);
        g_hash_table_destroy(x->contents);
        g_hash_table_destroy(x->names);
}

struct looking {
        const struct sample *x;
        const struct rig *r;
        bool wrong;
};
static bool look_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct looking *l = ctx;
        (void)cookie;
        (void)mode;
        g_autofree char *key = g_strdup_printf("%.*s %ju", (int)len, name, (uintmax_t)ino);
        l->wrong |= !g_hash_table_contains(l->x->names, key);
        return true;
}
static bool is_damaged(const struct store_loaded *l, uint64_t ino) {
        for (size_t i = 0; i < l->n_damaged; i++)
                if (l->damaged[i] == ino)
                        return true;
        return false;
}
static bool look_inode(void *ctx, const struct tree_inode_state *in) {
        struct looking *l = ctx;
        if (!is_damaged(&l->r->loaded, in->attr.ino)) {
                g_autofree char *key = content_key(in->attr.ino, in->content);
                l->wrong |= !g_hash_table_contains(l->x->contents, key);
        }
        if (S_ISDIR(in->attr.mode))
                (void)tree_readdir(l->r->state.tree, in->attr.ino, 2, look_entry, l); /* it is a directory */
        return true;
}

static void count_fault(void *ctx, const char *line) {
        (void)line;
        ++*(uint64_t *)ctx;
}

/* A database that opens for rescue has faults for the offline check too. */
static bool check_sees_it(struct rig *r, struct simdisk *disk) {
        uint64_t faults = 0;
        struct store_check_result checked;
        r->store->ops->close(r->store);
        r->store = NULL;
        return store_check("d/db", simdisk_disk(disk), count_fault, &faults, &checked) < 0 || (faults > 0 && checked.faults == faults);
}

struct tally {
        uint64_t flips, refused, rescued, unseen;
};

static int flip(const struct sample *x, const char *path, uint64_t at, uint8_t bits, bool read_only, struct tally *t) {
        struct simdisk *disk = simdisk_crashed(x->disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_KEPT});
        struct rig r;
        struct store_config config = x->r.config;
        uint8_t byte = 0;
        const char *bad = NULL;
        config.disk = simdisk_disk(disk);
        config.read_only = read_only;
        rig_init(&r, &config);
        g_array_set_size(r.digests, 0);
        g_array_append_vals(r.digests, x->r.digests->data, x->r.digests->len);
        if (simdisk_peek(disk, path, at, &byte, 1) < 0)
                return -1;
        byte ^= bits;
        if (simdisk_poke(disk, path, at, &byte, 1) < 0)
                return -1;
        errint_t e = rig_open(&r);
        t->flips++;
        if (e < 0) {
                t->refused++;
                if (!r.loaded.reason[0])
                        bad = "refused without a reason";
        } else if (r.loaded.read_only && !read_only) {
                t->rescued++;
                if (!r.loaded.reason[0])
                        bad = "rescued without a reason";
                else if (!check_sees_it(&r, disk))
                        bad = "the offline check does not see it";
        } else {
                t->unseen += r.loaded.reason[0] == '\0';
                if (r.loaded.reason[0] == '\0' && rig_verify(&r, 0, x->r.digests->len - 1) < 0)
                        bad = "opened as if nothing were wrong, but it is no state that there was";
        }
        struct looking l = {.x = x, .r = &r};
        if (e == 0)
                tree_each_inode(r.state.tree, 0, look_inode, &l);
        if (l.wrong)
                bad = "something is served that never was";
        if (bad)
                fprintf(stderr, "%s, byte %" PRIu64 ", bits %02x%s: %s (%s)\n", path, at, bits, read_only ? ", read-only" : "", bad,
                        r.loaded.reason);
        rig_done(&r);
        simdisk_free(disk);
        return bad ? -1 : 0;
}

static bool is_zero(const struct sample *x, const char *path, uint64_t at) {
        uint8_t page[512];
        if (simdisk_peek(x->disk, path, at / sizeof(page) * sizeof(page), page, sizeof(page)) < 0)
                return false;
        for (size_t i = 0; i < sizeof(page); i++)
                if (page[i])
                        return false;
        return true;
}

/* Every `stride`-th byte; of what is only zeros far fewer. */
static int flip_all(const struct sample *x, const char *path, uint64_t stride) {
        static const uint8_t bits[] = {0x01, 0x80, 0xff, 0x10};
        uint64_t size = 0;
        struct tally t = {0};
        if (simdisk_file_size(x->disk, path, &size) < 0)
                return -1;
        for (uint64_t at = 0, i = 0; at < size; at += is_zero(x, path, at) ? 512 * (1 + stride / 50) : stride, i++)
                if (flip(x, path, at, bits[i % ARRAY_LEN(bits)], i % 16 == 0, &t) < 0)
                        return -1;
        printf("%-14s %8" PRIu64 " flips: %" PRIu64 " refused, %" PRIu64 " opened for rescue, %" PRIu64 " without effect\n", path, t.flips,
               t.refused, t.rescued, t.unseen);
        return 0;
}

int main(int argc, char **argv) {
        bool full = argc > 1 && strcmp(argv[1], "full") == 0;
        log_set_level((enum log_level)0); /* each flip has its lines */
        (void)mallopt(M_MMAP_THRESHOLD, 64 << 20);
        (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
        for (int with_log = 0; with_log < 2; with_log++) {
                struct sample x;
                if (sample_make(&x, with_log) < 0 || flip_all(&x, "d/db", full ? 1 : 97) < 0 ||
                    flip_all(&x, "d/db-oplog", full ? 3 : 401) < 0 || flip_all(&x, "d/db-content", full ? 17 : 1009) < 0)
                        return EXIT_FAILURE;
                sample_free(&x);
        }
        return EXIT_SUCCESS;
}
