/* Which workers wait for requests. A pipe stands in for the device: a byte is a request. */
#include "fixture.h"
#include "unit.h"

#include <unistd.h>

#define HOLD_UP 'h'

struct bench {
        struct crew crew;
        int fds[2];
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned handled; /* protected by lock, as is the rest */
        bool held_up, let_go;
        pthread_t threads[3];
};

static void handle(struct bench *b, char request) {
        (void)pthread_mutex_lock(&b->lock);
        if (request == HOLD_UP)
                b->held_up = true;
        else
                b->handled++;
        (void)pthread_cond_broadcast(&b->changed);
        while (request == HOLD_UP && !b->let_go)
                (void)pthread_cond_wait(&b->changed, &b->lock);
        (void)pthread_mutex_unlock(&b->lock);
}

static void *worker(void *arg) {
        struct bench *b = arg;
        for (;;) {
                char request;
                crew_wait(&b->crew);
                ssize_t n = read(b->fds[0], &request, 1);
                crew_taken(&b->crew, n > 0);
                if (n <= 0)
                        return NULL;
                handle(b, request);
                crew_handled(&b->crew);
        }
}

static void start(struct bench *b) {
        *b = (struct bench){0};
        ck_assert_int_eq(pipe(b->fds), 0);
        (void)pthread_mutex_init(&b->lock, NULL);
        (void)pthread_cond_init(&b->changed, NULL);
        crew_init(&b->crew);
        crew_start(&b->crew, b->fds[0], ARRAY_LEN(b->threads));
        for (size_t i = 0; i < ARRAY_LEN(b->threads); i++)
                ck_assert_int_eq(pthread_create(&b->threads[i], NULL, worker, b), 0);
}

static void stop(struct bench *b) {
        ck_assert_int_eq(close(b->fds[1]), 0); /* the mount is gone */
        crew_end(&b->crew);
        for (size_t i = 0; i < ARRAY_LEN(b->threads); i++)
                ck_assert_int_eq(pthread_join(b->threads[i], NULL), 0);
        ck_assert_int_eq(close(b->fds[0]), 0);
        crew_done(&b->crew);
        (void)pthread_cond_destroy(&b->changed);
        (void)pthread_mutex_destroy(&b->lock);
}

static void request(struct bench *b, char c) {
        ck_assert_int_eq(write(b->fds[1], &c, 1), 1);
}

static void wait_handled(struct bench *b, unsigned n) {
        (void)pthread_mutex_lock(&b->lock);
        while (b->handled < n)
                (void)pthread_cond_wait(&b->changed, &b->lock);
        (void)pthread_mutex_unlock(&b->lock);
}

/* Requests that follow one another until all workers but those that take them rest. */
static unsigned make_dense(struct bench *b, unsigned handled) {
        while (atomic_load(&b->crew.resting) < ARRAY_LEN(b->threads) - 1) {
                request(b, 'x');
                wait_handled(b, ++handled);
        }
        return handled;
}

START_TEST(one_takes_what_follows_closely) {
        struct bench b;
        start(&b);
        unsigned n = make_dense(&b, 0);
        ck_assert_uint_ge(n, ARRAY_LEN(b.threads) - 1); /* each rests after a request of its own */
        stop(&b);
}
END_TEST

START_TEST(all_wait_again_when_it_is_quiet) {
        struct bench b;
        start(&b);
        (void)make_dense(&b, 0);
        while (atomic_load(&b.crew.reading) < ARRAY_LEN(b.threads))
                (void)usleep(1000);
        ck_assert_uint_eq(atomic_load(&b.crew.resting), 0);
        stop(&b);
}
END_TEST

START_TEST(one_that_is_held_up_holds_nobody_up) {
        struct bench b;
        start(&b);
        unsigned n = make_dense(&b, 0);
        request(&b, HOLD_UP);
        (void)pthread_mutex_lock(&b.lock);
        while (!b.held_up)
                (void)pthread_cond_wait(&b.changed, &b.lock);
        (void)pthread_mutex_unlock(&b.lock);
        request(&b, 'x');
        wait_handled(&b, n + 1); /* by one that rested */
        request(&b, HOLD_UP);    /* and once more */
        request(&b, 'x');
        wait_handled(&b, n + 2);
        (void)pthread_mutex_lock(&b.lock);
        b.let_go = true;
        (void)pthread_cond_broadcast(&b.changed);
        (void)pthread_mutex_unlock(&b.lock);
        stop(&b);
}
END_TEST

Suite *suite_crew(void) {
        const TTest *const tests[] = {one_takes_what_follows_closely, all_wait_again_when_it_is_quiet, one_that_is_held_up_holds_nobody_up};
        return suite_of("crew", tests, ARRAY_LEN(tests));
}
