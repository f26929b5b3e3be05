/* store_golden.c: writes a golden database into a directory: everything that the format knows, in the home and in the log, and the digest
 * of the state beside it. Each version of the format keeps the one that was written when it was new. */
#include "store_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static errint_t fill(struct rig *r) {
        uint8_t *large = xmalloc(20000);
        char name[LIMIT_NAME + 1];
        errint_t e = 0;
        rig_bytes(r, large, 20000);
        for (unsigned k = 0; k < RIG_FIXED && e == 0; k++)
                e = rig_fixed(r, k);
        for (int i = 0; i < 60 && e == 0; i++)
                e = rig_any(r, 9000);
        e = e < 0 ? e : rig_create(r, "large", S_IFREG | 0640);
        e = e < 0 ? e : rig_replace(r, "large", large, 20000);
        e = e < 0 ? e : rig_create(r, "symlink", S_IFLNK | 0777);
        e = e < 0 ? e : rig_create(r, "fifo", S_IFIFO | 0600);
        e = e < 0 ? e : rig_create(r, "\xff\xfe not UTF-8 \x01", S_IFREG | 0600);
        memset(name, 'n', LIMIT_NAME);
        name[LIMIT_NAME] = '\0';
        e = e < 0 ? e : rig_create(r, name, S_IFDIR | 01777);
        e = e < 0 ? e : rig_checkpoint(r, CHECKPOINT_NORMAL);
        e = e < 0 ? e : rig_write(r, "large", 500, "an edit", 7); /* stays an edit in the home */
        e = e < 0 ? e : rig_append(r, "large", "appended", 8);
        e = e < 0 ? e : r->store->ops->set_cluster_id(r->store, (const uint8_t *)"golden cluster!");
        e = e < 0 ? e : r->store->ops->set_promised(r->store, 2);
        e = e < 0 ? e : r->store->ops->set_adopted(r->store, 2);
        r->epoch = 2;
        e = e < 0 ? e : rig_checkpoint(r, CHECKPOINT_NORMAL);
        for (int i = 0; i < 40 && e == 0; i++) /* these are in the log */
                e = rig_any(r, 9000);
        e = e < 0 ? e : rig_write(r, "large", 5000, "another", 7);
        free(large);
        return e < 0 ? e : rig_write_out(r);
}

int main(int argc, char **argv) {
        char path[4096], text[HASH128_TEXT];
        if (argc != 3) {
                fprintf(stderr, "usage: store_golden DIRECTORY clean|log\n");
                return 2;
        }
        struct rig r;
        (void)snprintf(path, sizeof(path), "%s/db", argv[1]);
        rig_init(&r, &(struct store_config){.path = path, .level = LEVEL_FILESYSTEM, .log_size = 64 * KIB, .boot_id = "golden boot"});
        r.random = 2024;
        errint_t e = rig_open(&r);
        e = e < 0 ? e : fill(&r);
        hash128_text(state_digest(&r.state), text);
        printf("%" PRIu64 " %" PRIu64 " %s\n", r.state.pos.epoch, r.state.pos.seq, text);
        if (strcmp(argv[2], "clean") == 0)
                e = e < 0 ? e : rig_stop(&r);
        rig_done(&r);
        if (e < 0)
                fprintf(stderr, "store_golden: %s\n", strerror(-e));
        (void)snprintf(path, sizeof(path), "%s/db-ballast", argv[1]);
        (void)remove(path); /* holds nothing */
        return e < 0;
}
