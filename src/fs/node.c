/* node.c: inodes in use and handles: finding, counting, pinning. */
#include "internal.h"

#include "base/log.h"
#include <fcntl.h>

static struct shard *shard_of(struct fs *fs, uint64_t ino) {
        return &fs->shards[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
}
static_assert(FS_SHARDS == 64, "six bits choose a shard");

static struct node *node_new(struct fs *fs, uint64_t ino) {
        struct node *n = NEW(struct node);
        n->fs = fs;
        n->ino = ino;
        n->refs = 1;
        (void)pthread_mutex_init(&n->lock, NULL); /* cannot fail on Linux, nor can locking a mutex used rightly */
        n->g.edit = EDIT_NONE;
        n->queue_tail = &n->queue;
        return n;
}

struct node *node_get(struct fs *fs, uint64_t ino) {
        struct shard *s = shard_of(fs, ino);
        (void)pthread_mutex_lock(&s->lock);
        struct node *n = g_hash_table_lookup(s->nodes, &ino);
        if (n) {
                n->refs++;
        } else {
                n = node_new(fs, ino);
                (void)g_hash_table_insert(s->nodes, &n->ino, n);
        }
        (void)pthread_mutex_unlock(&s->lock);
        return n;
}

struct node *node_find(struct fs *fs, uint64_t ino) {
        struct shard *s = shard_of(fs, ino);
        (void)pthread_mutex_lock(&s->lock);
        struct node *n = g_hash_table_lookup(s->nodes, &ino);
        if (n)
                n->refs++;
        (void)pthread_mutex_unlock(&s->lock);
        return n;
}

struct node *node_ref(struct node *n) {
        struct shard *s = shard_of(n->fs, n->ino);
        (void)pthread_mutex_lock(&s->lock);
        n->refs++;
        (void)pthread_mutex_unlock(&s->lock);
        return n;
}

static void node_free(struct node *n) {
        PRE(!n->queue && !n->g.dirty && !n->overlay && n->open == 0);
        if (n->error != 0 && !n->error_seen && n->error != -ENOENT && n->error != -ESTALE)
                log_warning("writes to inode %llu were lost after its last close: %s", (unsigned long long)n->ino, strerror(-n->error));
        (void)pthread_mutex_destroy(&n->lock);
        free(n);
}

void node_unref(struct node *n) {
        struct shard *s = shard_of(n->fs, n->ino);
        (void)pthread_mutex_lock(&s->lock);
        PRE(n->refs > 0);
        bool last = --n->refs == 0;
        if (last)
                (void)g_hash_table_remove(s->nodes, &n->ino);
        (void)pthread_mutex_unlock(&s->lock);
        if (last)
                node_free(n);
}

static void unref_node(gpointer n) {
        node_unref(n);
}

GPtrArray *node_all(struct fs *fs) {
        GPtrArray *all = g_ptr_array_new_with_free_func(unref_node);
        for (size_t i = 0; i < FS_SHARDS; i++) {
                struct shard *s = &fs->shards[i];
                GHashTableIter iter;
                gpointer value;
                (void)pthread_mutex_lock(&s->lock);
                g_hash_table_iter_init(&iter, s->nodes);
                while (g_hash_table_iter_next(&iter, NULL, &value)) {
                        ((struct node *)value)->refs++;
                        g_ptr_array_add(all, value);
                }
                (void)pthread_mutex_unlock(&s->lock);
        }
        return all;
}

errint_t node_open(struct node *n) {
        (void)pthread_mutex_lock(&n->lock);
        bool pinned = n->pinned;
        if (pinned)
                n->open++;
        (void)pthread_mutex_unlock(&n->lock);
        if (pinned)
                return 0;
        struct state *s = shared_state_write(n->fs->config.state);
        struct attr a;
        errint_t r = tree_getattr(s->tree, n->ino, &a);
        if (r == 0)
                node_open_locked(n, s->tree);
        shared_state_done_write(n->fs->config.state);
        return r;
}

void node_open_locked(struct node *n, struct tree *t) {
        (void)pthread_mutex_lock(&n->lock);
        if (!n->pinned)
                n->pinned = tree_pin(t, n->ino) == 0;
        n->open++;
        (void)pthread_mutex_unlock(&n->lock);
}

void node_close(struct node *n) {
        (void)pthread_mutex_lock(&n->lock);
        bool last = n->open == 1;
        if (!last)
                n->open--;
        (void)pthread_mutex_unlock(&n->lock);
        if (!last)
                return;
        struct state *s = shared_state_write(n->fs->config.state);
        (void)pthread_mutex_lock(&n->lock);
        n->open--;
        if (n->open == 0 && n->pinned) {
                n->pinned = false;
                tree_unpin(s->tree, n->ino);
        }
        (void)pthread_mutex_unlock(&n->lock);
        shared_state_done_write(n->fs->config.state);
}

/* --- handles */

struct handle *handle_new(struct node *n, enum handle_kind kind, int flags, const struct fs_caller *c) {
        struct fs *fs = n->fs;
        struct handle *h = NEW(struct handle);
        atomic_init(&h->refs, 1);
        h->kind = kind;
        h->node = n;
        h->flags = flags;
        h->opener = *c;
        (void)pthread_mutex_init(&h->lock, NULL);
        (void)pthread_mutex_lock(&n->lock);
        h->error_seen =
                n->error != 0 && !n->error_seen ? n->error_seq - 1 : n->error_seq; /* what nobody was told yet is told to the next */
        (void)pthread_mutex_unlock(&n->lock);
        (void)pthread_mutex_lock(&fs->handles_lock);
        h->next = fs->handles;
        h->link = &fs->handles;
        if (h->next)
                h->next->link = &h->next;
        fs->handles = h;
        (void)pthread_mutex_unlock(&fs->handles_lock);
        return h;
}

struct handle *handle_ref(struct handle *h) {
        (void)atomic_fetch_add(&h->refs, 1);
        return h;
}

void handle_unref(struct handle *h) {
        if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
                return;
        struct fs *fs = h->node->fs;
        (void)pthread_mutex_lock(&fs->handles_lock);
        *h->link = h->next;
        if (h->next)
                h->next->link = h->link;
        (void)pthread_mutex_unlock(&fs->handles_lock);
        if (h->kind != HANDLE_VIRTUAL)
                node_close(h->node);
        node_unref(h->node);
        enc_done(&h->text);
        (void)pthread_mutex_destroy(&h->lock);
        free(h);
}

bool handle_writes(const struct handle *h) {
        return h->kind == HANDLE_FILE && (h->flags & O_ACCMODE) != O_RDONLY;
}

/* Who wrote: the caller of the request, whose program is looked up once per handle; what the kernel writes back by itself (pid 0)
 * belongs to the opener. */
struct op_caller handle_caller(struct handle *h, const struct fs_caller *c) {
        bool other = c->pid != 0 && c->pid != h->opener.pid;
        struct op_caller ret;
        if (other) {
                fill_caller(h->node->fs, c, &ret);
                return ret;
        }
        (void)pthread_mutex_lock(&h->lock);
        bool known = h->caller_known;
        ret = h->caller;
        (void)pthread_mutex_unlock(&h->lock);
        if (known)
                return ret;
        fill_caller(h->node->fs, &h->opener, &ret);
        (void)pthread_mutex_lock(&h->lock);
        h->caller = ret;
        h->caller_known = true;
        (void)pthread_mutex_unlock(&h->lock);
        return ret;
}

/* keep_cache is always right for files: whatever changes their content without the kernel's doing (another node, an append that landed
 * elsewhere, a write that failed late) invalidates the pages by itself, and what this node's processes write passes through them. */
struct fs_open_out handle_out(const struct handle *h) {
        struct fs_open_out o = {.fh = handle_fh(h)};
        switch (h->kind) {
        case HANDLE_FILE:
                o.keep_cache = true;
                o.noflush = h->node->fs->config.posix_locks_local && !handle_writes(h);
                break;
        case HANDLE_DIR:
                o.keep_cache = o.cache_readdir = true;
                break;
        case HANDLE_VIRTUAL:
                o.direct_io = true;
                break;
        }
        return o;
}
