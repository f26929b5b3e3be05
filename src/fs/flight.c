/* flight.c: operations on their way: queued per inode, launched in order, applied, answered. */
#include "internal.h"

#include "base/log.h"

struct timestamp fs_now(struct fs *fs) {
        struct timestamp t;
        backend_of(fs)->realtime(backend_of(fs)->ctx, &t);
        return t;
}

void fill_caller(struct fs *fs, const struct fs_caller *c, struct op_caller *ret) {
        *ret = (struct op_caller){.uid = c->uid, .gid = c->gid, .pid = c->pid};
        if (c->pid > 0)
                backend_of(fs)->program(backend_of(fs)->ctx, c->pid, ret->program);
}

struct flight *flight_new(struct fs *fs, struct node *n, const struct fs_caller *c, enum op_kind kind, struct fs_reply *reply) {
        struct flight *f = NEW(struct flight);
        atomic_init(&f->refs, 1);
        f->fs = fs;
        f->node = n ? node_ref(n) : NULL;
        f->kind = FLIGHT_OP;
        f->edit = EDIT_NONE;
        f->op.kind = kind;
        f->w.reply = reply;
        if (c) { /* without one, the caller holds locks and knows better */
                fill_caller(fs, c, &f->op.caller);
                f->op.time = fs_now(fs);
        }
        if (reply) {
                f->w.unique = reply->unique;
                waiting_add(fs, &f->w);
        }
        return f;
}

static void flight_ref(struct flight *f) {
        (void)atomic_fetch_add(&f->refs, 1);
}

void flight_unref(struct flight *f) {
        if (!f || atomic_fetch_sub(&f->refs, 1) != 1)
                return;
        for (unsigned i = 0; i < f->n_owned; i++)
                free(f->owned[i]);
        edit_done(&f->edit);
        blob_unref(f->source);
        if (f->node)
                node_unref(f->node);
        free(f);
}

const void *flight_own(struct flight *f, const void *p, size_t n) {
        PRE(f->n_owned < FLIGHT_OWNED);
        void *copy = xmalloc(n + 1);
        if (n > 0)
                memcpy(copy, p, n);
        f->owned[f->n_owned++] = copy;
        return copy;
}

struct op_name flight_own_name(struct flight *f, const char *name) {
        size_t len = strlen(name);
        return (struct op_name){flight_own(f, name, len), len};
}

void flight_queue(struct node *n, struct flight *f) {
        *n->queue_tail = f;
        n->queue_tail = &f->next;
}

/* --- orphans: unlinked, but open here: nobody else knows them */

/* The inode that an operation changes, where it changes one alone. */
static bool changes_inode(const struct op *op, uint64_t *ret_ino) {
        switch (op->kind) {
        case OP_WRITE:
                *ret_ino = op->write.ino;
                return true;
        case OP_SETATTR:
                *ret_ino = op->setattr.ino;
                return true;
        case OP_SETXATTR:
                *ret_ino = op->setxattr.ino;
                return true;
        case OP_REMOVEXATTR:
                *ret_ino = op->removexattr.ino;
                return true;
        default:
                return false;
        }
}

void flight_overrules(const struct flight *f) {
        uint64_t ino = 0;
        if (changes_inode(&f->op, &ino))
                past_overrule(f->fs, ino);
}

static bool changes_orphan(const struct flight *f, const struct tree *t) {
        uint64_t ino = 0;
        return changes_inode(&f->op, &ino) && tree_is_orphan(t, ino);
}

static struct op_result apply_to_orphan(const struct flight *f, struct tree *t) {
        struct op op = f->op;
        struct op_result result = {0};
        cleanup_free uint8_t *data = NULL;
        errint_t r = 0;
        if (f->kind == FLIGHT_CONTENT) {
                r = edit_payload(&f->edit, f->source, &data, &op.payload.len);
                op.payload.form = FORM_RAW;
                op.payload.data = data;
                op.payload.raw_len = op.payload.len;
        }
        if (r == 0)
                r = tree_apply_orphan(t, &op, &result);
        if (r < 0)
                result = (struct op_result){.error = r};
        return result;
}

/* Its bytes now come from the tree, or from nowhere. */
static void mark_applied(struct flight *f, errint_t error) {
        struct node *n = f->node;
        if (f->kind != FLIGHT_CONTENT)
                return;
        (void)pthread_mutex_lock(&n->lock);
        f->applied = true;
        n->view_stale = n->view_stale || error < 0;
        gather_settled(n);
        (void)pthread_mutex_unlock(&n->lock);
}

