/* vfs_test.c: SQLite through the disk interface. */
#include "simdisk.h"
#include "unit.h"
#include "vfs.h"

#include <sqlite3.h>
#include <string.h>

#define OK(e) ck_assert_int_eq((e), 0)

static sqlite3 *open_db(struct vfs *v, int expect) {
        sqlite3 *db = NULL;
        ck_assert_int_eq(sqlite3_open_v2("d/x", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs_name(v)), expect);
        return db;
}
static void sql(sqlite3 *db, const char *text) {
        char *why = NULL;
        int code = sqlite3_exec(db, text, NULL, NULL, &why);
        ck_assert_msg(code == SQLITE_OK, "%s: %s", text, why);
}
static int number(sqlite3 *db, const char *text) {
        sqlite3_stmt *st = NULL;
        ck_assert_int_eq(sqlite3_prepare_v2(db, text, -1, &st, NULL), SQLITE_OK);
        ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
        int n = sqlite3_column_int(st, 0);
        sqlite3_finalize(st);
        return n;
}
static const char setup[] = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL; CREATE TABLE t(a); "
                            "INSERT INTO t VALUES(1),(2);";

START_TEST(bytes_and_flushes_are_counted) {
        struct simdisk *d = simdisk_new(NULL);
        struct metrics m = {0};
        struct vfs *v = vfs_new(simdisk_disk(d), &m, false);
        sqlite3 *db = open_db(v, SQLITE_OK);
        sql(db, setup);
        /* Whole pages; a part of one more between two flushes at the most, for each of the two files. */
        uint64_t counted = metric_get(&m, METRIC_HOME_BYTES), written = simdisk_bytes_written(d, "d/x"),
                 flushes = simdisk_calls(d, SIMDISK_SYNC);
        ck_assert_uint_eq(counted % 4096, 0);
        ck_assert_uint_ge(counted + flushes * 4096, written); /* a page that is written twice between two flushes goes to the disk once */
        ck_assert_uint_le(counted, written + flushes * 2 * 4096);
        ck_assert_uint_eq(metric_get(&m, METRIC_HOME_FLUSHES), flushes);
        ck_assert_uint_gt(metric_get(&m, METRIC_HOME_FLUSHES), 0);
        sqlite3_close(db);
        vfs_free(v);
        simdisk_free(d);
}
END_TEST

START_TEST(one_opener) {
        struct simdisk *d = simdisk_new(NULL);
        struct metrics m = {0};
        struct vfs *v = vfs_new(simdisk_disk(d), &m, false), *w = vfs_new(simdisk_disk(d), &m, false);
        ck_assert_str_ne(vfs_name(v), vfs_name(w));
        sqlite3 *db = open_db(v, SQLITE_OK), *second = open_db(w, SQLITE_CANTOPEN);
        ck_assert_int_eq(vfs_take_error(w), -EBUSY);
        ck_assert_int_eq(vfs_take_error(w), 0);
        sqlite3_close(second);
        sqlite3_close(db);
        second = open_db(w, SQLITE_OK);
        vfs_keep(w); /* closed and opened again: nobody gets in between */
        sqlite3_close(second);
        db = open_db(v, SQLITE_CANTOPEN);
        sqlite3_close(db);
        second = open_db(w, SQLITE_OK);
        sql(second, setup);
        sqlite3_close(second);
        db = open_db(v, SQLITE_OK);
        ck_assert_int_eq(number(db, "SELECT sum(a) FROM t"), 3);
        sqlite3_close(db);
        vfs_free(v);
        vfs_free(w);
        simdisk_free(d);
}
END_TEST

START_TEST(errors_of_the_disk_come_out) {
        struct simdisk *d = simdisk_new(NULL);
        struct metrics m = {0};
        struct vfs *v = vfs_new(simdisk_disk(d), &m, false);
        sqlite3 *db = open_db(v, SQLITE_OK);
        sql(db, setup);
        simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_WRITE, .nth = 1, .error = -ENOSPC});
        ck_assert_int_eq(sqlite3_exec(db, "INSERT INTO t VALUES(3)", NULL, NULL, NULL), SQLITE_FULL);
        ck_assert_int_eq(vfs_take_error(v), -ENOSPC);
        simdisk_fail(d, &(struct simdisk_fault){.kinds = SIMDISK_SYNC, .nth = 1, .error = -EIO});
        ck_assert_int_eq(sqlite3_exec(db, "INSERT INTO t VALUES(3)", NULL, NULL, NULL), SQLITE_IOERR);
        ck_assert_int_eq(vfs_take_error(v), -EIO);
        simdisk_fail(d, NULL);
        sql(db, "INSERT INTO t VALUES(3)");
        ck_assert_int_eq(number(db, "SELECT count(*) FROM t"), 3);
        ck_assert_uint_ge(metric_get(&m, METRIC_STORE_ERRORS), 2);
        sqlite3_close(db);
        vfs_free(v);
        simdisk_free(d);
}
END_TEST

