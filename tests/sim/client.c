/* client.c: see client.h. */
#include "client.h"

#include "history.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CLIENTS_PER_NODE 2u
#define REGISTERS        6u
#define NAMES            8u
#define ANSWER_WITHIN    (45 * SIM_S)

struct client;
struct call { /* one request under way */
        struct fs_reply reply;
        struct client *client;
        void (*next)(struct client *c, int error);
};
struct client {
        struct node *x;
        unsigned id;
        bool busy;
        uint64_t life, begun;
        struct call *call;
        /* what the last reply brought */
        uint64_t ino, fh;
        uint8_t data[64];
        size_t data_len;
        /* the operation under way */
        uint64_t value, must_see, target;
        bool synced;
        unsigned name;
        int error;
        GHashTable *seen; /* ino -> value last read */
};
struct clients {
        struct client *all;
        unsigned n;
        bool stopped;
        uint64_t next_value;
};

static const struct fs_caller caller = {.pid = 77, .umask = 022};
static void think(struct client *c);

/* --- replies */

static void answered(struct fs_reply *r, int error) {
        struct call *call = CONTAINER_OF(r, struct call, reply);
        struct client *c = call->client;
        void (*next)(struct client *, int) = call->next;

        c->call = NULL;
        free(call);
        if (c->x->dying)
                return;
        sim_mix(c->x->sim, (uint64_t)(unsigned)error << 8 | c->id);
        next(c, error);
}
static struct client *client_of(struct fs_reply *r) {
        return CONTAINER_OF(r, struct call, reply)->client;
}
static void on_entry(struct fs_reply *r, const struct fs_entry *e) {
        client_of(r)->ino = e->ino;
        answered(r, e->ino ? 0 : -ENOENT);
}
static void on_attr(struct fs_reply *r, const struct fs_entry *e) {
        (void)e;
        answered(r, 0);
}
static void on_open(struct fs_reply *r, const struct fs_open_out *o) {
        client_of(r)->fh = o->fh;
        answered(r, 0);
}
static void on_create(struct fs_reply *r, const struct fs_entry *e, const struct fs_open_out *o) {
        client_of(r)->ino = e->ino;
        client_of(r)->fh = o->fh;
        answered(r, 0);
}
static void on_write(struct fs_reply *r, size_t n) {
        (void)n;
        answered(r, 0);
}
static void on_data(struct fs_reply *r, const struct iovec *iov, int n_iov) {
        struct client *c = client_of(r);

        c->data_len = 0;
        for (int k = 0; k < n_iov; k++) {
                size_t n = MIN_OF(iov[k].iov_len, sizeof c->data - c->data_len);

                if (n)
                        memcpy(c->data + c->data_len, iov[k].iov_base, n);
                c->data_len += n;
        }
        answered(r, 0);
}
static const struct fs_reply_ops reply_ops = {
        .err = answered, .entry = on_entry, .attr = on_attr, .open = on_open, .create = on_create, .write = on_write, .data = on_data};

static struct fs_reply *call_new(struct client *c, void (*next)(struct client *c, int error)) {
        struct call *call = NEW(struct call);

        call->reply = (struct fs_reply){.ops = &reply_ops, .unique = sim_draw(c->x->sim)};
        call->client = c;
        call->next = next;
        c->call = call;
        return &call->reply;
}

/* --- the end of every operation: the file is closed, errors make the client patient */

static void released(struct client *c, int error) {
        (void)error;
        c->busy = false;
        think(c);
}
static void finish(struct client *c, int error) {
        uint64_t fh = c->fh;

        c->error = error;
        c->fh = 0;
        if (fh)
                fs_release(c->x->fs, c->ino, fh, call_new(c, released));
        else
                released(c, 0);
}

/* --- writing a register: lookup, open, write, close */

