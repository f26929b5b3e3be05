/* coterie.pml: view change and stability for three nodes, for spin. docs/PROTOCOL.md has the rules; run.sh runs this.
 *
 * The network is a little weaker than virtual synchrony. A view is a list of members with one order of messages. Those of its members that
 * move on to the next view together deliver one common tail first: everything up to a cut, and behind it what they sent themselves. A
 * node that is cut off alone does the same and is then in no view. Nodes that are left behind may go on in the old view with what they
 * have and send. A crash keeps what is persisted: promised, adopted, the history. STATE needs no messages here: what a node tells does not
 * change while it waits, and a node that does not hear of the others just does not act. ACKs are not in the order but remember their place
 * in it: who is there, and has not missed what comes before, has them.
 *
 * Begins with all three in the synced set of epoch 1; with COLD: with nobody there yet.
 * Bounds: VIEWS views, OPS operations, CUTS nodes cut off, CRASHES crashes. Checked: an epoch is adopted only with a state that holds, at the same place,
 * every operation acknowledged in an earlier epoch.
 * Shortcuts: NOPROMISE and SELFACK are found within small bounds; MAXSEQ, NODIGEST, MAJORITY and ATACTIVATION need more than fits. */

#ifndef VIEWS
#define VIEWS 3
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef CUTS
#define CUTS 1
#endif
#if defined(ONLY) && !defined(THEN)
#define THEN ONLY
#endif
#if defined(ONLY) && !defined(LAST)
#define LAST THEN
#endif
#define N      3
#define QUEUE  7
#define NONE   100
#define BIT(i) (1 << (i))
#define QUORUM(s) ((s) == 3 || (s) == 5 || (s) == 6 || (s) == 7)

mtype = {JOINED, OP};

typedef node_t {
        bool holds, running;  /* volatile: holds the chosen state and has sent JOINED; the epoch is active */
        byte view, pos, s;    /* s: members whose JOINED was delivered */
        byte pending;         /* bit per operation whose caller waits here */
        byte promised, adopted, length, log; /* persisted; log: 2 bits per operation, the first one lowest */
};
typedef view_t {
        byte members, epoch, length, log, label; /* the chosen state, and its adopted epoch */
        byte n;
        mtype kind[QUEUE];
        byte arg[QUEUE];      /* JOINED: who. OP: which */
        byte from[QUEUE];
        byte ack_log[N];      /* what each has acknowledged: a history */
        byte ack_at[12];      /* member * 4 + length: place in the order of the ACK of that length, from 1; 0: none */
};

node_t node[N];
view_t view[VIEWS + 1]; /* view 0: none */
byte views = 0, ops = 0, crashes = 0, cuts = 0;
byte acked_at[OPS + 1];    /* place in the history, from 1; 0: not acknowledged */
byte acked_epoch[OPS + 1];

#define ME node[i]
#define CLEAN i = 0; k = 0; x = 0; best = 0; set = 0; slack = 0; group = 0; cut = 0; v = 0; end = 0
#define V  view[node[i].view]
#define AT(l, k)     (((l) >> (2 * (k))) & 3) /* the k-th operation of a history */
#define PREFIX(l, k) ((l) & ((1 << (2 * (k))) - 1))

/* Member j of our view has acknowledged our history up to place k, and we have that ACK: an ACK of a greater length says it too. */
#define SEEN(j, l)  (V.ack_at[(j) * 4 + (l)] > 0 && V.ack_at[(j) * 4 + (l)] <= ME.pos + 1 && (V.ack_at[(j) * 4 + (l)] <= hole || (group & BIT(j))))
#define TOLD(j, k)  (((k) < 1 && SEEN(j, 1)) || ((k) < 2 && SEEN(j, 2)) || ((k) < 3 && SEEN(j, 3)))
#ifdef NODIGEST
#define CONFIRMED(j, k) ((j) == i || TOLD(j, k)) /* our own needs no message */
#else
#define CONFIRMED(j, k) ((j) == i || (TOLD(j, k) && PREFIX(V.ack_log[j], (k) + 1) == PREFIX(ME.log, (k) + 1)))
#endif
#ifdef MAJORITY
#define STABLE(k) (CONFIRMED(0, k) + CONFIRMED(1, k) + CONFIRMED(2, k) >= 2)
#else
#define STABLE(k) ((!(ME.s & 1) || CONFIRMED(0, k)) && (!(ME.s & 2) || CONFIRMED(1, k)) && (!(ME.s & 4) || CONFIRMED(2, k)))
#endif

inline post(kind_, arg_) {
        assert(V.n < QUEUE);
        V.kind[V.n] = kind_;
        V.arg[V.n] = arg_;
        V.from[V.n] = i;
        V.n++
}

