/* What other nodes change is seen here once the edge calls it clear; nothing that a local operation holds up can delay that for ever. */
#include "fixture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static struct fixture f;

static void setup(void) {
        fixture_start(&f, NULL);
}
static void setup_without_epoch(void) {
        struct fuse_edge_config c = fixture_config();
        c.no_epoch = true;
        fixture_start(&f, &c);
}
static void teardown(void) {
        fixture_stop(&f);
}

/* One reply of a worker can be delayed between being built and being written: this stands in front of libfuse's. It is told by its size:
 * an entry has 128 bytes, attributes have fewer, listings more. */
enum { DELAY_ENTRY_MIN = 128, DELAY_ENTRY_MAX = 128, DELAY_LISTING_MIN = 200, DELAY_LISTING_MAX = 1 << 20 };
static _Atomic size_t delay_min = SIZE_MAX, delay_max;
static _Atomic int delayed;
static int (*real_reply)(fuse_req_t, const char *, size_t);
static void find_real_reply(void) {
        *(void **)&real_reply = dlsym(RTLD_NEXT, "fuse_reply_buf");
}
int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size) {
        static pthread_once_t once = PTHREAD_ONCE_INIT; /* workers are many */
        (void)pthread_once(&once, find_real_reply);
        if (size >= atomic_load(&delay_min) && size <= atomic_load(&delay_max)) {
                atomic_store(&delay_min, SIZE_MAX);
                atomic_store(&delayed, 1);
                while (atomic_load(&delayed) == 1)
                        usleep(100);
        }
        return real_reply(req, buf, size);
}

static void delay(size_t min, size_t max) {
        atomic_store(&delay_max, max);
        atomic_store(&delay_min, min);
}

static void expect_content(const char *name, const char *want) {
        char got[256] = "";
        int fd = open(fixture_path(&f, name), O_RDONLY);
        ck_assert_msg(fd >= 0, "open %s: %s", name, strerror(errno));
        ck_assert_int_ge(read(fd, got, sizeof(got) - 1), 0);
        ck_assert_str_eq(got, want);
        close(fd);
}

static bool exists(const char *name) {
        struct stat st;
        return lstat(fixture_path(&f, name), &st) == 0;
}

/* Not by opendir(3): that asks for the attributes of the directory as well, which would tell the kernel that its listing is old. */
static bool listed(const char *dir, const char *name, unsigned *ret_n) {
        char buf[4096];
        int fd = open(dir, O_RDONLY | O_DIRECTORY);
        ck_assert_int_ge(fd, 0);
        unsigned n = 0;
        bool found = false;
        for (ssize_t len; (len = getdents64(fd, buf, sizeof(buf))) > 0;)
                for (ssize_t at = 0; at < len; n++) {
                        const struct dirent64 *e = (const struct dirent64 *)(const void *)(buf + at);
                        found |= strcmp(e->d_name, name) == 0;
                        at += e->d_reclen;
                }
        close(fd);
        if (ret_n)
                *ret_n = n;
        return found;
}

static unsigned list(const char *dir) {
        unsigned n = 0;
        (void)listed(dir, "", &n);
        return n;
}

static struct op_result remote_unlink(uint64_t parent, const char *name) {
        struct op op = {.kind = OP_UNLINK, .unlink = {.parent = parent, .name = op_name_of(name)}};
        return fixture_remote(&f, &op);
}

static struct op_result remote_rename(uint64_t parent, const char *name, uint64_t new_parent, const char *new_name) {
        struct op op = {.kind = OP_RENAME,
                        .rename = {.parent = parent, .name = op_name_of(name), .new_parent = new_parent, .new_name = op_name_of(new_name)}};
        return fixture_remote(&f, &op);
}

