/* store_test.c: what goes where: the log, the content file, the home; and what comes free again. */
#include "store_helper.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t bytes(const struct bed *b, enum metric m) {
        return metric_get(&b->r.metrics, m);
}
static void file_of(struct bed *b, const char *name, size_t size) {
        cleanup_free uint8_t *p = xmalloc(size);
        rig_bytes(&b->r, p, size);
        if (!rig_lookup(&b->r, name))
                OK(rig_create(&b->r, name, S_IFREG | 0644));
        OK(rig_replace(&b->r, name, p, size));
        OK(rig_write_out(&b->r));
}
static void reopen(struct bed *b) {
        uint64_t end = b->r.state.pos.seq;
        OK(rig_write_out(&b->r));
        bed_kill(b);
        OK(rig_open(&b->r));
        ck_assert(!b->r.loaded.read_only);
        OK(rig_verify(&b->r, end, end));
}

/* Large content is written once, to the content file; neither log nor home see it. */
START_TEST(large_content_is_written_once) {
        struct bed b;
        bed_begin(&b, 0);
        file_of(&b, "f", 100000);
        ck_assert_uint_eq(bytes(&b, METRIC_CONTENT_BYTES), 25 * 4096 + 4096);
        ck_assert_uint_lt(bytes(&b, METRIC_LOG_BYTES), 4 * 4096 + 256 * KIB + 4096);
        uint64_t content = bytes(&b, METRIC_CONTENT_BYTES), log = bytes(&b, METRIC_LOG_BYTES), home = bytes(&b, METRIC_HOME_BYTES);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        ck_assert_uint_eq(bytes(&b, METRIC_CONTENT_BYTES), content);
        ck_assert_uint_le(bytes(&b, METRIC_LOG_BYTES), log + 8192);
        ck_assert_uint_le(bytes(&b, METRIC_HOME_BYTES) - home, 12 * 4096);
        reopen(&b);
        bed_end(&b);
}
END_TEST

/* Attributes, names and small edits of a large file never write its content again, in no file. */
START_TEST(small_changes_of_a_large_file) {
        struct bed b;
        bed_begin(&b, 0);
        file_of(&b, "f", 1000000);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        for (int i = 0; i < 20; i++) {
                uint64_t content = bytes(&b, METRIC_CONTENT_BYTES), home = bytes(&b, METRIC_HOME_BYTES), log = bytes(&b, METRIC_LOG_BYTES);
                OK(rig_chmod(&b.r, "f", (uint32_t)(0600 + i)));
                OK(rig_write(&b.r, "f", (uint64_t)i * 5000, "some hundred bytes or less", 26));
                OK(rig_append(&b.r, "f", "ab", 2));
                OK(rig_setxattr(&b.r, "f", "user.x", "v", 1));
                OK(rig_write_out(&b.r));
                OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                ck_assert_uint_eq(bytes(&b, METRIC_CONTENT_BYTES), content);
                ck_assert_uint_lt(bytes(&b, METRIC_HOME_BYTES) - home, 60000);
                ck_assert_uint_le(bytes(&b, METRIC_LOG_BYTES) - log, 8192);
        }
        reopen(&b);
        OK(rig_stop(&b.r));
        OK(rig_open(&b.r));
        bed_end(&b);
}
END_TEST

/* Edits are gathered into a new base when they are too many, or too much. */
START_TEST(edits_are_consolidated) {
        struct bed b;
        uint8_t edit[900];
        bed_begin(&b, 0);
        file_of(&b, "f", 20000);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        unsigned rewrites = 0;
        for (int i = 0; i < 200; i++) {
                uint64_t content = bytes(&b, METRIC_CONTENT_BYTES);
                rig_bytes(&b.r, edit, sizeof(edit));
                OK(rig_write(&b.r, "f", rig_random(&b.r, 19000), edit, i < 100 ? 50 : sizeof(edit)));
                OK(rig_write_out(&b.r));
                OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                rewrites += bytes(&b, METRIC_CONTENT_BYTES) > content;
                if (i % 17 == 0)
                        reopen(&b);
        }
        ck_assert_uint_ge(rewrites, 8);
        ck_assert_uint_le(rewrites, 14);
        reopen(&b);
        bed_end(&b);
}
END_TEST

/* A small file that changes all the time goes home once per checkpoint. */
START_TEST(only_the_last_state_goes_home) {
        struct bed b;
        uint8_t data[2000];
        bed_begin(&b, 16 * MIB);
        OK(rig_create(&b.r, "hot", S_IFREG));
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        uint64_t home = bytes(&b, METRIC_HOME_BYTES);
        for (int i = 0; i < 1000; i++) {
                rig_bytes(&b.r, data, sizeof(data));
                OK(rig_replace(&b.r, "hot", data, sizeof(data)));
                OK(rig_write_out(&b.r));
        }
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        ck_assert_uint_lt(bytes(&b, METRIC_HOME_BYTES) - home, 40000);
        reopen(&b);
        bed_end(&b);
}
END_TEST

