/* cluster_conf.h: the part of `coterie cluster` that asks a running daemon and edits corosync.conf. */
#pragma once

#include "cli.h"

/* leave, conf, remove, rename: words after `cluster`. Returns the exit code. */
int cli_cluster_conf(struct cli *cli, size_t n, const char *const *words, bool force);
