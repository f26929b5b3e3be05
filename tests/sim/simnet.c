/* simnet.c: see simnet.h. */
#include "simnet.h"

#include "node.h"
#include "wire.h"

#include <string.h>

#define PENDING_MAX 400u /* messages that corosync takes while there is no ring */

enum item_kind { ITEM_MESSAGE, ITEM_MEMBERS };
struct item {
        enum item_kind kind;
        unsigned from;
        uint32_t pid;
        uint32_t excluded; /* nodes that never get it */
        uint8_t *data;
        size_t len;
        struct repl_member members[SIM_NODES_MAX];
        size_t n_members;
};
struct ring {
        struct ring *next; /* all of a run, freed at its end */
        struct repl_ring id;
        uint32_t nodes; /* bits */
        bool broken;    /* nothing is ordered in it any more */
        struct item **items;
        size_t n, cap;
        bool notice_missing;
        unsigned holder;       /* broken: who had the token last, */
        uint64_t holder_until; /* and may still send so long, to its own side */
        size_t broken_at;      /* items then */
};
struct host {
        bool up, paused;
        struct ring *ring;
        size_t at; /* items received */
        bool pumping;
        uint32_t pid; /* of the daemon in the group; 0: none */
        struct item *pending[PENDING_MAX];
        size_t n_pending;
        struct repl_member members[SIM_NODES_MAX]; /* as last told to the daemon */
        size_t n_members;
        struct repl_ring told_ring;
        uint32_t together;   /* who came along into this ring */
        size_t limit;        /* of a broken ring: what still comes through */
        bool held;           /* receives nothing until the next ring */
        unsigned held_type;  /* receives nothing from the first message of this type on */
        unsigned throw_left; /* of its next messages: how many those who were apart may miss */
};
struct simnet {
        struct host host[SIM_NODES_MAX];
        unsigned component[SIM_NODES_MAX];
        struct ring *rings;
        uint64_t ring_seq, change; /* change: of the topology; a forming that is not the newest is dropped */
        int64_t extra_votes;
        bool short_tails; /* a component keeps nothing of a broken ring but what one of its members has already received, and its own */
};

static void pump(struct sim *s, void *object, uint64_t i);

static struct item *item_new(enum item_kind kind, unsigned from) {
        struct item *m = NEW(struct item);

        m->kind = kind;
        m->from = from;
        return m;
}

static struct ring *ring_new(struct simnet *net, uint32_t node, uint32_t nodes) {
        struct ring *r = NEW(struct ring);

        r->next = net->rings;
        net->rings = r;
        r->id = (struct repl_ring){.node = node, .seq = net->ring_seq += 4};
        r->nodes = nodes;
        return r;
}

struct simnet *simnet_new(struct sim *s) {
        (void)s;
        return NEW(struct simnet);
}

void simnet_free(struct simnet *net) {
        if (!net)
                return;
        while (net->rings) {
                struct ring *r = net->rings;

                net->rings = r->next;
                for (size_t k = 0; k < r->n; k++) {
                        free(r->items[k]->data);
                        free(r->items[k]);
                }
                free(r->items);
                free(r);
        }
        for (unsigned i = 0; i < SIM_NODES_MAX; i++)
                for (size_t k = 0; k < net->host[i].n_pending; k++) {
                        free(net->host[i].pending[k]->data);
                        free(net->host[i].pending[k]);
                }
        free(net);
}

/* --- receiving */

static bool may_receive(const struct host *h) {
        const struct item *m;

        if (!h->up || h->paused || h->held || !h->ring || h->at >= h->ring->n || (h->ring->broken && h->at >= h->limit))
                return false;
        m = h->ring->items[h->at];
        return h->held_type == 0 || m->kind != ITEM_MESSAGE || m->len < WIRE_HEADER || m->data[7] != h->held_type;
}