inline ack() { /* what is sent while a tail is delivered arrives in the next view, where nobody counts it */
        if
        :: !draining ->
                V.ack_at[i * 4 + ME.length] = (V.ack_at[i * 4 + ME.length] == 0 -> V.n + 1 : V.ack_at[i * 4 + ME.length]);
                V.ack_log[i] = ME.log
        :: else
        fi
}

inline acknowledge(x_, k_) {
        ME.pending = ME.pending & ~BIT(x_);
        acked_at[x_] = k_ + 1;
        acked_epoch[x_] = V.epoch
}

inline apply(x_) {
        ME.log = ME.log | ((x_) << (2 * ME.length));
        ME.length++
}

inline adopt() { /* what an earlier epoch acknowledged must be here */
        ME.adopted = V.epoch;
        x = 1;
        do
        :: x <= ops ->
                assert(acked_at[x] == 0 || acked_epoch[x] >= V.epoch || (acked_at[x] <= ME.length && AT(ME.log, acked_at[x] - 1) == x));
                x++
        :: else -> break
        od;
#ifdef ATACTIVATION
        k = 0;
        do
        :: k < ME.length ->
                x = AT(ME.log, k);
                if
                :: ME.pending & BIT(x) -> acknowledge(x, k)
                :: else
                fi;
                k++
        :: else -> break
        od;
#endif
        ack()
}

inline forget() {
        ME.holds = false;
        ME.running = false;
        ME.s = 0;
        ME.pos = 0;
        ME.view = 0
}

/* A view that nobody is in any more need not be remembered. */
inline clear(v_) {
        if
        :: v_ > 0 && node[0].view != v_ && node[1].view != v_ && node[2].view != v_ ->
                k = 0;
                do
                :: k < QUEUE -> view[v_].kind[k] = 0; view[v_].arg[k] = 0; view[v_].from[k] = 0; k++
                :: else -> break
                od;
                k = 0;
                do
                :: k < N -> view[v_].ack_log[k] = 0; view[v_].ack_at[k * 4] = 0; view[v_].ack_at[k * 4 + 1] = 0; view[v_].ack_at[k * 4 + 2] = 0; view[v_].ack_at[k * 4 + 3] = 0; k++
                :: else -> break
                od;
                view[v_].n = 0; view[v_].members = 0; view[v_].epoch = 0; view[v_].length = 0; view[v_].log = 0; view[v_].label = 0
        :: else
        fi
}

/* Takes over what was chosen, and what the active epoch has delivered since; promises; joins. */
inline join() {
        ME.adopted = V.label;
        ME.log = V.log;
        ME.length = V.length;
        k = 0;
        x = 0;
        do
        :: k < ME.pos ->
                if
                :: V.kind[k] == JOINED -> x = x | BIT(V.arg[k])
                :: V.kind[k] == OP && QUORUM(x) -> apply(V.arg[k])
                :: else
                fi;
                k++
        :: else -> break
        od;
#ifndef NOPROMISE
        ME.promised = (V.epoch > ME.promised -> V.epoch : ME.promised);
#endif
        ME.holds = true;
        post(JOINED, i)
}

inline deliver() {
        x = V.arg[ME.pos];
        if
        :: V.kind[ME.pos] == JOINED ->
                ME.pos++;
                ME.s = ME.s | BIT(x);
                if
                :: !ME.running && QUORUM(ME.s) ->
                        ME.running = true;
                        if
                        :: ME.s & BIT(i) -> adopt()
                        :: else
                        fi
                :: ME.running && x == i -> adopt()
                :: else
                fi
        :: V.kind[ME.pos] == OP ->
                ME.pos++;
                if
                :: ME.running && ME.holds ->
                        apply(x);
                        if
                        :: ME.s & BIT(i) -> ack()
                        :: else
                        fi;
#ifdef SELFACK
                        if
                        :: ME.pending & BIT(x) -> acknowledge(x, ME.length - 1)
                        :: else
                        fi
#endif
                :: else
                fi
        fi
}

inline settle() {
        k = 0;
        do
        :: k < ME.length ->
                x = AT(ME.log, k);
                if
                :: ME.running && (ME.s & BIT(i)) && (ME.pending & BIT(x)) && STABLE(k) -> acknowledge(x, k)
                :: else
                fi;
                k++
        :: else -> break
        od
}

