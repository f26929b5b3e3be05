/* cli.h: what the commands of `coterie` share. */
#pragma once

#include "base/log.h"
#include "ctl/client.h"

#include <jansson.h>
#include <stdio.h>

#define CLI_TIMEOUT_MS 10000u

struct cli {
        const char *run_dir;
        uint64_t timeout_ms; /* for a sign of life from the daemon */
        bool json;
        const char *command;
};
struct cli_command {
        const char *name, *arguments, *summary;
        const char *help;                                /* more lines, with examples */
        int (*run)(struct cli *cli, int argc, char **argv); /* argv: after the command's name, --json and --help taken out; returns the exit code */
};
extern const struct cli_command cli_commands[];
extern const size_t cli_commands_n;

/* One line on standard error; returns the exit code. */
int cli_fail(const struct cli *cli, int exit, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int cli_usage(const struct cli *cli); /* the command's usage line */
int cli_fail_asking(const struct cli *cli, errint_t error); /* what ctl_connect or ctl_ask returned */
/* Asks the daemon; 0 with the answer, or the exit code after the line was printed. */
int cli_ask(const struct cli *cli, size_t n, const char *const *words, struct ctl_result *ret);
/* Asks and parses the body. */
int cli_ask_json(const struct cli *cli, size_t n, const char *const *words, json_t **ret);
void cli_print_json(const json_t *j);
const char *cli_text(const json_t *o, const char *key); /* "" if it has none */
uint64_t cli_number(const json_t *o, const char *key);  /* 0 likewise */
void cli_bytes(uint64_t v, char *buf, size_t size); /* "1.5 MiB" */

/* files.c */
errint_t cli_write_all(int fd, const void *p, size_t n);
errint_t cli_flush_directory_of(const char *path); /* so that the name at path is on the medium */

/* Left-aligned columns, as wide as their widest cell. Cells are copied. */
struct table;
struct table *table_new(size_t columns);
void table_row(struct table *t, const char *const *cells);
void table_print(struct table *t, FILE *f);
void table_free(struct table *t);

int cli_status(struct cli *cli, int argc, char **argv);
int cli_members(struct cli *cli, int argc, char **argv);
int cli_cluster(struct cli *cli, int argc, char **argv);
int cli_sync(struct cli *cli, int argc, char **argv);
int cli_get(struct cli *cli, int argc, char **argv);
int cli_set(struct cli *cli, int argc, char **argv);
int cli_metrics(struct cli *cli, int argc, char **argv);
int cli_trace(struct cli *cli, int argc, char **argv);
int cli_stop(struct cli *cli, int argc, char **argv);
int cli_check(struct cli *cli, int argc, char **argv);
int cli_dump(struct cli *cli, int argc, char **argv);
int cli_load(struct cli *cli, int argc, char **argv);
int cli_backup(struct cli *cli, int argc, char **argv);
int cli_restore(struct cli *cli, int argc, char **argv);
int cli_conflicts(struct cli *cli, int argc, char **argv);
int cli_doctor(struct cli *cli, int argc, char **argv);
int cli_completion(struct cli *cli, int argc, char **argv);
int cli_top(struct cli *cli, int argc, char **argv);
int cli_bench(struct cli *cli, int argc, char **argv);
int cli_probe_sync(struct cli *cli, int argc, char **argv);
int cli_version(struct cli *cli, int argc, char **argv);
