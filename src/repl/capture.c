/* capture.c: a frozen position of the state: a record per inode, their digests in a tree over ranges of inode numbers; and a state from
 * such a capture. */
#include "transfer.h"

#include <stdio.h>
#include <sys/stat.h>

#define RANGE 64u /* inode numbers of a leaf, children of a node */

static bool mode_has_content(uint32_t mode) {
        return S_ISREG(mode) || S_ISLNK(mode);
}

/* --- records */
static void enc_time(struct enc *e, struct timestamp t) {
        enc_svarint(e, t.sec);
        enc_u32(e, t.nsec);
}
static struct timestamp dec_time(struct dec *d) {
        struct timestamp t = {.sec = dec_svarint(d)};
        t.nsec = dec_u32(d);
        return t;
}

struct listing {
        struct enc *e;
        uint64_t before;
};
static bool list_entry(void *ctx, uint64_t cookie, const char *name, size_t len, uint64_t ino, uint32_t mode) {
        struct listing *l = ctx;
        (void)mode;
        enc_varint(l->e, cookie - l->before);
        enc_bytes(l->e, name, len);
        enc_varint(l->e, ino);
        l->before = cookie;
        return !l->e->err;
}

static errint_t record_encode(const struct tree *t, const struct tree_inode_state *s, struct enc *e) {
        const struct attr *a = &s->attr;
        enc_varint(e, a->ino);
        enc_u32(e, a->mode);
        enc_u32(e, a->uid);
        enc_u32(e, a->gid);
        enc_u32(e, a->nlink);
        enc_u32(e, a->rdev);
        enc_time(e, a->atime);
        enc_time(e, a->mtime);
        enc_time(e, a->ctime);
        CLEANUP(enc_done) struct enc x;
        enc_init(&x, 2 * LIMIT_XATTR_INODE + LIMIT_XATTR_VALUE);
        errint_t r = tree_xattrs_encode(t, a->ino, &x);
        if (r < 0)
                return r;
        enc_bytes(e, x.data, x.len);
        if (mode_has_content(a->mode)) {
                enc_varint(e, blob_size(s->content));
                enc_hash128(e, blob_digest(s->content));
        } else if (S_ISDIR(a->mode)) {
                struct listing l = {.e = e, .before = 2}; /* behind "." and ".." */
                enc_varint(e, s->parent);
                enc_varint(e, s->next_cookie);
                r = tree_readdir(t, a->ino, 2, list_entry, &l);
        }
        return r < 0 ? r : e->err;
}

errint_t record_decode(const uint8_t *p, size_t n, struct record *ret) {
        struct dec d;
        dec_init(&d, p, n);
        struct record rec = {0};
        struct attr *a = &rec.state.attr;
        a->ino = dec_varint(&d);
        a->mode = dec_u32(&d);
        a->uid = dec_u32(&d);
        a->gid = dec_u32(&d);
        a->nlink = dec_u32(&d);
        a->rdev = dec_u32(&d);
        a->atime = dec_time(&d);
        a->mtime = dec_time(&d);
        a->ctime = dec_time(&d);
        rec.xattrs = dec_bytes(&d, OP_HEAD_MAX, &rec.xattrs_len);
        if (mode_has_content(a->mode)) {
                rec.has_content = true;
                a->size = dec_varint(&d);
                rec.digest = dec_hash128(&d);
                if (a->size > LIMIT_FILE_SIZE_MAX)
                        dec_fail(&d);
        } else if (S_ISDIR(a->mode)) {
                rec.state.parent = dec_varint(&d);
                rec.state.next_cookie = dec_varint(&d);
                rec.entries = d;
        }
        if (d.err || (!S_ISDIR(a->mode) && dec_finish(&d) < 0))
                return -EBADMSG;
        *ret = rec;
        return 0;
}

/* --- taking */
size_t capture_add(struct capture *c, const struct capture_inode *inode) {
        if (c->n_inodes == c->cap_inodes) {
                c->cap_inodes = c->cap_inodes ? 2 * c->cap_inodes : 64;
                c->inodes = xrealloc(c->inodes, c->cap_inodes * sizeof(*c->inodes));
        }
        c->inodes[c->n_inodes] = *inode;
        return c->n_inodes++;
}

struct taking {
        struct capture *c;
        const struct tree *tree;
        struct enc e; /* used again for each */
        errint_t err;
};
static bool take_inode(void *ctx, const struct tree_inode_state *s) {
        struct taking *t = ctx;
        if (s->attr.nlink == 0)
                return true; /* an orphan is this node's alone */
        enc_reset(&t->e);
        t->err = record_encode(t->tree, s, &t->e);
        if (t->err < 0)
                return false;
        struct capture_inode x = {
                .ino = s->attr.ino, .hash = hash128_of(t->e.data, t->e.len), .record = xmalloc(t->e.len), .len = t->e.len};
        memcpy(x.record, t->e.data, t->e.len);
        if (mode_has_content(s->attr.mode))
                x.content = blob_ref(s->content);
        (void)capture_add(t->c, &x);
        return true;
}

