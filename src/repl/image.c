/* image.c: a capture as one stream, and a state from such a stream. */
#include "repl/image.h"

#include "transfer.h"
#include <stdio.h>
#include <sys/stat.h>

#define PIECE (64u * 1024u)

/* --- giving */
enum stage { STAGE_BEGIN, STAGE_INODE, STAGE_CONTENT, STAGE_SESSIONS, STAGE_END };
struct image {
        struct capture *c;
        enum stage stage;
        size_t at;         /* inode */
        uint64_t offset;   /* in the object that is being given */
        struct enc object; /* BEGIN */
};

errint_t image_take(const struct state *s, uint64_t adopted, struct image **ret) {
        CLEANUP(image_freep) struct image *i = NEW(struct image);
        errint_t r = capture_take(s, adopted, &i->c);

        enc_init(&i->object, TRANSFER_OBJECT_MAX);
        if (r == 0)
                r = capture_object(i->c, OBJECT_BEGIN, 0, TRANSFER_BY_DIFFERENCE, &i->object);
        if (r == 0)
                *ret = steal_pointer(&i);
        return r;
}

void image_free(struct image *i) {
        if (!i)
                return;
        capture_free(i->c);
        enc_done(&i->object);
        free(i);
}

void image_info(const struct image *i, struct image_info *ret) {
        *ret = (struct image_info){
                .pos = i->c->pos, .digest = i->c->digest, .inodes = i->c->n_inodes, .bytes = i->object.len + i->c->sessions_len};
        for (size_t n = 0; n < i->c->n_inodes; n++)
                ret->bytes += i->c->inodes[n].len + blob_size(i->c->inodes[n].content);
}

static void frame(struct enc *e, const struct piece *p) {
        size_t at = e->len;
        enc_u32(e, 0);
        piece_encode(p, e);
        if (!e->err)
                enc_patch_u32(e, at, (uint32_t)(e->len - at - 4));
}

/* The next piece of `total` bytes; true: that was the last one. */
static bool give(struct image *i, struct enc *e, enum object_kind kind, uint64_t id, const uint8_t *data, size_t total) {
        size_t at = (size_t)i->offset, n = MIN_OF(total - at, (size_t)PIECE);
        struct piece p = {.kind = kind, .id = id, .total = total, .offset = at, .data = n > 0 ? data + at : (const uint8_t *)"", .len = n};

        frame(e, &p);
        i->offset += n;
        if (i->offset < total)
                return false;
        i->offset = 0;
        return true;
}

static bool give_content(struct image *i, struct enc *e, const struct capture_inode *x) {
        uint8_t bytes[PIECE];
        size_t n = blob_read(x->content, i->offset, bytes, sizeof(bytes));
        struct piece p = {
                .kind = OBJECT_CONTENT, .id = x->ino, .total = blob_size(x->content), .offset = i->offset, .data = bytes, .len = n};

        frame(e, &p);
        i->offset += n;
        if (i->offset < p.total)
                return false;
        i->offset = 0;
        return true;
}

static void step(struct image *i, struct enc *e) {
        const struct capture_inode *x = i->at < i->c->n_inodes ? &i->c->inodes[i->at] : NULL;

        switch (i->stage) {
        case STAGE_BEGIN:
                if (give(i, e, OBJECT_BEGIN, 0, i->object.data, i->object.len))
                        i->stage = STAGE_INODE;
                return;
        case STAGE_INODE:
                if (!x)
                        i->stage = STAGE_SESSIONS;
                else if (give(i, e, OBJECT_INODE, x->ino, x->record, x->len) && blob_size(x->content) > 0)
                        i->stage = STAGE_CONTENT;
                else if (i->offset == 0)
                        i->at++;
                return;
        case STAGE_CONTENT:
                if (give_content(i, e, x)) {
                        i->stage = STAGE_INODE;
                        i->at++;
                }
                return;
        case STAGE_SESSIONS:
                if (give(i, e, OBJECT_SESSIONS, 0, i->c->sessions, i->c->sessions_len))
                        i->stage = STAGE_END;
                return;
        case STAGE_END:
                return;
        }
}

errint_t image_read(struct image *i, struct enc *e, size_t enough) {
        while (e->len < enough && i->stage != STAGE_END && e->err == 0)
                step(i, e);
        return e->err;
}

/* --- taking */
struct image_builder {
        uint8_t partial[IMAGE_FRAME_MAX + 4];
        size_t partial_len;
        struct capture *c;
        struct transfer_begin begin;
        uint8_t *begin_bytes;
        size_t begin_len;
        uint8_t *object; /* that is being put together */
        uint64_t object_total, object_at, object_id;
        enum object_kind object_kind;
        bool ended;
        errint_t err; /* sticky */
};

struct image_builder *image_builder_new(void) {
        struct image_builder *b = NEW(struct image_builder);
        b->c = NEW(struct capture);
        return b;
}

