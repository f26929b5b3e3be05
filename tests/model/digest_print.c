/* digest_print.c: the digest of the tree after random operations, for comparing between processes, compilers and machines.
 *
 *     digest_print SEED OPERATIONS [HASH_SEED] */
#include "opgen.h"

#include <stdio.h>

int main(int argc, char **argv) {
        if (argc < 3)
                return 2;
        uint64_t seed = strtoull(argv[1], NULL, 0), n = strtoull(argv[2], NULL, 0);
        struct opgen gen;
        struct reftree *ref = reftree_new();
        struct tree *tree = tree_new();
        struct change_set changes;
        char text[HASH128_TEXT];
        opgen_init(&gen, seed);
        change_set_init(&changes);
        if (argc > 3)
                tree_hash_seed(tree, strtoull(argv[3], NULL, 0));
        for (uint64_t i = 1; i <= n; i++) {
                const struct op *op = opgen_next(&gen, ref);
                struct op_result result, expected;
                reftree_apply(ref, op, &expected);
                if (tree_apply(tree, op, i, &changes, &result) < 0 || result.error != expected.error)
                        return 1;
        }
        hash128_text(tree_digest(tree), text);
        (void)printf("%ju %ju %s\n", (uintmax_t)seed, (uintmax_t)n, text);
        opgen_done(&gen);
        reftree_free(ref);
        tree_free(tree);
        change_set_done(&changes);
        return 0;
}
