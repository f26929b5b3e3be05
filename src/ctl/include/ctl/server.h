/* server.h: the control socket: one thread that accepts, reads requests, runs commands and writes answers. Only root and the daemon's own
 * user may speak (peer credentials; the socket's mode is 0600 besides).
 *
 * A command runs on the server's thread and must not wait: it answers at once, or keeps the call and answers later from any thread. */
#pragma once

#include "ctl/protocol.h"

#define CTL_CLIENTS_MAX 64u
#define CTL_CROWDED_MS  1000u  /* when all places are taken, a client that was idle for so long loses its place to a newcomer */
#define CTL_WAIT_MS     1000u  /* between two signs of life to a client whose command runs */
#define CTL_IDLE_MS     30000u /* a client that has begun a request and does not finish it is closed */

struct ctl_call;
size_t ctl_call_count(const struct ctl_call *c); /* words after the command's name */
const char *ctl_call_word(const struct ctl_call *c, size_t i);
void *ctl_call_ctx(const struct ctl_call *c); /* the server's config.ctx */
/* Exactly once per call, from any thread; the call is gone then. body may be NULL. message: one line, "" for none. */
void ctl_call_reply(struct ctl_call *c, enum ctl_status status, const char *message, const void *body, size_t len);
void ctl_call_fail(struct ctl_call *c, enum ctl_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

struct ctl_command {
        const char *name;
        size_t words_min, words_max;
        const char *usage; /* "set NAME=VALUE…" */
        void (*run)(struct ctl_call *c);
};
struct ctl_server_config {
        const char *path; /* of the socket; a stale one is replaced: the caller holds the run directory's lock */
        const struct ctl_command *commands;
        size_t n_commands;
        void *ctx;
};
struct ctl_server;
errint_t ctl_server_start(const struct ctl_server_config *config, struct ctl_server **ret);
/* How many turns its loop has made; asks it to make another: the next answer is a higher one, or it hangs. */
uint64_t ctl_server_turns(struct ctl_server *s);
/* Removes the socket and takes no new connections and requests; no command runs after it returns. Calls under way may still be answered. */
void ctl_server_stop(struct ctl_server *s);
/* Sends what was answered and closes: whoever waits for the end of the connection knows then that the daemon has ended. Every call must
 * have been answered. Not from the server's thread. */
void ctl_server_free(struct ctl_server *s);
