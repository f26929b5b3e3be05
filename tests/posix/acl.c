/* acl.c: POSIX ACLs: which are valid, what they do to the mode and it to them, what they allow, how they are inherited. */
#include "posix.h"

#include <sys/sysmacros.h>
#include <sys/xattr.h>

static const char *const acls[] = {
        "u::rwx g::r-x o::r--",
        "u::rw- g::--- o::---",
        "u::--- g::rwx o::rwx",
        "u::rwx u:1003:rwx g::r-x m::rwx o::---",
        "u::rwx u:1003:rwx g::r-x m::--- o::---",
        "u::rw- u:1003:-w- u:1004:r-- g::--- m::rw- o::---",
        "u::rwx g::r-x g:2222:rwx m::rwx o::---",
        "u::rwx g::rwx g:2222:--- m::r-x o::rwx",
        "u::rwx u:1004:--- g::r-x g:2222:rwx m::rwx o::rwx",
        "u::r-x u:1001:rwx g::--- m::rwx o::---",
        "u::rw- g::rwx m::r-- o::r--",
        "u::rwx u:1002:r-- g::--- g:2001:rwx m::rwx o::---",
};
static const char *const bad[] = {
        "",
        "u::rwx",
        "u::rwx g::r-x",
        "g::r-x o::r--",
        "u::rwx o::r--",
        "u::rwx u:5:rwx g::r-x o::r--",
        "u::rwx g::r-x g:5:r-x o::r--",
        "u::rwx u::rwx g::r-x o::r--",
        "g::r-x u::rwx o::r--",
        "u::rwx g::r-x o::r-- m::rwx",
        "u::rwx g::r-x m::rwx m::rwx o::r--",
        "u::rwx u:6:r-- u:5:r-- g::r-x m::rwx o::r--",
        "u::rwx u:5:r-- u:5:rw- g::r-x m::rwx o::r--",
};

static void valid_or_not(void) {
        static const enum kind kinds[] = {FILE_, DIR_, FIFO, LINK};
        static const char *const names[] = {ACL_ACCESS, ACL_DEFAULT};
        for (size_t k = 0; k < LEN(kinds); k++)
                for (size_t n = 0; n < LEN(names); n++) {
                        for (size_t i = 0; i < LEN(acls) + LEN(bad); i++) {
                                const char *text = i < LEN(acls) ? acls[i] : bad[i - LEN(acls)];
                                make(kinds[k], "f");
                                check(acl_set("f", names[n], text), "%s of %s: %s", names[n], kind_names[kinds[k]], text);
                                value("is", "%s; %s", acl_text("f", names[n]), look("f"));
                                check(removexattr("f", names[n]), "remove it");
                                value("is", "%s; %s", acl_text("f", names[n]), look("f"));
                                check(removexattr("f", names[n]), "remove it again");
                                clear_all();
                        }
                        make(kinds[k], "f");
                        check(lsetxattr("f", names[n], "\1\0\0\0", 4, 0), "%s of another version", names[n]);
                        check(lsetxattr("f", names[n], "\2\0\0\0", 4, 0), "%s without an entry", names[n]);
                        check(lsetxattr("f", names[n], "\2\0\0\0\1\0", 6, 0), "%s cut short", names[n]);
                        check(lsetxattr("f", names[n], "\2", 1, 0), "%s of one byte", names[n]);
                        check(lsetxattr("f", names[n], "", 0, 0), "%s of nothing", names[n]);
                        value("is", "%s; %s", acl_text("f", names[n]), look("f"));
                        clear_all();
                }
}

static void with_chmod(void) {
        static const mode_t modes[] = {0, 0777, 0700, 0070, 0007, 0751, 07000};
        for (size_t i = 0; i < LEN(acls); i++)
                for (size_t m = 0; m < LEN(modes); m++) {
                        make(FILE_, "f");
                        MUST(acl_set("f", ACL_ACCESS, acls[i]));
                        check(chmod("f", modes[m]), "chmod %04o with %s", modes[m], acls[i]);
                        value("is", "%s; %s", acl_text("f", ACL_ACCESS), look("f"));
                        clear("f");
                }
}

