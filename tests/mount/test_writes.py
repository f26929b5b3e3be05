"""How writes arrive and gather, read from the daemon's counters."""
import itertools
import os
import subprocess
import threading
import time

from daemon import Meter, wait_until
from harness import at_least, at_most, eq, test
from machine import need_plain_build

METHODS = ('fdatasync', 'fsync', 'open_datasync', 'open_sync', 'syncfs')


@test
def large_writes_arrive_whole(t):
    d = t.daemon()
    data = os.urandom(1 << 20)
    fd = os.open(d.mnt / 'f', os.O_CREAT | os.O_WRONLY)
    with Meter(d) as m:
        eq(os.write(fd, data), 1 << 20)
    os.close(fd)
    t.note('1 MiB write(2): %d calls, the largest of %d bytes' % (m['fuse_write_calls'], d.counters()['fuse_write_max']))
    eq(m['fuse_write_bytes'], 1 << 20)
    at_most(m['fuse_write_calls'], 8, 'WRITE calls for 1 MiB')
    at_least(d.counters()['fuse_write_max'], 128 << 10, 'largest WRITE')
    eq((d.mnt / 'f').read_bytes() == data, True)


@test
def small_writes_become_one_operation(t):
    d = t.daemon()
    with Meter(d) as m:
        subprocess.run(['dd', 'if=/dev/urandom', 'of=%s' % (d.mnt / 'f'), 'bs=512', 'count=1000'], check=True, capture_output=True)
    eq(m['fuse_write_calls'], 1000)
    at_most(m['content_operations'], 2, 'content operations of dd bs=512 count=1000')
    eq((d.mnt / 'f').stat().st_size, 512000)


@test
def what_ends_gathering(t):
    d = t.daemon()
    path = d.mnt / 'f'
    rounds = iter(range(100))

    def operations(action):
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        piece = b'round %04d' % next(rounds)  # the same content again would be no operation at all
        for _ in range(10):
            os.write(fd, piece)
        before = d.counters()['content_operations']
        action(fd)
        after = d.counters()['content_operations']
        os.close(fd)
        return after - before
    eq(operations(lambda fd: None), 0, 'nothing')
    eq(operations(os.fsync), 1, 'fsync')
    eq(operations(lambda fd: os.close(os.dup(fd))), 1, 'close of a copy')
    eq(operations(lambda fd: os.rename(path, d.mnt / 'g')), 1, 'rename')
    eq(operations(lambda fd: os.chmod(path, 0o600)), 1, 'chmod')
    eq(operations(lambda fd: os.link(path, d.mnt / 'h')), 1, 'link')
    eq(operations(lambda fd: time.sleep(1.6)), 1, 'a second and more')


@test
def gathered_bytes_are_read_back_at_once(t):
    d = t.daemon()
    fd = os.open(d.mnt / 'f', os.O_CREAT | os.O_WRONLY)
    os.write(fd, b'not yet an operation')
    eq((d.mnt / 'f').read_bytes(), b'not yet an operation')
    eq((d.mnt / 'f').stat().st_size, 20)
    os.close(fd)


@test
def synchronous_writes_are_barriers(t):
    d = t.daemon(level='filesystem')
    for flag in (os.O_SYNC, os.O_DSYNC):
        fd = os.open(d.mnt / 'f', os.O_CREAT | os.O_WRONLY | flag)
        with Meter(d) as m:
            os.write(fd, b'x' * 100)
        os.close(fd)
        at_least(m['barriers'], 1, 'barriers of a synchronous write')
        at_least(m['log_flushes'], 1, 'flushes of the log')
    fd = os.open(d.mnt / 'f', os.O_WRONLY)
    os.write(fd, b'yy')
    with Meter(d) as m:
        os.fdatasync(fd)
    os.close(fd)
    at_least(m['log_flushes'], 1, 'flushes of the log by fdatasync')
    (d.mnt / 'g').write_text('x')
    fd = os.open(d.mnt, os.O_RDONLY)
    with Meter(d) as m:
        os.fsync(fd)
    os.close(fd)
    at_least(m['log_flushes'], 1, 'flushes of the log by fsync of a directory')


