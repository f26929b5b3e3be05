/* variant.h (private to repl and to the simulator): the machine broken on purpose, to prove that the simulator's checkers find it.
 * Without COTERIE_VARIANTS every question is the constant `no` and the compiler drops the code; the library that ships has none of it. */
#pragma once

#include <stdbool.h>

/* X(name in code, "name on the command line", "what is broken") */
#define REPL_VARIANTS(X)                                                                                                                   \
        X(ACK_SELF_DELIVERY, "ack-self-delivery", "acknowledges when its own operation is delivered to itself")                            \
        X(MAX_SEQUENCE, "max-sequence", "the highest sequence wins, whatever its epoch")                                                   \
        X(NO_PROMISE, "no-promise", "epochs follow the highest adopted one; nothing is promised")                                          \
        X(PROMISE_NOT_PERSISTED, "promise-not-persisted", "JOINED is sent before the promise is on the medium, which never happens")       \
        X(ADOPT_BEFORE_CAUGHT_UP, "adopt-before-caught-up", "a newcomer joins with its old state")                                         \
        X(EPOCH_REUSED, "epoch-reused", "the new epoch is the highest promised one")                                                       \
        X(EXPEL_WITHOUT_ROUND, "expel-without-round", "an expelled member is struck from S, and the epoch goes on")                        \
        X(MAJORITY, "majority", "stable when more than half of S acknowledged")                                                            \
        X(NO_DIGEST, "no-digest", "acknowledgements count without comparing digests")                                                      \
        X(OLD_EPOCH, "old-epoch", "operations of earlier views and rounds are applied")                                                    \
        X(ACK_BEFORE_LOG, "ack-before-log", "acknowledges before the log has it")                                                          \
        X(OTHER_RING, "other-ring", "takes quorum from any ring with the same number of members")                                          \
        X(SKIP_DELETIONS, "skip-deletions", "catching up does not take away what the donor lacks")                                         \
        X(MIXED_PARTS, "mixed-parts", "a piece of one operation completes another's")                                                      \
        X(RESEND_BLIND, "resend-blind", "sends again without looking up, and applies it again")                                            \
        X(IN_PLACE, "in-place", "catches up in place: the old state is gone when the transfer begins")                                     \
        X(FORGETFUL_VOTES, "forgetful-votes", "members that may have forgotten vote")                                                      \
        X(ADOPTED_FIRST, "adopted-first", "the adopted epoch is durable before what it stands on")                                         \
        X(NEWEST_QUORUM, "newest-quorum", "the newest quorum flag counts, whatever its ring")                                              \
        X(TOTEM_IGNORED, "totem-ignored", "a ring change with the same members begins no view")                                            \
        X(FSYNC_ORIGIN, "fsync-origin", "a barrier flushes this node only")                                                                \
        X(JOINED_EARLY, "joined-early", "JOINED is sent before the kernel's caches are clear")                                             \
        X(ACK_AT_ACTIVATION, "ack-at-activation", "what waits and is in the chosen state is acknowledged when the epoch begins")           \
        X(APPLY_CLOCK, "apply-clock", "apply reads the clock")

enum repl_variant {
        VARIANT_NONE,
#define X(name, text, help) VARIANT_##name,
        REPL_VARIANTS(X)
#undef X
                VARIANT_COUNT
};

#ifdef COTERIE_VARIANTS
bool repl_variant(enum repl_variant v); /* the simulator's: is this the machine to break, and so? */
#else
static inline bool repl_variant(enum repl_variant v) {
        (void)v;
        return false;
}
#endif
