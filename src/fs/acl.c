/* acl.c: POSIX ACLs as Linux hands them over in xattrs: u32 version 2, then entries of u16 tag, u16 permissions, u32 id, little-endian,
 * in order of tags. acl(5) says what they mean. */
#include "internal.h"

#include "base/codec.h"

enum { VERSION = 2, HEADER = 4, ENTRY = 8 };
enum { USER_OBJ = 0x01, USER = 0x02, GROUP_OBJ = 0x04, GROUP = 0x08, MASK = 0x10, OTHER = 0x20 };

struct entry {
        unsigned tag, perm;
        uint32_t id;
};
/* The next entry at d. */
static struct entry next(struct dec *d) {
        struct entry e;
        e.tag = dec_u16(d);
        e.perm = dec_u16(d);
        e.id = dec_u32(d);
        return e;
}

/* The rules of posix_acl_valid: owner first, then named users, owning group, named groups, mask, others; a mask where there is a named
 * entry. */
errint_t fs_acl_check(const uint8_t *value, size_t len) {
        struct dec d;
        struct entry before = {0};
        unsigned seen = 0;
        if (len < HEADER + ENTRY || (len - HEADER) % ENTRY != 0)
                return -EINVAL;
        dec_init(&d, value, len);
        if (dec_u32(&d) != VERSION)
                return -EOPNOTSUPP;
        while (dec_left(&d) > 0) {
                struct entry e = next(&d);
                bool named = e.tag == USER || e.tag == GROUP,
                     single = e.tag == USER_OBJ || e.tag == GROUP_OBJ || e.tag == MASK || e.tag == OTHER;
                if ((!named && !single) || (e.perm & ~7u) || e.tag < before.tag || (named && e.id == UINT32_MAX))
                        return -EINVAL;
                if (e.tag == before.tag && single)
                        return -EINVAL;
                seen |= e.tag;
                before = e;
        }
        bool needs_mask = (seen & (USER | GROUP)) != 0;
        if ((seen & (USER_OBJ | GROUP_OBJ | OTHER)) != (USER_OBJ | GROUP_OBJ | OTHER) || (needs_mask && !(seen & MASK)))
                return -EINVAL;
        return 0;
}

bool fs_acl_mode(const uint8_t *value, size_t len, uint32_t *mode) {
        struct dec d;
        uint32_t bits = 0;
        bool all = true, mask = false;
        dec_init(&d, value, len);
        (void)dec_u32(&d);
        while (dec_left(&d) > 0) {
                struct entry e = next(&d);
                switch (e.tag) {
                case USER_OBJ:
                        bits |= e.perm << 6;
                        break;
                case GROUP_OBJ:
                        bits |= mask ? 0 : e.perm << 3;
                        break;
                case MASK:
                        bits = (bits & ~070u) | e.perm << 3;
                        mask = true;
                        all = false;
                        break;
                case OTHER:
                        bits |= e.perm;
                        break;
                default:
                        all = false;
                }
        }
        *mode = (*mode & ~0777u) | bits;
        return all;
}

static void put_perm(uint8_t *value, size_t at, unsigned perm) {
        value[at + 2] = (uint8_t)perm;
        value[at + 3] = 0;
}

/* What creat(2) leaves of a default ACL: each class gets at most what the mode asks for, and the mode what is left. Writes into value. */
static bool mask_off(uint8_t *value, size_t len, uint32_t *mode) {
        size_t group = 0, mask = 0;
        bool all = true;
        uint32_t m = *mode;
        struct dec d;
        dec_init(&d, value, len);
        (void)dec_u32(&d);
        for (size_t at = HEADER; at < len; at += ENTRY) {
                struct entry e = next(&d);
                if (e.tag == USER_OBJ) {
                        put_perm(value, at, e.perm & m >> 6);
                        m &= (e.perm << 6) | ~0700u;
                } else if (e.tag == OTHER) {
                        put_perm(value, at, e.perm & m);
                        m &= e.perm | ~07u;
                } else if (e.tag == GROUP_OBJ) {
                        group = at;
                } else if (e.tag == MASK) {
                        mask = at;
                }
                all = all && e.tag != USER && e.tag != GROUP && e.tag != MASK;
        }
        size_t class = mask ? mask : group;
        unsigned perm = value[class + 2];
        put_perm(value, class, perm & (m >> 3 & 7));
        m &= (perm << 3) | ~070u;
        *mode = m;
        return all;
}

errint_t fs_acl_inherit(const uint8_t *def, size_t len, uint32_t mode, struct acl_inherited *ret) {
        if (fs_acl_check(def, len) < 0)
                return -EINVAL;
        struct acl_inherited a = {.mode = mode};
        a.access = xmalloc(len);
        memcpy(a.access, def, len);
        a.access_len = len;
        if (mask_off(a.access, len, &a.mode)) { /* the mode says it all */
                free(steal_pointer(&a.access));
                a.access_len = 0;
        }
        if (S_ISDIR(mode)) {
                a.def = xmalloc(len);
                memcpy(a.def, def, len);
                a.def_len = len;
        }
        *ret = a;
        return 0;
}

void acl_inherited_done(struct acl_inherited *a) {
        free(a->access);
        free(a->def);
        *a = (struct acl_inherited){0};
}