START_TEST(names_come_and_go) {
        ck_assert(!exists("a"));
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644);
        ck_assert(exists("a"));
        fixture_remote_write(&f, ino, "remote");
        expect_content("a", "remote");
        fixture_remote_write(&f, ino, "remote, and longer");
        expect_content("a", "remote, and longer");
        fixture_remote_write(&f, ino, "short");
        expect_content("a", "short");
        ck_assert_uint_eq(list(f.mountpoint), 3);
        ck_assert_int_eq(remote_rename(INO_ROOT, "a", INO_ROOT, "b").error, 0);
        ck_assert(!exists("a"));
        ck_assert(exists("b"));
        ck_assert_uint_eq(list(f.mountpoint), 3);
        ck_assert_int_eq(remote_unlink(INO_ROOT, "b").error, 0);
        ck_assert(!exists("b"));
        ck_assert_uint_eq(list(f.mountpoint), 2);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_EPOCHS), 0);
}
END_TEST

START_TEST(attributes_follow) {
        struct stat st;
        char value[16];
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644);
        ck_assert_int_eq(stat(fixture_path(&f, "a"), &st), 0);
        struct op chmod_op = {.kind = OP_SETATTR, .setattr = {.ino = ino, .mask = SETATTR_MODE | SETATTR_UID, .mode = 0600, .uid = 42}};
        ck_assert_int_eq(fixture_remote(&f, &chmod_op).error, 0);
        ck_assert_int_eq(stat(fixture_path(&f, "a"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
        ck_assert_uint_eq(st.st_uid, 42);
        struct op link_op = {.kind = OP_LINK, .link = {.ino = ino, .parent = INO_ROOT, .name = op_name_of("b")}};
        ck_assert_int_eq(fixture_remote(&f, &link_op).error, 0);
        ck_assert_int_eq(stat(fixture_path(&f, "a"), &st), 0);
        ck_assert_uint_eq(st.st_nlink, 2);
        struct op xattr_op = {.kind = OP_SETXATTR,
                              .setxattr = {.ino = ino, .name = op_name_of("user.k"), .value = (const uint8_t *)"v", .len = 1}};
        ck_assert_int_eq(fixture_remote(&f, &xattr_op).error, 0);
        ck_assert_int_eq(getxattr(fixture_path(&f, "a"), "user.k", value, sizeof(value)), 1);
        ck_assert_int_eq(remote_unlink(INO_ROOT, "a").error, 0);
        ck_assert_int_eq(stat(fixture_path(&f, "b"), &st), 0);
        ck_assert_uint_eq(st.st_nlink, 1);
}
END_TEST

START_TEST(open_files_see_changes_in_place) {
        char got[64] = "";
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "log", S_IFREG | 0644);
        fixture_remote_write(&f, ino, "line 1\n");
        int fd = open(fixture_path(&f, "log"), O_RDONLY);
        ck_assert_int_eq(read(fd, got, sizeof(got)), 7);
        fixture_remote_write(&f, ino, "line 1\nline 2\n");
        ck_assert_int_eq(read(fd, got, sizeof(got)), 7); /* as tail -f does */
        ck_assert_mem_eq(got, "line 2\n", 7);
        fixture_remote_write(&f, ino, "LINE 1\n");
        ck_assert_int_eq(pread(fd, got, sizeof(got), 0), 7);
        ck_assert_mem_eq(got, "LINE 1\n", 7);
        ck_assert_int_eq(remote_unlink(INO_ROOT, "log").error, 0);
        ck_assert_int_eq(pread(fd, got, sizeof(got), 0), 7); /* open files keep what they have */
        close(fd);
}
END_TEST

/* Neither a mount inside the tree nor a working directory notices; nothing unrelated is asked for again. */
START_TEST(what_is_in_use_stays) {
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755);
        uint64_t under = fixture_remote_create(&f, d, "under", S_IFDIR | 0755);
        fixture_remote_write(&f, fixture_remote_create(&f, INO_ROOT, "other", S_IFREG | 0644), "cached");
        ck_assert_int_eq(mount("/etc", fixture_path(&f, "d/under"), NULL, MS_BIND, NULL), 0);
        pid_t sitter = SH("cd \"$1/d\" && : > sits && while [ ! -e stop ]; do sleep 0.01; done; [ \"$(pwd -P)\" = \"$1/moved\" ]", "sh",
                          f.mountpoint);
        while (!exists("d/sits"))
                usleep(1000);
        expect_content("other", "cached");
        uint64_t reads = fixture_metric(&f, METRIC_READS);
        for (int i = 0; i < 20; i++) {
                fixture_remote_create(&f, d, "x", S_IFREG | 0644);
                ck_assert_int_eq(remote_unlink(d, "x").error, 0);
                fixture_remote_create(&f, under, i % 2 ? "even" : "odd", S_IFREG | 0644);
                ck_assert_int_eq(remote_unlink(under, i % 2 ? "even" : "odd").error, 0);
                ck_assert(exists("d/under/passwd"));
        }
        uint64_t lookups = fixture_metric(&f, METRIC_LOOKUPS);
        fixture_remote_create(&f, under, "unrelated", S_IFREG | 0644);
        expect_content("other", "cached");
        ck_assert_uint_eq(fixture_metric(&f, METRIC_LOOKUPS), lookups);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READS), reads);
        ck_assert_uint_eq(fixture_metric(&f, METRIC_EPOCHS), 0);
        ck_assert_int_eq(remote_rename(INO_ROOT, "d", INO_ROOT, "moved").error, 0);
        ck_assert(exists("moved/sits")); /* first: who asks for the old name first makes the kernel detach what is mounted below it */
        ck_assert(exists("moved/under/passwd"));
        ck_assert(!exists("d"));
        ck_assert_int_eq(umount2(fixture_path(&f, "moved/under"), 0), 0);
        fixture_remote_create(&f, d, "stop", S_IFREG | 0644);
        ck_assert_int_eq(fixture_wait_exit(sitter, 5000), 0);
}
END_TEST

