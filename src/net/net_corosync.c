/* net_corosync.c: the transport over corosync. One thread owns the connection: it connects, dispatches, sends what net_send queued, and
 * connects again when corosync went away. Everything else only touches the queue and the copy of what is known, under one lock. */
#include "corosync_link.h"

#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE_BYTES_MAX (16u << 20) /* net_send refuses above; repl's window keeps well below */
#define QUEUE_BYTES_LOW (QUEUE_BYTES_MAX / 2)
#define RECONNECT_MS    200
#define RETRY_MS        2   /* after TRY_AGAIN: corosync gives no notice when it takes messages again */
#define SEND_BATCH      32u /* messages between two looks at what was delivered */

struct message {
        struct message *next;
        size_t len;
        uint8_t data[];
};

struct net_corosync {
        struct net net;
        struct net_handler handler;
        char group[CPG_MAX_NAME_LENGTH];
        pthread_t thread;
        bool started;
        int wake_fd;
        struct corosync_link link; /* the thread's own */

        pthread_mutex_t lock; /* guards what follows */
        struct message *first, **last;
        size_t queued_bytes;
        bool connected, want_writable, stop, leave;
        uint32_t node;
        struct net_cluster_info info;
        struct corosync_names names;
};

/* A default mutex used rightly does not fail. */
static void lock(struct net_corosync *c) {
        (void)pthread_mutex_lock(&c->lock);
}
static void unlock(struct net_corosync *c) {
        (void)pthread_mutex_unlock(&c->lock);
}

static struct net_corosync *corosync_of(struct net *n) {
        return CONTAINER_OF(n, struct net_corosync, net);
}

static void wake(struct net_corosync *c) {
        uint64_t one = 1;

        (void)!write(c->wake_fd, &one, sizeof one); /* full means that it is awake already */
}

static void drop_queue(struct net_corosync *c) { /* lock held */
        while (c->first) {
                struct message *m = c->first;

                c->first = m->next;
                free(m);
        }
        c->last = &c->first;
        c->queued_bytes = 0;
}

static void refresh_info(struct net_corosync *c) {
        const struct net_quorum *q = &c->link.said;
        struct net_cluster_info info = {.connected = true,
                                        .quorate = q->quorate,
                                        .node_votes = q->node_votes,
                                        .total_votes = q->total_votes,
                                        .quorum_votes = q->quorum_votes,
                                        .expected_votes = q->expected_votes,
                                        .weak_reason = q->weak_reason};
        cleanup_free struct corosync_names *names = NEW(struct corosync_names);

        c->link.info_new = false;
        link_read_info(&c->link, &info, names);
        lock(c);
        c->info = info;
        c->names = *names;
        unlock(c);
}

static bool connect_once(struct net_corosync *c) {
        char reason[sizeof c->info.problem] = "";
        bool news;

        if (link_open(&c->link, c->group, &c->handler, reason, sizeof reason) < 0) {
                lock(c);
                news = strcmp(c->info.problem, reason) != 0;
                (void)memcpy(c->info.problem, reason, sizeof reason);
                unlock(c);
                if (news)
                        log_warning("not connected to the cluster: %s; trying again", reason);
                return false;
        }
        refresh_info(c);
        lock(c);
        c->node = c->link.node;
        c->connected = true;
        unlock(c);
        log_info("connected to corosync as node %u of cluster \"%s\"", c->link.node, c->info.cluster_name);
        return true;
}

static void disconnected(struct net_corosync *c, const char *reason) {
        lock(c);
        c->connected = false;
        c->info.connected = false;
        (void)snprintf(c->info.problem, sizeof c->info.problem, "%s", reason);
        drop_queue(c);
        c->want_writable = false;
        unlock(c);
        c->handler.closed(c->handler.ctx, reason); /* first: to close takes libqb two seconds when corosync was killed */
        link_close(&c->link);
}

/* Sends from the head of the queue. ret_blocked: corosync refused one for now. */
static errint_t send_some(struct net_corosync *c, bool *ret_blocked) {
        *ret_blocked = false;
        for (unsigned i = 0; i < SEND_BATCH; i++) {
                struct message *m;
                struct iovec iov;
                errint_t e;

                lock(c);
                m = c->first;
                unlock(c);
                if (!m)
                        return 0;
                iov = (struct iovec){.iov_base = m->data, .iov_len = m->len};
                e = link_send(&c->link, &iov, 1);
                if (e == -EAGAIN) {
                        *ret_blocked = true;
                        return 0;
                }
                if (e < 0)
                        return e;
                lock(c);
                c->first = m->next;
                if (!c->first)
                        c->last = &c->first;
                c->queued_bytes -= m->len;
                unlock(c);
                free(m);
        }
        return 0;
}

static void tell_writable(struct net_corosync *c) {
        bool tell;

        lock(c);
        tell = c->want_writable && c->queued_bytes <= QUEUE_BYTES_LOW;
        if (tell)
                c->want_writable = false;
        unlock(c);
        if (tell)
                c->handler.writable(c->handler.ctx);
}

static bool stopping(struct net_corosync *c) {
        bool stop;

        lock(c);
        stop = c->stop;
        unlock(c);
        return stop;
}

static bool has_queued(struct net_corosync *c) {
        bool queued;

        lock(c);
        queued = c->first != NULL;
        unlock(c);
        return queued;
}

