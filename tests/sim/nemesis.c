/* nemesis.c: see nemesis.h. */
#include "nemesis.h"

#include "client.h"
#include "simnet.h"

#include <string.h>

static const char *const names[FAULT_COUNT] = {
#define X(id, name) [FAULT_##id] = name,
        FAULTS(X)
#undef X
};

const char *fault_name(enum fault f) {
        return names[f];
}

errint_t fault_parse(const char *text, uint32_t *ret_bits) {
        char **list = g_strsplit(text, ",", 0);
        uint32_t bits = 0;
        errint_t e = 0;

        if (strcmp(text, "all") == 0) {
                bits = (1u << FAULT_COUNT) - 1;
        } else if (strcmp(text, "none") != 0) {
                for (char **p = list; *p && e == 0; p++) {
                        e = -EINVAL;
                        for (unsigned f = 0; f < FAULT_COUNT; f++)
                                if (strcmp(*p, names[f]) == 0) {
                                        bits |= 1u << f;
                                        e = 0;
                                }
                }
        }
        g_strfreev(list);
        if (e == 0)
                *ret_bits = bits;
        return e;
}

/* --- repairs */

static void repair_daemon(struct sim *s, void *object, uint64_t life) {
        struct node *x = object;

        (void)s;
        if (x->life == life && !x->up)
                node_daemon_start(x);
}
static void repair_pause(struct sim *s, void *object, uint64_t life) {
        (void)s;
        if (((struct node *)object)->life == life)
                node_daemon_pause(object, false);
}
static void repair_corosync(struct sim *s, void *object, uint64_t value) {
        struct node *x = object;

        (void)value;
        if (!x->powered)
                return;
        simnet_corosync(s, x->i, true);
        if (x->up)
                simnet_join(s, x->i, (uint32_t)++x->pids);
        else
                node_daemon_start(x);
}
static void repair_corosync_pause(struct sim *s, void *object, uint64_t value) {
        (void)value;
        simnet_pause(s, ((struct node *)object)->i, false);
}
static void repair_power(struct sim *s, void *object, uint64_t value) {
        struct node *x = object;

        (void)s;
        (void)value;
        if (!x->powered)
                node_boot(x);
}
static void heal(struct sim *s) {
        static const unsigned together[SIM_NODES_MAX];

        simnet_partition(s, together);
}
static void repair_partition(struct sim *s, void *object, uint64_t value) {
        (void)object;
        (void)value;
        s->faults[FAULT_HEAL]++;
        heal(s);
}
static void repair_disk(struct node *x) {
        x->slow_disk_us = x->stuck_until = x->slow_until = 0;
        if (x->disk) {
                simdisk_fail(x->disk, NULL);
                simdisk_set_capacity(x->disk, 0);
        } else {
                store_backing_fail(x->backing, NULL);
        }
}
static void repair_disk_later(struct sim *s, void *object, uint64_t value) {
        struct node *x = object;

        (void)s;
        (void)value;
        repair_disk(x);
        if (x->up && x->failed) { /* the administrator repairs the disk and restarts */
                node_daemon_kill(x);
                node_daemon_start(x);
        } else if (!x->up) {
                node_daemon_start(x);
        }
}

/* --- faults */

static struct node *any(struct sim *s) {
        return &s->nodes[sim_below(s, s->n)];
}
static uint64_t a_while(struct sim *s) {
        return sim_chance(s, 70) ? sim_between(s, 100 * SIM_MS, 2 * SIM_S) : sim_between(s, 2 * SIM_S, 9 * SIM_S);
}

static bool somebody_may_have_forgotten(const struct sim *s, const struct node *but) {
        for (unsigned i = 0; i < s->n; i++)
                if (s->nodes[i].amnesia && &s->nodes[i] != but)
                        return true;
        return false;
}

static bool all_synced(const struct sim *s) {
        for (unsigned i = 0; i < s->n; i++)
                if (!node_synced(&s->nodes[i]))
                        return false;
        return true;
}

static void partition(struct sim *s) {
        unsigned component[SIM_NODES_MAX] = {0};
        unsigned kind = (unsigned)sim_below(s, 4);

        for (unsigned i = 0; i < s->n; i++)
                component[i] = kind == 0 ? i : kind == 1 ? (unsigned)sim_below(s, 3) : (unsigned)sim_below(s, 2);
        if (kind == 3) { /* one alone */
                memset(component, 0, sizeof component);
                component[sim_below(s, s->n)] = 1;
        }
        simnet_partition(s, component);
        if (sim_chance(s, 80))
                sim_after(s, a_while(s), repair_partition, NULL, 0);
}

