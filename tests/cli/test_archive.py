"""backup, restore, dump, load: what went in comes out, at one position of the history, and damage is noticed."""
import hashlib
import io
import json
import os
import socket
import stat
import subprocess
import tarfile
import threading
import time
from pathlib import Path

from compare_trees import compare
from daemon import BIN, Daemon
from harness import at_least, eq, test


def set_acl(path, *entries, default=False):
    subprocess.run(['setfacl', *(['-d'] if default else []), '-m', ','.join(entries), str(path)], check=True)


def acl_of(path):
    done = subprocess.run(['getfacl', '-n', '-c', '-p', str(path)], check=True, capture_output=True, text=True)
    return done.stdout.split()


def make_tree(root):
    """All that a directory can hold."""
    root = os.fsencode(root)
    names = [b'plain', b'with space', b'new\nline', b'-dash', b'\xff\xfe not UTF-8', 'Ümläut'.encode(), b'back\\slash', b'*?["\'', b'x' * 255]
    for i, name in enumerate(names):
        with open(os.path.join(root, name), 'wb') as f:
            f.write(name * (1000 * i))
        os.chmod(os.path.join(root, name), 0o600 + i)
        os.utime(os.path.join(root, name), ns=(-3_000_000_000 + i, 5_000_000_000_123_456_789 + i))
    os.chown(os.path.join(root, b'plain'), 12345, 4_000_000_000)
    os.chmod(os.path.join(root, b'plain'), 0o6755)
    deep = root
    for i in range(40):
        deep = os.path.join(deep, b'directory-%d' % i)
        os.mkdir(deep)
    os.chmod(deep, 0o1777)
    os.link(os.path.join(root, b'plain'), os.path.join(deep, b'another name'))
    os.symlink(b'../no where\xff', os.path.join(root, b'symlink'))
    os.symlink(b'plain', os.path.join(deep, b'link with names'))
    os.link(os.path.join(deep, b'link with names'), os.path.join(root, b'the same symlink'), follow_symlinks=False)
    os.utime(os.path.join(root, b'symlink'), ns=(1, 2), follow_symlinks=False)
    os.mkfifo(os.path.join(root, b'fifo'), 0o640)
    os.mknod(os.path.join(root, b'char'), stat.S_IFCHR | 0o600, os.makedev(1, 300))
    os.mknod(os.path.join(root, b'block'), stat.S_IFBLK | 0o600, os.makedev(259, 1))
    os.mkdir(os.path.join(root, b'empty'))
    open(os.path.join(root, b'empty file'), 'wb').close()
    with open(os.path.join(root, b'sparse'), 'wb') as f:
        f.truncate(9_000_001)
        f.seek(3 << 20)
        f.write(b'in the middle')
    with open(os.path.join(root, b'hole'), 'wb') as f:
        f.truncate(1 << 20)
    os.setxattr(os.path.join(root, b'sparse'), b'user.comment', b'with \0 and \xff')
    os.setxattr(os.path.join(root, b'sparse'), b'trusted.large', os.urandom(30_000))
    os.setxattr(os.path.join(root, b'empty'), b'user.on-directory', b'')
    set_acl(os.fsdecode(os.path.join(root, b'with space')), 'u:1:r', 'g:2:rw', 'm::rw')
    set_acl(os.fsdecode(os.path.join(root, b'empty')), 'u:70000:rwx', default=True)
    set_acl(os.fsdecode(os.path.join(root, b'empty')), 'u:3:x')
    os.utime(root, ns=(11, 1_600_000_000_000_000_007))


