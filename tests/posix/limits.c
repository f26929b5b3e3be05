/* limits.c: names and paths that are too long, too many links in a path, and the calls that must say so. */
#include "posix.h"

#include <sys/statfs.h>
#include <sys/xattr.h>

static long l_open(const char *p) {
        int fd = open(p, O_RDONLY);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long l_creat(const char *p) {
        int fd = open(p, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long l_stat(const char *p) {
        struct stat st;
        return stat(p, &st);
}
static long l_lstat(const char *p) {
        struct stat st;
        return lstat(p, &st);
}
static long l_mkdir(const char *p) {
        return mkdir(p, 0755);
}
static long l_rmdir(const char *p) {
        return rmdir(p);
}
static long l_unlink(const char *p) {
        return unlink(p);
}
static long l_mkfifo(const char *p) {
        return mkfifo(p, 0600);
}
static long l_symlink(const char *p) {
        return symlink("x", p);
}
static long l_link_to(const char *p) {
        return link("source", p);
}
static long l_link_from(const char *p) {
        return link(p, "linked");
}
static long l_rename_to(const char *p) {
        return rename("source", p);
}
static long l_rename_from(const char *p) {
        return rename(p, "renamed");
}
static long l_exchange(const char *p) {
        return do_renameat2(p, "source", RENAME_EXCHANGE);
}
static long l_chmod(const char *p) {
        return chmod(p, 0600);
}
static long l_chown(const char *p) {
        return chown(p, 0, 0);
}
static long l_lchown(const char *p) {
        return lchown(p, 0, 0);
}
static long l_truncate(const char *p) {
        return truncate(p, 0);
}
static long l_access(const char *p) {
        return access(p, F_OK);
}
static long l_readlink(const char *p) {
        char out[8];
        return readlink(p, out, sizeof(out));
}
static long l_utimes(const char *p) {
        return utimensat(AT_FDCWD, p, NULL, 0);
}
static long l_xattr(const char *p) {
        return setxattr(p, "user.a", "v", 1, 0);
}
static long l_statfs(const char *p) {
        struct statfs st;
        return statfs(p, &st);
}
static const struct {
        const char *name;
        long (*call)(const char *path);
} calls[] = {
        {"open", l_open},
        {"creat", l_creat},
        {"stat", l_stat},
        {"lstat", l_lstat},
        {"mkdir", l_mkdir},
        {"rmdir", l_rmdir},
        {"unlink", l_unlink},
        {"mkfifo", l_mkfifo},
        {"symlink", l_symlink},
        {"link to", l_link_to},
        {"link from", l_link_from},
        {"rename to", l_rename_to},
        {"rename from", l_rename_from},
        {"exchange", l_exchange},
        {"chmod", l_chmod},
        {"chown", l_chown},
        {"lchown", l_lchown},
        {"truncate", l_truncate},
        {"access", l_access},
        {"readlink", l_readlink},
        {"utimensat", l_utimes},
        {"setxattr", l_xattr},
        {"statfs", l_statfs},
};

/* The components of a path of exactly this length, each of one letter or, at its end, of what is left. */
static const char *long_path(size_t length, const char *last) {
        static char path[8192];
        size_t end = length - strlen(last), n = 0;
        while (n + 2 <= end) {
                path[n++] = '.';
                path[n++] = '/';
        }
        if (n < end)
                path[n++] = '/';
        (void)snprintf(path + n, sizeof(path) - n, "%s", last);
        return path;
}

static void names(void) {
        static const size_t lengths[] = {254, 255, 256, 300, 1000};
        char name[2000];
        for (size_t c = 0; c < LEN(calls); c++)
                for (size_t l = 0; l < LEN(lengths); l++)
                        for (int there = 0; there < 2; there++)
                                for (int below = 0; below < 2; below++) {
                                        if (there && lengths[l] > 255)
                                                continue;
                                        put("source", "", 0);
                                        MUST(mkdir("d", 0755));
                                        memset(name, 'n', sizeof(name));
                                        memcpy(name, "d/", 2);
                                        name[2 + lengths[l]] = '\0';
                                        if (there)
                                                put(name, "x", 1);
                                        if (below)
                                                (void)snprintf(name + 2 + lengths[l], 10, "/x");
                                        check(calls[c].call(name), "%s, name of %zu bytes%s%s", calls[c].name, lengths[l],
                                              there ? " that is there" : "", below ? " as a directory" : "");
                                        clear_all();
                                }
}

static void paths(void) {
        static const size_t lengths[] = {4000, 4094, 4095, 4096, 5000};
        for (size_t c = 0; c < LEN(calls); c++)
                for (size_t l = 0; l < LEN(lengths); l++)
                        for (int there = 0; there < 2; there++) {
                                put("source", "", 0);
                                if (there)
                                        put("there", "x", 1);
                                check(calls[c].call(long_path(lengths[l], there ? "there" : "missing")), "%s, path of %zu bytes, %s",
                                      calls[c].name, lengths[l], there ? "there" : "missing");
                                clear_all();
                        }
}

static void chains(void) {
        char name[32], to[32];
        put("link-0", "x", 1);
        for (int i = 1; i <= 45; i++) {
                (void)snprintf(name, sizeof(name), "link-%d", i);
                (void)snprintf(to, sizeof(to), "link-%d", i - 1);
                MUST(symlink(to, name));
        }
        put("source", "", 0);
        static const int depths[] = {1, 39, 40, 41, 45};
        for (size_t c = 0; c < LEN(calls); c++)
                for (size_t d = 0; d < LEN(depths); d++) {
                        (void)snprintf(name, sizeof(name), "link-%d", depths[d]);
                        if (strncmp(calls[c].name, "link", 4) == 0 || strncmp(calls[c].name, "rename", 6) == 0 ||
                            strncmp(calls[c].name, "unlink", 6) == 0 || strcmp(calls[c].name, "exchange") == 0)
                                continue; /* they act on the last link itself, and would take the chain apart */
                        check(calls[c].call(name), "%s through %d links", calls[c].name, depths[d]);
                }
        clear_all();
        MUST(symlink("b", "a"));
        MUST(symlink("a", "b"));
        put("source", "", 0);
        for (size_t c = 0; c < LEN(calls); c++)
                check(calls[c].call("a/x"), "%s below a loop", calls[c].name);
        clear_all();
}

static void deep(void) {
        int here = open(".", O_RDONLY), dir = dup(here);
        char name[256];
        memset(name, 'd', 255);
        name[255] = '\0';
        for (int i = 0; i < 100; i++) {
                MUST(mkdirat(dir, name, 0755));
                int next = openat(dir, name, O_RDONLY);
                MUST(next);
                (void)close(dir);
                dir = next;
        }
        check_fd(openat(dir, "bottom", O_CREAT | O_WRONLY, 0600), "create 25 KiB deep");
        check(unlinkat(dir, "bottom", 0), "unlink there");
        check(symlinkat("x", dir, "l"), "symlink there");
        check(unlinkat(dir, "l", 0), "unlink there");
        MUST(fchdir(dir));
        char cwd[8192];
        check(getcwd(cwd, sizeof(cwd)) ? 0 : -1, "getcwd there");
        for (int i = 0; i < 100; i++) {
                MUST(chdir(".."));
                MUST(rmdir(name));
        }
        check(fchdir(here), "back again");
        (void)close(dir);
        (void)close(here);
        clear_all();
}

static void run(void) {
        names();
        paths();
        chains();
        deep();
}
const struct family family_limits = {"limits", run, false};

/* Slow: as many names of one file as there may be. */
static void run_many(void) {
        char name[32];
        int n = 1;
        put("name-0", "x", 1);
        while (n <= 65001) {
                (void)snprintf(name, sizeof(name), "name-%d", n);
                if (link("name-0", name) < 0)
                        break;
                n++;
        }
        check(n > 65001 ? 0 : -1, "names of one file");
        value("names", "%d", n);
        value("it", "%s", look("name-0"));
        check(rename("name-1", "name-2"), "rename one over another");
        check(unlink("name-1"), "unlink one");
        check(link("name-0", "again"), "link again");
        check(link("name-0", "once more"), "link once more");
        value("it", "%s", look("name-0"));
}
const struct family family_many = {"many", run_many, true};
