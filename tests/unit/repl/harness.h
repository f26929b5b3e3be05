/* harness.h: a few machines, a group that delivers messages in one order per view, and drivers with memory for disks. Everything happens
 * when the test says so: deliver, settle, hold back what a disk or the kernel answers. */
#pragma once

#include "machine.h"

#include <check.h>

#define HNODES 7

struct hreply {
        uint64_t token;
        struct op_result result;
        struct position pos;
};
struct hlog {
        struct position pos;
        struct opbuf *op;
};
struct hevent {
        struct hevent *next;
        struct repl_event ev;
        struct opbuf *op; /* holds the bytes of a LOG_PART */
        uint64_t promised, adopted; /* what a PERSISTED makes durable */
        bool replaced;
};
struct hnode {
        uint32_t node, pid;
        struct repl *r;
        struct state state;
        uint64_t promised, adopted, incarnation;
        uint8_t cluster_id[16];
        bool forgetful;
        struct hevent *events, **events_tail;
        bool hold_written, hold_invalidated, hold_persisted, hold_flushed, busy;
        struct hreply *replies;
        size_t n_replies;
        struct hlog *log;
        size_t n_log, log_from; /* log_from: older ones cannot be read any more */
        uint64_t timer_at;
        bool primary, settling;
        uint64_t epoch;
        const char *reason;
        size_t n_conflicts, n_sends, n_commits, n_replaces, n_flushes, n_persists, n_lines;
        struct opbuf *conflict;
        bool left, fatal;
        char last_line[400];
        struct hview *view;
        size_t at; /* next message of the view */
        bool draining; /* what it sends now travels in its next view */
        struct hmessage *later;
        size_t n_later;
};
struct hmessage;
struct hview {
        struct hview *next;
        struct repl_ring ring;
        size_t n;
        size_t members[HNODES];
        struct repl_member ids[HNODES];
        struct hmessage *queue;
        size_t n_queue;
};
struct hmessage {
        size_t from;
        uint8_t *data;
        size_t len;
};
struct hcluster;
struct hhooks { /* what a test wants to see or to decide otherwise */
        void (*effect)(struct hcluster *c, size_t i, const struct repl_effect *f); /* before the driver carries it out */
        void (*event)(struct hcluster *c, size_t i, const struct hevent *e);       /* before the machine gets it */
        void *ctx;
};
struct hcluster {
        size_t n;
        struct hnode nodes[HNODES];
        struct hview *views;
        uint64_t now, ring, next_token, next_incarnation;
        struct hhooks hooks;
        bool (*drop)(struct hcluster *c, size_t from, size_t to, const struct wire_header *h); /* a message thrown away for one member */
};

void hc_init(struct hcluster *c, size_t n);
void hc_done(struct hcluster *c);
void hc_config(struct hcluster *c, size_t i, struct repl_config *config);
void hc_boot(struct hcluster *c, size_t i);    /* a process; keeps what its disk has */
void hc_crash(struct hcluster *c, size_t i);
void hc_wipe(struct hcluster *c, size_t i); /* its disk is empty: cluster id, state, log, epochs */
/* A view of these nodes in a new ring, with its quorum notices when the votes are enough. Members drain what is left of theirs first. */
struct hview *hc_view(struct hcluster *c, const size_t *members, size_t n);
struct hview *hc_view_bare(struct hcluster *c, const size_t *members, size_t n); /* without notices and without draining */
void hc_quorum(struct hcluster *c, size_t i, struct repl_ring ring, bool quorate, size_t votes);
void hc_step(struct hcluster *c, size_t i, const struct repl_event *ev);
bool hc_deliver(struct hcluster *c, size_t i);  /* the next message of its view */
void hc_deliver_at(struct hcluster *c, size_t i, size_t at); /* this one */
bool hc_event(struct hcluster *c, size_t i);    /* one of those */
void hc_events(struct hcluster *c, size_t i);   /* what its driver has to say */
void hc_settle(struct hcluster *c);             /* until nothing is left */
void hc_tick(struct hcluster *c, uint64_t ms);  /* time passes; timers fire; settles */
uint64_t hc_mkdir(struct hcluster *c, size_t i, const char *name); /* a request; returns its token */
uint64_t hc_unlink(struct hcluster *c, size_t i, const char *name);
uint64_t hc_write(struct hcluster *c, size_t i, uint64_t ino, const void *p, size_t n);
uint64_t hc_barrier(struct hcluster *c, size_t i);
const struct hreply *hc_reply(const struct hcluster *c, size_t i, uint64_t token); /* NULL: not answered yet */
bool hc_has(const struct hcluster *c, size_t i, const char *name);
void hc_alike(struct hcluster *c, const size_t *members, size_t n); /* same position, same digest */
#define HC_SET(...) (const size_t[]){__VA_ARGS__}, sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t)
