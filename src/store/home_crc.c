/* home_crc.c: the CRC-32C that every row carries, over its key and all that it says, as little-endian 64-bit numbers and counted bytes. */
#include "home_private.h"

#include <string.h>

void row_crc_number(struct row_crc *r, uint64_t v) {
        uint8_t b[8];
        le_put(b, v, 8);
        r->crc = crc32c(r->crc, b, sizeof(b));
}
void row_crc_bytes(struct row_crc *r, const void *p, size_t n) {
        row_crc_number(r, n);
        r->crc = crc32c(r->crc, p, n);
}
static void row_crc_numbers(struct row_crc *r, const uint64_t *v, size_t n) {
        for (size_t i = 0; i < n; i++)
                row_crc_number(r, v[i]);
}

uint32_t home_meta_crc(const struct home_meta *m) {
        const uint64_t v[] = {m->pos.epoch, m->pos.seq,  m->history.lo, m->history.hi, m->digest.lo,
                              m->digest.hi, m->next_ino, m->promised,   m->adopted,    m->clean ? 1 : 0,
                              m->half,      m->salt[0],  m->salt[1],    m->log_size,   m->content_size};
        struct row_crc r = {0};
        row_crc_numbers(&r, v, ARRAY_LEN(v));
        row_crc_bytes(&r, m->cluster_id, sizeof(m->cluster_id));
        row_crc_bytes(&r, m->database_id, sizeof(m->database_id));
        row_crc_bytes(&r, m->boot_id, strlen(m->boot_id));
        return r.crc;
}

uint64_t home_content_check(const struct blob *content) {
        return blob_size(content) > 0 ? blob_digest(content).lo : 0;
}

uint32_t home_inode_crc(const struct tree_inode_state *s, uint64_t content_check) {
        const struct attr *a = &s->attr;
        const uint64_t v[] = {a->ino,         a->mode,
                              a->uid,         a->gid,
                              a->nlink,       a->size,
                              a->rdev,        (uint64_t)a->atime.sec,
                              a->atime.nsec,  (uint64_t)a->mtime.sec,
                              a->mtime.nsec,  (uint64_t)a->ctime.sec,
                              a->ctime.nsec,  s->parent,
                              s->next_cookie, content_check};
        struct row_crc r = {0};
        row_crc_numbers(&r, v, ARRAY_LEN(v));
        return r.crc;
}

uint32_t home_entry_crc(uint64_t parent, const void *name, size_t len, uint64_t ino, uint64_t cookie) {
        const uint64_t v[] = {parent, ino, cookie};
        struct row_crc r = {0};
        row_crc_numbers(&r, v, ARRAY_LEN(v));
        row_crc_bytes(&r, name, len);
        return r.crc;
}

uint32_t home_bytes_crc(uint64_t key, const void *p, size_t n) {
        struct row_crc r = {0};
        row_crc_number(&r, key);
        row_crc_bytes(&r, p, n);
        return r.crc;
}

uint32_t home_setting_crc(const char *name, const char *text) {
        struct row_crc r = {0};
        row_crc_bytes(&r, name, strlen(name));
        row_crc_bytes(&r, text, strlen(text));
        return r.crc;
}

/* The payload is in it by its own CRC. */
uint32_t home_piece_crc(uint64_t ino, const struct piece *p) {
        const uint64_t v[] = {ino,           p->seq, p->base ? 1 : 0,        (uint64_t)p->form, p->raw_len,
                              p->stored_len, p->crc, p->inline_data ? 1 : 0, p->n_extents};
        struct row_crc r = {0};
        row_crc_numbers(&r, v, ARRAY_LEN(v));
        row_crc_bytes(&r, p->edit, p->edit_len);
        for (size_t i = 0; i < p->n_extents; i++) {
                row_crc_number(&r, p->extents[i].offset);
                row_crc_number(&r, p->extents[i].length);
        }
        return r.crc;
}
