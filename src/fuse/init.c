/* init.c: what is agreed with the kernel. libfuse negotiates what it knows; the rest is put into its INIT reply on the way out. */
#include "edge.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define WANTED                                                                                                                             \
        (FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |     \
         FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_ASYNC_DIO | FUSE_CAP_EXPLICIT_INVAL_DATA)

/* Locks are not asked for: the kernel keeps them, which is right for one node. Not wanted either: writeback caching (the daemon
 * gathers), splicing (a payload is copied once, into the worker's buffer), ATOMIC_O_TRUNC (truncation comes as a SETATTR).
 *
 * EXPLICIT_INVAL_DATA instead of AUTO_INVAL_DATA: pages are dropped when a change set says so, not whenever the time of a file that was
 * written here moves. */
void edge_init(void *userdata, struct fuse_conn_info *conn) {
        struct fuse_edge *e = userdata;
        conn->want = conn->capable & WANTED;
        unsigned most = e->config.max_write ? MIN_OF(e->config.max_write, EDGE_MAX_WRITE) : EDGE_MAX_WRITE;
        conn->max_write = MAX_OF(most, 4096u);
        conn->max_background = 128; /* RELEASE and readahead travel in the background: the default of 12 makes closes queue up */
        conn->congestion_threshold = 96;
}

/* Since Linux 6.13 an administrator can lower or raise the number of pages in a request. */
static unsigned pages_limit(void) {
        unsigned limit = 256;
        FILE *f = fopen("/proc/sys/fs/fuse/max_pages_limit", "re");
        if (!f)
                return limit;
        if (fscanf(f, "%u", &limit) != 1 || limit == 0)
                limit = 256;
        (void)fclose(f); /* was read only */
        return limit;
}

void edge_init_patch(struct fuse_edge *e, const struct fuse_init_in *in, size_t in_len, struct fuse_init_out *out, size_t out_len) {
        if (in_len < offsetof(struct fuse_init_in, flags2) || out_len < offsetof(struct fuse_init_out, flags2))
                return; /* older than 7.6, or libfuse refuses this kernel */
        uint32_t offered = in->flags;
        /* Without V2 the kernel asks for security.capability before each WRITE. */
        if (offered & FUSE_HANDLE_KILLPRIV_V2) {
                out->flags &= ~(uint32_t)FUSE_HANDLE_KILLPRIV;
                out->flags |= FUSE_HANDLE_KILLPRIV_V2;
        }
        out->flags |= offered & (FUSE_SETXATTR_EXT | FUSE_BIG_WRITES);
        e->setxattr_ext = offered & FUSE_SETXATTR_EXT;
        e->kernel_minor = in->minor;
        unsigned most = out->max_write;
        unsigned page = (unsigned)sysconf(_SC_PAGESIZE);
        if (!(out->flags & FUSE_MAX_PAGES))
                most = MIN_OF(most, EDGE_MAX_WRITE_OLD);
        else
                most = (unsigned)MIN_OF((uint64_t)most, (uint64_t)MIN_OF(pages_limit(), (unsigned)out->max_pages) * page);
        e->max_write = most;
        e->epoch = in->minor >= NOTIFY_INC_EPOCH_MINOR && !e->config.no_epoch;
        e->attr_valid_s = e->config.cache ? EDGE_FOREVER_S : 0;
        e->entry_valid_s = e->config.cache && e->epoch ? EDGE_FOREVER_S : 0;
}
