/* options.h: every option of coteried, in one table: for the command line (--sync-level=file), for -o (sync_level=file) and for the
 * configuration file (sync_level = file). Values are checked when they are set; a later one wins; the command line is read after
 * the file. One thread. */
#pragma once

#include "base/log.h"
#include "store/store.h"

#include <stdio.h>

enum option_type { OPTION_BOOL, OPTION_NUMBER, OPTION_BYTES, OPTION_DURATION, OPTION_CHOICE, OPTION_TEXT };

#define OPTION_TEXT_MAX 4096u
#define DURATION_NEVER UINT64_MAX

/* X(field, type, "name", "default", min, max, "choices, in order of their values", "help"). Durations are kept in milliseconds. */
#define OPTIONS_TABLE(X)                                                                                                                   \
        X(standalone, OPTION_BOOL, "standalone", "no", 0, 1, NULL, "one node alone, without corosync")                                     \
        X(db, OPTION_TEXT, "db", "", 1, OPTION_TEXT_MAX, NULL, "the database file; PATH-oplog and PATH-content lie beside it")             \
        X(mount_at, OPTION_TEXT, "mountpoint", "", 0, OPTION_TEXT_MAX, NULL, "where to mount, if the command line does not say it")             \
        X(run_dir, OPTION_TEXT, "run_dir", "/run/coterie", 1, 90, NULL, "directory of the control socket and the pid file")                \
        X(source, OPTION_TEXT, "source", "coterie", 1, 255, NULL, "the name shown as the source in /proc/mounts")                          \
        X(node, OPTION_NUMBER, "node", "1", 1, UINT32_MAX, NULL, "node number when standalone")                                            \
        X(group, OPTION_TEXT, "group", "coterie", 1, 100, NULL, "corosync's process group; two trees in one cluster need two")               \
        X(sync_level, OPTION_CHOICE, "sync_level", "filesystem", 0, 2, "none filesystem file", "what is durable before an operation is acknowledged") \
        X(sync_method, OPTION_CHOICE, "sync_method", "fdatasync", 0, 4, "fdatasync fsync open_datasync open_sync syncfs", "how log writes are made durable") \
        X(direct, OPTION_BOOL, "direct", "yes", 0, 1, NULL, "O_DIRECT for the log at level file")                                          \
        X(padding, OPTION_CHOICE, "padding", "auto", 0, 2, "auto 512 4096", "records at level file are padded to so many bytes; auto: the logical sector") \
        X(log_size, OPTION_BYTES, "log_size", "16M", MIB, GIB, NULL, "operation log, both halves together, when it is created")            \
        X(commit_interval, OPTION_DURATION, "commit_interval", "5s", 100, 3600000, NULL, "at level filesystem a barrier comes at least so often") \
        X(commit_bytes, OPTION_BYTES, "commit_bytes", "8M", 64 * KIB, GIB, NULL, "and after so many bytes since the last one")             \
        X(gather_time, OPTION_DURATION, "gather_time", "1s", 10, 60000, NULL, "writes to an open file become one operation after so long, or at close") \
        X(threads, OPTION_NUMBER, "threads", "0", 0, 64, NULL, "threads that serve the kernel; 0: by the number of processors")            \
        X(max_write, OPTION_BYTES, "max_write", "0", 0, MIB, NULL, "largest write request; 0: what the kernel gives, at most 1M")          \
        X(cache, OPTION_BOOL, "cache", "yes", 0, 1, NULL, "the kernel may cache names, attributes and pages")                              \
        X(epoch, OPTION_BOOL, "epoch", "yes", 0, 1, NULL, "use the kernel's epoch notification where it has it")                           \
        X(dev, OPTION_BOOL, "dev", "no", 0, 1, NULL, "device nodes on the mount can be opened")                                            \
        X(suid, OPTION_BOOL, "suid", "no", 0, 1, NULL, "setuid bits on the mount count")                                                   \
        X(read_only, OPTION_BOOL, "read_only", "no", 0, 1, NULL, "mount read-only")                                                        \
        X(posix_locks, OPTION_CHOICE, "posix_locks", "cluster", 0, 1, "cluster local", "fcntl locks are this node's own so far, whichever is chosen; local makes closing a file that was only read cheaper") \
        X(ack_timeout, OPTION_DURATION, "ack_timeout", "5s", 100, 300000, NULL, "a member that makes no progress for so long is expelled") \
        X(forgetful_wait, OPTION_DURATION, "forgetful_wait", "60s", 1, DURATION_NEVER, NULL, "how long a quorum that needs a forgetful member waits for the others; or never") \
        X(read_only_grace, OPTION_DURATION, "read_only_grace", "5s", 1, 300000, NULL, "how long a request waits for a quorum to come back") \
        X(send_window, OPTION_BYTES, "send_window", "8M", 128 * KIB, 8 * MIB, NULL, "bytes sent and not yet acknowledged by all")        \
        X(hang_report, OPTION_DURATION, "hang_report", "10s", 200, DURATION_NEVER, NULL, "a daemon whose loops make no step for so long is reported in the log; or never") \
        X(hang_kill, OPTION_DURATION, "hang_kill", "never", 1000, DURATION_NEVER, NULL, "and killed after so long; or never")                  \
        X(dead_mount, OPTION_CHOICE, "dead_mount", "keep", 0, 1, "keep detach", "the mount of a daemon that died: every call fails until the next start, or it is unmounted") \
        X(log_level, OPTION_CHOICE, "log_level", "info", 0, 4, "error warning notice info debug", "how much is logged")                    \
        X(log_file, OPTION_TEXT, "log_file", "", 0, OPTION_TEXT_MAX, NULL, "log there; empty: standard error in the foreground, else syslog, else RUN-DIR/coteried.log")

