/* hold.h (private to store): HOLD(&x->lock) holds a mutex to the end of the scope. One per scope; HOLD_AS names a second one. */
#pragma once

#include "base/base.h"

#include <pthread.h>

/* Calls on a default mutex that is used rightly do not fail. */
static inline void hold_release(pthread_mutex_t **m) { (void)pthread_mutex_unlock(*m); }
static inline pthread_mutex_t *hold_take(pthread_mutex_t *m) {
        (void)pthread_mutex_lock(m);
        return m;
}
#define HOLD_AS(name, m)                                                                                                                   \
        CLEANUP(hold_release) pthread_mutex_t *name = hold_take(m);                                                                        \
        (void)name
#define HOLD(m) HOLD_AS(hold_, m)
