/* test_cluster.c: three members and more, by script: what is acknowledged, what a partition does, how those come back that were away. */
#include "harness.h"

#include "suites.h"

#include <stdio.h>

#define ALL3 HC_SET(0, 1, 2)

static void three(struct hcluster *c) {
        hc_init(c, 3);
        for (size_t i = 0; i < 3; i++)
                hc_boot(c, i);
        hc_view(c, ALL3);
        hc_settle(c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c->nodes[i].primary);
}

static void ok(struct hcluster *c, size_t i, uint64_t token) {
        const struct hreply *r = hc_reply(c, i, token);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(r->result.error, 0);
}
static void refused(struct hcluster *c, size_t i, uint64_t token, int error) {
        const struct hreply *r = hc_reply(c, i, token);
        ck_assert_ptr_nonnull(r);
        ck_assert_int_eq(r->result.error, error);
}

/* n operations on node i, settled. */
static void work(struct hcluster *c, size_t i, unsigned n, const char *prefix) {
        for (unsigned k = 0; k < n; k++) {
                char name[40];
                snprintf(name, sizeof(name), "%s%u", prefix, k);
                uint64_t t = hc_mkdir(c, i, name);
                hc_settle(c);
                ok(c, i, t);
        }
}

START_TEST(all_of_s_acknowledge) {
        struct hcluster c;
        three(&c);
        c.nodes[2].hold_written = true;
        uint64_t t = hc_mkdir(&c, 0, "x");
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(hc_has(&c, i, "x"));
        ck_assert_ptr_null(hc_reply(&c, 0, t)); /* two of three are not all */
        hc_step(&c, 2, &(struct repl_event){.kind = REPL_WRITTEN, .seq = {1}});
        hc_settle(&c);
        ok(&c, 0, t);
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(kernel_caches_count) {
        struct hcluster c;
        three(&c);
        c.nodes[1].hold_invalidated = true;
        uint64_t t = hc_mkdir(&c, 0, "x");
        hc_settle(&c);
        ck_assert_ptr_null(hc_reply(&c, 0, t));
        hc_step(&c, 1, &(struct repl_event){.kind = REPL_INVALIDATED, .seq = {1}});
        hc_settle(&c);
        ok(&c, 0, t);
        hc_done(&c);
}
END_TEST

START_TEST(barrier_is_on_every_medium) {
        struct hcluster c;
        three(&c);
        work(&c, 0, 1, "x");
        c.nodes[2].hold_flushed = true;
        uint64_t t = hc_barrier(&c, 0);
        hc_settle(&c);
        ck_assert_uint_eq(c.nodes[1].n_flushes, 1);
        ck_assert_uint_eq(c.nodes[2].n_flushes, 1);
        ck_assert_ptr_null(hc_reply(&c, 0, t));
        hc_step(&c, 2, &(struct repl_event){.kind = REPL_FLUSHED, .seq = {1}});
        hc_settle(&c);
        ok(&c, 0, t);
        hc_done(&c);
}
END_TEST

START_TEST(large_operation_on_three) {
        struct hcluster c;
        three(&c);
        uint64_t t = hc_mkdir(&c, 1, "big");
        hc_settle(&c);
        uint64_t ino = hc_reply(&c, 1, t)->result.ino;
        size_t n = 3 * MIB + 17;
        uint8_t *data = malloc(n);
        for (size_t i = 0; i < n; i++)
                data[i] = (uint8_t)(i * i >> 9);
        uint64_t w = hc_write(&c, 1, ino, data, n), x = hc_mkdir(&c, 0, "other");
        hc_settle(&c);
        ok(&c, 1, w);
        ok(&c, 0, x);
        hc_alike(&c, ALL3);
        struct blob *b = NULL;
        uint8_t *back = malloc(n);
        ck_assert_int_eq(tree_content(c.nodes[2].state.tree, ino, &b), 0);
        ck_assert_uint_eq(blob_read(b, 0, back, n), n);
        ck_assert_int_eq(memcmp(data, back, n), 0);
        blob_unref(b);
        free(back);
        free(data);
        hc_done(&c);
}
END_TEST

START_TEST(partition_and_merge_by_log) {
        struct hcluster c;
        three(&c);
        work(&c, 0, 3, "a");
        hc_view(&c, HC_SET(0, 1));
        hc_view(&c, HC_SET(2));
        hc_settle(&c);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary && !c.nodes[2].primary);
        refused(&c, 2, hc_mkdir(&c, 2, "no"), -EROFS);
        work(&c, 1, 5, "b");
        hc_view(&c, ALL3);
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        ck_assert_uint_eq(c.nodes[2].n_replaces, 0);
        hc_alike(&c, ALL3);
        ck_assert(hc_has(&c, 2, "b4") && !hc_has(&c, 2, "no"));
        work(&c, 2, 2, "c");
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

static void away_and_back_by_difference(unsigned files, size_t content) {
        struct hcluster c;
        three(&c);
        work(&c, 0, files, "a");
        hc_view(&c, HC_SET(0, 1));
        hc_crash(&c, 2);
        hc_settle(&c);
        work(&c, 1, 5, "b");
        uint8_t *data = malloc(content + 1);
        memset(data, 7, content);
        uint64_t ino;
        ck_assert_int_eq(tree_lookup(c.nodes[0].state.tree, INO_ROOT, "b3", 2, &ino), 0);
        uint64_t t = hc_write(&c, 0, ino, data, content);
        hc_settle(&c);
        ok(&c, 0, t);
        struct op gone = {.kind = OP_UNLINK, .unlink = {.parent = INO_ROOT, .name = {"a0", 2}}};
        CLEANUP(enc_done) struct enc e;
        enc_init(&e, OP_HEAD_MAX);
        gone.origin = repl_next_origin(c.nodes[0].r);
        ck_assert_int_eq(op_encode_head(&gone, &e), 0);
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_REQUEST, .request = {.token = 9999, .head = e.data, .head_len = e.len}});
        hc_settle(&c);
        ok(&c, 0, 9999);
        c.nodes[0].log_from = c.nodes[1].log_from = 1000000; /* nobody's log reaches back */
        hc_boot(&c, 2);
        hc_view(&c, ALL3);
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        ck_assert_uint_eq(c.nodes[2].n_replaces, 1);
        ck_assert_uint_eq(c.nodes[2].n_conflicts, 0);
        hc_alike(&c, ALL3);
        ck_assert(!hc_has(&c, 2, "a0"));
        char fault[200] = "";
        ck_assert_msg(tree_check(c.nodes[2].state.tree, fault, sizeof(fault)) == 0, "%s", fault);
        ck_assert(hash128_equal(tree_digest(c.nodes[2].state.tree), tree_digest_recompute(c.nodes[2].state.tree)));
        c.nodes[0].log_from = c.nodes[1].log_from = 0;
        work(&c, 2, 2, "c");
        hc_alike(&c, ALL3);
        free(data);
        hc_done(&c);
}
START_TEST(back_by_difference) {
        away_and_back_by_difference(3, 1000);
}
END_TEST
START_TEST(back_by_difference_many) {
        away_and_back_by_difference(700, 300000);
}
END_TEST

