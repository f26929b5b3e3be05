/* home_rows.c: rows as structs, checked. What damage can do to a row, a wrong type or a wrong value, ends here with -EBADMSG. */
#include "home_private.h"

const char home_sql_inodes[] = "SELECT ino, mode, uid, gid, nlink, size, rdev, atime, atime_ns, mtime, mtime_ns, ctime, ctime_ns, parent, "
                               "next_cookie, content_check, crc"
                               " FROM inodes ORDER BY ino";
const char home_sql_xattrs[] = "SELECT ino, data, crc FROM xattrs ORDER BY ino";
const char home_sql_entries[] = "SELECT parent, name, ino, cookie, crc FROM entries ORDER BY parent, name";
const char home_sql_contents[] = "SELECT ino, sequence, form, raw_len, stored_len, edit, data, crc, row_crc FROM contents ORDER BY ino";
const char home_sql_edits[] = "SELECT ino, sequence, form, raw_len, stored_len, edit, data, crc, row_crc FROM edits ORDER BY ino, sequence";
const char home_sql_extents[] = "SELECT ino, sequence, n, offset, length FROM extents ORDER BY ino, sequence, n";

static uint64_t number(sqlite3_stmt *st, int col) {
        return (uint64_t)sqlite3_column_int64(st, col);
}

errint_t home_row_inode(sqlite3_stmt *st, struct tree_inode_state *ret, uint64_t *ret_content_check) {
        struct tree_inode_state s = {
                .attr = {.ino = number(st, 0), .size = number(st, 5)},
                .parent = number(st, 13),
                .next_cookie = number(st, 14),
        };
        struct attr *a = &s.attr;
        uint32_t *const narrow[] = {&a->mode, &a->uid, &a->gid, &a->nlink};
        for (size_t i = 0; i < ARRAY_LEN(narrow); i++) {
                if (number(st, (int)i + 1) > UINT32_MAX)
                        return -EBADMSG;
                *narrow[i] = (uint32_t)number(st, (int)i + 1);
        }
        struct timestamp *const times[] = {&a->atime, &a->mtime, &a->ctime};
        for (size_t i = 0; i < ARRAY_LEN(times); i++) {
                if (number(st, 8 + 2 * (int)i) >= 1000000000u)
                        return -EBADMSG;
                times[i]->sec = sqlite3_column_int64(st, 7 + 2 * (int)i);
                times[i]->nsec = (uint32_t)number(st, 8 + 2 * (int)i);
        }
        if (number(st, 6) > UINT32_MAX)
                return -EBADMSG;
        a->rdev = (uint32_t)number(st, 6);
        if (number(st, 16) != home_inode_crc(&s, number(st, 15)))
                return -EBADMSG;
        *ret_content_check = number(st, 15);
        *ret = s;
        return 0;
}

errint_t home_row_entry(sqlite3_stmt *st, struct entry_row *ret) {
        struct entry_row e = {.parent = number(st, 0), .ino = number(st, 2), .cookie = number(st, 3)};
        if (sqlite3_column_type(st, 1) != SQLITE_TEXT)
                return -EBADMSG;
        e.name = (const char *)sqlite3_column_text(st, 1);
        e.len = (size_t)sqlite3_column_bytes(st, 1);
        if (!e.name || !op_name_valid(e.name, e.len) || number(st, 4) != home_entry_crc(e.parent, e.name, e.len, e.ino, e.cookie))
                return -EBADMSG;
        *ret = e;
        return 0;
}

errint_t home_row_xattrs(sqlite3_stmt *st, const uint8_t **ret, size_t *ret_len) {
        const uint8_t *p = sqlite3_column_type(st, 1) == SQLITE_BLOB ? sqlite3_column_blob(st, 1) : NULL;
        size_t n = (size_t)sqlite3_column_bytes(st, 1);
        if (!p || number(st, 2) != home_bytes_crc(number(st, 0), p, n))
                return -EBADMSG;
        *ret = p;
        *ret_len = n;
        return 0;
}

static errint_t blob_column(sqlite3_stmt *st, int col, const void **ret, size_t *ret_len) {
        *ret = NULL;
        *ret_len = 0;
        int type = sqlite3_column_type(st, col);
        if (type == SQLITE_NULL)
                return 0;
        if (type != SQLITE_BLOB)
                return -EBADMSG;
        *ret = sqlite3_column_bytes(st, col) > 0 ? sqlite3_column_blob(st, col) : "";
        *ret_len = (size_t)sqlite3_column_bytes(st, col);
        return *ret ? 0 : -ENOMEM;
}

errint_t home_row_piece(sqlite3_stmt *st, bool base, struct piece *ret) {
        struct piece p = {.seq = number(st, 1), .base = base, .raw_len = number(st, 3), .stored_len = (size_t)number(st, 4)};
        size_t data_len = 0;
        errint_t r = blob_column(st, 5, &p.edit, &p.edit_len);
        if (r == 0)
                r = blob_column(st, 6, &p.inline_data, &data_len);
        if (r < 0)
                return r;
        uint64_t form = number(st, 2);
        if ((form != FORM_RAW && form != FORM_ZSTD) || p.raw_len > LIMIT_FILE_SIZE_MAX || p.stored_len > OP_PAYLOAD_MAX ||
            number(st, 7) > UINT32_MAX)
                return -EBADMSG;
        p.form = (enum content_form)form;
        p.crc = (uint32_t)number(st, 7);
        if ((p.inline_data && data_len != p.stored_len) || (p.form == FORM_RAW && p.raw_len != p.stored_len))
                return -EBADMSG;
        *ret = p;
        return 0;
}
