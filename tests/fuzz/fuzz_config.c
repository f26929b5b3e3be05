/* fuzz_config.c: the configuration file.
 *
 * Checked: what is refused is refused with one line that begins with the file and a line of it; what is taken stays within its bounds, and
 * says the same when it is written out and read again. */
#include "daemon/options.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static errint_t read_text(struct options *o, const void *text, size_t n, char reason[OPTIONS_REASON]) {
        FILE *f = n > 0 ? fmemopen((void *)(uintptr_t)text, n, "r") : fopen("/dev/null", "re");
        POST(f != NULL);
        errint_t error = config_read_stream(o, f, "file", reason);
        (void)fclose(f);
        return error;
}

static void check_taken(const struct options *o) {
        cleanup_free char *text = NULL;
        char reason[OPTIONS_REASON] = "", value[OPTION_TEXT_MAX + 1], other[OPTION_TEXT_MAX + 1];
        struct options again;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);

        POST(f != NULL);
        for (size_t i = 0; i < options_count(); i++) {
                options_text(o, options_info(i), value, sizeof(value));
                if (value[0] == '#') { /* behind "name =" it is no comment, behind a blank it would be one */
                        (void)fclose(f);
                        return;
                }
                if (value[0]) /* the default of a text may be shorter than one that is given */
                        (void)fprintf(f, "%s = %s\n", options_info(i)->name, value);
        }
        (void)fclose(f);
        options_init(&again);
        POST(read_text(&again, text, n, reason) == 0);
        for (size_t i = 0; i < options_count(); i++) {
                options_text(o, options_info(i), value, sizeof(value));
                options_text(&again, options_info(i), other, sizeof(other));
                POST(strcmp(value, other) == 0);
        }
        options_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char reason[OPTIONS_REASON] = "";
        struct options o;

        options_init(&o);
        if (read_text(&o, data, size, reason) < 0) {
                POST(strncmp(reason, "file:", 5) == 0 && reason[5] >= '1' && reason[5] <= '9');
                POST(strlen(reason) < OPTIONS_REASON && !strchr(reason, '\n'));
        } else {
                check_taken(&o);
        }
        options_done(&o);
        return 0;
}
