/* cluster_conf.c: `coterie cluster conf`, `remove`, `rename`, `leave`: corosync.conf kept in the tree, and rolled out so that every member
 * has the new file before any of them reads it. Who has it is told by an attribute of the file in the tree, which a new file does not have.
 */
#include "cluster_conf.h"

#include "corosync_conf.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CONF_NAME    "corosync.conf"
#define CONF_INSTALL "/etc/corosync/corosync.conf"
#define CONF_MARK    "user.coterie.installed." /* and the node's id */

static char *read_all(const char *path, size_t *ret_len, errint_t *ret_error) {
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        cleanup_free char *text = fd < 0 ? NULL : xmalloc(CONF_TEXT_MAX + 1);
        size_t n = 0;

        *ret_error = fd < 0 ? -errno : 0;
        while (*ret_error == 0 && n < CONF_TEXT_MAX) {
                ssize_t got = read(fd, text + n, CONF_TEXT_MAX - n);
                if (got <= 0) {
                        *ret_error = got < 0 ? -errno : 0;
                        break;
                }
                n += (size_t)got;
        }
        if (*ret_error == 0 && n == CONF_TEXT_MAX)
                *ret_error = -EFBIG;
        if (*ret_error < 0)
                return NULL;
        text[n] = '\0';
        *ret_len = n;
        return steal_pointer(&text);
}

/* Under another name, flushed, then in one step. */
static errint_t replace_file(const char *path, const char *text) {
        char temporary[PATH_MAX];

        if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
                return -ENAMETOOLONG;
        cleanup_fd int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        errint_t e = fd < 0 ? -errno : 0;
        if (e == 0)
                e = cli_write_all(fd, text, strlen(text));
        if (e == 0 && (fsync(fd) < 0 || rename(temporary, path) < 0))
                e = -errno;
        if (e < 0 && fd >= 0)
                (void)unlink(temporary); /* the first error counts */
        return e < 0 ? e : cli_flush_directory_of(path);
}

struct where {
        json_t *status;
        char tree[PATH_MAX]; /* the file in the tree */
        uint32_t node;
};

static void where_done(struct where *w) {
        json_decref(w->status);
}

static const json_t *of_cluster(const struct where *w, const char *key) {
        return json_object_get(json_object_get(w->status, "cluster"), key);
}

static int find(const struct cli *cli, struct where *w) {
        int exit = cli_ask_json(cli, 1, (const char *const[]){"status"}, &w->status);

        if (exit != 0)
                return exit;
        if (!of_cluster(w, "node"))
                return cli_fail(cli, CTL_FAILED, "this coteried is standalone: it has no corosync.conf");
        w->node = (uint32_t)json_integer_value(of_cluster(w, "node"));
        (void)snprintf(w->tree, sizeof(w->tree), "%s/" CONF_NAME, json_string_value(json_object_get(w->status, "mountpoint")));
        return 0;
}

/* A file's text, checked; the caller frees it. */
static int load(const struct cli *cli, const char *path, char **ret_text, struct conf *ret) {
        char reason[160];
        size_t len;
        errint_t e;
        cleanup_free char *text = read_all(path, &len, &e);

        if (!text)
                return cli_fail(cli, CTL_FAILED, "%s: %s", path, strerror(-e));
        if (conf_parse(text, len, ret, reason, sizeof(reason)) < 0)
                return cli_fail(cli, CTL_FAILED, "%s cannot be used: %s", path, reason);
        *ret_text = steal_pointer(&text);
        return 0;
}

/* Into the tree, with a version above all that is there and here. */
static int put_text(const struct cli *cli, const struct where *w, const char *text) {
        cleanup_free char *new = NULL;
        struct conf c, now;
        char reason[160], name[256];
        uint64_t version;

        if (conf_parse(text, strlen(text), &c, reason, sizeof(reason)) < 0)
                return cli_fail(cli, CTL_FAILED, "the new corosync.conf cannot be used: %s", reason);
        (void)snprintf(name, sizeof(name), "%s", json_string_value(of_cluster(w, "name")));
        if (name[0] && !conf_span_is(&c, c.cluster_name, name))
                return cli_fail(cli, CTL_FAILED,
                                "this cluster is named \"%s\", and the file names another: cluster_name cannot be changed while it runs",
                                name);
        version = c.version;
        for (int i = 0; i < 2; i++) {
                cleanup_free char *other = NULL;
                const char *path = i ? CONF_INSTALL : w->tree;
                if (access(path, R_OK) == 0 && load(cli, path, &other, &now) == 0)
                        version = MAX_OF(version, now.version + 1);
        }
        new = conf_with_version(&c, version);
        errint_t e = replace_file(w->tree, new);
        if (e < 0)
                return cli_fail(cli, e == -EROFS ? CTL_NO_QUORUM : CTL_FAILED, "%s: %s", w->tree, strerror(-e));
        (void)printf("%s has version %" PRIu64
                     " now; on every node: coterie cluster conf install; then on one: coterie cluster conf reload\n",
                     w->tree, version);
        return 0;
}

static int conf_put(const struct cli *cli, const struct where *w, const char *file) {
        cleanup_free char *text = NULL;
        struct conf c;
        int exit = load(cli, file, &text, &c);

        return exit ? exit : put_text(cli, w, text);
}

