/* protocol.c: frames of the control protocol. */
#include "ctl/protocol.h"

#include <string.h>

void ctl_request_done(struct ctl_request *r) {
        free(r->memory_);
        *r = (struct ctl_request){0};
}

errint_t ctl_frame_length(const uint8_t header[CTL_HEADER], size_t max, size_t *ret) {
        struct dec d;

        dec_init(&d, header, CTL_HEADER);
        size_t n = dec_u32(&d);
        if (n < 2 || n > max)
                return -EMSGSIZE;
        *ret = n;
        return 0;
}

static size_t frame_begin(struct enc *e, enum ctl_type type) {
        size_t at = e->len;
        enc_u32(e, 0);
        enc_u8(e, CTL_VERSION);
        enc_u8(e, (uint8_t)type);
        return at;
}

static errint_t frame_end(struct enc *e, size_t at, size_t max) {
        if (e->err < 0)
                return e->err;
        size_t n = e->len - at - CTL_HEADER;
        if (n > max)
                return -E2BIG;
        enc_patch_u32(e, at, (uint32_t)n);
        return 0;
}

errint_t ctl_request_encode(struct enc *e, size_t n, const char *const *words) {
        size_t at = frame_begin(e, CTL_REQUEST);

        if (n == 0 || n > CTL_WORDS_MAX)
                return -E2BIG;
        enc_varint(e, n);
        for (size_t i = 0; i < n; i++)
                enc_bytes(e, words[i], strlen(words[i]));
        return frame_end(e, at, CTL_REQUEST_MAX);
}

errint_t ctl_wait_encode(struct enc *e) {
        return frame_end(e, frame_begin(e, CTL_WAIT), CTL_REPLY_MAX);
}

errint_t ctl_reply_encode(struct enc *e, enum ctl_status status, const char *message, const void *body, size_t len) {
        size_t at = frame_begin(e, CTL_REPLY);
        enc_u8(e, (uint8_t)status);
        enc_bytes(e, message, MIN_OF(strlen(message), CTL_MESSAGE_MAX));
        enc_raw(e, body, len);
        return frame_end(e, at, CTL_REPLY_MAX);
}

static errint_t body_begin(struct dec *d, const void *p, size_t n, uint8_t *ret_type) {
        dec_init(d, p, n);
        uint8_t version = dec_u8(d);
        *ret_type = dec_u8(d);
        if (d->err < 0)
                return d->err;
        return version == CTL_VERSION ? 0 : -EPROTO;
}

errint_t ctl_request_decode(const void *p, size_t n, struct ctl_request *ret) {
        struct ctl_request r = {0};
        struct dec d;
        uint8_t type;
        char *to;
        errint_t error = body_begin(&d, p, n, &type);

        if (error < 0)
                return error;
        uint64_t count = dec_varint(&d);
        if (d.err < 0 || type != CTL_REQUEST || count == 0 || count > CTL_WORDS_MAX)
                return -EBADMSG;
        /* Each word takes at least a byte of length, whose place the terminating zero takes here. */
        to = r.memory_ = xmalloc(n);
        for (r.n = 0; r.n < count; r.n++) {
                size_t len;
                const uint8_t *word = dec_bytes(&d, CTL_REQUEST_MAX, &len);
                if (!word || memchr(word, '\0', len)) {
                        dec_fail(&d);
                        break;
                }
                memcpy(to, word, len);
                to[len] = '\0';
                r.words[r.n] = to;
                to += len + 1;
        }
        if (dec_finish(&d) < 0) {
                ctl_request_done(&r);
                return -EBADMSG;
        }
        *ret = r;
        return 0;
}

errint_t ctl_answer_decode(const void *p, size_t n, struct ctl_answer *ret) {
        struct ctl_answer a = {.message = ""};
        struct dec d;
        uint8_t type;
        errint_t error = body_begin(&d, p, n, &type);

        if (error < 0)
                return error;
        a.type = (enum ctl_type)type;
        if (type == CTL_REPLY) {
                uint8_t status = dec_u8(&d);
                a.message = (const char *)dec_bytes(&d, CTL_MESSAGE_MAX, &a.message_len);
                if (d.err < 0 || status > CTL_NO_QUORUM || status == CTL_NO_DAEMON)
                        return -EBADMSG;
                a.status = (enum ctl_status)status;
        } else if (type != CTL_WAIT || dec_left(&d) > 0) {
                return -EBADMSG;
        }
        a.len = dec_left(&d);
        a.body = dec_raw(&d, a.len);
        *ret = a;
        return 0;
}
