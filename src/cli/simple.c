/* simple.c: commands that are one question: sync, get, set, metrics, trace, stop, version. */
#include "cli.h"

#include <string.h>
#include <unistd.h>

#define STOP_MAX_MS 60000u /* a stop has limits of its own, which add up to less */

int cli_sync(struct cli *cli, int argc, char **argv) {
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        bool checkpoint = argc == 1 && strcmp(argv[0], "--checkpoint") == 0;

        if (argc > 0 && !checkpoint)
                return cli_usage(cli);
        return cli_ask(cli, checkpoint ? 2 : 1, (const char *const[]){"sync", "checkpoint"}, &r);
}

static void setting_row(struct table *t, const json_t *o) {
        const json_t *value = json_object_get(o, "value"), *def = json_object_get(o, "default");
        const char *unit = json_string_value(json_object_get(o, "unit"));
        cleanup_free char *v = json_is_string(value) ? xstrdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
        cleanup_free char *d = json_is_string(def) ? xstrdup(json_string_value(def)) : json_dumps(def, JSON_ENCODE_ANY);

        table_row(t, (const char *const[]){json_string_value(json_object_get(o, "name")), v, unit ? unit : "", d,
                                           json_string_value(json_object_get(o, "scope")), json_string_value(json_object_get(o, "help"))});
}

int cli_get(struct cli *cli, int argc, char **argv) {
        json_t *list = NULL;

        if (argc > 1)
                return cli_usage(cli);
        int exit = cli_ask_json(cli, argc == 1 ? 2 : 1, (const char *const[]){"get", argc == 1 ? argv[0] : NULL}, &list);
        if (exit != 0)
                return exit;
        if (cli->json) {
                cli_print_json(list);
        } else if (argc == 1) {
                const json_t *value = json_object_get(json_array_get(list, 0), "value");
                cleanup_free char *v = json_is_string(value) ? xstrdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
                (void)puts(v);
        } else {
                struct table *t = table_new(6);
                table_row(t, (const char *const[]){"SETTING", "VALUE", "UNIT", "DEFAULT", "SCOPE", "WHAT"});
                for (size_t i = 0; i < json_array_size(list); i++)
                        setting_row(t, json_array_get(list, i));
                table_print(t, stdout);
                table_free(t);
        }
        json_decref(list);
        return 0;
}

int cli_set(struct cli *cli, int argc, char **argv) {
        if (argc == 0)
                return cli_usage(cli);
        for (int i = 0; i < argc; i++)
                if (!strchr(argv[i], '=') || argv[i][0] == '=')
                        return cli_usage(cli);
        for (int i = 0; i < argc; i++) {
                CLEANUP(ctl_result_done) struct ctl_result r = {0};
                char *value = strchr(argv[i], '=');
                *value++ = '\0';
                int exit = cli_ask(cli, 3, (const char *const[]){"set", argv[i], value}, &r);
                if (exit != 0)
                        return exit;
        }
        return 0;
}

static int print_body(const struct cli *cli, const char *word) {
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        int exit = cli_ask(cli, 1, &word, &r);

        if (exit == 0)
                (void)fwrite(r.body, 1, r.len, stdout);
        return exit;
}

int cli_metrics(struct cli *cli, int argc, char **argv) {
        json_t *s = NULL;
        (void)argv;
        if (argc > 0)
                return cli_usage(cli);
        if (!cli->json)
                return print_body(cli, "metrics");
        int exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &s);
        if (exit == 0)
                cli_print_json(json_object_get(s, "counters"));
        json_decref(s);
        return exit;
}

int cli_trace(struct cli *cli, int argc, char **argv) {
        (void)argv;
        return argc > 0 ? cli_usage(cli) : print_body(cli, "trace");
}

/* The daemon closes the connection when it has ended: that is waited for. */
int cli_stop(struct cli *cli, int argc, char **argv) {
        cleanup_fd int fd = -1;
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        char byte;

        (void)argv;
        if (argc > 0)
                return cli_usage(cli);
        errint_t error = ctl_connect(cli->run_dir, cli->timeout_ms, &fd);
        if (error < 0)
                return cli_ask(cli, 1, (const char *const[]){"stop"}, &r); /* says why */
        if ((error = ctl_ask(fd, 1, (const char *const[]){"stop"}, &r)) < 0)
                return cli_fail_asking(cli, error);
        if (r.status != CTL_OK)
                return cli_fail(cli, (int)r.status, "%s", r.message);
        for (uint64_t waited_ms = 0; waited_ms < STOP_MAX_MS; waited_ms += cli->timeout_ms) {
                ssize_t got = read(fd, &byte, 1);
                if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                        return 0;
        }
        return cli_fail(cli, CTL_FAILED, "the daemon was told to stop and has not ended yet; its log says what it waits for");
}

int cli_version(struct cli *cli, int argc, char **argv) {
        (void)argv;
        if (argc > 0)
                return cli_usage(cli);
        (void)printf("coterie %s\n", COTERIE_VERSION);
        return 0;
}
