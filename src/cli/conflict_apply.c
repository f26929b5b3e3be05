/* conflict_apply.c: what a lost operation did, in words; doing it again, through the mount and by path; and what that would change. */
#include "conflicts.h"

#include "base/compress.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* --- in words */
static void describe_create(const struct op *op, char *buf, size_t size) {
        static const struct {
                uint32_t type;
                const char *text;
        } types[] = {{S_IFREG, "file"},    {S_IFDIR, "directory"},        {S_IFLNK, "symlink"},     {S_IFIFO, "fifo"},
                     {S_IFSOCK, "socket"}, {S_IFCHR, "character device"}, {S_IFBLK, "block device"}};
        const char *type = "?";

        for (size_t i = 0; i < ARRAY_LEN(types); i++)
                if ((op->create.mode & S_IFMT) == types[i].type)
                        type = types[i].text;
        (void)snprintf(buf, size, "create %s, mode %04o, owner %u:%u", type, op->create.mode & 07777, op->create.uid, op->create.gid);
}

static void describe_setattr(const struct op *op, char *buf, size_t size) {
        char mode[32] = "", owner[64] = "";
        const char *times = op->setattr.mask & (SETATTR_ATIME | SETATTR_MTIME) ? ", times" : "";

        if (op->setattr.mask & SETATTR_MODE)
                (void)snprintf(mode, sizeof(mode), ", mode %04o", op->setattr.mode & 07777);
        if (op->setattr.mask & SETATTR_UID)
                (void)snprintf(owner, sizeof(owner), ", owner %u", op->setattr.uid);
        size_t n = strlen(owner);
        if (op->setattr.mask & SETATTR_GID)
                (void)snprintf(owner + n, sizeof(owner) - n, ", group %u", op->setattr.gid);
        (void)snprintf(buf, size, "set attributes%s%s%s", mode, owner, times);
}

static void describe_write(const struct op *op, char *buf, size_t size) {
        char end[48] = "";

        if (op->write.size != BLOB_KEEP_ALL)
                (void)snprintf(end, sizeof(end), ", size %" PRIu64, op->write.size);
        (void)snprintf(buf, size, "write %" PRIu64 " bytes in %zu pieces%s%s%s", op->payload.raw_len, op->write.n_extents,
                       op->write.flags & WRITE_APPEND ? " at the end" : "", op->write.keep == 0 ? ", nothing else stays" : "", end);
}

void conflict_describe(const struct op *op, char *buf, size_t size) {
        char name[300];

        switch (op->kind) {
        case OP_CREATE:
                describe_create(op, buf, size);
                break;
        case OP_SETATTR:
                describe_setattr(op, buf, size);
                break;
        case OP_WRITE:
                describe_write(op, buf, size);
                break;
        case OP_SETXATTR:
                (void)snprintf(buf, size, "set xattr %s, %zu bytes",
                               log_quote(op->setxattr.name.text, op->setxattr.name.len, name, sizeof(name)), op->setxattr.len);
                break;
        case OP_REMOVEXATTR:
                (void)snprintf(buf, size, "remove xattr %s",
                               log_quote(op->removexattr.name.text, op->removexattr.name.len, name, sizeof(name)));
                break;
        case OP_ADOPT:
                (void)snprintf(buf, size, "link a temporary file of %" PRIu64 " bytes, mode %04o", op->payload.raw_len,
                               op->adopt.attr.mode & 07777);
                break;
        case OP_SETTING:
                (void)snprintf(buf, size, "set %.*s=%.*s", (int)op->setting.name.len, op->setting.name.text, (int)op->setting.len,
                               op->setting.text);
                break;
        default:
                (void)snprintf(buf, size, "%s", op_kind_text(op->kind));
        }
}

errint_t conflict_content(const struct op *op, uint8_t **ret, size_t *ret_len) {
        size_t n = (size_t)op->payload.raw_len; /* bounded by the decoder */
        cleanup_free uint8_t *p = try_malloc(n + 1);

        if (!p)
                return -ENOMEM;
        if (n > 0 && op->payload.form == FORM_ZSTD) {
                errint_t r = decompress_zstd(op->payload.data, op->payload.len, p, n);
                if (r < 0)
                        return r;
        } else if (n > 0) {
                memcpy(p, op->payload.data, n);
        }
        *ret = steal_pointer(&p);
        *ret_len = n;
        return 0;
}

/* --- paths: never out of the mount, never through a symlink */
static int open_below(int root, const char *path, int flags) {
        struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                               .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
        const char *p = path + strspn(path, "/");

        if (flags & O_PATH)
                how.flags |= O_NOFOLLOW; /* the last one may be a symlink: itself */
        return (int)syscall(SYS_openat2, root, *p ? p : ".", &how, sizeof(how));
}

