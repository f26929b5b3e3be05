/* settings.c: see core/settings.h. */
#include "core/settings.h"

#include <string.h>

static const struct setting_info table[] = {
#define X(field, name, def, min, max, unit, help) {name, unit, help, def, min, max, offsetof(struct settings, field)},
        SETTINGS_TABLE(X)
#undef X
};

size_t settings_count(void) {
        return ARRAY_LEN(table);
}

const struct setting_info *settings_info(size_t i) {
        PRE(i < ARRAY_LEN(table));
        return &table[i];
}

const struct setting_info *settings_find(const char *name, size_t len) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
                        return &table[i];
        return NULL;
}

static uint64_t *setting_slot(struct settings *s, const struct setting_info *info) {
        return (uint64_t *)(void *)((char *)s + info->offset);
}

uint64_t settings_get(const struct settings *s, const struct setting_info *info) {
        return *(const uint64_t *)(const void *)((const char *)s + info->offset);
}

void settings_default(struct settings *ret) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                *setting_slot(ret, &table[i]) = table[i].def;
}

/* Decimal digits and at most one suffix; nothing else, no sign, no space. */
static errint_t parse_amount(const char *text, size_t len, uint64_t *ret) {
        uint64_t scale = 1, value = 0;
        switch (text[len - 1]) {
        case 'K':
                scale = KIB;
                break;
        case 'M':
                scale = MIB;
                break;
        case 'G':
                scale = GIB;
                break;
        default:
                break;
        }
        if (scale > 1)
                len--;
        if (len == 0)
                return -EINVAL;
        for (size_t i = 0; i < len; i++) {
                if (text[i] < '0' || text[i] > '9' || value > (UINT64_MAX - 9) / 10)
                        return -EINVAL;
                value = 10 * value + (uint64_t)(text[i] - '0');
        }
        if (value > UINT64_MAX / scale)
                return -EINVAL;
        *ret = value * scale;
        return 0;
}

errint_t settings_set(struct settings *s, const char *name, size_t name_len, const char *text, size_t len) {
        const struct setting_info *info = settings_find(name, name_len);
        if (!info)
                return -EINVAL;
        uint64_t value = info->def;
        if (len > 0) {
                errint_t r = parse_amount(text, len, &value);
                if (r < 0)
                        return r;
        }
        if (value < info->min || value > info->max)
                return -EINVAL;
        *setting_slot(s, info) = value;
        return 0;
}
