/* simdisk_track.c: the medium: for each inode the flushed image and the queue of unflushed writes; for the names alike. */
#include "simdisk_private.h"

#include <string.h>

uint64_t sim_random(uint64_t *state) {
        uint64_t z = (*state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
}

void image_resize(struct image *im, uint64_t size) {
        if (size > im->cap) {
                uint64_t cap = MAX_OF(size, im->cap + im->cap / 2);
                uint8_t *data = xcalloc(1, cap); /* of a large one the pages that are never touched cost nothing */
                if (im->cap)
                        memcpy(data, im->data, im->cap);
                free(im->data);
                im->data = data;
                im->cap = cap;
        }
        if (size < im->size)
                memset(im->data + size, 0, im->size - size);
        im->size = size;
}

void image_copy(struct image *to, const struct image *from) {
        *to = (struct image){.size = from->size, .cap = from->size, .data = from->size ? xmalloc(from->size) : NULL};
        if (from->size)
                memcpy(to->data, from->data, from->size);
}

struct event *event_new(enum event_kind kind, uint64_t inode) {
        struct event *e = NEW(struct event);
        e->refs = 1;
        e->kind = kind;
        e->inode = inode;
        return e;
}

struct event *event_ref(struct event *e) {
        e->refs++;
        return e;
}

void event_unref(struct event *e) {
        if (!e || --e->refs > 0)
                return;
        free(e->data);
        free(e->path);
        free(e->path2);
        free(e);
}

struct pending {
        struct event *e;
        bool durable; /* written with DSYNC behind others that are not durable */
};
struct medium_file {
        uint64_t inode;
        struct image floor;
        GArray *queue; /* of struct pending, oldest first */
};
struct medium_name {
        char *path;
        uint64_t inode;
};
struct track {
        uint32_t sector;
        GPtrArray *files;      /* of struct medium_file, by inode */
        GPtrArray *names;      /* of struct medium_name */
        GPtrArray *name_queue; /* of struct event */
};

static void medium_file_free(void *p) {
        struct medium_file *f = p;
        for (guint i = 0; i < f->queue->len; i++)
                event_unref(g_array_index(f->queue, struct pending, i).e);
        g_array_free(f->queue, TRUE);
        free(f->floor.data);
        free(f);
}

static void medium_name_free(void *p) {
        struct medium_name *n = p;
        free(n->path);
        free(n);
}

static void event_unref_cb(void *p) {
        event_unref(p);
}

struct track *track_new(uint32_t sector) {
        struct track *t = NEW(struct track);
        t->sector = sector;
        t->files = g_ptr_array_new_with_free_func(medium_file_free);
        t->names = g_ptr_array_new_with_free_func(medium_name_free);
        t->name_queue = g_ptr_array_new_with_free_func(event_unref_cb);
        return t;
}

void track_free(struct track *t) {
        if (!t)
                return;
        g_ptr_array_unref(t->files);
        g_ptr_array_unref(t->names);
        g_ptr_array_unref(t->name_queue);
        free(t);
}

static struct medium_file *file_get(struct track *t, uint64_t inode) {
        for (guint i = 0; i < t->files->len; i++) {
                struct medium_file *f = t->files->pdata[i];
                if (f->inode == inode)
                        return f;
        }
        struct medium_file *f = NEW(struct medium_file);
        f->inode = inode;
        f->queue = g_array_new(FALSE, FALSE, sizeof(struct pending));
        g_ptr_array_add(t->files, f);
        return f;
}

static void name_put(struct track *t, const char *path, uint64_t inode) {
        struct medium_name *n = NEW(struct medium_name);
        n->path = xstrdup(path);
        n->inode = inode;
        g_ptr_array_add(t->names, n);
}

static bool name_take(struct track *t, const char *path, uint64_t *ret_inode) {
        for (guint i = 0; i < t->names->len; i++) {
                struct medium_name *n = t->names->pdata[i];
                if (strcmp(n->path, path) == 0) {
                        *ret_inode = n->inode;
                        g_ptr_array_remove_index(t->names, i);
                        return true;
                }
        }
        return false;
}

struct track *track_clone(const struct track *t) {
        struct track *c = track_new(t->sector);
        for (guint i = 0; i < t->files->len; i++) {
                const struct medium_file *f = t->files->pdata[i];
                struct medium_file *g = file_get(c, f->inode);
                image_copy(&g->floor, &f->floor);
                for (guint j = 0; j < f->queue->len; j++) {
                        struct pending p = g_array_index(f->queue, struct pending, j);
                        event_ref(p.e);
                        g_array_append_val(g->queue, p);
                }
        }
        for (guint i = 0; i < t->names->len; i++) {
                const struct medium_name *n = t->names->pdata[i];
                name_put(c, n->path, n->inode);
        }
        for (guint i = 0; i < t->name_queue->len; i++)
                g_ptr_array_add(c->name_queue, event_ref(t->name_queue->pdata[i]));
        return c;
}

/* --- deciding -------------------------------------------------------------------------------------------------------------------- */
struct chooser {
        enum simdisk_keep keep;
        uint64_t state; /* random state, or the bits left of a mask */
        unsigned odds;  /* of 8 */
};

static bool choose(struct chooser *c) {
        switch (c->keep) {
        case SIMDISK_KEPT:
                return true;
        case SIMDISK_MASK: {
                bool bit = c->state & 1;
                c->state >>= 1;
                return bit;
        }
        case SIMDISK_WHOLE:
        case SIMDISK_TORN:
                return sim_random(&c->state) % 8 < c->odds;
        default:
                return false;
        }
}

static void chooser_init(struct chooser *c, enum simdisk_keep keep, uint64_t seed) {
        *c = (struct chooser){.keep = keep, .state = seed, .odds = 8};
        if (keep == SIMDISK_MASK)
                return;
        uint64_t draw = sim_random(&c->state);
        if (keep == SIMDISK_ANY) {
                static const enum simdisk_keep drawn[8] = {SIMDISK_LOST, SIMDISK_KEPT, SIMDISK_WHOLE, SIMDISK_WHOLE,
                                                           SIMDISK_TORN, SIMDISK_TORN, SIMDISK_TORN,  SIMDISK_TORN};
                c->keep = drawn[draw % 8];
        }
        static const unsigned odds[4] = {1, 4, 4, 7}; /* nearly nothing, half, nearly all */
        c->odds = odds[(draw >> 8) % 4];
}

static void sector_apply(struct image *im, const struct event *e, uint64_t at, uint64_t n) {
        uint64_t end = e->offset + at + n;
        if (end > im->cap) { /* the size is decided apart: keep room, and the bytes, beyond it */
                uint64_t size = im->size;
                image_resize(im, end);
                im->size = size;
        }
        if (e->data)
                memcpy(im->data + e->offset + at, e->data + at, n);
        else
                memset(im->data + e->offset + at, 0, n);
}

/* Bytes beyond the size are kept while a queue is applied (a later, larger size may uncover them) and wiped at its end. */
static void image_trim(struct image *im) {
        if (im->cap > im->size)
                memset(im->data + im->size, 0, im->cap - im->size);
}

static void size_apply(struct image *im, uint64_t size) {
        if (size > im->cap)
                image_resize(im, size);
        im->size = size;
}

static void write_apply(const struct track *t, struct image *im, const struct event *e, struct chooser *c) {
        if (!c || c->keep == SIMDISK_WHOLE || c->keep == SIMDISK_KEPT || c->keep == SIMDISK_LOST) {
                if (c && !choose(c))
                        return;
                if (e->len)
                        sector_apply(im, e, 0, e->len);
                if (e->size_changed)
                        size_apply(im, e->size_after);
                if (!c && im->size < e->end)
                        size_apply(im, e->end);
                return;
        }
        for (uint64_t at = 0; at < e->len; at += t->sector)
                if (choose(c))
                        sector_apply(im, e, at, t->sector);
        if (e->size_changed && choose(c)) {
                /* A size that is on the medium brings the zeros with it that a cut made. */
                if (!e->data && e->len)
                        sector_apply(im, e, 0, e->len);
                size_apply(im, e->size_after);
        }
}

static void queue_drop(struct medium_file *f) {
        for (guint i = 0; i < f->queue->len; i++)
                event_unref(g_array_index(f->queue, struct pending, i).e);
        g_array_set_size(f->queue, 0);
}

/* Applies the queue to the floor: all of it (c NULL), or what the chooser says, the durable ones always. */
static void file_decide(const struct track *t, struct medium_file *f, struct chooser *c) {
        for (guint i = 0; i < f->queue->len; i++) {
                const struct pending *p = &g_array_index(f->queue, struct pending, i);
                write_apply(t, &f->floor, p->e, p->durable ? NULL : c);
        }
        image_trim(&f->floor);
        queue_drop(f);
}

static void file_dsync(const struct track *t, struct medium_file *f) {
        if (f->queue->len == 0)
                return;
        g_array_index(f->queue, struct pending, f->queue->len - 1).durable = true;
        guint n = 0;
        while (n < f->queue->len && g_array_index(f->queue, struct pending, n).durable) {
                struct event *e = g_array_index(f->queue, struct pending, n).e;
                write_apply(t, &f->floor, e, NULL);
                event_unref(e);
                n++;
        }
        image_trim(&f->floor);
        g_array_remove_range(f->queue, 0, n);
}

/* --- names ----------------------------------------------------------------------------------------------------------------------- */
static void name_apply(struct track *t, const struct event *e) {
        uint64_t inode, old;
        if (e->kind == EVENT_CREATE) {
                (void)name_take(t, e->path, &old); /* there when an unlink before it was lost */
                name_put(t, e->path, e->inode);
        } else if (name_take(t, e->path, &inode) && e->kind == EVENT_RENAME) {
                (void)name_take(t, e->path2, &old); /* replaced */
                name_put(t, e->path2, inode);
        }
}

static bool in_dir(const char *path, const char *dir) {
        size_t n = strlen(dir);
        return strncmp(path, dir, n) == 0 && !strchr(path + n, '/');
}

static void names_flush(struct track *t, const char *dir) {
        for (guint i = 0; i < t->name_queue->len;) {
                struct event *e = t->name_queue->pdata[i];
                if (dir && !in_dir(e->path, dir) && !(e->path2 && in_dir(e->path2, dir))) {
                        i++;
                        continue;
                }
                name_apply(t, e);
                g_ptr_array_remove_index(t->name_queue, i);
        }
}

static void names_decide(struct track *t, struct chooser *c) {
        bool prefix = c->keep != SIMDISK_MASK && sim_random(&c->state) % 2 == 0;
        for (guint i = 0; i < t->name_queue->len; i++) {
                if (choose(c))
                        name_apply(t, t->name_queue->pdata[i]);
                else if (prefix)
                        break;
        }
        g_ptr_array_set_size(t->name_queue, 0);
}

/* --- the stream of events -------------------------------------------------------------------------------------------------------- */
void track_feed(struct track *t, struct event *e) {
        struct pending p = {.e = e};
        struct chooser c;
        switch (e->kind) {
        case EVENT_WRITE:
                event_ref(e);
                g_array_append_val(file_get(t, e->inode)->queue, p);
                break;
        case EVENT_DSYNC:
                file_dsync(t, file_get(t, e->inode));
                break;
        case EVENT_SYNC:
                file_decide(t, file_get(t, e->inode), NULL);
                break;
        case EVENT_SYNC_LOST:
                chooser_init(&c, SIMDISK_ANY, e->seed);
                file_decide(t, file_get(t, e->inode), &c);
                break;
        case EVENT_SYNCFS:
                track_settle(t);
                break;
        case EVENT_CREATE:
        case EVENT_UNLINK:
        case EVENT_RENAME:
                g_ptr_array_add(t->name_queue, event_ref(e));
                break;
        case EVENT_SYNC_DIR:
                names_flush(t, e->path);
                break;
        }
}

void track_settle(struct track *t) {
        for (guint i = 0; i < t->files->len; i++)
                file_decide(t, t->files->pdata[i], NULL);
        names_flush(t, NULL);
}

unsigned track_pending(const struct track *t) {
        uint64_t n = t->name_queue->len;
        for (guint i = 0; i < t->files->len; i++) {
                const struct medium_file *f = t->files->pdata[i];
                for (guint j = 0; j < f->queue->len; j++) {
                        const struct pending *p = &g_array_index(f->queue, struct pending, j);
                        if (!p->durable)
                                n += p->e->len / t->sector + p->e->size_changed;
                }
        }
        return (unsigned)MIN_OF(n, UINT32_MAX);
}

void track_crash(struct track *t, enum simdisk_keep keep, uint64_t seed) {
        struct chooser c;
        chooser_init(&c, keep, seed);
        for (guint i = 0; i < t->files->len; i++)
                file_decide(t, t->files->pdata[i], &c);
        names_decide(t, &c);
}

size_t track_names(const struct track *t) {
        return t->names->len;
}

const char *track_name(const struct track *t, size_t i, uint64_t *ret_inode, const struct image **ret_image) {
        const struct medium_name *n = t->names->pdata[i];
        static const struct image empty;
        *ret_inode = n->inode;
        *ret_image = &empty;
        for (guint j = 0; j < t->files->len; j++) {
                const struct medium_file *f = t->files->pdata[j];
                if (f->inode == n->inode)
                        *ret_image = &f->floor;
        }
        return n->path;
}
