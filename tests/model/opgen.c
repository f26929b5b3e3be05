/* opgen.c: see opgen.h. At most one random number is drawn per expression whose order C leaves open: another compiler must draw the same.
 */
#include "opgen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define DATA_MAX (200 * KIB)

void opgen_init(struct opgen *g, uint64_t seed) {
        memset(g, 0, sizeof(*g));
        g->state = seed;
        g->now = (struct timestamp){1000000, 0};
        g->data = xmalloc(DATA_MAX);
        enc_init(&g->xattrs, 64 * KIB);
}

void opgen_done(struct opgen *g) {
        free(g->data);
        free(g->packed);
        enc_done(&g->xattrs);
}

/* splitmix64 */
uint64_t opgen_random(struct opgen *g, uint64_t below) {
        uint64_t x = g->state += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        x ^= x >> 31;
        return below ? x % below : x;
}

static bool one_in(struct opgen *g, uint64_t n) {
        return opgen_random(g, n) == 0;
}

uint64_t opgen_ino(struct opgen *g, const struct reftree *r, uint32_t type) {
        if (one_in(g, 25))
                return opgen_random(g, r->next_ino + 2);
        uint64_t n = 0;
        for (const struct ref_file *f = r->files; f; f = f->next)
                n += (f->mode & S_IFMT) == type || type == 0 || one_in(g, 64);
        uint64_t pick = n ? opgen_random(g, n) : 0;
        for (const struct ref_file *f = r->files; f; f = f->next)
                if (((f->mode & S_IFMT) == type || type == 0) && pick-- == 0)
                        return f->ino;
        return INO_ROOT;
}

static struct op_name new_name(struct opgen *g, int i) {
        static const char *const odd[] = {".", "..", "", "a/b", "\xff\xfe", "with space", "...", "ümlaut", "\n"};
        char *s = g->names[i];
        if (one_in(g, 40)) {
                (void)snprintf(s, sizeof(g->names[i]), "%s", odd[opgen_random(g, ARRAY_LEN(odd))]);
        } else if (one_in(g, 40)) {
                size_t len = 254 + opgen_random(g, 3);
                memset(s, 'l', len);
                s[len] = '\0';
        } else {
                int letter = (int)('a' + opgen_random(g, 10));
                (void)snprintf(s, sizeof(g->names[i]), "%c%s", letter, one_in(g, 3) ? "x" : "");
        }
        return (struct op_name){s, strlen(s)};
}

static size_t count_names(const struct reftree *r) {
        size_t n = 0;
        for (const struct ref_name *x = r->names->next; x; x = x->next)
                n++;
        return n;
}

/* A name that is there, with its directory. */
static struct op_name some_name(struct opgen *g, const struct reftree *r, int i, uint64_t *ret_parent) {
        size_t n = count_names(r);
        if (n == 0 || one_in(g, 10)) {
                *ret_parent = opgen_ino(g, r, S_IFDIR);
                return new_name(g, i);
        }
        const struct ref_name *x = r->names->next;
        for (uint64_t pick = opgen_random(g, n); pick > 0; pick--)
                x = x->next;
        const char *last = strrchr(x->path, '/');
        cleanup_free char *dir = xstrdup(x->path);
        dir[last - x->path] = '\0';
        *ret_parent = reftree_name(r, dir)->file->ino;
        (void)snprintf(g->names[i], sizeof(g->names[i]), "%s", last + 1);
        return (struct op_name){g->names[i], strlen(g->names[i])};
}

static struct timestamp new_time(struct opgen *g) {
        static const int64_t far[] = {-315619200, 4417977600, 0, -1};
        if (one_in(g, 8))
                return (struct timestamp){far[opgen_random(g, 4)], 999999999};
        struct timestamp t = {.sec = (int64_t)opgen_random(g, 2000000000)};
        t.nsec = (uint32_t)opgen_random(g, 1000000000);
        return t;
}

static void acl_entry(struct opgen *g, size_t i, uint8_t tag) {
        uint8_t *p = g->acl + 4 + 8 * i;
        memset(p, 0, 8);
        p[0] = tag;
        p[2] = (uint8_t)opgen_random(g, 8);
}

