/* simdisk_private.h: the two halves of the simulated disk: what processes see (simdisk.c, simdisk_life.c) and what the medium holds
 * (simdisk_track.c). */
#pragma once

#include "simdisk.h"

#include <glib.h>
#include <pthread.h>

#define SECTOR_MIN 512u

uint64_t sim_random(uint64_t *state); /* splitmix64 */

/* Bytes that grow; beyond `size` up to `cap` all is zero. */
struct image {
        uint8_t *data;
        uint64_t size, cap;
};
void image_resize(struct image *im, uint64_t size); /* new bytes are zeros, also after shrinking */
void image_copy(struct image *to, const struct image *from);

enum event_kind {
        EVENT_WRITE,     /* whole sectors as they are afterwards (data NULL: zeros), and the size if it changed */
        EVENT_DSYNC,     /* the last write of the inode is durable */
        EVENT_SYNC,      /* all of the inode is */
        EVENT_SYNC_LOST, /* a failed flush: what was dirty is decided now */
        EVENT_SYNCFS,
        EVENT_CREATE, /* path -> inode */
        EVENT_UNLINK,
        EVENT_RENAME,   /* path -> path2 */
        EVENT_SYNC_DIR, /* path: of the directory */
};
struct event {
        unsigned refs;
        enum event_kind kind;
        uint64_t inode;
        uint64_t offset, len; /* multiples of the sector */
        uint8_t *data;
        bool size_changed;
        uint64_t size_after;
        uint64_t end; /* of the bytes written: what a durable write needs the size to be at least */
        uint64_t seed; /* of SYNC_LOST */
        char *path, *path2;
};
struct event *event_new(enum event_kind kind, uint64_t inode);
struct event *event_ref(struct event *e);
void event_unref(struct event *e);

/* What the medium holds for certain, and what may or may not be there. */
struct track;
struct track *track_new(uint32_t sector);
struct track *track_clone(const struct track *t);
void track_free(struct track *t);
DEFINE_FREEP(track_free, struct track)
void track_feed(struct track *t, struct event *e); /* takes a reference of its own where it keeps it */
void track_settle(struct track *t);                /* all that is pending is durable */
unsigned track_pending(const struct track *t);
void track_crash(struct track *t, enum simdisk_keep keep, uint64_t seed); /* decides all that is pending */
/* Names on the medium, in order of their creation. */
size_t track_names(const struct track *t);
const char *track_name(const struct track *t, size_t i, uint64_t *ret_inode, const struct image **ret_image);

/* --- what processes see ----------------------------------------------------------------------------------------------------------- */
#define BLOCK 4096u
#define KINDS 12

struct sim_inode {
        uint64_t id;
        unsigned names, handles;
        struct image data;
        GByteArray *blocks; /* one byte per block: allocated */
        unsigned locks_shared;
        bool locked;
};
struct sim_name {
        char *path;
        struct sim_inode *inode;
};
struct sim_file {
        struct disk_file base;
        struct simdisk *disk; /* NULL: dead */
        struct sim_inode *inode;
        char *path;
        unsigned flags;
        bool locked;
};
struct written {
        char *path;
        uint64_t bytes;
};
struct simdisk {
        struct disk base;
        pthread_mutex_t lock; /* guards everything below */
        struct simdisk_config config;
        uint64_t random, used, next_inode, positions;
        GPtrArray *names;   /* of struct sim_name */
        GPtrArray *files;   /* of struct sim_file: open ones */
        GPtrArray *written; /* of struct written */
        struct track *medium;
        struct track *start; /* with history: the medium before the first event of the journal */
        GPtrArray *journal;
        uint64_t calls[KINDS];
        struct simdisk_fault fault;
        char *fault_path;
        uint64_t fault_seen, fault_hits;
        simdisk_watch_fn watch;
        void *watch_ctx;
};

static inline struct simdisk *lock_of(const struct simdisk *d) {
        struct simdisk *m = (struct simdisk *)(uintptr_t)d; /* looking at it takes the lock too */
        pthread_mutex_lock(&m->lock);
        return m;
}
static inline void unlockp(struct simdisk **d) {
        if (*d)
                pthread_mutex_unlock(&(*d)->lock);
}
#define LOCKED(name, d) CLEANUP(unlockp) struct simdisk *name = lock_of(d)

extern const struct disk_ops sim_ops;
void sim_inode_drop(struct simdisk *d, struct sim_inode *i); /* when nobody names or holds it any more */
struct sim_name *sim_name_find(const struct simdisk *d, const char *path);
void sim_name_remove(struct simdisk *d, struct sim_name *n);
struct sim_inode *sim_name_create(struct simdisk *d, const char *path, uint64_t id);
/* Allocates blocks for [offset, offset + n); returns how many bytes of it fit. */
uint64_t sim_blocks_take(struct simdisk *d, struct sim_inode *i, uint64_t offset, uint64_t n);
void sim_file_detach(struct simdisk *d, struct sim_file *f); /* the handle is dead */
void sim_emit(struct simdisk *d, struct event *e);           /* takes the reference */
/* The sectors of [from, to) as they are now. */
void sim_emit_write(struct simdisk *d, const struct sim_inode *i, uint64_t from, uint64_t to, bool zeros, uint64_t size_before);
