/* backup_file.c: one file that holds the whole state:
 *
 *   head    "CoterieK" · u32 version (1) · u64 epoch · u64 sequence · 16 bytes digest of the state · u64 inodes · u64 bytes of the image ·
 *           u32 CRC of what is before it
 *   blocks  u32 raw length (at most 4 MiB) · u32 stored length · the bytes: zstd if the lengths differ
 *   end     u32 0 · u32 0 · u64 raw bytes in all · 16 bytes chained hash of the raw blocks
 *
 * The raw blocks, one after the other, are the image (repl/image.h). Integers are little-endian. */
#include "image.h"

#include "base/codec.h"
#include "base/compress.h"
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC     "CoterieK"
#define VERSION   1u
#define HEAD      64u
#define BLOCK_MAX (4u * 1024u * 1024u)

struct backup_writer {
        int fd;
        uint64_t total;
        struct hash128 hash;
};

/* --- writing */
/* What an interrupted backup left is used again; what another one is writing is not: it holds a lock, and its file may have got its name
 * meanwhile. */
errint_t backup_create(const char *path, struct backup_writer **ret) {
        cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        struct stat ours, there;

        if (fd < 0 || fstat(fd, &ours) < 0)
                return -errno;
        if (!S_ISREG(ours.st_mode) || ours.st_nlink != 1)
                return -EEXIST;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? -EBUSY : -errno;
        if (stat(path, &there) < 0 || there.st_ino != ours.st_ino || there.st_dev != ours.st_dev)
                return -EBUSY;
        if (fchmod(fd, 0600) < 0 || ftruncate(fd, 0) < 0)
                return -errno;
        *ret = NEW(struct backup_writer);
        (*ret)->fd = steal_fd(&fd);
        return 0;
}

void backup_free(struct backup_writer *w) {
        if (!w)
                return;
        cleanup_fdp_(&w->fd);
        free(w);
}

errint_t backup_head(void *writer, const struct image_told *told) {
        struct backup_writer *w = writer;
        CLEANUP(enc_done) struct enc e;

        enc_init(&e, HEAD);
        enc_raw(&e, MAGIC, 8);
        enc_u32(&e, VERSION);
        enc_u64(&e, told->pos.epoch);
        enc_u64(&e, told->pos.seq);
        enc_hash128(&e, told->digest);
        enc_u64(&e, told->inodes);
        enc_u64(&e, told->bytes);
        enc_u32(&e, crc32c(0, e.data, e.len));
        POST(e.err == 0 && e.len == HEAD);
        return cli_write_all(w->fd, e.data, e.len);
}

errint_t backup_add(void *writer, const void *p, size_t n) {
        struct backup_writer *w = writer;
        CLEANUP(enc_done) struct enc e;
        cleanup_free uint8_t *small = NULL;
        size_t small_len = n;

        if (n == 0 || n > BLOCK_MAX)
                return -EMSGSIZE;
        errint_t r = compress_zstd(p, n, &small, &small_len);
        if (r < 0 && r != -ENODATA)
                return r;
        enc_init(&e, 8);
        enc_u32(&e, (uint32_t)n);
        enc_u32(&e, (uint32_t)(small ? small_len : n));
        w->total += n;
        w->hash = hash128_chain(w->hash, p, n);
        r = cli_write_all(w->fd, e.data, e.len);
        return r < 0 ? r : cli_write_all(w->fd, small ? small : p, small ? small_len : n);
}

errint_t backup_finish(struct backup_writer *w) {
        CLEANUP(enc_done) struct enc e;

        enc_init(&e, 64);
        enc_u64(&e, 0);
        enc_u64(&e, w->total);
        enc_hash128(&e, w->hash);
        errint_t r = cli_write_all(w->fd, e.data, e.len);
        return r < 0 ? r : fsync(w->fd) < 0 ? -errno : 0;
}

/* --- reading */
static errint_t read_all(int fd, void *data, size_t n) {
        uint8_t *p = data;

        while (n > 0) {
                ssize_t got = read(fd, p, n);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0)
                        return -errno;
                if (got == 0)
                        return -EBADMSG;
                p += got;
                n -= (size_t)got;
        }
        return 0;
}

