"""One measurement: a fresh filesystem in an image on a loop device of its own, a fresh database on it, n updates through the mount.

Bytes are the sectors written at the block device times 512, from a settled state to after the updates, a final
`coterie sync --checkpoint` and a syncfs of the filesystem that holds the database. Flushes are the device's, too.
"""
import base64
import os
import random
import time
from pathlib import Path

from daemon import Daemon
from machine import Image, syncfs

KIB, MIB = 1024, 1 << 20
PARTS = ('log', 'content', 'home')


class Place:
    """The image, the daemon on it, and its mount."""

    def __init__(self, directory, fs='ext4', level='filesystem', size=2 << 30, options=(), journal_mib=0, mount_options=''):
        directory = Path(directory)
        self.image = Image(directory / 'image', size, fs, journal_mib=journal_mib, mount_options=mount_options)
        try:
            self.daemon = Daemon(directory / 'd', db=self.image.directory + '/tree.db', level=level, options=options)
            self.daemon.start()
        except BaseException:
            self.image.close()
            raise
        self.mnt = str(self.daemon.mnt)
        self.fd = os.open(self.mnt, os.O_RDONLY)

    def settle(self):
        self.daemon.sync(checkpoint=True)
        self.image.settle()

    def reading(self):
        """The daemon's counters, and of the devices: bytes and flushes."""
        device, journal = self.image.counters(), self.image.journal_counters() if self.image.journal else None
        return {**self.daemon.counters(), 'device': device.written, 'flushes': device.flushes, 'journal': journal.written if journal else 0}

    def content_size(self):
        return os.stat(str(self.daemon.db) + '-content').st_size

    def close(self):
        os.close(self.fd)
        if self.daemon.alive():
            self.daemon.stop()
        self.image.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Result(dict):
    """name, n, size, bytes (per update), amplification, flushes (per update), log/content/home/rest (per update), …"""


def measure(place, name, n, size, update, prepare=None, last_n=None, **facts):
    """update(i) is called n times; size: bytes of content that one update carries (0: amplification makes no sense).

    last_n: the final checkpoint costs the same after few updates as after many of the same files; it is charged as if so many updates
    shared it. Only for updates that take so long that few must do."""
    if prepare:
        prepare()
    place.settle()
    readings, content_size = [place.reading()], place.content_size()
    began = time.monotonic()
    for i in range(n):
        update(i)
    seconds = time.monotonic() - began
    if last_n:
        readings.append(place.reading())
    place.daemon.sync(checkpoint=True)
    syncfs(place.image.directory)
    counted = place.daemon.counters()
    place.image.settle()
    readings.append(place.reading())
    shares = [n, last_n] if last_n else [n]

    def per_update(what):
        return sum((after[what] - before[what]) / share for before, after, share in zip(readings, readings[1:], shares))
    result = Result(name=name, n=n, size=size, seconds=seconds, **facts)
    for what in ('operations', 'barriers', 'checkpoints'):
        result[what] = counted[what] - readings[0][what]
    result.update(bytes=per_update('device') + per_update('journal'), flushes=per_update('flushes'))
    result['amplification'] = result['bytes'] / size if size else None
    if place.image.journal:
        result['journal'] = per_update('journal')
    for part in PARTS:
        result[part] = per_update(part + '_bytes')
    result['rest'] = result['bytes'] - sum(result[part] for part in PARTS)
    # Content written to extents that were in use before, not to the end of the file.
    result['reused'] = max(0, result['content'] * n - max(0, place.content_size() - content_size)) / n
    return result


# --- content

NAMES = ('web', 'mail', 'db', 'cache', 'build', 'router', 'backup', 'monitor', 'ldap', 'proxy', 'git', 'files')


