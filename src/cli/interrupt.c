/* interrupt.c: see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_bool seen; /* the one thing that a signal handler may touch */

static void on_signal(int number) {
        (void)number;
        atomic_store(&seen, true);
}

void interrupt_catch(void) {
        static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction before, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

        for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
                if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                        (void)sigaction(numbers[i], &ours, NULL); /* cannot fail for these */
}

bool interrupted(void) {
        return atomic_load(&seen);
}
