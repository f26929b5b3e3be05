#include "aborts.h"
#include "base/metrics.h"
#include "unit.h"
#include <pthread.h>
#include <string.h>

START_TEST(names_are_fit_for_prometheus_and_unique) {
        for (enum metric i = 0; i < METRIC_COUNT; i++) {
                const char *name = metric_name(i);
                ck_assert_uint_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
                ck_assert_uint_gt(strlen(metric_help(i)), 0);
                for (enum metric j = 0; j < i; j++)
                        ck_assert_str_ne(name, metric_name(j));
        }
        ck_assert_str_eq(metric_name(METRIC_EPOCHS), "invalidation_epochs");
}
END_TEST

static struct metrics shared;
static void *count(void *arg) {
        uintptr_t base = (uintptr_t)arg;
        for (uintptr_t i = 0; i < 1000; i++) {
                metric_add(&shared, METRIC_READS, 2);
                metric_max(&shared, METRIC_FUSE_WRITE_MAX, base + i);
        }
        return NULL;
}

START_TEST(threads_count_together) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, count, (void *)(i * 10000)), 0);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_uint_eq(metric_get(&shared, METRIC_READS), 8000);
        ck_assert_uint_eq(metric_get(&shared, METRIC_FUSE_WRITE_MAX), 30999);
        metric_max(&shared, METRIC_FUSE_WRITE_MAX, 5);
        ck_assert_uint_eq(metric_get(&shared, METRIC_FUSE_WRITE_MAX), 30999);
        ck_assert_uint_eq(metric_get(&shared, METRIC_OPENS), 0);
}
END_TEST

static void ask_beyond(void) {
        (void)metric_name(METRIC_COUNT);
}

START_TEST(an_unknown_metric_aborts) {
        char out[512];
        ck_assert(aborts(ask_beyond, out, sizeof(out)));
}
END_TEST

static Suite *suite_metrics(void) {
        const TTest *const tests[] = {names_are_fit_for_prometheus_and_unique, threads_count_together, an_unknown_metric_aborts};
        return suite_of("metrics", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(suite_metrics)
