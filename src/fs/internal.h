/* internal.h: what the files of this folder share. Private to fs.
 *
 * A node is an inode in use: open, or with gathered writes, or with operations under way. A flight is an operation under way. A gate
 * is a request that waits for flights (close, fsync, truncation). A handle is an open file or directory.
 *
 * Lock order: shared_state -> node->lock -> dirty_lock -> shard->lock. Leaves, of which one is held at a time: waiting_lock, handles_lock,
 * handle->lock, past_lock. Nothing of the backend is called, and no reply, while any of them is held.
 *
 * Order: flights of one inode are handed to the backend in the order in which they were queued: one thread at a time launches them
 * (node_pump), the others leave theirs in the queue and go. So a rename comes after the content that was written before it, and
 * nobody waits. */
#pragma once

#include "edit.h"
#include "fs/fs.h"

#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#define FS_SHARDS 64u
#define FLIGHT_OWNED 6u /* a create has four, and an adopted file its content and xattrs */
#define GATHER_RUN_MAX (1 * MIB)      /* bytes of sequential writes kept aside before they go into the view */
#define GATHER_RUN_DIRECT (128 * KIB) /* a write of at least this goes there at once */
#define GATHER_RESERVE (64 * KIB)     /* room in the store is asked for in such steps */
#define COMPRESS_MIN 64u              /* a smaller payload is not worth trying */
#define XATTR_CAPABILITY "security.capability"
#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

struct shared_state {
        pthread_rwlock_t lock; /* guards state and all below it */
        struct state state;
};

struct flight;
struct gate;
struct handle;

/* --- nodes */

/* Sequential writes, not yet in the view: a write(2) of a few bytes costs a copy of them, not a new version of the content. */
struct run {
        uint64_t offset;
        size_t len, cap;
        uint8_t *data;
};
struct gather {
        bool dirty; /* something is gathered, be it new times alone */
        struct edit edit;
        struct run run;
        struct timestamp time; /* of the last write: what stat shows, and what the operation will carry */
        bool kill_suid, drop_caps, caps_seen; /* caps_seen: whether there are any to drop was looked up */
        struct op_caller caller;
        uint64_t kernel_offset; /* of an append: where the kernel put the first byte in its cache */
        uint64_t reserved;      /* room in the store */
};
struct node {
        struct fs *fs;
        uint64_t ino;
        unsigned refs; /* protected by the shard's lock */
        pthread_mutex_t lock;
        /* All below is protected by lock. */
        unsigned open;    /* handles */
        bool pinned;      /* in the tree, once, while there are handles; changes under the state's write lock */
        bool tmpfile;     /* O_TMPFILE, not linked yet */
        _Atomic bool overlay; /* written under lock: readers look without it whether they need it at all */
        struct gather g;
        /* The content as this node's processes see it: base, the tree's when it was made, with flights not yet applied and the
         * gathered edit laid over it. Valid if base is still the tree's. */
        struct blob *base, *view;
        bool view_valid;
        bool view_stale; /* something that it shows was refused: make it again, from its own bytes */
        uint64_t growth; /* bytes by which the view is larger than base, part of fs->growth */
        struct flight *queue, **queue_tail;
        bool pumping, pump_again;
        errint_t error;          /* of the last operation that failed late */
        uint64_t error_seq;      /* counts them */
        bool error_seen;         /* somebody was told */
        _Atomic bool listed;     /* in fs->dirty; written under dirty_lock */
        uint64_t deadline_ms;    /* protected by dirty_lock */
};
struct shard {
        pthread_mutex_t lock;
        GHashTable *nodes; /* ino -> struct node; protected by lock */
};

struct node *node_get(struct fs *fs, uint64_t ino);  /* found or made; a reference */
struct node *node_find(struct fs *fs, uint64_t ino); /* NULL: none */
struct node *node_ref(struct node *n);
void node_unref(struct node *n); /* with no lock held but the state's */
DEFINE_FREEP(node_unref, struct node)
GPtrArray *node_all(struct fs *fs); /* references to all there are now, given back with the array */
void flush_all_behind(struct fs *fs, struct gate *g); /* all of them; g waits for everything under way */
/* The first handle pins the inode in the tree. -ENOENT. */
errint_t node_open(struct node *n);
void node_open_locked(struct node *n, struct tree *t); /* under the write lock, for an inode that is certainly there */
void node_close(struct node *n);

