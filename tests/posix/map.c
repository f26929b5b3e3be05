/* map.c: mmap(2) against read and write, ends of files, protections; programs that run and their files (ETXTBSY). */
#include "posix.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE 20000u
static char pattern[SIZE];

static char *map(int fd, size_t size, int flags) {
        char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
        if (p == MAP_FAILED)
                broken("mmap");
        return p;
}

static int scene(void) {
        for (size_t i = 0; i < SIZE; i++)
                pattern[i] = (char)('a' + i % 26);
        put("f", pattern, SIZE);
        int fd = open("f", O_RDWR);
        MUST(fd);
        return fd;
}

static void coherent(void) {
        static const off_t places[] = {0, 4090, 8192, 19990};
        char got[10];
        int fd = scene(), other = open("f", O_RDWR);
        char *shared = map(fd, SIZE, MAP_SHARED), *second = map(other, SIZE, MAP_SHARED), *private = map(fd, SIZE, MAP_PRIVATE);
        for (size_t i = 0; i < LEN(places); i++) {
                memcpy(shared + places[i], "STORE", 5);
                value("store, read", "%zd %.5s", pread(other, got, 5, places[i]), got);
                value("store, other map", "%.5s, private %.5s", second + places[i], private + places[i]);
                value("write, map", "%zd %.5s", pwrite(other, "WRITE", 5, places[i]), shared + places[i]);
                memcpy(private + places[i], "OWN", 3);
                value("private store", "%.5s %zd %.5s", shared + places[i], pread(fd, got, 5, places[i]), got);
                value("private and a write behind it", "%zd %.5s", pwrite(fd, "AGAIN", 5, places[i]), private + places[i]);
        }
        check(msync(shared, SIZE, MS_SYNC), "msync");
        check(msync(shared, SIZE, MS_ASYNC), "msync without waiting");
        check(msync(shared, SIZE, MS_INVALIDATE), "msync and invalidate");
        check(munmap(second, SIZE), "munmap");
        (void)close(other);
        (void)close(fd);
        memcpy(shared, "after close", 11);
        value("store after close", "%s", content("f"));
        (void)munmap(shared, SIZE);
        (void)munmap(private, SIZE);
        value("unmapped", "%s", content("f"));
        clear_all();
}

static sigjmp_buf jump;
static void bus(int signal) {
        siglongjmp(jump, signal);
}
static const char *touch(char *p) {
        int signal = sigsetjmp(jump, 1);
        if (signal)
                return signal == SIGBUS ? "SIGBUS" : "SIGSEGV";
        *(volatile char *)p = 'T';
        return "stored";
}

static void ends(void) {
        struct sigaction act = {.sa_handler = bus}, was;
        MUST(sigaction(SIGBUS, &act, &was));
        MUST(sigaction(SIGSEGV, &act, NULL));
        int fd = scene();
        char *p = map(fd, 40960, MAP_SHARED);
        value("last page", "%s", touch(p + SIZE + 100));
        value("behind it is zero", "%d", p[SIZE + 50]);
        value("next page", "%s", touch(p + 24576));
        value("file", "%s", content("f"));
        check(ftruncate(fd, 30000), "grow");
        value("next page", "%s", touch(p + 24576));
        value("file", "%s", content("f"));
        check(ftruncate(fd, 5000), "shrink");
        value("gone page", "%s", touch(p + 12288));
        value("last page", "%s", touch(p + 4096));
        check(ftruncate(fd, 9000), "grow again");
        value("zero behind the old end", "%d", p[5001]);
        value("file", "%s", content("f"));
        (void)munmap(p, 40960);
        p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        value("store to a map for reading", "%s", touch(p));
        (void)munmap(p, 4096);
        (void)close(fd);
        MUST(sigaction(SIGBUS, &was, NULL));
        MUST(sigaction(SIGSEGV, &was, NULL));
        clear_all();
}

static void try_map(const char *what, int fd, int protection, int flags, off_t offset) {
        void *p = mmap(NULL, 4096, protection, flags, fd, offset);
        check(p == MAP_FAILED ? -1 : 0, "mmap %s", what);
        if (p != MAP_FAILED)
                (void)munmap(p, 4096);
}

