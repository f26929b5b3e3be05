/* difference.c: catching up by difference: down the donor's tree of digests to the inodes that differ, then those alone. */
#include "catchup.h"

#include <inttypes.h>

void difference_drop(struct catchup *c, bool own_too) {
        for (size_t i = 0; i < TRANSFER_WISHES; i++) {
                free(c->out[i].data);
                c->out[i] = (struct wanted){0};
        }
        c->n_out = c->n_wants = c->wants_at = 0;
        capture_free(c->target);
        c->target = NULL;
        if (own_too) {
                capture_free(c->own);
                c->own = NULL;
        }
}

static void want(struct catchup *c, enum object_kind kind, uint64_t id, size_t slot) {
        if (c->n_wants == c->cap_wants) {
                c->cap_wants = c->cap_wants ? 2 * c->cap_wants : 64;
                c->wants = xrealloc(c->wants, c->cap_wants * sizeof(*c->wants));
        }
        c->wants[c->n_wants++] = (struct want){.kind = kind, .id = id, .slot = slot};
}

void difference_begin(struct repl *r) {
        struct catchup *c = r->catchup;
        if (c->own && !hash128_equal(c->own->digest, state_digest(r->state))) {
                capture_free(c->own);
                c->own = NULL;
        }
        if (!c->own && capture_take(r->state, r->adopted, &c->own) < 0) {
                repl_fail(r, "the own state cannot be read");
                return;
        }
        c->target = NEW(struct capture);
        repl_log(r, 6, "catching up with node %u by difference, to %" PRIu64, r->members[c->donor].id.node, c->begin.pos.seq);
        want(c, OBJECT_SESSIONS, 0, 0);
        if (c->begin.height == 0)
                want(c, OBJECT_LEAF, 0, 0);
        else
                want(c, OBJECT_NODE, c->begin.height, 0);
        difference_pump(r);
}

/* --- what is alike is taken from our own capture */
static void take_inode(struct catchup *c, const struct capture_inode *x) {
        struct capture_inode copy = {
                .ino = x->ino, .hash = x->hash, .record = xmalloc(x->len), .len = x->len, .content = blob_ref(x->content)};
        memcpy(copy.record, x->record, x->len);
        (void)capture_add(c->target, &copy);
}

static void take_node(struct catchup *c, unsigned level, const struct capture_node *node) {
        for (size_t i = node->first; i < node->first + node->n; i++)
                if (level == 0)
                        take_inode(c, &c->own->inodes[i]);
                else
                        take_node(c, level - 1, &c->own->levels[level - 1][i]);
}

static struct hash128 dec_hash(struct dec *d) {
        struct hash128 h = {.lo = dec_u64(d)};
        h.hi = dec_u64(d);
        return h;
}

static bool on_node(struct catchup *c, const struct wanted *x) {
        struct dec d;
        dec_init(&d, x->data, x->have);
        unsigned level = (unsigned)(x->w.id % 16), before = 0;
        for (bool first = true; dec_left(&d) > 0; first = false) {
                unsigned place = dec_u8(&d);
                struct hash128 hash = dec_hash(&d);
                if (d.err || place >= 64 || (!first && place <= before) || level == 0)
                        return false;
                before = place;
                uint64_t index = x->w.id / 16 * 64 + place;
                const struct capture_node *own = capture_node(c->own, level - 1, index);
                if (own && hash128_equal(own->hash, hash))
                        take_node(c, level - 1, own);
                else if (level == 1)
                        want(c, OBJECT_LEAF, index, 0);
                else
                        want(c, OBJECT_NODE, index * 16 + level - 1, 0);
        }
        return true;
}

static bool on_leaf(struct catchup *c, const struct wanted *x) {
        struct dec d;
        dec_init(&d, x->data, x->have);
        uint64_t before = 0;
        while (dec_left(&d) > 0) {
                struct capture_inode inode = {.ino = dec_varint(&d)};
                inode.hash = dec_hash(&d);
                if (d.err || inode.ino / 64 != x->w.id || inode.ino <= before)
                        return false;
                before = inode.ino;
                const struct capture_inode *own = capture_inode(c->own, inode.ino);
                if (own && hash128_equal(own->hash, inode.hash))
                        take_inode(c, own);
                else
                        want(c, OBJECT_INODE, inode.ino, capture_add(c->target, &inode));
        }
        return true;
}