/* What is done to the content of an inode in use. */
enum change_what { GATHER_WRITE, GATHER_TRUNCATE, GATHER_ZERO, GATHER_TOUCH /* times alone */ };
struct gather_args {
        enum change_what what;
        const void *p;           /* WRITE */
        uint64_t offset, length; /* TRUNCATE: length is the new size */
        bool append, kill_suid, keep_size, keep_caps; /* a store through mmap takes no capabilities away */
        struct timestamp now;
        struct op_caller caller;
        uint64_t want;           /* out, with -EAGAIN: so many bytes more must be reserved (node_reserve) */
        bool misplaced;          /* out: the kernel put these bytes elsewhere in its cache than they belong */
        bool queued;             /* out: a flight waits to be launched */
};
/* gather.c. State lock (read or write) and node->lock held; base is the tree's content now. */
errint_t gather_change(struct node *n, const struct tree *t, struct blob *base, struct gather_args *w);
errint_t gather_view(struct node *n, struct blob *base, struct blob **ret); /* borrowed until node->lock is released */
void gather_attr(struct node *n, struct blob *base, struct attr *a);        /* what stat shows */
/* What is gathered becomes a flight at the end of the queue. Nothing gathered: 0. */
errint_t gather_detach(struct node *n, struct blob *base);
uint64_t gather_drop(struct node *n); /* forgets it; returns the bytes to release */
/* A flight was applied, refused or given up: drops what is no longer needed. */
void gather_settled(struct node *n);

/* node_io.c: the same with all locks taken inside. */
errint_t node_change(struct node *n, struct gather_args *w);
errint_t node_flush(struct node *n); /* detaches and launches; nothing to do is fine */
void node_list_dirty(struct node *n); /* for the timer */
errint_t node_flush_behind(struct node *n, struct gate *g); /* and g waits for all that is under way */
errint_t node_content(struct node *n, struct blob **ret); /* as seen here; a reference. -ESTALE */
errint_t node_shown(struct node *n, struct blob **ret);   /* as the kernel has to see it now */

/* --- waiting requests, by the kernel's number: for interrupts */
struct waiting {
        uint64_t unique; /* 0: none; set before it is registered */
        struct fs_reply *reply;
        bool is_gate, launched, withdrawn; /* protected by fs->waiting_lock, as is all of this once registered */
        uint64_t token;
};

/* --- flights */
enum flight_kind { FLIGHT_OP, FLIGHT_CONTENT, FLIGHT_FENCE };
struct flight {
        struct waiting w;
        struct flight *next; /* protected by node->lock, as are the flags */
        bool launched, applied, done;
        _Atomic unsigned refs;
        struct fs *fs;
        struct node *node; /* NULL: of no inode in use. A reference */
        enum flight_kind kind;
        struct op op;
        void *owned[FLIGHT_OWNED]; /* what op points to */
        unsigned n_owned;
        struct edit edit;    /* CONTENT, with the content that has its bytes */
        struct blob *source;
        uint64_t reserved, kernel_offset;
        struct gate *gate;   /* FENCE */
        uint64_t error_seq;  /* FENCE, with_size: of the node; later errors count */
        errint_t (*prepare)(struct flight *f);                                          /* right before it is launched */
        void (*applied_fn)(struct flight *f, struct state *s, const struct op_result *r); /* under the state's write lock */
        void (*finish)(struct flight *f, const struct op_result *r);                    /* without locks: replies */
        struct handle *handle; /* create, tmpfile: made when applied */
        struct handle *lost;   /* made by an earlier application, in a history that is gone: by lost_next */
        int flags;             /* open(2)'s */
        uint64_t ino;
        bool with_size;        /* a SETATTR that a truncation came with */
        errint_t failed;       /* by applied_fn */
        struct attr tmp_attr;  /* O_TMPFILE */
        const uint8_t *tmp_acl;
        size_t tmp_acl_len;
        bool orphaned;         /* applied to an orphan instead; its answer: */
        struct op_result orphan_result;
};
/* time, caller, node and kind of op are filled in. reply NULL: nobody waits. Takes a reference of n. */
struct flight *flight_new(struct fs *fs, struct node *n, const struct fs_caller *c, enum op_kind kind, struct fs_reply *reply);
const void *flight_own(struct flight *f, const void *p, size_t n); /* a copy that lives as long as the flight */
struct op_name flight_own_name(struct flight *f, const char *name);
void flight_unref(struct flight *f);
void flight_go(struct flight *f);                 /* launches, after those queued before on its node; eats the caller's reference */
void flight_queue(struct node *n, struct flight *f); /* node->lock held; node_pump comes later; eats the caller's reference */
void node_pump(struct node *n);
void flight_spare_drop(struct fs *fs);
void flight_applied(struct flight *f, struct state *s, const struct op_result *result); /* state's write lock held */
void flight_overrules(const struct flight *f); /* likewise: what it did is seen here at once */
void flight_done(void *ctx, const struct op_result *result);
void fill_caller(struct fs *fs, const struct fs_caller *c, struct op_caller *ret);
struct timestamp fs_now(struct fs *fs);

