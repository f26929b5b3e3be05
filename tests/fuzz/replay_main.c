/* replay_main.c: runs a fuzz target over files, under any compiler. Arguments are files, or directories of files; each file is
 * tried whole and cut at every length (long ones at the lengths that matter most: the first and the last). A crash is the
 * failure; the last line on stderr names the file. No input at all is a failure too. */
#include "base/base.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVERY_CUT 4096u /* lengths tried one by one at either end */

static unsigned inputs;

/* A block of exactly this size, so that a sanitizer sees the first byte too many. */
static void try_bytes(const uint8_t *data, size_t n) {
        cleanup_free uint8_t *exact = xmalloc(n);
        if (n > 0)
                memcpy(exact, data, n);
        (void)LLVMFuzzerTestOneInput(exact, n); /* 0, or -1: not worth keeping */
}

static errint_t try_file(const char *path) {
        FILE *f = fopen(path, "re");
        struct stat st;

        if (!f)
                return -errno;
        if (fstat(fileno(f), &st) < 0 || st.st_size < 0) {
                (void)fclose(f);
                return -EIO;
        }
        size_t n = (size_t)st.st_size;
        cleanup_free uint8_t *data = xmalloc(n);
        size_t got = fread(data, 1, n, f);
        (void)fclose(f); /* only read */
        if (got != n)
                return -EIO;
        (void)fprintf(stderr, "replay: %s\n", path);
        try_bytes(data, n);
        for (size_t cut = 0; cut < n; cut++)
                if (cut < EVERY_CUT || n - cut <= EVERY_CUT)
                        try_bytes(data, cut);
        inputs++;
        return 0;
}

static errint_t try_path(const char *path) {
        struct dirent **names;
        struct stat st;
        errint_t r = 0;

        if (stat(path, &st) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return try_file(path);
        int n = scandir(path, &names, NULL, alphasort);
        if (n < 0)
                return -errno;
        for (int i = 0; i < n; i++) {
                char below[4096];
                int len = snprintf(below, sizeof(below), "%s/%s", path, names[i]->d_name);
                if (names[i]->d_name[0] != '.' && r == 0)
                        r = len < (int)sizeof(below) ? try_file(below) : -ENAMETOOLONG;
                free(names[i]);
        }
        free(names);
        return r;
}

int main(int argc, char **argv) {
        for (int i = 1; i < argc; i++) {
                errint_t r = try_path(argv[i]);
                if (r < 0) {
                        (void)fprintf(stderr, "replay: %s: %s\n", argv[i], strerror(-r));
                        return 1;
                }
        }
        if (inputs == 0) {
                (void)fprintf(stderr, "replay: no input\n");
                return 1;
        }
        return 0;
}