def at_once(count, function):
    """function(0), function(1), ... in threads of their own; the first exception is raised."""
    wrong = []

    def run(i):
        try:
            function(i)
        except Exception as e:
            wrong.append(e)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


@test(timeout=120)
def each_method_at_each_level(t):
    """Set while mounted: what status shows, and what reaches the log and the device per operation."""
    image = t.image()
    d = t.daemon(db=image.directory + '/tree.db')
    numbers = iter(range(100000))

    def overwrite():
        (d.mnt / 'f').write_text('%010d' % next(numbers))
    for level, method, direct in itertools.product(('none', 'filesystem', 'file'), METHODS, ('yes', 'no')):
        what = '%s, %s, direct %s' % (level, method, direct)
        d.coterie('set', 'sync_level=' + level, 'sync_method=' + method, 'direct=' + direct)
        eq((d.status()['sync_level'], d.status()['sync_method']), (level, method))
        overwrite()
        d.sync()
        image.settle()
        before = image.counters()
        with Meter(d) as m:
            for _ in range(10):
                overwrite()
        unit = 4096 if level != 'file' else 512 if direct == 'yes' else 4096
        eq(m['log_flushes'], 10 if level == 'file' else 0, what + ': flushes for 10 operations')
        eq(m['log_bytes'], 10 * unit if level == 'file' else unit, what + ': bytes of the log')
        with Meter(d) as m:
            fd = os.open(d.mnt / 'f', os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        eq(m['log_flushes'], 0 if level == 'file' else 1, what + ': flushes of an fsync')
        flushes = (image.counters() - before).flushes
        at_least(flushes, 10 if level == 'file' else 1, what + ': flushes of the device')


@test(timeout=120)
def writers_share_flushes(t):
    """Level file: operations that wait together reach the disk with one flush, within one directory as well.

    How many wait together is a matter of the moment where a flush takes less time than a writer needs to come back: the best of some rounds."""
    d = t.daemon(db=t.image().directory + '/tree.db', level='file')
    need_plain_build(d, 'where the daemon takes longer than a flush nobody waits together')
    many, rounds, tries = 16, 60, 5
    fds = [os.open(d.mnt / ('f%d' % i), os.O_CREAT | os.O_WRONLY | os.O_SYNC * (i % 2)) for i in range(many)]

    def overwrite(i):
        for k in range(rounds):
            os.pwrite(fds[i], b'%d%06d' % (again, k), 0)
            if i % 2 == 0:
                os.fsync(fds[i])
    shared = []
    for again in range(tries):
        with Meter(d) as m:
            at_once(many, overwrite)
        eq(m['operations'], many * rounds)
        shared.append(many * m['log_flushes'] / m['operations'])
    for fd in fds:
        os.close(fd)
    t.note('flushes per %d operations of %d writers: %s' % (many, many, ', '.join('%.2f' % s for s in shared)))
    at_most(min(shared), 3.99, 'flushes per 16 operations')


@test
def what_each_kind_wrote(t):
    d = t.daemon()
    before = d.status()
    (d.mnt / 'large').write_bytes(os.urandom(100000))
    for i in range(10):
        os.mkdir(d.mnt / ('d%d' % i))
    os.rename(d.mnt / 'd0', d.mnt / 'e0')
    after = d.status()
    kinds = after['by_kind']
    eq({k: v['records'] for k, v in kinds.items()}, {'create': 11, 'write': 1, 'rename': 1})
    eq({k: v['content_bytes'] for k, v in kinds.items()}, {'create': 0, 'write': 25 * 4096, 'rename': 0})
    wrote = {name: after['counters'][name] - before['counters'][name] for name in after['counters']}
    eq(sum(v['records'] for v in kinds.values()), wrote['log_records'])
    eq(-(-sum(v['log_bytes'] for v in kinds.values()) // 4096) * 4096, wrote['log_bytes'], 'of the log, padded to a page')
    eq(sum(v['content_bytes'] for v in kinds.values()), wrote['content_bytes'])


@test
def nothing_changed_costs_nothing(t):
    d = t.daemon()
    path = d.mnt / 'f'
    path.write_bytes(b'same' * 1000)
    os.chmod(path, 0o640)
    d.sync()
    with Meter(d) as m:
        for _ in range(100):
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b'same' * 1000)
            os.close(fd)
            os.chmod(path, 0o640)
            os.chown(path, 0, 0)
    t.note('100 rewrites, chmods, chowns of the same: %d bytes of log' % m['log_bytes'])
    at_most(m['content_bytes'], 0, 'content bytes')


@test
def reads_come_from_the_kernel(t):
    d = t.daemon()
    for i in range(20):
        (d.mnt / ('f%d' % i)).write_bytes(b'x' * 1000)

    def touch_all():
        for i in range(20):
            (d.mnt / ('f%d' % i)).read_bytes()
            os.stat(d.mnt / ('f%d' % i))
    touch_all()
    with Meter(d) as m:
        for _ in range(20):
            touch_all()
    t.note('400 reads and stats of known files: %d LOOKUP, %d GETATTR, %d READ, %d OPEN' % (m['lookups'], m['getattrs'], m['reads'], m['opens']))
    at_most(m['lookups'], 5, 'LOOKUPs')
    at_most(m['reads'], 5, 'READs')


@test
def writes_ask_for_no_xattrs(t):
    d = t.daemon()
    fd = os.open(d.mnt / 'f', os.O_CREAT | os.O_WRONLY)
    os.write(fd, b'x')
    with Meter(d) as m:
        for _ in range(100):
            os.write(fd, b'x' * 512)
    os.close(fd)
    at_most(m['fuse_getxattr'], 2, 'GETXATTRs for 100 WRITEs')


@test
def barriers_come_by_time(t):
    """One after the interval, none while nothing changes; at level none only those that are asked for."""
    d = t.daemon(level='filesystem', options=['--commit-interval', '300ms'])
    for i in range(3):
        before = d.counters()['barriers']
        (d.mnt / 'f').write_text(str(i))
        wait_until(lambda: d.counters()['barriers'] > before, 30, 'a barrier nobody asked for')
        time.sleep(1)
        eq(d.counters()['barriers'], before + 1, 'barriers for one operation')
    d.coterie('set', 'sync_level=none')
    with Meter(d) as m:
        (d.mnt / 'f').write_text('none')
        time.sleep(1.5)
    eq((m['barriers'], m['log_flushes']), (0, 0), 'barriers at level none')


@test(timeout=90)
def barriers_come_by_bytes_and_the_count_begins_anew(t):
    """10 thresholds: a barrier per commit_bytes, no more, also after the first was once crossed and after fsyncs in between."""
    d = t.daemon(level='filesystem', options=['--commit-bytes', '1M', '--commit-interval', '600s'])
    data = [os.urandom(64 << 10) for _ in range(4)]
    written = iter(range(100000))

    def write(count):
        for _ in range(count):
            i = next(written)
            (d.mnt / ('f%d' % (i % 50))).write_bytes(data[i % 4][:-4] + i.to_bytes(4, 'little'))

    def settled():
        """Barriers and checkpoints once a barrier that was asked for has had time to be done."""
        seen = None
        for _ in range(100):
            c = d.counters()
            now = (c['barriers'], c['checkpoints'])
            if now == seen:
                return now
            seen = now
            time.sleep(0.1)
    for threshold in range(10):
        d.sync()  # each begins at zero
        before = settled()
        write(12)  # 768 KiB
        eq(settled(), before, 'threshold %d: barriers and checkpoints before it is reached' % threshold)
        write(6)
        after = settled()
        eq(after[0] - before[0] - (after[1] - before[1]), 1, 'threshold %d: barriers of its own after it is reached' % threshold)
    for _ in range(10):
        d.sync()
        write(12)
        before = settled()
        d.sync()
        after = settled()
        eq(after[0] - before[0], 1, 'barriers by sync')
        write(12)  # 1.5 MiB written, 768 KiB of them since the barrier
        eq(settled()[0] - after[0], 0, 'barriers within commit_bytes of another barrier')