/* --- gates */
struct gate {
        struct waiting w;
        struct fs *fs;
        _Atomic unsigned count; /* fences, and one for whoever sets it up */
        _Atomic int error;
        bool barrier; /* ask for one when open */
        struct handle *handle; /* whose error it reports; a reference; NULL: any */
        uint64_t ino;
        void (*finish)(struct gate *g, errint_t error);
        void (*on_done)(void *ctx);
        void *ctx;
};
struct gate *gate_new(struct fs *fs, struct fs_reply *reply, void (*finish)(struct gate *g, errint_t error));
/* node->lock held: waits for all that is queued there now. seen: node->error_seq, from which on errors count if the gate has no handle. */
void gate_fence(struct gate *g, struct node *n, uint64_t seen);
errint_t gate_error(struct gate *g, struct node *n, uint64_t seen); /* node->lock held: what it has to tell of n */
void gate_pass(struct gate *g);                  /* one less to wait for */
void gate_fail(struct gate *g, errint_t error);
struct fs_reply *gate_take_reply(struct gate *g);

void waiting_add(struct fs *fs, struct waiting *w);
void waiting_remove(struct fs *fs, struct waiting *w);
void waiting_launched(struct fs *fs, struct waiting *w, uint64_t token);

/* --- handles */
enum handle_kind { HANDLE_FILE, HANDLE_DIR, HANDLE_VIRTUAL };
struct handle {
        _Atomic unsigned refs;
        enum handle_kind kind;
        struct node *node;
        int flags;
        struct fs_caller opener;
        pthread_mutex_t lock;
        struct op_caller caller; /* of the opener; program filled in at the first write. Protected by lock */
        bool caller_known;       /* protected by lock */
        uint64_t error_seen;     /* protected by node->lock */
        struct enc text;         /* virtual: what it was at open */
        struct handle *next, **link; /* protected by fs->handles_lock */
        struct handle *lost_next; /* of a flight */
};
struct handle *handle_new(struct node *n, enum handle_kind kind, int flags, const struct fs_caller *c); /* takes a reference of n */
struct handle *handle_ref(struct handle *h);
void handle_unref(struct handle *h);
static inline struct handle *handle_of(uint64_t fh) { return (struct handle *)(uintptr_t)fh; }
static inline uint64_t handle_fh(const struct handle *h) { return (uint64_t)(uintptr_t)h; }
bool handle_writes(const struct handle *h);
struct op_caller handle_caller(struct handle *h, const struct fs_caller *c);
struct fs_open_out handle_out(const struct handle *h);

