/* virtual_version.c: .coterie/version: the position of the last change anywhere in the tree, "EPOCH SEQUENCE". Two equal ones: nothing
 * has changed in between. */
#include "internal.h"

#include <stdio.h>

static errint_t generate(struct fs *fs, struct enc *e) {
        char line[64];
        const struct state *s = shared_state_read(fs->config.state);
        struct position pos = s->pos;
        shared_state_done_read(fs->config.state);
        int len = snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long)pos.epoch, (unsigned long long)pos.seq);
        enc_raw(e, line, (size_t)len);
        return e->err;
}

const struct virtual_file virtual_version = {"version", 0444, generate};
