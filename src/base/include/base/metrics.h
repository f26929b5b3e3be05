/* metrics.h: counters of one instance (a daemon, a simulated node). Adding is one relaxed atomic; no lock on hot paths. The list
 * is a table: X(ID, "name", "help"). The names are those of `coterie status --json` counters and, with the prefix coterie_, of
 * the Prometheus metrics. Counters only grow; gauges are rendered by their owners. Any thread. */
#pragma once

#include "base/base.h"
#include <stdatomic.h>

#define METRICS_TABLE(X)                                                                                                                   \
        X(OPERATIONS, "operations", "operations applied")                                                                                  \
        X(OPERATIONS_REFUSED, "operations_refused", "operations applied with an errno")                                                    \
        X(CONTENT_OPERATIONS, "content_operations", "operations that wrote file content")                                                  \
        X(FUSE_REQUESTS, "fuse_requests", "requests received from the kernel")                                                             \
        X(FUSE_WRITE_CALLS, "fuse_write_calls", "WRITE requests received")                                                                 \
        X(FUSE_WRITE_BYTES, "fuse_write_bytes", "bytes received by WRITE")                                                                 \
        X(FUSE_WRITE_MAX, "fuse_write_max", "largest WRITE received, bytes")                                                               \
        X(FUSE_GETXATTR, "fuse_getxattr", "GETXATTR requests received")                                                                    \
        X(FUSE_FORGETS, "fuse_forgets", "inodes forgotten by the kernel")                                                                  \
        X(LOOKUPS, "lookups", "LOOKUP requests received")                                                                                  \
        X(GETATTRS, "getattrs", "GETATTR and STATX requests received")                                                                     \
        X(OPENS, "opens", "OPEN requests received")                                                                                        \
        X(READS, "reads", "READ requests received")                                                                                        \
        X(READ_BYTES, "read_bytes", "bytes answered to READ")                                                                              \
        X(READDIRS, "readdirs", "READDIR and READDIRPLUS requests received")                                                               \
        X(FLUSHES, "fuse_flushes", "FLUSH requests received")                                                                              \
        X(INVALIDATIONS, "invalidations", "notifications sent to the kernel")                                                              \
        X(EPOCHS, "invalidation_epochs", "FUSE_NOTIFY_INC_EPOCH sent")                                                                     \
        X(LOG_RECORDS, "log_records", "records appended to the operation log")                                                             \
        X(LOG_BYTES, "log_bytes", "bytes written to the operation log, padding included")                                                  \
        X(LOG_FLUSHES, "log_flushes", "flushes of the operation log")                                                                      \
        X(CONTENT_BYTES, "content_bytes", "bytes written to the content file")                                                             \
        X(CONTENT_FLUSHES, "content_flushes", "flushes of the content file")                                                               \
        X(HOME_BYTES, "home_bytes", "bytes written by SQLite to the home, as whole pages of 4 KiB")                                        \
        X(HOME_FLUSHES, "home_flushes", "flushes by SQLite")                                                                               \
        X(BARRIERS, "barriers", "barriers done")                                                                                           \
        X(CHECKPOINTS, "checkpoints", "checkpoints done")                                                                                  \
        X(STORE_ERRORS, "store_errors", "failed calls of the store's I/O")                                                                 \
        X(MESSAGES_SENT, "messages_sent", "messages handed to the transport")                                                              \
        X(MESSAGES_DELIVERED, "messages_delivered", "messages delivered by the transport")                                                 \
        X(VIEW_CHANGES, "view_changes", "views begun")                                                                                     \
        X(CONFLICTS, "conflicts", "operations kept as conflict records")

enum metric {
#define X(id, name, help) METRIC_##id,
        METRICS_TABLE(X)
#undef X
                METRIC_COUNT
};
#define METRIC_KINDS 16u
struct metrics {
        _Atomic uint64_t v[METRIC_COUNT];
        /* What each kind of operation (core/op.h) took. Of the log: records without padding; of content: blocks of 4 KiB. */
        struct metrics_kind {
                _Atomic uint64_t records, log_bytes, content_bytes;
        } kinds[METRIC_KINDS];
};
static inline void metric_add(struct metrics *m, enum metric id, uint64_t n) {
        atomic_fetch_add_explicit(&m->v[id], n, memory_order_relaxed);
}
static inline void metric_max(struct metrics *m, enum metric id, uint64_t n) {
        uint64_t was = atomic_load_explicit(&m->v[id], memory_order_relaxed);
        while (n > was && !atomic_compare_exchange_weak_explicit(&m->v[id], &was, n, memory_order_relaxed, memory_order_relaxed))
                ;
}
static inline uint64_t metric_get(const struct metrics *m, enum metric id) {
        return atomic_load_explicit(&m->v[id], memory_order_relaxed);
}
static inline void metric_add_kind(struct metrics *m, unsigned kind, uint64_t log_bytes, uint64_t content_bytes) {
        atomic_fetch_add_explicit(&m->kinds[kind].records, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->kinds[kind].log_bytes, log_bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->kinds[kind].content_bytes, content_bytes, memory_order_relaxed);
}
const char *metric_name(enum metric id);
const char *metric_help(enum metric id);
