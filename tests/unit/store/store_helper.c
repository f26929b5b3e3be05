/* store_helper.c: see store_helper.h. */
#include "store_helper.h"

void bed_begin(struct bed *b, uint64_t log_size) {
        *b = (struct bed){.disk = simdisk_new(NULL)};
        struct store_config config = {.path = DB,
                                      .level = LEVEL_FILESYSTEM,
                                      .log_size = log_size ? log_size : 256 * KIB,
                                      .boot_id = "1",
                                      .disk = simdisk_disk(b->disk)};
        rig_init(&b->r, &config);
        OK(rig_open(&b->r));
}
void bed_end(struct bed *b) {
        rig_done(&b->r);
        simdisk_free(b->disk);
}
void bed_kill(struct bed *b) {
        rig_close(&b->r);
        simdisk_kill(b->disk);
}
