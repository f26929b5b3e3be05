/* open.c: open(2): every kind of object with every useful set of flags; permission bits; O_TMPFILE; what descriptors may do. */
#include "posix.h"

static const struct {
        const char *name;
        int flags;
} sets[] = {
        {"0", 0},
        {"CREAT", O_CREAT},
        {"CREAT|EXCL", O_CREAT | O_EXCL},
        {"EXCL", O_EXCL},
        {"TRUNC", O_TRUNC},
        {"CREAT|TRUNC", O_CREAT | O_TRUNC},
        {"CREAT|EXCL|TRUNC", O_CREAT | O_EXCL | O_TRUNC},
        {"DIRECTORY", O_DIRECTORY},
        {"CREAT|DIRECTORY", O_CREAT | O_DIRECTORY},
        {"NOFOLLOW", O_NOFOLLOW},
        {"CREAT|NOFOLLOW", O_CREAT | O_NOFOLLOW},
        {"CREAT|EXCL|NOFOLLOW", O_CREAT | O_EXCL | O_NOFOLLOW},
        {"PATH", O_PATH},
        {"PATH|NOFOLLOW", O_PATH | O_NOFOLLOW},
        {"PATH|DIRECTORY", O_PATH | O_DIRECTORY},
        {"APPEND", O_APPEND},
        {"APPEND|TRUNC", O_APPEND | O_TRUNC},
        {"CREAT|APPEND", O_CREAT | O_APPEND},
        {"SYNC", O_SYNC},
        {"DSYNC|CREAT", O_DSYNC | O_CREAT},
        {"DIRECT", O_DIRECT},
        {"DIRECT|CREAT", O_DIRECT | O_CREAT},
        {"NOATIME", O_NOATIME},
        {"TMPFILE", O_TMPFILE},
        {"TMPFILE|EXCL", O_TMPFILE | O_EXCL},
        {"TMPFILE|CREAT", O_TMPFILE | O_CREAT},
};
static const struct {
        const char *name;
        int flags;
} modes[] = {{"RDONLY", O_RDONLY}, {"WRONLY", O_WRONLY}, {"RDWR", O_RDWR}, {"3", 3}};