static errint_t read_head(int fd, struct image_told *told, char *fault, size_t fault_size) {
        uint8_t head[HEAD];
        struct dec d;

        (void)snprintf(fault, fault_size, "it is no backup");
        errint_t r = read_all(fd, head, sizeof(head));
        if (r < 0)
                return r;
        dec_init(&d, head, sizeof(head));
        const uint8_t *magic = dec_raw(&d, 8);
        uint32_t version = dec_u32(&d);
        if (memcmp(magic, MAGIC, 8) != 0)
                return -EBADMSG;
        if (version != VERSION) {
                (void)snprintf(fault, fault_size, "its format has version %u; this coterie knows %u", version, VERSION);
                return -ENOTSUP;
        }
        told->pos.epoch = dec_u64(&d);
        told->pos.seq = dec_u64(&d);
        told->digest = dec_hash128(&d);
        told->inodes = dec_u64(&d);
        told->bytes = dec_u64(&d);
        if (dec_u32(&d) != crc32c(0, head, HEAD - 4)) {
                (void)snprintf(fault, fault_size, "its head is damaged");
                return -EBADMSG;
        }
        return 0;
}

static errint_t read_end(int fd, uint64_t total, struct hash128 hash) {
        uint8_t end[24], more;
        struct dec d;
        errint_t r = read_all(fd, end, sizeof(end));

        if (r < 0)
                return r;
        dec_init(&d, end, sizeof(end));
        bool good = dec_u64(&d) == total && hash128_equal(dec_hash128(&d), hash);
        return good && read(fd, &more, 1) == 0 ? 0 : -EBADMSG;
}

/* One block; *ret_n 0: the end comes. */
static errint_t read_block(int fd, uint8_t *stored, uint8_t *raw, size_t *ret_n) {
        uint8_t lengths[8];
        struct dec d;
        errint_t r = read_all(fd, lengths, sizeof(lengths));

        if (r < 0)
                return r;
        dec_init(&d, lengths, sizeof(lengths));
        size_t n = dec_u32(&d), stored_n = dec_u32(&d);
        if (n > BLOCK_MAX || stored_n > n || (n > 0 && stored_n == 0))
                return -EBADMSG;
        *ret_n = n;
        r = read_all(fd, stored_n < n ? stored : raw, stored_n);
        return r == 0 && stored_n < n ? decompress_zstd(stored, stored_n, raw, n) : r;
}

static errint_t read_blocks(const struct cli *cli, int fd, const struct image_told *told, struct image_builder *b) {
        cleanup_free uint8_t *stored = xmalloc(BLOCK_MAX), *raw = xmalloc(BLOCK_MAX);
        struct hash128 hash = {0};
        struct progress p;
        uint64_t total = 0;
        errint_t r;
        size_t n;

        progress_begin(&p, cli->command, told->bytes);
        while ((r = read_block(fd, stored, raw, &n)) == 0 && n > 0) {
                total += n;
                hash = hash128_chain(hash, raw, n);
                if ((r = image_builder_add(b, raw, n)) < 0)
                        break;
                progress_show(&p, total);
        }
        progress_end(&p);
        return r < 0 ? r : read_end(fd, total, hash);
}

errint_t backup_read(const struct cli *cli, const char *path, struct state *ret, uint64_t *ret_adopted, struct image_told *ret_told,
                     char *fault, size_t fault_size) {
        CLEANUP(image_builder_freep) struct image_builder *b = image_builder_new();
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct image_told told;
        struct state state;

        (void)snprintf(fault, fault_size, "it cannot be read");
        if (fd < 0)
                return -errno;
        errint_t r = read_head(fd, &told, fault, fault_size);
        if (r < 0)
                return r;
        (void)snprintf(fault, fault_size, "its content is damaged or cut short");
        r = read_blocks(cli, fd, &told, b);
        if (r == 0)
                r = image_builder_end(b, &state, ret_adopted, fault, fault_size);
        if (r < 0)
                return r;
        if (!hash128_equal(state_digest(&state), told.digest)) {
                (void)snprintf(fault, fault_size, "its head names another state");
                state_done(&state);
                return -EBADMSG;
        }
        *ret = state;
        *ret_told = told;
        return 0;
}