bool nemesis_cut_power(struct sim *s, struct node *x) {
        if (!x->powered || (s->level != LEVEL_FILE && somebody_may_have_forgotten(s, x)))
                return false;
        node_power_cut(x);
        return true;
}

static bool power_cut(struct sim *s, struct node *x) {
        if (!nemesis_cut_power(s, x))
                return false;
        sim_after(s, a_while(s), repair_power, x, 0);
        return true;
}

static bool wipe(struct sim *s, struct node *x) {
        if (!x->powered || somebody_may_have_forgotten(s, x) || !all_synced(s))
                return false;
        node_power_cut(x);
        node_wipe(x);
        sim_after(s, a_while(s), repair_power, x, 0);
        return true;
}

static void disk_fault(struct sim *s, struct node *x, bool full) {
        bool sticky = sim_chance(s, 40);
        uint64_t nth = sim_between(s, 1, 30);

        if (x->disk && full)
                simdisk_set_capacity(x->disk, simdisk_used(x->disk) + sim_below(s, 64 * KIB));
        else if (x->disk)
                simdisk_fail(x->disk,
                             &(struct simdisk_fault){.kinds = SIMDISK_WRITE | SIMDISK_SYNC, .nth = nth, .sticky = sticky, .error = -EIO});
        else
                store_backing_fail(x->backing, &(struct store_fault){.calls = STORE_APPEND | STORE_WRITE_OUT | STORE_BARRIER |
                                                                              (full ? STORE_RESERVE : STORE_CHECKPOINT),
                                                                     .nth = nth,
                                                                     .sticky = sticky,
                                                                     .error = full ? -ENOSPC : -EIO});
        sim_after(s, a_while(s), repair_disk_later, x, 0);
}

static void all_restart(struct sim *s) {
        for (unsigned i = 0; i < s->n; i++) {
                struct node *x = &s->nodes[i];

                if (!x->up)
                        continue;
                node_daemon_kill(x);
                sim_after(s, sim_between(s, 10 * SIM_MS, 500 * SIM_MS), repair_daemon, x, x->life);
        }
}

static void repair_hold(struct sim *s, void *object, uint64_t value) {
        (void)value;
        simnet_hold(s, ((struct node *)object)->i, false, 0);
}

/* One direction is dead: the ring forms with the node and without it, again and again. */
static void one_way_flips(struct sim *s, void *object, uint64_t value) {
        unsigned component[SIM_NODES_MAX] = {0};
        const struct node *x = object;

        if (s->quiet_phase)
                return;
        component[x->i] = value & 1;
        simnet_partition(s, component);
        if (value > 0)
                sim_after(s, sim_between(s, 150 * SIM_MS, 900 * SIM_MS), one_way_flips, object, value - 1);
}

static bool net_and_kernel(struct sim *s, enum fault f, struct node *x) {
        switch (f) {
        case FAULT_ONE_WAY:
                one_way_flips(s, x, sim_between(s, 1, 4) * 2 - 1);
                return true;
        case FAULT_LATE:
                if (!simnet_is_up(s, x->i))
                        return false;
                simnet_hold(s, x->i, true, 0);
                sim_after(s, sim_between(s, 5 * SIM_MS, 900 * SIM_MS), repair_hold, x, 0);
                return true;
        case FAULT_BURST:
                if (!x->up || x->paused)
                        return false;
                clients_burst(x, (unsigned)sim_between(s, 5, 60));
                return true;
        case FAULT_SLOW_KERNEL:
                x->slow_kernel_until = s->now + a_while(s);
                return true;
        default:
                return false;
        }
}

static bool disk_and_time(struct sim *s, enum fault f, struct node *x) {
        switch (f) {
        case FAULT_SLOW_DISK:
                x->slow_disk_us = sim_between(s, 10 * SIM_MS, 800 * SIM_MS);
                sim_after(s, a_while(s), repair_disk_later, x, 0);
                return true;
        case FAULT_STUCK_DISK:
                x->stuck_until = s->now + sim_between(s, 1 * SIM_S, 9 * SIM_S);
                sim_after(s, x->stuck_until - s->now, repair_disk_later, x, 0);
                return true;
        case FAULT_DISK_ERROR:
        case FAULT_DISK_FULL:
                disk_fault(s, x, f == FAULT_DISK_FULL);
                return true;
        case FAULT_BUSY:
                x->refuse_until = s->now + sim_between(s, 5 * SIM_MS, 2 * SIM_S);
                return true;
        case FAULT_CLOCK_JUMP:
                x->clock_offset_ms += (int64_t)sim_below(s, 7200000) - 3600000;
                return true;
        case FAULT_QUORUM_FLAP:
                simnet_quorum_flap(s);
                return true;
        case FAULT_ALL_RESTART:
                all_restart(s);
                return true;
        case FAULT_SLOW_NODE:
                x->slow_until = s->now + a_while(s);
                return true;
        default:
                return net_and_kernel(s, f, x);
        }
}

