/* options.c: the table, setting values from text, the command line. */
#include "daemon/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NEAR_MAX 3u /* edits between a typing error and the name that was meant; fewer in a short one */

static const struct option_info table[] = {
#define X(field, type, name, def, min, max, choices, help) {name, type, def, choices, help, min, max, offsetof(struct options, field)},
        OPTIONS_TABLE(X)
#undef X
};

size_t options_count(void) {
        return ARRAY_LEN(table);
}

const struct option_info *options_info(size_t i) {
        PRE(i < ARRAY_LEN(table));
        return &table[i];
}

static struct option_value *value_of(const struct options *o, const struct option_info *info) {
        return (struct option_value *)(void *)((char *)(uintptr_t)o + info->offset);
}

static bool same_name(const char *a, const char *b) {
        for (; *a && *b; a++, b++)
                if ((*a == '-' ? '_' : *a) != *b)
                        return false;
        return *a == *b;
}

const struct option_info *options_find(const char *name) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                if (same_name(name, table[i].name))
                        return &table[i];
        return NULL;
}

/* Levenshtein distance, in one row. */
static unsigned distance(const char *a, const char *b) {
        unsigned row[64];
        size_t la = strlen(a), lb = strlen(b);

        if (la >= ARRAY_LEN(row) || lb >= ARRAY_LEN(row))
                return UINT32_MAX;
        for (unsigned j = 0; j <= lb; j++)
                row[j] = j;
        for (size_t i = 1; i <= la; i++) {
                unsigned before = row[0];
                row[0] = (unsigned)i;
                for (size_t j = 1; j <= lb; j++) {
                        unsigned above = row[j], same = (a[i - 1] == '-' ? '_' : a[i - 1]) == b[j - 1] ? 0 : 1;
                        row[j] = MIN_OF(MIN_OF(row[j] + 1, row[j - 1] + 1), before + same);
                        before = above;
                }
        }
        return row[lb];
}

static errint_t unknown(const char *name, char reason[OPTIONS_REASON]) {
        const char *near = NULL;
        unsigned best = MIN_OF(NEAR_MAX, (unsigned)strlen(name) / 3) + 1;
        char quoted[80];

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                unsigned d = distance(name, table[i].name);
                if (strncmp(name, "no", 2) == 0)
                        d = MIN_OF(d, distance(name + 2, table[i].name));
                if (d < best) {
                        best = d;
                        near = table[i].name;
                }
        }
        (void)log_quote(name, strlen(name), quoted, sizeof(quoted));
        if (near)
                (void)snprintf(reason, OPTIONS_REASON, "unknown option %s; did you mean \"%s\"?", quoted, near);
        else
                (void)snprintf(reason, OPTIONS_REASON, "unknown option %s; coteried --help lists them", quoted);
        return -EINVAL;
}

static errint_t choice(const char *choices, const char *text, uint64_t *ret) {
        size_t len = strlen(text);
        uint64_t i = 0;

        for (const char *p = choices; *p; i++) {
                size_t n = strcspn(p, " ");
                if (n == len && memcmp(p, text, n) == 0) {
                        *ret = i;
                        return 0;
                }
                p += n + (p[n] == ' ');
        }
        return -EINVAL;
}

static errint_t parse_value(const struct option_info *info, const char *text, uint64_t *ret) {
        switch (info->type) {
        case OPTION_BOOL:
                return parse_bool(text, ret);
        case OPTION_BYTES:
                return parse_bytes(text, ret);
        case OPTION_DURATION:
                return parse_duration(text, ret);
        case OPTION_CHOICE:
                return choice(info->choices, text, ret);
        case OPTION_NUMBER: {
                errint_t error = parse_bytes(text, ret);
                return error == 0 && text[strspn(text, "0123456789")] != '\0' ? -EINVAL : error;
        }
        case OPTION_TEXT:
                *ret = strlen(text);
                return 0;
        }
        return -EINVAL;
}

