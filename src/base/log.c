/* log.c: formats a line, gives it to the sink. */
#include "base/log.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define ELLIPSIS       "\xe2\x80\xa6" /* U+2026 */
#define ELLIPSIS_BYTES 3u

static _Atomic int max_level = LOG_LEVEL_INFO;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink_fn; /* protected by lock */
static void *sink_ctx;      /* protected by lock */

/* systemd names the socket it connected to us in JOURNAL_STREAM, as device:inode; a child that redirected stderr still has the
 * variable, hence the comparison (sd-daemon(3), systemd.exec(5)). */
static bool stderr_is_journal(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        struct stat st;
        char own[64];

        if (!stream || fstat(STDERR_FILENO, &st) < 0)
                return false;
        (void)snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
        return strcmp(stream, own) == 0;
}

static void log_to_stderr(enum log_level level, const char *line) {
        char out[LINE_MAX_BYTES + 8];
        int n = stderr_is_journal() ? snprintf(out, sizeof(out), "<%d>%s\n", (int)level, line) : snprintf(out, sizeof(out), "%s\n", line);
        /* One call, so that lines of several processes do not mix. A log that cannot be written has nowhere to say so. */
        if (write(STDERR_FILENO, out, (size_t)n) < 0)
                return;
}

void log_set_sink(log_sink_fn sink, void *ctx) {
        (void)pthread_mutex_lock(&lock); /* a default mutex does not fail */
        sink_fn = sink;
        sink_ctx = ctx;
        (void)pthread_mutex_unlock(&lock);
}

void log_set_level(enum log_level level) {
        atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

/* One event is one line whatever was formatted into it; UTF-8 passes. */
static void flatten(char *line) {
        for (; *line; line++)
                if ((unsigned char)*line < 0x20 || *line == 0x7f)
                        *line = ' ';
}

void log_at(enum log_level level, const char *fmt, ...) {
        char line[LINE_MAX_BYTES];
        int saved = errno;
        va_list ap;

        if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
                return;
        va_start(ap, fmt);
        int n = vsnprintf(line, sizeof(line), fmt, ap);
        va_end(ap);
        if (n >= (int)sizeof(line))
                memcpy(line + sizeof(line) - sizeof(ELLIPSIS), ELLIPSIS, sizeof(ELLIPSIS));
        flatten(line);
        (void)pthread_mutex_lock(&lock);
        if (sink_fn)
                sink_fn(level, line, sink_ctx);
        else
                log_to_stderr(level, line);
        (void)pthread_mutex_unlock(&lock);
        errno = saved;
}

/* Length of the well-formed UTF-8 sequence of more than one byte at p (RFC 3629: no overlong forms, surrogates or values above
 * 10FFFF), and its code point; 0 if there is none. */
static size_t utf8_sequence(const uint8_t *p, size_t left, uint32_t *ret) {
        static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
        size_t n = (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;

        if (n == 0 || n > left)
                return 0;
        uint32_t v = p[0] & (0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                v = v << 6 | (p[i] & 0x3fu);
        }
        if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
                return 0;
        *ret = v;
        return n;
}

/* What would act on a terminal instead of showing: C1 controls, line separators, bidirectional overrides. */
static bool is_unprintable(uint32_t v) {
        return v < 0xa0 || v == 0x200e || v == 0x200f || (v >= 0x2028 && v <= 0x202e) || (v >= 0x2066 && v <= 0x2069);
}

/* One unit of output: the bytes taken from the input and the text for them. */
static size_t quote_unit(const uint8_t *p, size_t left, char text[8], size_t *ret_len) {
        static const char digits[] = "0123456789abcdef";
        uint32_t v;
        size_t n = utf8_sequence(p, left, &v);

        if (n > 0 && !is_unprintable(v)) {
                memcpy(text, p, n);
                *ret_len = n;
                return n;
        }
        if (*p >= 0x20 && *p < 0x7f) {
                *ret_len = 0;
                if (*p == '"' || *p == '\\')
                        text[(*ret_len)++] = '\\';
                text[(*ret_len)++] = (char)*p;
                return 1;
        }
        memcpy(text, (char[]){'\\', 'x', digits[*p >> 4], digits[*p & 15]}, 4);
        *ret_len = 4;
        return 1;
}

const char *log_quote(const void *p, size_t n, char *out, size_t out_size) {
        const uint8_t *at = p;
        size_t len = 0, fits = 1; /* fits: length up to which an ellipsis and the end still have room */

        PRE(out_size >= LOG_QUOTE_MIN);
        out[len++] = '"';
        while (n > 0) {
                char text[8];
                size_t text_len, taken = quote_unit(at, n, text, &text_len);
                if (len + text_len + 2 > out_size)
                        break;
                memcpy(out + len, text, text_len);
                len += text_len;
                at += taken;
                n -= taken;
                if (len + ELLIPSIS_BYTES + 2 <= out_size)
                        fits = len;
        }
        if (n > 0) {
                memcpy(out + fits, ELLIPSIS, ELLIPSIS_BYTES);
                len = fits + ELLIPSIS_BYTES;
        }
        out[len++] = '"';
        out[len] = '\0';
        return out;
}
