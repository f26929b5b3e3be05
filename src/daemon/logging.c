/* logging.c: where the lines go: a file, standard error, syslog, or a file in the run directory where there is no syslog. */
#include "daemon_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
/* syslog's LOG_DEBUG is a level, ours is LOG_LEVEL_DEBUG: no clash. */
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static int log_fd = -1;     /* set once, before there are threads */
static char made_path[256]; /* a file that was not there before */

static void file_sink(enum log_level level, const char *line, void *ctx) {
        static const char *const names[] = {"", "", "", "error: ", "warning: ", "notice: ", "info: ", "debug: "};
        struct timespec ts;
        struct tm tm;
        char when[40];

        (void)ctx;
        (void)clock_gettime(CLOCK_REALTIME, &ts);
        (void)gmtime_r(&ts.tv_sec, &tm);
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
        /* A log that cannot be written has nowhere to say so. */
        (void)dprintf(log_fd, "%s.%03ldZ %s%s\n", when, ts.tv_nsec / 1000000, names[level], line);
}

static void syslog_sink(enum log_level level, const char *line, void *ctx) {
        (void)ctx;
        syslog((int)level, "%s", line);
}

static errint_t log_to_file(const char *path, struct fault *f) {
        log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log_fd < 0)
                return fault_set(f, 1, -errno, "cannot open the log file %s: %s; give another with --log-file", path, strerror(errno));
        log_set_sink(file_sink, NULL);
        return 0;
}

errint_t logging_start(const struct options *o, const char *run_dir, struct fault *f) {
        char path[256];

        log_set_level((enum log_level)(LOG_LEVEL_ERROR + o->log_level.number));
        if (o->log_file.text[0])
                return log_to_file(o->log_file.text, f);
        if (o->foreground)
                return 0;
        if (access("/dev/log", W_OK) == 0) {
                openlog("coteried", LOG_PID | LOG_NDELAY, LOG_DAEMON);
                log_set_sink(syslog_sink, NULL);
                return 0;
        }
        (void)snprintf(path, sizeof(path), "%s/coteried.log", run_dir);
        if (access(path, F_OK) < 0)
                memcpy(made_path, path, sizeof(made_path));
        return log_to_file(path, f);
}

int logging_file(void) {
        return log_fd;
}

void logging_discard(void) {
        if (made_path[0])
                (void)unlink(made_path);
}
