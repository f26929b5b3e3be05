/* home_test.c: whose database it is, what it says, and that plain SQLite can read it. */
#include "home_private.h"
#include "store_helper.h"
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void poke32(struct bed *b, uint64_t at, uint32_t v) {
        uint8_t be[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
        OK(simdisk_poke(b->disk, DB, at, be, 4));
}
/* A database, stopped, with something in its header changed: refused, and not one byte is written. */
static void refused_untouched(uint64_t at, uint32_t v, errint_t error, const char *word) {
        struct bed b;
        bed_begin(&b, 0);
        OK(rig_create(&b.r, "a", S_IFREG));
        OK(rig_stop(&b.r));
        poke32(&b, at, v);
        unsigned changes = SIMDISK_CHANGES & ~(unsigned)SIMDISK_OPEN;
        uint64_t calls = simdisk_calls(b.disk, changes);
        ck_assert_int_eq(rig_open(&b.r), error);
        ck_assert_msg(strstr(b.r.loaded.reason, word) && strstr(b.r.loaded.reason, DB), "%s", b.r.loaded.reason);
        ck_assert_uint_eq(simdisk_calls(b.disk, changes), calls);
        bed_end(&b);
}
START_TEST(newer_schema) {
        refused_untouched(60, HOME_SCHEMA + 1, -ENOTSUP, "schema 2");
}
END_TEST
START_TEST(other_application) {
        refused_untouched(68, 0x12345678, -EBADMSG, "not a Coterie database");
}
END_TEST
START_TEST(no_database) {
        refused_untouched(0, 0x12345678, -EBADMSG, "not a Coterie database");
}
END_TEST

START_TEST(foreign_parts) {
        static const struct {
                const char *path, *word;
        } parts[] = {{DB "-oplog", "log of another database"}, {DB "-content", "content file of another database"}};
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
                for (int clean = 0; clean < 2; clean++) {
                        struct bed b;
                        uint8_t mine[4096];
                        bed_begin(&b, 64 * KIB);
                        OK(rig_create(&b.r, "a", S_IFREG));
                        OK(rig_stop(&b.r));
                        OK(simdisk_peek(b.disk, parts[i].path, 0, mine, sizeof(mine)));
                        struct bed other;
                        bed_begin(&other, 64 * KIB);
                        OK(rig_create(&other.r, "b", S_IFREG));
                        OK(rig_write_out(&other.r));
                        if (clean)
                                OK(rig_stop(&other.r));
                        else
                                bed_kill(&other);
                        OK(simdisk_poke(other.disk, parts[i].path, 0, mine, sizeof(mine)));
                        unsigned changes = SIMDISK_CHANGES & ~(unsigned)(SIMDISK_OPEN | SIMDISK_SYNC);
                        uint64_t calls = simdisk_calls(other.disk, changes);
                        ck_assert_int_eq(rig_open(&other.r), -EBADMSG);
                        ck_assert_msg(strstr(other.r.loaded.reason, parts[i].word), "%s", other.r.loaded.reason);
                        ck_assert_uint_eq(simdisk_calls(other.disk, changes), calls);
                        bed_end(&other);
                        bed_end(&b);
                }
        }
}
END_TEST

static void resize(struct bed *b, const char *path, uint64_t size) {
        struct disk_file *f = NULL;
        OK(disk_open(simdisk_disk(b->disk), path, 0, &f));
        OK(f->ops->truncate(f, size));
        disk_close(f);
}

/* What can be read of it is served, nothing is written. */
START_TEST(log_of_another_size) {
        const struct {
                uint64_t size;
                const char *reason;
                bool served;
        } cases[] = {{MIB, "longer than its database knows", true},
                     {5000, "shorter than its database knows", true},
                     {100, "shorter than", false}};
        for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
                struct bed b;
                bed_begin(&b, 64 * KIB);
                OK(rig_create(&b.r, "a", S_IFREG));
                OK(rig_write_out(&b.r));
                bed_kill(&b);
                resize(&b, DB "-oplog", cases[i].size);
                b.r.digests->len = 0;
                OK(rig_open(&b.r));
                ck_assert(b.r.loaded.read_only);
                ck_assert_ptr_nonnull(strstr(b.r.loaded.reason, cases[i].reason));
                ck_assert_int_eq(rig_lookup(&b.r, "a") != 0, cases[i].served);
                ck_assert_int_eq(rig_create(&b.r, "c", S_IFREG), -EROFS);
                bed_end(&b);
        }
}
END_TEST

