/* content_private.h: the content file's insides, shared by content.c (open, write, read, flush) and content_space.c (what is free, what is
 * reserved, growth). */
#pragma once

#include "content.h"
#include "content_map.h"
#include "hold.h"

struct content {
        struct disk *disk;
        struct metrics *metrics;
        char *path;
        bool read_only;
        uint32_t sector;
        struct disk_file *file; /* page cache */

        /* Lock order: growing, flushing, lock. Disk calls are made under the first two only. */
        pthread_mutex_t growing;  /* one change of the file's size at a time */
        pthread_mutex_t flushing; /* one flush at a time */
        pthread_mutex_t lock;     /* guards everything below */
        struct disk_file *direct; /* opened at the first use; then fixed */
        bool direct_refused;
        uint8_t *bounce; /* of the last direct write: its pages are warm; NULL: lent, or none yet */
        bool dirty;
        struct content_map map;
        GArray *dead; /* of struct content_dead */
        uint64_t dead_units, reserved, home_seq;
};
struct content_dead {
        uint64_t seq, start, units;
};

static inline uint64_t content_units(uint64_t bytes) { return bytes / CONTENT_UNIT + (bytes % CONTENT_UNIT != 0); }
static inline void content_count(struct content *c, enum metric id, uint64_t n) {
        if (c->metrics)
                metric_add(c->metrics, id, n);
}

/* Takes units for `bytes`, growing the file if need be; ret is malloc'ed. -ENOSPC. */
errint_t content_allocate(struct content *c, uint64_t bytes, struct oplog_extent **ret, size_t *ret_n);
void content_give_back(struct content *c, const struct oplog_extent *e, size_t n);
