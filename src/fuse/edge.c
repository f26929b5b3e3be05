/* edge.c: the life of a session: mounted, agreed, served, unmounted. */
#include "edge.h"

#include "base/log.h"
#include "notify.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INIT_TIMEOUT_MS 10000
#define STOP_WAIT_MS    300 /* for requests that wait for an operation, before they are answered with EIO */
#define LINGER_MS       100 /* for the session to end after unmounting: the mount may live on in another namespace */
#define ABORT_MS        1000

/* --- what libfuse wants --- */

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata) {
        const struct fuse_in_header *in = worker_self ? worker_self->raw : NULL;
        if (in && in->opcode == FUSE_INIT && count == 2)
                edge_init_patch(userdata, (const struct fuse_init_in *)(const void *)(in + 1), in->len - sizeof(*in), iov[1].iov_base,
                                iov[1].iov_len);
        return writev(fd, iov, count);
}

static ssize_t io_read(int fd, void *buf, size_t size, void *userdata) {
        (void)userdata;
        return read(fd, buf, size);
}

__attribute__((format(printf, 2, 0))) static void log_libfuse(enum fuse_log_level level, const char *fmt, va_list args) {
        char line[512];
        int n = vsnprintf(line, sizeof(line), fmt, args);
        if (n <= 0)
                return;
        line[strcspn(line, "\n")] = '\0';
        log_at(level <= FUSE_LOG_ERR       ? LOG_LEVEL_ERROR
               : level == FUSE_LOG_WARNING ? LOG_LEVEL_WARNING
                                           : LOG_LEVEL_DEBUG,
               "libfuse: %s", line);
}

static errint_t session_new(struct fuse_edge *e) {
        static const struct fuse_custom_io io = {.writev = io_writev, .read = io_read};
        char name[] = "coteried";
        char *argv[] = {name, NULL};
        struct fuse_args args = FUSE_ARGS_INIT(1, argv);
        fuse_set_log_func(log_libfuse);
        e->session = fuse_session_new(&args, &edge_ops, sizeof(edge_ops), e);
        fuse_opt_free_args(&args);
        if (!e->session)
                return -ENOMEM;
        if (fuse_session_custom_io(e->session, &io, e->fd) == 0)
                return 0;
        fuse_session_destroy(steal_pointer(&e->session));
        return -EIO;
}

static struct timespec after_ms(long ms) {
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
        t.tv_nsec += ms % 1000 * 1000000L;
        t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000L;
        t.tv_nsec %= 1000000000L;
        return t;
}

/* --- threads --- */

/* Blocked, these would end the process without the program's handler. */
static const int own_faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};

static unsigned thread_count(const struct fuse_edge_config *config) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned n = config->threads ? config->threads : (unsigned)MAX_OF(cores, 1) + 2;
        return MIN_OF(n, EDGE_THREADS_MAX);
}

static errint_t worker_start(struct worker *w) {
        struct fuse_edge *e = w->edge;
        (void)pthread_mutex_lock(&e->lock);
        int r = pthread_create(&w->thread, NULL, worker_main, w);
        w->started = r == 0;
        e->running += r == 0;
        (void)pthread_mutex_unlock(&e->lock);
        return -r;
}

static errint_t workers_new(struct fuse_edge *e) {
        e->n_workers = thread_count(&e->config);
        e->workers = aligned_alloc(_Alignof(struct worker), e->n_workers * sizeof(struct worker));
        if (!e->workers)
                return -ENOMEM;
        memset(e->workers, 0, e->n_workers * sizeof(struct worker));
        for (unsigned i = 0; i < e->n_workers; i++) {
                struct worker *w = &e->workers[i];
                w->edge = e;
                w->size = EDGE_MAX_WRITE + EDGE_REQUEST_HEAD;
                w->memory = aligned_alloc(EDGE_REQUEST_HEAD, w->size + EDGE_REQUEST_HEAD);
                if (!w->memory)
                        return -ENOMEM;
        }
        return 0;
}

static errint_t wait_ready(struct fuse_edge *e) {
        struct timespec until = after_ms(INIT_TIMEOUT_MS);
        int r = 0;
        (void)pthread_mutex_lock(&e->lock);
        while (!e->ready && !e->ended && r == 0)
                r = pthread_cond_timedwait(&e->changed, &e->lock, &until);
        errint_t error = e->ready ? 0 : e->ended ? MIN_OF(e->end_error, -EIO) : -ETIMEDOUT;
        (void)pthread_mutex_unlock(&e->lock);
        return error;
}

/* The first worker alone answers INIT: what it settles there is published to the others by starting them. */
static errint_t threads_start(struct fuse_edge *e, char *reason, size_t reason_size) {
        sigset_t all, was;
        sigfillset(&all); /* signals are the program's business, not its workers' */
        for (size_t i = 0; i < ARRAY_LEN(own_faults); i++)
                sigdelset(&all, own_faults[i]);
        (void)pthread_sigmask(SIG_SETMASK, &all, &was);
        e->notify = notify_start(e);
        crew_start(&e->crew, e->fd, e->n_workers);
        errint_t r = e->notify ? worker_start(&e->workers[0]) : -EAGAIN;
        const char *what = "cannot start threads for the mount";
        if (r == 0) {
                r = wait_ready(e);
                what = "the kernel and libfuse do not agree on a FUSE protocol";
        }
        for (unsigned i = 1; r == 0 && i < e->n_workers; i++) {
                r = worker_start(&e->workers[i]);
                what = "cannot start threads for the mount";
        }
        (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
        if (r < 0)
                (void)snprintf(reason, reason_size, "%s: %s", what, strerror(-r));
        return r;
}

/* --- start and stop --- */

static struct fuse_edge *edge_new(const struct fuse_edge_config *config) {
        struct fuse_edge *e = NEW(struct fuse_edge);
        e->config = *config;
        e->config.source = xstrdup(config->source ? config->source : "coterie");
        e->config.mountpoint = xstrdup(config->mountpoint);
        e->fd = -1;
        pthread_condattr_t attr;
        (void)pthread_condattr_init(&attr);
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&e->changed, &attr);
        (void)pthread_condattr_destroy(&attr);
        (void)pthread_mutex_init(&e->lock, NULL);
        crew_init(&e->crew);
        return e;
}

