/* times.c: which of atime, mtime and ctime each call moves, on the inode itself and on its directories; also when the call fails or
 * changes nothing. */
#include "posix.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Everything is in "d" (and "e" for what moves): "f" a file with a second name "f2", "x" a directory, "l" a link. */
static int fd; /* of d/f, read and write */

static void scene(void) {
        MUST(mkdir("d", 0777));
        MUST(mkdir("e", 0777));
        put("d/f", "hello, world", 12);
        MUST(link("d/f", "d/f2"));
        MUST(setxattr("d/f", "user.there", "v", 1, 0));
        MUST(acl_set("d/f", ACL_ACCESS, "u::rw- u:5:r-- g::r-- m::r-- o::r--"));
        put("d/g", "other", 5);
        put("d/empty", "", 0);
        MUST(mkdir("d/x", 0755));
        MUST(symlink("f", "d/l"));
        fd = open("d/f", O_RDWR);
        MUST(fd);
}

static long w(ssize_t n) {
        return n < 0 ? -1 : 0;
}
static long closed(int f) {
        if (f >= 0)
                (void)close(f);
        return f;
}

#define CALL(name, expression)                                                                                                             \
        static long name(void) {                                                                                                           \
                return expression;                                                                                                         \
        }
CALL(t_nothing, 0)
CALL(t_create, closed(open("d/new", O_CREAT | O_WRONLY, 0600)))
CALL(t_create_there, closed(open("d/f", O_CREAT | O_WRONLY, 0600)))
CALL(t_create_excl, closed(open("d/f", O_CREAT | O_EXCL | O_WRONLY, 0600)))
CALL(t_trunc, closed(open("d/f", O_TRUNC | O_WRONLY)))
CALL(t_trunc_empty, closed(open("d/empty", O_TRUNC | O_WRONLY)))
CALL(t_mkdir, mkdir("d/new", 0700))
CALL(t_mkdir_there, mkdir("d/x", 0700))
CALL(t_mkfifo, mkfifo("d/new", 0700))
CALL(t_mknod, mknod("d/new", S_IFCHR | 0600, makedev(1, 3)))
CALL(t_symlink, symlink("x", "d/new"))
CALL(t_link, link("d/f", "d/new"))
CALL(t_link_there, link("d/f", "d/g"))
CALL(t_link_e, link("d/f", "e/new"))
CALL(t_unlink, unlink("d/f"))
CALL(t_unlink_last, unlink("d/g"))
CALL(t_rmdir, rmdir("d/x"))
CALL(t_rmdir_fails, rmdir("d"))
CALL(t_rename, rename("d/f", "d/new"))
CALL(t_rename_same, rename("d/f", "d/f"))
CALL(t_rename_links, rename("d/f", "d/f2"))
CALL(t_rename_over, rename("d/g", "d/f"))
CALL(t_rename_e, rename("d/f", "e/new"))
CALL(t_rename_dir, rename("d/x", "d/new"))
CALL(t_rename_dir_e, rename("d/x", "e/new"))
CALL(t_exchange, do_renameat2("d/f", "d/g", RENAME_EXCHANGE))
CALL(t_exchange_dir, do_renameat2("d/f", "d/x", RENAME_EXCHANGE))
CALL(t_noreplace, do_renameat2("d/f", "d/g", RENAME_NOREPLACE))
CALL(t_chmod, chmod("d/f", 0600))
CALL(t_chmod_same, chmod("d/f", 0644))
CALL(t_fchmod, fchmod(fd, 0600))
CALL(t_chown, chown("d/f", 5, 6))
CALL(t_chown_same, chown("d/f", 0, 0))
CALL(t_chown_nothing, chown("d/f", (uid_t)-1, (gid_t)-1))
CALL(t_lchown, lchown("d/l", 5, 6))
CALL(t_utime_now, utimensat(AT_FDCWD, "d/f", NULL, 0))
CALL(t_utime_omit, utimensat(AT_FDCWD, "d/f", ((struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_OMIT}}), 0))
CALL(t_utime_m, utimensat(AT_FDCWD, "d/f", ((struct timespec[]){{0, UTIME_OMIT}, {5, 5}}), 0))
CALL(t_utime_a, utimensat(AT_FDCWD, "d/f", ((struct timespec[]){{5, 5}, {0, UTIME_OMIT}}), 0))
CALL(t_utime_same, utimensat(AT_FDCWD, "d/f", ((struct timespec[]){{1000000001, 111}, {1000000002, 222}}), 0))
CALL(t_write, w(write(fd, "HELLO", 5)))
CALL(t_write_same, w(pwrite(fd, "hello", 5, 0)))
CALL(t_write_nothing, w(pwrite(fd, "", 0, 0)))
CALL(t_write_fails, w(write(-1, "x", 1)))
CALL(t_pwrite_end, w(pwrite(fd, "x", 1, 100)))
CALL(t_truncate, truncate("d/f", 3))
CALL(t_truncate_more, truncate("d/f", 1000))
CALL(t_truncate_same, truncate("d/f", 12))
CALL(t_ftruncate, ftruncate(fd, 3))
CALL(t_ftruncate_same, ftruncate(fd, 12))
CALL(t_ftruncate_more, ftruncate(fd, 5000))
CALL(t_fallocate, fallocate(fd, 0, 0, 4000))
CALL(t_fallocate_inside, fallocate(fd, 0, 0, 5))
CALL(t_fallocate_keep, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 40000))
CALL(t_punch, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 5))
CALL(t_punch_behind, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40000, 5))
CALL(t_zero, fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 5))
CALL(t_setxattr, setxattr("d/f", "user.new", "v", 1, 0))
CALL(t_setxattr_same, setxattr("d/f", "user.there", "v", 1, 0))
CALL(t_setxattr_there, setxattr("d/f", "user.there", "v", 1, XATTR_CREATE))
CALL(t_removexattr, removexattr("d/f", "user.there"))
CALL(t_removexattr_no, removexattr("d/f", "user.nothing"))
CALL(t_acl, acl_set("d/f", ACL_ACCESS, "u::rwx u:6:r-x g::r-x m::r-x o::r-x"))
CALL(t_acl_same, acl_set("d/f", ACL_ACCESS, "u::rw- u:5:r-- g::r-- m::r-- o::r--"))
CALL(t_acl_plain, acl_set("d/f", ACL_ACCESS, "u::rw- g::r-- o::---"))
CALL(t_acl_remove, removexattr("d/f", ACL_ACCESS))
CALL(t_acl_remove_no, removexattr("d/g", ACL_ACCESS))
CALL(t_acl_default, acl_set("d", ACL_DEFAULT, "u::rwx g::r-x o::r-x"))
CALL(t_stat, access("d/f", R_OK))
CALL(t_fsync, fsync(fd))
CALL(t_readlink, w(readlink("d/l", (char[9]){0}, 9)))
CALL(t_open_read, closed(open("d/f", O_RDONLY)))
CALL(t_open_write, closed(open("d/f", O_WRONLY)))
CALL(t_tmpfile, closed(open("d", O_TMPFILE | O_WRONLY, 0600)))
CALL(t_flock, fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}))
CALL(t_copy, w(copy_file_range(open("d/g", O_RDONLY), &(off_t){0}, fd, &(off_t){0}, 5, 0)))
CALL(t_copy_nothing, w(copy_file_range(open("d/empty", O_RDONLY), &(off_t){0}, fd, &(off_t){0}, 5, 0)))

