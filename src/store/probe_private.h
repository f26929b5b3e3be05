/* probe_private.h: probe.c measures, probe_advice.c judges. */
#pragma once

#include "store/probe.h"

void probe_facts(const char *dir, struct probe_report *r); /* mount, device, cache */
void probe_judge(struct probe_report *r);                  /* warnings, no_flush of the results, advice */
