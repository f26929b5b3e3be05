/* blob.h: immutable, reference-counted file content. A version is a size and chunks of BLOB_CHUNK bytes, shared between versions;
 * a missing chunk is a hole and reads as zeros. Editing makes a new version and copies only the chunks it touches. A chunk of zeros is
 * always a hole, however it was written: allocation, SEEK_HOLE and what the quota counts follow from the bytes alone, on every node.
 *
 * Ownership: every blob * that a function returns is a reference for the caller. Reference counts are atomic: any thread may hold,
 * read and drop a blob. NULL is the empty blob everywhere. Functions that allocate by outside size return -ENOMEM. Pure. */
#pragma once

#include "base/base.h"
#include "base/hash.h"

struct blob;
struct blob *blob_ref(struct blob *b);
void blob_unref(struct blob *b);
DEFINE_FREEP(blob_unref, struct blob)

errint_t blob_from_bytes(const void *p, size_t n, struct blob **ret); /* p NULL: n zeros */
uint64_t blob_size(const struct blob *b);
uint64_t blob_allocated(const struct blob *b);                                    /* bytes in chunks, for st_blocks and quotas */
size_t blob_read(const struct blob *b, uint64_t offset, void *buf, size_t n);     /* bytes read, short at the end */
size_t blob_span(const struct blob *b, uint64_t offset, const uint8_t **ret_ptr); /* contiguous bytes from offset; 0 at the end; zeros for a hole */
int64_t blob_next(const struct blob *b, uint64_t offset, bool data);              /* SEEK_DATA / SEEK_HOLE; -ENXIO as lseek(2) */
bool blob_equal(const struct blob *a, const struct blob *b);
struct hash128 blob_digest(const struct blob *b); /* same for the same bytes, however they came about; cached per chunk; holes = zeros */

enum extent_kind { EXTENT_DATA = 0, EXTENT_ZERO = 1 /* punched: becomes a hole where a whole chunk is covered */ };
struct extent {
        uint64_t offset, length;
        enum extent_kind kind;
};
#define BLOB_KEEP_ALL UINT64_MAX
/* The canonical form of any series of writes and truncations: keep the first `keep` bytes of `old` (BLOB_KEEP_ALL: all), lay the
 * extents over it (sorted, not overlapping; EXTENT_DATA takes its bytes from `data`, one after the other), then cut or extend with a
 * hole to `size` (BLOB_KEEP_ALL: the larger of what was kept and the end of the last extent). */
errint_t blob_edit(struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents, const void *data, size_t data_len,
                   uint64_t size, struct blob **ret);
/* The same with the bytes of EXTENT_DATA from where they lie in `source`, which must reach that far: what can be shared with it is. */
errint_t blob_edit_from(struct blob *old, uint64_t keep, const struct extent *extents, size_t n_extents, struct blob *source, uint64_t size,
                        struct blob **ret);