static void write_closed(struct client *c, int error) {
        sim_trace(c->x->sim, "node %u wrote %" G_GUINT64_FORMAT " = %" G_GUINT64_FORMAT ": %d", c->x->i + 1, c->ino, c->value, error);
        if (error == 0)
                history_wrote(c->x->sim, c->ino, c->value);
        finish(c, error);
}
static void write_written(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_flush(c->x->fs, &caller, c->ino, c->fh, 0, call_new(c, write_closed));
}
static void write_opened(struct client *c, int error) {
        uint8_t text[64] = "register";

        if (error < 0) {
                finish(c, error);
                return;
        }
        c->value = ++c->x->sim->clients->next_value;
        memcpy(text + 8, &c->value, 8);
        (void)snprintf((char *)text + 16, 48, "node %u client %u", c->x->i + 1, c->id);
        fs_write(c->x->fs, &caller, c->ino, c->fh, 0, text, sizeof text, 0, false, false, call_new(c, write_written));
}
static void write_found(struct client *c, int error) {
        if (error == -ENOENT) {
                char name[16];

                (void)snprintf(name, sizeof name, "r%u", c->name);
                fs_create(c->x->fs, &caller, INO_ROOT, name, S_IFREG | 0644, O_WRONLY | O_CREAT, call_new(c, write_opened));
                return;
        }
        if (error < 0)
                finish(c, error);
        else
                fs_open(c->x->fs, &caller, c->ino, O_WRONLY, false, call_new(c, write_opened));
}

/* --- reading one, from the kernel's cache where it has it */

static void judge_read(struct client *c, uint64_t value) {
        uint64_t *last = g_hash_table_lookup(c->seen, &c->ino);
        bool synced = c->synced && history_synced(c->x);

        sim_trace(c->x->sim, "node %u reads %" G_GUINT64_FORMAT " = %" G_GUINT64_FORMAT " (%s)", c->x->i + 1, c->ino, value,
                  c->fh ? "asked" : "cached");
        history_read(c->x, c->ino, value, synced, c->must_see, last ? *last : 0);
        if (value && synced)
                g_hash_table_replace(c->seen, g_memdup2(&c->ino, 8), g_memdup2(&value, 8));
}
static void read_done(struct client *c, int error) {
        uint64_t value = 0;

        if (error == 0) {
                if (c->data_len >= 16 && memcmp(c->data, "register", 8) == 0)
                        memcpy(&value, c->data + 8, 8);
                cache_put(c->x, c->ino, value, c->data_len);
                judge_read(c, value);
        }
        finish(c, error);
}
static void read_opened(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_read(c->x->fs, c->ino, c->fh, 0, sizeof c->data, call_new(c, read_done));
}
static void read_found(struct client *c, int error) {
        struct cached cached;

        if (error < 0) {
                finish(c, error);
                return;
        }
        c->must_see = history_must_see(c->x->sim, c->ino);
        c->synced = history_synced(c->x);
        if (cache_get(c->x, c->ino, &cached)) {
                judge_read(c, cached.value);
                finish(c, 0);
                return;
        }
        fs_open(c->x->fs, &caller, c->ino, O_RDONLY, false, call_new(c, read_opened));
}

/* --- a file made elsewhere and renamed over another */

static void renamed(struct client *c, int error) {
        finish(c, error);
}
static void rename_closed(struct client *c, int error) {
        char from[24], to[16];

        if (error < 0) {
                finish(c, error);
                return;
        }
        (void)snprintf(from, sizeof from, "t%u-%u", c->x->i, c->id);
        (void)snprintf(to, sizeof to, "x%u", c->name);
        fs_rename(c->x->fs, &caller, INO_ROOT, from, INO_ROOT, to, 0, call_new(c, renamed));
}
static void rename_written(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_flush(c->x->fs, &caller, c->ino, c->fh, 0, call_new(c, rename_closed));
}
static void rename_created(struct client *c, int error) {
        struct sim *s = c->x->sim;
        size_t n = sim_chance(s, 5) ? sim_between(s, 60 * KIB, 300 * KIB) : sim_between(s, 1, 6000);
        cleanup_free uint8_t *text = NULL;

        if (error < 0) {
                finish(c, error);
                return;
        }
        text = xmalloc(n);
        sim_fill(s, text, n);
        fs_write(c->x->fs, &caller, c->ino, c->fh, 0, text, n, 0, false, false, call_new(c, rename_written));
}

/* --- small ones */

