/* mountpoint.c: is this a place to mount? */
#include "daemon_internal.h"

#include "base/log.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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
        cleanup_free char *resolved = NULL;
        char reason[sizeof(f->text)] = "";
        errint_t error = fuse_mount_prepare(path, &resolved, reason, sizeof(reason));

        return error < 0 ? fault_set(f, 1, error, "%s", reason) : fuse_device_check(f);
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
