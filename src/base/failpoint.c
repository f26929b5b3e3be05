/* failpoint.c: rules ("fail passage n of this name") and a count of passages per name. One lock; it is taken only while any rule
 * is set, which is in tests. */
#include "base/failpoint.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define NAME_MAX_BYTES 63u
#define RULES_MAX      64u
#define COUNTS_MAX     512u /* names in the whole program */
#define ERRNO_LAST     200  /* above the largest errno of any Linux architecture's ABI that has a name */

struct rule {
        char name[NAME_MAX_BYTES + 1];
        int error;      /* positive */
        uint64_t nth;   /* first passage that fails, from 1 */
        bool and_after; /* '+': all later ones too */
};
struct count {
        char name[NAME_MAX_BYTES + 1];
        uint64_t passed;
};

_Atomic int failpoint_active_;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX]; /* protected by lock, as all below */
static size_t n_rules;
static struct count counts[COUNTS_MAX];
static size_t n_counts;

static int errno_by_name(const char *name, size_t len) {
        for (int e = 1; e <= ERRNO_LAST; e++) {
                const char *known = strerrorname_np(e);
                if (known && strlen(known) == len && memcmp(known, name, len) == 0)
                        return e;
        }
        return 0;
}

/* Digits only: strtoull would also take blanks, signs and nothing at all. */
static const char *parse_number(const char *p, const char *end, uint64_t *ret) {
        uint64_t v = 0;
        const char *start = p;

        for (; p < end && *p >= '0' && *p <= '9'; p++)
                if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
                        return NULL;
        *ret = v;
        return p > start ? p : NULL;
}

/* name=ERRNO@n[+] */
static errint_t parse_rule(const char *p, const char *end, struct rule *ret) {
        struct rule rule = {0};
        const char *equals = memchr(p, '=', (size_t)(end - p));
        const char *at = equals ? memchr(equals, '@', (size_t)(end - equals)) : NULL;

        if (!at || equals == p || (size_t)(equals - p) > NAME_MAX_BYTES)
                return -EINVAL;
        memcpy(rule.name, p, (size_t)(equals - p));
        rule.error = errno_by_name(equals + 1, (size_t)(at - equals - 1));
        p = parse_number(at + 1, end, &rule.nth);
        if (!p || rule.error == 0 || rule.nth == 0)
                return -EINVAL;
        if (p < end && *p == '+') {
                rule.and_after = true;
                p++;
        }
        if (p != end)
                return -EINVAL;
        *ret = rule;
        return 0;
}

static errint_t parse_spec(const char *spec, struct rule parsed[RULES_MAX], size_t *ret_n) {
        size_t n = 0;

        while (*spec) {
                const char *end = strchrnul(spec, ';');
                if (n == RULES_MAX || parse_rule(spec, end, &parsed[n]) < 0)
                        return -EINVAL;
                n++;
                spec = *end ? end + 1 : end;
        }
        *ret_n = n;
        return 0;
}

errint_t failpoint_set(const char *spec) {
        struct rule parsed[RULES_MAX];
        size_t n = 0;
        errint_t r = parse_spec(spec ? spec : "", parsed, &n);

        if (r < 0)
                return r;
        (void)pthread_mutex_lock(&lock); /* a default mutex does not fail */
        memcpy(rules, parsed, n * sizeof(rules[0]));
        n_rules = n;
        if (n > 0)
                n_counts = 0;
        (void)pthread_mutex_unlock(&lock);
        atomic_store(&failpoint_active_, n > 0);
        return 0;
}

static struct count *count_find(const char *name) {
        for (size_t i = 0; i < n_counts; i++)
                if (strcmp(counts[i].name, name) == 0)
                        return &counts[i];
        return NULL;
}

static uint64_t count_passage(const char *name) {
        struct count *c = count_find(name);
        if (!c) {
                PRE(n_counts < COUNTS_MAX);
                PRE(strlen(name) <= NAME_MAX_BYTES);
                c = &counts[n_counts++];
                *c = (struct count){0};
                memcpy(c->name, name, strlen(name));
        }
        return ++c->passed;
}

errint_t failpoint_check_(const char *name) {
        errint_t r = 0;

        (void)pthread_mutex_lock(&lock);
        if (n_rules > 0) { /* cleared while we came here otherwise */
                uint64_t passage = count_passage(name);
                for (size_t i = 0; i < n_rules && r == 0; i++)
                        if (strcmp(rules[i].name, name) == 0 && (passage == rules[i].nth || (rules[i].and_after && passage > rules[i].nth)))
                                r = -rules[i].error;
        }
        (void)pthread_mutex_unlock(&lock);
        return r;
}

uint64_t failpoint_passed(const char *name) {
        (void)pthread_mutex_lock(&lock);
        const struct count *c = count_find(name);
        uint64_t passed = c ? c->passed : 0;
        (void)pthread_mutex_unlock(&lock);
        return passed;
}
