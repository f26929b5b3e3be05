/* base.h: the vocabulary every other file speaks: errors, assertions, cleanup attributes.
 *
 * Errors: a function that can fail returns errint_t, 0 or a negative errno. Its outputs are named ret_x and are untouched on
 * failure. Pure: no I/O, no clock. Any thread. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

typedef int errint_t;

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

/* Assertions that stay in release builds. PRE: what the caller owes. POST: what this function owes. Both abort. */
_Noreturn void base_assert_fail(const char *what, const char *expr, const char *file, int line);
#define PRE(cond) ((cond) ? (void)0 : base_assert_fail("precondition", #cond, __FILE__, __LINE__))
#define POST(cond) ((cond) ? (void)0 : base_assert_fail("postcondition", #cond, __FILE__, __LINE__))
#define UNREACHABLE() base_assert_fail("unreachable", "", __FILE__, __LINE__)

/* Called by base_assert_fail before it aborts (the daemon dumps its trace ring there); NULL for none. Set once, at start. */
extern void (*base_assert_hook)(const char *message);

/* Cleanup attributes. `cleanup_free char *p = NULL;` frees at the end of the scope; steal_pointer hands it on. */
static inline void cleanup_freep_(void *p) { free(*(void **)p); }
void cleanup_fdp_(int *fd); /* closes when >= 0 */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define cleanup_free CLEANUP(cleanup_freep_)
#define cleanup_fd CLEANUP(cleanup_fdp_)
#define steal_pointer(pp)                                                                                                                  \
        ({                                                                                                                                 \
                __typeof__(*(pp)) steal_tmp_ = *(pp);                                                                                      \
                *(pp) = NULL;                                                                                                              \
                steal_tmp_;                                                                                                                \
        })
static inline int steal_fd(int *fd) {
        int tmp = *fd;
        *fd = -1;
        return tmp;
}
/* DEFINE_FREEP(x_free, struct x) makes x_freep for CLEANUP(x_freep). */
#define DEFINE_FREEP(fn, type)                                                                                                             \
        static inline void fn##p(type **p) {                                                                                               \
                if (*p)                                                                                                                    \
                        fn(*p);                                                                                                            \
        }

/* Memory for sizes of our own making: never fails (aborts, as glib does). Sizes that came from outside are capped first and use
 * try_malloc, which returns NULL and passes the failpoint "alloc". */
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
void *try_malloc(size_t size);
#define NEW(type) ((type *)xcalloc(1, sizeof(type)))