/* The directory of the last name, which is put into name. */
static int open_parent(int root, const char *path, const char **name) {
        const char *slash = strrchr(path, '/');
        char parent[CONFLICT_PATH_MAX];

        if (!slash || !slash[1] || (size_t)(slash - path) >= sizeof(parent)) {
                errno = ENOENT;
                return -1;
        }
        memcpy(parent, path, (size_t)(slash - path));
        parent[slash - path] = '\0';
        *name = slash + 1;
        return open_below(root, parent, O_RDONLY | O_DIRECTORY);
}

static const char *fd_path(int fd, char buf[32]) {
        (void)snprintf(buf, 32, "/proc/self/fd/%d", fd);
        return buf;
}

static errint_t last(long done) {
        return done < 0 ? -errno : 0;
}

/* --- one kind after the other */
static errint_t write_at(int fd, const uint8_t *p, uint64_t n, uint64_t at) {
        while (n > 0) {
                ssize_t done = pwrite(fd, p, n, (off_t)at);
                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0)
                        return -errno;
                p += done;
                n -= (uint64_t)done;
                at += (uint64_t)done;
        }
        return 0;
}

static errint_t apply_write(int root, const struct conflict_file *f) {
        const struct op *op = &f->op;
        bool append = op->write.flags & WRITE_APPEND;
        cleanup_free uint8_t *content = NULL;
        size_t len = 0, used = 0;
        struct stat st;
        errint_t r = conflict_content(op, &content, &len);

        if (r < 0)
                return r;
        cleanup_fd int fd = open_below(root, f->path, O_WRONLY | O_NONBLOCK | (append ? O_APPEND : 0)); /* a fifo is not waited for */
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        if (op->write.keep < (uint64_t)st.st_size)
                r = last(ftruncate(fd, (off_t)op->write.keep));
        for (size_t i = 0; i < op->write.n_extents && r == 0; i++) {
                const struct extent *x = &op->write.extents[i];
                if (x->kind == EXTENT_ZERO) {
                        r = last(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)x->offset, (off_t)x->length));
                        continue;
                }
                if (x->length > len - used)
                        return -EBADMSG;
                r = append ? cli_write_all(fd, content + used, x->length) : write_at(fd, content + used, x->length, x->offset);
                used += x->length;
        }
        if (r == 0 && op->write.size != BLOB_KEEP_ALL)
                r = last(ftruncate(fd, (off_t)op->write.size));
        return r;
}

