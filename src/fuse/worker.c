/* worker.c: the receive loop. Each request is seen raw first: what libfuse does not decode is rewritten in place to what it does, or
 * read from `worker_self->raw` by the operation. */
#include "edge.h"

#include "base/log.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WARM_BUFFERS 3              /* so many workers keep a large request's pages for the next one */
#define WARM_BYTES   (256u * 1024u) /* and each keeps these */

_Thread_local struct worker *worker_self;

/* The extended header carries 8 bytes more than libfuse expects: the headers move up against name and value. */
static struct fuse_in_header *shorten_setxattr(struct fuse_in_header *in, uint32_t *ret_flags) {
        if (in->len < sizeof(*in) + sizeof(struct fuse_setxattr_in))
                return in;
        *ret_flags = ((const struct fuse_setxattr_in *)(const void *)(in + 1))->setxattr_flags;
        const size_t extra = sizeof(struct fuse_setxattr_in) - FUSE_COMPAT_SETXATTR_IN_SIZE;
        char *to = (char *)in + extra;
        memmove(to, in, sizeof(*in) + FUSE_COMPAT_SETXATTR_IN_SIZE);
        in = (struct fuse_in_header *)(void *)to;
        in->len -= (uint32_t)extra;
        return in;
}

/* Interrupts are matched here, not by libfuse, whose hook could outlive the request it names. One that overtook its request is handed
 * back: the kernel sends it again as long as the request waits. */
static void interrupt(struct fuse_edge *e, const struct fuse_in_header *in) {
        if (in->len < sizeof(*in) + sizeof(struct fuse_interrupt_in))
                return;
        uint64_t unique = ((const struct fuse_interrupt_in *)(in + 1))->unique;
        if (edge_req_interrupt(e, unique)) {
                fs_interrupt(e->config.fs, unique);
                return;
        }
        struct fuse_out_header out = {.len = sizeof(out), .error = -EAGAIN, .unique = in->unique};
        (void)!write(e->fd, &out, sizeof(out)); /* ENOENT: the request has been answered meanwhile */
}

static void handle(struct worker *w, size_t n) {
        struct fuse_edge *e = w->edge;
        struct fuse_in_header *in = (struct fuse_in_header *)(void *)(w->memory + EDGE_HEADROOM);
        if (n < sizeof(*in) || in->len != n) {
                log_error("the kernel sent a FUSE request of %zu bytes whose header says otherwise", n);
                return;
        }
        metric_add(e->config.metrics, METRIC_FUSE_REQUESTS, 1);
        if (in->opcode == FUSE_INTERRUPT) {
                interrupt(e, in);
                return;
        }
        w->tmpfile = in->opcode == FUSE_TMPFILE;
        w->setxattr_flags = 0;
        if (w->tmpfile) {
                in->opcode = FUSE_CREATE;
        } else if (in->opcode == FUSE_SETXATTR && e->setxattr_ext) {
                in = shorten_setxattr(in, &w->setxattr_flags);
        }
        w->raw = in;
        struct fuse_buf buf = {.mem = in, .size = in->len};
        fuse_session_process_buf(e->session, &buf);
        w->raw = NULL;
        atomic_store_explicit(&w->active, 0, memory_order_release);
}

/* Returns 0 to go on, 1 when the mount is gone, or what is wrong with the device. */
static errint_t receive(struct worker *w, size_t *ret_n) {
        crew_wait(&w->edge->crew);
        /* Stopping cancels workers here, and only here: unmounting wakes them as well, but not while the mount lives on elsewhere. */
        (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        ssize_t n = read(w->edge->fd, w->memory + EDGE_HEADROOM, w->size);
        int error = errno;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        crew_taken(&w->edge->crew, n > 0);
        if (n >= 0) {
                *ret_n = (size_t)n;
                return 0;
        }
        if (error == EINTR || error == EAGAIN || error == ENOENT) { /* ENOENT: the request was aborted before it was read */
                *ret_n = 0;
                return 0;
        }
        return error == ENODEV || error == ECONNABORTED ? 1 : -error;
}

void worker_end(struct fuse_edge *e, errint_t error) {
        (void)pthread_mutex_lock(&e->lock);
        bool first = e->ready && !e->ended && !e->stopping;
        e->ended = true;
        e->running--;
        if (error < 0 && e->end_error == 0)
                e->end_error = error;
        (void)pthread_cond_broadcast(&e->changed);
        (void)pthread_mutex_unlock(&e->lock);
        crew_end(&e->crew);
        if (first && e->config.ended)
                e->config.ended(e->config.ctx, error);
}

static void become_ready(struct fuse_edge *e) {
        (void)pthread_mutex_lock(&e->lock);
        e->ready = true;
        (void)pthread_cond_broadcast(&e->changed);
        (void)pthread_mutex_unlock(&e->lock);
}

/* Every worker gets its share of large writes in the end: a megabyte for each of many processors would be more than the tree. */
static void give_back(const struct worker *w, size_t n) {
        if (n > WARM_BYTES && w - w->edge->workers >= WARM_BUFFERS)
                (void)madvise(w->memory + WARM_BYTES, w->size - WARM_BYTES, MADV_DONTNEED); /* a hint; memory is aligned to pages */
}

void *worker_main(void *arg) {
        struct worker *w = arg;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        worker_self = w;
        errint_t r = 0;
        while (r == 0) {
                size_t n = 0;
                r = receive(w, &n);
                if (r != 0 || n == 0)
                        continue;
                const struct fuse_in_header *in = (const struct fuse_in_header *)(const void *)(w->memory + EDGE_HEADROOM);
                bool init = n >= sizeof(*in) && in->opcode == FUSE_INIT;
                handle(w, n);
                crew_handled(&w->edge->crew);
                give_back(w, n);
                if (init && fuse_session_exited(w->edge->session))
                        r = -EPROTO; /* libfuse and the kernel have no version in common */
                else if (init)
                        become_ready(w->edge);
        }
        worker_end(w->edge, MIN_OF(r, 0));
        return NULL;
}
