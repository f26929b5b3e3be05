/* fuzz_op.c: heads of operations against any bytes, and whatever decodes against a tree. Input: operations one after the other, each u16
 * length of the head, the head, u16 length of the payload, the payload.
 *
 * Checked: nothing is read out of bounds; what decodes encodes to the very same bytes; a refused operation changes nothing; the tree
 * keeps its invariants (and so the rolling digest) whatever comes. */
#include "core/tree.h"

#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_encoding(const struct op *op, const uint8_t *head, size_t len) {
        struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        POST(op_encode_head(op, &e) == 0);
        POST(e.len == len && memcmp(e.data, head, len) == 0);
        enc_done(&e);
}

static void apply_one(struct tree *t, const struct op *op, uint64_t seq, struct change_set *changes) {
        struct hash128 before = tree_digest(t);
        struct op_result result = {0};
        errint_t r = tree_apply(t, op, seq, changes, &result);
        POST(r == 0 || r == -EBADMSG || r == -ENOMEM);
        if (r < 0 || result.error < 0) {
                POST(hash128_equal(before, tree_digest(t)));
                POST(changes->n == 0);
        }
}

/* A few inodes, so that small numbers mean something: a file, a directory, a symlink. */
static void plant(struct tree *t, struct change_set *changes) {
        static const uint32_t modes[] = {S_IFREG | 0644, S_IFDIR | 0755, S_IFLNK | 0777};
        for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
                struct op op;
                struct op_result result;
                memset(&op, 0, sizeof(op));
                op.kind = OP_CREATE;
                op.create.parent = INO_ROOT;
                op.create.name = (struct op_name){&"fdl"[i], 1};
                op.create.mode = modes[i];
                if (S_ISLNK(modes[i])) {
                        op.create.target.text = "f";
                        op.create.target.len = 1;
                }
                POST(tree_apply(t, &op, i + 1, changes, &result) == 0 && result.error == 0);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct dec d;
        struct tree *t = tree_new();
        struct change_set changes;
        char fault[200];
        dec_init(&d, data, size);
        change_set_init(&changes);
        plant(t, &changes);
        for (uint64_t seq = 10; dec_left(&d) > 0; seq++) {
                size_t head_len = dec_u16(&d);
                const uint8_t *head = dec_raw(&d, head_len);
                size_t payload_len = dec_u16(&d);
                const uint8_t *payload = dec_raw(&d, payload_len);
                struct op op;
                void *scratch = NULL;
                if (d.err)
                        break;
                if (op_decode(head, head_len, payload, payload_len, &op, &scratch) == 0) {
                        check_encoding(&op, head, head_len);
                        if (op.payload.raw_len <= 4 * MIB) /* a frame may promise much: allocating it is not what is looked for */
                                apply_one(t, &op, seq, &changes);
                }
                free(scratch);
        }
        POST(tree_check(t, fault, sizeof(fault)) == 0);
        change_set_done(&changes);
        tree_free(t);
        return 0;
}
