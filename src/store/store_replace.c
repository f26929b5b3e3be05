/* store_replace.c: another history taken over, and the cluster's id: changes of the home that no log record brings. */
#include "store_private.h"

#include <string.h>

/* A checkpoint of everything into an emptied home. If it fails, nothing may be built on the old home any more, as the state is another
 * one: that is trouble, and every checkpoint is one of everything, until one succeeds. */
errint_t store_replace(struct store *base, const struct state *state, uint64_t adopted, void (*captured)(void *ctx), void *ctx) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] || s->read_only || s->stopped ? -EROFS : s->capture.active ? -EBUSY : 0;
        if (r == 0) {
                s->replacing = true;
                s->opened_seq = 0; /* of the other history */
                s->pos = state->pos;
                s->adopted = adopted;
                s->promised = MAX_OF(s->promised, adopted);
                r = store_prepare_locked(s, state, CHECKPOINT_RESCUE);
                s->capture.first_replace = true;
                if (r < 0 && s->trouble == 0)
                        s->trouble = r;
        }
        (void)pthread_mutex_unlock(&s->lock);
        if (captured)
                captured(ctx);
        return r == -EROFS || r == -EBUSY ? r : store_checkpoint_run(base); /* after a failed prepare it gives everything back */
}

errint_t store_set_cluster_id(struct store *base, const uint8_t id[CLUSTER_ID_SIZE]) {
        struct sqlite_store *s = STORE_OF(base);
        (void)pthread_mutex_lock(&s->home_lock);
        (void)pthread_mutex_lock(&s->lock);
        errint_t r = s->failed[0] || s->read_only || s->stopped ? -EROFS : 0;
        (void)pthread_mutex_unlock(&s->lock);
        if (r == 0)
                r = store_fresh_home(s);
        if (r == 0) {
                struct home_meta meta = s->meta;
                memcpy(meta.cluster_id, id, CLUSTER_ID_SIZE);
                r = home_begin(s->home);
                if (r == 0)
                        r = home_commit(s->home, &meta);
                if (r == 0)
                        s->meta = meta;
                else
                        s->home_doubtful = true;
        }
        (void)pthread_mutex_unlock(&s->home_lock);
        return r;
}