static bool launch_to_orphan(struct flight *f) {
        struct fs *fs = f->fs;
        struct op_result result = {0};
        struct state *s = shared_state_write(fs->config.state);
        bool still = changes_orphan(f, s->tree);
        if (still) {
                (void)pthread_mutex_lock(&f->node->lock);
                f->launched = true;
                (void)pthread_mutex_unlock(&f->node->lock);
                result = apply_to_orphan(f, s->tree);
                mark_applied(f, result.error);
        }
        shared_state_done_write(fs->config.state);
        if (!still)
                return false;
        if (f->reserved > 0)
                backend_of(fs)->release(backend_of(fs)->ctx, f->reserved);
        flight_ref(f);
        flight_done(f, &result);
        return true;
}

/* --- launching */

#define ROOM_KEPT_MIN (64 * KIB)
#define ROOM_KEPT_MAX (1 * MIB)

/* Where a payload is put together. That of a large one is kept until nobody writes: the kernel takes longer to find fresh pages for it
 * than its bytes take to copy. */
static struct room *room_take(struct fs *fs, size_t n) {
        struct room *room = n >= ROOM_KEPT_MIN ? atomic_exchange(&fs->spare, NULL) : NULL;
        if (room && room->size >= n)
                return room;
        free(room);
        room = try_malloc(sizeof(*room) + n);
        if (room)
                room->size = n;
        return room;
}

static void room_give(struct fs *fs, struct room *room) {
        bool keep = room && room->size >= ROOM_KEPT_MIN && room->size <= ROOM_KEPT_MAX;
        free(keep ? atomic_exchange(&fs->spare, room) : room);
}

void flight_spare_drop(struct fs *fs) {
        free(atomic_exchange(&fs->spare, NULL));
}

struct payload { /* what op.payload points to */
        struct room *room;
        uint8_t *packed;
};

static errint_t content_payload(const struct flight *f, struct op *op, struct payload *ret) {
        size_t len = (size_t)f->edit.data_bytes, packed_len = 0;
        if (len == 0)
                return 0;
        ret->room = room_take(f->fs, len);
        if (!ret->room)
                return -ENOMEM;
        edit_bytes(&f->edit, f->source, ret->room->bytes);
        op->payload = (struct op_payload){
                .form = FORM_RAW, .raw_len = len, .data = ret->room->bytes, .len = len, .source = f->edit.append ? NULL : f->source};
        if (len < COMPRESS_MIN || compress_zstd(ret->room->bytes, len, &ret->packed, &packed_len) < 0)
                return 0;
        op->payload.form = FORM_ZSTD;
        op->payload.data = ret->packed;
        op->payload.len = packed_len;
        room_give(f->fs, steal_pointer(&ret->room));
        return 0;
}

static void payload_done(struct fs *fs, struct payload *p) {
        room_give(fs, p->room);
        free(p->packed);
}

static void launch_to_backend(struct flight *f) {
        struct fs *fs = f->fs;
        const struct fs_backend *b = backend_of(fs);
        struct payload payload = {0};
        errint_t r = f->prepare ? f->prepare(f) : 0;
        struct op op = f->op; /* the flight's own stays as it is: it may have to be applied to an orphan, by another thread */
        if (r == 0 && f->kind == FLIGHT_CONTENT)
                r = content_payload(f, &op, &payload);
        if (f->node) {
                (void)pthread_mutex_lock(&f->node->lock);
                f->launched = true;
                (void)pthread_mutex_unlock(&f->node->lock);
                flight_ref(f);
        }
        if (f->reserved > 0)
                b->release(b->ctx, f->reserved);
        if (r < 0) {
                flight_done(f, &(struct op_result){.error = r});
                return;
        }
        uint64_t token = 0;
        b->submit(b->ctx, &op, flight_done, f, &token);
        waiting_launched(fs, &f->w, token);
        payload_done(fs, &payload);
}

/* false: it changes an orphan, and must wait until what was sent before has been answered (perhaps with ENOENT, and applied to the
 * orphan then): else the older would overwrite the newer. */
static bool flight_launch(struct flight *f, bool alone) {
        uint64_t ino;
        if (f->node && changes_inode(&f->op, &ino)) {
                const struct state *s = shared_state_read(f->fs->config.state);
                bool orphan = changes_orphan(f, s->tree);
                shared_state_done_read(f->fs->config.state);
                if (orphan && !alone)
                        return false;
                if (orphan && launch_to_orphan(f))
                        return true;
        }
        launch_to_backend(f);
        return true;
}

