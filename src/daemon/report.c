/* report.c: what the daemon tells about itself: status as JSON (its keys are documented in coterie(1)), metrics as Prometheus text. */
#include "daemon_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static json_t *number(uint64_t v) {
        return json_integer((json_int_t)v);
}

static void set(json_t *object, const char *key, json_t *value) {
        int failed = json_object_set_new(object, key, value);
        POST(failed == 0); /* our own keys and values, valid UTF-8; else out of memory */
}

/* Text that came from outside may hold any bytes. */
static json_t *text(const char *s) {
        json_t *j = json_string(s);
        char quoted[4096];
        return j ? j : json_string(log_quote(s, strlen(s), quoted, sizeof(quoted)));
}

static json_t *members(struct daemon *d, const struct repl_status *r) {
        json_t *list = json_array();

        for (size_t i = 0; i < r->n_members; i++) {
                json_t *m = json_object();
                char name[256];
                set(m, "node", number(r->members[i].node));
                set(m, "pid", number(r->members[i].pid));
                if (d->net->ops->node_name(d->net, r->members[i].node, name, sizeof(name)) == 0)
                        set(m, "name", text(name));
                set(m, "synced", json_boolean(r->members[i].synced));
                set(m, "expelled", json_boolean(r->members[i].expelled));
                set(m, "acked_sequence", number(r->members[i].acked_seq));
                set(m, "flushed_sequence", number(r->members[i].acked_medium));
                (void)json_array_append_new(list, m); /* a new array and a new object */
        }
        return list;
}

static json_t *counters(const struct metrics *m) {
        json_t *object = json_object();
        for (int i = 0; i < METRIC_COUNT; i++)
                set(object, metric_name((enum metric)i), number(metric_get(m, (enum metric)i)));
        return object;
}

/* By the kinds that there were. What a checkpoint writes is of many operations at once: home_bytes has no kinds. */
static json_t *kinds(const struct metrics *m) {
        json_t *object = json_object();
        for (unsigned i = 0; i < OP_KIND_COUNT; i++) {
                const struct metrics_kind *k = &m->kinds[i];
                if (atomic_load_explicit(&k->records, memory_order_relaxed) == 0)
                        continue;
                json_t *o = json_object();
                set(o, "records", number(atomic_load_explicit(&k->records, memory_order_relaxed)));
                set(o, "log_bytes", number(atomic_load_explicit(&k->log_bytes, memory_order_relaxed)));
                set(o, "content_bytes", number(atomic_load_explicit(&k->content_bytes, memory_order_relaxed)));
                set(object, op_kind_text((enum op_kind)i), o);
        }
        return object;
}

static void add_tree(struct daemon *d, json_t *root) {
        char digest[HASH128_TEXT];
        struct tree_usage usage;
        const struct state *state = shared_state_read(d->state);
        struct position pos = state->pos;

        hash128_text(state_digest(state), digest);
        tree_usage(state->tree, &usage);
        shared_state_done_read(d->state);
        set(root, "sequence", number(pos.seq));
        set(root, "digest", json_string(digest));
        json_t *u = json_object();
        set(u, "inodes", number(usage.inodes));
        set(u, "inodes_max", number(usage.inodes_max));
        set(u, "bytes", number(usage.bytes));
        set(u, "bytes_max", number(usage.bytes_max));
        set(root, "usage", u);
}

static void add_settings(struct daemon *d, json_t *root) {
        static const char *const shown[] = {"sync_level", "sync_method", "commit_interval", "commit_bytes"};
        char buf[OPTION_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
                mount_setting_text(d, shown[i], buf, sizeof(buf));
                set(root, shown[i], json_string(buf));
        }
}

static json_t *store_object(const struct engine_status *s) {
        json_t *o = json_object();
        set(o, "appended_sequence", number(s->appended_seq));
        set(o, "written_sequence", number(s->written_seq));
        set(o, "flushed_sequence", number(s->flushed_seq));
        set(o, "waiting", json_boolean(s->stalled));
        set(o, "failed", json_boolean(s->store_failed));
        set(o, "reason", text(s->store_reason));
        return o;
}

