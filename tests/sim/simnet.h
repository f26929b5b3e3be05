/* simnet.h: simulated corosync: totem rings, a closed process group, quorum. It promises what net.h promises and no better:
 *
 * - a ring orders messages; every member gets them in that order, each at its own pace;
 * - when a ring breaks, members that move on together deliver one common tail, others another; behind the first hole only what the group
 *   itself sent;
 * - what is sent between the loss of the token and the new ring is delivered in the new ring, and those who were not together with its
 *   sender may never get it, with the head of what the sender sends next;
 * - CONFCHG and TOTEM come together or one by one in either order; a daemon's joining or dying changes the members within a ring;
 * - quorum notices have a channel of their own: early, late, or missing until the next ring; quorum can change within a ring;
 * - a send may be refused (TRY_AGAIN). */
#pragma once

#include "sim.h"

struct simnet *simnet_new(struct sim *s);
void simnet_free(struct simnet *net);

/* What the world does to corosync on node i. */
void simnet_corosync(struct sim *s, unsigned i, bool up);
void simnet_pause(struct sim *s, unsigned i, bool paused);
void simnet_partition(struct sim *s, const unsigned component[SIM_NODES_MAX]); /* nodes of one component reach each other */
void simnet_quorum_flap(struct sim *s); /* expected votes raised for a while: quorum lost and gained within the rings */
/* Node i receives nothing until the next ring (all), or from the first message of one wire type on (0: none). */
void simnet_hold(struct sim *s, unsigned i, bool all, unsigned type);
bool simnet_held(const struct sim *s, unsigned i);
/* When a ring breaks, a component keeps no more of it than what one of its members has received, and what its members sent. */
void simnet_short_tails(struct sim *s, bool yes);
bool simnet_is_up(const struct sim *s, unsigned i);
bool simnet_whole(const struct sim *s); /* one ring of all */

/* What a daemon does. */
void simnet_join(struct sim *s, unsigned i, uint32_t pid);
void simnet_leave(struct sim *s, unsigned i); /* also death: the others learn of it */
errint_t simnet_send(struct sim *s, unsigned i, const void *p, size_t n, const void *p2, size_t n2); /* -EAGAIN, -ENOTCONN */