/* A local operation holds the directory's lock until it is answered, and it is answered only after the remote change is clear. */
START_TEST(a_held_up_name_raises_the_epoch) {
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755), seq = 0;
        ck_assert(!exists("d/remote"));
        fixture_hold(&f);
        pid_t client = SH("mkdir \"$1/d/local\"", "sh", f.mountpoint);
        fixture_wait_held(&f, 1);
        struct op op = {.kind = OP_CREATE, .create = {.parent = d, .name = op_name_of("remote"), .mode = S_IFREG | 0644}};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_uint_ge(fixture_metric(&f, METRIC_EPOCHS), 1);
        ck_assert_int_eq(fixture_wait_exit(client, 0), -1); /* still waits */
        op.create.name = op_name_of("second");              /* behind one that is still stuck */
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        uint64_t epochs = fixture_metric(&f, METRIC_EPOCHS);
        fixture_remote_create(&f, INO_ROOT, "elsewhere", S_IFREG | 0644); /* another directory is not held up */
        ck_assert_uint_eq(fixture_metric(&f, METRIC_EPOCHS), epochs);
        ck_assert(exists("elsewhere"));
        fixture_let_go(&f);
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert(exists("d/remote"));
        ck_assert(exists("d/second"));
        ck_assert(exists("d/local"));
}
END_TEST

START_TEST(many_held_up_directories) {
        uint64_t dirs[8], seq = 0;
        pid_t clients[8];
        char name[16];
        for (unsigned i = 0; i < 8; i++) {
                (void)snprintf(name, sizeof(name), "d%u", i);
                dirs[i] = fixture_remote_create(&f, INO_ROOT, name, S_IFDIR | 0755);
        }
        fixture_hold(&f);
        for (unsigned i = 0; i < 8; i++) {
                (void)snprintf(name, sizeof(name), "d%u/x", i);
                clients[i] = SH("mkdir \"$1/$2\"", "sh", f.mountpoint, name);
        }
        fixture_wait_held(&f, 4); /* as many as there are workers, at least: operations do not hold workers up */
        fixture_wait_held(&f, 8);
        for (unsigned i = 0; i < 8; i++) {
                struct op op = {.kind = OP_CREATE, .create = {.parent = dirs[i], .name = op_name_of("remote"), .mode = S_IFREG | 0644}};
                ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        }
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        fixture_let_go(&f);
        for (unsigned i = 0; i < 8; i++) {
                ck_assert_int_eq(fixture_wait_exit(clients[i], 2000), 0);
                (void)snprintf(name, sizeof(name), "d%u/remote", i);
                ck_assert(exists(name));
        }
}
END_TEST

