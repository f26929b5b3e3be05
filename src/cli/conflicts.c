/* conflicts.c: `coterie conflicts`: operations that this node had applied and that the surviving history does not have. The daemon keeps
 * one file for each beside the database (src/daemon/conflicts.c); they are read and removed here. */
#include "conflicts.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_MAX (OP_HEAD_MAX + OP_PAYLOAD_MAX + 2 * CONFLICT_PATH_MAX + 4096u)

struct records {
        struct conflict_file *items;
        size_t n;
        int dir;              /* -1: there is none */
        char mount[PATH_MAX]; /* "" if no daemon was asked */
};

static void records_done(struct records *r) {
        for (size_t i = 0; i < r->n; i++) {
                free(r->items[i].bytes);
                free(r->items[i].scratch);
                free(r->items[i].path);
                free(r->items[i].new_path);
        }
        free(r->items);
        cleanup_fdp_(&r->dir);
}

/* --- reading */
static char *text_of(const char *p, size_t n) {
        char *s = xmalloc(n + 1);
        memcpy(s, p, n);
        s[n] = '\0';
        return s;
}

static errint_t read_file(int dir, const char *name, uint8_t **ret, size_t *ret_len) {
        cleanup_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size > RECORD_MAX)
                return -EBADMSG;
        cleanup_free uint8_t *p = try_malloc((size_t)st.st_size + 1);
        if (!p)
                return -ENOMEM;
        for (size_t at = 0; at < (size_t)st.st_size;) {
                ssize_t n = read(fd, p + at, (size_t)st.st_size - at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EBADMSG;
                at += (size_t)n;
        }
        *ret = steal_pointer(&p);
        *ret_len = (size_t)st.st_size;
        return 0;
}

static errint_t load(int dir, const char *name, struct conflict_file *f) {
        size_t len = 0;
        errint_t r = read_file(dir, name, &f->bytes, &len);

        if (r == 0)
                r = conflict_decode(f->bytes, len, &f->c);
        if (r == 0)
                r = op_decode(f->c.head, f->c.head_len, f->c.payload, f->c.payload_len, &f->op, &f->scratch);
        if (r < 0) {
                free(f->bytes);
                f->bytes = NULL;
                return r;
        }
        (void)snprintf(f->name, sizeof(f->name), "%s", name);
        f->path = text_of(f->c.path, f->c.path_len);
        f->new_path = text_of(f->c.new_path, f->c.new_path_len);
        return 0;
}

static int by_position(const void *a, const void *b) {
        const struct conflict_file *x = a, *y = b;
        int c = position_cmp(x->c.pos, y->c.pos);
        return c != 0 ? c : strcmp(x->name, y->name);
}

static int read_records(const struct cli *cli, const char *db, struct records *r) {
        char path[PATH_MAX + 16];
        DIR *d;

        (void)snprintf(path, sizeof(path), "%s-conflicts", db);
        r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r->dir < 0)
                return errno == ENOENT ? 0 : cli_fail(cli, CTL_FAILED, "%s: %s", path, strerror(errno));
        if (!(d = fdopendir(dup(r->dir))))
                return cli_fail(cli, CTL_FAILED, "%s: %s", path, strerror(errno));
        for (const struct dirent *e; (e = readdir(d));) {
                struct conflict_file f = {0};
                if (!strchr(e->d_name, '-') || strlen(e->d_name) >= sizeof(f.name))
                        continue;
                errint_t error = load(r->dir, e->d_name, &f);
                if (error < 0) {
                        (void)cli_fail(cli, CTL_FAILED, "%s/%s: %s", path, e->d_name, error == -EBADMSG ? "damaged" : strerror(-error));
                        continue;
                }
                r->items = xrealloc(r->items, (r->n + 1) * sizeof(*r->items));
                r->items[r->n++] = f;
        }
        (void)closedir(d);
        if (r->n > 0)
                qsort(r->items, r->n, sizeof(*r->items), by_position);
        return 0;
}

/* The database's, or that of the running daemon. */
static int open_records(const struct cli *cli, const char *db, struct records *r) {
        json_t *s = NULL;
        int exit = 0;

        if (db)
                return read_records(cli, db, r);
        exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &s);
        if (exit != 0)
                return exit;
        const char *mount = json_string_value(json_object_get(s, "mountpoint"));
        (void)snprintf(r->mount, sizeof(r->mount), "%s", mount ? mount : "");
        exit = read_records(cli, json_string_value(json_object_get(s, "database")), r);
        json_decref(s);
        return exit;
}

