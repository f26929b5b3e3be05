"""What content owes: sizes, reads and writes, mmap, unlinked and replaced files, holes. The same tests pass on ext4 (run.py --on ext4)."""
import errno
import mmap
import os
import stat

from files import get, put
from harness import eq, fails, test
from syscalls import FALLOC_COLLAPSE, fallocate, link_fd


@test
def truncate_both_ways(t):
    path = put(t.tree / 'f', b'x' * 100000)
    os.truncate(path, 10)
    eq(get(path), b'x' * 10)
    os.truncate(path, 50000)
    eq(get(path), b'x' * 10 + b'\0' * 49990)
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 5)
    os.ftruncate(fd, 20)
    eq(os.pread(fd, 100, 0), b'x' * 5 + b'\0' * 15)
    os.pwrite(fd, b'end', 100000)
    eq(os.fstat(fd).st_size, 100003)
    eq(os.pread(fd, 200000, 0), b'x' * 5 + b'\0' * 99995 + b'end')
    os.close(fd)
    eq(get(path), b'x' * 5 + b'\0' * 99995 + b'end')
    fails(errno.EINVAL, os.truncate, path, -1)
    fails(errno.EISDIR, os.truncate, t.tree, 0)
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    eq(os.stat(path).st_size, 0)


@test
def positional_and_vectored_io(t):
    fd = os.open(t.tree / 'f', os.O_CREAT | os.O_RDWR)
    eq(os.pwritev(fd, [b'abc', b'', b'defg'], 5), 7)
    eq(os.pread(fd, 20, 0), b'\0' * 5 + b'abcdefg')
    buffers = [bytearray(4), bytearray(20)]
    eq(os.preadv(fd, buffers, 6), 6)
    eq((bytes(buffers[0]), bytes(buffers[1][:2])), (b'bcde', b'fg'))
    os.close(fd)
    fd = os.open(t.tree / 'f', os.O_RDONLY)
    fails(errno.EBADF, os.write, fd, b'x')
    os.close(fd)


@test
def append(t):
    path = put(t.tree / 'f', b'one\n')
    a, b = (os.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(2))
    for i in range(50):
        os.write(a, b'a%d\n' % i)
        os.write(b, b'b%d\n' % i)
    os.pwrite(a, b'tail\n', 0)  # Linux appends whatever the offset
    os.close(a)
    os.close(b)
    lines = get(path).split(b'\n')
    eq(lines, [b'one'] + [x for i in range(50) for x in (b'a%d' % i, b'b%d' % i)] + [b'tail', b''])


@test
def overlapping_writes(t):
    import random
    rng = random.Random(7)
    model = bytearray()
    fd = os.open(t.tree / 'f', os.O_CREAT | os.O_RDWR)
    for i in range(400):
        offset, length = rng.randrange(300000), rng.randrange(1, 9000)
        kind = rng.randrange(8)
        if kind == 0:
            os.ftruncate(fd, offset)
            del model[offset:]
            model.extend(b'\0' * (offset - len(model)))
        elif kind == 1:
            os.fsync(fd)
        elif kind == 2:
            os.close(fd)
            fd = os.open(t.tree / 'f', os.O_RDWR)
        else:
            data = rng.randbytes(length)
            os.pwrite(fd, data, offset)
            model.extend(b'\0' * (offset - len(model)))
            model[offset:offset + length] = data
        at = rng.randrange(300000)
        eq(os.pread(fd, 5000, at) == bytes(model[at:at + 5000]), True, 'step %d' % i)
    os.close(fd)
    eq(get(t.tree / 'f') == bytes(model), True, 'whole content')


@test
def unlinked_but_open(t):
    path = put(t.tree / 'f', b'before')
    fd = os.open(path, os.O_RDWR)
    os.unlink(path)
    eq(os.listdir(t.tree), [])
    eq((os.fstat(fd).st_nlink, os.pread(fd, 10, 0)), (0, b'before'))
    os.pwrite(fd, b'after!!', 3)
    os.ftruncate(fd, 8)
    os.fsync(fd)
    os.fchmod(fd, 0o600)
    eq((os.pread(fd, 20, 0), os.fstat(fd).st_size, stat.S_IMODE(os.fstat(fd).st_mode)), (b'befafter', 8, 0o600))
    put(path, b'new one')
    eq((get(path), os.pread(fd, 20, 0)), (b'new one', b'befafter'))
    other = os.open('/proc/self/fd/%d' % fd, os.O_RDONLY)
    eq(os.read(other, 20), b'befafter')
    os.close(other)
    os.close(fd)


