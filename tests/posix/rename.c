/* rename.c: rename(2), renameat2(2): every kind over every kind with every flag, within a directory and across; link counts; loops. */
#include "posix.h"

#include <sys/syscall.h>
#include <sys/xattr.h>

static const struct {
        const char *name;
        unsigned flags;
} flag_sets[] = {
        {"plain", 0},
        {"NOREPLACE", RENAME_NOREPLACE},
        {"EXCHANGE", RENAME_EXCHANGE},
        {"WHITEOUT", RENAME_WHITEOUT},
        {"NOREPLACE|EXCHANGE", RENAME_NOREPLACE | RENAME_EXCHANGE},
        {"WHITEOUT|NOREPLACE", RENAME_WHITEOUT | RENAME_NOREPLACE},
        {"WHITEOUT|EXCHANGE", RENAME_WHITEOUT | RENAME_EXCHANGE},
        {"8", 8},
};

static void every_kind(void) {
        for (size_t f = 0; f < LEN(flag_sets); f++)
                for (int across = 0; across < 2; across++)
                        for (int from = NOTHING; from < KINDS; from++)
                                for (int to = NOTHING; to < KINDS; to++) {
                                        if (f > 3 && (from > DIR_ || to > DIR_))
                                                continue;
                                        const char *new_ = across ? "b/n" : "a/n";
                                        MUST(mkdir("a", 0755));
                                        MUST(mkdir("b", 0755));
                                        make(from, "a/o");
                                        make(to, new_);
                                        check(do_renameat2("a/o", new_, flag_sets[f].flags), "%s: %s to %s%s", flag_sets[f].name,
                                              kind_names[from], kind_names[to], across ? " in another directory" : "");
                                        value("old, new, parents", "%s; %s; %s; %s", look("a/o"), look(new_), look("a"), look("b"));
                                        clear("a");
                                        clear("b");
                                }
}

static void loops_and_selves(void) {
        static const struct {
                const char *from, *to;
        } pairs[] = {
                {"a", "a"},     {"a", "a/x"},   {"a", "a/b/x"}, {"a", "a/b"},        {"a", "a/b/c"}, {"a/b", "a"},     {"a/b/c", "a"},
                {"a/b", "a/b"}, {"a/f", "a/f"}, {"a/f", "a/g"}, {"a/f", "h"},        {".", "x"},     {"..", "x"},      {"a", "."},
                {"a", ".."},    {"a/.", "x"},   {"a/..", "x"},  {"a", "a/."},        {"a", "a/.."},  {"a/", "x"},      {"a/", "x/"},
                {"a/f", "x/"},  {"a/f/", "x"},  {"a", "x/"},    {"a/b", "a/../a/b"}, {"a/f", "a/b"}, {"a/b/c", "a/b"}, {"e", "a/b/c"},
                {"a/b/c", "e"}, {"a", "e"},     {"e", "a"},     {"a/l", "a/f"},      {"a/f", "a/l"}, {"a/l", "a/l"},   {"a/b", "a/l"},
        };
        for (size_t f = 0; f < 4; f++)
                for (size_t i = 0; i < LEN(pairs); i++) {
                        MUST(mkdir("s", 0755));
                        MUST(chdir("s"));
                        MUST(mkdir("a", 0755));
                        MUST(mkdir("a/b", 0755));
                        MUST(mkdir("a/b/c", 0755));
                        MUST(mkdir("e", 0755));
                        make(FILE_, "a/f");
                        MUST(link("a/f", "a/g"));
                        MUST(link("a/f", "h"));
                        MUST(symlink("f", "a/l"));
                        check(do_renameat2(pairs[i].from, pairs[i].to, flag_sets[f].flags), "%s: %s to %s", flag_sets[f].name,
                              pairs[i].from, pairs[i].to);
                        value("leaves", "%s; %s; %s; %s", look(pairs[i].from), look(pairs[i].to), look("a"), look("."));
                        MUST(chdir(".."));
                        clear("s");
                }
}

