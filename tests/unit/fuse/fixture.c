#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static uint64_t now_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void sleep_ms(long ms) {
        (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* --- the executor --- */

static void clear(void *ctx, uint64_t seq) {
        struct fixture *f = ctx;
        pthread_mutex_lock(&f->lock);
        f->out_of_order |= seq <= f->done_seq;
        f->done_seq = seq;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

/* One at a time, and in the order of their sequence also outside the tree: as the daemon does. */
static pthread_mutex_t executor = PTHREAD_MUTEX_INITIALIZER;

static struct op_result apply(struct fixture *f, const struct op *op, const void *head, size_t head_len, bool local, void *done_ctx,
                              uint64_t *ret_seq) {
        struct change_set changes;
        change_set_init(&changes);
        struct op_result result = {0};
        pthread_mutex_lock(&executor);
        struct state *s = shared_state_write(f->state);
        ck_assert_int_eq(state_apply(s, 1, op, head, head_len, &changes, &result), 0);
        uint64_t seq = s->pos.seq;
        if (local)
                fs_applied(f->fs, done_ctx, &result);
        shared_state_done_write(f->state);
        fs_changed(f->fs, &changes, seq, local);
        if (f->edge)
                fuse_edge_invalidate(f->edge, &changes, seq, local, clear, f);
        pthread_mutex_unlock(&executor);
        change_set_done(&changes);
        if (ret_seq)
                *ret_seq = seq;
        return result;
}

static void encode(struct fixture *f, struct op *op, struct enc *e) {
        pthread_mutex_lock(&f->lock);
        op->origin = (struct op_origin){.node = 1, .incarnation = 0, .number = ++f->number};
        pthread_mutex_unlock(&f->lock);
        enc_init(e, OP_HEAD_MAX);
        ck_assert_int_eq(op_encode_head(op, e), 0);
}

static struct op_result apply_encoded(struct fixture *f, const struct held *h, bool local, uint64_t *ret_seq) {
        struct op op;
        void *scratch = NULL;
        ck_assert_int_eq(op_decode(h->head, h->head_len, h->payload, h->payload_len, &op, &scratch), 0);
        struct op_result r = apply(f, &op, h->head, h->head_len, local, h->done_ctx, ret_seq);
        free(scratch);
        return r;
}

static struct held held_of(struct fixture *f, struct op *op) {
        struct enc e;
        encode(f, op, &e);
        struct held h = {.head_len = e.len, .payload_len = op->payload.len};
        h.head = memcpy(xmalloc(e.len + 1), e.data, e.len);
        h.payload = xmalloc(h.payload_len + 1);
        if (h.payload_len)
                memcpy(h.payload, op->payload.data, h.payload_len);
        enc_done(&e);
        return h;
}

static void held_done(struct held *h) {
        free(h->head);
        free(h->payload);
}

static void submit(void *ctx, struct op *op, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx,
                   uint64_t *ret_token) {
        struct fixture *f = ctx;
        struct held h = held_of(f, op);
        h.done = done;
        h.done_ctx = done_ctx;
        pthread_mutex_lock(&f->lock);
        h.token = f->number;
        if (ret_token)
                *ret_token = h.token;
        if (f->hold) {
                struct held *copy = xmalloc(sizeof(*copy)), **last = &f->held;
                *copy = h;
                while (*last)
                        last = &(*last)->next;
                *last = copy;
                f->n_held++;
                pthread_cond_broadcast(&f->changed);
                pthread_mutex_unlock(&f->lock);
                return;
        }
        pthread_mutex_unlock(&f->lock);
        struct op_result r = apply_encoded(f, &h, true, NULL);
        held_done(&h);
        done(done_ctx, &r);
}

static void barrier(void *ctx, void (*done)(void *done_ctx, const struct op_result *result), void *done_ctx) {
        (void)ctx;
        struct op_result r = {0};
        done(done_ctx, &r);
}

static void withdraw(void *ctx, uint64_t token) {
        struct fixture *f = ctx;
        struct held *found = NULL;
        pthread_mutex_lock(&f->lock);
        for (struct held **p = &f->held; *p && !found; p = found ? p : &(*p)->next)
                if ((*p)->token == token) {
                        found = *p;
                        *p = found->next;
                        f->withdrawn++;
                        break;
                }
        pthread_mutex_unlock(&f->lock);
        if (!found)
                return;
        struct op_result r = {.error = -EINTR};
        found->done(found->done_ctx, &r);
        held_done(found);
        free(found);
}

static errint_t reserve(void *ctx, uint64_t bytes, bool frees) {
        (void)ctx, (void)bytes, (void)frees;
        return 0;
}
static void release(void *ctx, uint64_t bytes) {
        (void)ctx, (void)bytes;
}
static errint_t writable(void *ctx) {
        (void)ctx;
        return 0;
}
static void invalidate_inode(void *ctx, uint64_t ino) {
        struct fixture *f = ctx;
        if (f->edge)
                fuse_edge_invalidate_inode(f->edge, ino);
}
static void arm(void *ctx, uint64_t at_ms) {
        (void)ctx, (void)at_ms; /* the ticker comes by anyway */
}
static void realtime(void *ctx, struct timestamp *ret) {
        (void)ctx;
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        *ret = (struct timestamp){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}
static uint64_t monotonic_ms(void *ctx) {
        (void)ctx;
        return now_ms();
}
static void program(void *ctx, int32_t pid, char name[LIMIT_PROGRAM]) {
        (void)ctx, (void)pid;
        memset(name, 0, LIMIT_PROGRAM);
}
static errint_t virtual_text(void *ctx, const char *name, struct enc *e) {
        (void)ctx;
        enc_raw(e, name, strlen(name));
        return 0;
}

static bool kernel_knows(void *ctx, uint64_t ino) {
        struct fixture *f = ctx;
        return f->edge && fuse_edge_knows(f->edge, ino);
}

static void *tick(void *arg) {
        struct fixture *f = arg;
        pthread_mutex_lock(&f->lock);
        while (!f->stop_ticking) {
                pthread_mutex_unlock(&f->lock);
                fs_tick(f->fs, now_ms());
                sleep_ms(20);
                pthread_mutex_lock(&f->lock);
        }
        pthread_mutex_unlock(&f->lock);
        return NULL;
}

/* --- life --- */

/* A test that fails exits with files open on the mount that it serves itself, and would wait for its own answer for ever. A process
 * beside it ends the connection then. */
/* Its first thread has ended, another has not, and still has not a while later. Asked of /proc: a signal at the parent's death does not
 * come if the parent has given up its rights. */
static bool is_stuck(pid_t pid) {
        char path[64], state = ' ';
        unsigned threads = 0;
        for (int i = 0; i < 2; i++) {
                (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
                FILE *p = fopen(path, "re");
                if (!p)
                        return false;
                (void)!fscanf(p, "%*d (%*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u", &state, &threads);
                fclose(p);
                if (state != 'Z' || threads < 2)
                        return false;
                sleep_ms(i == 0 ? 300 : 0);
        }
        return true;
}

static void guard(struct fixture *f) {
        f->guarded = mmap(NULL, sizeof(*f->guarded), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(f->guarded, MAP_FAILED);
        pid_t parent = getpid();
        f->guardian = fork();
        ck_assert_int_ge(f->guardian, 0);
        if (f->guardian > 0)
                return;
        (void)setsid();
        while (getppid() == parent && !is_stuck(parent))
                sleep_ms(100);
        if (getppid() == parent && f->guarded->dev_minor != 0)
                (void)edge_abort(-1, *f->guarded);
        _exit(0);
}

static void guard_no_more(struct fixture *f) {
        kill(f->guardian, SIGKILL);
        (void)waitpid(f->guardian, NULL, 0);
        munmap(f->guarded, sizeof(*f->guarded));
}

static void ended(void *ctx, errint_t error) {
        struct fixture *f = ctx;
        (void)error;
        pthread_mutex_lock(&f->lock);
        f->ended++;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

struct fuse_edge_config fixture_config(void) {
        return (struct fuse_edge_config){.source = "unit test", .cache = true};
}

void fixture_prepare(struct fixture *f) {
        *f = (struct fixture){.state = shared_state_new(1)};
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, NULL);
        (void)snprintf(f->mountpoint, sizeof(f->mountpoint), "/tmp/coterie-fuse-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(f->mountpoint));
        guard(f);
        struct fs_config config = {
                .state = f->state,
                .metrics = &f->metrics,
                .gather_ms = 1000,
                .gather_bytes_max = 64 * MIB,
                .backend = {submit, barrier, withdraw, reserve, release, writable, invalidate_inode, arm, realtime, monotonic_ms, program,
                            virtual_text, f, kernel_knows},
        };
        f->fs = fs_new(&config);
        ck_assert_int_eq(pthread_create(&f->ticker, NULL, tick, f), 0);
}

errint_t fixture_mount(struct fixture *f, const struct fuse_edge_config *config, char *reason, size_t reason_size) {
        struct fuse_edge_config c = config ? *config : fixture_config();
        c.fs = f->fs;
        c.metrics = &f->metrics;
        c.mountpoint = c.mountpoint ? c.mountpoint : f->mountpoint;
        c.ended = ended;
        c.ctx = f;
        struct fuse_edge *edge = NULL;
        errint_t r = fuse_edge_start(&c, &edge, reason, reason_size);
        if (r == 0) {
                *f->guarded = edge->mount;
                f->edge = edge;
        }
        return r;
}

void fixture_start(struct fixture *f, const struct fuse_edge_config *config) {
        char reason[512] = "";
        fixture_prepare(f);
        errint_t r = fixture_mount(f, config, reason, sizeof(reason));
        ck_assert_msg(r == 0, "%s: %s", strerror(-r), reason);
}

static void shut(void *ctx) {
        bool *done = ctx;
        *done = true;
}

void fixture_release(struct fixture *f) {
        bool done = false;
        fs_shutdown(f->fs, shut, &done);
        ck_assert(done); /* this executor answers at once */
        pthread_mutex_lock(&f->lock);
        f->stop_ticking = true;
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->ticker, NULL);
        fs_free(f->fs);
        shared_state_free(f->state);
        ck_assert(!f->out_of_order);
        ck_assert_int_eq(rmdir(f->mountpoint), 0);
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
        guard_no_more(f);
}

void fixture_unmount(struct fixture *f) {
        fuse_edge_stop(f->edge); /* may bring operations, which are invalidated */
        pthread_mutex_lock(&executor);
        struct fuse_edge *edge = steal_pointer(&f->edge);
        pthread_mutex_unlock(&executor);
        fuse_edge_free(edge);
}

void fixture_stop(struct fixture *f) {
        fixture_unmount(f);
        fixture_release(f);
}

/* --- the other nodes --- */

struct op_result fixture_remote_async(struct fixture *f, struct op *op, uint64_t *ret_seq) {
        if (op->time.sec == 0)
                realtime(f, &op->time);
        struct held h = held_of(f, op);
        struct op_result r = apply_encoded(f, &h, false, ret_seq);
        held_done(&h);
        return r;
}

bool fixture_wait_clear(struct fixture *f, uint64_t seq, int timeout_ms) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += timeout_ms % 1000 * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_mutex_lock(&f->lock);
        int r = 0;
        while (f->done_seq < seq && r == 0)
                r = pthread_cond_timedwait(&f->changed, &f->lock, &until);
        bool clear_now = f->done_seq >= seq;
        pthread_mutex_unlock(&f->lock);
        return clear_now;
}

struct op_result fixture_remote(struct fixture *f, struct op *op) {
        uint64_t seq = 0;
        struct op_result r = fixture_remote_async(f, op, &seq);
        ck_assert_msg(fixture_wait_clear(f, seq, 5000), "the kernel's caches were not cleared within 5 s");
        return r;
}

void fixture_remote_write(struct fixture *f, uint64_t ino, const char *text) {
        size_t len = strlen(text);
        struct extent x = {.length = len};
        struct op op = {.kind = OP_WRITE, .write = {.ino = ino, .keep = 0, .size = len, .extents = &x, .n_extents = len ? 1 : 0}};
        op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = len, .data = (const uint8_t *)text, .len = len};
        ck_assert_int_eq(fixture_remote(f, &op).error, 0);
}

uint64_t fixture_remote_create(struct fixture *f, uint64_t parent, const char *name, uint32_t mode) {
        struct op op = {.kind = OP_CREATE, .create = {.parent = parent, .name = op_name_of(name), .mode = mode}};
        struct op_result r = fixture_remote(f, &op);
        ck_assert_int_eq(r.error, 0);
        return r.ino;
}

void fixture_hold(struct fixture *f) {
        pthread_mutex_lock(&f->lock);
        f->hold = true;
        f->n_held = 0;
        pthread_mutex_unlock(&f->lock);
}

void fixture_wait_held(struct fixture *f, unsigned n) {
        pthread_mutex_lock(&f->lock);
        while (f->n_held < n)
                pthread_cond_wait(&f->changed, &f->lock);
        pthread_mutex_unlock(&f->lock);
}

unsigned fixture_withdrawn(struct fixture *f) {
        pthread_mutex_lock(&f->lock);
        unsigned n = f->withdrawn;
        pthread_mutex_unlock(&f->lock);
        return n;
}

void fixture_let_go(struct fixture *f) {
        pthread_mutex_lock(&f->lock);
        f->hold = false;
        while (f->held) {
                struct held *h = f->held;
                f->held = h->next;
                pthread_mutex_unlock(&f->lock);
                struct op_result r = apply_encoded(f, h, true, NULL);
                h->done(h->done_ctx, &r);
                held_done(h);
                free(h);
                pthread_mutex_lock(&f->lock);
        }
        pthread_mutex_unlock(&f->lock);
}

/* --- looking on --- */

uint64_t fixture_ino(struct fixture *f, uint64_t parent, const char *name) {
        uint64_t ino = 0;
        const struct state *s = shared_state_read(f->state);
        if (tree_lookup(s->tree, parent, name, strlen(name), &ino) < 0)
                ino = 0;
        shared_state_done_read(f->state);
        return ino;
}

uint64_t fixture_metric(struct fixture *f, enum metric id) {
        return metric_get(&f->metrics, id);
}

const char *fixture_path(struct fixture *f, const char *relative) {
        static char ring[8][512];
        static unsigned at;
        char *out = ring[at++ % 8];
        (void)snprintf(out, sizeof(ring[0]), "%s/%s", f->mountpoint, relative);
        return out;
}

pid_t fixture_spawn(const char *const *argv) {
        pid_t pid = -1;
        char *args[8] = {NULL};
        for (unsigned i = 0; argv[i]; i++) {
                ck_assert_uint_lt(i, 7);
                args[i] = xstrdup(argv[i]);
        }
        posix_spawnattr_t attr;
        posix_spawnattr_init(&attr);
        sigset_t none;
        sigemptyset(&none);
        posix_spawnattr_setsigmask(&attr, &none);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
        ck_assert_int_eq(posix_spawnp(&pid, args[0], NULL, &attr, args, environ), 0);
        posix_spawnattr_destroy(&attr);
        for (unsigned i = 0; args[i]; i++)
                free(args[i]);
        return pid;
}

int fixture_wait_exit(pid_t pid, int timeout_ms) {
        for (int waited = 0;; waited += 2) {
                int status = 0;
                pid_t r = waitpid(pid, &status, WNOHANG);
                ck_assert_int_ge(r, 0);
                if (r == pid)
                        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                if (waited >= timeout_ms)
                        return -1;
                sleep_ms(2);
        }
}
