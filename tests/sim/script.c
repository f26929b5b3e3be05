/* script.c: scripted fault schedules: the clients are drawn as ever, the faults come from a list. */
#include "nemesis.h"

#include "client.h"
#include "simnet.h"
#include "wire.h"

#include <string.h>

struct act {
        unsigned at_ms;
        enum {
                CUT,
                HEAL,
                KILL,
                START,
                POWER,
                PAUSE,
                GO_ON,
                SLOW,
                STUCK,
                REPAIR,
                LATE,        /* receives nothing until the next ring */
                NO_JOINED,   /* receives nothing from the next JOINED on; its death ends it */
                SHORT_TAILS, /* node 1: from now on, 0: no more */
                BURST,
                SLOW_KERNEL,
                DRAG, /* its daemon takes what came in slowly */
                DAMAGE,
                LARGE,
                NO_PART,
                NO_GIVE,
                FREE,
                FLAP
        } what;
        unsigned node;         /* from 0 */
        unsigned component[3]; /* CUT */
        unsigned tight;        /* ms after the act before it, no matter when that was */
};
struct script {
        const char *name, *about;
        const struct act *acts;
        unsigned n;
};

/* A member that lost power comes back with less, and the one that still has it all is cut off. */
static const struct act forgetful_acts[] = {
        {4000, CUT, 0, {0, 0, 1}},  {7000, POWER, 1, {0}},  {7300, CUT, 0, {0, 1, 1}},  {7600, START, 1, {0}},  {16000, HEAL, 0, {0}},
        {20000, CUT, 0, {0, 0, 1}}, {23000, POWER, 0, {0}}, {23200, CUT, 0, {0, 1, 0}}, {23500, START, 0, {0}}, {32000, HEAL, 0, {0}}};
/* Each node alone in turn, with the others going on, so that tails differ and epochs follow each other quickly. */
static const struct act rotate_acts[] = {{3000, CUT, 0, {0, 0, 1}},  {5000, CUT, 0, {0, 1, 0}},  {7000, CUT, 0, {1, 0, 0}},
                                         {9000, CUT, 0, {0, 0, 1}},  {11000, CUT, 0, {0, 1, 2}}, {13000, CUT, 0, {0, 1, 0}},
                                         {15000, CUT, 0, {1, 0, 0}}, {17000, HEAL, 0, {0}},      {19000, CUT, 0, {0, 1, 0}},
                                         {21000, CUT, 0, {1, 0, 0}}, {23000, HEAL, 0, {0}}};
/* A disk stands still while its node is a member, then the node dies: what was not in its log is gone. */
static const struct act slow_log_acts[] = {{3000, SLOW, 1, {0}},   {5000, KILL, 1, {0}},  {5100, CUT, 0, {1, 0, 0}},
                                           {5200, START, 1, {0}},  {9000, HEAL, 0, {0}},  {10000, REPAIR, 1, {0}},
                                           {12000, SLOW, 2, {0}},  {14000, KILL, 2, {0}}, {14100, CUT, 0, {0, 1, 1}},
                                           {14200, START, 2, {0}}, {18000, HEAL, 0, {0}}, {19000, REPAIR, 2, {0}}};
/* Daemons that stand still and come back. */
static const struct act pause_acts[] = {{3000, PAUSE, 1, {0}},  {9000, GO_ON, 1, {0}}, {11000, PAUSE, 0, {0}}, {12000, CUT, 0, {0, 1, 1}},
                                        {15000, GO_ON, 0, {0}}, {17000, HEAL, 0, {0}}, {20000, PAUSE, 2, {0}}, {20500, PAUSE, 1, {0}},
                                        {26000, GO_ON, 2, {0}}, {28000, GO_ON, 1, {0}}};
/* Power goes while others are cut off, again and again. */
static const struct act power_acts[] = {{3000, POWER, 0, {0}},  {3600, START, 0, {0}},     {5000, CUT, 0, {0, 0, 1}},
                                        {6500, POWER, 0, {0}},  {6600, CUT, 0, {0, 1, 1}}, {7000, START, 0, {0}},
                                        {11000, HEAL, 0, {0}},  {14000, POWER, 2, {0}},    {14200, CUT, 0, {0, 1, 1}},
                                        {14500, START, 2, {0}}, {18000, HEAL, 0, {0}}};

/* One node's messages reach nobody but itself before it is cut off: it comes back with the longest history, of the older epoch. */
static const struct act long_tail_acts[] = {{3000, LATE, 0, {0}, 0},       {0, LATE, 1, {0}, 1},       {0, SHORT_TAILS, 1, {0}, 1},
                                            {0, BURST, 2, {0}, 5},         {0, CUT, 0, {0, 0, 1}, 60}, {0, SHORT_TAILS, 0, {0}, 900},
                                            {0, HEAL, 0, {0}, 900},        {12000, LATE, 1, {0}, 0},   {0, LATE, 2, {0}, 1},
                                            {0, SHORT_TAILS, 1, {0}, 1},   {0, BURST, 0, {0}, 5},      {0, CUT, 0, {1, 0, 0}, 60},
                                            {0, SHORT_TAILS, 0, {0}, 900}, {0, HEAL, 0, {0}, 900}};
