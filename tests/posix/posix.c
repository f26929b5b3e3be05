/* posix.c: the program: posix_suite DIRECTORY [FAMILY...], and what the families share. */
#include "posix.h"

#include <ftw.h>
#include <grp.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>

static const struct family *const families[] = {
        &family_open,   &family_paths,  &family_perm,  &family_create, &family_link,    &family_rename, &family_unlink,
        &family_attr,   &family_times,  &family_xattr, &family_acl,    &family_content, &family_suid,   &family_dir,
        &family_limits, &family_handle, &family_lock,  &family_map,    &family_many,
};
static const char *current;

/* --- results */

PRINTF(1, 0) static void name_out(const char *format, va_list args) {
        (void)printf("%s: ", current);
        (void)vprintf(format, args);
        (void)putchar('\t');
}

const char *error_name(int error) {
        static char number[32];
        const char *name = strerrorname_np(error);
        if (name)
                return name;
        (void)snprintf(number, sizeof(number), "errno %d", error);
        return number;
}

static void outcome(long result, int error) {
        (void)puts(result < 0 ? error_name(error) : "ok");
}

void check(long result, const char *name, ...) {
        int error = errno;
        va_list args;
        va_start(args, name);
        name_out(name, args);
        va_end(args);
        outcome(result, error);
}

void check_fd(int fd, const char *name, ...) {
        int error = errno;
        va_list args;
        va_start(args, name);
        name_out(name, args);
        va_end(args);
        outcome(fd, error);
        if (fd >= 0)
                (void)close(fd);
}

void value(const char *name, const char *format, ...) {
        va_list args;
        (void)printf("%s: . %s\t", current, name);
        va_start(args, format);
        (void)vprintf(format, args);
        va_end(args);
        (void)putchar('\n');
}

void broken(const char *what) {
        int error = errno;
        (void)fflush(stdout);
        (void)fprintf(stderr, "%s: %s: %s\n", current ? current : "start", what, strerror(error));
        exit(2);
}

/* --- things to act on */

const char *const kind_names[KINDS] = {"nothing",       "file",        "empty file",   "directory",    "full directory",    "fifo",
                                       "socket",        "char device", "block device", "link to file", "link to directory", "dangling link",
                                       "link to itself"};

static void make_socket(const char *path) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        MUST(s);
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        MUST(bind(s, (struct sockaddr *)&a, sizeof(a)));
        (void)close(s);
        MUST(chmod(path, 0644));
}

void put(const char *path, const void *data, size_t len) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        MUST(fd);
        if (write(fd, data, len) != (ssize_t)len)
                broken("write");
        MUST(close(fd));
}

static void make_link(const char *path, const char *suffix, enum kind target) {
        char there[300];
        (void)snprintf(there, sizeof(there), "%s%s", path, suffix);
        make(target, there);
        const char *base = strrchr(there, '/');
        MUST(symlink(base ? base + 1 : there, path));
}

void make(enum kind kind, const char *path) {
        char below[300];
        const char *base = strrchr(path, '/');
        switch (kind) {
        case FILE_:
                put(path, "hello", 5);
                break;
        case EMPTY:
                put(path, "", 0);
                break;
        case DIR_:
                MUST(mkdir(path, 0755));
                break;
        case FULL:
                MUST(mkdir(path, 0755));
                (void)snprintf(below, sizeof(below), "%s/inside", path);
                put(below, "x", 1);
                break;
        case FIFO:
                MUST(mkfifo(path, 0644));
                break;
        case SOCK:
                make_socket(path);
                break;
        case CHR:
                MUST(mknod(path, S_IFCHR | 0755, makedev(1, 3)));
                break;
        case BLK:
                MUST(mknod(path, S_IFBLK | 0755, makedev(7, 77)));
                break;
        case LINK:
                make_link(path, ".to", FILE_);
                break;
        case DIRLINK:
                make_link(path, ".dir", DIR_);
                break;
        case DANGLING:
                MUST(symlink("nowhere", path));
                break;
        case LOOP:
                MUST(symlink(base ? base + 1 : path, path));
                break;
        case NOTHING:
        case KINDS:
        default:
                break;
        }
}