/* The reply of a LOOKUP is built, the inode changes and is notified (which the kernel ignores: it does not know the inode yet),
 * the reply is written: stale for ever, if nothing is done. */
START_TEST(a_late_reply_does_not_go_stale) {
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644), seq = 0;
        fixture_remote_write(&f, ino, "old");
        delay(DELAY_ENTRY_MIN, DELAY_ENTRY_MAX);
        pid_t client = SH("exec stat \"$1/a\" > /dev/null", "sh", f.mountpoint);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        const char *text = "new and longer";
        struct extent x = {.length = strlen(text)};
        struct op op = {.kind = OP_WRITE, .write = {.ino = ino, .keep = 0, .size = x.length, .extents = &x, .n_extents = 1}};
        op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = x.length, .data = (const uint8_t *)text, .len = x.length};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert(!fixture_wait_clear(&f, seq, 100)); /* not before the reply that may be stale has been written and looked at */
        atomic_store(&delayed, 2);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        struct stat st;
        ck_assert_int_eq(stat(fixture_path(&f, "a"), &st), 0);
        ck_assert_int_eq(st.st_size, (off_t)strlen(text));
        expect_content("a", text);
}
END_TEST

START_TEST(a_late_listing_does_not_go_stale) {
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755), seq = 0;
        for (int i = 0; i < 3; i++)
                fixture_remote_create(&f, d, (const char *[]){"x", "y", "z"}[i], S_IFREG | 0644);
        struct stat st;
        ck_assert_int_eq(stat(fixture_path(&f, "d"), &st), 0);
        delay(DELAY_LISTING_MIN, DELAY_LISTING_MAX);
        pid_t client = SH("exec ls -f \"$1/d\" > /dev/null", "sh", f.mountpoint);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        struct op op = {.kind = OP_CREATE, .create = {.parent = d, .name = op_name_of("late"), .mode = S_IFREG | 0644}};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        (void)fixture_wait_clear(&f, seq, 50);
        atomic_store(&delayed, 2);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert(listed(fixture_path(&f, "d"), "late", NULL));
}
END_TEST

static void mark(void *ctx, uint64_t seq) {
        (void)seq;
        atomic_store((_Atomic uint64_t *)ctx, 1);
}

START_TEST(late_attributes_of_a_listing_do_not_go_stale) {
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755), seq = 0;
        uint64_t x = fixture_remote_create(&f, d, "x", S_IFREG | 0644);
        fixture_remote_create(&f, d, "y", S_IFREG | 0644);
        struct stat st;
        ck_assert_int_eq(stat(fixture_path(&f, "d"), &st), 0);
        delay(DELAY_LISTING_MIN, DELAY_LISTING_MAX);
        pid_t client = SH("exec ls -l \"$1/d\" > /dev/null", "sh", f.mountpoint);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        struct op op = {.kind = OP_SETATTR, .setattr = {.ino = x, .mask = SETATTR_MODE, .mode = 0600}};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert(!fixture_wait_clear(&f, seq, 50));
        atomic_store(&delayed, 2);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_int_eq(stat(fixture_path(&f, "d/x"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert_int_eq(stat(fixture_path(&f, "d/x"), &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

/* While the kernel has not been told of a change it goes by the old size: what it is given must be as old, in every part. */
START_TEST(a_change_is_seen_whole_or_not_at_all) {
        struct statx sx;
        char got[16] = "";
        uint64_t seq = 0, ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644);
        fixture_remote_write(&f, ino, "1.107");
        fixture_remote_create(&f, INO_ROOT, "b", S_IFREG | 0644);
        int fd = open(fixture_path(&f, "a"), O_RDONLY);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx), 0);
        delay(DELAY_ENTRY_MIN, DELAY_ENTRY_MAX); /* what notifications wait behind */
        pid_t client = SH("exec stat \"$1/b\" > /dev/null", "sh", f.mountpoint);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        struct extent x = {.length = 6};
        struct op op = {.kind = OP_WRITE, .write = {.ino = ino, .keep = 0, .size = 6, .extents = &x, .n_extents = 1}};
        op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = 6, .data = (const uint8_t *)"2.1070", .len = 6};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        uint64_t reads = fixture_metric(&f, METRIC_READS);
        ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), 5);
        ck_assert_str_eq(got, "1.107");
        ck_assert_uint_eq(fixture_metric(&f, METRIC_READS), reads + 1);
        ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE, &sx), 0);
        ck_assert_uint_eq(sx.stx_size, 5);
        ck_assert(!fixture_wait_clear(&f, seq, 0));
        atomic_store(&delayed, 2);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), 6);
        ck_assert_str_eq(got, "2.1070");
        ck_assert_int_eq(fstat(fd, &(struct stat){0}), 0);
        close(fd);
}
END_TEST

