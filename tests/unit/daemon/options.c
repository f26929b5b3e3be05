/* options.c: the table of options, from command line, -o and file; what is refused and how it is said. */
#include "unit.h"

#include "daemon/options.h"
#include "repl/repl.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char reason[OPTIONS_REASON];
static char file[64];

static errint_t parse(struct options *o, const char *const *argv) {
        int argc = 0;
        while (argv[argc])
                argc++;
        options_init(o);
        reason[0] = '\0';
        return options_parse(o, argc, (char **)(uintptr_t)argv, reason);
}
#define PARSE(o, ...) parse(o, (const char *const[]){"coteried", __VA_ARGS__, NULL})

static const char *config(const char *text) {
        strcpy(file, "/tmp/coterie-conf-XXXXXX");
        int fd = mkstemp(file);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        close(fd);
        return file;
}

START_TEST(defaults) {
        struct options o;
        ck_assert_int_eq(PARSE(&o, "--standalone", "--db", "/d", "/m"), 0);
        ck_assert_uint_eq(o.standalone.number, 1);
        ck_assert_str_eq(o.db.text, "/d");
        ck_assert_str_eq(o.mountpoint, "/m");
        ck_assert_str_eq(o.run_dir.text, "/run/coterie");
        ck_assert_uint_eq(o.sync_level.number, LEVEL_FILESYSTEM);
        ck_assert_uint_eq(o.commit_interval.number, 5000);
        ck_assert_uint_eq(o.commit_bytes.number, 8 * MIB);
        ck_assert_uint_eq(o.direct.number, 1);
        options_done(&o);
}
END_TEST

/* The words for levels and methods stand in the store, too, for status; the defaults of the machine in it. */
START_TEST(agree_with_what_they_are_for) {
        struct options o;
        options_init(&o);
        for (int l = LEVEL_NONE; l <= LEVEL_FILE; l++) {
                ck_assert_int_eq(options_set(&o, "sync_level", sync_level_text((enum sync_level)l), reason), 0);
                ck_assert_uint_eq(o.sync_level.number, (uint64_t)l);
        }
        for (int m = SYNC_FDATASYNC; m <= SYNC_SYNCFS; m++) {
                ck_assert_int_eq(options_set(&o, "sync_method", sync_method_text((enum sync_method)m), reason), 0);
                ck_assert_uint_eq(o.sync_method.number, (uint64_t)m);
        }
        ck_assert_uint_eq(o.ack_timeout.number, REPL_ACK_TIMEOUT_MS);
        ck_assert_uint_eq(o.forgetful_wait.number, REPL_FORGETFUL_WAIT_MS);
        ck_assert_uint_eq(o.read_only_grace.number, REPL_READ_ONLY_GRACE_MS);
        ck_assert_uint_eq(o.send_window.number, REPL_WINDOW_DEFAULT);
        options_done(&o);
}
END_TEST

START_TEST(forms) {
        struct options o;
        ck_assert_int_eq(PARSE(&o, "-f", "--db=/d", "--sync-level", "file", "--sync_method=fsync", "-o",
                               "commit_interval=250ms,nodirect,ro,dev,x-systemd.after=a,rw", "-oposix_locks=local", "--", "-m"),
                         0);
        ck_assert(o.foreground);
        ck_assert_uint_eq(o.sync_level.number, LEVEL_FILE);
        ck_assert_uint_eq(o.sync_method.number, SYNC_FSYNC);
        ck_assert_uint_eq(o.commit_interval.number, 250);
        ck_assert_uint_eq(o.direct.number, 0);
        ck_assert_uint_eq(o.read_only.number, 1);
        ck_assert_uint_eq(o.dev.number, 1);
        ck_assert_uint_eq(o.posix_locks.number, 1);
        ck_assert_str_eq(o.mountpoint, "-m");
        options_done(&o);
}
END_TEST

static void refused(errint_t error, const char *part) {
        ck_assert_int_eq(error, -EINVAL);
        ck_assert_msg(strstr(reason, part) != NULL, "reason: %s; expected: %s", reason, part);
        ck_assert_ptr_null(strchr(reason, '\n'));
}
#define REFUSED(part, ...)                                                                                                                 \
        do {                                                                                                                               \
                struct options o;                                                                                                          \
                refused(PARSE(&o, __VA_ARGS__), part);                                                                                     \
                options_done(&o);                                                                                                          \
        } while (0)

START_TEST(refusals) {
        REFUSED("did you mean \"sync_level\"", "--sync-levl", "file", "/m");
        REFUSED("unknown option \"-q\"", "-q", "/m");
        REFUSED("one of: none filesystem file", "--sync-level", "paranoid", "/m");
        REFUSED("100ms to 3600s", "-o", "commit_interval=1ms", "/m");
        REFUSED("64K to 1G", "--commit-bytes=12x", "/m");
        REFUSED("64K to 1G", "--commit-bytes=99999999999999999999", "/m");
        REFUSED("needs a value", "/m", "--db");
        REFUSED("needs a value", "-o", "db", "/m");
        REFUSED("yes or no", "--cache=perhaps", "--db=/d", "/m");
        REFUSED("no database", "/m");
        REFUSED("no mount point", "--db=/d");
        REFUSED("one mount point only", "--db=/d", "/m", "/n");
        REFUSED("bad value \"\"", "--db=", "/m");
        REFUSED("did you mean \"padding\"", "-o", "nopading", "--db=/d", "/m");
}
END_TEST

