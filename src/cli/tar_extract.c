/* tar_extract.c: an archive laid over the current directory, with all that tar_write keeps. */
#include "tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK (256u * 1024u)
#define FLAGS                                                                                                                              \
        (ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_XATTR |               \
         ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS | ARCHIVE_EXTRACT_SECURE_SYMLINKS)

struct directory {
        char *path;
        struct timespec times[2];
};
struct extraction {
        struct archive *from, *to;
        const struct tar_watch *watch;
        struct tar_counts counts;
        uint64_t problems;
        struct directory *directories;
        size_t n_directories;
};

static void tell(struct extraction *x, struct archive_entry *entry, struct archive *a) {
        const char *path = archive_entry_pathname(entry), *why = archive_error_string(a);
        const char *error = archive_errno(a) > 0 ? strerror(archive_errno(a)) : "";
        char line[512];

        if (!why)
                why = "cannot be made";
        (void)snprintf(line, sizeof(line), "%s%s%s", why, *error && !strstr(why, error) ? ": " : "", strstr(why, error) ? "" : error);
        x->problems++;
        x->watch->problem(x->watch->ctx, path ? path : "a name that the locale does not have", line);
}

static void count(struct tar_counts *c, struct archive_entry *entry) {
        if (archive_entry_hardlink(entry))
                c->links++;
        else if (archive_entry_filetype(entry) == AE_IFREG)
                c->files++;
        else if (archive_entry_filetype(entry) == AE_IFDIR)
                c->directories++;
        else if (archive_entry_filetype(entry) == AE_IFLNK)
                c->symlinks++;
        else
                c->others++;
}

/* libarchive sets the times of directories that were there already at once, and what is laid into them changes them again. */
static void remember(struct extraction *x, struct archive_entry *entry) {
        if (archive_entry_filetype(entry) != AE_IFDIR || !archive_entry_mtime_is_set(entry))
                return;
        if ((x->n_directories & (x->n_directories - 1)) == 0) /* room for the next power of two */
                x->directories = xrealloc(x->directories, (x->n_directories ? 2 * x->n_directories : 1) * sizeof(*x->directories));
        struct directory *d = &x->directories[x->n_directories++];
        *d = (struct directory){.path = xstrdup(archive_entry_pathname(entry)), .times = {{.tv_nsec = UTIME_OMIT}}};
        if (archive_entry_atime_is_set(entry))
                d->times[0] = (struct timespec){.tv_sec = archive_entry_atime(entry), .tv_nsec = archive_entry_atime_nsec(entry)};
        d->times[1] = (struct timespec){.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)};
}

/* The archive may have put a symlink in a directory's place meanwhile. */
static void set_times(struct extraction *x) {
        struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

        while (x->n_directories > 0) {
                struct directory *d = &x->directories[--x->n_directories];
                cleanup_fd int fd = (int)syscall(SYS_openat2, AT_FDCWD, d->path, &how, sizeof(how));
                if (fd < 0 || futimens(fd, d->times) < 0) {
                        x->problems++;
                        x->watch->problem(x->watch->ctx, d->path, strerror(errno));
                }
                free(d->path);
        }
        free(x->directories);
}

/* Sparse: what the archive does not bring is not written, but for the last byte, which makes the size right. *ret_failed: whose error. */
static int copy_content(struct extraction *x, la_int64_t size, struct archive **ret_failed) {
        const void *block;
        size_t n;
        la_int64_t offset, end = 0;
        int code;

        *ret_failed = x->to;
        while ((code = archive_read_data_block(x->from, &block, &n, &offset)) == ARCHIVE_OK) {
                if (n > 0 && archive_write_data_block(x->to, block, n, offset) < ARCHIVE_OK)
                        return ARCHIVE_WARN;
                x->counts.bytes += n;
                end = n > 0 ? offset + (la_int64_t)n : end;
        }
        if (code == ARCHIVE_EOF && end < size && archive_write_data_block(x->to, "", 1, size - 1) < ARCHIVE_OK)
                return ARCHIVE_WARN;
        *ret_failed = x->from;
        return code;
}

