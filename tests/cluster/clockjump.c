/* clockjump.c: a wall clock that jumps, for one process: preloaded, it adds the seconds that stand in the file COTERIE_CLOCK_FILE (an int64
 * in the machine's byte order) to CLOCK_REALTIME. The machine's own clock is everybody's, and time namespaces do not have this one. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map(void) {
        const char *path = getenv("COTERIE_CLOCK_FILE");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd < 0)
                return;
        void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
                offset = at;
        (void)close(fd); /* only read */
}

int clock_gettime(clockid_t clock, struct timespec *ret) {
        static int (*next)(clockid_t, struct timespec *);

        if (!next)
                *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
        int failed = next(clock, ret);
        if (failed == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
                ret->tv_sec += *offset;
        return failed;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone) {
        struct timespec now;

        (void)zone; /* obsolete */
        int failed = clock_gettime(CLOCK_REALTIME, &now);
        ret->tv_sec = now.tv_sec;
        ret->tv_usec = now.tv_nsec / 1000;
        return failed;
}

time_t time(time_t *ret) {
        struct timespec now = {0};

        (void)clock_gettime(CLOCK_REALTIME, &now);
        if (ret)
                *ret = now.tv_sec;
        return now.tv_sec;
}
