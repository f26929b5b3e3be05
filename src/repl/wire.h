/* wire.h (private to repl): what travels between members, byte by byte. docs/PROTOCOL.md has the same for readers; tests/data/wire pins it.
 *
 * A message is a header of WIRE_HEADER bytes and a body of at most WIRE_BODY_MAX; integers are little-endian, `varint` is LEB128.
 *
 *   0  u32 magic "CTR\x01"            24 u64 hash of the view's sorted (node, pid)
 *   4  u8  version this is spoken in   32 u64 the sender's incarnation
 *   5  u8  lowest, 6 u8 highest        40 u32 instance: how many views the sender has begun
 *   7  u8  type                        44 u32 number: counts the sender's messages in this round, from 1
 *   8  u32 ring node                   48 u32 length of the body
 *   12 u32 round                       52 u32 CRC-32C of bytes 0..51 and the body
 *   16 u64 ring sequence
 *
 * The name of a view is (ring node, ring sequence, members' hash, round); together with (incarnation, instance) of the sender
 * and the number, every message has a name of its own. Nothing is allocated here by a length that came from outside. Pure. */
#pragma once

#include "repl/repl.h"

#define WIRE_MAGIC       0x01525443u
#define WIRE_VERSION_MIN 1u
#define WIRE_VERSION_MAX 1u
#define WIRE_HEADER      56u
#define WIRE_PIECE_MAX   (64u * 1024u)       /* of a large operation, of a transfer */
#define WIRE_BODY_MAX    (WIRE_PIECE_MAX + 1024u)
#define WIRE_OP_MAX      (OP_HEAD_MAX + OP_PAYLOAD_MAX + 20) /* an operation in the form of `wire_op` below */
static_assert(WIRE_HEADER + WIRE_BODY_MAX <= 96u * 1024u, "fits in what the transport takes");

enum wire_type {
        WIRE_STATE = 1,   /* begins a round: the first message of each member */
        WIRE_JOINED = 2,  /* I hold the best state and have promised the epoch */
        WIRE_TRAFFIC = 3, /* acknowledgement, barrier, operations: any of them */
        WIRE_PART = 4,    /* a piece of an operation that does not fit */
        WIRE_ROUND = 5,   /* a new round with the same members */
        WIRE_EXPEL = 6,   /* a new round without some */
        WIRE_READMIT = 7, /* a new round with the sender */
        WIRE_FORGIVE = 8, /* choose although some may have forgotten */
        WIRE_ASK = 9,     /* catching up: the newcomer's question */
        WIRE_GIVE = 10,   /* catching up: a piece of the donor's answer */
        WIRE_TYPE_COUNT
};

struct wire_header {
        uint8_t version, lowest, highest;
        uint8_t type;
        struct repl_ring ring;
        uint64_t members;
        uint32_t round;
        uint64_t incarnation;
        uint32_t instance, number;
};
/* Writes the header in front of body pieces; the CRC covers both. body2 may be NULL. */
void wire_header_encode(const struct wire_header *h, const void *body, size_t body_len, const void *body2, size_t body2_len, uint8_t out[WIRE_HEADER]);
/* -EBADMSG: not a message, damaged, or longer or shorter than it says. -EPROTONOSUPPORT: intact, but in a version not spoken here; ret is filled. */
errint_t wire_decode(const void *p, size_t n, struct wire_header *ret, const uint8_t **ret_body, size_t *ret_len);
uint64_t wire_members_hash(const struct repl_member *members, size_t n);

/* STATE: cluster id 16, promised u64, adopted u64, sequence u64, digest 16, votes u32, needed u32, extra u32, expected u32, flags u8, round's
 * members u64 (bit i: the i-th of the view's sorted members). Later versions append; these 81 bytes stay for ever. */
enum { STATE_QUORATE = 1, STATE_FORGETFUL = 2, STATE_WEAK = 4 };
struct wire_state {
        uint8_t cluster_id[16];
        uint64_t promised, adopted, seq;
        struct hash128 digest;
        uint32_t votes, needed, extra, expected; /* extra: of a quorum device */
        uint8_t flags;
        uint64_t members;
        uint8_t lowest, highest; /* versions; from the header */
};
void wire_state_encode(const struct wire_state *s, struct enc *e);
errint_t wire_state_decode(const void *p, size_t n, struct wire_state *ret);

/* JOINED: epoch u64, sequence u64, digest 16. */
struct wire_joined {
        uint64_t epoch, seq;
        struct hash128 digest;
};
void wire_joined_encode(const struct wire_joined *j, struct enc *e);
errint_t wire_joined_decode(const void *p, size_t n, struct wire_joined *ret);

/* TRAFFIC: epoch u64, flags u8; TRAFFIC_ACK: sequence varint, sequence on the medium varint, digest 16; TRAFFIC_BARRIER: sequence varint; then operations
 * to the end: each head length varint, head, payload length varint, payload. */
enum { TRAFFIC_ACK = 1, TRAFFIC_BARRIER = 2 };
struct wire_traffic {
        uint64_t epoch;
        uint8_t flags;
        uint64_t ack_seq, ack_medium;
        struct hash128 ack_digest;
        uint64_t barrier;
};
#define WIRE_TRAFFIC_MAX 64u /* encoded, before the operations */
void wire_traffic_encode(const struct wire_traffic *t, struct enc *e);
errint_t wire_traffic_decode(struct dec *d, struct wire_traffic *ret); /* leaves d at the first operation */
struct wire_op {
        const uint8_t *head, *payload;
        size_t head_len, payload_len;
};
/* The next operation of a decoder; d->err or nothing left ends. */
bool wire_op_decode(struct dec *d, struct wire_op *ret);

/* PART: epoch u64, total u32, offset u32, then the bytes: a slice of one operation in the form above. */
struct wire_part {
        uint64_t epoch;
        uint32_t total, offset;
        const uint8_t *data;
        size_t len;
};
#define WIRE_PART_HEAD 16u
void wire_part_encode(const struct wire_part *p, struct enc *e); /* without the data */
errint_t wire_part_decode(const void *p, size_t n, struct wire_part *ret);

/* ROUND: why u8. EXPEL: u64, bit i: the i-th of the view's members. READMIT, FORGIVE: nothing. */
enum { ROUND_GAP = 1, ROUND_QUORUM = 2, ROUND_RESTART = 3, ROUND_DIGEST = 4, ROUND_OVERDUE = 5, ROUND_BEHIND = 6, ROUND_WHY_COUNT };
