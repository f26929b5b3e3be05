/* lock.c: flock(2), fcntl(2) record locks and open file description locks, between processes of one machine. */
#include "posix.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

/* What another process gets: "ok" or the errno. */
static void in_child(const char *what, int (*call)(void)) {
        (void)fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                errno = 0;
                (void)call();
                _exit(errno);
        }
        int status = 0;
        MUST(waitpid(pid, &status, 0));
        value("another process", "%s: %s", what,
              WIFEXITED(status) ? WEXITSTATUS(status) ? error_name(WEXITSTATUS(status)) : "ok" : "killed");
}

static int range(int fd, int command, short type, off_t start, off_t length) {
        struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
        return fcntl(fd, command, &l);
}

static int flock_shared(void) {
        return flock(open("f", O_RDONLY), LOCK_SH | LOCK_NB);
}
static int flock_exclusive(void) {
        return flock(open("f", O_RDONLY), LOCK_EX | LOCK_NB);
}
static int posix_read(void) {
        return range(open("f", O_RDWR), F_SETLK, F_RDLCK, 0, 0);
}
static int posix_write(void) {
        return range(open("f", O_RDWR), F_SETLK, F_WRLCK, 0, 0);
}
static int posix_write_part(void) {
        return range(open("f", O_RDWR), F_SETLK, F_WRLCK, 10, 10);
}
static int posix_write_far(void) {
        return range(open("f", O_RDWR), F_SETLK, F_WRLCK, 1000, 10);
}
static int ofd_write(void) {
        return range(open("f", O_RDWR), F_OFD_SETLK, F_WRLCK, 0, 0);
}

static void others(void) {
        static const struct {
                const char *name;
                int (*call)(void);
        } all[] = {{"flock shared", flock_shared}, {"flock exclusive", flock_exclusive},      {"read lock", posix_read},
                   {"write lock", posix_write},    {"write lock of 10+10", posix_write_part}, {"write lock of 1000+10", posix_write_far},
                   {"OFD write lock", ofd_write}};
        for (size_t i = 0; i < LEN(all); i++)
                in_child(all[i].name, all[i].call);
}

static void flocks(int fd) {
        static const int kinds[] = {LOCK_SH, LOCK_EX, LOCK_UN, LOCK_EX, LOCK_SH};
        for (size_t i = 0; i < LEN(kinds); i++) {
                check(flock(fd, kinds[i] | LOCK_NB), "flock %d", kinds[i]);
                others();
        }
        int copy = dup(fd), again = open("f", O_RDWR);
        check(flock(copy, LOCK_EX | LOCK_NB), "flock through a copy");
        check(flock(again, LOCK_EX | LOCK_NB), "flock through another open");
        (void)close(copy);
        others();
        (void)close(again);
        check(flock(fd, LOCK_UN), "unlock");
        check(flock(fd, 77), "flock of nonsense");
        int dir = open(".", O_RDONLY);
        check(flock(dir, LOCK_EX | LOCK_NB), "flock of a directory");
        (void)close(dir);
}

