/* backup.c: `coterie backup` and `coterie restore`: the whole state in one file, and a database from it. */
#include "image.h"

#include "store/store.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTIAL   ".partial"
#define RESTORING ".restoring"

static const char *const suffixes[] = {"-oplog", "-content", "-journal", "-ballast", ""}; /* "" last: with it the database is there */

static void print_result(const struct cli *cli, const char *key, const char *path, const struct image_told *told, uint64_t bytes) {
        char digest[HASH128_TEXT], size[32];

        hash128_text(told->digest, digest);
        if (cli->json) {
                json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I}", key, path, "epoch", (json_int_t)told->pos.epoch, "sequence",
                                      (json_int_t)told->pos.seq, "inodes", (json_int_t)told->inodes, "digest", digest, "file_bytes",
                                      (json_int_t)bytes);
                cli_print_json(o);
                json_decref(o);
                return;
        }
        cli_bytes(bytes, size, sizeof(size));
        (void)printf("%s: %" PRIu64 " inodes, position (%" PRIu64 ", %" PRIu64 "), digest %s, %s\n", path, told->inodes, told->pos.epoch,
                     told->pos.seq, digest, size);
}

static uint64_t size_of(const char *path) {
        struct stat st;
        return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* --- backup */
static int write_partial(const struct cli *cli, struct backup_writer *w, const char *partial, struct image_told *told) {
        int exit = image_fetch(cli, backup_head, backup_add, w, told);
        errint_t r = exit == 0 ? backup_finish(w) : 0;

        return r < 0 ? cli_fail(cli, CTL_FAILED, "%s: %s", partial, strerror(-r)) : exit;
}

/* What was written is read back and put together before it counts. */
static int verify(const struct cli *cli, const char *partial, const struct image_told *told) {
        struct image_told found;
        struct state state;
        uint64_t adopted;
        char fault[256];
        errint_t r = backup_read(cli, partial, &state, &adopted, &found, fault, sizeof(fault));

        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "%s was written and is not right: %s%s%s", partial, fault, r == -EBADMSG ? "" : ": ",
                                r == -EBADMSG ? "" : strerror(-r));
        state_done(&state);
        return hash128_equal(found.digest, told->digest) ? 0 : cli_fail(cli, CTL_FAILED, "%s holds another state", partial);
}

/* The writer holds the name `partial` for us until it is freed: nobody writes what is verified here, nor takes the name away. */
static int make_backup(const struct cli *cli, const char *partial, const char *path, bool replace, struct image_told *told) {
        CLEANUP(backup_freep) struct backup_writer *w = NULL;
        errint_t r = backup_create(partial, &w);

        if (r == -EBUSY)
                return cli_fail(cli, CTL_FAILED, "another backup writes %s", partial);
        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s", partial, strerror(-r));
        int exit = write_partial(cli, w, partial, told);
        if (exit == 0)
                exit = verify(cli, partial, told);
        if (exit == 0 && renameat2(AT_FDCWD, partial, AT_FDCWD, path, replace ? 0 : RENAME_NOREPLACE) < 0)
                exit = cli_fail(cli, CTL_FAILED, "%s: %s", path, strerror(errno));
        if (exit != 0)
                (void)unlink(partial); /* ours, and worth nothing */
        return exit;
}

int cli_backup(struct cli *cli, int argc, char **argv) {
        const char *path = NULL;
        bool replace = false;
        struct image_told told;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--replace") == 0)
                        replace = true;
                else if (argv[i][0] == '-' || path)
                        return cli_usage(cli);
                else
                        path = argv[i];
        }
        if (!path)
                return cli_usage(cli);
        if (!replace && access(path, F_OK) == 0)
                return cli_fail(cli, CTL_FAILED, "%s is there already; choose another name, or give --replace", path);
        cleanup_free char *partial = xmalloc(strlen(path) + sizeof(PARTIAL));
        (void)sprintf(partial, "%s" PARTIAL, path);
        int exit = make_backup(cli, partial, path, replace, &told);
        if (exit != 0)
                return exit;
        errint_t r = cli_flush_directory_of(path);
        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "%s was written, but its directory cannot be flushed: %s", path, strerror(-r));
        print_result(cli, "file", path, &told, size_of(path));
        return 0;
}

/* --- restore */
static void file_of(char *buf, size_t size, const char *db, const char *middle, const char *suffix) {
        (void)snprintf(buf, size, "%s%s%s", db, middle, suffix);
}

