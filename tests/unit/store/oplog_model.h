/* oplog_model.h: a run of the operation log over the simulated disk, step by step at random, with kills and power cuts, and what must be
 * true after each: replay gives a prefix of what was appended, with nothing changed and everything that was durable.
 *
 * The home is played by the model: a commit is durable at once, as a checkpoint's transaction is when it returns. */
#pragma once

#include "oplog.h"
#include "simdisk.h"

#include <glib.h>

struct model_config {
        uint64_t seed;
        enum sync_level level;
        enum sync_method method;
        bool direct, refuse_direct;
        uint32_t sector, padding;
        unsigned steps;         /* between two restarts */
        unsigned lives;         /* restarts */
        bool faults;            /* calls fail now and then; the home then takes everything, as a rescue checkpoint does */
        unsigned cuts_per_life; /* power cuts tried at random points of each life, besides the one that ends it */
};
struct model;
struct model *model_new(const struct model_config *config);
void model_free(struct model *m);
DEFINE_FREEP(model_free, struct model)
/* Runs all lives; the first broken promise in words, or NULL. */
const char *model_run(struct model *m);
unsigned model_records(const struct model *m); /* appended in all */
unsigned model_replays(const struct model *m); /* checked */
unsigned model_rescues(const struct model *m); /* faults met */
