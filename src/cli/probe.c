/* probe.c: `coterie probe-sync`: measures what making a record durable costs on a volume (store/probe.h), shows it, and writes what it
 * recommends to a configuration file. */
#include "cli.h"
#include "interrupt.h"

#include "store/probe.h"
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define APPLY_FILE_MAX (1024u * 1024u)

struct probe_arguments {
        const char *dir, *apply;
        double seconds;
};

/* --- progress: one line that is written over, on a terminal only */

static bool show_progress(void *ctx, const struct probe_result *r, bool finished, unsigned done, unsigned total, const char *phase) {
        bool terminal = *(bool *)ctx;

        if (interrupted())
                return false;
        if (!terminal || finished)
                return true;
        if (r)
                (void)fprintf(stderr, "\r\033[K[%u/%u] %s, %s%s, %u bytes", done + 1, total, probe_state_text(r->state),
                              sync_method_text(r->method), r->direct ? " with O_DIRECT" : "", r->record);
        else
                (void)fprintf(stderr, "\r\033[K[%u/%u] %s", done, total, phase ? phase : "");
        (void)fflush(stderr);
        return true;
}

/* --- showing */

static void result_row(struct table *t, const struct probe_result *r) {
        char record[16], ops[24], p50[24], p99[24], bytes[24] = "-", flushes[24] = "-";

        (void)snprintf(record, sizeof(record), "%u", r->record);
        if (r->error < 0) {
                table_row(t, (const char *const[]){probe_state_text(r->state), sync_method_text(r->method), r->direct ? "yes" : "no",
                                                   record, "-", "-", "-", "-", "-", r->error == -EINVAL ? "refused" : strerror(-r->error)});
                return;
        }
        (void)snprintf(ops, sizeof(ops), "%.0f", r->ops_per_s);
        (void)snprintf(p50, sizeof(p50), "%.0f", r->p50_us);
        (void)snprintf(p99, sizeof(p99), "%.0f", r->p99_us);
        if (r->counted) {
                (void)snprintf(bytes, sizeof(bytes), "%.0f", r->device_bytes);
                (void)snprintf(flushes, sizeof(flushes), "%.2f", r->device_flushes);
        }
        table_row(t, (const char *const[]){probe_state_text(r->state), sync_method_text(r->method), r->direct ? "yes" : "no", record, ops,
                                           p50, p99, bytes, flushes, r->no_flush ? "no flush: not durable" : ""});
}

/* As the configuration file has it. */
static void print_settings(FILE *f, const struct probe_report *r) {
        char padding[16] = "auto";

        if (r->advice.padding)
                (void)snprintf(padding, sizeof(padding), "%u", r->advice.padding);
        (void)fprintf(f, "sync_level = %s\nsync_method = %s\ndirect = %s\npadding = %s\n", sync_level_text(r->advice.level),
                      sync_method_text(r->advice.method), r->advice.direct ? "yes" : "no", padding);
}

static void print_report(const struct probe_report *r) {
        struct table *t = table_new(10);

        (void)printf("filesystem %s on %s (%s)\ndevice %s%s%s, sectors %u logical, %u physical\n\n", r->fs_type[0] ? r->fs_type : "unknown",
                     r->source[0] ? r->source : "unknown", r->options, r->device[0] ? r->device : "not found",
                     r->write_cache[0] ? ", cache " : "", r->write_cache, r->info.logical_sector, r->info.physical_sector);
        table_row(t,
                  (const char *const[]){"FILE", "METHOD", "DIRECT", "BYTES", "OPS/S", "P50 US", "P99 US", "DEVICE BYTES", "FLUSHES", ""});
        for (size_t i = 0; i < r->n; i++)
                result_row(t, &r->results[i]);
        table_print(t, stdout);
        table_free(t);
        if (r->trailing_measured)
                (void)printf("\nan isolated record of 512 bytes: %" PRIu64 " bytes and %" PRIu64 " flushes at once, %" PRIu64
                             " bytes and %" PRIu64 " flushes more within %d s\n",
                             r->isolated_bytes, r->isolated_flushes, r->trailing_bytes, r->trailing_flushes, PROBE_TRAILING_SECONDS);
        else if (r->device[0])
                (void)printf("\nan isolated record was not measured: that takes --seconds %d or more\n", PROBE_SECONDS_FOR_TRAILING);
        for (unsigned i = 0; i < PROBE_WARN_COUNT; i++)
                if (r->warnings & (1u << i))
                        (void)printf("warning: %s\n", probe_warning_text(1u << i));
        (void)printf("\nrecommended:\n");
        print_settings(stdout, r);
        (void)printf("%s\n", r->advice.reason);
}

