/* nonsense.c: a member of the group that talks nonsense: joins as a coteried would, and for some seconds multicasts what MODE says.
 *
 *   garbage    bytes at random, of all sizes
 *   lengths    messages with intact headers and checksums and bodies at random, of every type, before any STATE
 *   member     answers each view with a STATE and the JOINED that it hears from others, is counted, and then talks as in `lengths`
 *   huge       messages of 900 KiB
 *   version    a STATE in a protocol version of its own
 *   silent     nothing at all
 *
 * usage: nonsense GROUP MODE SECONDS SEED */
#include "base/env.h"
#include "wire.h"

#include <corosync/cpg.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
        cpg_handle_t cpg;
        const char *mode;
        struct repl_member members[REPL_MEMBERS_MAX];
        size_t n, self;
        struct wire_header next;
        bool joined;
        uint64_t random;
        uint64_t sent;
} liar;

static uint32_t random_below(uint32_t n) {
        liar.random = liar.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(liar.random >> 33) % n;
}

static bool is_mode(const char *mode) {
        return strcmp(liar.mode, mode) == 0;
}

/* Refused ones are sent again later, or not: nobody relies on us. */
static bool multicast(const void *head, size_t head_len, const void *body, size_t len) {
        struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)head, .iov_len = head_len},
                               {.iov_base = (void *)(uintptr_t)body, .iov_len = len}};
        bool sent = cpg_mcast_joined(liar.cpg, CPG_TYPE_AGREED, iov, 2) == CS_OK;

        liar.sent += sent;
        return sent;
}

static void say(uint8_t type, const void *body, size_t len) {
        uint8_t head[WIRE_HEADER];

        liar.next.type = type;
        wire_header_encode(&liar.next, body, len, NULL, 0, head);
        if (multicast(head, sizeof head, body, len))
                liar.next.number++;
}

static void say_state(void) {
        struct wire_state s = {.votes = 1, .needed = 2, .expected = 3, .flags = STATE_QUORATE, .members = (UINT64_C(1) << liar.n) - 1};
        CLEANUP(enc_done) struct enc e;

        enc_init(&e, WIRE_BODY_MAX);
        wire_state_encode(&s, &e);
        say(WIRE_STATE, e.data, e.len);
}

static void on_deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *msg, size_t len) {
        struct wire_header h;
        const uint8_t *body;
        size_t n;

        (void)handle;
        (void)group;
        if (node == liar.members[liar.self].node && pid == (uint32_t)getpid())
                return;
        if (!is_mode("member") || wire_decode(msg, len, &h, &body, &n) < 0 || h.members != liar.next.members)
                return;
        if (h.round > liar.next.round) {
                liar.next.round = h.round;
                liar.next.number = 1;
                liar.joined = false;
                say_state();
        }
        if (h.type == WIRE_JOINED && !liar.joined) { /* as if it had what they have */
                liar.joined = true;
                say(WIRE_JOINED, body, n);
        }
}

static void begin_view(void) {
        liar.next.members = wire_members_hash(liar.members, liar.n);
        liar.next.round = 0;
        liar.next.number = 1;
        liar.next.instance++;
        liar.joined = false;
        if (is_mode("member") || is_mode("version"))
                say_state();
}

static void on_confchg(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t n,
                       const struct cpg_address *left, size_t n_left, const struct cpg_address *joined, size_t n_joined) {
        (void)handle;
        (void)group;
        (void)left;
        (void)n_left;
        (void)joined;
        (void)n_joined;
        liar.n = 0;
        for (uint32_t node = 0; node < 100 && liar.n < REPL_MEMBERS_MAX; node++) /* sorted */
                for (size_t i = 0; i < n; i++)
                        if (members[i].nodeid == node) {
                                if (members[i].pid == (uint32_t)getpid())
                                        liar.self = liar.n;
                                liar.members[liar.n++] = (struct repl_member){.node = node, .pid = members[i].pid};
                        }
        if (liar.next.ring.seq)
                begin_view();
}

static void on_totem(cpg_handle_t handle, struct cpg_ring_id ring, uint32_t n, const uint32_t *nodes) {
        (void)handle;
        (void)n;
        (void)nodes;
        liar.next.ring = (struct repl_ring){.node = ring.nodeid, .seq = ring.seq};
        if (liar.n)
                begin_view();
}

static void talk(void) {
        static uint8_t bytes[900 * 1024];
        size_t most = is_mode("huge") ? sizeof bytes : WIRE_BODY_MAX;
        size_t len = is_mode("huge") ? most : random_below(8) ? random_below(200) : random_below((uint32_t)most);

        for (size_t i = 0; i < len; i++)
                bytes[i] = (uint8_t)(random_below(4) ? random_below(256) : 0xff);
        if (is_mode("silent") || is_mode("version"))
                return;
        if (is_mode("garbage") || is_mode("huge")) {
                (void)multicast("", 0, bytes, len + 1);
                return;
        }
        if (is_mode("member") && !liar.joined)
                return;
        uint8_t type = (uint8_t)(1 + random_below(WIRE_TYPE_COUNT));
        if (type == WIRE_EXPEL || type == WIRE_READMIT || type == WIRE_ROUND)
                len = 0; /* what would be an order */
        say(type, bytes, len);
}

int main(int argc, char **argv) {
        cpg_model_v1_data_t model = {.model = CPG_MODEL_V1,
                                     .cpg_deliver_fn = on_deliver,
                                     .cpg_confchg_fn = on_confchg,
                                     .cpg_totem_confchg_fn = on_totem,
                                     .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF};
        struct cpg_name name = {0};
        int fd;

        if (argc != 5) {
                (void)fprintf(stderr, "usage: nonsense GROUP MODE SECONDS SEED\n");
                return 2;
        }
        liar.mode = argv[2];
        liar.random = strtoull(argv[4], NULL, 10);
        uint8_t version = is_mode("version") ? 2 : 1;
        liar.next = (struct wire_header){.version = version, .lowest = version, .highest = version, .incarnation = 4711};
        name.length = (uint32_t)strlen(argv[1]);
        memcpy(name.value, argv[1], name.length);
        if (cpg_model_initialize(&liar.cpg, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL) != CS_OK ||
            cpg_fd_get(liar.cpg, &fd) != CS_OK || cpg_join(liar.cpg, &name) != CS_OK) {
                (void)fprintf(stderr, "no corosync\n");
                return 1;
        }
        uint64_t until = env_monotonic_ns(env_system()) + strtoull(argv[3], NULL, 10) * UINT64_C(1000000000);
        while (env_monotonic_ns(env_system()) < until) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

                (void)poll(&poll_fd, 1, 2); /* talks on when nothing comes */
                if (cpg_dispatch(liar.cpg, CS_DISPATCH_ALL) != CS_OK)
                        return 1;
                talk();
        }
        (void)printf("%llu messages\n", (unsigned long long)liar.sent);
        (void)cpg_finalize(liar.cpg); /* leaves */
        return 0;
}
