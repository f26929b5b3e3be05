/* protocol.h: the control protocol's bytes: what `coterie` and the daemon say to each other over RUN-DIR/control.sock. Pure, any thread.
 *
 * A frame is a u32 length (little-endian, of what follows) and a body: u8 version, u8 type, then
 *   request: varint count of words, then each as varint length and bytes (the command's name and its arguments)
 *   wait:    nothing; sent every second while the command runs: the daemon lives and works on it
 *   reply:   u8 status, varint length and bytes of a message (one line, for people), then the body to the end of the frame (JSON or text)
 * A connection carries requests one after the other; each is answered by any number of waits and one reply. */
#pragma once

#include "base/codec.h"

#define CTL_SOCKET "control.sock" /* in the run directory */
#define CTL_VERSION 1u
#define CTL_REQUEST_MAX (64u * 1024u) /* body of a request */
#define CTL_REPLY_MAX (8u * 1024u * 1024u)
#define CTL_WORDS_MAX 32u
#define CTL_MESSAGE_MAX 4096u
#define CTL_HEADER 4u

enum ctl_type { CTL_REQUEST = 1, CTL_WAIT = 2, CTL_REPLY = 3 };
enum ctl_status { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3 /* the client's own */, CTL_NO_QUORUM = 4 }; /* = exit codes */

struct ctl_request {
        size_t n;
        char *words[CTL_WORDS_MAX + 1]; /* NULL at the end; all in one allocation */
        char *memory_;
};
void ctl_request_done(struct ctl_request *r);

/* The length of a frame's body from its header; -EMSGSIZE: larger than max or too short to be one. */
errint_t ctl_frame_length(const uint8_t header[CTL_HEADER], size_t max, size_t *ret);
/* Whole frames, header included. -E2BIG: too many words or too long. */
errint_t ctl_request_encode(struct enc *e, size_t n, const char *const *words);
errint_t ctl_wait_encode(struct enc *e);
errint_t ctl_reply_encode(struct enc *e, enum ctl_status status, const char *message, const void *body, size_t len);
/* A body without its header. -EPROTO: another version; -EBADMSG: not a request. */
errint_t ctl_request_decode(const void *p, size_t n, struct ctl_request *ret);
struct ctl_answer {
        enum ctl_type type; /* wait or reply */
        enum ctl_status status;
        const char *message; /* message_len bytes */
        size_t message_len;
        const uint8_t *body;
        size_t len;
};
errint_t ctl_answer_decode(const void *p, size_t n, struct ctl_answer *ret); /* points into p */
