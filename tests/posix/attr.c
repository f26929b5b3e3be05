/* attr.c: chmod, chown, utimensat in all their forms: who may, what is left of setuid and setgid, what times are set. And stat's relatives.
 */
#include "posix.h"

#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

static const enum kind kinds[] = {FILE_, DIR_, FIFO, SOCK, CHR, BLK};

static void chmods(void) {
        static const mode_t modes[] = {0, 0644, 0777, 01777, 02777, 04777, 07777, 02644, 010777, 0100644};
        for (size_t k = 0; k < LEN(kinds); k++)
                for (int actor = ROOT; actor < ACTORS; actor++)
                        for (size_t m = 0; m < LEN(modes); m++) {
                                make_as(kinds[k], "f", 0600, OWNER_UID, 2222);
                                become(actor);
                                check(chmod("f", modes[m]), "chmod %07o of %s by %s", modes[m], kind_names[kinds[k]], actors[actor].name);
                                be_root();
                                value("it", "%s", look("f"));
                                clear("f");
                        }
        for (int kind = LINK; kind < KINDS; kind++) {
                make(kind, "l");
                check(chmod("l", 0751), "chmod of %s", kind_names[kind]);
                check(do_fchmodat2(AT_FDCWD, "l", 0700, AT_SYMLINK_NOFOLLOW), "fchmodat2 not following %s", kind_names[kind]);
                check(fchmodat(AT_FDCWD, "l", 0711, 0), "fchmodat of %s", kind_names[kind]);
                value("it", "%s, %s, %s", look("l"), look("l.to"), look("l.dir"));
                clear_all();
        }
        make(FILE_, "f");
        int fd = open("f", O_PATH);
        check(do_fchmodat2(fd, "", 0611, AT_EMPTY_PATH), "fchmodat2 of an empty path");
        check(do_fchmodat2(fd, "", 0611, 0x8000), "fchmodat2 with an unknown flag");
        value("it", "%s", look("f"));
        (void)close(fd);
        clear_all();
}

