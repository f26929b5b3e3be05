/* gather.c: writes are gathered per inode and become one operation.
 *
 * Three things say the same: `edit`, the canonical form that the operation will carry (where); `view`, the content with everything laid
 * over it (what); `run`, the last sequential bytes, which are in edit but not yet in view. Blobs share chunks, so a view costs the chunks
 * that were touched, whatever the size of the file; and since it is immutable, readers take it with them.
 *
 * What stat shows while bytes are gathered is what it will show once they are applied: size and allocation come from the view, whose
 * form is canonical, and the operation carries the very time shown. So nothing that the kernel was told goes stale when the
 * operation is applied, and attributes of files being written may be cached like all others.
 *
 * While an operation is under way, further writes gather anew; the view lies on top of both. When the tree's content becomes another one
 * (ours was applied, or somebody else's) the view is made again from it. Applied twice, a positioned edit changes nothing, an append would:
 * that is why fs_applied is called under the same write lock as the apply. */
#include "internal.h"

/* --- what there is to lay over the tree */

static bool flight_pending(const struct flight *f) {
        return f->kind == FLIGHT_CONTENT && !f->applied;
}

static bool any_pending(const struct node *n) {
        for (const struct flight *f = n->queue; f; f = f->next)
                if (flight_pending(f))
                        return true;
        return false;
}

static void set_overlay(struct node *n, bool on) {
        if (atomic_load_explicit(&n->overlay, memory_order_relaxed) == on)
                return;
        atomic_store(&n->overlay, on);
        if (on)
                (void)atomic_fetch_add(&n->fs->overlays, 1);
        else
                (void)atomic_fetch_sub(&n->fs->overlays, 1);
}

static void view_drop(struct node *n) {
        blob_unref(n->base);
        blob_unref(n->view);
        n->base = n->view = NULL;
        n->view_valid = false;
}

static void view_set(struct node *n, struct blob *base, struct blob *view) {
        struct blob *keep = blob_ref(base);
        view_drop(n);
        n->base = keep;
        n->view = view;
        n->view_valid = true;
        n->view_stale = false;
}

/* --- the run */

static void run_done(struct run *run) {
        free(run->data);
        *run = (struct run){0};
}

static errint_t view_write(struct node *n, uint64_t offset, const void *p, size_t len) {
        struct extent x = {offset, len, EXTENT_DATA};
        struct blob *next = NULL;
        errint_t r = blob_edit(n->view, BLOB_KEEP_ALL, &x, 1, p, len, BLOB_KEEP_ALL, &next);
        if (r < 0)
                return r;
        blob_unref(n->view);
        n->view = next;
        return 0;
}

static errint_t run_fold(struct node *n) {
        struct run *run = &n->g.run;
        if (run->len == 0)
                return 0;
        PRE(n->view_valid);
        errint_t r = view_write(n, run->offset, run->data, run->len);
        if (r == 0)
                run->len = 0;
        return r;
}

static errint_t run_grow(struct run *run, size_t need) {
        if (need <= run->cap)
                return 0;
        size_t cap = MIN_OF(MAX_OF(need, MAX_OF(run->cap * 2, (size_t)4096)), (size_t)GATHER_RUN_MAX);
        uint8_t *p = try_malloc(cap);
        if (!p)
                return -ENOMEM;
        if (run->len > 0)
                memcpy(p, run->data, run->len);
        free(run->data);
        run->data = p;
        run->cap = cap;
        return 0;
}

/* Into the run where it goes on or is overwritten, else a new one. */
static errint_t run_write(struct node *n, uint64_t offset, const void *p, size_t len) {
        struct run *run = &n->g.run;
        bool inside = run->len > 0 && offset >= run->offset && offset + len <= run->offset + run->len;
        bool behind = run->len > 0 && offset == run->offset + run->len && run->len + len <= GATHER_RUN_MAX;
        errint_t r = inside || behind ? 0 : run_fold(n);
        if (r < 0)
                return r;
        if (!inside && !behind && len >= GATHER_RUN_DIRECT)
                return view_write(n, offset, p, len);
        if (!inside && !behind)
                run->offset = offset;
        size_t at = (size_t)(offset - run->offset);
        r = run_grow(run, at + len);
        if (r < 0)
                return r;
        memcpy(run->data + at, p, len);
        run->len = MAX_OF(run->len, at + len);
        return 0;
}

