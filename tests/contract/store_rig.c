/* store_rig.c: see store_rig.h. */
#include "store_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void note_digest(struct rig *r) {
        struct hash128 d = state_digest(&r->state);
        g_array_set_size(r->digests, (guint)r->state.pos.seq);
        g_array_append_val(r->digests, d);
}

void rig_init(struct rig *r, const struct store_config *config) {
        *r = (struct rig){.config = *config, .epoch = 1, .random = 1};
        r->config.metrics = &r->metrics;
        r->digests = g_array_new(FALSE, FALSE, sizeof(struct hash128));
        change_set_init(&r->changes);
        state_init(&r->state);
        note_digest(r);
}

void rig_done(struct rig *r) {
        rig_close(r);
        state_done(&r->state);
        change_set_done(&r->changes);
        g_array_free(r->digests, TRUE);
}

errint_t rig_open(struct rig *r) {
        PRE(!r->store);
        state_done(&r->state);
        state_init(&r->state);
        free(r->loaded.damaged);
        errint_t e = r->memory ? store_open_memory(&r->config, &r->state, &r->loaded, &r->store)
                               : store_open_sqlite(&r->config, &r->state, &r->loaded, &r->store);
        if (e == 0) {
                r->epoch = MAX_OF(r->epoch, r->state.pos.epoch);
                r->written = r->durable = 0;
                r->error = 0;
        }
        return e;
}

void rig_close(struct rig *r) {
        if (r->store)
                r->store->ops->close(r->store);
        r->store = NULL;
        free(r->loaded.damaged);
        r->loaded.damaged = NULL;
        r->loaded.n_damaged = 0;
}

errint_t rig_stop(struct rig *r) {
        errint_t e = rig_checkpoint(r, CHECKPOINT_CLEAN_STOP);
        rig_close(r);
        return e;
}

errint_t rig_verify(struct rig *r, uint64_t at_least, uint64_t at_most) {
        uint64_t seq = r->state.pos.seq;
        char fault[256] = "";
        if (seq < at_least || seq > at_most || seq >= r->digests->len) {
                fprintf(stderr, "came back at operation %ju, expected %ju to %ju\n", (uintmax_t)seq, (uintmax_t)at_least,
                        (uintmax_t)at_most);
                return -EBADMSG;
        }
        if (!hash128_equal(state_digest(&r->state), g_array_index(r->digests, struct hash128, seq))) {
                fprintf(stderr, "came back at operation %ju, but not as it was\n", (uintmax_t)seq);
                return -EBADMSG;
        }
        if (tree_check(r->state.tree, fault, sizeof(fault)) < 0 ||
            !hash128_equal(tree_digest(r->state.tree), tree_digest_recompute(r->state.tree))) {
                fprintf(stderr, "came back at operation %ju with a bad tree: %s\n", (uintmax_t)seq, fault);
                return -EBADMSG;
        }
        g_array_set_size(r->digests, (guint)seq + 1);
        return 0;
}

/* --- what the executor does --- */

errint_t rig_apply(struct rig *r, const struct op *op) {
        struct op copy = *op, decoded;
        struct enc head;
        cleanup_free void *scratch = NULL;
        copy.origin = (struct op_origin){.node = 1, .incarnation = 1, .number = ++r->number, .lowest_waiting = r->number};
        copy.time = (struct timestamp){1700000000 + (int64_t)r->state.pos.seq, 5};
        enc_init(&head, OP_HEAD_MAX);
        errint_t e = op_encode_head(&copy, &head);
        if (e == 0)
                e = op_decode(head.data, head.len, copy.payload.data, copy.payload.len, &decoded, &scratch);
        PRE(e == 0);
        e = state_apply(&r->state, r->epoch, &decoded, head.data, head.len, &r->changes, &r->result);
        PRE(e == 0);
        note_digest(r);
        if (r->store) {
                const struct store_record rec = {.pos = r->state.pos,
                                                 .op = &decoded,
                                                 .head = head.data,
                                                 .head_len = head.len,
                                                 .changes = &r->changes,
                                                 .state = &r->state};
                e = r->store->ops->append(r->store, &rec);
        }
        enc_done(&head);
        if (e < 0)
                r->error = e;
        return e;
}

