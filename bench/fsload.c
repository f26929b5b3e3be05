/* fsload: one kind of filesystem request, many times, and how long each took.
 *
 *   fsload DIR OP [-n COUNT] [-t THREADS] [-s SIZE] [-f FILES] [-w WARMUP]
 *
 *   stat      stat(2) of FILES existing names, in turn
 *   miss      stat(2) of names that do not exist
 *   lookup    stat(2) of names that the kernel does not have cached (drops its caches first: needs root); COUNT is at most FILES
 *   read      open, read to the end, close of FILES files of SIZE bytes, in turn
 *   cread     pread of SIZE bytes from files that stay open
 *   readdir   opendir, readdir to the end, closedir of a directory of FILES names
 *   create    open(O_CREAT|O_EXCL) of a new name, one write of SIZE bytes, close
 *   replace   the same under a temporary name, then rename over one of FILES names
 *   write     open, one pwrite of SIZE bytes at 0, close, of FILES files in turn
 *
 * COUNT operations are shared among THREADS. Everything happens in a new directory below DIR, which is removed afterwards. It knows
 * nothing of the filesystem under it. Prints one line of JSON: operations per second, and percentiles of the latency in microseconds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct load {
        const char *dir, *op;
        long count, threads, size, files, warmup;
        char work[4096];
        char *content;
        int *open_fds;
        pthread_barrier_t start;
};
struct client {
        struct load *load;
        long id, share;
        char *buffer;
        uint32_t *ns;
        long done;
        int error; /* errno of the first failure, which ends this client */
        uint64_t began, ended;
};
typedef int (*step_fn)(struct client *c, long i);

static uint64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void name_of(const struct load *l, char out[static 4200], const char *kind, long thread, long i) {
        snprintf(out, 4200, "%s/%s%ld.%ld", l->work, kind, thread, i);
}

static int write_file(const struct load *l, const char *path, int flags) {
        int fd = open(path, flags, 0644);
        if (fd < 0)
                return -1;
        bool whole = write(fd, l->content, (size_t)l->size) == l->size;
        return close(fd) == 0 && whole ? 0 : -1;
}

static int step_stat(struct client *c, long i) {
        char path[4200];
        struct stat st;
        name_of(c->load, path, "f", 0, (i * c->load->threads + c->id) % c->load->files);
        return stat(path, &st);
}

static int step_miss(struct client *c, long i) {
        char path[4200];
        struct stat st;
        name_of(c->load, path, "none", 0, i % c->load->files);
        return stat(path, &st) < 0 && errno == ENOENT ? 0 : -1;
}

static int step_read(struct client *c, long i) {
        char path[4200];
        name_of(c->load, path, "f", 0, (i * c->load->threads + c->id) % c->load->files);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
                return -1;
        ssize_t n, total = 0;
        while ((n = read(fd, c->buffer, (size_t)c->load->size + 1)) > 0)
                total += n;
        return close(fd) == 0 && n == 0 && total == c->load->size ? 0 : -1;
}

static int step_cread(struct client *c, long i) {
        int fd = c->load->open_fds[(i * c->load->threads + c->id) % c->load->files];
        return pread(fd, c->buffer, (size_t)c->load->size, 0) == c->load->size ? 0 : -1;
}

static int step_readdir(struct client *c, long i) {
        (void)i;
        DIR *d = opendir(c->load->work);
        if (!d)
                return -1;
        long n = 0;
        while (readdir(d))
                n++;
        return closedir(d) == 0 && n == c->load->files + 2 ? 0 : -1;
}

static int step_create(struct client *c, long i) {
        char path[4200];
        name_of(c->load, path, "new", c->id, i);
        return write_file(c->load, path, O_CREAT | O_EXCL | O_WRONLY);
}

static int step_replace(struct client *c, long i) {
        char tmp[4200], path[4200];
        name_of(c->load, tmp, "tmp", c->id, 0);
        name_of(c->load, path, "f", 0, (i * c->load->threads + c->id) % c->load->files);
        return write_file(c->load, tmp, O_CREAT | O_EXCL | O_WRONLY) < 0 ? -1 : rename(tmp, path);
}

