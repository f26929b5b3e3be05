#!/usr/bin/env python3
"""Compares two directory trees: names, types, content, mode, owner, times of modification, symlinks, hard links, device numbers.

usage: compare_trees.py ORIGINAL COPY      prints `FILES DIRECTORIES SYMLINKS OTHERS BYTES` and exits 0, or up to 20 differences and exits 1
"""
import os
import stat
import sys


def scan(root):
    """{relative path: facts}; hard links by the first name of the inode within the tree."""
    found, first = {}, {}

    def visit(path, relative):
        st = os.lstat(path)
        facts = {'type': stat.S_IFMT(st.st_mode), 'mode': oct(stat.S_IMODE(st.st_mode)), 'uid': st.st_uid, 'gid': st.st_gid,
                 'mtime': st.st_mtime_ns}
        if not stat.S_ISDIR(st.st_mode):
            facts['links to'] = first.setdefault((st.st_dev, st.st_ino), relative)
        if stat.S_ISREG(st.st_mode):
            facts['size'] = st.st_size
        elif stat.S_ISLNK(st.st_mode):
            facts['target'] = os.readlink(path)
        elif stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode):
            facts['device'] = st.st_rdev
        found[relative] = facts
        if stat.S_ISDIR(st.st_mode):
            for name in sorted(os.listdir(path)):
                visit(os.path.join(path, name), os.path.join(relative, name))
    visit(root, b'.')
    return found


def same_content(a, b):
    with open(a, 'rb') as f, open(b, 'rb') as g:
        while True:
            x, y = f.read(1 << 20), g.read(1 << 20)
            if x != y:
                return False
            if not x:
                return True


def compare(original, copy):
    a, b = scan(original), scan(copy)
    differences = []
    for path in sorted(set(a) | set(b)):
        name = os.fsdecode(path)
        if path not in b:
            differences.append('%s is missing in the copy' % name)
        elif path not in a:
            differences.append('%s is only in the copy' % name)
        else:
            for fact in a[path]:
                if a[path][fact] != b[path].get(fact):
                    differences.append('%s: %s is %r, %r in the copy' % (name, fact, a[path][fact], b[path].get(fact)))
            if a[path]['type'] == stat.S_IFREG and not same_content(os.path.join(original, path), os.path.join(copy, path)):
                differences.append('%s: the content differs' % name)
    return a, differences


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found, differences = compare(*map(os.fsencode, sys.argv[1:]))
    if differences:
        for line in differences[:20]:
            print(line, file=sys.stderr)
        if len(differences) > 20:
            print('and %d more' % (len(differences) - 20), file=sys.stderr)
        return 1
    kinds = [f['type'] for f in found.values()]
    files, directories, symlinks = (sum(k == want for k in kinds) for want in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK))
    print(files, directories, symlinks, len(kinds) - files - directories - symlinks, sum(f.get('size', 0) for f in found.values()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
