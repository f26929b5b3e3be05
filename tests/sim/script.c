/* script.c: scripted fault schedules: the clients are drawn as ever, the faults come from a list. */
#include "nemesis.h"

#include "simnet.h"

#include <string.h>

struct act {
        unsigned at_ms;
        enum { CUT, HEAL, KILL, START, POWER, PAUSE, GO_ON, SLOW, STUCK, REPAIR } what;
        unsigned node;                   /* from 0 */
        unsigned component[3];           /* CUT */
};
struct script {
        const char *name, *about;
        const struct act *acts;
        unsigned n;
};

/* A member that lost power comes back with less, and the one that still has it all is cut off. */
static const struct act forgetful_acts[] = {
        {4000, CUT, 0, {0, 0, 1}}, {7000, POWER, 1, {0}}, {7300, CUT, 0, {0, 1, 1}}, {7600, START, 1, {0}}, {16000, HEAL, 0, {0}},
        {20000, CUT, 0, {0, 0, 1}}, {23000, POWER, 0, {0}}, {23200, CUT, 0, {0, 1, 0}}, {23500, START, 0, {0}}, {32000, HEAL, 0, {0}}};
/* Each node alone in turn, with the others going on, so that tails differ and epochs follow each other quickly. */
static const struct act rotate_acts[] = {
        {3000, CUT, 0, {0, 0, 1}}, {5000, CUT, 0, {0, 1, 0}}, {7000, CUT, 0, {1, 0, 0}}, {9000, CUT, 0, {0, 0, 1}}, {11000, CUT, 0, {0, 1, 2}}, {13000, CUT, 0, {0, 1, 0}},
        {15000, CUT, 0, {1, 0, 0}}, {17000, HEAL, 0, {0}}, {19000, CUT, 0, {0, 1, 0}}, {21000, CUT, 0, {1, 0, 0}}, {23000, HEAL, 0, {0}}};
/* A disk stands still while its node is a member, then the node dies: what was not in its log is gone. */
static const struct act slow_log_acts[] = {
        {3000, SLOW, 1, {0}}, {5000, KILL, 1, {0}}, {5100, CUT, 0, {1, 0, 0}}, {5200, START, 1, {0}}, {9000, HEAL, 0, {0}}, {10000, REPAIR, 1, {0}},
        {12000, SLOW, 2, {0}}, {14000, KILL, 2, {0}}, {14100, CUT, 0, {0, 1, 1}}, {14200, START, 2, {0}}, {18000, HEAL, 0, {0}}, {19000, REPAIR, 2, {0}}};
/* Daemons that stand still and come back. */
static const struct act pause_acts[] = {
        {3000, PAUSE, 1, {0}}, {9000, GO_ON, 1, {0}}, {11000, PAUSE, 0, {0}}, {12000, CUT, 0, {0, 1, 1}}, {15000, GO_ON, 0, {0}}, {17000, HEAL, 0, {0}},
        {20000, PAUSE, 2, {0}}, {20500, PAUSE, 1, {0}}, {26000, GO_ON, 2, {0}}, {28000, GO_ON, 1, {0}}};
/* Power goes while others are cut off, again and again. */
static const struct act power_acts[] = {
        {3000, POWER, 0, {0}}, {3600, START, 0, {0}}, {5000, CUT, 0, {0, 0, 1}}, {6500, POWER, 0, {0}}, {6600, CUT, 0, {0, 1, 1}}, {7000, START, 0, {0}},
        {11000, HEAL, 0, {0}}, {14000, POWER, 2, {0}}, {14200, CUT, 0, {0, 1, 1}}, {14500, START, 2, {0}}, {18000, HEAL, 0, {0}}};

#define SCRIPT(n, text) {#n, text, n##_acts, ARRAY_LEN(n##_acts)}
static const struct script scripts[] = {
        SCRIPT(forgetful, "a member that lost power returns with less while the best one is cut off"),
        SCRIPT(rotate, "each node alone in turn"),
        SCRIPT(slow_log, "a node dies while its disk lags behind"),
        SCRIPT(pause, "daemons stand still and come back"),
        SCRIPT(power, "power goes while others are cut off"),
};

unsigned script_count(void) { return ARRAY_LEN(scripts); }
const char *script_name(unsigned k) { return scripts[k].name; }

static void cut(struct sim *s, const struct act *a) {
        unsigned component[SIM_NODES_MAX] = {0};

        for (unsigned i = 0; i < s->n; i++)
                component[i] = a->component[i % 3];
        simnet_partition(s, component);
}

static void act_now(struct sim *s, void *object, uint64_t value) {
        const struct act *a = object;
        struct node *x = &s->nodes[a->node];

        (void)value;
        if (s->quiet_phase)
                return;
        switch (a->what) {
        case CUT:
                s->faults[FAULT_PARTITION]++;
                cut(s, a);
                break;
        case HEAL:
                cut(s, &(struct act){0});
                break;
        case KILL:
                s->faults[FAULT_DAEMON_KILL]++;
                node_daemon_kill(x);
                break;
        case POWER:
                s->faults[FAULT_POWER_CUT]++;
                node_power_cut(x);
                break;
        case START:
                if (x->powered)
                        node_daemon_start(x);
                else
                        node_boot(x);
                break;
        case PAUSE:
        case GO_ON:
                node_daemon_pause(x, a->what == PAUSE);
                break;
        case SLOW:
                x->slow_disk_us = 900 * SIM_MS;
                break;
        case STUCK:
                x->stuck_until = s->now + 5 * SIM_S;
                break;
        case REPAIR:
                x->slow_disk_us = x->stuck_until = 0;
                break;
        }
}

void script_start(struct sim *s, unsigned k) {
        for (unsigned i = 0; i < scripts[k].n; i++) {
                const struct act *a = &scripts[k].acts[i];
                /* A little apart from seed to seed. */
                sim_after(s, a->at_ms * SIM_MS + sim_below(s, 400 * SIM_MS), act_now, (void *)(uintptr_t)a, 0);
        }
}
