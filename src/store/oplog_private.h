/* oplog_private.h: the log's insides, shared by oplog.c (append, write, flush), oplog_file.c (creation, descriptors) and
 * oplog_replay.c (reading back). */
#pragma once

#include "oplog_format.h"
#include <pthread.h>

/* Bytes of a half on their way to the file: data[0] belongs at `base`; what is before `from` is in the file already (the start of a page
 * that goes on). */
struct oplog_span {
        uint8_t *data; /* aligned to OPLOG_PAGE */
        size_t cap;
        unsigned half;
        uint64_t base, from, end; /* offsets in the half */
        uint64_t counted;         /* page-cache bytes before this offset are in METRIC_LOG_BYTES */
        uint64_t seq;             /* of the last operation in or before it */
        struct oplog_walk walk;   /* behind its last record */
};

/* For each page of a half in which a record begins: the first one, and the walk before it. Lets one record be read back with its chain. */
struct oplog_mark {
        uint32_t first; /* offset in the page + 1; 0: none */
        struct oplog_walk before;
};

struct oplog {
        struct disk *disk;
        struct metrics *metrics;
        char *path;
        bool read_only;
        uint64_t half_size, life;
        struct disk_file *writer; /* as level and method want it */
        struct disk_file *reader; /* page cache, read only */

        /* Lock order: flushing, writing, lock. Disk calls are made under the first two only. */
        pthread_mutex_t flushing; /* one flush at a time */
        pthread_mutex_t writing;  /* one write_out at a time; guards inflight's bytes while they are written */
        pthread_mutex_t lock;     /* guards everything below */
        enum sync_level level;
        enum sync_method method;
        bool direct;
        uint32_t unit; /* what a write is rounded up to, and at level file where the next one begins */
        unsigned half; /* appended to */
        bool restart;  /* a restart record comes before the next one */
        struct oplog_span parked;   /* pending when appending moved on to the other half: written before the next */
        struct oplog_span pending;  /* half, walk and seq are those of the last append, also when it is empty */
        struct oplog_span inflight; /* being written, or written last, or failed */
        struct oplog_span spare;    /* memory only */
        uint64_t seq_written;
        uint64_t end_written;           /* in `half`: end of the last record in the file */
        struct oplog_walk walk_written; /* behind it */
        uint64_t writes, writes_flushed; /* counts of writes: differ when something written is not flushed */
        errint_t error;                         /* of the first write or flush that failed */
        struct oplog_mark *marks[2];            /* per half, one per page; NULL: not known */
        struct oplog_walk replayed[2];          /* where replay has ended; has_seq: it met operations */
        struct enc front;
};

static inline uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }
static inline uint64_t oplog_half_at(const struct oplog *l, unsigned half) { return OPLOG_PAGE + half * l->half_size; }
static inline void oplog_count(struct oplog *l, enum metric id, uint64_t n) {
        if (l->metrics)
                metric_add(l->metrics, id, n);
}
void oplog_mark_record(struct oplog *l, unsigned half, uint64_t at, const struct oplog_walk *before); /* under lock */
void oplog_marks_reset(struct oplog *l, unsigned half);
/* Finds out how level and method can be had; opens the descriptor. Changes nothing in `l`. */
struct oplog_writer {
        struct disk_file *file;
        bool direct;
        uint32_t unit;
};
errint_t oplog_writer_open(struct oplog *l, enum sync_level level, enum sync_method method, bool direct, uint32_t padding, struct oplog_writer *ret);
