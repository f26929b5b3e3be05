/* sim.h: the simulator: the machine, the store and the request layer as they ship, in a world that one seed decides: virtual time, a group
 * communication that promises what net.h does and no better, disks that forget, and clients.
 *
 * One thread; no clock, no randomness but the seed's. Time is in microseconds. docs/SIMULATION.md is the manual. */
#pragma once

#include "base/base.h"
#include "base/hash.h"
#include "core/state.h"
#include "fs/fs.h"
#include "repl/repl.h"
#include "store/store.h"
#include "store/store_memory.h"

#include <glib.h>

#define SIM_NODES_MAX 7u
#define SIM_MS UINT64_C(1000)
#define SIM_S (1000 * SIM_MS)

/* --- faults and rare branches that are counted: X(NAME, "name") */
#define FAULTS(X)                                                                                                                          \
        X(PARTITION, "partition")                                                                                                          \
        X(HEAL, "heal")                                                                                                                    \
        X(DAEMON_KILL, "daemon-kill")                                                                                                      \
        X(DAEMON_PAUSE, "daemon-pause")                                                                                                    \
        X(DAEMON_LEAVE, "daemon-leave")                                                                                                    \
        X(COROSYNC_KILL, "corosync-kill")                                                                                                  \
        X(COROSYNC_PAUSE, "corosync-pause")                                                                                                \
        X(POWER_CUT, "power-cut")                                                                                                          \
        X(WIPE, "wipe")                                                                                                                    \
        X(SLOW_DISK, "slow-disk")                                                                                                          \
        X(STUCK_DISK, "stuck-disk")                                                                                                        \
        X(DISK_ERROR, "disk-error")                                                                                                        \
        X(DISK_FULL, "disk-full")                                                                                                          \
        X(BUSY, "try-again")                                                                                                               \
        X(CLOCK_JUMP, "clock-jump")                                                                                                        \
        X(QUORUM_FLAP, "quorum-flap")                                                                                                      \
        X(ALL_RESTART, "all-restart")                                                                                                      \
        X(SLOW_NODE, "slow-node")                                                                                                          \
        X(ONE_WAY, "one-way-link")                                                                                                         \
        X(LATE, "late-messages")                                                                                                           \
        X(BURST, "burst")                                                                                                                  \
        X(SLOW_KERNEL, "slow-kernel")                                                                                                      \
        X(DAMAGE, "damaged-state")
enum fault {
#define X(id, name) FAULT_##id,
        FAULTS(X)
#undef X
                FAULT_COUNT
};
#define PROBES(X)                                                                                                                          \
        X(VIEW_PLAIN, "view: ring and members change together")                                                                            \
        X(VIEW_CONFCHG_FIRST, "view: CONFCHG alone, TOTEM behind it")                                                                      \
        X(VIEW_TOTEM_FIRST, "view: TOTEM alone, CONFCHG behind it")                                                                        \
        X(VIEW_TOTEM_ONLY, "view: the ring changes, the members do not")                                                                   \
        X(VIEW_CONFCHG_ONLY, "view: the members change, the ring does not")                                                                \
        X(QUORUM_EARLY, "quorum notice before its ring's view")                                                                            \
        X(QUORUM_LATE, "quorum notice long after its ring's view")                                                                         \
        X(QUORUM_MISSING, "quorum notice missing")                                                                                         \
        X(CARRIED, "message of one view delivered in the next")                                                                            \
        X(THROWN_AWAY, "message of the ring that one member never gets")                                                                   \
        X(TAILS_DIFFER, "components deliver different tails")                                                                              \
        X(REFUSED_SEND, "send refused (TRY_AGAIN)")                                                                                        \
        X(EPOCH_BEGUN, "a node becomes primary")                                                                                           \
        X(REPLACED, "another history taken over")                                                                                          \
        X(LOG_READ, "a newcomer asks for the log")                                                                                         \
        X(LOG_TOO_OLD, "the log does not reach back far enough")                                                                           \
        X(CONFLICT, "conflict record")                                                                                                     \
        X(REPLY_EROFS, "request answered EROFS")                                                                                           \
        X(REPLY_EIO, "request answered EIO: fate not known")                                                                               \
        X(SENT_AGAIN, "request applied again where its first position was given up")                                                       \
        X(RESTART_UNCLEAN, "restart from a log that was not empty")                                                                        \
        X(RESTART_FORGETFUL, "restart that may have forgotten")                                                                            \
        X(CHECKPOINT, "checkpoint")                                                                                                        \
        X(CRASH_IN_CHECKPOINT, "death between a checkpoint's beginning and end")                                                           \
        X(RESCUE, "rescue checkpoint after a failed call")                                                                                 \
        X(STORE_FAILED, "store failed for good")                                                                                           \
        X(ACK_LATE, "acknowledged after another epoch began elsewhere")                                                                    \
        X(BARRIER, "barrier over all members")                                                                                             \
        X(FRAGMENTED, "operation larger than a message")                                                                                   \
        X(CACHED_READ, "read answered from the kernel's cache")                                                                            \
        X(STALE_ALLOWED, "old content read on a node outside of the synced set")                                                           \
        X(LATE_INVALIDATION, "kernel's cache cleared late")
