/* fuzz_quote.c: names from users on their way into the log. Input: a byte for the room, then the name.
 *
 * Checked: the result fits, is between quotes, is UTF-8, and holds nothing that could act on a terminal or end a line. */
#include "base/log.h"
#include <glib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size == 0)
                return -1;
        size_t room = LOG_QUOTE_MIN + data[0];
        cleanup_free char *out = xmalloc(room);

        POST(log_quote(data + 1, size - 1, out, room) == out);
        size_t len = strnlen(out, room);
        POST(len >= 2 && len < room && out[0] == '"' && out[len - 1] == '"');
        POST(g_utf8_validate(out, (gssize)len, NULL));
        for (size_t i = 0; i < len; i++) {
                uint8_t c = (uint8_t)out[i];
                POST(c >= 0x20 && c != 0x7f);
                POST(c != 0xc2 || (uint8_t)out[i + 1] >= 0xa0); /* no C1 control */
                if (c == '\\' && i + 1 < len - 1)
                        i++; /* what follows is escaped */
                else
                        POST(c != '"' || i == 0 || i == len - 1);
        }
        return 0;
}