static void plain(struct client *c, int error) {
        finish(c, error);
}
static void appended(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_flush(c->x->fs, &caller, c->ino, c->fh, 0, call_new(c, plain));
}
static void append_opened(struct client *c, int error) {
        char line[40];
        int n = snprintf(line, sizeof line, "%" G_GUINT64_FORMAT " by %u\n", ++c->x->sim->clients->next_value, c->x->i);

        if (error < 0)
                finish(c, error);
        else
                fs_write(c->x->fs, &caller, c->ino, c->fh, 0, line, (size_t)n, O_APPEND, false, false, call_new(c, appended));
}
static void sync_opened(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_fsync(c->x->fs, c->ino, c->fh, false, call_new(c, plain));
}
static void sync_found(struct client *c, int error) {
        if (error < 0)
                finish(c, error);
        else
                fs_open(c->x->fs, &caller, c->ino, O_WRONLY, false, call_new(c, sync_opened));
}
static void chmod_found(struct client *c, int error) {
        struct fs_set set = {.set = FS_SET_MODE, .mode = (uint32_t)sim_below(c->x->sim, 0777)};

        if (error < 0)
                finish(c, error);
        else
                fs_setattr(c->x->fs, &caller, c->ino, &set, 0, call_new(c, plain));
}

static void begin_small(struct client *c, unsigned what, const char *name, const char *dir) {
        struct fs *fs = c->x->fs;

        switch (what) {
        case 0:
                fs_create(fs, &caller, INO_ROOT, name, S_IFREG | 0600, O_WRONLY | O_CREAT | O_EXCL, call_new(c, plain));
                break;
        case 1:
                fs_unlink(fs, &caller, INO_ROOT, name, call_new(c, plain));
                break;
        case 2:
                fs_mkdir(fs, &caller, INO_ROOT, dir, 0755, call_new(c, plain));
                break;
        case 3:
                fs_rmdir(fs, &caller, INO_ROOT, dir, call_new(c, plain));
                break;
        case 4:
                fs_create(fs, &caller, INO_ROOT, "log", S_IFREG | 0644, O_WRONLY | O_CREAT | O_APPEND, call_new(c, append_opened));
                break;
        case 5:
                fs_lookup(fs, &caller, INO_ROOT, "log", call_new(c, sync_found));
                break;
        default:
                fs_lookup(fs, &caller, INO_ROOT, name, call_new(c, chmod_found));
                break;
        }
}

static void begin(struct client *c) {
        struct sim *s = c->x->sim;
        unsigned dice = (unsigned)sim_below(s, 100);
        char name[24], dir[16];

        c->busy = true;
        c->begun = s->now;
        c->life = c->x->life;
        c->fh = c->ino = 0;
        s->operations++;
        if (dice < 55) { /* a register: one writer of each per node, so that no two writes are gathered into one */
                bool write = dice < 28;
                c->name = (unsigned)sim_below(s, REGISTERS / CLIENTS_PER_NODE) * CLIENTS_PER_NODE +
                          (write ? c->id % CLIENTS_PER_NODE : (unsigned)sim_below(s, 2));
                (void)snprintf(name, sizeof name, "r%u", c->name);
                fs_lookup(c->x->fs, &caller, INO_ROOT, name, call_new(c, write ? write_found : read_found));
        } else if (dice < 65) {
                c->name = (unsigned)sim_below(s, NAMES);
                (void)snprintf(name, sizeof name, "t%u-%u", c->x->i, c->id);
                fs_create(c->x->fs, &caller, INO_ROOT, name, S_IFREG | 0640, O_WRONLY | O_CREAT, call_new(c, rename_created));
        } else {
                c->name = (unsigned)sim_below(s, NAMES);
                (void)snprintf(name, sizeof name, "x%u", c->name);
                (void)snprintf(dir, sizeof dir, "d%u", c->name);
                begin_small(c, (unsigned)sim_below(s, 7), name, dir);
        }
}

/* --- many at once: as from a shell script with an `&` on each line */

struct burst {
        struct fs_reply reply;
        struct node *x;
};
static void burst_end(struct fs_reply *r, int error) {
        struct burst *b = CONTAINER_OF(r, struct burst, reply);

        if (!b->x->dying)
                sim_mix(b->x->sim, (uint64_t)(unsigned)error);
        free(b);
}
static void burst_entry(struct fs_reply *r, const struct fs_entry *e) {
        (void)e;
        burst_end(r, 0);
}
static void burst_written(struct fs_reply *r, size_t n) {
        (void)n;
        burst_end(r, 0);
}
static void burst_created(struct fs_reply *r, const struct fs_entry *e, const struct fs_open_out *o) {
        struct burst *b = CONTAINER_OF(r, struct burst, reply);
        struct sim *s = b->x->sim;
        size_t n = 2 * MIB; /* more pieces than are under way at once */
        cleanup_free uint8_t *text = xmalloc(n);

        if (b->x->dying) {
                free(b);
                return;
        }
        sim_fill(s, text, n);
        fs_write(b->x->fs, &caller, e->ino, o->fh, 0, text, n, 0, false, false, r);
}
static const struct fs_reply_ops burst_ops = {.create = burst_created, .write = burst_written, .err = burst_end, .entry = burst_entry};

