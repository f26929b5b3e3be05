/* tree_acl.c: the one thing apply has to know of POSIX ACLs: chmod(2) of an inode with an access ACL changes the ACL too, as
 * acl(5) says under "correspondence between ACL entries and file permission bits". The value is Linux's xattr form: u32 version 2,
 * then entries of u16 tag, u16 permissions, u32 id. */
#include "tree_internal.h"

enum { ACL_VERSION = 2, ACL_HEADER = 4, ACL_ENTRY = 8 };
enum { TAG_USER_OBJ = 0x01, TAG_GROUP_OBJ = 0x04, TAG_MASK = 0x10, TAG_OTHER = 0x20 };

static unsigned get16(const uint8_t *p) {
        return (unsigned)p[0] | (unsigned)p[1] << 8;
}

bool acl_chmod(uint8_t *value, size_t len, uint32_t mode) {
        if (len < ACL_HEADER || (len - ACL_HEADER) % ACL_ENTRY != 0 || get16(value) != ACL_VERSION || get16(value + 2) != 0)
                return false;
        bool mask = false, changed = false;
        for (size_t at = ACL_HEADER; at < len; at += ACL_ENTRY)
                mask = mask || get16(value + at) == TAG_MASK;
        for (size_t at = ACL_HEADER; at < len; at += ACL_ENTRY) {
                unsigned tag = get16(value + at), perm = get16(value + at + 2), want = perm;
                if (tag == TAG_USER_OBJ)
                        want = mode >> 6 & 7;
                else if (tag == (mask ? TAG_MASK : TAG_GROUP_OBJ))
                        want = mode >> 3 & 7;
                else if (tag == TAG_OTHER)
                        want = mode & 7;
                changed = changed || want != perm;
                value[at + 2] = (uint8_t)want;
                value[at + 3] = (uint8_t)(want >> 8);
        }
        return changed;
}
