"""conflicts: records as docs/FORMAT.md has them, listed, shown, compared, done again, dropped."""
import json
import os
import stat
import struct
import subprocess

from daemon import BIN, varint
from harness import eq, fails, test

ALL = (1 << 64) - 1


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def svarint(n):
    return varint(n << 1 if n >= 0 else (-n << 1) - 1)


def bytes_(b):
    b = b.encode() if isinstance(b, str) else b
    return varint(len(b)) + b


def time_(sec, nsec=0):
    return svarint(sec) + struct.pack('<I', nsec)


def head(kind, body, bits=0):
    return bytes([kind, bits]) + varint(3) + struct.pack('<Q', 7) + varint(9) + svarint(0) + varint(1000) + varint(1001) + svarint(4321) \
        + bytes_('vi') + time_(1_700_000_000, 5) + body


def create(mode, tail=b'', rdev=None):
    return head(1, varint(1) + bytes_('x') + varint(mode) + varint(12) + varint(34) + (varint(rdev) if rdev is not None else b'') + tail)


def write(extents, keep=None, size=None, append=False):
    body, end = varint(50), 0
    if keep is not None:
        body += varint(keep)
    if size is not None:
        body += varint(size)
    body += varint(len(extents))
    for offset, length, kind in extents:
        body += varint(offset - end) + varint(length * 2 + kind)
        end = offset + length
    return head(7, body, (2 if keep is not None else 0) | (4 if size is not None else 0) | (8 if append else 0))


class Records:
    def __init__(self, db):
        self.dir = db.parent / (db.name + '-conflicts')
        self.dir.mkdir(mode=0o700)
        self.n = 0

    def add(self, op, path='', new_path='', payload=b''):
        self.n += 1
        data = b'CoterieX' + struct.pack('<I', 1) + time_(1_700_000_100, 6) + struct.pack('<QQ', 7, 100 + self.n) + bytes_(path) \
            + bytes_(new_path) + bytes_(op) + bytes_(payload)
        name = '7-%d-%08x' % (100 + self.n, self.n)
        (self.dir / name).write_bytes(data + struct.pack('<I', crc32c(data)))
        return name


@test
def listed_shown_dropped(t):
    d = t.daemon()
    eq(d.coterie('conflicts').stdout, '')
    eq(d.status()['conflicts'], {'records': 0, 'bytes': 0, 'waiting': 0})
    r = Records(d.db)
    one = r.add(write([(0, 5, 0)], keep=0), '/some/file', payload=b'hello')
    two = r.add(head(5, varint(1) + bytes_('a') + svarint(0) + bytes_('b') + varint(0)), '/a', '/b\n\xff'.encode('latin-1'))
    eq(d.status()['conflicts']['records'], 2)
    eq('2: operations of a history that was left' in d.coterie('status').stdout, True)
    listed = json.loads(d.coterie('conflicts', 'list', '--json').stdout)
    eq([(x['id'], x['epoch'], x['sequence'], x['operation'], x['path'], x['node'], x['uid'], x['bytes'], x['kept']) for x in listed],
       [(one, 7, 101, 'write', '/some/file', 3, 1000, 5, '2023-11-14T22:15:00Z'),
        (two, 7, 102, 'rename', '/a', 3, 1000, 0, '2023-11-14T22:15:00Z')])
    lines = d.coterie('conflicts').stdout.split('\n')
    eq(len(lines), 4, 'a head, two lines')
    eq('/some/file' in lines[1] and r'\xff' in lines[2], True, lines)
    eq('by         uid 1000' in d.coterie('conflicts', 'show', '7-101').stdout, True)
    eq(d.coterie('conflicts', 'show', '7-101', '--content').stdout, 'hello')
    for wrong in (['show'], ['show', '7-1'], ['show', '9-9'], ['frob'], ['list', '7-101'], ['drop', '7-101', '--all'], ['apply', '--content', '7-101']):
        eq(d.coterie('conflicts', *wrong, check=False).returncode in (1, 2), True, wrong)
    eq(json.loads(subprocess.run([str(BIN / 'coterie'), 'conflicts', '--db', str(d.db), '--json'], capture_output=True, check=True).stdout), listed)
    d.coterie('conflicts', 'drop', '7-101')
    eq([x['id'] for x in json.loads(d.coterie('conflicts', '--json').stdout)], [two])
    d.coterie('conflicts', 'drop', '--all')
    eq(list(r.dir.iterdir()), [])


@test
def damaged_records_are_named(t):
    d = t.daemon()
    r = Records(d.db)
    good = r.add(write([(0, 5, 0)], keep=0), '/f', payload=b'hello')
    data = (r.dir / good).read_bytes()
    for n, bad in enumerate([b'', data[:20], data[:-1], data[:40] + b'?' + data[41:], b'x' * 100]):
        (r.dir / ('8-%d-0' % n)).write_bytes(bad)
    (r.dir / '8-9-0').symlink_to('/etc/passwd')
    done = d.coterie('conflicts', '--json')
    eq([x['id'] for x in json.loads(done.stdout)], [good])
    eq(done.stderr.count('\n'), 6, done.stderr)


