/* content.c: what is in files: write and pwrite, O_APPEND, truncation, fallocate, holes, copy_file_range, O_DIRECT, vectors, RLIMIT_FSIZE.
 */
#include "posix.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static char pattern[300000];
static volatile uintptr_t nowhere; /* volatile: the compiler need not know what is asked for */
static volatile int wrong_count = -1;

static void fill(void) {
        uint32_t x = 1;
        for (size_t i = 0; i < sizeof(pattern); i++) {
                x = x * 1664525u + 1013904223u;
                pattern[i] = (char)(x >> 24 | 1);
        }
}

static const off_t edges[] = {0, 1, 4095, 4096, 4097, 16383, 16384, 16385, 65536, 100000, 299999, 300000};

static void truncations(void) {
        for (size_t a = 0; a < LEN(edges); a++)
                for (size_t b = 0; b < LEN(edges); b++) {
                        put("f", pattern, (size_t)edges[a]);
                        check(truncate("f", edges[b]), "truncate %lld to %lld", (long long)edges[a], (long long)edges[b]);
                        value("content", "%s", content("f"));
                }
        check(truncate("f", -1), "truncate to -1");
        check(truncate("f", INT64_MAX), "truncate to the largest");
        check(truncate("f", 999999999999999), "truncate to a petabyte");
        int fd = open("f", O_RDWR);
        check(ftruncate(fd, -1), "ftruncate to -1");
        check(ftruncate(fd, INT64_MAX), "ftruncate to the largest");
        check(ftruncate(-1, 0), "ftruncate of nothing");
        (void)close(fd);
        /* Shrunk and grown again: zeros, not the old bytes; also within a page, and with the file open. */
        for (size_t a = 0; a < LEN(edges); a++) {
                put("f", pattern, 100000);
                fd = open("f", O_RDWR);
                check(ftruncate(fd, edges[a]), "shrink to %lld", (long long)edges[a]);
                check(pwrite(fd, "end", 3, 120000), "write far behind");
                check(ftruncate(fd, 130000), "grow");
                value("content", "%s", content("f"));
                (void)close(fd);
        }
        clear_all();
}

static void writes(void) {
        for (size_t a = 0; a < LEN(edges); a++)
                for (size_t b = 0; b < LEN(edges); b += 3) {
                        put("f", pattern, 50000);
                        int fd = open("f", O_RDWR);
                        value("pwrite", "%zd bytes at %lld", pwrite(fd, pattern + 7, (size_t)edges[b] % 100001, edges[a]),
                              (long long)edges[a]);
                        value("content", "%s; %s", look_fd(fd), content("f"));
                        (void)close(fd);
                        value("closed", "%s", content("f"));
                }
        int fd = open("f", O_RDWR | O_TRUNC);
        check(pwrite(fd, "x", 1, -1), "pwrite at -1");
        check(pwrite(fd, "x", 1, INT64_MAX), "pwrite at the largest");
        check(pwrite(fd, (void *)(uintptr_t)nowhere, 1, 0), "pwrite from nowhere");
        check(pwrite(fd, "x", 0, INT64_MAX - 1), "pwrite of nothing");
        value("it", "%s", look_fd(fd));
        (void)close(fd);
        clear_all();
}

static void appends(void) {
        char got[64];
        put("f", "start", 5);
        int fd = open("f", O_RDWR | O_APPEND), other = open("f", O_WRONLY);
        value("append", "%zd, place %lld", write(fd, "-one", 4), (long long)lseek(fd, 0, SEEK_CUR));
        value("pwrite with O_APPEND", "%zd, place %lld", pwrite(fd, "-two", 4, 0), (long long)lseek(fd, 0, SEEK_CUR));
        check(pwrite(other, "S", 1, 0), "pwrite by another");
        check(pwrite(other, "!", 1, 20), "another makes it longer");
        value("append", "%zd, place %lld", write(fd, "-three", 6), (long long)lseek(fd, 0, SEEK_CUR));
        check(ftruncate(other, 3), "another makes it shorter");
        value("append", "%zd, place %lld", write(fd, "-four", 5), (long long)lseek(fd, 0, SEEK_CUR));
        ssize_t n = pread(fd, got, sizeof(got), 0);
        value("content", "%.*s", (int)n, got);
        check(fcntl(fd, F_SETFL, 0), "switch O_APPEND off");
        check(pwrite(fd, "X", 1, 0), "pwrite without");
        check(fcntl(other, F_SETFL, O_APPEND), "switch O_APPEND on");
        check(pwrite(other, "end", 3, 0), "pwrite with");
        n = pread(fd, got, sizeof(got), 0);
        value("content", "%.*s", (int)n, got);
        struct iovec v[3] = {{(char[]){"a"}, 1}, {(char[]){""}, 0}, {(char[]){"bc"}, 2}};
        value("writev", "%zd", writev(other, v, 3));
        value("pwritev2 with RWF_APPEND|RWF_DSYNC", "%zd", pwritev2(other, v, 3, -1, RWF_DSYNC));
        value("content", "%s", content("f"));
        (void)close(fd);
        (void)close(other);
        clear_all();
}

