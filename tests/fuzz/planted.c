/* planted.c: a target with a bug, to prove that replaying notices one. */
#include "base/base.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        PRE(size < 4 || memcmp(data, "boom", 4) != 0);
        return 0;
}