static void chowns(void) {
        static const struct {
                uid_t uid;
                gid_t gid;
        } wanted[] = {{OWNER_UID, OWNER_GID}, {(uid_t)-1, (gid_t)-1},    {(uid_t)-1, OWNER_GID}, {(uid_t)-1, 2222},
                      {(uid_t)-1, 2003},      {OWNER_UID, (gid_t)-1},    {1003, (gid_t)-1},      {0, 0},
                      {1003, 2222},           {4294967294u, 4294967294u}};
        static const mode_t modes[] = {0644, 06755, 06745, 02644, 07777};
        for (size_t k = 0; k < 3; k++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (int actor = ROOT; actor < ACTORS; actor++)
                                for (size_t w = 0; w < LEN(wanted); w++) {
                                        uid_t uid = actor == SUPPLEMENTARY ? 1003 : OWNER_UID;
                                        make_as(kinds[k], "f", modes[m], uid, OWNER_GID);
                                        become(actor);
                                        check(chown("f", wanted[w].uid, wanted[w].gid), "chown %d:%d of %u's %s %05o by %s",
                                              (int)wanted[w].uid, (int)wanted[w].gid, uid, kind_names[kinds[k]], modes[m],
                                              actors[actor].name);
                                        be_root();
                                        value("it", "%s", look("f"));
                                        clear("f");
                                }
        for (int kind = FILE_; kind < KINDS; kind++) {
                make(kind, "l");
                check(lchown("l", 7, 8), "lchown of %s", kind_names[kind]);
                check(chown("l", 9, 10), "chown of %s", kind_names[kind]);
                check(fchownat(AT_FDCWD, "l", 11, (gid_t)-1, AT_SYMLINK_NOFOLLOW), "fchownat of %s", kind_names[kind]);
                value("it", "%s, %s, %s", look("l"), look("l.to"), look("l.dir"));
                clear_all();
        }
}

/* Times that were asked for are printed; "now" as such. */
static const char *shown(struct timespec t) {
        static char text[4][48];
        static unsigned turn;
        char *out = text[turn++ % 4];
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        if (t.tv_sec >= now.tv_sec - 600 && t.tv_sec <= now.tv_sec)
                return "now";
        (void)snprintf(out, sizeof(text[0]), "%lld.%09ld", (long long)t.tv_sec, t.tv_nsec);
        return out;
}

static void show_times(const char *path) {
        struct times t;
        if (times_get(path, &t))
                value("times", "%s %s", shown(t.atime), shown(t.mtime));
}

static const struct {
        const char *name;
        struct timespec t[2];
} settings[] = {
        {"both", {{111, 1}, {222, 2}}},
        {"now, now", {{0, UTIME_NOW}, {0, UTIME_NOW}}},
        {"omit, omit", {{0, UTIME_OMIT}, {0, UTIME_OMIT}}},
        {"omit, set", {{0, UTIME_OMIT}, {333, 3}}},
        {"set, omit", {{444, 4}, {0, UTIME_OMIT}}},
        {"now, omit", {{0, UTIME_NOW}, {0, UTIME_OMIT}}},
        {"omit, now", {{0, UTIME_OMIT}, {0, UTIME_NOW}}},
        {"now, set", {{0, UTIME_NOW}, {555, 5}}},
        {"set, now", {{666, 6}, {0, UTIME_NOW}}},
        {"bad nanoseconds", {{1, 1000000000}, {1, 1}}},
        {"negative nanoseconds", {{1, 1}, {1, -1}}},
        {"before 1970", {{-1, 999999999}, {-315619200, 5}}},
        {"1901", {{-2147483648, 0}, {-2147483647, 1}}},
        {"2038 and later", {{2147483648, 7}, {4417977600, 8}}},
        {"zero", {{0, 0}, {0, 0}}},
};

static void utimes(void) {
        static const mode_t modes[] = {0600, 0666, 0444};
        for (size_t k = 0; k < 3; k++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (int actor = ROOT; actor < ACTORS; actor += actor == OWNER ? STRANGER - OWNER : 1)
                                for (size_t s = 0; s < LEN(settings); s++) {
                                        make_as(kinds[k], "f", modes[m], OWNER_UID, OWNER_GID);
                                        times_old("f");
                                        become(actor);
                                        check(utimensat(AT_FDCWD, "f", settings[s].t, 0), "utimensat (%s) of %s %04o by %s",
                                              settings[s].name, kind_names[kinds[k]], modes[m], actors[actor].name);
                                        be_root();
                                        show_times("f");
                                        clear("f");
                                }
        for (int kind = FILE_; kind < KINDS; kind++)
                for (int flags = 0; flags <= AT_SYMLINK_NOFOLLOW; flags += AT_SYMLINK_NOFOLLOW) {
                        make(kind, "l");
                        check(utimensat(AT_FDCWD, "l", settings[0].t, flags), "utimensat of %s, flags %x", kind_names[kind], flags);
                        show_times("l");
                        clear_all();
                }
        make(FILE_, "f");
        int fd = open("f", O_RDONLY), path = open("f", O_PATH);
        check(futimens(fd, settings[0].t), "futimens");
        show_times("f");
        check(utimensat(fd, "", settings[3].t, AT_EMPTY_PATH), "utimensat of an empty path");
        check(utimensat(path, "", settings[4].t, AT_EMPTY_PATH), "utimensat of an empty path by O_PATH");
        check((int)syscall(SYS_utimensat, path, NULL, settings[4].t, 0), "utimensat of O_PATH itself");
        show_times("f");
        (void)close(fd);
        (void)close(path);
        clear_all();
}

static void stats(void) {
        struct statx x;
        make_as(FILE_, "f", 0640, 5, 6);
        make(LINK, "l");
        check(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x), "statx");
        value("statx", "%x %o %u %u %u %llu", x.stx_mask & STATX_BASIC_STATS, x.stx_mode, x.stx_uid, x.stx_gid, x.stx_nlink,
              (unsigned long long)x.stx_size);
        check(statx(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x), "statx of a link");
        value("statx", "%o", x.stx_mode & S_IFMT);
        check(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_SIZE, &x), "statx forced");
        check(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &x), "statx lazy");
        check(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_SIZE, &x), "statx of contradictions");
        check(statx(AT_FDCWD, "f", 0, STATX__RESERVED, &x), "statx of the reserved bit");
        check(statx(AT_FDCWD, "missing", 0, STATX_SIZE, &x), "statx of nothing");
        struct stat a, b;
        int fd = open("f", O_RDONLY);
        MUST(fstat(fd, &a));
        MUST(fstatat(AT_FDCWD, "f", &b, 0));
        value("same by descriptor and path", "%d %d", a.st_ino == b.st_ino, a.st_dev == b.st_dev);
        check(fstatat(fd, "", &b, AT_EMPTY_PATH), "fstatat of an empty path");
        check(fstatat(fd, "", &b, 0), "fstatat of an empty path without the flag");
        (void)close(fd);
        struct statfs s, t;
        check(statfs("f", &s), "statfs");
        check(statfs(".", &t), "statfs of a directory");
        value("statfs", "name %ld, same %d, sane %d", (long)s.f_namelen, s.f_blocks == t.f_blocks,
              s.f_bfree <= s.f_blocks && s.f_bavail <= s.f_bfree && s.f_ffree <= s.f_files && s.f_files > 0);
        value("pathconf", "%ld %ld", pathconf(".", _PC_NAME_MAX), pathconf(".", _PC_PATH_MAX));
        clear_all();
        /* Blocks: none for nothing, enough for something, less for holes. */
        static const size_t sizes[] = {0, 1, 4096, 100000, 1000000};
        static char data[1000000];
        for (size_t i = 0; i < LEN(sizes); i++) {
                memset(data, 'x', sizeof(data));
                put("f", data, sizes[i]);
                fd = open("f", O_RDONLY);
                MUST(fsync(fd));
                (void)close(fd);
                MUST(stat("f", &a));
                value("blocks", "%zu: %d %d", sizes[i], (size_t)a.st_blocks * 512 >= sizes[i],
                      (size_t)a.st_blocks * 512 <= sizes[i] + 8192);
        }
        MUST(truncate("f", 0));
        MUST(truncate("f", 1 << 20));
        MUST(stat("f", &a));
        value("blocks of a hole", "%lld", (long long)a.st_blocks);
        clear_all();
}

static void run(void) {
        chmods();
        chowns();
        utimes();
        stats();
}
const struct family family_attr = {"attr", run, false};
