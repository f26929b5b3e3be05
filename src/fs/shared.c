/* shared.c: the state and its lock. */
#include "internal.h"

struct shared_state *shared_state_new(uint64_t hash_seed) {
        struct shared_state *s = NEW(struct shared_state);
        pthread_rwlockattr_t attr;
        (void)pthread_rwlockattr_init(&attr); /* none of these can fail with these arguments */
        /* Readers must not nest. Without this, a stream of reads would starve the executor. */
        (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        (void)pthread_rwlock_init(&s->lock, &attr);
        (void)pthread_rwlockattr_destroy(&attr);
        state_init(&s->state);
        tree_hash_seed(s->state.tree, hash_seed);
        return s;
}

void shared_state_free(struct shared_state *s) {
        if (!s)
                return;
        state_done(&s->state);
        (void)pthread_rwlock_destroy(&s->lock);
        free(s);
}

const struct state *shared_state_read(struct shared_state *s) {
        int r = pthread_rwlock_rdlock(&s->lock);
        PRE(r == 0); /* EDEADLK: this thread holds it for writing */
        return &s->state;
}

void shared_state_done_read(struct shared_state *s) {
        (void)pthread_rwlock_unlock(&s->lock);
}

struct state *shared_state_write(struct shared_state *s) {
        int r = pthread_rwlock_wrlock(&s->lock);
        PRE(r == 0);
        return &s->state;
}

void shared_state_done_write(struct shared_state *s) {
        (void)pthread_rwlock_unlock(&s->lock);
}
