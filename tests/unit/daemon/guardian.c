/* guardian.c: a daemon that serves just enough of FUSE to get stuck: a MKDIR that it does not answer holds the directory's lock in the
 * kernel, and a notification about the directory waits for that lock. Killed then, it cannot end by itself. Needs root and /dev/fuse. */
#include "unit.h"

#include "base/log.h"
#include "guardian.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char mnt[64], log_path[96];
static int log_file = -1;

/* --- the daemon */

enum stuck { STUCK_NONE, STUCK_THREAD, STUCK_MAIN };

struct served {
        int fuse, held; /* held: told when the MKDIR is there */
        struct guardian *guardian;
};

static void answer(int fuse, uint64_t unique, int error, const void *body, size_t n) {
        struct fuse_out_header head = {.len = (uint32_t)(sizeof(head) + n), .error = error, .unique = unique};
        struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, n}};
        (void)!writev(fuse, iov, n ? 2 : 1);
}

static void serve(struct served *s) {
        static _Alignas(8) char memory[1u << 17];

        while (read(s->fuse, memory, sizeof(memory)) >= (ssize_t)sizeof(struct fuse_in_header)) {
                const struct fuse_in_header *in = (const void *)memory;
                struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
                struct fuse_attr_out attr = {.attr = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2}};
                struct fuse_statfs_out statfs_out = {.st = {.namelen = 255}};
                if (in->opcode == FUSE_INIT)
                        answer(s->fuse, in->unique, 0, &init, sizeof(init));
                else if (in->opcode == FUSE_GETATTR)
                        answer(s->fuse, in->unique, 0, &attr, sizeof(attr));
                else if (in->opcode == FUSE_STATFS)
                        answer(s->fuse, in->unique, 0, &statfs_out, sizeof(statfs_out));
                else if (in->opcode == FUSE_MKDIR)
                        (void)!write(s->held, "h", 1);
                else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT)
                        answer(s->fuse, in->unique, in->opcode == FUSE_LOOKUP ? -ENOENT : -ENOSYS, NULL, 0);
        }
}

static void *serve_main(void *arg) {
        serve(arg);
        return NULL;
}

static void *notify_main(void *arg) {
        struct fuse_notify_inval_entry_out out = {.parent = 1, .namelen = 1};
        struct fuse_out_header head = {.len = sizeof(head) + sizeof(out) + 2, .error = FUSE_NOTIFY_INVAL_ENTRY};
        struct iovec iov[3] = {{&head, sizeof(head)}, {&out, sizeof(out)}, {(char[2]){"x"}, 2}};
        (void)!writev(*(int *)arg, iov, 3);
        return NULL;
}

static void to_log_file(enum log_level level, const char *line, void *ctx) {
        (void)level;
        (void)ctx;
        (void)dprintf(log_file, "%s\n", line);
}

