/* conflict.c: see core/conflict.h. */
#include "core/conflict.h"

#include "base/hash.h"
#include <string.h>

#define MAGIC   "CoterieX"
#define VERSION 1u

errint_t conflict_encode(const struct conflict *c, struct enc *e) {
        size_t at = e->len;

        enc_raw(e, MAGIC, 8);
        enc_u32(e, VERSION);
        enc_svarint(e, c->when.sec);
        enc_u32(e, c->when.nsec);
        enc_u64(e, c->pos.epoch);
        enc_u64(e, c->pos.seq);
        enc_bytes(e, c->path, c->path_len);
        enc_bytes(e, c->new_path, c->new_path_len);
        enc_bytes(e, c->head, c->head_len);
        enc_bytes(e, c->payload, c->payload_len);
        if (!e->err)
                enc_u32(e, crc32c(0, e->data + at, e->len - at));
        return e->err;
}

errint_t conflict_decode(const void *p, size_t n, struct conflict *ret) {
        struct conflict c = {0};
        struct dec d;

        if (n < 16 || memcmp(p, MAGIC, 8) != 0)
                return -EBADMSG;
        dec_init(&d, (const uint8_t *)p + n - 4, 4);
        uint32_t crc = dec_u32(&d);
        dec_init(&d, (const uint8_t *)p + 8, n - 12);
        if (dec_u32(&d) != VERSION)
                return -ENOTSUP;
        if (crc != crc32c(0, p, n - 4))
                return -EBADMSG;
        c.when.sec = dec_svarint(&d);
        c.when.nsec = dec_u32(&d);
        c.pos.epoch = dec_u64(&d);
        c.pos.seq = dec_u64(&d);
        c.path = (const char *)dec_bytes(&d, CONFLICT_PATH_MAX, &c.path_len);
        c.new_path = (const char *)dec_bytes(&d, CONFLICT_PATH_MAX, &c.new_path_len);
        c.head = dec_bytes(&d, OP_HEAD_MAX, &c.head_len);
        c.payload = dec_bytes(&d, OP_PAYLOAD_MAX, &c.payload_len);
        if (dec_finish(&d) < 0)
                return -EBADMSG;
        *ret = c;
        return 0;
}

static char *path_of(const struct tree *t, uint64_t ino) {
        char *path = xmalloc(CONFLICT_PATH_MAX);
        if (tree_path(t, ino, path, CONFLICT_PATH_MAX) < 0 || (ino != 1 && path[1] == '\0')) /* gone, or an orphan */
                path[0] = '\0';
        return path;
}

static char *path_below(const struct tree *t, uint64_t parent, const struct op_name *name) {
        char *path = path_of(t, parent);
        size_t n = strlen(path);

        if (n == 0 || n + name->len + 2 > CONFLICT_PATH_MAX) {
                path[0] = '\0';
                return path;
        }
        if (path[n - 1] != '/')
                path[n++] = '/';
        memcpy(path + n, name->text, name->len);
        path[n + name->len] = '\0';
        return path;
}

void conflict_paths(const struct tree *t, const struct op *op, char **ret_path, char **ret_new_path) {
        char *path = NULL, *new_path = NULL;

        switch (op->kind) {
        case OP_CREATE:
                path = path_below(t, op->create.parent, &op->create.name);
                break;
        case OP_LINK:
                path = path_of(t, op->link.ino);
                new_path = path_below(t, op->link.parent, &op->link.name);
                break;
        case OP_UNLINK:
                path = path_below(t, op->unlink.parent, &op->unlink.name);
                break;
        case OP_RMDIR:
                path = path_below(t, op->rmdir.parent, &op->rmdir.name);
                break;
        case OP_RENAME:
                path = path_below(t, op->rename.parent, &op->rename.name);
                new_path = path_below(t, op->rename.new_parent, &op->rename.new_name);
                break;
        case OP_SETATTR:
                path = path_of(t, op->setattr.ino);
                break;
        case OP_WRITE:
                path = path_of(t, op->write.ino);
                break;
        case OP_SETXATTR:
                path = path_of(t, op->setxattr.ino);
                break;
        case OP_REMOVEXATTR:
                path = path_of(t, op->removexattr.ino);
                break;
        case OP_ADOPT:
                path = path_below(t, op->adopt.parent, &op->adopt.name);
                break;
        case OP_NOTHING:
        case OP_RESERVE_INO:
        case OP_SETTING:
        case OP_KIND_COUNT:
                break;
        }
        *ret_path = path ? path : xstrdup("");
        *ret_new_path = new_path ? new_path : xstrdup("");
}