errint_t rig_write_out(struct rig *r) {
        uint64_t seq = 0;
        errint_t e = r->store->ops->write_out(r->store, &seq);
        if (e < 0) {
                r->error = e;
                return e;
        }
        r->written = MAX_OF(r->written, seq);
        if (r->config.level == LEVEL_FILE)
                r->durable = MAX_OF(r->durable, seq);
        return 0;
}

errint_t rig_barrier(struct rig *r) {
        uint64_t seq = 0;
        errint_t e = rig_write_out(r);
        if (e == 0)
                e = r->store->ops->barrier(r->store, &seq);
        if (e < 0)
                r->error = e;
        else
                r->durable = MAX_OF(r->durable, seq);
        return e;
}

errint_t rig_checkpoint(struct rig *r, enum store_checkpoint_kind kind) {
        uint64_t seq = r->state.pos.seq;
        errint_t e = r->store->ops->checkpoint_prepare(r->store, &r->state, kind);
        if (e == 0)
                e = r->store->ops->checkpoint_run(r->store);
        if (e < 0)
                r->error = e;
        else
                r->written = r->durable = MAX_OF(r->durable, seq);
        return e;
}

errint_t rig_settle(struct rig *r) {
        errint_t e = rig_write_out(r);
        if (e == 0 && r->store->ops->wants_barrier(r->store))
                e = rig_barrier(r);
        if (e == 0 && r->store->ops->wants_checkpoint(r->store)) {
                e = rig_checkpoint(r, CHECKPOINT_NORMAL);
                if (e == -ENOSPC)
                        e = 0;
        }
        if (e < 0 && !r->store->ops->fail(r->store))
                e = rig_checkpoint(r, CHECKPOINT_RESCUE);
        return e;
}

/* --- operations --- */

static struct op_name name_of(const char *text) {
        return (struct op_name){text, strlen(text)};
}
uint64_t rig_lookup(const struct rig *r, const char *name) {
        uint64_t ino = 0;
        return tree_lookup(r->state.tree, INO_ROOT, name, strlen(name), &ino) == 0 ? ino : 0;
}

errint_t rig_create(struct rig *r, const char *name, uint32_t mode) {
        struct op op = {.kind = OP_CREATE, .create = {.parent = INO_ROOT, .name = name_of(name), .mode = mode}};
        if (S_ISLNK(mode)) {
                op.create.target.text = "target/of/a/symlink";
                op.create.target.len = strlen(op.create.target.text);
        }
        return rig_apply(r, &op);
}

static errint_t write_extents(struct rig *r, const char *name, uint32_t flags, uint64_t keep, uint64_t size, const struct extent *x,
                              size_t n_x, const void *p, size_t n) {
        struct op op = {.kind = OP_WRITE,
                        .write = {.ino = rig_lookup(r, name), .flags = flags, .keep = keep, .size = size, .extents = x, .n_extents = n_x},
                        .payload = {.form = FORM_RAW, .raw_len = n, .data = p, .len = n}};
        cleanup_free uint8_t *packed = NULL;
        size_t packed_len = 0;
        if (n > 0 && compress_zstd(p, n, &packed, &packed_len) == 0)
                op.payload = (struct op_payload){.form = FORM_ZSTD, .raw_len = n, .data = packed, .len = packed_len};
        return rig_apply(r, &op);
}
errint_t rig_write(struct rig *r, const char *name, uint64_t offset, const void *p, size_t n) {
        return write_extents(r, name, 0, BLOB_KEEP_ALL, BLOB_KEEP_ALL, &(struct extent){offset, n, EXTENT_DATA}, 1, p, n);
}
errint_t rig_replace(struct rig *r, const char *name, const void *p, size_t n) {
        return write_extents(r, name, 0, 0, n, &(struct extent){0, n, EXTENT_DATA}, n > 0 ? 1 : 0, p, n);
}
errint_t rig_append(struct rig *r, const char *name, const void *p, size_t n) {
        return write_extents(r, name, WRITE_APPEND, BLOB_KEEP_ALL, BLOB_KEEP_ALL, &(struct extent){0, n, EXTENT_DATA}, 1, p, n);
}
errint_t rig_truncate(struct rig *r, const char *name, uint64_t size) {
        return write_extents(r, name, 0, size, size, NULL, 0, NULL, 0);
}
errint_t rig_unlink(struct rig *r, const char *name) {
        struct op op = {.kind = OP_UNLINK, .unlink = {.parent = INO_ROOT, .name = name_of(name)}};
        return rig_apply(r, &op);
}
static errint_t rename_flags(struct rig *r, const char *from, const char *to, uint32_t flags) {
        struct op op = {
                .kind = OP_RENAME,
                .rename = {.parent = INO_ROOT, .name = name_of(from), .new_parent = INO_ROOT, .new_name = name_of(to), .flags = flags}};
        return rig_apply(r, &op);
}
errint_t rig_rename(struct rig *r, const char *from, const char *to) {
        return rename_flags(r, from, to, 0);
}
errint_t rig_chmod(struct rig *r, const char *name, uint32_t mode) {
        struct op op = {.kind = OP_SETATTR, .setattr = {.ino = rig_lookup(r, name), .mask = SETATTR_MODE, .mode = mode}};
        return rig_apply(r, &op);
}
errint_t rig_setxattr(struct rig *r, const char *name, const char *xattr, const void *value, size_t n) {
        struct op op = {.kind = OP_SETXATTR, .setxattr = {.ino = rig_lookup(r, name), .name = name_of(xattr), .value = value, .len = n}};
        return rig_apply(r, &op);
}
errint_t rig_setting(struct rig *r, const char *name, const char *text) {
        struct op op = {.kind = OP_SETTING, .setting = {.name = name_of(name), .text = text, .len = strlen(text)}};
        return rig_apply(r, &op);
}

