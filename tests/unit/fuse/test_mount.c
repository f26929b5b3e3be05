/* Mounting, refusing to, dead mounts, stopping. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* The line of /proc/mounts for a mount point. */
static bool find_line(const char *mountpoint, char *ret, size_t size) {
        FILE *f = fopen("/proc/mounts", "re");
        ck_assert_ptr_nonnull(f);
        char line[1024], point[512];
        bool found = false;
        while (!found && fgets(line, sizeof(line), f))
                found = sscanf(line, "%*s %511s", point) == 1 && strcmp(point, mountpoint) == 0;
        fclose(f);
        if (found)
                (void)snprintf(ret, size, "%s", line);
        return found;
}

START_TEST(shows_its_type) {
        struct fixture f;
        char line[1024];
        fixture_start(&f, NULL);
        ck_assert(find_line(f.mountpoint, line, sizeof(line)));
        ck_assert_ptr_nonnull(strstr(line, " fuse.coterie "));
        ck_assert_ptr_nonnull(strstr(line, "nosuid,nodev"));
        ck_assert_ptr_nonnull(strstr(line, "default_permissions,allow_other"));
        ck_assert_uint_eq(fuse_edge_max_write(f.edge), MIB);
        fixture_unmount(&f);
        ck_assert(!find_line(f.mountpoint, line, sizeof(line)));
        fixture_release(&f);
}
END_TEST

START_TEST(obeys_its_options) {
        struct fixture f;
        char line[1024];
        struct fuse_edge_config c = fixture_config();
        c.allow_dev = c.allow_suid = c.read_only = true;
        c.max_write = 128 * 1024;
        c.threads = 1;
        fixture_start(&f, &c);
        ck_assert(find_line(f.mountpoint, line, sizeof(line)));
        ck_assert_ptr_null(strstr(line, "nosuid"));
        ck_assert_ptr_null(strstr(line, "nodev"));
        ck_assert_ptr_nonnull(strstr(line, " ro,"));
        ck_assert_uint_eq(fuse_edge_max_write(f.edge), 128 * KIB);
        ck_assert_int_eq(mkdir(fixture_path(&f, "d"), 0755), -1);
        ck_assert_int_eq(errno, EROFS);
        fixture_stop(&f);
}
END_TEST

START_TEST(names_what_is_wrong) {
        static const struct {
                const char *mountpoint;
                errint_t error;
                const char *cause, *remedy;
        } cases[] = {
                {"/tmp/coterie-no-such-directory", -ENOENT, "does not exist", "mkdir -p"},
                {"/etc/passwd", -ENOTDIR, "is not a directory", "name a directory"},
        };
        struct fixture f;
        fixture_prepare(&f);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct fuse_edge_config c = fixture_config();
                char reason[512] = "";
                c.mountpoint = cases[i].mountpoint;
                ck_assert_int_eq(fixture_mount(&f, &c, reason, sizeof(reason)), cases[i].error);
                ck_assert_ptr_nonnull(strstr(reason, cases[i].cause));
                ck_assert_ptr_nonnull(strstr(reason, cases[i].remedy));
                ck_assert_ptr_nonnull(strstr(reason, cases[i].mountpoint));
                ck_assert_ptr_null(strchr(reason, '\n'));
        }
        fixture_release(&f);
}
END_TEST

START_TEST(refuses_a_living_mount) {
        struct fixture f;
        fixture_start(&f, NULL);
        struct fuse_edge_config c = fixture_config();
        c.fs = f.fs;
        c.metrics = &f.metrics;
        c.mountpoint = f.mountpoint;
        struct fuse_edge *second = NULL;
        char reason[512] = "";
        ck_assert_int_eq(fuse_edge_start(&c, &second, reason, sizeof(reason)), -EBUSY);
        ck_assert_ptr_nonnull(strstr(reason, "already mounted"));
        ck_assert_ptr_null(second);
        struct stat st;
        ck_assert_int_eq(stat(f.mountpoint, &st), 0); /* the first is not disturbed */
        fixture_stop(&f);
}
END_TEST

