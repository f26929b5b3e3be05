/* vfs.h (private to store): an SQLite VFS over disk.h, so that whatever disk stands below the log and the content file stands below
 * SQLite too, and its bytes and flushes are counted (METRIC_HOME_BYTES, METRIC_HOME_FLUSHES).
 *
 * One VFS per store, registered under a name of its own, for one connection. It takes the lock of the database file itself (disk_lock)
 * when the file is opened; SQLite's own locks are no-ops, there is no shared memory. xSync is fdatasync; the directory is flushed with
 * the first sync of a file that was created.
 *
 * Frozen, nothing reaches the disk any more: writes stay in memory, over what the disk has. That is how a database is opened for
 * reading only although its journal is hot: SQLite rolls back into memory.
 *
 * Threads: as the connection. */
#pragma once

#include "base/metrics.h"
#include "store/disk.h"

struct vfs;
struct vfs *vfs_new(struct disk *disk, struct metrics *metrics, bool frozen);
void vfs_free(struct vfs *v); /* after the connection is closed */
DEFINE_FREEP(vfs_free, struct vfs)
const char *vfs_name(const struct vfs *v);
void vfs_freeze(struct vfs *v);
void vfs_keep(struct vfs *v); /* the database is closed and opened again: its lock is not let go in between */
/* The first error that the disk answered since the last call; 0 for none. SQLite's own codes say less. */
errint_t vfs_take_error(struct vfs *v);
