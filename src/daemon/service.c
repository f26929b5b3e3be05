/* service.c: the notification protocol of systemd: datagrams of NAME=VALUE lines to $NOTIFY_SOCKET (sd_notify(3)). So small that the
 * daemon does not depend on libsystemd for it, and the same program runs without systemd. */
#include "daemon_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void service_notify(const char *fmt, ...) {
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char text[1024];
        va_list ap;

        if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(address.sun_path))
                return;
        va_start(ap, fmt);
        int n = vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        memcpy(address.sun_path, path, strlen(path));
        if (path[0] == '@')
                address.sun_path[0] = '\0';
        cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || n < 0)
                return;
        /* A service manager that does not listen is no reason to fail. */
        (void)sendto(fd, text, MIN_OF((size_t)n, sizeof(text) - 1), MSG_NOSIGNAL, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

uint64_t service_watchdog_ms(void) {
        const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

        if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
                return 0;
        return strtoull(usec, NULL, 10) / 1000u / 2u; /* twice per period, as sd_watchdog_enabled(3) advises */
}
