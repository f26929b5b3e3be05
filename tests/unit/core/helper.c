#include "helper.h"

void fixture_begin(struct fixture *f) {
        *f = (struct fixture){.t = tree_new(), .now = {1000, 7}};
        change_set_init(&f->changes);
}

void fixture_done(struct fixture *f) {
        tree_free(f->t);
        change_set_done(&f->changes);
}

int run(struct fixture *f, struct op *op) {
        struct hash128 before = tree_digest(f->t);
        f->now.sec++;
        op->time = f->now;
        must(tree_apply(f->t, op, ++f->seq, &f->changes, &f->result) == 0);
        must(f->result.error <= 0);
        if (f->result.error < 0) {
                must(hash128_equal(before, tree_digest(f->t)));
                must(f->changes.n == 0);
                must(f->result.ino == 0);
        }
        if (f->changes.n == 0 && op->kind != OP_RESERVE_INO)
                must(hash128_equal(before, tree_digest(f->t)));
        if (!f->light) {
                char fault[200] = "";
                if (tree_check(f->t, fault, sizeof(fault)) < 0)
                        ck_abort_msg("after %s: %s", op_kind_text(op->kind), fault);
        }
        return f->result.error;
}

struct op op_of(enum op_kind kind) {
        struct op op;
        memset(&op, 0, sizeof(op));
        op.kind = kind;
        return op;
}

struct op_name name_of(const char *text) {
        return (struct op_name){text, strlen(text)};
}

int do_create(struct fixture *f, uint64_t parent, const char *name, uint32_t mode) {
        struct op op = op_of(OP_CREATE);
        op.create.parent = parent;
        op.create.name = name_of(name);
        op.create.mode = mode;
        return run(f, &op);
}

uint64_t make(struct fixture *f, uint64_t parent, const char *name, uint32_t mode) {
        must(do_create(f, parent, name, mode) == 0);
        return f->result.ino;
}

int do_symlink(struct fixture *f, uint64_t parent, const char *name, const char *target) {
        struct op op = op_of(OP_CREATE);
        op.create.parent = parent;
        op.create.name = name_of(name);
        op.create.mode = S_IFLNK | 0777;
        op.create.target.text = target;
        op.create.target.len = strlen(target);
        return run(f, &op);
}

int do_link(struct fixture *f, uint64_t ino, uint64_t parent, const char *name) {
        struct op op = op_of(OP_LINK);
        op.link.ino = ino;
        op.link.parent = parent;
        op.link.name = name_of(name);
        return run(f, &op);
}

int do_unlink(struct fixture *f, uint64_t parent, const char *name) {
        struct op op = op_of(OP_UNLINK);
        op.unlink.parent = parent;
        op.unlink.name = name_of(name);
        return run(f, &op);
}

int do_rmdir(struct fixture *f, uint64_t parent, const char *name) {
        struct op op = op_of(OP_RMDIR);
        op.rmdir.parent = parent;
        op.rmdir.name = name_of(name);
        return run(f, &op);
}

int do_rename(struct fixture *f, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name, uint32_t flags) {
        struct op op = op_of(OP_RENAME);
        op.rename.parent = parent;
        op.rename.name = name_of(name);
        op.rename.new_parent = new_parent;
        op.rename.new_name = name_of(new_name);
        op.rename.flags = flags;
        return run(f, &op);
}

static int write_op(struct fixture *f, uint64_t ino, uint32_t flags, uint64_t keep, uint64_t size, uint64_t offset, const void *p,
                    size_t n) {
        struct extent x = {offset, n, EXTENT_DATA};
        struct op op = op_of(OP_WRITE);
        op.write.ino = ino;
        op.write.flags = flags;
        op.write.keep = keep;
        op.write.size = size;
        op.write.extents = &x;
        op.write.n_extents = n > 0 ? 1 : 0;
        op.payload.data = p;
        op.payload.len = op.payload.raw_len = n;
        return run(f, &op);
}

int do_write(struct fixture *f, uint64_t ino, uint64_t offset, const void *p, size_t n) {
        return write_op(f, ino, 0, BLOB_KEEP_ALL, BLOB_KEEP_ALL, offset, p, n);
}

int do_append(struct fixture *f, uint64_t ino, const void *p, size_t n) {
        return write_op(f, ino, WRITE_APPEND, BLOB_KEEP_ALL, BLOB_KEEP_ALL, 0, p, n);
}

int do_truncate(struct fixture *f, uint64_t ino, uint64_t size) {
        return write_op(f, ino, 0, size, size, 0, NULL, 0);
}

int do_replace(struct fixture *f, uint64_t ino, const void *p, size_t n) {
        return write_op(f, ino, 0, 0, BLOB_KEEP_ALL, 0, p, n);
}

int do_setxattr(struct fixture *f, uint64_t ino, const char *name, const void *value, size_t len, uint32_t flags) {
        struct op op = op_of(OP_SETXATTR);
        op.setxattr.ino = ino;
        op.setxattr.name = name_of(name);
        op.setxattr.value = value;
        op.setxattr.len = len;
        op.setxattr.flags = flags;
        return run(f, &op);
}

int do_removexattr(struct fixture *f, uint64_t ino, const char *name) {
        struct op op = op_of(OP_REMOVEXATTR);
        op.removexattr.ino = ino;
        op.removexattr.name = name_of(name);
        return run(f, &op);
}

int do_setting(struct fixture *f, const char *name, const char *text) {
        struct op op = op_of(OP_SETTING);
        op.setting.name = name_of(name);
        op.setting.text = text;
        op.setting.len = strlen(text);
        return run(f, &op);
}

int do_chmod(struct fixture *f, uint64_t ino, uint32_t mode) {
        struct op op = op_of(OP_SETATTR);
        op.setattr.ino = ino;
        op.setattr.mask = SETATTR_MODE;
        op.setattr.mode = mode;
        return run(f, &op);
}

struct attr attr_of(const struct fixture *f, uint64_t ino) {
        struct attr a = {0};
        ck_assert_int_eq(tree_getattr(f->t, ino, &a), 0);
        return a;
}

uint64_t look(const struct fixture *f, uint64_t parent, const char *name) {
        uint64_t ino = 0;
        errint_t r = tree_lookup(f->t, parent, name, strlen(name), &ino);
        ck_assert(r == 0 || r == -ENOENT);
        return ino;
}

const struct change *change_find(const struct fixture *f, enum change_kind kind, uint64_t ino) {
        for (size_t i = 0; i < f->changes.n; i++)
                if (f->changes.items[i].kind == kind && f->changes.items[i].ino == ino)
                        return &f->changes.items[i];
        return NULL;
}

void assert_content(const struct fixture *f, uint64_t ino, const void *p, size_t n) {
        CLEANUP(blob_unrefp) struct blob *b = NULL;
        ck_assert_int_eq(tree_content(f->t, ino, &b), 0);
        ck_assert_uint_eq(blob_size(b), n);
        cleanup_free uint8_t *got = xmalloc(n + 1);
        ck_assert_uint_eq(blob_read(b, 0, got, n + 1), n);
        if (n > 0)
                ck_assert_mem_eq(got, p, n);
}