static void protections(void) {
        (void)close(scene());
        int r = open("f", O_RDONLY), w = open("f", O_WRONLY), path = open("f", O_PATH), dir = open(".", O_RDONLY);
        try_map("shared for writing, descriptor for reading", r, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
        try_map("private for writing, descriptor for reading", r, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
        try_map("shared for reading", r, PROT_READ, MAP_SHARED, 0);
        try_map("for execution", r, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0);
        try_map("descriptor for writing", w, PROT_READ, MAP_SHARED, 0);
        try_map("O_PATH", path, PROT_READ, MAP_SHARED, 0);
        try_map("directory", dir, PROT_READ, MAP_SHARED, 0);
        try_map("odd offset", r, PROT_READ, MAP_SHARED, 100);
        try_map("behind the end", r, PROT_READ, MAP_SHARED, 1 << 20);
        (void)close(r), (void)close(w), (void)close(path), (void)close(dir);
        clear_all();
}

static void unlinked(void) {
        int fd = scene();
        char *p = map(fd, SIZE, MAP_SHARED), got[8] = "";
        MUST(unlink("f"));
        memcpy(p + 100, "gone", 4);
        value("read", "%zd %.4s", pread(fd, got, 4, 100), got);
        check(msync(p, SIZE, MS_SYNC), "msync of an unlinked file");
        (void)close(fd);
        value("map after the last close", "%.4s", p + 100);
        memcpy(p + 200, "more", 4);
        check(munmap(p, SIZE), "munmap of it");
        clear_all();
}

static int spawn(const char *path) {
        (void)fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                (void)execl(path, path, "0.2", (char *)NULL);
                _exit(errno);
        }
        return pid;
}
static const char *ended(int pid) {
        int status = 0;
        MUST(waitpid(pid, &status, 0));
        return !WIFEXITED(status) ? "killed" : WEXITSTATUS(status) == 0 ? "ok" : error_name(WEXITSTATUS(status));
}

static void copy_program(const char *path, mode_t mode) {
        int in = open("/bin/sleep", O_RDONLY), out = open(path, O_CREAT | O_WRONLY, 0600);
        char buffer[65536];
        ssize_t n;
        while ((n = read(in, buffer, sizeof(buffer))) > 0)
                MUST(write(out, buffer, (size_t)n));
        MUST(fchmod(out, mode));
        (void)close(in);
        (void)close(out);
}

static void programs(void) {
        copy_program("run", 0755);
        value("run", "%s", ended(spawn("./run")));
        int fd = open("run", O_WRONLY);
        value("run while it is open for writing", "%s", ended(spawn("./run")));
        (void)close(fd);
        int pid = spawn("./run");
        (void)usleep(60000);
        check_fd(open("run", O_WRONLY), "open for writing while it runs");
        check_fd(open("run", O_RDWR | O_TRUNC), "truncate by open while it runs");
        check(truncate("run", 0), "truncate while it runs");
        check(rename("run", "moved"), "rename while it runs");
        check(unlink("moved"), "unlink while it runs");
        value("its end", "%s", ended(pid));
        copy_program("run", 0644);
        value("run without permission", "%s", ended(spawn("./run")));
        MUST(chmod("run", 0));
        value("run, mode 0", "%s", ended(spawn("./run")));
        put("script", "#!/bin/sh\nexit 0\n", 17);
        MUST(chmod("script", 0755));
        value("script", "%s", ended(spawn("./script")));
        put("text", "no program", 10);
        MUST(chmod("text", 0755));
        value("text", "%s", ended(spawn("./text")));
        put("empty", "", 0);
        MUST(chmod("empty", 0755));
        value("empty", "%s", ended(spawn("./empty")));
        value("directory", "%s", ended(spawn(".")));
        clear_all();
}

static void run(void) {
        coherent();
        ends();
        protections();
        unlinked();
        programs();
}
const struct family family_map = {"map", run, false};
