/* mount.c: mounting by mount(2) on a descriptor of /dev/fuse, dead mounts, unmounting. */
#include "edge.h"

#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define FSTYPE             "fuse.coterie"
#define STACKED_MOUNTS_MAX 64   /* dead mounts on one place that are detached before it is called hopeless */
#define ANSWER_MS          3000 /* for whoever serves what is mounted there */

struct found_mount {
        struct mount_id id;
        char fstype[64];
        bool found;
};

/* A path in double quotes; the buffer lives as long as the block it is used in. */
#define QUOTED(path) log_quote(path, strlen(path), (char[PATH_MAX]){0}, PATH_MAX)

__attribute__((format(printf, 4, 5))) static errint_t fail(char *reason, size_t size, errint_t error, const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(reason, size, fmt, args); /* cut to what the caller has room for */
        va_end(args);
        return error;
}

/* mountinfo writes blanks and backslashes in octal. */
static void unescape(char *s) {
        char *to = s;
        for (const char *p = s; *p;)
                if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' && p[3] <= '7') {
                        *to++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
                        p += 4;
                } else {
                        *to++ = *p++;
                }
        *to = '\0';
}

/* proc(5): ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAG...] - FSTYPE SOURCE OPTIONS */
static void mountinfo_line(char *line, const char *path, struct found_mount *found) {
        struct mount_id id;
        int at = 0;
        if (sscanf(line, "%*s %*s %u:%u %*s %n", &id.dev_major, &id.dev_minor, &at) < 2 || at == 0)
                return;
        char *point = line + at, *end = strchr(point, ' ');
        const char *dash = end ? strstr(end, " - ") : NULL;
        if (!dash)
                return;
        *end = '\0';
        unescape(point);
        if (strcmp(point, path) != 0)
                return;
        *found = (struct found_mount){.id = id, .found = true};
        (void)sscanf(dash + 3, "%63s", found->fstype); /* left empty: not ours then */
}

/* The topmost mount at a path: the last line that names it. Asks no filesystem, so that it cannot hang. */
static struct found_mount find_mount(const char *path) {
        struct found_mount found = {.found = false};
        FILE *f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return found;
        cleanup_free char *line = NULL;
        size_t cap = 0;
        while (getline(&line, &cap, f) > 0)
                mountinfo_line(line, path, &found);
        (void)fclose(f); /* was read only */
        return found;
}

static bool is_fuse(const struct found_mount *m) {
        return m->found && (strcmp(m->fstype, "fuse") == 0 || strncmp(m->fstype, "fuse.", 5) == 0);
}

/* Of a mount's root, opened as a path only, nothing is asked, so that neither a dead nor a stopped daemon is in the way. */
static errint_t resolve(const char *mountpoint, char **ret, bool *ret_is_dir) {
        cleanup_fd int fd = open(mountpoint, O_PATH | O_CLOEXEC);
        char name[64], path[PATH_MAX];
        struct statx st;

        if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
                return -errno;
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, path, sizeof(path) - 1);
        if (n < 0)
                return -errno;
        path[n] = '\0';
        *ret = xstrdup(path);
        *ret_is_dir = S_ISDIR(st.stx_mode);
        return 0;
}

enum answer { ANSWER_LIVING, ANSWER_DEAD, ANSWER_NONE };

/* The root's attributes may be cached for ever, so stat(2) proves nothing; statfs(2) always asks the daemon, and waits for it. So another
 * process does; one that is left behind ends when the daemon goes on or dies. */
static enum answer ask(const char *path) {
        pid_t pid = fork();
        if (pid == 0) {
                struct statfs st;
                (void)close_range(0, UINT_MAX, 0); /* locks of ours would live as long as it is left behind */
                _exit(statfs(path, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED) ? ANSWER_DEAD : ANSWER_LIVING);
        }
        cleanup_fd int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
        struct pollfd end = {.fd = fd, .events = POLLIN};
        int status = 0;
        if (fd < 0 || poll(&end, 1, ANSWER_MS) != 1) {
                if (pid > 0)
                        (void)kill(pid, SIGKILL);
                return ANSWER_NONE;
        }
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? (enum answer)WEXITSTATUS(status) : ANSWER_NONE;
}

