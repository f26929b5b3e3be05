/* net_member.c: one member of the transport's contract test. Joins, waits for a view of N members, multicasts COUNT messages of many sizes
 * while others do, and checks what net.h promises: a view comes before the first message; own messages are delivered, in the order sent;
 * each sender's messages keep their order. Prints the chained CRC of everything delivered: whoever runs the members compares them.
 *
 * usage: net_member loop|corosync N COUNT */
#include "base/hash.h"
#include "net/net.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NODES_MAX 64

static struct {
        pthread_mutex_t lock;
        pthread_cond_t moved;
        size_t members, wanted;
        bool quorate, writable, in_view;
        uint64_t delivered, expected;
        uint64_t next[NODES_MAX]; /* by node id: the number expected */
        uint32_t chain;
        const char *fault;
} member = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .writable = true};

static void fault(const char *what) {
        if (!member.fault)
                member.fault = what;
}

static void on_deliver(void *ctx, struct net_member sender, const void *data, size_t len) {
        uint64_t number;

        (void)ctx;
        pthread_mutex_lock(&member.lock);
        if (!member.in_view)
                fault("a message came before the first view");
        if (len < 8 || sender.node >= NODES_MAX) {
                fault("a message that nobody sent");
        } else {
                memcpy(&number, data, 8);
                if (number != member.next[sender.node]++)
                        fault("a sender's messages are out of order");
                member.chain = crc32c(member.chain, &sender.node, sizeof sender.node);
                member.chain = crc32c(member.chain, data, len);
                member.delivered++;
        }
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_view(void *ctx, struct net_ring ring, const struct net_member *members, size_t n) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        if (ring.seq == 0)
                fault("a view without a ring");
        for (size_t i = 1; i < n; i++)
                if (members[i - 1].node > members[i].node)
                        fault("members are not sorted");
        member.members = n;
        member.in_view = true;
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_quorum(void *ctx, const struct net_quorum *q) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        member.quorate = q->quorate;
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_writable(void *ctx) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        member.writable = true;
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_closed(void *ctx, const char *reason) {
        (void)ctx;
        (void)reason;
        fault("the connection was closed");
}

/* False after 30 s. */
static bool wait_for(bool (*reached)(void)) {
        struct timespec until;
        bool ok;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 30;
        pthread_mutex_lock(&member.lock);
        while (!(ok = reached()) && pthread_cond_timedwait(&member.moved, &member.lock, &until) == 0)
                ;
        pthread_mutex_unlock(&member.lock);
        return ok;
}

static bool all_here(void) { return member.members == member.wanted && member.quorate; }
static bool all_delivered(void) { return member.delivered >= member.expected; }
static bool can_send(void) { return member.writable; }

static void send_all(struct net *net, uint64_t count) {
        static uint8_t buffer[64 * 1024];

        for (uint64_t i = 0; i < count; i++) {
                size_t len = 8 + (i * 7919) % (i % 50 == 0 ? sizeof buffer - 8 : 600);
                struct iovec iov[2] = {{.iov_base = &i, .iov_len = 8}, {.iov_base = buffer, .iov_len = len - 8}};
                errint_t e;

                memset(buffer, (int)i, len);
                while ((e = net->ops->send(net, iov, 2)) == -EAGAIN) {
                        pthread_mutex_lock(&member.lock);
                        member.writable = false;
                        pthread_mutex_unlock(&member.lock);
                        if (!wait_for(can_send))
                                fault("writable() never came");
                }
                if (e < 0)
                        fault("send failed");
        }
}

int main(int argc, char **argv) {
        struct net_handler handler = {.deliver = on_deliver, .view = on_view, .quorum = on_quorum, .writable = on_writable, .closed = on_closed};
        struct net_corosync_config config = {.group = "coterie-contract"};
        struct net *net;
        uint64_t count;

        if (argc != 4) {
                fprintf(stderr, "usage: net_member loop|corosync N COUNT\n");
                return 2;
        }
        member.wanted = strtoul(argv[2], NULL, 10);
        count = strtoull(argv[3], NULL, 10);
        member.expected = member.wanted * count;
        net = strcmp(argv[1], "loop") == 0 ? net_loop_new(1, &handler) : net_corosync_new(&config, &handler);
        if (net->ops->start(net) < 0)
                return 1;
        if (!wait_for(all_here))
                fault("the view with all members never came");
        send_all(net, count);
        if (!wait_for(all_delivered))
                fault("not everything was delivered");
        sleep(member.wanted > 1); /* the others still need us in the group to get theirs */
        net->ops->leave(net);
        printf("node %u delivered %llu chain %08x %s\n", net->ops->node_id(net), (unsigned long long)member.delivered, member.chain,
               member.fault ? member.fault : "ok");
        net->ops->close(net);
        return member.fault != NULL;
}
