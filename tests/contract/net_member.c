/* net_member.c: one member of the transport's contract test (net_contract.h), on loopback or corosync. Joins, waits for a view of N
 * members, multicasts COUNT messages of many sizes while others do. Prints the chained CRC of everything delivered: whoever runs the
 * members compares them.
 *
 * usage: net_member loop|corosync N COUNT */
#include "net_contract.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
        pthread_mutex_t lock;
        pthread_cond_t moved;
        size_t wanted;
        uint64_t expected;
        bool writable;
        struct contract seen;
} member = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .writable = true};

static void on_deliver(void *ctx, struct net_member sender, const void *data, size_t len) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        contract_deliver(&member.seen, sender.node, data, len);
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_view(void *ctx, struct net_ring ring, const struct net_member *members, size_t n) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        contract_view(&member.seen, ring.seq, members, n);
        pthread_cond_broadcast(&member.moved);
        pthread_mutex_unlock(&member.lock);
}

static void on_quorum(void *ctx, const struct net_quorum *q) {
        (void)ctx;
        pthread_mutex_lock(&member.lock);
        member.seen.quorate = q->quorate;
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
        pthread_mutex_lock(&member.lock);
        contract_fault(&member.seen, "the connection was closed");
        pthread_mutex_unlock(&member.lock);
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

static bool all_here(void) {
        return member.seen.members == member.wanted && member.seen.quorate;
}
static bool all_delivered(void) {
        return member.seen.delivered >= member.expected;
}
static bool can_send(void) {
        return member.writable;
}

static void fault(const char *what) {
        pthread_mutex_lock(&member.lock);
        contract_fault(&member.seen, what);
        pthread_mutex_unlock(&member.lock);
}

static void send_all(struct net *net, uint64_t count) {
        static uint8_t buffer[CONTRACT_MESSAGE_MAX];

        for (uint64_t i = 0; i < count; i++) {
                size_t len = contract_message(i, buffer);
                struct iovec iov[2] = {{.iov_base = buffer, .iov_len = 8}, {.iov_base = buffer + 8, .iov_len = len - 8}};
                errint_t e;

                while ((e = net->ops->send(net, iov, 2)) == -EAGAIN) {
                        if (!wait_for(can_send))
                                fault("writable() never came");
                        pthread_mutex_lock(&member.lock);
                        member.writable = false;
                        pthread_mutex_unlock(&member.lock);
                }
                if (e < 0)
                        fault("send failed");
        }
}

int main(int argc, char **argv) {
        struct net_handler handler = {
                .deliver = on_deliver, .view = on_view, .quorum = on_quorum, .writable = on_writable, .closed = on_closed};
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
        printf("node %u delivered %llu chain %08x %s\n", net->ops->node_id(net), (unsigned long long)member.seen.delivered,
               member.seen.chain, member.seen.fault ? member.seen.fault : "ok");
        net->ops->close(net);
        return member.seen.fault != NULL;
}