static void valid_values(const struct option_info *info, char *buf, size_t size) {
        char low[32], high[32];

        switch (info->type) {
        case OPTION_BOOL:
                (void)snprintf(buf, size, "yes or no");
                break;
        case OPTION_CHOICE:
                (void)snprintf(buf, size, "one of: %s", info->choices);
                break;
        case OPTION_NUMBER:
                (void)snprintf(buf, size, "%llu to %llu", (unsigned long long)info->min, (unsigned long long)info->max);
                break;
        case OPTION_BYTES:
                format_bytes(info->min, low, sizeof(low));
                format_bytes(info->max, high, sizeof(high));
                (void)snprintf(buf, size, "%s to %s", low, high);
                break;
        case OPTION_DURATION:
                format_duration(info->min, low, sizeof(low));
                format_duration(info->max, high, sizeof(high));
                (void)snprintf(buf, size, "%s to %s", low, high);
                break;
        case OPTION_TEXT:
                (void)snprintf(buf, size, "%llu to %llu bytes of text", (unsigned long long)info->min, (unsigned long long)info->max);
                break;
        }
}

errint_t options_set(struct options *o, const char *name, const char *value, char reason[OPTIONS_REASON]) {
        const struct option_info *info = options_find(name);
        uint64_t v = 0;

        if (!info)
                return unknown(name, reason);
        if (parse_value(info, value, &v) < 0 || v < info->min || v > info->max) {
                char quoted[96], valid[160];
                valid_values(info, valid, sizeof(valid));
                (void)snprintf(reason, OPTIONS_REASON, "%s: bad value %s; valid: %s", info->name,
                               log_quote(value, strlen(value), quoted, sizeof(quoted)), valid);
                return -EINVAL;
        }
        struct option_value *to = value_of(o, info);
        to->number = v;
        to->set = true;
        if (info->type == OPTION_TEXT) {
                free(to->text);
                to->text = xstrdup(value);
        }
        return 0;
}

void options_text(const struct options *o, const struct option_info *info, char *buf, size_t size) {
        const struct option_value *v = value_of(o, info);

        switch (info->type) {
        case OPTION_BOOL:
                (void)snprintf(buf, size, "%s", v->number ? "yes" : "no");
                break;
        case OPTION_CHOICE: {
                const char *p = info->choices;
                for (uint64_t i = 0; i < v->number; i++)
                        p = strchr(p, ' ') + 1; /* the number came from this list */
                (void)snprintf(buf, size, "%.*s", (int)strcspn(p, " "), p);
                break;
        }
        case OPTION_NUMBER:
                (void)snprintf(buf, size, "%llu", (unsigned long long)v->number);
                break;
        case OPTION_BYTES:
                format_bytes(v->number, buf, size);
                break;
        case OPTION_DURATION:
                format_duration(v->number, buf, size);
                break;
        case OPTION_TEXT:
                (void)snprintf(buf, size, "%s", v->text);
                break;
        }
}

void options_init(struct options *o) {
        memset(o, 0, sizeof(*o));
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct option_value *v = value_of(o, &table[i]);
                if (table[i].type == OPTION_TEXT) {
                        v->text = xstrdup(table[i].def);
                } else {
                        errint_t error = parse_value(&table[i], table[i].def, &v->number);
                        POST(error == 0 && v->number >= table[i].min && v->number <= table[i].max);
                }
        }
}

void options_done(struct options *o) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                free(value_of(o, &table[i])->text);
        free(o->mountpoint);
        free(o->config_file);
        for (size_t i = 0; i < o->n_late; i++)
                free(o->late[i]);
        free(o->late);
        memset(o, 0, sizeof(*o));
}

/* --- -o */

/* Words that mount(8), systemd and fstab use among themselves, or that say what is so anyway. */
static bool is_foreign_word(const char *word) {
        static const char *const words[] = {"defaults",   "auto",     "noauto",     "user",  "nouser", "users", "owner",   "group",
                                            "nofail",     "fail",     "_netdev",    "rw",    "exec",   "atime", "noatime", "relatime",
                                            "norelatime", "diratime", "nodiratime", "async", "loud",   "silent"};
        if (strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0)
                return true;
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                if (strcmp(word, words[i]) == 0)
                        return true;
        return false;
}

