"""Measurements with a name of their own: what small changes to a large file cost, creation, idleness, isolated updates, levels."""
import os
import random
import subprocess
import time

from measure import KIB, MIB, Contents, Place, measure, pattern, write_file


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


def isolated(directory, fs='ext4', size=KIB, n=100, pause=6, files=10):
    """Updates so far apart that they share neither a barrier nor a commit of the filesystem's journal. With a shorter pause both
    intervals are shortened alike, so that the same happens in less time (XFS has no such interval: it flushes its log every 30 s)."""
    contents = Contents('random', size)
    options, mount_options = ['--commit-interval', '%dms' % (pause * 5000 // 6)], 'commit=1' if fs == 'ext4' and pause < 5 else ''
    with Place(directory, fs=fs, options=options, mount_options=mount_options) as place:
        def prepare():
            for i in range(files):
                write_file(place, 'file%d' % i, contents[i], os.O_CREAT)

        def update(i):
            fd = os.open('file%d' % (i % files), os.O_WRONLY, dir_fd=place.fd)
            os.write(fd, contents[100 + i])
            os.close(fd)
            time.sleep(pause)
        return measure(place, 'isolated update of %d B, one per %g s' % (size, pause), n, size, update, prepare, fs=fs, files=files)


def dd(directory, fs='ext4', n=5):
    with Place(directory, fs=fs) as place:
        def update(i):
            subprocess.run(['dd', 'if=/dev/urandom', 'of=%s/dd%d' % (place.mnt, i), 'bs=512', 'count=1000'], check=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        return measure(place, 'dd bs=512 count=1000', n, 512000, update, fs=fs, files=n)


def journal_apart(directory, size=64 * KIB, n=1000):
    """The filesystem's journal on a device of its own: nothing is left to be found by difference but the filesystem's own blocks."""
    contents = Contents('random', size)
    with Place(directory, journal_mib=64) as place:
        def prepare():
            for i in range(200):
                write_file(place, 'file%d' % i, contents[i], os.O_CREAT)
        return measure(place, 'overwrite, journal on its own device', n, size,
                       lambda i: write_file(place, 'file%d' % (i % 200), contents[1000 + i], 0), prepare, fs='ext4', files=200)


def all_named(directory, fs):
    """(name, function) of every named measurement, in full length."""
    large = [('large file: ' + what, lambda d, what=what: on_large_file(d, what, fs=fs))
             for what in ('touch', 'chmod', 'mv', 'append 2 bytes', 'edit 100 bytes')]
    large += [('large file: edit (text)', lambda d: on_large_file(d, 'edit 100 bytes', fs=fs, kind='text'))]
    return large + [
        ('identical rewrites', lambda d: identical_rewrites(d, fs)),
        ('creates', lambda d: creates(d, fs)),
        ('dd', lambda d: dd(d, fs)),
        ('level file: replace', lambda d: pattern(d, 'replace', 128, level='file', fs=fs, n=1000)),
        ('level file: overwrite', lambda d: pattern(d, 'overwrite', 128, level='file', fs=fs, n=1000)),
        ('level file: replace 64 KiB', lambda d: pattern(d, 'replace', 64 * KIB, level='file', fs=fs, n=1000)),
        ('hot 64 KiB', lambda d: pattern(d, 'replace', 64 * KIB, spread='hot', fs=fs)),
        ('isolated 1 KiB', lambda d: isolated(d, fs)),
        ('isolated 64 KiB', lambda d: isolated(d, fs, size=64 * KIB)),
        ('idle', lambda d: idle(d, fs)),
    ] + ([('journal apart', journal_apart)] if fs == 'ext4' else [])