START_TEST(only_what_differs_travels) {
        struct hcluster c;
        three(&c);
        size_t n = 2 * MIB;
        uint8_t *data = malloc(n);
        for (size_t i = 0; i < n; i++)
                data[i] = (uint8_t)(i * 2654435761u >> 13);
        for (unsigned k = 0; k < 4; k++) {
                char name[8];
                snprintf(name, sizeof(name), "f%u", k);
                uint64_t t = hc_mkdir(&c, 0, name);
                hc_settle(&c);
                data[0] = (uint8_t)k;
                uint64_t w = hc_write(&c, 0, hc_reply(&c, 0, t)->result.ino, data, n);
                hc_settle(&c);
                ok(&c, 0, w);
        }
        hc_view(&c, HC_SET(0, 1));
        hc_view(&c, HC_SET(2));
        hc_settle(&c);
        work(&c, 0, 3, "b");
        c.nodes[0].log_from = c.nodes[1].log_from = 1000000;
        size_t before = c.nodes[0].n_sends;
        hc_view(&c, ALL3);
        hc_settle(&c);
        ck_assert_uint_eq(c.nodes[2].n_replaces, 1);
        ck_assert_uint_le(c.nodes[0].n_sends - before, 10); /* 8 MiB would be 128 pieces */
        hc_alike(&c, ALL3);
        free(data);
        hc_done(&c);
}
END_TEST

