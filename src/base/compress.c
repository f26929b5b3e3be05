/* compress.c: one zstd context of each kind per thread, made at first use, freed when the thread ends. */
#include "base/compress.h"
#include <pthread.h>
#include <zstd.h>
#include <zstd_errors.h>

#define LEVEL 3 /* zstd's own default: about 500 MB/s; higher levels gain little on configuration text */

struct contexts {
        ZSTD_CCtx *c;
        ZSTD_DCtx *d;
};
static _Thread_local struct contexts *mine;
static pthread_key_t key; /* only for its destructor */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_err; /* written once, under key_once */

static void contexts_free(void *p) {
        struct contexts *x = p;
        (void)ZSTD_freeCCtx(x->c); /* NULL is fine, and neither can fail */
        (void)ZSTD_freeDCtx(x->d);
        free(x);
        mine = NULL; /* a later destructor of this thread may compress again */
}

static void key_make(void) {
        key_err = pthread_key_create(&key, contexts_free);
}

static struct contexts *contexts_get(void) {
        if (mine)
                return mine;
        if (pthread_once(&key_once, key_make) != 0 || key_err != 0)
                return NULL;
        struct contexts *x = calloc(1, sizeof(*x));
        if (!x)
                return NULL;
        if (pthread_setspecific(key, x) != 0) {
                free(x);
                return NULL;
        }
        return mine = x;
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

errint_t compress_zstd(const void *p, size_t n, uint8_t **ret, size_t *ret_len) {
        size_t most = n - MIN_OF(n, MAX_OF(n / 16, 1)); /* longer than this is not worth it */

        if (most == 0)
                return -ENODATA;
        struct contexts *x = contexts_get();
        if (!x || (!x->c && !(x->c = ZSTD_createCCtx())))
                return -ENOMEM;
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

errint_t decompress_zstd(const void *p, size_t n, void *out, size_t raw_len) {
        /* Exactly one frame that states this very length: no skippable frames, none behind it, nothing to grow. */
        if (raw_len == 0 || n == 0 || ZSTD_getFrameContentSize(p, n) != raw_len || ZSTD_findFrameCompressedSize(p, n) != n)
                return -EBADMSG;
        struct contexts *x = contexts_get();
        if (!x || (!x->d && !(x->d = ZSTD_createDCtx())))
                return -ENOMEM;
        size_t len = ZSTD_decompressDCtx(x->d, out, raw_len, p, n);
        if (ZSTD_isError(len))
                return from_zstd(len, -EBADMSG);
        return len == raw_len ? 0 : -EBADMSG;
}
