/* past.c: what files were like before changes of which the kernel has not been told yet.
 *
 * Until then it goes by a size and by pages that are old, and must not be given anything new beside them: a read would show some of both.
 * So each change of a content leaves the state before it here, under the state's write lock, and reads and attributes are answered from
 * the oldest that is left, until the notification of its change has returned. Nobody waits for that: it waits for pages that are being
 * read.
 *
 * What is answered while the notification is under way may come into the kernel's caches behind it. Then it is sent again. */
#include "internal.h"

struct past {
        uint64_t seq; /* of the change */
        struct attr attr;
        struct blob *content;
        bool shown;  /* since the notification began */
        bool behind; /* a later change was notified before this one: what this one showed must be forgotten there as well */
        bool dead;   /* this node's processes have changed the file as it is now: they see that */
};

static void past_free(gpointer p) {
        struct past *past = p;
        blob_unref(past->content);
        free(past);
}

static void pasts_free(gpointer queue) {
        g_queue_free_full(queue, past_free);
}

void past_init(struct fs *fs) {
        (void)pthread_mutex_init(&fs->past_lock, NULL);
        fs->pasts = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, pasts_free);
}

void past_done(struct fs *fs) {
        g_hash_table_destroy(fs->pasts);
        (void)pthread_mutex_destroy(&fs->past_lock);
}

static gpointer key(uint64_t ino) {
        return (gpointer)(uintptr_t)ino;
}

static bool none(struct fs *fs) {
        return atomic_load(&fs->n_pasts) == 0;
}

/* --- the lock is held --- */

static void count(struct fs *fs) {
        atomic_store(&fs->n_pasts, g_hash_table_size(fs->pasts));
}

static GList *find(struct fs *fs, uint64_t ino, uint64_t seq) {
        GQueue *q = g_hash_table_lookup(fs->pasts, key(ino));
        GList *l = q ? q->head : NULL;
        while (l && ((struct past *)l->data)->seq != seq)
                l = l->next;
        return l;
}

static void cut(struct fs *fs, uint64_t ino, GList *l) {
        GQueue *q = g_hash_table_lookup(fs->pasts, key(ino));
        past_free(l->data);
        g_queue_delete_link(q, l);
        if (g_queue_is_empty(q))
                (void)g_hash_table_remove(fs->pasts, key(ino));
        count(fs);
}

static struct past *oldest(struct fs *fs, uint64_t ino) {
        GQueue *q = g_hash_table_lookup(fs->pasts, key(ino));
        for (GList *l = q ? q->head : NULL; l; l = l->next)
                if (!((struct past *)l->data)->dead)
                        return l->data;
        return NULL;
}

/* --- */

static void content_changes(void *ctx, uint64_t seq, const struct attr *was, struct blob *content) {
        struct fs *fs = ctx;
        struct past *past = NEW(struct past);
        *past = (struct past){.seq = seq, .attr = *was, .content = blob_ref(content)};
        (void)pthread_mutex_lock(&fs->past_lock);
        GQueue *q = g_hash_table_lookup(fs->pasts, key(was->ino));
        if (!q) {
                q = g_queue_new();
                (void)g_hash_table_insert(fs->pasts, key(was->ino), q);
        }
        g_queue_push_tail(q, past);
        count(fs);
        (void)pthread_mutex_unlock(&fs->past_lock);
}

void past_follow(struct fs *fs, struct tree *t) {
        tree_watch_content(t, content_changes, fs);
        (void)pthread_mutex_lock(&fs->past_lock);
        g_hash_table_remove_all(fs->pasts);
        count(fs);
        (void)pthread_mutex_unlock(&fs->past_lock);
}

struct blob *past_content(struct fs *fs, uint64_t ino) {
        if (none(fs))
                return NULL;
        (void)pthread_mutex_lock(&fs->past_lock);
        struct past *past = oldest(fs, ino);
        struct blob *content = past ? blob_ref(past->content) : NULL;
        if (past)
                past->shown = true;
        (void)pthread_mutex_unlock(&fs->past_lock);
        return content;
}

void past_attr(struct fs *fs, struct attr *a) {
        if (none(fs))
                return;
        (void)pthread_mutex_lock(&fs->past_lock);
        struct past *past = oldest(fs, a->ino);
        if (past) {
                past->shown = true;
                a->size = past->attr.size;
                a->blocks = past->attr.blocks;
                a->mtime = past->attr.mtime;
                a->ctime = past->attr.ctime;
                a->change_seq = past->attr.change_seq; /* so that an answer that no fence waits for is found to be old */
        }
        (void)pthread_mutex_unlock(&fs->past_lock);
}

void past_overrule(struct fs *fs, uint64_t ino) {
        if (none(fs))
                return;
        (void)pthread_mutex_lock(&fs->past_lock);
        GQueue *q = g_hash_table_lookup(fs->pasts, key(ino));
        for (GList *l = q ? q->head : NULL; l; l = l->next)
                ((struct past *)l->data)->dead = true;
        (void)pthread_mutex_unlock(&fs->past_lock);
}

void past_remove(struct fs *fs, uint64_t ino, uint64_t seq) {
        (void)pthread_mutex_lock(&fs->past_lock);
        GList *l = find(fs, ino, seq);
        if (l)
                cut(fs, ino, l);
        (void)pthread_mutex_unlock(&fs->past_lock);
}

bool fs_telling(struct fs *fs, uint64_t ino, uint64_t seq) {
        bool shown = false;
        if (none(fs))
                return false;
        (void)pthread_mutex_lock(&fs->past_lock);
        GList *l = find(fs, ino, seq);
        if (l) {
                struct past *past = l->data;
                shown = past->shown;
                past->shown = past->behind; /* then this time does not do */
                past->behind = false;
        }
        (void)pthread_mutex_unlock(&fs->past_lock);
        return shown;
}

bool fs_told(struct fs *fs, uint64_t ino, uint64_t seq, bool last) {
        bool shown = false;
        if (none(fs))
                return true;
        (void)pthread_mutex_lock(&fs->past_lock);
        GList *l = find(fs, ino, seq);
        if (l) {
                const struct past *past = l->data;
                shown = past->shown || past->behind;
                /* An older one that is still shown may bring back what has just been forgotten. */
                for (GList *older = l->prev; older; older = older->prev)
                        ((struct past *)older->data)->behind = true;
        }
        if (l && (!shown || last))
                cut(fs, ino, l);
        (void)pthread_mutex_unlock(&fs->past_lock);
        return !shown;
}