enum probe {
#define X(id, name) PROBE_##id,
        PROBES(X)
#undef X
                PROBE_COUNT
};

struct sim_config {
        uint64_t seed;
        unsigned nodes;      /* 0: drawn, 3 to 7 */
        uint64_t ticks;      /* virtual ms with faults; 0: drawn */
        uint32_t faults;     /* bits of enum fault that may happen */
        int store;           /* 0: memory, 1: sqlite on a simulated disk, -1: drawn */
        int script;          /* a scripted schedule instead of drawn faults; -1: none */
        bool trace;
        bool quiet;
};

enum verdict { VERDICT_OK = 0, VERDICT_SAFETY = 1, VERDICT_LIVENESS = 3 };

struct simnet;
struct node;
struct history;
struct clients;

struct sim {
        struct sim_config config;
        uint64_t now; /* us */
        uint64_t random[2];
        struct sim_queue *queue;
        struct simnet *net;
        struct node *nodes; /* [n] */
        unsigned n;
        struct history *history;
        struct clients *clients;
        enum sync_level level;
        bool quiet_phase; /* no more faults: everybody must converge */
        bool ended;
        uint64_t hash; /* of everything that happened */
        uint64_t faults[FAULT_COUNT], probes[PROBE_COUNT];
        uint64_t operations; /* client operations begun */
        enum verdict verdict;
        char checker[64], what[512];
};

/* --- random: xoroshiro128+, seeded by splitmix */
uint64_t sim_draw(struct sim *s);
void sim_fill(struct sim *s, uint8_t *p, size_t n); /* one draw for every eight bytes */
uint64_t sim_below(struct sim *s, uint64_t n); /* 0..n-1 */
bool sim_chance(struct sim *s, unsigned percent);
uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high); /* inclusive */

/* --- virtual time */
typedef void (*sim_fn)(struct sim *s, void *object, uint64_t value);
void sim_after(struct sim *s, uint64_t us, sim_fn fn, void *object, uint64_t value);
/* The same with an object of its own: freed after fn has run, or at the end of the run. */
void sim_after_owned(struct sim *s, uint64_t us, sim_fn fn, void *object, uint64_t value, void (*free_fn)(void *object));

/* --- telling */
void sim_trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_mix(struct sim *s, uint64_t value); /* into the trace hash */
static inline void sim_probe(struct sim *s, enum probe p) { s->probes[p]++; }
/* A checker found something; the first one counts, and ends the run. */
void sim_violation(struct sim *s, enum verdict verdict, const char *checker, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

void sim_run(struct sim *s, const struct sim_config *config); /* s filled with the outcome; sim_done frees */
void sim_done(struct sim *s);
uint64_t sim_now_ms(const struct sim *s);
