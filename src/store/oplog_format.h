/* oplog_format.h (private to store): the bytes of PATH-oplog. Pure: memory in, memory out. docs/FORMAT.md says the same in words.
 *
 * File: one header page, then half 0, then half 1, each (size / 2) bytes.
 *   header   "CoterieO"  u32 version (1)  16 bytes id  u64 size of both halves  u32 CRC-32C of what is before it; zeros to 4096
 *
 * A half: records. After a record that ends at offset p of the half the next one lies at p, or, after a flush, a restart or padding, at
 * one of the multiples of 512 behind p up to the next multiple of 4096: at the first place where a record fits.
 *
 * Record (u16, u32, u64 little-endian; varint: LEB128, minimal):
 *   varint n        bytes after the CRC; 0: nothing here
 *   u32 crc         CRC-32C over the bytes of n and the body, chained from the crc of the record before it; the first record of a half
 *                   is chained from the CRC-32C of the half's salt (8 bytes)
 *   body, n bytes:
 *   u8 tag          bits 0-2 kind, 3 the payload is zstd, 4 position is absolute, 5 has a payload
 *   u16 low         (sequence + salt) mod 65536: tells a damaged record from one of an earlier life
 *   [absolute]      varint epoch, varint sequence. Else: the epoch of the operation before it, its sequence + 1
 *   OP          1   [payload] varint length of head, [zstd] varint raw length; head; payload
 *   OP_EXTENTS  2   [zstd] varint raw length, u32 CRC-32C of the payload, varint count, count x (varint offset / 4096, varint length); head
 *   ADOPTED     3   always absolute: the adopted epoch, the sequence of the last operation
 *   PROMISED    4   always absolute: the promised epoch, likewise
 *   RESTART     5   u64, random: a record behind it fits behind no other; sequence 0 in `low`
 * A small operation costs 8 bytes besides head and payload (9 with 128 bytes or more, one more with a payload). */
#pragma once

#include "base/codec.h"
#include "oplog.h"

#define OPLOG_VERSION 1u
#define OPLOG_HEADER_SIZE 40u
#define OPLOG_SECTOR 512u
#define OPLOG_RESTART 5
#define OPLOG_FRAME_MAX 7u /* varint n and crc */

/* Where a chain of records has come to. */
struct oplog_walk {
        uint32_t chain;
        uint16_t salt;
        bool has_seq;         /* an operation was met: last.seq says what comes next */
        bool has_epoch;       /* it is the record before: a relative position may follow */
        struct position last; /* of the last operation */
};
void oplog_walk_init(struct oplog_walk *w, uint64_t salt);

void oplog_header_encode(uint8_t out[OPLOG_HEADER_SIZE], const uint8_t id[OPLOG_ID_SIZE], uint64_t size);
errint_t oplog_header_decode(const uint8_t in[OPLOG_HEADER_SIZE], uint8_t ret_id[OPLOG_ID_SIZE], uint64_t *ret_size); /* -EBADMSG */

/* Encodes what comes between frame and head into `e` (reset first), and says how long head and payload make the body; -EMSGSIZE. */
errint_t oplog_encode_front(const struct oplog_walk *w, const struct oplog_record *r, struct enc *e, size_t *ret_body);
void oplog_encode_restart(const struct oplog_walk *w, uint64_t life, struct enc *e);
/* Writes frame, front, head and payload to `out` (room for OPLOG_FRAME_MAX + body); returns the length and moves the walk on. r NULL: a restart. */
size_t oplog_encode(struct oplog_walk *w, const struct oplog_record *r, const struct enc *front, size_t body, uint8_t *out);

/* One record at p, of at most n bytes. 0: good, the walk has moved on, ret->kind may be OPLOG_RESTART; ret points into p and `extents`.
 * -ENODATA: nothing here. -EBADMSG: something that does not fit; *ret_ours: it looks like the damaged next record of this chain. */
errint_t oplog_decode(const uint8_t *p, size_t n, struct oplog_walk *w, struct oplog_extent extents[OPLOG_EXTENTS_MAX], struct oplog_record *ret, size_t *ret_len, bool *ret_ours);
/* The next place after `at` where a record may begin, given that the one before ended at `end`; UINT64_MAX: no other. */
uint64_t oplog_next_place(uint64_t end, uint64_t at);
