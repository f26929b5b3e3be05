"""The disk under the database: full, damaged, of another version."""
import contextlib
import errno
import itertools
import os
import shutil
import sqlite3
import threading
import time

from daemon import wait_until
from harness import at_least, at_most, eq, fails, test
from machine import syncfs
from workload import difference, snapshot


def fill(path, chunk=1 << 20):
    """Writes a file until the filesystem is full."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while chunk >= 512:
            try:
                os.write(fd, b'\0' * chunk)
                os.fsync(fd)
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise
                chunk //= 2
    finally:
        os.close(fd)


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def goes_on(mnt):
    try:
        write(mnt / 'goes on', os.urandom(100000))
        return True
    except OSError as e:
        eq(e.errno, errno.ENOSPC)
        return False


class Filler(threading.Thread):
    def __init__(self, path, how):
        super().__init__(daemon=True)
        self.path, self.how, self.ending = path, how, False

    def run(self):
        while not self.ending:
            with open(self.path, 'wb', buffering=0) as f:
                chunk = 1 << 20
                while chunk >= 512:
                    try:
                        if self.how == 'fallocate':
                            os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, chunk)
                        else:
                            f.write(b'\1' * chunk)
                    except OSError:
                        chunk //= 2
            time.sleep(0.3)
            os.unlink(self.path)
            time.sleep(0.3)

    def stop(self):
        self.ending = True
        self.join(30)


@test(timeout=120)
def full_by_its_own_content(t):
    t.on_coterie()
    image = t.image(size=96 << 20)
    d = t.daemon(db=image.directory + '/tree.db')
    count = 0
    try:
        for count in range(200):
            write(d.mnt / ('f%d' % count), os.urandom(1 << 20))
        raise AssertionError('200 MiB went into an image of 96 MiB')
    except OSError as e:
        eq(e.errno, errno.ENOSPC)
    at_least(count, 30, 'MiB written before ENOSPC')
    t.note('ENOSPC after %d MiB of 96' % count)
    held = snapshot(d.mnt)
    for name in [n for n in held if held[n]['size'] == 1 << 20][: count // 2]:
        os.unlink(d.mnt / name)
    d.sync(checkpoint=True)
    write(d.mnt / 'again', os.urandom(1 << 20))
    wanted = snapshot(d.mnt)
    d.stop()
    eq(d.check().returncode, 0)
    d.start()
    eq(difference(snapshot(d.mnt), wanted), '')


@test(timeout=120)
def full_by_others(t):
    t.on_coterie()
    image = t.image(size=128 << 20)
    d = t.daemon(db=image.directory + '/tree.db')
    for i in range(20):
        write(d.mnt / ('f%d' % i), os.urandom(100000))
    d.sync()
    fill(image.directory + '/filler')
    refused, accepted = 0, 0
    for i in range(400):
        try:
            write(d.mnt / ('new%d' % i), os.urandom(200000))
            accepted += 1
        except OSError as e:
            eq(e.errno, errno.ENOSPC)
            refused += 1
            if refused > 3:
                break
    at_least(refused, 1, 'writes refused on a full disk')
    wanted = snapshot(d.mnt)
    for i in range(20):
        os.unlink(d.mnt / ('f%d' % i))  # works on a full disk
        del wanted['f%d' % i]
    eq(difference(snapshot(d.mnt), wanted), '')
    os.unlink(image.directory + '/filler')
    write(d.mnt / 'goes on', os.urandom(300000))
    d.sync(checkpoint=True)
    eq((d.mnt / 'goes on').stat().st_size, 300000)
    t.note('%d accepted, %d refused while full' % (accepted, refused))
    wanted = snapshot(d.mnt)
    d.kill()
    d.start()
    eq(difference(snapshot(d.mnt), wanted), '')
    d.stop()
    eq(d.check().returncode, 0)


@test(timeout=240)
def filled_and_freed_by_others(t):
    """Another program fills the disk and frees it again, in several ways, while operations go on. Where the filesystem copies on write, even
    the log's place is no promise: an operation may wait for room then, but nothing turns read-only."""
    t.on_coterie()
    for level, how, fs, size in (('filesystem', 'buffered', 'ext4', 64), ('filesystem', 'fallocate', 'ext4', 64), ('file', 'buffered', 'ext4', 64),
                                 ('filesystem', 'buffered', 'btrfs', 128)):
        if fs == 'btrfs' and not shutil.which('mkfs.btrfs'):
            continue
        image = t.image('disk-%s-%s-%s' % (level, how, fs), size=size << 20, fs=fs)
        d = t.daemon('%s-%s-%s' % (level, how, fs), db=image.directory + '/tree.db', level=level, options=['--commit-interval', '100ms'])
        filler = Filler(image.directory + '/filler', how)
        filler.start()
        seen, content = {'done': 0, 'refused': 0}, {}
        end = time.monotonic() + 4
        for i in itertools.count():
            data = os.urandom((10, 3000, 5000, 40000, 300000)[i % 5])
            try:
                write(d.mnt / 'tmp', data)
                os.rename(d.mnt / 'tmp', d.mnt / ('f%d' % (i % 20)))
                content['f%d' % (i % 20)] = data
                seen['done'] += 1
            except OSError as e:
                eq(e.errno, errno.ENOSPC)
                seen['refused'] += 1
            if time.monotonic() > end and min(seen.values()) > 0 or time.monotonic() > end + 20:
                break
        filler.stop()
        syncfs(image.directory)  # btrfs keeps what is freed until its next commit
        at_least(min(seen.values()), 1, 'operations done and refused: %r' % seen)
        wait_until(lambda: goes_on(d.mnt), 10, 'room for a write')
        for name, data in content.items():
            eq((d.mnt / name).read_bytes() == data, True, name)
        d.kill()
        d.start()
        for name, data in content.items():
            eq((d.mnt / name).read_bytes() == data, True, name + ' after a restart')
        d.stop()
        eq(d.check().returncode, 0)
        t.note('%s, %s, %s: %r' % (level, how, fs, seen))


