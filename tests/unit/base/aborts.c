/* aborts.c: see aborts.h. */
#include "aborts.h"

#include <check.h>
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
