/* link.c: link(2), linkat(2), O_TMPFILE with a name given later, symlink(2), readlink(2). */
#include "posix.h"

#include <sys/syscall.h>

static void every_kind(void) {
        for (int kind = NOTHING; kind < KINDS; kind++)
                for (int target = NOTHING; target < KINDS; target++) {
                        make(kind, "from");
                        make(target, "to");
                        check(link("from", "to"), "link %s to %s", kind_names[kind], kind_names[target]);
                        value("from, to", "%s, %s", look("from"), look("to"));
                        clear_all();
                }
        for (int kind = NOTHING; kind < KINDS; kind++) {
                make(kind, "from");
                check(linkat(AT_FDCWD, "from", AT_FDCWD, "to", AT_SYMLINK_FOLLOW), "link what is behind %s", kind_names[kind]);
                value("from, to", "%s, %s", look("from"), look("to"));
                clear_all();
        }
}

static void by_descriptor(void) {
        static const struct {
                const char *name;
                int flags;
        } opens[] = {{"RDONLY", O_RDONLY}, {"RDWR", O_RDWR}, {"PATH", O_PATH}};
        for (int actor = ROOT; actor <= OWNER; actor++)
                for (size_t o = 0; o < LEN(opens); o++) {
                        char proc[64];
                        make_as(FILE_, "f", 0666, OWNER_UID, OWNER_GID);
                        int fd = open("f", opens[o].flags);
                        (void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
                        become(actor);
                        check(linkat(fd, "", AT_FDCWD, "g", AT_EMPTY_PATH), "linkat AT_EMPTY_PATH of %s by %s", opens[o].name,
                              actors[actor].name);
                        check(linkat(fd, "", AT_FDCWD, "h", 0), "linkat of an empty path of %s by %s", opens[o].name, actors[actor].name);
                        be_root();
                        check(linkat(AT_FDCWD, proc, AT_FDCWD, "i", AT_SYMLINK_FOLLOW), "linkat by /proc of %s", opens[o].name);
                        value("names", "%s, %s, %s, %s", look("f"), look("g"), look("h"), look("i"));
                        (void)unlink("f");
                        (void)unlink("g");
                        (void)unlink("h");
                        (void)unlink("i");
                        value("without a name", "%s", look_fd(fd));
                        check(linkat(fd, "", AT_FDCWD, "j", AT_EMPTY_PATH), "linkat of what was unlinked, %s", opens[o].name);
                        (void)close(fd);
                        clear_all();
                }
        check(linkat(AT_FDCWD, "f", AT_FDCWD, "g", 0x8000), "linkat with an unknown flag");
        make(DIR_, "d");
        int fd = open("d", O_RDONLY);
        check(linkat(fd, "", AT_FDCWD, "g", AT_EMPTY_PATH), "linkat AT_EMPTY_PATH of a directory");
        (void)close(fd);
        clear_all();
}

static void tmpfiles(void) {
        static const int exclusive[] = {0, O_EXCL};
        for (size_t e = 0; e < LEN(exclusive); e++)
                for (int written = 0; written < 2; written++) {
                        int fd = open(".", O_TMPFILE | O_RDWR | exclusive[e], 02640);
                        MUST(fd);
                        if (written)
                                check(write(fd, "content", 7), "write to O_TMPFILE");
                        check(fchmod(fd, 04755), "fchmod of O_TMPFILE");
                        check(fchown(fd, 5, 6), "fchown of O_TMPFILE");
                        check(linkat(fd, "", AT_FDCWD, "named", AT_EMPTY_PATH), "name for O_TMPFILE%s", exclusive[e] ? "|O_EXCL" : "");
                        value("named", "%s, %s, %s", look("named"), look_fd(fd), content("named"));
                        check(linkat(fd, "", AT_FDCWD, "named", AT_EMPTY_PATH), "the same name again");
                        check(linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH), "a second name");
                        check(pwrite(fd, "CON", 3, 0), "write when it has a name");
                        value("named", "%s, %s", look("again"), content("named"));
                        (void)unlink("named");
                        (void)unlink("again");
                        check(linkat(fd, "", AT_FDCWD, "third", AT_EMPTY_PATH), "a name after the last is gone");
                        value("it", "%s, %s", look_fd(fd), look("third"));
                        (void)close(fd);
                        clear_all();
                }
        make(FILE_, "there");
        int fd = open(".", O_TMPFILE | O_RDWR, 0600);
        check(linkat(fd, "", AT_FDCWD, "there", AT_EMPTY_PATH), "name for O_TMPFILE that is taken");
        check(linkat(fd, "", AT_FDCWD, "missing/x", AT_EMPTY_PATH), "name for O_TMPFILE in no directory");
        check(linkat(fd, "", AT_FDCWD, "free", AT_EMPTY_PATH), "name for O_TMPFILE at last");
        (void)close(fd);
        clear_all();
}

