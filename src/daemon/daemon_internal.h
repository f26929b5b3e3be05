/* daemon_internal.h: what the daemon's own files share: the parts of one running daemon. */
#pragma once

#include "ctl/server.h"
#include "daemon/daemon.h"
#include "daemon/engine.h"
#include "fuse/fuse.h"
#include "guardian.h"

#include <pthread.h>
#include <stdatomic.h>

struct liveness { /* the main loop's, but for what is atomic */
        int interval_ms; /* between beats; -1: nobody wants any */
        uint64_t next_ms;
        _Atomic bool engine_answered;
        uint64_t control_turns;
};

struct daemon {
        struct options *options;
        struct liveness liveness;
        struct guardian *guardian;
        struct rundir *rundir;
        struct metrics *metrics;
        struct trace_ring *trace;
        struct shared_state *state;
        struct store *store;
        struct store_loaded loaded;
        unsigned new_files; /* of the database: bits of those that were not there before this start; 0: the database was */
        struct net *net;
        struct engine *engine;
        bool engine_started;
        struct fs *fs;
        _Atomic(struct fuse_edge *) edge;
        struct ctl_server *ctl;
        struct images *images;
        struct conflicts *conflicts;

        int wake; /* eventfd: something below changed */
        _Atomic bool stop, stopping;
        _Atomic int exit_status;
        uint64_t started_ms;

        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool primary; /* protected by lock */
        char *reason; /* protected by lock: why not */
        /* lock also protects the values of *options that mount_settings names. */
};

/* One line for the person who started the daemon, and the exit code. */
struct fault {
        int exit;
        char text[2 * OPTION_TEXT_MAX + 512]; /* has room for two paths */
};
errint_t fault_set(struct fault *f, int exit, errint_t error, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* daemon.c. A failed start is followed by daemon_stop, which leaves nothing behind. */
errint_t daemon_start(struct daemon *d, struct fault *f);
errint_t daemon_stop(struct daemon *d, bool failed);

/* rundir.c */
struct rundir;
errint_t rundir_open(const char *path, struct rundir **ret, struct fault *f); /* made if missing; locked */
void rundir_close(struct rundir *r);                                          /* pid file removed; the directory too if it was made here and is empty */
const char *rundir_path(const struct rundir *r);
bool rundir_holder_is_dying(const char *path); /* killed, but a thread of it still sits in the kernel */
/* trace.txt there gets the trace ring when an assertion fails. */
void rundir_dump_on_assert(const struct rundir *r, struct trace_ring *trace);

/* service.c: what a service manager hears (sd_notify(3)); nothing without NOTIFY_SOCKET. */
void service_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t service_watchdog_ms(void); /* 0: none; how often WATCHDOG=1 is wanted */

/* liveness.c: do the loops go on? What the guardian and the service manager hear of it. */
void liveness_begin(struct daemon *d); /* the daemon runs */
int liveness_beat(struct daemon *d);   /* from the main loop, at each of its turns; milliseconds until the next beat, -1: nobody wants any */
void liveness_end(struct daemon *d);   /* stopping begins */

/* logging.c */
errint_t logging_start(const struct options *o, const char *run_dir, struct fault *f);
int logging_file(void); /* the descriptor of the log file; -1: none is used */
void logging_discard(void); /* the start failed and was told: removes a log file that was made for it in the run directory */

/* mountpoint.c: a directory, not mounted by a living daemon; a dead mount is detached. A warning when files are hidden by the mount. */
errint_t mountpoint_check(const char *path, struct fault *f);
void mountpoint_warn_hidden(const char *path);
/* What the daemon needs while it is mounted (the database, say) must not lie where the mount hides it. */
errint_t mountpoint_check_outside(const char *path, const char *what, const char *place, struct fault *f);

/* report.c: text for status and metrics; allocated. */
char *report_status(struct daemon *d);
char *report_metrics(struct daemon *d);
errint_t report_virtual(void *ctx, const char *name, struct enc *e);

/* commands.c */
extern const struct ctl_command daemon_commands[];
extern const size_t daemon_commands_n;

/* cluster.c */
bool cluster_id_is_none(const uint8_t id[CLUSTER_ID_SIZE]);
void cluster_id_make(uint8_t ret[CLUSTER_ID_SIZE]);
struct net *cluster_net_new(struct daemon *d);
bool cluster_info(struct daemon *d, struct net_cluster_info *ret);                              /* false: standalone */
void cluster_reason(struct daemon *d, const struct engine_status *s, char *buf, size_t size); /* why not writable, or "" */
void cluster_command(struct ctl_call *c);

/* conflicts.c: operations of a history that was left, kept beside the database */
#define CONFLICTS_SUFFIX "-conflicts"
struct conflicts;
struct conflicts_count {
        uint64_t records, bytes, waiting /* in memory only */;
};
struct conflicts *conflicts_new(const char *db);
void conflicts_free(struct conflicts *c);
void conflicts_add(struct conflicts *c, const struct engine_conflict *lost);
void conflicts_write(struct conflicts *c);
void conflicts_count(struct conflicts *c, struct conflicts_count *ret); /* any thread */

/* images.c: the state frozen for a backup or a dump */
struct images *images_new(void);
void images_free(struct images *i);
int images_expire(struct images *i); /* drops what nobody asks for; milliseconds until there is something to drop, -1: nothing */
void images_command(struct ctl_call *c);

/* settings.c: the settings of this mount, changeable while it is mounted */
struct mount_setting {
        const char *name; /* as the option's */
        const char *help;
};
const struct mount_setting *mount_settings(size_t *ret_n);
const struct mount_setting *mount_setting_find(const char *name);
/* done(ctx, error) once it holds, from any thread; -EINVAL at once with a reason. */
errint_t mount_setting_set(struct daemon *d, const char *name, const char *value, void (*done)(void *ctx, errint_t error), void *ctx, char reason[OPTIONS_REASON]);
void mount_setting_text(struct daemon *d, const char *name, char *buf, size_t size);
void mount_settings_reload(struct daemon *d); /* SIGHUP */

void daemon_request_stop(struct daemon *d, int exit_status); /* any thread */
void daemon_wake(struct daemon *d);                          /* the main loop looks around; any thread */
