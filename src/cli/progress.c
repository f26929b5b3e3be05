/* progress.c: a bar for what takes longer than a second. */
#include "image.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define SILENT_MS UINT64_C(1000)
#define REDRAW_MS UINT64_C(100)
#define CELLS     30u

static uint64_t now_ms(void) {
        struct timespec ts;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
        return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

void progress_begin(struct progress *p, const char *what, uint64_t total) {
        *p = (struct progress){.what = what, .total = total, .began_ms = now_ms(), .terminal = isatty(STDERR_FILENO) == 1};
}

void progress_show(struct progress *p, uint64_t done) {
        char bar[CELLS + 1], bytes[32];
        uint64_t now;

        if (!p->terminal || p->total == 0 || (now = now_ms()) < p->began_ms + SILENT_MS || now < p->drawn_ms + REDRAW_MS)
                return;
        p->drawn_ms = now;
        size_t full = (size_t)(MIN_OF(done, p->total) * CELLS / p->total);
        memset(bar, '#', full);
        memset(bar + full, '.', CELLS - full);
        bar[CELLS] = '\0';
        cli_bytes(done, bytes, sizeof(bytes));
        (void)fprintf(stderr, "\r%s [%s] %s\033[K", p->what, bar, bytes);
        (void)fflush(stderr);
}

void progress_end(struct progress *p) {
        if (p->drawn_ms != 0)
                (void)fprintf(stderr, "\r\033[K");
}
