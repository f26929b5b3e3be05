/* guardian_process.c: what the guardian does. See guardian.h. */
#include "guardian.h"

#include "base/env.h"
#include "base/log.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#define COMM        "mount-guardian" /* no part of it is the daemon's: who ends that one by name must not end this one first */
#define SLOW_END_MS 5000u            /* a daemon that was cut off and does not end even so is worth a line */

struct place { /* which mount lies at a path */
        unsigned major, minor;
        uint64_t mount;
};

struct watch {
        uint64_t alive_ms; /* when it answered last */
        bool reported;
};

struct guard {
        struct guardian_config config;
        pid_t daemon;
        int fd, life; /* messages; ends with the daemon's life */
        int abort_fd; /* of the connection; -1: none was handed over */
        bool mounted, cut, told_slow;
        struct place place;
        uint64_t cut_ms;
        bool beating, killed;
        struct watch loops[LOOP_COUNT];
};

static const char *const loop_names[LOOP_COUNT] = {"main loop", "engine", "control socket"};

static uint64_t now_ms(void) {
        return env_monotonic_ns(env_system()) / 1000000u;
}

/* --- cutting */

/* Asks no filesystem: opening the root of a mount as a path only and attributes that are not synchronised reach no daemon. */
static errint_t place_of(const char *path, struct place *ret) {
        cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
        struct statx st;

        if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st) < 0)
                return -errno;
        *ret = (struct place){st.stx_dev_major, st.stx_dev_minor, st.stx_mnt_id};
        return 0;
}

static bool place_is_ours(const struct guard *g) {
        struct place now;

        return place_of(g->config.mountpoint, &now) == 0 && now.major == g->place.major && now.minor == g->place.minor &&
               now.mount == g->place.mount;
}

static void cut(struct guard *g) {
        bool done = false;

        if (g->cut || !g->mounted)
                return;
        g->cut = true;
        g->cut_ms = now_ms();
        if (g->abort_fd >= 0)
                done = write(g->abort_fd, "1", 1) == 1;
        if (!done && place_is_ours(g))
                (void)umount2(g->config.mountpoint, MNT_FORCE | UMOUNT_NOFOLLOW); /* EBUSY: cut all the same */
}

static _Noreturn void finish(struct guard *g) {
        cut(g); /* does nothing to a connection that has ended with the daemon */
        if (g->mounted && g->config.detach && place_is_ours(g))
                (void)umount2(g->config.mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW);
        _exit(0);
}

/* --- what is heard */

static void died(struct guard *g, int signal) { /* 0: unknown */
        bool first = !g->cut && g->mounted;

        cut(g);
        if (!first)
                return;
        if (signal)
                log_error("coteried (pid %d) crashed (signal %d, %s): its mount at %s is cut off", (int)g->daemon, signal,
                          strsignal(signal), g->config.mountpoint);
        else
                log_error("coteried (pid %d) was killed: its mount at %s is cut off", (int)g->daemon, g->config.mountpoint);
}

static void take_file(struct guard *g, struct msghdr *message) {
        g->mounted = true;
        (void)place_of(g->config.mountpoint, &g->place); /* else it is nobody's, and left alone */
        for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
                        memcpy(&g->abort_fd, CMSG_DATA(c), sizeof(int));
}

static void take_beat(struct guard *g, uint8_t late) {
        uint64_t now = now_ms();

        for (unsigned i = 0; i < LOOP_COUNT; i++) {
                struct watch *w = &g->loops[i];
                if (g->beating && late & 1u << i)
                        continue;
                if (w->reported)
                        log_notice("coteried (pid %d): the %s goes on after %llu s", (int)g->daemon, loop_names[i],
                                   (unsigned long long)(now - w->alive_ms) / 1000u);
                *w = (struct watch){.alive_ms = now};
        }
        g->beating = true;
}

