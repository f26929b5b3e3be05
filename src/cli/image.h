/* image.h (private to cli): the whole state at one position, from the running daemon or from a backup file. */
#pragma once

#include "cli.h"
#include "repl/image.h"

struct image_told { /* by whoever gives the image */
        struct position pos;
        struct hash128 digest;
        uint64_t inodes, bytes;
};
typedef errint_t (*image_sink_fn)(void *ctx, const void *p, size_t n); /* a negative errno ends it */

/* Asks the daemon to freeze its state and gives it to the sink; 0 or the exit code after the line was printed. begin: once, before the first bytes. */
int image_fetch(const struct cli *cli, errint_t (*begin)(void *ctx, const struct image_told *told), image_sink_fn sink, void *ctx, struct image_told *ret);
/* The same, put together. */
int image_fetch_state(const struct cli *cli, struct state *ret, uint64_t *ret_adopted, struct image_told *ret_told);

/* --- backup files (docs/FORMAT.md) */
struct backup_writer;
errint_t backup_create(const char *path, struct backup_writer **ret); /* mode 0600; -EBUSY: another one writes it; -EEXIST: no file that could be ours */
errint_t backup_head(void *writer, const struct image_told *told);
errint_t backup_add(void *writer, const void *p, size_t n);
errint_t backup_finish(struct backup_writer *w); /* on the medium afterwards */
void backup_free(struct backup_writer *w);
DEFINE_FREEP(backup_free, struct backup_writer)

/* Reads and verifies it whole: checksums, then the state's own digest. -EBADMSG, -ENOTSUP (a newer format): with a line in fault. */
errint_t backup_read(const struct cli *cli, const char *path, struct state *ret, uint64_t *ret_adopted, struct image_told *ret_told, char *fault, size_t fault_size);

/* --- progress.c: a bar on standard error, if that is a terminal and it takes longer than a second */
struct progress {
        const char *what;
        uint64_t total, began_ms, drawn_ms;
        bool terminal;
};
void progress_begin(struct progress *p, const char *what, uint64_t total);
void progress_show(struct progress *p, uint64_t done);
void progress_end(struct progress *p);
