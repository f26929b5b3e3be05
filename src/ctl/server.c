/* server.c: the control socket's thread. */
#include "ctl/server.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct client {
        int fd; /* -1: free slot */
        uint64_t id;
        uint8_t header[CTL_HEADER];
        uint8_t *in; /* the body that is being read; NULL: the header is */
        size_t in_len, in_want;
        uint8_t *out;
        size_t out_len, out_at;
        bool busy;         /* a call is under way: nothing is read meanwhile */
        bool closing;      /* after the answer is written */
        uint64_t begun_ms; /* of an unfinished request or answer; 0: idle */
        uint64_t idle_ms;  /* since when, if it is */
        uint64_t told_ms;  /* of a busy one: when it heard of us last */
};

struct ctl_call {
        struct ctl_call *next;
        struct ctl_server *server;
        uint64_t client;
        struct ctl_request request;
        struct enc reply;
};

struct ctl_server {
        struct ctl_server_config config;
        char *path;
        int listener, wake;
        pthread_t thread;
        pthread_mutex_t lock;
        struct ctl_call *answered; /* protected by lock */
        bool stopping, ending;     /* protected by lock */
        bool quiet;                /* protected by lock: the thread has seen `stopping` and runs no command any more */
        pthread_cond_t changed;
        _Atomic uint64_t turns;
        /* The thread's own: */
        struct client clients[CTL_CLIENTS_MAX];
        uint64_t next_id;
};

static uint64_t now_ms(void) {
        struct timespec ts;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
        return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

/* --- calls */

size_t ctl_call_count(const struct ctl_call *c) {
        return c->request.n - 1;
}

const char *ctl_call_word(const struct ctl_call *c, size_t i) {
        PRE(i + 1 < c->request.n);
        return c->request.words[i + 1];
}

void *ctl_call_ctx(const struct ctl_call *c) {
        return c->server->config.ctx;
}

static void wake(struct ctl_server *s) {
        uint64_t one = 1;
        while (write(s->wake, &one, sizeof(one)) < 0 && errno == EINTR)
                ; /* EAGAIN: it is awake */
}

void ctl_call_reply(struct ctl_call *c, enum ctl_status status, const char *message, const void *body, size_t len) {
        struct ctl_server *s = c->server;

        enc_init(&c->reply, CTL_REPLY_MAX + CTL_HEADER);
        if (ctl_reply_encode(&c->reply, status, message, body, len) < 0) {
                enc_reset(&c->reply);
                c->reply.err = 0;
                (void)ctl_reply_encode(&c->reply, CTL_FAILED, "the answer is too large", NULL, 0); /* this one fits */
        }
        (void)pthread_mutex_lock(&s->lock);
        c->next = s->answered;
        s->answered = c;
        (void)pthread_mutex_unlock(&s->lock);
        wake(s);
}

void ctl_call_fail(struct ctl_call *c, enum ctl_status status, const char *fmt, ...) {
        char message[CTL_MESSAGE_MAX];
        va_list ap;

        va_start(ap, fmt);
        (void)vsnprintf(message, sizeof(message), fmt, ap);
        va_end(ap);
        ctl_call_reply(c, status, message, NULL, 0);
}

static void call_free(struct ctl_call *c) {
        ctl_request_done(&c->request);
        enc_done(&c->reply);
        free(c);
}

/* --- clients */

static void client_close(struct client *c) {
        if (c->fd >= 0)
                (void)close(c->fd);
        free(c->in);
        free(c->out);
        *c = (struct client){.fd = -1};
}

static void client_answer(struct client *c, const struct enc *reply, bool closing) {
        c->out = xmalloc(reply->len);
        memcpy(c->out, reply->data, reply->len);
        c->out_len = reply->len;
        c->out_at = 0;
        c->busy = false;
        c->closing = closing;
        c->begun_ms = now_ms();
}

/* What is not a request ends the connection, after saying why. */
static void client_refuse(struct client *c, const char *why) {
        CLEANUP(enc_done) struct enc e;

        enc_init(&e, CTL_MESSAGE_MAX + 64);
        (void)ctl_reply_encode(&e, CTL_FAILED, why, NULL, 0); /* fits */
        client_answer(c, &e, true);
}

static bool peer_is_trusted(int fd) {
        struct ucred peer;
        socklen_t len = sizeof(peer);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

/* A free slot, or that of the client which has been idle the longest: connections that are kept for nothing lock nobody out. */
static struct client *slot_for_newcomer(struct ctl_server *s) {
        struct client *idle = NULL;

        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++) {
                struct client *c = &s->clients[i];
                if (c->fd < 0)
                        return c;
                if (!c->busy && c->begun_ms == 0 && (!idle || c->idle_ms < idle->idle_ms))
                        idle = c;
        }
        return idle;
}

static void accept_one(struct ctl_server *s) {
        cleanup_fd int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct client *c;

        if (fd < 0 || !peer_is_trusted(fd) || !(c = slot_for_newcomer(s)))
                return;
        client_close(c);
        *c = (struct client){.fd = steal_fd(&fd), .id = ++s->next_id, .in_want = CTL_HEADER, .idle_ms = now_ms()};
}

/* Its patience ended before we came to read what it asked: it was told that nothing came of it. */
static bool client_has_left(const struct client *c) {
        struct pollfd p = {.fd = c->fd};
        return poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR);
}