static void wake_pump(struct sim *s, unsigned i) {
        struct host *h = &s->net->host[i];

        if (h->pumping || !may_receive(h))
                return;
        h->pumping = true;
        sim_after(s, sim_chance(s, 5) ? sim_between(s, 1 * SIM_MS, 8 * SIM_MS) : sim_between(s, 20, 300), pump, NULL, i);
}

static void tell_members(struct sim *s, unsigned i, struct repl_ring ring, const struct repl_member *members, size_t n) {
        struct host *h = &s->net->host[i];
        bool in = false;

        memmove(h->members, members, n * sizeof *members);
        h->n_members = n;
        h->told_ring = ring;
        for (size_t k = 0; k < n; k++)
                in |= members[k].node == i + 1 && members[k].pid == h->pid;
        if (h->pid && in)
                node_net_view(s, i, ring, h->members, n);
}

static void receive(struct sim *s, unsigned i, const struct item *m) {
        struct host *h = &s->net->host[i];

        if (m->excluded & (1u << i)) {
                sim_probe(s, PROBE_THROWN_AWAY);
                return;
        }
        if (m->kind == ITEM_MEMBERS) {
                sim_probe(s, PROBE_VIEW_CONFCHG_ONLY);
                tell_members(s, i, h->ring->id, m->members, m->n_members);
                return;
        }
        if (!h->pid)
                return;
        for (size_t k = 0; k < h->n_members; k++)
                if (h->members[k].node == i + 1 && h->members[k].pid == h->pid)
                        node_net_deliver(s, i, (struct repl_member){.node = m->from + 1, .pid = m->pid}, m->data, m->len);
}

static void pump(struct sim *s, void *object, uint64_t i) {
        struct host *h = &s->net->host[i];

        (void)object;
        h->pumping = false;
        if (!may_receive(h))
                return;
        receive(s, (unsigned)i, h->ring->items[h->at++]);
        wake_pump(s, (unsigned)i);
}

static void order(struct sim *s, struct ring *r, struct item *m) {
        if (r->n == r->cap) {
                r->cap = MAX_OF(r->cap * 2, (size_t)64);
                r->items = xrealloc(r->items, r->cap * sizeof *r->items);
        }
        r->items[r->n++] = m;
        for (unsigned i = 0; i < s->n; i++)
                if (s->net->host[i].ring == r)
                        wake_pump(s, i);
}

/* --- members within a ring */

static size_t group_of(struct sim *s, const struct ring *r, struct repl_member *members) {
        size_t n = 0;

        for (unsigned i = 0; i < s->n; i++)
                if (s->net->host[i].ring == r && s->net->host[i].up && s->net->host[i].pid)
                        members[n++] = (struct repl_member){.node = i + 1, .pid = s->net->host[i].pid};
        return n;
}

static void members_changed(struct sim *s, unsigned i) {
        struct ring *r = s->net->host[i].ring;
        struct item *m;

        if (!r || r->broken)
                return; /* the next ring begins with the right list */
        m = item_new(ITEM_MEMBERS, i);
        m->n_members = group_of(s, r, m->members);
        order(s, r, m);
}

void simnet_join(struct sim *s, unsigned i, uint32_t pid) {
        struct host *h = &s->net->host[i];

        h->pid = pid;
        h->n_members = 0;
        if (!h->up || !h->ring)
                return;
        members_changed(s, i);
        if (!h->ring->notice_missing)
                node_net_quorum(s, i, h->ring->id, h->ring->nodes, (unsigned)s->net->extra_votes); /* CS_TRACK_CURRENT */
}

void simnet_leave(struct sim *s, unsigned i) {
        struct host *h = &s->net->host[i];

        h->pid = 0;
        h->n_members = 0;
        if (h->up)
                members_changed(s, i);
}