static errint_t finish_new(int parent, const char *name, uint32_t mode, uint32_t uid, uint32_t gid) {
        cleanup_fd int fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        char path[32];

        if (fd < 0 || fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
                return -errno;
        return S_ISLNK(mode) ? 0 : last(chmod(fd_path(fd, path), mode & 07777));
}

static errint_t set_acl(int parent, const char *name, const char *attribute, const uint8_t *data, size_t len) {
        cleanup_fd int fd = len > 0 ? openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
        char path[32];

        if (len == 0)
                return 0;
        return fd < 0 ? -errno : last(setxattr(fd_path(fd, path), attribute, data, len, 0));
}

static errint_t apply_create(int root, const struct conflict_file *f) {
        const struct op *op = &f->op;
        uint32_t mode = op->create.mode;
        const char *name;
        struct stat st;
        char target[LIMIT_PATH + 1];
        cleanup_fd int parent = open_parent(root, f->path, &name);
        errint_t r;

        if (parent < 0)
                return -errno;
        if (op->create.or_open && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
                return 0;
        if (S_ISDIR(mode)) {
                r = last(mkdirat(parent, name, 0700));
        } else if (S_ISLNK(mode)) {
                size_t n = MIN_OF(op->create.target.len, sizeof(target) - 1);
                memcpy(target, op->create.target.text, n);
                target[n] = '\0';
                r = last(symlinkat(target, parent, name));
        } else {
                r = last(mknodat(parent, name, (mode & S_IFMT) | 0600, op->create.rdev));
        }
        if (r == 0)
                r = finish_new(parent, name, mode, op->create.uid, op->create.gid);
        if (r == 0)
                r = set_acl(parent, name, "system.posix_acl_access", op->create.acl_access.data, op->create.acl_access.len);
        return r < 0 ? r : set_acl(parent, name, "system.posix_acl_default", op->create.acl_default.data, op->create.acl_default.len);
}

static errint_t apply_names(int root, const struct conflict_file *f) {
        const struct op *op = &f->op;
        const char *name = NULL, *new_name = NULL;
        cleanup_fd int parent = open_parent(root, f->path, &name), new_parent = -1;

        if (parent < 0)
                return -errno;
        if (op->kind == OP_UNLINK || op->kind == OP_RMDIR)
                return last(unlinkat(parent, name, op->kind == OP_RMDIR ? AT_REMOVEDIR : 0));
        new_parent = open_parent(root, f->new_path, &new_name);
        if (new_parent < 0)
                return -errno;
        return op->kind == OP_LINK ? last(linkat(parent, name, new_parent, new_name, 0))
                                   : last(renameat2(parent, name, new_parent, new_name, op->rename.flags));
}

static errint_t apply_setattr(int root, const struct conflict_file *f) {
        const struct op *op = &f->op;
        uint32_t mask = op->setattr.mask;
        cleanup_fd int fd = open_below(root, f->path, O_PATH);
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
        char path[32];
        errint_t r = fd < 0 ? -errno : 0;

        if (r == 0 && mask & (SETATTR_UID | SETATTR_GID))
                r = last(fchownat(fd, "", mask & SETATTR_UID ? op->setattr.uid : (uid_t)-1,
                                  mask & SETATTR_GID ? op->setattr.gid : (gid_t)-1, AT_EMPTY_PATH));
        if (r == 0 && mask & SETATTR_MODE)
                r = last(chmod(fd_path(fd, path), op->setattr.mode & 07777));
        if (mask & SETATTR_ATIME)
                times[0] = (struct timespec){.tv_sec = op->setattr.atime.sec, .tv_nsec = op->setattr.atime.nsec};
        if (mask & SETATTR_MTIME)
                times[1] = (struct timespec){.tv_sec = op->setattr.mtime.sec, .tv_nsec = op->setattr.mtime.nsec};
        if (r == 0 && mask & (SETATTR_ATIME | SETATTR_MTIME))
                r = last(utimensat(AT_FDCWD, fd_path(fd, path), times, 0));
        return r;
}

static errint_t apply_xattr(int root, const struct conflict_file *f) {
        const struct op *op = &f->op;
        const struct op_name *n = op->kind == OP_SETXATTR ? &op->setxattr.name : &op->removexattr.name;
        cleanup_fd int fd = open_below(root, f->path, O_PATH);
        char path[32], name[LIMIT_XATTR_NAME + 1];

        if (fd < 0)
                return -errno;
        memcpy(name, n->text, n->len); /* bounded by the decoder */
        name[n->len] = '\0';
        if (op->kind == OP_SETXATTR)
                return last(setxattr(fd_path(fd, path), name, op->setxattr.value, op->setxattr.len, (int)op->setxattr.flags));
        return last(removexattr(fd_path(fd, path), name));
}

static errint_t apply_adopt(int root, const struct conflict_file *f) {
        const struct attr *a = &f->op.adopt.attr;
        cleanup_free uint8_t *content = NULL;
        const char *name;
        size_t len;
        cleanup_fd int parent = open_parent(root, f->path, &name), fd = -1;
        errint_t r = parent < 0 ? -errno : conflict_content(&f->op, &content, &len);

        if (r < 0)
                return r;
        fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = write_at(fd, content, len, 0);
        if (r == 0)
                r = finish_new(parent, name, a->mode, a->uid, a->gid);
        struct dec d;
        dec_init(&d, f->op.adopt.xattrs, f->op.adopt.xattrs_len);
        while (r == 0 && dec_left(&d) > 0) {
                size_t n, value_len;
                char text[LIMIT_XATTR_NAME + 1];
                const uint8_t *key = dec_bytes(&d, LIMIT_XATTR_NAME, &n), *value = dec_bytes(&d, LIMIT_XATTR_VALUE, &value_len);
                if (d.err)
                        return d.err;
                memcpy(text, key, n);
                text[n] = '\0';
                r = last(fsetxattr(fd, text, value, value_len, 0));
        }
        return r;
}

static int apply_setting(const struct cli *cli, const struct op *op) {
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        char name[LIMIT_NAME + 1], text[512];

        (void)snprintf(name, sizeof(name), "%.*s", (int)op->setting.name.len, op->setting.name.text);
        (void)snprintf(text, sizeof(text), "%.*s", (int)op->setting.len, op->setting.text);
        return cli_ask(cli, 3, (const char *const[]){"set", name, text}, &r);
}

static int fail(const struct cli *cli, const struct conflict_file *f, errint_t error) {
        char quoted[1024];
        return cli_fail(cli, CTL_FAILED, "%s: %s: %s", f->name, log_quote(f->path, strlen(f->path), quoted, sizeof(quoted)),
                        strerror(-error));
}

int conflict_apply(const struct cli *cli, int root, const struct conflict_file *f) {
        errint_t r = -EOPNOTSUPP;

        if (f->op.kind == OP_SETTING)
                return apply_setting(cli, &f->op);
        if (!f->path[0])
                return cli_fail(cli, CTL_FAILED, "%s: what it was about had no name any more; show it, then drop it", f->name);
        switch (f->op.kind) {
        case OP_CREATE:
                r = apply_create(root, f);
                break;
        case OP_LINK:
        case OP_UNLINK:
        case OP_RMDIR:
        case OP_RENAME:
                r = apply_names(root, f);
                break;
        case OP_SETATTR:
                r = apply_setattr(root, f);
                break;
        case OP_WRITE:
                r = apply_write(root, f);
                break;
        case OP_SETXATTR:
        case OP_REMOVEXATTR:
                r = apply_xattr(root, f);
                break;
        case OP_ADOPT:
                r = apply_adopt(root, f);
                break;
        default:
                break;
        }
        return r < 0 ? fail(cli, f, r) : 0;
}

/* --- diff: the file as it is and as it would be, by diff(1) */
static errint_t read_blob(int root, const char *path, struct blob **ret) {
        cleanup_fd int fd = open_below(root, path, O_RDONLY | O_NONBLOCK);
        struct stat st;

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno; /* nothing there: empty */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > LIMIT_FILE_SIZE_MAX)
                return -EINVAL;
        cleanup_free uint8_t *p = try_malloc((size_t)st.st_size + 1);
        if (!p)
                return -ENOMEM;
        ssize_t n = pread(fd, p, (size_t)st.st_size, 0);
        return n < 0 ? -errno : blob_from_bytes(p, (size_t)n, ret);
}

static int blob_file(const struct blob *b) {
        int fd = memfd_create("diff", 0);
        uint8_t buffer[65536];
        size_t n;

        for (uint64_t at = 0; fd >= 0 && (n = blob_read(b, at, buffer, sizeof(buffer))) > 0; at += n)
                if (cli_write_all(fd, buffer, n) < 0) {
                        (void)close(fd);
                        return -1;
                }
        return fd;
}

static errint_t edited(struct blob *now, const struct op *op, struct blob **ret) {
        cleanup_free uint8_t *content = NULL;
        cleanup_free struct extent *moved = NULL;
        size_t len;
        errint_t r = conflict_content(op, &content, &len);

        if (r < 0)
                return r;
        if (op->kind == OP_ADOPT)
                return blob_from_bytes(content, len, ret);
        moved = xcalloc(op->write.n_extents + 1, sizeof(*moved));
        for (size_t i = 0; i < op->write.n_extents; i++) {
                moved[i] = op->write.extents[i];
                if (op->write.flags & WRITE_APPEND)
                        moved[i].offset += blob_size(now);
        }
        return blob_edit(now, op->write.keep, moved, op->write.n_extents, content, len, op->write.size, ret);
}

static int run_diff(const struct cli *cli, const char *path, int before, int after) {
        char a[32], b[32];
        int status;
        (void)fflush(stdout);
        pid_t pid = fork();

        if (pid == 0) {
                (void)execlp("diff", "diff", "-u", "--label", path, "--label", "as it would be", fd_path(before, a), fd_path(after, b),
                             (char *)NULL);
                _exit(127);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) > 2)
                return cli_fail(cli, CTL_FAILED, "diff(1) cannot be run");
        return WEXITSTATUS(status) == 2 ? CTL_FAILED : 0; /* it has said why */
}

int conflict_diff(const struct cli *cli, int root, const struct conflict_file *f) {
        CLEANUP(blob_unrefp) struct blob *now = NULL, *then = NULL;
        char what[512], quoted[1024];

        if (f->op.kind != OP_WRITE && f->op.kind != OP_ADOPT) {
                conflict_describe(&f->op, what, sizeof(what));
                (void)printf("%s %s: %s\n", f->name, log_quote(f->path, strlen(f->path), quoted, sizeof(quoted)), what);
                return 0;
        }
        if (!f->path[0])
                return cli_fail(cli, CTL_FAILED,
                                "%s: what it was about had no name any more; `coterie conflicts show --content` has the bytes", f->name);
        errint_t r = read_blob(root, f->path, &now);
        if (r == 0)
                r = edited(now, &f->op, &then);
        cleanup_fd int before = r == 0 ? blob_file(now) : -1, after = r == 0 ? blob_file(then) : -1;
        if (r == 0 && (before < 0 || after < 0))
                r = -ENOMEM;
        return r < 0 ? fail(cli, f, r) : run_diff(cli, log_quote(f->path, strlen(f->path), quoted, sizeof(quoted)), before, after);
}
