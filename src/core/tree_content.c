/* tree_content.c: OP_WRITE. */
#include "tree_internal.h"

/* What a write comes to, once append is resolved. */
struct plan {
        const struct extent *extents;
        size_t n;
        uint64_t old_size, kept, end /* of the last extent */, size;
};

static errint_t plan_append(struct apply *a, struct plan *p, void **ret_scratch) {
        const struct op *op = a->op;
        if (!(op->write.flags & WRITE_APPEND) || op->write.n_extents == 0 || p->old_size == 0)
                return 0;
        const struct extent *last = &op->write.extents[op->write.n_extents - 1];
        if (last->offset + last->length > LIMIT_FILE_SIZE_MAX)
                return -EFBIG;
        struct extent *moved = try_malloc(op->write.n_extents * sizeof(struct extent));
        if (!moved)
                return apply_fatal(a, -ENOMEM);
        for (size_t i = 0; i < op->write.n_extents; i++) {
                moved[i] = op->write.extents[i];
                moved[i].offset += p->old_size;
        }
        p->extents = *ret_scratch = moved;
        return 0;
}

static errint_t plan_make(struct apply *a, const struct inode *in, struct plan *p, void **ret_scratch) {
        const struct op *op = a->op;
        *p = (struct plan){.extents = op->write.extents, .n = op->write.n_extents, .old_size = blob_size(in->content)};
        errint_t r = plan_append(a, p, ret_scratch);
        if (r < 0)
                return r;
        p->kept = MIN_OF(op->write.keep, p->old_size);
        p->end = p->n > 0 ? p->extents[p->n - 1].offset + p->extents[p->n - 1].length : 0;
        p->size = op->write.size == BLOB_KEEP_ALL ? MAX_OF(p->kept, p->end) : op->write.size;
        /* A file that is larger than a limit which was lowered may be changed, and may shrink. The end of the last extent counts even
         * where it is cut off again: it bounds the payload. */
        uint64_t reach = MAX_OF(p->size, p->end);
        if (reach > p->old_size && reach > a->t->settings.file_size_max)
                return -EFBIG;
        return 0;
}

/* No byte of the old content remains. */
static bool plan_replaces(const struct plan *p) {
        uint64_t covered = 0, remains = MIN_OF(p->kept, p->size);
        for (size_t i = 0; i < p->n && p->extents[i].offset <= covered; i++)
                covered = p->extents[i].offset + p->extents[i].length;
        return covered >= remains;
}

static void plan_report(struct apply *a, const struct plan *p, const struct inode *in) {
        struct change *c = apply_change(a, CHANGE_CONTENT, in);
        if (!c)
                return;
        uint64_t from = p->n > 0 ? p->extents[0].offset : p->size;
        bool to_end = p->kept < p->old_size || p->size != p->old_size;
        c->whole = plan_replaces(p);
        if (c->whole)
                from = 0;
        else if (to_end)
                from = MIN_OF(from, MIN_OF(p->kept, p->size));
        c->offset = from;
        c->length = c->whole || to_end ? UINT64_MAX : p->end - from;
}

uint32_t mode_without_suid(uint32_t mode) {
        if (S_ISDIR(mode))
                return mode;
        return mode & ~(uint32_t)(S_ISUID | (mode & S_IXGRP ? S_ISGID : 0));
}

static errint_t write_content(struct apply *a, const struct inode *in, const struct plan *p, struct blob **ret) {
        const struct op *op = a->op;
        const uint8_t *data = NULL;
        cleanup_free void *scratch = NULL;
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        bool here = op->payload.source != NULL; /* the bytes are in memory already */
        errint_t r = here ? 0 : apply_payload(a, &data, &scratch);
        if (r < 0)
                return r;
        r = here ? blob_edit_from(in->content, op->write.keep, p->extents, p->n, op->payload.source, op->write.size, &content)
                 : blob_edit(in->content, op->write.keep, p->extents, p->n, data, (size_t)op->payload.raw_len, op->write.size, &content);
        if (r < 0)
                return apply_fatal(a, r == -ENOMEM ? r : -EBADMSG);
        uint64_t was = blob_allocated(in->content), now = blob_allocated(content);
        r = now > was && !inode_is_orphan(in) ? apply_room(a, now - was, 0) : 0;
        if (r < 0)
                return r;
        *ret = steal_pointer(&content);
        return 0;
}

static void announce(const struct apply *a, const struct inode *in) {
        struct attr was;
        if (a->changes && a->t->content_fn && !inode_is_orphan(in) && tree_getattr(a->t, in->ino, &was) == 0)
                a->t->content_fn(a->t->content_ctx, a->seq, &was, in->content);
}

errint_t apply_write(struct apply *a, struct inode *in) {
        const struct op *op = a->op;
        if (!S_ISREG(in->mode))
                return inode_is_dir(in) ? -EISDIR : -EINVAL;
        struct plan p;
        cleanup_free void *moved = NULL;
        errint_t r = plan_make(a, in, &p, &moved);
        if (r < 0)
                return r;
        CLEANUP(blob_unrefp) struct blob *content = NULL;
        r = write_content(a, in, &p, &content);
        if (r < 0)
                return r;
        if (op->write.flags & WRITE_APPEND)
                a->result.offset = p.old_size;
        struct touched was = apply_touch(in);
        if (!blob_equal(content, in->content)) { /* the same bytes again: only the times move, caches stay good */
                announce(a, in);
                inode_set_content(a->t, in, steal_pointer(&content));
                if (!inode_is_orphan(in))
                        in->change_seq = in->content_seq = a->seq;
                plan_report(a, &p, in);
        }
        if (op->write.flags & WRITE_KILL_SUID)
                in->mode = (uint16_t)mode_without_suid(in->mode);
        if (!(op->write.flags & WRITE_NO_MTIME)) {
                inode_set_mtime(in, op->time);
                inode_set_ctime(in, op->time);
        }
        apply_settle(a, &was);
        return 0;
}
