/* opgen.h: random operations over a small tree, everything from one seed. Names and inodes are few, so that operations meet; sizes lie
 * around the boundaries of chunks; a part is meant to be refused. */
#pragma once

#include "reftree.h"

struct opgen {
        uint64_t state;
        struct timestamp now;
        struct op op;
        char names[2][LIMIT_NAME + 2];
        char target[300];
        struct extent extents[5];
        uint8_t acl[4 + 8 * 5], value[3000];
        uint8_t *data, *packed; /* payload: raw, compressed */
        struct enc xattrs;
};
void opgen_init(struct opgen *g, uint64_t seed);
void opgen_done(struct opgen *g);
uint64_t opgen_random(struct opgen *g, uint64_t below);
/* The next operation; valid until the next call. It looks at `r` to find inodes worth touching. */
const struct op *opgen_next(struct opgen *g, const struct reftree *r);
/* A file of the tree (0: any number, mostly one that is there). */
uint64_t opgen_ino(struct opgen *g, const struct reftree *r, uint32_t type);
