/* virtual_metrics.c: .coterie/metrics: counters as Prometheus reads them; the daemon adds its gauges. */
#include "internal.h"

#include <stdio.h>

static errint_t generate(struct fs *fs, struct enc *e) {
        const struct fs_backend *b = backend_of(fs);
        char text[512];
        for (unsigned i = 0; i < METRIC_COUNT; i++) {
                enum metric id = (enum metric)i;
                int len = snprintf(text, sizeof(text), "# HELP coterie_%s %s\n# TYPE coterie_%s counter\ncoterie_%s %llu\n", metric_name(id),
                                   metric_help(id), metric_name(id), metric_name(id), (unsigned long long)metric_get(fs->config.metrics, id));
                enc_raw(e, text, MIN_OF((size_t)len, sizeof(text) - 1));
        }
        errint_t r = b->virtual_text(b->ctx, "metrics", e);
        return r == -ENOENT ? 0 : r;
}

const struct virtual_file virtual_metrics = {"metrics", 0444, generate};
