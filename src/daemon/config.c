/* config.c: the configuration file: one `name = value` per line, comments from '#' at the start of a line or after a blank. */
#include "daemon/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_LINE_MAX  (OPTION_TEXT_MAX + 256u)
#define CONFIG_LINES_MAX 10000u

static char *trim(char *s) {
        while (isspace((unsigned char)*s))
                s++;
        for (char *end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
                *--end = '\0';
        return s;
}

static void cut_comment(char *s) {
        for (char *p = s; *p; p++)
                if (*p == '#' && (p == s || isspace((unsigned char)p[-1]))) {
                        *p = '\0';
                        return;
                }
}

static errint_t config_line(struct options *o, char *line, char reason[OPTIONS_REASON]) {
        cut_comment(line);
        char *name = trim(line), *value;

        if (!*name)
                return 0;
        value = strchr(name, '=');
        if (!value) {
                char quoted[96];
                (void)snprintf(reason, OPTIONS_REASON, "no '=' in %s; write name = value",
                               log_quote(name, strlen(name), quoted, sizeof(quoted)));
                return -EINVAL;
        }
        *value++ = '\0';
        return options_set(o, trim(name), trim(value), reason);
}

static void say_where(const char *path, unsigned line, char reason[OPTIONS_REASON]) {
        char what[OPTIONS_REASON];
        memcpy(what, reason, sizeof(what));
        (void)snprintf(reason, OPTIONS_REASON, "%.200s:%u: %.300s", path, line, what);
}

/* Without its end; false: there is none any more. */
static bool next_line(FILE *f, char line[CONFIG_LINE_MAX], errint_t *error, char reason[OPTIONS_REASON]) {
        size_t n = 0;
        int c;

        while ((c = getc(f)) != EOF && c != '\n') {
                if (c == '\0' || n + 1 == CONFIG_LINE_MAX) {
                        (void)snprintf(reason, OPTIONS_REASON, c == '\0' ? "a zero byte: this is no text" : "the line is too long");
                        *error = -EINVAL;
                        return true;
                }
                line[n++] = (char)c;
        }
        line[n] = '\0';
        return n > 0 || c == '\n';
}

errint_t config_read_stream(struct options *o, FILE *f, const char *path, char reason[OPTIONS_REASON]) {
        char line[CONFIG_LINE_MAX];
        unsigned n = 0;
        errint_t error = 0;

        while (error == 0 && next_line(f, line, &error, reason)) {
                if (++n > CONFIG_LINES_MAX) {
                        (void)snprintf(reason, OPTIONS_REASON, "the file is too long");
                        error = -EINVAL;
                }
                if (error == 0)
                        error = config_line(o, line, reason);
        }
        if (error < 0) {
                say_where(path, n, reason);
        } else if (ferror(f)) {
                error = -EIO;
                (void)snprintf(reason, OPTIONS_REASON, "%.300s: cannot be read: is it a file?", path);
        }
        return error;
}

errint_t config_read(struct options *o, const char *path, char reason[OPTIONS_REASON]) {
        FILE *f = fopen(path, "re");
        errint_t error;

        if (!f) {
                error = -errno;
                (void)snprintf(reason, OPTIONS_REASON, "%.300s: %s", path, strerror(errno));
                return error;
        }
        error = config_read_stream(o, f, path, reason);
        (void)fclose(f); /* was read only */
        return error;
}
