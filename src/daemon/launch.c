/* launch.c: running a daemon: signals, the loop, foreground and background. */
#include "daemon_internal.h"

#include "base/env.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* --- running */

static void handle_signal(struct daemon *d, int fd) {
        struct signalfd_siginfo info;

        while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                if (info.ssi_signo == SIGHUP)
                        mount_settings_reload(d);
                else
                        daemon_request_stop(d, 0);
        }
}

static int sooner(int a_ms, int b_ms) { /* -1: never */
        return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void run(struct daemon *d, int signals) {
        uint64_t drop;

        liveness_begin(d);
        while (!atomic_load(&d->stop)) {
                struct pollfd fds[2] = {{.fd = signals, .events = POLLIN}, {.fd = d->wake, .events = POLLIN}};
                int n = poll(fds, ARRAY_LEN(fds), sooner(images_expire(d->images), liveness_beat(d)));
                if (n > 0 && fds[0].revents)
                        handle_signal(d, signals);
                if (n > 0 && fds[1].revents)
                        (void)!read(d->wake, &drop, sizeof(drop)); /* only the flags count */
        }
}

static int block_signals(void) {
        sigset_t set;

        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGINT);
        (void)sigaddset(&set, SIGHUP);
        (void)sigprocmask(SIG_BLOCK, &set, NULL); /* threads inherit it */
        (void)signal(SIGPIPE, SIG_IGN);
        return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void init(struct daemon *d, struct options *o) {
        pthread_condattr_t attr;

        *d = (struct daemon){.options = o,
                             .metrics = NEW(struct metrics),
                             .trace = trace_ring_new(),
                             .state = shared_state_new(env_random64(env_system())),
                             .images = images_new()};
        d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        (void)pthread_mutex_init(&d->lock, NULL);
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&d->changed, &attr);
        (void)pthread_condattr_destroy(&attr);
}

static void done(struct daemon *d) {
        base_assert_hook = NULL;
        (void)close(d->wake);
        (void)pthread_mutex_destroy(&d->lock);
        (void)pthread_cond_destroy(&d->changed);
        free(d->reason);
        images_free(d->images);
        free(d->metrics);
        trace_ring_free(d->trace);
}

static void log_mounted(struct daemon *d) {
        char level[OPTION_TEXT_MAX];
        const struct state *state = shared_state_read(d->state);
        struct position pos = state->pos;

        shared_state_done_read(d->state);
        mount_setting_text(d, "sync_level", level, sizeof(level));
        log_info("mounted %s, database %s, position (%llu, %llu), level %s", d->options->mountpoint, d->options->db.text,
                 (unsigned long long)pos.epoch, (unsigned long long)pos.seq, level);
}

/* announce: tells whoever started us, once: "" when the mount answers, else why not. */
static int run_daemon(struct options *o, void (*announce)(void *ctx, int exit, const char *text), void *ctx) {
        struct fault f = {.exit = 1};
        struct daemon d;
        int signals = block_signals(), status;

        init(&d, o);
        errint_t error = daemon_start(&d, &f);
        if (error < 0) {
                (void)daemon_stop(&d, true);
                announce(ctx, f.exit, f.text);
                done(&d);
                return f.exit;
        }
        log_mounted(&d);
        service_notify("READY=1\nMAINPID=%ld", (long)getpid());
        announce(ctx, 0, "");
        run(&d, signals);
        error = daemon_stop(&d, false);
        log_info("stopped");
        status = atomic_load(&d.exit_status);
        done(&d);
        (void)close(signals);
        return error < 0 && status == 0 ? 1 : status;
}

/* --- foreground and background */

static void announce_stderr(void *ctx, int exit, const char *text) {
        (void)ctx;
        if (exit != 0)
                (void)fprintf(stderr, "coteried: %s\n", text);
}

struct background {
        int fd;
};

static void announce_parent(void *ctx, int exit, const char *text) {
        struct background *b = ctx;
        int null;

        (void)dprintf(b->fd, "%c%s", (char)exit, text); /* a parent that was killed does not listen */
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null >= 0) {
                (void)dup2(null, STDIN_FILENO);
                (void)dup2(null, STDOUT_FILENO);
                (void)dup2(null, STDERR_FILENO);
                if (null > STDERR_FILENO)
                        (void)close(null);
        }
        (void)close(b->fd);
}

static int wait_for_child(int fd) {
        char text[sizeof(((struct fault *)0)->text) + 2];
        size_t n = 0;

        for (;;) {
                ssize_t got = read(fd, text + n, sizeof(text) - 1 - n);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0 || (n += (size_t)got) == sizeof(text) - 1)
                        break;
        }
        text[n] = '\0';
        if (n == 0) {
                (void)fprintf(stderr, "coteried: it ended before the mount answered; run it with -f to see why\n");
                return 1;
        }
        if (text[0] != 0)
                (void)fprintf(stderr, "coteried: %s\n", text + 1);
        return text[0];
}

static int run_in_background(struct options *o) {
        int fds[2];
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
                (void)fprintf(stderr, "coteried: cannot start in the background: %s\n", strerror(errno));
                return 1;
        }
        if (pid > 0) {
                (void)close(fds[1]);
                return wait_for_child(fds[0]);
        }
        struct background b = {.fd = fds[1]};
        (void)close(fds[0]);
        (void)setsid();
        if (chdir("/") < 0)
                return 1;
        return run_daemon(o, announce_parent, &b);
}

static char *absolute(const char *path) {
        char here[4096];

        if (path[0] == '/' || path[0] == '\0' || !getcwd(here, sizeof(here)))
                return xstrdup(path);
        char *full = xmalloc(strlen(here) + strlen(path) + 2);
        (void)sprintf(full, "%s/%s", here, path);
        return full;
}

static void make_absolute(char **path) {
        char *full;

        if (!*path)
                return;
        full = absolute(*path);
        free(*path);
        *path = full;
}

int daemon_main(struct options *o) {
        const char *failpoints = getenv("COTERIE_FAILPOINTS");

        if (failpoints && failpoint_set(failpoints) < 0) {
                (void)fprintf(stderr, "coteried: COTERIE_FAILPOINTS is not understood; it is name=ERRNO@N[+];…\n");
                return 2;
        }
        make_absolute(&o->mountpoint);
        make_absolute(&o->db.text);
        make_absolute(&o->run_dir.text);
        make_absolute(&o->log_file.text);
        make_absolute(&o->config_file);
        return o->foreground ? run_daemon(o, announce_stderr, NULL) : run_in_background(o);
}