static const struct {
        const char *name;
        int mode;
} modes[] = {
        {"0", 0},
        {"KEEP_SIZE", FALLOC_FL_KEEP_SIZE},
        {"PUNCH_HOLE", FALLOC_FL_PUNCH_HOLE},
        {"PUNCH_HOLE|KEEP_SIZE", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
        {"ZERO_RANGE", FALLOC_FL_ZERO_RANGE},
        {"ZERO_RANGE|KEEP_SIZE", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE},
        {"COLLAPSE_RANGE", FALLOC_FL_COLLAPSE_RANGE},
        {"INSERT_RANGE", FALLOC_FL_INSERT_RANGE},
        {"UNSHARE_RANGE", FALLOC_FL_UNSHARE_RANGE},
        {"COLLAPSE|KEEP_SIZE", FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE},
        {"unknown", 0x1000},
};

static void allocations(void) {
        static const off_t places[] = {0, 1, 4096, 50000, 99999, 100000, 200000, -1};
        static const off_t lengths[] = {1, 4096, 60000, 0, -1};
        for (size_t m = 0; m < LEN(modes); m++)
                for (size_t p = 0; p < LEN(places); p++)
                        for (size_t l = 0; l < LEN(lengths); l++) {
                                put("f", pattern, 100000);
                                int fd = open("f", O_RDWR);
                                check(fallocate(fd, modes[m].mode, places[p], lengths[l]), "fallocate %s %lld+%lld", modes[m].name,
                                      (long long)places[p], (long long)lengths[l]);
                                value("content", "%s; %s", look_fd(fd), content("f"));
                                (void)close(fd);
                        }
        int fd = open("f", O_RDONLY);
        check(fallocate(fd, 0, 0, 10), "fallocate of a descriptor for reading");
        (void)close(fd);
        fd = open("f", O_RDWR);
        check(fallocate(fd, 0, INT64_MAX, 10), "fallocate beyond the largest");
        check(fallocate(fd, 0, INT64_MAX - 10, 10), "fallocate at the largest");
        value("posix_fallocate", "%s", error_name(posix_fallocate(fd, 0, 150000)));
        value("posix_fallocate of -1", "%s", error_name(posix_fallocate(fd, -1, 1)));
        value("it", "%s; %s", look_fd(fd), content("f"));
        check(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
        check(readahead(fd, 0, 4096), "readahead");
        check(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE), "sync_file_range");
        (void)close(fd);
        clear_all();
}

/* How large a hole is depends on the filesystem; what may never be is data in a hole, or a hole in data that is not zero. */
static void holes(void) {
        for (size_t a = 0; a < LEN(edges); a++) {
                put("f", "", 0);
                int fd = open("f", O_RDWR);
                MUST(ftruncate(fd, 1 << 20));
                MUST(pwrite(fd, pattern, 10, edges[a]));
                off_t data = lseek(fd, 0, SEEK_DATA), hole = lseek(fd, edges[a], SEEK_HOLE);
                value("data and hole", "%d %d", data >= 0 && data <= edges[a], hole >= edges[a] + 10 && hole <= 1 << 20);
                check(lseek(fd, 1 << 20, SEEK_DATA), "SEEK_DATA at the end");
                check(lseek(fd, 1 << 20, SEEK_HOLE), "SEEK_HOLE at the end");
                check(lseek(fd, (1 << 20) + 1, SEEK_HOLE), "SEEK_HOLE behind the end");
                check(lseek(fd, -1, SEEK_DATA), "SEEK_DATA at -1");
                check(lseek(fd, (1 << 20) - 1, SEEK_DATA), "SEEK_DATA in the last hole");
                (void)close(fd);
        }
        put("f", pattern, 1000);
        int fd = open("f", O_RDWR);
        value("whole file", "%lld %lld", (long long)lseek(fd, 0, SEEK_DATA), (long long)lseek(fd, 0, SEEK_HOLE));
        value("middle", "%lld %lld", (long long)lseek(fd, 500, SEEK_DATA), (long long)lseek(fd, 500, SEEK_HOLE));
        check(lseek(fd, -1, SEEK_SET), "SEEK_SET to -1");
        check(lseek(fd, -1001, SEEK_END), "SEEK_END before the beginning");
        check(lseek(fd, INT64_MAX, SEEK_SET), "SEEK_SET to the largest");
        check(lseek(fd, 0, 9), "seek to whatever");
        value("SEEK_END", "%lld", (long long)lseek(fd, 5, SEEK_END));
        (void)close(fd);
        put("f", "", 0);
        fd = open("f", O_RDWR);
        check(lseek(fd, 0, SEEK_DATA), "SEEK_DATA of nothing");
        check(lseek(fd, 0, SEEK_HOLE), "SEEK_HOLE of nothing");
        (void)close(fd);
        clear_all();
}

static void copies(void) {
        static const off_t places[] = {0, 100, 4096, 99999, 100000, 200000};
        static const size_t lengths[] = {0, 1, 5000, 300000};
        put("from", pattern, 100000);
        for (size_t p = 0; p < LEN(places); p++)
                for (size_t q = 0; q < LEN(places); q++)
                        for (size_t l = 0; l < LEN(lengths); l++) {
                                put("to", pattern + 1000, 70000);
                                int a = open("from", O_RDONLY), b = open("to", O_RDWR);
                                off_t in = places[p], out = places[q];
                                value("copy_file_range", "%lld to %lld, %zu: %zd", (long long)in, (long long)out, lengths[l],
                                      copy_file_range(a, &in, b, &out, lengths[l], 0));
                                value("places and content", "%lld %lld %s", (long long)in, (long long)out, content("to"));
                                (void)close(a);
                                (void)close(b);
                        }
        int a = open("from", O_RDWR), b = open("to", O_RDONLY), c = open("to", O_WRONLY | O_APPEND), d = open(".", O_RDONLY);
        off_t in = 0, out = 50;
        check(copy_file_range(a, &in, a, &out, 100, 0), "copy within a file, overlapping");
        out = 50000;
        check(copy_file_range(a, &in, a, &out, 100, 0), "copy within a file");
        check(copy_file_range(a, NULL, b, NULL, 100, 0), "copy to a descriptor for reading");
        check(copy_file_range(c, NULL, a, NULL, 100, 0), "copy from a descriptor for writing");
        check(copy_file_range(a, NULL, c, NULL, 100, 0), "copy to O_APPEND");
        check(copy_file_range(d, NULL, a, NULL, 100, 0), "copy from a directory");
        check(copy_file_range(a, NULL, d, NULL, 100, 0), "copy to a directory");
        check(copy_file_range(a, NULL, a, NULL, 100, 1), "copy with flags");
        int e = open("new", O_CREAT | O_RDWR, 0600);
        (void)lseek(a, 0, SEEK_SET);
        value("sendfile", "%zd %s", sendfile(e, a, NULL, 70000), content("new"));
        int pipes[2];
        MUST(pipe(pipes));
        in = 10;
        value("splice", "%zd", splice(a, &in, pipes[1], NULL, 5000, 0));
        out = 3;
        value("splice", "%zd %s", splice(pipes[0], NULL, e, &out, 5000, 0), content("new"));
        (void)close(pipes[0]);
        (void)close(pipes[1]);
        (void)close(a), (void)close(b), (void)close(c), (void)close(d), (void)close(e);
        clear_all();
}

static void direct(void) {
        char *memory = NULL;
        if (posix_memalign((void **)&memory, 4096, 65536) != 0)
                broken("posix_memalign");
        memcpy(memory, pattern, 65536);
        int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0600), plain = open("f", O_RDWR);
        value("write", "%zd", pwrite(fd, memory, 65536, 0));
        value("content", "%s", content("f"));
        memset(memory, 0, 65536);
        value("read", "%zd %d", pread(fd, memory, 65536, 0), memcmp(memory, pattern, 65536));
        value("read behind the end", "%zd", pread(fd, memory, 4096, 65536));
        value("read over the end", "%zd", pread(fd, memory, 8192, 61440));
        value("write by the page cache", "%zd", pwrite(plain, "cache", 5, 4096));
        value("read directly", "%zd %.5s", pread(fd, memory, 4096, 4096), memory);
        memset(memory, 'D', 4096);
        value("write directly", "%zd", pwrite(fd, memory, 4096, 8192));
        value("read by the page cache", "%zd %.5s", pread(plain, memory, 5, 8192), memory);
        value("write at the end", "%zd %s", pwrite(fd, memory, 4096, 131072), look_fd(fd));
        value("content", "%s", content("f"));
        check(fsync(fd), "fsync");
        (void)close(fd);
        (void)close(plain);
        free(memory);
        clear_all();
}