void clients_burst(struct node *x, unsigned n) {
        for (unsigned k = 0; k < n && x->up && x->fs; k++) {
                struct burst *b = NEW(struct burst);
                char name[32];

                b->x = x;
                b->reply = (struct fs_reply){.ops = &burst_ops, .unique = sim_draw(x->sim)};
                (void)snprintf(name, sizeof name, "b%u-%" G_GUINT64_FORMAT, x->i, ++x->sim->clients->next_value);
                x->sim->operations++;
                fs_mkdir(x->fs, &caller, INO_ROOT, name, 0755, &b->reply);
        }
}

/* One large file, that its daemon sends by itself after a second. */
void clients_large(struct node *x) {
        struct burst *b = NEW(struct burst);
        char name[32];

        b->x = x;
        b->reply = (struct fs_reply){.ops = &burst_ops, .unique = sim_draw(x->sim)};
        (void)snprintf(name, sizeof name, "large%u-%" G_GUINT64_FORMAT, x->i, ++x->sim->clients->next_value);
        x->sim->operations++;
        fs_create(x->fs, &caller, INO_ROOT, name, S_IFREG | 0644, O_WRONLY | O_CREAT, &b->reply);
}

/* --- pace */

static void wake(struct sim *s, void *object, uint64_t value) {
        struct client *c = object;

        (void)value;
        if (c->busy || s->clients->stopped)
                return;
        if (c->x->up && !c->x->paused && c->x->repl)
                begin(c);
        else
                think(c);
}

static void think(struct client *c) {
        struct sim *s = c->x->sim;
        uint64_t us = c->error < 0 && c->error != -ENOENT && c->error != -EEXIST
                              ? sim_between(s, 50 * SIM_MS, 400 * SIM_MS)
                              : sim_between(s, 100, sim_chance(s, 10) ? 2 * SIM_S : 200 * SIM_MS);

        sim_after(s, us, wake, c, 0);
}

void clients_node_died(struct node *x) {
        struct clients *all = x->sim->clients;

        for (unsigned k = 0; all && k < all->n; k++) {
                struct client *c = &all->all[k];

                if (c->x != x || !c->busy)
                        continue;
                free(steal_pointer(&c->call));
                c->busy = false;
                c->error = -ENOTCONN;
                g_hash_table_remove_all(c->seen); /* a new mount */
                think(c);
        }
}

static void watch(struct sim *s, void *object, uint64_t value) {
        struct clients *all = object;

        (void)value;
        for (unsigned k = 0; k < all->n; k++) {
                const struct client *c = &all->all[k];
                const struct node *x = c->x;

                if (c->busy && c->life == x->life && !x->paused && x->stuck_until == 0 && s->now - c->begun > ANSWER_WITHIN)
                        sim_violation(s, VERDICT_LIVENESS, "bounded",
                                      "a client of node %u has waited %" G_GUINT64_FORMAT " s for an answer", x->i + 1,
                                      (s->now - c->begun) / SIM_S);
        }
        sim_after(s, SIM_S, watch, all, 0);
}

struct clients *clients_new(struct sim *s) {
        struct clients *all = NEW(struct clients);

        all->n = s->n * CLIENTS_PER_NODE;
        all->all = xcalloc(all->n, sizeof *all->all);
        s->clients = all;
        for (unsigned k = 0; k < all->n; k++) {
                struct client *c = &all->all[k];

                c->x = &s->nodes[k / CLIENTS_PER_NODE];
                c->id = k % CLIENTS_PER_NODE;
                c->seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
                think(c);
        }
        sim_after(s, SIM_S, watch, all, 0);
        return all;
}

void clients_stop(struct sim *s) {
        s->clients->stopped = true;
}

void clients_free(struct sim *s) {
        for (unsigned k = 0; s->clients && k < s->clients->n; k++) {
                free(s->clients->all[k].call);
                g_hash_table_destroy(s->clients->all[k].seen);
        }
        if (s->clients)
                free(s->clients->all);
        free(s->clients);
        s->clients = NULL;
}
