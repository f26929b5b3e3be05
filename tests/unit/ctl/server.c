/* server.c: the control socket with real clients: answers, late answers, hostile input, too many clients, mode. */
#include "unit.h"

#include "ctl/client.h"
#include "ctl/server.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[64], path[96];
static struct ctl_server *server;
static char context[] = "ctx";
static struct ctl_call *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void run_echo(struct ctl_call *c) {
        ck_assert_str_eq(ctl_call_ctx(c), "ctx");
        ctl_call_reply(c, CTL_OK, "", ctl_call_word(c, 0), strlen(ctl_call_word(c, 0)));
}
static void run_keep(struct ctl_call *c) {
        pthread_mutex_lock(&kept_lock);
        kept = c;
        pthread_mutex_unlock(&kept_lock);
}
static void run_fail(struct ctl_call *c) {
        ctl_call_fail(c, CTL_NO_QUORUM, "because %d", 7);
}
static void run_huge(struct ctl_call *c) {
        char *body = calloc(1, CTL_REPLY_MAX + 1);
        ctl_call_reply(c, CTL_OK, "", body, CTL_REPLY_MAX + 1);
        free(body);
}
static const struct ctl_command commands[] = {{"echo", 1, 1, "echo WORD", run_echo},
                                              {"keep", 0, 0, "keep", run_keep},
                                              {"fail", 0, 0, "fail", run_fail},
                                              {"huge", 0, 0, "huge", run_huge}};

static void setup(void) {
        strcpy(dir, "/tmp/coterie-ctl-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/" CTL_SOCKET, dir);
        kept = NULL;
        struct ctl_server_config config = {.path = path, .commands = commands, .n_commands = 4, .ctx = context};
        ck_assert_int_eq(ctl_server_start(&config, &server), 0);
}
static void teardown(void) {
        ctl_server_free(server);
        ck_assert_int_eq(access(path, F_OK), -1);
        ck_assert_int_eq(rmdir(dir), 0);
}

static int connected(void) {
        int fd = -1;
        ck_assert_int_eq(ctl_connect(dir, 10000, &fd), 0);
        return fd;
}
static struct ctl_result ask(int fd, size_t n, const char *const *words) {
        struct ctl_result r = {0};
        ck_assert_int_eq(ctl_ask(fd, n, words, &r), 0);
        return r;
}

START_TEST(socket_is_private) {
        struct stat st;
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(several_requests_on_one_connection) {
        int fd = connected();
        for (int i = 0; i < 3; i++) {
                struct ctl_result r = ask(fd, 2, (const char *const[]){"echo", "hello"});
                ck_assert_int_eq(r.status, CTL_OK);
                ck_assert_str_eq(r.body, "hello");
                ctl_result_done(&r);
        }
        struct ctl_result r = ask(fd, 1, (const char *const[]){"fail"});
        ck_assert_int_eq(r.status, CTL_NO_QUORUM);
        ck_assert_str_eq(r.message, "because 7");
        ctl_result_done(&r);
        close(fd);
}
END_TEST

START_TEST(usage_and_unknown) {
        int fd = connected();
        struct ctl_result r = ask(fd, 1, (const char *const[]){"echo"});
        ck_assert_int_eq(r.status, CTL_USAGE);
        ck_assert_str_eq(r.message, "usage: echo WORD");
        ctl_result_done(&r);
        r = ask(fd, 1, (const char *const[]){"nonsense"});
        ck_assert_int_eq(r.status, CTL_USAGE);
        ctl_result_done(&r);
        r = ask(fd, 1, (const char *const[]){"huge"});
        ck_assert_int_eq(r.status, CTL_FAILED); /* and the connection lives on */
        ctl_result_done(&r);
        r = ask(fd, 2, (const char *const[]){"echo", "still"});
        ck_assert_str_eq(r.body, "still");
        ctl_result_done(&r);
        close(fd);
}
END_TEST

static struct ctl_call *wait_kept(void) {
        for (int i = 0; i < 2000; i++) {
                pthread_mutex_lock(&kept_lock);
                struct ctl_call *c = kept;
                kept = NULL;
                pthread_mutex_unlock(&kept_lock);
                if (c)
                        return c;
                usleep(1000);
        }
        return NULL;
}
static void *answer_late(void *arg) {
        struct ctl_call *c = wait_kept();
        (void)arg;
        ck_assert_ptr_nonnull(c);
        usleep(20000);
        ctl_call_reply(c, CTL_OK, "", "late", 4);
        return NULL;
}

/* Longer than the client's patience, but not without a sign of life. */
static void *answer_very_late(void *arg) {
        struct ctl_call *c = wait_kept();
        (void)arg;
        ck_assert_ptr_nonnull(c);
        usleep(2 * CTL_WAIT_MS * 1000 + 500000);
        ctl_call_reply(c, CTL_OK, "", "at last", 7);
        return NULL;
}

START_TEST(signs_of_life) {
        pthread_t thread;
        int fd = -1;
        ck_assert_int_eq(ctl_connect(dir, CTL_WAIT_MS + 1000, &fd), 0);
        pthread_create(&thread, NULL, answer_very_late, NULL);
        struct ctl_result r = ask(fd, 1, (const char *const[]){"keep"});
        ck_assert_str_eq(r.body, "at last");
        ctl_result_done(&r);
        pthread_join(thread, NULL);
        close(fd);
}
END_TEST

/* A listener that takes nobody out of its backlog, as a stopped daemon does: neither an answer nor, when it is full, a connection. */
START_TEST(nobody_answers) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct ctl_result r = {0};
        char other[64] = "/tmp/coterie-ctl-XXXXXX";
        int fds[8], n = 0;
        ck_assert_ptr_nonnull(mkdtemp(other));
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/" CTL_SOCKET, other);
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(listener, 1), 0);
        ck_assert_int_eq(ctl_connect(other, 50, &fds[n++]), 0);
        ck_assert_int_eq(ctl_ask(fds[0], 1, (const char *const[]){"status"}, &r), -ETIMEDOUT);
        errint_t error = 0;
        while (n < 8 && (error = ctl_connect(other, 50, &fds[n])) == 0)
                n++;
        ck_assert_int_eq(error, -ETIMEDOUT);
        while (n > 0)
                close(fds[--n]);
        close(listener);
        unlink(address.sun_path);
        rmdir(other);
}
END_TEST