static void session_end(struct fuse_edge *e) {
        if (e->session)
                fuse_session_destroy(steal_pointer(&e->session)); /* closes fd */
        else if (e->fd >= 0)
                (void)close(e->fd); /* a device that was never used */
        e->fd = -1;
}

void fuse_edge_free(struct fuse_edge *e) {
        if (!e)
                return;
        for (unsigned i = 0; i < e->n_workers && e->workers; i++) {
                free(e->workers[i].memory);
                free(e->workers[i].spare);
        }
        free(e->workers);
        if (e->notify)
                notify_free(e->notify);
        crew_done(&e->crew);
        (void)pthread_cond_destroy(&e->changed);
        (void)pthread_mutex_destroy(&e->lock);
        free(e->mountpoint);
        free((char *)e->config.source);
        free((char *)e->config.mountpoint);
        free(e);
}

static errint_t start(struct fuse_edge *e, char *reason, size_t reason_size) {
        errint_t r = fuse_mount_prepare(e->config.mountpoint, &e->mountpoint, reason, reason_size);
        if (r < 0)
                return r;
        r = workers_new(e);
        if (r == 0)
                r = edge_mount(&e->config, e->mountpoint, &e->fd, &e->mount, reason, reason_size);
        else
                (void)snprintf(reason, reason_size, "no memory for the mount's buffers");
        if (r < 0)
                return r;
        e->mounted = true;
        r = session_new(e);
        if (r < 0) {
                (void)snprintf(reason, reason_size, "libfuse does not start: %s", strerror(-r));
                return r;
        }
        r = threads_start(e, reason, reason_size);
        if (r == 0)
                edge_readahead(e->mount);
        return r;
}

errint_t fuse_edge_start(const struct fuse_edge_config *config, struct fuse_edge **ret, char *ret_reason, size_t reason_size) {
        struct fuse_edge *e = edge_new(config);
        errint_t r = start(e, ret_reason, reason_size);
        if (r < 0) {
                fuse_edge_stop(e);
                fuse_edge_free(e);
                return r;
        }
        *ret = e;
        return 0;
}

static bool workers_ended(struct fuse_edge *e, long within_ms) {
        struct timespec until = after_ms(within_ms);
        int r = 0;
        (void)pthread_mutex_lock(&e->lock);
        while (e->running > 0 && r == 0)
                r = pthread_cond_timedwait(&e->changed, &e->lock, &until);
        bool ended = e->running == 0;
        (void)pthread_mutex_unlock(&e->lock);
        return ended;
}

/* Unmounting ends the session, and with it the workers, unless somebody goes on using it. */
static void workers_stop(struct fuse_edge *e, bool unmounted) {
        if (!workers_ended(e, unmounted ? LINGER_MS : 0))
                (void)edge_abort(e->fd, e->mount); /* before Linux 5.2 it cannot: then they are cancelled where they wait for requests */
        crew_end(&e->crew);
        bool cancel = !workers_ended(e, ABORT_MS);
        for (unsigned i = 0; i < e->n_workers && e->workers; i++) {
                struct worker *w = &e->workers[i];
                if (w->started && cancel)
                        (void)pthread_cancel(w->thread); /* ESRCH: it has just ended */
                if (w->started)
                        (void)pthread_join(w->thread, NULL);
        }
}

void fuse_edge_stop(struct fuse_edge *e) {
        if (!e)
                return;
        (void)pthread_mutex_lock(&e->lock);
        e->stopping = true;
        (void)pthread_mutex_unlock(&e->lock);
        bool unmounted = e->mounted && edge_unmount(e->mountpoint, e->mount);
        struct timespec until = after_ms(STOP_WAIT_MS);
        edge_req_wait_all(e, &until);
        /* Names that are being expired wait for local operations: these are answered while the workers still run. */
        edge_req_orphan_all(e);
        if (e->notify)
                notify_stop(e->notify);
        workers_stop(e, unmounted);
        edge_req_orphan_all(e);
        session_end(e);
}

/* --- invalidation --- */

void fuse_edge_invalidate(struct fuse_edge *e, const struct change_set *changes, uint64_t seq, bool local,
                          void (*done)(void *ctx, uint64_t seq), void *ctx) {
        notify_changes(e->notify, changes, seq, local, done, ctx);
}

void fuse_edge_invalidate_inode(struct fuse_edge *e, uint64_t ino) {
        notify_inode(e->notify, ino, 0);
}

bool fuse_edge_knows(const struct fuse_edge *e, uint64_t ino) {
        return notify_knows(e->notify, ino);
}

void fuse_edge_invalidate_all(struct fuse_edge *e, void (*done)(void *ctx, uint64_t seq), void *ctx) {
        notify_all(e->notify, done, ctx);
}

unsigned fuse_edge_max_write(const struct fuse_edge *e) {
        return e->max_write;
}
