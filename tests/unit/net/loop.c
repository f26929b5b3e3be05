/* loop.c: the loopback transport: a view of one, quorum, and every message back, whole and in order. */
#include "unit.h"

#include "net/net.h"
#include <string.h>

struct seen {
        unsigned views, quorums, delivers;
        bool view_first, quorate;
        struct net_ring ring;
        struct net_member member;
        size_t len;
        uint8_t data[NET_MESSAGE_MAX];
};

static void on_deliver(void *ctx, struct net_member sender, const void *data, size_t len) {
        struct seen *s = ctx;
        s->delivers++;
        s->member = sender;
        s->len = len;
        memcpy(s->data, data, len);
}
static void on_view(void *ctx, struct net_ring ring, const struct net_member *members, size_t n) {
        struct seen *s = ctx;
        ck_assert_uint_eq(n, 1);
        s->views++;
        s->view_first = s->quorums == 0;
        s->ring = ring;
        s->member = members[0];
}
static void on_quorum(void *ctx, const struct net_quorum *q) {
        struct seen *s = ctx;
        s->quorums++;
        s->quorate = q->quorate;
        ck_assert_uint_eq(q->n_nodes, 1);
        ck_assert_uint_eq(q->nodes[0], 7);
        ck_assert_uint_eq(q->ring.seq, s->ring.seq);
        ck_assert(!q->weak);
}

static struct seen seen;
static struct net *make(void) {
        memset(&seen, 0, sizeof(seen));
        return net_loop_new(7, &(struct net_handler){.deliver = on_deliver, .view = on_view, .quorum = on_quorum, .ctx = &seen});
}

START_TEST(one_quorate_view) {
        struct net *n = make();
        ck_assert_int_eq(n->ops->start(n), 0);
        ck_assert_uint_eq(seen.views, 1);
        ck_assert_uint_eq(seen.quorums, 1);
        ck_assert(seen.view_first && seen.quorate);
        ck_assert_uint_eq(seen.member.node, 7);
        ck_assert_uint_eq(n->ops->node_id(n), 7);
        n->ops->close(n);
}
END_TEST

START_TEST(messages_come_back) {
        struct net *n = make();
        ck_assert_int_eq(n->ops->start(n), 0);
        static char head[] = "head", body[] = "body";
        struct iovec two[] = {{.iov_base = head, .iov_len = 4}, {.iov_base = body, .iov_len = 4}};
        ck_assert_int_eq(n->ops->send(n, two, 2), 0);
        ck_assert_uint_eq(seen.delivers, 1);
        ck_assert_uint_eq(seen.len, 8);
        ck_assert_mem_eq(seen.data, "headbody", 8);
        two[1].iov_len = 0; /* an empty second piece */
        ck_assert_int_eq(n->ops->send(n, two, 2), 0);
        ck_assert_uint_eq(seen.len, 4);
        n->ops->close(n);
}
END_TEST

START_TEST(bounds) {
        static uint8_t big[NET_MESSAGE_MAX + 1];
        struct net *n = make();
        struct iovec v = {.iov_base = big, .iov_len = NET_MESSAGE_MAX};
        ck_assert_int_eq(n->ops->send(n, &v, 1), -ENOTCONN); /* not started */
        ck_assert_int_eq(n->ops->start(n), 0);
        ck_assert_int_eq(n->ops->send(n, &v, 1), 0);
        v.iov_len++;
        ck_assert_int_eq(n->ops->send(n, &v, 1), -EMSGSIZE);
        v.iov_len = 0;
        ck_assert_int_eq(n->ops->send(n, &v, 1), -EMSGSIZE);
        n->ops->leave(n);
        v.iov_len = 1;
        ck_assert_int_eq(n->ops->send(n, &v, 1), -ENOTCONN);
        ck_assert_uint_eq(seen.delivers, 1);
        n->ops->close(n);
}
END_TEST

static Suite *suite(void) {
        Suite *s = suite_create("net.loop");
        TCase *t = tcase_create("loop");
        tcase_add_test(t, one_quorate_view);
        tcase_add_test(t, messages_come_back);
        tcase_add_test(t, bounds);
        suite_add_tcase(s, t);
        return s;
}
UNIT_SUITE(suite)
