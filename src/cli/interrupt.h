/* interrupt.h: an end from outside (^C, SIGTERM, SIGHUP) that lets a command remove what it made. Once for the process, before it starts
 * threads. */
#pragma once

#include "base/base.h"

/* From now on these signals only say so; one that is ignored stays ignored (nohup). */
void interrupt_catch(void);
bool interrupted(void); /* any thread */
