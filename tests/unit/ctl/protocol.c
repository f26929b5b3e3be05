/* protocol.c: frames of the control protocol: both ways, golden bytes, and what must be refused. */
#include "unit.h"

#include "ctl/protocol.h"
#include <string.h>

static struct enc encode(size_t n, const char *const *words) {
        struct enc e;
        enc_init(&e, CTL_REQUEST_MAX + CTL_HEADER);
        ck_assert_int_eq(ctl_request_encode(&e, n, words), 0);
        return e;
}

START_TEST(request_both_ways) {
        const char *const words[] = {"set", "sync_level", "", "ü"};
        struct enc e = encode(4, words);
        size_t n;
        struct ctl_request r;
        ck_assert_int_eq(ctl_frame_length(e.data, CTL_REQUEST_MAX, &n), 0);
        ck_assert_uint_eq(n + CTL_HEADER, e.len);
        ck_assert_int_eq(ctl_request_decode(e.data + CTL_HEADER, n, &r), 0);
        ck_assert_uint_eq(r.n, 4);
        for (size_t i = 0; i < 4; i++)
                ck_assert_str_eq(r.words[i], words[i]);
        ck_assert_ptr_null(r.words[4]);
        ctl_request_done(&r);
        enc_done(&e);
}
END_TEST

START_TEST(golden) {
        static const uint8_t request[] = {8, 0, 0, 0, 1, 1, 1, 4, 's', 'y', 'n', 'c'};
        static const uint8_t reply[] = {8, 0, 0, 0, 1, 3, 4, 2, 'n', 'o', '{', '}'};
        struct enc e = encode(1, (const char *const[]){"sync"});
        ck_assert_uint_eq(e.len, sizeof(request));
        ck_assert_mem_eq(e.data, request, sizeof(request));
        enc_reset(&e);
        ck_assert_int_eq(ctl_reply_encode(&e, CTL_NO_QUORUM, "no", "{}", 2), 0);
        ck_assert_uint_eq(e.len, sizeof(reply));
        ck_assert_mem_eq(e.data, reply, sizeof(reply));
        enc_done(&e);
}
END_TEST

START_TEST(answers_both_ways) {
        struct enc e;
        struct ctl_answer a;
        enc_init(&e, 4096);
        ck_assert_int_eq(ctl_wait_encode(&e), 0);
        ck_assert_int_eq(ctl_answer_decode(e.data + CTL_HEADER, e.len - CTL_HEADER, &a), 0);
        ck_assert_int_eq(a.type, CTL_WAIT);
        ck_assert_uint_eq(a.len, 0);
        enc_reset(&e);
        ck_assert_int_eq(ctl_reply_encode(&e, CTL_FAILED, "why", NULL, 0), 0);
        ck_assert_int_eq(ctl_answer_decode(e.data + CTL_HEADER, e.len - CTL_HEADER, &a), 0);
        ck_assert_int_eq(a.type, CTL_REPLY);
        ck_assert_int_eq(a.status, CTL_FAILED);
        ck_assert_uint_eq(a.message_len, 3);
        ck_assert_mem_eq(a.message, "why", 3);
        ck_assert_uint_eq(a.len, 0);
        enc_done(&e);
}
END_TEST

START_TEST(lengths) {
        size_t n = 77;
        static const uint8_t tiny[] = {1, 0, 0, 0}, most[] = {0, 0, 1, 0}, more[] = {1, 0, 1, 0}, all[] = {255, 255, 255, 255};
        ck_assert_int_eq(ctl_frame_length(tiny, CTL_REQUEST_MAX, &n), -EMSGSIZE);
        ck_assert_int_eq(ctl_frame_length(more, CTL_REQUEST_MAX, &n), -EMSGSIZE);
        ck_assert_int_eq(ctl_frame_length(all, CTL_REQUEST_MAX, &n), -EMSGSIZE);
        ck_assert_uint_eq(n, 77); /* untouched */
        ck_assert_int_eq(ctl_frame_length(most, CTL_REQUEST_MAX, &n), 0);
        ck_assert_uint_eq(n, CTL_REQUEST_MAX);
}
END_TEST