/* Without its log, a database that was not stopped properly may have lost operations: it opens for rescue, and says so. */
START_TEST(parts_missing) {
        struct bed b;
        uint8_t data[9000];
        struct disk *d;
        bed_begin(&b, 0);
        d = simdisk_disk(b.disk);
        rig_bytes(&b.r, data, sizeof(data));
        OK(rig_create(&b.r, "a", S_IFREG));
        OK(rig_replace(&b.r, "a", data, sizeof(data)));
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        OK(rig_create(&b.r, "b", S_IFREG));
        OK(rig_write_out(&b.r));
        bed_kill(&b);
        OK(d->ops->rename(d, DB "-oplog", "aside"));
        OK(rig_open(&b.r));
        ck_assert(b.r.loaded.read_only);
        ck_assert_ptr_nonnull(strstr(b.r.loaded.reason, "is missing"));
        ck_assert_uint_ne(rig_lookup(&b.r, "a"), 0);
        ck_assert_int_eq(rig_create(&b.r, "c", S_IFREG), -EROFS);
        bed_kill(&b);
        OK(d->ops->rename(d, "aside", DB "-oplog"));
        b.r.digests->len = 0;
        OK(rig_open(&b.r));
        ck_assert(!b.r.loaded.read_only);
        ck_assert_uint_ne(rig_lookup(&b.r, "b"), 0);
        OK(rig_stop(&b.r));
        OK(d->ops->unlink(d, DB "-oplog")); /* empty: made again */
        OK(rig_open(&b.r));
        ck_assert(!b.r.loaded.read_only);
        OK(rig_stop(&b.r));
        OK(d->ops->rename(d, DB "-content", "aside"));
        OK(rig_open(&b.r));
        ck_assert(b.r.loaded.read_only);
        ck_assert_ptr_nonnull(strstr(b.r.loaded.reason, "is missing"));
        ck_assert_uint_eq(b.r.loaded.n_damaged, 1);
        ck_assert_uint_eq(b.r.loaded.damaged[0], rig_lookup(&b.r, "a"));
        bed_end(&b);
}
END_TEST

START_TEST(pragmas_are_set) {
        struct bed b;
        uint8_t head[100];
        bed_begin(&b, 0);
        OK(simdisk_peek(b.disk, DB, 0, head, sizeof(head)));
        ck_assert_uint_eq((unsigned)head[16] << 8 | head[17], HOME_PAGE_SIZE);
        ck_assert_uint_eq(head[18], 1); /* rollback journal */
        bool exists = false;
        OK(simdisk_disk(b.disk)->ops->exists(simdisk_disk(b.disk), DB "-journal", &exists));
        ck_assert(exists); /* persistent */
        /* secure_delete=OFF: what is deleted is not written over with zeros. */
        OK(rig_create(&b.r, "secret", S_IFREG));
        OK(rig_replace(&b.r, "secret", "needle-needle", 13));
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        OK(rig_unlink(&b.r, "secret"));
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        uint64_t size = 0;
        OK(simdisk_file_size(b.disk, DB, &size));
        cleanup_free char *all = xmalloc(size);
        OK(simdisk_peek(b.disk, DB, 0, all, size));
        ck_assert_ptr_nonnull(memmem(all, size, "needle-needle", 13));
        bed_end(&b);
}
END_TEST

/* --- on a real directory --- */

