/* commands.c: what `coterie` can ask of a running daemon. Each answers at once or keeps the call until the answer is there. */
#include "daemon_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct daemon *daemon_of(const struct ctl_call *c) {
        return ctl_call_ctx(c);
}

static void reply_text(struct ctl_call *c, char *body) {
        ctl_call_reply(c, CTL_OK, "", body, strlen(body));
        free(body);
}

/* what: what failed, if the command does not say it; or "" */
static void reply_error(struct ctl_call *c, struct daemon *d, errint_t error, const char *what) {
        if (error == -EROFS) {
                struct engine_status s;
                engine_status(d->engine, &s);
                char reason[512];
                cluster_reason(d, &s, reason, sizeof(reason));
                ctl_call_fail(c, s.store_failed ? CTL_FAILED : CTL_NO_QUORUM, "%s%sthe node is read-only: %s", what, what[0] ? ": " : "",
                              reason[0] ? reason : "no quorum");
                return;
        }
        ctl_call_fail(c, CTL_FAILED, "%s%s%s", what, what[0] ? ": " : "", strerror(-error));
}

static void run_status(struct ctl_call *c) {
        reply_text(c, report_status(daemon_of(c)));
}

static void run_metrics(struct ctl_call *c) {
        reply_text(c, report_metrics(daemon_of(c)));
}

/* --- sync */

static void checkpoint_done(void *ctx, errint_t error) {
        struct ctl_call *c = ctx;
        if (error < 0)
                reply_error(c, daemon_of(c), error, "checkpoint");
        else
                ctl_call_reply(c, CTL_OK, "", NULL, 0);
}

static void barrier_done(void *ctx, const struct op_result *result) {
        struct ctl_call *c = ctx;
        if (result->error < 0)
                reply_error(c, daemon_of(c), result->error, "");
        else if (ctl_call_count(c) > 0)
                engine_checkpoint(daemon_of(c)->engine, checkpoint_done, c);
        else
                ctl_call_reply(c, CTL_OK, "", NULL, 0);
}

static void flushed(void *ctx) {
        struct ctl_call *c = ctx;
        engine_barrier(daemon_of(c)->engine, barrier_done, c);
}

static void run_sync(struct ctl_call *c) {
        if (ctl_call_count(c) > 0 && strcmp(ctl_call_word(c, 0), "checkpoint") != 0) {
                ctl_call_fail(c, CTL_USAGE, "usage: sync [checkpoint]");
                return;
        }
        fs_shutdown(daemon_of(c)->fs, flushed, c); /* what was written and not closed yet counts as well */
}

/* --- set and get */

static void set_done(void *ctx, errint_t error) {
        struct ctl_call *c = ctx;
        if (error < 0)
                reply_error(c, daemon_of(c), error, ctl_call_word(c, 0));
        else
                ctl_call_reply(c, CTL_OK, "", NULL, 0);
}

static void setting_done(void *ctx, const struct op_result *result) {
        set_done(ctx, result->error);
}

static void set_replicated(struct ctl_call *c, const struct setting_info *info, const char *value) {
        struct daemon *d = daemon_of(c);
        struct settings tried;
        struct op op = {.kind = OP_SETTING,
                        .caller = {.pid = (int32_t)getpid(), .program = "coterie"},
                        .setting = {.name = {.text = info->name, .len = strlen(info->name)}, .text = value, .len = strlen(value)}};

        settings_default(&tried);
        if (settings_set(&tried, info->name, strlen(info->name), value, strlen(value)) < 0) {
                ctl_call_fail(c, CTL_USAGE, "%s: bad value; valid: %llu to %llu%s%s, with K, M or G, or nothing for the default",
                              info->name, (unsigned long long)info->min, (unsigned long long)info->max, info->unit[0] ? " " : "",
                              info->unit);
                return;
        }
        env_system()->realtime(NULL, &op.time.sec, &op.time.nsec);
        engine_submit(d->engine, &op, setting_done, c, NULL);
}

static void run_set(struct ctl_call *c) {
        const char *name = ctl_call_word(c, 0), *value = ctl_call_word(c, 1);
        const struct setting_info *info = settings_find(name, strlen(name));
        char reason[OPTIONS_REASON], quoted[96];

        if (info)
                set_replicated(c, info, value);
        else if (!mount_setting_find(name))
                ctl_call_fail(c, CTL_USAGE, "no setting is named %s; `coterie get` lists them",
                              log_quote(name, strlen(name), quoted, sizeof(quoted)));
        else if (mount_setting_set(daemon_of(c), name, value, set_done, c, reason) < 0)
                ctl_call_fail(c, CTL_USAGE, "%s", reason);
}

