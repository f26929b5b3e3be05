/* virtual.c: the directory of files that are made when they are opened. One file in this folder each (virtual_*.c). A text is that of the
 * moment of its open, however long reading takes; the kernel keeps neither pages nor attributes (the size is 0, as under /proc). */
#include "internal.h"

static const struct virtual_file *const files[] = {&virtual_status, &virtual_metrics, &virtual_version, &virtual_members};
#define INO_FIRST (INO_VIRTUAL_DIR + 1)

bool fs_is_virtual(uint64_t ino) {
        return ino >= INO_RESERVED;
}

bool virtual_reserved(uint64_t parent, const char *name) {
        return parent == INO_ROOT && strcmp(name, FS_VIRTUAL_DIR) == 0;
}

static const struct virtual_file *file_of(uint64_t ino) {
        return ino >= INO_FIRST && ino - INO_FIRST < ARRAY_LEN(files) ? files[ino - INO_FIRST] : NULL;
}

errint_t virtual_attr(struct fs *fs, uint64_t ino, struct fs_entry *ret) {
        const struct virtual_file *file = file_of(ino);
        if (!file && ino != INO_VIRTUAL_DIR)
                return -ESTALE;
        struct timestamp t = fs->started;
        *ret = (struct fs_entry){
                .ino = ino,
                .attr = {.ino = ino,
                         .mode = file ? S_IFREG | file->mode : S_IFDIR | 0555,
                         .nlink = file ? 1 : 2,
                         .atime = t,
                         .mtime = t,
                         .ctime = t},
        };
        return 0;
}

errint_t virtual_lookup(struct fs *fs, uint64_t parent, const char *name, struct fs_entry *ret) {
        if (parent == INO_ROOT || (parent == INO_VIRTUAL_DIR && strcmp(name, ".") == 0))
                return virtual_attr(fs, INO_VIRTUAL_DIR, ret);
        if (parent != INO_VIRTUAL_DIR)
                return file_of(parent) ? -ENOTDIR : -ESTALE;
        if (strcmp(name, "..") == 0)
                return entry_of(fs, INO_ROOT, ret);
        for (size_t i = 0; i < ARRAY_LEN(files); i++)
                if (strcmp(name, files[i]->name) == 0)
                        return virtual_attr(fs, INO_FIRST + i, ret);
        *ret = (struct fs_entry){0}; /* not cacheable: a later version may have it */
        return 0;
}

errint_t virtual_open(struct fs *fs, uint64_t ino, struct enc *e) {
        const struct virtual_file *file = file_of(ino);
        if (!file)
                return ino == INO_VIRTUAL_DIR ? -EISDIR : -ESTALE;
        return file->generate(fs, e);
}

errint_t virtual_readdir(struct fs *fs, uint64_t offset, bool plus, fs_fill_fn fill, void *ctx) {
        static const char *const dots[] = {".", ".."};
        for (uint64_t i = offset; i < ARRAY_LEN(dots) + ARRAY_LEN(files); i++) {
                bool dot = i < ARRAY_LEN(dots);
                uint64_t ino = i == 1 ? INO_ROOT : dot ? INO_VIRTUAL_DIR : INO_FIRST + i - ARRAY_LEN(dots);
                const char *name = dot ? dots[i] : files[i - ARRAY_LEN(dots)]->name;
                struct fs_entry e = {0};
                errint_t r = entry_of(fs, ino, &e);
                if (r < 0)
                        return r;
                e.ino = dot ? 0 : ino;
                if (!fill(ctx, name, strlen(name), i + 1, e.attr.mode, plus ? &e : NULL, ino))
                        break;
        }
        return 0;
}
