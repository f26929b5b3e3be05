/* fuzz_edit.c: edits as the home keeps them, against any bytes. Input: the edit. Checked: what decodes encodes to the very same bytes, and
 * is laid over a content, or over nothing, or refused, without reading behind the bytes it has. */
#include "home.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DATA_MAX ((size_t)256 * 1024)

static void lay(struct blob *old, uint64_t keep, uint64_t size, const struct extent *extents, size_t n, const uint8_t *raw,
                size_t raw_len) {
        struct blob *made = NULL;
        errint_t r = blob_edit(old, keep, extents, n, raw, raw_len, size, &made);
        POST(r == 0 || r == -EINVAL || r == -EFBIG || r == -ENOMEM || r == -EBADMSG);
        if (r == 0)
                blob_unref(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        uint64_t keep = 0, to = 0, need = 0;
        cleanup_free struct extent *extents = NULL;
        size_t n = 0;
        if (home_edit_decode(data, size, &keep, &to, &extents, &n) < 0)
                return 0;
        struct enc e;
        enc_init(&e, OP_HEAD_MAX + size);
        POST(home_edit_encode(keep, to, extents, n, &e) == 0);
        POST(e.len == size && memcmp(e.data, data, size) == 0);
        enc_done(&e);
        for (size_t i = 0; i < n; i++)
                need += extents[i].kind == EXTENT_DATA ? extents[i].length : 0;
        if (need > DATA_MAX || (to != BLOB_KEEP_ALL && to > 64 * DATA_MAX) || (n > 0 && extents[n - 1].offset > 64 * DATA_MAX))
                return 0; /* allocating it is not what is looked for */
        cleanup_free uint8_t *raw = xmalloc((size_t)need);
        struct blob *old = NULL;
        memset(raw, 'x', (size_t)need);
        POST(blob_from_bytes((const uint8_t *)"what was there", 14, &old) == 0);
        lay(old, keep, to, extents, n, raw, (size_t)need);
        lay(NULL, keep, to, extents, n, raw, (size_t)need);
        lay(old, keep, to, extents, n, raw, (size_t)need / 2);
        blob_unref(old);
        return 0;
}