static bool hear_message(struct guard *g) { /* false: there was none */
        uint8_t bytes[2] = {0};
        struct iovec iov = {bytes, sizeof(bytes)};
        _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
        ssize_t n = recvmsg(g->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return false;
        if (n <= 0) { /* its last thread has ended */
                died(g, 0);
                finish(g);
        }
        switch (bytes[0]) {
        case GUARDIAN_MOUNTED:
                take_file(g, &message);
                break;
        case GUARDIAN_BEAT:
                take_beat(g, bytes[1]);
                break;
        case GUARDIAN_REST:
                g->beating = false;
                break;
        case GUARDIAN_CRASH:
                died(g, bytes[1]);
                break;
        default:
                break;
        }
        return true;
}

/* --- the watchdog */

/* 'T': stopped by a signal; 0: unknown. */
static char process_state(pid_t pid) {
        char path[48], text[512];

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        if (n <= 0)
                return 0;
        text[n] = '\0';
        const char *end = strrchr(text, ')'); /* of the name, which may hold anything */
        return end && end[1] == ' ' ? end[2] : 0;
}

static void report(struct guard *g, unsigned loop) {
        char state = process_state(g->daemon);

        g->loops[loop].reported = true;
        if (state == 'T' || state == 't')
                log_error("coteried (pid %d) is stopped: %s; it goes on with kill -CONT %d", (int)g->daemon,
                          state == 'T' ? "it received SIGSTOP" : "a debugger holds it", (int)g->daemon);
        else
                log_error("coteried (pid %d) hangs: its %s has made no step for %llu ms; /proc/%d/task/*/stack shows where", (int)g->daemon,
                          loop_names[loop], (unsigned long long)(now_ms() - g->loops[loop].alive_ms), (int)g->daemon);
}

static void kill_hanging(struct guard *g) {
        if (g->killed || getppid() != g->daemon)
                return;
        g->killed = true;
        log_error("coteried (pid %d) has hung for too long and is killed", (int)g->daemon);
        (void)kill(g->daemon, SIGKILL);
}

/* Who does not even beat has no loop that is known to live; the main loop's line says it all then. */
static int watch_loops(struct guard *g, int timeout_ms) {
        uint64_t now = now_ms();

        for (unsigned i = 0; g->beating && i < LOOP_COUNT; i++) {
                uint64_t still = now - g->loops[i].alive_ms, next = UINT64_MAX;
                if (still < g->config.hang_report_ms)
                        next = g->config.hang_report_ms - still;
                else if (!g->loops[i].reported && !(i != LOOP_MAIN && g->loops[LOOP_MAIN].reported))
                        report(g, i);
                if (still < g->config.hang_kill_ms)
                        next = MIN_OF(next, g->config.hang_kill_ms - still);
                else
                        kill_hanging(g);
                if (next < (uint64_t)INT32_MAX)
                        timeout_ms = timeout_ms < 0 ? (int)next : MIN_OF(timeout_ms, (int)next);
        }
        return timeout_ms;
}

static int watch_end(struct guard *g) {
        uint64_t since = now_ms() - g->cut_ms;

        if (!g->cut || g->told_slow)
                return -1;
        if (since < SLOW_END_MS)
                return (int)(SLOW_END_MS - since);
        g->told_slow = true;
        log_error("coteried (pid %d) does not end: a thread of it waits in the kernel, for a disk perhaps; see /proc/%d/task/*/stack",
                  (int)g->daemon, (int)g->daemon);
        return -1;
}

/* --- becoming it */

/* The command line lies in one piece, which the program may write to; ps(1) shows what is there. */
static void set_title(const char *mountpoint) {
        cleanup_fd int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        char old[4096], title[512];
        ssize_t n = fd >= 0 ? read(fd, old, sizeof(old)) : 0;

        (void)prctl(PR_SET_NAME, COMM, 0, 0, 0);
        if (n < 2)
                return;
        (void)snprintf(title, sizeof(title), "coteried: guardian of %s", mountpoint);
        size_t room = (size_t)n, len = MIN_OF(strlen(title), room - 1);
        memset(program_invocation_name, 0, room); /* argv[0] */
        memcpy(program_invocation_name, title, len);
}

/* All that the daemon had open is closed, so that nothing waits for the guardian. */
static void keep_only(const struct guard *g) {
        int keep[] = {g->fd, g->life, g->config.log_fd}, null = open("/dev/null", O_RDWR | O_CLOEXEC);
        unsigned from = STDERR_FILENO + 1;

        for (int i = STDIN_FILENO; i <= STDERR_FILENO && null >= 0; i++)
                if (i != STDERR_FILENO || !g->config.keep_stderr)
                        (void)dup2(null, i);
        closelog(); /* opened again when there is something to say */
        for (;;) {  /* the gaps between those that are kept, in ascending order */
                unsigned next = UINT32_MAX;
                for (size_t i = 0; i < ARRAY_LEN(keep); i++)
                        if (keep[i] >= 0 && (unsigned)keep[i] >= from && (unsigned)keep[i] < next)
                                next = (unsigned)keep[i];
                if (next > from)
                        (void)close_range(from, next - 1, 0);
                if (next == UINT32_MAX)
                        return;
                from = next + 1;
        }
}

static void become(struct guard *g) {
        sigset_t all;

        (void)setsid(); /* a terminal's signals go to the daemon's group */
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
        keep_only(g);
        set_title(g->config.mountpoint);
        (void)!chdir("/"); /* else it holds a directory */
}

void guardian_process(const struct guardian_config *config, int fd, int life, pid_t daemon) {
        struct guard g = {.config = *config, .daemon = daemon, .fd = fd, .life = life, .abort_fd = -1};

        become(&g);
        (void)send(g.fd, "r", 1, MSG_NOSIGNAL); /* guardian_start waits for it */
        for (;;) {
                struct pollfd fds[2] = {{.fd = g.fd, .events = POLLIN}, {.fd = g.life, .events = POLLIN}};
                (void)poll(fds, ARRAY_LEN(fds), watch_loops(&g, watch_end(&g)));
                while (hear_message(&g)) /* all of them first: it may have been mounted just now, or say of what it dies */
                        ;
                if (fds[1].revents) {
                        died(&g, 0);
                        cleanup_fdp_(&g.life); /* heard */
                        g.life = -1;
                }
        }
}