/* One entry; ARCHIVE_FATAL: the archive cannot be read further. */
static int extract(struct extraction *x, struct archive_entry *entry) {
        la_int64_t size = archive_entry_size(entry);

        /* The writer would see to the size itself, and be of no use for all that follows where that fails. */
        if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) && size > 0)
                archive_entry_unset_size(entry);
        int code = archive_write_header(x->to, entry);
        if (code < ARCHIVE_OK) {
                tell(x, entry, x->to);
                if (code < ARCHIVE_WARN)
                        return code == ARCHIVE_FATAL ? ARCHIVE_FATAL : ARCHIVE_OK;
        } else {
                count(&x->counts, entry);
                remember(x, entry);
        }
        if (size > 0) {
                struct archive *failed;
                int read = copy_content(x, size, &failed);
                if (read == ARCHIVE_FATAL)
                        return ARCHIVE_FATAL;
                if (read < ARCHIVE_OK)
                        tell(x, entry, failed);
        }
        if (archive_write_finish_entry(x->to) < ARCHIVE_OK)
                tell(x, entry, x->to);
        return ARCHIVE_OK;
}

/* Bytes that are no UTF-8 in an archive that does not say so are taken as they are. */
static bool only_charset(struct archive *a, struct archive_entry *entry) {
        const char *why = archive_error_string(a);
        return archive_entry_pathname(entry) && why && strstr(why, "can't be converted from");
}

static errint_t run(struct extraction *x, char *fault, size_t fault_size) {
        struct archive_entry *entry;
        int code;

        while ((code = archive_read_next_header(x->from, &entry)) == ARCHIVE_OK || code == ARCHIVE_WARN) {
                if (code == ARCHIVE_WARN && !only_charset(x->from, entry))
                        tell(x, entry, x->from);
                x->watch->progress(x->watch->ctx, (uint64_t)archive_filter_bytes(x->from, -1));
                if (extract(x, entry) == ARCHIVE_FATAL) {
                        code = ARCHIVE_FATAL;
                        break;
                }
        }
        /* Two blocks of zeros end an archive; nothing at all behind the last entry is one that was cut there. */
        bool ended = archive_filter_bytes(x->from, 0) > archive_read_header_position(x->from);
        if (code == ARCHIVE_EOF && ended)
                return 0;
        const char *why = code == ARCHIVE_EOF ? "it was cut short: it has no end mark" : archive_error_string(x->from);
        (void)snprintf(fault, fault_size, "%s", why ? why : "it cannot be read");
        return -EBADMSG;
}

errint_t tar_extract(int fd, const struct tar_watch *watch, struct tar_counts *ret, uint64_t *ret_problems, char *fault,
                     size_t fault_size) {
        struct extraction x = {.from = archive_read_new(), .to = archive_write_disk_new(), .watch = watch};
        errint_t r = -ENOMEM;

        (void)snprintf(fault, fault_size, "not enough memory");
        if (x.from && x.to) {
                (void)archive_read_support_filter_all(x.from); /* those it can do in this process, and by programs */
                (void)archive_read_support_format_tar(x.from);
                (void)archive_write_disk_set_options(x.to, FLAGS);
                (void)archive_write_disk_set_standard_lookup(x.to); /* names of owners, where the archive has them */
                r = -EBADMSG;
                if (archive_read_open_fd(x.from, fd, BLOCK) == ARCHIVE_OK)
                        r = run(&x, fault, fault_size);
                else
                        (void)snprintf(fault, fault_size, "%s", archive_error_string(x.from));
                if (archive_write_close(x.to) < ARCHIVE_OK) { /* directories get their modes here */
                        x.problems++;
                        watch->problem(watch->ctx, ".",
                                       archive_error_string(x.to) ? archive_error_string(x.to) : "modes of directories cannot be set");
                }
                set_times(&x);
        }
        if (x.from)
                (void)archive_read_free(x.from);
        if (x.to)
                (void)archive_write_free(x.to);
        *ret = x.counts;
        *ret_problems = x.problems;
        return r;
}
