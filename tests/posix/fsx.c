/* fsx.c: random calls on one file, each compared with a model in memory: posix_fsx FILE MODEL SEED CALLS
 *
 * MODEL is a file elsewhere that keeps the model between runs: the next run, perhaps after a remount, begins by comparing. Exit status 0:
 * all the same; else the first difference and the calls that led to it are printed. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MAX_ (512u * 1024u)
#define LEN_MAX   70000u
#define HISTORY   40u

static uint8_t model[SIZE_MAX_ + LEN_MAX], buffer[SIZE_MAX_ + LEN_MAX];
static size_t size;
static int fd;
static const char *path;
static unsigned long step;
static uint64_t state;
static char history[HISTORY][80];

static uint32_t draw(uint32_t below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint32_t)((state >> 20) % below);
}

static _Noreturn void fail(const char *what) {
        int error = errno;
        (void)printf("call %lu: %s (%s)\nthe calls before:\n", step, what, strerror(error));
        for (unsigned long i = step > HISTORY ? step - HISTORY + 1 : 0; i <= step; i++)
                (void)printf("  %lu %s\n", i, history[i % HISTORY]);
        exit(1);
}

static void same(const uint8_t *got, size_t at, size_t len, const char *what) {
        if (memcmp(got, model + at, len) == 0)
                return;
        size_t i = 0;
        while (got[i] == model[at + i])
                i++;
        char text[128];
        (void)snprintf(text, sizeof(text), "%s: byte %zu is %02x, should be %02x (size %zu)", what, at + i, got[i], model[at + i], size);
        errno = 0;
        fail(text);
}

static void model_resize(size_t now) {
        if (now > size)
                memset(model + size, 0, now - size);
        size = now;
}

static void model_write(size_t at, size_t len) {
        if (at + len > size)
                model_resize(at + len);
        memcpy(model + at, buffer, len);
}

static void fill(size_t len) {
        bool text = draw(2);
        for (size_t i = 0; i < len; i++)
                buffer[i] = text ? (uint8_t)('a' + (i + step) % 26) : (uint8_t)draw(256);
        if (draw(20) == 0)
                memset(buffer, 0, len);
}

static void whole(void) {
        struct stat st;
        if (fstat(fd, &st) < 0 || (size_t)st.st_size != size)
                fail("size");
        ssize_t n = pread(fd, buffer, sizeof(buffer), 0);
        if (n < 0 || (size_t)n != size)
                fail("read of the whole file");
        same(buffer, 0, size, "whole file");
}

static void reopen(void) {
        static const int extra[] = {0, 0, O_SYNC, O_NOATIME};
        if (fd >= 0 && close(fd) < 0)
                fail("close");
        fd = open(path, O_RDWR | extra[draw(4)]);
        if (fd < 0)
                fail("open");
}

static void do_read(size_t at, size_t len) {
        ssize_t n = pread(fd, buffer, len, (off_t)at), wanted = at >= size ? 0 : (ssize_t)(size - at < len ? size - at : len);
        if (n != wanted)
                fail("read length");
        same(buffer, at, (size_t)n, "read");
}
static void do_write(size_t at, size_t len) {
        fill(len);
        if (pwrite(fd, buffer, len, (off_t)at) != (ssize_t)len)
                fail("write");
        model_write(at, len);
}
static void do_append(size_t at, size_t len) {
        (void)at;
        if (size + len > SIZE_MAX_)
                return;
        int other = open(path, O_WRONLY | O_APPEND);
        fill(len);
        if (other < 0 || write(other, buffer, len) != (ssize_t)len || close(other) < 0)
                fail("append");
        model_write(size, len);
}
static void do_truncate(size_t at, size_t len) {
        if ((len & 1 ? ftruncate(fd, (off_t)at) : truncate(path, (off_t)at)) < 0)
                fail("truncate");
        model_resize(at);
}
static void do_map_read(size_t at, size_t len) {
        if (at >= size)
                return;
        len = size - at < len ? size - at : len;
        size_t start = at & ~(size_t)4095;
        uint8_t *p = mmap(NULL, len + at - start, PROT_READ, MAP_SHARED, fd, (off_t)start);
        if (p == MAP_FAILED)
                fail("mmap");
        same(p + (at - start), at, len, "map");
        (void)munmap(p, len + at - start);
}
static void do_map_write(size_t at, size_t len) {
        if (at >= size)
                return;
        len = size - at < len ? size - at : len;
        size_t start = at & ~(size_t)4095;
        uint8_t *p = mmap(NULL, len + at - start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
        if (p == MAP_FAILED)
                fail("mmap");
        fill(len);
        memcpy(p + (at - start), buffer, len);
        if (draw(2) && msync(p, len + at - start, MS_SYNC) < 0)
                fail("msync");
        (void)munmap(p, len + at - start);
        model_write(at, len);
}
static void do_direct(size_t at, size_t len) {
        static _Alignas(4096) uint8_t aligned[(LEN_MAX + 8191) & ~4095u];
        at &= ~(size_t)4095;
        len = (len + 4095) & ~(size_t)4095;
        int other = open(path, O_RDWR | O_DIRECT);
        if (other < 0)
                fail("open O_DIRECT");
        if (draw(2)) {
                fill(len);
                memcpy(aligned, buffer, len);
                if (pwrite(other, aligned, len, (off_t)at) != (ssize_t)len)
                        fail("direct write");
                model_write(at, len);
        } else {
                ssize_t n = pread(other, aligned, len, (off_t)at);
                if (n != (at >= size ? 0 : (ssize_t)(size - at < len ? size - at : len)))
                        fail("direct read length");
                same(aligned, at, (size_t)n, "direct read");
        }
        if (close(other) < 0)
                fail("close O_DIRECT");
}
static void do_punch(size_t at, size_t len) {
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len) < 0)
                fail("punch");
        if (at < size)
                memset(model + at, 0, size - at < len ? size - at : len);
}
static void do_zero(size_t at, size_t len) {
        bool keep = draw(2);
        if (fallocate(fd, FALLOC_FL_ZERO_RANGE | (keep ? FALLOC_FL_KEEP_SIZE : 0), (off_t)at, (off_t)len) < 0)
                fail("zero range");
        if (!keep && at + len > size)
                model_resize(at + len);
        if (at < size)
                memset(model + at, 0, size - at < len ? size - at : len);
}
static void do_allocate(size_t at, size_t len) {
        bool keep = draw(2);
        if (fallocate(fd, keep ? FALLOC_FL_KEEP_SIZE : 0, (off_t)at, (off_t)len) < 0)
                fail("fallocate");
        if (!keep && at + len > size)
                model_resize(at + len);
}
static void do_copy(size_t at, size_t len) {
        off_t in = (off_t)draw((uint32_t)(size + 1)), out = (off_t)at;
        size_t copied = (size_t)in >= size ? 0 : size - (size_t)in < len ? size - (size_t)in : len;
        if ((size_t)in < at + copied && at < (size_t)in + copied)
                return; /* within a file ranges may not overlap */
        memcpy(buffer, model + in, copied);
        size_t done = 0;
        while (done < copied) {
                ssize_t n = copy_file_range(fd, &in, fd, &out, copied - done, 0);
                if (n <= 0)
                        fail("copy_file_range");
                done += (size_t)n;
        }
        if (copied > 0)
                model_write(at, copied);
}
static void do_sync(size_t at, size_t len) {
        (void)at;
        if ((len & 1 ? fsync(fd) : fdatasync(fd)) < 0)
                fail("fsync");
}
static void do_reopen(size_t at, size_t len) {
        (void)at, (void)len;
        reopen();
}
static void do_whole(size_t at, size_t len) {
        (void)at, (void)len;
        whole();
}
static void do_rename(size_t at, size_t len) {
        char other[4096];
        (void)at, (void)len;
        (void)snprintf(other, sizeof(other), "%s.moved", path);
        if (rename(path, other) < 0 || rename(other, path) < 0)
                fail("rename");
}

