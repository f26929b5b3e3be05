/* compress.h: zstd behind one door. Pure (zstd is deterministic for a given library; the compressed form is made once, by the
 * origin, and never compared), thread-safe: contexts are lent to who calls. */
#pragma once

#include "base/base.h"

enum content_form { FORM_RAW = 0, FORM_ZSTD = 1 };

/* Compresses n bytes; *ret is malloc'ed. -ENODATA: does not shrink by at least n/16 (store it raw), or, from 64 KiB on, samples of it do
 * not shrink. -ENOMEM. */
errint_t compress_zstd(const void *p, size_t n, uint8_t **ret, size_t *ret_len);
/* Fills exactly raw_len bytes of out. -EBADMSG: not such a frame, or another length; an n or raw_len of 0 is that, too. -ENOMEM.
 * Never reads or writes out of bounds. */
errint_t decompress_zstd(const void *p, size_t n, void *out, size_t raw_len);