/* What was written here is seen here at once, whatever else the kernel has yet to be told. */
START_TEST(own_writes_are_seen_before_a_change_is_told) {
        struct stat st;
        char got[16] = "";
        uint64_t seq = 0, ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644);
        fixture_remote_write(&f, ino, "aaaaa");
        fixture_remote_create(&f, INO_ROOT, "b", S_IFREG | 0644);
        int fd = open(fixture_path(&f, "a"), O_RDWR);
        ck_assert_int_ge(fd, 0);
        delay(DELAY_ENTRY_MIN, DELAY_ENTRY_MAX);
        pid_t client = SH("exec stat \"$1/b\" > /dev/null", "sh", f.mountpoint);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        struct extent x = {.length = 6};
        struct op op = {.kind = OP_WRITE, .write = {.ino = ino, .keep = 0, .size = 6, .extents = &x, .n_extents = 1}};
        op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = 6, .data = (const uint8_t *)"bbbbbb", .len = 6};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert_int_eq(pwrite(fd, "ccccccc", 7, 0), 7);
        ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), 7);
        ck_assert_str_eq(got, "ccccccc");
        ck_assert_int_eq(fsync(fd), 0);
        ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), 7);
        ck_assert_str_eq(got, "ccccccc");
        atomic_store(&delayed, 2);
        ck_assert(fixture_wait_clear(&f, seq, 2000));
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert_int_eq(pread(fd, got, sizeof(got) - 1, 0), 7);
        ck_assert_str_eq(got, "ccccccc");
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_eq(st.st_size, 7);
        close(fd);
}
END_TEST

static _Atomic bool hogging;
static void *hog(void *arg) {
        (void)arg;
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(first), &first), 0);
        ck_assert_int_eq(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10}), 0);
        while (atomic_load(&hogging))
                ;
        return NULL;
}

/* The answer is written, but the process that asked does not get to run and to put it into the caches; meanwhile a change passes. */
/* Whether the client was kept from running until the change was clear: the scheduler may let it run all the same. */
static bool starve_client(const char *name) {
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, name, S_IFREG | 0644);
        fixture_remote_write(&f, ino, "old");
        atomic_store(&delayed, 0);
        delay(DELAY_ENTRY_MIN, DELAY_ENTRY_MAX);
        pid_t client = SH("exec taskset -c 0 stat \"$1/$2\" > /dev/null", "sh", f.mountpoint, name);
        while (atomic_load(&delayed) != 1)
                usleep(100);
        pthread_t thread;
        atomic_store(&hogging, true);
        ck_assert_int_eq(pthread_create(&thread, NULL, hog, NULL), 0);
        usleep(20000);
        atomic_store(&delayed, 2);
        fixture_remote_write(&f, ino, "new and longer");
        bool starved = fixture_wait_exit(client, 0) == -1;
        atomic_store(&hogging, false);
        pthread_join(thread, NULL);
        if (starved)
                ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        struct stat st;
        ck_assert_int_eq(stat(fixture_path(&f, name), &st), 0);
        ck_assert_int_eq(st.st_size, 14);
        expect_content(name, "new and longer");
        return starved;
}