/* Leaves the view: those in group_ deliver what is left up to the cut, and behind it what they sent. */
inline drain(group_, cut_) {
        end = V.n;
        draining = true;
        settle();
        do
        :: ME.pos < end && (ME.pos < (cut_) || (group_) & BIT(V.from[ME.pos])) ->
                deliver();
                settle()
        :: ME.pos < end && ME.pos >= (cut_) && !((group_) & BIT(V.from[ME.pos])) ->
                hole = (hole == NONE -> ME.pos + 1 : hole);
                ME.pos++
        :: ME.pos >= end -> break
        od;
        draining = false;
        hole = NONE
}

/* The members of set_ that are in view v_ deliver their common tail; slack_ says how long it is. */
inline drain_group(set_, v_, slack_) {
        group = 0;
        cut = 0;
        i = 0;
        do
        :: i < N ->
                if
                :: (set_) & BIT(i) && ME.view == v_ ->
                        group = group | BIT(i);
                        cut = (ME.pos > cut -> ME.pos : cut)
                :: else
                fi;
                i++
        :: else -> break
        od;
        cut = cut + slack_;
        i = 0;
        do
        :: i < N ->
                if
                :: group & BIT(i) -> drain(group, cut)
                :: else
                fi;
                i++
        :: else -> break
        od
}

/* The next view: these members; the best state; the next epoch. */
inline new_view(members_, slack_) {
        v = 1;
        do
        :: v <= views -> drain_group(members_, v, slack_); v++
        :: else -> break
        od;
        views++;
        view[views].members = members_;
        best = N;
        k = 0;
        x = 0;
        do
        :: k < N ->
                if
                :: (members_) & BIT(k) ->
#ifdef NOPROMISE
                        x = (node[k].adopted > x -> node[k].adopted : x);
#else
                        x = (node[k].promised > x -> node[k].promised : x);
#endif
                        if
                        :: best == N -> best = k
#ifdef MAXSEQ
                        :: best < N && node[k].length > node[best].length -> best = k
#else
                        :: best < N && (node[k].adopted > node[best].adopted || (node[k].adopted == node[best].adopted && node[k].length > node[best].length)) ->
                                best = k
#endif
                        :: else
                        fi
                :: else
                fi;
                k++
        :: else -> break
        od;
        view[views].epoch = x + 1;
        view[views].length = node[best].length;
        view[views].log = node[best].log;
        view[views].label = node[best].adopted;
        i = 0;
        do
        :: i < N ->
                if
                :: (members_) & BIT(i) ->
                        x = ME.view;
                        forget();
                        ME.view = views;
                        clear(x)
                :: else
                fi;
                i++
        :: else -> break
        od
}

init {
        byte i, k, x, best, set, slack, group, cut, v, end;
        byte hole = NONE; /* while a tail is delivered: the place of the first message that was missed */
        bool draining = false;
        d_step {
                new_view(7, 0);
#ifndef COLD /* all three are in S of epoch 1 */
                i = 0;
                do
                :: i < N ->
                        post(JOINED, i);
                        ME.promised = 1;
                        ME.adopted = 1;
                        ME.holds = true;
                        ME.running = true;
                        ME.s = 7;
                        ME.pos = N;
                        i++
                :: else -> break
                od;
#endif
                CLEAN
        }
        do
        :: atomic {
                views < VIEWS ->
                if
#ifdef ONLY /* the members of the second, third and fourth view: where all would take too long to find what is looked for */
                :: x = (views == 1 -> ONLY : (views == 2 -> THEN : LAST))
#else
                :: x = 3
                :: x = 5
                :: x = 6
                :: x = 7
#endif
                fi;
                set = x;
                if
                :: slack = 0
                :: slack = 1
                :: slack = QUEUE
                fi;
                d_step { new_view(set, slack); CLEAN }
           }
        :: atomic {
                if
                :: i = 0
                :: i = 1
                :: i = 2
                fi;
                if
                :: ME.view > 0 && ME.pos < V.n -> d_step { deliver(); CLEAN }
                :: ME.view > 0 && !ME.holds -> d_step { join(); CLEAN }
                :: ME.running && (ME.s & BIT(i)) && ops < OPS -> d_step { ops++; ME.pending = ME.pending | BIT(ops); post(OP, ops); i = 0 }
                :: ME.running && (ME.s & BIT(i)) && ME.pending -> d_step { settle(); CLEAN }
                :: ME.view > 0 && cuts < CUTS ->
                        if
                        :: slack = 0
                        :: slack = 1
                        :: slack = QUEUE
                        fi;
                        d_step { cuts++; cut = ME.pos + slack; drain(BIT(i), cut); x = ME.view; forget(); clear(x); CLEAN }
                :: ME.view > 0 && crashes < CRASHES -> /* its callers are gone too */
                        d_step { crashes++; x = ME.view; forget(); ME.pending = 0; clear(x); CLEAN }
                fi
           }
        od
}