errint_t simnet_send(struct sim *s, unsigned i, const void *p, size_t n, const void *p2, size_t n2) {
        struct host *h = &s->net->host[i];
        struct item *m;

        if (!h->up || !h->pid)
                return -ENOTCONN;
        if (h->paused || (h->ring && h->ring->notice_missing) || ((!h->ring || h->ring->broken) && h->n_pending == PENDING_MAX)) {
                sim_probe(s, PROBE_REFUSED_SEND);
                return -EAGAIN;
        }
        m = item_new(ITEM_MESSAGE, i);
        m->pid = h->pid;
        m->len = n + n2;
        m->data = xmalloc(m->len);
        memcpy(m->data, p, n);
        if (n2 > 0)
                memcpy(m->data + n, p2, n2);
        if (h->ring && h->ring->broken && h->ring->holder == i && s->now < h->ring->holder_until && h->n_pending == 0) {
                order(s, h->ring, m); /* what it sends while it still has the token: the other side never sees it */
                return 0;
        }
        if (!h->ring || h->ring->broken) {
                h->pending[h->n_pending++] = m;
                return 0;
        }
        if (h->throw_left > 0) { /* still the chain that began without a token */
                h->throw_left--;
                m->excluded = ~h->together;
        }
        order(s, h->ring, m);
        return 0;
}

/* --- rings */

static uint32_t reachable(const struct sim *s, unsigned i) {
        uint32_t set = 0;

        for (unsigned j = 0; j < s->n; j++)
                if (s->net->host[j].up && !s->net->host[j].paused && s->net->component[j] == s->net->component[i])
                        set |= 1u << j;
        return set;
}

/* The members of `group` (which all come from ring `old`) deliver what is left of it: one common tail. */
static void drain(struct sim *s, struct ring *old, uint32_t group) {
        size_t low = 0, cut;

        for (unsigned i = 0; i < s->n; i++)
                if (group & (1u << i))
                        low = MAX_OF(low, s->net->host[i].at);
        if (group == old->nodes)
                cut = old->n;
        else if (s->net->short_tails)
                cut = low;
        else if (old->broken && !(group & (1u << old->holder)))
                cut = sim_between(s, low, MAX_OF(low, old->broken_at));
        else
                cut = sim_between(s, low, old->n);
        if (cut < old->n)
                sim_probe(s, PROBE_TAILS_DIFFER);
        for (size_t k = 0; k < old->n; k++)
                for (unsigned i = 0; i < s->n; i++) {
                        struct host *h = &s->net->host[i];

                        if (!(group & (1u << i)) || h->at > k)
                                continue;
                        h->at = k + 1;
                        if (k < cut || (old->items[k]->kind == ITEM_MESSAGE && (group & (1u << old->items[k]->from))))
                                receive(s, i, old->items[k]);
                }
}

static void carry_pending(struct sim *s, unsigned i, struct ring *r) {
        struct host *h = &s->net->host[i];
        uint32_t apart = r->nodes & ~h->together;
        bool thrown = apart && sim_chance(s, 30);

        for (size_t k = 0; k < h->n_pending; k++) {
                sim_probe(s, PROBE_CARRIED);
                if (thrown)
                        h->pending[k]->excluded = apart;
                order(s, r, h->pending[k]);
        }
        h->throw_left = thrown && h->n_pending > 0 && sim_chance(s, 20) ? (unsigned)sim_between(s, 1, 3) : 0;
        h->n_pending = 0;
}

static bool same_members(const struct host *h, const struct repl_member *members, size_t n) {
        return h->n_members == n && (n == 0 || memcmp(h->members, members, n * sizeof *members) == 0);
}

static void tell_ring(struct sim *s, unsigned i, struct ring *r, const struct repl_member *members, size_t n) {
        struct host *h = &s->net->host[i];
        struct repl_member before[SIM_NODES_MAX];
        size_t n_before = h->n_members;

        memcpy(before, h->members, sizeof before);
        if (same_members(h, members, n)) {
                sim_probe(s, PROBE_VIEW_TOTEM_ONLY);
        } else if (n_before > 0 && sim_chance(s, 25)) {
                sim_probe(s, PROBE_VIEW_CONFCHG_FIRST);
                tell_members(s, i, h->told_ring, members, n);
        } else if (n_before > 0 && sim_chance(s, 15)) {
                sim_probe(s, PROBE_VIEW_TOTEM_FIRST);
                tell_members(s, i, r->id, before, n_before);
        } else {
                sim_probe(s, PROBE_VIEW_PLAIN);
        }
        tell_members(s, i, r->id, members, n);
}