static void what_it_allows(void) {
        for (size_t i = 0; i < LEN(acls); i++)
                for (int actor = ROOT; actor < ACTORS; actor++) {
                        make_as(FILE_, "f", 0600, OWNER_UID, OWNER_GID);
                        make_as(DIR_, "d", 0700, OWNER_UID, OWNER_GID);
                        make_as(FILE_, "d/there", 0666, 0, 0);
                        MUST(acl_set("f", ACL_ACCESS, acls[i]));
                        MUST(acl_set("d", ACL_ACCESS, acls[i]));
                        become(actor);
                        check_fd(open("f", O_RDONLY), "read by %s with %s", actors[actor].name, acls[i]);
                        check_fd(open("f", O_WRONLY), "write");
                        check_fd(open("f", O_RDWR), "read and write");
                        check(access("f", X_OK), "execute");
                        check_fd(open("d", O_RDONLY), "list");
                        check_fd(open("d/there", O_RDONLY), "search");
                        check_fd(open("d/new", O_CREAT | O_WRONLY, 0600), "create");
                        check(unlink("d/there"), "unlink");
                        check(acl_set("f", ACL_ACCESS, acls[0]), "change the ACL");
                        check(removexattr("f", ACL_ACCESS), "remove the ACL");
                        be_root();
                        clear_all();
                }
}

static void inherited(void) {
        static const mode_t modes[] = {0777, 0640, 0, 06775, 0111};
        static const mode_t umasks[] = {0, 077};
        for (size_t i = 0; i < LEN(acls); i++)
                for (size_t m = 0; m < LEN(modes); m++)
                        for (size_t u = 0; u < LEN(umasks); u++) {
                                MUST(mkdir("d", 0755));
                                MUST(acl_set("d", ACL_DEFAULT, acls[i]));
                                (void)umask(umasks[u]);
                                check_fd(open("d/file", O_CREAT | O_WRONLY, modes[m]), "file %05o, umask %03o below %s", modes[m],
                                         umasks[u], acls[i]);
                                check(mkdir("d/dir", modes[m]), "directory");
                                check(mkfifo("d/fifo", modes[m]), "fifo");
                                check(mknod("d/node", S_IFCHR | modes[m], makedev(1, 3)), "device");
                                check(symlink("to", "d/link"), "link");
                                int fd = open("d", O_TMPFILE | O_RDWR, modes[m]);
                                check(linkat(fd, "", AT_FDCWD, "d/tmp", AT_EMPTY_PATH), "O_TMPFILE");
                                (void)close(fd);
                                (void)umask(0);
                                static const char *const made[] = {"d/file", "d/dir", "d/fifo", "d/node", "d/link", "d/tmp"};
                                for (size_t k = 0; k < LEN(made); k++) {
                                        value(made[k], "%s; %s", look(made[k]), k == 4 ? "" : acl_text(made[k], ACL_ACCESS));
                                        if (k == 1)
                                                value("default", "%s", acl_text(made[k], ACL_DEFAULT));
                                }
                                clear_all();
                        }
        /* Two levels, and no further once it is taken away. */
        MUST(mkdir("d", 0755));
        MUST(acl_set("d", ACL_DEFAULT, acls[3]));
        MUST(mkdir("d/e", 0777));
        check(removexattr("d", ACL_DEFAULT), "take the default ACL away");
        MUST(mkdir("d/f", 0777));
        MUST(mkdir("d/e/g", 0777));
        value("inherited before, after, by a child", "%s; %s; %s", acl_text("d/e", ACL_DEFAULT), acl_text("d/f", ACL_DEFAULT),
              look("d/e/g"));
        clear_all();
}

/* Setting an ACL takes setgid away where the caller is not of the file's group. */
static void setgid_files(void) {
        for (int actor = ROOT; actor < ACTORS; actor++)
                for (int group = 0; group < 2; group++)
                        for (size_t i = 0; i < 4; i += 3) {
                                make_as(FILE_, "f", 02775, actors[actor].uid, group ? 2222 : OWNER_GID);
                                become(actor);
                                check(acl_set("f", ACL_ACCESS, acls[i]), "ACL on a setgid file of group %d by %s: %s",
                                      group ? 2222 : OWNER_GID, actors[actor].name, acls[i]);
                                be_root();
                                value("is", "%s; %s", look("f"), acl_text("f", ACL_ACCESS));
                                clear("f");
                        }
}

static void run(void) {
        valid_or_not();
        with_chmod();
        what_it_allows();
        inherited();
        setgid_files();
        make_as(FILE_, "f", 0644, OWNER_UID, OWNER_GID);
        MUST(acl_set("f", ACL_ACCESS, acls[3]));
        char got[300];
        value("listed", "%zd", listxattr("f", got, sizeof(got)));
        become(STRANGER);
        value("listed for others", "%zd", listxattr("f", got, sizeof(got)));
        value("read by others", "%s", acl_text("f", ACL_ACCESS));
        be_root();
        check(chown("f", 5, 6), "chown with an ACL");
        value("is", "%s; %s", look("f"), acl_text("f", ACL_ACCESS));
}
const struct family family_acl = {"acl", run, false};