/* The answer is written, but the process that asked does not get to run and to put it into the caches; meanwhile a change passes. */
START_TEST(a_client_without_a_processor_does_not_go_stale) {
        if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
                return; /* nobody else could run either */
        unsigned starved = 0;
        char name[16];
        for (unsigned i = 0; i < 10 && starved < 2; i++) {
                (void)snprintf(name, sizeof(name), "a%u", i);
                starved += starve_client(name);
        }
        if (starved > 0)
                ck_assert_uint_ge(fixture_metric(&f, METRIC_EPOCHS), 1);
}
END_TEST

START_TEST(another_history_is_taken_over) {
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "a", S_IFREG | 0644);
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755);
        fixture_remote_write(&f, ino, "old");
        expect_content("a", "old");
        int fd = open(fixture_path(&f, "a"), O_RDONLY), dir = open(fixture_path(&f, "d"), O_RDONLY | O_DIRECTORY);
        struct stat st;
        ck_assert_int_eq(fstat(dir, &st), 0);
        ck_assert(!exists("d/x"));
        /* Changed behind the kernel's back, as a state transfer does. */
        struct fuse_edge *edge = steal_pointer(&f.edge);
        uint64_t seq = 0;
        struct extent x = {.length = 5};
        struct op write_op = {.kind = OP_WRITE, .write = {.ino = ino, .keep = 0, .size = 5, .extents = &x, .n_extents = 1}};
        write_op.payload = (struct op_payload){.form = FORM_RAW, .raw_len = 5, .data = (const uint8_t *)"other", .len = 5};
        struct op create_op = {.kind = OP_CREATE, .create = {.parent = d, .name = op_name_of("x"), .mode = S_IFREG | 0644}};
        ck_assert_int_eq(fixture_remote_async(&f, &write_op, &seq).error, 0);
        ck_assert_int_eq(fixture_remote_async(&f, &create_op, &seq).error, 0);
        f.edge = edge;
        ck_assert(!exists("d/x")); /* the kernel cannot know: otherwise this test proves nothing */
        expect_content("a", "old");
        _Atomic uint64_t done = 0;
        fuse_edge_invalidate_all(edge, mark, &done);
        for (int i = 0; i < 2000 && !atomic_load(&done); i++)
                usleep(1000);
        ck_assert_uint_eq(atomic_load(&done), 1);
        char got[16] = "";
        ck_assert_int_eq(pread(fd, got, sizeof(got), 0), 5);
        ck_assert_str_eq(got, "other");
        ck_assert(exists("d/x"));
        ck_assert_uint_eq(list(fixture_path(&f, "d")), 3);
        close(fd);
        close(dir);
}
END_TEST

START_TEST(without_epochs_names_are_asked_for) {
        ck_assert(!exists("a"));
        uint64_t lookups = fixture_metric(&f, METRIC_LOOKUPS);
        ck_assert(!exists("a"));
        ck_assert_uint_gt(fixture_metric(&f, METRIC_LOOKUPS), lookups);
        uint64_t d = fixture_remote_create(&f, INO_ROOT, "d", S_IFDIR | 0755), seq = 0;
        ck_assert(exists("d"));
        fixture_hold(&f);
        pid_t client = SH("mkdir \"$1/d/local\"", "sh", f.mountpoint);
        fixture_wait_held(&f, 1);
        struct op op = {.kind = OP_CREATE, .create = {.parent = d, .name = op_name_of("remote"), .mode = S_IFREG | 0644}};
        ck_assert_int_eq(fixture_remote_async(&f, &op, &seq).error, 0);
        ck_assert(fixture_wait_clear(&f, seq, 2000)); /* nothing takes the directory's lock */
        fixture_let_go(&f);
        ck_assert_int_eq(fixture_wait_exit(client, 2000), 0);
        ck_assert(exists("d/remote"));
        ck_assert_int_eq(remote_rename(INO_ROOT, "d", INO_ROOT, "e").error, 0);
        ck_assert(!exists("d"));
        ck_assert(exists("e/remote"));
        ck_assert_uint_eq(fixture_metric(&f, METRIC_EPOCHS), 0);
}
END_TEST