/* --- the view */

static errint_t replay_over(struct blob **cur, const struct edit *e, struct blob *source, uint64_t *ret_at) {
        struct blob *next = NULL;
        errint_t r = edit_replay(e, source, *cur, &next, ret_at);
        if (r < 0)
                return r;
        blob_unref(*cur);
        *cur = next;
        return 0;
}

static errint_t view_sync(struct node *n, struct blob *base) {
        if (n->view_valid && n->base == base && !n->view_stale)
                return 0;
        errint_t r = run_fold(n);
        CLEANUP(blob_unrefp) struct blob *cur = blob_ref(base);
        uint64_t at = 0;
        for (const struct flight *f = n->queue; f && r == 0; f = f->next)
                if (flight_pending(f))
                        r = replay_over(&cur, &f->edit, f->source, &at);
        if (r == 0 && n->g.dirty && !edit_is_none(&n->g.edit)) {
                r = replay_over(&cur, &n->g.edit, n->view, &at);
                if (r == 0 && n->g.edit.append)
                        n->g.edit.extents[0].offset = at;
        }
        if (r < 0)
                return r;
        view_set(n, base, steal_pointer(&cur));
        return 0;
}

errint_t gather_view(struct node *n, struct blob *base, struct blob **ret) {
        if (!n->overlay) {
                *ret = base;
                return 0;
        }
        errint_t r = view_sync(n, base);
        if (r == 0)
                r = run_fold(n);
        if (r == 0)
                *ret = n->view;
        return r;
}

/* After view_sync. */
static uint64_t view_size(const struct node *n) {
        const struct run *run = &n->g.run;
        return MAX_OF(blob_size(n->view), run->len > 0 ? run->offset + run->len : 0);
}

static void account(struct node *n, uint64_t growth) {
        (void)atomic_fetch_add(&n->fs->growth, growth - n->growth);
        n->growth = growth;
}

static uint64_t grown(uint64_t now, uint64_t before) {
        return now > before ? now - before : 0;
}

static void account_view(struct node *n) {
        account(n, grown(blob_allocated(n->view) + n->g.run.len, blob_allocated(n->base)));
}

void gather_attr(struct node *n, struct blob *base, struct attr *a) {
        struct blob *view = NULL;
        if (!n->overlay)
                return;
        bool kill = false;
        for (const struct flight *f = n->queue; f; f = f->next) {
                if (!flight_pending(f))
                        continue;
                a->mtime = a->ctime = f->op.time;
                kill = kill || (f->op.write.flags & WRITE_KILL_SUID);
        }
        if (n->g.dirty) {
                a->mtime = a->ctime = n->g.time;
                kill = kill || n->g.kill_suid;
        }
        if (kill)
                a->mode &= ~(uint32_t)(S_ISUID | (a->mode & S_IXGRP ? S_ISGID : 0));
        if (gather_view(n, base, &view) == 0) { /* out of memory: rather the old size than none */
                a->size = blob_size(view);
                a->blocks = (blob_allocated(view) + 511) / 512;
        }
}

/* --- gathering */

static const struct settings *limits(const struct tree *t) {
        return tree_settings(t);
}

/* The current gather ends where the next change would not fit into its operation. */
static errint_t gather_begin(struct node *n, struct blob *base, struct gather_args *w) {
        const struct edit *e = &n->g.edit;
        if (!n->g.dirty || edit_is_none(e))
                return 0;
        bool append = w->what == GATHER_WRITE && w->append && e->size == BLOB_KEEP_ALL; /* after a truncation the end is known */
        bool full = edit_is_full(e) || (w->what == GATHER_WRITE && e->data_bytes + w->length > OP_PAYLOAD_MAX);
        if (!full && (w->what == GATHER_TOUCH || e->append == append))
                return 0;
        w->queued = true;
        return gather_detach(n, base);
}

