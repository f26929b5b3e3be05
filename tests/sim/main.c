/* main.c: coterie-sim: options, many seeds on several processors, the report. */
#include "nemesis.h"
#include "sim.h"

#include "base/log.h"

#include "variant.h"

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef COTERIE_REVISION
#define COTERIE_REVISION "unknown"
#endif

static enum repl_variant variant = VARIANT_NONE;
bool repl_variant(enum repl_variant v) {
        return v == variant;
}

static const struct {
        const char *name, *about;
} variants[] = {[VARIANT_NONE] = {"none", "the machine as it ships"},
#define X(id, text, about) [VARIANT_##id] = {text, about},
                REPL_VARIANTS(X)
#undef X
};

enum { EXIT_USAGE = 2, EXIT_CRASH = 4 };

struct totals {
        uint64_t runs, operations, hash;
        uint64_t faults[FAULT_COUNT], probes[PROBE_COUNT];
        uint64_t failed; /* runs */
        int status;
};

static const char *const probe_names[PROBE_COUNT] = {
#define X(id, name) [PROBE_##id] = name,
        PROBES(X)
#undef X
};

static void usage(FILE *to) {
        fprintf(to, "usage: coterie-sim [OPTION...]\n"
                    "  --seed N          first seed (1)\n"
                    "  --count N         how many seeds (1)\n"
                    "  --nodes N         3 to 7 (drawn)\n"
                    "  --ticks N         virtual milliseconds with faults (drawn)\n"
                    "  --faults LIST     all, none, or names with commas (all)\n"
                    "  --store KIND      mem or sqlite (drawn)\n"
                    "  --script NAME     a scripted fault schedule instead of drawn faults; `all`: each in turn; --list-scripts\n"
                    "  --plan LIST       mem:N,sqlite:N,script:N: so many seeds of each, one after the other\n"
                    "  --variant NAME    the machine broken on purpose; --list-variants\n"
                    "  --jobs N          processes (1)\n"
                    "  --keep-going      do not end at the first seed that fails\n"
                    "  --trace           every move of one seed\n"
                    "  --probes          counts of faults and rare branches; --min-probe N: fail if one was reached less often\n"
                    "exit status: 0 nothing found, 1 safety, 3 liveness, 4 crash, 2 usage\n");
}

/* An assertion of the product, or worse: the seed is told before the process goes. */
static char running[128];
static void on_crash(int signal_number) {
        (void)signal_number;
        (void)!write(STDOUT_FILENO, running, strlen(running));
        _exit(EXIT_CRASH);
}

static void run_one(const struct sim_config *config, struct totals *t) {
        struct sim s;

        (void)snprintf(running, sizeof running, "seed %" G_GUINT64_FORMAT "%s%s%s: crash\n", config->seed,
                       config->script >= 0 ? " script " : "", config->script >= 0 ? script_name((unsigned)config->script) : "",
                       config->store < 0 ? ""
                       : config->store   ? " store sqlite"
                                         : " store mem");
        sim_run(&s, config);
        t->runs++;
        t->operations += s.operations;
        t->hash = t->hash * 31 + s.hash;
        for (unsigned k = 0; k < FAULT_COUNT; k++)
                t->faults[k] += s.faults[k];
        for (unsigned k = 0; k < PROBE_COUNT; k++)
                t->probes[k] += s.probes[k];
        if (s.verdict != VERDICT_OK) {
                printf("seed %" G_GUINT64_FORMAT "%s%s%s: %s: %s\n", config->seed, config->script >= 0 ? " script " : "",
                       config->script >= 0 ? script_name((unsigned)config->script) : "",
                       config->store < 0 ? ""
                       : config->store   ? " store sqlite"
                                         : " store mem",
                       s.checker, s.what);
                fflush(stdout);
                t->failed++;
                if (t->status == 0 || s.verdict == VERDICT_SAFETY)
                        t->status = (int)s.verdict;
        }
        sim_done(&s);
}

struct plan {
        struct sim_config config;
        uint64_t seed, count;
        unsigned jobs;
        int script;                    /* -1 none, -2 all in turn */
        uint64_t mem, sqlite, scripts; /* --plan: how many of each, one after the other */
        bool keep_going, probes;
        uint64_t min_probe;
};

/* The configuration of the k-th run. */
static struct sim_config plan_config(const struct plan *p, uint64_t k) {
        struct sim_config config = p->config;

        config.seed = p->seed + k;
        config.script = p->script == -2 ? (int)(k % script_count()) : p->script;
        if (p->mem + p->sqlite + p->scripts > 0) {
                if (k < p->mem + p->sqlite)
                        config.store = k >= p->mem;
                else
                        config.script = (int)(k % script_count());
        }
        if (config.script >= 0)
                config.nodes = config.nodes ? config.nodes : 3;
        return config;
}

