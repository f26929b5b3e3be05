/* store_helper.h: a store on a simulated disk, for the tests of the SQLite store. */
#pragma once

#include "simdisk.h"
#include "store_rig.h"

#include <check.h>

#define DB "d/db"
struct bed {
        struct simdisk *disk;
        struct rig r;
};
void bed_begin(struct bed *b, uint64_t log_size); /* 0: 256 KiB; opened */
void bed_end(struct bed *b);
void bed_kill(struct bed *b);                     /* closed as a killed process leaves it */
#define OK(e) ck_assert_int_eq((e), 0)
