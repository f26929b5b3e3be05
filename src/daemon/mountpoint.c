/* mountpoint.c: is this a place to mount? */
#include "daemon_internal.h"

#include "base/log.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAMES_SHOWN 5u

/* Mounting hides what lies in the directory, silently: say what. */
void mountpoint_warn_hidden(const char *path) {
        DIR *dir = opendir(path);
        char list[512] = "";
        size_t n = 0, len = 0;

        if (!dir)
                return;
        for (const struct dirent *e; (e = readdir(dir));) {
                char quoted[80];
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                        continue;
                if (n++ < NAMES_SHOWN)
                        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", n > 1 ? ", " : "",
                                                log_quote(e->d_name, strlen(e->d_name), quoted, sizeof(quoted)));
        }
        (void)closedir(dir);
        if (n > 0)
                log_warning("%s is not empty: the mount hides %zu entries: %s%s", path, n, list, n > NAMES_SHOWN ? ", …" : "");
}

static bool is_mount(const char *path, const struct stat *st) {
        char up[4096];
        struct stat parent;

        (void)snprintf(up, sizeof(up), "%s/..", path);
        return stat(up, &parent) == 0 && parent.st_dev != st->st_dev;
}

/* The type of the filesystem mounted at path last, from /proc/self/mounts (blanks and backslashes in it are escaped there; a mount
 * point with such a name is not recognised, and then only not refused). */
static bool is_coterie_mount(const char *path) {
        FILE *f = fopen("/proc/self/mounts", "re");
        char line[8192], at[4096], type[256];
        bool is = false;

        if (!f)
                return false;
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "%*s %4095s %255s", at, type) == 2 && strcmp(at, path) == 0)
                        is = strstr(type, "coterie") != NULL;
        (void)fclose(f);
        return is;
}

/* The kernel may have the root's attributes cached, so stat(2) can succeed on a dead mount; statfs(2) always asks the daemon. */
static bool is_dead_mount(const char *path) {
        struct statfs st;
        return statfs(path, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

void mountpoint_abort(const char *path) {
        if (is_coterie_mount(path))
                (void)umount2(path, MNT_FORCE); /* in use: not unmounted, but cut off, which is what is wanted */
}

/* Before anything is written for a mount that cannot be. */
static errint_t fuse_device_check(struct fault *f) {
        struct stat st;

        if (stat("/dev/fuse", &st) < 0 || !S_ISCHR(st.st_mode) || major(st.st_rdev) != 10 || minor(st.st_rdev) != 229)
                return fault_set(f, 1, -ENODEV, "/dev/fuse is not there or not the FUSE device; load the module: modprobe fuse");
        if (access("/dev/fuse", R_OK | W_OK) < 0)
                return fault_set(f, 1, -errno, "no right to open /dev/fuse: %s; run as root", strerror(errno));
        return 0;
}

errint_t mountpoint_check(const char *path, struct fault *f) {
        struct stat st;

        if (is_dead_mount(path)) {
                /* A daemon died here. Whoever still sits in its mount keeps the dead one. */
                if (umount2(path, MNT_DETACH) < 0)
                        return fault_set(f, 1, -errno, "cannot detach the dead mount at %s; run as root", path);
                log_notice("detached the dead mount at %s", path);
        }
        if (stat(path, &st) < 0)
                return fault_set(f, 1, -errno, "mount point %s: %s; create the directory first", path, strerror(errno));
        if (!S_ISDIR(st.st_mode))
                return fault_set(f, 1, -ENOTDIR, "mount point %s is not a directory", path);
        if (is_mount(path, &st) && is_coterie_mount(path))
                return fault_set(f, 1, -EBUSY, "%s is mounted by a running coteried; stop that one first (umount %s)", path, path);
        return fuse_device_check(f);
}

/* Is path the directory that at describes, or below it? As far up as there is something: a database need not be there yet. */
static bool lies_in(const char *path, const struct stat *at) {
        cleanup_free char *up = xstrdup(path), *real = NULL;
        char *last = strrchr(up, '/');
        struct stat st;

        if (stat(up, &st) < 0 && last && last != up) /* where its symlinks lead; realpath(3) knows only what is there */
                *last = '\0';
        real = realpath(up, NULL);
        for (char *p = real ? real : up; *p;) {
                if (stat(p, &st) == 0 && st.st_dev == at->st_dev && st.st_ino == at->st_ino)
                        return true;
                last = strrchr(p, '/');
                if (!last)
                        return false;
                *last = '\0';
        }
        return false;
}

errint_t mountpoint_check_outside(const char *path, const char *what, const char *place, struct fault *f) {
        struct stat st;

        if (!place || !place[0] || stat(path, &st) < 0 || !lies_in(place, &st))
                return 0;
        return fault_set(f, 1, -EINVAL, "%s %s lies in the mount point %s, which would hide it; give another place", what, place, path);
}