static long t_mmap(void) {
        char *p = mmap(NULL, 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return -1;
        p[0] = 'M';
        long r = msync(p, 12, MS_SYNC);
        (void)munmap(p, 12);
        return r;
}
static long t_tmpfile_named(void) {
        int t = open("d", O_TMPFILE | O_WRONLY, 0600);
        return linkat(t, "", AT_FDCWD, "d/new", AT_EMPTY_PATH);
}
static long t_list(void) {
        DIR *d = opendir("d");
        while (d && readdir(d))
                ;
        return d ? closedir(d) : -1;
}

#define ROW(name)                                                                                                                          \
        { #name, name }
static const struct {
        const char *name;
        long (*call)(void);
} calls[] = {
        ROW(t_nothing),
        ROW(t_create),
        ROW(t_create_there),
        ROW(t_create_excl),
        ROW(t_trunc),
        ROW(t_trunc_empty),
        ROW(t_mkdir),
        ROW(t_mkdir_there),
        ROW(t_mkfifo),
        ROW(t_mknod),
        ROW(t_symlink),
        ROW(t_link),
        ROW(t_link_there),
        ROW(t_link_e),
        ROW(t_unlink),
        ROW(t_unlink_last),
        ROW(t_rmdir),
        ROW(t_rmdir_fails),
        ROW(t_rename),
        ROW(t_rename_same),
        ROW(t_rename_links),
        ROW(t_rename_over),
        ROW(t_rename_e),
        ROW(t_rename_dir),
        ROW(t_rename_dir_e),
        ROW(t_exchange),
        ROW(t_exchange_dir),
        ROW(t_noreplace),
        ROW(t_chmod),
        ROW(t_chmod_same),
        ROW(t_fchmod),
        ROW(t_chown),
        ROW(t_chown_same),
        ROW(t_chown_nothing),
        ROW(t_lchown),
        ROW(t_utime_now),
        ROW(t_utime_omit),
        ROW(t_utime_m),
        ROW(t_utime_a),
        ROW(t_utime_same),
        ROW(t_write),
        ROW(t_write_same),
        ROW(t_write_nothing),
        ROW(t_write_fails),
        ROW(t_pwrite_end),
        ROW(t_truncate),
        ROW(t_truncate_more),
        ROW(t_truncate_same),
        ROW(t_ftruncate),
        ROW(t_ftruncate_same),
        ROW(t_ftruncate_more),
        ROW(t_fallocate),
        ROW(t_fallocate_inside),
        ROW(t_fallocate_keep),
        ROW(t_punch),
        ROW(t_punch_behind),
        ROW(t_zero),
        ROW(t_setxattr),
        ROW(t_setxattr_same),
        ROW(t_setxattr_there),
        ROW(t_removexattr),
        ROW(t_removexattr_no),
        ROW(t_acl),
        ROW(t_acl_same),
        ROW(t_acl_plain),
        ROW(t_acl_remove),
        ROW(t_acl_remove_no),
        ROW(t_acl_default),
        ROW(t_stat),
        ROW(t_fsync),
        ROW(t_readlink),
        ROW(t_open_read),
        ROW(t_open_write),
        ROW(t_tmpfile),
        ROW(t_flock),
        ROW(t_copy),
        ROW(t_copy_nothing),
        ROW(t_mmap),
        ROW(t_tmpfile_named),
        ROW(t_list),
};

static const char *const watched[] = {"d/f", "d/f2", "d/g", "d/x", "d/l", "d/empty", "d", "e"};

static void run(void) {
        for (size_t c = 0; c < LEN(calls); c++) {
                struct times before[LEN(watched)], after;
                scene();
                for (size_t i = LEN(watched); i-- > 0;)
                        times_old(watched[i]);
                for (size_t i = 0; i < LEN(watched); i++)
                        (void)times_get(watched[i], &before[i]);
                times_wait();
                check(calls[c].call(), "%s", calls[c].name + 2);
                for (size_t i = 0; i < LEN(watched); i++)
                        value(watched[i], "%s", times_get(watched[i], &after) ? times_moved(&before[i], &after) : "gone");
                /* The last look was by path; the file itself may have lost its name. */
                struct stat st;
                MUST(fstat(fd, &st));
                after = (struct times){st.st_atim, st.st_mtim, st.st_ctim};
                value("open file", "%s", times_moved(&before[0], &after));
                MUST(close(fd));
                MUST(stat("d", &st));
                value("new", "%s", look("d/new"));
                struct times dir;
                bool made_now =
                        calls[c].call == t_create || calls[c].call == t_mkdir || calls[c].call == t_mkfifo || calls[c].call == t_mknod;
                if (made_now && times_get("d/new", &after) && times_get("d", &dir))
                        value("new one's times are its directory's", "%s", times_moved(&after, &dir));
                clear_all();
        }
}
const struct family family_times = {"times", run, false};
