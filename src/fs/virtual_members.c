/* virtual_members.c: .coterie/members: one line per member of the cluster. */
#include "internal.h"

static errint_t generate(struct fs *fs, struct enc *e) {
        return backend_of(fs)->virtual_text(backend_of(fs)->ctx, "members", e);
}

const struct virtual_file virtual_members = {"members", 0444, generate};