static size_t new_acl(struct opgen *g) {
        size_t n = 0;
        bool mask = one_in(g, 2);
        memcpy(g->acl, "\2\0\0\0", 4);
        acl_entry(g, n++, 1);
        if (mask)
                acl_entry(g, n++, 2);
        acl_entry(g, n++, 4);
        if (mask)
                acl_entry(g, n++, 0x10);
        acl_entry(g, n++, 0x20);
        return 4 + 8 * n - one_in(g, 20);
}

/* --- content --- */

static void fill(struct opgen *g, uint8_t *p, size_t n) {
        switch (opgen_random(g, 4)) {
        case 0:
                memset(p, 0, n);
                break;
        case 1:
                memset(p, (int)opgen_random(g, 256), n);
                break;
        case 2: /* zeros at the end */
                memset(p, 'x', n);
                memset(p + n / 2, 0, n - n / 2);
                break;
        default:
                for (size_t i = 0; i < n; i++)
                        p[i] = (uint8_t)opgen_random(g, 0);
        }
}

static void set_payload(struct opgen *g, size_t n) {
        struct op_payload *p = &g->op.payload;
        size_t packed = 0;
        *p = (struct op_payload){.raw_len = n, .data = g->data, .len = n};
        free(g->packed);
        g->packed = NULL;
        if (n == 0 || !one_in(g, 3) || compress_zstd(g->data, n, &g->packed, &packed) < 0)
                return;
        *p = (struct op_payload){.form = FORM_ZSTD, .raw_len = n, .data = g->packed, .len = packed};
}

static uint64_t near_chunk(struct opgen *g) {
        uint64_t at = opgen_random(g, 5) * BLOB_CHUNK;
        return one_in(g, 2) ? at + opgen_random(g, 3) : opgen_random(g, at + 1000);
}

static void gen_write(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        op->write.ino = opgen_ino(g, r, S_IFREG);
        op->write.keep = op->write.size = BLOB_KEEP_ALL;
        op->write.flags = one_in(g, 4) ? WRITE_APPEND : 0;
        op->write.flags |= one_in(g, 6) ? WRITE_KILL_SUID : 0;
        op->write.flags |= one_in(g, 8) ? WRITE_NO_MTIME : 0;
        bool append = (op->write.flags & WRITE_APPEND) != 0;
        if (!append && one_in(g, 3))
                op->write.keep = one_in(g, 2) ? 0 : near_chunk(g);
        if (!append && one_in(g, 4))
                op->write.size = near_chunk(g);
        size_t n = opgen_random(g, ARRAY_LEN(g->extents)), bytes = 0;
        uint64_t end = 0;
        for (size_t i = 0; i < n; i++) {
                struct extent *x = &g->extents[i];
                x->offset = end + (one_in(g, 3) ? 0 : near_chunk(g) / (append ? 50 : 2));
                x->length = 1 + (one_in(g, 3) ? near_chunk(g) / 2 : opgen_random(g, 300));
                x->kind = !append && one_in(g, 4) ? EXTENT_ZERO : EXTENT_DATA;
                end = x->offset + x->length;
                if (x->kind == EXTENT_DATA) {
                        fill(g, g->data + bytes, x->length);
                        bytes += x->length;
                }
        }
        op->write.extents = g->extents;
        op->write.n_extents = n;
        set_payload(g, bytes);
}

/* --- the rest --- */

static void gen_create(struct opgen *g, const struct reftree *r) {
        static const uint32_t types[] = {S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK};
        struct op *op = &g->op;
        uint32_t type = types[opgen_random(g, ARRAY_LEN(types))];
        op->create.parent = opgen_ino(g, r, S_IFDIR);
        op->create.name = new_name(g, 0);
        op->create.mode = type | (uint32_t)opgen_random(g, 010000);
        op->create.uid = (uint32_t)opgen_random(g, 3);
        op->create.gid = (uint32_t)opgen_random(g, 3);
        op->create.or_open = one_in(g, 5);
        if (type == S_IFCHR || type == S_IFBLK)
                op->create.rdev = (uint32_t)opgen_random(g, 0);
        if (type == S_IFLNK) {
                op->create.target.len = opgen_random(g, sizeof(g->target));
                memset(g->target, 't', op->create.target.len);
                op->create.target.text = g->target;
        }
        if (type != S_IFLNK && one_in(g, 6)) {
                op->create.acl_access.data = g->acl;
                op->create.acl_access.len = new_acl(g);
                if (type == S_IFDIR) {
                        op->create.acl_default.data = g->value;
                        op->create.acl_default.len = 1 + opgen_random(g, 60);
                }
        }
}

