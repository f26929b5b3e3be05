/* client.h: programs on the nodes: they open, write, close, rename, append, read through the request layer, think, and try again. */
#pragma once

#include "node.h"

struct clients *clients_new(struct sim *s);
void clients_free(struct sim *s);
void clients_stop(struct sim *s); /* no new operations */
void clients_burst(struct node *x, unsigned n); /* n requests at once, each on its own */
void clients_large(struct node *x);
void clients_node_died(struct node *x); /* what was asked of it will never be answered */