/* --- the whole */
struct room {
        size_t size;
        uint8_t bytes[];
};
struct fs {
        struct fs_config config;
        struct shard shards[FS_SHARDS];
        _Atomic uint64_t growth;     /* bytes that gathered writes will add to the tree */
        _Atomic unsigned overlays;   /* nodes with one */
        pthread_mutex_t dirty_lock;
        GQueue dirty;                /* nodes with gathered writes by deadline, a reference each; protected by dirty_lock */
        pthread_mutex_t waiting_lock;
        GHashTable *waiting;         /* unique -> struct waiting; protected by waiting_lock */
        pthread_mutex_t handles_lock;
        struct handle *handles;      /* all; protected by handles_lock */
        _Atomic(struct room *) spare; /* for the next large payload; NULL: none */
        struct timestamp started;
        GHashTable *kept;            /* numbers of inodes without a name that the kernel knows, a pin each; protected by the state's lock */
        _Atomic unsigned n_kept;
        pthread_mutex_t past_lock;   /* a leaf */
        GHashTable *pasts;           /* ino -> queue of struct past, in order of seq; protected by past_lock */
        _Atomic unsigned n_pasts;    /* of inodes: 0 is the usual case */
};
/* past.c. state's lock held (to follow: for writing) */
void past_init(struct fs *fs);
void past_done(struct fs *fs);
void past_follow(struct fs *fs, struct tree *t); /* and no other; what was kept of another is dropped */
struct blob *past_content(struct fs *fs, uint64_t ino); /* what a READ has to show; a reference. NULL: the present */
void past_attr(struct fs *fs, struct attr *a);          /* what stat has to show instead */
void past_overrule(struct fs *fs, uint64_t ino);        /* a local change: the present is shown. Lock or not */
void past_remove(struct fs *fs, uint64_t ino, uint64_t seq); /* nobody will be told of that change. Lock or not */
#define backend_of(fs) (&(fs)->config.backend)
static inline void fs_count(struct fs *fs, enum metric id, uint64_t n) { metric_add(fs->config.metrics, id, n); }
errint_t fs_writable(struct fs *fs);

/* Attributes of an inode with what is gathered; state's read lock held. -ENOENT. */
errint_t attr_of(struct fs *fs, const struct tree *t, uint64_t ino, struct attr *ret);
errint_t entry_of(struct fs *fs, uint64_t ino, struct fs_entry *ret); /* takes the read lock */
void reply_err(struct fs_reply *r, errint_t error);
void reply_attr(struct fs *fs, uint64_t ino, struct fs_reply *r);
void reply_entry(struct fs *fs, uint64_t ino, struct fs_reply *r);
size_t reply_blob(struct blob *b, uint64_t offset, size_t n, struct fs_reply *r); /* returns the bytes */

/* --- virtual files */
struct virtual_file {
        const char *name;
        uint32_t mode;
        errint_t (*generate)(struct fs *fs, struct enc *e);
};
extern const struct virtual_file virtual_status, virtual_metrics, virtual_version, virtual_members;
#define VIRTUAL_TEXT_MAX (16 * MIB)
#define INO_VIRTUAL_DIR (INO_RESERVED + 1)
bool virtual_reserved(uint64_t parent, const char *name); /* the name of the virtual directory */
errint_t virtual_lookup(struct fs *fs, uint64_t parent, const char *name, struct fs_entry *ret);
errint_t virtual_attr(struct fs *fs, uint64_t ino, struct fs_entry *ret);
errint_t virtual_open(struct fs *fs, uint64_t ino, struct enc *e); /* the text as it is now */
errint_t virtual_readdir(struct fs *fs, uint64_t offset, bool plus, fs_fill_fn fill, void *ctx);

/* --- POSIX ACLs, as xattr values: acl.c */
struct acl_inherited {
        uint32_t mode;
        uint8_t *access, *def; /* malloc'ed or NULL */
        size_t access_len, def_len;
};
errint_t fs_acl_check(const uint8_t *value, size_t len);
bool fs_acl_mode(const uint8_t *value, size_t len, uint32_t *mode); /* permission bits of mode as the ACL says; true: they say all of it */
errint_t fs_acl_inherit(const uint8_t *def, size_t len, uint32_t mode, struct acl_inherited *ret);
void acl_inherited_done(struct acl_inherited *a);
