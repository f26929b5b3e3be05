/* conflicts.c: conflict records (core/conflict.h) kept as files, PATH-conflicts/EPOCH-SEQUENCE-HASH, mode 0600, for `coterie conflicts`,
 * which reads and removes them itself. They are put together under the state's lock, from the history that is left, and written on the
 * store's thread before the new history overwrites the log that could tell of them again. The name follows from the operation: kept twice,
 * it is one file. */
#include "daemon_internal.h"

#include "base/log.h"
#include "core/conflict.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_MAX 4096u       /* on the disk, and as many more in memory */
#define BYTES_MAX   (256 * MIB) /* likewise */
#define NAME_SIZE   64u
#define WRITING     "writing"

struct record {
        struct record *next;
        char name[NAME_SIZE];
        size_t len;
        uint8_t *data;
};
struct conflicts {
        char *directory;
        pthread_mutex_t lock;
        struct record *first, **tail; /* protected by lock: not written yet */
        size_t waiting;               /* protected by lock, as what follows */
        uint64_t waiting_bytes;
        size_t given_up; /* since the last writing: for these there is no room in memory either */
};

struct conflicts *conflicts_new(const char *db) {
        struct conflicts *c = NEW(struct conflicts);

        c->directory = xmalloc(strlen(db) + sizeof(CONFLICTS_SUFFIX));
        (void)sprintf(c->directory, "%s" CONFLICTS_SUFFIX, db);
        c->tail = &c->first;
        (void)pthread_mutex_init(&c->lock, NULL);
        return c;
}

static void record_free(struct record *r) {
        free(r->data);
        free(r);
}

void conflicts_free(struct conflicts *c) {
        if (!c)
                return;
        while (c->first) {
                struct record *r = c->first;
                c->first = r->next;
                record_free(r);
        }
        (void)pthread_mutex_destroy(&c->lock);
        free(c->directory);
        free(c);
}

/* --- putting together */
static bool changes_something(enum op_kind kind) {
        return kind != OP_NOTHING && kind != OP_RESERVE_INO;
}

void conflicts_add(struct conflicts *c, const struct engine_conflict *lost) {
        CLEANUP(enc_done) struct enc e;
        cleanup_free char *path = NULL, *new_path = NULL;
        void *scratch = NULL;
        struct op op;
        struct conflict x = {.pos = lost->pos,
                             .head = lost->head,
                             .head_len = lost->head_len,
                             .payload = lost->payload.data,
                             .payload_len = lost->payload.len};

        if (op_decode(lost->head, lost->head_len, lost->payload.data, lost->payload.len, &op, &scratch) < 0)
                return; /* it was decoded when it was applied */
        bool wanted = changes_something(op.kind);
        if (wanted && lost->old)
                conflict_paths(lost->old->tree, &op, &path, &new_path);
        free(scratch);
        if (!wanted)
                return;
        x.path = path ? path : "";
        x.path_len = strlen(x.path);
        x.new_path = new_path ? new_path : "";
        x.new_path_len = strlen(x.new_path);
        env_system()->realtime(NULL, &x.when.sec, &x.when.nsec);
        enc_init(&e, OP_HEAD_MAX + OP_PAYLOAD_MAX + 2 * CONFLICT_PATH_MAX + 256);
        if (conflict_encode(&x, &e) < 0)
                return; /* cannot be: it fitted in an operation */
        struct record *r = NEW(struct record);
        struct hash128 hash = hash128_chain(hash128_of(x.head, x.head_len), x.payload, x.payload_len);
        (void)snprintf(r->name, sizeof(r->name), "%" PRIu64 "-%" PRIu64 "-%08" PRIx32, x.pos.epoch, x.pos.seq, (uint32_t)hash.lo);
        r->data = steal_pointer(&e.data);
        r->len = e.len;
        e.len = e.cap = 0;
        (void)pthread_mutex_lock(&c->lock);
        bool room = c->waiting < RECORDS_MAX && c->waiting_bytes + r->len <= BYTES_MAX;
        if (room) {
                *c->tail = r;
                c->tail = &r->next;
                c->waiting++;
                c->waiting_bytes += r->len;
        } else {
                c->given_up++;
        }
        (void)pthread_mutex_unlock(&c->lock);
        if (!room)
                record_free(r);
}