static void flags_and_kinds(void) {
        for (int kind = NOTHING; kind < KINDS; kind++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (size_t s = 0; s < LEN(sets); s++) {
                                char name[200];
                                (void)snprintf(name, sizeof(name), "%s of %s with %s", modes[m].name, kind_names[kind], sets[s].name);
                                make(kind, "o");
                                check_fd(open("o", modes[m].flags | sets[s].flags | O_NONBLOCK, 0640), "%s", name);
                                value(name, "%s, %s", look("o"), kind == LINK ? look("o.to") : "");
                                clear_all();
                        }
}

static const struct {
        const char *name;
        int flags;
} wishes[] = {{"R", O_RDONLY},
              {"W", O_WRONLY},
              {"RW", O_RDWR},
              {"R|TRUNC", O_RDONLY | O_TRUNC},
              {"W|APPEND", O_WRONLY | O_APPEND},
              {"W|CREAT", O_WRONLY | O_CREAT},
              {"W|CREAT|EXCL", O_WRONLY | O_CREAT | O_EXCL},
              {"R|NOATIME", O_RDONLY | O_NOATIME},
              {"PATH", O_PATH}};

static void permission_bits(void) {
        static const enum kind kinds[] = {FILE_, DIR_, FIFO};
        static const int shifts[] = {6, 3, 0};
        for (size_t k = 0; k < LEN(kinds); k++)
                for (int actor = OWNER; actor < ACTORS; actor++)
                        for (unsigned bits = 0; bits < 8; bits++)
                                for (size_t s = 0; s < LEN(shifts); s++) {
                                        mode_t mode = bits << shifts[s];
                                        make_as(kinds[k], "o", mode, OWNER_UID, OWNER_GID);
                                        become(actor);
                                        for (size_t w = 0; w < LEN(wishes); w++)
                                                check_fd(open("o", wishes[w].flags | O_NONBLOCK, 0600), "%s of %s %04o by %s",
                                                         wishes[w].name, kind_names[kinds[k]], mode, actors[actor].name);
                                        be_root();
                                        clear("o");
                                }
}

/* An object that is created may be used as the flags say, whatever its mode; the next open may not. */
static void created_without_rights(void) {
        for (unsigned mode = 0; mode <= 0777; mode += 0111)
                for (int actor = ROOT; actor < ACTORS; actor += OWNER) {
                        become(actor);
                        int fd = open("new", O_RDWR | O_CREAT | O_EXCL, mode);
                        check(fd, "create with mode %04o by %s", mode, actors[actor].name);
                        check(write(fd, "x", 1), "write to it, %04o, %s", mode, actors[actor].name);
                        check_fd(open("new", O_RDWR), "open it again, %04o, %s", mode, actors[actor].name);
                        (void)close(fd);
                        be_root();
                        clear("new");
                        if (actor == OWNER)
                                break;
                }
}

static void what_a_descriptor_may(void) {
        char byte[4];
        for (size_t m = 0; m < LEN(modes); m++) {
                for (int path = 0; path < 2; path++) {
                        int extra = path ? O_PATH : 0;
                        const char *how = path ? " and PATH" : "";
                        put("f", "hello", 5);
                        int fd = open("f", modes[m].flags | extra);
                        check(read(fd, byte, 2), "read through %s%s", modes[m].name, how);
                        check(pread(fd, byte, 2, 1), "pread through %s%s", modes[m].name, how);
                        check(write(fd, "x", 1), "write through %s%s", modes[m].name, how);
                        check(ftruncate(fd, 3), "ftruncate through %s%s", modes[m].name, how);
                        check(fallocate(fd, 0, 0, 10), "fallocate through %s%s", modes[m].name, how);
                        check(fchmod(fd, 0600), "fchmod through %s%s", modes[m].name, how);
                        check(fchown(fd, 0, 0), "fchown through %s%s", modes[m].name, how);
                        check(futimens(fd, NULL), "futimens through %s%s", modes[m].name, how);
                        check(fsync(fd), "fsync through %s%s", modes[m].name, how);
                        check(fdatasync(fd), "fdatasync through %s%s", modes[m].name, how);
                        check(lseek(fd, 1, SEEK_SET), "lseek through %s%s", modes[m].name, how);
                        check(fchdir(fd), "fchdir through %s%s", modes[m].name, how);
                        value("state after all", "%s, %s", look("f"), look_fd(fd));
                        (void)close(fd);
                        clear("f");
                }
        }
        MUST(mkdir("d", 0755));
        int fd = open("d", O_RDONLY);
        check(read(fd, byte, 1), "read of a directory");
        check(pread(fd, byte, 1, 0), "pread of a directory");
        check(write(fd, byte, 1), "write to a directory");
        check(ftruncate(fd, 0), "ftruncate of a directory");
        check(fallocate(fd, 0, 0, 10), "fallocate of a directory");
        check(fsync(fd), "fsync of a directory");
        check(fdatasync(fd), "fdatasync of a directory");
        check(fchmod(fd, 0700), "fchmod of a directory");
        (void)close(fd);
        clear("d");
}

static void tmpfile_ways(void) {
        static const mode_t umasks[] = {0, 022, 077, 0777};
        for (size_t u = 0; u < LEN(umasks); u++) {
                (void)umask(umasks[u]);
                int fd = open(".", O_TMPFILE | O_RDWR, 06775);
                (void)umask(0);
                value("O_TMPFILE with a umask", "%03o: %s", umasks[u], look_fd(fd));
                (void)close(fd);
        }
        for (int actor = ROOT; actor < ACTORS; actor++) {
                static const mode_t of_dir[] = {0755, 0775, 0777, 02775, 01777, 0333, 0222, 0111};
                for (size_t d = 0; d < LEN(of_dir); d++) {
                        make_as(DIR_, "d", of_dir[d], OWNER_UID, OWNER_GID);
                        become(actor);
                        int fd = open("d", O_TMPFILE | O_WRONLY, 02644);
                        check(fd, "O_TMPFILE in a directory %05o by %s", of_dir[d], actors[actor].name);
                        value("it", "%s", fd < 0 ? "" : look_fd(fd));
                        (void)close(fd);
                        be_root();
                        clear("d");
                }
        }
}

static void run(void) {
        flags_and_kinds();
        permission_bits();
        created_without_rights();
        what_a_descriptor_may();
        tmpfile_ways();
        check_fd(creat("c", 0604), "creat");
        value("created", "%s", look("c"));
        check_fd(creat("c", 0777), "creat of what is there");
        value("created", "%s", look("c"));
}
const struct family family_open = {"open", run, false};
