/* files.c: what several commands do with files. */
#include "cli.h"

#include <fcntl.h>
#include <libgen.h>
#include <unistd.h>

errint_t cli_write_all(int fd, const void *p, size_t n) {
        const uint8_t *at = p;

        while (n > 0) {
                ssize_t done = write(fd, at, n);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0)
                        return -errno;
                at += done;
                n -= (size_t)done;
        }
        return 0;
}

errint_t cli_flush_directory_of(const char *path) {
        cleanup_free char *copy = xstrdup(path);
        cleanup_fd int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}
