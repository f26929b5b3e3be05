/* rundir.c: the run directory: one daemon per directory, held by a lock on its pid file. */
#include "daemon_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_FILE   "coteried.pid"
#define TRACE_FILE "trace.txt"

struct rundir {
        char *path, *pid_path;
        int pid_fd;
        bool made;
};

static char assert_trace_path[4096]; /* set once, before there are threads */
static struct trace_ring *assert_trace;

static void dump_trace(const char *message) {
        int fd = open(assert_trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        if (fd < 0)
                return;
        (void)!write(fd, message, strlen(message)); /* about to abort: nobody is left to tell */
        (void)!write(fd, "\n", 1);
        trace_dump(assert_trace, fd);
        (void)close(fd);
}

void rundir_dump_on_assert(const struct rundir *r, struct trace_ring *trace) {
        (void)snprintf(assert_trace_path, sizeof(assert_trace_path), "%s/" TRACE_FILE, r->path);
        assert_trace = trace;
        base_assert_hook = dump_trace;
}

static long read_pid(int fd) {
        char text[32];
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

        text[n > 0 ? n : 0] = '\0';
        return strtol(text, NULL, 10);
}

bool rundir_holder_is_dying(const char *path) {
        char name[4096], text[512];

        (void)snprintf(name, sizeof(name), "%s/" PID_FILE, path);
        cleanup_fd int fd = open(name, O_RDONLY | O_CLOEXEC);
        long pid = fd >= 0 ? read_pid(fd) : 0;
        if (pid <= 0)
                return false;
        (void)snprintf(name, sizeof(name), "/proc/%ld/stat", pid);
        cleanup_fd int stat_fd = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t n = stat_fd >= 0 ? read(stat_fd, text, sizeof(text) - 1) : -1;
        if (n <= 0)
                return false;
        text[n] = '\0';
        const char *end = strrchr(text, ')'); /* of the name, which may hold anything */
        return end && (strncmp(end, ") Z", 3) == 0 || strncmp(end, ") X", 3) == 0);
}

static errint_t lock_pid_file(struct rundir *r, struct fault *f) {
        struct stat held, named;

        for (;;) {
                cleanup_fd int fd = open(r->pid_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
                if (fd < 0)
                        return fault_set(f, 1, -errno, "cannot write the run directory %s: %s; run as root, or give another with --run-dir",
                                         r->path, strerror(errno));
                if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                        long pid = read_pid(fd);
                        return fault_set(f, 1, -EBUSY,
                                         "another coteried (pid %ld) uses the run directory %s; stop it, or give another with --run-dir",
                                         pid, r->path);
                }
                /* The one before may have removed the file between our open and our lock. */
                if (fstat(fd, &held) < 0 || stat(r->pid_path, &named) < 0 || held.st_ino != named.st_ino || held.st_dev != named.st_dev)
                        continue;
                r->pid_fd = steal_fd(&fd);
                return 0;
        }
}

errint_t rundir_open(const char *path, struct rundir **ret, struct fault *f) {
        struct rundir *r = NEW(struct rundir);
        errint_t error = 0;

        r->pid_fd = -1;
        r->path = xstrdup(path);
        r->pid_path = xmalloc(strlen(path) + sizeof("/" PID_FILE));
        (void)sprintf(r->pid_path, "%s/" PID_FILE, path);
        if (mkdir(path, 0755) == 0)
                r->made = true;
        else if (errno != EEXIST)
                error = fault_set(f, 1, -errno, "cannot make the run directory %s: %s; run as root, or give another with --run-dir", path,
                                  strerror(errno));
        if (error == 0)
                error = lock_pid_file(r, f);
        if (error == 0 && (ftruncate(r->pid_fd, 0) < 0 || dprintf(r->pid_fd, "%ld\n", (long)getpid()) < 0))
                error = fault_set(f, 1, -errno, "cannot write %s; free space there", r->pid_path);
        if (error < 0) {
                rundir_close(r);
                return error;
        }
        *ret = r;
        return 0;
}

void rundir_close(struct rundir *r) {
        if (!r)
                return;
        if (r->pid_fd >= 0) {
                (void)unlink(r->pid_path);
                (void)close(r->pid_fd);
        }
        if (r->made)
                (void)rmdir(r->path); /* left, if something else lies in it */
        free(r->path);
        free(r->pid_path);
        free(r);
}

const char *rundir_path(const struct rundir *r) {
        return r->path;
}
