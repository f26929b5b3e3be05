#include "suites.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

bool aborts(void (*fn)(void), char *out, size_t out_size) {
        int pipe_fd[2], status;
        size_t len = 0;
        ssize_t n;

        ck_assert_int_eq(pipe(pipe_fd), 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                dup2(pipe_fd[1], STDERR_FILENO);
                fn();
                _exit(0);
        }
        close(pipe_fd[1]);
        while (len < out_size - 1 && (n = read(pipe_fd[0], out + len, out_size - 1 - len)) > 0)
                len += (size_t)n;
        out[len] = '\0';
        close(pipe_fd[0]);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

Suite *suite_of(const char *name, const TTest *const *tests, size_t n) {
        Suite *s = suite_create(name);
        TCase *tc = tcase_create(name);

        for (size_t i = 0; i < n; i++)
                tcase_add_test(tc, tests[i]);
        suite_add_tcase(s, tc);
        return s;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t next_random(uint64_t *seed) {
        uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

int main(void) {
        SRunner *r = srunner_create(suite_base());
        srunner_add_suite(r, suite_codec());
        srunner_add_suite(r, suite_hash());
        srunner_add_suite(r, suite_compress());
        srunner_add_suite(r, suite_log());
        srunner_add_suite(r, suite_failpoint());
        srunner_add_suite(r, suite_table());
        srunner_add_suite(r, suite_trace());
        srunner_add_suite(r, suite_env());
        srunner_add_suite(r, suite_metrics());
        srunner_run_all(r, CK_NORMAL);
        int failed = srunner_ntests_failed(r);
        srunner_free(r);
        return failed == 0 ? 0 : 1;
}
