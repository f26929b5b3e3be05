/* table.c: columns that align. */
#include "cli.h"

#include <string.h>

struct table {
        size_t columns, rows;
        char **cells;
};

struct table *table_new(size_t columns) {
        struct table *t = NEW(struct table);
        t->columns = columns;
        return t;
}

void table_row(struct table *t, const char *const *cells) {
        t->cells = xrealloc(t->cells, (t->rows + 1) * t->columns * sizeof(*t->cells));
        for (size_t i = 0; i < t->columns; i++)
                t->cells[t->rows * t->columns + i] = xstrdup(cells[i]);
        t->rows++;
}

/* Characters, not bytes: UTF-8 continuation bytes take no place. */
static size_t width(const char *s) {
        size_t n = 0;
        for (; *s; s++)
                n += ((unsigned char)*s & 0xc0) != 0x80;
        return n;
}

void table_print(struct table *t, FILE *f) {
        cleanup_free size_t *widths = xcalloc(t->columns, sizeof(*widths));

        for (size_t i = 0; i < t->rows * t->columns; i++)
                widths[i % t->columns] = MAX_OF(widths[i % t->columns], width(t->cells[i]));
        for (size_t r = 0; r < t->rows; r++) {
                char *const *cells = t->cells + r * t->columns;
                size_t last = t->columns - 1; /* no blanks at the end of a line */
                while (last > 0 && !cells[last][0])
                        last--;
                for (size_t i = 0; i < last; i++)
                        (void)fprintf(f, "%s%*s", cells[i], (int)(widths[i] - width(cells[i]) + 2), "");
                (void)fprintf(f, "%s\n", cells[last]);
        }
}

void table_free(struct table *t) {
        for (size_t i = 0; i < t->rows * t->columns; i++)
                free(t->cells[i]);
        free(t->cells);
        free(t);
}
