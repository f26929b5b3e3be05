/* fuzz_codec.c: the decoder against any bytes. Input: a count, that many bytes that each choose a read, then what is read.
 *
 * Checked: no read leaves the input; errors stick and give zeros; one value has one form, so what was decoded encodes to the very
 * bytes that were consumed. */
#include "base/codec.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One read, and its value written again. */
static void read_one(struct dec *d, struct enc *e, uint8_t choice) {
        size_t n;
        const uint8_t *p;

        switch (choice % 8) {
        case 0:
                enc_u8(e, dec_u8(d));
                break;
        case 1:
                enc_u16(e, dec_u16(d));
                break;
        case 2:
                enc_u32(e, dec_u32(d));
                break;
        case 3:
                enc_u64(e, dec_u64(d));
                break;
        case 4:
                enc_varint(e, dec_varint(d));
                break;
        case 5:
                enc_svarint(e, dec_svarint(d));
                break;
        case 6:
                p = dec_bytes(d, choice, &n);
                POST(n <= choice && (p || n == 0));
                enc_bytes(e, p, n);
                break;
        default:
                n = choice / 8;
                p = dec_raw(d, n);
                POST(p || d->err);
                enc_raw(e, p, p ? n : 0);
        }
}

static void check_sticky(struct dec *d) {
        size_t n = 1;
        POST(d->err == -EBADMSG && dec_left(d) == 0);
        POST(dec_u8(d) == 0 && dec_u64(d) == 0 && dec_varint(d) == 0 && dec_svarint(d) == 0);
        POST(!dec_raw(d, 0) && !dec_bytes(d, SIZE_MAX, &n) && n == 0);
        POST(dec_finish(d) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size == 0 || size < 1u + data[0])
                return -1;
        const uint8_t *choices = data + 1, *input = choices + data[0];
        struct dec d;
        struct enc e;

        dec_init(&d, input, size - 1 - data[0]);
        enc_init(&e, size);
        for (size_t i = 0; i < data[0]; i++) {
                const uint8_t *before = d.p;
                size_t len_before = e.len;
                read_one(&d, &e, choices[i]);
                if (d.err) {
                        check_sticky(&d);
                        break;
                }
                POST(d.p >= before && d.p <= d.end && e.err == 0);
                POST(e.len - len_before == (size_t)(d.p - before));
                POST(e.len == len_before || memcmp(e.data + len_before, before, e.len - len_before) == 0);
        }
        enc_done(&e);
        return 0;
}