static json_t *conflicts_object(struct daemon *d) {
        struct conflicts_count count;
        json_t *o = json_object();

        conflicts_count(d->conflicts, &count);
        set(o, "records", number(count.records));
        set(o, "bytes", number(count.bytes));
        set(o, "waiting", number(count.waiting));
        return o;
}

static void add_progress(const struct repl_progress *p, json_t *root) {
        json_t *o = json_object();

        set(o, "from_node", number(p->donor));
        set(o, "by", json_string(p->by_log ? "log" : "difference"));
        set(o, "received_bytes", number(p->received));
        set(o, "missing_objects", number(p->known));
        set(o, "to_sequence", number(p->to_seq));
        set(o, "writing", json_boolean(p->writing));
        set(root, "catching_up", o);
}

static void add_cluster(struct daemon *d, const struct repl_status *r, json_t *root) {
        struct net_cluster_info info;
        json_t *c, *ring;

        if (!cluster_info(d, &info))
                return;
        c = json_object();
        ring = json_object();
        set(c, "name", text(info.cluster_name));
        set(c, "node", number(d->net->ops->node_id(d->net)));
        set(c, "connected", json_boolean(info.connected));
        set(c, "problem", text(info.connected ? "" : info.problem));
        set(c, "member", json_boolean(r->founded));
        set(ring, "node", number(r->ring.node));
        set(ring, "sequence", number(r->ring.seq));
        set(c, "ring", ring);
        set(c, "quorate", json_boolean(info.connected && info.quorate));
        set(c, "votes", number(info.total_votes));
        set(c, "votes_own", number(info.node_votes));
        set(c, "votes_needed", number(info.quorum_votes));
        set(c, "votes_expected", number(info.expected_votes));
        set(c, "weak_quorum", text(info.weak_reason ? info.weak_reason : ""));
        set(c, "token_ms", number(info.token_ms));
        set(c, "consensus_ms", number(info.consensus_ms));
        set(root, "cluster", c);
}

char *report_status(struct daemon *d) {
        struct engine_status s;
        json_t *root = json_object();
        char reason[512];

        engine_status(d->engine, &s);
        set(root, "version", json_string(COTERIE_VERSION_TEXT));
        set(root, "mode", json_string(d->options->standalone.number ? "standalone" : "cluster"));
        set(root, "pid", number((uint64_t)getpid()));
        set(root, "uptime_seconds", number((env_monotonic_ns(env_system()) / 1000000u - d->started_ms) / 1000u));
        set(root, "mountpoint", text(d->options->mountpoint));
        set(root, "database", text(d->options->db.text));
        set(root, "run_dir", text(d->options->run_dir.text));
        set(root, "state", json_string(s.repl.state));
        set(root, "primary", json_boolean(s.repl.primary));
        set(root, "writable", json_boolean(engine_writable(d->engine) == 0 && !d->options->read_only.number));
        cluster_reason(d, &s, reason, sizeof(reason));
        set(root, "reason", text(reason));
        add_cluster(d, &s.repl, root);
        if (s.repl.progress.donor)
                add_progress(&s.repl.progress, root);
        set(root, "epoch", number(s.repl.epoch));
        set(root, "promised", number(s.repl.promised));
        set(root, "adopted", number(s.repl.adopted));
        add_tree(d, root);
        set(root, "stable_sequence", number(s.repl.stable_seq));
        set(root, "requests", number(s.in_flight));
        set(root, "members", members(d, &s.repl));
        add_settings(d, root);
        set(root, "store", store_object(&s));
        set(root, "conflicts", conflicts_object(d));
        set(root, "max_write", number(atomic_load(&d->edge) ? fuse_edge_max_write(atomic_load(&d->edge)) : 0));
        set(root, "counters", counters(d->metrics));
        set(root, "by_kind", kinds(d->metrics));
        char *out = json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        POST(out != NULL);
        return out;
}

/* --- metrics */

struct gauge {
        const char *name, *help;
        uint64_t value;
};

