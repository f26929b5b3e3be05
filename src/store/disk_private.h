/* disk_private.h (private to store): what disk.c, disk_info.c and the probe know about the machine under a path. */
#pragma once

#include "store/disk.h"

/* A mount, as /proc/self/mountinfo tells it. */
struct disk_mount {
        char fs_type[16];
        char source[256];  /* "/dev/vda1", "none" */
        char options[512]; /* of the mount and of the filesystem, comma-separated */
};
/* The mount that holds `path` (which exists). -ENOENT: not found, as in a sandbox without /proc. */
errint_t disk_mount_of(const char *path, struct disk_mount *ret);
/* The directory in /sys of the block device under `path`, partition resolved to its disk for the queue's limits: ret_device has "stat",
 * ret_queue has "queue/". -ENODEV: none (network, overlay, tmpfs, several devices behind one). */
#define DISK_SYS_PATH 256
errint_t disk_block_of(const char *path, char ret_device[DISK_SYS_PATH], char ret_queue[DISK_SYS_PATH]);
errint_t disk_sys_read(const char *dir, const char *name, char *ret, size_t size); /* one small file, trailing newline cut */
/* Opens the file of `fd`, which lies in directory `dir`, once more, with open(2)'s flags `how`: writes through *ret do not change its
 * times. -EOPNOTSUPP: not XFS; -EPERM: without CAP_SYS_ADMIN. */
errint_t disk_xfs_untimed(int fd, int dir, int how, int *ret);
errint_t disk_info_of(const char *path, struct disk_info *ret);
