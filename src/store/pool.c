/* pool.c: see pool.h. */
#include "pool.h"

#include <sys/mman.h>

#define BLOCK ((size_t)256 * 1024) /* pages that nobody touched take no memory */

struct pool_block {
        struct pool_block *before;
        size_t size, used;
};

static void *must(void *p) {
        if (p == MAP_FAILED)
                base_assert_fail("allocation", "out of memory", __FILE__, __LINE__);
        return p;
}

void *pages_resize(void *p, size_t old, size_t size) {
        if (size == 0) {
                if (p)
                        (void)munmap(p, old); /* of a mapping of our own: it cannot fail */
                return NULL;
        }
        return must(p ? mremap(p, old, size, MREMAP_MAYMOVE)
                      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void *pool_take(struct pool *p, size_t n) {
        PRE(n <= SIZE_MAX / 2);
        n = (n + _Alignof(void *) - 1) / _Alignof(void *) * _Alignof(void *);
        if (!p->last || n > p->last->size - p->last->used) {
                size_t size = MAX_OF(BLOCK, n + sizeof(struct pool_block));
                struct pool_block *b = pages_resize(NULL, 0, size);
                *b = (struct pool_block){.before = p->last, .size = size, .used = sizeof(*b)};
                p->last = b;
        }
        void *taken = (char *)p->last + p->last->used;
        p->last->used += n;
        return taken;
}

void pool_done(struct pool *p) {
        while (p->last) {
                struct pool_block *b = p->last;
                p->last = b->before;
                (void)pages_resize(b, b->size, 0);
        }
}