static void across_and_rights(void) {
        char shm[64];
        (void)snprintf(shm, sizeof(shm), "/dev/shm/posix-suite-%d", (int)getpid());
        make(FILE_, "f");
        put(shm, "x", 1);
        check(link("f", "/dev/shm/posix-suite-link"), "link to another filesystem");
        check(link(shm, "g"), "link from another filesystem");
        check(rename("f", "/dev/shm/posix-suite-link"), "rename to another filesystem");
        check(rename(shm, "g"), "rename from another filesystem");
        (void)unlink(shm);
        make_as(FILE_, "roots", 0644, 0, 0);
        make_as(FILE_, "roots-open", 0666, 0, 0);
        make_as(FILE_, "roots-suid", 04777, 0, 0);
        become(STRANGER);
        check(link("roots", "a"), "link a file that one may not write"); /* fs.protected_hardlinks decides, on both alike */
        check(link("roots-open", "b"), "link a file that one may write");
        check(link("roots-suid", "c"), "link a setuid file");
        be_root();
        clear_all();
}

static void symlink_targets(void) {
        static const size_t lengths[] = {1, 59, 60, 61, 255, 256, 1000, 4000};
        char target[5000], got[5000];
        for (size_t i = 0; i < LEN(lengths); i++) {
                memset(target, 'x', lengths[i]);
                target[lengths[i]] = '\0';
                check(symlink(target, "l"), "symlink of %zu bytes", lengths[i]);
                value("it", "%s", look("l"));
                ssize_t n = readlink("l", got, sizeof(got));
                value("readlink", "%zd %d", n, n > 0 ? memcmp(got, target, (size_t)n) : -1);
                value("readlink, too little room", "%zd", readlink("l", got, 10));
                check(readlink("l", got, 0), "readlink, no room");
                clear("l");
        }
        memset(target, 'x', 4096);
        target[4096] = '\0';
        check(symlink(target, "l"), "symlink of 4096 bytes");
        check(symlink("", "l"), "symlink to nothing");
        check(symlink("\xff\n\x01", "l"), "symlink of odd bytes");
        value("it", "%zd", readlink("l", got, sizeof(got)));
        clear("l");
        make(LINK, "l");
        int fd = open("l", O_PATH | O_NOFOLLOW);
        value("readlinkat of an empty path", "%zd", readlinkat(fd, "", got, sizeof(got)));
        value("fstat", "%s", look_fd(fd));
        check(fchmod(fd, 0600), "fchmod of a link by O_PATH");
        check(do_fchmodat2(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW), "fchmodat2 of a link itself");
        check(fchownat(fd, "", 1, 2, AT_EMPTY_PATH), "fchownat of a link by O_PATH");
        value("it", "%s", look("l"));
        (void)close(fd);
        clear_all();
        for (int kind = FILE_; kind < KINDS; kind++) {
                make(kind, "n");
                value("readlink of", "%s: %s", kind_names[kind], readlink("n", got, sizeof(got)) < 0 ? error_name(errno) : "ok");
                clear_all();
        }
}

static void run(void) {
        every_kind();
        by_descriptor();
        tmpfiles();
        across_and_rights();
        symlink_targets();
}
const struct family family_link = {"link", run, false};