@test
def kill_on_a_full_disk(t):
    t.on_coterie()
    image = t.image(size=128 << 20)
    d = t.daemon(db=image.directory + '/tree.db')
    for i in range(50):
        write(d.mnt / ('f%d' % i), os.urandom(20000))
    fill(image.directory + '/filler')
    for i in range(10):
        os.unlink(d.mnt / ('f%d' % i))
    wanted = snapshot(d.mnt)
    d.kill()
    d.start()
    eq(difference(snapshot(d.mnt), wanted), '')
    os.unlink(image.directory + '/filler')
    write(d.mnt / 'goes on', b'x' * 50000)


@test
def newer_schema_is_refused_untouched(t):
    t.on_coterie()
    d = t.daemon()
    write(d.mnt / 'f', b'content')
    d.stop()
    with sqlite3.connect(d.db) as db:
        version = db.execute('PRAGMA user_version').fetchone()[0]
        db.execute('PRAGMA user_version=%d' % (version + 1000))
    db.close()
    before = {p.name: p.read_bytes() for p in d.db.parent.iterdir()}
    done = d.try_start()
    eq((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
    eq(str(version + 1000) in done.stderr, True, 'the version in %r' % done.stderr)
    eq({p.name: p.read_bytes() for p in d.db.parent.iterdir()} == before, True, 'the files are untouched')
    eq(os.path.ismount(d.mnt), False)


@test
def not_a_database(t):
    t.on_coterie()
    d = t.daemon(start=False)
    d.db.write_bytes(b'this is no database, but somebody\'s file\n' * 500)
    before = d.db.read_bytes()
    done = d.try_start()
    if done.returncode == 0:
        eq(os.access(d.mnt, os.W_OK), False, 'a file that is no database was mounted writable')
    else:
        eq((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
    eq(d.db.read_bytes() == before, True, 'the file is untouched')


@test(timeout=120)
def damaged_database_mounts_read_only(t):
    """One page of rows is overwritten: the rest can be read, nothing can be written, and the log says what is wrong in one line."""
    t.on_coterie()
    d = t.daemon()
    for i in range(400):
        (d.mnt / ('file-%03d' % i)).write_text('content %d\n' % i * 20)
    d.stop()
    size = d.db.stat().st_size
    backup = d.db.read_bytes()
    mounted, refused = 0, 0
    for at in range(8, 15):
        data = bytearray(backup)
        place = size * at // 16 // 4096 * 4096
        data[place:place + 4096] = os.urandom(4096)
        d.db.write_bytes(data)
        d.log.write_text('')
        done = d.try_start()
        if done.returncode != 0:
            refused += 1
            eq(done.stderr.count('\n'), 1, done.stderr)
            continue
        mounted += 1
        status = d.status()
        if 'read' in str(status.get('mode')):
            fails(errno.EROFS, os.open, d.mnt / 'new', os.O_CREAT | os.O_WRONLY)
            eq('read-only' in d.log_tail(), True, 'the log does not say why: %r' % d.log_tail())
        for name in os.listdir(d.mnt):  # what is served is true
            if name.startswith('file-'):
                try:
                    eq((d.mnt / name).read_text(), 'content %d\n' % int(name[5:]) * 20, name)
                except OSError as e:
                    eq(e.errno, errno.EIO)
        d.stop()
    t.note('%d mounted, %d refused' % (mounted, refused))
    at_least(mounted, 1, 'damaged databases that could be mounted for rescue')


@test(timeout=120)
def rescue_serves_what_is_sound(t):
    """Damage of what is not the tree itself hides no file: the position, the header of the content file, a log of another size."""
    t.on_coterie()
    d = t.daemon()
    contents = {'small': b'content', 'large': os.urandom(70000)}
    for name, data in contents.items():
        write(d.mnt / name, data)
    d.sync(checkpoint=True)
    os.mkdir(d.mnt / 'in the log')
    d.sync()
    d.kill()
    d.detach()
    files = {path: path.read_bytes() for path in d.db.parent.iterdir()}
    content, log = (d.db.with_name(d.db.name + suffix) for suffix in ('-content', '-oplog'))

    def header():
        content.write_bytes(b'junk' + files[content][4:])

    def rows(statement):
        with contextlib.closing(sqlite3.connect(d.db)) as home:
            home.executescript(statement)
            home.commit()

    endless = ('DROP TABLE settings; CREATE VIEW settings(name, value, crc) AS '
               "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT 'name', 'value', x FROM n")
    for fault, damage, names in (
            ('the meta row is missing', lambda: rows('DELETE FROM meta'), ['large', 'small']),
            ('the meta row is missing', lambda: rows('UPDATE meta SET digest = zeroblob(16)'), ['large', 'small']),
            ('its header is damaged', header, ['in the log', 'large', 'small']),
            ('shorter than its database', lambda: os.truncate(log, len(files[log]) - 4096), ['in the log', 'large', 'small']),
            ('longer than its database', lambda: os.truncate(log, len(files[log]) + 1), ['in the log', 'large', 'small']),
            ('it is a view', lambda: rows(endless), ['large', 'small']),
            ('inode 2 ("/small"): it is lost', lambda: rows('DELETE FROM inodes WHERE ino = 2'), ['large'])):
        for path, data in files.items():
            path.write_bytes(data)
        damage()
        checked = d.check()
        eq((checked.returncode, fault in checked.stdout), (1, True), checked.stdout)
        d.log.write_text('')
        d.start()
        eq(sorted(os.listdir(d.mnt)), names, fault)
        for name in contents.keys() & names:
            eq((d.mnt / name).read_bytes() == contents[name], True, '%s: %s' % (fault, name))
        fails(errno.EROFS, os.mkdir, d.mnt / 'new')
        backup = d.coterie('backup', d.base / 'backup', check=False)
        eq((backup.returncode, 'copy out what can be read' in backup.stderr), (1, True), backup.stderr)
        d.stop()
        eq('closed properly' in d.log_tail(), False, d.log_tail())


@test
def log_size_is_whole_pages(t):
    t.on_coterie()
    d = t.daemon(start=False, options=('--log-size', '1500000'))
    d.start()
    eq(os.stat(str(d.db) + '-oplog').st_size, 4096 + 1500000 // 8192 * 8192)


@test(timeout=120)
def damaged_log_tail_is_cut(t):
    t.on_coterie()
    d = t.daemon()
    for i in range(50):
        write(d.mnt / ('f%02d' % i), b'content %d' % i)
    d.kill()
    log = d.db.with_name(d.db.name + '-oplog')
    data = log.read_bytes()
    used = len(data.rstrip(b'\0'))
    d.detach()
    places = [data.index(b'content %d' % i) for i in (45, 30) if b'content %d' % i in data]
    at_least(len(places), 1, 'contents found in the log')
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1
        log.write_bytes(damaged)
        d.start()
        names = sorted(os.listdir(d.mnt))
        at_least(len(names), 10, 'files before the damage')
        eq(names, ['f%02d' % i for i in range(len(names))], 'a prefix')
        for name in names[:-1]:
            eq((d.mnt / name).read_bytes(), b'content %d' % int(name[1:]))
        d.kill()
        d.detach()
        break
    at_most(used, len(data), 'used part of the log')


@test
def a_foreign_log_is_refused(t):
    t.on_coterie()
    one, two = t.daemon('one'), t.daemon('two')
    write(one.mnt / 'f', b'1')
    write(two.mnt / 'f', b'2')
    one.kill()
    two.kill()
    shutil.copy(two.db.with_name('tree.db-oplog'), one.db.with_name('tree.db-oplog'))
    done = one.try_start()
    eq((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
    eq('log' in done.stderr, True, done.stderr)


def times(*paths):
    return [(s.st_mtime_ns, s.st_ctime_ns) for s in map(os.stat, paths)]


def changed(before, after):
    return [x != y for x, y in zip(before, after)]


@test(timeout=120)
def xfs_writes_no_times(t):
    """Log and content file keep their times while they are written, and have new ones after the end, of a killed daemon's successor as well."""
    image = t.image(fs='xfs')
    db = image.directory + '/tree.db'
    files = db + '-oplog', db + '-content'
    d = t.daemon(db=db)
    for _ in range(2):
        for i in range(3):
            write(d.mnt / ('large%d' % i), os.urandom(100000))
    d.sync(checkpoint=True)  # now the first contents' room is free, and the file need not grow: that is told in its times
    made, before = times(*files), d.counters()
    time.sleep(0.05)  # more than a tick of the kernel's clock for times
    for i in range(3):
        write(d.mnt / ('small%d' % i), os.urandom(1000))
        write(d.mnt / ('large%d' % i), os.urandom(100000))
    eq(changed(made, times(*files)), [False, False], 'times changed by writing')
    after = d.counters()
    at_least(after['log_bytes'] - before['log_bytes'], 3 * 4096, 'bytes to the log')
    at_least(after['content_bytes'] - before['content_bytes'], 300000, 'bytes to the content file')
    d.stop()
    ended = times(*files)
    eq(changed(made, ended), [True, True], 'times changed by the end')

    d.start()
    write(d.mnt / 'small0', b'written before the kill')
    d.kill()
    eq(changed(ended, times(*files)), [False, False], 'times changed by a daemon that was killed')
    d.start()
    eq((d.mnt / 'small0').read_bytes(), b'written before the kill')
    d.stop()
    eq(changed(ended, times(*files)), [True, True], 'times changed by the end of its successor')


@test(timeout=120)
def a_log_on_another_xfs(t):
    """The handle of a file says nothing of the filesystem: of two that are alike, the log must be the one that its link names."""
    image, other = t.image(fs='xfs'), t.image('other', fs='xfs')
    db = image.directory + '/tree.db'
    d = t.daemon(db=db)
    write(d.mnt / 'f', b'first')
    d.stop()
    shutil.copy2(db + '-oplog', other.directory + '/log')
    os.rename(db + '-oplog', db + '-oplog.was')
    os.symlink(other.directory + '/log', db + '-oplog')
    d.start()
    before = other.counters()
    write(d.mnt / 'f', b'second')
    at_least((other.counters() - before).written, 4096, 'bytes to the disk of the log')
    d.kill()
    d.start()
    eq((d.mnt / 'f').read_bytes(), b'second')
    d.stop()
