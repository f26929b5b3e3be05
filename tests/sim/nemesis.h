/* nemesis.h: what goes wrong, and when. It knows nothing of the checkers; it only keeps to what docs/PROTOCOL.md covers: below level
 * `file` one node at a time may forget, until it has been in the synced set again; a disk is replaced only while all others are there. */
#pragma once

#include "node.h"

void nemesis_start(struct sim *s);
void nemesis_end(struct sim *s); /* everything is repaired and started */
/* Unless that is more than is covered (above): then false. */
bool nemesis_cut_power(struct sim *s, struct node *x);

const char *fault_name(enum fault f);
errint_t fault_parse(const char *text, uint32_t *ret_bits); /* "all", "none", or names with commas */

/* Scripted schedules: for what chance meets too rarely. They pass on the right machine. */
unsigned script_count(void);
const char *script_name(unsigned k);
void script_start(struct sim *s, unsigned k);
