/* doctor.c: `coterie doctor`: what is wrong or about to be, and what to do about it. */
#include "cli.h"

#include "core/limits.h"
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FULL_PERCENT  90u /* of a limit of the tree */
#define SPACE_LOW     (64 * MIB)
#define TOKEN_LOW_MS  500u
#define TOKEN_HIGH_MS 10000u
#define EPOCH_KERNEL  6016u /* Linux 6.16: names are dropped by one notification */
#define BTRFS_MAGIC   0x9123683eu

enum level { LEVEL_OK, LEVEL_ADVICE, LEVEL_FAULT };
static const char *const level_texts[] = {"ok", "advice", "fault"};

struct doctor {
        const struct cli *cli;
        const json_t *status;
        json_t *findings;
        struct table *table;
        unsigned faults, advice;
};

static void found(struct doctor *d, enum level level, const char *check, const char *remedy, const char *fmt, ...)
        __attribute__((format(printf, 5, 6)));
static void found(struct doctor *d, enum level level, const char *check, const char *remedy, const char *fmt, ...) {
        char *what = NULL; /* whole: a text that is cut within a character is none for JSON */
        va_list ap;

        va_start(ap, fmt);
        int len = vasprintf(&what, fmt, ap);
        va_end(ap);
        POST(len >= 0); /* memory is all that can lack */
        d->faults += level == LEVEL_FAULT;
        d->advice += level == LEVEL_ADVICE;
        json_t *finding = json_pack("{s:s, s:s, s:s, s:s}", "level", level_texts[level], "check", check, "finding", what, "remedy", remedy);
        if (finding)
                (void)json_array_append_new(d->findings, finding); /* a new array and a new object */
        table_row(d->table, (const char *const[]){level_texts[level], check, what, remedy[0] ? remedy : "-"});
        free(what);
}

/* --- the node */
static void check_writable(struct doctor *d) {
        const json_t *store = json_object_get(d->status, "store");

        if (json_is_true(json_object_get(store, "failed")))
                found(d, LEVEL_FAULT, "database", "free space or replace the disk, then restart coteried",
                      "the store refuses everything: %s", cli_text(store, "reason"));
        else if (!json_is_true(json_object_get(d->status, "writable")))
                found(d, LEVEL_FAULT, "writable", "see the reason; docs/OPERATIONS.md has a remedy for each", "read-only: %s",
                      cli_text(d->status, "reason"));
        else
                found(d, LEVEL_OK, "writable", "", "writable, epoch %" PRIu64, cli_number(d->status, "adopted"));
}

static void check_usage(struct doctor *d) {
        static const char *const keys[][4] = {{"bytes", "bytes_max", "tree_size_max", "bytes"},
                                              {"inodes", "inodes_max", "inodes_max", "inodes"}};
        const json_t *usage = json_object_get(d->status, "usage");
        bool fine = true;

        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                uint64_t used = cli_number(usage, keys[i][0]), max = cli_number(usage, keys[i][1]);
                char remedy[128];
                if (max == 0 || used / (max / 100 + 1) < FULL_PERCENT)
                        continue;
                (void)snprintf(remedy, sizeof(remedy), "remove files, or coterie set %s=...", keys[i][2]);
                found(d, LEVEL_ADVICE, "tree", remedy, "%" PRIu64 " of %" PRIu64 " %s are used", used, max, keys[i][3]);
                fine = false;
        }
        if (fine)
                found(d, LEVEL_OK, "tree", "", "room for more");
}

static void check_disk(struct doctor *d) {
        const char *db = cli_text(d->status, "database");
        char directory[PATH_MAX], space[32];
        struct statfs fs;

        (void)snprintf(directory, sizeof(directory), "%s", db);
        char *slash = strrchr(directory, '/');
        if (!slash)
                return;
        slash[slash == directory] = '\0';
        if (statfs(directory, &fs) < 0) {
                found(d, LEVEL_FAULT, "disk", "mount it", "%s: %s", directory, strerror(errno));
                return;
        }
        uint64_t avail = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
        cli_bytes(avail, space, sizeof(space));
        if (avail < SPACE_LOW)
                found(d, LEVEL_FAULT, "disk", "free space there: a checkpoint needs it", "%s are left for the database", space);
        else
                found(d, LEVEL_OK, "disk", "", "%s are left for the database", space);
        if ((uint32_t)fs.f_type == BTRFS_MAGIC)
                found(d, LEVEL_ADVICE, "filesystem", "put the database on ext4 or XFS",
                      "the database is on btrfs, where a small durable write costs some 100 KB");
        if ((uint32_t)fs.f_type == TMPFS_MAGIC)
                found(d, LEVEL_ADVICE, "filesystem", "put the database on a disk",
                      "the database is on a tmpfs and ends with the machine's power");
}

static void check_mount(struct doctor *d) {
        const char *mount = cli_text(d->status, "mountpoint");
        struct statfs fs;

        if (statfs(mount, &fs) < 0)
                found(d, LEVEL_FAULT, "mount", "restart coteried", "%s does not answer: %s", mount, strerror(errno));
        else if ((uint32_t)fs.f_type != 0x65735546u /* FUSE */)
                found(d, LEVEL_FAULT, "mount", "unmount what lies over it", "%s shows another filesystem than the daemon's", mount);
        else
                found(d, LEVEL_OK, "mount", "", "%s answers", mount);
}

static void check_kernel(struct doctor *d) {
        struct utsname u;
        unsigned major = 0, minor = 0;

        if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
                return;
        if (major * 1000 + minor < EPOCH_KERNEL)
                found(d, LEVEL_ADVICE, "kernel", "Linux 6.16 or later caches names, too",
                      "Linux %s cannot drop names without waiting: they are asked for each time", u.release);
        else
                found(d, LEVEL_OK, "kernel", "", "Linux %s", u.release);
}

