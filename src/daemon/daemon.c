/* daemon.c: a whole coteried: putting the parts together and taking them apart. */
#include "daemon_internal.h"

#include "base/log.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PRIMARY_WAIT_MS 5000u  /* standalone: the mount is announced when it can be written */
#define DYING_WAIT_US   50000u /* for one that was killed and has not ended */
#define DYING_TRIES     100u
#define LOG_SIZE_UNIT   8192u /* whole pages in both halves */
#define STOP_FLUSH_MS   5000u
#define STOP_QUIESCE_MS 2000u
#define STOP_BUSY_MS    300u /* while the mount is there, busy processes go on beginning operations: that never gets quiet */

errint_t fault_set(struct fault *f, int exit, errint_t error, const char *fmt, ...) {
        va_list ap;

        f->exit = exit;
        va_start(ap, fmt);
        (void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
        va_end(ap);
        return error;
}

void daemon_wake(struct daemon *d) {
        uint64_t one = 1;
        while (write(d->wake, &one, sizeof(one)) < 0 && errno == EINTR)
                ; /* EAGAIN: it is awake */
}

void daemon_request_stop(struct daemon *d, int exit_status) {
        int zero = 0;
        (void)atomic_compare_exchange_strong(&d->exit_status, &zero, exit_status); /* the first reason counts */
        atomic_store(&d->stop, true);
        daemon_wake(d);
}

/* --- hooks of the engine */

static void hook_applied(void *ctx, void *done_ctx, const struct op_result *result) {
        fs_applied(((struct daemon *)ctx)->fs, done_ctx, result);
}
static void hook_conflict(void *ctx, const struct engine_conflict *lost) {
        conflicts_add(((struct daemon *)ctx)->conflicts, lost);
}
static void hook_keep_conflicts(void *ctx) {
        conflicts_write(((struct daemon *)ctx)->conflicts);
}
static void hook_replaced(void *ctx, struct state *old) {
        fs_replaced(((struct daemon *)ctx)->fs, old);
}
static void hook_changed(void *ctx, const struct change_set *changes, uint64_t seq, bool local) {
        fs_changed(((struct daemon *)ctx)->fs, changes, seq, local);
}
static void invalidated(void *ctx, uint64_t seq) {
        engine_invalidated(((struct daemon *)ctx)->engine, seq);
}
static void hook_invalidate(void *ctx, const struct change_set *changes, uint64_t seq, bool local) {
        struct daemon *d = ctx;
        struct fuse_edge *edge = atomic_load(&d->edge);

        if (edge)
                fuse_edge_invalidate(edge, changes, seq, local, invalidated, d);
        else
                engine_invalidated(d->engine, seq);
}
static void all_invalidated(void *ctx, uint64_t seq) {
        (void)seq;
        engine_all_invalidated(ctx);
}
static void hook_invalidate_all(void *ctx, void *done_ctx) {
        struct fuse_edge *edge = atomic_load(&((struct daemon *)ctx)->edge);

        if (edge)
                fuse_edge_invalidate_all(edge, all_invalidated, done_ctx);
        else
                engine_all_invalidated(done_ctx);
}
static void hook_tick(void *ctx, uint64_t now_ms) {
        fs_tick(((struct daemon *)ctx)->fs, now_ms);
}
static void hook_role(void *ctx, bool primary, const char *reason) {
        struct daemon *d = ctx;

        (void)pthread_mutex_lock(&d->lock);
        d->primary = primary;
        free(d->reason);
        d->reason = xstrdup(reason ? reason : "");
        (void)pthread_cond_broadcast(&d->changed);
        (void)pthread_mutex_unlock(&d->lock);
        service_notify("STATUS=%s%s", primary ? "primary" : "read-only: ", primary ? "" : reason);
}
static void hook_fatal(void *ctx, const char *reason) {
        (void)reason; /* logged where it came from */
        daemon_request_stop(ctx, 1);
}

/* --- what the request layer asks for beyond the engine. Its backend has one context, the engine's; the daemon is found through it. */

static void backend_invalidate_inode(void *ctx, uint64_t ino) {
        struct daemon *d = engine_hooks_ctx(ctx);
        struct fuse_edge *edge = atomic_load(&d->edge);
        if (edge)
                fuse_edge_invalidate_inode(edge, ino);
}

static bool backend_kernel_knows(void *ctx, uint64_t ino) {
        struct daemon *d = engine_hooks_ctx(ctx);
        struct fuse_edge *edge = atomic_load(&d->edge);
        return edge && fuse_edge_knows(edge, ino);
}

/* A process that has ended meanwhile has no name any more. */
static void backend_program(void *ctx, int32_t pid, char program[LIMIT_PROGRAM]) {
        char path[48], name[LIMIT_PROGRAM + 1];

        (void)ctx;
        memset(program, 0, LIMIT_PROGRAM);
        if (pid <= 0)
                return;
        (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return;
        ssize_t n = read(fd, name, sizeof(name));
        while (n > 0 && name[n - 1] == '\n')
                n--;
        if (n > 0)
                memcpy(program, name, MIN_OF((size_t)n, (size_t)LIMIT_PROGRAM));
}

static errint_t backend_virtual_text(void *ctx, const char *name, struct enc *e) {
        return report_virtual(engine_hooks_ctx(ctx), name, e);
}

static errint_t backend_writable_mount(void *ctx) {
        const struct daemon *d = engine_hooks_ctx(ctx);
        return d->options->read_only.number ? -EROFS : engine_writable(ctx);
}

/* --- opening */

static void read_boot_id(char *buf, size_t size) {
        cleanup_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : 0;

        buf[n > 0 ? n : 0] = '\0';
        buf[strcspn(buf, "\n")] = '\0';
}

static const char *const database_suffixes[] = {"", "-oplog", "-content", "-ballast", "-journal", "-wal", "-shm"};

static void database_file(const struct daemon *d, size_t i, char *path, size_t size) {
        (void)snprintf(path, size, "%s%s", d->options->db.text, database_suffixes[i]);
}

/* What a failed start may remove again: never a file that was there before, not even beside a database that was not. */
static void note_new_files(struct daemon *d) {
        char path[OPTION_TEXT_MAX + 16];
        struct stat st;

        for (size_t i = 0; i < ARRAY_LEN(database_suffixes); i++) {
                database_file(d, i, path, sizeof(path));
                if (lstat(path, &st) < 0 ? errno == ENOENT : i == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
                        d->new_files |= 1u << i;
        }
        if (!(d->new_files & 1u))
                d->new_files = 0;
}

static const char *database_remedy(errint_t error) {
        switch (error) {
        case -ENOENT:
                return "; create its directory first";
        case -EACCES:
        case -EPERM:
                return "; run as root, or give another place with --db";
        case -EROFS:
        case -ENOTDIR:
                return "; give another place with --db";
        default:
                return ""; /* the reason says it */
        }
}

static errint_t open_store(struct daemon *d, struct fault *f) {
        const struct options *o = d->options;
        char boot_id[64];
        struct store_config config = {.path = o->db.text,
                                      .level = (enum sync_level)o->sync_level.number,
                                      .method = (enum sync_method)o->sync_method.number,
                                      .direct = o->direct.number != 0,
                                      .padding = o->padding.number == 0   ? 0
                                                 : o->padding.number == 1 ? 512u
                                                                          : 4096u,
                                      .log_size = o->log_size.number / LOG_SIZE_UNIT * LOG_SIZE_UNIT,
                                      .barrier_bytes = o->commit_bytes.number,
                                      .boot_id = boot_id,
                                      .disk = disk_system(),
                                      .metrics = d->metrics};
        struct state *state = shared_state_write(d->state);

        read_boot_id(boot_id, sizeof(boot_id));
        note_new_files(d);
        errint_t error = store_open_sqlite(&config, state, &d->loaded, &d->store);
        shared_state_done_write(d->state);
        if (error == -EBUSY)
                d->new_files = 0; /* another daemon's, which was quicker */
        if (error < 0)
                return d->loaded.reason[0] ? fault_set(f, 1, error, "database %s%s", d->loaded.reason, database_remedy(error))
                                           : fault_set(f, 1, error, "database %s: %s", o->db.text, strerror(-error));
        if (d->loaded.read_only)
                log_error("mounted read-only for rescue: database %s", d->loaded.reason);
        else if (d->loaded.unclean)
                log_notice("database was not closed properly; %llu operations replayed from the log",
                           (unsigned long long)d->loaded.replayed);
        return 0;
}

/* A standalone node founds its own cluster; any other without one joins, or waits for `coterie cluster init`. */
static errint_t found_cluster(struct daemon *d, struct fault *f) {
        uint8_t *id = d->loaded.cluster_id;

        if (!d->options->standalone.number || d->loaded.read_only || !cluster_id_is_none(id))
                return 0;
        cluster_id_make(id);
        errint_t error = d->store->ops->set_cluster_id(d->store, id);
        return error < 0 ? fault_set(f, 1, error, "database %s cannot be written: %s", d->options->db.text, strerror(-error)) : 0;
}

/* A new tree of one node alone has nothing behind it that somebody could miss. */
static bool may_have_forgotten(const struct daemon *d) {
        if (d->loaded.fresh)
                return !d->options->standalone.number;
        return d->loaded.unclean && d->loaded.boot_changed && d->options->sync_level.number != LEVEL_FILE;
}

static void make_engine(struct daemon *d) {
        const struct options *o = d->options;
        struct engine_config config = {
                .state = d->state,
                .store = d->store,
                .repl = {.node = o->standalone.number ? (uint32_t)o->node.number : 0 /* corosync knows */,
                         .incarnation = env_random64(env_system()),
                         .promised = d->loaded.promised,
                         .adopted = d->loaded.adopted,
                         .forgetful = may_have_forgotten(d),
                         .ack_timeout_ms = o->ack_timeout.number,
                         .forgetful_wait_ms = o->forgetful_wait.number,
                         .read_only_grace_ms = o->read_only_grace.number,
                         .window_bytes = o->send_window.number},
                .read_only_reason = d->loaded.read_only ? d->loaded.reason : NULL,
                .clean = !d->loaded.unclean && !d->loaded.fresh,
                .level = (enum sync_level)o->sync_level.number,
                .commit_interval_ms = o->commit_interval.number,
                .env = env_system(),
                .metrics = d->metrics,
                .trace = d->trace,
        };

        memcpy(config.repl.cluster_id, d->loaded.cluster_id, sizeof(config.repl.cluster_id));
        d->engine = engine_new(&config);
        engine_set_hooks(d->engine, &(struct engine_hooks){.applied = hook_applied,
                                                           .replaced = hook_replaced,
                                                           .conflict = hook_conflict,
                                                           .keep_conflicts = hook_keep_conflicts,
                                                           .changed = hook_changed,
                                                           .invalidate = hook_invalidate,
                                                           .invalidate_all = hook_invalidate_all,
                                                           .tick = hook_tick,
                                                           .role = hook_role,
                                                           .fatal = hook_fatal,
                                                           .ctx = d});
}

static void make_fs(struct daemon *d) {
        struct fs_config config = {.state = d->state,
                                   .backend = engine_backend(d->engine),
                                   .metrics = d->metrics,
                                   .gather_ms = d->options->gather_time.number,
                                   .gather_bytes_max = LIMIT_FILE_SIZE_MAX,
                                   .posix_locks_local = d->options->posix_locks.number == 1,
                                   .damaged = d->loaded.damaged,
                                   .n_damaged = d->loaded.n_damaged};

        config.backend.invalidate_inode = backend_invalidate_inode;
        config.backend.kernel_knows = backend_kernel_knows;
        config.backend.program = backend_program;
        config.backend.virtual_text = backend_virtual_text;
        config.backend.writable = backend_writable_mount;
        d->fs = fs_new(&config);
}

static errint_t start_engine(struct daemon *d, struct fault *f) {
        struct timespec until;

        d->net = cluster_net_new(d);
        errint_t error = engine_start(d->engine, d->net);
        if (error < 0)
                return fault_set(f, 1, error, "cannot start: %s", strerror(-error));
        d->engine_started = true;
        if (d->loaded.read_only ||
            !d->options->standalone.number) /* in a cluster it can be read at once, and written when there is a quorum */
                return 0;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += PRIMARY_WAIT_MS / 1000u;
        (void)pthread_mutex_lock(&d->lock);
        while (!d->primary && pthread_cond_timedwait(&d->changed, &d->lock, &until) != ETIMEDOUT)
                ;
        bool primary = d->primary;
        cleanup_free char *reason = d->reason ? xstrdup(d->reason) : NULL; /* hook_role frees the other */
        (void)pthread_mutex_unlock(&d->lock);
        if (!primary)
                log_warning("not writable yet: %s", reason ? reason : "the disk is slow");
        return 0;
}

static void edge_ended(void *ctx, errint_t error) {
        struct daemon *d = ctx;

        if (atomic_load(&d->stopping))
                return;
        if (error < 0)
                log_error("the connection to the kernel broke: %s", strerror(-error));
        else
                log_notice("unmounted from outside: stopping");
        daemon_request_stop(d, error < 0 ? 1 : 0);
}

static void nothing_invalidated(void *ctx, uint64_t seq) {
        (void)ctx;
        (void)seq;
}

static errint_t start_edge(struct daemon *d, struct fault *f) {
        const struct options *o = d->options;
        struct fuse_edge *edge = NULL;
        char reason[sizeof(f->text)] = "";
        struct fuse_edge_config config = {.fs = d->fs,
                                          .metrics = d->metrics,
                                          .mountpoint = o->mountpoint,
                                          .source = o->source.text,
                                          .threads = (unsigned)o->threads.number,
                                          .allow_dev = o->dev.number != 0,
                                          .allow_suid = o->suid.number != 0,
                                          .read_only = o->read_only.number != 0,
                                          .posix_locks_local = o->posix_locks.number == 1,
                                          .cache = o->cache.number != 0,
                                          .no_epoch = o->epoch.number == 0,
                                          .max_write = (unsigned)o->max_write.number,
                                          .ended = edge_ended,
                                          .ctx = d};
        errint_t error = fuse_edge_start(&config, &edge, reason, sizeof(reason));

        if (error < 0)
                return fault_set(f, 1, error, "%s", reason[0] ? reason : strerror(-error));
        atomic_store(&d->edge, edge);
        cleanup_fd int abort_file = -1; /* without one the guardian has another way */
        (void)fuse_edge_abort_file(edge, &abort_file);
        guardian_mounted(d->guardian, abort_file);
        /* What was asked between the first request and this line is not known to hook_invalidate. */
        fuse_edge_invalidate_all(edge, nothing_invalidated, NULL);
        return 0;
}

static errint_t start_ctl(struct daemon *d, struct fault *f) {
        char path[256];
        struct ctl_server_config config = {.path = path, .commands = daemon_commands, .n_commands = daemon_commands_n, .ctx = d};

        (void)snprintf(path, sizeof(path), "%s/" CTL_SOCKET, rundir_path(d->rundir));
        errint_t error = ctl_server_start(&config, &d->ctl);
        return error < 0 ? fault_set(f, 1, error, "cannot open the control socket %s: %s", path, strerror(-error)) : 0;
}

/* Before a log file is made where the mount would hide it; the dead mount of an earlier daemon is no reason to refuse. */
static errint_t start_logging(struct daemon *d, struct fault *f) {
        const struct options *o = d->options;
        errint_t error = mountpoint_check_outside(o->mountpoint, "log file", o->log_file.text, f);

        return error < 0 ? error : logging_start(o, rundir_path(d->rundir), f);
}

static errint_t check_mountpoint(const struct options *o, struct fault *f) {
        errint_t error = mountpoint_check(o->mountpoint, f);

        if (error == 0)
                error = mountpoint_check_outside(o->mountpoint, "database", o->db.text, f);
        return error < 0 ? error : mountpoint_check_outside(o->mountpoint, "run directory", o->run_dir.text, f);
}

/* A killed daemon cannot end while its thread that tells the kernel of a change waits for a directory whose lock a process holds that waits
 * for this very daemon; the connection ends with the last thread only. So it is cut here. */
static errint_t open_rundir(struct daemon *d, struct fault *f) {
        const char *path = d->options->run_dir.text;
        errint_t error = rundir_open(path, &d->rundir, f);

        for (unsigned tries = 0; error == -EBUSY && tries < DYING_TRIES && rundir_holder_is_dying(path); tries++) {
                fuse_mount_cut(d->options->mountpoint);
                (void)usleep(DYING_WAIT_US);
                error = rundir_open(path, &d->rundir, f);
        }
        return error;
}

static errint_t start_guardian(struct daemon *d, struct fault *f) {
        const struct options *o = d->options;
        struct guardian_config config = {.mountpoint = o->mountpoint,
                                         .log_fd = logging_file(),
                                         .keep_stderr = o->foreground,
                                         .detach = o->dead_mount.number == 1,
                                         .hang_report_ms = o->hang_report.number,
                                         .hang_kill_ms = o->hang_kill.number};
        errint_t error = guardian_start(&config, &d->guardian);

        if (error < 0)
                return fault_set(f, 1, error, "cannot start the guardian process: %s", strerror(-error));
        guardian_watch_crashes(d->guardian);
        return 0;
}

errint_t daemon_start(struct daemon *d, struct fault *f) {
        errint_t error;

        d->started_ms = env_monotonic_ns(env_system()) / 1000000u;
        if ((error = open_rundir(d, f)) < 0 || (error = start_logging(d, f)) < 0 || (error = check_mountpoint(d->options, f)) < 0)
                return error;
        mountpoint_warn_hidden(d->options->mountpoint);
        rundir_dump_on_assert(d->rundir, d->trace);
        if ((error = start_guardian(d, f)) < 0 || (error = open_store(d, f)) < 0 || (error = found_cluster(d, f)) < 0)
                return error;
        d->conflicts = conflicts_new(d->options->db.text);
        make_engine(d);
        make_fs(d);
        if ((error = start_engine(d, f)) < 0 || (error = start_ctl(d, f)) < 0)
                return error;
        return start_edge(d, f);
}

/* --- stopping */

struct waited {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool done;
        unsigned refs; /* the callback may come after we gave up */
};

static void waited_unref(struct waited *w) { /* lock held */
        bool last = --w->refs == 0;
        (void)pthread_mutex_unlock(&w->lock);
        if (last)
                free(w);
}

static void waited_done(void *ctx) {
        struct waited *w = ctx;
        (void)pthread_mutex_lock(&w->lock);
        w->done = true;
        (void)pthread_cond_signal(&w->cond);
        waited_unref(w);
}

static void flush_gathered(struct daemon *d) {
        struct waited *w = NEW(struct waited);
        struct timespec until;

        (void)pthread_mutex_init(&w->lock, NULL);
        (void)pthread_cond_init(&w->cond, NULL);
        w->refs = 2;
        fs_shutdown(d->fs, waited_done, w);
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += STOP_FLUSH_MS / 1000u;
        (void)pthread_mutex_lock(&w->lock);
        while (!w->done && pthread_cond_clockwait(&w->cond, &w->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
                ;
        if (!w->done)
                log_error("stopping without everything that was written: not flushed in %u ms", STOP_FLUSH_MS);
        waited_unref(w);
}

/* The kernel's own dirty pages come as writes while the mount ends: so what is gathered is flushed again after it. */
static void stop_requests(struct daemon *d) {
        struct fuse_edge *edge = atomic_load(&d->edge);

        if (d->fs)
                flush_gathered(d);
        if (!edge)
                return;
        (void)engine_quiesce(d->engine, STOP_BUSY_MS);
        fuse_edge_stop(edge);
        flush_gathered(d);
        (void)engine_quiesce(d->engine, STOP_QUIESCE_MS);
}

static void remove_fresh_database(struct daemon *d) {
        char path[OPTION_TEXT_MAX + 16];

        for (size_t i = 0; i < ARRAY_LEN(database_suffixes); i++)
                if (d->new_files & 1u << i) {
                        database_file(d, i, path, sizeof(path));
                        (void)unlink(path); /* those that are there */
                }
}

errint_t daemon_stop(struct daemon *d, bool failed) {
        errint_t error = 0;

        atomic_store(&d->stopping, true);
        service_notify("STOPPING=1");
        liveness_end(d);
        if (d->ctl)
                ctl_server_stop(d->ctl);
        if (d->engine_started) {
                stop_requests(d);
                error = engine_stop(d->engine);
                if (error == -EROFS && d->loaded.read_only) /* mounted for rescue: nothing is written */
                        error = 0;
                if (error < 0)
                        log_error("the database could not be closed properly: %s; the next start replays the log", strerror(-error));
        }
        fuse_edge_free(atomic_exchange(&d->edge, NULL)); /* stopped before the engine, which invalidates until it ends */
        fs_free(d->fs);
        free(d->loaded.damaged);
        if (d->net)
                d->net->ops->close(d->net);
        if (d->engine)
                engine_free(d->engine);
        if (d->conflicts)
                conflicts_write(d->conflicts); /* what could not be written before */
        conflicts_free(d->conflicts);
        if (d->store)
                d->store->ops->close(d->store);
        if (failed)
                remove_fresh_database(d);
        if (failed)
                logging_discard();
        shared_state_free(d->state);
        guardian_stop(d->guardian);
        rundir_close(d->rundir);
        ctl_server_free(d->ctl); /* last: `coterie stop` waits for it */
        return error;
}
