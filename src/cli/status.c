/* status.c: `coterie status` and `coterie members`. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

static bool flag(const json_t *o, const char *key) {
        return json_is_true(json_object_get(o, key));
}

static void line(struct table *t, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void line(struct table *t, const char *name, const char *fmt, ...) {
        char value[1024];
        va_list ap;

        va_start(ap, fmt);
        (void)vsnprintf(value, sizeof(value), fmt, ap);
        va_end(ap);
        table_row(t, (const char *const[]){name, value});
}

static void usage_lines(struct table *t, const json_t *usage) {
        char used[32], max[32];

        cli_bytes(cli_number(usage, "bytes"), used, sizeof(used));
        cli_bytes(cli_number(usage, "bytes_max"), max, sizeof(max));
        line(t, "tree", "%s of %s, %" PRIu64 " of %" PRIu64 " inodes", used, max, cli_number(usage, "inodes"),
             cli_number(usage, "inodes_max"));
}

static void written_line(struct table *t, const json_t *counters) {
        char log[32], content[32], home[32];

        cli_bytes(cli_number(counters, "log_bytes"), log, sizeof(log));
        cli_bytes(cli_number(counters, "content_bytes"), content, sizeof(content));
        cli_bytes(cli_number(counters, "home_bytes"), home, sizeof(home));
        line(t, "written", "log %s, content %s, home %s", log, content, home);
        line(t, "operations", "%" PRIu64 " (%" PRIu64 " refused), %" PRIu64 " barriers, %" PRIu64 " checkpoints",
             cli_number(counters, "operations"), cli_number(counters, "operations_refused"), cli_number(counters, "barriers"),
             cli_number(counters, "checkpoints"));
}

static void cluster_lines(struct table *t, const json_t *c) {
        const json_t *ring = json_object_get(c, "ring");
        const char *weak = cli_text(c, "weak_quorum");

        if (!c)
                return;
        if (!flag(c, "connected")) {
                line(t, "cluster", "not connected to corosync");
                return;
        }
        line(t, "cluster", "%s, node %" PRIu64 ", ring %" PRIu64 ".%" PRIu64, cli_text(c, "name"), cli_number(c, "node"),
             cli_number(ring, "node"), cli_number(ring, "sequence"));
        line(t, "quorum", "%s: %" PRIu64 " of %" PRIu64 " votes, %" PRIu64 " needed", flag(c, "quorate") ? "yes" : "no",
             cli_number(c, "votes"), cli_number(c, "votes_expected"), cli_number(c, "votes_needed"));
        if (weak[0])
                line(t, "", "weak: %s; two halves may both have been allowed to write", weak);
        line(t, "time-outs", "token %" PRIu64 " ms, consensus %" PRIu64 " ms", cli_number(c, "token_ms"), cli_number(c, "consensus_ms"));
}

static void progress_line(struct table *t, const json_t *p) {
        char received[32];

        if (!p)
                return;
        cli_bytes(cli_number(p, "received_bytes"), received, sizeof(received));
        line(t, "catching up",
             "with node %" PRIu64 " by %s, to sequence %" PRIu64 ": %s received, %" PRIu64 " objects known to be missing%s",
             cli_number(p, "from_node"), cli_text(p, "by"), cli_number(p, "to_sequence"), received, cli_number(p, "missing_objects"),
             flag(p, "writing") ? ", writing it" : "");
}

static void print_status(const json_t *s) {
        struct table *t = table_new(2);
        const json_t *store = json_object_get(s, "store");
        const char *reason = cli_text(s, "reason");

        line(t, "mount", "%s (%s, pid %" PRIu64 ")", cli_text(s, "mountpoint"), cli_text(s, "mode"), cli_number(s, "pid"));
        line(t, "database", "%s", cli_text(s, "database"));
        line(t, "state", "%s%s%s%s",
             !flag(s, "writable") ? "read-only"
             : flag(s, "primary") ? "writable"
                                  : "requests wait",
             reason[0] ? ": " : "", reason, flag(store, "waiting") ? " (waiting for the disk)" : "");
        cluster_lines(t, json_object_get(s, "cluster"));
        progress_line(t, json_object_get(s, "catching_up"));
        line(t, "position", "epoch %" PRIu64 ", sequence %" PRIu64 ", stable up to %" PRIu64 ", on the medium up to %" PRIu64,
             cli_number(s, "epoch"), cli_number(s, "sequence"), cli_number(s, "stable_sequence"), cli_number(store, "flushed_sequence"));
        line(t, "digest", "%s", cli_text(s, "digest"));
        line(t, "sync level", "%s (%s, at least every %s or %s)", cli_text(s, "sync_level"), cli_text(s, "sync_method"),
             cli_text(s, "commit_interval"), cli_text(s, "commit_bytes"));
        usage_lines(t, json_object_get(s, "usage"));
        written_line(t, json_object_get(s, "counters"));
        uint64_t conflicts =
                cli_number(json_object_get(s, "conflicts"), "records") + cli_number(json_object_get(s, "conflicts"), "waiting");
        if (conflicts > 0)
                line(t, "conflicts", "%" PRIu64 ": operations of a history that was left; see coterie conflicts", conflicts);
        line(t, "members", "%zu", json_array_size(json_object_get(s, "members")));
        table_print(t, stdout);
        table_free(t);
}

static void print_members(const json_t *list) {
        struct table *t = table_new(5);

        table_row(t, (const char *const[]){"NODE", "NAME", "PID", "STATE", "CONFIRMED"});
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *m = json_array_get(list, i);
                char node[24], pid[24], seq[24];
                (void)snprintf(node, sizeof(node), "%" PRIu64, cli_number(m, "node"));
                (void)snprintf(pid, sizeof(pid), "%" PRIu64, cli_number(m, "pid"));
                (void)snprintf(seq, sizeof(seq), "%" PRIu64, cli_number(m, "acked_sequence"));
                table_row(t, (const char *const[]){node, cli_text(m, "name"), pid,
                                                   flag(m, "expelled") ? "expelled"
                                                   : flag(m, "synced") ? "synced"
                                                                       : "joining",
                                                   seq});
        }
        table_print(t, stdout);
        table_free(t);
}

/* The whole status, or the part of it that `key` names. */
static int show(struct cli *cli, int argc, const char *key, void (*print)(const json_t *j)) {
        json_t *s = NULL;

        if (argc > 0)
                return cli_usage(cli);
        int exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &s);
        if (exit != 0)
                return exit;
        const json_t *part = key ? json_object_get(s, key) : s;
        if (cli->json)
                cli_print_json(part);
        else
                print(part);
        json_decref(s);
        return 0;
}

int cli_status(struct cli *cli, int argc, char **argv) {
        (void)argv;
        return show(cli, argc, NULL, print_status);
}

int cli_members(struct cli *cli, int argc, char **argv) {
        (void)argv;
        return show(cli, argc, "members", print_members);
}