static errint_t detach_dead(const char *path, char *reason, size_t size) {
        for (int i = 0; i < STACKED_MOUNTS_MAX; i++) {
                struct found_mount m = find_mount(path);
                if (!is_fuse(&m))
                        return 0;
                bool ours = strcmp(m.fstype, FSTYPE) == 0;
                enum answer answer = ask(path);
                if (answer == ANSWER_NONE)
                        return fail(reason, size, -EBUSY,
                                    "%s is mounted by %s that does not answer, for it is stopped or hangs: continue it with kill -CONT, or "
                                    "end it with "
                                    "kill -9",
                                    QUOTED(path), ours ? "a coteried" : "another filesystem's process");
                if (answer == ANSWER_LIVING && !ours)
                        return 0;
                if (answer == ANSWER_LIVING)
                        return fail(reason, size, -EBUSY,
                                    "%s is already mounted and served by a running coteried: stop it, or choose another mount point",
                                    QUOTED(path));
                /* A daemon died here. Whoever still sits in its mount keeps the dead one. */
                if (umount2(path, MNT_DETACH) < 0)
                        return fail(reason, size, -errno, "cannot detach the dead mount at %s: %s; run as root", QUOTED(path),
                                    strerror(errno));
                log_notice("detached the dead mount of an earlier daemon at %s", QUOTED(path));
        }
        return fail(reason, size, -EBUSY, "too many dead mounts at %s: detach them with umount -l", QUOTED(path));
}

errint_t fuse_mount_prepare(const char *mountpoint, char **ret_path, char *reason, size_t reason_size) {
        cleanup_free char *path = NULL;
        bool is_dir;
        errint_t r = resolve(mountpoint, &path, &is_dir);
        if (r == -ENOENT)
                return fail(reason, reason_size, r, "mount point %s does not exist: create it with mkdir -p", QUOTED(mountpoint));
        if (r < 0)
                return fail(reason, reason_size, r, "cannot use mount point %s: %s", QUOTED(mountpoint), strerror(-r));
        if (!is_dir)
                return fail(reason, reason_size, -ENOTDIR, "mount point %s is not a directory: name a directory", QUOTED(mountpoint));
        r = detach_dead(path, reason, reason_size);
        if (r < 0)
                return r;
        *ret_path = steal_pointer(&path);
        return 0;
}

void fuse_mount_cut(const char *mountpoint) {
        cleanup_free char *path = NULL;
        bool is_dir;
        if (resolve(mountpoint, &path, &is_dir) < 0)
                return;
        struct found_mount m = find_mount(path);
        if (m.found && strcmp(m.fstype, FSTYPE) == 0)
                (void)umount2(path, MNT_FORCE); /* in use: not unmounted, but cut off, which is what is wanted */
}

static errint_t open_device(int *ret_fd, char *reason, size_t size) {
        int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
                *ret_fd = fd;
                return 0;
        }
        errint_t r = -errno;
        if (r == -ENOENT || r == -ENODEV || r == -ENXIO)
                return fail(reason, size, r, "there is no /dev/fuse here: load the module with modprobe fuse");
        if (r == -EACCES || r == -EPERM)
                return fail(reason, size, r, "no rights to open /dev/fuse: run as root");
        return fail(reason, size, r, "cannot open /dev/fuse: %s", strerror(-r));
}