static void check_clock(struct doctor *d) {
        struct timex t = {0};

        if (adjtimex(&t) == TIME_ERROR || t.status & STA_UNSYNC)
                found(d, LEVEL_ADVICE, "clock", "run chrony or another NTP client",
                      "nothing keeps the clock: times of files differ by the node that wrote them");
        else
                found(d, LEVEL_OK, "clock", "", "kept");
}

static void check_version(struct doctor *d) {
        const char *theirs = cli_text(d->status, "version");

        if (strcmp(theirs, COTERIE_VERSION) != 0)
                found(d, LEVEL_ADVICE, "version", "restart coteried after an upgrade", "the daemon has version %s, this command %s", theirs,
                      COTERIE_VERSION);
        else
                found(d, LEVEL_OK, "version", "", "%s", theirs);
}

static void check_conflicts(struct doctor *d) {
        const json_t *c = json_object_get(d->status, "conflicts");

        if (cli_number(c, "waiting") > 0)
                found(d, LEVEL_FAULT, "conflicts", "coterie conflicts drop, or make room, then coterie stop",
                      "%" PRIu64 " records could not be written and are in memory only", cli_number(c, "waiting"));
        if (cli_number(c, "records") > 0)
                found(d, LEVEL_ADVICE, "conflicts", "coterie conflicts: apply or drop them",
                      "%" PRIu64 " operations of a history that was left", cli_number(c, "records"));
}

static void check_level(struct doctor *d) {
        if (strcmp(cli_text(d->status, "sync_level"), "none") == 0)
                found(d, LEVEL_ADVICE, "sync level", "coterie set sync_level=filesystem, and in the configuration file",
                      "level none: a power cut may take everything since the last checkpoint");
}

/* --- the cluster */
static void check_members(struct doctor *d) {
        const json_t *members = json_object_get(d->status, "members"), *m;
        size_t i, synced = 0;

        json_array_foreach((json_t *)(uintptr_t)members, i, m) {
                if (json_is_true(json_object_get(m, "expelled")))
                        found(d, LEVEL_FAULT, "members", "look at its disk and load; it comes back by itself when it is fast enough",
                              "node %" PRIu64 " was expelled: it makes no progress", cli_number(m, "node"));
                synced += json_is_true(json_object_get(m, "synced"));
        }
        if (synced < json_array_size(members))
                found(d, LEVEL_ADVICE, "members", "wait; if it lasts, look at its log", "%zu of %zu members are synced", synced,
                      json_array_size(members));
        else
                found(d, LEVEL_OK, "members", "", "%zu, all synced", synced);
}

static void check_cluster(struct doctor *d) {
        const json_t *c = json_object_get(d->status, "cluster");

        if (!c) {
                found(d, LEVEL_OK, "cluster", "", "standalone");
                return;
        }
        if (!json_is_true(json_object_get(c, "connected"))) {
                found(d, LEVEL_FAULT, "corosync", "start corosync; coteried connects by itself", "not connected: %s",
                      cli_text(c, "problem"));
                return;
        }
        if (!json_is_true(json_object_get(c, "quorate")))
                found(d, LEVEL_FAULT, "quorum", "bring the other nodes back", "%" PRIu64 " of %" PRIu64 " votes, %" PRIu64 " are needed",
                      cli_number(c, "votes"), cli_number(c, "votes_expected"), cli_number(c, "votes_needed"));
        if (cli_text(c, "weak_quorum")[0])
                found(d, LEVEL_ADVICE, "quorum", "an odd number of votes and no special modes; a third node or qnetd",
                      "weak: %s; two halves may both be allowed to write", cli_text(c, "weak_quorum"));
        if (cli_number(c, "votes_expected") == 2 && !cli_text(c, "weak_quorum")[0])
                found(d, LEVEL_ADVICE, "quorum", "add a third vote", "two votes: the loss of either node makes the other one read-only");
        uint64_t token = cli_number(c, "token_ms");
        if (token > 0 && token < TOKEN_LOW_MS)
                found(d, LEVEL_ADVICE, "time-outs", "token: 1000 or more in corosync.conf",
                      "token %" PRIu64 " ms: short stalls of a machine count as its death", token);
        else if (token > TOKEN_HIGH_MS)
                found(d, LEVEL_ADVICE, "time-outs", "a smaller token in corosync.conf",
                      "token %" PRIu64 " ms: writers wait longer than that when a node dies", token);
        else
                found(d, LEVEL_OK, "time-outs", "", "token %" PRIu64 " ms, consensus %" PRIu64 " ms", token, cli_number(c, "consensus_ms"));
        check_members(d);
}

int cli_doctor(struct cli *cli, int argc, char **argv) {
        static void (*const checks[])(struct doctor * d) = {check_version, check_writable, check_mount,     check_cluster, check_disk,
                                                            check_usage,   check_level,    check_conflicts, check_clock,   check_kernel};
        json_t *status = NULL;

        (void)argv;
        if (argc > 0)
                return cli_usage(cli);
        int exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &status);
        if (exit != 0)
                return exit;
        struct doctor d = {.cli = cli, .status = status, .findings = json_array(), .table = table_new(4)};
        table_row(d.table, (const char *const[]){"LEVEL", "CHECK", "FINDING", "REMEDY"});
        for (size_t i = 0; i < ARRAY_LEN(checks); i++)
                checks[i](&d);
        if (cli->json)
                cli_print_json(d.findings);
        else
                table_print(d.table, stdout);
        table_free(d.table);
        json_decref(d.findings);
        json_decref(status);
        return d.faults > 0 ? CTL_FAILED : 0;
}