struct option_value {
        uint64_t number;
        char *text; /* OPTION_TEXT */
        bool set;   /* by file or command line */
};
struct options {
#define X(field, type, name, def, min, max, choices, help) struct option_value field;
        OPTIONS_TABLE(X)
#undef X
        char *mountpoint;
        char *config_file;
        bool foreground, check_config, help, version;
        char **late; /* assignments of the command line, for after the file */
        size_t n_late;
};
struct option_info {
        const char *name;
        enum option_type type;
        const char *def, *choices, *help;
        uint64_t min, max;
        size_t offset;
};
size_t options_count(void);
const struct option_info *options_info(size_t i);
const struct option_info *options_find(const char *name); /* '-' counts as '_' */
/* Of what a choice means: "file" for sync_level 2. buf has 32 bytes at least; other types as they would be written in the file. */
void options_text(const struct options *o, const struct option_info *info, char *buf, size_t size);

void options_init(struct options *o); /* defaults */
void options_done(struct options *o);
#define OPTIONS_REASON 512u
/* Sets one; -EINVAL with one line in reason: unknown name (with the nearest valid one) or bad value (with what is valid). */
errint_t options_set(struct options *o, const char *name, const char *value, char reason[OPTIONS_REASON]);
/* "k=v,k,nok" as for mount -o: booleans alone mean yes, with "no" before the name no; words for mount(8) and systemd are passed over. */
errint_t options_set_list(struct options *o, const char *list, char reason[OPTIONS_REASON]);
/* The command line; then the file it names, then the command line's values again over it. -EINVAL: usage. */
errint_t options_parse(struct options *o, int argc, char **argv, char reason[OPTIONS_REASON]);
/* The file read again, the command line's values over it: what a fresh start would use. */
errint_t options_reload(const struct options *from, struct options *ret, char reason[OPTIONS_REASON]);
/* FILE:LINE: in front of each reason. -ENOENT and others: the file cannot be read. */
errint_t config_read(struct options *o, const char *path, char reason[OPTIONS_REASON]);
errint_t config_read_stream(struct options *o, FILE *f, const char *path, char reason[OPTIONS_REASON]); /* path: for the reason alone */
void options_usage(int fd);

/* Parsing of values, also for `coterie set`. */
errint_t parse_bytes(const char *text, uint64_t *ret);    /* 64K, 8M, 1G */
errint_t parse_duration(const char *text, uint64_t *ret); /* 500ms, 5s, 2min, 1h, never; a bare number: seconds */
errint_t parse_bool(const char *text, uint64_t *ret);     /* yes no true false on off 1 0 */
void format_bytes(uint64_t v, char *buf, size_t size);
void format_duration(uint64_t ms, char *buf, size_t size);
