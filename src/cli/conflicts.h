/* conflicts.h (private to cli): conflict records, read. */
#pragma once

#include "cli.h"
#include "core/conflict.h"

struct conflict_file {
        char name[64]; /* EPOCH-SEQUENCE-HASH: what it is called on the command line */
        uint8_t *bytes;
        void *scratch;
        struct conflict c; /* points into bytes */
        struct op op;      /* points into bytes and scratch */
        char *path, *new_path;
};
/* What the operation did, in one line. */
void conflict_describe(const struct op *op, char *buf, size_t size);
/* The bytes that it carried, decompressed; NULL with *ret_len 0: none. */
errint_t conflict_content(const struct op *op, uint8_t **ret, size_t *ret_len);

/* conflict_apply.c. Both return the exit code after the line was printed. `root`: the mount. */
int conflict_apply(const struct cli *cli, int root, const struct conflict_file *f);
int conflict_diff(const struct cli *cli, int root, const struct conflict_file *f);
