/* dump.c: `coterie dump` and `coterie load`: the tree as a tar stream, and back. */
#include "image.h"
#include "tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_counts(const struct cli *cli, FILE *f, const struct tar_counts *c) {
        if (cli->json) {
                json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "files", (json_int_t)c->files, "directories",
                                      (json_int_t)c->directories, "symlinks", (json_int_t)c->symlinks, "others", (json_int_t)c->others,
                                      "links", (json_int_t)c->links, "bytes", (json_int_t)c->bytes, "left_out", (json_int_t)c->left_out);
                (void)json_dumpf(o, f, JSON_INDENT(2));
                (void)fputc('\n', f);
                json_decref(o);
                return;
        }
        (void)fprintf(f,
                      "%" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 " symlinks, %" PRIu64 " others, %" PRIu64
                      " further names, %" PRIu64 " bytes\n",
                      c->files, c->directories, c->symlinks, c->others, c->links, c->bytes);
        if (c->left_out > 0)
                (void)fprintf(f, "%" PRIu64 " sockets left out: tar has none\n", c->left_out);
}

/* --- dump */
static int get_state(const struct cli *cli, const char *from, struct state *ret) {
        struct image_told told;
        uint64_t adopted;
        char fault[256];

        if (!from)
                return image_fetch_state(cli, ret, &adopted, &told);
        errint_t r = backup_read(cli, from, ret, &adopted, &told, fault, sizeof(fault));
        return r < 0 ? cli_fail(cli, CTL_FAILED, "%s: %s", from, r == -EBADMSG || r == -ENOTSUP ? fault : strerror(-r)) : 0;
}

static int open_output(const struct cli *cli, const char *file, int *ret) {
        if (!file || strcmp(file, "-") == 0) {
                if (isatty(STDOUT_FILENO))
                        return cli_fail(cli, CTL_USAGE, "an archive is nothing for a terminal; name a file, or redirect the output");
                *ret = STDOUT_FILENO;
                return 0;
        }
        *ret = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*ret >= 0)
                return 0;
        if (errno == EEXIST)
                return cli_fail(cli, CTL_FAILED, "%s is there already; choose another name", file);
        return cli_fail(cli, CTL_FAILED, "%s: %s", file, strerror(errno));
}

int cli_dump(struct cli *cli, int argc, char **argv) {
        const char *file = NULL, *from = NULL;
        struct tar_counts counts = {0};
        struct state state;
        char fault[256];
        int fd = -1;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--from") == 0 && i + 1 < argc)
                        from = argv[++i];
                else if ((argv[i][0] == '-' && argv[i][1]) || file)
                        return cli_usage(cli);
                else
                        file = argv[i];
        }
        int exit = open_output(cli, file, &fd);
        if (exit != 0)
                return exit;
        exit = get_state(cli, from, &state);
        if (exit == 0) {
                tar_locale();
                errint_t r = tar_write(state.tree, fd, &counts, fault, sizeof(fault));
                state_done(&state);
                if (r == 0 && fd != STDOUT_FILENO && fsync(fd) < 0) {
                        r = -errno;
                        (void)snprintf(fault, sizeof(fault), "%s", strerror(errno));
                }
                if (r < 0)
                        exit = cli_fail(cli, CTL_FAILED, "%s", fault);
        }
        if (fd != STDOUT_FILENO) {
                (void)close(fd);
                if (exit != 0)
                        (void)unlink(file); /* made above, and not complete */
        }
        if (exit == 0)
                print_counts(cli, fd == STDOUT_FILENO ? stderr : stdout, &counts);
        return exit;
}

/* --- load */
static bool is_empty(const char *path) {
        DIR *d = opendir(path);
        bool empty = true;

        for (const struct dirent *e; d && (e = readdir(d));)
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                        empty = false;
        if (d)
                (void)closedir(d);
        return empty;
}

static int mount_point(const struct cli *cli, char *buf, size_t size) {
        json_t *s = NULL;
        int exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &s);

        if (exit != 0)
                return exit;
        const char *mount = json_string_value(json_object_get(s, "mountpoint"));
        (void)snprintf(buf, size, "%s", mount ? mount : "");
        json_decref(s);
        return 0;
}

struct loading {
        struct cli *cli;
        struct progress progress;
};
static void problem(void *ctx, const char *path, const char *why) {
        char quoted[1024];
        (void)cli_fail(((struct loading *)ctx)->cli, CTL_FAILED, "%s: %s", log_quote(path, strlen(path), quoted, sizeof(quoted)), why);
}
static void progress(void *ctx, uint64_t bytes) {
        progress_show(&((struct loading *)ctx)->progress, bytes);
}

static int load(struct cli *cli, int fd, const char *into) {
        struct loading loading = {.cli = cli};
        struct tar_watch watch = {.problem = problem, .progress = progress, .ctx = &loading};
        struct tar_counts counts;
        uint64_t problems;
        char fault[256];
        struct stat st;

        if (chdir(into) < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", into, strerror(errno));
        tar_locale();
        progress_begin(&loading.progress, cli->command, fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
        errint_t r = tar_extract(fd, &watch, &counts, &problems, fault, sizeof(fault));
        progress_end(&loading.progress);
        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "the archive: %s; what came before that was loaded", fault);
        print_counts(cli, stdout, &counts);
        return problems == 0 ? 0 : cli_fail(cli, CTL_FAILED, "%" PRIu64 " problems, see above", problems);
}

int cli_load(struct cli *cli, int argc, char **argv) {
        const char *file = NULL, *into = NULL;
        char mount[PATH_MAX];
        bool merge = false;
        cleanup_fd int fd = -1;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--into") == 0 && i + 1 < argc)
                        into = argv[++i];
                else if (strcmp(argv[i], "--merge") == 0)
                        merge = true;
                else if ((argv[i][0] == '-' && argv[i][1]) || file)
                        return cli_usage(cli);
                else
                        file = argv[i];
        }
        fd = !file || strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", file ? file : "standard input", strerror(errno));
        if (!into) {
                int exit = mount_point(cli, mount, sizeof(mount));
                if (exit != 0)
                        return exit;
                into = mount;
        }
        if (!merge && !is_empty(into))
                return cli_fail(cli, CTL_FAILED, "%s is not empty; with --merge the archive is laid over what is there", into);
        return load(cli, fd, into);
}