START_TEST(file_and_precedence) {
        struct options o;
        const char *path = config("# a comment\n\n  sync_level = none   # why\ncommit-bytes=1M\ndb = /from/file#1\nstandalone = yes\n");
        ck_assert_int_eq(PARSE(&o, "--sync-level=file", "--config", path, "/m"), 0);
        ck_assert_uint_eq(o.sync_level.number, LEVEL_FILE); /* the command line wins, wherever it stands */
        ck_assert_uint_eq(o.commit_bytes.number, MIB);
        ck_assert_str_eq(o.db.text, "/from/file#1");
        ck_assert_int_eq(options_set(&o, "mountpoint", "/elsewhere", reason), 0);
        ck_assert_str_eq(o.mountpoint, "/m"); /* the argument wins */
        struct options again;
        ck_assert_int_eq(options_reload(&o, &again, reason), 0);
        ck_assert_uint_eq(again.sync_level.number, LEVEL_FILE);
        ck_assert_uint_eq(again.commit_bytes.number, MIB);
        options_done(&again);
        options_done(&o);
        unlink(path);
}
END_TEST

START_TEST(mountpoint_from_the_file) {
        struct options o;
        const char *path = config("mountpoint = /from/file\ndb = /d\n");
        ck_assert_int_eq(PARSE(&o, "--config", path), 0);
        ck_assert_str_eq(o.mountpoint, "/from/file");
        options_done(&o);
        unlink(path);
}
END_TEST

static void file_refused(const char *text, const char *part, unsigned line) {
        struct options o;
        char where[128];
        const char *path = config(text);
        errint_t error = PARSE(&o, "--check-config", "--config", path);
        refused(error, part);
        snprintf(where, sizeof(where), "%s:%u: ", path, line);
        ck_assert_msg(strncmp(reason, where, strlen(where)) == 0, "reason: %s", reason);
        options_done(&o);
        unlink(path);
}

START_TEST(bad_files) {
        file_refused("db = /x\nsync_levl = file\n", "did you mean \"sync_level\"", 2);
        file_refused("sync_level\n", "write name = value", 1);
        file_refused("\n\ncommit_interval = soon\n", "bad value \"soon\"", 3);
        file_refused("threads = 1000", "0 to 64", 1);
        file_refused("= 3\n", "unknown option \"\"", 1);
        struct options o;
        ck_assert_int_eq(PARSE(&o, "--check-config", "--config", "/nowhere/at/all"), -ENOENT);
        ck_assert_ptr_nonnull(strstr(reason, "/nowhere/at/all"));
        options_done(&o);
}
END_TEST

START_TEST(long_lines) {
        char *text = malloc(20000);
        memset(text, 'a', 19999);
        text[19999] = '\0';
        file_refused(text, "too long", 1);
        memset(text, 'x', 6000);
        memcpy(text, "db = ", 5);
        text[4200] = '\0';
        file_refused(text, "1 to 4096 bytes", 1);
        free(text);
}
END_TEST

START_TEST(values) {
        uint64_t v = 1;
        char buf[32];
        ck_assert_int_eq(parse_bytes("8M", &v), 0);
        ck_assert_uint_eq(v, 8 * MIB);
        ck_assert_int_eq(parse_bytes("1KiB", &v), 0);
        ck_assert_uint_eq(v, 1024);
        ck_assert_int_lt(parse_bytes("", &v), 0);
        ck_assert_int_lt(parse_bytes("-1", &v), 0);
        ck_assert_int_lt(parse_bytes("18446744073709551615K", &v), 0);
        ck_assert_int_eq(parse_duration("2min", &v), 0);
        ck_assert_uint_eq(v, 120000);
        ck_assert_int_eq(parse_duration("5", &v), 0);
        ck_assert_uint_eq(v, 5000);
        ck_assert_int_eq(parse_duration("never", &v), 0);
        ck_assert_uint_eq(v, DURATION_NEVER);
        format_bytes(8 * MIB, buf, sizeof(buf));
        ck_assert_str_eq(buf, "8M");
        format_bytes(1000, buf, sizeof(buf));
        ck_assert_str_eq(buf, "1000");
        format_duration(5000, buf, sizeof(buf));
        ck_assert_str_eq(buf, "5s");
}
END_TEST

/* What is shown can be given back. */
START_TEST(texts_round_trip) {
        struct options o;
        options_init(&o);
        for (size_t i = 0; i < options_count(); i++) {
                const struct option_info *info = options_info(i);
                char before[OPTION_TEXT_MAX], after[OPTION_TEXT_MAX];
                options_text(&o, info, before, sizeof(before));
                if (info->type == OPTION_TEXT && info->min > 0 && !before[0])
                        continue;
                ck_assert_msg(options_set(&o, info->name, before, reason) == 0, "%s: %s", info->name, reason);
                options_text(&o, info, after, sizeof(after));
                ck_assert_str_eq(before, after);
        }
        options_done(&o);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("daemon.options");
        TCase *t = tcase_create("options");
        tcase_add_test(t, defaults);
        tcase_add_test(t, agree_with_what_they_are_for);
        tcase_add_test(t, forms);
        tcase_add_test(t, refusals);
        tcase_add_test(t, file_and_precedence);
        tcase_add_test(t, mountpoint_from_the_file);
        tcase_add_test(t, bad_files);
        tcase_add_test(t, long_lines);
        tcase_add_test(t, values);
        tcase_add_test(t, texts_round_trip);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
