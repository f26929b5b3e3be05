/* test_alone.c: one member. The same machine, and no message too many. */
#include "harness.h"

#include "suites.h"

#include <stdio.h>

static void alone(struct hcluster *c) {
        hc_init(c, 1);
        hc_boot(c, 0);
        hc_view(c, HC_SET(0));
        hc_settle(c);
        ck_assert(c->nodes[0].primary);
}

START_TEST(becomes_primary) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        ck_assert_uint_eq(x->epoch, 1);
        ck_assert_uint_eq(x->promised, 1);
        ck_assert_uint_eq(x->adopted, 1);
        ck_assert_uint_eq(x->n_sends, 2); /* STATE, JOINED: the acknowledgement to itself needs no message */
        hc_crash(&c, 0);
        hc_boot(&c, 0);
        ck_assert(!x->primary);
        hc_view(&c, HC_SET(0));
        hc_settle(&c);
        ck_assert(x->primary);
        ck_assert_uint_eq(x->epoch, 2);
        hc_done(&c);
}
END_TEST

START_TEST(one_message_per_operation) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        size_t sends = x->n_sends;
        uint64_t a = hc_mkdir(&c, 0, "a");
        ck_assert_uint_eq(x->n_sends, sends + 1);
        ck_assert_uint_eq(x->n_commits, 0);
        ck_assert(hc_deliver(&c, 0));
        ck_assert(!hc_deliver(&c, 0));
        ck_assert_uint_eq(x->n_commits, 1);
        ck_assert_ptr_null(hc_reply(&c, 0, a)); /* not written yet, kernel not told yet */
        hc_events(&c, 0);
        ck_assert_ptr_nonnull(hc_reply(&c, 0, a));
        ck_assert_int_eq(hc_reply(&c, 0, a)->result.error, 0);
        ck_assert_uint_eq(hc_reply(&c, 0, a)->pos.seq, 1);
        ck_assert_uint_eq(x->n_sends, sends + 1);
        ck_assert(hc_has(&c, 0, "a"));
        hc_done(&c);
}
END_TEST

START_TEST(waits_for_log_and_kernel) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        x->hold_written = true;
        uint64_t a = hc_mkdir(&c, 0, "a");
        hc_settle(&c);
        ck_assert(hc_has(&c, 0, "a"));
        ck_assert_ptr_null(hc_reply(&c, 0, a));
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_WRITTEN, .seq = {1}});
        ck_assert_ptr_nonnull(hc_reply(&c, 0, a));
        x->hold_written = false;
        x->hold_invalidated = true;
        uint64_t b = hc_mkdir(&c, 0, "b");
        uint64_t again = hc_mkdir(&c, 0, "b"); /* refused: changes nothing, so the kernel is not asked, but it comes after */
        hc_settle(&c);
        ck_assert_ptr_null(hc_reply(&c, 0, b));
        ck_assert_ptr_null(hc_reply(&c, 0, again));
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_INVALIDATED, .seq = {2}});
        ck_assert_ptr_nonnull(hc_reply(&c, 0, b));
        ck_assert_int_eq(hc_reply(&c, 0, again)->result.error, -EEXIST);
        hc_done(&c);
}
END_TEST

