#include "aborts.h"
#include "base/failpoint.h"
#include "unit.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int freed;
struct thing {
        int unused;
};
static void thing_free(struct thing *t) {
        freed++;
        free(t);
}
DEFINE_FREEP(thing_free, struct thing)

START_TEST(cleanup_frees_once_and_steal_hands_on) {
        struct thing *kept;
        freed = 0;
        {
                CLEANUP(thing_freep) struct thing *gone = NEW(struct thing);
                CLEANUP(thing_freep) struct thing *stolen = NEW(struct thing);
                CLEANUP(thing_freep) struct thing *never = NULL;
                ck_assert_ptr_nonnull(gone);
                ck_assert_ptr_null(never);
                kept = steal_pointer(&stolen);
                ck_assert_ptr_null(stolen);
        }
        ck_assert_int_eq(freed, 1);
        thing_free(kept);
}
END_TEST

START_TEST(cleanup_fd_closes_and_keeps_errno) {
        int number, kept;
        {
                cleanup_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
                cleanup_fd int second = open("/dev/null", O_RDONLY | O_CLOEXEC);
                cleanup_fd int none = -1;
                ck_assert_int_ge(fd, 0);
                ck_assert_int_lt(none, 0);
                number = fd;
                kept = steal_fd(&second);
                ck_assert_int_eq(second, -1);
                errno = ENOTTY;
        }
        ck_assert_int_eq(errno, ENOTTY);
        ck_assert_int_eq(fcntl(number, F_GETFD), -1);
        ck_assert_int_ne(fcntl(kept, F_GETFD), -1);
        ck_assert_int_eq(close(kept), 0);
}
END_TEST

START_TEST(memory_of_no_bytes_is_not_null) {
        cleanup_free void *a = xmalloc(0);
        cleanup_free void *b = xcalloc(0, 8);
        cleanup_free void *c = xrealloc(NULL, 0);
        cleanup_free void *d = try_malloc(0);
        cleanup_free char *e = xstrdup("");
        ck_assert(a && b && c && d && e);
        ck_assert_str_eq(e, "");
}
END_TEST

START_TEST(try_malloc_passes_the_failpoint) {
        ck_assert_int_eq(failpoint_set("alloc=ENOMEM@2"), 0);
        cleanup_free void *first = try_malloc(8);
        cleanup_free void *second = try_malloc(8);
        cleanup_free void *third = try_malloc(8);
        ck_assert_int_eq(failpoint_set(NULL), 0);
        ck_assert_ptr_nonnull(first);
        ck_assert_ptr_null(second);
        ck_assert_ptr_nonnull(third);
}
END_TEST

static void hook(const char *message) {
        (void)dprintf(STDERR_FILENO, "hook heard: %s\n", message);
        PRE(1 + 1 == 3); /* a failure within the hook ends, and does not come back here */
}

static void break_precondition(void) {
        base_assert_hook = hook;
        PRE(2 + 2 == 5);
}

static void break_postcondition(void) {
        POST(false);
}

START_TEST(assertions_say_what_and_abort) {
        char out[1024];
        ck_assert(aborts(break_precondition, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "precondition failed: 2 + 2 == 5 ("));
        char *heard = strstr(out, "hook heard: precondition failed: 2 + 2 == 5");
        ck_assert_ptr_nonnull(heard);
        ck_assert_ptr_null(strstr(heard + 1, "hook heard"));
        ck_assert(aborts(break_postcondition, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "postcondition failed: false ("));
}
END_TEST

/* The sanitizers end the program themselves at such a size unless told to return NULL as malloc does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
        return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
        return "allocator_may_return_null=1";
}

static void ask_too_much(void) {
        volatile size_t most = SIZE_MAX / 2 + 1; /* no allocator gives this; volatile, so that the compiler does not object */
        void *p = xmalloc(most);
        free(p);
}

START_TEST(memory_that_cannot_be_had_aborts) {
        char out[4096];
        ck_assert(aborts(ask_too_much, out, sizeof(out)));
        ck_assert_ptr_nonnull(strstr(out, "allocation failed: out of memory"));
}
END_TEST

static Suite *suite_base(void) {
        const TTest *const tests[] = {
                cleanup_frees_once_and_steal_hands_on, cleanup_fd_closes_and_keeps_errno, memory_of_no_bytes_is_not_null,
                try_malloc_passes_the_failpoint,       assertions_say_what_and_abort,     memory_that_cannot_be_had_aborts,
        };
        return suite_of("base", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_base)
