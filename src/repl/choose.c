/* choose.c: from the STATEs of a round to the one answer that every member finds alike: who is set aside, whether the rest may form an
 * epoch, which state it begins with, and its number. Looks at nothing but the STATEs, which all members of the round have alike. */
#include "machine.h"

/* The version that most votes speak; the higher one of two that are equal. */
static uint8_t choose_version(const struct member *members, size_t n) {
        uint64_t most = 0;
        unsigned found = 0;
        for (unsigned v = 1; v <= UINT8_MAX; v++) {
                uint64_t votes = 0;
                for (size_t i = 0; i < n; i++)
                        if (members[i].in_round && members[i].state.lowest <= v && v <= members[i].state.highest)
                                votes += 1 + (uint64_t)members[i].state.votes * REPL_MEMBERS_MAX; /* members without a vote count last */
                if (votes > 0 && votes >= most) {
                        most = votes;
                        found = v;
                }
        }
        return (uint8_t)found;
}

static bool id_is_none(const uint8_t id[16]) {
        static const uint8_t none[16];
        return memcmp(id, none, sizeof(none)) == 0;
}

/* The cluster that most votes belong to; the lower id of two that are equal. False: nobody belongs to any. */
static bool choose_cluster(const struct member *members, size_t n, const struct choice *c, uint8_t ret[16]) {
        uint64_t most = 0;
        for (size_t i = 0; i < n; i++) {
                if (!members[i].in_round || c->aside[i] || id_is_none(members[i].state.cluster_id))
                        continue;
                uint64_t votes = 0;
                for (size_t j = 0; j < n; j++)
                        if (members[j].in_round && !c->aside[j] &&
                            memcmp(members[i].state.cluster_id, members[j].state.cluster_id, 16) == 0)
                                votes += 1 + (uint64_t)members[j].state.votes * REPL_MEMBERS_MAX;
                if (votes > most || (votes == most && memcmp(members[i].state.cluster_id, ret, 16) < 0)) {
                        most = votes;
                        memcpy(ret, members[i].state.cluster_id, 16);
                }
        }
        return most > 0;
}

static bool minority(struct choice *c, const char *why) {
        c->kind = CHOICE_MINORITY;
        c->why = why;
        return false;
}

/* The founder before its first epoch: nobody else joins, and so has the cluster's id, before the founder's promise is on its medium
 * (join.c). Where it has promised nothing, nobody has ever acknowledged anything that could have been forgotten. */
static bool is_beginning(const struct member *members, size_t n, const struct choice *c) {
        for (size_t i = 0; i < n; i++) {
                const struct wire_state *s = &members[i].state;
                if (members[i].in_round && !c->aside[i] && !id_is_none(s->cluster_id) && (s->promised > 0 || (s->flags & STATE_FORGETFUL)))
                        return false;
        }
        return true;
}

/* Whether those who are not set aside may choose at all. */
static bool choose_quorum(const struct member *members, size_t n, bool forgive, struct choice *c) {
        uint64_t votes = 0, remember = 0, expected = 0, extra = UINT32_MAX, needed = 1;
        for (size_t i = 0; i < n; i++) {
                const struct wire_state *s = &members[i].state;
                if (!members[i].in_round || c->aside[i])
                        continue;
                if (!(s->flags & STATE_QUORATE))
                        return minority(c, "no quorum");
                votes += s->votes;
                bool forgetful = (s->flags & STATE_FORGETFUL) || id_is_none(s->cluster_id); /* an empty node remembers nothing either */
                if (!forgetful || repl_variant(VARIANT_FORGETFUL_VOTES))
                        remember += s->votes;
                expected = MAX_OF(expected, (uint64_t)s->expected);
                needed = MAX_OF(needed, (uint64_t)s->needed);
                extra = MIN_OF(extra, (uint64_t)s->extra);
                c->weak = c->weak || (s->flags & STATE_WEAK);
        }
        c->needed = (uint32_t)needed;
        c->extra = (uint32_t)extra;
        if (votes + extra < needed)
                return minority(c, "the members of this view hold no quorum of votes");
        c->beginning = is_beginning(members, n, c);
        if (remember + extra >= needed || c->beginning)
                return true;
        c->forgiven = true;
        if (votes + extra >= expected || forgive)
                return true;
        c->kind = CHOICE_HOLD;
        c->why = "too many members may have forgotten what they acknowledged: waiting for the others";
        return false;
}

static bool better(const struct wire_state *a, const struct wire_state *b) {
        if (repl_variant(VARIANT_MAX_SEQUENCE))
                return a->seq > b->seq;
        return a->adopted != b->adopted ? a->adopted > b->adopted : a->seq > b->seq;
}

void choose(const struct member *members, size_t n, bool forgive, struct choice *ret) {
        struct choice c = {.kind = CHOICE_READY, .why = "", .best = n};
        c.version = choose_version(members, n);
        for (size_t i = 0; i < n; i++)
                if (members[i].in_round && (members[i].state.lowest > c.version || members[i].state.highest < c.version))
                        c.aside[i] = ASIDE_VERSION;
        bool founded = choose_cluster(members, n, &c, c.cluster_id);
        for (size_t i = 0; i < n; i++) {
                const uint8_t *id = members[i].state.cluster_id;
                if (members[i].in_round && !c.aside[i] && !id_is_none(id) && memcmp(id, c.cluster_id, 16) != 0)
                        c.aside[i] = ASIDE_FOREIGN;
        }
        if (!founded)
                minority(&c, "no member belongs to a cluster yet");
        else if (choose_quorum(members, n, forgive, &c)) {
                for (size_t i = 0; i < n; i++) { /* sorted by node id: of equal ones the lowest */
                        if (!members[i].in_round || c.aside[i])
                                continue;
                        bool of_cluster = !id_is_none(members[i].state.cluster_id); /* whatever else a node holds is not this cluster's */
                        if (of_cluster && (c.best == n || better(&members[i].state, &members[c.best].state)))
                                c.best = i;
                        uint64_t promised = repl_variant(VARIANT_NO_PROMISE) ? members[i].state.adopted : members[i].state.promised;
                        c.epoch = MAX_OF(c.epoch, promised);
                }
                c.epoch += repl_variant(VARIANT_EPOCH_REUSED) && c.epoch > 0 ? 0 : 1;
        }
        *ret = c;
}

uint32_t choice_votes(const struct choice *c, const struct member *members, size_t n, bool (*counts)(const struct member *m)) {
        uint64_t votes = c->extra;
        for (size_t i = 0; i < n; i++)
                if (members[i].in_round && members[i].aside == ASIDE_NO && counts(&members[i]))
                        votes += members[i].state.votes;
        return (uint32_t)MIN_OF(votes, (uint64_t)UINT32_MAX);
}
