/* fuzz_ctl.c: what a client may send to the daemon, and a daemon to the client. Input: a byte that says which, then a frame's body.
 *
 * Checked: what is taken for a request says the same when it is encoded again and read; an answer points into what was given. */
#include "ctl/protocol.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const uint8_t *body, size_t n) {
        struct ctl_request request, again;
        CLEANUP(enc_done) struct enc e = {0};
        size_t len;

        if (ctl_request_decode(body, n, &request) < 0)
                return;
        POST(request.n > 0 && request.n <= CTL_WORDS_MAX && !request.words[request.n]);
        enc_init(&e, CTL_REQUEST_MAX + CTL_HEADER);
        if (ctl_request_encode(&e, request.n, (const char *const *)request.words) ==
            0) { /* numbers may have been written longer than need be */
                POST(ctl_frame_length(e.data, CTL_REQUEST_MAX, &len) == 0 && len == e.len - CTL_HEADER && len <= MAX_OF(n, (size_t)2));
                POST(ctl_request_decode(e.data + CTL_HEADER, len, &again) == 0 && again.n == request.n);
                for (size_t i = 0; i < request.n; i++)
                        POST(strcmp(request.words[i], again.words[i]) == 0);
                ctl_request_done(&again);
        }
        ctl_request_done(&request);
}

static void check_answer(const uint8_t *body, size_t n) {
        struct ctl_answer a;

        if (ctl_answer_decode(body, n, &a) < 0)
                return;
        POST(a.type == CTL_WAIT || a.type == CTL_REPLY);
        POST(a.type != CTL_WAIT || a.len == 0);
        POST(a.message_len <= CTL_MESSAGE_MAX && a.message_len + a.len <= n);
        POST(a.len == 0 || (a.body >= body && a.body + a.len == body + n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size == 0)
                return -1;
        if (data[0] & 1)
                check_answer(data + 1, size - 1);
        else
                check_request(data + 1, size - 1);
        return 0;
}
