/* net.h: the transport contract: an ordered multicast with membership, as corosync's CPG gives it and no better. Implementations:
 * net_loop (one node, for standalone), net_corosync, and the simulator's.
 *
 * Promised: every member of a view that delivers two messages delivers them in the same order; a sender's messages keep their order; a
 * sender delivers its own messages. Not promised: that all members of a view deliver the same tail before the next view; that a
 * message sent in one view is delivered in it; that CONFCHG and TOTEM come together; that quorum notices come in any order
 * relative to views, or at all.
 *
 * Threads: callbacks come from the transport's own thread (net_loop: from the thread that calls net_send), one at a time; they hand
 * the event over and return. net_send never blocks and never sleeps. */
#pragma once

#include "base/base.h"
#include <sys/uio.h>

struct net_member {
        uint32_t node, pid;
};
struct net_ring {
        uint32_t node;
        uint64_t seq;
};
struct net_quorum {
        struct net_ring ring;
        bool quorate;
        const uint32_t *nodes;
        size_t n_nodes;
        uint32_t expected_votes, total_votes;
        bool weak; /* two_node, qdevice, tie-breaker …: quorums need not intersect */
        const char *weak_reason; /* in words, or ""; static */
        uint32_t node_votes, quorum_votes, device_votes; /* this node's own; how many make a quorum; a quorum device's in total_votes. 0: not known, or none */
};
struct net_handler {
        void (*deliver)(void *ctx, struct net_member sender, const void *data, size_t len);
        void (*view)(void *ctx, struct net_ring ring, const struct net_member *members, size_t n);
        void (*quorum)(void *ctx, const struct net_quorum *q);
        void (*writable)(void *ctx); /* after -EAGAIN: send again */
        void (*closed)(void *ctx, const char *reason); /* connection lost; the transport tries again by itself */
        void *ctx;
};
struct net;
struct net_ops {
        errint_t (*start)(struct net *n);                                    /* connects or keeps trying in the background */
        errint_t (*send)(struct net *n, const struct iovec *iov, int n_iov); /* -EAGAIN: not taken, writable() will come; -ENOTCONN */
        void (*leave)(struct net *n);
        void (*close)(struct net *n);
        uint32_t (*node_id)(struct net *n); /* 0 while unknown */
        errint_t (*node_name)(struct net *n, uint32_t node, char *buf, size_t size);
};
struct net {
        const struct net_ops *ops;
};
#define NET_MESSAGE_MAX (96u * 1024u) /* one message; larger things are fragmented above */

struct net *net_loop_new(uint32_t node, const struct net_handler *handler);

/* net_corosync: CPG (model v1, with ring ids), libquorum, libvotequorum, cmap. One thread of its own talks to corosync; net_send only
 * queues. Corosync's absence, death or restart is survived: `closed` tells, and the thread connects again by itself.
 *
 * Seen on corosync 3.1.7, and what the simulator therefore does: CONFCHG carries no ring id, TOTEM follows it; a daemon's join, leave or death
 * gives CONFCHG only; another node's corosync dying gives TOTEM only; a fast merge gives two CONFCHG and one TOTEM; a process that
 * joins during a ring change gets TOTEM before its own CONFCHG. `view` is called before the first message, and at the latest at the
 * end of the batch, that follows any of them. */
struct net_corosync_config {
        const char *group; /* CPG group: one per tree */
};
struct net_cluster_info {
        bool connected;
        char cluster_name[256];
        char problem[256]; /* why not connected, in words */
        uint32_t token_ms, consensus_ms; /* effective; 0 while unknown */
        bool quorate; /* what votequorum said last, of whatever ring */
        uint32_t node_votes, total_votes, quorum_votes, expected_votes;
        const char *weak_reason; /* static; "" or NULL: quorums intersect */
};
struct net *net_corosync_new(const struct net_corosync_config *config, const struct net_handler *handler);
void net_corosync_info(struct net *n, struct net_cluster_info *ret);
