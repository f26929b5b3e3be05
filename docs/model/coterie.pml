/* coterie.pml: view change and stability for three nodes, for spin. docs/PROTOCOL.md has the rules; run.sh runs this.
 *
 * The network is weaker than virtual synchrony: a view is a list of members with one order of messages, and a member may move on to
 * another view from any place in that order, with or without the others. A node that is left behind goes on with what its old view
 * still has. A crash keeps what is persisted: promised, adopted, the history. STATE needs no messages here: what a node tells does not
 * change while it waits, and a node that does not hear of the others just does not act. ACKs are no messages either: the highest one of
 * each member is kept with the view (they only grow there), and whoever waits may look at any time.
 *
 * Bounds: VIEWS views, OPS operations, CRASHES crashes. Checked: an epoch is adopted only with a state that holds, at the same place,
 * every operation acknowledged in an earlier epoch.
 * Shortcuts, each of which must fail: NOPROMISE, SELFACK, MAXSEQ, NODIGEST, MAJORITY, ATACTIVATION. */

#ifndef VIEWS
#define VIEWS 3
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define N      3
#define QUEUE  6
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
        byte ack_length[N], ack_log[N];
};

node_t node[N];
view_t view[VIEWS + 1]; /* view 0: none */
byte views = 0, ops = 0, crashes = 0;
byte acked_at[OPS + 1];    /* place in the history, from 1; 0: not acknowledged */
byte acked_epoch[OPS + 1];

#define ME node[i]
#define V  view[node[i].view]
#define AT(l, k)     (((l) >> (2 * (k))) & 3) /* the k-th operation of a history */
#define PREFIX(l, k) ((l) & ((1 << (2 * (k))) - 1))

/* Member j of our view has acknowledged our history up to place k. */
#ifdef NODIGEST
#define CONFIRMED(j, k) (V.ack_length[j] > (k))
#else
#define CONFIRMED(j, k) (V.ack_length[j] > (k) && PREFIX(V.ack_log[j], (k) + 1) == PREFIX(ME.log, (k) + 1))
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
        V.n++
}

inline ack() {
        V.ack_length[i] = ME.length;
        V.ack_log[i] = ME.log
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
                :: k < QUEUE -> view[v_].kind[k] = 0; view[v_].arg[k] = 0; k++
                :: else -> break
                od;
                k = 0;
                do
                :: k < N -> view[v_].ack_length[k] = 0; view[v_].ack_log[k] = 0; k++
                :: else -> break
                od;
                view[v_].n = 0; view[v_].members = 0; view[v_].epoch = 0; view[v_].length = 0; view[v_].log = 0; view[v_].label = 0
        :: else
        fi
}

/* The next view: these members; the best state; the next epoch. */
inline new_view(members_) {
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
                :: (ME.pending & BIT(x)) && STABLE(k) -> acknowledge(x, k)
                :: else
                fi;
                k++
        :: else -> break
        od
}

init {
        byte i, k, x, best, set;
        d_step { new_view(7); i = 0; k = 0; x = 0; best = 0 }
        do
        :: atomic {
                views < VIEWS ->
                if
                :: x = 3
                :: x = 5
                :: x = 6
                :: x = 7
                fi;
                d_step { set = x; new_view(set); i = 0; k = 0; x = 0; best = 0; set = 0 }
           }
        :: atomic {
                if
                :: i = 0
                :: i = 1
                :: i = 2
                fi;
                if
                :: ME.view > 0 && ME.pos < V.n -> d_step { deliver(); i = 0; k = 0; x = 0 }
                :: ME.view > 0 && !ME.holds -> d_step { join(); i = 0; k = 0; x = 0 }
                :: ME.running && (ME.s & BIT(i)) && ops < OPS -> d_step { ops++; ME.pending = ME.pending | BIT(ops); post(OP, ops); i = 0 }
                :: ME.running && (ME.s & BIT(i)) && ME.pending -> d_step { settle(); i = 0; k = 0; x = 0 }
                :: ME.view > 0 && crashes < CRASHES -> /* its callers are gone too */
                        d_step { crashes++; x = ME.view; forget(); ME.pending = 0; clear(x); i = 0; k = 0; x = 0 }
                fi
           }
        od
}
