/* metrics.c: the names and the help of the table. */
#include "base/metrics.h"

static const struct {
        const char *name, *help;
} text[METRIC_COUNT] = {
#define X(id, name, help) [METRIC_##id] = {name, help},
        METRICS_TABLE(X)
#undef X
};

const char *metric_name(enum metric id) {
        PRE((unsigned)id < METRIC_COUNT);
        return text[id].name;
}

const char *metric_help(enum metric id) {
        PRE((unsigned)id < METRIC_COUNT);
        return text[id].help;
}