START_TEST(large_operations_travel_in_pieces) {
        struct hcluster c;
        alone(&c);
        uint64_t a = hc_mkdir(&c, 0, "a");
        hc_settle(&c);
        uint64_t ino = hc_reply(&c, 0, a)->result.ino;
        size_t n = 16 * MIB, sends = c.nodes[0].n_sends;
        uint8_t *data = malloc(n);
        for (size_t i = 0; i < n; i++)
                data[i] = (uint8_t)(i * 31 >> 7);
        uint64_t w = hc_write(&c, 0, ino, data, n);
        uint64_t b = hc_mkdir(&c, 0, "b");
        hc_settle(&c);
        ck_assert_int_eq(hc_reply(&c, 0, w)->result.error, 0);
        ck_assert_int_eq(hc_reply(&c, 0, b)->result.error, 0);
        ck_assert_uint_eq(c.nodes[0].n_sends, sends + 256 + 1 + 1); /* 256 pieces of 64 KiB and the few bytes around them; b */
        struct blob *blob = NULL;
        ck_assert_int_eq(tree_content(c.nodes[0].state.tree, ino, &blob), 0);
        uint8_t *back = malloc(n);
        ck_assert_uint_eq(blob_read(blob, 0, back, n), n);
        ck_assert_int_eq(memcmp(data, back, n), 0);
        blob_unref(blob);
        free(back);
        free(data);
        hc_done(&c);
}
END_TEST

START_TEST(waiting_operations_share_a_message) {
        struct hcluster c;
        alone(&c);
        size_t sends = c.nodes[0].n_sends;
        uint64_t tokens[100];
        for (unsigned i = 0; i < 100; i++) {
                char name[16];
                snprintf(name, sizeof(name), "n%u", i);
                tokens[i] = hc_mkdir(&c, 0, name);
        }
        ck_assert_uint_eq(c.nodes[0].n_sends, sends + REPL_PIPELINE_SMALL);
        hc_settle(&c);
        ck_assert_uint_eq(c.nodes[0].n_sends, sends + REPL_PIPELINE_SMALL + 1);
        for (unsigned i = 0; i < 100; i++)
                ck_assert_uint_eq(hc_reply(&c, 0, tokens[i])->pos.seq, i + 1);
        hc_done(&c);
}
END_TEST

START_TEST(barriers) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        size_t flushes = x->n_flushes, sends = x->n_sends;
        uint64_t idle = hc_barrier(&c, 0); /* nothing to flush */
        ck_assert_ptr_nonnull(hc_reply(&c, 0, idle));
        ck_assert_uint_eq(x->n_flushes, flushes);
        (void)hc_mkdir(&c, 0, "a");
        hc_settle(&c);
        x->hold_flushed = true;
        uint64_t b = hc_barrier(&c, 0), again = hc_barrier(&c, 0);
        hc_settle(&c);
        ck_assert_ptr_null(hc_reply(&c, 0, b));
        ck_assert_uint_eq(x->n_flushes, flushes + 1);
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_FLUSHED, .seq = {1}});
        ck_assert_int_eq(hc_reply(&c, 0, b)->result.error, 0);
        ck_assert_int_eq(hc_reply(&c, 0, again)->result.error, 0);
        ck_assert_uint_eq(x->n_sends, sends + 1);
        hc_done(&c);
}
END_TEST

START_TEST(busy_holds_operations_back) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_BUSY});
        size_t sends = x->n_sends;
        uint64_t a = hc_mkdir(&c, 0, "a"), b = hc_mkdir(&c, 0, "b"), gone = hc_mkdir(&c, 0, "gone");
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_WITHDRAW, .withdraw = {gone}});
        ck_assert_int_eq(hc_reply(&c, 0, gone)->result.error, -EINTR);
        hc_settle(&c);
        ck_assert_uint_eq(x->n_sends, sends);
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_SENT});
        ck_assert_uint_eq(x->n_sends, sends + 1);
        hc_settle(&c);
        ck_assert_int_eq(hc_reply(&c, 0, a)->result.error, 0);
        ck_assert_int_eq(hc_reply(&c, 0, b)->result.error, 0);
        ck_assert(!hc_has(&c, 0, "gone"));
        hc_done(&c);
}
END_TEST

