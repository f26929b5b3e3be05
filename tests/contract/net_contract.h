/* net_contract.h: what net.h promises, as checks on what one member sees: a view comes before the first message, its members are sorted,
 * own messages come back, each sender's messages keep their order, and members that deliver the same deliver it in the same order (the
 * chained CRC: whoever runs several members compares it). The same for every transport: net_member.c (loopback, corosync), net_simulated.c.
 */
#pragma once

#include "base/hash.h"
#include "net/net.h"

#include <string.h>

#define CONTRACT_NODES_MAX   64u
#define CONTRACT_MESSAGE_MAX (64u * 1024u)

struct contract {
        size_t members;
        bool quorate, in_view;
        uint64_t delivered;
        uint64_t next[CONTRACT_NODES_MAX]; /* by node id: the number expected */
        uint32_t chain;
        const char *fault; /* the first one; NULL: none */
};

static inline void contract_fault(struct contract *c, const char *what) {
        if (!c->fault)
                c->fault = what;
}

static inline void contract_view(struct contract *c, uint64_t ring_seq, const struct net_member *members, size_t n) {
        if (ring_seq == 0)
                contract_fault(c, "a view without a ring");
        for (size_t i = 1; i < n; i++)
                if (members[i - 1].node > members[i].node)
                        contract_fault(c, "members are not sorted");
        c->members = n;
        c->in_view = true;
}

static inline void contract_deliver(struct contract *c, uint32_t sender, const void *data, size_t len) {
        uint64_t number;

        if (!c->in_view)
                contract_fault(c, "a message came before the first view");
        if (len < 8 || sender >= CONTRACT_NODES_MAX) {
                contract_fault(c, "a message that nobody sent");
                return;
        }
        memcpy(&number, data, 8);
        if (number != c->next[sender]++)
                contract_fault(c, "a sender's messages are out of order");
        for (size_t i = 8; i < len; i++)
                if (((const uint8_t *)data)[i] != (uint8_t)number) {
                        contract_fault(c, "a message is not what was sent");
                        break;
                }
        c->chain = crc32c(c->chain, &sender, sizeof(sender));
        c->chain = crc32c(c->chain, data, len);
        c->delivered++;
}

/* Message i: returns its length; large and small ones. */
static inline size_t contract_message(uint64_t i, uint8_t buffer[CONTRACT_MESSAGE_MAX]) {
        size_t len = 8 + (i * 7919) % (i % 50 == 0 ? CONTRACT_MESSAGE_MAX - 8 : 600);

        memset(buffer, (int)i, len);
        memcpy(buffer, &i, 8);
        return len;
}
