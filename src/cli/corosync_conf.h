/* corosync_conf.h: reading and editing the text of a corosync.conf. Knows what Coterie's commands need and leaves every other line as it
 * is. Pure. */
#pragma once

#include "base/base.h"

#define CONF_TEXT_MAX  (1024u * 1024u)
#define CONF_NODES_MAX 128u

struct conf_span { /* bytes of the text */
        size_t at, len;
};
struct conf_node {
        uint32_t id;
        struct conf_span block; /* from `node {` to `}`, whole lines */
        struct conf_span name;  /* the value; len 0: has none */
        struct conf_span id_line;
};
struct conf {
        const char *text; /* the caller's */
        size_t len;
        uint64_t version; /* totem.config_version; 0: none */
        struct conf_span version_value, totem_line, cluster_name;
        struct conf_node nodes[CONF_NODES_MAX];
        size_t n;
};

/* ret_reason: why it cannot be used, in words. */
errint_t conf_parse(const char *text, size_t len, struct conf *ret, char *ret_reason, size_t reason_size);
const struct conf_node *conf_node_by(const struct conf *c, const char *node); /* an id or a name; NULL: not there */
bool conf_span_is(const struct conf *c, struct conf_span s, const char *text);

/* New texts, to be freed by the caller: with another version, without a node, with another name of a node. */
char *conf_with_version(const struct conf *c, uint64_t version);
char *conf_without(const struct conf *c, const struct conf_node *node);
char *conf_renamed(const struct conf *c, const struct conf_node *node, const char *name);