/* Versions between two checkpoints pin their extents; after it they are used again, and the file does not grow without bound. */
START_TEST(extents_are_used_again) {
        struct bed b;
        uint64_t size = 0;
        bed_begin(&b, 0);
        for (int i = 0; i < 400; i++) {
                file_of(&b, i % 2 ? "f" : "g", 200000);
                OK(rig_settle(&b.r));
                if (i % 20 == 19)
                        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        }
        OK(simdisk_file_size(b.disk, DB "-content", &size));
        ck_assert_uint_lt(size, 14 * MIB);
        reopen(&b);
        bed_end(&b);
}
END_TEST

/* Dead extents alone make a checkpoint wanted: the log holds only a hundred bytes of each. */
START_TEST(dead_extents_want_a_checkpoint) {
        struct bed b;
        bed_begin(&b, 16 * MIB);
        int i = 0;
        for (; i < 200 && !b.r.store->ops->wants_checkpoint(b.r.store); i++)
                file_of(&b, "f", 1000000);
        ck_assert_int_ge(i, 60);
        ck_assert_int_le(i, 75);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        ck_assert(!b.r.store->ops->wants_checkpoint(b.r.store));
        bed_end(&b);
}
END_TEST

START_TEST(a_full_log_waits) {
        struct bed b;
        bed_begin(&b, 64 * KIB);
        struct store *s = b.r.store;
        int i = 0;
        for (; i < 1000 && !s->ops->must_wait(s); i++)
                file_of(&b, "f", 1000);
        ck_assert_int_lt(i, 70);
        ck_assert_int_gt(i, 30); /* both halves were used */
        ck_assert(s->ops->wants_checkpoint(s));
        file_of(&b, "f", 1000); /* what was delivered all the same still fits */
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        ck_assert(!s->ops->must_wait(s));
        for (i = 0; i < 20; i++)
                file_of(&b, "f", 1000);
        reopen(&b);
        bed_end(&b);
}
END_TEST

/* Edits that do not fit in a record, contents with holes, truncations: all come back. */
START_TEST(odd_contents) {
        struct bed b;
        cleanup_free uint8_t *p = xmalloc(900000);
        bed_begin(&b, 16 * MIB);
        rig_bytes(&b.r, p, 900000);
        file_of(&b, "f", 1000000);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        OK(rig_write(&b.r, "f", 100, p, 400000)); /* an edit, too large for a record */
        OK(rig_create(&b.r, "sparse", S_IFREG));
        OK(rig_write(&b.r, "sparse", 300000, p, 100000));
        OK(rig_truncate(&b.r, "sparse", 2000000));
        OK(rig_create(&b.r, "hole", S_IFREG));
        OK(rig_truncate(&b.r, "hole", 5000000));
        OK(rig_create(&b.r, "gone", S_IFREG));
        OK(rig_replace(&b.r, "gone", p, 50000));
        OK(rig_truncate(&b.r, "gone", 0));
        reopen(&b);
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        reopen(&b);
        OK(rig_truncate(&b.r, "f", 10));
        OK(rig_write(&b.r, "hole", 4000000, "x", 1));
        OK(rig_append(&b.r, "gone", p, 9000));
        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
        reopen(&b);
        OK(rig_stop(&b.r));
        OK(rig_open(&b.r));
        bed_end(&b);
}
END_TEST

/* A content flush that failed: what it may have lost is written again elsewhere. */
START_TEST(lost_contents_are_written_again) {
        for (uint64_t seed = 0; seed < 10; seed++) {
                struct bed b;
                bed_begin(&b, 0);
                file_of(&b, "before", 30000);
                OK(rig_barrier(&b.r));
                file_of(&b, "lost", 30000);
                file_of(&b, "before", 30000);
                simdisk_fail(b.disk, &(struct simdisk_fault){.kinds = SIMDISK_SYNC, .path_part = "-content", .nth = 1, .error = -EIO});
                ck_assert_int_eq(rig_barrier(&b.r), -EIO);
                OK(rig_checkpoint(&b.r, CHECKPOINT_RESCUE));
                uint64_t end = b.r.state.pos.seq;
                rig_close(&b.r);
                simdisk_crash(b.disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = seed});
                OK(rig_open(&b.r));
                ck_assert(!b.r.loaded.read_only);
                OK(rig_verify(&b.r, end, end));
                bed_end(&b);
        }
}
END_TEST