static void remove_files(const char *db) {
        char path[PATH_MAX + 32];
        for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
                file_of(path, sizeof(path), db, RESTORING, suffixes[i]);
                (void)unlink(path); /* those that are there */
        }
}

static int check_absent(const struct cli *cli, const char *db) {
        char path[PATH_MAX + 32];

        if (strlen(db) >= PATH_MAX)
                return cli_fail(cli, CTL_FAILED, "%s", strerror(ENAMETOOLONG));
        for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
                file_of(path, sizeof(path), db, "", suffixes[i]);
                if (access(path, F_OK) == 0)
                        return cli_fail(cli, CTL_FAILED,
                                        "%s is there already; nothing is overwritten: move it and the files beside it away", path);
        }
        return 0;
}

static errint_t fill(const char *path, struct state *state, uint64_t adopted, char *reason, size_t size) {
        struct store_config config = {.path = path, .level = LEVEL_FILESYSTEM, .boot_id = "", .disk = disk_system()};
        struct store_loaded loaded = {0};
        struct store *store = NULL;
        struct state empty;

        state_init(&empty);
        errint_t r = store_open_sqlite(&config, &empty, &loaded, &store);
        (void)snprintf(reason, size, "%s", loaded.reason);
        free(loaded.damaged);
        if (r == 0)
                r = store->ops->replace(store, state, adopted, NULL, NULL);
        if (r == 0)
                r = store->ops->checkpoint_prepare(store, state, CHECKPOINT_CLEAN_STOP);
        if (r == 0)
                r = store->ops->checkpoint_run(store);
        if (store)
                store->ops->close(store);
        state_done(&empty);
        return r;
}

static void fault_line(void *ctx, const char *line) {
        const struct cli *cli = ctx;
        (void)cli_fail(cli, CTL_FAILED, "%s", line);
}

/* A complete database under another name, checked; then its files get their own names, the database itself last. */
static int make_database(struct cli *cli, const char *db, struct state *state, uint64_t adopted) {
        char path[PATH_MAX + 32], to[PATH_MAX + 32], reason[STORE_REASON];
        struct store_check_result check = {0};

        file_of(path, sizeof(path), db, RESTORING, "");
        errint_t r = fill(path, state, adopted, reason, sizeof(reason));
        if (r < 0 && reason[0]) /* it names the file */
                return cli_fail(cli, CTL_FAILED, "%s", reason);
        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "%s cannot be written: %s", path, strerror(-r));
        r = store_check(path, disk_system(), fault_line, cli, &check);
        if (r < 0 || check.faults > 0 || !hash128_equal(check.digest, state_digest(state)))
                return cli_fail(cli, CTL_FAILED, "%s was written and is not right", path);
        for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
                file_of(path, sizeof(path), db, RESTORING, suffixes[i]);
                file_of(to, sizeof(to), db, "", suffixes[i]);
                if (renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE) < 0 && (errno != ENOENT || suffixes[i][0] == '\0'))
                        return cli_fail(cli, CTL_FAILED, "%s: %s", to, strerror(errno));
        }
        r = cli_flush_directory_of(db);
        return r < 0 ? cli_fail(cli, CTL_FAILED, "the directory of %s cannot be flushed: %s", db, strerror(-r)) : 0;
}

int cli_restore(struct cli *cli, int argc, char **argv) {
        const char *file = NULL, *db = NULL;
        struct image_told told;
        struct state state;
        uint64_t adopted;
        char fault[256];

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--db") == 0 && i + 1 < argc)
                        db = argv[++i];
                else if (argv[i][0] == '-' || file)
                        return cli_usage(cli);
                else
                        file = argv[i];
        }
        if (!file || !db)
                return cli_usage(cli);
        int exit = check_absent(cli, db);
        if (exit != 0)
                return exit;
        errint_t r = backup_read(cli, file, &state, &adopted, &told, fault, sizeof(fault));
        if (r < 0)
                return cli_fail(cli, CTL_FAILED, "%s: %s%s%s", file, fault, r == -EBADMSG || r == -ENOTSUP ? "" : ": ",
                                r == -EBADMSG || r == -ENOTSUP ? "" : strerror(-r));
        remove_files(db); /* of a restore that was interrupted */
        exit = make_database(cli, db, &state, adopted);
        state_done(&state);
        if (exit != 0)
                remove_files(db);
        else
                print_result(cli, "database", db, &told, size_of(db));
        return exit;
}
