/* oplog.h (private to store): the operation log: PATH-oplog, written once with zeros, two halves that are reused in turn.
 *
 * A half holds records one after the other. Each carries the low bits of its sequence, its length and a CRC-32C chained from the record
 * before it (the first: from the half's salt), so a record of another history, another half's life or another database never fits. The
 * salts of both halves live in the home's checkpoint transaction (home.h): whoever checkpoints decides which half is next and with
 * which salt. Replay reads from the half's start, skips what the home has, and stops at the first record that does not fit.
 * After each barrier, at a change of level and after a restart a fresh 4 KiB page begins; what lies between is not looked at.
 *
 * Record kinds: an operation with its payload inline; an operation whose payload lies in extents (list + CRC); adopted epoch; promised
 * epoch; restart (inside). At most OPLOG_RECORD_MAX bytes. Levels none and filesystem append through the page cache; `file` appends whole
 * sectors with O_DIRECT|O_DSYNC or what the method says, one write for everything pending. The bytes: oplog_format.h, docs/FORMAT.md.
 *
 * Threads: append by the executor; write_out and flush by whichever thread, serialised inside; appends go on while either is at the
 * disk, and write_out goes on while a flush is. oplog_start by the executor, also while a flush or write_out runs (what is pending in the
 * old half is written before what follows). oplog_set_level, oplog_drop_pending and oplog_replay: while no other call runs. */
#pragma once

#include "store/store.h"

#define OPLOG_RECORD_MAX (256 * KIB) /* of a whole record, its head, payload or extent list included */
#define OPLOG_PAGE 4096u
#define OPLOG_SIZE_MIN (64 * KIB)
#define OPLOG_SIZE_MAX (2 * GIB)
#define OPLOG_SIZE_DEFAULT (16 * MIB)
#define OPLOG_ID_SIZE 16

enum oplog_kind { OPLOG_OP = 1, OPLOG_OP_EXTENTS = 2, OPLOG_ADOPTED = 3, OPLOG_PROMISED = 4 };
struct oplog_extent {
        uint64_t offset; /* in the content file, multiple of 4096 */
        uint32_t length; /* bytes used */
};
#define OPLOG_EXTENTS_MAX 1024u
struct oplog_record {
        enum oplog_kind kind;
        struct position pos;   /* of ADOPTED and PROMISED: epoch is the value, seq that of the last operation before it (set by append) */
        const void *head;
        size_t head_len;
        enum content_form form; /* of the payload */
        uint64_t raw_len;       /* FORM_RAW: payload_len */
        const void *payload;   /* inline; NULL with extents */
        size_t payload_len;    /* stored length, in both cases */
        uint32_t payload_crc;  /* CRC-32C of the stored payload; 0 when there is none. With extents the caller gives it, else it is computed */
        const struct oplog_extent *extents; /* lengths add up to payload_len */
        size_t n_extents;
        /* set by replay and append: where it lies */
        uint64_t log_offset;
        uint32_t log_len;
};

struct oplog;
struct oplog_config {
        const char *path;
        uint8_t id[OPLOG_ID_SIZE]; /* of the database; the file's first page carries it */
        uint64_t life;   /* random, another one at each open: makes the chain after a restart another one than any before; 0: drawn inside */
        enum sync_level level;
        enum sync_method method;
        bool direct, read_only;
        bool any_size;    /* for rescue: the file may be shorter or longer than it should be */
        uint32_t padding; /* 0: the logical sector; with O_DIRECT at least that */
        uint64_t size;    /* both halves together; multiple of 8192; the file is one page longer */
        struct disk *disk;
        struct metrics *metrics; /* may be NULL */
};
/* Opens the file, and flushes what an earlier process left in the page cache; when `create`, makes it and fills it with zeros (durably, its
 * name too); one that is there already is taken over if no record was ever written to it, else -EEXIST. -ENOENT; -EBADMSG: size differs or
 * no such header; -EXDEV: the log of another database; -EINVAL: size, method or padding that cannot work. O_DIRECT that the filesystem
 * refuses falls back with one log line. */
errint_t oplog_open(const struct oplog_config *config, bool create, struct oplog **ret);
void oplog_close(struct oplog *l); /* drops what is pending; NULL is fine */
/* Reads `half` with its salt, calling fn for each good record; ret_end: where the good part ends, ret_chain: the CRC there; ret_torn: the
 * reason in words when bytes follow that look like a damaged record of this chain, else empty. fn's error ends replay and is returned.
 * ADOPTED and PROMISED come in their place among the operations; operations come in unbroken sequence within a half. */
typedef errint_t (*oplog_replay_fn)(void *ctx, const struct oplog_record *r);
errint_t oplog_replay(struct oplog *l, unsigned half, uint64_t salt, oplog_replay_fn fn, void *ctx, uint64_t *ret_end, uint32_t *ret_chain, char *ret_torn, size_t torn_size);
/* After replay: the same bytes once more, up to `end` of `half`, and a flush. A flush that failed in an earlier life has left pages that look clean in
 * the page cache and are not on the medium: no further flush would bring them there. */
errint_t oplog_write_again(struct oplog *l, unsigned half, uint64_t end);
/* Appending continues in `half` at `at` (0: the start, with a fresh salt) with CRC chain `chain` (at 0: ignored). At > 0: on a fresh page,
 * behind a restart record that no record of an earlier life can follow. Records pending in the other half are still written out, at most
 * of one half; after an error they are dropped, and the error is cleared. */
void oplog_start(struct oplog *l, unsigned half, uint64_t salt, uint64_t at, uint32_t chain);
/* Into memory; sequences of operations follow each other (-EINVAL). -ENOSPC: does not fit in this half any more; -EMSGSIZE: longer than
 * OPLOG_RECORD_MAX. After a failed write_out or flush every append, write_out and flush returns that error until start or drop_pending. */
errint_t oplog_append(struct oplog *l, struct oplog_record *r);
/* To the file; at level file durably. ret_seq: last operation there, or dropped by a start after an error; 0: none since open; may be NULL. */
errint_t oplog_write_out(struct oplog *l, uint64_t *ret_seq);
errint_t oplog_flush(struct oplog *l, uint64_t *ret_seq);       /* writes out, then makes that durable; next record on a fresh page */
uint64_t oplog_used(const struct oplog *l);                     /* bytes of the current half, pending ones counted */
uint64_t oplog_half_size(const struct oplog *l);
uint64_t oplog_record_room(size_t head_len, size_t payload_len, size_t n_extents); /* most bytes that such a record takes in the log */
/* One record back, its CRC checked: -EBADMSG; of a half not replayed or written since: -ENOENT. *ret points into *ret_buffer, which is freed
 * with free(). */
errint_t oplog_read(struct oplog *l, uint64_t log_offset, uint32_t log_len, struct oplog_record *ret, void **ret_buffer);
/* Flushes first; next record on a fresh page. -EINVAL: nothing changed. */
errint_t oplog_set_level(struct oplog *l, enum sync_level level, enum sync_method method, bool direct, uint32_t padding);
/* After trouble, and when another history was taken over: the home has everything up to `seq`; what follows starts behind a restart record. */
void oplog_drop_pending(struct oplog *l, uint64_t seq);