/* The content that a record names, if it is at hand. */
static struct blob *content_at_hand(const struct catchup *c, const struct record *rec) {
        struct blob *b = staged_find(&c->staged, rec->digest, rec->state.attr.size);
        const struct capture_inode *own = capture_inode(c->own, rec->state.attr.ino);
        if (!b && own && blob_size(own->content) == rec->state.attr.size && hash128_equal(blob_digest(own->content), rec->digest))
                b = own->content;
        return blob_ref(b);
}

static bool on_inode(struct catchup *c, struct wanted *x) {
        struct capture_inode *inode = &c->target->inodes[x->w.slot];
        struct record rec;
        if (!hash128_equal(hash128_of(x->data, x->have), inode->hash) || record_decode(x->data, x->have, &rec) < 0 ||
            rec.state.attr.ino != inode->ino)
                return false;
        inode->record = steal_pointer(&x->data);
        inode->len = x->have;
        if (!rec.has_content || rec.state.attr.size == 0)
                return true;
        inode->content = content_at_hand(c, &rec);
        if (!inode->content)
                want(c, OBJECT_CONTENT, inode->ino, x->w.slot);
        return true;
}

static bool on_content(struct catchup *c, const struct wanted *x) {
        struct capture_inode *inode = &c->target->inodes[x->w.slot];
        struct record rec;
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        if (record_decode(inode->record, inode->len, &rec) < 0 || x->have != rec.state.attr.size ||
            blob_from_bytes(x->data, x->have, &b) < 0)
                return false;
        if (!hash128_equal(blob_digest(b), rec.digest))
                return false;
        staged_put(&c->staged, b);
        inode->content = steal_pointer(&b);
        return true;
}

static bool on_object(struct catchup *c, struct wanted *x) {
        switch (x->w.kind) {
        case OBJECT_NODE:
                return on_node(c, x);
        case OBJECT_LEAF:
                return on_leaf(c, x);
        case OBJECT_INODE:
                return on_inode(c, x);
        case OBJECT_CONTENT:
                return on_content(c, x);
        case OBJECT_SESSIONS:
                free(c->target->sessions);
                c->target->sessions = steal_pointer(&x->data);
                c->target->sessions_len = x->have;
                return true;
        default:
                return false;
        }
}

void difference_piece(struct repl *r, const struct piece *p) {
        struct catchup *c = r->catchup;
        size_t i = 0;
        while (i < c->n_out && (c->out[i].w.kind != p->kind || c->out[i].w.id != p->id))
                i++;
        if (i == c->n_out)
                return;
        struct wanted *x = &c->out[i];
        if (p->offset != x->have || (x->have > 0 && p->total != x->total)) {
                catchup_restart(r, "it sent pieces that do not follow");
                return;
        }
        if (x->have + p->len > x->cap || !x->data) { /* room grows with what has come */
                x->cap = MAX_OF(2 * x->cap, x->have + p->len + 1);
                x->data = xrealloc(x->data, x->cap);
        }
        memcpy(x->data + x->have, p->data, p->len);
        x->have += p->len;
        x->total = p->total;
        if (x->have < x->total)
                return;
        struct wanted whole = *x;
        memmove(x, x + 1, (--c->n_out - i) * sizeof(*x));
        c->out[c->n_out] = (struct wanted){0};
        bool good = on_object(c, &whole);
        free(whole.data);
        if (!good)
                catchup_restart(r, "it sent something else than what was asked for");
}

static void build(struct repl *r) {
        struct catchup *c = r->catchup;
        char fault[160];
        if (capture_build(c->target, &c->begin, c->begin_bytes, c->begin_len, tree_hash_seed_of(r->state->tree), &c->built, fault,
                          sizeof(fault)) < 0) {
                catchup_restart(r, fault);
                return;
        }
        c->has_built = true;
        difference_drop(c, true);
        catchup_built(r);
}

void difference_pump(struct repl *r) {
        struct catchup *c = r->catchup;
        struct wish wishes[TRANSFER_WISHES];
        size_t n = 0;
        if (c->n_out > TRANSFER_WISHES / 2)
                return; /* few large questions rather than many small ones */
        while (c->n_out < TRANSFER_WISHES && c->wants_at < c->n_wants) {
                const struct want *w = &c->wants[c->wants_at++];
                c->out[c->n_out++] = (struct wanted){.w = *w};
                wishes[n++] = (struct wish){.kind = w->kind, .id = w->id};
        }
        if (c->wants_at == c->n_wants)
                c->wants_at = c->n_wants = 0;
        if (n > 0)
                catchup_send(r, wishes, n);
        else if (c->n_out == 0 && c->target->sessions)
                build(r);
}