@test
def replaced_while_open(t):
    path = put(t.tree / 'f', b'old content')
    fd = os.open(path, os.O_RDONLY)
    put(t.tree / 'tmp', b'new')
    os.rename(t.tree / 'tmp', path)
    eq((os.pread(fd, 50, 0), get(path)), (b'old content', b'new'))
    os.close(fd)


@test
def tmpfile(t):
    fd = os.open(t.tree, os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b'no name yet')
    eq((os.listdir(t.tree), os.fstat(fd).st_nlink), ([], 0))
    link_fd(fd, t.tree / 'named')
    eq((os.fstat(fd).st_nlink, get(t.tree / 'named')), (1, b'no name yet'))
    eq(oct(stat.S_IMODE(os.stat(t.tree / 'named').st_mode)), oct(0o640))
    os.write(fd, b', more')
    os.close(fd)
    eq(get(t.tree / 'named'), b'no name yet, more')
    fd = os.open(t.tree, os.O_TMPFILE | os.O_WRONLY | os.O_EXCL)
    fails(errno.ENOENT, link_fd, fd, t.tree / 'never')
    os.close(fd)
    eq(os.listdir(t.tree), ['named'])


@test
def mmap_shared_and_private(t):
    path = put(t.tree / 'f', b'a' * 10000)
    fd = os.open(path, os.O_RDWR)
    shared = mmap.mmap(fd, 10000)
    private = mmap.mmap(fd, 10000, flags=mmap.MAP_PRIVATE)
    private[0:3] = b'PPP'
    eq(os.pread(fd, 3, 0), b'aaa')
    shared[5000:5005] = b'SHARE'
    eq(os.pread(fd, 5, 5000), b'SHARE')
    os.pwrite(fd, b'WRITE', 9000)
    eq(shared[9000:9005], b'WRITE')
    shared.flush()
    eq(get(path)[5000:5005], b'SHARE')
    shared[0:4] = b'last'
    shared.close()
    private.close()
    os.close(fd)
    eq((get(path)[:4], os.stat(path).st_size), (b'last', 10000))


@test
def mmap_stores_survive_a_restart(t):
    t.on_coterie()
    path = put(t.tree / 'f', b'a' * 8192)
    fd = os.open(path, os.O_RDWR)
    m = mmap.mmap(fd, 8192)
    os.close(fd)
    m[4096:4100] = b'mmap'
    m.flush()
    m[0:4] = b'late'
    m.close()
    d = t.daemons[0]
    d.stop()
    d.start()
    eq((get(path)[:4], get(path)[4096:4100]), (b'late', b'mmap'))


@test
def fallocate_modes(t):
    fd = os.open(t.tree / 'f', os.O_CREAT | os.O_RDWR)
    os.write(fd, b'abc')
    fallocate(fd, 0, 0, 5000)
    eq((os.fstat(fd).st_size, os.pread(fd, 6000, 0)), (5000, b'abc' + b'\0' * 4997))
    fallocate(fd, 0, 0, 10)
    eq(os.fstat(fd).st_size, 5000)
    os.posix_fallocate(fd, 4000, 2000)
    eq(os.fstat(fd).st_size, 6000)
    fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
    fails(errno.EINVAL, fallocate, fd, 0, -1, 10)
    if t.target == 'coterie':
        fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_COLLAPSE, 0, 4096)
    os.close(fd)


@test
def lseek_data_and_hole(t):
    path = put(t.tree / 'f', b'data')
    fd = os.open(path, os.O_RDONLY)
    eq(os.lseek(fd, 0, os.SEEK_DATA), 0)
    eq(os.lseek(fd, 0, os.SEEK_HOLE), 4)
    fails(errno.ENXIO, os.lseek, fd, 4, os.SEEK_DATA)
    os.close(fd)


@test
def copy_file_range_and_sendfile(t):
    source = put(t.tree / 'a', os.urandom(300000))
    a, b = os.open(source, os.O_RDONLY), os.open(t.tree / 'b', os.O_CREAT | os.O_RDWR)
    left = 300000
    while left:
        left -= os.copy_file_range(a, b, left)
    os.close(b)
    eq(get(t.tree / 'b') == get(source), True)
    b = os.open(t.tree / 'c', os.O_CREAT | os.O_RDWR)
    sent = 0
    while sent < 300000:
        sent += os.sendfile(b, a, sent, 300000 - sent)
    os.close(a)
    os.close(b)
    eq(get(t.tree / 'c') == get(source), True)
