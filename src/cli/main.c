/* main.c: coterie: options, the command, exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 no quorum. */
#include "cli.h"

#include <string.h>

static void print_help(FILE *f) {
        struct table *t = table_new(2);

        (void)fprintf(f, "usage: coterie [--run-dir DIRECTORY] [--timeout SECONDS] [--json] COMMAND [ARGUMENTS]\n\n");
        for (size_t i = 0; i < cli_commands_n; i++) {
                char left[32];
                (void)snprintf(left, sizeof(left), "  %s", cli_commands[i].name);
                table_row(t, (const char *const[]){left, cli_commands[i].summary});
        }
        table_print(t, f);
        table_free(t);
        (void)fprintf(f, "\n  --run-dir DIRECTORY  of the daemon (/run/coterie, or $COTERIE_RUN_DIR)\n"
                         "  --timeout SECONDS    for a sign of life from the daemon (10)\n"
                         "  --json               print JSON\n"
                         "  --help               of coterie; coterie COMMAND --help: its arguments, and examples\n"
                         "  --version            print the version\n\n"
                         "exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 no quorum\n");
}

static const struct cli_command *find(const char *name) {
        for (size_t i = 0; i < cli_commands_n; i++)
                if (strcmp(cli_commands[i].name, name) == 0)
                        return &cli_commands[i];
        return NULL;
}

static int run(struct cli *cli, const struct cli_command *command, int argc, char **argv) {
        int n = 0;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                        (void)printf("usage: coterie %s %s\n%s\n\n%s", command->name, command->arguments, command->summary, command->help);
                        return 0;
                }
                if (strcmp(argv[i], "--json") == 0)
                        cli->json = true;
                else
                        argv[n++] = argv[i];
        }
        int exit = command->run(cli, n, argv);
        if (fflush(stdout) != 0 && exit == 0)
                return cli_fail(cli, CTL_FAILED, "standard output: %s", strerror(errno));
        return exit;
}

static int bad_option(const struct cli *cli, const char *option) {
        char quoted[96];
        return cli_fail(cli, CTL_USAGE, "unknown option %s; coterie --help shows the usage",
                        log_quote(option, strlen(option), quoted, sizeof(quoted)));
}

/* The value of --name VALUE or --name=VALUE; NULL: it is another option, or has none. */
static const char *value_of(const char *name, int argc, char **argv, int *i) {
        size_t n = strlen(name);

        if (strcmp(argv[*i], name) == 0)
                return *i + 1 < argc ? argv[++*i] : NULL;
        return strncmp(argv[*i], name, n) == 0 && argv[*i][n] == '=' ? argv[*i] + n + 1 : NULL;
}

static int bad_timeout(const struct cli *cli, const char *value) {
        char quoted[96];
        return cli_fail(cli, CTL_USAGE, "--timeout: bad value %s; valid: 1 to 86400 seconds",
                        log_quote(value, strlen(value), quoted, sizeof(quoted)));
}

static bool set_timeout(struct cli *cli, const char *value) {
        char *end;
        unsigned long seconds = strtoul(value, &end, 10);

        if (value[0] < '0' || value[0] > '9' || *end || seconds < 1 || seconds > 86400)
                return false;
        cli->timeout_ms = seconds * UINT64_C(1000);
        return true;
}

int main(int argc, char **argv) {
        const char *environment = getenv("COTERIE_RUN_DIR"), *value;
        struct cli cli = {.run_dir = environment && environment[0] ? environment : "/run/coterie", .timeout_ms = CLI_TIMEOUT_MS};
        char quoted[96];
        int i = 1;

        for (; i < argc && argv[i][0] == '-'; i++) {
                if ((value = value_of("--run-dir", argc, argv, &i))) {
                        cli.run_dir = value;
                } else if ((value = value_of("--timeout", argc, argv, &i))) {
                        if (!set_timeout(&cli, value))
                                return bad_timeout(&cli, value);
                } else if (strcmp(argv[i], "--json") == 0) {
                        cli.json = true;
                } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                        print_help(stdout);
                        return 0;
                } else if (strcmp(argv[i], "--version") == 0) {
                        return cli_version(&cli, 0, NULL);
                } else {
                        return bad_option(&cli, argv[i]);
                }
        }
        if (i >= argc) {
                print_help(stderr);
                return CTL_USAGE;
        }
        const struct cli_command *command = find(argv[i]);
        if (!command)
                return cli_fail(&cli, CTL_USAGE, "unknown command %s; coterie --help lists them",
                                log_quote(argv[i], strlen(argv[i]), quoted, sizeof(quoted)));
        cli.command = command->name;
        return run(&cli, command, argc - i - 1, argv + i + 1);
}
