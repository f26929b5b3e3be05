/* store_names.c: names of levels and methods, as they stand in configuration, status and help. */
#include "store/store.h"

static const char *const levels[] = {[LEVEL_NONE] = "none", [LEVEL_FILESYSTEM] = "filesystem", [LEVEL_FILE] = "file"};
static const char *const methods[] = {
        [SYNC_FDATASYNC] = "fdatasync", [SYNC_FSYNC] = "fsync",   [SYNC_OPEN_DATASYNC] = "open_datasync",
        [SYNC_OPEN_SYNC] = "open_sync", [SYNC_SYNCFS] = "syncfs",
};

const char *sync_level_text(enum sync_level l) {
        return (size_t)l < ARRAY_LEN(levels) ? levels[l] : "?";
}
const char *sync_method_text(enum sync_method m) {
        return (size_t)m < ARRAY_LEN(methods) ? methods[m] : "?";
}
