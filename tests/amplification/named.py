"""Measurements with a name of their own: what small changes to a large file cost, creation, idleness, isolated updates, levels."""
import os
import random
import subprocess
import time

from measure import KIB, MIB, Contents, Place, measure, write_file


def large_files(place, count, contents):
    for i in range(count):
        write_file(place, 'large%d' % i, contents[i], os.O_CREAT)


def on_large_file(directory, what, fs='ext4', kind='random', n=1000, files=20):
    """touch, chmod, mv, append of 2 bytes, edit of 100 bytes: on files of 1 MiB."""
    contents = Contents(kind, MIB)
    r = random.Random(3)
    with Place(directory, fs=fs) as place:
        names = ['large%d' % i for i in range(files)]

        def touch(i):
            os.utime(names[i % files], dir_fd=place.fd)

        def chmod(i):
            os.chmod(names[i % files], 0o600 + i // files % 2 * 0o40, dir_fd=place.fd)

        def mv(i):
            old = names[i % files]
            names[i % files] = 'moved%d.%d' % (i % files, i // files)
            os.rename(old, names[i % files], src_dir_fd=place.fd, dst_dir_fd=place.fd)

        def append(i):
            write_file(place, names[i % files], b'%02d' % (i % 100), os.O_APPEND)

        def edit(i):
            fd = os.open(names[i % files], os.O_WRONLY, dir_fd=place.fd)
            os.pwrite(fd, r.randbytes(100), r.randrange(MIB - 100))
            os.close(fd)
        action = {'touch': touch, 'chmod': chmod, 'mv': mv, 'append 2 bytes': append, 'edit 100 bytes': edit}[what]
        return measure(place, '%s, file of 1 MiB (%s)' % (what, kind), n, 0, action, lambda: large_files(place, files, contents), fs=fs,
                       files=files)


def identical_rewrites(directory, fs='ext4', n=1000):
    data = Contents('random', 4 * KIB)[0]
    with Place(directory, fs=fs) as place:
        return measure(place, 'identical rewrite of 4 KiB', n, 0, lambda i: write_file(place, 'same', data, 0),
                       lambda: write_file(place, 'same', data, os.O_CREAT), fs=fs, files=1)


def creates(directory, fs='ext4', n=10000, size=100):
    contents = Contents('text', size)
    with Place(directory, fs=fs) as place:
        def prepare():
            for i in range(100):
                os.mkdir('d%d' % i, dir_fd=place.fd)
        return measure(place, 'create a file of %d B' % size, n, 0, lambda i: write_file(place, 'd%d/f%d' % (i % 100, i), contents[i], os.O_CREAT),
                       prepare, fs=fs, files=n)


def idle(directory, fs='ext4', seconds=60):
    with Place(directory, fs=fs) as place:
        return measure(place, 'idle for %d s' % seconds, 1, 0, lambda i: time.sleep(seconds), lambda: write_file(place, 'f', b'x', os.O_CREAT),
                       fs=fs, files=1)


MANY_ISOLATED = 200
XFS_RESTS = 35  # seconds; every 30 s XFS writes the inodes that were changed


def isolated(directory, fs='ext4', size=KIB, n=15, pause=6, files=10):
    """Updates so far apart that they share neither a barrier nor a commit of the filesystem's journal. They wait, so they may be few. The final
    checkpoint is charged then as if 200 shared it. XFS is given the time to write what the preparation changed of its inodes: 16 or 32 KiB,
    that a few updates would seem to cost."""
    contents = Contents('random', size)
    with Place(directory, fs=fs) as place:
        def prepare():
            for i in range(files):
                write_file(place, 'file%d' % i, contents[i], os.O_CREAT)
            if fs == 'xfs':
                place.settle()
                time.sleep(XFS_RESTS)

        def update(i):
            fd = os.open('file%d' % (i % files), os.O_WRONLY, dir_fd=place.fd)
            os.write(fd, contents[100 + i])
            os.close(fd)
            time.sleep(pause)
        return measure(place, 'isolated update on %s, one per %g s' % (fs, pause), n, size, update, prepare, last_n=max(n, MANY_ISOLATED), fs=fs,
                       files=files)


def dd(directory, fs='ext4', n=20):
    with Place(directory, fs=fs) as place:
        def update(i):
            subprocess.run(['dd', 'if=/dev/urandom', 'of=%s/dd%d' % (place.mnt, i), 'bs=512', 'count=1000'], check=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        return measure(place, 'dd bs=512 count=1000', n, 512000, update, fs=fs, files=n)


# What each kind of operation does to file or directory number i, of so many, in a tree that prepare_parts has made.
def _edit(place, i, many):
    write_file(place, 'f%d' % (i % many), b'%0100d' % i, 0)


def _overwrite(place, i, many):
    write_file(place, 'f%d' % (i % many), random.Random(i).randbytes(64 * KIB), 0)


def _setxattr(place, i, many):
    os.setxattr('%s/f%d' % (place.mnt, i % many), 'user.mark', b'%0200d' % i)


def _removexattr(place, i, many):
    os.removexattr('%s/f%d' % (place.mnt, i), 'user.old')


def _tmpfile(place, i, many):
    fd = os.open(place.mnt, os.O_TMPFILE | os.O_WRONLY)
    os.write(fd, b'%0500d' % i)
    os.link('/proc/self/fd/%d' % fd, 't%d' % i, dst_dir_fd=place.fd, follow_symlinks=True)
    os.close(fd)


KINDS = {
    'create': lambda place, i, many: write_file(place, 'new%d' % i, b'', os.O_CREAT),
    'create and write': lambda place, i, many: write_file(place, 'new%d' % i, b'%0500d' % i, os.O_CREAT),
    'write, in the log': _edit,
    'write, in extents': _overwrite,
    'mkdir': lambda place, i, many: os.mkdir('d%d' % i, dir_fd=place.fd),
    'symlink': lambda place, i, many: os.symlink('to/%d' % i, 's%d' % i, dir_fd=place.fd),
    'link': lambda place, i, many: os.link('f%d' % i, 'l%d' % i, src_dir_fd=place.fd, dst_dir_fd=place.fd),
    'unlink': lambda place, i, many: os.unlink('f%d' % i, dir_fd=place.fd),
    'rmdir': lambda place, i, many: os.rmdir('e%d' % i, dir_fd=place.fd),
    'rename': lambda place, i, many: os.rename('f%d' % i, 'r%d' % i, src_dir_fd=place.fd, dst_dir_fd=place.fd),
    'setattr': lambda place, i, many: os.chmod('f%d' % (i % many), 0o600 + i // many % 2 * 0o40, dir_fd=place.fd),
    'setxattr': _setxattr,
    'removexattr': _removexattr,
    'O_TMPFILE': _tmpfile,
}


MAKE = ('create', 'create and write', 'mkdir', 'symlink', 'O_TMPFILE')  # need nothing that was there before
AGAIN = ('write, in the log', 'write, in extents', 'setattr', 'setxattr')  # go over the same files again and again


def parts(directory, kind, level='filesystem'):
    """Operations of one kind, with the filesystem's journal on a device of its own: what the daemon says it wrote and what the journal
    took must be what both devices counted. So many that the blocks which say where the files lie, written in place once in a while,
    hardly count."""
    n = {'write, in extents': 2000, 'setattr': 20000}.get(kind, 10000 if level == 'filesystem' else 4000)
    many = 0 if kind in MAKE else n if kind not in AGAIN else 200 if kind == 'write, in extents' else 1000
    with Place(directory, level=level, journal_mib=64) as place:
        def prepare():
            for i in range(many):
                if kind == 'rmdir':
                    os.mkdir('e%d' % i, dir_fd=place.fd)
                else:
                    write_file(place, 'f%d' % i, random.Random(10**6 + i).randbytes(64 * KIB if kind == 'write, in extents' else 500), os.O_CREAT)
                if kind == 'removexattr':
                    os.setxattr('%s/f%d' % (place.mnt, i), 'user.old', b'x' * 100)
        return measure(place, 'parts: ' + kind, n, 0, lambda i: KINDS[kind](place, i, many), prepare, fs='ext4', files=many)
