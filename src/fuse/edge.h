/* edge.h: what the parts of the kernel edge share. Private to src/fuse.
 *
 * Threads: workers block in read(2) of /dev/fuse and run one request each; replies come from them or from whoever finishes an
 * operation; the notification pool (notify.h) talks to the kernel on its own. Lock order: none is taken under another. */
#pragma once

#include "crew.h"
#include "fuse/fuse.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>

/* What linux/fuse.h of protocol 7.38 does not know yet. */
#define NOTIFY_INC_EPOCH 8
#define NOTIFY_INC_EPOCH_MINOR 44u

#define EDGE_THREADS_MAX 16u
#define EDGE_MAX_WRITE (1024u * 1024u)
#define EDGE_MAX_WRITE_OLD (128u * 1024u) /* kernels without FUSE_MAX_PAGES: 32 pages */
#define EDGE_HEADROOM 64u                 /* in front of a request: room to move its header up */
#define EDGE_REQUEST_HEAD 4096u           /* headers and names in front of a WRITE's payload; READDIR fills what lies behind */
#define EDGE_FOREVER_S UINT64_C(1000000000)

struct notify;
struct mount_id { /* tells a mount from another at the same place */
        unsigned dev_major, dev_minor;
};

/* A request under way. The request layer holds on to `reply`; everything else is the edge's. What says "parking" is protected by
 * the lock of that name in reply.c, except in the submitting thread while it submits. */
struct edge_req {
        struct fs_reply reply;
        struct fs *fs;
        struct fuse_edge *edge; /* parking: NULL when the edge has stopped and given the answer itself */
        fuse_req_t req;         /* parking: NULL as well then */
        uint64_t ino;           /* of the request */
        bool is_dir;            /* an OPENDIR: what to undo when nobody waits for the answer any more */
        bool loses_setuid;      /* a WRITE that changes the mode */
        bool waits;             /* may be answered later: on the heap */
        bool answered;          /* parking */
        bool parked;            /* parking: in edge->parked, answered from another thread */
        bool elsewhere;         /* in the copy that is answered: by a thread that edge->replying counts */
        struct edge_req *next, *prev;
};

struct worker {
        struct fuse_edge *edge;
        pthread_t thread;
        bool started;
        char *memory; /* EDGE_HEADROOM, then the request */
        size_t size;
        const struct fuse_in_header *raw; /* the request that is being handled, as the kernel sent it */
        uint32_t setxattr_flags;          /* of a SETXATTR with the extended header */
        bool tmpfile;                     /* it is a TMPFILE, told to libfuse as a CREATE of the same layout */
        struct edge_req *submitting;      /* being handed to the request layer by this thread right now */
        struct edge_req *spare;           /* for the next one: most are answered at once */
        /* 0, or the generation of change sets when this thread began a request whose reply the kernel will keep: see notify.h. */
        _Alignas(64) _Atomic uint64_t active;
};
extern _Thread_local struct worker *worker_self; /* NULL in threads that are not workers */

struct fuse_edge {
        struct fuse_edge_config config; /* strings are our own */
        char *mountpoint;               /* resolved */
        struct mount_id mount;
        bool mounted;
        int fd; /* the session's, which closes it */
        struct fuse_session *session;

        /* Settled while INIT is answered, before any other request. */
        unsigned kernel_minor, max_write;
        bool epoch, setxattr_ext;
        uint64_t entry_valid_s, attr_valid_s;

        struct worker *workers;
        unsigned n_workers;
        struct crew crew;
        struct notify *notify;

        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool ready, ended, stopping; /* protected by lock */
        errint_t end_error;          /* protected by lock */
        unsigned running;            /* protected by lock: workers */
        struct edge_req *parked;     /* parking */
        unsigned replying;           /* parking: answers being written by threads that are not workers */
        bool refusing;               /* parking: what cannot be answered at once gets EIO */
};

/* mount.c */
errint_t edge_mount(const struct fuse_edge_config *config, const char *path, int *ret_fd, struct mount_id *ret_id, char *reason, size_t reason_size);
/* Writes back mapped pages and unmounts, lazily when busy: false then, for somebody goes on using it. Does nothing when another mount is
 * there by now. */
bool edge_unmount(const char *path, struct mount_id id);
/* A file is read in as few requests as it is written in. After INIT. */
void edge_readahead(struct mount_id id);
/* Ends the connection, whoever uses it: their calls fail with ENOTCONN from now on. */
errint_t edge_abort(int session_fd, struct mount_id id); /* session_fd -1: the caller knows that the session lives */

/* init.c */
void edge_init(void *userdata, struct fuse_conn_info *conn); /* fuse_lowlevel_ops.init */
void edge_init_patch(struct fuse_edge *e, const struct fuse_init_in *in, size_t in_len, struct fuse_init_out *out, size_t out_len);

/* worker.c */
void *worker_main(void *worker);
void worker_end(struct fuse_edge *e, errint_t error);

/* request.c */
extern const struct fuse_lowlevel_ops edge_ops;
/* dir.c */
void edge_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void edge_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

/* reply.c */
extern const struct fs_reply_ops edge_reply_ops, edge_self_ops;
void edge_sync_begin(struct edge_req *q, fuse_req_t req); /* answered before the call returns: may lie on the stack */
struct edge_req *edge_req_begin(fuse_req_t req);          /* may be answered later */
void edge_req_end(struct edge_req *q);                    /* after it was handed to the request layer */
bool edge_req_interrupt(struct fuse_edge *e, uint64_t unique); /* false: no such request waits */
void edge_req_wait_all(struct fuse_edge *e, const struct timespec *until); /* CLOCK_MONOTONIC */
void edge_req_orphan_all(struct fuse_edge *e);            /* answers EIO to all that wait, and waits for answers under way */
void edge_entry_out(const struct fuse_edge *e, const struct fs_entry *entry, struct fuse_entry_out *out);