void image_builder_free(struct image_builder *b) {
        if (!b)
                return;
        capture_free(b->c);
        free(b->begin_bytes);
        free(b->object);
        free(b);
}

static errint_t take_content(struct image_builder *b, const uint8_t *p, size_t n) {
        struct capture_inode *x = b->c->n_inodes > 0 ? &b->c->inodes[b->c->n_inodes - 1] : NULL;
        struct record rec;

        if (!x || x->ino != b->object_id || x->content || record_decode(x->record, x->len, &rec) < 0 || !rec.has_content ||
            rec.state.attr.size != n)
                return -EBADMSG;
        errint_t r = blob_from_bytes(p, n, &x->content);
        return r < 0 ? r : hash128_equal(blob_digest(x->content), rec.digest) ? 0 : -EBADMSG;
}

/* A whole object. Takes `bytes` over where it keeps them. */
static errint_t take_object(struct image_builder *b, uint8_t **bytes, size_t n) {
        struct capture_inode x = {.ino = b->object_id, .len = n};

        if ((b->object_kind == OBJECT_BEGIN) != !b->begin_bytes || b->ended)
                return -EBADMSG;
        switch (b->object_kind) {
        case OBJECT_BEGIN:
                b->begin_len = n;
                b->begin_bytes = steal_pointer(bytes);
                return transfer_begin_decode(b->begin_bytes, n, &b->begin);
        case OBJECT_INODE:
                if (b->c->n_inodes > 0 && b->c->inodes[b->c->n_inodes - 1].ino >= b->object_id)
                        return -EBADMSG;
                x.record = steal_pointer(bytes);
                (void)capture_add(b->c, &x);
                return 0;
        case OBJECT_CONTENT:
                return take_content(b, *bytes, n);
        case OBJECT_SESSIONS:
                b->c->sessions = steal_pointer(bytes);
                b->c->sessions_len = n;
                b->ended = true;
                return 0;
        default:
                return -EBADMSG;
        }
}

static errint_t take_piece(struct image_builder *b, const struct piece *p) {
        if (p->offset == 0 && b->object)
                return -EBADMSG;
        if (p->offset == 0) {
                b->object = try_malloc((size_t)p->total + 1);
                if (!b->object)
                        return -ENOMEM;
                b->object_kind = p->kind;
                b->object_id = p->id;
                b->object_total = p->total;
                b->object_at = 0;
        }
        if (!b->object || p->kind != b->object_kind || p->id != b->object_id || p->total != b->object_total || p->offset != b->object_at ||
            (p->len == 0 && p->total > 0))
                return -EBADMSG;
        memcpy(b->object + p->offset, p->data, p->len);
        b->object_at += p->len;
        if (b->object_at < b->object_total)
                return 0;
        cleanup_free uint8_t *whole = steal_pointer(&b->object);
        return take_object(b, &whole, (size_t)b->object_total);
}

static errint_t take_frame(struct image_builder *b, const uint8_t *p, size_t n) {
        struct piece piece;
        struct dec d;

        dec_init(&d, p, n);
        if (!piece_decode(&d, &piece) || dec_finish(&d) < 0)
                return -EBADMSG;
        return take_piece(b, &piece);
}

static size_t frame_length(const uint8_t *p) {
        struct dec d;
        dec_init(&d, p, 4);
        return dec_u32(&d);
}

errint_t image_builder_add(struct image_builder *b, const void *data, size_t n) {
        const uint8_t *p = data;

        while (n > 0 && b->err == 0) {
                size_t want = b->partial_len < 4 ? 4 : 4 + frame_length(b->partial), part;
                if (want > sizeof(b->partial)) {
                        b->err = -EBADMSG;
                        break;
                }
                part = MIN_OF(n, want - b->partial_len);
                memcpy(b->partial + b->partial_len, p, part);
                b->partial_len += part;
                p += part;
                n -= part;
                if (b->partial_len < 4 || b->partial_len < 4 + frame_length(b->partial))
                        continue;
                b->err = take_frame(b, b->partial + 4, b->partial_len - 4);
                b->partial_len = 0;
        }
        return b->err;
}

errint_t image_builder_end(struct image_builder *b, struct state *ret, uint64_t *ret_adopted, char *fault, size_t fault_size) {
        if (b->err == 0 && (!b->ended || b->partial_len > 0))
                b->err = -EBADMSG;
        if (b->err < 0) {
                (void)snprintf(fault, fault_size, b->err == -ENOMEM ? "not enough memory" : "it is cut short or malformed");
                return b->err;
        }
        errint_t r = capture_build(b->c, &b->begin, b->begin_bytes, b->begin_len, 0 /* read by tools */, ret, fault, fault_size);
        if (r == 0)
                *ret_adopted = b->begin.adopted;
        return r;
}
