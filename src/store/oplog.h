/* oplog.h (private to store): the operation log: PATH-oplog, written once with zeros, two halves that are reused in turn.
 *
 * A half holds records one after the other. Each carries the low bits of its sequence, its length and a CRC-32C chained from the record
 * before it (the first: from the half's salt), so a record of another history, another half's life or another database never fits. The
 * salts of both halves live in the home's checkpoint transaction (home.h): whoever checkpoints decides which half is next and with
 * which salt. Replay reads from the half's start, skips what the home has, and stops at the first record that does not fit.
 * After each barrier and at a change of level a fresh 4 KiB page begins (a zero length byte skips to the page's end).
 *
 * Record kinds: an operation with its payload inline; an operation whose payload lies in extents (list + CRC); adopted epoch; nothing
 * (padding). At most OPLOG_RECORD_MAX bytes. Levels none and filesystem append through the page cache; `file` appends whole sectors with
 * O_DIRECT|O_DSYNC or what the method says, one write for everything pending.
 *
 * Threads: append by the executor; write_out and flush by whichever thread, serialised inside. */
#pragma once

#include "store/store.h"

#define OPLOG_RECORD_MAX (256 * KIB)
#define OPLOG_PAGE 4096u

enum oplog_kind { OPLOG_OP = 1, OPLOG_OP_EXTENTS = 2, OPLOG_ADOPTED = 3, OPLOG_PROMISED = 4 };
struct oplog_extent {
        uint64_t offset; /* in the content file, multiple of 4096 */
        uint32_t length; /* bytes used */
};
#define OPLOG_EXTENTS_MAX 1024u
struct oplog_record {
        enum oplog_kind kind;
        struct position pos;   /* of ADOPTED and PROMISED: epoch is the value */
        const void *head;
        size_t head_len;
        enum content_form form; /* of the payload */
        uint64_t raw_len;
        const void *payload;   /* inline; NULL with extents */
        size_t payload_len;    /* stored length, in both cases */
        uint32_t payload_crc;  /* CRC-32C of the stored payload */
        const struct oplog_extent *extents;
        size_t n_extents;
        /* set by replay and append: where it lies */
        uint64_t log_offset;
        uint32_t log_len;
};

struct oplog;
struct oplog_config {
        const char *path;
        enum sync_level level;
        enum sync_method method;
        bool direct, read_only;
        uint32_t padding;
        uint64_t size;
        struct disk *disk;
        struct metrics *metrics;
};
/* Opens the file; creates and zero-fills it (durably) when `create`. -ENOENT, -EBADMSG (wrong size for what the home says). */
errint_t oplog_open(const struct oplog_config *config, bool create, struct oplog **ret);
void oplog_close(struct oplog *l);
/* Reads `half` with its salt, calling fn for each good record; ret_end: where the good part ends, ret_chain: the CRC there; ret_torn: the
 * reason in words when bytes follow that look like a damaged record of this chain, else empty. fn's error ends replay and is returned. */
typedef errint_t (*oplog_replay_fn)(void *ctx, const struct oplog_record *r);
errint_t oplog_replay(struct oplog *l, unsigned half, uint64_t salt, oplog_replay_fn fn, void *ctx, uint64_t *ret_end, uint32_t *ret_chain, char *ret_torn, size_t torn_size);
/* Appending continues in `half` at `at` (0: the start, with a fresh salt) with CRC chain `chain` (at 0: ignored). */
void oplog_start(struct oplog *l, unsigned half, uint64_t salt, uint64_t at, uint32_t chain);
errint_t oplog_append(struct oplog *l, struct oplog_record *r); /* into memory; -ENOSPC: does not fit in this half any more */
errint_t oplog_write_out(struct oplog *l, uint64_t *ret_seq);   /* to the file; at level file durably */
errint_t oplog_flush(struct oplog *l, uint64_t *ret_seq);       /* what is written out becomes durable; next record on a fresh page */
uint64_t oplog_used(const struct oplog *l);                     /* bytes of the current half, pending ones counted */
uint64_t oplog_half_size(const struct oplog *l);
errint_t oplog_read(struct oplog *l, uint64_t log_offset, uint32_t log_len, struct oplog_record *ret, void **ret_buffer); /* one record back, CRC of its payload checked */
errint_t oplog_set_level(struct oplog *l, enum sync_level level, enum sync_method method, bool direct, uint32_t padding); /* after a flush */
void oplog_drop_pending(struct oplog *l); /* after trouble: the home has them */
