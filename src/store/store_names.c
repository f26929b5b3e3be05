/* store_names.c: names of levels and methods, as they stand in configuration, status and help. */
#include "store/store.h"

#include <string.h>

static const char *const levels[] = {[LEVEL_NONE] = "none", [LEVEL_FILESYSTEM] = "filesystem", [LEVEL_FILE] = "file"};
static const char *const methods[] = {
        [SYNC_FDATASYNC] = "fdatasync", [SYNC_FSYNC] = "fsync",   [SYNC_OPEN_DATASYNC] = "open_datasync",
        [SYNC_OPEN_SYNC] = "open_sync", [SYNC_SYNCFS] = "syncfs",
};

static errint_t find(const char *const *names, size_t n, const char *text, size_t *ret) {
        for (size_t i = 0; i < n; i++)
                if (strcmp(names[i], text) == 0) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

const char *sync_level_text(enum sync_level l) {
        return (size_t)l < ARRAY_LEN(levels) ? levels[l] : "?";
}
errint_t sync_level_parse(const char *text, enum sync_level *ret) {
        size_t i = 0;
        errint_t r = find(levels, ARRAY_LEN(levels), text, &i);
        if (r == 0)
                *ret = (enum sync_level)i;
        return r;
}
const char *sync_method_text(enum sync_method m) {
        return (size_t)m < ARRAY_LEN(methods) ? methods[m] : "?";
}
errint_t sync_method_parse(const char *text, enum sync_method *ret) {
        size_t i = 0;
        errint_t r = find(methods, ARRAY_LEN(methods), text, &i);
        if (r == 0)
                *ret = (enum sync_method)i;
        return r;
}
