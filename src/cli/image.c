/* image.c: the daemon's state, frozen there and fetched bit by bit. */
#include "image.h"

#include <inttypes.h>
#include <string.h>

static bool parse_digest(const char *text, struct hash128 *ret) {
        return text && sscanf(text, "%16" SCNx64 "%16" SCNx64, &ret->hi, &ret->lo) == 2;
}

static int begin_image(const struct cli *cli, struct image_told *told, char token[32]) {
        json_t *o = NULL;
        int exit = cli_ask_json(cli, 2, (const char *const[]){"image", "begin"}, &o);

        if (exit != 0)
                return exit;
        const char *name = json_string_value(json_object_get(o, "token"));
        bool good = name && parse_digest(json_string_value(json_object_get(o, "digest")), &told->digest);
        (void)snprintf(token, 32, "%s", name ? name : "");
        told->pos = (struct position){.epoch = cli_number(o, "epoch"), .seq = cli_number(o, "sequence")};
        told->inodes = cli_number(o, "inodes");
        told->bytes = cli_number(o, "bytes");
        json_decref(o);
        return good ? 0 : cli_fail(cli, CTL_FAILED, "the daemon's answer is not understood; use the coterie that came with it");
}

static int fetch(const struct cli *cli, const char *token, struct progress *p, image_sink_fn sink, void *ctx) {
        for (uint64_t got = 0;;) {
                CLEANUP(ctl_result_done) struct ctl_result r = {0};
                int exit = cli_ask(cli, 3, (const char *const[]){"image", "next", token}, &r);
                if (exit != 0 || r.len == 0)
                        return exit;
                errint_t error = sink(ctx, r.body, r.len);
                if (error < 0)
                        return cli_fail(cli, CTL_FAILED, "%s",
                                        error == -EBADMSG ? "what came from the daemon is damaged" : strerror(-error));
                progress_show(p, got += r.len);
        }
}

int image_fetch(const struct cli *cli, errint_t (*begin)(void *ctx, const struct image_told *told), image_sink_fn sink, void *ctx,
                struct image_told *ret) {
        CLEANUP(ctl_result_done) struct ctl_result ended = {0};
        struct progress p;
        char token[32];
        int exit = begin_image(cli, ret, token);

        if (exit != 0)
                return exit;
        errint_t error = begin ? begin(ctx, ret) : 0;
        if (error < 0)
                exit = cli_fail(cli, CTL_FAILED, "%s", strerror(-error));
        progress_begin(&p, cli->command, ret->bytes);
        if (exit == 0)
                exit = fetch(cli, token, &p, sink, ctx);
        progress_end(&p);
        int end = cli_ask(cli, 3, (const char *const[]){"image", "end", token}, &ended);
        return exit != 0 ? exit : end;
}

static errint_t build(void *ctx, const void *p, size_t n) {
        return image_builder_add(ctx, p, n);
}

int image_fetch_state(const struct cli *cli, struct state *ret, uint64_t *ret_adopted, struct image_told *ret_told) {
        CLEANUP(image_builder_freep) struct image_builder *b = image_builder_new();
        char fault[256];
        int exit = image_fetch(cli, NULL, build, b, ret_told);

        if (exit != 0)
                return exit;
        return image_builder_end(b, ret, ret_adopted, fault, sizeof(fault)) < 0
                       ? cli_fail(cli, CTL_FAILED, "what came from the daemon is damaged: %s", fault)
                       : 0;
}
