/* log.h: one line per event, at a level, through one sink that the program sets (stderr, journald, a test's buffer). Text that
 * users supplied is quoted with log_quote. A function either logs or returns the error, never both. Any thread. Not for pure
 * folders: those return errors and trace effects. */
#pragma once

#include "base/base.h"
#include <stdarg.h>

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARNING = 4, LOG_LEVEL_NOTICE = 5, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };
typedef void (*log_sink_fn)(enum log_level level, const char *line, void *ctx);
/* Calls of the sink are serialised; it must not log. */
void log_set_sink(log_sink_fn sink, void *ctx); /* NULL: stderr, with the level's <N> prefix only when stderr is the journal */
void log_set_level(enum log_level level);
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_at(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
/* Quotes n bytes C-style into out, between double quotes ("\x0a" for control and non-UTF-8 bytes), cut to fit with an ellipsis.
 * Returns out, which has room for at least LOG_QUOTE_MIN bytes. */
#define LOG_QUOTE_MIN 8
const char *log_quote(const void *p, size_t n, char *out, size_t out_size);