/* A death in the middle of a checkpoint: too short a time to meet it by chance. */
static void kill_in_checkpoint(struct sim *s, void *object, uint64_t tries) {
        struct node *x = object;

        if (s->quiet_phase || !x->up || tries == 0)
                return;
        if (!x->checkpoint_open || x->paused) {
                sim_after(s, 2 * SIM_MS, kill_in_checkpoint, x, tries - 1);
                return;
        }
        node_daemon_kill(x);
        sim_after(s, a_while(s), repair_daemon, x, x->life);
}

static bool strike(struct sim *s, enum fault f) {
        struct node *x = any(s);

        switch (f) {
        case FAULT_PARTITION:
                partition(s);
                return true;
        case FAULT_HEAL:
                heal(s);
                return true;
        case FAULT_DAEMON_KILL:
                if (!x->up)
                        return false;
                if (sim_chance(s, 50)) {
                        kill_in_checkpoint(s, x, 2000);
                        return true;
                }
                node_daemon_kill(x);
                sim_after(s, a_while(s), repair_daemon, x, x->life);
                return true;
        case FAULT_DAEMON_LEAVE:
                if (!x->up || x->paused)
                        return false;
                node_daemon_stop(x);
                sim_after(s, a_while(s), repair_daemon, x, x->life);
                return true;
        case FAULT_DAEMON_PAUSE:
                if (!x->up || x->paused)
                        return false;
                node_daemon_pause(x, true);
                sim_after(s, a_while(s), repair_pause, x, x->life);
                return true;
        case FAULT_COROSYNC_KILL:
                if (!x->powered || !simnet_is_up(s, x->i))
                        return false;
                simnet_corosync(s, x->i, false);
                sim_after(s, a_while(s), repair_corosync, x, 0);
                return true;
        case FAULT_COROSYNC_PAUSE:
                if (!simnet_is_up(s, x->i))
                        return false;
                simnet_pause(s, x->i, true);
                sim_after(s, a_while(s), repair_corosync_pause, x, 0);
                return true;
        case FAULT_POWER_CUT:
                return power_cut(s, x);
        case FAULT_WIPE:
                return wipe(s, x);
        default:
                return disk_and_time(s, f, x);
        }
}

static void next_fault(struct sim *s, void *object, uint64_t value) {
        (void)object;
        (void)value;
        if (s->quiet_phase)
                return;
        for (unsigned tries = 0; tries < 8; tries++) {
                enum fault f = (enum fault)sim_below(s, FAULT_COUNT);

                if (!(s->config.faults & (1u << f)))
                        continue;
                sim_trace(s, "fault %s", names[f]);
                if (strike(s, f)) {
                        s->faults[f]++;
                        sim_mix(s, f);
                        break;
                }
        }
        sim_after(s, sim_chance(s, 30) ? sim_between(s, 10 * SIM_MS, 300 * SIM_MS) : sim_between(s, 300 * SIM_MS, 4 * SIM_S), next_fault,
                  NULL, 0);
}

void nemesis_start(struct sim *s) {
        if (s->config.script >= 0)
                script_start(s, (unsigned)s->config.script);
        else if (s->config.faults)
                sim_after(s, sim_between(s, 1 * SIM_S, 4 * SIM_S), next_fault, NULL, 0);
}

void nemesis_end(struct sim *s) {
        heal(s);
        for (unsigned i = 0; i < s->n; i++) {
                struct node *x = &s->nodes[i];
                bool failed = x->up && x->failed;

                repair_disk(x);
                x->refuse_until = x->slow_kernel_until = 0;
                simnet_hold(s, i, false, 0);
                if (!x->powered) {
                        node_boot(x);
                        continue;
                }
                if (!simnet_is_up(s, i))
                        repair_corosync(s, x, 0);
                simnet_pause(s, i, false);
                node_daemon_pause(x, false);
                if (failed)
                        node_daemon_kill(x);
                if (!x->up)
                        node_daemon_start(x);
        }
}
