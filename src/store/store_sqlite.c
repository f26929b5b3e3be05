/* store_sqlite.c: the store of store.h: log, content file and home put together; see store_private.h for how. Opening. */
#include "store_private.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

static const char *store_failed(const struct store *base) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        const char *reason = s->failed[0] ? s->failed : NULL; /* once set, it stays */
        (void)pthread_mutex_unlock(&s->lock);
        return reason;
}
static bool store_wants_barrier(const struct store *base) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        bool wants = !s->read_only && s->trouble == 0 && !s->failed[0] && s->since_barrier >= s->barrier_bytes;
        (void)pthread_mutex_unlock(&s->lock);
        return wants;
}
static void store_set_barrier_bytes(struct store *base, uint64_t bytes) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        s->barrier_bytes = bytes ? bytes : BARRIER_BYTES_DEFAULT;
        (void)pthread_mutex_unlock(&s->lock);
}
static void store_close_sqlite(struct store *base) {
        sqlite_store_free(STORE_OF(base));
}

static const struct store_ops sqlite_ops = {
        .append = store_append_record,
        .write_out = store_write_out,
        .barrier = store_barrier,
        .wants_barrier = store_wants_barrier,
        .wants_checkpoint = store_wants_checkpoint,
        .must_wait = store_must_wait,
        .checkpoint_prepare = store_prepare,
        .checkpoint_run = store_checkpoint_run,
        .set_promised = store_set_promised,
        .set_adopted = store_set_adopted,
        .set_cluster_id = store_set_cluster_id,
        .replace = store_replace,
        .read_log = store_read_log,
        .reserve = store_reserve,
        .release = store_release,
        .set_level = store_set_level,
        .set_barrier_bytes = store_set_barrier_bytes,
        .fail = store_failed,
        .close = store_close_sqlite,
};

static char *path_with(const char *path, const char *suffix) {
        size_t n = strlen(path), m = strlen(suffix);
        char *p = xmalloc(n + m + 1);
        memcpy(p, path, n);
        memcpy(p + n, suffix, m + 1);
        return p;
}

struct sqlite_store *sqlite_store_new(const struct store_config *config) {
        struct sqlite_store *s = NEW(struct sqlite_store);
        s->base.ops = &sqlite_ops;
        s->path = xstrdup(config->path);
        s->log_path = path_with(config->path, "-oplog");
        s->content_path = path_with(config->path, "-content");
        s->ballast_path = path_with(config->path, "-ballast");
        s->disk = config->disk ? config->disk : disk_system();
        s->metrics = config->metrics ? config->metrics : &s->own_metrics;
        (void)snprintf(s->boot_id, sizeof(s->boot_id), "%s",
                       config->boot_id ? config->boot_id : ""); /* longer ones are cut alike each time */
        s->log_size = config->log_size ? config->log_size : OPLOG_SIZE_DEFAULT;
        s->barrier_bytes = config->barrier_bytes ? config->barrier_bytes : BARRIER_BYTES_DEFAULT;
        s->level = config->level;
        s->direct = config->direct;
        s->read_only = config->read_only;
        (void)pthread_mutex_init(&s->home_lock, NULL);
        (void)pthread_rwlock_init(&s->log_use, NULL);
        (void)pthread_mutex_init(&s->lock, NULL);
        s->files = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, file_free);
        return s;
}

void sqlite_store_free(struct sqlite_store *s) {
        if (!s)
                return;
        capture_done(&s->capture);
        oplog_close(s->log);
        content_close(s->content);
        home_close(s->home);
        dirty_done(&s->dirty);
        g_hash_table_destroy(s->files);
        index_clear(s, 0);
        index_clear(s, 1);
        (void)pthread_mutex_destroy(&s->lock);
        (void)pthread_rwlock_destroy(&s->log_use);
        (void)pthread_mutex_destroy(&s->home_lock);
        free(s->path);
        free(s->log_path);
        free(s->content_path);
        free(s->ballast_path);
        free(s);
}

/* --- opening --- */

struct opening {
        struct sqlite_store *s;
        const struct store_config *config;
        struct store_loaded *out;
        uint64_t faults;
        char first_fault[200];
        void (*told)(void *ctx, const char *line); /* the offline check hears each fault; else they are logged */
        void *told_ctx;
};

static void say(struct opening *o, const char *path, const char *line) {
        char text[512];
        if (!o->told) {
                log_warning("store: %s: %s", path, line);
                return;
        }
        (void)snprintf(text, sizeof(text), "%s: %s", path, line); /* cut if need be */
        o->told(o->told_ctx, text);
}

