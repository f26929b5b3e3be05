/* client.c: asking the daemon. */
#include "ctl/client.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

errint_t ctl_connect(const char *run_dir, uint64_t timeout_ms, int *ret_fd) {
        struct timeval limit = {.tv_sec = (time_t)(timeout_ms / 1000u), .tv_usec = (suseconds_t)(timeout_ms % 1000u) * 1000};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" CTL_SOCKET, run_dir);

        if (n < 0 || (size_t)n >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
                return -errno;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) /* EAGAIN: its backlog is full, and it takes nobody out of it */
                return errno == EAGAIN ? -ETIMEDOUT : -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

void ctl_result_done(struct ctl_result *r) {
        free(r->message);
        free(r->body);
        *r = (struct ctl_result){0};
}

static errint_t send_all(int fd, const uint8_t *p, size_t n) {
        while (n > 0) {
                ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
                if (sent < 0 && errno == EINTR)
                        continue;
                if (sent < 0)
                        return errno == EPIPE ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
                p += sent;
                n -= (size_t)sent;
        }
        return 0;
}

static errint_t receive_all(int fd, uint8_t *p, size_t n) {
        while (n > 0) {
                ssize_t got = recv(fd, p, n, 0);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return got == 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
                p += got;
                n -= (size_t)got;
        }
        return 0;
}

static char *copy_text(const void *p, size_t n) {
        char *s = xmalloc(n + 1);
        if (n > 0)
                memcpy(s, p, n);
        s[n] = '\0';
        return s;
}

static errint_t receive_answer(int fd, uint8_t **ret_memory, struct ctl_answer *ret) {
        uint8_t header[CTL_HEADER];
        cleanup_free uint8_t *body = NULL;
        size_t n;
        errint_t error = receive_all(fd, header, sizeof(header));

        if (error < 0 || (error = ctl_frame_length(header, CTL_REPLY_MAX, &n)) < 0)
                return error;
        if (!(body = try_malloc(n)))
                return -ENOMEM;
        if ((error = receive_all(fd, body, n)) < 0 || (error = ctl_answer_decode(body, n, ret)) < 0)
                return error;
        *ret_memory = steal_pointer(&body);
        return 0;
}

errint_t ctl_ask(int fd, size_t n, const char *const *words, struct ctl_result *ret) {
        CLEANUP(enc_done) struct enc e;
        errint_t error;

        enc_init(&e, CTL_REQUEST_MAX + CTL_HEADER);
        if ((error = ctl_request_encode(&e, n, words)) < 0 || (error = send_all(fd, e.data, e.len)) < 0)
                return error;
        for (;;) {
                cleanup_free uint8_t *memory = NULL;
                struct ctl_answer a;

                if ((error = receive_answer(fd, &memory, &a)) < 0)
                        return error;
                if (a.type == CTL_WAIT)
                        continue;
                *ret = (struct ctl_result){
                        .status = a.status, .message = copy_text(a.message, a.message_len), .body = copy_text(a.body, a.len), .len = a.len};
                return 0;
        }
}
