/* disk_info.c: what lies under a path: filesystem, free space, block device and its sectors. Reads /proc/self/mountinfo and /sys; what
 * cannot be found there is said to be not found, never guessed. */
#include "disk_private.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The path itself, or the directory that would hold it. */
static errint_t existing_path(const char *path, char ret[PATH_MAX]) {
        if ((size_t)snprintf(ret, PATH_MAX, "%s", path) >= PATH_MAX)
                return -ENAMETOOLONG;
        if (access(ret, F_OK) == 0)
                return 0;
        if (errno != ENOENT)
                return -errno;
        char *slash = strrchr(ret, '/');
        if (!slash)
                (void)snprintf(ret, PATH_MAX, "."); /* fits */
        else if (slash == ret)
                ret[1] = '\0';
        else
                *slash = '\0';
        return access(ret, F_OK) < 0 ? -errno : 0;
}

/* mountinfo escapes blanks as \040 and the like. */
static void unescape(char *s) {
        char *out = s;
        for (const char *in = s; *in; out++) {
                if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && isdigit((unsigned char)in[2]) && isdigit((unsigned char)in[3])) {
                        *out = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
                        in += 4;
                } else {
                        *out = *in++;
                }
        }
        *out = '\0';
}

/* proc(5): id parent major:minor root mount_point options [optional...] - type source super_options */
static bool parse_mount(char *line, uint64_t want_id, struct disk_mount *ret) {
        char *save = NULL, *word = strtok_r(line, " \n", &save);
        char *mount_options = NULL;
        if (!word || strtoull(word, NULL, 10) != want_id)
                return false;
        for (int i = 1; (word = strtok_r(NULL, " \n", &save)) && strcmp(word, "-") != 0; i++)
                if (i == 5)
                        mount_options = word;
        char *type = strtok_r(NULL, " \n", &save), *source = strtok_r(NULL, " \n", &save), *super_options = strtok_r(NULL, " \n", &save);
        if (!mount_options || !type || !source)
                return false;
        unescape(source);
        (void)snprintf(ret->fs_type, sizeof ret->fs_type, "%s", type); /* cut, if ever */
        (void)snprintf(ret->source, sizeof ret->source, "%s", source); /* cut, if ever */
        (void)snprintf(ret->options, sizeof ret->options, "%s%s%s", mount_options, super_options ? "," : "",
                       super_options ? super_options : "");
        return true;
}

errint_t disk_mount_of(const char *path, struct disk_mount *ret) {
        struct statx stx;
        if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &stx) < 0)
                return -errno;
        if (!(stx.stx_mask & STATX_MNT_ID))
                return -ENOENT;
        FILE *f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return -ENOENT;
        cleanup_free char *line = NULL;
        size_t size = 0;
        errint_t r = -ENOENT;
        while (getline(&line, &size, f) >= 0)
                if (parse_mount(line, stx.stx_mnt_id, ret)) {
                        r = 0;
                        break;
                }
        (void)fclose(f); /* only read */
        return r;
}

errint_t disk_sys_read(const char *dir, const char *name, char *ret, size_t size) {
        char path[2 * DISK_SYS_PATH];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
                return -ENAMETOOLONG;
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        ssize_t n = read(fd, ret, size - 1);
        if (n < 0)
                return -errno;
        ret[n] = '\0';
        ret[strcspn(ret, "\n")] = '\0';
        return 0;
}