START_TEST(late_answer_from_another_thread) {
        pthread_t thread;
        int fd = connected(), other = connected();
        ck_assert_int_eq(pthread_create(&thread, NULL, answer_late, NULL), 0);
        struct ctl_result r = ask(fd, 1, (const char *const[]){"keep"});
        ck_assert_str_eq(r.body, "late");
        ctl_result_done(&r);
        pthread_join(thread, NULL);
        r = ask(other, 2, (const char *const[]){"echo", "x"}); /* others are served meanwhile and after */
        ctl_result_done(&r);
        close(fd);
        close(other);
}
END_TEST

START_TEST(client_leaves_before_the_answer) {
        CLEANUP(enc_done) struct enc e;
        int fd = connected();
        enc_init(&e, 1024);
        ck_assert_int_eq(ctl_request_encode(&e, 1, (const char *const[]){"keep"}), 0);
        ck_assert_int_eq(send(fd, e.data, e.len, 0), (ssize_t)e.len);
        struct ctl_call *c = wait_kept();
        ck_assert_ptr_nonnull(c);
        close(fd);
        usleep(10000);
        ctl_call_reply(c, CTL_OK, "", NULL, 0);
        fd = connected();
        struct ctl_result r = ask(fd, 2, (const char *const[]){"echo", "alive"});
        ctl_result_done(&r);
        close(fd);
}
END_TEST

START_TEST(hostile_bytes) {
        static const char *const junk[] = {"\377\377\377\377", "\1\0\0\0\1", "\6\0\0\0\1\1\1\377ab", "GET / HTTP/1.0\r\n\r\n",
                                           "\3\0\0\0\7\1\1"};
        static const size_t lens[] = {4, 5, 10, 18, 7};
        for (size_t i = 0; i < 5; i++) {
                int fd = connected();
                char buf[512];
                ssize_t n, all = 0;
                ck_assert_int_eq(send(fd, junk[i], lens[i], 0), (ssize_t)lens[i]);
                while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) /* it says why and closes */
                        all += n;
                ck_assert_int_gt(all, 0);
                close(fd);
        }
        int fd = connected();
        struct ctl_result r = ask(fd, 2, (const char *const[]){"echo", "alive"});
        ctl_result_done(&r);
        close(fd);
}
END_TEST

START_TEST(bounded_clients) {
        int fds[CTL_CLIENTS_MAX];
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++) {
                fds[i] = connected();
                struct ctl_result r = ask(fds[i], 2, (const char *const[]){"echo", "x"});
                ctl_result_done(&r);
        }
        int extra = connected(); /* waits in the backlog */
        CLEANUP(enc_done) struct enc e;
        char byte;
        enc_init(&e, 1024);
        ck_assert_int_eq(ctl_request_encode(&e, 2, (const char *const[]){"echo", "y"}), 0);
        ck_assert_int_eq(send(extra, e.data, e.len, 0), (ssize_t)e.len);
        usleep(50000);
        ck_assert_int_eq(recv(extra, &byte, 1, MSG_DONTWAIT), -1);
        close(fds[0]);
        ck_assert_int_eq(recv(extra, &byte, 1, 0), 1); /* and is served when there is room */
        close(extra);
        for (size_t i = 1; i < CTL_CLIENTS_MAX; i++)
                close(fds[i]);
}
END_TEST

START_TEST(idle_clients_give_way) {
        int fds[CTL_CLIENTS_MAX];
        char byte;
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
                fds[i] = connected();
        int extra = connected();
        struct ctl_result r = ask(extra, 2, (const char *const[]){"echo", "served"}); /* after CTL_CROWDED_MS */
        ck_assert_str_eq(r.body, "served");
        ctl_result_done(&r);
        ck_assert_int_eq(recv(fds[0], &byte, 1, 0), 0);            /* the one that was idle the longest had to go, */
        r = ask(fds[1], 2, (const char *const[]){"echo", "kept"}); /* and no other */
        ck_assert_str_eq(r.body, "kept");
        ctl_result_done(&r);
        close(extra);
        for (size_t i = 0; i < CTL_CLIENTS_MAX; i++)
                close(fds[i]);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("ctl.server");
        TCase *t = tcase_create("server");
        tcase_add_checked_fixture(t, setup, teardown);
        tcase_add_test(t, socket_is_private);
        tcase_add_test(t, several_requests_on_one_connection);
        tcase_add_test(t, usage_and_unknown);
        tcase_add_test(t, signs_of_life);
        tcase_add_test(t, nobody_answers);
        tcase_add_test(t, late_answer_from_another_thread);
        tcase_add_test(t, client_leaves_before_the_answer);
        tcase_add_test(t, hostile_bytes);
        tcase_add_test(t, bounded_clients);
        tcase_add_test(t, idle_clients_give_way);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
