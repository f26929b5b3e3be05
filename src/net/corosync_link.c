/* corosync_link.c: see corosync_link.h. CS_OK is 1: every code is compared with it by name. */
#include "corosync_link.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static errint_t error_of(cs_error_t code) {
        switch (code) {
        case CS_OK:
                return 0;
        case CS_ERR_TRY_AGAIN:
        case CS_ERR_QUEUE_FULL:
        case CS_ERR_BUSY:
                return -EAGAIN;
        case CS_ERR_ACCESS:
        case CS_ERR_SECURITY:
                return -EACCES;
        case CS_ERR_NO_MEMORY:
                return -ENOMEM;
        case CS_ERR_TOO_BIG:
                return -EMSGSIZE;
        case CS_ERR_NOT_EXIST:
                return -ENOENT;
        default:
                return -ENOTCONN;
        }
}

static struct corosync_link *link_of_cpg(cpg_handle_t handle) {
        void *context = NULL;

        if (cpg_context_get(handle, &context) != CS_OK)
                return NULL;
        return context;
}

static int member_cmp(const void *a, const void *b) {
        const struct net_member *x = a, *y = b;

        if (x->node != y->node)
                return x->node < y->node ? -1 : 1;
        return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Tells the view that the callbacks have put together, once both halves are known and we are part of it. */
static void tell_view(struct corosync_link *l) {
        if (!l->view_pending || !l->has_ring || !l->has_members || !l->joined || l->twice)
                return;
        l->view_pending = false;
        l->handler->view(l->handler->ctx, l->ring, l->members, l->n_members);
}

static void on_deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *msg, size_t len) {
        struct corosync_link *l = link_of_cpg(handle);

        (void)group; /* we join one only */
        if (!l)
                return;
        tell_view(l);
        l->handler->deliver(l->handler->ctx, (struct net_member){.node = node, .pid = pid}, msg, len);
}

static void on_confchg(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t n_members,
                       const struct cpg_address *left, size_t n_left, const struct cpg_address *joined, size_t n_joined) {
        struct corosync_link *l = link_of_cpg(handle);

        (void)group;
        (void)left; /* the list of members says it all; its order differs between nodes */
        (void)n_left;
        (void)joined;
        (void)n_joined;
        if (!l)
                return;
        l->n_members = MIN_OF(n_members, ARRAY_LEN(l->members));
        bool was_in = l->joined;
        l->joined = false;
        for (size_t i = 0; i < l->n_members; i++) {
                bool mine = members[i].nodeid == l->node;
                l->members[i] = (struct net_member){.node = members[i].nodeid, .pid = members[i].pid};
                l->joined |= mine && members[i].pid == (uint32_t)getpid();
                l->twice |= mine && members[i].pid != (uint32_t)getpid() && !was_in; /* who was there first stays */
        }
        qsort(l->members, l->n_members, sizeof l->members[0], member_cmp);
        l->has_members = true;
        l->view_pending = true;
}

static void on_totem(cpg_handle_t handle, struct cpg_ring_id ring, uint32_t n_nodes, const uint32_t *nodes) {
        struct corosync_link *l = link_of_cpg(handle);

        (void)n_nodes; /* nodes without a daemon do not matter here */
        (void)nodes;
        if (!l)
                return;
        l->ring = (struct net_ring){.node = ring.nodeid, .seq = ring.seq};
        l->has_ring = true;
        l->view_pending = true;
}

/* In words, why two quorums of this cluster may have no node in common; "" where they always have. */
static const char *weakness(uint32_t flags) {
        if (flags & VOTEQUORUM_INFO_TWONODE)
                return "two_node: each of the two nodes is a quorum by itself";
        if (flags & VOTEQUORUM_INFO_QDEVICE_REGISTERED)
                return "quorum device: a node and the device make a quorum";
        if (flags & VOTEQUORUM_INFO_LAST_MAN_STANDING)
                return "last_man_standing: expected votes shrink with the members";
        if (flags & VOTEQUORUM_INFO_AUTO_TIE_BREAKER)
                return "auto_tie_breaker: half of the nodes can be a quorum";
        if (flags & VOTEQUORUM_INFO_ALLOW_DOWNSCALE)
                return "allow_downscale: expected votes shrink when nodes leave";
        return "";
}

/* Of the ring that the notice is about: votequorum's own total is that of the newest ring, and a notice can be rings late. 0: not known. */
static uint32_t votes_of(struct corosync_link *l, const uint32_t *nodes, uint32_t n_nodes, uint32_t device_votes) {
        uint32_t votes = device_votes;

        for (uint32_t i = 0; i < n_nodes; i++) {
                struct votequorum_info info = {0};

                if (votequorum_getinfo(l->votequorum, nodes[i], &info) != CS_OK)
                        return 0;
                votes += info.node_votes;
        }
        return votes;
}

