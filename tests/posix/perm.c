/* perm.c: what the permission bits of a directory and of a file allow to whom, for every call that asks; access(2); sticky directories. */
#include "posix.h"

#include <sys/syscall.h>
#include <sys/xattr.h>

/* In each call "d" is the directory with the bits under test, "other" one where everything is allowed. */
static long d_create(void) {
        int fd = open("d/new", O_WRONLY | O_CREAT, 0644);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long d_mkdir(void) {
        return mkdir("d/new", 0755);
}
static long d_mkfifo(void) {
        return mkfifo("d/new", 0755);
}
static long d_symlink(void) {
        return symlink("x", "d/new");
}
static long d_link_into(void) {
        return link("other/mine", "d/new");
}
static long d_link_out(void) {
        return link("d/mine", "other/new");
}
static long d_unlink(void) {
        return unlink("d/mine");
}
static long d_rmdir(void) {
        return rmdir("d/empty");
}
static long d_rename_within(void) {
        return rename("d/mine", "d/new");
}
static long d_rename_into(void) {
        return rename("other/mine", "d/new");
}
static long d_rename_over(void) {
        return rename("other/mine", "d/mine");
}
static long d_rename_out(void) {
        return rename("d/mine", "other/new");
}
static long d_rename_dir_out(void) {
        return rename("d/empty", "other/new");
}
static long d_rename_dir_into(void) {
        return rename("other/empty", "d/new");
}
static long d_exchange(void) {
        return do_renameat2("d/mine", "other/mine", RENAME_EXCHANGE);
}
static long d_stat(void) {
        struct stat st;
        return stat("d/mine", &st);
}
static long d_stat_missing(void) {
        struct stat st;
        return stat("d/missing", &st);
}
static long d_open(void) {
        int fd = open("d/mine", O_RDONLY);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long d_list(void) {
        int fd = open("d", O_RDONLY | O_DIRECTORY);
        if (fd >= 0)
                (void)close(fd);
        return fd;
}
static long d_chdir(void) {
        int here = open(".", O_RDONLY);
        long r = chdir("d");
        int error = errno;
        MUST(fchdir(here));
        (void)close(here);
        errno = error;
        return r;
}
static long d_chmod(void) {
        return chmod("d/mine", 0600);
}
static long d_utimes(void) {
        return utimensat(AT_FDCWD, "d/mine", NULL, 0);
}
static long d_truncate(void) {
        return truncate("d/mine", 1);
}
static long d_readlink(void) {
        char out[10];
        return readlink("d/link", out, sizeof(out));
}
static long d_access(void) {
        return access("d/mine", F_OK);
}
static long d_getxattr(void) {
        return getxattr("d/mine", "user.x", NULL, 0);
}

static const struct {
        const char *name;
        long (*call)(void);
} calls[] = {
        {"create", d_create},
        {"mkdir", d_mkdir},
        {"mkfifo", d_mkfifo},
        {"symlink", d_symlink},
        {"link into", d_link_into},
        {"link out of", d_link_out},
        {"unlink", d_unlink},
        {"rmdir", d_rmdir},
        {"rename within", d_rename_within},
        {"rename into", d_rename_into},
        {"rename over", d_rename_over},
        {"rename out of", d_rename_out},
        {"rename a directory out of", d_rename_dir_out},
        {"rename a directory into", d_rename_dir_into},
        {"exchange", d_exchange},
        {"stat", d_stat},
        {"stat what is missing", d_stat_missing},
        {"open", d_open},
        {"list", d_list},
        {"chdir", d_chdir},
        {"chmod", d_chmod},
        {"utimensat", d_utimes},
        {"truncate", d_truncate},
        {"readlink", d_readlink},
        {"access", d_access},
        {"getxattr", d_getxattr},
};

/* What is in the directories belongs to the actor, and everybody may use it. */
static void scene(uid_t uid, gid_t gid) {
        make_as(DIR_, "other", 0777, 0, 0);
        make_as(FILE_, "other/mine", 0666, uid, gid);
        make_as(DIR_, "other/empty", 0777, uid, gid);
        make(DIR_, "d");
        make_as(FILE_, "d/mine", 0666, uid, gid);
        make_as(DIR_, "d/empty", 0777, uid, gid);
        MUST(symlink("x", "d/link"));
}

static void directory_bits(int actor, int shift) {
        for (unsigned bits = 0; bits < 8; bits++)
                for (size_t c = 0; c < LEN(calls); c++) {
                        scene(actors[actor].uid, actors[actor].gid);
                        MUST(chown("d", OWNER_UID, OWNER_GID));
                        MUST(chmod("d", bits << shift));
                        become(actor);
                        check(calls[c].call(), "%s a directory %04o by %s", calls[c].name, bits << shift, actors[actor].name);
                        be_root();
                        clear_all();
                }
}

static void access_calls(void) {
        static const int wanted[] = {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK, R_OK | X_OK, R_OK | W_OK | X_OK, 8};
        static const mode_t modes[] = {0, 0777, 0400, 0200, 0100, 0040, 0020, 0010, 0004, 0002, 0001, 0644, 0755, 0707, 0070};
        static const enum kind kinds[] = {FILE_, DIR_, FIFO};
        for (size_t k = 0; k < LEN(kinds); k++)
                for (size_t m = 0; m < LEN(modes); m++) {
                        make_as(kinds[k], "a", modes[m], OWNER_UID, OWNER_GID);
                        for (int actor = ROOT; actor < ACTORS; actor++) {
                                become(actor);
                                for (size_t w = 0; w < LEN(wanted); w++)
                                        check(access("a", wanted[w]), "access %d to %s %04o by %s", wanted[w], kind_names[kinds[k]],
                                              modes[m], actors[actor].name);
                                be_root();
                        }
                        clear("a");
                }
        make(FILE_, "a");
        MUST(chmod("a", 0600));
        MUST(setresuid(OWNER_UID, 0, 0));
        check(access("a", R_OK), "access with another real user");
        check(faccessat(AT_FDCWD, "a", R_OK, AT_EACCESS), "faccessat with AT_EACCESS");
        be_root();
        MUST(symlink("missing", "l"));
        check((int)syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, AT_SYMLINK_NOFOLLOW), "faccessat2 of a link itself");
        check((int)syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, 0), "faccessat2 of what it points to");
        clear_all();
}