static int step_write(struct client *c, long i) {
        char path[4200];
        name_of(c->load, path, "f", 0, (i * c->load->threads + c->id) % c->load->files);
        return write_file(c->load, path, O_WRONLY);
}

static const struct op {
        const char *name;
        step_fn step;
        bool files, open_files, cold, repeats; /* repeats: the same step may be done before measuring */
} ops[] = {
        {"stat", step_stat, true, false, false, true},       {"miss", step_miss, false, false, false, true},
        {"lookup", step_stat, true, false, true, false},     {"read", step_read, true, false, false, true},
        {"cread", step_cread, true, true, false, true},      {"readdir", step_readdir, true, false, false, true},
        {"create", step_create, false, false, false, false}, {"replace", step_replace, true, false, false, true},
        {"write", step_write, true, false, false, true},
};

static void *client_main(void *arg) {
        struct client *c = arg;
        struct load *l = c->load;
        step_fn step = NULL;
        bool repeats = false;
        for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
                if (strcmp(ops[i].name, l->op) == 0) {
                        step = ops[i].step;
                        repeats = ops[i].repeats;
                }
        for (long i = 0; repeats && i < l->warmup; i++)
                (void)step(c, i); /* what fails here fails again below */
        pthread_barrier_wait(&l->start);
        c->began = now_ns();
        uint64_t before = c->began;
        for (long i = 0; i < c->share; i++) {
                if (step(c, i) < 0) {
                        c->error = errno ? errno : EIO;
                        break;
                }
                uint64_t after = now_ns();
                c->ns[c->done++] = after - before > UINT32_MAX ? UINT32_MAX : (uint32_t)(after - before);
                before = after;
        }
        c->ended = before;
        return NULL;
}

static int by_value(const void *a, const void *b) {
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

static int prepare(struct load *l, const struct op *op) {
        snprintf(l->work, sizeof(l->work), "%s/fsload.%ld", l->dir, (long)getpid());
        if (mkdir(l->work, 0755) < 0)
                return -1;
        for (long i = 0; op->files && i < l->files; i++) {
                char path[4200];
                name_of(l, path, "f", 0, i);
                if (write_file(l, path, O_CREAT | O_EXCL | O_WRONLY) < 0)
                        return -1;
                l->open_fds[i] = op->open_files ? open(path, O_RDONLY) : -1;
                if (op->open_files && l->open_fds[i] < 0)
                        return -1;
        }
        if (!op->cold)
                return 0;
        sync();
        int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
        if (fd < 0 || write(fd, "2", 1) != 1)
                return -1;
        return close(fd);
}

static void clean_up(const struct load *l) {
        DIR *d = opendir(l->work);
        for (struct dirent *e; d && (e = readdir(d));)
                if (e->d_name[0] != '.')
                        (void)unlinkat(dirfd(d), e->d_name, 0); /* what stays makes rmdir complain */
        if (d)
                closedir(d);
        if (rmdir(l->work) < 0)
                perror(l->work);
}

static int report(const struct load *l, const struct client *clients) {
        long n = 0;
        int error = 0;
        uint64_t began = UINT64_MAX, ended = 0;
        for (long t = 0; t < l->threads; t++) {
                n += clients[t].done;
                error = clients[t].error ? clients[t].error : error;
                began = clients[t].began < began ? clients[t].began : began;
                ended = clients[t].ended > ended ? clients[t].ended : ended;
        }
        uint32_t *all = malloc(((size_t)n + 1) * sizeof(*all));
        if (!all)
                return 1;
        size_t at = 0;
        for (long t = 0; t < l->threads; t++)
                for (long i = 0; i < clients[t].done; i++)
                        all[at++] = clients[t].ns[i];
        qsort(all, at, sizeof(*all), by_value);
        printf("{\"op\":\"%s\",\"threads\":%ld,\"size\":%ld,\"files\":%ld,\"count\":%ld,\"per_s\":%.0f", l->op, l->threads, l->size,
               l->files, n, n ? (double)n * 1e9 / (double)(ended - began) : 0.0);
        static const struct {
                const char *name;
                double part;
        } cuts[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}};
        for (size_t i = 0; at > 0 && i < sizeof(cuts) / sizeof(*cuts); i++)
                printf(",\"%s_us\":%.2f", cuts[i].name, all[(size_t)((double)(at - 1) * cuts[i].part)] / 1e3);
        if (error)
                printf(",\"error\":\"%s\"", strerror(error));
        printf("}\n");
        free(all);
        return error != 0;
}

