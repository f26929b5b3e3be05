/* The two containers below the tree, against the plainest stand-ins. */
#include "../../../src/core/ordvec.h"
#include "../../../src/core/ptrtab.h"

#include "helper.h"

#define N 3000

struct thing {
        uint64_t key;
        bool in;
};
static struct thing things[N];

static uint64_t thing_key(const void *p) {
        return ((const struct thing *)p)->key;
}
static bool thing_eq(const void *p, const void *key) {
        return ((const struct thing *)p)->key == *(const uint64_t *)key;
}
/* Few different hashes: long runs, which wrap around. */
static uint32_t bad_hash(uint64_t key) {
        return key % 3 == 0 ? UINT32_MAX : (uint32_t)hash_mix(key % 50);
}

START_TEST(table) {
        struct ptrtab t = {0};
        uint64_t state = (uint64_t)_i, n = 0;
        for (uint64_t i = 0; i < N; i++)
                things[i] = (struct thing){.key = i};
        for (int step = 0; step < 40000; step++) {
                struct thing *x = &things[next_random(&state) % (step % 10000 < 5000 ? N / 10 : 40)];
                if (x->in)
                        ptrtab_remove(&t, bad_hash(x->key), x);
                else
                        ptrtab_insert(&t, bad_hash(x->key), x);
                x->in = !x->in;
                n = x->in ? n + 1 : n - 1;
                must(t.n == n);
                const struct thing *y = &things[next_random(&state) % (N / 10)];
                must(ptrtab_find(&t, bad_hash(y->key), thing_eq, &y->key) == (y->in ? y : NULL));
        }
        for (uint64_t i = 0; i < N; i++) {
                must(ptrtab_find(&t, bad_hash(i), thing_eq, &i) == (things[i].in ? &things[i] : NULL));
                if (things[i].in)
                        ptrtab_remove(&t, bad_hash(i), &things[i]);
        }
        ck_assert_ptr_null(t.slots);
}
END_TEST

static void check_vector(const struct ordvec *v, uint64_t last) {
        uint32_t at = v->head, tombstones = 0;
        for (uint64_t i = 0; i < last; i++) {
                if (!things[i].in)
                        continue;
                while (at < v->end && !ordvec_at(v, at)) {
                        at++;
                        tombstones++;
                }
                must(at < v->end);
                must(ordvec_at(v, at) == &things[i]);
                at++;
        }
        must(at == v->end);
        must(tombstones <= v->live + 8);
        must(v->live == 0 || (ordvec_at(v, v->head) && ordvec_at(v, v->end - 1)));
}

/* Keys 10, 20, 30 …: removed in any order while new ones come; seeking any key. */
START_TEST(vector) {
        struct ordvec v = {0};
        uint64_t state = (uint64_t)_i, last = 0;
        for (uint64_t i = 0; i < N; i++)
                things[i] = (struct thing){.key = 10 * (i + 1)};
        while (last < N || v.live > 0) {
                if (last < N && (next_random(&state) % 2 || last < N / 2)) {
                        things[last].in = true;
                        ordvec_insert(&v, thing_key, &things[last++]);
                }
                uint64_t i = next_random(&state) % last;
                if (_i % 3 == 1) /* from the front */
                        for (i = 0; i + 1 < last && !things[i].in;)
                                i++;
                if (_i % 3 == 2) /* from the back */
                        for (i = last - 1; i > 0 && !things[i].in;)
                                i--;
                if (things[i].in && (last == N || next_random(&state) % 2)) {
                        things[i].in = false;
                        ordvec_remove(&v, thing_key, things[i].key);
                } else if (!things[i].in && next_random(&state) % 20 == 0 && last < N) { /* comes back where it was */
                        things[i].in = true;
                        ordvec_insert(&v, thing_key, &things[i]);
                }
                if (next_random(&state) % 50 == 0)
                        check_vector(&v, last);
                uint64_t k = next_random(&state) % (10 * N + 20);
                uint32_t at = ordvec_seek(&v, thing_key, k);
                while (at < v.end && !ordvec_at(&v, at))
                        at++;
                uint64_t expected = k == 0 ? 0 : (k - 1) / 10;
                while (expected < last && !things[expected].in)
                        expected++;
                must((at < v.end ? ordvec_at(&v, at) : NULL) == (expected < last ? &things[expected] : NULL));
        }
        ck_assert_ptr_null(v.slots);
}
END_TEST

START_TEST(sorting) {
        struct ordvec v = {0};
        uint64_t state = (uint64_t)_i;
        for (uint64_t i = 0; i < N; i++)
                things[i] = (struct thing){.key = i + 1, .in = true};
        for (uint64_t i = N - 1; i > 0 && _i > 0; i--) {
                uint64_t j = next_random(&state) % (i + 1), key = things[i].key;
                things[i].key = things[j].key;
                things[j].key = key;
        }
        for (uint64_t i = 0; i < N; i++)
                ordvec_append_unsorted(&v, &things[i]);
        must(ordvec_sort(&v, thing_key));
        for (uint32_t i = 0; i < N; i++)
                must(thing_key(ordvec_at(&v, i)) == i + 1);
        things[7].key = things[2000].key;
        must(!ordvec_sort(&v, thing_key));
        ordvec_done(&v);
}
END_TEST

static Suite *suite_vectors(void) {
        Suite *s = suite_create("vectors");
        TCase *c = tcase_create("vectors");
        tcase_set_timeout(c, 60);
        tcase_add_loop_test(c, table, 0, 3);
        tcase_add_loop_test(c, vector, 0, 9);
        tcase_add_loop_test(c, sorting, 0, 3);
        suite_add_tcase(s, c);
        return s;
}
UNIT_SUITE(suite_vectors)