/* --- random ones --- */

uint64_t rig_random(struct rig *r, uint64_t below) { /* splitmix64 */
        uint64_t x = r->random += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
        return below ? x % below : x;
}
void rig_bytes(struct rig *r, void *p, size_t n) {
        uint8_t *b = p;
        for (size_t i = 0; i < n; i += 8) {
                uint64_t v = rig_random(r, 0);
                memcpy(b + i, &v, MIN_OF((size_t)8, n - i));
        }
}
void rig_text(struct rig *r, void *p, size_t n) {
        static const char *const words[] = {"option ", "address ", "10.0.0.", "true\n", "timeout = ", "node", "# comment ", "[section]\n"};
        char *b = p;
        size_t done = 0;
        while (done < n) {
                const char *w = words[rig_random(r, ARRAY_LEN(words))];
                size_t len = MIN_OF(strlen(w), n - done);
                memcpy(b + done, w, len);
                done += len;
                if (done < n)
                        b[done++] = (char)('0' + rig_random(r, 10));
        }
}

static size_t any_size(struct rig *r, size_t large) {
        switch (rig_random(r, 6)) {
        case 0:
                return 1 + rig_random(r, 40);
        case 1:
        case 2:
                return 1 + rig_random(r, 1000);
        case 3:
                return 3000 + rig_random(r, 3000);
        default:
                return 1 + rig_random(r, large);
        }
}

static const char *any_name(struct rig *r) {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
        return names[rig_random(r, ARRAY_LEN(names))];
}

static errint_t any_content(struct rig *r, const char *name, size_t large) {
        size_t n = any_size(r, large);
        cleanup_free uint8_t *p = xmalloc(n);
        struct attr attr = {0};
        (void)tree_getattr(r->state.tree, rig_lookup(r, name), &attr); /* size 0 then */
        if (rig_random(r, 2))
                rig_bytes(r, p, n);
        else
                rig_text(r, p, n);
        switch (rig_random(r, 8)) {
        case 0:
        case 1:
                return rig_replace(r, name, p, n);
        case 2:
                return rig_append(r, name, p, MIN_OF(n, (size_t)200));
        case 3:
                return rig_append(r, name, p, n);
        case 4:
                return rig_truncate(r, name, rig_random(r, attr.size + 100));
        case 5: { /* with a hole */
                struct extent x[2] = {{0, n / 2 + 1, EXTENT_DATA}, {n + 40000, n - n / 2, EXTENT_DATA}};
                cleanup_free uint8_t *q = xmalloc(n + 1);
                memcpy(q, p, n);
                q[n] = 'x';
                return write_extents(r, name, 0, rig_random(r, 2) ? 0 : BLOB_KEEP_ALL, BLOB_KEEP_ALL, x, 2, q, n + 1);
        }
        default:
                return rig_write(r, name, rig_random(r, attr.size + 10), p, rig_random(r, 2) ? MIN_OF(n, (size_t)100) : n);
        }
}