static void level_push(struct capture *c, unsigned level, const struct capture_node *node) {
        size_t n = c->n_level[level];
        if ((n & (n - 1)) == 0) /* room for the next power of two */
                c->levels[level] = xrealloc(c->levels[level], (n ? 2 * n : 1) * sizeof(*node));
        c->levels[level][c->n_level[level]++] = *node;
}

static struct hash128 chain_child(struct hash128 before, uint64_t number, struct hash128 h) {
        uint8_t bytes[24];
        le_put(bytes, number, 8);
        le_put(bytes + 8, h.lo, 8);
        le_put(bytes + 16, h.hi, 8);
        return hash128_chain(before, bytes, sizeof(bytes));
}

static void build_leaves(struct capture *c) {
        for (size_t i = 0, j; i < c->n_inodes; i = j) {
                struct capture_node node = {.index = c->inodes[i].ino / RANGE, .first = i};
                for (j = i; j < c->n_inodes && c->inodes[j].ino / RANGE == node.index; j++)
                        node.hash = chain_child(node.hash, c->inodes[j].ino, c->inodes[j].hash);
                node.n = j - i;
                level_push(c, 0, &node);
        }
}

static void build_level(struct capture *c, unsigned level) {
        const struct capture_node *below = c->levels[level - 1];
        size_t n = c->n_level[level - 1];
        for (size_t i = 0, j; i < n; i = j) {
                struct capture_node node = {.index = below[i].index / RANGE, .first = i};
                for (j = i; j < n && below[j].index / RANGE == node.index; j++)
                        node.hash = chain_child(node.hash, below[j].index, below[j].hash);
                node.n = j - i;
                level_push(c, level, &node);
        }
}

errint_t capture_take(const struct state *s, uint64_t adopted, struct capture **ret) {
        CLEANUP(capture_freep) struct capture *c = NEW(struct capture);
        struct tree_usage usage;
        tree_usage(s->tree, &usage);
        c->pos = s->pos;
        c->history = s->history;
        c->digest = state_digest(s);
        c->adopted = adopted;
        c->next_ino = usage.next_ino;
        c->settings = *tree_settings(s->tree);
        struct taking t = {.c = c, .tree = s->tree};
        enc_init(&t.e, TRANSFER_OBJECT_MAX);
        tree_each_inode(s->tree, 0, take_inode, &t);
        enc_reset(&t.e);
        errint_t r = t.err < 0 ? t.err : sessions_encode(s->sessions, &t.e);
        if (r == 0) {
                c->sessions = xmalloc(t.e.len);
                c->sessions_len = t.e.len;
                memcpy(c->sessions, t.e.data, t.e.len);
                build_leaves(c);
                for (unsigned level = 1; level < TRANSFER_LEVELS; level++)
                        build_level(c, level);
                *ret = steal_pointer(&c);
        }
        enc_done(&t.e);
        return r;
}

void capture_free(struct capture *c) {
        if (!c)
                return;
        for (size_t i = 0; i < c->n_inodes; i++) {
                free(c->inodes[i].record);
                blob_unref(c->inodes[i].content);
        }
        for (unsigned level = 0; level < TRANSFER_LEVELS; level++)
                free(c->levels[level]);
        free(c->inodes);
        free(c->sessions);
        free(c);
}

/* --- looking up */
uint8_t capture_height(const struct capture *c) {
        uint64_t leaves = c->next_ino / RANGE;
        uint8_t level = 0;
        for (; leaves > 0; leaves /= RANGE)
                level++;
        return level;
}

