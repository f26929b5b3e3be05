/* home_private.h: what the files of the home share. */
#pragma once

#include "home.h"
#include "vfs.h"

#include <sqlite3.h>

enum home_statement {
        ST_BEGIN,
        ST_COMMIT,
        ST_ROLLBACK,
        ST_PUT_META,
        ST_PUT_INODE,
        ST_PUT_XATTRS,
        ST_PUT_ENTRY,
        ST_PUT_CONTENT,
        ST_PUT_EDIT,
        ST_PUT_EXTENT,
        ST_PUT_SETTING,
        ST_PUT_SESSIONS,
        ST_DELETE_INODE,
        ST_DELETE_XATTRS,
        ST_DELETE_ENTRY,
        ST_DELETE_CONTENT,
        ST_DELETE_EDITS,
        ST_DELETE_EXTENTS,
        ST_DELETE_SETTING,
        ST_COUNT
};
struct home {
        char *path;
        struct disk *disk;
        struct metrics *metrics;
        struct vfs *vfs;
        sqlite3 *db;
        sqlite3_stmt *st[ST_COUNT];
        bool read_only;
        bool in_transaction;
        char damage[256];
};

/* An SQLite result code, or what the disk said behind it, as an errno. */
errint_t home_error(struct home *h, int code);
void home_damaged(struct home *h, const char *what);

/* home_schema.c */
/* fresh: the first row of meta for a file that holds nothing yet; NULL: there must be something. */
errint_t home_connect(struct home *h, const struct home_meta *fresh, bool *ret_fresh, char *ret_reason, size_t reason_size);
void home_disconnect(struct home *h);
errint_t home_read_meta(struct home *h, struct home_meta *ret); /* -EBADMSG: no row, or its CRC differs */
errint_t home_exec(struct home *h, const char *sql);

/* home.c */
errint_t home_prepare(struct home *h);
errint_t home_write_meta(struct home *h, const struct home_meta *meta);

/* CRC of a row: its numbers, then its byte strings, each with its length before it. */
struct row_crc {
        uint32_t crc;
};
void row_crc_number(struct row_crc *r, uint64_t v);
void row_crc_bytes(struct row_crc *r, const void *p, size_t n);
uint32_t home_meta_crc(const struct home_meta *m);
uint32_t home_inode_crc(const struct tree_inode_state *s, uint64_t content_check);
uint32_t home_entry_crc(uint64_t parent, const void *name, size_t len, uint64_t ino, uint64_t cookie);
uint32_t home_bytes_crc(uint64_t key, const void *p, size_t n); /* xattrs, sessions */
uint32_t home_setting_crc(const char *name, const char *text);
uint32_t home_piece_crc(uint64_t ino, const struct piece *p);

/* home_rows.c: rows as structs. -EBADMSG: a column has another type or its value is out of range, or the CRC differs. */
struct entry_row {
        uint64_t parent, ino, cookie;
        const char *name;
        size_t len;
};
extern const char home_sql_inodes[], home_sql_xattrs[], home_sql_entries[], home_sql_contents[], home_sql_edits[], home_sql_extents[];
errint_t home_row_inode(sqlite3_stmt *st, struct tree_inode_state *ret, uint64_t *ret_content_check);
errint_t home_row_entry(sqlite3_stmt *st, struct entry_row *ret);
errint_t home_row_piece(sqlite3_stmt *st, bool base, struct piece *ret); /* its row CRC is checked once its extents are known */
errint_t home_row_xattrs(sqlite3_stmt *st, const uint8_t **ret, size_t *ret_len);

/* home_content.c: contents put together from rows that three statements give in the order of inodes. */
struct content_reader;
errint_t content_reader_new(struct home *h, struct content *content, const struct home_load_ops *ops, struct content_reader **ret);
void content_reader_free(struct content_reader *r);
DEFINE_FREEP(content_reader_free, struct content_reader)
/* ino must ascend. -EBADMSG: this content is damaged; ret_why says how. Other errors are the disk's. Rows of inodes before it that nobody
 * asked for are counted in *stray. */
errint_t content_reader_get(struct content_reader *r, uint64_t ino, struct blob **ret, const char **ret_why, uint64_t *stray);
errint_t content_reader_end(struct content_reader *r, uint64_t *stray);
