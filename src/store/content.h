/* content.h (private to store): PATH-content: large contents in extents of 4 KiB units, each written once.
 *
 * A new version always goes to free units. Units become free again only when a durable home position covers the operation that superseded
 * them (content_free_at + content_home_durable). The first unit is a header that names the database; which others are used, home and log
 * say, and damage is found by the CRC that they keep for each content. Writes go through the page cache, or with O_DIRECT at level file
 * (buffers aligned inside). The file grows in steps (docs/decisions/0002-content-file-growth.md). Threads: serialised inside. */
#pragma once

#include "oplog.h"

#define CONTENT_UNIT 4096u
#define CONTENT_THRESHOLD 4096u /* stored size from which a content goes here */

struct content;
/* `id`: OPLOG_ID_SIZE bytes. create: makes the file (durably, its name too); one that is there already is taken over if it is an interrupted
 * creation (no header yet), else -EEXIST. -ENOENT; -EBADMSG: no such header; -EXDEV: that of another database. An id of NULL, with read_only: whatever
 * the header says, for rescue; each content has a checksum of its own. m may be NULL. */
errint_t content_open(struct disk *disk, const char *path, const uint8_t id[OPLOG_ID_SIZE], bool create, bool read_only, struct metrics *m, struct content **ret);
void content_close(struct content *c); /* NULL is fine */
/* At load and replay. -EBADMSG: overlaps, or lies beyond the end: nothing is marked. */
errint_t content_mark_used(struct content *c, const struct oplog_extent *e, size_t n);
/* Allocates, writes. ret_extents is malloc'ed. -ENOSPC before anything is written. After any error nothing is allocated. */
errint_t content_write(struct content *c, const void *p, size_t n, bool direct, struct oplog_extent **ret_extents, size_t *ret_n);
errint_t content_read(struct content *c, const struct oplog_extent *e, size_t n, void *buf, size_t len, uint32_t crc); /* -EBADMSG: CRC differs */
/* Free as soon as the home is durable at superseded_by_seq: at once, when it is already (0: never named by any record). Extents must be used. */
void content_free_at(struct content *c, const struct oplog_extent *e, size_t n, uint64_t superseded_by_seq);
void content_home_durable(struct content *c, uint64_t seq); /* frees what was superseded at or below seq; gives a long free tail back */
/* When dirty; fdatasync. After a failure nothing that was written since the last good flush can be trusted, also not after a later good one:
 * write it again (content_write takes other units while the old ones are in use). */
errint_t content_flush(struct content *c);
/* After replay: the same bytes once more, in their place; a flush is due then. A flush that failed in an earlier life has left pages that
 * look clean in the page cache and are not on the medium. */
errint_t content_write_again(struct content *c, const struct oplog_extent *e, size_t n, const void *p, size_t len);
uint64_t content_live_bytes(const struct content *c); /* whole units, as the two below */
uint64_t content_dead_bytes(const struct content *c); /* superseded, not yet free */
uint64_t content_file_size(const struct content *c);
/* Makes sure that units for one content of so many bytes exist on disk, beside those of all other reservations; -ENOSPC. Released, with the
 * same number, after content_write has used them or when they are not needed. */
errint_t content_reserve(struct content *c, uint64_t bytes);
void content_release(struct content *c, uint64_t bytes);
