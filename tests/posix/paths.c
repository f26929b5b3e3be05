/* paths.c: every call that takes a path, with paths of every shape. */
#include "posix.h"

#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static long call_open(const char *p) {
        int fd = open(p, O_RDONLY | O_NONBLOCK);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long call_open_write(const char *p) {
        int fd = open(p, O_WRONLY | O_NONBLOCK);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long call_creat(const char *p) {
        int fd = open(p, O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long call_creat_excl(const char *p) {
        int fd = open(p, O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK, 0644);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long call_stat(const char *p) {
        struct stat st;
        return stat(p, &st);
}
static long call_lstat(const char *p) {
        struct stat st;
        return lstat(p, &st);
}
static long call_readlink(const char *p) {
        char out[64];
        return readlink(p, out, sizeof(out));
}
static long call_access(const char *p) {
        return access(p, R_OK);
}
static long call_chmod(const char *p) {
        return chmod(p, 0755);
}
static long call_chown(const char *p) {
        return chown(p, 1, 2);
}
static long call_lchown(const char *p) {
        return lchown(p, 1, 2);
}
static long call_truncate(const char *p) {
        return truncate(p, 3);
}
static long call_utimes(const char *p) {
        return utimensat(AT_FDCWD, p, NULL, 0);
}
static long call_mkdir(const char *p) {
        return mkdir(p, 0755);
}
static long call_rmdir(const char *p) {
        return rmdir(p);
}
static long call_unlink(const char *p) {
        return unlink(p);
}
static long call_mkfifo(const char *p) {
        return mkfifo(p, 0644);
}
static long call_mknod(const char *p) {
        return mknod(p, S_IFREG | 0644, 0);
}
static long call_symlink(const char *p) {
        return symlink("target", p);
}
static long call_link_from(const char *p) {
        return link(p, "linked");
}
static long call_link_to(const char *p) {
        return link("source", p);
}
static long call_link_follow(const char *p) {
        return linkat(AT_FDCWD, p, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW);
}
static long call_rename_from(const char *p) {
        return rename(p, "renamed");
}
static long call_rename_to(const char *p) {
        return rename("source", p);
}
static long call_rename_dir_to(const char *p) {
        return rename("source-dir", p);
}
static long call_exchange(const char *p) {
        return do_renameat2("source", p, RENAME_EXCHANGE);
}
static long call_noreplace(const char *p) {
        return do_renameat2("source", p, RENAME_NOREPLACE);
}
static long call_setxattr(const char *p) {
        return setxattr(p, "trusted.x", "v", 1, 0);
}
static long call_lsetxattr(const char *p) {
        return lsetxattr(p, "trusted.x", "v", 1, 0);
}
static long call_getxattr(const char *p) {
        return getxattr(p, "trusted.x", NULL, 0);
}
static long call_listxattr(const char *p) {
        return listxattr(p, NULL, 0);
}
static long call_statfs(const char *p) {
        struct statfs st;
        return statfs(p, &st);
}
static long call_opendir(const char *p) {
        DIR *d = opendir(p);
        if (!d)
                return -1;
        (void)closedir(d);
        return 0;
}
static long call_chdir(const char *p) {
        int here = open(".", O_RDONLY | O_DIRECTORY);
        long r = chdir(p);
        int error = errno;
        MUST(fchdir(here));
        (void)close(here);
        errno = error;
        return r;
}
static long call_watch(const char *p) {
        int fd = inotify_init1(0);
        long r = inotify_add_watch(fd, p, IN_MODIFY);
        int error = errno;
        (void)close(fd);
        errno = error;
        return r;
}

static const struct {
        const char *name;
        long (*call)(const char *path);
        bool changes; /* what it acts on is made anew for each path */
} calls[] = {
        {"open", call_open, false},
        {"open for writing", call_open_write, false},
        {"open O_CREAT", call_creat, true},
        {"open O_CREAT|O_EXCL", call_creat_excl, true},
        {"stat", call_stat, false},
        {"lstat", call_lstat, false},
        {"readlink", call_readlink, false},
        {"access", call_access, false},
        {"chmod", call_chmod, false},
        {"chown", call_chown, false},
        {"lchown", call_lchown, false},
        {"truncate", call_truncate, false},
        {"utimensat", call_utimes, false},
        {"mkdir", call_mkdir, true},
        {"rmdir", call_rmdir, true},
        {"unlink", call_unlink, true},
        {"mkfifo", call_mkfifo, true},
        {"mknod", call_mknod, true},
        {"symlink", call_symlink, true},
        {"link from", call_link_from, true},
        {"link to", call_link_to, true},
        {"link following", call_link_follow, true},
        {"rename from", call_rename_from, true},
        {"rename file to", call_rename_to, true},
        {"rename directory to", call_rename_dir_to, true},
        {"exchange with", call_exchange, true},
        {"rename, not replacing, to", call_noreplace, true},
        {"setxattr", call_setxattr, false},
        {"lsetxattr", call_lsetxattr, false},
        {"getxattr", call_getxattr, false},
        {"listxattr", call_listxattr, false},
        {"statfs", call_statfs, false},
        {"opendir", call_opendir, false},
        {"chdir", call_chdir, false},
        {"inotify_add_watch", call_watch, false},
};

static const char *const shapes[] = {
        "",
        "f",
        "f/",
        "f/.",
        "f/..",
        "f/x",
        "d",
        "d/",
        "d/.",
        "d/..",
        "d//",
        "./d",
        "d/../f",
        "d/missing",
        "d/missing/",
        "full",
        "full/",
        "full/inside",
        "full/inside/",
        "full/..",
        "missing",
        "missing/",
        "missing/x",
        "missing/.",
        "l",
        "l/",
        "l/x",
        "dl",
        "dl/",
        "dl/.",
        "dl/x",
        "dl/..",
        "dangling",
        "dangling/",
        "dangling/x",
        "loop",
        "loop/",
        "loop/x",
        "fifo",
        "fifo/",
        "sock",
        "chr",
        "blk",
        ".",
        "..",
        "./",
        "/",
        "\xff\x01\n",
        "unreadable",
        "deep/a/b/c",
        "deep/a/../a/./b//c",
        "full/../full/inside",
        "dl/../f",
        "l/..",
};

static void scene(void) {
        make(FILE_, "f");
        make(DIR_, "d");
        make(FULL, "full");
        make(LINK, "l");
        make(DIRLINK, "dl");
        make(DANGLING, "dangling");
        make(LOOP, "loop");
        make(FIFO, "fifo");
        make(SOCK, "sock");
        make(CHR, "chr");
        make(BLK, "blk");
        make(FILE_, "\xff\x01\n");
        make_as(FILE_, "unreadable", 0, 0, 0);
        MUST(mkdir("deep", 0755));
        MUST(mkdir("deep/a", 0755));
        MUST(mkdir("deep/a/b", 0755));
        make(FILE_, "deep/a/b/c");
        make(FILE_, "source");
        make(DIR_, "source-dir");
}

/* A directory of its own for each shape, so that ".." stays inside. */
static void run(void) {
        for (size_t c = 0; c < LEN(calls); c++) {
                MUST(mkdir("scene", 0777));
                MUST(chdir("scene"));
                scene();
                for (size_t s = 0; s < LEN(shapes); s++) {
                        bool same_for_all = strcmp(shapes[s], "/") == 0 && calls[c].changes;
                        if (same_for_all || (strcmp(shapes[s], "/") == 0 && !calls[c].changes && c > 7))
                                continue; /* the machine's own root is left alone */
                        long r = calls[c].call(shapes[s]);
                        char shown[80];
                        (void)snprintf(shown, sizeof(shown), "%s", shapes[s][0] == '\xff' ? "(odd bytes)" : shapes[s]);
                        check(r, "%s \"%s\"", calls[c].name, shown);
                        if (r >= 0 && calls[c].changes) {
                                value("leaves", "%s, %s", look("."), look("source"));
                                int here = open("..", O_RDONLY);
                                clear_all();
                                MUST(fchdir(here));
                                (void)close(here);
                                clear("scene");
                                clear("renamed");
                                MUST(mkdir("scene", 0777));
                                MUST(chdir("scene"));
                                scene();
                        }
                }
                MUST(chdir(".."));
                clear("scene");
        }
}
const struct family family_paths = {"paths", run, false};