void make_as(enum kind kind, const char *path, mode_t mode, uid_t uid, gid_t gid) {
        make(kind, path);
        MUST(lchown(path, uid, gid));
        if (kind != LINK && kind != DIRLINK && kind != DANGLING && kind != LOOP && kind != NOTHING)
                MUST(chmod(path, mode));
}

static int clear_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        (void)st, (void)ftw;
        if (strcmp(path, ".") == 0)
                return 0;
        return type == FTW_DP ? rmdir(path) : unlink(path);
}

void clear(const char *path) {
        if (nftw(path, clear_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
                broken(path);
}

void clear_all(void) {
        clear(".");
}

static const char *look_of(const struct stat *st) {
        static char text[4][160];
        static unsigned turn;
        static const char *const types[16] = {
                [1] = "fifo", [2] = "char", [4] = "dir", [6] = "block", [8] = "file", [10] = "link", [12] = "sock"};
        char *out = text[turn++ % 4];
        int n = snprintf(out, sizeof(text[0]), "%s %04o %u:%u links %u", types[(st->st_mode & S_IFMT) >> 12], st->st_mode & 07777,
                         st->st_uid, st->st_gid, (unsigned)st->st_nlink);
        if (!S_ISDIR(st->st_mode))
                n += snprintf(out + n, sizeof(text[0]) - (size_t)n, " size %lld", (long long)st->st_size);
        if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
                (void)snprintf(out + n, sizeof(text[0]) - (size_t)n, " %u,%u", major(st->st_rdev), minor(st->st_rdev));
        return out;
}

const char *look(const char *path) {
        struct stat st;
        return lstat(path, &st) < 0 ? error_name(errno) : look_of(&st);
}

const char *look_fd(int fd) {
        struct stat st;
        return fstat(fd, &st) < 0 ? error_name(errno) : look_of(&st);
}

const char *content(const char *path) {
        static char text[64];
        uint64_t sum = UINT64_C(14695981039346656037), total = 0;
        uint8_t buffer[16384];
        int fd = open(path, O_RDONLY);
        if (fd < 0)
                return error_name(errno);
        ssize_t n;
        while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
                for (ssize_t i = 0; i < n; i++)
                        sum = (sum ^ buffer[i]) * UINT64_C(1099511628211); /* FNV-1a */
                total += (uint64_t)n;
        }
        (void)snprintf(text, sizeof(text), "%llu bytes %016llx%s", (unsigned long long)total, (unsigned long long)sum,
                       n < 0 ? " and an error" : "");
        (void)close(fd);
        return text;
}

/* --- actors */

const struct actor actors[ACTORS] = {
        [ROOT] = {"root", 0, 0, {0}, 0},
        [OWNER] = {"owner", OWNER_UID, OWNER_GID, {0}, 0},
        [MEMBER] = {"member", 1002, OWNER_GID, {0}, 0},
        [SUPPLEMENTARY] = {"supplementary member", 1003, 2003, {2222, OWNER_GID}, 2},
        [STRANGER] = {"stranger", 1004, 2004, {2222}, 1},
};

void be_root(void) {
        if (setresuid(0, 0, 0) < 0 || setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0)
                broken("be_root");
}

void become(int actor) {
        const struct actor *a = &actors[actor];
        be_root();
        if (setgroups((size_t)a->n_groups, a->groups) < 0 || setresgid(a->gid, a->gid, 0) < 0 || setresuid(a->uid, a->uid, 0) < 0)
                broken("become");
}

/* --- times */

void times_old(const char *path) {
        const struct timespec t[2] = {{.tv_sec = 1000000001, .tv_nsec = 111}, {.tv_sec = 1000000002, .tv_nsec = 222}};
        MUST(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW));
}

void times_wait(void) {
        (void)usleep(11000); /* a filesystem may use the kernel's coarse clock, of 10 ms at most */
}

bool times_get(const char *path, struct times *ret) {
        struct stat st;
        if (lstat(path, &st) < 0)
                return false;
        *ret = (struct times){st.st_atim, st.st_mtim, st.st_ctim};
        return true;
}

static bool differs(struct timespec a, struct timespec b) {
        return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec;
}