static void form(struct sim *s, void *object, uint64_t change);

static void notice_late(struct sim *s, void *object, uint64_t i) {
        struct ring *r = object;
        struct host *h = &s->net->host[i];

        if (h->ring == r && h->up)
                node_net_quorum(s, (unsigned)i, r->id, r->nodes, (unsigned)s->net->extra_votes);
}

static void plan_notices(struct sim *s, struct ring *r, bool early[SIM_NODES_MAX]) {
        if (!s->quiet_phase && sim_chance(s, 3)) {
                sim_probe(s, PROBE_QUORUM_MISSING);
                r->notice_missing = true;
                sim_after(s, sim_between(s, 1 * SIM_S, 5 * SIM_S), form, r, s->net->change); /* the next ring overtakes it */
                return;
        }
        for (unsigned i = 0; i < s->n; i++) {
                if (!(r->nodes & (1u << i)))
                        continue;
                early[i] = sim_chance(s, 40);
                if (early[i])
                        sim_probe(s, PROBE_QUORUM_EARLY);
                else if (sim_chance(s, 30))
                        sim_probe(s, PROBE_QUORUM_LATE);
                if (!early[i])
                        sim_after(s, sim_chance(s, 30) ? sim_between(s, 20 * SIM_MS, 400 * SIM_MS) : sim_between(s, 10, 3000), notice_late,
                                  r, i);
        }
}

static void form_ring(struct sim *s, uint32_t nodes) {
        struct simnet *net = s->net;
        struct ring *r;
        struct repl_member members[SIM_NODES_MAX];
        uint32_t left = nodes;
        size_t n;
        bool early[SIM_NODES_MAX] = {0};
        unsigned lowest = (unsigned)__builtin_ctz(nodes);

        r = ring_new(net, lowest + 1, nodes);
        while (left) {
                unsigned i = (unsigned)__builtin_ctz(left);
                struct ring *old = net->host[i].ring;
                uint32_t group = 0;

                for (unsigned j = 0; j < s->n; j++)
                        if ((left & (1u << j)) && (j == i || (old && net->host[j].ring == old)))
                                group |= 1u << j;
                if (old)
                        drain(s, old, group);
                for (unsigned j = 0; j < s->n; j++)
                        if (group & (1u << j))
                                net->host[j].together = group;
                left &= ~group;
        }
        for (unsigned i = 0; i < s->n; i++)
                if (nodes & (1u << i)) {
                        net->host[i].ring = r;
                        net->host[i].at = 0;
                        net->host[i].held = false;
                }
        n = group_of(s, r, members);
        plan_notices(s, r, early);
        sim_trace(s, "ring %u.%" G_GUINT64_FORMAT " of nodes %x", r->id.node, r->id.seq, nodes);
        for (unsigned i = 0; i < s->n; i++)
                if (nodes & (1u << i)) {
                        if (early[i])
                                node_net_quorum(s, i, r->id, r->nodes, (unsigned)net->extra_votes);
                        tell_ring(s, i, r, members, n);
                }
        for (unsigned i = 0; i < s->n; i++)
                if (nodes & (1u << i)) {
                        carry_pending(s, i, r);
                        if (!r->notice_missing)
                                node_net_writable(s, i);
                }
}

/* The token is lost: nothing is ordered any more but what its last holder sends before it notices; of what is under way, some arrives. */
static void break_ring(struct sim *s, struct ring *r) {
        struct simnet *net = s->net;

        if (r->broken)
                return;
        r->broken = true;
        r->broken_at = r->n;
        do
                r->holder = (unsigned)sim_below(s, s->n);
        while (!(r->nodes & (1u << r->holder)));
        r->holder_until = s->now + (sim_chance(s, 60) ? sim_between(s, 1 * SIM_MS, 80 * SIM_MS) : 0);
        for (unsigned i = 0; i < s->n; i++)
                if (net->host[i].ring == r)
                        net->host[i].limit =
                                net->component[i] == net->component[r->holder] ? SIZE_MAX : sim_between(s, net->host[i].at, r->n);
}

