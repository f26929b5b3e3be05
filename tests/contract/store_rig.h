/* store_rig.h: a store with a state in front of it, as the executor drives it, for tests: operations in short form, random ones, and the
 * digest of the state at every position there ever was, so that whatever comes back after a crash can be told to be one of them. */
#pragma once

#include "store/store.h"
#include "store/store_memory.h"

#include <glib.h>

struct rig {
        struct store_config config;
        bool memory; /* store_open_memory */
        struct metrics metrics;
        struct state state;
        bool have_state;
        struct store *store; /* NULL: closed */
        struct store_loaded loaded;
        GArray *digests; /* struct hash128, of the state at seq 0, 1, ... of this history */
        struct change_set changes;
        struct op_result result; /* of the last operation */
        uint64_t random, epoch, number;
        uint64_t durable; /* all up to here was told to be on the medium */
        uint64_t written; /* all up to here was told to be in the log */
        errint_t error;   /* of the last append, write_out, ... that failed */
};
void rig_init(struct rig *r, const struct store_config *config);
void rig_done(struct rig *r);
errint_t rig_open(struct rig *r);  /* opens, and takes the state from the store */
void rig_close(struct rig *r);     /* as it is: a killed process */
errint_t rig_stop(struct rig *r);  /* clean: checkpoint, close */
/* The state that was opened is one that there was: 0, or -EBADMSG with a line on stderr. The history goes on from it. */
errint_t rig_verify(struct rig *r, uint64_t at_least, uint64_t at_most);

errint_t rig_apply(struct rig *r, const struct op *op); /* apply, append; the error of append */
errint_t rig_write_out(struct rig *r);
errint_t rig_barrier(struct rig *r);
errint_t rig_checkpoint(struct rig *r, enum store_checkpoint_kind kind);
errint_t rig_settle(struct rig *r); /* what an executor does between batches: write out, barrier and checkpoint if wanted, rescue */

/* Short forms; names are in the root. They return the error of append; result tells the operation's own. */
errint_t rig_create(struct rig *r, const char *name, uint32_t mode);
errint_t rig_write(struct rig *r, const char *name, uint64_t offset, const void *p, size_t n); /* in place */
errint_t rig_replace(struct rig *r, const char *name, const void *p, size_t n);                /* the whole content */
errint_t rig_append(struct rig *r, const char *name, const void *p, size_t n);
errint_t rig_truncate(struct rig *r, const char *name, uint64_t size);
errint_t rig_unlink(struct rig *r, const char *name);
errint_t rig_rename(struct rig *r, const char *from, const char *to);
errint_t rig_chmod(struct rig *r, const char *name, uint32_t mode);
errint_t rig_setxattr(struct rig *r, const char *name, const char *xattr, const void *value, size_t n);
errint_t rig_setting(struct rig *r, const char *name, const char *text);
uint64_t rig_lookup(const struct rig *r, const char *name); /* 0: not there */

uint64_t rig_random(struct rig *r, uint64_t below);
void rig_bytes(struct rig *r, void *p, size_t n); /* random */
void rig_text(struct rig *r, void *p, size_t n);  /* compressible */
/* One random operation: names are few, so that they meet; all kinds of contents, from nothing to `large` bytes. */
errint_t rig_any(struct rig *r, size_t large);
/* The k-th of a small fixed set of operations, for exhaustive sequences. */
#define RIG_FIXED 14
errint_t rig_fixed(struct rig *r, unsigned k);