static void print_gauge(FILE *f, const struct gauge *g) {
        (void)fprintf(f, "# HELP coterie_%s %s\n# TYPE coterie_%s gauge\ncoterie_%s %llu\n", g->name, g->help, g->name, g->name,
                      (unsigned long long)g->value);
}

static void print_gauges(struct daemon *d, FILE *f) {
        struct engine_status s;
        struct tree_usage usage;

        engine_status(d->engine, &s);
        const struct state *state = shared_state_read(d->state);
        uint64_t seq = state->pos.seq;
        tree_usage(state->tree, &usage);
        shared_state_done_read(d->state);
        const struct gauge gauges[] = {
                {"primary", "1: this node can write", s.repl.primary},
                {"store_failed", "1: the store refuses everything", s.store_failed},
                {"epoch", "epoch of the last operation applied", s.repl.epoch},
                {"sequence", "last operation applied", seq},
                {"stable_sequence", "last operation that every member of the synced set confirmed", s.repl.stable_seq},
                {"flushed_sequence", "last operation known to be on the medium here", s.flushed_seq},
                {"members", "members of the view", s.repl.n_members},
                {"requests_waiting", "operations and barriers under way", s.in_flight},
                {"inodes", "inodes in use", usage.inodes},
                {"inodes_limit", "most inodes", usage.inodes_max},
                {"tree_bytes", "bytes in use as df counts them", usage.bytes},
                {"tree_bytes_limit", "largest tree", usage.bytes_max},
        };
        for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
                print_gauge(f, &gauges[i]);
}

static void print_counters(const struct metrics *m, FILE *f) {
        for (int i = 0; i < METRIC_COUNT; i++) {
                const char *name = metric_name((enum metric)i), *help = metric_help((enum metric)i);
                unsigned long long v = metric_get(m, (enum metric)i);
                if (i == METRIC_FUSE_WRITE_MAX) /* a maximum, not a count */
                        (void)fprintf(f, "# HELP coterie_%s %s\n# TYPE coterie_%s gauge\ncoterie_%s %llu\n", name, help, name, name, v);
                else
                        (void)fprintf(f, "# HELP coterie_%s_total %s\n# TYPE coterie_%s_total counter\ncoterie_%s_total %llu\n", name, help,
                                      name, name, v);
        }
}

char *report_metrics(struct daemon *d) {
        char *out = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&out, &n);

        POST(f != NULL);
        (void)fprintf(
                f,
                "# HELP coterie_build_info version of the daemon\n# TYPE coterie_build_info gauge\ncoterie_build_info{version=\"%s\"} 1\n",
                COTERIE_VERSION_TEXT);
        print_gauges(d, f);
        print_counters(d->metrics, f);
        int failed = fclose(f);
        POST(failed == 0); /* memory */
        return out;
}

/* --- virtual files */

static char *report_members(struct daemon *d) {
        struct engine_status s;
        char *out = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&out, &n);

        POST(f != NULL);
        engine_status(d->engine, &s);
        for (size_t i = 0; i < s.repl.n_members; i++) {
                char name[256] = "-";
                (void)d->net->ops->node_name(d->net, s.repl.members[i].node, name, sizeof(name)); /* unknown: "-" */
                (void)fprintf(f, "%u %s %s\n", s.repl.members[i].node, name,
                              s.repl.members[i].expelled ? "expelled"
                              : s.repl.members[i].synced ? "synced"
                                                         : "joining");
        }
        int failed = fclose(f);
        POST(failed == 0); /* memory */
        return out;
}

errint_t report_virtual(void *ctx, const char *name, struct enc *e) {
        struct daemon *d = ctx;
        cleanup_free char *out = NULL;

        if (strcmp(name, "status") == 0)
                out = report_status(d);
        else if (strcmp(name, "metrics") == 0)
                out = report_metrics(d);
        else if (strcmp(name, "members") == 0)
                out = report_members(d);
        else
                return -ENOENT;
        enc_raw(e, out, strlen(out));
        if (strcmp(name, "status") == 0)
                enc_u8(e, '\n');
        return e->err;
}
