/* base.c: assertions, cleanup helpers and memory that never fails. */
#include "base/base.h"
#include "base/failpoint.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void (*base_assert_hook)(const char *message);

/* No log_at here: its lock may be held by this very thread, and the sink may be what failed. */
static void write_stderr(const char *text) {
        size_t left = strlen(text);
        while (left > 0) {
                ssize_t n = write(STDERR_FILENO, text, left);
                if (n <= 0)
                        return; /* nobody is left to tell */
                text += n;
                left -= (size_t)n;
        }
}

_Noreturn void base_assert_fail(const char *what, const char *expr, const char *file, int line) {
        static atomic_flag failing = ATOMIC_FLAG_INIT;
        char message[512];

        (void)snprintf(message, sizeof(message), "%s failed: %s (%s:%d)", what, expr, file, line); /* cut is fine */
        write_stderr(message);
        write_stderr("\n");
        /* An assertion within the hook, or of a second thread meanwhile, must not run the hook again. */
        if (!atomic_flag_test_and_set(&failing) && base_assert_hook)
                base_assert_hook(message);
        abort();
}

void cleanup_fdp_(int *fd) {
        int saved = errno;
        if (*fd >= 0)
                (void)close(*fd); /* whoever cares for a late write error calls fsync or close himself */
        errno = saved;
}

static void *must(void *p) {
        if (!p)
                base_assert_fail("allocation", "out of memory", __FILE__, __LINE__);
        return p;
}

/* Zero bytes are asked for as one, so that NULL always means failure. */
void *xmalloc(size_t size) {
        return must(malloc(size ? size : 1));
}

void *xcalloc(size_t n, size_t size) {
        return must(n && size ? calloc(n, size) : calloc(1, 1));
}

void *xrealloc(void *p, size_t size) {
        return must(realloc(p, size ? size : 1));
}

char *xstrdup(const char *s) {
        return must(strdup(s));
}

void *try_malloc(size_t size) {
        if (failpoint("alloc"))
                return NULL;
        return malloc(size ? size : 1);
}
