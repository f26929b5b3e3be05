/* main.c: coteried. */
#include "daemon/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* Who starts us with 0, 1 or 2 closed would have the database there, and messages in it. */
static void open_standard_files(void) {
        int fd;

        while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
                ;
        if (fd > STDERR_FILENO)
                (void)close(fd); /* nothing was written */
}

int main(int argc, char **argv) {
        struct options o;
        char reason[OPTIONS_REASON] = "";
        int status = 0;

        /* One heap: the tree is made by whichever thread has the turn, and each heap keeps megabytes of its own free. Small pieces come
         * from the threads' caches, without the heap's lock. */
        (void)mallopt(M_ARENA_MAX, 1);
        open_standard_files();
        options_init(&o);
        if (options_parse(&o, argc, argv, reason) < 0) {
                (void)fprintf(stderr, "coteried: %s\n", reason);
                status = 2;
        } else if (o.help) {
                options_usage(STDOUT_FILENO);
        } else if (o.version) {
                (void)printf("coteried %s\n", COTERIE_VERSION_TEXT);
        } else if (o.check_config) {
                (void)printf("%s\n", o.config_file ? "the configuration is valid" : "the options are valid");
        } else {
                status = daemon_main(&o);
        }
        options_done(&o);
        return status;
}