static errint_t refuse(struct opening *o, errint_t r, const char *path, const char *why) {
        (void)snprintf(o->out->reason, sizeof(o->out->reason), "%s: %s", path, why); /* cut if need be */
        return r;
}
/* Damage: it is opened for rescue. */
static void damaged(struct opening *o, const char *path, const char *why) {
        if (o->told && o->faults == 0)
                say(o, path, why); /* faults of rows are told one by one */
        if (!o->out->read_only)
                (void)refuse(o, 0, path, why);
        o->out->read_only = o->s->read_only = true;
}

static void on_fault(void *ctx, const char *line) {
        struct opening *o = ctx;
        if (o->faults++ == 0)
                (void)snprintf(o->first_fault, sizeof(o->first_fault), "%s", line); /* cut if need be */
        say(o, o->s->path, line);
}

static void on_piece(void *ctx, uint64_t ino, const struct piece *p) {
        struct opening *o = ctx;
        struct sqlite_store *s = o->s;
        if (p->n_extents > 0 && s->content && content_mark_used(s->content, p->extents, p->n_extents) < 0) {
                char line[96];
                (void)snprintf(line, sizeof(line), "inode %ju: its extents overlap others or lie behind the end of the content file",
                               (uintmax_t)ino);
                on_fault(o, line);
                return;
        }
        struct file_piece q = {.seq = p->seq,
                               .base = p->base,
                               .in_home = true,
                               .form = (uint8_t)p->form,
                               .raw_len = p->raw_len,
                               .stored_len = p->stored_len,
                               .crc = p->crc,
                               .edit_len = (uint32_t)p->edit_len,
                               .n_extents = (uint32_t)p->n_extents};
        if (p->edit_len > 0)
                q.edit = memcpy(xmalloc(p->edit_len), p->edit, p->edit_len);
        if (p->n_extents > 0)
                q.extents = memcpy(xcalloc(p->n_extents, sizeof(*p->extents)), p->extents, p->n_extents * sizeof(*p->extents));
        file_push(file_get(s, ino), &q);
}

static errint_t open_home(struct opening *o, bool *ret_fresh) {
        struct sqlite_store *s = o->s;
        struct store_config config = *o->config;
        struct tree *empty = tree_new();
        struct tree_usage usage;
        tree_usage(empty, &usage);
        s->meta = (struct home_meta){.digest = tree_digest(empty), .next_ino = usage.next_ino, .clean = true, .log_size = s->log_size};
        tree_free(empty);
        for (size_t i = 0; i < sizeof(s->meta.database_id); i += 8) {
                uint64_t v = store_random();
                memcpy(s->meta.database_id + i, &v, 8);
        }
        memcpy(s->meta.boot_id, s->boot_id, sizeof(s->boot_id));
        s->meta.salt[0] = store_random();
        s->meta.salt[1] = store_random();
        config.disk = s->disk;
        config.metrics = s->metrics;
        errint_t r = home_open(&config, &s->home, &s->meta, ret_fresh, o->out->reason, sizeof(o->out->reason));
        if (r < 0)
                return r;
        if (home_damage(s->home)) {
                o->out->read_only = s->read_only = true; /* the reason is there already */
                on_fault(o, home_damage(s->home));
        }
        s->log_size = s->meta.log_size ? s->meta.log_size : s->log_size;
        return 0;
}

/* The file without its header, or without a home that says which one is its own: contents that fit their checksums are served. */
static void open_content_for_rescue(struct sqlite_store *s) {
        (void)content_open(s->disk, s->content_path, NULL, false, true, s->metrics, &s->content); /* without it, they are damaged */
}

static errint_t open_content(struct opening *o, bool fresh) {
        struct sqlite_store *s = o->s;
        bool named = false;
        if (home_damage(s->home)) {
                open_content_for_rescue(s);
                return 0;
        }
        errint_t r = content_open(s->disk, s->content_path, s->meta.database_id, false, s->read_only, s->metrics, &s->content);
        if (r == -ENOENT) {
                errint_t e = fresh ? 0 : home_has_extents(s->home, &named);
                if (e < 0 || named)
                        damaged(o, s->content_path, "is missing, and holds contents of this database");
                if (s->read_only)
                        return 0;
        }
        if (r == -ENOENT || (r == -EBADMSG && s->meta.clean && !s->read_only)) /* an interrupted creation is taken over */
                r = content_open(s->disk, s->content_path, s->meta.database_id, true, false, s->metrics, &s->content);
        if (r == -EEXIST || r == -EBADMSG) {
                damaged(o, s->content_path, "its header is damaged");
                open_content_for_rescue(s);
                return 0;
        }
        if (r == -EXDEV)
                return refuse(o, -EBADMSG, s->content_path, "is the content file of another database; left as it is");
        return r < 0 ? refuse(o, r, s->content_path, strerror(-r)) : 0;
}

