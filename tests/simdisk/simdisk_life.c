/* simdisk_life.c: how a simulated disk begins and ends, what a kill or a power cut makes of it, faults, looking and damaging. */
#include "simdisk_private.h"

#include <string.h>

/* --- life, death, power ------------------------------------------------------------------------------------------------------------ */
static void event_cb(void *p) {
        event_unref(p);
}
static void written_cb(void *p) {
        struct written *w = p;
        free(w->path);
        free(w);
}

struct simdisk *simdisk_new(const struct simdisk_config *config) {
        struct simdisk *d = NEW(struct simdisk);
        d->base.ops = &sim_ops;
        pthread_mutex_init(&d->lock, NULL);
        if (config)
                d->config = *config;
        if (d->config.sector == 0)
                d->config.sector = SECTOR_MIN;
        PRE(d->config.sector == 512 || d->config.sector == 4096);
        d->random = d->config.seed;
        d->next_inode = 1;
        d->names = g_ptr_array_new();
        d->files = g_ptr_array_new();
        d->written = g_ptr_array_new_with_free_func(written_cb);
        d->journal = g_ptr_array_new_with_free_func(event_cb);
        d->medium = track_new(d->config.sector);
        d->start = d->config.history ? track_new(d->config.sector) : NULL;
        return d;
}

static void kill_locked(struct simdisk *d) {
        while (d->files->len > 0)
                sim_file_detach(d, d->files->pdata[d->files->len - 1]);
}

static void names_clear(struct simdisk *d) {
        while (d->names->len > 0)
                sim_name_remove(d, d->names->pdata[d->names->len - 1]);
}

void simdisk_free(struct simdisk *d) {
        if (!d)
                return;
        kill_locked(d);
        names_clear(d);
        g_ptr_array_unref(d->names);
        g_ptr_array_unref(d->files);
        g_ptr_array_unref(d->written);
        g_ptr_array_unref(d->journal);
        track_free(d->medium);
        track_free(d->start);
        free(d->fault_path);
        pthread_mutex_destroy(&d->lock);
        free(d);
}

struct disk *simdisk_disk(struct simdisk *d) {
        return &d->base;
}

uint64_t simdisk_position(const struct simdisk *d) {
        LOCKED(m, d);
        return m->positions;
}

/* The medium as it was at a point of the journal, nothing decided yet. */
static struct track *track_at(const struct simdisk *d, uint64_t at) {
        if (at >= d->positions)
                return track_clone(d->medium);
        PRE(d->config.history && at + d->journal->len >= d->positions);
        struct track *t = track_clone(d->start);
        for (guint i = 0; i < d->journal->len - (d->positions - at); i++)
                track_feed(t, d->journal->pdata[i]);
        return t;
}

unsigned simdisk_pending(const struct simdisk *d, uint64_t at) {
        LOCKED(m, d);
        CLEANUP(track_freep) struct track *t = track_at(m, at);
        return track_pending(t);
}

/* Makes the contents that processes see those of a decided medium, and the journal empty. */
static void adopt_medium(struct simdisk *d, const struct track *t) {
        kill_locked(d);
        names_clear(d);
        track_free(d->medium);
        track_free(d->start);
        g_ptr_array_set_size(d->journal, 0);
        d->medium = track_new(d->config.sector);
        for (size_t i = 0; i < track_names(t); i++) {
                const struct image *im;
                uint64_t id;
                const char *path = track_name(t, i, &id, &im);
                struct sim_inode *inode = sim_name_create(d, path, d->next_inode++);
                image_copy(&inode->data, im);
                struct simdisk_config config = d->config;
                d->config.capacity = 0;                       /* what is there is there */
                (void)sim_blocks_take(d, inode, 0, im->size); /* cannot fail without a capacity */
                d->config = config;
                struct event *e = event_new(EVENT_CREATE, inode->id);
                e->path = xstrdup(path);
                track_feed(d->medium, e);
                event_unref(e);
                e = event_new(EVENT_WRITE, inode->id);
                uint64_t sector = d->config.sector;
                e->len = (im->size + sector - 1) / sector * sector;
                e->data = xcalloc(1, e->len + 1);
                if (im->size)
                        memcpy(e->data, im->data, im->size);
                e->size_changed = true;
                e->size_after = e->end = im->size;
                track_feed(d->medium, e);
                event_unref(e);
        }
        track_settle(d->medium);
        d->start = d->config.history ? track_clone(d->medium) : NULL;
        d->positions = 0;
}

