/* posix.h: what the families of checks share.
 *
 * A check is one line on the standard output: its name, a tab, and what came of it: "ok", the name of an errno, or a value. The program
 * knows no right answers: the runner lets it run on ext4 and on the mount and compares the lines. So whatever may differ by chance (inode
 * numbers, the clock, device numbers, process ids) must not be printed.
 *
 * Each family runs in an empty directory of its own, as the working directory, as root and with umask 0. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define LEN(a)              (sizeof(a) / sizeof((a)[0]))
#define PRINTF(text, first) __attribute__((format(printf, text, first)))

/* --- results */
PRINTF(2, 3) void check(long result, const char *name, ...);        /* "ok", or errno's name when the result is negative */
PRINTF(2, 3) void check_fd(int fd, const char *name, ...);          /* the same, and closes it */
void value(const char *name, const char *format, ...) PRINTF(2, 3); /* a text, about the check before it; its name gets a dot */
const char *error_name(int error);
_Noreturn void broken(const char *what); /* a step that must succeed everywhere did not: ends the program */
#define MUST(call)                                                                                                                         \
        do {                                                                                                                               \
                if ((call) < 0)                                                                                                            \
                        broken(#call);                                                                                                     \
        } while (0)

/* --- what there is to act on. "l" of the links' names is not followed, the others' targets are made beside them. */
enum kind { NOTHING, FILE_, EMPTY, DIR_, FULL, FIFO, SOCK, CHR, BLK, LINK, DIRLINK, DANGLING, LOOP, KINDS };
extern const char *const kind_names[KINDS];
void make(enum kind kind, const char *path); /* mode 0644, directories and devices 0755 */
void make_as(enum kind kind, const char *path, mode_t mode, uid_t uid, gid_t gid);
void put(const char *path, const void *data, size_t len); /* a file with this content, 0644 */
void clear(const char *path);                             /* whatever it is, with all below */
void clear_all(void);                                     /* all of the working directory */
/* "file 0644 1:2 links 1 size 5", or the errno; not followed. The size of directories differs between filesystems. */
const char *look(const char *path);
const char *look_fd(int fd);
const char *content(const char *path); /* length and a checksum of the bytes, or the errno */

/* --- who acts. Real, effective and filesystem ids; the saved one stays 0, so that one comes back. */
struct actor {
        const char *name;
        uid_t uid;
        gid_t gid, groups[2];
        int n_groups;
};
enum { ROOT, OWNER, MEMBER, SUPPLEMENTARY, STRANGER, ACTORS };
#define OWNER_UID 1001u
#define OWNER_GID 2001u
extern const struct actor actors[ACTORS];
void become(int actor);
void be_root(void);

/* --- times */
struct times {
        struct timespec atime, mtime, ctime;
};
void times_old(const char *path); /* atime and mtime to fixed moments in the past; not followed */
void times_wait(void);            /* until the filesystems' clocks have moved on */
bool times_get(const char *path, struct times *ret);
/* "-mc": which of the three (a, m, c) moved between two looks; not followed */
const char *times_moved(const struct times *before, const struct times *after);

/* --- POSIX ACLs as xattrs. "u::rwx u:1003:rw- g::r-x m::rwx o::---" */
#define ACL_ACCESS  "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"
size_t acl_pack(const char *text, uint8_t *out, size_t size);
const char *acl_text(const char *path, const char *name); /* or the errno */
int acl_set(const char *path, const char *name, const char *text);

/* --- calls without a wrapper in every libc */
int do_renameat2(const char *old, const char *new_, unsigned flags);
int do_fchmodat2(int dir, const char *path, mode_t mode, int flags);

struct family {
        const char *name;
        void (*run)(void);
        bool slow; /* only when named */
};
extern const struct family family_open, family_paths, family_perm, family_create, family_link, family_rename, family_unlink, family_attr,
        family_times, family_xattr, family_acl, family_content, family_suid, family_dir, family_limits, family_handle, family_lock,
        family_map, family_many;
