/* corosync_conf.c: see corosync_conf.h. The format is corosync.conf(5)'s: sections `name {` ... `}`, lines `key: value`, comments with #.
 */
#include "corosync_conf.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 8u

struct scan {
        struct conf *conf;
        struct conf_span path[DEPTH_MAX]; /* names of the sections we are in */
        size_t depth;
        struct conf_node node;
        bool has_id;
        char *reason;
        size_t reason_size;
};

static struct conf_span trim(const char *text, struct conf_span s) {
        while (s.len > 0 && isspace((unsigned char)text[s.at]))
                s.at++, s.len--;
        while (s.len > 0 && isspace((unsigned char)text[s.at + s.len - 1]))
                s.len--;
        return s;
}

bool conf_span_is(const struct conf *c, struct conf_span s, const char *text) {
        return s.len == strlen(text) && memcmp(c->text + s.at, text, s.len) == 0;
}

static bool is_in(const struct scan *s, size_t depth, const char *a, const char *b) {
        return s->depth == depth && conf_span_is(s->conf, s->path[0], a) && (depth < 2 || conf_span_is(s->conf, s->path[1], b));
}

static errint_t refuse(struct scan *s, const char *why, struct conf_span line) {
        (void)snprintf(s->reason, s->reason_size, "%s: %.*s", why, (int)MIN_OF(line.len, (size_t)80), s->conf->text + line.at);
        return -EINVAL;
}

static errint_t number_of(struct scan *s, struct conf_span value, uint64_t *ret) {
        char text[24], *end;

        if (value.len == 0 || value.len >= sizeof(text))
                return refuse(s, "not a number", value);
        memcpy(text, s->conf->text + value.at, value.len);
        text[value.len] = '\0';
        *ret = strtoull(text, &end, 10);
        return *end ? refuse(s, "not a number", value) : 0;
}

static errint_t open_section(struct scan *s, struct conf_span name, struct conf_span line) {
        if (s->depth == DEPTH_MAX)
                return refuse(s, "sections are nested too deeply", line);
        s->path[s->depth++] = name;
        if (is_in(s, 1, "totem", NULL))
                s->conf->totem_line = line;
        if (is_in(s, 2, "nodelist", "node")) {
                s->node = (struct conf_node){.block = line};
                s->has_id = false;
        }
        return 0;
}

static errint_t close_section(struct scan *s, struct conf_span line) {
        struct conf *c = s->conf;

        if (s->depth == 0)
                return refuse(s, "a section ends that did not begin", line);
        if (is_in(s, 2, "nodelist", "node")) {
                if (!s->has_id)
                        return refuse(s, "a node without nodeid", s->node.block);
                if (c->n == CONF_NODES_MAX)
                        return refuse(s, "too many nodes", line);
                for (size_t i = 0; i < c->n; i++)
                        if (c->nodes[i].id == s->node.id)
                                return refuse(s, "two nodes have the same id", s->node.id_line);
                s->node.block.len = line.at + line.len - s->node.block.at;
                c->nodes[c->n++] = s->node;
        }
        s->depth--;
        return 0;
}

static errint_t key_value(struct scan *s, struct conf_span key, struct conf_span value, struct conf_span line) {
        struct conf *c = s->conf;
        uint64_t v = 0;

        if (is_in(s, 1, "totem", NULL) && conf_span_is(c, key, "cluster_name"))
                c->cluster_name = value;
        if (is_in(s, 1, "totem", NULL) && conf_span_is(c, key, "config_version")) {
                c->version_value = value;
                return number_of(s, value, &c->version);
        }
        if (is_in(s, 2, "nodelist", "node") && conf_span_is(c, key, "name"))
                s->node.name = value;
        if (is_in(s, 2, "nodelist", "node") && conf_span_is(c, key, "nodeid")) {
                errint_t e = number_of(s, value, &v);
                if (e < 0 || v == 0 || v > UINT32_MAX)
                        return refuse(s, "bad nodeid", line);
                s->node.id = (uint32_t)v;
                s->node.id_line = line;
                s->has_id = true;
        }
        return 0;
}

static errint_t scan_line(struct scan *s, struct conf_span line) {
        const char *text = s->conf->text;
        struct conf_span body = trim(text, line);

        if (body.len == 0 || text[body.at] == '#')
                return 0;
        if (text[body.at + body.len - 1] == '{')
                return open_section(s, trim(text, (struct conf_span){body.at, body.len - 1}), line);
        if (body.len == 1 && text[body.at] == '}')
                return close_section(s, line);
        const char *colon = memchr(text + body.at, ':', body.len);
        if (!colon)
                return refuse(s, "neither a section nor a key", body);
        size_t at = (size_t)(colon - text);
        return key_value(s, trim(text, (struct conf_span){body.at, at - body.at}),
                         trim(text, (struct conf_span){at + 1, body.at + body.len - at - 1}), line);
}

errint_t conf_parse(const char *text, size_t len, struct conf *ret, char *ret_reason, size_t reason_size) {
        struct conf c = {.text = text, .len = len};
        struct scan s = {.conf = &c, .reason = ret_reason, .reason_size = reason_size};

        for (size_t at = 0; at < len;) {
                const char *end = memchr(text + at, '\n', len - at);
                struct conf_span line = {at, end ? (size_t)(end - text) + 1 - at : len - at};
                errint_t e = scan_line(&s, line);
                if (e < 0)
                        return e;
                at += line.len;
        }
        if (s.depth > 0)
                return refuse(&s, "a section has no end", s.path[s.depth - 1]);
        if (c.n == 0 || c.totem_line.len == 0)
                return refuse(&s, "no totem section or no nodes", (struct conf_span){0, 0});
        *ret = c;
        return 0;
}

const struct conf_node *conf_node_by(const struct conf *c, const char *node) {
        char *end;
        unsigned long id = strtoul(node, &end, 10);

        for (size_t i = 0; i < c->n; i++)
                if ((*end == '\0' && c->nodes[i].id == id) || (c->nodes[i].name.len && conf_span_is(c, c->nodes[i].name, node)))
                        return &c->nodes[i];
        return NULL;
}

/* The text with `old` replaced. */
static char *spliced(const struct conf *c, struct conf_span old, const char *with) {
        size_t n = strlen(with);
        char *out = xmalloc(c->len - old.len + n + 1);

        memcpy(out, c->text, old.at);
        memcpy(out + old.at, with, n);
        memcpy(out + old.at + n, c->text + old.at + old.len, c->len - old.at - old.len);
        out[c->len - old.len + n] = '\0';
        return out;
}

char *conf_with_version(const struct conf *c, uint64_t version) {
        char line[64];

        if (c->version_value.len > 0) {
                (void)snprintf(line, sizeof(line), "%llu", (unsigned long long)version);
                return spliced(c, c->version_value, line);
        }
        (void)snprintf(line, sizeof(line), "    config_version: %llu\n", (unsigned long long)version);
        return spliced(c, (struct conf_span){c->totem_line.at + c->totem_line.len, 0}, line);
}

char *conf_without(const struct conf *c, const struct conf_node *node) {
        return spliced(c, node->block, "");
}

char *conf_renamed(const struct conf *c, const struct conf_node *node, const char *name) {
        char line[320];

        if (node->name.len > 0)
                return spliced(c, node->name, name);
        (void)snprintf(line, sizeof(line), "        name: %s\n", name);
        return spliced(c, (struct conf_span){node->id_line.at + node->id_line.len, 0}, line);
}