static void run_share(const struct plan *p, unsigned job, struct totals *t) {
        for (uint64_t k = job; k < p->count; k += p->jobs) {
                struct sim_config config = plan_config(p, k);

                run_one(&config, t);
                if (t->status != 0 && !p->keep_going)
                        return;
        }
}

static bool read_all(int fd, void *p, size_t n) {
        for (size_t at = 0; at < n;) {
                ssize_t r = read(fd, (char *)p + at, n - at);

                if (r <= 0)
                        return false;
                at += (size_t)r;
        }
        return true;
}

static void add(struct totals *t, const struct totals *more) {
        t->runs += more->runs;
        t->operations += more->operations;
        t->hash ^= more->hash;
        t->failed += more->failed;
        for (unsigned k = 0; k < FAULT_COUNT; k++)
                t->faults[k] += more->faults[k];
        for (unsigned k = 0; k < PROBE_COUNT; k++)
                t->probes[k] += more->probes[k];
        if (t->status == 0 || more->status == VERDICT_SAFETY)
                t->status = more->status;
}

/* Each process reports through a pipe; one that dies instead has crashed. */
static void run_jobs(const struct plan *p, struct totals *t) {
        int fds[64][2];
        pid_t pids[64];

        for (unsigned j = 0; j < p->jobs; j++) {
                if (pipe(fds[j]) < 0 || (pids[j] = fork()) < 0) {
                        perror("coterie-sim");
                        exit(EXIT_CRASH);
                }
                if (pids[j] == 0) {
                        struct totals mine = {0};

                        run_share(p, j, &mine);
                        (void)!write(fds[j][1], &mine, sizeof mine);
                        _exit(0);
                }
                close(fds[j][1]);
        }
        for (unsigned j = 0; j < p->jobs; j++) {
                struct totals mine = {0};
                int status = 0;

                if (read_all(fds[j][0], &mine, sizeof mine))
                        add(t, &mine);
                close(fds[j][0]);
                (void)waitpid(pids[j], &status, 0);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                        printf("process %u crashed (status %d)\n", j, status);
                        t->status = EXIT_CRASH;
                }
        }
}

static int report(const struct plan *p, const struct totals *t) {
        int status = t->status;

        if (p->probes || p->min_probe) {
                for (unsigned k = 0; k < FAULT_COUNT; k++) {
                        printf("%10" G_GUINT64_FORMAT "  fault %s\n", t->faults[k], fault_name((enum fault)k));
                        if (p->min_probe && t->faults[k] < p->min_probe && status == 0)
                                status = VERDICT_SAFETY;
                }
                for (unsigned k = 0; k < PROBE_COUNT; k++) {
                        printf("%10" G_GUINT64_FORMAT "  %s\n", t->probes[k], probe_names[k]);
                        if (p->min_probe && t->probes[k] < p->min_probe && status == 0)
                                status = VERDICT_SAFETY;
                }
                if (p->min_probe && status == VERDICT_SAFETY && t->status == 0)
                        printf("a fault or branch was reached less than %" G_GUINT64_FORMAT " times\n", p->min_probe);
        }
        printf("%" G_GUINT64_FORMAT " runs, %" G_GUINT64_FORMAT " operations, %" G_GUINT64_FORMAT
               " failed, trace hash %016" G_GINT64_MODIFIER "x\n",
               t->runs, t->operations, t->failed, t->hash);
        return status;
}

static int list_and_leave(int what) {
        if (what == 'L')
                for (unsigned k = 1; k < VARIANT_COUNT; k++)
                        printf("%-24s %s\n", variants[k].name, variants[k].about);
        else
                for (unsigned k = 0; k < script_count(); k++)
                        printf("%s\n", script_name(k));
        return 0;
}

static bool choose_variant(const char *name) {
        for (unsigned k = 0; k < VARIANT_COUNT; k++)
                if (strcmp(name, variants[k].name) == 0) {
                        variant = (enum repl_variant)k;
                        return true;
                }
        return false;
}

static bool choose_script(const char *name, int *ret) {
        *ret = strcmp(name, "all") == 0 ? -2 : -1;
        for (unsigned k = 0; k < script_count(); k++)
                if (strcmp(name, script_name(k)) == 0)
                        *ret = (int)k;
        return *ret != -1;
}

static bool number(const char *text, uint64_t low, uint64_t high, uint64_t *ret) {
        char *end;

        errno = 0;
        *ret = strtoull(text, &end, 10);
        return errno == 0 && *text && !*end && *ret >= low && *ret <= high;
}