START_TEST(late_newcomer_under_load) {
        for (int by_log = 0; by_log < 2; by_log++) {
                struct hcluster c;
                three(&c);
                work(&c, 0, 30, "a");
                hc_crash(&c, 2);
                hc_view(&c, HC_SET(0, 1));
                hc_settle(&c);
                work(&c, 0, 40, "b");
                c.nodes[0].log_from = c.nodes[1].log_from = by_log ? 0 : 30 + 40 + 1;
                hc_boot(&c, 2);
                hc_view(&c, ALL3);
                /* A write after each delivery, while 2 catches up. */
                uint64_t tokens[300];
                unsigned n = 0;
                for (unsigned turn = 0; turn < 2000 && !(c.nodes[2].primary && n > 20); turn++) {
                        for (size_t i = 0; i < 3; i++) {
                                (void)hc_deliver(&c, i);
                                hc_events(&c, i);
                        }
                        if (c.nodes[0].primary && n < 300) {
                                char name[20];
                                snprintf(name, sizeof(name), "w%u", n);
                                tokens[n++] = hc_mkdir(&c, 0, name);
                        }
                }
                ck_assert(c.nodes[2].primary);
                hc_settle(&c);
                for (unsigned k = 0; k < n; k++)
                        ok(&c, 0, tokens[k]);
                hc_alike(&c, ALL3);
                ck_assert_uint_eq(c.nodes[2].n_replaces, by_log ? 0 : 1);
                hc_done(&c);
        }
}
END_TEST

START_TEST(unacknowledged_operation_of_the_losing_side) {
        struct hcluster c;
        three(&c);
        work(&c, 0, 2, "a");
        uint64_t t = hc_mkdir(&c, 2, "alone");
        while (hc_deliver(&c, 2)) /* 2 alone delivers it before the ring breaks */
                hc_events(&c, 2);
        ck_assert(hc_has(&c, 2, "alone"));
        ck_assert_ptr_null(hc_reply(&c, 2, t));
        c.nodes[0].at = c.nodes[1].at = c.nodes[0].view->n_queue; /* the others never get it */
        hc_view(&c, HC_SET(0, 1));
        hc_view(&c, HC_SET(2));
        hc_settle(&c);
        refused(&c, 2, t, -EIO);
        work(&c, 0, 1, "b");
        hc_view(&c, ALL3);
        hc_settle(&c);
        hc_alike(&c, ALL3);
        ck_assert(!hc_has(&c, 2, "alone"));
        ck_assert_uint_eq(c.nodes[2].n_conflicts, 1);
        ck_assert_uint_eq(c.nodes[2].n_replaces, 1);
        hc_done(&c);
}
END_TEST

/* Another member alone applied a request that its node gave up and passed by: that node keeps it. */
START_TEST(a_request_that_was_given_up) {
        struct hcluster c;
        three(&c);
        work(&c, 0, 2, "a");
        uint64_t t = hc_mkdir(&c, 0, "x");
        while (hc_deliver(&c, 2))
                hc_events(&c, 2);
        ck_assert(hc_has(&c, 2, "x"));
        c.nodes[0].at = c.nodes[1].at = c.nodes[0].view->n_queue;
        for (size_t i = 0; i < 3; i++)
                hc_view(&c, HC_SET(i));
        hc_settle(&c);
        refused(&c, 0, t, -EIO);
        hc_view(&c, HC_SET(0, 1));
        hc_settle(&c);
        ck_assert_uint_eq(c.nodes[0].n_conflicts, 1);
        work(&c, 0, 2, "b");
        hc_view(&c, ALL3);
        hc_settle(&c);
        hc_alike(&c, ALL3);
        ck_assert(!hc_has(&c, 2, "x"));
        ck_assert_uint_eq(c.nodes[0].n_conflicts + c.nodes[2].n_conflicts, 1);
        hc_done(&c);
}
END_TEST

