/* net_simulated.c: the transport's contract (net_contract.h) on the simulator's transport: three members in virtual time, one seed after
 * the other. A world of its own around tests/sim/simnet.c: time, chance, and members that check instead of the machine.
 *
 * usage: net_simulated SEEDS COUNT */
#include "net_contract.h"
#include "node.h"
#include "simnet.h"

#include <stdio.h>

#define NODES 3u

struct timed {
        uint64_t at;
        sim_fn fn;
        void *object;
        uint64_t value;
};

static struct {
        struct sim sim;
        struct timed *timers;
        size_t n, cap;
        struct contract seen[NODES];
        uint64_t sent[NODES];
} world;

/* --- what simnet.c uses of the simulator */

uint64_t sim_below(struct sim *s, uint64_t n) {
        s->random[0] = s->random[0] * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (s->random[0] >> 33) % n;
}
bool sim_chance(struct sim *s, unsigned percent) {
        return sim_below(s, 100) < percent;
}
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high) {
        return low + sim_below(s, high - low + 1);
}
void sim_mix(struct sim *s, uint64_t value) {
        s->hash = s->hash * 31 + value;
}
void sim_trace(struct sim *s, const char *fmt, ...) {
        (void)s;
        (void)fmt;
}

void sim_after(struct sim *s, uint64_t us, sim_fn fn, void *object, uint64_t value) {
        if (world.n == world.cap) {
                world.cap = MAX_OF(world.cap * 2, (size_t)64);
                world.timers = xrealloc(world.timers, world.cap * sizeof(*world.timers));
        }
        world.timers[world.n++] = (struct timed){.at = s->now + us, .fn = fn, .object = object, .value = value};
}

/* The earliest; of equal ones that which was asked for first. */
static bool step(struct sim *s) {
        size_t first = 0;

        if (world.n == 0)
                return false;
        for (size_t i = 1; i < world.n; i++)
                if (world.timers[i].at < world.timers[first].at)
                        first = i;
        struct timed t = world.timers[first];
        memmove(&world.timers[first], &world.timers[first + 1], (--world.n - first) * sizeof(t));
        s->now = t.at;
        t.fn(s, t.object, t.value);
        return true;
}

/* --- the members */

void node_net_view(struct sim *s, unsigned i, struct repl_ring ring, const struct repl_member *members, size_t n) {
        struct net_member list[SIM_NODES_MAX];

        (void)s;
        for (size_t k = 0; k < n; k++)
                list[k] = (struct net_member){.node = members[k].node, .pid = members[k].pid};
        contract_view(&world.seen[i], ring.seq, list, n);
}
void node_net_deliver(struct sim *s, unsigned i, struct repl_member sender, const void *p, size_t n) {
        (void)s;
        contract_deliver(&world.seen[i], sender.node, p, n);
}
void node_net_quorum(struct sim *s, unsigned i, struct repl_ring ring, uint32_t nodes, unsigned extra_votes) {
        (void)s;
        (void)ring;
        (void)extra_votes;
        world.seen[i].quorate = __builtin_popcount(nodes) > (int)NODES / 2;
}
void node_net_writable(struct sim *s, unsigned i) { /* senders try again by themselves */
        (void)s;
        (void)i;
}
void node_net_closed(struct sim *s, unsigned i) {
        (void)s;
        contract_fault(&world.seen[i], "the connection was closed");
}

static bool all_here(void) {
        for (unsigned i = 0; i < NODES; i++)
                if (world.seen[i].members != NODES || !world.seen[i].quorate)
                        return false;
        return true;
}

static bool run_until_here(void) {
        while (!all_here())
                if (!step(&world.sim))
                        return false;
        return true;
}

static void send_one(unsigned i) {
        static uint8_t buffer[CONTRACT_MESSAGE_MAX];
        size_t len = contract_message(world.sent[i], buffer);
        errint_t e = simnet_send(&world.sim, i, buffer, 8, buffer + 8, len - 8);

        world.sent[i] += e == 0;
        if (e < 0 && e != -EAGAIN)
                contract_fault(&world.seen[i], "send failed");
}

static const char *one_seed(uint64_t seed, uint64_t count) {
        struct sim *s = &world.sim;

        memset(&world, 0, sizeof(world));
        s->n = NODES;
        s->random[0] = seed;
        s->quiet_phase = true; /* nothing breaks */
        s->net = simnet_new(s);
        for (unsigned i = 0; i < NODES; i++)
                simnet_corosync(s, i, true);
        for (unsigned i = 0; i < NODES; i++)
                simnet_join(s, i, 100 + i);
        if (!run_until_here())
                contract_fault(&world.seen[0], "the view with all members never came");
        for (uint64_t done = 0; done < NODES;) {
                done = 0;
                for (unsigned i = 0; i < NODES; i++) {
                        if (world.sent[i] < count && sim_chance(s, 50))
                                send_one(i);
                        done += world.sent[i] == count;
                }
                if (sim_chance(s, 70))
                        (void)step(s);
        }
        while (step(s))
                ;
        const char *found = NULL;
        for (unsigned i = 0; i < NODES && !found; i++) {
                found = world.seen[i].fault;
                if (!found && world.seen[i].delivered != count * NODES)
                        found = "not everything was delivered";
                if (!found && world.seen[i].chain != world.seen[0].chain)
                        found = "two members delivered in different orders";
        }
        simnet_free(s->net);
        free(world.timers);
        return found;
}

int main(int argc, char **argv) {
        if (argc != 3) {
                (void)fprintf(stderr, "usage: net_simulated SEEDS COUNT\n");
                return 2;
        }
        uint64_t seeds = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
        for (uint64_t seed = 1; seed <= seeds; seed++) {
                const char *found = one_seed(seed, count);
                if (found) {
                        (void)printf("seed %llu: %s\n", (unsigned long long)seed, found);
                        return 1;
                }
        }
        (void)printf("%llu seeds, %llu messages of each of %u members: ok\n", (unsigned long long)seeds, (unsigned long long)count, NODES);
        return 0;
}
