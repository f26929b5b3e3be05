/* edit.h: what a series of writes and truncations comes to: the canonical form that OP_WRITE carries and blob_edit takes. The bytes are not here:
 * they lie in the content as seen with all writes laid over it (the `source`). Private to fs; pure; not locked. */
#pragma once

#include "core/blob.h"
#include "core/limits.h"

struct edit {
        bool append;         /* one extent of data, that lies at the end of whatever content there is */
        uint64_t keep, size; /* as blob_edit; not with append */
        struct extent *extents; /* sorted, apart or of different kinds where they touch */
        size_t n, cap;
        uint64_t data_bytes; /* in the extents of data */
};
#define EDIT_NONE ((struct edit){.keep = BLOB_KEEP_ALL, .size = BLOB_KEEP_ALL})
void edit_done(struct edit *e); /* and EDIT_NONE again */
bool edit_is_none(const struct edit *e);
bool edit_is_full(const struct edit *e); /* the next write might go beyond OP_EXTENTS_MAX */

void edit_write(struct edit *e, uint64_t offset, uint64_t length);
void edit_zero(struct edit *e, uint64_t offset, uint64_t length); /* extends as a write does */
void edit_truncate(struct edit *e, uint64_t size);
/* Of a content of `size` bytes nothing remained: one extent says it shorter, unless most of it is holes. */
void edit_simplify(struct edit *e, uint64_t size);

/* The bytes of all extents of data, data_bytes of them, one after the other. */
void edit_bytes(const struct edit *e, const struct blob *source, uint8_t *p);
/* The same, malloc'ed; NULL without any. -ENOMEM. */
errint_t edit_payload(const struct edit *e, const struct blob *source, uint8_t **ret, size_t *ret_len);
/* The same change made to another content. *ret_at: where an append went. */
errint_t edit_replay(const struct edit *e, struct blob *source, struct blob *onto, struct blob **ret, uint64_t *ret_at);