/* The flush fails and the daemon is killed before its rescue: to the next one log and content look as if they were on the medium. */
START_TEST(a_failed_flush_of_an_earlier_life) {
        for (uint64_t seed = 0; seed < 20; seed++) {
                struct bed b;
                bed_begin(&b, 0);
                file_of(&b, "before", 30000);
                OK(rig_barrier(&b.r));
                file_of(&b, "lost", 30000);
                file_of(&b, "before", 30000);
                simdisk_fail(b.disk,
                             &(struct simdisk_fault){
                                     .kinds = SIMDISK_SYNC, .path_part = seed % 2 ? "-content" : "-oplog", .nth = 1, .error = -EIO});
                ck_assert_int_eq(rig_barrier(&b.r), -EIO);
                uint64_t end = b.r.state.pos.seq;
                bed_kill(&b);
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, end, end));
                rig_close(&b.r);
                simdisk_crash(b.disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_ANY, .seed = seed});
                OK(rig_open(&b.r));
                ck_assert(!b.r.loaded.read_only);
                OK(rig_verify(&b.r, end, end));
                bed_end(&b);
        }
}
END_TEST

/* A power cut takes an early record and leaves later ones; then the same operation comes again, byte for byte, as another member would send
 * it. What lies behind it on the disk is of a life that is over. */
static errint_t numbered(struct rig *r, unsigned i) {
        uint8_t value[500];
        memset(value, (int)i + 1, sizeof(value));
        return i == 0 ? rig_create(r, "f", S_IFREG | 0644) : rig_setxattr(r, "f", "user.x", value, sizeof(value));
}
START_TEST(records_of_an_earlier_life) {
        unsigned first_lost = 0;
        for (uint64_t seed = 0; seed < 200; seed++) {
                struct bed b;
                bed_begin(&b, 64 * KIB);
                if (seed % 2) { /* in the half that a checkpoint moved to */
                        OK(rig_create(&b.r, "x", S_IFREG | 0644));
                        OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                }
                uint64_t base = b.r.state.pos.seq;
                simdisk_settle(b.disk);
                for (unsigned i = 0; i < 6; i++)
                        OK(numbered(&b.r, i));
                OK(rig_write_out(&b.r));
                rig_close(&b.r);
                simdisk_crash(b.disk, &(struct simdisk_crash){.at = SIMDISK_NOW, .keep = SIMDISK_TORN, .seed = seed});
                OK(rig_open(&b.r));
                OK(rig_verify(&b.r, base, base + 6));
                uint64_t lived = b.r.state.pos.seq - base;
                if (lived < 6) {
                        b.r.number = base + lived;
                        OK(numbered(&b.r, (unsigned)lived));
                        OK(rig_write_out(&b.r));
                        bed_kill(&b);
                        OK(rig_open(&b.r));
                        OK(rig_verify(&b.r, base + lived + 1, base + lived + 1));
                        first_lost += lived == 0;
                }
                bed_end(&b);
        }
        ck_assert_uint_ge(first_lost, 20);
}
END_TEST

/* Damaged content is not served: the file is there, empty, closed, and named; the check says where it is. */
static void remember_line(void *ctx, const char *line) {
        (void)snprintf(ctx, 512, "%s", line);
}
START_TEST(damaged_content_is_named) {
        struct bed b;
        uint8_t byte = 0;
        char line[512] = "";
        struct store_check_result result;
        struct attr attr;
        bed_begin(&b, 0);
        file_of(&b, "good", 20000);
        file_of(&b, "bad", 20000);
        uint64_t bad = rig_lookup(&b.r, "bad"), good = rig_lookup(&b.r, "good");
        OK(rig_stop(&b.r));
        uint64_t at = 4096 + 5 * 4096 + 1000; /* behind the header and the five units of the first */
        OK(simdisk_peek(b.disk, DB "-content", at, &byte, 1));
        byte ^= 4;
        OK(simdisk_poke(b.disk, DB "-content", at, &byte, 1));
        OK(store_check(DB, simdisk_disk(b.disk), remember_line, line, &result));
        ck_assert_uint_eq(result.faults, 1);
        ck_assert_msg(strstr(line, "/bad") && strstr(line, "inode 3"), "%s", line);
        OK(rig_open(&b.r));
        ck_assert(b.r.loaded.read_only);
        ck_assert_ptr_nonnull(strstr(b.r.loaded.reason, "/bad"));
        ck_assert_uint_eq(b.r.loaded.n_damaged, 1);
        ck_assert_uint_eq(b.r.loaded.damaged[0], bad);
        OK(tree_getattr(b.r.state.tree, bad, &attr));
        ck_assert_uint_eq(attr.size, 0);
        ck_assert_uint_eq(attr.mode, S_IFREG);
        OK(tree_getattr(b.r.state.tree, good, &attr));
        ck_assert_uint_eq(attr.size, 20000);
        bed_end(&b);
}
END_TEST