/* A node dies when it has said JOINED, but before it hears that the epoch begins; with the third one it begins the next. */
static const struct act promise_acts[] = {{3000, NO_JOINED, 0, {0}, 0}, {0, CUT, 0, {0, 0, 1}, 5},     {0, BURST, 1, {0}, 1500},
                                          {0, KILL, 0, {0}, 150},       {0, CUT, 0, {0, 1, 0}, 1},     {0, START, 0, {0}, 50},
                                          {0, HEAL, 0, {0}, 1700},      {12000, NO_JOINED, 2, {0}, 0}, {0, CUT, 0, {1, 0, 0}, 5},
                                          {0, BURST, 1, {0}, 1500},     {0, KILL, 2, {0}, 150},        {0, CUT, 0, {0, 1, 0}, 1},
                                          {0, START, 2, {0}, 50},       {0, HEAL, 0, {0}, 1700}};
/* The first node's last writes are in the chosen state, the second dies before it has adopted, and finds the third with more of the old
 * epoch. */
static const struct act activation_acts[] = {
        {3000, LATE, 0, {0}, 0},       {0, LATE, 1, {0}, 1},          {0, SHORT_TAILS, 1, {0}, 1}, {0, BURST, 2, {0}, 5},
        {0, LATE, 2, {0}, 40},         {0, BURST, 0, {0}, 1},         {0, NO_JOINED, 1, {0}, 1},   {0, CUT, 0, {0, 0, 1}, 2},
        {0, SHORT_TAILS, 0, {0}, 900}, {0, KILL, 1, {0}, 600},        {0, CUT, 0, {0, 1, 1}, 1},   {0, START, 1, {0}, 50},
        {0, HEAL, 0, {0}, 7000},       {20000, LATE, 2, {0}, 0},      {0, LATE, 1, {0}, 1},        {0, SHORT_TAILS, 1, {0}, 1},
        {0, BURST, 0, {0}, 5},         {0, LATE, 0, {0}, 40},         {0, BURST, 2, {0}, 1},       {0, NO_JOINED, 1, {0}, 1},
        {0, CUT, 0, {1, 0, 0}, 2},     {0, SHORT_TAILS, 0, {0}, 900}, {0, KILL, 1, {0}, 600},      {0, CUT, 0, {1, 1, 0}, 1},
        {0, START, 1, {0}, 50},        {0, HEAL, 0, {0}, 7000}};
/* A newcomer applies what it missed while its kernel is slow to drop what it cached. */
static const struct act stale_cache_acts[] = {{3000, CUT, 0, {0, 0, 1}, 0},  {0, SLOW_KERNEL, 2, {0}, 1500}, {0, HEAL, 0, {0}, 800},
                                              {8000, CUT, 0, {1, 0, 0}, 0},  {0, SLOW_KERNEL, 0, {0}, 1500}, {0, HEAL, 0, {0}, 800},
                                              {13000, CUT, 0, {0, 1, 0}, 0}, {0, SLOW_KERNEL, 1, {0}, 1500}, {0, HEAL, 0, {0}, 800}};
/* One of two members is not what its history says. */
static const struct act damage_acts[] = {{3000, CUT, 0, {0, 1, 0}, 0},  {5000, DAMAGE, 2, {0}, 0},  {8000, HEAL, 0, {0}, 0},
                                         {11000, CUT, 0, {0, 0, 1}, 0}, {13000, DAMAGE, 1, {0}, 0}, {16000, HEAL, 0, {0}, 0}};
/* A stopped daemon was expelled; what it sends and shows before it learns of it is of an old epoch. Then it is cut off until its callers
 * are refused. */
static const struct act late_sender_acts[] = {{3000, PAUSE, 2, {0}, 0},  {0, BURST, 2, {0}, 6000},   {0, DRAG, 2, {0}, 199},
                                              {0, GO_ON, 2, {0}, 1},     {0, CUT, 0, {0, 0, 1}, 20}, {0, HEAL, 0, {0}, 8000},
                                              {20000, PAUSE, 1, {0}, 0}, {0, BURST, 1, {0}, 6000},   {0, DRAG, 1, {0}, 199},
                                              {0, GO_ON, 1, {0}, 1},     {0, CUT, 0, {0, 1, 0}, 20}, {0, HEAL, 0, {0}, 8000}};

/* Of a large operation some pieces arrive; then quorum is lost. In the next round the same node sends another one. */
static const struct act pieces_acts[] = {
        {3000, LARGE, 0, {0}, 0},  {0, NO_PART, 0, {0}, 500}, {0, FLAP, 0, {0}, 1000}, {0, FREE, 0, {0}, 150}, {0, LARGE, 0, {0}, 4000},
        {14000, LARGE, 2, {0}, 0}, {0, NO_PART, 2, {0}, 500}, {0, FLAP, 0, {0}, 1000}, {0, FREE, 2, {0}, 150}, {0, LARGE, 2, {0}, 4000}};

