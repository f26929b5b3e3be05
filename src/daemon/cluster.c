/* cluster.c: being one of several: which transport, who may found a cluster, and what status tells of it. */
#include "daemon_internal.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

bool cluster_id_is_none(const uint8_t id[CLUSTER_ID_SIZE]) {
        for (size_t i = 0; i < CLUSTER_ID_SIZE; i++)
                if (id[i])
                        return false;
        return true;
}

void cluster_id_make(uint8_t ret[CLUSTER_ID_SIZE]) {
        for (size_t i = 0; i < CLUSTER_ID_SIZE; i += sizeof(uint64_t)) {
                uint64_t r = env_random64(env_system());
                memcpy(ret + i, &r, sizeof(r));
        }
}

struct net *cluster_net_new(struct daemon *d) {
        struct net_handler handler = engine_net_handler(d->engine);
        struct net_corosync_config config = {.group = d->options->group.text};

        return d->options->standalone.number ? net_loop_new((uint32_t)d->options->node.number, &handler)
                                             : net_corosync_new(&config, &handler);
}

bool cluster_info(struct daemon *d, struct net_cluster_info *ret) {
        if (d->options->standalone.number)
                return false;
        net_corosync_info(d->net, ret);
        return true;
}

/* Without a connection the transport knows better than the machine why. */
void cluster_reason(struct daemon *d, const struct engine_status *s, char *buf, size_t size) {
        struct net_cluster_info info;

        if (s->store_failed)
                (void)snprintf(buf, size, "%s", s->store_reason);
        else if (cluster_info(d, &info) && !info.connected && info.problem[0])
                (void)snprintf(buf, size, "not connected to the cluster: %s", info.problem);
        else if (!s->repl.primary && !s->repl.founded && s->repl.n_members > 0)
                (void)snprintf(
                        buf, size,
                        "%s; this node is empty: it receives the tree of the others; `coterie cluster init` on one node founds a cluster",
                        s->repl.reason);
        else
                (void)snprintf(buf, size, "%s", s->repl.reason);
}

/* --- coterie cluster init, on a running daemon */

static void init_done(void *ctx, errint_t error) {
        struct ctl_call *c = ctx;

        if (error == -EEXIST)
                ctl_call_fail(c, CTL_FAILED, "this node belongs to a cluster already; `coterie members` shows it");
        else if (error < 0)
                ctl_call_fail(c, CTL_FAILED, "the database cannot be written: %s", strerror(-error));
        else
                ctl_call_reply(c, CTL_OK, "", NULL, 0);
}

void cluster_command(struct ctl_call *c) {
        struct daemon *d = ctl_call_ctx(c);
        const char *name = ctl_call_count(c) > 1 ? ctl_call_word(c, 1) : NULL;
        struct net_cluster_info info;
        uint8_t id[CLUSTER_ID_SIZE];

        if (strcmp(ctl_call_word(c, 0), "init") != 0) {
                ctl_call_fail(c, CTL_USAGE, "usage: cluster init [NAME]");
                return;
        }
        if (name && cluster_info(d, &info) && strcmp(name, info.cluster_name) != 0) {
                char quoted[300];
                ctl_call_fail(c, CTL_FAILED, "%s%s%s",
                              info.connected ? "corosync's cluster is named " : "not connected to corosync, so the name cannot be compared",
                              info.connected ? log_quote(info.cluster_name, strlen(info.cluster_name), quoted, sizeof(quoted)) : "",
                              info.connected ? ": set cluster_name in corosync.conf, or give that name" : "");
                return;
        }
        cluster_id_make(id);
        engine_found(d->engine, id, init_done, c);
}