static void ranges(int fd) {
        static const struct {
                short type;
                off_t start, length;
        } all[] = {{F_RDLCK, 0, 0},  {F_WRLCK, 0, 0},    {F_UNLCK, 10, 10},  {F_WRLCK, 12, 2},  {F_RDLCK, 0, 5},
                   {F_UNLCK, 0, 0},  {F_WRLCK, 1005, 1}, {F_UNLCK, 1005, 1}, {F_RDLCK, 0, 100}, {F_WRLCK, 100, -50},
                   {F_WRLCK, -1, 5}, {F_WRLCK, 10, -20}, {9, 0, 0}};
        for (size_t i = 0; i < LEN(all); i++) {
                check(range(fd, F_SETLK, all[i].type, all[i].start, all[i].length), "lock %d %lld+%lld", all[i].type,
                      (long long)all[i].start, (long long)all[i].length);
                others();
        }
        struct flock l = {.l_type = F_WRLCK};
        check(fcntl(fd, F_GETLK, &l), "F_GETLK of one's own");
        value("type", "%d", l.l_type);
        int other = open("f", O_RDWR);
        (void)close(other); /* and with it go all record locks of this process on the file */
        others();
        check(range(fd, F_OFD_SETLK, F_WRLCK, 0, 0), "OFD lock");
        other = open("f", O_RDWR);
        check(range(other, F_OFD_SETLK, F_WRLCK, 0, 0), "OFD lock through another open");
        l = (struct flock){.l_type = F_WRLCK};
        check(fcntl(other, F_OFD_GETLK, &l), "F_OFD_GETLK");
        value("holder", "%d %d %lld %lld", l.l_type, (int)l.l_pid, (long long)l.l_start, (long long)l.l_len);
        (void)close(other);
        others();
        check(range(fd, F_OFD_SETLK, F_UNLCK, 0, 0), "OFD unlock");
        other = open("f", O_RDONLY);
        check(range(other, F_SETLK, F_WRLCK, 0, 0), "write lock through a descriptor for reading");
        (void)close(other);
        other = open("f", O_WRONLY);
        check(range(other, F_SETLK, F_RDLCK, 0, 0), "read lock through a descriptor for writing");
        (void)close(other);
}

static void nothing(int signal) {
        (void)signal;
}

/* A child holds; the parent waits, is interrupted, waits again and gets it when the child ends; two that wait for each other: EDEADLK. */
static void waiting(int fd) {
        int ready[2];
        char byte;
        MUST(pipe(ready));
        (void)fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                (void)posix_write();
                (void)flock_exclusive();
                (void)write(ready[1], "x", 1);
                (void)usleep(150000);
                _exit(0);
        }
        MUST(read(ready[0], &byte, 1));
        struct flock l = {.l_type = F_RDLCK};
        check(fcntl(fd, F_GETLK, &l), "F_GETLK of another's");
        value("holder", "%d %d", l.l_type, l.l_pid == pid);
        struct sigaction act = {.sa_handler = nothing};
        MUST(sigaction(SIGALRM, &act, NULL));
        (void)ualarm(20000, 0);
        check(range(fd, F_SETLKW, F_WRLCK, 0, 0), "F_SETLKW, interrupted");
        (void)ualarm(20000, 0);
        check(flock(fd, LOCK_EX), "flock, interrupted");
        check(range(fd, F_SETLKW, F_WRLCK, 0, 0), "F_SETLKW, waiting");
        check(flock(fd, LOCK_EX), "flock, waiting");
        MUST(waitpid(pid, NULL, 0));
        check(range(fd, F_SETLK, F_UNLCK, 0, 0), "unlock");
        check(range(fd, F_SETLK, F_WRLCK, 0, 1), "lock the first byte");
        (void)fflush(stdout);
        pid = fork();
        if (pid == 0) {
                int mine = open("f", O_RDWR);
                (void)range(mine, F_SETLK, F_WRLCK, 1, 1);
                (void)write(ready[1], "x", 1);
                (void)range(mine, F_SETLKW, F_WRLCK, 0, 1);
                _exit(0);
        }
        MUST(read(ready[0], &byte, 1));
        (void)usleep(30000);
        check(range(fd, F_SETLKW, F_WRLCK, 1, 1), "F_SETLKW in a circle");
        (void)range(fd, F_SETLK, F_UNLCK, 0, 0);
        MUST(waitpid(pid, NULL, 0));
        (void)close(ready[0]);
        (void)close(ready[1]);
}

static void run(void) {
        put("f", "hello", 5);
        int fd = open("f", O_RDWR);
        flocks(fd);
        ranges(fd);
        waiting(fd);
        check(fcntl(fd, F_SETLEASE, F_UNLCK), "no lease to give back");
        (void)close(fd);
        others();
}
const struct family family_lock = {"lock", run, false};