static void refused(const void *p, size_t n, errint_t error) {
        struct ctl_request r;
        ck_assert_int_eq(ctl_request_decode(p, n, &r), error);
}

START_TEST(hostile_requests) {
        refused("", 0, -EBADMSG);
        refused("\1", 1, -EBADMSG);
        refused("\2\1\1\1a", 5, -EPROTO);      /* another version */
        refused("\1\2\1\1a", 5, -EBADMSG);     /* not a request */
        refused("\1\1\0", 3, -EBADMSG);        /* no word */
        refused("\1\1\41", 3, -EBADMSG);       /* too many words */
        refused("\1\1\1\5ab", 6, -EBADMSG);    /* longer than the frame */
        refused("\1\1\1\1ab", 6, -EBADMSG);    /* bytes left over */
        refused("\1\1\1\2a\0", 6, -EBADMSG);   /* a NUL inside */
        refused("\1\1\1\201\0a", 6, -EBADMSG); /* a length that is not minimal */
        refused("\1\1\2\1a", 5, -EBADMSG);     /* fewer words than said */
        refused("\1\1\1\377\377\377\377\377\377\377\377\377\1", 13, -EBADMSG);
}
END_TEST

/* Every truncation and every changed byte of a good request is either refused or another request; the sanitizers watch. */
START_TEST(mangled_requests) {
        struct enc e = encode(3, (const char *const[]){"set", "sync_level", "file"});
        size_t n = e.len - CTL_HEADER;
        for (size_t cut = 0; cut < n; cut++)
                refused(e.data + CTL_HEADER, cut, -EBADMSG);
        for (size_t at = 0; at < n; at++)
                for (unsigned v = 0; v < 256; v++) {
                        struct ctl_request r;
                        uint8_t was = e.data[CTL_HEADER + at];
                        e.data[CTL_HEADER + at] = (uint8_t)v;
                        if (ctl_request_decode(e.data + CTL_HEADER, n, &r) == 0) {
                                ck_assert_uint_ge(r.n, 1);
                                ctl_request_done(&r);
                        }
                        e.data[CTL_HEADER + at] = was;
                }
        enc_done(&e);
}
END_TEST

START_TEST(too_large) {
        char *word = malloc(CTL_REQUEST_MAX + 1);
        const char *many[CTL_WORDS_MAX + 1];
        struct enc e;
        memset(word, 'a', CTL_REQUEST_MAX);
        word[CTL_REQUEST_MAX] = '\0';
        for (size_t i = 0; i <= CTL_WORDS_MAX; i++)
                many[i] = "a";
        enc_init(&e, 2 * CTL_REQUEST_MAX);
        ck_assert_int_eq(ctl_request_encode(&e, 1, (const char *const[]){word}), -E2BIG);
        enc_reset(&e);
        ck_assert_int_eq(ctl_request_encode(&e, CTL_WORDS_MAX + 1, many), -E2BIG);
        enc_reset(&e);
        ck_assert_int_eq(ctl_request_encode(&e, 0, many), -E2BIG);
        enc_done(&e);
        free(word);
}
END_TEST

START_TEST(hostile_answers) {
        struct ctl_answer a;
        ck_assert_int_eq(ctl_answer_decode("\1\3\3\0", 4, &a), -EBADMSG); /* the client's own status */
        ck_assert_int_eq(ctl_answer_decode("\1\3\5\0", 4, &a), -EBADMSG); /* no such status */
        ck_assert_int_eq(ctl_answer_decode("\1\3\0\5abc", 7, &a), -EBADMSG);
        ck_assert_int_eq(ctl_answer_decode("\1\1\0\0", 4, &a), -EBADMSG); /* a request */
        ck_assert_int_eq(ctl_answer_decode("\7\3\0\0", 4, &a), -EPROTO);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("ctl.protocol");
        TCase *t = tcase_create("protocol");
        tcase_add_test(t, request_both_ways);
        tcase_add_test(t, golden);
        tcase_add_test(t, answers_both_ways);
        tcase_add_test(t, lengths);
        tcase_add_test(t, hostile_requests);
        tcase_add_test(t, mangled_requests);
        tcase_add_test(t, too_large);
        tcase_add_test(t, hostile_answers);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
