/* mount_coterie.c: mount.coterie, what mount(8) runs for `mount -t coterie SOURCE DIRECTORY` and for lines of fstab: turns them into a
 * coteried in the background. SOURCE is the database, or a configuration file when its name ends with ".conf". */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COTERIED_FALLBACK "/usr/sbin/coteried"

/* Beside this program, if it is there: a build tree and an installation elsewhere work as well. */
static const char *daemon_path(char *buf, size_t size) {
        ssize_t n = readlink("/proc/self/exe", buf, size - sizeof("coteried"));
        char *slash;

        if (n <= 0)
                return COTERIED_FALLBACK;
        buf[n] = '\0';
        slash = strrchr(buf, '/');
        (void)sprintf(slash + 1, "coteried"); /* room was left */
        return access(buf, X_OK) == 0 ? buf : COTERIED_FALLBACK;
}

static int usage(void) {
        (void)fprintf(stderr, "usage: mount.coterie DATABASE|FILE.conf DIRECTORY [-sfnv] [-o OPTIONS]\n");
        return 2;
}

int main(int argc, char **argv) {
        const char *options = NULL, *words[2] = {NULL, NULL};
        char path[PATH_MAX], source[PATH_MAX + 16];
        bool fake = false;
        int n = 0;

        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
                        options = argv[++i];
                else if (argv[i][0] == '-' && argv[i][1] && strspn(argv[i] + 1, "sfnv") == strlen(argv[i] + 1))
                        fake = fake || strchr(argv[i], 'f');
                else if (argv[i][0] != '-' && n < 2)
                        words[n++] = argv[i];
                else
                        return usage();
        }
        if (n != 2)
                return usage();
        size_t len = strlen(words[0]);
        bool is_config = len > 5 && strcmp(words[0] + len - 5, ".conf") == 0;
        int made = snprintf(source, sizeof(source), "--%s=%s", is_config ? "config" : "db", words[0]);
        if (made < 0 || (size_t)made >= sizeof(source))
                return usage();
        if (fake)
                return 0;
        const char *args[] = {"coteried", source, "-o", options ? options : "rw", "--", words[1], NULL};
        execv(daemon_path(path, sizeof(path)), (char *const *)(uintptr_t)args);
        (void)fprintf(stderr, "mount.coterie: cannot run %s: %s; install it beside mount.coterie\n", path, strerror(errno));
        return 1;
}
