/* conflict.h: conflict records: operations that this node had applied and that the history which it took over does not have. Pure, any thread.
 *
 *   "CoterieX" · u32 version (1) · when: svarint seconds, u32 nanoseconds · u64 epoch · u64 sequence · bytes path · bytes new path · bytes head ·
 *   bytes payload · u32 CRC of what is before it
 *
 * Inode numbers of the operation belong to the lost history; in the surviving one they may be somebody else's. So a record has the paths. */
#pragma once

#include "core/state.h"

#define CONFLICT_PATH_MAX 65536u /* of one path: names may be nested deeper than PATH_MAX */

struct conflict {
        struct timestamp when;   /* it was kept */
        struct position pos;     /* it had had */
        const char *path;        /* what it was about, "" if it had no name any more; not zero-terminated */
        size_t path_len;
        const char *new_path;    /* LINK, RENAME: the other name; else "" */
        size_t new_path_len;
        const void *head;
        size_t head_len;
        const void *payload;     /* as stored */
        size_t payload_len;
};
/* -EMSGSIZE: larger than an operation can be. */
errint_t conflict_encode(const struct conflict *c, struct enc *e);
/* Points into p. -EBADMSG; -ENOTSUP: a newer version. */
errint_t conflict_decode(const void *p, size_t n, struct conflict *ret);
/* The paths of what op is about, in the tree that had applied it; allocated, "" where there is none. */
void conflict_paths(const struct tree *t, const struct op *op, char **ret_path, char **ret_new_path);
