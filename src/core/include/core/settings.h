/* settings.h: replicated settings: a table of names with type, unit, range and default; values live in the tree and change by
 * OP_SETTING. Unknown names and bad values are refused at apply (-EINVAL), alike on all nodes. Pure. */
#pragma once

#include "base/base.h"
#include "core/limits.h"

/* X(field, "name", default, min, max, "unit", "help") */
#define SETTINGS_TABLE(X)                                                                                                                  \
        X(file_size_max, "file_size_max", LIMIT_FILE_SIZE_DEFAULT, 0, LIMIT_FILE_SIZE_MAX, "bytes", "largest file")                        \
        X(tree_size_max, "tree_size_max", LIMIT_TREE_SIZE_DEFAULT, MIB, LIMIT_TREE_SIZE_MAX, "bytes", "largest tree, as df counts it")     \
        X(inodes_max, "inodes_max", LIMIT_INODES_DEFAULT, 16, LIMIT_INODES_MAX, "", "most inodes")                                         \
        X(xattr_inode_max, "xattr_inode_max", LIMIT_XATTR_INODE, 0, 2 * LIMIT_XATTR_INODE, "bytes", "extended attributes of one inode, as encoded")

struct settings {
#define X(field, name, def, min, max, unit, help) uint64_t field;
        SETTINGS_TABLE(X)
#undef X
};
struct setting_info {
        const char *name, *unit, *help;
        uint64_t def, min, max;
        size_t offset; /* in struct settings */
};
size_t settings_count(void);
const struct setting_info *settings_info(size_t i); /* below settings_count */
const struct setting_info *settings_find(const char *name, size_t len); /* NULL: no such name */
void settings_default(struct settings *ret);
/* Text: decimal with an optional suffix K, M, G (powers of 1024). Empty: the default. -EINVAL: no such name, not a number, out of range. */
errint_t settings_set(struct settings *s, const char *name, size_t name_len, const char *text, size_t len);
uint64_t settings_get(const struct settings *s, const struct setting_info *info);