def text(seed, size):
    """Configuration as machines write it: sections, keys, addresses, identifiers; no two alike."""
    r = random.Random(seed)
    out, length = [], 0
    while length < size:
        name = '%s%d' % (r.choice(NAMES), r.randrange(100))
        piece = ('[%s]\naddress = 10.%d.%d.%d/24\nhwaddr = 52:54:00:%02x:%02x:%02x\nuuid = %08x-%04x-4%03x-a%03x-%012x\nmemory = %d\ncores = %d\n'
                 'disk0 = pool%d:vol-%d-disk-%d,size=%dG,discard=on\nnet0 = virtio,bridge=br%d,tag=%d,firewall=1\nonboot = %d\n'
                 'secret = %s\n# changed by admin%d on 20%02d-%02d-%02d\n\n') % (
            name, r.randrange(256), r.randrange(256), r.randrange(256), r.randrange(256), r.randrange(256), r.randrange(256), r.getrandbits(32),
            r.getrandbits(16), r.getrandbits(12), r.getrandbits(12), r.getrandbits(48), 512 << r.randrange(6), 1 << r.randrange(4), r.randrange(4),
            r.randrange(1000), r.randrange(4), 8 << r.randrange(5), r.randrange(4), r.randrange(4096), r.randrange(2),
            base64.b64encode(r.randbytes(15)).decode(), r.randrange(5), r.randrange(20, 30),
            r.randrange(1, 13), r.randrange(1, 29))
        out.append(piece)
        length += len(piece)
    return ''.join(out).encode()[:size]


class Contents:
    """Content number i of a kind; a large one is a small set of bodies with a number in front, so that making it takes no time."""

    def __init__(self, kind, size, seed=1):
        self.size = size
        make = text if kind == 'text' else lambda s, n: random.Random(s).randbytes(n)
        self.bodies = [make(seed * 1000 + i, size) for i in range(min(200, max(8, 16 * MIB // size)))]
        self.kind = kind

    def __getitem__(self, i):
        body = self.bodies[i % len(self.bodies)]
        stamp = b'%d ' % i if self.kind == 'text' else random.Random(i).randbytes(8)
        return (stamp + body[len(stamp):])[:self.size]


# --- how a file is updated

def write_file(place, name, data, flags, piece=None):
    fd = os.open(name, os.O_WRONLY | flags, 0o644, dir_fd=place.fd)
    try:
        if piece:
            for at in range(0, len(data), piece):
                os.write(fd, data[at:at + piece])
        else:
            os.write(fd, data)
    finally:
        os.close(fd)


def replace(place, name, data):
    write_file(place, 'tmp.' + name, data, os.O_CREAT | os.O_EXCL)
    os.rename('tmp.' + name, name, src_dir_fd=place.fd, dst_dir_fd=place.fd)


def overwrite(place, name, data):
    write_file(place, name, data, 0)


def trunc4k(place, name, data):
    write_file(place, name, data, os.O_TRUNC, piece=4096)


PATTERNS = {'replace': replace, 'overwrite': overwrite, 'trunc4k': trunc4k}
SIZES = [128, 512, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB]


def updates_for(size, quick):
    """Between 200 and 4,000, about 256 MiB at the most: enough to use extents again."""
    n = max(200, min(4000, 256 * MIB // size))
    return max(200, n // 4) if quick else n


def pattern(directory, name, size, kind='random', spread='many', synced=False, level='filesystem', fs='ext4', quick=False, n=None):
    """The standard measurement: files of one size updated by one pattern."""
    n = n or updates_for(size, quick)
    files = 1 if spread == 'hot' else max(10, min(1000, n // 2, 128 * MIB // size))
    contents = Contents(kind, size)
    with Place(directory, fs=fs, level=level) as place:
        def prepare():
            for i in range(files):
                write_file(place, 'file%d' % i, contents[10**6 + i], os.O_CREAT)

        order = list(range(files))
        random.Random(5).shuffle(order)

        def update(i):
            PATTERNS[name](place, 'file%d' % order[i % files], contents[i])
            if synced:
                os.fsync(place.fd)
        label = '%s %s %s%s' % (name, kind, spread, ', synced' if synced else '')
        return measure(place, label, n, size, update, prepare, pattern=name, kind=kind, spread=spread, synced=synced, level=level, fs=fs,
                       files=files)
