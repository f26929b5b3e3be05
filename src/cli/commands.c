/* commands.c: the table. */
#include "cli.h"

const struct cli_command cli_commands[] = {
        {"status", "[--json]", "what the daemon is doing", "  coterie status\n  coterie status --json | jq .counters.log_bytes\n",
         cli_status},
        {"members", "[--json]", "the members of the view", "  coterie members\n", cli_members},
        {"cluster",
         "init [NAME] | init --db FILE | join --db FILE | leave [--force] | conf put FILE|install|reload | remove NODE | rename NODE NAME",
         "found a cluster, join one, leave it; corosync.conf in the tree",
         "init makes this node the founder: its tree becomes the cluster's, and empty nodes receive it. Once per cluster, on one node. Asked\n"
         "of the running daemon (NAME, if given, must be corosync's cluster_name), or done to a database that is not in use. A database that\n"
         "was used with --standalone needs no init.\n"
         "join checks that the database is empty, or makes an empty one: such a node receives the tree when coteried starts.\n"
         "leave stops this node's daemon, unless the others would have no quorum without it.\n"
         "conf put takes a corosync.conf into the tree, as corosync.conf at its top, with a version above the old one; conf install, on every\n"
         "node, puts it from there into /etc/corosync; conf reload, on one, has corosync read it, if every member has installed it.\n"
         "remove and rename edit the file in the tree (NODE: an id or a name); install and reload follow.\n\n"
         "  coterie cluster init\n  coterie cluster init --db /var/lib/coterie/tree.db\n  coterie cluster join --db /var/lib/coterie/tree.db\n",
         cli_cluster},
        {"sync", "[--checkpoint]", "wait until everything is on the medium",
         "With --checkpoint everything is brought home to the database as well, so that plain sqlite3 reads it.\n\n  coterie sync\n  "
         "coterie sync --checkpoint\n",
         cli_sync},
        {"get", "[NAME] [--json]", "show settings", "  coterie get\n  coterie get sync_level\n", cli_get},
        {"set", "NAME=VALUE…", "change settings",
         "Settings of scope cluster are replicated and kept; those of scope mount hold until the daemon ends: to keep one, write it to "
         "the\n"
         "configuration file. An empty value restores the default of a cluster setting.\n\n"
         "  coterie set sync_level=file\n  coterie set file_size_max=32M\n",
         cli_set},
        {"check", "DATABASE [--json]", "check a database that is not in use",
         "Prints one line per fault. Exit code 0: none; 1: faults, or it cannot be checked.\n\n  coterie check /var/lib/coterie/tree.db\n",
         cli_check},
        {"backup", "FILE [--replace] [--json]", "the whole state into one file, while the daemon runs",
         "The state at one position of the history: tree, settings, results of requests. The file has mode 0600, is verified after it was written, and\n"
         "appears under its name only then. A file that is there already is not overwritten, unless with --replace.\n\n"
         "  coterie backup /var/backups/coterie.backup\n  coterie backup /var/backups/coterie.backup --replace\n",
         cli_backup},
        {"restore", "FILE --db DATABASE [--json]", "make a database from a backup",
         "The database and the files beside it must not be there. It belongs to no cluster: coteried --standalone just uses it; `coterie cluster init\n"
         "--db` makes it the founder of a new cluster; started as a member of a cluster, it receives that cluster's tree.\n\n"
         "  coterie restore /var/backups/coterie.backup --db /var/lib/coterie/tree.db\n",
         cli_restore},
        {"dump", "[FILE] [--from BACKUP] [--json]", "the tree as a tar archive, while the daemon runs",
         "The tree at one position of the history, with owners, modes, times, hard links, holes, extended attributes and ACLs, in pax format, to FILE or\n"
         "standard output. Sockets are left out. With --from it comes from a backup instead of the daemon.\n\n"
         "  coterie dump | zstd > tree.tar.zst\n  coterie dump /var/backups/tree.tar\n  coterie dump --from coterie.backup | tar -t\n",
         cli_dump},
        {"load", "[FILE] [--into DIRECTORY] [--merge] [--json]", "lay a tar archive into the tree",
         "From FILE or standard input, also compressed, into the mounted tree or another directory. That must be empty, unless --merge is given: then\n"
         "what the archive has replaces what is there, and the rest stays. Not one step: others see the files come.\n\n"
         "  coterie load /var/backups/tree.tar\n  coterie load tree.tar.zst --into /mnt/coterie/old\n",
         cli_load},
        {"conflicts", "[list | show | diff | apply | drop] [ID… | --all] [--db DATABASE] [--json]", "operations that a lost history had",
         "What this node had applied and what the history that it took over does not have: never a write that had returned, but for what GUARANTEES names.\n"
         "Each is kept as a file in DATABASE-conflicts. An ID is EPOCH-SEQUENCE, with what is behind it if that is needed.\n\n"
         "  list                 all of them (as without a word)\n"
         "  show ID [--content]  who, when, what; or the bytes that it carried\n"
         "  diff ID              what doing it again would change\n"
         "  apply ID [--keep]    do it again, through the mount and by path; then the record is dropped\n"
         "  drop ID              forget it\n\n"
         "  coterie conflicts\n  coterie conflicts diff 7-1043\n  coterie conflicts apply 7-1043 7-1044\n  coterie conflicts drop --all\n",
         cli_conflicts},
        {"doctor", "[--json]", "what is wrong here, or about to be, and the remedy",
         "Looks at the daemon, its mount, database and disk, the clock, the cluster's time-outs and quorum. Exit code 1: something is at fault.\n\n"
         "  coterie doctor\n  coterie doctor --json | jq -r '.[].finding'\n",
         cli_doctor},
        {"top", "[--interval SECONDS] [--count N] [--json]", "what the daemon does now",
         "Rates between two looks at its counters, and the members; q ends it. Where standard output is no terminal, a line per look.\n\n"
         "  --interval SECONDS  between two looks (1)\n"
         "  --count N           end after so many\n"
         "  --json              one object per line\n\n"
         "  coterie top\n  coterie top --count 3 --interval 0.5\n",
         cli_top},
        {"bench", "write DIRECTORY [OPTIONS]", "write files and count the bytes to disk",
         "  --size SIZE|MIN..MAX  of a file, up to 64M (64K)\n"
         "  --max-bytes SIZE      stop after so many (64M)\n"
         "  --max-time SECONDS    stop after so long (30)\n"
         "  --interval SECONDS    a line so often (1)\n"
         "  --threads N           writers (1)\n"
         "  --files N             files per writer, rewritten in turn (16)\n"
         "  --fsync               fsync each file before it is closed\n"
         "  --text                text that compresses, instead of pseudo-random bytes\n"
         "  --json                one object per line\n\n"
         "  coterie bench write /mnt/coterie/tmp --size 64K --max-time 10\n",
         cli_bench},
        {"probe-sync", "DIRECTORY [--seconds N] [--apply FILE] [--json]",
         "measure what durability costs on a volume, and what to use there",
         "  --seconds N   how long altogether (30)\n"
         "  --apply FILE  write what is recommended to a configuration file; its other lines stay\n\n"
         "  coterie probe-sync /var/lib/coterie\n  coterie probe-sync /var/lib/coterie --seconds 60 --apply /etc/coterie/coterie.conf\n",
         cli_probe_sync},
        {"metrics", "[--json]", "counters and gauges in Prometheus' text format", "  coterie metrics\n", cli_metrics},
        {"trace", "", "the last moves of the daemon's state machines", "  coterie trace | tail\n", cli_trace},
        {"stop", "", "stop the daemon and wait until it has ended", "  coterie stop\n", cli_stop},
        {"completion", "bash | zsh | fish", "a completion script for the shell",
         "  source <(coterie completion bash)\n  coterie completion fish > coterie.fish\n", cli_completion},
        {"version", "", "the version of this program", "  coterie version\n", cli_version},
};
const size_t cli_commands_n = ARRAY_LEN(cli_commands);
