/* notify_send.c: the messages themselves, as include/uapi/linux/fuse.h of the kernel has them. ENOENT means that the kernel does not know
 * the inode or the name: nothing to forget. */
#include "notify.h"

#include <string.h>
#include <sys/uio.h>

static errint_t send(struct fuse_edge *e, int32_t code, struct iovec *iov, int n) {
        struct fuse_out_header head = {.error = code};
        iov[0] = (struct iovec){&head, sizeof(head)};
        size_t total = 0;
        for (int i = 0; i < n; i++)
                total += iov[i].iov_len;
        head.len = (uint32_t)total;
        metric_add(e->config.metrics, METRIC_INVALIDATIONS, 1);
        return writev(e->fd, iov, n) < 0 ? -errno : 0;
}

errint_t notify_send_inode(struct fuse_edge *e, uint64_t ino, int64_t offset, int64_t length) {
        struct fuse_notify_inval_inode_out out = {.ino = ino, .off = offset, .len = length};
        struct iovec iov[2] = {{0}, {&out, sizeof(out)}};
        return send(e, FUSE_NOTIFY_INVAL_INODE, iov, 2);
}

errint_t notify_send_name(struct fuse_edge *e, uint64_t parent, const char *name, size_t len, bool drop) {
        struct fuse_notify_inval_entry_out out = {.parent = parent, .namelen = (uint32_t)len, .flags = drop ? 0 : FUSE_EXPIRE_ONLY};
        char text[LIMIT_NAME + 1];
        memcpy(text, name, len);
        text[len] = '\0'; /* the kernel wants it, and counts it in the message alone */
        struct iovec iov[3] = {{0}, {&out, sizeof(out)}, {text, len + 1}};
        return send(e, FUSE_NOTIFY_INVAL_ENTRY, iov, 3);
}

errint_t notify_send_epoch(struct fuse_edge *e) {
        struct iovec iov[1];
        metric_add(e->config.metrics, METRIC_EPOCHS, 1);
        return send(e, NOTIFY_INC_EPOCH, iov, 1);
}