const struct capture_node *capture_node(const struct capture *c, unsigned level, uint64_t index) {
        if (level >= TRANSFER_LEVELS)
                return NULL;
        size_t low = 0, high = c->n_level[level];
        while (low < high) {
                size_t mid = (low + high) / 2;
                if (c->levels[level][mid].index < index)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < c->n_level[level] && c->levels[level][low].index == index ? &c->levels[level][low] : NULL;
}

const struct capture_inode *capture_inode(const struct capture *c, uint64_t ino) {
        size_t low = 0, high = c->n_inodes;
        while (low < high) {
                size_t mid = (low + high) / 2;
                if (c->inodes[mid].ino < ino)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < c->n_inodes && c->inodes[low].ino == ino ? &c->inodes[low] : NULL;
}

static void object_begin(const struct capture *c, uint8_t mode, struct enc *e) {
        enc_u8(e, mode);
        enc_u64(e, c->pos.epoch);
        enc_u64(e, c->pos.seq);
        enc_hash128(e, c->history);
        enc_hash128(e, c->digest);
        enc_u64(e, c->adopted);
        enc_varint(e, c->next_ino);
        enc_u8(e, capture_height(c));
        enc_varint(e, settings_count());
        for (size_t i = 0; i < settings_count(); i++) {
                const struct setting_info *info = settings_info(i);
                char text[24];
                (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)settings_get(&c->settings, info));
                enc_bytes(e, info->name, strlen(info->name));
                enc_bytes(e, text, strlen(text));
        }
}

errint_t capture_object(const struct capture *c, enum object_kind kind, uint64_t id, uint8_t mode, struct enc *e) {
        const struct capture_node *node;
        const struct capture_inode *inode;
        unsigned level = (unsigned)(id % 16);
        switch (kind) {
        case OBJECT_BEGIN:
                object_begin(c, mode, e);
                return e->err;
        case OBJECT_NODE:
                node = level > 0 ? capture_node(c, level, id / 16) : NULL;
                if (level == 0)
                        return -ENOENT;
                for (size_t i = 0; node && i < node->n; i++) {
                        const struct capture_node *child = &c->levels[level - 1][node->first + i];
                        enc_u8(e, (uint8_t)(child->index % RANGE));
                        enc_hash128(e, child->hash);
                }
                return e->err;
        case OBJECT_LEAF:
                node = capture_node(c, 0, id);
                for (size_t i = 0; node && i < node->n; i++) {
                        enc_varint(e, c->inodes[node->first + i].ino);
                        enc_hash128(e, c->inodes[node->first + i].hash);
                }
                return e->err;
        case OBJECT_INODE:
                inode = capture_inode(c, id);
                if (!inode)
                        return -ENOENT;
                enc_raw(e, inode->record, inode->len);
                return e->err;
        case OBJECT_SESSIONS:
                enc_raw(e, c->sessions, c->sessions_len);
                return e->err;
        default:
                return -ENOENT;
        }
}

/* --- building */
static int inode_cmp(const void *a, const void *b) {
        const struct capture_inode *x = a, *y = b;
        return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static errint_t build_inode(struct tree *t, const struct capture_inode *x) {
        struct record rec;
        if (!x->record || record_decode(x->record, x->len, &rec) < 0 || rec.state.attr.ino != x->ino)
                return -EBADMSG;
        rec.state.content = rec.has_content ? x->content : NULL;
        errint_t r = tree_restore_inode(t, &rec.state, rec.xattrs, rec.xattrs_len);
        uint64_t cookie = 2;
        while (r == 0 && S_ISDIR(rec.state.attr.mode) && dec_left(&rec.entries) > 0) {
                size_t len;
                uint64_t step = dec_varint(&rec.entries);
                const char *name = (const char *)dec_bytes(&rec.entries, LIMIT_NAME, &len);
                uint64_t ino = dec_varint(&rec.entries);
                if (rec.entries.err || step == 0 || step > UINT64_MAX - cookie)
                        return -EBADMSG;
                cookie += step;
                r = tree_restore_entry(t, x->ino, name, len, ino, cookie);
        }
        return r;
}

static errint_t build_settings(struct tree *t, const struct transfer_begin *b, const uint8_t *begin, size_t begin_len) {
        struct dec d;
        dec_init(&d, begin + b->settings_at, begin_len - b->settings_at);
        uint64_t count = dec_varint(&d);
        for (uint64_t i = 0; i < count; i++) {
                size_t name_len, text_len;
                const char *name = (const char *)dec_bytes(&d, LIMIT_NAME, &name_len),
                           *text = (const char *)dec_bytes(&d, LIMIT_PATH, &text_len);
                errint_t r = d.err ? d.err : tree_restore_setting(t, name, name_len, text, text_len);
                if (r < 0)
                        return r;
        }
        return 0;
}

errint_t capture_build(struct capture *c, const struct transfer_begin *b, const uint8_t *begin, size_t begin_len, uint64_t hash_seed,
                       struct state *ret, char *fault, size_t fault_size) {
        CLEANUP(tree_freep) struct tree *t = tree_restore_begin();
        CLEANUP(sessions_freep) struct sessions *sessions = NULL;
        tree_hash_seed(t, hash_seed);
        (void)snprintf(fault, fault_size, "an inode, a setting or the recorded results are malformed");
        if (c->n_inodes > 0) /* else there is no array */
                qsort(c->inodes, c->n_inodes, sizeof(*c->inodes), inode_cmp);
        errint_t r = build_settings(t, b, begin, begin_len);
        for (size_t i = 0; i < c->n_inodes && r == 0; i++)
                r = build_inode(t, &c->inodes[i]);
        if (r == 0)
                r = sessions_decode(c->sessions, c->sessions_len, &sessions);
        if (r == 0)
                r = tree_restore_end(t, b->next_ino, fault, fault_size);
        if (r < 0)
                return r;
        struct state s = {.tree = t, .sessions = sessions, .pos = b->pos, .history = b->history};
        if (!hash128_equal(state_digest(&s), b->digest)) {
                (void)snprintf(fault, fault_size, "the digest is not the donor's");
                return -EBADMSG;
        }
        t = NULL;
        sessions = NULL;
        *ret = s;
        return 0;
}
