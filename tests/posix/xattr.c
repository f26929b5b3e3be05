/* xattr.c: setxattr, getxattr, listxattr, removexattr and relatives: namespaces, kinds, actors, flags, sizes. */
#include "posix.h"

#include <sys/xattr.h>

static const char *const names[] = {
        "user.a", "trusted.a", "security.a", "system.a",  "system.posix_acl_access", "other.a",         "user.",
        "user",   "",          "trusted.",   "security.", "security.capability",     "user.with/slash", "user.\xff",
        "USER.a", ".user"};

static void names_and_actors(void) {
        for (int kind = FILE_; kind < KINDS; kind++)
                for (size_t n = 0; n < LEN(names); n++)
                        for (int actor = ROOT; actor < ACTORS; actor += actor == OWNER ? STRANGER - OWNER : 1) {
                                char got[64];
                                if (strcmp(names[n], "security.capability") == 0 && kind != FILE_)
                                        continue;
                                make_as(kind, "f", 0644, OWNER_UID, OWNER_GID);
                                become(actor);
                                check(lsetxattr("f", names[n], "value", 5, 0), "lsetxattr \"%s\" of %s by %s", names[n], kind_names[kind],
                                      actors[actor].name);
                                check(lgetxattr("f", names[n], got, sizeof(got)), "lgetxattr");
                                check(llistxattr("f", got, sizeof(got)), "llistxattr");
                                check(lremovexattr("f", names[n]), "lremovexattr");
                                be_root();
                                clear_all();
                        }
}

static void rights(void) {
        static const mode_t modes[] = {0, 0444, 0222, 0666, 0600, 01777};
        static const enum kind kinds[] = {FILE_, DIR_};
        static const char *const spaces[] = {"user.a", "trusted.a", "security.a"};
        for (size_t k = 0; k < LEN(kinds); k++)
                for (size_t s = 0; s < LEN(spaces); s++)
                        for (size_t m = 0; m < LEN(modes); m++)
                                for (int actor = ROOT; actor < ACTORS; actor++) {
                                        char got[64];
                                        make_as(kinds[k], "f", modes[m], OWNER_UID, OWNER_GID);
                                        MUST(setxattr("f", spaces[s], "old", 3, 0));
                                        become(actor);
                                        check(getxattr("f", spaces[s], got, sizeof(got)), "getxattr %s of %s %04o by %s", spaces[s],
                                              kind_names[kinds[k]], modes[m], actors[actor].name);
                                        check(setxattr("f", spaces[s], "v", 1, 0), "setxattr");
                                        value("listxattr", "%zd", listxattr("f", got, sizeof(got)));
                                        check(removexattr("f", spaces[s]), "removexattr");
                                        be_root();
                                        clear("f");
                                }
}

static void flags(void) {
        static const int all[] = {0, XATTR_CREATE, XATTR_REPLACE, XATTR_CREATE | XATTR_REPLACE, 4, 128};
        for (int there = 0; there < 2; there++)
                for (size_t i = 0; i < LEN(all); i++) {
                        char got[16] = "";
                        make(FILE_, "f");
                        if (there)
                                MUST(setxattr("f", "user.a", "old", 3, 0));
                        check(setxattr("f", "user.a", "new", 3, all[i]), "setxattr flags %d, there: %d", all[i], there);
                        value("it", "%zd %s", getxattr("f", "user.a", got, sizeof(got)), got);
                        clear("f");
                }
}

static void sizes(void) {
        static const size_t values[] = {0, 1, 100, 1000, 3000};
        static char data[70000], got[70000];
        char name[300];
        make(FILE_, "f");
        for (size_t i = 0; i < LEN(values); i++) {
                memset(data, 'a' + (int)i, values[i]);
                check(setxattr("f", "user.a", data, values[i], 0), "value of %zu bytes", values[i]);
                value("size", "%zd", getxattr("f", "user.a", NULL, 0));
                ssize_t n = getxattr("f", "user.a", got, sizeof(got));
                value("same", "%zd %d", n, n >= 0 ? memcmp(got, data, (size_t)n) : 1);
                check(getxattr("f", "user.a", got, values[i] > 1 ? values[i] - 1 : 1), "too little room for %zu", values[i]);
        }
        check(setxattr("f", "user.a", data, 65537, 0), "value of 65537 bytes");
        check(removexattr("f", "user.a"), "remove it");
        static const size_t lengths[] = {6, 100, 254, 255, 256, 257, 300};
        for (size_t i = 0; i < LEN(lengths); i++) {
                memset(name, 'n', sizeof(name));
                memcpy(name, "user.", 5);
                name[lengths[i] < sizeof(name) ? lengths[i] : sizeof(name) - 1] = '\0';
                check(setxattr("f", name, "v", 1, 0), "name of %zu bytes", lengths[i]);
                check(getxattr("f", name, got, sizeof(got)), "get it");
                check(removexattr("f", name), "remove it");
        }
        for (int i = 0; i < 20; i++) {
                (void)snprintf(name, sizeof(name), "user.number-%d", i);
                check(setxattr("f", name, data, 10, 0), "xattr %d", i);
        }
        value("list of 20", "%zd", listxattr("f", NULL, 0));
        check(listxattr("f", got, 10), "list, too little room");
        check(listxattr("f", got, sizeof(got)), "list");
        clear("f");
}

static void by_descriptor(void) {
        char got[16];
        static const int flags_of[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH};
        for (size_t i = 0; i < LEN(flags_of); i++) {
                make(FILE_, "f");
                int fd = open("f", flags_of[i]);
                check(fsetxattr(fd, "user.a", "v", 1, 0), "fsetxattr, open flags %x", (unsigned)flags_of[i]);
                check(fgetxattr(fd, "user.a", got, sizeof(got)), "fgetxattr");
                check(flistxattr(fd, got, sizeof(got)), "flistxattr");
                check(fremovexattr(fd, "user.a"), "fremovexattr");
                MUST(unlink("f"));
                check(fsetxattr(fd, "user.b", "v", 1, 0), "fsetxattr of an unlinked file");
                check(fgetxattr(fd, "user.b", got, sizeof(got)), "fgetxattr of an unlinked file");
                (void)close(fd);
        }
}

static void run(void) {
        names_and_actors();
        rights();
        flags();
        sizes();
        by_descriptor();
}
const struct family family_xattr = {"xattr", run, false};
