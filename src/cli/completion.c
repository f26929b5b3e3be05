/* completion.c: `coterie completion SHELL`: a script for the shell, made from the table of commands. */
#include "cli.h"

#include <string.h>

/* The words that a command knows: options of its usage and help, and alternatives of its usage. */
struct words {
        char *items[64];
        size_t n;
};

static void words_done(struct words *w) {
        for (size_t i = 0; i < w->n; i++)
                free(w->items[i]);
}

static void add(struct words *w, const char *p, size_t n) {
        char *word;

        for (size_t i = 0; i < w->n; i++)
                if (strncmp(w->items[i], p, n) == 0 && w->items[i][n] == '\0')
                        return;
        if (w->n == ARRAY_LEN(w->items))
                return;
        word = xmalloc(n + 1);
        memcpy(word, p, n);
        word[n] = '\0';
        w->items[w->n++] = word;
}

static bool is_small(char c) {
        return (c >= 'a' && c <= 'z') || c == '-';
}

/* Words of small letters that stand alone between blanks, bars and brackets; only those that begin with "--" if `options`. */
static void scan(struct words *w, const char *text, bool options) {
        static const char between[] = " |[]\n";

        for (const char *p = text; *p;) {
                size_t n = strcspn(p, between);
                size_t small = 0;
                while (small < n && is_small(p[small]))
                        small++;
                if (small > 0 && small == n && (p[0] != '-' ? !options : n > 2 && p[1] == '-'))
                        add(w, p, n);
                p += n;
                p += strspn(p, between);
        }
}

static void words_of(const struct cli_command *c, struct words *w) {
        *w = (struct words){0};
        scan(w, c->arguments, false);
        scan(w, c->help, true);
        add(w, "--help", 6);
}

static void print_words(const struct words *w) {
        for (size_t i = 0; i < w->n; i++)
                (void)printf("%s%s", i ? " " : "", w->items[i]);
}

static void print_names(void) {
        for (size_t i = 0; i < cli_commands_n; i++)
                (void)printf("%s%s", i ? " " : "", cli_commands[i].name);
}

static void print_quoted(const char *s) { /* between single quotes, for zsh and fish */
        for (; *s; s++)
                if (*s == '\'')
                        (void)printf("'\\''");
                else
                        (void)putchar(*s);
}

static void bash(void) {
        (void)printf("# bash completion of coterie\n"
                     "_coterie() {\n"
                     "        local current=${COMP_WORDS[COMP_CWORD]} command= i words\n"
                     "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
                     "                case ${COMP_WORDS[i]} in\n"
                     "                --run-dir | --timeout) i=$((i + 1)) ;;\n"
                     "                -*) ;;\n"
                     "                *) command=${COMP_WORDS[i]}; break ;;\n"
                     "                esac\n"
                     "        done\n"
                     "        case $command in\n"
                     "        '') words='");
        print_names();
        (void)printf(" --run-dir --timeout --json --help --version' ;;\n");
        for (size_t i = 0; i < cli_commands_n; i++) {
                CLEANUP(words_done) struct words w;
                words_of(&cli_commands[i], &w);
                (void)printf("        %s) words='", cli_commands[i].name);
                print_words(&w);
                (void)printf("' ;;\n");
        }
        (void)printf("        *) words= ;;\n"
                     "        esac\n"
                     "        case $command in\n"
                     "        get | set) words+=\" $(coterie get 2>/dev/null | sed -e 1d -e 's/ .*//')\" ;;\n"
                     "        esac\n"
                     "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                     "        [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                     "}\n"
                     "complete -o filenames -F _coterie coterie\n");
}

static void zsh(void) {
        (void)printf("#compdef coterie\n"
                     "_coterie() {\n"
                     "        local -a commands\n"
                     "        commands=(\n");
        for (size_t i = 0; i < cli_commands_n; i++) {
                (void)printf("                '%s:", cli_commands[i].name);
                print_quoted(cli_commands[i].summary);
                (void)printf("'\n");
        }
        (void)printf("        )\n"
                     "        if ((CURRENT == 2)); then\n"
                     "                _describe command commands\n"
                     "                return\n"
                     "        fi\n"
                     "        case $words[2] in\n");
        for (size_t i = 0; i < cli_commands_n; i++) {
                CLEANUP(words_done) struct words w;
                words_of(&cli_commands[i], &w);
                (void)printf("        %s) compadd -- ", cli_commands[i].name);
                print_words(&w);
                (void)printf(" ;;\n");
        }
        (void)printf("        esac\n"
                     "        case $words[2] in\n"
                     "        get | set) compadd -- ${(f)\"$(coterie get 2>/dev/null | sed -e 1d -e 's/ .*//')\"} ;;\n"
                     "        esac\n"
                     "        _files\n"
                     "}\n"
                     "_coterie \"$@\"\n");
}

static void fish(void) {
        (void)printf("# fish completion of coterie\n"
                     "complete -c coterie -n __fish_use_subcommand -l run-dir -r -d 'of the daemon'\n"
                     "complete -c coterie -n __fish_use_subcommand -l timeout -x -d 'seconds for a sign of life'\n"
                     "complete -c coterie -l json -d 'print JSON'\n"
                     "complete -c coterie -l help -d 'of coterie, or of a command'\n");
        for (size_t i = 0; i < cli_commands_n; i++) {
                CLEANUP(words_done) struct words w;
                const char *name = cli_commands[i].name;
                words_of(&cli_commands[i], &w);
                (void)printf("complete -c coterie -n __fish_use_subcommand -a %s -d '", name);
                print_quoted(cli_commands[i].summary);
                (void)printf("'\n");
                for (size_t k = 0; k < w.n; k++)
                        if (strcmp(w.items[k], "--help") != 0 && strcmp(w.items[k], "--json") != 0)
                                (void)printf("complete -c coterie -n '__fish_seen_subcommand_from %s' %s %s\n", name,
                                             w.items[k][0] == '-' ? "-l" : "-a", w.items[k] + (w.items[k][0] == '-' ? 2 : 0));
        }
        (void)printf(
                "complete -c coterie -n '__fish_seen_subcommand_from get set' -a \"(coterie get 2>/dev/null | sed -e 1d -e 's/ .*//')\"\n");
}

int cli_completion(struct cli *cli, int argc, char **argv) {
        static const struct {
                const char *shell;
                void (*print)(void);
        } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

        for (size_t i = 0; argc == 1 && i < ARRAY_LEN(shells); i++)
                if (strcmp(argv[0], shells[i].shell) == 0) {
                        shells[i].print();
                        return 0;
                }
        return cli_usage(cli);
}
