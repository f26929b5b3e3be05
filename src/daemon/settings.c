/* settings.c: settings of this mount, changed while it is mounted. They hold until the daemon ends; to keep one, write it to the
 * configuration file. */
#include "daemon_internal.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

static const struct mount_setting settings[] = {
        {"sync_level", "what is durable before an operation is acknowledged: none, filesystem, file"},
        {"sync_method", "how log writes are made durable"},
        {"direct", "O_DIRECT for the log at level file"},
        {"padding", "records at level file are padded to so many bytes"},
        {"commit_interval", "at level filesystem a barrier comes at least so often"},
        {"commit_bytes", "and after so many bytes since the last one"},
        {"log_level", "how much is logged: error, warning, notice, info, debug"},
};

const struct mount_setting *mount_settings(size_t *ret_n) {
        *ret_n = ARRAY_LEN(settings);
        return settings;
}

const struct mount_setting *mount_setting_find(const char *name) {
        for (size_t i = 0; i < ARRAY_LEN(settings); i++)
                if (strcmp(settings[i].name, name) == 0)
                        return &settings[i];
        return NULL;
}

void mount_setting_text(struct daemon *d, const char *name, char *buf, size_t size) {
        (void)pthread_mutex_lock(&d->lock);
        options_text(d->options, options_find(name), buf, size);
        (void)pthread_mutex_unlock(&d->lock);
}

static uint32_t padding_bytes(uint64_t choice) {
        return choice == 0 ? 0 : choice == 1 ? 512u : 4096u;
}

static bool concerns_level(const char *name) {
        return strcmp(name, "sync_level") == 0 || strcmp(name, "sync_method") == 0 || strcmp(name, "direct") == 0 ||
               strcmp(name, "padding") == 0;
}

struct level_change {
        struct daemon *d;
        struct option_value before[4];
        void (*done)(void *ctx, errint_t error);
        void *ctx;
};

static void level_changed(void *ctx, errint_t error) {
        struct level_change *c = ctx;
        struct options *o = c->d->options;

        if (error < 0) {
                (void)pthread_mutex_lock(&c->d->lock);
                o->sync_level = c->before[0];
                o->sync_method = c->before[1];
                o->direct = c->before[2];
                o->padding = c->before[3];
                (void)pthread_mutex_unlock(&c->d->lock);
        }
        c->done(c->ctx, error);
        free(c);
}

errint_t mount_setting_set(struct daemon *d, const char *name, const char *value, void (*done)(void *ctx, errint_t error), void *ctx,
                           char reason[OPTIONS_REASON]) {
        struct options *o = d->options;
        struct level_change *c = NEW(struct level_change);

        (void)pthread_mutex_lock(&d->lock);
        *c = (struct level_change){.d = d, .before = {o->sync_level, o->sync_method, o->direct, o->padding}, .done = done, .ctx = ctx};
        errint_t error = options_set(o, name, value, reason);
        struct engine_level level = {.level = (enum sync_level)o->sync_level.number,
                                     .method = (enum sync_method)o->sync_method.number,
                                     .direct = o->direct.number != 0,
                                     .padding = padding_bytes(o->padding.number)};
        uint64_t interval = o->commit_interval.number, bytes = o->commit_bytes.number, log_level = o->log_level.number;
        (void)pthread_mutex_unlock(&d->lock);
        if (error < 0) {
                free(c);
                return error;
        }
        if (concerns_level(name)) {
                engine_set_level(d->engine, &level, level_changed, c);
                return 0;
        }
        free(c);
        engine_set_commit_interval(d->engine, interval);
        d->store->ops->set_barrier_bytes(d->store, bytes);
        log_set_level((enum log_level)(LOG_LEVEL_ERROR + log_level));
        done(ctx, 0);
        return 0;
}

static void reloaded(void *ctx, errint_t error) {
        if (error < 0)
                log_error("configuration: %s could not be changed: %s", (const char *)ctx, strerror(-error));
}

/* Paths were made absolute when the daemon began; in the file they may be relative. */
static bool same_value(const struct option_info *info, const char *now, const char *fresh) {
        size_t n = strlen(now), m = strlen(fresh);

        return strcmp(now, fresh) == 0 ||
               (info->type == OPTION_TEXT && now[0] == '/' && m > 0 && m < n && now[n - m - 1] == '/' && strcmp(now + n - m, fresh) == 0);
}

/* The others hold as long as the daemon runs. */
static void tell_of_the_rest(struct daemon *d, const struct options *fresh) {
        for (size_t i = 0; i < options_count(); i++) {
                const struct option_info *info = options_info(i);
                char now[OPTION_TEXT_MAX], after[OPTION_TEXT_MAX];
                if (mount_setting_find(info->name))
                        continue;
                options_text(d->options, info, now, sizeof(now));
                options_text(fresh, info, after, sizeof(after));
                if (!same_value(info, now, after))
                        log_notice("configuration: %s is %s and will be %s after the next start", info->name, now, after);
        }
}

void mount_settings_reload(struct daemon *d) {
        struct options fresh;
        char reason[OPTIONS_REASON];

        errint_t error = options_reload(d->options, &fresh, reason);
        if (error < 0)
                log_error("configuration not read again: %s", reason);
        for (size_t i = 0; error == 0 && i < ARRAY_LEN(settings); i++) {
                char before[OPTION_TEXT_MAX], after[OPTION_TEXT_MAX];
                mount_setting_text(d, settings[i].name, before, sizeof(before));
                options_text(&fresh, options_find(settings[i].name), after, sizeof(after));
                if (strcmp(before, after) == 0)
                        continue;
                log_notice("configuration: %s was %s, is %s", settings[i].name, before, after);
                error = mount_setting_set(d, settings[i].name, after, reloaded, (void *)(uintptr_t)settings[i].name, reason);
                if (error < 0)
                        log_error("configuration: %s", reason);
        }
        if (error == 0)
                tell_of_the_rest(d, &fresh);
        options_done(&fresh);
}
