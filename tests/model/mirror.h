/* mirror.h: a copy of a tree that is kept up with change sets alone, as a store does it: what a change set does not name is not looked
 * at. A tree restored from it must have the digest of the tree; if not, a change set was incomplete. */
#pragma once

#include "core/tree.h"

struct mirror;
struct mirror *mirror_new(const struct tree *t); /* of an empty tree */
void mirror_free(struct mirror *m);
/* False: the change set contradicts what it was applied to (ret_what says how). */
bool mirror_update(struct mirror *m, const struct tree *t, const struct change_set *changes, char *ret_what, size_t size);
/* Restores in an order that `random` shuffles; NULL: ret_what says why not. */
struct tree *mirror_restore(const struct mirror *m, const struct tree *t, uint64_t random, char *ret_what, size_t size);