static void run_request(struct ctl_server *s, struct client *c, struct ctl_request *request) {
        if (client_has_left(c)) {
                ctl_request_done(request);
                client_close(c);
                return;
        }
        struct ctl_call *call = NEW(struct ctl_call);

        *call = (struct ctl_call){.server = s, .client = c->id, .request = *request};
        c->busy = true;
        c->begun_ms = 0;
        c->told_ms = now_ms();
        for (size_t i = 0; i < s->config.n_commands; i++) {
                const struct ctl_command *command = &s->config.commands[i];
                if (strcmp(command->name, request->words[0]) != 0)
                        continue;
                if (request->n - 1 < command->words_min || request->n - 1 > command->words_max)
                        ctl_call_fail(call, CTL_USAGE, "usage: %s", command->usage);
                else
                        command->run(call);
                return;
        }
        ctl_call_fail(call, CTL_USAGE, "this daemon does not know the command; it may be older than the client");
}

/* A header or a body is complete. */
static void client_complete(struct ctl_server *s, struct client *c) {
        if (!c->in) {
                size_t n;
                if (ctl_frame_length(c->header, CTL_REQUEST_MAX, &n) < 0) {
                        client_refuse(c, "not a request: bad length");
                        return;
                }
                c->in = xmalloc(n);
                c->in_len = 0;
                c->in_want = n;
                return;
        }
        struct ctl_request request;
        errint_t error = ctl_request_decode(c->in, c->in_want, &request);
        free(c->in);
        c->in = NULL;
        c->in_len = 0;
        c->in_want = CTL_HEADER;
        if (error < 0)
                client_refuse(c, error == -EPROTO ? "this daemon speaks another version of the control protocol" : "not a request");
        else
                run_request(s, c, &request);
}

static void client_read(struct ctl_server *s, struct client *c) {
        while (c->fd >= 0 && !c->busy && !c->out) {
                uint8_t *to = (c->in ? c->in : c->header) + c->in_len;
                ssize_t got = recv(c->fd, to, c->in_want - c->in_len, 0);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0 && errno == EAGAIN)
                        return;
                if (got <= 0) {
                        client_close(c);
                        return;
                }
                if (c->begun_ms == 0)
                        c->begun_ms = now_ms();
                c->in_len += (size_t)got;
                if (c->in_len == c->in_want)
                        client_complete(s, c);
        }
}

