/* attr.h: what stat(2) tells, as plain data. */
#pragma once

#include "base/base.h"

#define INO_ROOT UINT64_C(1)
#define INO_RESERVED UINT64_C(0x4000000000000000) /* numbers from here on never come from the replicated counter (virtual files) */

struct timestamp {
        int64_t sec;   /* since 1970, negative before */
        uint32_t nsec; /* 0..999,999,999 */
};
static inline int timestamp_cmp(struct timestamp a, struct timestamp b) {
        return a.sec != b.sec ? (a.sec < b.sec ? -1 : 1) : a.nsec == b.nsec ? 0 : a.nsec < b.nsec ? -1 : 1;
}

struct attr {
        uint64_t ino;
        uint64_t size;   /* bytes; of a symlink: of its target; of a directory: 0 */
        uint64_t blocks; /* of 512 bytes, holes not counted */
        struct timestamp atime, mtime, ctime;
        uint32_t mode; /* type and permissions, as st_mode */
        uint32_t uid, gid;
        uint32_t nlink;
        uint32_t rdev; /* as the kernel's new_encode_dev: what FUSE sends */
        /* Local, neither stored nor digested: sequence of the last change since this process started, 0 for none. */
        uint64_t change_seq;  /* of anything stat or getxattr shows */
        uint64_t content_seq; /* of the content */
};
