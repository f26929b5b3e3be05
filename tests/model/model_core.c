/* model_core.c: random operations against the tree and the reference tree at once. After each one: the same answer; a refused one
 * changed nothing; the change set, read as a store reads it, gives the same tree; a second tree with other hash seeds, orphans and
 * encoded operations has the same digest. Now and then everything is compared.
 *
 *     model_core [SEED [SEEDS [OPERATIONS]]] */
#include "mirror.h"
#include "opgen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PINS  24
#define EVERY 500 /* operations between full comparisons */

struct model {
        struct opgen gen;
        struct reftree *ref;
        struct tree *tree, *other; /* other: seeded otherwise, has pins and orphans, gets decoded operations */
        struct mirror *mirror;
        struct change_set changes, other_changes;
        uint64_t pins[PINS];
        uint64_t seed, n, refused[200], done, orphans_met;
};

static void fail(const struct model *m, const char *what) {
        (void)fprintf(stderr, "seed %ju, operation %ju (%s): %s\n", (uintmax_t)m->seed, (uintmax_t)m->n, op_kind_text(m->gen.op.kind),
                      what);
        exit(1);
}

static void expect(const struct model *m, bool ok, const char *what) {
        if (!ok)
                fail(m, what);
}

static void model_begin(struct model *m, uint64_t seed) {
        memset(m, 0, sizeof(*m));
        m->seed = seed;
        opgen_init(&m->gen, seed);
        m->ref = reftree_new();
        m->tree = tree_new();
        m->other = tree_new();
        tree_hash_seed(m->other, seed * UINT64_C(0x9e3779b97f4a7c15));
        m->mirror = mirror_new(m->tree);
        change_set_init(&m->changes);
        change_set_init(&m->other_changes);
}

static void model_end(struct model *m) {
        for (size_t i = 0; i < PINS; i++)
                if (m->pins[i])
                        tree_unpin(m->other, m->pins[i]);
        opgen_done(&m->gen);
        reftree_free(m->ref);
        tree_free(m->tree);
        tree_free(m->other);
        mirror_free(m->mirror);
        change_set_done(&m->changes);
        change_set_done(&m->other_changes);
}

static bool same_result(const struct op_result *a, const struct op_result *b) {
        return a->error == b->error && a->ino == b->ino && a->offset == b->offset;
}

/* Through bytes and back, as a member gets it. */
static void apply_to_other(struct model *m, const struct op *op, const struct op_result *expected) {
        CLEANUP(enc_done) struct enc e = {0}, again = {0};
        cleanup_free void *scratch = NULL;
        struct op back;
        struct op_result result;
        enc_init(&e, OP_HEAD_MAX);
        enc_init(&again, OP_HEAD_MAX);
        errint_t r = op_encode_head(op, &e);
        if (r < 0) { /* against a rule: apply refuses it as well */
                expect(m, expected->error < 0, "an operation that cannot be encoded was applied");
                return;
        }
        expect(m, op_decode(e.data, e.len, op->payload.data, op->payload.len, &back, &scratch) == 0,
               "an encoded operation does not decode");
        expect(m, op_encode_head(&back, &again) == 0 && again.len == e.len && memcmp(again.data, e.data, e.len) == 0,
               "encoded again it differs");
        expect(m, tree_apply(m->other, &back, m->n, &m->other_changes, &result) == 0, "the decoded operation was not decided");
        expect(m, same_result(&result, expected), "the decoded operation had another result");
        expect(m, m->other_changes.n == m->changes.n, "the decoded operation had another change set");
}

/* Pins, orphans, and writes to them leave no trace in the state. */
static void disturb_other(struct model *m) {
        uint64_t slot = opgen_random(&m->gen, PINS), ino = opgen_ino(&m->gen, m->ref, 0);
        if (m->pins[slot] && opgen_random(&m->gen, 2) == 0) {
                tree_unpin(m->other, m->pins[slot]);
                m->pins[slot] = 0;
        } else if (!m->pins[slot] && tree_pin(m->other, ino) == 0) {
                m->pins[slot] = ino;
        }
        ino = m->pins[opgen_random(&m->gen, PINS)];
        if (ino == 0 || !tree_is_orphan(m->other, ino))
                return;
        struct attr a;
        struct extent x = {opgen_random(&m->gen, 30000), 5, EXTENT_DATA};
        struct op op;
        struct op_result result;
        memset(&op, 0, sizeof(op));
        op.kind = OP_WRITE;
        op.write.ino = ino;
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        op.write.extents = &x;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.raw_len = 5, .data = (const uint8_t *)"hello", .len = 5};
        m->orphans_met++;
        expect(m, tree_getattr(m->other, ino, &a) == 0 && a.nlink == 0, "an orphan has links");
        expect(m, tree_apply_orphan(m->other, &op, &result) == 0, "a write to an orphan was not decided");
        expect(m, result.error == 0 || result.error == -EFBIG || !S_ISREG(a.mode), "a write to an orphan was refused");
}

