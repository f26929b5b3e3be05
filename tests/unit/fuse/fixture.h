/* fixture.h: a mount over the real request layer and a real tree, with an executor of a few lines: operations are applied at once, or
 * held until the test lets them go; the test also plays the other nodes. */
#pragma once

#include "edge.h"

#include <check.h>
#include <pthread.h>

struct held {
        uint8_t *head, *payload;
        size_t head_len, payload_len;
        void (*done)(void *done_ctx, const struct op_result *result);
        void *done_ctx;
        uint64_t token;
        struct held *next;
};
struct fixture {
        char mountpoint[64];
        struct shared_state *state;
        struct metrics metrics;
        struct fs *fs;
        struct fuse_edge *edge;
        pid_t guardian;
        struct mount_id *guarded; /* shared with the guardian */

        pthread_mutex_t lock; /* one operation at a time; guards all that follows */
        pthread_cond_t changed;
        uint64_t number;
        bool hold; /* operations wait from now on */
        struct held *held;
        unsigned n_held, withdrawn, ended;
        uint64_t done_seq; /* of the last change set that the edge called clear */
        bool out_of_order;
        bool stop_ticking;
        pthread_t ticker;
};

/* The configuration of a usual mount, for tests that change something; fixture_start with NULL uses it as it is. */
struct fuse_edge_config fixture_config(void);
void fixture_start(struct fixture *f, const struct fuse_edge_config *config);
void fixture_stop(struct fixture *f);
void fixture_unmount(struct fixture *f); /* the edge alone */
/* What comes before the edge is started and after it was stopped. */
void fixture_prepare(struct fixture *f);
void fixture_release(struct fixture *f);
errint_t fixture_mount(struct fixture *f, const struct fuse_edge_config *config, char *reason, size_t reason_size);

/* Another node's operation: applied, and the kernel's caches invalidated; returns when the edge has called it clear, or fails the test. */
struct op_result fixture_remote(struct fixture *f, struct op *op);
/* Returns at once; fixture_wait_clear waits. */
struct op_result fixture_remote_async(struct fixture *f, struct op *op, uint64_t *ret_seq);
bool fixture_wait_clear(struct fixture *f, uint64_t seq, int timeout_ms);
void fixture_remote_write(struct fixture *f, uint64_t ino, const char *text); /* the whole content */
uint64_t fixture_remote_create(struct fixture *f, uint64_t parent, const char *name, uint32_t mode);
void fixture_hold(struct fixture *f);
void fixture_wait_held(struct fixture *f, unsigned n);
unsigned fixture_withdrawn(struct fixture *f);
void fixture_let_go(struct fixture *f); /* applies what is held, and no longer holds */

uint64_t fixture_ino(struct fixture *f, uint64_t parent, const char *name); /* in the tree; 0: not there */
uint64_t fixture_metric(struct fixture *f, enum metric id);
const char *fixture_path(struct fixture *f, const char *relative); /* in a ring of a few buffers */
/* Runs a program beside the test, without its descriptors: a test that waits for its own mount could not be killed. */
pid_t fixture_spawn(const char *const *argv);
int fixture_wait_exit(pid_t pid, int timeout_ms); /* exit status, 128 + signal, or -1: still running */
#define SH(...) fixture_spawn((const char *const[]){"sh", "-c", __VA_ARGS__, NULL})

#define op_name_of(text_) ((struct op_name){.text = (text_), .len = strlen(text_)})

Suite *suite_known(void);
Suite *suite_mount(void);
Suite *suite_requests(void);
Suite *suite_notify(void);
Suite *suite_local(void);
Suite *suite_crew(void);