static int abort_file(void) {
        struct stat st;
        char name[64];
        int context = fsopen("fusectl", FSOPEN_CLOEXEC), root = -1;

        if (context >= 0 && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
                root = fsmount(context, FSMOUNT_CLOEXEC, 0);
        if (root < 0 || stat(mnt, &st) < 0)
                return -1;
        (void)snprintf(name, sizeof(name), "%u/abort", minor(st.st_dev));
        return openat(root, name, O_WRONLY | O_CLOEXEC);
}

struct made {
        bool guarded, file; /* a guardian; one that has the connection's file */
        enum stuck stuck;
        struct guardian_config config;
};

static void mount_fuse(struct served *s) {
        char options[128];

        s->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        (void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", s->fuse);
        if (s->fuse < 0 || mount("guardian-test", mnt, "fuse.coterie", MS_NODEV | MS_NOSUID, options) < 0)
                _exit(3);
}

/* commands: one byte each, from the test: n notify, s stop the guardian, b beat, e beat with the engine late, r rest. */
static _Noreturn void daemon_main_for_test(const struct made *m, int held, int commands) {
        struct served s = {.held = held};
        pthread_t thread;
        char command;

        log_set_sink(to_log_file, NULL);
        if (m->guarded && guardian_start(&m->config, &s.guardian) < 0)
                _exit(4);
        if (m->guarded)
                guardian_watch_crashes(s.guardian);
        mount_fuse(&s);
        (void)pthread_create(&thread, NULL, serve_main, &s);
        if (m->guarded)
                guardian_mounted(s.guardian, m->file ? abort_file() : -1);
        (void)!write(held, "m", 1);
        while (read(commands, &command, 1) == 1) {
                if (command == 'n' && m->stuck == STUCK_MAIN)
                        (void)notify_main(&s.fuse);
                else if (command == 'n')
                        (void)pthread_create(&thread, NULL, notify_main, &s.fuse);
                else if (command == 's')
                        guardian_stop(s.guardian);
                else if (command == 'b' || command == 'e')
                        guardian_beat(s.guardian, command == 'b' ? 0 : 1u << LOOP_ENGINE);
                else if (command == 'r')
                        guardian_rest(s.guardian);
                (void)!write(held, "d", 1);
        }
        _exit(0);
}

/* --- what the tests see */

struct rig {
        pid_t daemon, guardian, maker;
        int held, commands;
};

static void expect(const struct rig *r, char wanted) {
        char got = 0;
        ck_assert_int_eq(read(r->held, &got, 1), 1);
        ck_assert_int_eq(got, wanted);
}

static void command(const struct rig *r, char c) {
        ck_assert_int_eq(write(r->commands, &c, 1), 1);
}

static char state_of(pid_t pid, pid_t tid) {
        char path[64], text[512];

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
        if (n <= 0)
                return 0;
        text[n] = '\0';
        const char *end = strrchr(text, ')');
        return end ? end[2] : 0;
}

static bool has_stuck_thread(pid_t pid) {
        char path[48];
        bool stuck = false;

        (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        DIR *dir = opendir(path);
        for (const struct dirent *e; dir && (e = readdir(dir));)
                stuck = stuck || (e->d_name[0] != '.' && state_of(pid, (pid_t)strtol(e->d_name, NULL, 10)) == 'D');
        if (dir)
                (void)closedir(dir);
        return stuck;
}

static pid_t child_of(pid_t pid) {
        char path[96], text[64];

        (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        DIR *dir = opendir(path);
        pid_t child = 0;
        for (const struct dirent *e; dir && child == 0 && (e = readdir(dir));) {
                (void)snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int)pid, e->d_name);
                cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
                ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
                text[n > 0 ? n : 0] = '\0';
                child = (pid_t)strtol(text, NULL, 10);
        }
        if (dir)
                (void)closedir(dir);
        return child;
}

static bool gone(pid_t pid) {
        char state = state_of(pid, pid);
        return state == 0 || state == 'Z' || state == 'X';
}

/* Everybody ended: the daemon with all its threads. */
static bool waited(pid_t pid, unsigned within_ms, int *ret_status) {
        for (unsigned i = 0; i < within_ms; i += 5, (void)usleep(5000)) {
                pid_t ended = waitpid(pid, ret_status, WNOHANG);
                if (ended != 0)
                        return ended == pid;
        }
        return false;
}

static bool until_gone(pid_t pid, unsigned within_ms) {
        for (unsigned i = 0; i < within_ms; i += 5, (void)usleep(5000))
                if (gone(pid))
                        return true;
        return false;
}

static size_t logged(const char *part) {
        char text[8192];
        cleanup_fd int fd = open(log_path, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, sizeof(text) - 1);
        size_t found = 0;

        text[n > 0 ? n : 0] = '\0';
        for (const char *p = text; (p = strstr(p, part)); p++)
                found++;
        return found;
}

static bool until_logged(const char *part, unsigned within_ms) {
        for (unsigned i = 0; i < within_ms; i += 5, (void)usleep(5000))
                if (logged(part) > 0)
                        return true;
        return false;
}

static void rig_start(struct rig *r, struct made *m) {
        int held[2], commands[2];

        strcpy(mnt, "/tmp/coterie-guardian-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(mnt));
        (void)snprintf(log_path, sizeof(log_path), "%s.log", mnt);
        log_file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        m->config.mountpoint = mnt;
        m->config.log_fd = log_file;
        if (m->config.hang_report_ms == 0)
                m->config.hang_report_ms = m->config.hang_kill_ms = UINT64_MAX;
        ck_assert_int_eq(pipe2(held, O_CLOEXEC) | pipe2(commands, O_CLOEXEC), 0);
        *r = (struct rig){.held = held[0], .commands = commands[1]};
        if ((r->daemon = fork()) == 0)
                daemon_main_for_test(m, held[1], commands[0]);
        (void)close(held[1]);
        (void)close(commands[0]);
        expect(r, 'm');
        r->guardian = child_of(r->daemon);
        ck_assert_int_eq(r->guardian > 0, m->guarded);
}

/* A process waits for the daemon within the directory, and a thread of the daemon for the process. */
static void rig_get_stuck(struct rig *r) {
        char path[80];

        (void)snprintf(path, sizeof(path), "%s/x", mnt);
        if ((r->maker = fork()) == 0)
                _exit(mkdir(path, 0755) < 0 && (errno == ENOTCONN || errno == ECONNABORTED) ? 0 : 1);
        expect(r, 'h');
        command(r, 'n');
        for (unsigned i = 0; i < 2000 && !has_stuck_thread(r->daemon); i++)
                (void)usleep(1000);
        ck_assert(has_stuck_thread(r->daemon));
}

static void rig_end(struct rig *r) {
        (void)kill(r->daemon, SIGKILL);
        (void)umount2(mnt, MNT_FORCE);
        (void)umount2(mnt, MNT_DETACH);
        (void)waited(r->daemon, 2000, NULL);
        (void)rmdir(mnt);
        (void)unlink(log_path);
        (void)close(r->held);
        (void)close(r->commands);
        (void)close(log_file);
}

static bool can_mount(void) {
        if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && access("/dev/fuse", R_OK | W_OK) == 0)
                return true;
        (void)printf("skipped: guardian: needs root and /dev/fuse\n");
        return false;
}

/* --- tests */

static void all_end(struct rig *r, int signal) {
        int status = 0;

        ck_assert_msg(waited(r->daemon, 2000, &status), "the daemon has not ended");
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == signal);
        ck_assert_msg(waited(r->maker, 2000, &status), "a process still waits for the daemon");
        ck_assert_int_eq(status, 0);
        ck_assert_msg(until_gone(r->guardian, 2000), "the guardian has not ended");
}

static void killed_while_stuck(struct made *m, int signal) {
        struct rig r;

        if (!can_mount())
                return;
        m->guarded = true;
        rig_start(&r, m);
        rig_get_stuck(&r);
        ck_assert_int_eq(kill(r.daemon, signal), 0);
        all_end(&r, signal);
        ck_assert_uint_eq(logged("cut off"), 1);
        rig_end(&r);
}

START_TEST(killed) {
        killed_while_stuck(&(struct made){.file = true, .stuck = STUCK_THREAD}, SIGKILL);
}
END_TEST
START_TEST(killed_with_the_main_thread_stuck) {
        killed_while_stuck(&(struct made){.file = true, .stuck = STUCK_MAIN}, SIGKILL);
}
END_TEST
START_TEST(killed_without_the_file) {
        killed_while_stuck(&(struct made){.stuck = STUCK_THREAD}, SIGKILL);
}
END_TEST
START_TEST(crashed) { /* no thread ends while the core is being written, and that waits for the stuck one */
        killed_while_stuck(&(struct made){.file = true, .stuck = STUCK_THREAD}, SIGABRT);
}
END_TEST

/* What it is for: the same without a guardian. */
START_TEST(killed_without_a_guardian) {
        struct rig r;
        int status;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.stuck = STUCK_THREAD});
        rig_get_stuck(&r);
        ck_assert_int_eq(kill(r.daemon, SIGKILL), 0);
        ck_assert(!waited(r.daemon, 500, &status));
        ck_assert(!waited(r.maker, 10, &status));
        (void)umount2(mnt, MNT_FORCE);
        ck_assert(waited(r.daemon, 2000, &status));
        ck_assert(waited(r.maker, 2000, &status));
        rig_end(&r);
}
END_TEST