static bool take_option(struct plan *p, int c, const char *arg) {
        uint64_t v = 0;
        bool ok = true;

        switch (c) {
        case 's':
                ok = number(arg, 0, UINT64_MAX, &p->seed);
                break;
        case 'c':
                ok = number(arg, 1, UINT64_MAX, &p->count);
                break;
        case 'n':
                ok = number(arg, 1, SIM_NODES_MAX, &v);
                p->config.nodes = (unsigned)v;
                break;
        case 't':
                ok = number(arg, 1, 100000000, &p->config.ticks);
                break;
        case 'f':
                ok = fault_parse(arg, &p->config.faults) == 0;
                break;
        case 'S':
                ok = strcmp(arg, "mem") == 0 || strcmp(arg, "sqlite") == 0;
                p->config.store = strcmp(arg, "sqlite") == 0;
                break;
        case 'p':
                ok = choose_script(arg, &p->script);
                break;
        case 'v':
                ok = choose_variant(arg);
                break;
        case 'j':
                ok = number(arg, 1, 64, &v);
                p->jobs = (unsigned)v;
                break;
        case 'k':
                p->keep_going = true;
                break;
        case 'T':
                p->config.trace = true;
                break;
        case 'P':
                p->probes = true;
                break;
        case 'N':
                ok = sscanf(arg, "mem:%" G_GUINT64_FORMAT ",sqlite:%" G_GUINT64_FORMAT ",script:%" G_GUINT64_FORMAT, &p->mem, &p->sqlite,
                            &p->scripts) == 3;
                p->count = p->mem + p->sqlite + p->scripts;
                ok = ok && p->count > 0;
                break;
        case 'm':
                ok = number(arg, 1, UINT64_MAX, &p->min_probe);
                break;
        default:
                return false;
        }
        if (!ok)
                fprintf(stderr, "coterie-sim: '%s' is no value for this option; see --help\n", arg);
        return ok;
}

/* What the store says belongs to the trace. */
static void log_line(enum log_level level, const char *line, void *ctx) {
        (void)level;
        if (*(const bool *)ctx)
                printf("           %s\n", line);
}

int main(int argc, char **argv) {
        static const struct option options[] = {{"seed", 1, 0, 's'},         {"count", 1, 0, 'c'},   {"nodes", 1, 0, 'n'},
                                                {"ticks", 1, 0, 't'},        {"faults", 1, 0, 'f'},  {"store", 1, 0, 'S'},
                                                {"script", 1, 0, 'p'},       {"variant", 1, 0, 'v'}, {"jobs", 1, 0, 'j'},
                                                {"keep-going", 0, 0, 'k'},   {"trace", 0, 0, 'T'},   {"probes", 0, 0, 'P'},
                                                {"min-probe", 1, 0, 'm'},    {"plan", 1, 0, 'N'},    {"list-variants", 0, 0, 'L'},
                                                {"list-scripts", 0, 0, 'l'}, {"help", 0, 0, 'h'},    {0}};
        struct plan p = {
                .config = {.faults = (1u << FAULT_COUNT) - 1, .store = -1, .script = -1}, .seed = 1, .count = 1, .jobs = 1, .script = -1};
        static const int fatal_signals[] = {
                SIGABRT,
#ifndef __SANITIZE_ADDRESS__
                SIGSEGV, SIGBUS, SIGFPE, SIGILL,
#endif
        };
        struct totals t = {0};
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
                if (c == 'L' || c == 'l')
                        return list_and_leave(c);
                if (c == 'h') {
                        usage(stdout);
                        return 0;
                }
                if (!take_option(&p, c, optarg ? optarg : ""))
                        return EXIT_USAGE;
        }
        if (optind != argc) {
                usage(stderr);
                return EXIT_USAGE;
        }
        for (size_t k = 0; k < ARRAY_LEN(fatal_signals); k++)
                (void)signal(fatal_signals[k], on_crash);
        /* Seeds follow each other in one process: memory is kept. What is large is an image of a disk, most of which nobody touches. */
        (void)mallopt(M_MMAP_THRESHOLD, (int)MIB);
        (void)mallopt(M_TRIM_THRESHOLD, (int)(256 * MIB));
        log_set_sink(log_line, &p.config.trace);
        printf("seed %" G_GUINT64_FORMAT " revision %s%s%s\n", p.seed, COTERIE_REVISION, variant ? " variant " : "",
               variant ? variants[variant].name : "");
        fflush(stdout);
        if (p.jobs == 1)
                run_share(&p, 0, &t);
        else
                run_jobs(&p, &t);
        return report(&p, &t);
}