static errint_t any_name_change(struct rig *r, const char *name) {
        static const uint32_t types[] = {S_IFDIR | 0755, S_IFLNK | 0777, S_IFIFO | 0600, S_IFREG | 0640};
        struct op op = {0};
        switch (rig_random(r, 6)) {
        case 0:
                return rig_unlink(r, name);
        case 1:
                op = (struct op){.kind = OP_RMDIR, .rmdir = {.parent = INO_ROOT, .name = name_of(name)}};
                return rig_apply(r, &op);
        case 2:
                return rename_flags(r, name, any_name(r), rig_random(r, 4) ? 0 : RENAME_EXCHANGE);
        case 3:
                op = (struct op){.kind = OP_LINK, .link = {.ino = rig_lookup(r, name), .parent = INO_ROOT, .name = name_of(any_name(r))}};
                return rig_apply(r, &op);
        case 4: /* move below a directory */
                op = (struct op){.kind = OP_RENAME,
                                 .rename = {.parent = INO_ROOT,
                                            .name = name_of(name),
                                            .new_parent = rig_lookup(r, any_name(r)),
                                            .new_name = name_of("in")}};
                return rig_apply(r, &op);
        default:
                return rig_create(r, name, types[rig_random(r, ARRAY_LEN(types))]);
        }
}

static errint_t any_adopt(struct rig *r, const char *name) {
        struct op op = {.kind = OP_RESERVE_INO};
        uint8_t p[6000];
        size_t n = rig_random(r, sizeof(p));
        errint_t e = rig_apply(r, &op);
        if (e < 0)
                return e;
        rig_bytes(r, p, n);
        op = (struct op){.kind = OP_ADOPT,
                         .adopt = {.ino = r->result.ino,
                                   .parent = INO_ROOT,
                                   .name = name_of(name),
                                   .attr = {.ino = r->result.ino, .mode = S_IFREG | 0600, .size = n}},
                         .payload = {.raw_len = n, .data = p, .len = n}};
        return rig_apply(r, &op);
}

errint_t rig_any(struct rig *r, size_t large) {
        const char *name = any_name(r);
        uint8_t value[300];
        switch (rig_random(r, 12)) {
        case 0:
        case 1:
                return any_name_change(r, name);
        case 2:
                return rig_create(r, name, S_IFREG | 0644);
        case 3:
                return rig_chmod(r, name, (uint32_t)rig_random(r, 01000));
        case 4:
                rig_bytes(r, value, sizeof(value));
                return rig_setxattr(r, name, rig_random(r, 2) ? "user.x" : "user.y", value, rig_random(r, sizeof(value)));
        case 5:
                return rig_random(r, 3) ? any_adopt(r, name) : rig_setting(r, "inodes_max", rig_random(r, 2) ? "1000" : "");
        default:
                return any_content(r, name, large);
        }
}

errint_t rig_fixed(struct rig *r, unsigned k) {
        uint8_t big[9000], more[9000];
        memset(big, 'b', sizeof(big));
        for (size_t i = 0; i < sizeof(more); i++) /* does not compress well */
                more[i] = (uint8_t)((i * 2654435761u) >> 13 ^ (i * i) >> 3);
        switch (k) {
        case 0:
                return rig_create(r, "a", S_IFREG | 0644);
        case 1:
                return rig_replace(r, "a", "small", 5);
        case 2:
                return rig_replace(r, "a", more, sizeof(more));
        case 3:
                return rig_replace(r, "b", more + 1, sizeof(more) - 1);
        case 4:
                return rig_write(r, "b", 100, "edit", 4);
        case 5:
                return rig_append(r, "b", "more", 4);
        case 6:
                return rig_truncate(r, "b", 4000);
        case 7:
                return rig_rename(r, "a", "b");
        case 8:
                return rig_unlink(r, "b");
        case 9:
                return rig_chmod(r, "b", 0600);
        case 10:
                return rig_setxattr(r, "b", "user.x", "v", 1);
        case 11:
                return rig_create(r, "d", S_IFDIR | 0755);
        case 12:
                return rig_replace(r, "b", big, sizeof(big));
        default:
                return rig_setting(r, "inodes_max", "500");
        }
}