static errint_t set_word(struct options *o, char *word, char reason[OPTIONS_REASON]) {
        char *value = strchr(word, '=');
        const struct option_info *info;

        if (is_foreign_word(word))
                return 0;
        if (strcmp(word, "ro") == 0)
                return options_set(o, "read_only", "yes", reason);
        if (value) {
                *value++ = '\0';
                return options_set(o, word, value, reason);
        }
        info = options_find(word);
        if (info && info->type == OPTION_BOOL)
                return options_set(o, word, "yes", reason);
        if (strncmp(word, "no", 2) == 0 && (info = options_find(word + 2)) && info->type == OPTION_BOOL)
                return options_set(o, word + 2, "no", reason);
        if (info) {
                (void)snprintf(reason, OPTIONS_REASON, "%s needs a value: %s=…", info->name, info->name);
                return -EINVAL;
        }
        return unknown(word, reason);
}

errint_t options_set_list(struct options *o, const char *list, char reason[OPTIONS_REASON]) {
        cleanup_free char *copy = xstrdup(list);
        char *save = NULL;

        for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
                errint_t error = set_word(o, word, reason);
                if (error < 0)
                        return error;
        }
        return 0;
}

/* --- the command line */

static void keep_late(struct options *o, const char *list) {
        o->late = xrealloc(o->late, (o->n_late + 1) * sizeof(*o->late));
        o->late[o->n_late++] = xstrdup(list);
}

static errint_t needs_value(const char *arg, char reason[OPTIONS_REASON]) {
        char quoted[80];
        (void)snprintf(reason, OPTIONS_REASON, "%s needs a value; coteried --help shows the usage",
                       log_quote(arg, strlen(arg), quoted, sizeof(quoted)));
        return -EINVAL;
}

static bool take_flag(struct options *o, const char *arg) {
        if (strcmp(arg, "-f") == 0 || strcmp(arg, "--foreground") == 0)
                o->foreground = true;
        else if (strcmp(arg, "--check-config") == 0)
                o->check_config = true;
        else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
                o->help = true;
        else if (strcmp(arg, "--version") == 0 || strcmp(arg, "-V") == 0)
                o->version = true;
        else
                return false;
        return true;
}

/* --name, --name=value, --name value; *i moves over what was taken. */
static errint_t take_long(struct options *o, int argc, char **argv, int *i, char reason[OPTIONS_REASON]) {
        cleanup_free char *name = xstrdup(argv[*i] + 2);
        char *value = strchr(name, '=');
        const struct option_info *info;

        if (value)
                *value++ = '\0';
        info = options_find(name);
        if (!info && strcmp(name, "config") != 0)
                return unknown(name, reason);
        if (!value && info && info->type == OPTION_BOOL) {
                value = (char *)(uintptr_t) "yes";
        } else if (!value) {
                if (*i + 1 >= argc)
                        return needs_value(argv[*i], reason);
                value = argv[++*i];
        }
        if (!info) {
                free(o->config_file);
                o->config_file = xstrdup(value);
                return 0;
        }
        cleanup_free char *both = xmalloc(strlen(info->name) + strlen(value) + 2);
        (void)sprintf(both, "%s=%s", info->name, value);
        keep_late(o, both);
        return options_set(o, info->name, value, reason);
}

static errint_t take_argument(struct options *o, const char *arg, char reason[OPTIONS_REASON]) {
        char quoted[96];

        if (o->mountpoint) {
                (void)snprintf(reason, OPTIONS_REASON, "one mount point only, and %s came after it",
                               log_quote(arg, strlen(arg), quoted, sizeof(quoted)));
                return -EINVAL;
        }
        o->mountpoint = xstrdup(arg);
        return 0;
}

