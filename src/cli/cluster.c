/* cluster.c: `coterie cluster`: who founds a cluster and who joins one. On a database that is not in use, through the store itself. */
#include "cluster_conf.h"

#include "base/env.h"
#include "store/store.h"
#include <string.h>
#include <unistd.h>

struct offline {
        struct state state;
        struct store *store;
        struct store_loaded loaded;
};

static void offline_done(struct offline *o) {
        if (o->store)
                o->store->ops->close(o->store);
        free(o->loaded.damaged);
        state_done(&o->state);
}

/* 0, or the exit code after the line was printed. */
static int offline_open(const struct cli *cli, const char *path, bool read_only, struct offline *o) {
        struct store_config config = {
                .path = path, .level = LEVEL_FILESYSTEM, .read_only = read_only, .boot_id = "", .disk = disk_system()};

        state_init(&o->state);
        errint_t error = store_open_sqlite(&config, &o->state, &o->loaded, &o->store);
        if (error == -EBUSY)
                return cli_fail(cli, CTL_FAILED, "%s is in use by a running coteried; without --db the command asks it", path);
        if (error < 0)
                return cli_fail(cli, CTL_FAILED, "%s", o->loaded.reason[0] ? o->loaded.reason : strerror(-error));
        if (o->loaded.reason[0])
                return cli_fail(cli, CTL_FAILED, "%s is damaged: %s", path, o->loaded.reason);
        return 0;
}

static bool has_cluster(const struct offline *o) {
        static const uint8_t none[CLUSTER_ID_SIZE];
        return memcmp(o->loaded.cluster_id, none, sizeof(none)) != 0;
}

/* Looks first, without writing a byte: a database with a history is not touched (its log says what the node may have forgotten). */
static int check_unused(const struct cli *cli, const char *path, bool *ret_used) {
        CLEANUP(offline_done) struct offline o = {0};

        if (access(path, F_OK) < 0)
                return 0;
        int exit = offline_open(cli, path, true, &o);
        *ret_used = exit == 0 && has_cluster(&o);
        return exit;
}

/* Made, or opened; with a cluster id where one is given. */
static int prepare(const struct cli *cli, const char *path, const uint8_t *id) {
        CLEANUP(offline_done) struct offline o = {0};
        int exit = offline_open(cli, path, false, &o);

        if (exit != 0)
                return exit;
        errint_t error = id ? o.store->ops->set_cluster_id(o.store, id) : 0;
        if (error == 0)
                error = o.store->ops->checkpoint_prepare(o.store, &o.state, CHECKPOINT_CLEAN_STOP);
        if (error == 0)
                error = o.store->ops->checkpoint_run(o.store);
        return error == 0 ? 0 : cli_fail(cli, CTL_FAILED, "%s cannot be written: %s", path, strerror(-error));
}

static int init_offline(const struct cli *cli, const char *path) {
        uint8_t id[CLUSTER_ID_SIZE];
        bool used = false;
        int exit = check_unused(cli, path, &used);

        if (exit != 0)
                return exit;
        if (used)
                return cli_fail(cli, CTL_FAILED, "%s belongs to a cluster already: start coteried, its tree is the cluster's", path);
        for (size_t i = 0; i < sizeof(id); i += sizeof(uint64_t)) {
                uint64_t r = env_random64(env_system());
                memcpy(id + i, &r, sizeof(r));
        }
        return prepare(cli, path, id);
}

static int join_offline(const struct cli *cli, const char *path) {
        bool used = false;
        int exit = check_unused(cli, path, &used);

        if (exit != 0)
                return exit;
        if (used)
                return cli_fail(cli, CTL_FAILED,
                                "%s holds a tree of its own. If it is this cluster's, just start coteried; else move the database and the "
                                "files beside it (-oplog, -content) away: a node that joins must be empty",
                                path);
        return prepare(cli, path, NULL);
}

int cli_cluster(struct cli *cli, int argc, char **argv) {
        CLEANUP(ctl_result_done) struct ctl_result r = {0};
        const char *db = NULL, *words[5] = {"cluster"};
        bool force = false;
        size_t n = 1;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--db") == 0 && i + 1 < argc)
                        db = argv[++i];
                else if (strcmp(argv[i], "--force") == 0)
                        force = true;
                else if (argv[i][0] == '-' || n == ARRAY_LEN(words))
                        return cli_usage(cli);
                else
                        words[n++] = argv[i];
        }
        bool init = n >= 2 && n <= 3 && strcmp(words[1], "init") == 0, join = n == 2 && strcmp(words[1], "join") == 0;
        if (!init && !join && n >= 2 && !db)
                return cli_cluster_conf(cli, n - 1, words + 1, force);
        if (init && !force && (!db || n == 2))
                return db ? init_offline(cli, db) : cli_ask(cli, n, words, &r);
        if (join && db && !force)
                return join_offline(cli, db);
        return cli_usage(cli);
}
