/* suid.c: when setuid, setgid and file capabilities go: by write, truncation, chown and the rest, by whom. */
#include "posix.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static long by_write(int fd) {
        return write(fd, "x", 1);
}
static long by_write_nothing(int fd) {
        return write(fd, "", 0);
}
static long by_pwrite_end(int fd) {
        return pwrite(fd, "x", 1, 100);
}
static long by_writev(int fd) {
        struct iovec v = {(char[]){"x"}, 1};
        return writev(fd, &v, 1);
}
static long by_append(int fd) {
        MUST(fcntl(fd, F_SETFL, O_APPEND));
        return write(fd, "x", 1);
}
static long by_ftruncate(int fd) {
        return ftruncate(fd, 2);
}
static long by_ftruncate_same(int fd) {
        return ftruncate(fd, 5);
}
static long by_ftruncate_more(int fd) {
        return ftruncate(fd, 50);
}
static long by_truncate(int fd) {
        (void)fd;
        return truncate("f", 2);
}
static long by_open_trunc(int fd) {
        (void)fd;
        int other = open("f", O_WRONLY | O_TRUNC);
        if (other >= 0)
                (void)close(other);
        return other;
}
static long by_fallocate(int fd) {
        return fallocate(fd, 0, 0, 100);
}
static long by_fallocate_keep(int fd) {
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100);
}
static long by_punch(int fd) {
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2);
}
static long by_zero(int fd) {
        return fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 2);
}
static long by_copy(int fd) {
        int from = open("from", O_RDONLY);
        long r = copy_file_range(from, NULL, fd, NULL, 3, 0);
        int error = errno;
        (void)close(from);
        errno = error;
        return r;
}
static long by_sendfile(int fd) {
        int from = open("from", O_RDONLY);
        long r = sendfile(fd, from, NULL, 3);
        (void)close(from);
        return r;
}
static long by_mmap(int fd) {
        char *p = mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return -1;
        p[0] = 'M';
        long r = msync(p, 5, MS_SYNC);
        (void)munmap(p, 5);
        return r;
}
static long by_chmod(int fd) {
        return fchmod(fd, 07777);
}
static long by_chown_same(int fd) {
        return fchown(fd, (uid_t)-1, (gid_t)-1);
}
static long by_chgrp(int fd) {
        return fchown(fd, (uid_t)-1, OWNER_GID);
}
static long by_utimes(int fd) {
        return futimens(fd, NULL);
}
static long by_link(int fd) {
        (void)fd;
        return link("f", "g");
}
static long by_rename(int fd) {
        (void)fd;
        long r = rename("f", "g");
        (void)rename("g", "f");
        return r;
}
static long by_xattr(int fd) {
        return fsetxattr(fd, "user.x", "v", 1, 0);
}
static long by_fsync(int fd) {
        return fsync(fd);
}

#define ROW(name)                                                                                                                          \
        { #name, name }
static const struct {
        const char *name;
        long (*call)(int fd);
} calls[] = {
        ROW(by_write),     ROW(by_write_nothing),  ROW(by_pwrite_end),     ROW(by_writev),     ROW(by_append),
        ROW(by_ftruncate), ROW(by_ftruncate_same), ROW(by_ftruncate_more), ROW(by_truncate),   ROW(by_open_trunc),
        ROW(by_fallocate), ROW(by_fallocate_keep), ROW(by_punch),          ROW(by_zero),       ROW(by_copy),
        ROW(by_sendfile),  ROW(by_mmap),           ROW(by_chmod),          ROW(by_chown_same), ROW(by_chgrp),
        ROW(by_utimes),    ROW(by_link),           ROW(by_rename),         ROW(by_xattr),      ROW(by_fsync),
};

static void by_calls(void) {
        static const mode_t modes[] = {04777, 02777, 02767, 06777, 07777, 06666, 0777};
        for (size_t c = 0; c < LEN(calls); c++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (int actor = ROOT; actor < ACTORS; actor++) {
                                make_as(FILE_, "f", modes[m], OWNER_UID, OWNER_GID);
                                make_as(FILE_, "from", 0644, 0, 0);
                                become(actor);
                                int fd = open("f", O_RDWR);
                                check(calls[c].call(fd), "%s on %05o by %s", calls[c].name, modes[m], actors[actor].name);
                                value("at once", "%s", look_fd(fd));
                                (void)close(fd);
                                be_root();
                                value("closed", "%s", look("f"));
                                clear_all();
                        }
}

/* A capability in the form that the kernel accepts: version 2, CAP_NET_BIND_SERVICE permitted. */
static const uint8_t capability[20] = {0, 0, 0, 2, 0, 4};

static void capabilities(void) {
        for (size_t c = 0; c < LEN(calls); c++)
                for (int actor = ROOT; actor < ACTORS; actor += STRANGER) {
                        make_as(FILE_, "f", 0777, OWNER_UID, OWNER_GID);
                        make_as(FILE_, "from", 0644, 0, 0);
                        MUST(setxattr("f", "security.capability", capability, sizeof(capability), 0));
                        become(actor);
                        int fd = open("f", O_RDWR);
                        check(calls[c].call(fd), "%s with a capability by %s", calls[c].name, actors[actor].name);
                        value("capability", "%zd", fgetxattr(fd, "security.capability", NULL, 0));
                        (void)close(fd);
                        be_root();
                        value("capability, closed", "%zd", getxattr("f", "security.capability", NULL, 0));
                        clear_all();
                }
        make(FILE_, "f");
        MUST(setxattr("f", "security.capability", capability, sizeof(capability), 0));
        check(chown("f", 1, 1), "chown with a capability");
        value("capability", "%zd", getxattr("f", "security.capability", NULL, 0));
        clear_all();
}

static void run(void) {
        by_calls();
        capabilities();
}
const struct family family_suid = {"suid", run, false};
