/* compress.c: zstd contexts are lent: they are large (1.3 MB after a content of 1 MiB), and few threads compress at a time. */
#include "base/compress.h"
#include <pthread.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#define LEVEL    3 /* zstd's own default: about 500 MB/s; higher levels gain little on configuration text */
#define IDLE_MAX 2u
/* A longer content is tried in samples first: what does not shrink there is not worth a millisecond per MiB. */
#define SAMPLED_FROM ((size_t)64 * 1024)
#define SAMPLES      16u
#define SAMPLE       1024u

struct contexts {
        ZSTD_CCtx *c;
        ZSTD_DCtx *d;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct contexts idle[IDLE_MAX]; /* protected by lock */
static unsigned n_idle;                /* protected by lock */

static struct contexts contexts_take(void) {
        struct contexts x = {0};
        (void)pthread_mutex_lock(&lock);
        if (n_idle > 0)
                x = idle[--n_idle];
        (void)pthread_mutex_unlock(&lock);
        return x;
}

static void contexts_give(struct contexts *x) {
        (void)pthread_mutex_lock(&lock);
        if (n_idle < IDLE_MAX) {
                idle[n_idle++] = *x;
                *x = (struct contexts){0};
        }
        (void)pthread_mutex_unlock(&lock);
        (void)ZSTD_freeCCtx(x->c); /* NULL is fine, and neither can fail */
        (void)ZSTD_freeDCtx(x->d);
}

static errint_t from_zstd(size_t code, errint_t other) {
        switch (ZSTD_getErrorCode(code)) {
        case ZSTD_error_memory_allocation:
                return -ENOMEM;
        case ZSTD_error_dstSize_tooSmall:
                return other == -EBADMSG ? -EBADMSG : -ENODATA;
        default:
                return other;
        }
}

/* Samples are spread evenly: a part that shrinks, and is large enough to matter, is met. */
static bool samples_shrink(struct contexts *x, const uint8_t *p, size_t n) {
        uint8_t in[SAMPLES * SAMPLE], out[sizeof(in)];
        for (size_t i = 0; i < SAMPLES; i++)
                memcpy(in + i * SAMPLE, p + i * ((n - SAMPLE) / (SAMPLES - 1)), SAMPLE);
        return !ZSTD_isError(ZSTD_compressCCtx(x->c, out, sizeof(in) - sizeof(in) / 64, in, sizeof(in), LEVEL));
}

static errint_t compress(struct contexts *x, const void *p, size_t n, uint8_t **ret, size_t *ret_len) {
        size_t most = n - MIN_OF(n, MAX_OF(n / 16, 1)); /* longer than this is not worth it */
        if (most == 0)
                return -ENODATA;
        if (!x->c && !(x->c = ZSTD_createCCtx()))
                return -ENOMEM;
        if (n >= SAMPLED_FROM && !samples_shrink(x, p, n))
                return -ENODATA;
        cleanup_free uint8_t *out = try_malloc(most);
        if (!out)
                return -ENOMEM;
        size_t len = ZSTD_compressCCtx(x->c, out, most, p, n, LEVEL);
        if (ZSTD_isError(len))
                return from_zstd(len, -EIO);
        /* The result may live long: give back what was not needed. When shrinking fails, the larger block is as good. */
        uint8_t *fit = realloc(out, len);
        if (fit)
                out = fit;
        *ret = steal_pointer(&out);
        *ret_len = len;
        return 0;
}

errint_t compress_zstd(const void *p, size_t n, uint8_t **ret, size_t *ret_len) {
        CLEANUP(contexts_give) struct contexts x = contexts_take();
        return compress(&x, p, n, ret, ret_len);
}

errint_t decompress_zstd(const void *p, size_t n, void *out, size_t raw_len) {
        /* Exactly one frame that states this very length: no skippable frames, none behind it, nothing to grow. */
        if (raw_len == 0 || n == 0 || ZSTD_getFrameContentSize(p, n) != raw_len || ZSTD_findFrameCompressedSize(p, n) != n)
                return -EBADMSG;
        CLEANUP(contexts_give) struct contexts x = contexts_take();
        if (!x.d && !(x.d = ZSTD_createDCtx()))
                return -ENOMEM;
        size_t len = ZSTD_decompressDCtx(x.d, out, raw_len, p, n);
        if (ZSTD_isError(len))
                return from_zstd(len, -EBADMSG);
        return len == raw_len ? 0 : -EBADMSG;
}
