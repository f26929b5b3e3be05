/* One operation of each kind with every field in use, and some short ones. */
#include "op_samples.h"

static const struct extent write_extents[] = {{0, 5, EXTENT_DATA}, {100, 16384, EXTENT_ZERO}, {20000, 6, EXTENT_DATA}};
static const uint8_t adopt_xattrs[] = "\6user.a\3abc\6user.b"; /* an empty value: its length is the NUL at the end */
static const struct extent append_extent = {0, 12, EXTENT_DATA};

static struct op base(enum op_kind kind) {
        struct op op = op_of(kind);
        op.origin = (struct op_origin){.node = 3, .incarnation = 0x0123456789abcdef, .number = 1000, .lowest_waiting = 998};
        op.caller = (struct op_caller){.uid = 1000, .gid = 100, .pid = 4321, .program = "bash"};
        op.time = (struct timestamp){1760000000, 123456789};
        return op;
}

static struct op sample_create(void) {
        struct op op = base(OP_CREATE);
        op.create.parent = 17;
        op.create.name = name_of("interfaces");
        op.create.mode = S_IFREG | 0644;
        op.create.uid = 1000;
        op.create.gid = 100;
        op.create.or_open = true;
        op.create.acl_access.data = (const uint8_t *)"\2\0\0\0access";
        op.create.acl_access.len = 10;
        op.create.acl_default.data = (const uint8_t *)"\2\0\0\0default";
        op.create.acl_default.len = 11;
        return op;
}

static struct op sample_device(void) {
        struct op op = base(OP_CREATE);
        op.create.parent = 1;
        op.create.name = name_of("null");
        op.create.mode = S_IFCHR | 0666;
        op.create.rdev = 0x103;
        return op;
}

static struct op sample_symlink(void) {
        struct op op = base(OP_CREATE);
        op.create.parent = 1;
        op.create.name = name_of("local");
        op.create.mode = S_IFLNK | 0777;
        op.create.target.text = "nodes/a";
        op.create.target.len = 7;
        return op;
}

static struct op sample_rename(void) {
        struct op op = base(OP_RENAME);
        op.rename.parent = 300;
        op.rename.name = name_of("config.tmp");
        op.rename.new_parent = 17;
        op.rename.new_name = name_of("config");
        op.rename.flags = 1;
        return op;
}

static struct op sample_setattr(void) {
        struct op op = base(OP_SETATTR);
        op.setattr.ino = 77;
        op.setattr.mask = 63;
        op.setattr.mode = 04755;
        op.setattr.uid = 1;
        op.setattr.gid = UINT32_MAX - 1;
        op.setattr.atime = (struct timestamp){-315619200, 1};
        op.setattr.mtime = (struct timestamp){4417977600, 999999999};
        return op;
}

static struct op sample_write(void) {
        struct op op = base(OP_WRITE);
        op.write.ino = 77;
        op.write.flags = WRITE_KILL_SUID | WRITE_NO_MTIME;
        op.write.keep = 5000;
        op.write.size = 30000;
        op.write.extents = write_extents;
        op.write.n_extents = ARRAY_LEN(write_extents);
        op.payload = (struct op_payload){.raw_len = 11, .data = (const uint8_t *)"hello world", .len = 11};
        return op;
}

static struct op sample_append(void) {
        struct op op = base(OP_WRITE);
        op.write.ino = 77;
        op.write.flags = WRITE_APPEND;
        op.write.keep = op.write.size = BLOB_KEEP_ALL;
        op.write.extents = &append_extent;
        op.write.n_extents = 1;
        op.payload = (struct op_payload){.raw_len = 12, .data = (const uint8_t *)"one log line", .len = 12};
        return op;
}

static struct op sample_setxattr(void) {
        struct op op = base(OP_SETXATTR);
        op.setxattr.ino = 77;
        op.setxattr.name = name_of("system.posix_acl_access");
        op.setxattr.value = (const uint8_t *)"\2\0\0\0value";
        op.setxattr.len = 9;
        op.setxattr.flags = XATTR_REPLACE;
        op.setxattr.set_mode = true;
        op.setxattr.mode = 0640;
        op.setxattr.kill_sgid = true;
        return op;
}

static struct op sample_adopt(void) {
        struct op op = base(OP_ADOPT);
        op.adopt.ino = 500;
        op.adopt.parent = 17;
        op.adopt.name = name_of("late");
        op.adopt.attr = (struct attr){
                .ino = 500, .mode = S_IFREG | 0600, .uid = 1, .gid = 2, .atime = {1, 2}, .mtime = {3, 4}, .ctime = {5, 6}, .size = 7};
        op.adopt.xattrs = adopt_xattrs;
        op.adopt.xattrs_len = sizeof(adopt_xattrs);
        op.payload = (struct op_payload){.raw_len = 7, .data = (const uint8_t *)"content", .len = 7};
        return op;
}

static struct op sample_named(enum op_kind kind) {
        struct op op = base(kind);
        if (kind == OP_LINK) {
                op.link.ino = 77;
                op.link.parent = 17;
                op.link.name = name_of("second");
        } else if (kind == OP_REMOVEXATTR) {
                op.removexattr.ino = 77;
                op.removexattr.name = name_of("user.a/b");
        } else if (kind == OP_SETTING) {
                op.setting.name = name_of("file_size_max");
                op.setting.text = "32M";
                op.setting.len = 3;
        } else if (kind == OP_UNLINK || kind == OP_RMDIR) {
                op.unlink.parent = 17;
                op.unlink.name = name_of("gone");
        }
        return op;
}

struct op_sample op_sample(size_t i) {
        switch (i) {
        case 0:
                return (struct op_sample){"nothing", sample_named(OP_NOTHING)};
        case 1:
                return (struct op_sample){"create", sample_create()};
        case 2:
                return (struct op_sample){"create-device", sample_device()};
        case 3:
                return (struct op_sample){"create-symlink", sample_symlink()};
        case 4:
                return (struct op_sample){"link", sample_named(OP_LINK)};
        case 5:
                return (struct op_sample){"unlink", sample_named(OP_UNLINK)};
        case 6:
                return (struct op_sample){"rmdir", sample_named(OP_RMDIR)};
        case 7:
                return (struct op_sample){"rename", sample_rename()};
        case 8:
                return (struct op_sample){"setattr", sample_setattr()};
        case 9:
                return (struct op_sample){"write", sample_write()};
        case 10:
                return (struct op_sample){"write-append", sample_append()};
        case 11:
                return (struct op_sample){"setxattr", sample_setxattr()};
        case 12:
                return (struct op_sample){"removexattr", sample_named(OP_REMOVEXATTR)};
        case 13:
                return (struct op_sample){"reserve-ino", sample_named(OP_RESERVE_INO)};
        case 14:
                return (struct op_sample){"adopt", sample_adopt()};
        case 15:
                return (struct op_sample){"setting", sample_named(OP_SETTING)};
        default:
                UNREACHABLE();
        }
}
