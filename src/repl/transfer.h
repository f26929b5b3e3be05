/* transfer.h (private to repl): state transfer: what is asked and given, and a frozen position.
 *
 * The newcomer asks for objects, the donor gives them in pieces. By log: the operations behind the newcomer's position, if its history is
 * that of the donor, which the donor proves by chaining its log from the newcomer's history to its own. By difference otherwise: a tree
 * of digests over ranges of inode numbers says where the two differ; only inodes that differ travel, and content only if its digest is
 * not at hand already. What has come is kept by digest over view changes, so that a transfer goes on where it was.
 *
 *   ASK:  target node u32, target pid u32, transfer u64, then wishes to the end: kind u8, id varint, offset varint; BEGIN also: history 16
 *   GIVE: target node u32, target pid u32, transfer u64, then pieces to the end: kind u8, id varint, total varint, offset varint, bytes
 *         (varint length, then so many)
 *
 *   BEGIN     id: the newcomer's sequence; offset 1: by difference only. Given: struct transfer_begin
 *   NODE      id: index * 16 + level (1 and up): per child that has inodes: its place u8 (0..63), digest 16
 *   LEAF      id: inode number / 64: per inode: its number varint, digest 16 of its record
 *   INODE     id: inode number: its record (capture.c)
 *   CONTENT   id: inode number: the bytes of its data ranges
 *   SESSIONS  recorded results, as sessions_encode gives
 *   LOG       id: sequence: epoch u64, then the operation as in TRAFFIC. Asked: from there on, as many as the donor likes to give
 *   LOG_END   id: the first sequence not given; total 0 */
#pragma once

#include "machine.h"

enum object_kind { OBJECT_BEGIN = 1, OBJECT_NODE, OBJECT_LEAF, OBJECT_INODE, OBJECT_CONTENT, OBJECT_SESSIONS, OBJECT_LOG, OBJECT_LOG_END, OBJECT_KIND_COUNT };
#define TRANSFER_WISHES     128u           /* in one ASK, and outstanding */
#define TRANSFER_UNDER_WAY  2u             /* messages of a donor; 1 while operations wait for acknowledgements */
#define TRANSFER_LOG_BYTES  (4 * MIB)      /* of operations that a donor holds for one answer */
#define TRANSFER_OBJECT_MAX (UINT64_C(1) << 30)
#define TRANSFER_LEVELS     11u            /* 64^11 > 2^62 */
#define TRANSFER_SETTINGS   64u

/* How the donor answers BEGIN: mode u8, epoch u64, sequence u64, history 16, digest 16, adopted u64, next inode varint, height u8, settings: count
 * varint, then name and text as bytes each. */
enum { TRANSFER_BY_LOG = 1, TRANSFER_BY_DIFFERENCE = 2 };
struct transfer_begin {
        uint8_t mode;
        struct position pos;
        struct hash128 history, digest;
        uint64_t adopted, next_ino;
        uint8_t height; /* level of the root */
        size_t settings_at; /* in the encoded form: where the settings begin */
};
errint_t transfer_begin_decode(const uint8_t *p, size_t n, struct transfer_begin *ret);

/* --- a frozen position, on both sides: what the donor gives, what the newcomer has, what it puts together */
struct capture_inode {
        uint64_t ino;
        struct hash128 hash;  /* of the record */
        uint8_t *record;      /* NULL: not here yet */
        size_t len;
        struct blob *content; /* NULL: empty, none, or not here yet */
};
struct capture_node {
        uint64_t index;       /* in its level */
        struct hash128 hash;
        size_t first, n;      /* children: in the level below; in the lowest level: inodes */
};
struct capture {
        struct position pos;
        struct hash128 history, digest;
        uint64_t adopted, next_ino;
        struct settings settings;
        struct capture_inode *inodes; /* sorted, but for one that is being put together */
        size_t n_inodes, cap_inodes;
        struct capture_node *levels[TRANSFER_LEVELS];
        size_t n_level[TRANSFER_LEVELS];
        uint8_t *sessions;
        size_t sessions_len;
};
/* Copies everything but content, which is shared. O(inodes), and the one long step that a transfer costs its donor. */
errint_t capture_take(const struct state *s, uint64_t adopted, struct capture **ret);
void capture_free(struct capture *c);
DEFINE_FREEP(capture_free, struct capture)
uint8_t capture_height(const struct capture *c); /* the level whose node 0 covers every inode number below next_ino */
const struct capture_node *capture_node(const struct capture *c, unsigned level, uint64_t index); /* NULL: nothing there */
const struct capture_inode *capture_inode(const struct capture *c, uint64_t ino);
size_t capture_add(struct capture *c, const struct capture_inode *inode); /* takes record and reference over; its place */
/* An object into e; -ENOENT. Not CONTENT: that is read from the blob. `mode` for BEGIN. */
errint_t capture_object(const struct capture *c, enum object_kind kind, uint64_t id, uint8_t mode, struct enc *e);
/* The state that a complete capture describes, built beside the old one; sorts the inodes. -EBADMSG with a line in fault: what was given
 * does not fit together. `begin`: as the donor gave it. */
errint_t capture_build(struct capture *c, const struct transfer_begin *b, const uint8_t *begin, size_t begin_len, uint64_t hash_seed,
                       struct state *ret, char *fault, size_t fault_size);

/* --- the record of an inode: ino varint, mode, uid, gid, nlink, rdev u32 each; atime, mtime, ctime: seconds svarint, nanoseconds u32 each; xattrs (as
 * tree_xattrs_encode) as bytes. Files and symlinks: size varint, digest 16 of the content. Directories: parent varint, next cookie varint, then entries
 * to the end: distance of the cookie to the one before varint, name as bytes, inode varint. */
struct record {
        struct tree_inode_state state; /* content not set */
        const uint8_t *xattrs;
        size_t xattrs_len;
        bool has_content;
        struct hash128 digest;
        struct dec entries; /* directories */
};
errint_t record_decode(const uint8_t *p, size_t n, struct record *ret);

/* --- messages */
struct transfer_head {
        struct repl_member target;
        uint64_t transfer;
};
void transfer_head_encode(const struct transfer_head *h, struct enc *e);
void transfer_head_decode(struct dec *d, struct transfer_head *ret);
struct wish {
        enum object_kind kind;
        uint64_t id, offset;
        struct hash128 history; /* BEGIN */
};
void wish_encode(const struct wish *w, struct enc *e);
bool wish_decode(struct dec *d, struct wish *ret);
struct piece {
        enum object_kind kind;
        uint64_t id, total, offset;
        const uint8_t *data;
        size_t len;
};
void piece_encode(const struct piece *p, struct enc *e);
bool piece_decode(struct dec *d, struct piece *ret);