static void gen_setattr(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        op->setattr.ino = opgen_ino(g, r, 0);
        op->setattr.mask = (uint32_t)opgen_random(g, 64);
        op->setattr.mode = (uint32_t)opgen_random(g, 010000);
        op->setattr.uid = (uint32_t)opgen_random(g, 5);
        op->setattr.gid = (uint32_t)opgen_random(g, 5);
        op->setattr.atime = new_time(g);
        op->setattr.mtime = new_time(g);
}

static const char *xattr_name(struct opgen *g) {
        static const char *const names[] = {"user.a", "user.b", "user.bb", "trusted.x", "security.capability", "system.posix_acl_access",
                                            "u",      ""};
        return names[opgen_random(g, ARRAY_LEN(names) - !one_in(g, 20))];
}

static void gen_setxattr(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        const char *name = xattr_name(g);
        op->setxattr.ino = opgen_ino(g, r, 0);
        op->setxattr.name = (struct op_name){name, strlen(name)};
        op->setxattr.value = g->value;
        op->setxattr.len = opgen_random(g, one_in(g, 4) ? sizeof(g->value) : 30);
        if (strstr(name, "acl")) {
                op->setxattr.value = g->acl;
                op->setxattr.len = new_acl(g);
                op->setxattr.set_mode = one_in(g, 2);
                op->setxattr.mode = op->setxattr.set_mode ? (uint32_t)opgen_random(g, 010000) : 0;
                op->setxattr.kill_sgid = one_in(g, 3);
        } else if (one_in(g, 2)) {
                fill(g, g->value, op->setxattr.len);
        }
        op->setxattr.flags = one_in(g, 4) ? (uint32_t)opgen_random(g, 4) : 0;
}

static void gen_rename(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        op->rename.name = some_name(g, r, 0, &op->rename.parent);
        if (one_in(g, 2)) {
                op->rename.new_name = some_name(g, r, 1, &op->rename.new_parent);
        } else {
                op->rename.new_name = new_name(g, 1);
                op->rename.new_parent = one_in(g, 2) ? op->rename.parent : opgen_ino(g, r, S_IFDIR);
        }
        op->rename.flags = one_in(g, 2) ? 0 : (uint32_t)opgen_random(g, one_in(g, 4) ? 9 : 3);
}

/* Mostly what fits the name; large trees lose more than they get. */
static void gen_remove(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        op->unlink.name = some_name(g, r, 0, &op->unlink.parent);
        const struct ref_file *dir = reftree_file(r, op->unlink.parent);
        for (const struct ref_name *n = r->names; dir && n && !one_in(g, 2000); n = n->next)
                if (n->file == dir) {
                        size_t len = strlen(n->path);
                        for (const struct ref_name *x = r->names; x; x = x->next)
                                if (strncmp(x->path, n->path, len) == 0 && x->path[len] == '/' &&
                                    strcmp(x->path + len + 1, op->unlink.name.text) == 0)
                                        op->kind = S_ISDIR(x->file->mode) ? OP_RMDIR : OP_UNLINK;
                        break;
                }
        if (one_in(g, 8))
                op->kind = one_in(g, 2) ? OP_RMDIR : OP_UNLINK;
}

static void gen_adopt(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        op->adopt.ino = r->next_ino - opgen_random(g, MIN_OF(r->next_ino, UINT64_C(12)));
        op->adopt.parent = opgen_ino(g, r, S_IFDIR);
        op->adopt.name = new_name(g, 0);
        op->adopt.attr.ino = op->adopt.ino;
        op->adopt.attr.mode = one_in(g, 20) ? S_IFDIR : S_IFREG;
        op->adopt.attr.mode |= (uint32_t)opgen_random(g, 010000);
        op->adopt.attr.uid = (uint32_t)opgen_random(g, 3);
        op->adopt.attr.atime = new_time(g);
        op->adopt.attr.mtime = new_time(g);
        op->adopt.attr.ctime = new_time(g);
        enc_reset(&g->xattrs);
        if (one_in(g, 2)) {
                enc_bytes(&g->xattrs, "user.a", 6);
                enc_bytes(&g->xattrs, g->value, opgen_random(g, 20));
                enc_bytes(&g->xattrs, one_in(g, 20) ? "user.a" : "user.b", 6);
                enc_bytes(&g->xattrs, "", 0);
        }
        op->adopt.xattrs = g->xattrs.data;
        op->adopt.xattrs_len = g->xattrs.len;
        size_t n = one_in(g, 3) ? near_chunk(g) : opgen_random(g, 100);
        fill(g, g->data, n);
        set_payload(g, n);
        op->adopt.attr.size = n;
}