static json_t *result_json(const struct probe_result *r) {
        json_t *o = json_pack("{s:s, s:s, s:b, s:i, s:i}", "file", probe_state_text(r->state), "method", sync_method_text(r->method),
                              "direct", (int)r->direct, "record", (int)r->record, "written", (int)r->written);

        if (r->error < 0) {
                (void)json_object_set_new(o, "error", json_string(strerror(-r->error)));
                return o;
        }
        (void)json_object_set_new(o, "operations", json_integer((json_int_t)r->ops));
        (void)json_object_set_new(o, "ops_per_second", json_real(r->ops_per_s));
        (void)json_object_set_new(o, "p50_us", json_real(r->p50_us));
        (void)json_object_set_new(o, "p99_us", json_real(r->p99_us));
        if (r->counted) {
                (void)json_object_set_new(o, "device_bytes", json_real(r->device_bytes));
                (void)json_object_set_new(o, "device_flushes", json_real(r->device_flushes));
        }
        (void)json_object_set_new(o, "no_flush", json_boolean(r->no_flush));
        return o;
}

static void report_json(const struct probe_report *r) {
        json_t *results = json_array(), *warnings = json_array();

        for (size_t i = 0; i < r->n; i++)
                (void)json_array_append_new(results, result_json(&r->results[i]));
        for (unsigned i = 0; i < PROBE_WARN_COUNT; i++)
                if (r->warnings & (1u << i))
                        (void)json_array_append_new(warnings, json_string(probe_warning_text(1u << i)));
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:o, s:o, s:{s:s, s:s, s:b, s:i, s:s}}", "filesystem", r->fs_type,
                              "source", r->source, "options", r->options, "device", r->device, "write_cache", r->write_cache,
                              "logical_sector", (int)r->info.logical_sector, "physical_sector", (int)r->info.physical_sector, "idle_bytes",
                              (json_int_t)r->idle_bytes, "results", results, "warnings", warnings, "recommended", "sync_level",
                              sync_level_text(r->advice.level), "sync_method", sync_method_text(r->advice.method), "direct",
                              (int)r->advice.direct, "padding", (int)r->advice.padding, "reason", r->advice.reason);
        if (r->trailing_measured)
                (void)json_object_set_new(o, "isolated",
                                          json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)r->isolated_bytes, "flushes",
                                                    (json_int_t)r->isolated_flushes, "trailing_bytes", (json_int_t)r->trailing_bytes,
                                                    "trailing_flushes", (json_int_t)r->trailing_flushes));
        cli_print_json(o);
        json_decref(o);
}

/* --- applying: lines of these names are replaced, the rest of the file stays as it is */

static bool is_setting_line(const char *line, size_t n) {
        static const char *const names[] = {"sync_level", "sync_method", "direct", "padding"};
        size_t skip = strspn(line, " \t");

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                size_t len = strlen(names[i]);
                if (skip + len > n)
                        continue;
                bool same = true;
                for (size_t k = 0; k < len && same; k++)
                        same = line[skip + k] == names[i][k] || (names[i][k] == '_' && line[skip + k] == '-');
                if (same && strchr(" \t=", line[skip + len]))
                        return true;
        }
        return false;
}

static errint_t read_config(const char *path, char **ret) {
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        cleanup_free char *text = xcalloc(1, APPLY_FILE_MAX + 1);
        size_t n = 0;

        if (fd < 0 && errno != ENOENT)
                return -errno;
        while (fd >= 0 && n < APPLY_FILE_MAX) {
                ssize_t got = read(fd, text + n, APPLY_FILE_MAX - n);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                if (got == 0)
                        break;
                n += (size_t)got;
        }
        if (n == APPLY_FILE_MAX)
                return -EFBIG;
        *ret = steal_pointer(&text);
        return 0;
}

