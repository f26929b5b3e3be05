/* daemon.h: a whole coteried: from parsed options to the exit code. */
#pragma once

#include "daemon/options.h"

#define COTERIE_VERSION_TEXT COTERIE_VERSION

/* Runs until it is told to stop; the return value is the exit code. In the background the calling process returns when the mount answers,
 * with what kept it from answering as one line on standard error. */
int daemon_main(struct options *o);
