/* client.h: the other end: connect, ask, wait. Blocking; for programs. */
#pragma once

#include "ctl/protocol.h"

/* -ENOENT, -ECONNREFUSED: no daemon; -EACCES; -ENAMETOOLONG. */
errint_t ctl_connect(const char *run_dir, int *ret_fd);
struct ctl_result {
        enum ctl_status status;
        char *message;
        char *body; /* zero-terminated */
        size_t len;
};
void ctl_result_done(struct ctl_result *r);
/* chunk: NULL if none are expected. -ECONNRESET: the daemon went away before it answered. */
errint_t ctl_ask(int fd, size_t n, const char *const *words, void (*chunk)(void *ctx, const void *p, size_t n), void *ctx, struct ctl_result *ret);
