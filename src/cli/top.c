/* top.c: `coterie top`: what the daemon does now: rates between two looks at its counters. On a terminal it draws over what it drew, line
 * by line, so that nothing flickers; else it prints one line per look. */
#include "cli.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_MAX    3600.0
#define ROWS_DEFAULT    24
#define COLUMNS_DEFAULT 80

struct rate {
        const char *name, *counter;
        bool bytes;
};
static const struct rate rates[] = {
        {"operations", "operations", false},
        {"refused", "operations_refused", false},
        {"requests", "fuse_requests", false},
        {"lookups", "lookups", false},
        {"reads", "reads", false},
        {"read", "read_bytes", true},
        {"writes", "fuse_write_calls", false},
        {"written", "fuse_write_bytes", true},
        {"to log", "log_bytes", true},
        {"to content", "content_bytes", true},
        {"to home", "home_bytes", true},
        {"log flushes", "log_flushes", false},
        {"barriers", "barriers", false},
        {"checkpoints", "checkpoints", false},
        {"messages sent", "messages_sent", false},
        {"delivered", "messages_delivered", false},
        {"view changes", "view_changes", false},
        {"notifications", "invalidations", false},
};

struct top {
        const struct cli *cli;
        double interval_s;
        uint64_t count; /* looks; 0: for ever */
        bool terminal;
        struct termios before;
};

static double now_s(void) {
        struct timespec ts;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double rate_of(const json_t *now, const json_t *before, const char *counter, double seconds) {
        uint64_t a = cli_number(json_object_get(before, "counters"), counter), b = cli_number(json_object_get(now, "counters"), counter);
        return seconds > 0 && b > a ? (double)(b - a) / seconds : 0;
}

static void rate_text(const struct rate *r, double value, char *buf, size_t size) {
        char bytes[32];

        if (r->bytes) {
                cli_bytes((uint64_t)value, bytes, sizeof(bytes));
                (void)snprintf(buf, size, "%s/s", bytes);
        } else {
                (void)snprintf(buf, size, value < 100 ? "%.1f/s" : "%.0f/s", value);
        }
}

/* --- the screen */
struct screen {
        unsigned rows, columns, row;
};

/* One line, cut to the width; characters, not bytes, count. */
static void line(struct screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(struct screen *s, const char *fmt, ...) {
        char buf[1024];
        unsigned width = 0;
        size_t n = 0;
        va_list ap;

        if (s->row >= s->rows)
                return;
        va_start(ap, fmt);
        (void)vsnprintf(buf, sizeof(buf), fmt, ap);
        va_end(ap);
        for (; buf[n]; n++) {
                if (((unsigned char)buf[n] & 0xc0) == 0x80)
                        continue;
                if (width == s->columns)
                        break;
                width++;
        }
        (void)printf("%s%.*s\033[K", s->row++ ? "\r\n" : "", (int)n, buf);
}

static void draw_rates(struct screen *s, const json_t *now, const json_t *before, double seconds) {
        char value[48];
        const char *gap = "";
        char buf[256] = "";
        unsigned per_line = s->columns >= 78 ? 3 : s->columns >= 52 ? 2 : 1;

        for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
                size_t n = strlen(buf);
                rate_text(&rates[i], rate_of(now, before, rates[i].counter, seconds), value, sizeof(value));
                (void)snprintf(buf + n, sizeof(buf) - n, "%s%-13s %11s", gap, rates[i].name, value);
                gap = " ";
                if ((i + 1) % per_line == 0 || i + 1 == ARRAY_LEN(rates)) {
                        line(s, "%s", buf);
                        buf[0] = '\0';
                        gap = "";
                }
        }
}

static void draw(const json_t *now, const json_t *before, double seconds) {
        struct winsize w = {0};
        struct screen s = {.rows = ROWS_DEFAULT, .columns = COLUMNS_DEFAULT};
        const json_t *usage = json_object_get(now, "usage"), *members = json_object_get(now, "members"), *m;
        char used[32], max[32];
        size_t i;

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
                s.rows = w.ws_row;
                s.columns = w.ws_col;
        }
        cli_bytes(cli_number(usage, "bytes"), used, sizeof(used));
        cli_bytes(cli_number(usage, "bytes_max"), max, sizeof(max));
        (void)printf("\033[H");
        line(&s, "%s: %s%s%s", cli_text(now, "mountpoint"), json_is_true(json_object_get(now, "writable")) ? "writable" : "read-only",
             cli_text(now, "reason")[0] ? ": " : "", cli_text(now, "reason"));
        line(&s, "epoch %" PRIu64 ", sequence %" PRIu64 ", stable %" PRIu64 ", on the medium %" PRIu64 ", under way %" PRIu64,
             cli_number(now, "epoch"), cli_number(now, "sequence"), cli_number(now, "stable_sequence"),
             cli_number(json_object_get(now, "store"), "flushed_sequence"), cli_number(now, "requests"));
        line(&s, "%s of %s, %" PRIu64 " of %" PRIu64 " inodes", used, max, cli_number(usage, "inodes"), cli_number(usage, "inodes_max"));
        line(&s, "%s", "");
        draw_rates(&s, now, before, seconds);
        line(&s, "%s", "");
        line(&s, "%-6s %-20s %-9s %14s %14s", "NODE", "NAME", "STATE", "CONFIRMED", "ON MEDIUM");
        json_array_foreach((json_t *)(uintptr_t)members, i, m) {
                line(&s, "%-6" PRIu64 " %-20.20s %-9s %14" PRIu64 " %14" PRIu64, cli_number(m, "node"), cli_text(m, "name"),
                     json_is_true(json_object_get(m, "expelled")) ? "expelled"
                     : json_is_true(json_object_get(m, "synced")) ? "synced"
                                                                  : "joining",
                     cli_number(m, "acked_sequence"), cli_number(m, "flushed_sequence"));
        }
        (void)printf("\033[J");
}