static void on_quorum(quorum_handle_t handle, uint32_t quorate, struct quorum_ring_id ring, uint32_t n_nodes, const uint32_t *nodes) {
        const void *context = NULL;
        struct corosync_link *l;
        struct votequorum_info info = {0};
        struct net_quorum q = {.ring = {.node = ring.nodeid, .seq = ring.seq},
                               .quorate = quorate != 0,
                               .nodes = nodes,
                               .n_nodes = n_nodes,
                               .weak_reason = ""};

        if (quorum_context_get(handle, &context) != CS_OK || !context)
                return;
        l = (struct corosync_link *)(uintptr_t)context;
        if (votequorum_getinfo(l->votequorum, l->node, &info) == CS_OK) {
                q.expected_votes = info.highest_expected;
                q.node_votes = info.node_votes;
                q.quorum_votes = info.quorum;
                q.device_votes = info.flags & VOTEQUORUM_INFO_QDEVICE_CAST_VOTE ? info.qdevice_votes : 0;
                q.total_votes = votes_of(l, nodes, n_nodes, q.device_votes);
                q.weak_reason = weakness(info.flags);
                q.weak = q.weak_reason[0] != '\0';
        }
        l->said = q;
        l->said.nodes = NULL;
        l->info_new = true; /* a member may have come that has a name */
        l->handler->quorum(l->handler->ctx, &q);
}

static errint_t open_cpg(struct corosync_link *l) {
        cpg_model_v1_data_t model = {.model = CPG_MODEL_V1,
                                     .cpg_deliver_fn = on_deliver,
                                     .cpg_confchg_fn = on_confchg,
                                     .cpg_totem_confchg_fn = on_totem,
                                     .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF};
        errint_t e = error_of(cpg_model_initialize(&l->cpg, CPG_MODEL_V1, (cpg_model_data_t *)&model, l));

        if (e < 0)
                return e;
        l->has_cpg = true;
        if (cpg_fd_get(l->cpg, &l->cpg_fd) != CS_OK)
                return -ENOTCONN;
        return error_of(cpg_local_get(l->cpg, &l->node));
}

static errint_t open_quorum(struct corosync_link *l) {
        quorum_model_v1_data_t model = {.model = QUORUM_MODEL_V1, .quorum_notify_fn = on_quorum};
        uint32_t type = 0;
        errint_t e;

        e = error_of(votequorum_initialize(&l->votequorum, NULL));
        if (e < 0)
                return e;
        l->has_votequorum = true;
        e = error_of(quorum_model_initialize(&l->quorum, QUORUM_MODEL_V1, (quorum_model_data_t *)&model, &type, l));
        if (e < 0)
                return e;
        l->has_quorum = true;
        if (type != QUORUM_SET)
                return -EPROTONOSUPPORT;
        if (quorum_fd_get(l->quorum, &l->quorum_fd) != CS_OK)
                return -ENOTCONN;
        return error_of(quorum_trackstart(l->quorum, CS_TRACK_CHANGES | CS_TRACK_CURRENT));
}

/* Another process of this node in the group: found out before joining, so that the others see nothing of it. */
static bool is_taken(struct corosync_link *l, struct cpg_name *group) {
        struct cpg_address members[CPG_MEMBERS_MAX];
        int n = 0;

        if (cpg_membership_get(l->cpg, group, members, &n) != CS_OK) /* then joining will tell */
                return false;
        for (int i = 0; i < n; i++)
                if (members[i].nodeid == l->node && members[i].pid != (uint32_t)getpid())
                        return true;
        return false;
}

/* Nodes are renamed, added and removed while corosync runs. */
static void on_names(cmap_handle_t handle, cmap_track_handle_t track, int32_t event, const char *key, struct cmap_notify_value new_value,
                     struct cmap_notify_value old_value, void *context) {
        struct corosync_link *l = context;

        (void)handle;
        (void)track;
        (void)event;
        (void)key; /* whatever it was, all is read again */
        (void)new_value;
        (void)old_value;
        l->info_new = true;
}

static errint_t open_cmap(struct corosync_link *l) {
        cmap_track_handle_t track;
        errint_t e = error_of(cmap_initialize(&l->cmap));

        if (e < 0)
                return e;
        l->has_cmap = true;
        if (cmap_fd_get(l->cmap, &l->cmap_fd) != CS_OK)
                return -ENOTCONN;
        return error_of(cmap_track_add(l->cmap, "nodelist.", CMAP_TRACK_ADD | CMAP_TRACK_DELETE | CMAP_TRACK_MODIFY | CMAP_TRACK_PREFIX,
                                       on_names, l, &track));
}

static errint_t join_group(struct corosync_link *l, const char *group) {
        struct cpg_name name = {.length = (uint32_t)strlen(group)};

        PRE(name.length > 0 && name.length < CPG_MAX_NAME_LENGTH);
        memcpy(name.value, group, name.length);
        if (is_taken(l, &name))
                return -EEXIST;
        return error_of(cpg_join(l->cpg, &name));
}

