/* values.c: texts of sizes, durations and yes or no. */
#include "daemon/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Digits, then a suffix that starts at *ret_rest. */
static errint_t number(const char *text, uint64_t *ret, const char **ret_rest) {
        uint64_t v = 0;

        if (!isdigit((unsigned char)*text))
                return -EINVAL;
        for (; isdigit((unsigned char)*text); text++)
                if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
                        return -ERANGE;
        *ret = v;
        *ret_rest = text;
        return 0;
}

struct suffix {
        const char *text;
        uint64_t factor;
};

static errint_t scaled(const char *text, const struct suffix *suffixes, size_t n, uint64_t *ret) {
        const char *rest;
        uint64_t v;
        errint_t error = number(text, &v, &rest);

        if (error < 0)
                return error;
        for (size_t i = 0; i < n; i++)
                if (strcasecmp(rest, suffixes[i].text) == 0) {
                        if (__builtin_mul_overflow(v, suffixes[i].factor, &v))
                                return -ERANGE;
                        *ret = v;
                        return 0;
                }
        return -EINVAL;
}

errint_t parse_bytes(const char *text, uint64_t *ret) {
        static const struct suffix suffixes[] = {{"", 1}, {"K", KIB}, {"M", MIB}, {"G", GIB}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}};
        return scaled(text, suffixes, ARRAY_LEN(suffixes), ret);
}

errint_t parse_duration(const char *text, uint64_t *ret) {
        static const struct suffix suffixes[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"min", 60000}, {"h", 3600000}};

        if (strcasecmp(text, "never") == 0) {
                *ret = DURATION_NEVER;
                return 0;
        }
        return scaled(text, suffixes, ARRAY_LEN(suffixes), ret);
}

errint_t parse_bool(const char *text, uint64_t *ret) {
        static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false", "off", "0"};

        for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
                if (strcasecmp(text, yes[i]) == 0)
                        *ret = 1;
                else if (strcasecmp(text, no[i]) == 0)
                        *ret = 0;
                else
                        continue;
                return 0;
        }
        return -EINVAL;
}

void format_bytes(uint64_t v, char *buf, size_t size) {
        static const char suffix[] = "KMG";
        int i = -1;

        while (v != 0 && v % KIB == 0 && i < 2) {
                v /= KIB;
                i++;
        }
        (void)snprintf(buf, size, i < 0 ? "%llu" : "%llu%c", (unsigned long long)v, i < 0 ? ' ' : suffix[i]);
}

void format_duration(uint64_t ms, char *buf, size_t size) {
        if (ms == DURATION_NEVER)
                (void)snprintf(buf, size, "never");
        else if (ms % 1000u != 0 || ms == 0)
                (void)snprintf(buf, size, "%llums", (unsigned long long)ms);
        else
                (void)snprintf(buf, size, "%llus", (unsigned long long)(ms / 1000u));
}
