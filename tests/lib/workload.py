"""Random operations on a small tree, as data: generated, carried out on any directory, and compared between directories.

An operation is a list that JSON can carry. The same list carried out on two equal trees gives the same result and two equal trees, so a
directory on ext4 serves as the model of one on Coterie.
"""
import errno
import json
import os
import random
import stat
import time
import zlib

from syscalls import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2

OLD = 10**18  # times set by operations lie before this (2001); others come from the clock and are not compared exactly


def content_of(seed, size):
    """Bytes that follow from a number: half of them compressible."""
    if seed % 2:
        return random.Random(seed).randbytes(size)
    line = b'entry %d of this file is a line of text\n' % seed
    return (line * (size // len(line) + 1))[:size]


class Generator:
    """Chooses operations. Names come from a small set, so that they meet; some fail, and must fail alike."""

    def __init__(self, seed, size_max=40000, barriers=False, piece=7000):
        """piece: bytes per write(2); None: all at once."""
        self.rng = random.Random(seed)
        self.piece = piece
        self.size_max = size_max
        self.dirs = ['', 'd0', 'd1', 'd0/e0', 'd1/e1']
        self.kinds = ['write'] * 6 + ['replace'] * 5 + ['append'] * 3 + ['edit'] * 4 + ['truncate'] * 2 + ['mkdir'] * 3 + \
            ['rmdir', 'unlink', 'unlink', 'unlink', 'link', 'symlink', 'rename', 'rename', 'rename', 'exchange', 'noreplace', 'movedir', 'chmod', 'chown',
             'utime', 'setxattr', 'removexattr', 'mkfifo', 'rewrite']
        if barriers:
            self.kinds += ['fsync'] * 2 + ['fsyncdir'] * 2

    def path(self):
        directory = self.rng.choice(self.dirs)
        return os.path.join(directory, 'f%d' % self.rng.randrange(6))

    def size(self):
        r = self.rng
        return r.choice([0, r.randrange(200), r.randrange(5000), r.randrange(self.size_max + 1)])

    def next(self):
        r, kind = self.rng, self.rng.choice(self.kinds)
        seed = r.randrange(1 << 30)
        if kind in ('write', 'replace', 'append', 'rewrite'):
            return [kind, self.path(), seed, self.size(), self.piece]
        if kind == 'edit':
            return [kind, self.path(), seed, r.choice([1, 100, r.randrange(1, 5000)]), r.randrange(self.size_max)]
        if kind == 'truncate':
            return [kind, self.path(), r.randrange(self.size_max)]
        if kind in ('mkdir', 'rmdir'):
            return [kind, r.choice(self.dirs[1:])]
        if kind == 'movedir':
            return [kind, r.choice(self.dirs[1:]), r.choice(self.dirs[1:])]
        if kind in ('link', 'rename', 'exchange', 'noreplace'):
            return [kind, self.path(), self.path()]
        if kind == 'symlink':
            return [kind, 'to/%d' % seed, self.path()]
        if kind == 'chmod':
            return [kind, self.path(), r.choice([0o600, 0o644, 0o755, 0o4755, 0o1777])]
        if kind == 'chown':
            return [kind, self.path(), r.randrange(3), r.randrange(3)]
        if kind == 'utime':
            return [kind, self.path(), r.randrange(-OLD, OLD)]
        if kind == 'setxattr':
            return [kind, self.path(), 'user.x%d' % r.randrange(3), seed, r.choice([0, 10, 500])]
        if kind == 'removexattr':
            return [kind, self.path(), 'user.x%d' % r.randrange(3)]
        return [kind, self.path()]


def write_all(fd, data, chunk=None):
    at = 0
    while at < len(data):
        at += os.write(fd, data[at:at + (chunk or len(data))])


class Stopped(Exception):
    """The filesystem went away in the middle of an operation."""


def steps(root, op):
    """The system calls of an operation, each (name, function), so that a crash in between is one of a known few states."""
    kind, path = op[0], os.path.join(root, op[1])
    if kind == 'write':  # opening truncates; closing puts the content in place
        def close_after(fd):
            try:
                write_all(fd, content_of(op[2], op[3]), op[4])
            finally:
                os.close(fd)
        holder = []
        return [lambda: holder.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)), lambda: close_after(holder.pop())]
    if kind == 'rewrite':  # what is there already
        def rewrite():
            fd = os.open(path, os.O_RDWR)
            try:
                same = os.pread(fd, 1 << 24, 0)
                os.pwrite(fd, same, 0)
            finally:
                os.close(fd)
        return [rewrite]
    if kind == 'replace':
        temporary = os.path.join(root, 'tmp')
        return steps(root, ['write', 'tmp', *op[2:]]) + [lambda: os.rename(temporary, path)]
    if kind in ('append', 'edit'):
        def change():
            fd = os.open(path, os.O_WRONLY | (os.O_APPEND if kind == 'append' else 0))
            try:
                if kind == 'append':
                    write_all(fd, content_of(op[2], op[3] // 8))
                else:
                    os.pwrite(fd, content_of(op[2], op[3]), op[4])
            finally:
                os.close(fd)
        return [change]
    if kind == 'fsync' or kind == 'fsyncdir':
        def sync():
            fd = os.open(root if kind == 'fsyncdir' else path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        return [sync]
    second = os.path.join(root, str(op[2])) if len(op) > 2 else None
    return [{
        'truncate': lambda: os.truncate(path, op[2]),
        'mkdir': lambda: os.mkdir(path, 0o755),
        'rmdir': lambda: os.rmdir(path),
        'unlink': lambda: os.unlink(path),
        'link': lambda: os.link(path, second, follow_symlinks=False),
        'symlink': lambda: os.symlink(op[1], second),
        'rename': lambda: os.rename(path, second),
        'movedir': lambda: os.rename(path, second),
        'exchange': lambda: renameat2(path, second, RENAME_EXCHANGE),
        'noreplace': lambda: renameat2(path, second, RENAME_NOREPLACE),
        'chmod': lambda: os.chmod(path, op[2]),
        'chown': lambda: os.chown(path, op[2], op[3], follow_symlinks=False),
        'utime': lambda: os.utime(path, ns=(op[2], op[2]), follow_symlinks=False),
        'setxattr': lambda: os.setxattr(path, op[2], content_of(op[3], op[4]), follow_symlinks=False),
        'removexattr': lambda: os.removexattr(path, op[2], follow_symlinks=False),
        'mkfifo': lambda: os.mkfifo(path, 0o600),
    }[kind]]


GONE = (errno.ENOTCONN, errno.ECONNABORTED)  # the daemon is not there


def skip_fifo(root, op):
    """Opening a fifo would wait for its other end: such an operation is left out, on both sides alike."""
    if op[0] in ('write', 'replace', 'append', 'edit', 'rewrite', 'fsync', 'truncate'):
        for path in (op[1],):
            try:
                if not stat.S_ISREG(os.stat(os.path.join(root, path)).st_mode):
                    return True
            except OSError as e:
                if e.errno in GONE:
                    raise Stopped from None
    return False


def carry_out(root, op, upto=None, on_step=None):
    """Returns 0 or the errno of the step that failed. upto: only so many steps. on_step(i): called after each."""
    if op[0] != 'replace' and skip_fifo(root, op):
        return 'left out'
    for i, step in enumerate(steps(str(root), op)):
        if upto is not None and i >= upto:
            break
        try:
            step()
        except OSError as e:
            if e.errno in GONE:
                raise Stopped from None
            return e.errno
        if on_step:
            on_step(i)
    return 0


def outcomes(root, op, finished):
    """After a crash in `op` with so many steps acknowledged: how many steps may have had their effect. `root` is the state before it.

    A truncation by O_TRUNC is gathered with the writes that follow: until the file is closed, it may still have its old content."""
    possible = [finished, finished + 1]
    if op[0] in ('write', 'replace') and finished == 1:
        if os.path.exists(os.path.join(root, 'tmp' if op[0] == 'replace' else op[1])):
            possible.insert(0, 0)
    return possible


def snapshot(root):
    """The tree as a dictionary of what must agree; link groups by their first name."""
    found, groups = {}, {}
    root = str(root)

    def visit(directory):
        for name in sorted(os.listdir(os.path.join(root, directory))):
            path = os.path.join(directory, name)
            full = os.path.join(root, path)
            st = os.lstat(full)
            group = groups.setdefault(st.st_ino, path)
            entry = {'mode': st.st_mode, 'nlink': st.st_nlink, 'uid': st.st_uid, 'gid': st.st_gid, 'first name': group,
                     'mtime': st.st_mtime_ns if st.st_mtime_ns < OLD else 'now'}
            if stat.S_ISREG(st.st_mode):
                with open(full, 'rb') as f:
                    data = f.read()
                entry.update(size=st.st_size, read=len(data), crc=zlib.crc32(data))
            elif stat.S_ISLNK(st.st_mode):
                entry['target'] = os.readlink(full)
            if not stat.S_ISLNK(st.st_mode):
                entry['xattrs'] = {x: zlib.crc32(os.getxattr(full, x)) for x in sorted(os.listxattr(full)) if x.startswith('user.')}
            found[path] = entry
            if stat.S_ISDIR(st.st_mode):
                visit(path)
    visit('')
    return found


def difference(got, wanted):
    """The first few differences of two snapshots, as text; empty if none."""
    lines = []
    for path in sorted(set(got) | set(wanted)):
        if got.get(path) != wanted.get(path):
            lines.append('%s: got %s, wanted %s' % (path, got.get(path), wanted.get(path)))
    return '\n'.join(lines[:6])


class Journal:
    """What a worker did, outside the filesystem under test: a line before an operation, one per finished step, one after it."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def put(self, *words):
        os.write(self.fd, (json.dumps(words) + '\n').encode())


def work(root, seed, journal_path, first=0, limit=None, pause=0, **kw):
    """Carries out operations until the filesystem goes away; for a process of its own."""
    generator, journal = Generator(seed, **kw), Journal(journal_path)
    number = first
    try:
        while limit is None or number < first + limit:
            op = generator.next()
            journal.put('begin', number, op)
            result = carry_out(root, op, on_step=lambda i: journal.put('step', number, i))
            journal.put('end', number, result)
            number += 1
            if pause:
                time.sleep(pause)
    except Stopped:
        journal.put('stopped', number)


def read_journal(path):
    """[(op, steps done, result or None)], in order."""
    done = []
    with open(path) as f:
        for line in f:
            if not line.endswith('\n'):
                break
            words = json.loads(line)
            if words[0] == 'begin':
                done.append([words[2], 0, None])
            elif words[0] == 'step':
                done[-1][1] = words[2] + 1
            elif words[0] == 'end':
                done[-1][2] = words[2]
    return done
