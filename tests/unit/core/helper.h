/* helper.h: short ways to make and apply operations in tests of core. Every apply here also checks what must always hold: the rolling
 * digest equals the recomputed one, a refused operation changed nothing, the tree's invariants. */
#pragma once

#include "core/tree.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* For loops: ck_assert writes to a pipe each time, also when it holds. */
#define must(cond) ((cond) ? (void)0 : ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #cond))

struct fixture {
        struct tree *t;
        struct change_set changes;
        struct op_result result; /* of the last operation */
        uint64_t seq;
        struct timestamp now; /* moves by one second per operation */
        bool light;           /* no tree_check after each operation */
};
void fixture_begin(struct fixture *f);
void fixture_done(struct fixture *f);
int run(struct fixture *f, struct op *op); /* result.error */

struct op op_of(enum op_kind kind);
struct op_name name_of(const char *text);
int do_create(struct fixture *f, uint64_t parent, const char *name, uint32_t mode);
uint64_t make(struct fixture *f, uint64_t parent, const char *name, uint32_t mode); /* must succeed */
int do_symlink(struct fixture *f, uint64_t parent, const char *name, const char *target);
int do_link(struct fixture *f, uint64_t ino, uint64_t parent, const char *name);
int do_unlink(struct fixture *f, uint64_t parent, const char *name);
int do_rmdir(struct fixture *f, uint64_t parent, const char *name);
int do_rename(struct fixture *f, uint64_t parent, const char *name, uint64_t new_parent, const char *new_name, uint32_t flags);
int do_write(struct fixture *f, uint64_t ino, uint64_t offset, const void *p, size_t n);
int do_append(struct fixture *f, uint64_t ino, const void *p, size_t n);
int do_truncate(struct fixture *f, uint64_t ino, uint64_t size);
int do_replace(struct fixture *f, uint64_t ino, const void *p, size_t n); /* O_TRUNC and one write */
int do_setxattr(struct fixture *f, uint64_t ino, const char *name, const void *value, size_t len, uint32_t flags);
int do_removexattr(struct fixture *f, uint64_t ino, const char *name);
int do_setting(struct fixture *f, const char *name, const char *text);
int do_chmod(struct fixture *f, uint64_t ino, uint32_t mode);

struct attr attr_of(const struct fixture *f, uint64_t ino);
uint64_t look(const struct fixture *f, uint64_t parent, const char *name);                      /* 0: -ENOENT */
const struct change *change_find(const struct fixture *f, enum change_kind kind, uint64_t ino); /* NULL: none */
void assert_content(const struct fixture *f, uint64_t ino, const void *p, size_t n);