/* --- list, show */
static const char *kept_text(const struct conflict_file *f, char buf[32]) {
        time_t t = (time_t)f->c.when.sec;
        struct tm tm;
        if (!gmtime_r(&t, &tm) || strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
                buf[0] = '\0';
        return buf;
}

static char *quoted(const char *text) {
        size_t n = strlen(text);
        char *buf = xmalloc(4 * n + 8);
        (void)log_quote(text, n, buf, 4 * n + 8); /* returns buf */
        return buf;
}

static char *paths_text(const struct conflict_file *f) {
        cleanup_free char *a = quoted(f->path), *b = quoted(f->new_path);
        size_t n = strlen(a) + strlen(b) + 8;
        char *both = xmalloc(n);

        if (f->op.kind == OP_SETTING)
                (void)snprintf(both, n, "-");
        else if (!f->path[0])
                (void)snprintf(both, n, "(without a name)");
        else if (f->new_path[0])
                (void)snprintf(both, n, "%s -> %s", a, b);
        else
                (void)snprintf(both, n, "%s", a);
        return both;
}

static json_t *json_text(const char *text) {
        cleanup_free char *q = quoted(text);
        json_t *j = json_string(text);
        return j ? j : json_string(q); /* no UTF-8 */
}

static json_t *describe_json(const struct conflict_file *f) {
        char kept[32], what[512];
        json_t *o = json_object();

        conflict_describe(&f->op, what, sizeof(what));
        (void)json_object_set_new(o, "id", json_string(f->name)); /* a new object, our own keys */
        (void)json_object_set_new(o, "epoch", json_integer((json_int_t)f->c.pos.epoch));
        (void)json_object_set_new(o, "sequence", json_integer((json_int_t)f->c.pos.seq));
        (void)json_object_set_new(o, "kept", json_string(kept_text(f, kept)));
        (void)json_object_set_new(o, "operation", json_string(op_kind_text(f->op.kind)));
        (void)json_object_set_new(o, "path", json_text(f->path));
        (void)json_object_set_new(o, "new_path", json_text(f->new_path));
        (void)json_object_set_new(o, "what", json_text(what));
        (void)json_object_set_new(o, "node", json_integer(f->op.origin.node));
        (void)json_object_set_new(o, "uid", json_integer(f->op.caller.uid));
        (void)json_object_set_new(o, "pid", json_integer(f->op.caller.pid));
        (void)json_object_set_new(o, "bytes", json_integer((json_int_t)f->op.payload.raw_len));
        return o;
}

static int list(const struct cli *cli, const struct records *r) {
        if (cli->json) {
                json_t *all = json_array();
                for (size_t i = 0; i < r->n; i++)
                        (void)json_array_append_new(all, describe_json(&r->items[i])); /* a new array and a new object */
                cli_print_json(all);
                json_decref(all);
                return 0;
        }
        if (r->n == 0)
                return 0;
        struct table *t = table_new(5);
        table_row(t, (const char *const[]){"ID", "KEPT", "NODE", "PATH", "OPERATION"});
        for (size_t i = 0; i < r->n; i++) {
                char kept[32], node[16], what[512];
                cleanup_free char *paths = paths_text(&r->items[i]);
                conflict_describe(&r->items[i].op, what, sizeof(what));
                (void)snprintf(node, sizeof(node), "%u", r->items[i].op.origin.node);
                table_row(t, (const char *const[]){r->items[i].name, kept_text(&r->items[i], kept), node, paths, what});
        }
        table_print(t, stdout);
        table_free(t);
        return 0;
}

static int show(const struct cli *cli, const struct conflict_file *f, bool content) {
        cleanup_free char *paths = paths_text(f);
        cleanup_free uint8_t *bytes = NULL;
        char kept[32], what[512];
        size_t n = 0;

        if (content) {
                if (conflict_content(&f->op, &bytes, &n) < 0)
                        return cli_fail(cli, CTL_FAILED, "%s: its content cannot be decompressed", f->name);
                (void)fwrite(bytes, 1, n, stdout);
                return 0;
        }
        if (cli->json) {
                json_t *o = describe_json(f);
                cli_print_json(o);
                json_decref(o);
                return 0;
        }
        conflict_describe(&f->op, what, sizeof(what));
        (void)printf("id         %s\nposition   epoch %" PRIu64 ", sequence %" PRIu64 " of the history that was left\nkept       %s\n",
                     f->name, f->c.pos.epoch, f->c.pos.seq, kept_text(f, kept));
        (void)printf("path       %s\noperation  %s\nby         uid %u, gid %u, pid %d on node %u\n", paths, what, f->op.caller.uid,
                     f->op.caller.gid, f->op.caller.pid, f->op.origin.node);
        return 0;
}

/* --- choosing, dropping */
static int find(const struct cli *cli, const struct records *r, const char *id, const struct conflict_file **ret) {
        const struct conflict_file *found = NULL;
        size_t n = strlen(id);

        for (size_t i = 0; i < r->n; i++) {
                const char *name = r->items[i].name;
                if (strncmp(name, id, n) != 0 || (name[n] != '\0' && name[n] != '-'))
                        continue;
                if (found)
                        return cli_fail(cli, CTL_FAILED, "%s: several records begin like that; give the whole name", id);
                found = &r->items[i];
        }
        if (!found)
                return cli_fail(cli, CTL_FAILED, "%s: no such record; `coterie conflicts list` shows them", id);
        *ret = found;
        return 0;
}

static int drop(const struct cli *cli, const struct records *r, const struct conflict_file *f) {
        return unlinkat(r->dir, f->name, 0) < 0 ? cli_fail(cli, CTL_FAILED, "%s: %s", f->name, strerror(errno)) : 0;
}

struct request {
        const char *verb, *db;
        bool all, keep, content;
        const char **ids;
        int n_ids;
};

static int act(const struct cli *cli, const struct request *q, const struct records *r, const struct conflict_file *f) {
        cleanup_fd int root = -1;
        int exit;

        if (strcmp(q->verb, "show") == 0)
                return show(cli, f, q->content);
        if (strcmp(q->verb, "drop") == 0)
                return drop(cli, r, f);
        if (!r->mount[0])
                return cli_fail(cli, CTL_USAGE, "%s needs the running daemon", q->verb);
        root = open(r->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", r->mount, strerror(errno));
        if (strcmp(q->verb, "diff") == 0)
                return conflict_diff(cli, root, f);
        exit = conflict_apply(cli, root, f);
        return exit == 0 && !q->keep ? drop(cli, r, f) : exit;
}

static int act_on_all(const struct cli *cli, const struct request *q, const struct records *r) {
        int exit = 0;

        if (q->all) {
                for (size_t i = 0; i < r->n && exit == 0; i++)
                        exit = act(cli, q, r, &r->items[i]);
                return exit;
        }
        for (int i = 0; i < q->n_ids && exit == 0; i++) {
                const struct conflict_file *f = NULL;
                exit = find(cli, r, q->ids[i], &f);
                if (exit == 0)
                        exit = act(cli, q, r, f);
        }
        return exit;
}

static bool parse(struct request *q, int argc, char **argv) {
        static const char *const verbs[] = {"list", "show", "diff", "apply", "drop"};
        bool known = false;

        q->verb = argc > 0 && argv[0][0] != '-' ? argv[0] : "list";
        for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
                known = known || strcmp(q->verb, verbs[i]) == 0;
        for (int i = argc > 0 && argv[0][0] != '-' ? 1 : 0; i < argc; i++) {
                if (strcmp(argv[i], "--db") == 0 && i + 1 < argc)
                        q->db = argv[++i];
                else if (strcmp(argv[i], "--all") == 0)
                        q->all = true;
                else if (strcmp(argv[i], "--keep") == 0 && strcmp(q->verb, "apply") == 0)
                        q->keep = true;
                else if (strcmp(argv[i], "--content") == 0 && strcmp(q->verb, "show") == 0)
                        q->content = true;
                else if (argv[i][0] == '-')
                        return false;
                else
                        q->ids[q->n_ids++] = argv[i];
        }
        bool wants = strcmp(q->verb, "list") != 0;
        return known && (wants ? q->all != (q->n_ids > 0) : !q->all && q->n_ids == 0);
}

int cli_conflicts(struct cli *cli, int argc, char **argv) {
        CLEANUP(records_done) struct records r = {.dir = -1};
        cleanup_free const char **ids = xcalloc((size_t)argc + 1, sizeof(*ids));
        struct request q = {.ids = ids};

        if (!parse(&q, argc, argv))
                return cli_usage(cli);
        int exit = open_records(cli, q.db, &r);
        if (exit != 0)
                return exit;
        return strcmp(q.verb, "list") == 0 ? list(cli, &r) : act_on_all(cli, &q, &r);
}
