/* check.c: `coterie check DB`: offline, through the store's own checker; the daemon is not asked. */
#include "cli.h"

#include "store/store.h"
#include <inttypes.h>
#include <string.h>

struct faults {
        const struct cli *cli;
        json_t *list;
};

static void fault(void *ctx, const char *text) {
        struct faults *f = ctx;
        char quoted[1024];

        if (!f->cli->json) {
                (void)printf("%s\n", text);
                return;
        }
        json_t *j = json_string(text);
        if (!j)
                j = json_string(log_quote(text, strlen(text), quoted, sizeof(quoted)));
        (void)json_array_append_new(f->list, j); /* an array of our own */
}

static void print_result(const struct cli *cli, const char *path, const struct store_check_result *r, json_t *faults) {
        char digest[HASH128_TEXT];

        hash128_text(r->digest, digest);
        if (cli->json) {
                json_t *o =
                        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:O}", "database", path, "inodes", (json_int_t)r->inodes,
                                  "entries", (json_int_t)r->entries, "content_bytes", (json_int_t)r->content_bytes, "log_records",
                                  (json_int_t)r->log_records, "epoch", (json_int_t)r->pos.epoch, "sequence", (json_int_t)r->pos.seq,
                                  "digest", digest, "faults", (json_int_t)r->faults, "lines", faults);
                cli_print_json(o);
                json_decref(o);
                return;
        }
        (void)printf("%s: %" PRIu64 " inodes, %" PRIu64 " entries, %" PRIu64 " bytes of content, %" PRIu64
                     " log records, position (%" PRIu64 ", %" PRIu64 "), digest %s: ",
                     path, r->inodes, r->entries, r->content_bytes, r->log_records, r->pos.epoch, r->pos.seq, digest);
        if (r->faults == 0)
                (void)printf("no fault\n");
        else
                (void)printf("%" PRIu64 " fault%s\n", r->faults, r->faults == 1 ? "" : "s");
}

int cli_check(struct cli *cli, int argc, char **argv) {
        struct store_check_result r = {0};
        struct faults f = {.cli = cli};

        if (argc != 1)
                return cli_usage(cli);
        f.list = json_array();
        errint_t error = store_check(argv[0], disk_system(), fault, &f, &r);
        if (error == 0)
                print_result(cli, argv[0], &r, f.list);
        json_decref(f.list);
        if (error == -ENOENT)
                return cli_fail(cli, CTL_FAILED, "%s: no such database", argv[0]);
        if (error == -EBUSY)
                return cli_fail(cli, CTL_FAILED, "%s is in use by a running coteried; stop it first", argv[0]);
        if (error < 0)
                return cli_fail(cli, CTL_FAILED, "%s cannot be checked: %s", argv[0], strerror(-error));
        return r.faults == 0 ? 0 : CTL_FAILED;
}
