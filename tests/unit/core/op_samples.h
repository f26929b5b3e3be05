#pragma once

#include "helper.h"

struct op_sample {
        const char *name; /* of its golden file, without .bin */
        struct op op;
};
#define OP_SAMPLES 16u
struct op_sample op_sample(size_t i);