START_TEST(no_quorum_no_writes) {
        struct hcluster c;
        alone(&c);
        struct hnode *x = &c.nodes[0];
        uint64_t flying = hc_mkdir(&c, 0, "flying");
        hc_step(&c, 0,
                &(struct repl_event){.kind = REPL_QUORUM,
                                     .quorum = {.ring = x->view->ring, .quorate = false, .expected_votes = 3, .total_votes = 1}});
        ck_assert(!x->primary && !x->settling);
        ck_assert_str_eq(x->reason, "quorum was lost");
        ck_assert_int_eq(hc_reply(&c, 0, flying)->result.error, -EIO);
        uint64_t refused = hc_mkdir(&c, 0, "refused");
        ck_assert_int_eq(hc_reply(&c, 0, refused)->result.error, -EROFS);
        hc_settle(&c);
        ck_assert(!hc_has(&c, 0, "flying"));
        hc_step(&c, 0,
                &(struct repl_event){.kind = REPL_QUORUM,
                                     .quorum = {.ring = x->view->ring, .quorate = true, .expected_votes = 1, .total_votes = 1}});
        hc_settle(&c);
        ck_assert(x->primary);
        ck_assert_uint_eq(x->epoch, 2);
        hc_done(&c);
}
END_TEST

START_TEST(requests_wait_for_a_view_and_not_for_ever) {
        struct hcluster c;
        hc_init(&c, 1);
        hc_boot(&c, 0);
        struct hnode *x = &c.nodes[0];
        ck_assert(x->settling);
        uint64_t a = hc_mkdir(&c, 0, "a");
        hc_tick(&c, 1900);
        ck_assert_ptr_null(hc_reply(&c, 0, a));
        hc_tick(&c, 200);
        ck_assert_int_eq(hc_reply(&c, 0, a)->result.error, -EROFS);
        ck_assert(!x->settling);
        hc_view(&c, HC_SET(0));
        hc_settle(&c);
        ck_assert(x->primary);
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_CLOSED});
        ck_assert(!x->primary && x->settling);
        uint64_t b = hc_mkdir(&c, 0, "b");
        hc_view(&c, HC_SET(0));
        hc_settle(&c);
        ck_assert_int_eq(hc_reply(&c, 0, b)->result.error, 0);
        ck_assert(!hc_has(&c, 0, "a"));
        hc_done(&c);
}
END_TEST

START_TEST(stops_when_all_is_answered) {
        struct hcluster c;
        alone(&c);
        uint64_t a = hc_mkdir(&c, 0, "a");
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_STOP});
        uint64_t b = hc_mkdir(&c, 0, "b");
        ck_assert_int_eq(hc_reply(&c, 0, b)->result.error, -EROFS);
        ck_assert(!c.nodes[0].left);
        hc_settle(&c);
        ck_assert_int_eq(hc_reply(&c, 0, a)->result.error, 0);
        ck_assert(c.nodes[0].left);
        hc_done(&c);
}
END_TEST

START_TEST(an_empty_node_founds_nothing) {
        struct hcluster c;
        hc_init(&c, 1);
        memset(c.nodes[0].cluster_id, 0, 16);
        hc_boot(&c, 0);
        hc_view(&c, HC_SET(0));
        hc_settle(&c);
        ck_assert(!c.nodes[0].primary);
        ck_assert_str_eq(c.nodes[0].reason, "no member belongs to a cluster yet");
        hc_done(&c);
}
END_TEST

Suite *suite_alone(void) {
        Suite *s = suite_create("alone");
        TCase *t = tcase_create("alone");
        tcase_add_test(t, becomes_primary);
        tcase_add_test(t, one_message_per_operation);
        tcase_add_test(t, waits_for_log_and_kernel);
        tcase_add_test(t, large_operations_travel_in_pieces);
        tcase_add_test(t, waiting_operations_share_a_message);
        tcase_add_test(t, barriers);
        tcase_add_test(t, busy_holds_operations_back);
        tcase_add_test(t, no_quorum_no_writes);
        tcase_add_test(t, requests_wait_for_a_view_and_not_for_ever);
        tcase_add_test(t, stops_when_all_is_answered);
        tcase_add_test(t, an_empty_node_founds_nothing);
        suite_add_tcase(s, t);
        return s;
}