/* Would the tree still be within its limit? First by an upper bound, then exactly. */
static errint_t gather_room(struct node *n, const struct tree *t, const struct extent *x, const void *p) {
        struct tree_usage u;
        tree_usage(t, &u);
        uint64_t others = u.bytes + atomic_load(&n->fs->growth) - n->growth, base = blob_allocated(n->base);
        if (others + grown(blob_allocated(n->view) + n->g.run.len + x->length, base) <= u.bytes_max || tree_is_orphan(t, n->ino))
                return 0;
        errint_t r = run_fold(n);
        CLEANUP(blob_unrefp) struct blob *next = NULL;
        if (r == 0)
                r = blob_edit(n->view, BLOB_KEEP_ALL, x, 1, p, (size_t)x->length, BLOB_KEEP_ALL, &next);
        if (r < 0)
                return r;
        account_view(n);
        uint64_t now = blob_allocated(next);
        return now <= blob_allocated(n->view) || others + grown(now, base) <= u.bytes_max ? 0 : -ENOSPC;
}

/* Room in the store was reserved for all that is gathered, by the caller, who holds no locks then. */
static errint_t gather_reserved(const struct node *n, const struct tree *t, uint64_t more, struct gather_args *w) {
        uint64_t need = n->g.edit.data_bytes + more + 1024 /* the head */;
        if (need <= n->g.reserved || tree_is_orphan(t, n->ino))
                return 0;
        w->want = need - n->g.reserved;
        return -EAGAIN;
}

static void gather_stamp(struct node *n, const struct tree *t, const struct gather_args *w) {
        struct gather *g = &n->g;
        const uint8_t *value = NULL;
        size_t len = 0;
        if (!g->dirty) {
                g->dirty = true;
                g->caller = w->caller;
        }
        if (!w->keep_caps && !g->caps_seen) {
                g->caps_seen = true;
                g->drop_caps = tree_xattr_get(t, n->ino, XATTR_CAPABILITY, strlen(XATTR_CAPABILITY), &value, &len) == 0;
        }
        g->time = w->now;
        g->kill_suid = g->kill_suid || w->kill_suid;
        set_overlay(n, true);
        account_view(n);
}

static errint_t gather_write(struct node *n, const struct tree *t, struct gather_args *w) {
        uint64_t size = view_size(n), at = w->append ? size : w->offset, max = limits(t)->file_size_max;
        if (w->length > OP_PAYLOAD_MAX || at > LIMIT_FILE_SIZE_MAX)
                return -EFBIG;
        struct extent x = {at, w->length, EXTENT_DATA};
        if (at + w->length > size && at + w->length > max)
                return -EFBIG;
        errint_t r = gather_room(n, t, &x, w->p);
        if (r == 0)
                r = gather_reserved(n, t, w->length, w);
        if (r == 0)
                r = run_write(n, at, w->p, (size_t)w->length);
        if (r < 0)
                return r;
        if (edit_is_none(&n->g.edit)) {
                n->g.edit.append = w->append;
                n->g.kernel_offset = w->offset;
        }
        w->misplaced = w->append && w->offset != at;
        edit_write(&n->g.edit, at, w->length);
        return 0;
}

static errint_t view_edit(struct node *n, uint64_t keep, const struct extent *x, uint64_t size) {
        struct blob *next = NULL;
        errint_t r = run_fold(n);
        if (r == 0)
                r = blob_edit(n->view, keep, x, x ? 1 : 0, NULL, 0, size, &next);
        if (r < 0)
                return r;
        blob_unref(n->view);
        n->view = next;
        return 0;
}

static errint_t gather_truncate(struct node *n, const struct tree *t, const struct gather_args *w) {
        uint64_t size = view_size(n);
        if (w->length > size && w->length > limits(t)->file_size_max)
                return -EFBIG;
        if (w->length == size && n->g.edit.size == BLOB_KEEP_ALL)
                return 0; /* times alone: it must not cut what somebody else appends meanwhile */
        errint_t r = view_edit(n, w->length, NULL, w->length);
        if (r == 0)
                edit_truncate(&n->g.edit, w->length);
        return r;
}

static errint_t gather_zero(struct node *n, const struct tree *t, const struct gather_args *w) {
        uint64_t size = view_size(n), end = w->keep_size ? MIN_OF(w->offset + w->length, size) : w->offset + w->length;
        if (end > size && end > limits(t)->file_size_max)
                return -EFBIG;
        if (w->offset >= end)
                return 0;
        struct extent x = {w->offset, end - w->offset, EXTENT_ZERO};
        errint_t r = view_edit(n, BLOB_KEEP_ALL, &x, BLOB_KEEP_ALL);
        if (r == 0)
                edit_zero(&n->g.edit, x.offset, x.length);
        return r;
}