errint_t edge_mount(const struct fuse_edge_config *config, const char *path, int *ret_fd, struct mount_id *ret_id, char *reason,
                    size_t reason_size) {
        cleanup_fd int fd = -1;
        errint_t r = open_device(&fd, reason, reason_size);
        if (r < 0)
                return r;
        char options[256];
        (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions,allow_other,max_read=%u",
                       fd, geteuid(), getegid(), EDGE_MAX_WRITE);
        unsigned long flags =
                (config->allow_dev ? 0 : MS_NODEV) | (config->allow_suid ? 0 : MS_NOSUID) | (config->read_only ? MS_RDONLY : 0);
        if (mount(config->source ? config->source : "coterie", path, FSTYPE, flags, options) < 0) {
                r = -errno;
                if (r == -EPERM || r == -EACCES)
                        return fail(reason, reason_size, r, "no rights to mount at %s: run as root (CAP_SYS_ADMIN)", QUOTED(path));
                if (r == -ENODEV)
                        return fail(reason, reason_size, r, "this kernel has no FUSE to mount at %s: load the module with modprobe fuse",
                                    QUOTED(path));
                return fail(reason, reason_size, r, "cannot mount at %s: %s", QUOTED(path), strerror(-r));
        }
        struct found_mount m = find_mount(path);
        if (!m.found || strcmp(m.fstype, FSTYPE) != 0) {
                (void)umount2(path, MNT_DETACH); /* what was mounted cannot be found again: nothing better to do */
                return fail(reason, reason_size, -EIO, "the new mount at %s is not in /proc/self/mountinfo: is /proc mounted?",
                            QUOTED(path));
        }
        *ret_id = m.id;
        *ret_fd = steal_fd(&fd);
        return 0;
}

bool edge_unmount(const char *path, struct mount_id id) {
        struct found_mount m = find_mount(path);
        if (!m.found || m.id.dev_major != id.dev_major || m.id.dev_minor != id.dev_minor)
                return false;
        /* Stores through mmap that are still in the page cache become WRITEs now; after the session is closed they would be lost. */
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
                if (syncfs(fd) < 0)
                        log_warning("cannot write back mapped pages before unmounting: %s", strerror(errno));
                (void)close(fd); /* a directory: nothing to lose */
        }
        if (umount2(path, UMOUNT_NOFOLLOW) == 0)
                return true;
        if (errno != EBUSY || umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
                log_warning("cannot unmount %s: %s", QUOTED(path), strerror(errno));
        return false;
}

/* The control filesystem has a file per connection that ends it. It is mounted nowhere: not every system has it at its usual place. */
static errint_t abort_file(int session_fd, struct mount_id id, int *ret_fd) {
        cleanup_fd int context = fsopen("fusectl", FSOPEN_CLOEXEC);
        if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        cleanup_fd int root = fsmount(context, FSMOUNT_CLOEXEC, 0);
        if (root < 0)
                return -errno;
        char name[64];
        (void)snprintf(name, sizeof(name), "%u/abort", id.dev_major << 20 | id.dev_minor);
        cleanup_fd int file = openat(root, name, O_WRONLY | O_CLOEXEC);
        if (file < 0)
                return -errno;
        /* Numbers are used again: while the session lives, the file that was opened is its own. */
        struct pollfd session = {.fd = session_fd, .events = POLLIN};
        if (session_fd >= 0 && (poll(&session, 1, 0) < 0 || session.revents & POLLERR))
                return -ENOTCONN;
        *ret_fd = steal_fd(&file);
        return 0;
}

errint_t edge_abort(int session_fd, struct mount_id id) {
        cleanup_fd int file = -1;
        errint_t r = abort_file(session_fd, id, &file);
        return r < 0 ? r : write(file, "1", 1) == 1 ? 0 : -errno;
}

errint_t fuse_edge_abort_file(const struct fuse_edge *e, int *ret_fd) {
        return abort_file(e->fd, e->mount, ret_fd);
}

void edge_readahead(struct mount_id id) {
        char path[96];
        (void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", id.dev_major, id.dev_minor);
        cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
                (void)!dprintf(fd, "%u", EDGE_MAX_WRITE / 1024); /* no /sys to write to: the default does, in smaller pieces */
}
