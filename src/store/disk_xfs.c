/* disk_xfs.c: a descriptor whose writes leave the file's times alone. XFS gives one to whoever opens the file by its handle (meant for
 * tools that move data about unseen); no other filesystem does. Worth it: after a write in place the times are all that XFS has to write
 * of the inode, and it writes whole clusters of inodes for them, 16 KiB and more. */
#include "disk_private.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* struct xfs_fsop_handlereq and its two ioctls, which the kernel's fs/xfs/libxfs/xfs_fs.h defines and no header of the C library or the
 * kernel's own set brings. */
struct handle_request {
        uint32_t fd; /* of the file, to get its handle */
        void *path;
        uint32_t oflags; /* as for open(2) */
        void *in;
        uint32_t in_size;
        void *out;
        uint32_t *out_size;
};
#define IOC_FD_TO_HANDLE   _IOWR('X', 106, struct handle_request)
#define IOC_OPEN_BY_HANDLE _IOWR('X', 107, struct handle_request)

errint_t disk_xfs_untimed(int fd, int dir, int how, int *ret) {
        struct statfs sf;
        if (fstatfs(fd, &sf) < 0)
                return -errno;
        if ((uint32_t)sf.f_type != XFS_SUPER_MAGIC)
                return -EOPNOTSUPP;
        uint64_t handle[8]; /* three are used: the filesystem's number, and the inode's with its generation */
        uint32_t size = sizeof handle;
        struct handle_request ask = {.fd = (uint32_t)fd, .out = handle, .out_size = &size};
        if (ioctl(fd, IOC_FD_TO_HANDLE, &ask) < 0)
                return -errno;
        struct handle_request open = {.oflags = (uint32_t)how, .in = handle, .in_size = size};
        cleanup_fd int other = ioctl(dir, IOC_OPEN_BY_HANDLE, &open);
        if (other < 0)
                return -errno;
        /* The kernel ignores O_CLOEXEC here, and which filesystem the handle is of: through a symbolic link the directory may lie in
         * another one. */
        struct stat want, got;
        if (fcntl(other, F_SETFD, FD_CLOEXEC) < 0 || fstat(fd, &want) < 0 || fstat(other, &got) < 0)
                return -errno;
        if (got.st_dev != want.st_dev || got.st_ino != want.st_ino)
                return -EXDEV;
        *ret = steal_fd(&other);
        return 0;
}
