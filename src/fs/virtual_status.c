/* virtual_status.c: .coterie/status: what `coterie status` prints. */
#include "internal.h"

static errint_t generate(struct fs *fs, struct enc *e) {
        return backend_of(fs)->virtual_text(backend_of(fs)->ctx, "status", e);
}

const struct virtual_file virtual_status = {"status", 0444, generate};
