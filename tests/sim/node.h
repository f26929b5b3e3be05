/* node.h: one simulated node: a disk, a daemon (store, machine, request layer) with the driver that coteried has, and the cache of its kernel. */
#pragma once

#include "sim.h"
#include "simdisk.h"

struct record; /* history.h */

struct pending_event { /* for the machine, in order */
        struct pending_event *next;
        struct repl_event ev;
        struct request *request;
        uint8_t data[];
};
struct request {
        uint64_t token;
        enum repl_request_kind kind;
        bool from_fs;
        void (*done)(void *ctx, const struct op_result *result);
        void *ctx;
        uint64_t begun, frontier; /* us; what had been acknowledged anywhere when it began */
        uint64_t applied;         /* here, when the machine got it */
        struct op_origin origin;
        uint8_t *head, *payload;
        size_t head_len;
        struct op_payload form;
};
struct message {
        struct message *next;
        size_t len;
        uint8_t data[];
};

enum job_kind { JOB_WRITE_OUT, JOB_BARRIER, JOB_PERSIST, JOB_REPLACE, JOB_CHECKPOINT, JOB_READ_LOG };
struct job {
        enum job_kind kind;
        enum store_checkpoint_kind checkpoint;
        uint64_t promised, adopted, tag, from, to, seq;
        bool has_cluster_id;
        uint8_t cluster_id[16];
};

struct node {
        struct sim *sim;
        unsigned i;
        /* the machine room: survives the daemon */
        bool powered, paused;
        uint64_t boot, pids;
        struct simdisk *disk;          /* sqlite */
        struct store_backing *backing; /* memory */
        bool amnesia; /* may have forgotten since it last was in S: power cut below level file, or a wiped disk */
        uint64_t slow_disk_us, stuck_until, slow_until, slow_kernel_until;
        bool damaged; /* its state was changed behind its back, and is not yet replaced */
        uint64_t damaged_at;
        int64_t clock_offset_ms;

        /* the daemon; all of it goes with the process */
        bool up, dying; /* dying: what is asked of it now is answered into the void */
        uint64_t life; /* counts deaths: what was planned for an earlier life is dropped */
        struct metrics metrics;
        struct store *store;
        struct shared_state *shared;
        struct state *state;
        struct fs *fs;
        struct repl *repl;
        struct repl_config repl_config;
        struct pending_event *events, **events_tail;
        bool running, stalled;
        uint64_t pending_written, pending_flushed, pending_invalidated;
        GHashTable *requests;
        uint64_t next_token;
        struct pending_event *input, **input_tail; /* what corosync has for the daemon */
        bool input_busy;
        struct message *unsent, **unsent_tail;
        uint64_t refuse_until;
        struct job *jobs[64];
        unsigned n_jobs;
        bool job_busy, checkpoint_open, troubled, failed, write_out_asked, full;
        uint64_t appended, written, flushed, dirty_since;
        uint64_t timer_at[4], tick_at;
        bool primary, settling;
        uint64_t epoch;
        struct record *record; /* of the state */
        uint64_t conflicts;

        /* what a restart must find again */
        struct record *kept_written, *kept_flushed;
        struct record *lost_written, *lost_flushed; /* what its disk held before the last power cut took some of it */
        uint64_t loaded;                            /* the position that this life began with */

        /* the kernel: what it may answer by itself */
        GHashTable *cache; /* ino -> struct cached */
        uint64_t invalidate_at;
};

void nodes_new(struct sim *s);
void nodes_free(struct sim *s);
void nodes_found_cluster(struct sim *s); /* node 1 founds, the others are empty and join */

/* What the world does. */
void node_boot(struct node *x);          /* power on: corosync and daemon start */
void node_daemon_start(struct node *x);
void node_daemon_kill(struct node *x);
void node_daemon_stop(struct node *x);   /* SIGTERM: leaves, clean stop */
void node_daemon_pause(struct node *x, bool paused);
void node_power_cut(struct node *x);
void node_wipe(struct node *x);          /* while it is off: a new, empty disk */
void node_damage(struct node *x);        /* one attribute of its tree in memory changes, as by a broken bit */
bool node_synced(const struct node *x);  /* a member of S in a primary view, as it sees itself */

/* What the net tells. */
void node_net_view(struct sim *s, unsigned i, struct repl_ring ring, const struct repl_member *members, size_t n);
void node_net_deliver(struct sim *s, unsigned i, struct repl_member sender, const void *p, size_t n);
void node_net_quorum(struct sim *s, unsigned i, struct repl_ring ring, uint32_t nodes, unsigned extra_votes);
void node_net_writable(struct sim *s, unsigned i);
void node_net_closed(struct sim *s, unsigned i);

/* Within the driver (node.c, driver.c, disk.c). */
void driver_post(struct node *x, struct pending_event *ev);
struct pending_event *driver_event(enum repl_event_kind kind, size_t extra);
void driver_run(struct node *x);
void driver_backend(struct node *x, struct fs_backend *ret);
void driver_arm_tick(struct node *x);
void driver_resend(struct node *x);
void driver_clear(struct node *x); /* death: forgets everything planned */
void request_free(struct request *q);
void disk_job(struct node *x, const struct job *job);
void disk_write_out(struct node *x);
void disk_want_barrier(struct node *x, uint64_t seq);
void disk_settle(struct node *x);
void disk_finish(struct node *x); /* before a clean stop: what is queued, in its order, as the store's thread does it */
void disk_trouble(struct node *x, errint_t error);
void disk_update_stall(struct node *x);
void disk_start(struct node *x);
errint_t disk_open_store(struct node *x, struct store_loaded *ret);

/* The kernel's cache. */
struct cached {
        uint64_t value, size;
};
bool cache_get(struct node *x, uint64_t ino, struct cached *ret);
void cache_put(struct node *x, uint64_t ino, uint64_t value, uint64_t size);
void cache_invalidate(struct node *x, const struct change_set *changes);
void cache_clear(struct node *x);