static bool is_mounted(void) {
        struct stat here, above;
        char up[80];

        (void)snprintf(up, sizeof(up), "%s/..", mnt);
        return stat(mnt, &here) < 0 || (stat(up, &above) == 0 && here.st_dev != above.st_dev);
}

START_TEST(dead_mount_stays_or_goes) {
        struct rig r;
        struct stat st;

        if (!can_mount())
                return;
        for (int detach = 0; detach < 2; detach++) {
                rig_start(&r, &(struct made){.guarded = true, .file = true, .config = {.detach = detach == 1}});
                ck_assert_int_eq(kill(r.daemon, SIGKILL), 0);
                ck_assert(until_gone(r.guardian, 2000));
                ck_assert_int_eq(is_mounted(), !detach);
                if (!detach)
                        ck_assert(stat(mnt, &st) < 0 && errno == ENOTCONN);
                rig_end(&r);
        }
}
END_TEST

START_TEST(does_nothing_at_a_stop) {
        struct rig r;
        struct stat st;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.guarded = true, .file = true});
        command(&r, 's');
        expect(&r, 'd');
        ck_assert(gone(r.guardian));
        ck_assert_int_eq(stat(mnt, &st), 0); /* it is still served */
        ck_assert_uint_eq(logged("\n"), 0);
        rig_end(&r);
}
END_TEST

