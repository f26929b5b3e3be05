/* reftree_private.h: between the three sources of the reference tree. */
#pragma once

#include "reftree.h"

void ref_xattrs_free(struct ref_xattr *x);
const char *ref_path(const struct reftree *r, const struct ref_file *f); /* the oldest name; NULL: none */
bool ref_is_dir(const struct ref_file *f);
bool ref_is_child(const char *path, const char *dir);
bool ref_is_under(const char *path, const char *dir);
size_t ref_children(const struct reftree *r, const char *dir, bool dirs_only);
struct ref_name *ref_name_add(struct reftree *r, const char *dir, const struct op_name *name, struct ref_file *f, uint64_t cookie);
void ref_name_remove(struct reftree *r, struct ref_name *gone);
struct ref_file *ref_file_add(struct reftree *r, uint64_t ino);
void ref_file_collect(struct reftree *r, struct ref_file *gone);
char *ref_join(const char *dir, const struct op_name *name);
size_t ref_xattrs_bytes(const struct ref_xattr *x);
uint64_t ref_allocated(const uint8_t *bytes, size_t size);
size_t ref_inodes(const struct reftree *r);