static void set_text(json_t *o, const char *key, const char *value) {
        (void)json_object_set_new(o, key, json_string(value)); /* our own texts */
}

static json_t *describe_replicated(const struct settings *s, const struct setting_info *info) {
        json_t *o = json_object();
        set_text(o, "name", info->name);
        (void)json_object_set_new(o, "value", json_integer((json_int_t)settings_get(s, info)));
        (void)json_object_set_new(o, "default", json_integer((json_int_t)info->def));
        (void)json_object_set_new(o, "min", json_integer((json_int_t)info->min));
        (void)json_object_set_new(o, "max", json_integer((json_int_t)info->max));
        set_text(o, "unit", info->unit);
        set_text(o, "scope", "cluster");
        set_text(o, "help", info->help);
        return o;
}

static json_t *describe_mount(struct daemon *d, const struct mount_setting *m) {
        const struct option_info *info = options_find(m->name);
        json_t *o = json_object();
        char value[OPTION_TEXT_MAX];

        mount_setting_text(d, m->name, value, sizeof(value));
        set_text(o, "name", m->name);
        set_text(o, "value", value);
        set_text(o, "default", info->def);
        if (info->choices)
                set_text(o, "choices", info->choices);
        set_text(o, "scope", "mount");
        set_text(o, "help", m->help);
        return o;
}

static void run_get(struct ctl_call *c) {
        struct daemon *d = daemon_of(c);
        const char *wanted = ctl_call_count(c) > 0 ? ctl_call_word(c, 0) : NULL;
        json_t *list = json_array();
        struct settings now;
        size_t n;
        const struct mount_setting *m = mount_settings(&n);

        const struct state *state = shared_state_read(d->state);
        now = *tree_settings(state->tree);
        shared_state_done_read(d->state);
        for (size_t i = 0; i < settings_count(); i++)
                if (!wanted || strcmp(wanted, settings_info(i)->name) == 0)
                        (void)json_array_append_new(list, describe_replicated(&now, settings_info(i)));
        for (size_t i = 0; i < n; i++)
                if (!wanted || strcmp(wanted, m[i].name) == 0)
                        (void)json_array_append_new(list, describe_mount(d, &m[i]));
        char quoted[96];
        if (json_array_size(list) == 0)
                ctl_call_fail(c, CTL_USAGE, "no setting is named %s; `coterie get` lists them",
                              log_quote(wanted, strlen(wanted), quoted, sizeof(quoted)));
        else
                reply_text(c, json_dumps(list, JSON_INDENT(2)));
        json_decref(list);
}

/* --- trace and stop */

static void run_trace(struct ctl_call *c) {
        cleanup_fd int fd = memfd_create("trace", MFD_CLOEXEC);

        if (fd < 0) {
                ctl_call_fail(c, CTL_FAILED, "trace: %s", strerror(errno));
                return;
        }
        trace_dump(daemon_of(c)->trace, fd);
        off_t n = lseek(fd, 0, SEEK_END);
        cleanup_free char *body = xmalloc((size_t)n + 1);
        ssize_t got = pread(fd, body, (size_t)n, 0);
        ctl_call_reply(c, CTL_OK, "", body, got > 0 ? (size_t)got : 0);
}

static void run_stop(struct ctl_call *c) {
        struct daemon *d = daemon_of(c); /* the call is gone after the reply */
        ctl_call_reply(c, CTL_OK, "stopping", NULL, 0);
        daemon_request_stop(d, 0);
}

const struct ctl_command daemon_commands[] = {
        {"status", 0, 0, "status", run_status},
        {"metrics", 0, 0, "metrics", run_metrics},
        {"sync", 0, 1, "sync [checkpoint]", run_sync},
        {"set", 2, 2, "set NAME VALUE", run_set},
        {"get", 0, 1, "get [NAME]", run_get},
        {"trace", 0, 0, "trace", run_trace},
        {"stop", 0, 0, "stop", run_stop},
        {"cluster", 1, 2, "cluster init [NAME]", cluster_command},
        {"image", 1, 2, "image begin | next TOKEN | end TOKEN", images_command},
};
const size_t daemon_commands_n = ARRAY_LEN(daemon_commands);