static long s_unlink(void) {
        return unlink("d/f");
}
static long s_rmdir(void) {
        return rmdir("d/dir");
}
static long s_rename(void) {
        return rename("d/f", "d/g");
}
static long s_rename_out(void) {
        return rename("d/f", "other/new");
}
static long s_rename_dir_out(void) {
        return rename("d/dir", "other/new");
}
static long s_rename_over(void) {
        return rename("other/mine", "d/f");
}
static long s_rename_dir_over(void) {
        return rename("other/empty", "d/dir");
}
static long s_exchange(void) {
        return do_renameat2("other/mine", "d/f", RENAME_EXCHANGE);
}
static long s_link(void) {
        return link("d/f", "other/new");
}

static void sticky(void) {
        static const struct {
                const char *name;
                long (*call)(void);
        } acts[] = {{"unlink", s_unlink},
                    {"rmdir", s_rmdir},
                    {"rename", s_rename},
                    {"rename out", s_rename_out},
                    {"rename directory out", s_rename_dir_out},
                    {"rename over", s_rename_over},
                    {"rename directory over", s_rename_dir_over},
                    {"exchange", s_exchange},
                    {"link", s_link}};
        static const uid_t owners[] = {0, OWNER_UID, 1004};
        static const mode_t modes[] = {0777, 01777};
        for (size_t m = 0; m < LEN(modes); m++)
                for (size_t dir = 0; dir < LEN(owners); dir++)
                        for (size_t file = 0; file < LEN(owners); file++)
                                for (size_t a = 0; a < LEN(acts); a++)
                                        for (int actor = ROOT; actor < ACTORS; actor += STRANGER) {
                                                make_as(DIR_, "other", 0777, 0, 0);
                                                make_as(FILE_, "other/mine", 0666, 1004, 2004);
                                                make_as(DIR_, "other/empty", 0777, 1004, 2004);
                                                make_as(DIR_, "d", modes[m], owners[dir], 0);
                                                make_as(FILE_, "d/f", 0644, owners[file], 0);
                                                make_as(DIR_, "d/dir", 0755, owners[file], 0);
                                                become(actor);
                                                check(acts[a].call(), "%s: directory %05o of %u, entry of %u, by %s", acts[a].name,
                                                      modes[m], owners[dir], owners[file], actors[actor].name);
                                                be_root();
                                                clear_all();
                                        }
}

static void run(void) {
        directory_bits(OWNER, 6);
        directory_bits(MEMBER, 3);
        directory_bits(SUPPLEMENTARY, 3);
        directory_bits(STRANGER, 0);
        access_calls();
        sticky();
}
const struct family family_perm = {"perm", run, false};