/* Mounts in a process that is then killed while another one sits in the mount. */
static void leave_dead_mount(char mountpoint[static 64], pid_t *ret_sitter) {
        int ready[2];
        ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
        pid_t daemon = fork();
        ck_assert_int_ge(daemon, 0);
        if (daemon == 0) {
                struct fixture f;
                fixture_start(&f, NULL);
                (void)!write(ready[1], f.mountpoint, sizeof(f.mountpoint));
                for (;;)
                        pause();
        }
        ck_assert_int_eq(read(ready[0], mountpoint, 64), 64);
        close(ready[0]);
        close(ready[1]);
        *ret_sitter = SH("cd \"$1\" && : > sits && exec sleep 100", "sh", mountpoint);
        struct stat st;
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/sits", mountpoint);
        while (stat(path, &st) < 0)
                usleep(1000);
        kill(daemon, SIGKILL);
        ck_assert_int_eq(waitpid(daemon, NULL, 0), daemon);
        (void)snprintf(path, sizeof(path), "%s/other", mountpoint);
        ck_assert_int_eq(stat(path, &st), -1);
        ck_assert_int_eq(errno, ENOTCONN);
}

START_TEST(detaches_a_dead_mount) {
        struct fixture f;
        pid_t sitter;
        char dead[64], reason[512] = "", line[1024];
        leave_dead_mount(dead, &sitter);
        fixture_prepare(&f);
        ck_assert_int_eq(rmdir(f.mountpoint), 0);
        memcpy(f.mountpoint, dead, sizeof(dead));
        ck_assert_msg(fixture_mount(&f, NULL, reason, sizeof(reason)) == 0, "%s", reason);
        ck_assert_int_eq(mkdir(fixture_path(&f, "works"), 0755), 0);
        kill(sitter, SIGKILL);
        ck_assert_int_eq(fixture_wait_exit(sitter, 2000), 128 + SIGKILL);
        fixture_unmount(&f);
        ck_assert(!find_line(f.mountpoint, line, sizeof(line))); /* neither the new one nor the dead one */
        fixture_release(&f);
}
END_TEST

START_TEST(mounts_over_files) {
        struct fixture f;
        char path[128], reason[512] = "";
        fixture_prepare(&f);
        (void)snprintf(path, sizeof(path), "%s/hidden", f.mountpoint);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
        ck_assert_int_eq(fixture_mount(&f, NULL, reason, sizeof(reason)), 0);
        ck_assert_int_eq(access(path, F_OK), -1);
        fixture_unmount(&f);
        ck_assert_int_eq(unlink(path), 0);
        fixture_release(&f);
}
END_TEST

START_TEST(stops_while_busy) {
        struct fixture f;
        char line[1024];
        fixture_start(&f, NULL);
        pid_t sitter = SH("cd \"$1\" && exec 5> open && echo x >&5 && : > ready && sleep 100", "sh", f.mountpoint);
        struct stat st;
        while (stat(fixture_path(&f, "ready"), &st) < 0)
                usleep(1000);
        fixture_unmount(&f);
        ck_assert(!find_line(f.mountpoint, line, sizeof(line)));
        ck_assert_int_eq(fixture_wait_exit(sitter, 0), -1);
        kill(sitter, SIGKILL);
        ck_assert_int_eq(fixture_wait_exit(sitter, 2000), 128 + SIGKILL); /* not in D state */
        fixture_release(&f);
}
END_TEST

START_TEST(stops_while_an_operation_waits) {
        struct fixture f;
        fixture_start(&f, NULL);
        fixture_hold(&f);
        pid_t client = SH("mkdir \"$1/d\" 2> /dev/null && exit 0; exit 7", "sh", f.mountpoint);
        fixture_wait_held(&f, 1);
        /* Expiring this name is held up by the client, and must not hold up the end. */
        struct op op = {.kind = OP_CREATE, .create = {.parent = INO_ROOT, .name = op_name_of("d"), .mode = S_IFREG | 0644}};
        ck_assert_int_eq(fixture_remote_async(&f, &op, NULL).error, 0);
        fixture_unmount(&f);
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 7); /* EIO, and no D state */
        fixture_let_go(&f);                                   /* its end comes after the edge is gone: nothing happens */
        fixture_release(&f);
}
END_TEST

