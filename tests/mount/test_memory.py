"""Memory of a standalone daemon: content, plus 300 bytes per inode, plus 10 MB, whatever was done a moment ago."""
import os

from harness import at_most, test
from machine import need_plain_build

PER_INODE, FIXED = 300, 10 * 1000 * 1000


def memory(d, field='RssAnon'):
    with open('/proc/%d/status' % d.pid) as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field + ':'))


def create(d, directories, files, size):
    """Returns what may be used."""
    for i in range(directories):
        os.mkdir(d.mnt / ('d%d' % i))
    for i in range(files):
        fd = os.open(d.mnt / ('d%d/file-%05d' % (i % directories, i)), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        if size:
            os.write(fd, os.urandom(size))
        os.close(fd)
    return FIXED + PER_INODE * (1 + directories + files) + size * files


def bounded(t, directories, files, size):
    t.on_coterie()
    d = t.daemon()
    need_plain_build(d, 'a build with sanitizers needs memory of its own')
    bound = create(d, directories, files, size)
    created = memory(d)
    at_most(created, bound, 'bytes of memory after %d files of %d bytes' % (files, size))
    d.sync(checkpoint=True)
    home = memory(d)
    at_most(home, bound, 'bytes of memory after the checkpoint')
    highest = memory(d, 'VmHWM')
    d.stop()
    d.start()
    at_most(memory(d), bound, 'bytes of memory after a restart')
    t.note('%d files of %d bytes: %.1f MB, %.1f after a checkpoint, %.1f after a restart, at most %.1f with its program; promised %.1f' % (
        files, size, created / 1e6, home / 1e6, memory(d) / 1e6, highest / 1e6, bound / 1e6))


@test(timeout=200)
def many_small_files(t):
    bounded(t, 50, 50000, 100)


@test(timeout=200)
def many_empty_files(t):
    bounded(t, 40, 40000, 0)


@test(timeout=200)
def large_files(t):
    bounded(t, 1, 200, 1 << 20)
