/* net_loop.c: the transport of a node on its own: a view of one member, quorate at once, and every message comes back to its sender
 * before net_send returns. No thread, no memory between calls. */
#include "net/net.h"

#include <string.h>
#include <unistd.h>

struct net_loop {
        struct net net;
        struct net_handler handler;
        struct net_member self;
        bool started;
};

static struct net_loop *loop_of(struct net *n) {
        return CONTAINER_OF(n, struct net_loop, net);
}

static errint_t loop_start(struct net *n) {
        struct net_loop *l = loop_of(n);
        struct net_ring ring = {.node = l->self.node, .seq = 1};
        struct net_quorum q = {.ring = ring,
                               .quorate = true,
                               .nodes = &l->self.node,
                               .n_nodes = 1,
                               .expected_votes = 1,
                               .total_votes = 1,
                               .weak_reason = ""};

        PRE(!l->started);
        l->started = true;
        l->self.pid = (uint32_t)getpid();
        l->handler.view(l->handler.ctx, ring, &l->self, 1);
        l->handler.quorum(l->handler.ctx, &q);
        return 0;
}

static errint_t loop_send(struct net *n, const struct iovec *iov, int n_iov) {
        struct net_loop *l = loop_of(n);
        cleanup_free uint8_t *joined = NULL;
        size_t len = 0, at = 0;

        if (!l->started)
                return -ENOTCONN;
        for (int i = 0; i < n_iov; i++)
                len += iov[i].iov_len;
        if (len == 0 || len > NET_MESSAGE_MAX)
                return -EMSGSIZE;
        if (n_iov == 1) {
                l->handler.deliver(l->handler.ctx, l->self, iov[0].iov_base, len);
                return 0;
        }
        joined = xmalloc(len);
        for (int i = 0; i < n_iov; i++) {
                if (iov[i].iov_len > 0)
                        memcpy(joined + at, iov[i].iov_base, iov[i].iov_len);
                at += iov[i].iov_len;
        }
        l->handler.deliver(l->handler.ctx, l->self, joined, len);
        return 0;
}

static void loop_leave(struct net *n) {
        loop_of(n)->started = false;
}

static void loop_close(struct net *n) {
        free(loop_of(n));
}

static uint32_t loop_node_id(struct net *n) {
        return loop_of(n)->self.node;
}

static errint_t loop_node_name(struct net *n, uint32_t node, char *buf, size_t size) {
        if (node != loop_of(n)->self.node)
                return -ENOENT;
        /* The name need not resolve, and nobody else has to know it. */
        if (gethostname(buf, size) < 0)
                return -errno;
        buf[size - 1] = '\0';
        return 0;
}

static const struct net_ops loop_ops = {
        .start = loop_start,
        .send = loop_send,
        .leave = loop_leave,
        .close = loop_close,
        .node_id = loop_node_id,
        .node_name = loop_node_name,
};

struct net *net_loop_new(uint32_t node, const struct net_handler *handler) {
        struct net_loop *l = NEW(struct net_loop);

        PRE(node != 0);
        l->net.ops = &loop_ops;
        l->self = (struct net_member){.node = node};
        l->handler = *handler;
        return &l->net;
}