/* Somebody cut it, or made it longer: what can be read of it is replayed, for rescue. */
static void log_size_fits(struct opening *o, bool *ret_any_size) {
        struct sqlite_store *s = o->s;
        struct disk_file *f = NULL;
        uint64_t size = 0;
        errint_t r = disk_open(s->disk, s->log_path, DISK_READ_ONLY, &f);
        if (r == 0)
                r = f->ops->size(f, &size);
        disk_close(f);
        *ret_any_size = r == 0 && size != s->log_size + OPLOG_PAGE && !(s->meta.clean && size < s->log_size + OPLOG_PAGE);
        if (*ret_any_size)
                damaged(o, s->log_path,
                        size > s->log_size + OPLOG_PAGE ? "is longer than its database knows"
                                                        : "is shorter than its database knows: operations may be lost");
}

static errint_t open_log(struct opening *o) {
        struct sqlite_store *s = o->s;
        struct oplog_config config = {
                .path = s->log_path,
                .level = s->level,
                .method = o->config->method,
                .direct = s->direct,
                .padding = o->config->padding,
                .size = s->log_size,
                .disk = s->disk,
                .metrics = s->metrics,
        };
        memcpy(config.id, s->meta.database_id, sizeof(config.id));
        if (home_damage(s->home))
                return 0;
        log_size_fits(o, &config.any_size);
        config.read_only = s->read_only;
        errint_t r = oplog_open(&config, false, &s->log);
        if (r == -ENOENT && !s->meta.clean)
                damaged(o, s->log_path, "is missing: what was done since the last checkpoint is lost");
        if ((r == -ENOENT || r == -EBADMSG) && s->meta.clean && !s->read_only)
                r = oplog_open(&config, true, &s->log); /* empty by what the home says; an interrupted creation is taken over */
        if (r == -ENOENT)
                return 0;
        if (r == -EXDEV)
                return refuse(o, -EBADMSG, s->log_path, "is the log of another database; left as it is");
        if (r == -EBADMSG || r == -EEXIST) {
                damaged(o, s->log_path, "its header is damaged");
                return 0;
        }
        return r < 0 ? refuse(o, r, s->log_path, r == -EINVAL ? "sync method, padding and log size do not go together" : strerror(-r)) : 0;
}

static errint_t load(struct opening *o, struct state *state, uint64_t **ret_bad, size_t *ret_n_bad) {
        struct sqlite_store *s = o->s;
        struct home_load_ops ops = {.fault = on_fault, .piece = on_piece, .ctx = o};
        struct home_loaded loaded = {0};
        struct state fresh;
        errint_t r = home_load(s->home, &s->meta, s->content, &ops, tree_hash_seed_of(state->tree), &fresh, &loaded);
        if (r < 0)
                return refuse(o, r, s->path, strerror(-r));
        state_done(state);
        *state = fresh;
        *ret_bad = loaded.bad;
        *ret_n_bad = loaded.n_bad;
        if (o->faults > 0) {
                char why[240];
                (void)snprintf(why, sizeof(why), "is damaged: %s", o->first_fault); /* fits */
                damaged(o, s->path, why);
        }
        return 0;
}

static errint_t replay(struct opening *o, struct state *state, struct replayed *x) {
        struct sqlite_store *s = o->s;
        s->promised = s->meta.promised;
        s->adopted = s->meta.adopted;
        s->pos = state->pos;
        s->salt[0] = s->meta.salt[0];
        s->salt[1] = s->meta.salt[1];
        if (!s->log || s->meta.clean)
                return 0;
        if (o->faults > o->out->n_damaged) {
                say(o, s->log_path, "is not applied: on a tree that lacks more than contents, its operations could mean other files");
                return 0;
        }
        errint_t r = store_replay(s, state, x);
        if (r < 0)
                return refuse(o, r, s->log_path, strerror(-r));
        if (x->reason[0])
                say(o, s->log_path, x->reason);
        return 0;
}

/* The first thing that a running store writes: that it is running, in which boot, and a new salt for each half without records, so that
 * nothing that an earlier life left there can ever fit. */
static errint_t announce(struct opening *o, const struct replayed *x) {
        struct sqlite_store *s = o->s;
        struct home_meta meta = s->meta;
        meta.clean = false;
        memcpy(meta.boot_id, s->boot_id, sizeof(meta.boot_id));
        for (unsigned h = 0; h < 2; h++)
                if (!x->used[h])
                        meta.salt[h] = store_random();
        errint_t r = 0;
        do {
                r = home_begin(s->home);
                if (r == 0)
                        r = home_commit(s->home, &meta);
        } while (disk_is_full(r) && ballast_give_up(s));
        if (r < 0)
                return refuse(o, r, s->path, strerror(-r));
        s->meta = meta;
        s->salt[0] = meta.salt[0];
        s->salt[1] = meta.salt[1];
        return 0;
}