struct simdisk *simdisk_crashed(const struct simdisk *d, const struct simdisk_crash *how) {
        CLEANUP(track_freep) struct track *t = NULL;
        struct simdisk_config config;
        {
                LOCKED(m, d);
                t = track_at(m, how->at);
                config = m->config;
        }
        track_crash(t, how->keep, how->seed);
        config.seed = how->seed;
        struct simdisk *c = simdisk_new(&config);
        adopt_medium(c, t);
        return c;
}

void simdisk_crash(struct simdisk *d, const struct simdisk_crash *how) {
        LOCKED(m, d);
        CLEANUP(track_freep) struct track *t = track_at(m, how->at);
        track_crash(t, how->keep, how->seed);
        adopt_medium(m, t);
}

void simdisk_kill(struct simdisk *d) {
        LOCKED(m, d);
        kill_locked(m);
}

void simdisk_settle(struct simdisk *d) {
        LOCKED(m, d);
        track_settle(m->medium);
        g_ptr_array_set_size(m->journal, 0);
        track_free(m->start);
        m->start = m->config.history ? track_clone(m->medium) : NULL;
        m->positions = 0;
}

/* --- faults, looking, damaging ------------------------------------------------------------------------------------------------------ */
void simdisk_fail(struct simdisk *d, const struct simdisk_fault *fault) {
        LOCKED(m, d);
        free(m->fault_path);
        m->fault = fault ? *fault : (struct simdisk_fault){0};
        m->fault_path = fault && fault->path_part ? xstrdup(fault->path_part) : NULL;
        m->fault_seen = m->fault_hits = 0;
}

uint64_t simdisk_fault_hits(const struct simdisk *d) {
        LOCKED(m, d);
        return m->fault_hits;
}

uint64_t simdisk_calls(const struct simdisk *d, unsigned kinds) {
        LOCKED(m, d);
        uint64_t n = 0;
        for (unsigned i = 0; i < KINDS; i++)
                n += kinds & (1u << i) ? m->calls[i] : 0;
        return n;
}

void simdisk_set_capacity(struct simdisk *d, uint64_t capacity) {
        LOCKED(m, d);
        m->config.capacity = capacity;
}

uint64_t simdisk_used(const struct simdisk *d) {
        LOCKED(m, d);
        return m->used;
}

errint_t simdisk_file_size(const struct simdisk *d, const char *path, uint64_t *ret) {
        LOCKED(m, d);
        const struct sim_name *n = sim_name_find(m, path);
        if (!n)
                return -ENOENT;
        *ret = n->inode->data.size;
        return 0;
}

errint_t simdisk_peek(const struct simdisk *d, const char *path, uint64_t offset, void *buf, size_t n) {
        LOCKED(m, d);
        const struct sim_name *name = sim_name_find(m, path);
        if (!name)
                return -ENOENT;
        if (offset > name->inode->data.size || n > name->inode->data.size - offset)
                return -ERANGE;
        if (n)
                memcpy(buf, name->inode->data.data + offset, n);
        return 0;
}

errint_t simdisk_poke(struct simdisk *d, const char *path, uint64_t offset, const void *p, size_t n) {
        LOCKED(m, d);
        const struct sim_name *name = sim_name_find(m, path);
        if (!name)
                return -ENOENT;
        if (offset > name->inode->data.size || n > name->inode->data.size - offset)
                return -ERANGE;
        if (n == 0)
                return 0;
        memcpy(name->inode->data.data + offset, p, n);
        /* Damage takes the whole way: what lies in the queue is flushed with it, so that no crash brings the good bytes back. */
        struct event *e = event_new(EVENT_SYNC, name->inode->id);
        sim_emit(m, e);
        uint64_t size = name->inode->data.size;
        sim_emit_write(m, name->inode, offset, offset + n, false, size);
        sim_emit(m, event_new(EVENT_SYNC, name->inode->id));
        return 0;
}

uint64_t simdisk_bytes_written(const struct simdisk *d, const char *path_part) {
        LOCKED(m, d);
        uint64_t n = 0;
        for (guint i = 0; i < m->written->len; i++) {
                const struct written *w = m->written->pdata[i];
                n += !path_part || strstr(w->path, path_part) ? w->bytes : 0;
        }
        return n;
}

void simdisk_watch(struct simdisk *d, simdisk_watch_fn fn, void *ctx) {
        LOCKED(m, d);
        m->watch = fn;
        m->watch_ctx = ctx;
}