static void client_write(struct client *c) {
        while (c->out_at < c->out_len) {
                ssize_t sent = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
                if (sent < 0 && errno == EINTR)
                        continue;
                if (sent < 0 && errno == EAGAIN)
                        return;
                if (sent < 0) {
                        client_close(c);
                        return;
                }
                c->out_at += (size_t)sent;
                c->begun_ms = now_ms();
        }
        free(c->out);
        c->out = NULL;
        c->begun_ms = 0;
        c->idle_ms = now_ms();
        if (c->closing)
                client_close(c);
}

/* Its command runs: it hears that we live. What is sent is so short that the socket takes it whole, unless the client reads nothing. */
static void client_tell(struct client *c, uint64_t now) {
        CLEANUP(enc_done) struct enc e;

        c->told_ms = now;
        enc_init(&e, CTL_HEADER + 2);
        (void)ctl_wait_encode(&e); /* fits */
        ssize_t sent = send(c->fd, e.data, e.len, MSG_NOSIGNAL);
        if (sent >= 0 && (size_t)sent < e.len)
                client_close(c);
}

static void take_answers(struct ctl_server *s) {
        struct ctl_call *list;

        (void)pthread_mutex_lock(&s->lock);
        list = steal_pointer(&s->answered);
        (void)pthread_mutex_unlock(&s->lock);
        while (list) {
                struct ctl_call *call = list;
                list = call->next;
                for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
                        if (s->clients[i].fd >= 0 && s->clients[i].id == call->client)
                                client_answer(&s->clients[i], &call->reply, false);
                call_free(call);
        }
}

/* --- the thread */

struct poll_set {
        struct pollfd fds[CTL_CLIENTS_MAX + 2];
        struct client *of[CTL_CLIENTS_MAX + 2];
        nfds_t n;
        int timeout_ms;
};

static void wake_after(struct poll_set *p, uint64_t ms) {
        p->timeout_ms = p->timeout_ms < 0 ? (int)ms : MIN_OF(p->timeout_ms, (int)ms);
}

/* A full house lets the others wait in the socket's backlog, until somebody leaves or has been idle long enough to be put out. */
static bool may_accept(struct ctl_server *s, struct poll_set *p, uint64_t now) {
        const struct client *c = slot_for_newcomer(s);
        uint64_t until;

        if (!c)
                return false;
        until = c->fd < 0 ? 0 : c->idle_ms + CTL_CROWDED_MS;
        if (now < until)
                wake_after(p, until - now);
        return now >= until;
}

static void gather(struct ctl_server *s, struct poll_set *p, bool stopping) {
        uint64_t now = now_ms();

        p->n = 0;
        p->timeout_ms = -1;
        p->fds[p->n++] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++) {
                struct client *c = &s->clients[i];
                if (c->fd >= 0 && c->begun_ms != 0 && now >= c->begun_ms + CTL_IDLE_MS)
                        client_close(c);
                if (c->fd >= 0 && c->busy && now >= c->told_ms + CTL_WAIT_MS)
                        client_tell(c, now);
                if (c->fd < 0)
                        continue;
                if (c->busy)
                        wake_after(p, c->told_ms + CTL_WAIT_MS - now);
                if (c->begun_ms != 0)
                        wake_after(p, c->begun_ms + CTL_IDLE_MS - now);
                p->of[p->n] = c;
                p->fds[p->n++] = (struct pollfd){.fd = c->fd, .events = (short)(c->out ? POLLOUT : c->busy || stopping ? 0 : POLLIN)};
        }
        p->of[p->n] = NULL;
        p->fds[p->n++] = (struct pollfd){.fd = !stopping && may_accept(s, p, now) ? s->listener : -1, .events = POLLIN};
}