static void print_line(const struct top *t, const json_t *now, const json_t *before, double seconds) {
        char value[48];

        if (t->cli->json) {
                json_t *o = json_object();
                (void)json_object_set_new(o, "sequence", json_integer(json_integer_value(json_object_get(now, "sequence"))));
                (void)json_object_set_new(o, "seconds", json_real(seconds)); /* a new object, our own keys */
                for (size_t i = 0; i < ARRAY_LEN(rates); i++)
                        (void)json_object_set_new(o, rates[i].counter, json_real(rate_of(now, before, rates[i].counter, seconds)));
                (void)json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
                (void)fputc('\n', stdout);
                json_decref(o);
                return;
        }
        (void)printf("sequence %" PRIu64, cli_number(now, "sequence"));
        for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
                double rate = rate_of(now, before, rates[i].counter, seconds);
                if (rate <= 0)
                        continue;
                rate_text(&rates[i], rate, value, sizeof(value));
                (void)printf(", %s %s", rates[i].name, value);
        }
        (void)fputc('\n', stdout);
}

/* --- life */
static volatile sig_atomic_t ended;
static void on_signal(int number_) {
        if (number_ != SIGWINCH)
                ended = 1;
}

static void terminal_begin(struct top *t) {
        struct termios raw;
        struct sigaction action = {.sa_handler = on_signal};

        t->terminal = isatty(STDOUT_FILENO) == 1 && !t->cli->json && tcgetattr(STDIN_FILENO, &t->before) == 0;
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGWINCH, &action, NULL);
        if (!t->terminal)
                return;
        raw = t->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        (void)printf("\033[?1049h\033[?25l\033[2J"); /* the other screen, no cursor */
}

static void terminal_end(struct top *t) {
        if (!t->terminal)
                return;
        (void)printf("\033[?25h\033[?1049l");
        (void)fflush(stdout);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t->before);
}

/* Until `until`, a new size of the window (true: draw again now), or the end. */
static bool wait_for(struct top *t, double until) {
        struct pollfd fd = {.fd = t->terminal ? STDIN_FILENO : -1, .events = POLLIN};
        char key;

        while (!ended) {
                double left = until - now_s();
                if (left <= 0)
                        return false;
                int n = poll(&fd, 1, (int)(left * 1000) + 1);
                if (n < 0 && errno == EINTR)
                        return !ended;
                if (n > 0 && (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q'))
                        ended = 1;
        }
        return false;
}

static int look(const struct top *t, json_t **now) {
        return cli_ask_json(t->cli, 1, (const char *const[]){"status"}, now);
}

static int run(struct top *t) {
        json_t *before = NULL, *now = NULL;
        double then = now_s();
        int exit = look(t, &before);

        for (uint64_t i = 0; exit == 0 && !ended && (t->count == 0 || i < t->count); i++) {
                if (t->terminal && i == 0)
                        draw(before, before, 0);
                (void)fflush(stdout);
                while (wait_for(t, then + t->interval_s) && t->terminal) {
                        draw(now ? now : before, before, now ? t->interval_s : 0);
                        (void)fflush(stdout);
                }
                if (ended)
                        break;
                json_t *next = NULL;
                if ((exit = look(t, &next)) != 0)
                        break;
                if (now) {
                        json_decref(before);
                        before = now;
                }
                now = next;
                double at = now_s();
                if (t->terminal)
                        draw(now, before, at - then);
                else
                        print_line(t, now, before, at - then);
                (void)fflush(stdout);
                then = at;
        }
        json_decref(before);
        json_decref(now);
        return exit;
}

static bool parse_number(const char *s, double min, double max, double *ret) {
        char *end;
        double v = strtod(s, &end);
        if (end == s || *end || !(v >= min) || !(v <= max))
                return false;
        *ret = v;
        return true;
}

int cli_top(struct cli *cli, int argc, char **argv) {
        struct top t = {.cli = cli, .interval_s = 1};
        double count = 0;

        for (int i = 0; i < argc; i++) {
                if (strcmp(argv[i], "--interval") == 0 && i + 1 < argc && parse_number(argv[i + 1], 0.1, INTERVAL_MAX, &t.interval_s))
                        i++;
                else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc && parse_number(argv[i + 1], 1, 1e9, &count))
                        i++;
                else
                        return cli_usage(cli);
        }
        t.count = (uint64_t)count;
        terminal_begin(&t);
        int exit = run(&t);
        terminal_end(&t);
        return exit;
}
