#include "aborts.h"
#include "base/log.h"
#include "unit.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct heard {
        unsigned lines;
        enum log_level level;
        char last[4096];
};

static void listen(enum log_level level, const char *line, void *ctx) {
        struct heard *h = ctx;
        h->lines++;
        h->level = level;
        (void)snprintf(h->last, sizeof(h->last), "%s", line);
        errno = EPERM; /* a sink may disturb it */
}

START_TEST(levels_and_sink) {
        struct heard h = {0};
        log_set_sink(listen, &h);
        errno = ENOENT;
        log_warning("cannot open %s: %m", "it");
        ck_assert_int_eq(errno, ENOENT);
        ck_assert_str_eq(h.last, "cannot open it: No such file or directory");
        ck_assert_int_eq(h.level, LOG_LEVEL_WARNING);
        log_debug("not at the default level");
        ck_assert_uint_eq(h.lines, 1);
        log_set_level(LOG_LEVEL_DEBUG);
        log_debug("now");
        ck_assert_uint_eq(h.lines, 2);
        log_set_level(LOG_LEVEL_ERROR);
        log_warning("no more");
        log_error("this");
        ck_assert_uint_eq(h.lines, 3);
        log_set_sink(NULL, NULL);
}
END_TEST

START_TEST(one_event_is_one_line) {
        struct heard h = {0};
        char text[5000];
        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        log_set_sink(listen, &h);
        log_error("a%cb%cc%cd", '\n', '\x1b', '\x7f');
        ck_assert_str_eq(h.last, "a b c d");
        log_error("%s", text);
        ck_assert_uint_lt(strlen(h.last), sizeof(h.last) - 1);
        ck_assert_str_eq(h.last + strlen(h.last) - 4, "x\xe2\x80\xa6");
        log_set_sink(NULL, NULL);
}
END_TEST

/* What stderr gets without a sink; journal: JOURNAL_STREAM names it. */
static void stderr_line(bool journal, char *out, size_t size) {
        int pipe_fd[2], saved = dup(STDERR_FILENO);
        struct stat st;
        char stream[64];
        ck_assert_int_eq(pipe(pipe_fd), 0);
        ck_assert_int_eq(fstat(pipe_fd[1], &st), 0);
        (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + !journal);
        setenv("JOURNAL_STREAM", stream, 1);
        dup2(pipe_fd[1], STDERR_FILENO);
        log_notice("hello");
        dup2(saved, STDERR_FILENO);
        ssize_t n = read(pipe_fd[0], out, size - 1);
        ck_assert_int_ge(n, 0);
        out[n] = '\0';
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        close(saved);
        unsetenv("JOURNAL_STREAM");
}

START_TEST(the_prefix_is_for_the_journal_only) {
        char out[100];
        stderr_line(false, out, sizeof(out));
        ck_assert_str_eq(out, "hello\n");
        stderr_line(true, out, sizeof(out));
        ck_assert_str_eq(out, "<5>hello\n");
}
END_TEST

static void *log_some(void *arg) {
        (void)arg;
        for (int i = 0; i < 500; i++)
                log_info("line %d", i);
        return NULL;
}

START_TEST(calls_of_the_sink_are_serialised) {
        struct heard h = {0};
        pthread_t threads[4];
        log_set_sink(listen, &h);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, log_some, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        log_set_sink(NULL, NULL);
        ck_assert_uint_eq(h.lines, 2000);
}
END_TEST

#define QUOTED(bytes, want)                                                                                                                \
        do {                                                                                                                               \
                char out_[200];                                                                                                            \
                ck_assert_str_eq(log_quote(bytes, sizeof(bytes) - 1, out_, sizeof(out_)), want);                                           \
        } while (0)

START_TEST(quoting) {
        QUOTED("", "\"\"");
        QUOTED("plain name.conf", "\"plain name.conf\"");
        QUOTED("a\"b\\c", "\"a\\\"b\\\\c\"");
        QUOTED("a\nb\0c\x7f", "\"a\\x0ab\\x00c\\x7f\"");
        QUOTED("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa7", "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa7\"");
        QUOTED("\xff\xc3", "\"\\xff\\xc3\"");                   /* not UTF-8; a sequence cut off */
        QUOTED("\xc0\xaf", "\"\\xc0\\xaf\"");                   /* overlong '/' */
        QUOTED("\xe0\x80\xaf", "\"\\xe0\\x80\\xaf\"");          /* overlong too */
        QUOTED("\xf0\x82\x82\xac", "\"\\xf0\\x82\\x82\\xac\""); /* overlong euro sign */
        QUOTED("\xed\xa0\x80", "\"\\xed\\xa0\\x80\"");          /* a surrogate */
        QUOTED("\xf4\x90\x80\x80", "\"\\xf4\\x90\\x80\\x80\""); /* above 10FFFF */
        QUOTED("\xc2\x9b"
               "1m",
               "\"\\xc2\\x9b1m\""); /* C1: CSI */
        QUOTED("\xe2\x80\xae"
               "cod.exe",
               "\"\\xe2\\x80\\xae"
               "cod.exe\""); /* right-to-left override */
}
END_TEST

START_TEST(quoting_cuts_to_fit) {
        char whole[64], out[64];
        const char text[] = "ab\n\"gr\xc3\xbc\xc3\x9f\xff z";
        log_quote(text, strlen(text), whole, sizeof(whole));
        ck_assert_str_eq(whole, "\"ab\\x0a\\\"gr\xc3\xbc\xc3\x9f\\xff z\"");
        for (size_t size = LOG_QUOTE_MIN; size < sizeof(out); size++) {
                memset(out, '#', sizeof(out));
                log_quote(text, strlen(text), out, size);
                size_t len = strlen(out);
                ck_assert_uint_lt(len, size);
                for (size_t i = size; i < sizeof(out); i++)
                        ck_assert_int_eq(out[i], '#');
                if (size > strlen(whole)) {
                        ck_assert_str_eq(out, whole);
                } else {
                        ck_assert_str_eq(out + len - 4, "\xe2\x80\xa6\"");
                        ck_assert(strncmp(out, whole, len - 4) == 0);
                        ck_assert_uint_lt(len - 4, strlen(whole));
                }
        }
}
END_TEST

static void quote_into_nothing(void) {
        char out[LOG_QUOTE_MIN];
        log_quote("x", 1, out, LOG_QUOTE_MIN - 1);
}

START_TEST(quoting_needs_room) {
        char out[512];
        ck_assert(aborts(quote_into_nothing, out, sizeof(out)));
}
END_TEST

static Suite *suite_log(void) {
        const TTest *const tests[] = {
                levels_and_sink,     one_event_is_one_line, the_prefix_is_for_the_journal_only, calls_of_the_sink_are_serialised, quoting,
                quoting_cuts_to_fit, quoting_needs_room,
        };
        return suite_of("log", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_log)