START_TEST(signals_of_others_do_not_touch_it) {
        struct rig r;
        struct stat st;
        char name[32] = "";

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.guarded = true, .file = true});
        ck_assert_int_ne(getpgid(r.guardian), getpgid(r.daemon));
        for (int s = 1; s <= SIGRTMAX; s++)
                if (s != SIGKILL && s != SIGSTOP && s != 32 && s != 33) /* two are the C library's, which blocks them for nobody */
                        (void)kill(r.guardian, s);
        (void)usleep(100000);
        ck_assert(!gone(r.guardian));
        ck_assert_int_eq(stat(mnt, &st), 0);
        ck_assert_uint_eq(logged("cut off"), 0);
        char path[48];
        (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)r.guardian);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        (void)!read(fd, name, sizeof(name) - 1);
        ck_assert_int_eq(strncmp(name, "coteried: guardian", MIN_OF(strlen(name), sizeof("coteried: guardian") - 1)), 0);
        ck_assert_uint_ge(strlen(name), 4); /* as much as there was room for */
        rig_end(&r);
}
END_TEST

START_TEST(its_own_end_is_told) {
        struct rig r;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.guarded = true, .file = true});
        ck_assert_int_eq(kill(r.guardian, SIGKILL), 0);
        ck_assert(until_gone(r.guardian, 2000));
        for (int i = 0; i < 3; i++) {
                command(&r, 'b');
                expect(&r, 'd');
        }
        ck_assert_uint_eq(logged("guardian process has ended"), 1);
        command(&r, 's'); /* stopping one that is gone is no trouble */
        expect(&r, 'd');
        rig_end(&r);
}
END_TEST

START_TEST(hanging_is_reported_once) {
        struct rig r;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.guarded = true, .config = {.hang_report_ms = 300, .hang_kill_ms = UINT64_MAX}});
        (void)usleep(400000);
        ck_assert_uint_eq(logged("\n"), 0); /* it begins with the first beat: a start may take long */
        command(&r, 'b');
        for (int i = 0; i < 8; i++, (void)usleep(50000))
                command(&r, 'e');
        ck_assert_uint_eq(logged("its engine has made no step"), 1);
        command(&r, 'b');
        ck_assert(until_logged("the engine goes on", 2000));
        ck_assert(until_logged("its main loop has made no step", 2000)); /* no beat at all */
        (void)usleep(400000);
        ck_assert_uint_eq(logged("has made no step"), 2);
        command(&r, 'r');
        (void)usleep(400000);
        ck_assert_uint_eq(logged("has made no step"), 2);
        ck_assert(!gone(r.daemon));
        rig_end(&r);
}
END_TEST

START_TEST(stopped_is_said_to_be_stopped) {
        struct rig r;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){.guarded = true, .config = {.hang_report_ms = 300, .hang_kill_ms = UINT64_MAX}});
        command(&r, 'b');
        expect(&r, 'd');
        (void)kill(r.daemon, SIGSTOP);
        ck_assert(until_logged("it received SIGSTOP", 2000));
        ck_assert_uint_eq(logged("made no step"), 0);
        (void)kill(r.daemon, SIGCONT);
        rig_end(&r);
}
END_TEST

START_TEST(hanging_may_be_ended) {
        struct rig r;

        if (!can_mount())
                return;
        rig_start(&r, &(struct made){
                              .guarded = true, .file = true, .stuck = STUCK_MAIN, .config = {.hang_report_ms = 200, .hang_kill_ms = 400}});
        command(&r, 'b');
        expect(&r, 'd');
        rig_get_stuck(&r);
        all_end(&r, SIGKILL);
        ck_assert_uint_eq(logged("is killed"), 1);
        rig_end(&r);
}
END_TEST

static Suite *guardian_suite(void) {
        const TTest *const tests[] = {killed,
                                      killed_with_the_main_thread_stuck,
                                      killed_without_the_file,
                                      crashed,
                                      killed_without_a_guardian,
                                      dead_mount_stays_or_goes,
                                      does_nothing_at_a_stop,
                                      signals_of_others_do_not_touch_it,
                                      its_own_end_is_told,
                                      hanging_is_reported_once,
                                      stopped_is_said_to_be_stopped,
                                      hanging_may_be_ended};
        return suite_of("guardian", tests, ARRAY_LEN(tests));
}
UNIT_SUITE(guardian_suite)