/* Readers of every kind while other nodes rewrite, rename and remove: after the edge has said clear, nobody sees anything older. */
struct race {
        _Atomic unsigned current; /* what the file held when a change was last called clear */
        _Atomic bool stop;
        unsigned stale, reads;
};
static void *reader(void *arg) {
        struct race *r = arg;
        while (!atomic_load(&r->stop)) {
                unsigned at_least = atomic_load(&r->current), got = 0;
                char path[128], text[32] = "";
                (void)snprintf(path, sizeof(path), "%s/raced", f.mountpoint);
                int fd = open(path, O_RDONLY);
                if (fd < 0)
                        continue;
                ssize_t n = read(fd, text, sizeof(text) - 1);
                struct stat st;
                if (n > 0 && fstat(fd, &st) == 0 && sscanf(text, "%u", &got) == 1) {
                        r->stale += got < at_least;
                        r->reads++;
                }
                close(fd);
        }
        return NULL;
}

START_TEST(nothing_stale_after_clear) {
        struct race races[3] = {0};
        pthread_t threads[3];
        uint64_t ino = fixture_remote_create(&f, INO_ROOT, "raced", S_IFREG | 0644);
        fixture_remote_write(&f, ino, "000000000");
        for (unsigned i = 0; i < 3; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &races[i]), 0);
        for (unsigned v = 1; v <= 2000; v++) {
                char text[32], name[32];
                /* Of several lengths, but the number is within the shortest: a read that races with a change in place may be cut. */
                (void)snprintf(text, sizeof(text), "%09u%.*s", v, (int)(v % 9), "xxxxxxxxx");
                if (v % 3 == 0) { /* replaced by another file */
                        (void)snprintf(name, sizeof(name), "tmp%u", v);
                        ino = fixture_remote_create(&f, INO_ROOT, name, S_IFREG | 0644);
                        fixture_remote_write(&f, ino, text);
                        ck_assert_int_eq(remote_rename(INO_ROOT, name, INO_ROOT, "raced").error, 0);
                } else {
                        fixture_remote_write(&f, ino, text);
                }
                for (unsigned i = 0; i < 3; i++)
                        atomic_store(&races[i].current, v);
        }
        for (unsigned i = 0; i < 3; i++) {
                atomic_store(&races[i].stop, true);
                pthread_join(threads[i], NULL);
                ck_assert_uint_eq(races[i].stale, 0);
                ck_assert_uint_gt(races[i].reads, 0);
        }
}
END_TEST

Suite *suite_notify(void) {
        Suite *s = suite_create("notify");
        TCase *c = tcase_create("notify");
        tcase_set_timeout(c, 30);
        tcase_add_checked_fixture(c, setup, teardown);
        tcase_add_test(c, names_come_and_go);
        tcase_add_test(c, attributes_follow);
        tcase_add_test(c, open_files_see_changes_in_place);
        tcase_add_test(c, what_is_in_use_stays);
        tcase_add_test(c, a_held_up_name_raises_the_epoch);
        tcase_add_test(c, many_held_up_directories);
        tcase_add_test(c, a_late_reply_does_not_go_stale);
        tcase_add_test(c, a_late_listing_does_not_go_stale);
        tcase_add_test(c, late_attributes_of_a_listing_do_not_go_stale);
        tcase_add_test(c, a_change_is_seen_whole_or_not_at_all);
        tcase_add_test(c, own_writes_are_seen_before_a_change_is_told);
        tcase_add_test(c, a_client_without_a_processor_does_not_go_stale);
        tcase_add_test(c, another_history_is_taken_over);
        tcase_add_test(c, nothing_stale_after_clear);
        suite_add_tcase(s, c);
        TCase *old = tcase_create("without epochs");
        tcase_set_timeout(old, 30);
        tcase_add_checked_fixture(old, setup_without_epoch, teardown);
        tcase_add_test(old, without_epochs_names_are_asked_for);
        tcase_add_test(old, names_come_and_go);
        tcase_add_test(old, attributes_follow);
        tcase_add_test(old, open_files_see_changes_in_place);
        tcase_add_test(old, nothing_stale_after_clear);
        suite_add_tcase(s, old);
        return s;
}