static void write_settings(FILE *f, char *text, const struct probe_report *r) {
        for (char *line = text; *line;) {
                size_t n = strcspn(line, "\n");
                bool last = line[n] == '\0';
                if (!is_setting_line(line, n))
                        (void)fprintf(f, "%.*s\n", (int)n, line);
                line += n + (last ? 0 : 1);
        }
        print_settings(f, r);
}

/* Opened before the measuring, so that nobody waits for it in vain. Written beside and renamed over: there is always a whole file. */
struct apply {
        const char *path;
        char *text, *temporary;
        FILE *f;
};

static void apply_done(struct apply *a) {
        if (a->f) {
                (void)fclose(a->f); /* not wanted any more */
                (void)unlink(a->temporary);
        }
        free(a->text);
        free(a->temporary);
}

static errint_t apply_begin(struct apply *a, const char *path) {
        struct stat st;
        errint_t error = read_config(path, &a->text);

        if (error < 0)
                return error;
        mode_t mode = stat(path, &st) == 0 ? st.st_mode & 07777 : 0644;
        a->path = path;
        a->temporary = xmalloc(strlen(path) + sizeof(".new"));
        (void)sprintf(a->temporary, "%s.new", path);
        if (!(a->f = fopen(a->temporary, "we")))
                return -errno;
        return fchmod(fileno(a->f), mode) < 0 ? -errno : 0;
}

static errint_t apply_end(struct apply *a, const struct probe_report *r) {
        write_settings(a->f, a->text, r);
        bool failed = ferror(a->f) || fflush(a->f) != 0 || fsync(fileno(a->f)) < 0;
        errint_t error = failed ? -errno : 0;

        if (fclose(steal_pointer(&a->f)) != 0 && error == 0)
                error = -errno;
        if (error == 0 && rename(a->temporary, a->path) < 0)
                error = -errno;
        if (error < 0)
                (void)unlink(a->temporary);
        return error;
}

/* --- */

/* 0, or the exit code after one line that names what is wrong. */
static int take_arguments(struct cli *cli, struct probe_arguments *a, int argc, char **argv) {
        for (int i = 0; i < argc; i++) {
                const char *value = i + 1 < argc ? argv[i + 1] : NULL;
                char *end;
                if (strcmp(argv[i], "--seconds") == 0) {
                        a->seconds = value ? strtod(value, &end) : 0;
                        if (!value || *end || !(a->seconds >= 1 && a->seconds <= 3600))
                                return cli_fail(cli, CTL_USAGE, "--seconds takes a number from 1 to 3600%s%s", value ? ", not " : "",
                                                value ? value : "");
                        i++;
                } else if (strcmp(argv[i], "--apply") == 0) {
                        if (!value)
                                return cli_fail(cli, CTL_USAGE, "--apply takes a configuration file");
                        a->apply = argv[++i];
                } else if (argv[i][0] == '-') {
                        return cli_fail(cli, CTL_USAGE, "unknown option %s; coterie probe-sync --help", argv[i]);
                } else if (a->dir) {
                        return cli_fail(cli, CTL_USAGE, "one directory, not %s as well", argv[i]);
                } else {
                        a->dir = argv[i];
                }
        }
        return a->dir ? 0 : cli_usage(cli);
}

int cli_probe_sync(struct cli *cli, int argc, char **argv) {
        struct probe_arguments a = {.seconds = 30};
        bool terminal = isatty(STDERR_FILENO) != 0;
        CLEANUP(probe_report_freep) struct probe_report *r = NULL;
        CLEANUP(apply_done) struct apply apply = {0};
        int exit = take_arguments(cli, &a, argc, argv);
        errint_t error = 0;

        if (exit != 0)
                return exit;
        interrupt_catch();
        if (a.apply && (error = apply_begin(&apply, a.apply)) < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", a.apply, strerror(-error));
        struct probe_config config = {.dir = a.dir, .seconds = a.seconds, .progress = show_progress, .ctx = &terminal};
        error = probe_run(&config, &r);
        if (terminal)
                (void)fprintf(stderr, "\r\033[K");
        if (error < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", a.dir, error == -ECANCELED ? "interrupted" : strerror(-error));
        if (cli->json)
                report_json(r);
        else
                print_report(r);
        if (!a.apply)
                return 0;
        if ((error = apply_end(&apply, r)) < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", a.apply, strerror(-error));
        if (!cli->json)
                (void)printf("written to %s\n", a.apply);
        return 0;
}
