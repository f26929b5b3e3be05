/* fake.h: what stands in for the rest while the request layer is tested: a backend that applies operations to a real state, at once,
 * when the test says so, or on a thread of its own; replies that can be looked at; and one-line calls. */
#pragma once

#include "core/state.h"
#include "fs/fs.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum fake_mode {
        FAKE_AT_ONCE, /* applied and answered before submit returns */
        FAKE_BY_HAND, /* fake_apply, fake_answer */
        FAKE_THREAD   /* applied by one thread, answered by another, a little later */
};
struct fake_item;
struct fake {
        enum fake_mode mode;
        struct shared_state *state;
        struct fs *fs;
        struct metrics metrics;
        pthread_mutex_t lock;
        pthread_cond_t cond;
        struct fake_item *to_apply, **to_apply_tail, *to_answer, **to_answer_tail;
        bool ending;
        pthread_t threads[2];
        uint64_t numbers, tokens, remote_numbers;
        /* what was asked for */
        unsigned submits, kinds[OP_KIND_COUNT], barriers, withdrawn, invalidated;
        uint64_t payload_raw, payload_stored, last_invalidated;
        struct { uint32_t flags; uint64_t keep, size; size_t n_extents; struct extent first; enum content_form form; uint64_t raw_len; struct timestamp time; } last_write;
        struct op_caller last_caller;
        int64_t reserved, reserved_max;
        uint64_t room; /* bytes that reserve gives; UINT64_MAX: any */
        errint_t refuse; /* answer to every operation, without applying it */
        errint_t not_writable;
        uint64_t armed_ms, now_ms;
        struct timestamp now;
};
struct fake *fake_new(enum fake_mode mode);
void fake_free(struct fake *k); /* shuts the request layer down first */
void fake_fs_config(struct fake *k, void (*change)(struct fs_config *c)); /* before anything else */
void fake_apply(struct fake *k);  /* BY_HAND: the oldest that was submitted */
void fake_answer(struct fake *k); /* BY_HAND: the oldest that was applied (or barrier) */
void fake_again(struct fake *k);  /* BY_HAND: the oldest that was applied waits to be applied once more, in another history */
void fake_all(struct fake *k);    /* BY_HAND: everything, until nothing is left */
unsigned fake_waiting(struct fake *k);
void fake_advance(struct fake *k, uint64_t ms); /* clocks; ticks if armed */
struct op_result fake_remote(struct fake *k, struct op *op); /* somebody else's operation; time is the fake's */
void fake_remote_write(struct fake *k, uint64_t ino, uint64_t keep, uint64_t size, uint64_t offset, const char *text);
void fake_remote_append(struct fake *k, uint64_t ino, const char *text);
void fake_remote_unlink(struct fake *k, uint64_t parent, const char *name);
uint64_t fake_lookup(struct fake *k, uint64_t parent, const char *name); /* in the tree itself; 0: not there */
void fake_content(struct fake *k, uint64_t ino, char *buf, size_t size);  /* of the tree itself, as text */
struct attr fake_attr(struct fake *k, uint64_t ino);                      /* of the tree itself */

enum answer_kind { ANSWER_NONE, ANSWER_ERR, ANSWER_ENTRY, ANSWER_ATTR, ANSWER_OPEN, ANSWER_CREATE, ANSWER_WRITE, ANSWER_DATA, ANSWER_SIZE, ANSWER_STATFS, ANSWER_OFFSET };
struct answer {
        struct fs_reply reply;
        struct fake *k;
        _Atomic int kind;
        int error;
        struct fs_entry entry;
        struct fs_open_out open;
        uint64_t n; /* written, size, offset */
        uint8_t *data;
        size_t len;
        struct statvfs st;
};
void answer_init(struct fake *k, struct answer *a);
void answer_done(struct answer *a);
void answer_wait(struct answer *a);
static inline bool answer_there(const struct answer *a) { return a->kind != ANSWER_NONE; }

/* One-line calls as root, waiting for the answer; a negative errno where one comes. */
extern const struct fs_caller root_caller;
uint64_t do_create(struct fake *k, uint64_t parent, const char *name, uint32_t mode, uint64_t *ret_fh); /* asserts success */
uint64_t do_mkdir(struct fake *k, uint64_t parent, const char *name, uint32_t mode);
int do_unlink(struct fake *k, uint64_t parent, const char *name);
int do_rename(struct fake *k, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name, unsigned flags);
int do_link(struct fake *k, uint64_t ino, uint64_t parent, const char *name);
uint64_t do_open(struct fake *k, uint64_t ino, int flags); /* asserts success */
void do_release(struct fake *k, uint64_t ino, uint64_t fh);
int do_write(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const void *p, size_t n, int flags);
int do_text(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const char *text);
int do_append(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, const char *text);
int do_flush(struct fake *k, uint64_t ino, uint64_t fh);
int do_fsync(struct fake *k, uint64_t ino, uint64_t fh);
int do_setattr(struct fake *k, uint64_t ino, const struct fs_set *s, uint64_t fh, struct attr *ret);
int do_truncate(struct fake *k, uint64_t ino, uint64_t fh, uint64_t size);
int do_fallocate(struct fake *k, uint64_t ino, uint64_t fh, int mode, uint64_t offset, uint64_t length);
int do_setxattr(struct fake *k, uint64_t ino, const char *name, const void *value, size_t len, int flags);
int do_removexattr(struct fake *k, uint64_t ino, const char *name);
int do_getxattr(struct fake *k, uint64_t ino, const char *name, size_t size, void *ret);
int do_getattr(struct fake *k, uint64_t ino, struct attr *ret);
int do_lookup(struct fake *k, uint64_t parent, const char *name, struct fs_entry *ret);
ssize_t do_read(struct fake *k, uint64_t ino, uint64_t fh, uint64_t offset, void *buf, size_t n);
const char *do_read_text(struct fake *k, uint64_t ino, uint64_t fh); /* static buffer, from the start */