def attributes(root):
    """What compare_trees does not look at."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(root)):
        for name in [b'.'] + names + files:
            path = os.path.join(directory, name)
            st = os.lstat(path)
            facts = {'atime': st.st_atime_ns, 'blocks': st.st_blocks if stat.S_ISREG(st.st_mode) else 0}
            if not stat.S_ISLNK(st.st_mode):
                facts['xattrs'] = {n: os.getxattr(path, n) for n in os.listxattr(path)}
                facts['acl'] = acl_of(os.fsdecode(path)) if stat.S_ISDIR(st.st_mode) or stat.S_ISREG(st.st_mode) else []
            found[os.path.relpath(path, os.fsencode(root))] = facts
    return found


def same_tree(a, b):
    _, differences = compare(os.fsencode(a), os.fsencode(b))
    eq(differences[:5], [])
    x, y = attributes(a), attributes(b)
    for path in x:
        eq(y[path], x[path], path)


def run(*argv, **kw):
    return subprocess.run([str(BIN / 'coterie'), *map(str, argv)], capture_output=True, stdin=kw.pop('stdin', subprocess.DEVNULL), **kw)




@test
def dump_and_load(t):
    d = t.daemon('one')
    make_tree(d.mnt)
    archive = t.dir / 'tree.tar'
    told = json.loads(d.coterie('dump', archive, '--json').stdout)
    eq(stat.S_IMODE(archive.stat().st_mode), 0o600)
    eq((told['links'], told['left_out'], told['symlinks']), (2, 0, 2))
    two = t.daemon('two')
    loaded = json.loads(two.coterie('load', archive, '--json').stdout)
    eq({k: loaded[k] for k in ('files', 'directories', 'symlinks', 'others', 'links')},
       {k: told[k] for k in ('files', 'directories', 'symlinks', 'others', 'links')})
    same_tree(d.mnt, two.mnt)
    at_least(3 << 20, archive.stat().st_size, 'holes take no room in the archive')
    again = t.dir / 'again.tar'
    two.coterie('dump', again)
    eq(tar_facts(again), tar_facts(archive), 'a dump of what was loaded')


def tar_facts(path):
    facts = {}
    with tarfile.open(path, encoding='utf-8', errors='surrogateescape') as tar:
        for m in tar:
            content = hashlib.sha256(tar.extractfile(m).read()).hexdigest() if m.isreg() else ''
            facts[m.name] = (m.mode, m.uid, m.gid, m.type, content)
    return facts


@test
def other_tars(t):
    """GNU tar reads what we write, and we read what it writes."""
    d = t.daemon('one')
    make_tree(d.mnt)
    dump = run('--run-dir', d.run_dir, 'dump').stdout
    there = t.dir / 'there'
    there.mkdir()
    subprocess.run(['tar', '-x', '--xattrs', '--xattrs-include=*', '--acls', '-p', '--numeric-owner', '-C', str(there)], input=dump, check=True)
    _, differences = compare(os.fsencode(d.mnt), os.fsencode(there))
    eq(differences[:5], [])
    eq(os.getxattr(there / 'sparse', 'user.comment'), b'with \0 and \xff')
    eq(acl_of(there / 'with space'), acl_of(d.mnt / 'with space'))
    gnu = subprocess.run(['tar', '-c', '--format=pax', '--xattrs', '--acls', '-S', '-z', '-C', str(there), '.'], capture_output=True, check=True).stdout
    two = t.daemon('two')
    (t.dir / 'gnu.tar.gz').write_bytes(gnu)
    two.coterie('load', t.dir / 'gnu.tar.gz')
    _, differences = compare(os.fsencode(d.mnt), os.fsencode(two.mnt))
    eq(differences[:5], [])


@test
def sockets_are_left_out(t):
    d = t.daemon()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(d.mnt / 'socket'))
    done = d.coterie('dump', t.dir / 'a.tar')
    eq('1 sockets left out' in done.stdout, True, done.stdout)
    with tarfile.open(t.dir / 'a.tar') as tar:
        eq(tar.getnames(), ['.'])
    d.coterie('backup', t.dir / 'a.backup')
    run('restore', t.dir / 'a.backup', '--db', t.dir / 'r' / 'tree.db')


@test
def load_refuses(t):
    d = t.daemon()
    (d.mnt / 'here').write_text('mine')
    d.coterie('dump', t.dir / 'a.tar')
    done = d.coterie('load', t.dir / 'a.tar', check=False)
    eq((done.returncode, 'is not empty' in done.stderr), (1, True), done.stderr)
    eq(run('--run-dir', d.run_dir, 'dump', t.dir / 'a.tar').returncode, 1, 'an archive is not overwritten')
    (d.mnt / 'here').write_text('changed')
    (d.mnt / 'there').write_text('stays')
    d.coterie('load', '--merge', t.dir / 'a.tar')
    eq((d.mnt / 'here').read_text(), 'mine')
    eq((d.mnt / 'there').read_text(), 'stays')
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode='w') as tar:
        for name in ('../outside', '/tmp/absolute-%d' % os.getpid()):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b'evil'))
        for name, kind, target in (('out', tarfile.SYMTYPE, '/tmp'), ('hard', tarfile.LNKTYPE, '/etc/passwd'),
                                   ('hard', tarfile.LNKTYPE, '../../../etc/passwd')):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
        info = tarfile.TarInfo('out/through-%d' % os.getpid())
        info.size = 4
        tar.addfile(info, io.BytesIO(b'evil'))
        info = tarfile.TarInfo('only/implied/file')
        tar.addfile(info)
    (t.dir / 'evil.tar').write_bytes(evil.getvalue())
    done = d.coterie('load', '--merge', t.dir / 'evil.tar', check=False)
    eq(done.returncode, 1)
    eq((d.base / 'outside').exists(), False)
    eq(Path('/tmp/absolute-%d' % os.getpid()).exists(), False)
    eq((Path('/tmp/through-%d' % os.getpid()).exists(), (d.mnt / 'hard').exists()), (False, False))
    eq(stat.S_IMODE((d.mnt / 'only/implied').stat().st_mode) & 0o022, 0, 'who an archive does not name may not write')
    (t.dir / 'cut.tar').write_bytes((t.dir / 'a.tar').read_bytes()[:700])
    eq(d.coterie('load', '--merge', t.dir / 'cut.tar', check=False).returncode, 1)
    sound = (t.dir / 'a.tar').read_bytes().rstrip(b'\0')
    (t.dir / 'cut.tar').write_bytes(sound + bytes(-len(sound) % 512))  # between two entries
    done = d.coterie('load', '--merge', t.dir / 'cut.tar', check=False)
    eq((done.returncode, 'no end mark' in done.stderr), (1, True), done.stderr)
    for junk in (os.urandom(5000), b''):
        (t.dir / 'junk').write_bytes(junk)
        done = d.coterie('load', '--merge', t.dir / 'junk', check=False)
        eq((done.returncode, 'Unrecognized archive format' in done.stderr), (1, True), done.stderr)


@test
def load_goes_on_behind_what_does_not_fit(t):
    d = t.daemon()
    with tarfile.open(t.dir / 'a.tar', 'w') as tar:
        for name, size in (('directory', 0), ('directory/too large', 17 << 20), ('directory/small', 5)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime, info.size = (tarfile.REGTYPE if size else tarfile.DIRTYPE), 0o750, 1000000000, size
            tar.addfile(info, io.BytesIO(bytes(size)))
    done = d.coterie('load', t.dir / 'a.tar', check=False)
    eq((done.returncode, done.stderr.splitlines()[0]), (1, 'coterie load: "directory/too large": Write failed: File too large'))
    eq((d.mnt / 'directory/small').read_bytes(), bytes(5))
    st = (d.mnt / 'directory').stat()
    eq((stat.S_IMODE(st.st_mode), st.st_mtime), (0o750, 1000000000))


@test
def backup_and_restore(t):
    d = t.daemon('one')
    make_tree(d.mnt)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(d.mnt / 'socket'))
    d.coterie('set', 'file_size_max=33M')
    file = t.dir / 'all.backup'
    told = json.loads(d.coterie('backup', file, '--json').stdout)
    eq(stat.S_IMODE(file.stat().st_mode), 0o600)
    eq(told['digest'], d.status()['digest'])
    eq(told['sequence'], d.status()['sequence'])
    eq([p.name for p in t.dir.glob('all.backup*')], ['all.backup'])
    before = {os.fsencode(p): os.lstat(p) for p in d.mnt.iterdir()}
    other = t.dir / 'other'
    other.mkdir()
    made = json.loads(run('restore', file, '--db', other / 'tree.db', '--json', check=True).stdout)
    eq(made['digest'], told['digest'])
    eq(json.loads(run('check', other / 'tree.db', '--json', check=True).stdout)['digest'], told['digest'])
    for path in other.iterdir():
        eq(stat.S_IMODE(path.stat().st_mode) & 0o077, 0, path)
    two = t.daemon('two', db=other / 'tree.db')
    same_tree(d.mnt, two.mnt)
    for path, st in before.items():
        there = os.lstat(os.path.join(os.fsencode(two.mnt), os.path.basename(path)))
        eq((there.st_ctime_ns, there.st_ino), (st.st_ctime_ns, st.st_ino), path)
    eq(two.coterie('get', 'file_size_max').stdout.strip(), str(33 << 20))
    (two.mnt / 'more').write_text('life goes on')
    two.stop()
    eq(two.check().returncode, 0)
    two.start()
    eq((two.mnt / 'more').read_text(), 'life goes on')
    dump = t.dir / 'from.tar'
    run('dump', dump, '--from', file, check=True)
    d.coterie('dump', t.dir / 'live.tar')
    eq(tar_facts(dump), tar_facts(t.dir / 'live.tar'))


@test
def nothing_is_overwritten(t):
    d = t.daemon()
    file = t.dir / 'a.backup'
    d.coterie('backup', file)
    old = file.read_bytes()
    (d.mnt / 'new').write_text('new')
    done = d.coterie('backup', file, check=False)
    eq((done.returncode, 'is there already' in done.stderr), (1, True), done.stderr)
    eq(file.read_bytes(), old)
    d.coterie('backup', file, '--replace')
    eq(file.read_bytes() != old, True)
    for name in ('tree.db', 'tree.db-oplog', 'tree.db-content'):
        place = t.dir / name.replace('.', '_')
        place.mkdir()
        (place / name).write_bytes(b'precious')
        done = run('restore', file, '--db', place / 'tree.db')
        eq((done.returncode, b'nothing is overwritten' in done.stderr), (1, True), done.stderr)
        eq([(p.name, p.read_bytes()) for p in place.iterdir()], [(name, b'precious')])
    # What an interrupted backup left is in nobody's way.
    (t.dir / 'b.backup.partial').write_bytes(b'half')
    d.coterie('backup', t.dir / 'b.backup')
    eq(sorted(p.name for p in t.dir.glob('b.backup*')), ['b.backup'])


@test
def damage_is_noticed(t):
    d = t.daemon()
    (d.mnt / 'random').write_bytes(os.urandom(300_000))
    (d.mnt / 'text').write_text('line\n' * 10_000)
    file = t.dir / 'a.backup'
    d.coterie('backup', file)
    good = file.read_bytes()
    bad = t.dir / 'bad.backup'
    step = len(good) // 60
    for at in [0, 9, 12, 20, 40, 60, 64, 68, len(good) - 1, len(good) - 20, len(good) - 30] + list(range(70, len(good), step)):
        bad.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1:])
        done = run('restore', bad, '--db', t.dir / 'x.db')
        eq((at, done.returncode, done.stderr.count(b'\n')), (at, 1, 1), done.stderr)
    for n in (0, 10, 64, 70, len(good) // 2, len(good) - 24, len(good) - 1):
        bad.write_bytes(good[:n])
        eq((n, run('restore', bad, '--db', t.dir / 'x.db').returncode), (n, 1))
    bad.write_bytes(good + b'x')
    eq(run('restore', bad, '--db', t.dir / 'x.db').returncode, 1)
    newer = bytearray(good)
    newer[8] = 9
    bad.write_bytes(newer)
    done = run('restore', bad, '--db', t.dir / 'x.db')
    eq(b'version 9' in done.stderr, True, done.stderr)
    eq(list(t.dir.glob('x.db*')), [])


@test
def one_position(t):
    """Two files change one after the other: in every backup the first is the newer one, by one at most."""
    d = t.daemon()
    for name in 'ab':
        (d.mnt / name).write_text('0')
    (d.mnt / 'large').write_bytes(os.urandom(8 << 20))
    stop = threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            n += 1
            for name in 'ab':
                (d.mnt / 'tmp').write_text('%d' % n)
                os.rename(d.mnt / 'tmp', d.mnt / name)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for i in range(8):
            with tarfile.open(fileobj=io.BytesIO(run('--run-dir', d.run_dir, 'dump', check=True).stdout)) as tar:
                a, b = (int(tar.extractfile('./' + name).read()) for name in 'ab')
            eq(a - b in (0, 1), True, '%d and %d' % (a, b))
    finally:
        stop.set()
        writer.join()
    t.note('the last dump had %d of the first file' % a)


@test
def what_is_not_closed_yet_belongs_to_it(t):
    d = t.daemon(options=['--gather-time', '60s'])
    f = open(d.mnt / 'open', 'w')
    f.write('gathered')
    f.flush()
    with tarfile.open(fileobj=io.BytesIO(run('--run-dir', d.run_dir, 'dump', check=True).stdout)) as tar:
        eq(tar.extractfile('./open').read(), b'gathered')
    f.close()


@test
def one_at_a_time(t):
    d = t.daemon()
    token = json.loads(d.ask('image', 'begin'))['token']
    done = d.coterie('backup', t.dir / 'a.backup', check=False)
    eq((done.returncode, 'another backup or dump' in done.stderr), (1, True), done.stderr)
    eq(list(t.dir.glob('a.backup*')), [])
    d.ask('image', 'end', token)
    d.coterie('backup', t.dir / 'a.backup')
    d.ask('image', 'begin')  # its client is interrupted
    time.sleep(11)
    d.coterie('backup', t.dir / 'c.backup')
    d.ask('image', 'begin')  # the daemon ends with a frozen image
    d.stop()
    done = d.coterie('backup', t.dir / 'b.backup', check=False)
    eq(done.returncode, 3)