static void temp_dir(char dir[64]) {
        (void)snprintf(dir, 64, "/tmp/coterie-home-test.XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(dir));
}
static void remove_dir(const char *dir) {
        DIR *d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d));)
                (void)unlinkat(dirfd(d), e->d_name, 0); /* "." and ".." refuse */
        if (d)
                closedir(d);
        (void)rmdir(dir);
}
static int query(const char *path, const char *text, char *out, size_t size) {
        sqlite3 *db = NULL;
        sqlite3_stmt *st = NULL;
        int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_prepare_v2(db, text, -1, &st, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(st);
        if (code == SQLITE_ROW)
                (void)snprintf(out, size, "%s", (const char *)sqlite3_column_text(st, 0));
        sqlite3_finalize(st);
        sqlite3_close(db);
        return code;
}

START_TEST(plain_sqlite_reads_it) {
        char dir[64], path[80], out[100] = "";
        struct rig r;
        temp_dir(dir);
        (void)snprintf(path, sizeof(path), "%s/db", dir);
        rig_init(&r, &(struct store_config){.path = path, .log_size = 64 * KIB, .boot_id = "1"});
        OK(rig_open(&r));
        OK(rig_create(&r, "hosts", S_IFREG | 0644));
        OK(rig_replace(&r, "hosts", "127.0.0.1 localhost", 19));
        OK(rig_write_out(&r));
        ck_assert_int_eq(query(path, "SELECT count(*) FROM inodes", out, sizeof(out)), SQLITE_BUSY); /* the daemon has it */
        OK(rig_stop(&r));
        const char *text = "SELECT printf('%o ', mode) || (SELECT data FROM contents WHERE contents.ino = inodes.ino) FROM entries JOIN "
                           "inodes ON inodes.ino ="
                           " entries.ino WHERE entries.parent = 1 AND name = 'hosts'";
        ck_assert_int_eq(query(path, text, out, sizeof(out)), SQLITE_ROW);
        ck_assert_str_eq(out, "100644 127.0.0.1 localhost");
        ck_assert_int_eq(query(path, "PRAGMA integrity_check", out, sizeof(out)), SQLITE_ROW);
        ck_assert_str_eq(out, "ok");
        OK(rig_open(&r)); /* a reader changed nothing */
        OK(rig_verify(&r, 2, 2));
        rig_done(&r);
        remove_dir(dir);
}
END_TEST

static void copy(const char *from_dir, const char *to_dir, const char *name) {
        char path[512];
        uint8_t buf[65536];
        (void)snprintf(path, sizeof(path), "%s/%s", from_dir, name);
        FILE *in = fopen(path, "rb");
        (void)snprintf(path, sizeof(path), "%s/%s", to_dir, name);
        FILE *out = fopen(path, "wb");
        ck_assert(in && out);
        for (size_t n; (n = fread(buf, 1, sizeof(buf), in)) > 0;)
                ck_assert_uint_eq(fwrite(buf, 1, n, out), n);
        fclose(in);
        OK(fclose(out));
}

/* A database of each version opens, and is what it was. */
START_TEST(golden) {
        static const char *const all[] = {"v1-clean", "v1-log"};
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                char dir[64], from[300], path[80], want[HASH128_TEXT + 1] = "", is[HASH128_TEXT];
                uint64_t epoch = 0, seq = 0;
                struct rig r;
                temp_dir(dir);
                (void)snprintf(from, sizeof(from), TEST_DATA_DIR "/db/%s", all[i]);
                copy(from, dir, "db");
                copy(from, dir, "db-oplog");
                copy(from, dir, "db-content");
                (void)snprintf(from + strlen(from), sizeof(from) - strlen(from), "/digest");
                FILE *f = fopen(from, "r");
                ck_assert_ptr_nonnull(f);
                ck_assert_int_eq(fscanf(f, "%" SCNu64 " %" SCNu64 " %33s", &epoch, &seq, want), 3);
                fclose(f);
                (void)snprintf(path, sizeof(path), "%s/db", dir);
                for (int round = 0; round < 2; round++) { /* read-only, then for use */
                        rig_init(&r, &(struct store_config){.path = path, .boot_id = "2", .read_only = round == 0});
                        OK(rig_open(&r));
                        ck_assert_str_eq(r.loaded.reason, "");
                        ck_assert_uint_eq(r.state.pos.epoch, epoch);
                        ck_assert_uint_eq(r.state.pos.seq, seq);
                        hash128_text(state_digest(&r.state), is);
                        ck_assert_str_eq(is, want);
                        ck_assert_uint_eq(r.loaded.promised, 2);
                        ck_assert_uint_eq(r.loaded.adopted, 2);
                        ck_assert_mem_eq(r.loaded.cluster_id, "golden cluster!", CLUSTER_ID_SIZE);
                        ck_assert(r.loaded.unclean == (i == 1));
                        ck_assert(i == 0 || r.loaded.replayed > 30);
                        rig_done(&r);
                }
                remove_dir(dir);
        }
}
END_TEST

static Suite *suite_home(void) {
        Suite *s = suite_create("home");
        TCase *t = tcase_create("all");
        tcase_set_timeout(t, 60);
        tcase_add_test(t, newer_schema);
        tcase_add_test(t, other_application);
        tcase_add_test(t, no_database);
        tcase_add_test(t, foreign_parts);
        tcase_add_test(t, log_of_another_size);
        tcase_add_test(t, parts_missing);
        tcase_add_test(t, pragmas_are_set);
        tcase_add_test(t, plain_sqlite_reads_it);
        tcase_add_test(t, golden);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite_home)