static void vectors(void) {
        char a[10], b[20];
        struct iovec w[4] = {{(char[]){"abc"}, 3}, {(char[]){""}, 0}, {(char[]){"defgh"}, 5}, {(char[]){"i"}, 1}}, r[2] = {{a, 4}, {b, 20}};
        int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
        value("writev", "%zd", writev(fd, w, 4));
        value("pwritev", "%zd", pwritev(fd, w, 3, 100));
        value("preadv", "%zd %.4s %.5s", preadv(fd, r, 2, 0), a, b);
        value("preadv over the end", "%zd", preadv(fd, r, 2, 104));
        check(preadv(fd, r, wrong_count, 0), "preadv of -1");
        check(writev(fd, w, 0), "writev of nothing");
        check(pwritev2(fd, w, 4, 0, RWF_SYNC), "pwritev2 with RWF_SYNC");
        check(pwritev2(fd, w, 4, 0, 0x40000000), "pwritev2 with an unknown flag");
        check(preadv2(fd, r, 2, 0, 0), "preadv2");
        value("content", "%s", content("f"));
        (void)close(fd);
        clear_all();
}

static void file_size_limit(void) {
        struct rlimit was, small = {10000, RLIM_INFINITY};
        MUST(getrlimit(RLIMIT_FSIZE, &was));
        (void)signal(SIGXFSZ, SIG_IGN);
        put("f", "", 0);
        int fd = open("f", O_RDWR);
        (void)fflush(stdout); /* the limit is for that file as well */
        MUST(setrlimit(RLIMIT_FSIZE, &small));
        value("write up to the limit", "%zd", pwrite(fd, pattern, 10000, 0));
        value("write over the limit", "%zd", pwrite(fd, pattern, 5000, 8000));
        check(pwrite(fd, pattern, 1, 10000), "write at the limit");
        check(ftruncate(fd, 10000), "ftruncate to the limit");
        check(ftruncate(fd, 10001), "ftruncate over the limit");
        check(truncate("f", 20000), "truncate over the limit");
        check(fallocate(fd, 0, 0, 10001), "fallocate over the limit");
        check(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 10001), "fallocate over the limit, keeping the size");
        int flags = fcntl(fd, F_SETFL, O_APPEND);
        check(flags, "O_APPEND");
        check(write(fd, "x", 1), "append at the limit");
        MUST(setrlimit(RLIMIT_FSIZE, &was));
        (void)signal(SIGXFSZ, SIG_DFL);
        value("it", "%s; %s", look_fd(fd), content("f"));
        (void)close(fd);
        clear_all();
}

static void run(void) {
        fill();
        truncations();
        writes();
        appends();
        allocations();
        holes();
        copies();
        direct();
        vectors();
        file_size_limit();
        int fd = open("f", O_CREAT | O_RDWR, 0600);
        int n = -1;
        check(ioctl(fd, FIONREAD, &n), "FIONREAD of a file");
        check(fdatasync(fd), "fdatasync");
        check(syncfs(fd), "syncfs");
        check(ioctl(fd, 0x1234, &n), "an ioctl that nobody knows");
        (void)close(fd);
}
const struct family family_content = {"content", run, false};