static void serve(struct ctl_server *s, struct poll_set *p) {
        uint64_t drop;

        if (p->fds[0].revents)
                (void)!read(s->wake, &drop, sizeof(drop)); /* the flags it stands for are looked at in any case */
        take_answers(s);
        for (nfds_t i = 1; i + 1 < p->n; i++) {
                struct client *c = p->of[i];
                if (c->fd != p->fds[i].fd || !p->fds[i].revents)
                        continue;
                if (c->out)
                        client_write(c);
                else if (c->busy)
                        client_close(c); /* POLLHUP: nobody waits for the answer */
                else
                        client_read(s, c);
        }
        if (p->fds[p->n - 1].revents)
                accept_one(s);
}

static void *server_main(void *arg) {
        struct ctl_server *s = arg;
        struct poll_set p;

        for (;;) {
                (void)pthread_mutex_lock(&s->lock);
                bool stopping = s->stopping, ending = s->ending;
                if (stopping || ending) {
                        s->quiet = true;
                        (void)pthread_cond_broadcast(&s->changed);
                }
                (void)pthread_mutex_unlock(&s->lock);
                if (ending)
                        return NULL;
                gather(s, &p, stopping);
                int n = poll(p.fds, p.n, p.timeout_ms);
                atomic_fetch_add_explicit(&s->turns, 1, memory_order_relaxed);
                if (n >= 0)
                        serve(s, &p);
        }
}

/* --- life */

static errint_t open_listener(const char *path, int *ret) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        mode_t mask;
        int bound;

        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, strlen(path) + 1);
        cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (unlink(path) < 0 && errno != ENOENT)
                return -errno;
        mask = umask(0177); /* before there are other threads of the daemon that create files */
        bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
        (void)umask(mask);
        if (bound < 0 || listen(fd, (int)CTL_CLIENTS_MAX) < 0)
                return -errno;
        *ret = steal_fd(&fd);
        return 0;
}

errint_t ctl_server_start(const struct ctl_server_config *config, struct ctl_server **ret) {
        struct ctl_server *s = NEW(struct ctl_server);
        errint_t error;

        s->config = *config;
        s->path = xstrdup(config->path);
        s->listener = s->wake = -1;
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
                s->clients[i].fd = -1;
        (void)pthread_mutex_init(&s->lock, NULL);
        (void)pthread_cond_init(&s->changed, NULL);
        error = open_listener(s->path, &s->listener);
        if (error == 0 && (s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
                error = -errno;
        if (error == 0)
                error = -pthread_create(&s->thread, NULL, server_main, s);
        if (error < 0) {
                if (s->listener >= 0)
                        (void)unlink(s->path);
                cleanup_fdp_(&s->listener);
                cleanup_fdp_(&s->wake);
                free(s->path);
                free(s);
                return error;
        }
        *ret = s;
        return 0;
}

uint64_t ctl_server_turns(struct ctl_server *s) {
        uint64_t turns = atomic_load_explicit(&s->turns, memory_order_relaxed);
        wake(s);
        return turns;
}

void ctl_server_stop(struct ctl_server *s) {
        (void)unlink(s->path); /* gone already if somebody emptied the directory */
        (void)pthread_mutex_lock(&s->lock);
        s->stopping = true;
        wake(s);
        while (!s->quiet)
                (void)pthread_cond_wait(&s->changed, &s->lock);
        (void)pthread_mutex_unlock(&s->lock);
}

void ctl_server_free(struct ctl_server *s) {
        if (!s)
                return;
        ctl_server_stop(s);
        (void)pthread_mutex_lock(&s->lock);
        s->ending = true;
        (void)pthread_mutex_unlock(&s->lock);
        wake(s);
        (void)pthread_join(s->thread, NULL);
        take_answers(s);
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++) {
                if (s->clients[i].out)
                        client_write(&s->clients[i]); /* as much as the socket takes */
                client_close(&s->clients[i]);
        }
        cleanup_fdp_(&s->listener);
        cleanup_fdp_(&s->wake);
        (void)pthread_mutex_destroy(&s->lock);
        (void)pthread_cond_destroy(&s->changed);
        free(s->path);
        free(s);
}
