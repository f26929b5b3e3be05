/* image.h: the whole state at one position as one stream of bytes: what `coterie backup` keeps and what `coterie dump` is made from. The objects are
 * those of state transfer (transfer.h), so there is one encoding of a state. Pure, one thread per object.
 *
 *   stream: frames; a frame: u32 length, then one piece: kind u8, id varint, total varint, offset varint, bytes (varint length, then so many)
 *   order:  BEGIN, then for each inode in order of number INODE and, if it has content, CONTENT; SESSIONS ends the stream
 *
 * The digest in BEGIN covers everything that comes behind it. */
#pragma once

#include "core/state.h"

#define IMAGE_FRAME_MAX (96u * 1024u)

/* Giving: copies everything but content, which is shared; O(inodes). The caller holds the state's read lock for this call alone. */
struct image;
errint_t image_take(const struct state *s, uint64_t adopted, struct image **ret);
void image_free(struct image *i);
DEFINE_FREEP(image_free, struct image)
struct image_info {
        struct position pos;
        struct hash128 digest;
        uint64_t inodes, bytes; /* about so many in the stream */
};
void image_info(const struct image *i, struct image_info *ret);
/* Appends whole frames until e holds `enough` bytes or the stream ends; e->len stays what it was: the end was given before. */
errint_t image_read(struct image *i, struct enc *e, size_t enough);

/* Taking: any series of bytes; then a state with the digest that the stream promised, or -EBADMSG with a line in fault. */
struct image_builder;
struct image_builder *image_builder_new(void);
void image_builder_free(struct image_builder *b);
DEFINE_FREEP(image_builder_free, struct image_builder)
errint_t image_builder_add(struct image_builder *b, const void *p, size_t n);
/* ret: not initialised; the caller's to free. */
errint_t image_builder_end(struct image_builder *b, struct state *ret, uint64_t *ret_adopted, char *fault, size_t fault_size);