/* One connected life: until the connection is gone or stop is asked for. */
static errint_t serve(struct net_corosync *c) {
        struct pollfd fds[] = {{.fd = c->link.cpg_fd, .events = POLLIN},
                               {.fd = c->link.quorum_fd, .events = POLLIN},
                               {.fd = c->link.cmap_fd, .events = POLLIN},
                               {.fd = c->wake_fd, .events = POLLIN}};
        bool blocked = false;

        for (;;) {
                int timeout_ms = blocked ? RETRY_MS : has_queued(c) ? 0 : 1000;
                uint64_t drain;
                errint_t e;

                if (poll(fds, ARRAY_LEN(fds), timeout_ms) < 0 && errno != EINTR)
                        return -errno;
                if (fds[3].revents & POLLIN)
                        (void)!read(c->wake_fd, &drain, sizeof drain);
                if (stopping(c))
                        return 0;
                e = link_dispatch(&c->link);
                if (e < 0)
                        return e;
                if (c->link.info_new)
                        refresh_info(c);
                e = send_some(c, &blocked);
                if (e < 0)
                        return e;
                tell_writable(c);
        }
}

static void *corosync_thread(void *arg) {
        struct net_corosync *c = arg;

        while (!stopping(c)) {
                errint_t e;

                if (!connect_once(c)) {
                        struct pollfd fd = {.fd = c->wake_fd, .events = POLLIN};

                        uint64_t drain;

                        if (poll(&fd, 1, RECONNECT_MS) > 0) /* stop, or a message queued just before the connection was lost */
                                (void)!read(c->wake_fd, &drain, sizeof drain);
                        continue;
                }
                e = serve(c);
                if (e == 0) {
                        if (c->leave)
                                link_leave(&c->link, c->group);
                        link_close(&c->link);
                        break;
                }
                disconnected(c, e == -EEXIST ? LINK_TWICE : "the connection to corosync was lost");
        }
        return NULL;
}

static errint_t corosync_start(struct net *n) {
        struct net_corosync *c = corosync_of(n);
        int e;

        PRE(!c->started);
        e = pthread_create(&c->thread, NULL, corosync_thread, c);
        if (e != 0)
                return -e;
        (void)pthread_setname_np(c->thread, "corosync"); /* for people who look */
        c->started = true;
        return 0;
}

static errint_t corosync_send(struct net *n, const struct iovec *iov, int n_iov) {
        struct net_corosync *c = corosync_of(n);
        struct message *m;
        size_t len = 0, at = 0;
        bool was_empty;

        for (int i = 0; i < n_iov; i++)
                len += iov[i].iov_len;
        if (len == 0 || len > NET_MESSAGE_MAX)
                return -EMSGSIZE;
        m = xmalloc(sizeof *m + len);
        m->next = NULL;
        m->len = len;
        for (int i = 0; i < n_iov; i++) {
                if (iov[i].iov_len > 0)
                        memcpy(m->data + at, iov[i].iov_base, iov[i].iov_len);
                at += iov[i].iov_len;
        }
        lock(c);
        if (!c->connected || c->queued_bytes + len > QUEUE_BYTES_MAX) {
                errint_t e = c->connected ? -EAGAIN : -ENOTCONN;

                c->want_writable |= c->connected;
                unlock(c);
                free(m);
                return e;
        }
        was_empty = c->first == NULL;
        *c->last = m;
        c->last = &m->next;
        c->queued_bytes += len;
        unlock(c);
        if (was_empty)
                wake(c);
        return 0;
}

static void end_thread(struct net_corosync *c, bool leave) {
        if (!c->started)
                return;
        lock(c);
        c->stop = true;
        c->leave = leave;
        c->connected = false;
        unlock(c);
        wake(c);
        if (pthread_equal(pthread_self(), c->thread)) /* from a callback: it ends when that returns; close waits for it */
                return;
        (void)pthread_join(c->thread, NULL); /* started once, joined once */
        c->started = false;
}

static void corosync_leave(struct net *n) {
        end_thread(corosync_of(n), true);
}

static void corosync_close(struct net *n) {
        struct net_corosync *c = corosync_of(n);

        end_thread(c, false);
        drop_queue(c);
        cleanup_fdp_(&c->wake_fd);
        (void)pthread_mutex_destroy(&c->lock); /* nobody holds it */
        free(c);
}

static uint32_t corosync_node_id(struct net *n) {
        struct net_corosync *c = corosync_of(n);
        uint32_t node;

        lock(c);
        node = c->node;
        unlock(c);
        return node;
}

static errint_t corosync_node_name(struct net *n, uint32_t node, char *buf, size_t size) {
        struct net_corosync *c = corosync_of(n);
        errint_t e = -ENOENT;

        lock(c);
        for (size_t i = 0; i < c->names.n; i++)
                if (c->names.node[i].node == node && c->names.node[i].name[0] != '\0') {
                        (void)snprintf(buf, size, "%s", c->names.node[i].name);
                        e = 0;
                }
        unlock(c);
        return e;
}

static const struct net_ops corosync_ops = {
        .start = corosync_start,
        .send = corosync_send,
        .leave = corosync_leave,
        .close = corosync_close,
        .node_id = corosync_node_id,
        .node_name = corosync_node_name,
};

struct net *net_corosync_new(const struct net_corosync_config *config, const struct net_handler *handler) {
        struct net_corosync *c = NEW(struct net_corosync);

        PRE(strlen(config->group) > 0 && strlen(config->group) < sizeof c->group);
        c->net.ops = &corosync_ops;
        c->handler = *handler;
        (void)snprintf(c->group, sizeof c->group, "%s", config->group);
        c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        POST(c->wake_fd >= 0);
        c->last = &c->first;
        (void)pthread_mutex_init(&c->lock, NULL); /* default attributes: cannot fail */
        return &c->net;
}

void net_corosync_info(struct net *n, struct net_cluster_info *ret) {
        struct net_corosync *c = corosync_of(n);

        lock(c);
        *ret = c->info;
        unlock(c);
}