/* ".." of a directory that moved, and of two that changed places; needs write permission on the directory itself. */
static void moved_directories(void) {
        struct stat one, two;
        for (unsigned flags = 0; flags <= RENAME_EXCHANGE; flags += RENAME_EXCHANGE) {
                MUST(mkdir("p", 0755));
                MUST(mkdir("q", 0755));
                MUST(mkdir("p/x", 0755));
                MUST(mkdir("q/y", 0755));
                check(do_renameat2("p/x", flags ? "q/y" : "q/z", flags), "move a directory, flags %u", flags);
                MUST(stat(flags ? "q/y/.." : "q/z/..", &one));
                MUST(stat("q", &two));
                value("..", "%d; %s; %s", one.st_ino == two.st_ino, look("p"), look("q"));
                clear_all();
        }
        static const mode_t modes[] = {0755, 0555, 0333, 0111, 0};
        for (size_t m = 0; m < LEN(modes); m++)
                for (int across = 0; across < 2; across++) {
                        make_as(DIR_, "p", 0777, 0, 0);
                        make_as(DIR_, "q", 0777, 0, 0);
                        make_as(DIR_, "p/x", modes[m], OWNER_UID, OWNER_GID);
                        become(OWNER);
                        check(rename("p/x", across ? "q/x" : "p/z"), "owner moves a directory %04o%s", modes[m],
                              across ? " to another" : "");
                        be_root();
                        clear_all();
                }
}

static void targets_in_use(void) {
        put("old", "old content", 11);
        put("new", "new", 3);
        int fd = open("old", O_RDWR);
        char got[20] = "";
        check(rename("new", "old"), "rename over an open file");
        value("open one", "%s, %zd", look_fd(fd), pread(fd, got, sizeof(got), 0));
        check(pwrite(fd, "OLD", 3, 0), "write to the replaced file");
        value("replaced, path", "%.11s, %s", got, content("old"));
        (void)close(fd);
        MUST(mkdir("d", 0755));
        MUST(mkdir("e", 0755));
        fd = open("e", O_RDONLY | O_DIRECTORY);
        check(rename("d", "e"), "rename over an open directory");
        value("open one", "%s", look_fd(fd));
        check_fd(openat(fd, "x", O_CREAT | O_WRONLY, 0600), "create in the replaced directory");
        (void)close(fd);
        clear_all();
        MUST(mkdir("d", 0755));
        int here = open(".", O_RDONLY);
        MUST(chdir("d"));
        check(rename("../d", "../e"), "rename the working directory");
        check_fd(open("in-it", O_CREAT | O_WRONLY, 0600), "create in it");
        check(rmdir("../e"), "rmdir of a working directory that is not empty");
        check(unlink("in-it"), "unlink in it");
        check(rmdir("../e"), "rmdir of the working directory");
        check_fd(open("in-it", O_CREAT | O_WRONLY, 0600), "create in the removed working directory");
        check(chdir(".."), "leave it by ..");
        MUST(fchdir(here));
        (void)close(here);
        clear_all();
}

static void follows_the_file(void) {
        make_as(FILE_, "f", 04711, 12, 34);
        MUST(setxattr("f", "user.x", "value", 5, 0));
        MUST(acl_set("f", ACL_ACCESS, "u::rwx u:5:r-- g::--x m::r-x o::--x"));
        check(rename("f", "g"), "rename a file with everything");
        char got[10];
        value("it", "%s; %zd; %s; %s", look("g"), getxattr("g", "user.x", got, sizeof(got)), acl_text("g", ACL_ACCESS), content("g"));
        MUST(mkdir("d", 0755));
        MUST(acl_set("d", ACL_DEFAULT, "u::rwx g::--- o::---"));
        check(rename("g", "d/g"), "into a directory with a default ACL");
        value("it", "%s; %s", look("d/g"), acl_text("d/g", ACL_ACCESS));
        clear_all();
}

static void run(void) {
        every_kind();
        loops_and_selves();
        moved_directories();
        targets_in_use();
        follows_the_file();
}
const struct family family_rename = {"rename", run, false};
