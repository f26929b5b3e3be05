/* corosync_link.h (private to net): one connection to corosync: CPG, quorum, votequorum and cmap, opened and closed together. Only the
 * thread of net_corosync calls these. Codes of the libraries become errint_t here. */
#pragma once

#include "net/net.h"
#include <corosync/cmap.h>
#include <corosync/cpg.h>
#include <corosync/quorum.h>
#include <corosync/votequorum.h>
#include <poll.h>

#define LINK_NODES_MAX 128u

#define LINK_TWICE                                                                                                                         \
        "this node id has a coteried in this group already: stop that one, give this tree a `group` of its own, or the nodes ids of "      \
        "their own"

struct corosync_names {
        size_t n;
        struct {
                uint32_t node;
                char name[256];
        } node[LINK_NODES_MAX];
};

struct corosync_link {
        bool open;
        cpg_handle_t cpg;
        quorum_handle_t quorum;
        votequorum_handle_t votequorum;
        cmap_handle_t cmap;
        bool has_cpg, has_quorum, has_votequorum, has_cmap;
        int cpg_fd, quorum_fd, cmap_fd;
        uint32_t node;

        /* What the callbacks saw and `view` has not told yet. */
        bool view_pending, has_ring, has_members;
        struct net_ring ring;
        struct net_member members[CPG_MEMBERS_MAX];
        size_t n_members;
        bool joined; /* we are in the member list */
        bool twice;  /* and so was another process with our node id when we came */

        struct net_quorum said; /* by the last quorum notice; its list of nodes is not kept */
        bool info_new;          /* link_read_info has something to tell */

        const struct net_handler *handler;
};

/* -EAGAIN: try later; ret_reason says why, in one line with the remedy. */
errint_t link_open(struct corosync_link *l, const char *group, const struct net_handler *handler, char *ret_reason, size_t reason_size);
void link_close(struct corosync_link *l);
errint_t
link_dispatch(struct corosync_link *l); /* all that is ready on the connections; -ENOTCONN: the connection is gone; -EEXIST: LINK_TWICE */
errint_t link_send(struct corosync_link *l, const struct iovec *iov, unsigned n_iov); /* -EAGAIN: refused for now; -ENOTCONN */
void link_leave(struct corosync_link *l, const char *group);
void link_read_info(struct corosync_link *l, struct net_cluster_info *info, struct corosync_names *names);
