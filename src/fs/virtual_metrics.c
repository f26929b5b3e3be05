/* virtual_metrics.c: .coterie/metrics: counters and gauges as Prometheus reads them. */
#include "internal.h"

static errint_t generate(struct fs *fs, struct enc *e) {
        return backend_of(fs)->virtual_text(backend_of(fs)->ctx, "metrics", e);
}

const struct virtual_file virtual_metrics = {"metrics", 0444, generate};