static void gen_setting(struct opgen *g) {
        static const char *const names[] = {"file_size_max", "tree_size_max", "inodes_max", "xattr_inode_max", "unknown"};
        static const char *const texts[] = {
                "", "", "", "64K", "1M", "1048576", "100", "150", "10000", "2000", "-1", "1T", "99999999999999999999"};
        struct op *op = &g->op;
        const char *name = names[opgen_random(g, ARRAY_LEN(names))], *text = texts[opgen_random(g, ARRAY_LEN(texts))];
        op->setting.name = (struct op_name){name, strlen(name)};
        op->setting.text = text;
        op->setting.len = strlen(text);
}

static enum op_kind gen_kind(struct opgen *g) {
        static const struct {
                enum op_kind kind;
                unsigned weight;
        } table[] = {{OP_CREATE, 24}, {OP_LINK, 5},    {OP_UNLINK, 14},  {OP_RMDIR, 5},       {OP_RENAME, 14},
                     {OP_SETATTR, 8}, {OP_WRITE, 20},  {OP_SETXATTR, 6}, {OP_REMOVEXATTR, 3}, {OP_RESERVE_INO, 1},
                     {OP_ADOPT, 2},   {OP_SETTING, 1}, {OP_NOTHING, 1}};
        uint64_t pick = opgen_random(g, 104);
        size_t i = 0;
        while (pick >= table[i].weight)
                pick -= table[i++].weight;
        return table[i].kind;
}

const struct op *opgen_next(struct opgen *g, const struct reftree *r) {
        struct op *op = &g->op;
        memset(op, 0, sizeof(*op));
        op->kind = gen_kind(g);
        if (op->kind == OP_CREATE && count_names(r) > 150 && one_in(g, 2))
                op->kind = OP_UNLINK;
        if (!one_in(g, 8)) { /* often no time passes, or it runs backwards */
                g->now.sec += (int64_t)opgen_random(g, 3);
                g->now.sec -= !one_in(g, 3);
        }
        g->now.nsec = (uint32_t)opgen_random(g, one_in(g, 4) ? 1000000000 : 2);
        op->time = g->now;
        op->origin.node = 1 + (uint32_t)opgen_random(g, 3);
        op->origin.incarnation = opgen_random(g, 0);
        op->origin.number = opgen_random(g, 5000);
        op->caller = (struct op_caller){.uid = (uint32_t)opgen_random(g, 2000), .program = "opgen"};
        op->caller.pid = (int32_t)opgen_random(g, 40000);
        switch (op->kind) {
        case OP_CREATE:
                gen_create(g, r);
                break;
        case OP_LINK:
                op->link.ino = opgen_ino(g, r, one_in(g, 8) ? 0 : S_IFREG);
                op->link.parent = opgen_ino(g, r, S_IFDIR);
                op->link.name = new_name(g, 0);
                break;
        case OP_UNLINK:
        case OP_RMDIR:
                gen_remove(g, r);
                break;
        case OP_RENAME:
                gen_rename(g, r);
                break;
        case OP_SETATTR:
                gen_setattr(g, r);
                break;
        case OP_WRITE:
                gen_write(g, r);
                break;
        case OP_SETXATTR:
                gen_setxattr(g, r);
                break;
        case OP_REMOVEXATTR:
                op->removexattr.ino = opgen_ino(g, r, 0);
                op->removexattr.name.text = xattr_name(g);
                op->removexattr.name.len = strlen(op->removexattr.name.text);
                break;
        case OP_ADOPT:
                gen_adopt(g, r);
                break;
        case OP_SETTING:
                gen_setting(g);
                break;
        default:
                break;
        }
        return op;
}