@test
def done_again(t):
    d = t.daemon()
    r = Records(d.db)
    m = d.mnt
    (m / 'dir').mkdir()
    (m / 'file').write_text('first line\nsecond line\n')
    (m / 'log').write_text('one\n')

    def apply(*record, **kw):
        name = r.add(*record, **kw)
        d.coterie('conflicts', 'apply', name)
        eq((r.dir / name).exists(), False, 'applied, and still there')

    apply(create(stat.S_IFREG | 0o4640), '/dir/new')
    st = (m / 'dir/new').stat()
    eq((stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid), (0o4640, 12, 34))
    apply(create(stat.S_IFDIR | 0o1770), '/dir/sub')
    eq(stat.S_IMODE((m / 'dir/sub').stat().st_mode), 0o1770)
    apply(create(stat.S_IFLNK | 0o777, bytes_('to where')), '/dir/link')
    eq(os.readlink(m / 'dir/link'), 'to where')
    apply(write([(0, 6, 0)], keep=0), '/dir/new', payload=b'bytes\n')
    eq((m / 'dir/new').read_text(), 'bytes\n')
    apply(write([(0, 5, 0), (11, 6, 0)]), '/file', payload=b'FIRSTSECOND')
    eq((m / 'file').read_text(), 'FIRST line\nSECOND line\n')
    apply(write([], keep=5, size=8), '/file')
    eq((m / 'file').read_bytes(), b'FIRST\0\0\0')
    apply(write([(0, 4, 0)], append=True), '/log', payload=b'two\n')
    eq((m / 'log').read_text(), 'one\ntwo\n')
    apply(head(6, varint(50) + varint(1 | 2 | 4 | 16) + varint(0o600) + varint(5) + varint(6) + time_(-7, 8)), '/log')
    st = (m / 'log').stat()
    eq((stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns), (0o600, 5, 6, -7_000_000_000 + 8))
    apply(head(8, varint(50) + bytes_('user.note') + bytes_('value') + varint(0)), '/log')
    eq(os.getxattr(m / 'log', 'user.note'), b'value')
    apply(head(9, varint(50) + bytes_('user.note')), '/log')
    eq(os.listxattr(m / 'log'), [])
    apply(head(2, varint(50) + varint(1) + bytes_('again')), '/log', '/dir/again')
    eq((m / 'dir/again').stat().st_ino, (m / 'log').stat().st_ino)
    apply(head(5, varint(1) + bytes_('log') + svarint(0) + bytes_('moved') + varint(0)), '/log', '/dir/moved')
    eq((m / 'log').exists(), False)
    apply(head(3, varint(1) + bytes_('moved')), '/dir/moved')
    apply(head(4, varint(1) + bytes_('sub')), '/dir/sub')
    eq(sorted(p.name for p in (m / 'dir').iterdir()), ['again', 'link', 'new'])
    apply(head(12, bytes_('file_size_max') + bytes_('33554432')))
    eq(d.coterie('get', 'file_size_max').stdout.strip(), '33554432')


@test
def what_does_not_fit_stays(t):
    d = t.daemon()
    r = Records(d.db)
    (d.mnt / 'here').write_text('precious')
    (d.mnt / 'out').symlink_to('/tmp')
    (d.mnt / 'link').symlink_to('here')
    os.mkfifo(d.mnt / 'fi\x1bfo')
    records = [r.add(create(stat.S_IFREG | 0o644), '/here'), r.add(write([(0, 1, 0)]), '/not there', payload=b'x'),
               r.add(write([(0, 1, 0)]), '/link', payload=b'x'), r.add(create(stat.S_IFREG | 0o644), '/out/evil-%d' % os.getpid()),
               r.add(write([(0, 1, 0)]), '', payload=b'x'), r.add(create(stat.S_IFREG | 0o644), '/../evil'),
               r.add(write([(0, 1, 0)]), '/fi\x1bfo', payload=b'x')]
    for name in records:
        done = d.coterie('conflicts', 'apply', name, check=False)
        eq((name, done.returncode, done.stderr.count('\n')), (name, 1, 1), done.stderr)
        eq('\x1b' in done.stderr, False, done.stderr)
        eq((r.dir / name).exists(), True)
    eq((d.mnt / 'here').read_text(), 'precious')
    fails(2, os.stat, '/tmp/evil-%d' % os.getpid())
    kept = r.add(create(stat.S_IFREG | 0o644), '/new')
    d.coterie('conflicts', 'apply', '--keep', kept)
    eq(((d.mnt / 'new').exists(), (r.dir / kept).exists()), (True, True))


@test
def differences(t):
    d = t.daemon()
    r = Records(d.db)
    (d.mnt / 'file').write_text('first line\nsecond line\n')
    name = r.add(write([(0, 5, 0)]), '/file', payload=b'FIRST')
    out = d.coterie('conflicts', 'diff', name).stdout
    eq([line for line in out.split('\n') if line[:1] in '+-' and line[1:2] not in '+-'][:2], ['-first line', '+FIRST line'], out)
    gone = r.add(write([(0, 4, 0)], keep=0), '/gone', payload=b'text')
    eq('+text' in d.coterie('conflicts', 'diff', gone).stdout, True)
    made = r.add(create(stat.S_IFREG | 0o644), '/made')
    eq('create file, mode 0644, owner 12:34' in d.coterie('conflicts', 'diff', made).stdout, True)
    eq((d.mnt / 'file').read_text(), 'first line\nsecond line\n')
