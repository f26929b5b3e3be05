/* fuzz_image.c: what backups and conflict records are read with, against any bytes. Input: a choice, then a stream in pieces as the choice
 * says; or a record. */
#include "core/conflict.h"
#include "repl/image.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted has the digest that it promises and gives the same state again. */
static void image(const uint8_t *p, size_t n, size_t step) {
        CLEANUP(image_builder_freep) struct image_builder *b = image_builder_new();
        struct state s;
        uint64_t adopted;
        char fault[256];
        errint_t r = 0;

        for (size_t at = 0; at < n && r == 0; at += step)
                r = image_builder_add(b, p + at, MIN_OF(step, n - at));
        errint_t end = image_builder_end(b, &s, &adopted, fault, sizeof(fault));
        if (end < 0)
                return;
        POST(r == 0 && hash128_equal(tree_digest(s.tree), tree_digest_recompute(s.tree)));
        CLEANUP(image_freep) struct image *again = NULL;
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, 64u << 20);
        r = image_take(&s, adopted, &again);
        POST(r == 0);
        r = image_read(again, &e, SIZE_MAX);
        POST(r == 0);
        CLEANUP(image_builder_freep) struct image_builder *c = image_builder_new();
        struct state t;
        POST(image_builder_add(c, e.data, e.len) == 0);
        POST(image_builder_end(c, &t, &adopted, fault, sizeof(fault)) == 0);
        POST(hash128_equal(state_digest(&s), state_digest(&t)));
        state_done(&s);
        state_done(&t);
}

static void conflict(const uint8_t *p, size_t n) {
        CLEANUP(enc_done) struct enc e = {0};
        struct conflict c;

        if (conflict_decode(p, n, &c) < 0)
                return;
        enc_init(&e, n + 16);
        POST(conflict_encode(&c, &e) == 0 && e.len <= n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size == 0)
                return 0;
        if (data[0] == 0)
                conflict(data + 1, size - 1);
        else
                image(data + 1, size - 1, data[0]);
        return 0;
}