START_TEST(check_writes_nothing) {
        for (int state = 0; state < 3; state++) {
                struct bed b;
                char line[512] = "";
                struct store_check_result result;
                bed_begin(&b, 0);
                file_of(&b, "f", 20000);
                OK(rig_checkpoint(&b.r, CHECKPOINT_NORMAL));
                for (int i = 0; i < 30; i++)
                        OK(rig_any(&b.r, 9000));
                OK(rig_write_out(&b.r));
                struct hash128 digest = state_digest(&b.r.state);
                uint64_t end = b.r.state.pos.seq;
                if (state == 0)
                        OK(rig_stop(&b.r));
                if (state == 2) { /* a hot journal: cut off in the middle of a checkpoint */
                        OK(rig_create(&b.r, "x", S_IFREG));
                        simdisk_fail(b.disk, &(struct simdisk_fault){
                                                     .kinds = SIMDISK_SYNC, .path_part = DB, .nth = 6, .sticky = true, .error = -EIO});
                        ck_assert_int_eq(rig_checkpoint(&b.r, CHECKPOINT_NORMAL), -EIO);
                        end++;
                        digest = state_digest(&b.r.state);
                }
                if (state > 0)
                        bed_kill(&b);
                simdisk_fail(b.disk, NULL);
                unsigned changes = SIMDISK_CHANGES & ~(unsigned)SIMDISK_OPEN;
                uint64_t calls = simdisk_calls(b.disk, changes);
                OK(store_check(DB, simdisk_disk(b.disk), remember_line, line, &result));
                ck_assert_uint_eq(simdisk_calls(b.disk, changes), calls);
                ck_assert_str_eq(line, "");
                ck_assert_uint_eq(result.faults, 0);
                ck_assert_uint_eq(result.pos.seq, end);
                ck_assert(hash128_equal(result.digest, digest));
                ck_assert_uint_ge(result.inodes, 1);
                bed_end(&b);
        }
}
END_TEST

START_TEST(check_of_a_running_one) {
        struct bed b;
        char line[512] = "";
        struct store_check_result result;
        bed_begin(&b, 0);
        ck_assert_int_eq(store_check(DB, simdisk_disk(b.disk), remember_line, line, &result), -EBUSY);
        ck_assert_ptr_nonnull(strstr(line, "in use"));
        bed_end(&b);
}
END_TEST

/* Nothing half made stays behind when a database cannot be made. */
START_TEST(no_half_database) {
        for (uint64_t nth = 1; nth < 60; nth += 3) {
                struct simdisk *d = simdisk_new(NULL);
                struct rig r;
                bool exists = false;
                rig_init(&r, &(struct store_config){.path = DB, .log_size = 64 * KIB, .boot_id = "1", .disk = simdisk_disk(d)});
                simdisk_fail(d,
                             &(struct simdisk_fault){.kinds = SIMDISK_WRITE | SIMDISK_SYNC, .path_part = DB, .nth = nth, .error = -ENOSPC});
                errint_t e = rig_open(&r);
                if (e < 0) {
                        OK(simdisk_disk(d)->ops->exists(simdisk_disk(d), DB, &exists));
                        simdisk_fail(d, NULL);
                        OK(rig_open(&r));
                        ck_assert(r.loaded.fresh || exists);
                }
                rig_done(&r);
                simdisk_free(d);
        }
}
END_TEST

static Suite *suite_store(void) {
        Suite *s = suite_create("store");
        TCase *t = tcase_create("all");
        tcase_set_timeout(t, 120);
        tcase_add_test(t, large_content_is_written_once);
        tcase_add_test(t, small_changes_of_a_large_file);
        tcase_add_test(t, edits_are_consolidated);
        tcase_add_test(t, only_the_last_state_goes_home);
        tcase_add_test(t, extents_are_used_again);
        tcase_add_test(t, dead_extents_want_a_checkpoint);
        tcase_add_test(t, a_full_log_waits);
        tcase_add_test(t, odd_contents);
        tcase_add_test(t, lost_contents_are_written_again);
        tcase_add_test(t, a_failed_flush_of_an_earlier_life);
        tcase_add_test(t, records_of_an_earlier_life);
        tcase_add_test(t, damaged_content_is_named);
        tcase_add_test(t, check_writes_nothing);
        tcase_add_test(t, check_of_a_running_one);
        tcase_add_test(t, no_half_database);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite_store)
