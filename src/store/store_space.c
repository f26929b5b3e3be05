/* store_space.c: room on the disk. The log has its place from the start; contents reserve theirs; what the home needs for one checkpoint
 * is kept by a ballast file beside it, which is given up when a checkpoint (or a content that was promised room) finds the disk full,
 * and made again when space has returned. While it cannot be, only operations that free something are let in. */
#include "store_private.h"

#include "base/env.h"
#include "base/log.h"
#include <string.h>

bool disk_is_full(errint_t r) {
        return r == -ENOSPC || r == -EDQUOT;
}

/* Once per change, not per refusal: a status that says "writable" is no answer to ENOSPC. */
static void tell_about_room(struct sqlite_store *s, bool room) {
        (void)pthread_mutex_lock(&s->lock);
        bool told = s->told_full == !room;
        s->told_full = !room;
        (void)pthread_mutex_unlock(&s->lock);
        if (told)
                return;
        if (room)
                log_notice("store: there is room again under %s", s->path);
        else
                log_warning("store: the disk under %s has no room for its ballast file (%llu MiB): until it has, only what frees space is "
                            "let in, all else gets ENOSPC; free space on it",
                            s->path, (unsigned long long)(s->log_size >> 20));
}

#define BALLAST_PAUSE_NS UINT64_C(100000000)

static uint64_t free_bytes(struct sqlite_store *s) {
        struct disk_info info = {0};
        return s->disk->ops->info(s->disk, s->path, &info) == 0 ? info.fs_free : 0;
}

/* A full disk is not filled to the brim and emptied again at each refusal: only if there is more free than after the last time, or, as
 * a quota may be what is full, after a pause. */
static bool ballast_pauses(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        uint64_t again = s->ballast_again_ns, left = s->ballast_left;
        (void)pthread_mutex_unlock(&s->lock);
        if (again == 0 || env_monotonic_ns(env_system()) >= again)
                return false;
        return free_bytes(s) < MAX_OF(s->log_size, left + 1);
}

static void ballast_failed(struct sqlite_store *s) {
        (void)s->disk->ops->unlink(s->disk, s->ballast_path); /* part of it helps nobody */
        uint64_t left = free_bytes(s);
        (void)pthread_mutex_lock(&s->lock);
        s->ballast_again_ns = env_monotonic_ns(env_system()) + BALLAST_PAUSE_NS;
        s->ballast_left = left;
        (void)pthread_mutex_unlock(&s->lock);
        tell_about_room(s, false);
}

/* Under no lock but home_lock or none: two threads may come here; both find or make the same file. */
bool ballast_make(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        bool there = s->ballast;
        (void)pthread_mutex_unlock(&s->lock);
        if (there || ballast_pauses(s))
                return there;
        struct disk_file *f = NULL;
        uint64_t size = 0;
        errint_t r = disk_open(s->disk, s->ballast_path, DISK_CREATE, &f);
        if (r == 0)
                r = f->ops->size(f, &size);
        if (r == 0 && size < s->log_size)
                r = f->ops->allocate(f, 0, s->log_size);
        disk_close(f);
        if (disk_is_full(r)) {
                ballast_failed(s);
                return false;
        }
        tell_about_room(s, true);
        /* Where the filesystem cannot allocate, or answers nonsense, there is none: one checkpoint may then find the disk full, and waits.
         */
        (void)pthread_mutex_lock(&s->lock);
        s->ballast = true;
        (void)pthread_mutex_unlock(&s->lock);
        return true;
}

/* The ballast of an earlier life: it serves a start on a full disk, too. */
void ballast_find(struct sqlite_store *s) {
        struct disk_file *f = NULL;
        errint_t r = disk_open(s->disk, s->ballast_path, DISK_READ_ONLY, &f);
        disk_close(f);
        (void)pthread_mutex_lock(&s->lock);
        s->ballast = r == 0;
        (void)pthread_mutex_unlock(&s->lock);
}

bool ballast_give_up(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        bool there = s->ballast;
        s->ballast = false;
        (void)pthread_mutex_unlock(&s->lock);
        if (there && s->disk->ops->unlink(s->disk, s->ballast_path) == 0) {
                log_warning("store: the disk under %s is full: its ballast file is given up for what has to be written", s->path);
                return true;
        }
        return false;
}

static bool full_before(struct sqlite_store *s) {
        (void)pthread_mutex_lock(&s->lock);
        bool full = s->no_space;
        (void)pthread_mutex_unlock(&s->lock);
        return full;
}

/* The last checkpoint found no room, even without the ballast: space has returned when a new ballast can be had. */
static bool room_again(struct sqlite_store *s) {
        if (!ballast_make(s))
                return false;
        (void)pthread_mutex_lock(&s->lock);
        s->no_space = false; /* a checkpoint may try again */
        (void)pthread_mutex_unlock(&s->lock);
        return true;
}

errint_t store_reserve(struct store *base, uint64_t bytes, bool frees) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] || s->read_only || s->stopped ? -EROFS : s->waits_for_room ? -ENOSPC : 0;
        (void)pthread_mutex_unlock(&s->lock);
        if (r < 0)
                return r;
        if (!frees && !(full_before(s) ? room_again(s) : ballast_make(s)))
                return -ENOSPC;
        if (bytes < CONTENT_THRESHOLD)
                return 0;
        r = content_reserve(s->content, bytes);
        if (disk_is_full(r)) {
                (void)pthread_mutex_lock(&s->lock);
                s->want_dead_freed = true;
                (void)pthread_mutex_unlock(&s->lock);
                return -ENOSPC;
        }
        return r;
}

void store_release(struct store *base, uint64_t bytes) {
        struct sqlite_store *s = STORE_OF(base);
        if (bytes >= CONTENT_THRESHOLD && s->content)
                content_release(s->content, bytes);
}