static int conf_install(const struct cli *cli, const struct where *w) {
        cleanup_free char *text = NULL, *old = NULL;
        struct conf c, now = {0};
        char mark[64], id[16];
        int exit = load(cli, w->tree, &text, &c);

        if (exit)
                return exit;
        (void)snprintf(id, sizeof(id), "%u", w->node);
        if (!conf_node_by(&c, id))
                return cli_fail(cli, CTL_FAILED, "%s does not have node %u any more: stop coteried and corosync here instead", w->tree,
                                w->node);
        if (access(CONF_INSTALL, R_OK) == 0) {
                exit = load(cli, CONF_INSTALL, &old, &now);
                if (exit)
                        return exit;
                if (now.version > c.version)
                        return cli_fail(cli, CTL_FAILED,
                                        "%s has version %" PRIu64 ", newer than %" PRIu64
                                        " in the tree: put it there with `coterie cluster conf put`",
                                        CONF_INSTALL, now.version, c.version);
        }
        errint_t e = !old || strcmp(old, text) != 0 ? replace_file(CONF_INSTALL, text) : 0;
        if (e < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", CONF_INSTALL, strerror(-e));
        (void)snprintf(mark, sizeof(mark), CONF_MARK "%u", w->node);
        if (setxattr(w->tree, mark, "1", 1, 0) < 0)
                return cli_fail(cli, CTL_FAILED, "%s is in place, but the others cannot be told: %s", CONF_INSTALL, strerror(errno));
        return 0;
}

/* Corosync reloads on all nodes at once: who has no new file would read its old one. */
static int conf_reload(const struct cli *cli, const struct where *w) {
        const json_t *members = json_object_get(w->status, "members");
        char missing[512] = "";
        size_t used = 0, n = json_array_size(members);

        for (size_t i = 0; i < n; i++) {
                uint32_t node = (uint32_t)json_integer_value(json_object_get(json_array_get(members, i), "node"));
                char mark[64];
                (void)snprintf(mark, sizeof(mark), CONF_MARK "%u", node);
                if (getxattr(w->tree, mark, NULL, 0) < 0 && used < sizeof(missing) - 16)
                        used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%u", used ? ", " : "", node);
        }
        if (n == 0)
                return cli_fail(cli, CTL_NO_QUORUM, "this node sees no members");
        if (used > 0)
                return cli_fail(cli, CTL_FAILED,
                                "the new file is not installed on node %s: run `coterie cluster conf install` there; nothing was reloaded",
                                missing);
        (void)execlp("corosync-cfgtool", "corosync-cfgtool", "-R", (char *)NULL);
        return cli_fail(cli, CTL_FAILED, "corosync-cfgtool: %s", strerror(errno));
}

static int conf_edit(const struct cli *cli, const struct where *w, const char *node, const char *name) {
        cleanup_free char *text = NULL, *new = NULL;
        struct conf c;
        int exit = load(cli, access(w->tree, R_OK) == 0 ? w->tree : CONF_INSTALL, &text, &c);

        if (exit)
                return exit;
        const struct conf_node *found = conf_node_by(&c, node);
        if (!found)
                return cli_fail(cli, CTL_FAILED, "no node has the id or the name %s", node);
        if (name && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") != strlen(name))
                return cli_fail(cli, CTL_USAGE, "a node's name has letters, digits, dots, dashes and underscores");
        const json_t *members = json_object_get(w->status, "members");
        for (size_t i = 0; !name && i < json_array_size(members); i++)
                if (json_integer_value(json_object_get(json_array_get(members, i), "node")) == found->id)
                        return cli_fail(cli, CTL_FAILED,
                                        "node %u is still a member: stop coteried and corosync there first (coterie cluster leave)",
                                        found->id);
        new = name ? conf_renamed(&c, found, name) : conf_without(&c, found);
        return put_text(cli, w, new);
}

static int leave(struct cli *cli, const struct where *w, bool force) {
        int64_t votes = json_integer_value(of_cluster(w, "votes")), needed = json_integer_value(of_cluster(w, "votes_needed"));
        int64_t own = json_integer_value(of_cluster(w, "votes_own"));

        if (!force && votes - own < needed)
                return cli_fail(cli, CTL_FAILED,
                                "without this node %" PRId64 " of %" PRId64
                                " votes are left, fewer than a quorum: the others would be read-only; --force does it",
                                votes - own, needed);
        return cli_stop(cli, 0, NULL);
}

int cli_cluster_conf(struct cli *cli, size_t n, const char *const *words, bool force) {
        CLEANUP(where_done) struct where w = {0};
        bool conf = strcmp(words[0], "conf") == 0;
        int exit = find(cli, &w);

        if (exit)
                return exit;
        if (strcmp(words[0], "leave") == 0 && n == 1)
                return leave(cli, &w, force);
        if (strcmp(words[0], "remove") == 0 && n == 2)
                return conf_edit(cli, &w, words[1], NULL);
        if (strcmp(words[0], "rename") == 0 && n == 3)
                return conf_edit(cli, &w, words[1], words[2]);
        if (conf && n == 3 && strcmp(words[1], "put") == 0)
                return conf_put(cli, &w, words[2]);
        if (conf && n == 2 && strcmp(words[1], "install") == 0)
                return conf_install(cli, &w);
        if (conf && n == 2 && strcmp(words[1], "reload") == 0)
                return conf_reload(cli, &w);
        return cli_usage(cli);
}