static struct flight *next_to_launch(const struct node *n) {
        struct flight *f = n->queue;
        while (f && f->launched)
                f = f->next;
        return f;
}

void node_pump(struct node *n) {
        (void)pthread_mutex_lock(&n->lock);
        struct flight *f = NULL;
        if (n->pumping) {
                n->pump_again = true;
                (void)pthread_mutex_unlock(&n->lock);
                return;
        }
        n->pumping = true;
        while ((f = next_to_launch(n))) {
                bool alone = n->queue == f;
                n->pump_again = false;
                flight_ref(f);
                (void)pthread_mutex_unlock(&n->lock);
                bool went = flight_launch(f, alone);
                flight_unref(f);
                (void)pthread_mutex_lock(&n->lock);
                if (!went && !n->pump_again)
                        break;
        }
        n->pumping = false;
        (void)pthread_mutex_unlock(&n->lock);
}

void flight_go(struct flight *f) {
        struct node *n = f->node ? node_ref(f->node) : NULL;
        if (!n) {
                flight_ref(f);
                launch_to_backend(f);
                flight_unref(f);
                return;
        }
        (void)pthread_mutex_lock(&n->lock);
        flight_queue(n, f);
        (void)pthread_mutex_unlock(&n->lock);
        node_pump(n);
        node_unref(n);
}

/* --- landing */

void flight_applied(struct flight *f, struct state *s, const struct op_result *result) {
        struct op_result r = *result;
        if (r.error == -ENOENT && !f->orphaned && changes_orphan(f, s->tree)) { /* its last name went first */
                f->orphan_result = apply_to_orphan(f, s->tree);
                f->orphaned = true;
        }
        if (f->orphaned)
                r = f->orphan_result;
        mark_applied(f, r.error);
        if (f->applied_fn)
                f->applied_fn(f, s, &r);
}

static void content_answered(struct flight *f, const struct op_result *r) {
        struct fs *fs = f->fs;
        struct node *n = f->node;
        (void)pthread_mutex_lock(&n->lock);
        bool applied = f->applied;
        (void)pthread_mutex_unlock(&n->lock);
        if (!applied) /* refused without a position */
                mark_applied(f, r->error);
        if (r->error < 0) {
                (void)pthread_mutex_lock(&n->lock);
                n->error = r->error;
                n->error_seq++;
                n->error_seen = false;
                (void)pthread_mutex_unlock(&n->lock);
        }
        bool moved = (f->op.write.flags & WRITE_APPEND) && r->offset != f->kernel_offset;
        if (r->error < 0 || moved) /* the kernel's pages show what is not in the file, or not there */
                backend_of(fs)->invalidate_inode(backend_of(fs)->ctx, n->ino);
}

/* Answered flights leave the queue from its head, fences with them. */
static void node_retire(struct node *n, struct flight *f) {
        struct flight *gone = NULL, **tail = &gone;
        (void)pthread_mutex_lock(&n->lock);
        f->done = true;
        while (n->queue && (n->queue->done || n->queue->kind == FLIGHT_FENCE)) {
                struct flight *head = n->queue;
                n->queue = head->next;
                if (!n->queue)
                        n->queue_tail = &n->queue;
                head->next = NULL;
                if (head->kind == FLIGHT_FENCE)
                        gate_fail(head->gate, gate_error(head->gate, n, head->error_seq));
                *tail = head;
                tail = &head->next;
        }
        (void)pthread_mutex_unlock(&n->lock);
        node_pump(n);
        while (gone) {
                struct flight *head = gone;
                gone = head->next;
                if (head->kind == FLIGHT_FENCE)
                        gate_pass(head->gate);
                flight_unref(head);
        }
}

void flight_done(void *ctx, const struct op_result *result) {
        struct flight *f = ctx;
        struct op_result r = f->orphaned ? f->orphan_result : *result;
        waiting_remove(f->fs, &f->w);
        if (f->failed < 0 && r.error == 0)
                r.error = f->failed;
        if (f->kind == FLIGHT_CONTENT)
                content_answered(f, &r);
        if (f->finish)
                f->finish(f, &r);
        if (f->node)
                node_retire(f->node, f);
        flight_unref(f);
}