/* Token and consensus time-outs are over: rings for all components whose members are not in the right one. */
static void form(struct sim *s, void *object, uint64_t change) {
        struct simnet *net = s->net;
        uint32_t done = 0;

        if (change != net->change)
                return;
        if (object)
                break_ring(s, object);
        for (unsigned i = 0; i < s->n; i++) {
                uint32_t set = reachable(s, i);

                if (!(set & (1u << i)) || (done & (1u << i)))
                        continue;
                done |= set;
                if (!net->host[i].ring || net->host[i].ring->broken || net->host[i].ring->notice_missing || net->host[i].ring->nodes != set)
                        form_ring(s, set);
        }
}

static void topology_changed(struct sim *s) {
        struct simnet *net = s->net;

        net->change++;
        for (unsigned i = 0; i < s->n; i++) {
                struct ring *r = net->host[i].ring;
                uint32_t set = reachable(s, i);

                if (r && r->nodes != set)
                        break_ring(s, r);
        }
        sim_after(s, sim_between(s, 100 * SIM_MS, 700 * SIM_MS), form, NULL, net->change);
}

void simnet_corosync(struct sim *s, unsigned i, bool up) {
        struct host *h = &s->net->host[i];

        if (h->up == up)
                return;
        h->up = up;
        if (!up) {
                if (h->ring)
                        break_ring(s, h->ring);
                h->ring = NULL;
                h->held = false;
                h->held_type = 0;
                h->paused = false;
                h->n_members = 0;
                for (size_t k = 0; k < h->n_pending; k++) {
                        free(h->pending[k]->data);
                        free(h->pending[k]);
                }
                h->n_pending = 0;
                h->pid = 0;
                node_net_closed(s, i);
        }
        topology_changed(s);
}

void simnet_pause(struct sim *s, unsigned i, bool paused) {
        struct host *h = &s->net->host[i];

        if (!h->up || h->paused == paused)
                return;
        h->paused = paused;
        topology_changed(s);
        if (!paused)
                wake_pump(s, i);
}

void simnet_partition(struct sim *s, const unsigned component[SIM_NODES_MAX]) {
        memcpy(s->net->component, component, sizeof s->net->component);
        topology_changed(s);
}

static void tell_votes(struct sim *s) {
        for (unsigned i = 0; i < s->n; i++) {
                struct host *h = &s->net->host[i];

                if (h->up && h->ring && !h->ring->broken && !h->ring->notice_missing)
                        node_net_quorum(s, i, h->ring->id, h->ring->nodes, (unsigned)s->net->extra_votes);
        }
}

static void flap_over(struct sim *s, void *object, uint64_t value) {
        (void)object;
        (void)value;
        s->net->extra_votes = 0;
        tell_votes(s);
}

void simnet_quorum_flap(struct sim *s) {
        s->net->extra_votes = s->n + 1;
        tell_votes(s);
        sim_after(s, sim_between(s, 50 * SIM_MS, 3 * SIM_S), flap_over, NULL, 0);
}

void simnet_hold(struct sim *s, unsigned i, bool all, unsigned type) {
        struct host *h = &s->net->host[i];

        h->held = all;
        h->held_type = type;
        wake_pump(s, i);
}

bool simnet_held(const struct sim *s, unsigned i) {
        return s->net->host[i].held;
}

void simnet_short_tails(struct sim *s, bool yes) {
        s->net->short_tails = yes;
}

bool simnet_is_up(const struct sim *s, unsigned i) {
        return s->net->host[i].up;
}

bool simnet_whole(const struct sim *s) {
        const struct ring *r = s->net->host[0].ring;

        return r && !r->broken && r->nodes == (1u << s->n) - 1;
}