/* Both halves hold records, or something was cut off: everything comes home first, and the log begins anew. */
static errint_t come_home(struct opening *o, const struct state *state) {
        struct sqlite_store *s = o->s;
        s->half = s->meta.half;
        s->dirty.other = true;
        errint_t r = store_prepare(&s->base, state, CHECKPOINT_RESCUE);
        if (r == 0)
                r = store_checkpoint_run(&s->base);
        return r < 0 ? refuse(o, r, s->path, strerror(-r)) : 0;
}

static errint_t start(struct opening *o, const struct state *state, const struct replayed *x) {
        struct sqlite_store *s = o->s;
        unsigned half = s->meta.half;
        s->record_max = MIN_OF(OPLOG_RECORD_MAX, oplog_half_size(s->log) / 8);
        s->content_ok_seq = s->opened_seq = s->pos.seq;
        ballast_find(s);
        /* What a killed process left in the page cache was flushed when log and content file were opened; what may have been lost in an
         * earlier flush is written again: contents by replay, the log below, or all of it comes home. */
        errint_t r = x->cut || x->used[1 - half] ? come_home(o, state) : announce(o, x);
        if (r < 0)
                return r;
        if (!(x->cut || x->used[1 - half])) {
                r = store_flush_content(s);
                if (r < 0)
                        return refuse(o, r, s->content_path, strerror(-r));
                r = x->used[half] ? oplog_write_again(s->log, half, x->end[half]) : 0;
                if (r < 0)
                        return refuse(o, r, s->log_path, strerror(-r));
                s->half = half;
                s->other_free = true;
                oplog_start(s->log, half, s->salt[half], x->used[half] ? x->end[half] : 0, x->chain[half]);
        }
        r = s->disk->ops->sync_dir(s->disk, s->path); /* the names of all files */
        if (r < 0)
                return refuse(o, r, s->path, strerror(-r));
        (void)ballast_make(s); /* if there is no room for it, reservations say so */
        return 0;
}

static errint_t open_all(struct opening *o, struct state *state) {
        struct sqlite_store *s = o->s;
        struct store_loaded *out = o->out;
        struct replayed x = {0};
        errint_t r = open_home(o, &out->fresh);
        if (r == 0)
                r = open_content(o, out->fresh);
        if (r == 0)
                r = open_log(o);
        if (r == 0)
                r = load(o, state, &out->damaged, &out->n_damaged);
        if (r == 0)
                r = replay(o, state, &x);
        if (r < 0)
                return r;
        out->unclean = !s->meta.clean;
        out->boot_changed = out->unclean && strcmp(s->meta.boot_id, s->boot_id) != 0;
        out->replayed = x.operations;
        memcpy(out->cluster_id, s->meta.cluster_id, CLUSTER_ID_SIZE);
        out->schema = HOME_SCHEMA;
        out->promised = s->promised;
        out->adopted = s->adopted;
        return s->read_only ? 0 : start(o, state, &x);
}

errint_t store_inspect(const struct store_config *config, struct state *state, void (*fault)(void *ctx, const char *line), void *ctx,
                       struct store_check_result *out, char *ret_reason, size_t reason_size) {
        CLEANUP(sqlite_store_freep) struct sqlite_store *s = sqlite_store_new(config);
        struct store_loaded loaded = {0};
        struct opening o = {.s = s, .config = config, .out = &loaded, .told = fault, .told_ctx = ctx};
        uint64_t faults = 0;
        errint_t r = open_all(&o, state);
        if (r == 0)
                r = home_integrity(s->home, fault, ctx, &faults);
        if (r < 0)
                (void)snprintf(ret_reason, reason_size, "%s", loaded.reason[0] ? loaded.reason : strerror(-r)); /* cut if need be */
        out->log_records = loaded.replayed;
        free(loaded.damaged);
        return r;
}

errint_t store_open_sqlite(const struct store_config *config, struct state *state, struct store_loaded *ret_loaded, struct store **ret) {
        CLEANUP(sqlite_store_freep) struct sqlite_store *s = sqlite_store_new(config);
        struct opening o = {.s = s, .config = config, .out = ret_loaded};
        *ret_loaded = (struct store_loaded){0};
        if (s->log_size < OPLOG_SIZE_MIN || s->log_size > OPLOG_SIZE_MAX || s->log_size % (2 * OPLOG_PAGE) != 0)
                return refuse(&o, -EINVAL, s->log_path, "its size must be 64 KiB to 2 GiB, and a multiple of 8 KiB");
        errint_t r = open_all(&o, state);
        if (r < 0) {
                if (!ret_loaded->reason[0])
                        (void)refuse(&o, r, s->path, strerror(-r));
                free(ret_loaded->damaged);
                ret_loaded->damaged = NULL;
                ret_loaded->n_damaged = 0;
                return r;
        }
        ret_loaded->read_only = s->read_only;
        *ret = &steal_pointer(&s)->base;
        return 0;
}
