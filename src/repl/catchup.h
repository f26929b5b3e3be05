/* catchup.h (private to repl): a newcomer's side of state transfer, shared by catchup.c (whom to ask, log, taking over) and difference.c. */
#pragma once

#include "staged.h"
#include "transfer.h"

enum catchup_stage {
        CATCHUP_BEGIN,     /* asked how */
        CATCHUP_LOG,       /* by log */
        CATCHUP_DIFFERENCE,
        CATCHUP_CONFLICTS, /* reading our own log for what the new history lacks */
        CATCHUP_BUILT,     /* the new state stands beside the old one */
        CATCHUP_REPLACING  /* taken over; the store is switching */
};
struct want {
        enum object_kind kind;
        uint64_t id;
        size_t slot; /* in the target: INODE, CONTENT */
};
struct wanted { /* asked for, arriving */
        struct want w;
        uint8_t *data;
        size_t total, have, cap;
};
struct catchup {
        enum catchup_stage stage;
        uint64_t transfer; /* the name of this attempt */
        size_t donor;
        unsigned attempt, faults;
        bool by_difference; /* no log any more */
        uint64_t last_piece; /* on the quiet clock */
        struct transfer_begin begin;
        uint8_t *begin_bytes;
        size_t begin_len;
        uint64_t log_next;
        uint64_t received, told_at; /* bytes of pieces, for people; and when the log was told last */

        struct capture *own, *target;
        struct want *wants; /* a queue: wants[wants_at .. n_wants) */
        size_t wants_at, n_wants, cap_wants;
        struct wanted out[TRANSFER_WISHES];
        size_t n_out;
        struct staged staged;

        struct state built;
        bool has_built;
        uint64_t conflict_tag;
        uint64_t conflict_span, conflict_good, conflict_bad; /* operations asked of our log; the most it had; the fewest it had not all */
        struct op_queue conflicts;
};

void catchup_send(struct repl *r, const struct wish *wishes, size_t n);
void catchup_restart(struct repl *r, const char *why); /* something did not fit: from the beginning, by difference */
void catchup_built(struct repl *r);

/* difference.c */
void difference_begin(struct repl *r);
void difference_piece(struct repl *r, const struct piece *p);
void difference_pump(struct repl *r); /* asks for more; builds when nothing is missing */
void difference_drop(struct catchup *c, bool own_too);
