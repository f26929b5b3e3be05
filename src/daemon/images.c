/* images.c: the whole state at one position, given to `coterie backup` and `coterie dump` bit by bit: frozen by `image begin`, fetched by
 * `image next` until an answer is empty. One at a time: a frozen image keeps old contents in memory. It is dropped when the client says
 * `image end`, or has not asked for a while; another one may have its turn earlier. The client fetches, so a slow one fills no queue here.
 */
#include "daemon_internal.h"

#include "base/log.h"
#include "repl/image.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IMAGE_IDLE_MS UINT64_C(60000)
#define IMAGE_TURN_MS UINT64_C(10000) /* who has not asked for so long gives way: it was interrupted, most likely */
#define IMAGE_ANSWER  (1u * 1024u * 1024u)
static_assert(IMAGE_ANSWER + IMAGE_FRAME_MAX + CTL_MESSAGE_MAX < CTL_REPLY_MAX, "an answer and the frame that ends it fit in a reply");

struct images {
        pthread_mutex_t lock;
        struct image *image; /* protected by lock, and what follows */
        uint64_t token, used_ms;
        bool beginning;
};

static uint64_t now_ms(void) {
        return env_monotonic_ns(env_system()) / 1000000u;
}

struct images *images_new(void) {
        struct images *i = NEW(struct images);
        (void)pthread_mutex_init(&i->lock, NULL);
        return i;
}

void images_free(struct images *i) {
        image_free(i->image);
        (void)pthread_mutex_destroy(&i->lock);
        free(i);
}

static void drop(struct images *i) { /* lock held */
        image_free(i->image);
        i->image = NULL;
        i->token = 0;
}

int images_expire(struct images *i) {
        int wait = -1;
        uint64_t now = now_ms();

        (void)pthread_mutex_lock(&i->lock);
        if (i->image && now >= i->used_ms + IMAGE_IDLE_MS) {
                log_notice("a backup or dump was not finished: its client has not asked for %u s", (unsigned)(IMAGE_IDLE_MS / 1000u));
                drop(i);
        } else if (i->image) {
                wait = (int)(i->used_ms + IMAGE_IDLE_MS - now);
        }
        (void)pthread_mutex_unlock(&i->lock);
        return wait;
}

/* --- image begin */

static void begun(struct ctl_call *c, const struct image_info *info, uint64_t token) {
        char digest[HASH128_TEXT], text[512];

        hash128_text(info->digest, digest);
        int n = snprintf(text, sizeof(text),
                         "{\"token\": \"%016" PRIx64 "\", \"epoch\": %" PRIu64 ", \"sequence\": %" PRIu64
                         ", \"digest\": \"%s\", \"inodes\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                         token, info->pos.epoch, info->pos.seq, digest, info->inodes, info->bytes);
        POST(n > 0 && (size_t)n < sizeof(text));
        ctl_call_reply(c, CTL_OK, "", text, (size_t)n);
}

/* The state and the epoch it belongs to: another history may be taken over between the two looks. */
static errint_t take(struct daemon *d, struct image **ret) {
        struct engine_status before, after;

        engine_status(d->engine, &after);
        do {
                before = after;
                image_free(*ret);
                *ret = NULL;
                const struct state *state = shared_state_read(d->state);
                errint_t error = image_take(state, before.repl.adopted, ret);
                shared_state_done_read(d->state);
                if (error < 0)
                        return error;
                engine_status(d->engine, &after);
        } while (after.repl.adopted != before.repl.adopted);
        return 0;
}

static void freeze(void *ctx) {
        struct ctl_call *c = ctx;
        struct daemon *d = ctl_call_ctx(c);
        struct images *i = d->images;
        struct image *image = NULL;
        struct image_info info;
        errint_t error = take(d, &image);

        (void)pthread_mutex_lock(&i->lock);
        i->beginning = false;
        if (error == 0) {
                i->image = image;
                i->used_ms = now_ms();
                do
                        i->token = env_random64(env_system());
                while (i->token == 0);
                image_info(image, &info);
        }
        uint64_t token = i->token;
        (void)pthread_mutex_unlock(&i->lock);
        if (error < 0) {
                ctl_call_fail(c, CTL_FAILED, "the state cannot be frozen: %s", strerror(-error));
                return;
        }
        daemon_wake(d); /* there is something to expire */
        begun(c, &info, token);
}

static void begin(struct ctl_call *c, struct daemon *d) {
        struct images *i = d->images;

        if (d->loaded.read_only) {
                ctl_call_fail(c, CTL_FAILED, "%s; copy out what can be read", d->loaded.reason);
                return;
        }
        (void)pthread_mutex_lock(&i->lock);
        bool busy = i->beginning || (i->image && now_ms() < i->used_ms + IMAGE_TURN_MS);
        if (!busy) {
                drop(i);
                i->beginning = true;
        }
        (void)pthread_mutex_unlock(&i->lock);
        if (busy)
                ctl_call_fail(c, CTL_FAILED, "another backup or dump is running; one at a time");
        else
                fs_shutdown(d->fs, freeze, c); /* what was written and not closed yet belongs to it */
}

/* --- image next, image end */

static void next(struct ctl_call *c, struct images *i, uint64_t token) {
        CLEANUP(enc_done) struct enc e;
        errint_t error = -ESTALE;

        enc_init(&e, IMAGE_ANSWER + IMAGE_FRAME_MAX);
        (void)pthread_mutex_lock(&i->lock);
        if (i->image && i->token == token) {
                i->used_ms = now_ms();
                error = image_read(i->image, &e, IMAGE_ANSWER);
        }
        (void)pthread_mutex_unlock(&i->lock);
        if (error < 0)
                ctl_call_fail(c, CTL_FAILED, "the frozen state is gone: %s",
                              error == -ESTALE ? "it was not asked for in time" : strerror(-error));
        else
                ctl_call_reply(c, CTL_OK, "", e.data, e.len);
}

static void end(struct ctl_call *c, struct images *i, uint64_t token) {
        (void)pthread_mutex_lock(&i->lock);
        if (i->image && i->token == token)
                drop(i);
        (void)pthread_mutex_unlock(&i->lock);
        ctl_call_reply(c, CTL_OK, "", NULL, 0);
}

void images_command(struct ctl_call *c) {
        struct daemon *d = ctl_call_ctx(c);
        const char *what = ctl_call_word(c, 0);
        uint64_t token = ctl_call_count(c) > 1 ? strtoull(ctl_call_word(c, 1), NULL, 16) : 0;

        if (strcmp(what, "begin") == 0 && ctl_call_count(c) == 1)
                begin(c, d);
        else if (strcmp(what, "next") == 0 && ctl_call_count(c) == 2)
                next(c, d->images, token);
        else if (strcmp(what, "end") == 0 && ctl_call_count(c) == 2)
                end(c, d->images, token);
        else
                ctl_call_fail(c, CTL_USAGE, "usage: image begin | next TOKEN | end TOKEN");
}