const char *times_moved(const struct times *before, const struct times *after) {
        static char text[4][4];
        static unsigned turn;
        char *out = text[turn++ % 4];
        out[0] = differs(before->atime, after->atime) ? 'a' : '-';
        out[1] = differs(before->mtime, after->mtime) ? 'm' : '-';
        out[2] = differs(before->ctime, after->ctime) ? 'c' : '-';
        out[3] = '\0';
        return out;
}

/* --- ACLs */

static const struct {
        char letter;
        unsigned plain, named;
} tags[] = {{'u', 0x01, 0x02}, {'g', 0x04, 0x08}, {'m', 0x10, 0x10}, {'o', 0x20, 0x20}};

static void put_le(uint8_t *out, uint64_t n, size_t bytes) {
        for (size_t i = 0; i < bytes; i++)
                out[i] = (uint8_t)(n >> (8 * i));
}

size_t acl_pack(const char *text, uint8_t *out, size_t size) {
        size_t n = 4;
        put_le(out, 2, 4);
        for (const char *p = text; *p && n + 8 <= size; n += 8) {
                size_t tag = 0;
                while (tag < LEN(tags) - 1 && tags[tag].letter != *p)
                        tag++;
                char *end = NULL;
                unsigned long id = strtoul(p + 2, &end, 10);
                bool named = end != p + 2;
                unsigned perm = (end[1] == 'r' ? 4u : 0u) | (end[2] == 'w' ? 2u : 0u) | (end[3] == 'x' ? 1u : 0u);
                put_le(out + n, named ? tags[tag].named : tags[tag].plain, 2);
                put_le(out + n + 2, perm, 2);
                put_le(out + n + 4, named ? id : UINT32_MAX, 4);
                p = end + 4;
                while (*p == ' ')
                        p++;
        }
        return n;
}

const char *acl_text(const char *path, const char *name) {
        static char text[1024];
        uint8_t raw[1024];
        ssize_t len = getxattr(path, name, raw, sizeof(raw));
        if (len < 0)
                return error_name(errno);
        size_t at = 0;
        text[0] = '\0';
        for (ssize_t i = 4; i + 8 <= len && at + 40 < sizeof(text); i += 8) {
                uint32_t id = raw[i + 4] | (uint32_t)raw[i + 5] << 8 | (uint32_t)raw[i + 6] << 16 | (uint32_t)raw[i + 7] << 24;
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%02x:%d:%u", at ? " " : "", raw[i], (int)id, raw[i + 2]);
        }
        return text;
}

int acl_set(const char *path, const char *name, const char *text) {
        uint8_t raw[1024];
        size_t len = acl_pack(text, raw, sizeof(raw));
        return setxattr(path, name, raw, len, 0);
}

/* --- calls */

int do_renameat2(const char *old, const char *new_, unsigned flags) {
        return (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new_, flags);
}

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
int do_fchmodat2(int dir, const char *path, mode_t mode, int flags) {
        return (int)syscall(SYS_fchmodat2, dir, path, mode, flags);
}

/* --- the program */

static void run_family(const struct family *f) {
        current = f->name;
        (void)umask(0);
        MUST(mkdir(f->name, 0777));
        MUST(chdir(f->name));
        f->run();
        be_root();
        clear_all();
        MUST(chdir(".."));
        MUST(rmdir(f->name));
        (void)fflush(stdout);
}

int main(int argc, char **argv) {
        if (argc == 2 && strcmp(argv[1], "--list") == 0) {
                for (size_t i = 0; i < LEN(families); i++)
                        (void)printf("%s%s\n", families[i]->name, families[i]->slow ? " slow" : "");
                return 0;
        }
        if (argc < 2 || geteuid() != 0 || chdir(argv[1]) < 0) {
                (void)fprintf(stderr, "usage, as root: %s DIRECTORY [FAMILY...]\n", argv[0]);
                return 2;
        }
        int ran = 0;
        for (size_t i = 0; i < LEN(families); i++) {
                bool wanted = argc == 2 && !families[i]->slow;
                for (int k = 2; k < argc; k++)
                        wanted = wanted || strcmp(argv[k], families[i]->name) == 0;
                if (wanted) {
                        run_family(families[i]);
                        ran++;
                }
        }
        return ran > 0 ? 0 : 2;
}
