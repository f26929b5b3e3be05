/* client.h: the other end: connect, ask, wait. Blocking; for programs. */
#pragma once

#include "ctl/protocol.h"

/* -ENOENT, -ECONNREFUSED: no daemon; -EACCES; -ENAMETOOLONG. timeout_ms: how long a sign of life may take, here and in what follows. */
errint_t ctl_connect(const char *run_dir, uint64_t timeout_ms, int *ret_fd);
struct ctl_result {
        enum ctl_status status;
        char *message;
        char *body; /* zero-terminated */
        size_t len;
};
void ctl_result_done(struct ctl_result *r);
/* -ECONNRESET: the daemon went away before it answered. -ETIMEDOUT: it is there and gives no sign of life. */
errint_t ctl_ask(int fd, size_t n, const char *const *words, struct ctl_result *ret);
