/* ask.c: talking to the daemon, and how failures look. */
#include "cli.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int cli_fail(const struct cli *cli, int exit, const char *fmt, ...) {
        va_list ap;

        (void)fflush(stdout);
        (void)fprintf(stderr, "coterie%s%s: ", cli->command ? " " : "", cli->command ? cli->command : "");
        va_start(ap, fmt);
        (void)vfprintf(stderr, fmt, ap);
        va_end(ap);
        (void)fputc('\n', stderr);
        return exit;
}

int cli_usage(const struct cli *cli) {
        for (size_t i = 0; i < cli_commands_n; i++)
                if (strcmp(cli_commands[i].name, cli->command) == 0)
                        return cli_fail(cli, CTL_USAGE, "usage: coterie %s %s", cli->command, cli_commands[i].arguments);
        return CTL_USAGE;
}

int cli_fail_asking(const struct cli *cli, errint_t error) {
        switch (error) {
        case -ENOENT:
        case -ECONNREFUSED:
        case -ENOTDIR:
                return cli_fail(cli, CTL_NO_DAEMON,
                                "no coteried runs with the run directory %s; start it, or give the right one with --run-dir", cli->run_dir);
        case -EACCES:
                return cli_fail(cli, CTL_FAILED, "no right to speak with the daemon at %s; run as root or as the daemon's user",
                                cli->run_dir);
        case -ECONNRESET:
                return cli_fail(cli, CTL_NO_DAEMON,
                                "the daemon closed the connection; it may be stopping, or you are neither root nor its user");
        case -ETIMEDOUT:
                return cli_fail(cli, CTL_FAILED,
                                "the daemon at %s gives no sign of life for %llu s: it is stopped (kill -CONT continues it) or hangs; "
                                "--timeout waits longer",
                                cli->run_dir, (unsigned long long)cli->timeout_ms / 1000u);
        case -EPROTO:
                return cli_fail(cli, CTL_FAILED,
                                "the daemon speaks another version of the control protocol; use the coterie that came with it");
        default:
                return cli_fail(cli, CTL_FAILED, "%s", strerror(-error));
        }
}

int cli_ask(const struct cli *cli, size_t n, const char *const *words, struct ctl_result *ret) {
        cleanup_fd int fd = -1;
        errint_t error = ctl_connect(cli->run_dir, cli->timeout_ms, &fd);

        if (error < 0 || (error = ctl_ask(fd, n, words, ret)) < 0)
                return cli_fail_asking(cli, error);
        if (ret->status == CTL_OK)
                return 0;
        int exit = (int)ret->status;
        (void)cli_fail(cli, exit, "%s", ret->message);
        ctl_result_done(ret);
        return exit;
}

int cli_ask_json(const struct cli *cli, size_t n, const char *const *words, json_t **ret) {
        CLEANUP(ctl_result_done) struct ctl_result result = {0};
        json_error_t error;
        int exit = cli_ask(cli, n, words, &result);

        if (exit != 0)
                return exit;
        *ret = json_loadb(result.body, result.len, JSON_DECODE_ANY, &error);
        return *ret ? 0 : cli_fail(cli, CTL_FAILED, "the daemon's answer is not JSON: %s", error.text);
}

const char *cli_text(const json_t *o, const char *key) {
        const char *s = json_string_value(json_object_get(o, key));
        return s ? s : "";
}

uint64_t cli_number(const json_t *o, const char *key) {
        return (uint64_t)json_integer_value(json_object_get(o, key));
}

void cli_print_json(const json_t *j) {
        (void)json_dumpf(j, stdout, JSON_INDENT(2));
        (void)fputc('\n', stdout);
}

void cli_bytes(uint64_t v, char *buf, size_t size) {
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
        double d = (double)v;
        size_t i = 0;

        for (; d >= 1024 && i + 1 < ARRAY_LEN(units); i++)
                d /= 1024;
        (void)snprintf(buf, size, i == 0 ? "%.0f %s" : "%.1f %s", d, units[i]);
}