static int run(struct load *l) {
        struct client *clients = calloc((size_t)l->threads, sizeof(*clients));
        pthread_t *threads = calloc((size_t)l->threads, sizeof(*threads));
        if (!clients || !threads)
                return 1;
        pthread_barrier_init(&l->start, NULL, (unsigned)l->threads);
        for (long t = 0; t < l->threads; t++) {
                struct client *c = &clients[t];
                *c = (struct client){.load = l, .id = t, .share = l->count / l->threads, .buffer = malloc((size_t)l->size + 1)};
                c->ns = malloc(((size_t)c->share + 1) * sizeof(*c->ns));
                if (!c->buffer || !c->ns)
                        return 1;
                memset(c->ns, 0, (size_t)c->share * sizeof(*c->ns)); /* no page faults while measuring */
                if (pthread_create(&threads[t], NULL, client_main, c) != 0)
                        return 1;
        }
        for (long t = 0; t < l->threads; t++)
                pthread_join(threads[t], NULL);
        int r = report(l, clients);
        for (long t = 0; t < l->threads; t++) {
                free(clients[t].ns);
                free(clients[t].buffer);
        }
        free(clients);
        free(threads);
        return r;
}

static int usage(void) {
        fprintf(stderr, "usage: fsload DIR stat|miss|lookup|read|cread|readdir|create|replace|write [-n COUNT] [-t THREADS] [-s SIZE] [-f "
                        "FILES] [-w WARMUP]\n");
        return 2;
}

int main(int argc, char **argv) {
        struct load l = {.count = 10000, .threads = 1, .size = 1024, .files = 1000, .warmup = 1000};
        for (int c; (c = getopt(argc, argv, "n:t:s:f:w:")) != -1;) {
                long *to = c == 'n'   ? &l.count
                           : c == 't' ? &l.threads
                           : c == 's' ? &l.size
                           : c == 'f' ? &l.files
                           : c == 'w' ? &l.warmup
                                      : NULL;
                if (!to)
                        return usage();
                *to = atol(optarg);
        }
        if (argc - optind != 2 || l.count < 1 || l.threads < 1 || l.threads > 256 || l.size < 1 || l.files < 1)
                return usage();
        l.dir = argv[optind];
        l.op = argv[optind + 1];
        const struct op *op = NULL;
        for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
                if (strcmp(ops[i].name, l.op) == 0)
                        op = &ops[i];
        if (!op)
                return usage();
        if (op->cold && l.count > l.files)
                l.count = l.files;
        l.content = malloc((size_t)l.size);
        l.open_fds = calloc((size_t)l.files, sizeof(int));
        if (!l.content || !l.open_fds)
                return 1;
        for (long i = 0; i < l.size; i++)
                l.content[i] = (char)("key = value of a line\n"[i % 22] + (i % 97 == 0));
        int r = prepare(&l, op);
        if (r < 0)
                fprintf(stderr, "fsload: cannot prepare %s: %s\n", l.work, strerror(errno));
        r = r < 0 ? 1 : run(&l);
        for (long i = 0; op->open_files && i < l.files; i++)
                close(l.open_fds[i]);
        clean_up(&l);
        free(l.content);
        free(l.open_fds);
        return r;
}