errint_t gather_change(struct node *n, const struct tree *t, struct blob *base, struct gather_args *w) {
        errint_t r = gather_begin(n, base, w);
        if (r == 0)
                r = view_sync(n, base);
        if (r < 0)
                return r;
        switch (w->what) {
        case GATHER_WRITE:
                r = gather_write(n, t, w);
                break;
        case GATHER_TRUNCATE:
                r = gather_truncate(n, t, w);
                break;
        case GATHER_ZERO:
                r = gather_zero(n, t, w);
                break;
        case GATHER_TOUCH:
                break;
        }
        if (r < 0) {
                gather_settled(n);
                return r;
        }
        gather_stamp(n, t, w);
        uint64_t max = n->fs->config.gather_bytes_max;
        if (max == 0 || n->g.edit.data_bytes < max)
                return 0;
        w->queued = true;
        return gather_detach(n, base);
}

/* --- from gather to flight */

static void gather_reset(struct node *n) {
        edit_done(&n->g.edit);
        run_done(&n->g.run);
        n->g = (struct gather){.edit = EDIT_NONE};
}

static void queue_drop_caps(struct node *n) {
        struct flight *f = flight_new(n->fs, n, NULL, OP_REMOVEXATTR, NULL);
        f->op.caller = n->g.caller;
        f->op.time = n->g.time;
        f->op.removexattr.ino = n->ino;
        f->op.removexattr.name = flight_own_name(f, XATTR_CAPABILITY);
        flight_queue(n, f);
}

errint_t gather_detach(struct node *n, struct blob *base) {
        struct gather *g = &n->g;
        struct blob *view = NULL;
        if (!g->dirty)
                return 0;
        errint_t r = gather_view(n, base, &view);
        if (r < 0)
                return r;
        /* The same bytes as before cost no payload: new times alone. What somebody else changes meanwhile then simply comes later. */
        if (!edit_is_none(&g->edit) && !any_pending(n) && blob_equal(view, base))
                edit_done(&g->edit);
        else
                edit_simplify(&g->edit, blob_size(view));
        if (g->drop_caps)
                queue_drop_caps(n);
        struct flight *f = flight_new(n->fs, n, NULL, OP_WRITE, NULL);
        f->kind = FLIGHT_CONTENT;
        f->op.caller = g->caller;
        f->op.time = g->time;
        f->edit = g->edit;
        g->edit = EDIT_NONE;
        f->source = blob_ref(view);
        f->reserved = g->reserved;
        f->kernel_offset = g->kernel_offset;
        f->op.write.ino = n->ino;
        f->op.write.flags = (f->edit.append ? WRITE_APPEND : 0u) | (g->kill_suid ? WRITE_KILL_SUID : 0u);
        f->op.write.keep = f->edit.keep;
        f->op.write.size = f->edit.size;
        f->op.write.extents = f->edit.extents;
        f->op.write.n_extents = f->edit.n;
        if (f->edit.append) {
                POST(f->edit.n == 1);
                struct extent x = {0, f->edit.extents[0].length, EXTENT_DATA};
                f->op.write.extents = flight_own(f, &x, sizeof(x));
        }
        gather_reset(n);
        flight_queue(n, f);
        return 0;
}

uint64_t gather_drop(struct node *n) {
        uint64_t reserved = n->g.reserved;
        gather_reset(n);
        if (n->view_valid && any_pending(n))
                view_drop(n); /* made again without the gather, when somebody looks */
        gather_settled(n);
        return reserved;
}

void gather_settled(struct node *n) {
        if (!n->g.dirty && !any_pending(n)) {
                set_overlay(n, false);
                view_drop(n);
                run_done(&n->g.run);
                account(n, 0);
                return;
        }
        /* The view is made again when somebody looks: here the state may be locked for writing. Until then, a bound. */
        uint64_t most = n->g.edit.data_bytes;
        for (const struct flight *f = n->queue; f; f = f->next)
                most += flight_pending(f) ? f->edit.data_bytes : 0;
        account(n, MIN_OF(n->growth, most));
}