static bool sys_has(const char *dir, const char *name) {
        char path[2 * DISK_SYS_PATH];
        return (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path && access(path, F_OK) == 0;
}

static errint_t block_of_dev(dev_t dev, char ret_device[DISK_SYS_PATH], char ret_queue[DISK_SYS_PATH]) {
        char device[64], queue[sizeof device + 4];
        (void)snprintf(device, sizeof device, "/sys/dev/block/%u:%u", major(dev), minor(dev)); /* fits */
        if (!sys_has(device, "stat"))
                return -ENODEV;
        /* A partition has a statistic of its own; the limits are its disk's. */
        (void)snprintf(queue, sizeof queue, "%s%s", device, sys_has(device, "partition") ? "/.." : ""); /* fits */
        if (!sys_has(queue, "queue"))
                return -ENODEV;
        (void)snprintf(ret_device, DISK_SYS_PATH, "%s", device); /* fits */
        (void)snprintf(ret_queue, DISK_SYS_PATH, "%s", queue);   /* fits */
        return 0;
}

errint_t disk_block_of(const char *path, char ret_device[DISK_SYS_PATH], char ret_queue[DISK_SYS_PATH]) {
        struct stat st;
        if (stat(path, &st) < 0)
                return -errno;
        if (major(st.st_dev) != 0)
                return block_of_dev(st.st_dev, ret_device, ret_queue);
        /* btrfs numbers its subvolumes itself; the mount's source names the device, which is the whole truth only if it is alone. */
        struct disk_mount mount;
        errint_t r = disk_mount_of(path, &mount);
        if (r < 0 || strcmp(mount.fs_type, "btrfs") != 0 || stat(mount.source, &st) < 0 || !S_ISBLK(st.st_mode))
                return -ENODEV;
        return block_of_dev(st.st_rdev, ret_device, ret_queue);
}

static const struct {
        uint32_t magic;
        const char *name;
} magics[] = {
        {0xEF53, "ext4"},    {0x58465342, "xfs"},   {0x9123683E, "btrfs"},    {0x01021994, "tmpfs"}, {0x794C7630, "overlay"},
        {0x2FC12FC1, "zfs"}, {0xF2F52010, "f2fs"},  {0x6969, "nfs"},          {0xFF534D42, "cifs"},  {0x65735546, "fuse"},
        {0x4D44, "vfat"},    {0x2011BAB0, "exfat"}, {0xCA451A4E, "bcachefs"}, {0x858458F6, "ramfs"}, {0x01021997, "9p"},
};

static void fs_type_of(const char *path, char *ret, size_t size) {
        struct disk_mount mount;
        if (disk_mount_of(path, &mount) == 0) { /* names ext2, ext3 and ext4 apart, which share a magic number */
                (void)snprintf(ret, size, "%s", mount.fs_type);
                return;
        }
        struct statfs sf;
        if (statfs(path, &sf) == 0)
                for (size_t i = 0; i < ARRAY_LEN(magics); i++)
                        if ((uint32_t)sf.f_type == magics[i].magic) {
                                (void)snprintf(ret, size, "%s", magics[i].name);
                                return;
                        }
        (void)snprintf(ret, size, "unknown");
}

/* May this process use the blocks that a filesystem keeps for the administrator? */
static bool may_use_reserve(void) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
        if (syscall(SYS_capget, &head, data) < 0)
                return false;
        return data[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE);
}

static uint32_t sys_sector(const char *queue, const char *name, uint32_t fallback) {
        char text[32];
        if (disk_sys_read(queue, name, text, sizeof text) < 0)
                return fallback;
        unsigned long v = strtoul(text, NULL, 10);
        return v >= 512 && v <= 65536 && (v & (v - 1)) == 0 ? (uint32_t)v : fallback;
}

errint_t disk_info_of(const char *path, struct disk_info *ret) {
        char at[PATH_MAX], device[DISK_SYS_PATH], queue[DISK_SYS_PATH];
        errint_t r = existing_path(path, at);
        if (r < 0)
                return r;
        struct statvfs vfs;
        if (statvfs(at, &vfs) < 0)
                return -errno;
        uint64_t unit = vfs.f_frsize ? vfs.f_frsize : vfs.f_bsize;
        struct disk_info info = {
                .fs_free = (may_use_reserve() ? vfs.f_bfree : vfs.f_bavail) * unit,
                .fs_size = vfs.f_blocks * unit,
                .logical_sector = 512,
                .physical_sector = 4096,
        };
        fs_type_of(at, info.fs_type, sizeof info.fs_type);
        if (disk_block_of(at, device, queue) == 0) {
                info.block_device_found = true;
                info.logical_sector = sys_sector(queue, "queue/logical_block_size", 512);
                info.physical_sector = MAX_OF(info.logical_sector, sys_sector(queue, "queue/physical_block_size", 4096));
        }
        *ret = info;
        return 0;
}