#define ROW(call, weight)                                                                                                                  \
        { #call, call, weight }
static const struct {
        const char *name;
        void (*call)(size_t at, size_t len);
        unsigned weight;
} calls[] = {
        ROW(do_read, 20),      ROW(do_write, 25), ROW(do_append, 6), ROW(do_truncate, 6), ROW(do_map_read, 12),
        ROW(do_map_write, 12), ROW(do_direct, 6), ROW(do_punch, 5),  ROW(do_zero, 5),     ROW(do_allocate, 3),
        ROW(do_copy, 6),       ROW(do_sync, 1),   ROW(do_reopen, 6), ROW(do_whole, 2),    ROW(do_rename, 1),
};

static void one_call(void) {
        unsigned total = 0, chosen, i = 0;
        for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
                total += calls[k].weight;
        chosen = draw(total);
        while (chosen >= calls[i].weight)
                chosen -= calls[i++].weight;
        size_t len = 1 + draw(draw(3) ? 5000 : LEN_MAX), at = draw(3) && size ? draw((uint32_t)size) : draw(SIZE_MAX_ - LEN_MAX);
        if (draw(4) == 0)
                at &= ~(size_t)4095;
        if (draw(4) == 0)
                len = (len + 4095) & ~(size_t)4095;
        (void)snprintf(history[step % HISTORY], sizeof(history[0]), "%s at %zu, %zu bytes, size %zu", calls[i].name, at, len, size);
        calls[i].call(at, len);
}

int main(int argc, char **argv) {
        if (argc != 5) {
                (void)fprintf(stderr, "usage: %s FILE MODEL SEED CALLS\n", argv[0]);
                return 2;
        }
        path = argv[1];
        unsigned long n = strtoul(argv[4], NULL, 10);
        state = strtoull(argv[3], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        fd = open(path, O_RDWR | O_CREAT, 0600);
        int kept = open(argv[2], O_RDWR | O_CREAT, 0600);
        ssize_t had = kept < 0 ? -1 : read(kept, model, sizeof(model));
        if (fd < 0 || had < 0)
                fail("start");
        size = (size_t)had;
        (void)snprintf(history[0], sizeof(history[0]), "start");
        whole();
        for (step = 1; step <= n; step++)
                one_call();
        whole();
        if (close(fd) < 0 || ftruncate(kept, 0) < 0 || pwrite(kept, model, size, 0) != (ssize_t)size)
                fail("end");
        return 0;
}