/* A power cut at each event of a transaction leaves the one before or this one. */
START_TEST(transactions_are_atomic) {
        struct simdisk *d = simdisk_new(&(struct simdisk_config){.history = true});
        struct metrics m = {0};
        struct vfs *v = vfs_new(simdisk_disk(d), &m, false);
        sqlite3 *db = open_db(v, SQLITE_OK);
        sql(db, setup);
        simdisk_settle(d);
        sql(db, "BEGIN; UPDATE t SET a = a + 10; CREATE TABLE u(b); INSERT INTO u VALUES(zeroblob(20000)); COMMIT");
        uint64_t end = simdisk_position(d);
        unsigned before = 0, after = 0;
        for (uint64_t at = 0; at <= end; at++)
                for (uint64_t seed = 0; seed < 20; seed++) {
                        struct simdisk *cut = simdisk_crashed(d, &(struct simdisk_crash){.at = at, .keep = SIMDISK_ANY, .seed = seed});
                        struct vfs *w = vfs_new(simdisk_disk(cut), &m, seed % 2); /* frozen: the journal is rolled back in memory */
                        uint64_t changes = simdisk_calls(cut, SIMDISK_WRITE | SIMDISK_SYNC | SIMDISK_TRUNCATE | SIMDISK_UNLINK);
                        sqlite3 *again = open_db(w, SQLITE_OK);
                        int sum = number(again, "SELECT sum(a) FROM t");
                        ck_assert(sum == 3 || sum == 23);
                        ck_assert_int_eq(number(again, "SELECT count(*) FROM sqlite_master"), sum == 3 ? 1 : 2);
                        *(sum == 3 ? &before : &after) += 1;
                        sqlite3_close(again);
                        vfs_free(w);
                        if (seed % 2)
                                ck_assert_uint_eq(simdisk_calls(cut, SIMDISK_WRITE | SIMDISK_SYNC | SIMDISK_TRUNCATE | SIMDISK_UNLINK),
                                                  changes);
                        simdisk_free(cut);
                }
        ck_assert(before > 0 && after > 0);
        sqlite3_close(db);
        vfs_free(v);
        simdisk_free(d);
}
END_TEST

/* Frozen while open: what is written from then on is seen, and is not on the disk. */
START_TEST(freezing) {
        struct simdisk *d = simdisk_new(NULL);
        struct metrics m = {0};
        struct vfs *v = vfs_new(simdisk_disk(d), &m, false);
        sqlite3 *db = open_db(v, SQLITE_OK);
        sql(db, setup);
        uint64_t bytes = simdisk_bytes_written(d, NULL);
        vfs_freeze(v);
        sql(db, "INSERT INTO t VALUES(zeroblob(100000)); DELETE FROM t WHERE a = 1; VACUUM;");
        ck_assert_int_eq(number(db, "SELECT count(*) FROM t"), 2);
        ck_assert_int_eq(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
        ck_assert_uint_eq(simdisk_bytes_written(d, NULL), bytes);
        sqlite3_close(db);
        vfs_free(v);
        v = vfs_new(simdisk_disk(d), &m, true);
        db = open_db(v, SQLITE_OK);
        ck_assert_int_eq(number(db, "SELECT sum(a) FROM t"), 3);
        sqlite3_close(db);
        vfs_free(v);
        simdisk_free(d);
}
END_TEST

static Suite *suite_vfs(void) {
        Suite *s = suite_create("vfs");
        TCase *t = tcase_create("all");
        tcase_set_timeout(t, 60);
        tcase_add_test(t, bytes_and_flushes_are_counted);
        tcase_add_test(t, one_opener);
        tcase_add_test(t, errors_of_the_disk_come_out);
        tcase_add_test(t, transactions_are_atomic);
        tcase_add_test(t, freezing);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite_vfs)