/* --- on the disk */
void conflicts_count(struct conflicts *c, struct conflicts_count *ret) {
        DIR *d = opendir(c->directory);
        struct stat st;

        *ret = (struct conflicts_count){0};
        for (const struct dirent *entry; d && (entry = readdir(d));)
                if (strchr(entry->d_name, '-') && fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
                        ret->records++;
                        ret->bytes += (uint64_t)st.st_size;
                }
        if (d)
                (void)closedir(d);
        (void)pthread_mutex_lock(&c->lock);
        ret->waiting = c->waiting;
        (void)pthread_mutex_unlock(&c->lock);
}

static errint_t write_record(int dir, const struct record *r) {
        cleanup_fd int fd = openat(dir, WRITING, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0)
                return -errno;
        for (size_t at = 0; at < r->len;) {
                ssize_t n = write(fd, r->data + at, r->len - at);
                if (n < 0 && errno != EINTR)
                        return -errno;
                at += n > 0 ? (size_t)n : 0;
        }
        if (fsync(fd) < 0 || renameat(dir, WRITING, dir, r->name) < 0)
                return -errno;
        return 0;
}

/* On the medium, too, as what will be in it. */
static errint_t make_directory(const char *path) {
        cleanup_free char *copy = xstrdup(path);

        if (mkdir(path, 0700) < 0)
                return errno == EEXIST ? 0 : -errno;
        cleanup_fd int parent = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return parent < 0 || fsync(parent) < 0 ? -errno : 0;
}

static errint_t write_all(struct conflicts *c, struct record **list, struct conflicts_count *count) {
        cleanup_fd int dir = -1;
        errint_t error = 0;

        if ((error = make_directory(c->directory)) < 0)
                return error;
        dir = open(c->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return -errno;
        while (*list && error == 0) {
                struct record *r = *list;
                if (count->records >= RECORDS_MAX || count->bytes + r->len > BYTES_MAX)
                        return -EDQUOT;
                error = write_record(dir, r);
                if (error == 0) {
                        count->records++;
                        count->bytes += r->len;
                        *list = r->next;
                        record_free(r);
                }
        }
        if (fsync(dir) < 0 && error == 0)
                error = -errno;
        return error;
}

void conflicts_write(struct conflicts *c) {
        struct conflicts_count count;
        size_t left = 0;
        uint64_t bytes = 0;

        (void)pthread_mutex_lock(&c->lock);
        struct record *list = steal_pointer(&c->first), **end = &list;
        c->tail = &c->first;
        c->waiting = 0;
        c->waiting_bytes = 0;
        size_t given_up = c->given_up;
        c->given_up = 0;
        (void)pthread_mutex_unlock(&c->lock);
        if (given_up > 0)
                log_error("%zu conflict records are lost: there are too many that could not be written", given_up);
        if (!list)
                return;
        conflicts_count(c, &count);
        errint_t error = write_all(c, &list, &count);
        for (end = &list; *end; end = &(*end)->next) {
                left++;
                bytes += (*end)->len;
        }
        if (left == 0)
                return;
        log_error("%zu conflict records are in memory only: %s: %s", left, c->directory,
                  error == -EDQUOT ? "full; look at `coterie conflicts` and drop some" : strerror(-error));
        (void)pthread_mutex_lock(&c->lock); /* tried again with the next ones, and at the end */
        *end = c->first;
        c->tail = c->first ? c->tail : end;
        c->first = list;
        c->waiting += left;
        c->waiting_bytes += bytes;
        (void)pthread_mutex_unlock(&c->lock);
}