START_TEST(conflicts_after_a_restart_come_from_the_log) {
        for (unsigned n = 1; n <= 12; n++) { /* however far the log reaches back */
                struct hcluster c;
                three(&c);
                work(&c, 0, 5, "a");
                for (unsigned k = 0; k < n; k++) {
                        char name[20];
                        snprintf(name, sizeof(name), "alone%u", k);
                        (void)hc_mkdir(&c, 2, name);
                        while (hc_deliver(&c, 2))
                                hc_events(&c, 2);
                }
                ck_assert_uint_eq(c.nodes[2].state.pos.seq, 5 + n);
                c.nodes[0].at = c.nodes[1].at = c.nodes[0].view->n_queue;
                hc_crash(&c, 2);
                c.nodes[2].log_from = 6;
                hc_view(&c, HC_SET(0, 1));
                hc_settle(&c);
                work(&c, 0, 1, "b");
                hc_boot(&c, 2);
                hc_view(&c, ALL3);
                hc_settle(&c);
                hc_alike(&c, ALL3);
                ck_assert_uint_eq(c.nodes[2].n_conflicts, n);
                ck_assert(!hc_has(&c, 2, "alone0"));
                hc_done(&c);
        }
}
END_TEST

START_TEST(sent_again_when_absent_and_looked_up_when_present) {
        struct hcluster c;
        three(&c);
        /* x reaches nobody: the view changes before it is delivered anywhere, and it comes back in the next one. */
        uint64_t x = hc_mkdir(&c, 0, "x");
        struct hmessage m = c.nodes[0].view->queue[c.nodes[0].view->n_queue - 1];
        for (size_t i = 0; i < 3; i++)
                c.nodes[i].at = c.nodes[i].view->n_queue;
        hc_view(&c, ALL3);
        struct repl_event ev = {.kind = REPL_DELIVER, .deliver = {.sender = {1, 1000}, .data = m.data, .len = m.len}};
        for (size_t i = 0; i < 3; i++)
                hc_step(&c, i, &ev);
        hc_settle(&c);
        ok(&c, 0, x);
        /* y is applied everywhere, but its acknowledgements are not delivered: it is found, not sent again. */
        uint64_t y = hc_mkdir(&c, 0, "y");
        for (size_t i = 0; i < 3; i++) {
                ck_assert(hc_deliver(&c, i));
                ck_assert(hc_has(&c, i, "y"));
        }
        ck_assert_ptr_null(hc_reply(&c, 0, y));
        uint64_t seq = c.nodes[0].state.pos.seq;
        for (size_t i = 0; i < 3; i++)
                c.nodes[i].at = c.nodes[i].view->n_queue;
        hc_view(&c, ALL3);
        hc_settle(&c);
        ok(&c, 0, y);
        ck_assert_uint_eq(c.nodes[0].state.pos.seq, seq);
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(silent_member_is_expelled_and_comes_back) {
        struct hcluster c;
        three(&c);
        c.nodes[2].hold_written = true; /* its disk hangs */
        uint64_t t = hc_mkdir(&c, 0, "x");
        hc_tick(&c, 300);
        ck_assert_ptr_null(hc_reply(&c, 0, t));
        hc_tick(&c, 500);
        ok(&c, 0, t);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary && !c.nodes[2].primary);
        struct repl_status s;
        repl_status(c.nodes[0].r, &s);
        ck_assert(s.members[2].expelled);
        c.nodes[2].hold_persisted = true; /* and goes on hanging: the test write does not end */
        hc_tick(&c, 3000);
        ck_assert(!c.nodes[2].primary);
        c.nodes[2].hold_written = c.nodes[2].hold_persisted = false;
        hc_step(&c, 2, &(struct repl_event){.kind = REPL_WRITTEN, .seq = {1}});
        hc_step(&c, 2, &(struct repl_event){.kind = REPL_PERSISTED}); /* far too late */
        hc_tick(&c, 5000);
        ck_assert(c.nodes[2].primary);
        work(&c, 2, 1, "y");
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(stopped_member_does_not_stall_a_view_change) {
        struct hcluster c;
        hc_init(&c, 3);
        for (size_t i = 0; i < 3; i++)
                hc_boot(&c, i);
        struct hview *v = hc_view_bare(&c, ALL3);
        hc_quorum(&c, 0, v->ring, true, 3);
        hc_quorum(&c, 1, v->ring, true, 3);
        hc_tick(&c, 2500); /* 2 never says a word */
        ck_assert(c.nodes[0].primary && c.nodes[1].primary);
        hc_quorum(&c, 2, v->ring, true, 3);
        hc_tick(&c, 3000);
        ck_assert(c.nodes[2].primary);
        work(&c, 2, 1, "y");
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

static size_t drop_left;
static bool drop_one_traffic(struct hcluster *c, size_t from, size_t to, const struct wire_header *h) {
        (void)c;
        return from == 0 && to == 2 && h->type == WIRE_TRAFFIC && drop_left > 0 && drop_left--;
}
static bool drop_one_state(struct hcluster *c, size_t from, size_t to, const struct wire_header *h) {
        (void)c;
        return from == 0 && to == 2 && h->type == WIRE_STATE && drop_left > 0 && drop_left--;
}

START_TEST(gaps_begin_a_new_round) {
        struct hcluster c;
        three(&c);
        drop_left = 1;
        c.drop = drop_one_traffic;
        uint64_t x = hc_mkdir(&c, 0, "x");
        uint64_t y = hc_mkdir(&c, 0, "y");
        hc_settle(&c);
        ck_assert_uint_eq(drop_left, 0);
        ok(&c, 0, x);
        ok(&c, 0, y);
        hc_alike(&c, ALL3);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        /* A lost STATE, with nothing behind it that would show the gap. */
        drop_left = 1;
        c.drop = drop_one_state;
        hc_view(&c, ALL3);
        hc_settle(&c);
        hc_tick(&c, 3000);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        work(&c, 0, 1, "z");
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(quorum_comes_and_goes_within_a_ring) {
        struct hcluster c;
        three(&c);
        struct repl_ring ring = c.nodes[0].view->ring;
        for (size_t i = 0; i < 3; i++)
                hc_quorum(&c, i, ring, false, 3);
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(!c.nodes[i].primary);
        for (size_t i = 0; i < 3; i++)
                hc_quorum(&c, i, ring, true, 3);
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        work(&c, 0, 1, "z");
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(quorum_of_another_ring_says_nothing) {
        struct hcluster c;
        hc_init(&c, 3);
        for (size_t i = 0; i < 3; i++)
                hc_boot(&c, i);
        for (size_t i = 0; i < 3; i++)
                hc_quorum(&c, i, (struct repl_ring){1, 8}, true, 3); /* early, of a ring to come */
        struct hview *v = hc_view_bare(&c, HC_SET(0, 1));            /* ring 4 */
        hc_settle(&c);
        ck_assert(!c.nodes[0].primary);
        ck_assert_str_eq(c.nodes[0].reason, "waiting for the quorum verdict of this ring");
        hc_quorum(&c, 0, v->ring, true, 2);
        hc_settle(&c);
        hc_quorum(&c, 1, v->ring, true, 2); /* late; the other's STATE was there before */
        hc_settle(&c);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary);
        v = hc_view_bare(&c, ALL3); /* ring 8: its notice is there already */
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        hc_done(&c);
}
END_TEST

START_TEST(forgetful_members_do_not_choose) {
        struct hcluster c;
        three(&c);
        hc_view(&c, HC_SET(0, 1));
        hc_crash(&c, 2);
        hc_settle(&c);
        work(&c, 0, 2, "a");
        hc_crash(&c, 0);
        hc_crash(&c, 1);
        /* 1 lost its last seconds: as if it had never applied them. */
        uint64_t adopted = c.nodes[1].adopted;
        hc_wipe(&c, 1);
        memcpy(c.nodes[1].cluster_id, c.nodes[0].cluster_id, 16);
        c.nodes[1].promised = c.nodes[1].adopted = adopted;
        hc_boot(&c, 1);
        hc_boot(&c, 2);
        hc_view(&c, HC_SET(1, 2));
        hc_settle(&c);
        ck_assert(!c.nodes[1].primary && !c.nodes[2].primary);
        hc_boot(&c, 0);
        hc_view(&c, ALL3);
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(c.nodes[i].primary);
        ck_assert(hc_has(&c, 1, "a1") && hc_has(&c, 2, "a1"));
        hc_done(&c);
}
END_TEST

START_TEST(forgetful_wait_ends) {
        struct hcluster c;
        hc_init(&c, 3);
        for (size_t i = 0; i < 2; i++) {
                c.nodes[i].forgetful = true;
                hc_boot(&c, i);
        }
        hc_view(&c, HC_SET(0, 1));
        hc_tick(&c, 59000);
        ck_assert(!c.nodes[0].primary);
        hc_tick(&c, 2000);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary);
        hc_done(&c);
        hc_init(&c, 3);
        for (size_t i = 0; i < 2; i++) {
                c.nodes[i].forgetful = true;
                hc_boot(&c, i);
        }
        hc_view(&c, HC_SET(0, 1));
        hc_settle(&c);
        hc_step(&c, 1, &(struct repl_event){.kind = REPL_FORGIVE});
        hc_settle(&c);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary);
        hc_done(&c);
}
END_TEST

/* A founder and one of two empty nodes: nothing was ever acknowledged, so nothing can be forgotten. Once something was, it can. */
START_TEST(founder_does_not_wait) {
        struct hcluster c;
        hc_init(&c, 3);
        hc_wipe(&c, 1);
        hc_wipe(&c, 2);
        hc_boot(&c, 0);
        hc_boot(&c, 1);
        hc_view(&c, HC_SET(0, 1));
        hc_settle(&c);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary);
        work(&c, 1, 2, "a");
        hc_crash(&c, 0);
        hc_crash(&c, 1);
        hc_wipe(&c, 1);
        hc_boot(&c, 0);
        hc_boot(&c, 1);
        hc_view(&c, HC_SET(0, 1));
        hc_settle(&c);
        ck_assert(!c.nodes[0].primary && !c.nodes[1].primary);
        hc_done(&c);
}
END_TEST