START_TEST(tells_when_it_is_unmounted_from_outside) {
        struct fixture f;
        fixture_start(&f, NULL);
        ck_assert_int_eq(umount2(f.mountpoint, 0), 0);
        pthread_mutex_lock(&f.lock);
        while (f.ended == 0)
                pthread_cond_wait(&f.changed, &f.lock);
        pthread_mutex_unlock(&f.lock);
        fixture_unmount(&f);
        ck_assert_uint_eq(f.ended, 1);
        fixture_release(&f);
}
END_TEST

START_TEST(leaves_what_was_mounted_over_it) {
        struct fixture f;
        char line[1024];
        fixture_start(&f, NULL);
        ck_assert_int_eq(mount("none", f.mountpoint, "tmpfs", 0, NULL), 0);
        fixture_unmount(&f);
        ck_assert(find_line(f.mountpoint, line, sizeof(line)));
        ck_assert_int_eq(umount2(f.mountpoint, 0), 0);
        ck_assert_int_eq(umount2(f.mountpoint, MNT_DETACH), 0); /* ours, dead by now */
        fixture_release(&f);
}
END_TEST

/* Stores through a mapping are in the page cache alone until somebody writes them back. */
START_TEST(writes_back_mapped_pages_when_stopped) {
        struct fixture f;
        fixture_start(&f, NULL);
        int fd = open(fixture_path(&f, "mapped"), O_CREAT | O_RDWR, 0644);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, "old bytes", 9), 9);
        char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        close(fd);
        memcpy(p, "new", 3);
        fixture_unmount(&f);
        munmap(p, 4096);
        fs_tick(f.fs, UINT64_MAX); /* what was gathered becomes an operation */
        uint64_t ino = fixture_ino(&f, INO_ROOT, "mapped");
        struct blob *b = NULL;
        char text[16] = "";
        const struct state *s = shared_state_read(f.state);
        ck_assert_int_eq(tree_content(s->tree, ino, &b), 0);
        shared_state_done_read(f.state);
        ck_assert_uint_eq(blob_read(b, 0, text, sizeof(text)), 9);
        ck_assert_str_eq(text, "new bytes");
        blob_unref(b);
        fixture_release(&f);
}
END_TEST

/* Starting and stopping leaves nothing behind: descriptors, threads. */
static unsigned count_entries(const char *dir) {
        char command[128];
        (void)snprintf(command, sizeof(command), "ls %s | wc -l", dir);
        FILE *p = popen(command, "re");
        unsigned n = 0;
        ck_assert_int_eq(fscanf(p, "%u", &n), 1);
        pclose(p);
        return n;
}

START_TEST(leaves_nothing_behind) {
        char fds[64], tasks[64];
        (void)snprintf(fds, sizeof(fds), "/proc/%d/fd", getpid());
        (void)snprintf(tasks, sizeof(tasks), "/proc/%d/task", getpid());
        unsigned n_fds = 0, n_tasks = 0;
        for (int i = 0; i < 10; i++) {
                if (i == 1) { /* after the first: sanitizers have threads of their own */
                        n_fds = count_entries(fds);
                        n_tasks = count_entries(tasks);
                }
                struct fixture f;
                fixture_start(&f, NULL);
                ck_assert_int_eq(mkdir(fixture_path(&f, "d"), 0755), 0);
                fixture_stop(&f);
        }
        ck_assert_uint_le(count_entries(fds), n_fds);
        ck_assert_uint_le(count_entries(tasks), n_tasks);
}
END_TEST

Suite *suite_mount(void) {
        Suite *s = suite_create("mount");
        TCase *c = tcase_create("mount");
        tcase_set_timeout(c, 20);
        tcase_add_test(c, shows_its_type);
        tcase_add_test(c, obeys_its_options);
        tcase_add_test(c, names_what_is_wrong);
        tcase_add_test(c, refuses_a_living_mount);
        tcase_add_test(c, detaches_a_dead_mount);
        tcase_add_test(c, mounts_over_files);
        tcase_add_test(c, stops_while_busy);
        tcase_add_test(c, stops_while_an_operation_waits);
        tcase_add_test(c, tells_when_it_is_unmounted_from_outside);
        tcase_add_test(c, leaves_what_was_mounted_over_it);
        tcase_add_test(c, writes_back_mapped_pages_when_stopped);
        tcase_add_test(c, leaves_nothing_behind);
        suite_add_tcase(s, c);
        return s;
}
