/* tar.h (private to cli): a tree as a tar archive, and an archive into a directory; through libarchive. */
#pragma once

#include "cli.h"
#include "core/state.h"

struct tar_counts {
        uint64_t files, directories, symlinks, others, links /* further names */, bytes, left_out /* sockets: tar has none */;
};
/* Writes the whole tree to fd; -errno with a line in fault. */
errint_t tar_write(const struct tree *t, int fd, struct tar_counts *ret, char *fault, size_t fault_size);
/* Lays the archive over the current directory. */
struct tar_watch {
        void (*problem)(void *ctx, const char *path, const char *why); /* an entry could not be made as it is in the archive */
        void (*progress)(void *ctx, uint64_t bytes);                   /* so many of the archive were read */
        void *ctx;
};
errint_t tar_extract(int fd, const struct tar_watch *watch, struct tar_counts *ret, uint64_t *ret_problems, char *fault, size_t fault_size);
/* Names are bytes, but libarchive converts them by the locale: one in which every byte sequence survives. */
void tar_locale(void);
