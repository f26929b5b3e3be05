/* guardian.c: the daemon's side: starting it, and what it is told. */
#include "guardian.h"

#include "base/log.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct guardian {
        struct guardian_config config;
        pthread_t thread;
        int fd, theirs; /* both ends; theirs is closed here once it runs */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        pid_t pid;      /* protected by lock; 0: not forked yet, or ended */
        errint_t error; /* protected by lock: why not */
        _Atomic bool told_end;
};

static int crash_fd = -1; /* set before there are threads, cleared after they ended; read by the signal handler */

/* One that does not listen is missed, not waited for; false: it has ended. Async-signal-safe. */
static bool tell(int fd, enum guardian_message type, uint8_t detail) {
        const uint8_t message[2] = {(uint8_t)type, detail};
        return send(fd, message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || (errno != EPIPE && errno != ECONNRESET);
}

/* --- the thread whose end it hears of. It must not log, for the log's descriptor is another table's. */

static void forked(struct guardian *g, pid_t pid, errint_t error) {
        (void)pthread_mutex_lock(&g->lock);
        g->pid = pid;
        g->error = error;
        (void)pthread_cond_signal(&g->changed);
        (void)pthread_mutex_unlock(&g->lock);
}

/* Looked at before it is reaped: until then its number is not used again, so that guardian_stop kills nobody else. */
static void await_end(struct guardian *g, pid_t pid) {
        siginfo_t info = {0};

        while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
                ;
        (void)pthread_mutex_lock(&g->lock);
        g->pid = 0;
        (void)pthread_mutex_unlock(&g->lock);
        (void)waitpid(pid, NULL, 0); /* does not wait */
}

/* What the table held when it became this thread's own would stay open here when the daemon closes it. */
static void close_all_but(int fd) {
        (void)close_range(0, (unsigned)fd - 1, 0);
        (void)close_range((unsigned)fd + 1, UINT_MAX, 0);
}

static void *life_main(void *arg) {
        struct guardian *g = arg;
        pid_t daemon = getpid(), pid = -1;
        int life[2];

        if (unshare(CLONE_FILES) == 0 && pipe2(life, O_CLOEXEC) == 0 && (pid = fork()) == 0) {
                (void)close(life[1]);
                guardian_process(&g->config, g->theirs, life[0], daemon);
        }
        forked(g, pid < 0 ? 0 : pid, pid < 0 ? -errno : 0);
        if (pid > 0) {
                close_all_but(life[1]);
                await_end(g, pid);
        }
        return NULL;
}

/* --- */

static errint_t start_thread(struct guardian *g) {
        sigset_t all, was;
        errint_t error;

        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &was); /* signals are for the main loop; a blocked SIGKILL there is not */
        error = -pthread_create(&g->thread, NULL, life_main, g);
        (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
        if (error < 0)
                return error;
        (void)pthread_mutex_lock(&g->lock);
        while (g->pid == 0 && g->error == 0)
                (void)pthread_cond_wait(&g->changed, &g->lock);
        error = g->error;
        (void)pthread_mutex_unlock(&g->lock);
        if (error < 0)
                (void)pthread_join(g->thread, NULL);
        return error;
}

static void release(struct guardian *g) {
        cleanup_fdp_(&g->fd);
        cleanup_fdp_(&g->theirs);
        (void)pthread_mutex_destroy(&g->lock);
        (void)pthread_cond_destroy(&g->changed);
        free(g);
}

errint_t guardian_start(const struct guardian_config *config, struct guardian **ret) {
        struct guardian *g;
        char ready;
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        g = NEW(struct guardian);
        g->config = *config;
        g->fd = fds[0];
        g->theirs = fds[1];
        (void)pthread_mutex_init(&g->lock, NULL);
        (void)pthread_cond_init(&g->changed, NULL);
        errint_t error = start_thread(g);
        if (error < 0) {
                release(g);
                return error;
        }
        cleanup_fdp_(&g->theirs);
        g->theirs = -1;
        (void)recv(g->fd, &ready, 1, 0); /* from here on no signal ends it; or it has ended already, which the first beat tells */
        *ret = g;
        return 0;
}

void guardian_stop(struct guardian *g) {
        if (!g)
                return;
        (void)pthread_mutex_lock(&g->lock);
        if (g->pid > 0)
                (void)kill(g->pid, SIGKILL); /* it has nothing to do any more, and so it cannot hold us up */
        (void)pthread_mutex_unlock(&g->lock);
        (void)pthread_join(g->thread, NULL);
        crash_fd = -1;
        release(g);
}

void guardian_mounted(struct guardian *g, int abort_fd) {
        uint8_t bytes[2] = {GUARDIAN_MOUNTED, 0};
        struct iovec iov = {bytes, sizeof(bytes)};
        _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

        if (abort_fd >= 0) {
                message.msg_control = space;
                message.msg_controllen = sizeof(space);
                struct cmsghdr *c = CMSG_FIRSTHDR(&message);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &abort_fd, sizeof(int));
        }
        (void)sendmsg(g->fd, &message, MSG_NOSIGNAL); /* EPIPE: it has ended, which the next beat tells */
}

void guardian_beat(struct guardian *g, uint32_t late) {
        if (tell(g->fd, GUARDIAN_BEAT, (uint8_t)late) || atomic_exchange(&g->told_end, true))
                return;
        log_warning("the guardian process has ended: if this daemon is killed now, processes may hang on %s until its next start",
                    g->config.mountpoint);
}

void guardian_rest(struct guardian *g) {
        (void)tell(g->fd, GUARDIAN_REST, 0);
}

/* --- crashes */

static void on_crash(int signal, siginfo_t *info, void *context) {
        (void)context;
        (void)tell(crash_fd, GUARDIAN_CRASH, (uint8_t)signal);
        /* Sent by somebody, or by an instruction that is over: it does not come again by itself. The handler is gone (SA_RESETHAND). */
        if (info->si_code <= 0 || signal == SIGTRAP || signal == SIGSYS)
                (void)raise(signal);
}

void guardian_watch_crashes(struct guardian *g) {
        static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGQUIT};
        struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER)}, was;

        crash_fd = g->fd;
        for (size_t i = 0; i < ARRAY_LEN(signals); i++)
                if (sigaction(signals[i], NULL, &was) == 0 && !(was.sa_flags & SA_SIGINFO) && was.sa_handler == SIG_DFL)
                        (void)sigaction(signals[i], &action, NULL);
}