static errint_t take(struct options *o, int argc, char **argv, int *i, char reason[OPTIONS_REASON]) {
        const char *arg = argv[*i];

        if (take_flag(o, arg))
                return 0;
        if (strncmp(arg, "-o", 2) == 0) {
                const char *list = arg[2] ? arg + 2 : *i + 1 < argc ? argv[++*i] : NULL;
                if (!list)
                        return needs_value("-o", reason);
                keep_late(o, list);
                return options_set_list(o, list, reason);
        }
        if (strncmp(arg, "--", 2) == 0 && arg[2])
                return take_long(o, argc, argv, i, reason);
        if (arg[0] == '-' && arg[1] && arg[1] != '-')
                return unknown(arg, reason);
        return take_argument(o, arg, reason);
}

/* Texts may hold commas: what came as --name=value is set whole. */
static errint_t set_late(struct options *o, const char *list, char reason[OPTIONS_REASON]) {
        const char *eq = strchr(list, '=');
        size_t n = eq ? (size_t)(eq - list) : 0;
        char name[64];

        if (eq && n < sizeof(name)) {
                memcpy(name, list, n);
                name[n] = '\0';
                const struct option_info *info = options_find(name);
                if (info && info->type == OPTION_TEXT && !strchr(name, ','))
                        return options_set(o, name, eq + 1, reason);
        }
        return options_set_list(o, list, reason);
}

errint_t options_parse(struct options *o, int argc, char **argv, char reason[OPTIONS_REASON]) {
        bool only_arguments = false;
        errint_t error = 0;

        for (int i = 1; i < argc && error == 0; i++) {
                if (!only_arguments && strcmp(argv[i], "--") == 0)
                        only_arguments = true;
                else
                        error = only_arguments ? take_argument(o, argv[i], reason) : take(o, argc, argv, &i, reason);
        }
        if (error < 0 || o->help || o->version)
                return error;
        if (o->config_file) {
                error = config_read(o, o->config_file, reason);
                for (size_t i = 0; i < o->n_late && error == 0; i++)
                        error = set_late(o, o->late[i], reason);
                if (error < 0)
                        return error;
        }
        if (o->check_config)
                return 0;
        if (!o->mountpoint && o->mount_at.text[0])
                o->mountpoint = xstrdup(o->mount_at.text);
        if (!o->mountpoint) {
                (void)snprintf(reason, OPTIONS_REASON, "no mount point given; usage: coteried --standalone --db FILE MOUNTPOINT");
                return -EINVAL;
        }
        if (!o->db.text[0]) {
                (void)snprintf(reason, OPTIONS_REASON, "no database given; add --db FILE, or db = FILE to the configuration file");
                return -EINVAL;
        }
        return 0;
}

errint_t options_reload(const struct options *from, struct options *ret, char reason[OPTIONS_REASON]) {
        errint_t error = 0;

        options_init(ret);
        if (from->config_file)
                error = config_read(ret, from->config_file, reason);
        for (size_t i = 0; i < from->n_late && error == 0; i++)
                error = set_late(ret, from->late[i], reason);
        return error;
}

void options_usage(int fd) {
        dprintf(fd, "usage: coteried [--standalone] --db FILE [OPTIONS] MOUNTPOINT\n"
                    "Mounts a Coterie tree; returns when the mount answers. Stop it with SIGTERM or `coterie stop`.\n\n"
                    "  -f, --foreground     stay in the foreground, log to standard error\n"
                    "      --config FILE    read options from FILE (name = value); the command line wins\n"
                    "      --check-config   check the options and the file, do nothing else\n"
                    "  -o NAME=VALUE,…      options as for mount(8)\n"
                    "  -h, --help           this text\n"
                    "  -V, --version        the version\n\n"
                    "Options, as --name-of-option VALUE, in -o or in the file:\n");
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                char valid[160];
                valid_values(&table[i], valid, sizeof(valid));
                dprintf(fd, "  %-16s %s\n  %-16s (%s%s%s)\n", table[i].name, table[i].help, "", valid, table[i].def[0] ? "; default " : "",
                        table[i].def);
        }
        dprintf(fd, "\nexample:\n  coteried --standalone --db /var/lib/coterie/tree.db /etc/coterie.d\n");
}
