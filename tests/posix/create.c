/* create.c: what a new inode is: mode under umask, owner, group in setgid directories, numbers of devices, links; for each way to make one.
 */
#include "posix.h"

#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static long by_open(const char *p, mode_t mode) {
        int fd = open(p, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long by_creat(const char *p, mode_t mode) {
        int fd = creat(p, mode);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long by_mkdir(const char *p, mode_t mode) {
        return mkdir(p, mode);
}
static long by_mkdirat(const char *p, mode_t mode) {
        return mkdirat(AT_FDCWD, p, mode);
}
static long by_mkfifo(const char *p, mode_t mode) {
        return mkfifo(p, mode);
}
static long by_mknod(const char *p, mode_t mode) {
        return mknod(p, mode, 0); /* no type: a regular file */
}
static long by_mknod_file(const char *p, mode_t mode) {
        return mknod(p, S_IFREG | mode, makedev(5, 5));
}
static long by_mknod_sock(const char *p, mode_t mode) {
        return mknod(p, S_IFSOCK | mode, 0);
}
static long by_mknod_char(const char *p, mode_t mode) {
        return mknod(p, S_IFCHR | mode, makedev(1, 3));
}
static long by_mknod_block(const char *p, mode_t mode) {
        return mknod(p, S_IFBLK | mode, makedev(4095, 1048575));
}
static long by_mknod_dir(const char *p, mode_t mode) {
        return mknod(p, S_IFDIR | mode, 0);
}
static long by_mknod_link(const char *p, mode_t mode) {
        return mknod(p, S_IFLNK | mode, 0);
}
static long by_symlink(const char *p, mode_t mode) {
        (void)mode;
        return symlink("to", p);
}
static long by_bind(const char *p, mode_t mode) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        (void)mode;
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", p);
        long r = bind(s, (struct sockaddr *)&a, sizeof(a));
        int error = errno;
        (void)close(s);
        errno = error;
        return r;
}

static const struct {
        const char *name;
        long (*call)(const char *path, mode_t mode);
} ways[] = {
        {"open", by_open},
        {"creat", by_creat},
        {"mkdir", by_mkdir},
        {"mkdirat", by_mkdirat},
        {"mkfifo", by_mkfifo},
        {"mknod", by_mknod},
        {"mknod file", by_mknod_file},
        {"mknod socket", by_mknod_sock},
        {"mknod char", by_mknod_char},
        {"mknod block", by_mknod_block},
        {"mknod directory", by_mknod_dir},
        {"mknod link", by_mknod_link},
        {"symlink", by_symlink},
        {"bind", by_bind},
};

static void modes_and_umasks(void) {
        static const mode_t modes[] = {0, 0644, 0755, 0777, 01777, 02777, 04777, 07777, 0111};
        static const mode_t umasks[] = {0, 022, 077, 0777, 0151};
        for (size_t w = 0; w < LEN(ways); w++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (size_t u = 0; u < LEN(umasks); u++) {
                                (void)umask(umasks[u]);
                                long r = ways[w].call("n", modes[m]);
                                int error = errno;
                                (void)umask(0);
                                errno = error;
                                check(r, "%s %05o, umask %03o", ways[w].name, modes[m], umasks[u]);
                                value("made", "%s", look("n"));
                                clear("n");
                        }
}

static void in_directories(void) {
        static const struct {
                mode_t mode;
                uid_t uid;
                gid_t gid;
        } dirs[] = {{0777, OWNER_UID, OWNER_GID},
                    {02777, OWNER_UID, OWNER_GID},
                    {02777, 0, 2222},
                    {03777, 0, 2004},
                    {02777, 0, 0},
                    {06777, 7, 7}};
        static const mode_t modes[] = {0755, 02755, 02745, 06777, 02644};
        for (size_t w = 0; w < LEN(ways); w++)
                for (size_t d = 0; d < LEN(dirs); d++)
                        for (size_t m = 0; m < LEN(modes); m++)
                                for (int actor = ROOT; actor < ACTORS; actor++) {
                                        make_as(DIR_, "d", dirs[d].mode, dirs[d].uid, dirs[d].gid);
                                        become(actor);
                                        check(ways[w].call("d/n", modes[m]), "%s %05o in %05o %u:%u by %s", ways[w].name, modes[m],
                                              dirs[d].mode, dirs[d].uid, dirs[d].gid, actors[actor].name);
                                        be_root();
                                        value("made", "%s in %s", look("d/n"), look("d"));
                                        clear("d");
                                }
}

static void on_what_is_there(void) {
        for (size_t w = 0; w < LEN(ways); w++)
                for (int kind = FILE_; kind < KINDS; kind++) {
                        if (kind == FIFO && ways[w].call == by_creat)
                                continue; /* would wait for a reader */
                        make(kind, "n");
                        check(ways[w].call("n", 0600), "%s where there is a %s", ways[w].name, kind_names[kind]);
                        value("there", "%s", look("n"));
                        clear_all();
                }
}

static void device_numbers(void) {
        static const unsigned numbers[][2] = {{0, 0}, {1, 0}, {255, 255}, {256, 256}, {4095, 0}, {0, 1048575}, {8, 17}};
        for (size_t i = 0; i < LEN(numbers); i++)
                for (int block = 0; block < 2; block++) {
                        check(mknod("n", (block ? S_IFBLK : S_IFCHR) | 0600, makedev(numbers[i][0], numbers[i][1])), "device %u,%u",
                              numbers[i][0], numbers[i][1]);
                        value("made", "%s", look("n"));
                        clear("n");
                }
        check_fd(mknod("n", S_IFCHR | 0666, makedev(1, 3)), "make a device to open");
        check_fd(open("n", O_RDWR), "open a device");
        become(OWNER);
        check(mknod("m", S_IFCHR | 0666, makedev(1, 3)), "device by a user");
        check(mknod("m", S_IFCHR | 0666, 0), "whiteout by a user");
        check(mknod("o", S_IFBLK | 0666, makedev(1, 3)), "block device by a user");
        check(mknod("p", S_IFSOCK | 0666, 0), "socket by a user");
        be_root();
        clear_all();
}

static void relative_to_descriptors(void) {
        make(FILE_, "f");
        make(DIR_, "d");
        int dir = open("d", O_RDONLY), file = open("f", O_RDONLY), path = open("d", O_PATH);
        check(mkdirat(dir, "a", 0755), "mkdirat");
        check(mkdirat(path, "b", 0755), "mkdirat by O_PATH");
        check(mkdirat(file, "c", 0755), "mkdirat of a file");
        check(mkdirat(-1, "c", 0755), "mkdirat of nothing");
        check(mknodat(dir, "c", S_IFIFO | 0600, 0), "mknodat");
        check(symlinkat("x", dir, "e"), "symlinkat");
        check(symlinkat("", dir, "g"), "symlinkat to nothing");
        check_fd(openat(file, "h", O_CREAT | O_WRONLY, 0600), "openat of a file");
        MUST(rename("d", "moved"));
        check_fd(openat(dir, "h", O_CREAT | O_WRONLY, 0600), "openat of a directory that moved");
        value("made", "%s", look("moved/h"));
        clear("moved");
        check_fd(openat(dir, "i", O_CREAT | O_WRONLY, 0600), "openat of a directory that is gone");
        check(mkdirat(dir, "i", 0600), "mkdirat in a directory that is gone");
        check(symlinkat("x", dir, "i"), "symlinkat in a directory that is gone");
        check(linkat(AT_FDCWD, "f", dir, "i", 0), "linkat into a directory that is gone");
        check(renameat(AT_FDCWD, "f", dir, "i"), "renameat into a directory that is gone");
        value("it", "%s", look_fd(dir));
        (void)close(dir);
        (void)close(file);
        (void)close(path);
        clear_all();
}

static void run(void) {
        modes_and_umasks();
        in_directories();
        on_what_is_there();
        device_numbers();
        relative_to_descriptors();
}
const struct family family_create = {"create", run, false};
