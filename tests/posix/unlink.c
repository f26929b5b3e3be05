/* unlink.c: unlink(2), rmdir(2), unlinkat(2); what is gone and still open. */
#include "posix.h"

static void every_kind(void) {
        static const struct {
                const char *name;
                int flags;
        } calls[] = {{"unlink", 0}, {"rmdir", AT_REMOVEDIR}, {"unlinkat with an unknown flag", 1 << 20}};
        for (size_t c = 0; c < LEN(calls); c++)
                for (int kind = NOTHING; kind < KINDS; kind++) {
                        MUST(mkdir("d", 0755));
                        make(kind, "d/n");
                        check(unlinkat(AT_FDCWD, "d/n", calls[c].flags), "%s of %s", calls[c].name, kind_names[kind]);
                        value("leaves", "%s; %s; %s", look("d/n"), look("d"), kind == LINK ? look("d/n.to") : "");
                        clear_all();
                }
        static const char *const ends[] = {".", "..", "d/.", "d/..", "d/x/..", "/", "d/", "f/", "d//", "missing/."};
        for (size_t i = 0; i < LEN(ends); i++) {
                MUST(mkdir("s", 0755));
                MUST(chdir("s"));
                MUST(mkdir("d", 0755));
                MUST(mkdir("d/x", 0755));
                make(FILE_, "f");
                check(rmdir(ends[i]), "rmdir of %s", ends[i]);
                check(unlink(ends[i]), "unlink of %s", ends[i]);
                MUST(chdir(".."));
                clear_all();
        }
}

static void still_open(void) {
        char got[16];
        make_as(FILE_, "f", 04755, 3, 4);
        MUST(link("f", "g"));
        int fd = open("f", O_RDWR);
        check(unlink("f"), "unlink one of two names");
        value("it", "%s", look_fd(fd));
        check(unlink("g"), "unlink the last name");
        value("it", "%s", look_fd(fd));
        value("read", "%zd", pread(fd, got, sizeof(got), 0));
        check(pwrite(fd, "more", 4, 100), "write to it");
        check(ftruncate(fd, 50), "ftruncate of it");
        check(fchmod(fd, 0600), "fchmod of it");
        check(fchown(fd, 9, 9), "fchown of it");
        check(futimens(fd, NULL), "futimens of it");
        check(fsync(fd), "fsync of it");
        check(fallocate(fd, 0, 0, 200), "fallocate of it");
        value("it", "%s", look_fd(fd));
        int copy = dup(fd);
        check(close(fd), "close one");
        value("it", "%s", look_fd(copy));
        char proc[64];
        (void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", copy);
        check_fd(open(proc, O_RDONLY), "open it again by /proc");
        check(truncate(proc, 7), "truncate it by /proc");
        check(chmod(proc, 0640), "chmod it by /proc");
        value("it", "%s", look_fd(copy));
        (void)close(copy);
        clear_all();
}

static void directories_gone(void) {
        MUST(mkdir("d", 0755));
        int fd = open("d", O_RDONLY | O_DIRECTORY);
        check(rmdir("d"), "rmdir of an open directory");
        value("it", "%s", look_fd(fd));
        check(fchmod(fd, 0700), "fchmod of it");
        check(futimens(fd, NULL), "futimens of it");
        check(fsync(fd), "fsync of it");
        check_fd(openat(fd, ".", O_RDONLY), "open its .");
        check_fd(openat(fd, "..", O_RDONLY), "open its ..");
        check_fd(openat(fd, "x", O_RDONLY), "open what is not in it");
        check(mkdirat(fd, "x", 0700), "mkdir in it");
        check(unlinkat(fd, "x", 0), "unlink in it");
        DIR *dir = fdopendir(fd);
        int n = 0;
        while (dir && readdir(dir))
                n++;
        value("entries", "%d", n);
        (void)closedir(dir);
        clear_all();
}

/* Nobody has it open, but there is a way to it. */
static void known_by_path_alone(void) {
        char proc[64], got[16];
        for (int kind = FILE_; kind <= BLK; kind++) {
                if (kind == FULL)
                        continue;
                make_as(kind, "n", 0755, 3, 4);
                int fd = open("n", O_PATH);
                check(kind == DIR_ ? rmdir("n") : unlink("n"), "remove a %s with an O_PATH descriptor", kind_names[kind]);
                value("it", "%s", look_fd(fd));
                (void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
                check(chmod(proc, 0711), "chmod of it");
                check(chown(proc, 5, 6), "chown of it");
                check(utimensat(AT_FDCWD, proc, NULL, 0), "utimensat of it");
                value("it", "%s", look_fd(fd));
                if (kind == FILE_ || kind == EMPTY) {
                        int again = open(proc, O_RDWR);
                        check(again, "open it");
                        value("read", "%zd", read(again, got, sizeof(got)));
                        check(write(again, "more", 4), "write to it");
                        (void)close(again);
                        again = open(proc, O_RDONLY);
                        value("read", "%zd", read(again, got, sizeof(got)));
                        check(truncate(proc, 2), "truncate it");
                        (void)close(again);
                }
                value("it", "%s", look_fd(fd));
                (void)close(fd);
        }
        MUST(mkdir("d", 0755));
        int here = open(".", O_RDONLY);
        MUST(chdir("d"));
        check(rmdir("../d"), "remove the working directory");
        value("it", "%s", look("."));
        check(chmod(".", 0700), "chmod of it");
        DIR *dir = opendir(".");
        int n = 0;
        while (dir && readdir(dir))
                n++;
        value("entries", "%d", n);
        if (dir)
                (void)closedir(dir);
        check(access("x", F_OK), "look for a name in it");
        value("it", "%s", look("."));
        MUST(fchdir(here));
        (void)close(here);
        put("old", "old", 3);
        put("new", "new", 3);
        int fd = open("old", O_PATH);
        check(rename("new", "old"), "replace a file with an O_PATH descriptor");
        value("it", "%s", look_fd(fd));
        (void)close(fd);
        clear_all();
}

static void run(void) {
        every_kind();
        still_open();
        directories_gone();
        known_by_path_alone();
        /* A name that is free again is another file. */
        make(FILE_, "f");
        int fd = open("f", O_RDONLY);
        MUST(unlink("f"));
        make(EMPTY, "f");
        struct stat a, b;
        MUST(fstat(fd, &a));
        MUST(stat("f", &b));
        value("same inode", "%d; %s; %s", a.st_ino == b.st_ino, look_fd(fd), look("f"));
        (void)close(fd);
}
const struct family family_unlink = {"unlink", run, false};
