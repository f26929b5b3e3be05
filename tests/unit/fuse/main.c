/* Unit tests of the kernel edge: they mount for real, in a mount namespace of their own, so that nothing stays mounted. */
#include "fixture.h"

#include "base/log.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define SKIPPED 77

static int skip(const char *why) {
        printf("skipped: %s\n", why);
        return SKIPPED;
}

int main(void) {
        if (geteuid() != 0)
                return skip("mounting needs root");
        int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return skip("there is no /dev/fuse that can be opened");
        (void)close(fd);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return skip("no mount namespace of our own can be made");
        log_set_level(LOG_LEVEL_WARNING);
        SRunner *runner = srunner_create(suite_mount());
        srunner_add_suite(runner, suite_known());
        srunner_add_suite(runner, suite_crew());
        srunner_add_suite(runner, suite_requests());
        srunner_add_suite(runner, suite_notify());
        srunner_add_suite(runner, suite_local());
        srunner_run_all(runner, CK_ENV);
        int failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed != 0;
}
