/* tree_rename.c: renameat2(2). Checks in the order of Linux's do_renameat2 and vfs_rename. */
#include "tree_internal.h"

#include <stdio.h> /* RENAME_* */

struct move {
        struct inode *from, *to;       /* parents */
        struct entry *source, *target; /* target: NULL if the name is free */
};

static errint_t rename_find(const struct apply *a, struct move *m) {
        const struct op *op = a->op;
        uint32_t flags = op->rename.flags;
        if ((flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0)
                return -EINVAL;
        if (flags & RENAME_EXCHANGE && flags != RENAME_EXCHANGE)
                return -EINVAL;
        errint_t r = apply_dir(a, op->rename.parent, &m->from);
        if (r == 0)
                r = apply_dir(a, op->rename.new_parent, &m->to);
        if (r < 0)
                return r;
        m->source = entry_find(a->t, m->from->ino, op->rename.name.text, op->rename.name.len);
        if (!m->source)
                return -ENOENT;
        m->target = entry_find(a->t, m->to->ino, op->rename.new_name.text, op->rename.new_name.len);
        if (m->target && flags & RENAME_NOREPLACE)
                return -EEXIST;
        return !m->target && flags & RENAME_EXCHANGE ? -ENOENT : 0;
}

static errint_t rename_check_loops(const struct apply *a, const struct move *m) {
        bool exchange = (a->op->rename.flags & RENAME_EXCHANGE) != 0;
        if (m->from == m->to)
                return 0;
        if (inode_is_dir(m->source->child) && inode_is_below(m->to, m->source->child))
                return -EINVAL;
        if (m->target && inode_is_dir(m->target->child) && inode_is_below(m->from, m->target->child))
                return exchange ? -EINVAL : -ENOTEMPTY;
        return 0;
}

static errint_t rename_check_target(const struct move *m) {
        const struct inode *source = m->source->child;
        if (!m->target)
                return 0;
        const struct inode *target = m->target->child;
        if (inode_is_dir(source) && !inode_is_dir(target))
                return -ENOTDIR;
        if (!inode_is_dir(source) && inode_is_dir(target))
                return -EISDIR;
        return inode_is_dir(target) && target->dir->entries.live > 0 ? -ENOTEMPTY : 0;
}

/* For a longer name, and for the whiteout that takes over the old one. */
static errint_t rename_check_room(const struct apply *a, const struct move *m) {
        bool whiteout = (a->op->rename.flags & RENAME_WHITEOUT) != 0;
        uint64_t less = whiteout ? 0 : a->op->rename.name.len;
        uint64_t more = (m->target ? 0 : a->op->rename.new_name.len) + (whiteout ? INODE_BYTES : 0);
        if (whiteout && a->t->next_ino >= INO_RESERVED)
                return -ENOSPC;
        return more > less ? apply_room(a, more - less, whiteout ? 1 : 0) : 0;
}

/* Both parents and what of them a rename always changes; the second is settled only if it is another inode. */
struct parents {
        struct touched from, to;
};
static struct parents parents_touch(const struct move *m) {
        return (struct parents){apply_touch(m->from), apply_touch(m->to)};
}
static void parents_settle(struct apply *a, const struct move *m, const struct parents *was) {
        inode_set_mtime(m->from, a->op->time);
        inode_set_ctime(m->from, a->op->time);
        inode_set_mtime(m->to, a->op->time);
        inode_set_ctime(m->to, a->op->time);
        apply_settle(a, &was->from);
        if (m->to != m->from)
                apply_settle(a, &was->to);
}

static void touch_ctime(struct apply *a, struct inode *in) {
        struct touched was = apply_touch(in);
        inode_set_ctime(in, a->op->time);
        apply_settle(a, &was);
}

static void rename_exchange(struct apply *a, const struct move *m) {
        const struct op *op = a->op;
        struct inode *x = m->source->child, *y = m->target->child;
        struct parents was = parents_touch(m);
        apply_change_entry(a, CHANGE_ENTRY_DEL, m->from, &op->rename.name, x);
        apply_change_entry(a, CHANGE_ENTRY_DEL, m->to, &op->rename.new_name, y);
        entry_retarget(a->t, m->source, y);
        entry_retarget(a->t, m->target, x);
        apply_change_entry(a, CHANGE_ENTRY_ADD, m->from, &op->rename.name, y);
        apply_change_entry(a, CHANGE_ENTRY_ADD, m->to, &op->rename.new_name, x);
        if (inode_is_dir(x) != inode_is_dir(y)) {
                m->from->nlink += inode_is_dir(y) ? 1u : UINT32_MAX;
                m->to->nlink += inode_is_dir(x) ? 1u : UINT32_MAX;
        }
        touch_ctime(a, x);
        touch_ctime(a, y);
        parents_settle(a, m, &was);
}

/* The new name takes over the place, and so the cookie, of what it replaces; a free name gets a new cookie. */
static void rename_move(struct apply *a, const struct move *m) {
        const struct op *op = a->op;
        struct inode *in = m->source->child, *replaced = m->target ? m->target->child : NULL;
        struct parents was = parents_touch(m);
        if (replaced)
                apply_change_entry(a, CHANGE_ENTRY_DEL, m->to, &op->rename.new_name, replaced);
        apply_change_entry(a, CHANGE_ENTRY_DEL, m->from, &op->rename.name, in);
        entry_remove(a->t, m->source);
        if (replaced)
                entry_retarget(a->t, m->target, in);
        else
                (void)entry_add(a->t, m->to, op->rename.new_name.text, op->rename.new_name.len, in);
        apply_change_entry(a, CHANGE_ENTRY_ADD, m->to, &op->rename.new_name, in);
        if (inode_is_dir(in)) {
                m->from->nlink--;
                m->to->nlink += replaced ? 0u : 1u; /* the one that went counted already */
        }
        touch_ctime(a, in);
        if (replaced)
                apply_drop_name(a, replaced);
        parents_settle(a, m, &was);
        if (op->rename.flags & RENAME_WHITEOUT)
                apply_whiteout(a, m->from, &op->rename.name);
}

errint_t apply_rename(struct apply *a) {
        struct move m = {0};
        errint_t r = rename_find(a, &m);
        if (r == 0)
                r = rename_check_loops(a, &m);
        if (r < 0)
                return r;
        a->result.ino = m.source->child->ino;
        if (m.target && m.target->child == m.source->child)
                return 0; /* two names of one inode: rename(2) does nothing */
        if (a->op->rename.flags & RENAME_EXCHANGE) {
                rename_exchange(a, &m);
                return 0;
        }
        r = rename_check_target(&m);
        if (r == 0)
                r = rename_check_room(a, &m);
        if (r < 0)
                return r;
        rename_move(a, &m);
        return 0;
}