static const char *reason_of(errint_t e) {
        switch (e) {
        case -EACCES:
                return "corosync refuses this process: run the daemon as root, or allow its user in /etc/corosync/uidgid.d";
        case -EPROTONOSUPPORT:
                return "corosync has no quorum provider: set `provider: corosync_votequorum` in corosync.conf";
        case -EEXIST:
                return LINK_TWICE;
        case -EAGAIN:
                return "corosync is busy starting or forming a ring";
        case -ENOMEM:
                return "no memory for a connection to corosync";
        default:
                return "corosync is not running here: start it (systemctl start corosync)";
        }
}

errint_t link_open(struct corosync_link *l, const char *group, const struct net_handler *handler, char *ret_reason, size_t reason_size) {
        errint_t e;

        *l = (struct corosync_link){.handler = handler, .cpg_fd = -1, .quorum_fd = -1, .cmap_fd = -1};
        e = open_cpg(l);
        if (e == 0)
                e = open_quorum(l);
        if (e == 0)
                e = open_cmap(l);
        if (e == 0)
                e = join_group(l, group);
        if (e < 0) {
                (void)snprintf(ret_reason, reason_size, "%s", reason_of(e));
                link_close(l);
                return -EAGAIN;
        }
        l->open = true;
        return 0;
}

void link_close(struct corosync_link *l) {
        /* Their errors say that the connection is gone already, which is what is wanted. */
        if (l->has_cpg)
                (void)cpg_finalize(l->cpg);
        if (l->has_quorum)
                (void)quorum_finalize(l->quorum);
        if (l->has_votequorum)
                (void)votequorum_finalize(l->votequorum);
        if (l->has_cmap)
                (void)cmap_finalize(l->cmap);
        l->has_cpg = l->has_quorum = l->has_votequorum = l->has_cmap = l->open = false;
        l->cpg_fd = l->quorum_fd = l->cmap_fd = -1;
}

errint_t link_dispatch(struct corosync_link *l) {
        errint_t e;

        e = error_of(quorum_dispatch(l->quorum, CS_DISPATCH_ALL));
        if (e < 0 && e != -EAGAIN)
                return -ENOTCONN;
        e = error_of(cpg_dispatch(l->cpg, CS_DISPATCH_ALL));
        if (e < 0 && e != -EAGAIN)
                return -ENOTCONN;
        e = error_of(cmap_dispatch(l->cmap, CS_DISPATCH_ALL));
        if (e < 0 && e != -EAGAIN)
                return -ENOTCONN;
        if (l->twice)
                return -EEXIST;
        tell_view(l);
        return 0;
}

errint_t link_send(struct corosync_link *l, const struct iovec *iov, unsigned n_iov) {
        return error_of(cpg_mcast_joined(l->cpg, CPG_TYPE_AGREED, iov, n_iov));
}

void link_leave(struct corosync_link *l, const char *group) {
        struct cpg_name name = {.length = (uint32_t)strlen(group)};

        memcpy(name.value, group, name.length);
        (void)cpg_leave(l->cpg, &name); /* the connection is closed next, which leaves as well */
}

static void read_text(cmap_handle_t cmap, const char *key, char *buf, size_t size) {
        char *text = NULL;

        if (cmap_get_string(cmap, key, &text) != CS_OK)
                return;
        (void)snprintf(buf, size, "%s", text);
        free(text);
}

static void read_names(cmap_handle_t cmap, struct corosync_names *names) {
        unsigned missing = 0; /* a node that was removed leaves a hole */

        names->n = 0;
        for (unsigned i = 0; i < LINK_NODES_MAX && missing < 8; i++) {
                char key[64];
                uint32_t node;

                (void)snprintf(key, sizeof key, "nodelist.node.%u.nodeid", i);
                if (cmap_get_uint32(cmap, key, &node) != CS_OK) {
                        missing++;
                        continue;
                }
                missing = 0;
                (void)snprintf(key, sizeof key, "nodelist.node.%u.name", i);
                names->node[names->n].node = node;
                names->node[names->n].name[0] = '\0';
                read_text(cmap, key, names->node[names->n].name, sizeof names->node[names->n].name);
                names->n++;
        }
}

void link_read_info(struct corosync_link *l, struct net_cluster_info *info, struct corosync_names *names) {
        read_text(l->cmap, "totem.cluster_name", info->cluster_name, sizeof info->cluster_name);
        (void)cmap_get_uint32(l->cmap, "runtime.config.totem.token", &info->token_ms); /* stays 0 where it is not there */
        (void)cmap_get_uint32(l->cmap, "runtime.config.totem.consensus", &info->consensus_ms);
        read_names(l->cmap, names);
}