/* The founder dies before its promise is on the medium: nobody else may have joined, or taken the cluster's id. */
START_TEST(founder_promises_first) {
        struct hcluster c;
        static const uint8_t none[16];
        hc_init(&c, 3);
        hc_wipe(&c, 1);
        hc_wipe(&c, 2);
        c.nodes[0].hold_persisted = true;
        for (size_t i = 0; i < 3; i++)
                hc_boot(&c, i);
        hc_view(&c, ALL3);
        hc_settle(&c);
        for (size_t i = 1; i < 3; i++) {
                ck_assert_uint_eq(c.nodes[i].promised, 0);
                ck_assert_int_eq(memcmp(c.nodes[i].cluster_id, none, sizeof(none)), 0);
        }
        hc_crash(&c, 0);
        hc_view(&c, HC_SET(1, 2));
        hc_settle(&c);
        ck_assert(!c.nodes[1].primary && !c.nodes[2].primary);
        hc_done(&c);
}
END_TEST

/* The caller was interrupted while another member does not acknowledge: it is told soon that the fate is not known; the operation goes on.
 */
START_TEST(withdrawn_under_way) {
        struct hcluster c;
        three(&c);
        c.nodes[1].hold_invalidated = true;
        uint64_t t = hc_mkdir(&c, 0, "x");
        hc_settle(&c);
        hc_step(&c, 0, &(struct repl_event){.kind = REPL_WITHDRAW, .withdraw = {t}});
        hc_settle(&c);
        ck_assert_ptr_null(hc_reply(&c, 0, t));
        hc_tick(&c, 400);
        ck_assert_ptr_nonnull(hc_reply(&c, 0, t));
        ck_assert_int_eq(hc_reply(&c, 0, t)->result.error, -EIO);
        c.nodes[1].hold_invalidated = false;
        hc_step(&c, 1, &(struct repl_event){.kind = REPL_INVALIDATED, .seq = {1}});
        hc_settle(&c);
        for (size_t i = 0; i < 3; i++)
                ck_assert(hc_has(&c, i, "x"));
        t = hc_mkdir(&c, 0, "y");
        hc_settle(&c);
        ok(&c, 0, t);
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

START_TEST(foreign_cluster_is_set_aside) {
        struct hcluster c;
        hc_init(&c, 3);
        memcpy(c.nodes[2].cluster_id, "another cluster!", 16);
        c.nodes[2].promised = c.nodes[2].adopted = 99; /* and much further on */
        for (size_t i = 0; i < 3; i++)
                hc_boot(&c, i);
        hc_view(&c, ALL3);
        hc_settle(&c);
        ck_assert(c.nodes[0].primary && c.nodes[1].primary && !c.nodes[2].primary);
        ck_assert_uint_eq(c.nodes[0].epoch, 1);
        ck_assert_str_eq(c.nodes[2].reason, "this node belongs to another cluster than the others here");
        work(&c, 0, 1, "a");
        ck_assert(!hc_has(&c, 2, "a0"));
        hc_done(&c);
}
END_TEST

START_TEST(empty_node_joins_and_takes_the_id) {
        struct hcluster c;
        three(&c);
        work(&c, 0, 10, "a");
        hc_crash(&c, 2);
        hc_view(&c, HC_SET(0, 1));
        hc_settle(&c);
        hc_wipe(&c, 2);
        hc_boot(&c, 2);
        hc_view(&c, ALL3);
        hc_settle(&c);
        ck_assert(c.nodes[2].primary);
        ck_assert_int_eq(memcmp(c.nodes[2].cluster_id, c.nodes[0].cluster_id, 16), 0);
        hc_alike(&c, ALL3);
        hc_done(&c);
}
END_TEST

Suite *suite_cluster(void) {
        Suite *s = suite_create("cluster");
        TCase *t = tcase_create("cluster");
        tcase_set_timeout(t, 60);
        tcase_add_test(t, all_of_s_acknowledge);
        tcase_add_test(t, kernel_caches_count);
        tcase_add_test(t, barrier_is_on_every_medium);
        tcase_add_test(t, large_operation_on_three);
        tcase_add_test(t, partition_and_merge_by_log);
        tcase_add_test(t, back_by_difference);
        tcase_add_test(t, back_by_difference_many);
        tcase_add_test(t, only_what_differs_travels);
        tcase_add_test(t, late_newcomer_under_load);
        tcase_add_test(t, unacknowledged_operation_of_the_losing_side);
        tcase_add_test(t, a_request_that_was_given_up);
        tcase_add_test(t, conflicts_after_a_restart_come_from_the_log);
        tcase_add_test(t, sent_again_when_absent_and_looked_up_when_present);
        tcase_add_test(t, silent_member_is_expelled_and_comes_back);
        tcase_add_test(t, stopped_member_does_not_stall_a_view_change);
        tcase_add_test(t, gaps_begin_a_new_round);
        tcase_add_test(t, quorum_comes_and_goes_within_a_ring);
        tcase_add_test(t, quorum_of_another_ring_says_nothing);
        tcase_add_test(t, forgetful_members_do_not_choose);
        tcase_add_test(t, forgetful_wait_ends);
        tcase_add_test(t, withdrawn_under_way);
        tcase_add_test(t, founder_does_not_wait);
        tcase_add_test(t, founder_promises_first);
        tcase_add_test(t, foreign_cluster_is_set_aside);
        tcase_add_test(t, empty_node_joins_and_takes_the_id);
        suite_add_tcase(s, t);
        return s;
}
