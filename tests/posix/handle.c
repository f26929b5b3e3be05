/* handle.c: name_to_handle_at(2) and open_by_handle_at(2). */
#include "posix.h"

struct room {
        struct file_handle head;
        unsigned char bytes[MAX_HANDLE_SZ];
};
static int mount_id;

static int handle_of(const char *path, int flags, struct room *ret) {
        *ret = (struct room){.head.handle_bytes = MAX_HANDLE_SZ};
        return name_to_handle_at(AT_FDCWD, path, &ret->head, &mount_id, flags);
}

static void run(void) {
        struct room r, other;
        int here = open(".", O_RDONLY);
        for (int kind = FILE_; kind < KINDS; kind++) {
                make(kind, "n");
                check(handle_of("n", 0, &r), "handle of %s", kind_names[kind]);
                int fd = open_by_handle_at(here, &r.head, O_PATH);
                check(fd, "open it");
                value("it", "%s, %d", fd >= 0 ? look_fd(fd) : "", strcmp(look_fd(fd), look("n")));
                (void)close(fd);
                clear_all();
        }
        make(FILE_, "f");
        make(LINK, "l");
        MUST(handle_of("f", 0, &r));
        check(handle_of("l", AT_SYMLINK_FOLLOW, &other), "handle following a link");
        check(handle_of("missing", 0, &other), "handle of nothing");
        other.head.handle_bytes = 0;
        check(name_to_handle_at(AT_FDCWD, "f", &other.head, &mount_id, 0), "handle without room");
        value("room wanted", "%d", other.head.handle_bytes > 0);
        MUST(rename("f", "g"));
        int fd = open_by_handle_at(here, &r.head, O_RDWR);
        check(fd, "open after a rename");
        check(write(fd, "H", 1), "write to it");
        value("it", "%s", content("g"));
        MUST(handle_of("g", 0, &other));
        value("same handle", "%d",
              r.head.handle_bytes == other.head.handle_bytes && memcmp(r.bytes, other.bytes, r.head.handle_bytes) == 0);
        MUST(unlink("g"));
        check_fd(open_by_handle_at(here, &r.head, O_RDONLY), "open while it is unlinked and open");
        (void)close(fd);
        for (int i = 0; i < 300; i++) { /* a filesystem may be told of the last close a moment later */
                fd = open_by_handle_at(here, &r.head, O_RDONLY);
                if (fd < 0)
                        break;
                (void)close(fd);
                times_wait();
        }
        check(fd, "open when it is gone");
        MUST(mkdir("d", 0755));
        put("d/x", "x", 1);
        MUST(handle_of("d", 0, &r));
        fd = open_by_handle_at(here, &r.head, O_RDONLY | O_DIRECTORY);
        check(fd, "open a directory");
        check_fd(openat(fd, "x", O_RDONLY), "open below it");
        check_fd(openat(fd, "..", O_RDONLY), "open above it");
        (void)close(fd);
        MUST(handle_of("d/x", 0, &r));
        check_fd(open_by_handle_at(here, &r.head, O_RDONLY), "open a file in a directory");
        become(OWNER);
        check_fd(open_by_handle_at(here, &r.head, O_RDONLY), "open by a user");
        check(handle_of("d/x", 0, &other), "handle by a user");
        be_root();
        memset(other.bytes, 0x5a, sizeof(other.bytes));
        check_fd(open_by_handle_at(here, &other.head, O_RDONLY), "open of nonsense");
        (void)close(here);
}
const struct family family_handle = {"handle", run, false};
