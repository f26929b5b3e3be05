/* dir.c: reading directories: what is listed, in which types, seeking, small buffers, changes meanwhile; fsync of everything. */
#include "posix.h"

#include <sys/syscall.h>

static int compare(const void *a, const void *b) {
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The order is the filesystem's own; shown sorted, with types. */
static void list(const char *what, DIR *d) {
        char *lines[64];
        size_t n = 0;
        struct dirent *e;
        while (d && (e = readdir(d)) && n < LEN(lines)) {
                char line[300];
                (void)snprintf(line, sizeof(line), "%s/%d", e->d_name, e->d_type);
                lines[n++] = strdup(line);
        }
        qsort(lines, n, sizeof(lines[0]), compare);
        value(what, "%zu entries", n);
        for (size_t i = 0; i < n; i++) {
                value("entry", "%s", lines[i]);
                free(lines[i]);
        }
}

static void every_kind(void) {
        DIR *d = opendir(".");
        list("empty", d);
        for (int kind = FILE_; kind < KINDS; kind++)
                make(kind, kind_names[kind]);
        rewinddir(d);
        list("rewound", d);
        (void)closedir(d);
        struct stat st;
        int agree = 1;
        d = opendir(".");
        struct dirent *e;
        while ((e = readdir(d)))
                if (strcmp(e->d_name, "..") != 0)
                        agree = agree && lstat(e->d_name, &st) == 0 && st.st_ino == e->d_ino && (st.st_mode & S_IFMT) >> 12 == e->d_type;
        value("inode numbers and types as stat's", "%d", agree);
        (void)closedir(d);
        clear_all();
}

static void many_entries(int n) {
        char name[64];
        MUST(mkdir("many", 0755));
        for (int i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "many/entry-%05d", i);
                int fd = open(name, O_CREAT | O_WRONLY, 0600);
                MUST(fd);
                (void)close(fd);
        }
        DIR *d = opendir("many");
        long *places = calloc((size_t)n + 4, sizeof(long));
        char(*names)[40] = calloc((size_t)n + 4, 40);
        if (!places || !names)
                broken("calloc");
        int count = 0;
        struct dirent *e;
        while ((void)(places[count] = telldir(d)), (e = readdir(d)) && count < n + 3)
                (void)snprintf(names[count++], 40, "%.39s", e->d_name);
        value("listed", "%d of %d", count, n + 2);
        int wrong = 0;
        for (int i = 0; i < 200; i++) {
                int k = (i * 7919) % count;
                seekdir(d, places[k]);
                e = readdir(d);
                wrong += !e || strcmp(e->d_name, names[k]) != 0;
        }
        value("wrong after seekdir", "%d", wrong);
        seekdir(d, places[count]);
        value("at the end", "%d", readdir(d) != NULL);
        rewinddir(d);
        /* Everything is removed while it is listed: nothing twice, and nothing left. */
        int removed = 0;
        while ((e = readdir(d)))
                if (e->d_name[0] == 'e')
                        removed += unlinkat(dirfd(d), e->d_name, 0) == 0;
        value("removed while listing", "%d", removed);
        (void)closedir(d);
        check(rmdir("many"), "rmdir of what is empty now");
        free(places);
        free(names);
}

static void small_buffers(void) {
        char buffer[4096], name[256];
        memset(name, 'n', 255);
        name[255] = '\0';
        put(name, "", 0);
        int fd = open(".", O_RDONLY);
        check(syscall(SYS_getdents64, fd, buffer, 1), "getdents64 into one byte");
        int n = 0;
        long got;
        while ((got = syscall(SYS_getdents64, fd, buffer, 280)) > 0)
                n++;
        value("calls with room for one long name", "%s", got < 0 ? error_name(errno) : n > 0 ? "some" : "none");
        (void)close(fd);
        fd = open(name, O_RDONLY);
        check(syscall(SYS_getdents64, fd, buffer, sizeof(buffer)), "getdents64 of a file");
        (void)close(fd);
        check(syscall(SYS_getdents64, -1, buffer, sizeof(buffer)), "getdents64 of nothing");
        clear_all();
}

static void two_handles(void) {
        for (int i = 0; i < 20; i++) {
                char name[16];
                (void)snprintf(name, sizeof(name), "f%d", i);
                put(name, "", 0);
        }
        DIR *a = opendir("."), *b = opendir(".");
        for (int i = 0; i < 10; i++) {
                (void)readdir(a);
                (void)readdir(b);
        }
        MUST(unlink("f5"));
        put("new", "", 0);
        int n = 0, m = 0;
        while (readdir(a))
                n++;
        rewinddir(b);
        while (readdir(b))
                m++;
        value("rest, and anew", "%d %d", n >= 11 && n <= 13, m);
        (void)closedir(a);
        (void)closedir(b);
        clear_all();
}

static void syncs(void) {
        static const enum kind kinds[] = {FILE_, EMPTY, DIR_, FULL};
        for (size_t k = 0; k < LEN(kinds); k++) {
                make(kinds[k], "n");
                int fd = open("n", O_RDONLY);
                check(fsync(fd), "fsync of %s", kind_names[kinds[k]]);
                check(fdatasync(fd), "fdatasync of %s", kind_names[kinds[k]]);
                check(syncfs(fd), "syncfs of %s", kind_names[kinds[k]]);
                (void)close(fd);
                clear("n");
        }
        make(FIFO, "n");
        int fd = open("n", O_RDWR | O_NONBLOCK);
        check(fsync(fd), "fsync of a fifo");
        (void)close(fd);
        check(fsync(-1), "fsync of nothing");
        clear_all();
}

static void link_counts(void) {
        static const char *const steps[] = {"a", "b", "a/x", "a/y", "a/x/z"};
        for (size_t i = 0; i < LEN(steps); i++) {
                MUST(mkdir(steps[i], 0755));
                value("counts", "%s; %s", look("."), look("a"));
        }
        MUST(rename("a/x", "b/x"));
        value("moved", "%s; %s; %s", look("."), look("a"), look("b"));
        MUST(rmdir("b/x/z"));
        MUST(rename("a/y", "b/x"));
        value("moved over", "%s; %s; %s", look("a"), look("b"), look("b/x"));
        make(FILE_, "a/f");
        make(FIFO, "a/p");
        value("files do not count", "%s", look("a"));
        clear_all();
}

static void run(void) {
        every_kind();
        many_entries(10);
        many_entries(1500);
        small_buffers();
        two_handles();
        syncs();
        link_counts();
        DIR *d = opendir(".");
        check(lseek(dirfd(d), 0, SEEK_SET), "lseek of a directory to 0");
        check(lseek(dirfd(d), -1, SEEK_SET), "lseek of a directory to -1");
        (void)closedir(d);
}
const struct family family_dir = {"dir", run, false};