static void compare_all(struct model *m) {
        char what[300] = "";
        expect(m, tree_check(m->tree, what, sizeof(what)) == 0, what);
        expect(m, tree_check(m->other, what, sizeof(what)) == 0, what);
        expect(m, reftree_equal(m->ref, m->tree, what, sizeof(what)), what);
        expect(m, hash128_equal(tree_digest(m->tree), tree_digest_recompute(m->tree)), "the rolling digest is wrong");
        struct tree *back = mirror_restore(m->mirror, m->tree, opgen_random(&m->gen, 0), what, sizeof(what));
        expect(m, back != NULL, what);
        expect(m, hash128_equal(tree_digest(m->tree), tree_digest(back)), "a tree restored from the change sets differs");
        expect(m, reftree_equal(m->ref, back, what, sizeof(what)), what);
        tree_free(back);
}

static void model_step(struct model *m) {
        const struct op *op = opgen_next(&m->gen, m->ref);
        struct hash128 before = tree_digest(m->tree);
        struct op_result result, expected;
        char what[300] = "";
        m->n++;
        reftree_apply(m->ref, op, &expected);
        expect(m, tree_apply(m->tree, op, m->n, &m->changes, &result) == 0, "not decided");
        if (!same_result(&result, &expected)) {
                (void)snprintf(what, sizeof(what), "result %d (inode %ju, offset %ju), expected %d (%ju, %ju)", result.error,
                               (uintmax_t)result.ino, (uintmax_t)result.offset, expected.error, (uintmax_t)expected.ino,
                               (uintmax_t)expected.offset);
                fail(m, what);
        }
        bool unchanged = hash128_equal(before, tree_digest(m->tree));
        expect(m, result.error == 0 || (unchanged && m->changes.n == 0), "a refused operation changed something");
        expect(m, m->changes.n > 0 || unchanged || op->kind == OP_RESERVE_INO, "a change without a change set");
        expect(m, m->changes.n == 0 || !unchanged, "a change set without a change");
        expect(m, mirror_update(m->mirror, m->tree, &m->changes, what, sizeof(what)), what);
        const struct ref_file *f = reftree_file(m->ref, result.ino);
        expect(m, !f || result.error < 0 || reftree_equal_file(m->ref, f, m->tree, what, sizeof(what)), what);
        apply_to_other(m, op, &result);
        disturb_other(m);
        expect(m, hash128_equal(tree_digest(m->tree), tree_digest(m->other)), "the other tree differs");
        if (result.error < 0)
                m->refused[-result.error]++;
        else
                m->done++;
        if (m->n % EVERY == 0)
                compare_all(m);
}

int main(int argc, char **argv) {
        uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 5;
        uint64_t operations = argc > 3 ? strtoull(argv[3], NULL, 0) : 50000;
        static const int must_happen[] = {EEXIST, ENOENT, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL, EPERM, ENAMETOOLONG, ENOSPC, EFBIG, ENODATA};
        for (uint64_t s = seed; s < seed + seeds; s++) {
                struct model m;
                model_begin(&m, s);
                while (m.n < operations)
                        model_step(&m);
                compare_all(&m);
                (void)printf("seed %ju: %ju operations, %ju done", (uintmax_t)s, (uintmax_t)m.n, (uintmax_t)m.done);
                for (size_t i = 0; i < ARRAY_LEN(must_happen); i++) {
                        (void)printf(", %s %ju", strerrorname_np(must_happen[i]), (uintmax_t)m.refused[must_happen[i]]);
                        expect(&m, operations < 20000 || m.refused[must_happen[i]] > 0, "an error that should have been met was not");
                }
                size_t names = 0;
                for (const struct ref_name *x = m.ref->names; x; x = x->next)
                        names++;
                (void)printf(", %ju writes to orphans, %zu names at the end\n", (uintmax_t)m.orphans_met, names);
                expect(&m, operations < 20000 || m.orphans_met > 0, "no orphan was met");
                model_end(&m);
        }
        return 0;
}