/* Of two members one lacks the other's tail; it asks for it, gets nothing, and the other one dies: what it had is needed. */
static const struct act donor_dies_acts[] = {{3000, CUT, 0, {0, 1, 0}, 0}, {0, LATE, 2, {0}, 3000},    {0, SHORT_TAILS, 1, {0}, 1},
                                             {0, BURST, 0, {0}, 5},        {0, CUT, 0, {0, 1, 2}, 60}, {0, SHORT_TAILS, 0, {0}, 900},
                                             {0, NO_GIVE, 2, {0}, 100},    {0, CUT, 0, {0, 1, 0}, 10}, {0, KILL, 0, {0}, 2200},
                                             {0, FREE, 2, {0}, 1},         {0, CUT, 0, {1, 0, 0}, 1},  {0, HEAL, 0, {0}, 3000},
                                             {0, START, 0, {0}, 100}};

#define SCRIPT(n, text)                                                                                                                    \
        { #n, text, n##_acts, ARRAY_LEN(n##_acts) }
static const struct script scripts[] = {
        SCRIPT(forgetful, "a member that lost power returns with less while the best one is cut off"),
        SCRIPT(rotate, "each node alone in turn"),
        SCRIPT(slow_log, "a node dies while its disk lags behind"),
        SCRIPT(pause, "daemons stand still and come back"),
        SCRIPT(power, "power goes while others are cut off"),
        SCRIPT(long_tail, "the longest history belongs to the older epoch"),
        SCRIPT(promise, "a node dies between its promise and the epoch"),
        SCRIPT(activation, "a node dies between the epoch's beginning and its adoption"),
        SCRIPT(stale_cache, "a newcomer's kernel is slow to drop what it cached"),
        SCRIPT(damage, "a member's state is not what its history says"),
        SCRIPT(pieces, "a round ends between the pieces of one operation"),
        SCRIPT(donor_dies, "a donor dies before it has given what was asked for"),
        SCRIPT(late_sender, "a stopped daemon sends before it learns that it was expelled"),
};

unsigned script_count(void) {
        return ARRAY_LEN(scripts);
}
const char *script_name(unsigned k) {
        return scripts[k].name;
}

static void cut(struct sim *s, const struct act *a) {
        unsigned component[SIM_NODES_MAX] = {0};

        for (unsigned i = 0; i < s->n; i++)
                component[i] = a->component[i % 3];
        simnet_partition(s, component);
}

#define BURST_SIZE 60u

static void act_more(struct sim *s, const struct act *a, struct node *x) {
        switch (a->what) {
        case LATE:
                s->faults[FAULT_LATE]++;
                simnet_hold(s, a->node, true, 0);
                break;
        case NO_JOINED:
                simnet_hold(s, a->node, simnet_held(s, a->node), WIRE_JOINED);
                break;
        case SHORT_TAILS:
                simnet_short_tails(s, a->node);
                break;
        case BURST:
                s->faults[FAULT_BURST]++;
                clients_burst(x, BURST_SIZE);
                break;
        case SLOW_KERNEL:
                s->faults[FAULT_SLOW_KERNEL]++;
                x->slow_kernel_until = s->now + 3 * SIM_S;
                break;
        case DRAG:
                s->faults[FAULT_SLOW_NODE]++;
                x->slow_until = s->now + 2 * SIM_S;
                break;
        case LARGE:
                if (x->up && !x->paused)
                        clients_large(x);
                break;
        case NO_PART:
        case NO_GIVE:
        case FREE:
                simnet_hold(s, a->node, false, a->what == FREE ? 0 : a->what == NO_PART ? WIRE_PART : WIRE_GIVE);
                break;
        case FLAP:
                s->faults[FAULT_QUORUM_FLAP]++;
                simnet_quorum_flap(s);
                break;
        case DAMAGE:
                s->faults[FAULT_DAMAGE]++;
                node_damage(x);
                break;
        default:
                break;
        }
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
                simnet_hold(s, a->node, false, 0);
                break;
        case POWER:
                s->faults[FAULT_POWER_CUT] += nemesis_cut_power(s, x);
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
        default:
                act_more(s, a, x);
                break;
        }
}

void script_start(struct sim *s, unsigned k) {
        uint64_t at = 0;

        for (unsigned i = 0; i < scripts[k].n; i++) {
                const struct act *a = &scripts[k].acts[i];

                at = a->tight ? at + a->tight * SIM_MS
                              : a->at_ms * SIM_MS + sim_below(s, 400 * SIM_MS); /* a little apart from seed to seed */
                sim_after(s, at, act_now, (void *)(uintptr_t)a, 0);
        }
}
