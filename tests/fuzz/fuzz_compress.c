/* fuzz_compress.c: the decompressor against any bytes, and the way there and back. Input: a length of three bytes that the caller
 * expects, then the frame.
 *
 * Checked: nothing is written beyond that length (a sanitizer sees it); a frame of one length is refused for every other; what
 * compresses comes back the same. */
#include "base/compress.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RAW_MAX (1u << 20)

static void there_and_back(const uint8_t *raw, size_t n) {
        cleanup_free uint8_t *packed = NULL;
        size_t len;
        errint_t r = compress_zstd(raw, n, &packed, &len);

        POST(r == 0 || (r == -ENODATA && !packed));
        if (r < 0)
                return;
        POST(len < n && len <= n - n / 16);
        cleanup_free uint8_t *back = xmalloc(n);
        POST(decompress_zstd(packed, len, back, n) == 0);
        POST(memcmp(raw, back, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size < 3)
                return -1;
        size_t raw_len = ((size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % RAW_MAX;
        const uint8_t *frame = data + 3;
        size_t frame_len = size - 3;
        cleanup_free uint8_t *out = xmalloc(raw_len), *longer = xmalloc(raw_len + 1);

        errint_t r = decompress_zstd(frame, frame_len, out, raw_len);
        POST(r == 0 || r == -EBADMSG);
        if (r == 0) {
                POST(raw_len > 0 && frame_len > 0);
                POST(decompress_zstd(frame, frame_len, longer, raw_len + 1) == -EBADMSG);
                POST(decompress_zstd(frame, frame_len, longer, raw_len - 1) == -EBADMSG);
                there_and_back(out, raw_len);
        }
        there_and_back(frame, frame_len);
        return 0;
}
