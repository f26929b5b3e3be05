"""What attributes owe: modes, owners, permissions, times, xattrs, sizes as stat and statfs tell them; and that all survives a restart. The
same tests pass on ext4 (run.py --on ext4)."""
import errno
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

from files import get, put, tree_of
from harness import at_least, at_most, eq, fails, test
from syscalls import as_user


@test
def chmod_and_chown(t):
    put(t.tree / 'f')
    before = os.stat(t.tree / 'f')
    time.sleep(0.01)
    for mode in (0o000, 0o777, 0o7777, 0o1644):
        os.chmod(t.tree / 'f', mode)
        eq(oct(stat.S_IMODE(os.stat(t.tree / 'f').st_mode)), oct(mode))
    after = os.stat(t.tree / 'f')
    eq(after.st_mtime_ns, before.st_mtime_ns)
    at_least(after.st_ctime_ns, before.st_ctime_ns + 1, 'ctime')
    os.chown(t.tree / 'f', 4294967294, 65534)
    eq((os.stat(t.tree / 'f').st_uid, os.stat(t.tree / 'f').st_gid), (4294967294, 65534))
    os.chown(t.tree / 'f', -1, 7)
    eq((os.stat(t.tree / 'f').st_uid, os.stat(t.tree / 'f').st_gid), (4294967294, 7))
    os.mkdir(t.tree / 'd')
    os.chmod(t.tree / 'd', 0o2755)
    os.chown(t.tree / 'd', 0, 42)
    put(t.tree / 'd' / 'child')
    os.mkdir(t.tree / 'd' / 'sub')
    eq((os.stat(t.tree / 'd' / 'child').st_gid, os.stat(t.tree / 'd' / 'sub').st_gid), (42, 42))
    eq(oct(stat.S_IMODE(os.stat(t.tree / 'd' / 'sub').st_mode)), oct(0o2755))


@test
def chown_drops_setuid(t):
    put(t.tree / 'f', b'#!/bin/sh\n')
    os.chmod(t.tree / 'f', 0o6755)
    os.chown(t.tree / 'f', 1000, 1000)
    eq(oct(stat.S_IMODE(os.stat(t.tree / 'f').st_mode)), oct(0o755))


@test
def write_by_another_user_drops_setuid(t):
    for name, change in (('write', lambda fd: os.write(fd, b'x')), ('truncate', lambda fd: os.ftruncate(fd, 2))):
        path = put(t.tree / name, b'12345')
        os.chmod(path, 0o6777)

        def other():
            fd = os.open(path, os.O_WRONLY)
            change(fd)
            os.close(fd)
        as_user(65534, other)
        eq(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(0o777), name)
        os.chmod(path, 0o6777)
        fd = os.open(path, os.O_WRONLY)
        change(fd)
        os.close(fd)
        eq(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(0o6777), name + ' by root')


@test
def permissions_of_other_users(t):
    put(t.tree / 'secret', b's', 0o600)
    put(t.tree / 'group', b'g', 0o640)
    os.chown(t.tree / 'group', 0, 4242)
    os.mkdir(t.tree / 'closed', 0o700)
    put(t.tree / 'closed' / 'f')
    fails(errno.EACCES, as_user, 65534, lambda: len(get(t.tree / 'secret')))
    eq(as_user(65534, lambda: len(get(t.tree / 'group')), groups=[4242]), 1)
    fails(errno.EACCES, as_user, 65534, lambda: len(get(t.tree / 'group')))
    fails(errno.EACCES, as_user, 65534, lambda: os.stat(t.tree / 'closed' / 'f').st_size)
    fails(errno.EACCES, as_user, 65534, lambda: os.mkdir(t.tree / 'mine'))
    fails(errno.EPERM, as_user, 65534, lambda: os.chmod(t.tree / 'group', 0o777))
    os.mkdir(t.tree / 'shared')
    os.chmod(t.tree / 'shared', 0o1777)
    put(t.tree / 'shared' / 'roots')
    as_user(65534, lambda: os.mkdir(t.tree / 'shared' / 'theirs'))
    eq(os.stat(t.tree / 'shared' / 'theirs').st_uid, 65534)
    fails(errno.EPERM, as_user, 65534, lambda: os.unlink(t.tree / 'shared' / 'roots'))
    fails(errno.EPERM, as_user, 65534, lambda: os.rename(t.tree / 'shared' / 'roots', t.tree / 'shared' / 'x'))
    as_user(65534, lambda: os.rmdir(t.tree / 'shared' / 'theirs'))


@test
def times_of_any_century(t):
    path = put(t.tree / 'f')
    os.mkdir(t.tree / 'd')
    os.symlink('x', t.tree / 'l')
    moments = [(0, 0), (-315619200, 123456789), (4417977600, 999999999), (1, 1), (-1, 999999999)]  # 1960 and 2110 among them
    for seconds, nanoseconds in moments:
        ns = seconds * 10**9 + nanoseconds
        for name in ('f', 'd', 'l'):
            os.utime(t.tree / name, ns=(ns + 5 * 10**9, ns), follow_symlinks=False)
            st = os.lstat(t.tree / name)
            eq((st.st_mtime_ns, st.st_atime_ns), (ns, ns + 5 * 10**9), name)
    before = time.time_ns()
    os.utime(path)
    at_most(abs(os.stat(path).st_mtime_ns - before), 10**9, 'utime to now, distance')
    fd = os.open(path, os.O_RDWR)
    os.utime(fd, ns=(7, 8))
    eq((os.fstat(fd).st_atime_ns, os.stat(path).st_mtime_ns), (7, 8))
    os.close(fd)


@test
def times_move_as_they_should(t):
    path = put(t.tree / 'f', b'abc')

    def old():
        for name in ('f', '.'):
            os.utime(t.tree / name, ns=(10**9, 10**9))

    def moved(what):
        now = [os.stat(t.tree / name).st_mtime_ns != 10**9 for name in ('f', '.')]
        eq(now, what)
    old()
    os.chmod(path, 0o600)
    moved([False, False])
    put(t.tree / 'g')
    moved([False, True])
    old()
    os.unlink(t.tree / 'g')
    moved([False, True])
    old()
    os.rename(path, t.tree / 'h')
    os.rename(t.tree / 'h', path)
    moved([False, True])
    old()
    os.link(path, t.tree / 'k')
    moved([False, True])
    old()
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b'X')
    os.close(fd)
    moved([True, False])
    old()
    os.truncate(path, 1)
    moved([True, False])
    old()
    ctime = os.stat(path).st_ctime_ns
    time.sleep(0.01)
    os.link(path, t.tree / 'm')
    at_least(os.stat(path).st_ctime_ns, ctime + 1, 'ctime after link')


@test
def access(t):
    put(t.tree / 'x', b'#!/bin/sh\nexit 7\n', 0o755)
    eq(os.access(t.tree / 'x', os.X_OK), True)
    os.chmod(t.tree / 'x', 0o644)
    eq(os.access(t.tree / 'x', os.X_OK), False)
    eq(as_user(65534, lambda: os.access(t.tree / 'x', os.W_OK)), False)


@test
def programs_run(t):
    import subprocess
    put(t.tree / 'script', b'#!/bin/sh\nexit 7\n', 0o755)
    eq(subprocess.run([t.tree / 'script']).returncode, 7)
    with open('/bin/true', 'rb') as f:
        put(t.tree / 'binary', f.read(), 0o755)
    eq(subprocess.run([t.tree / 'binary']).returncode, 0)


@test
def blocks_and_statfs(t):
    put(t.tree / 'f', b'x' * 10000)
    st = os.stat(t.tree / 'f')
    at_least(st.st_blocks * 512, 10000, 'st_blocks x 512')
    at_most(st.st_blocks * 512, 10000 + 4096, 'st_blocks x 512')
    put(t.tree / 'empty')
    eq(os.stat(t.tree / 'empty').st_blocks, 0)
    v = os.statvfs(t.tree)
    eq(v.f_namemax, 255)
    at_most(v.f_bfree, v.f_blocks, 'free blocks')
    at_most(v.f_ffree, v.f_files, 'free inodes')


@test
def statfs_is_what_is_enforced(t):
    t.on_coterie()
    before = os.statvfs(t.tree)
    eq(before.f_blocks * before.f_frsize, 1 << 30)
    eq(before.f_files, 1 << 20)
    put(t.tree / 'f', b'x' * (1 << 20))
    os.mkdir(t.tree / 'd')
    after = os.statvfs(t.tree)
    used = (before.f_bfree - after.f_bfree) * before.f_frsize
    at_least(used, 1 << 20, 'space a MiB takes')
    at_most(used, (1 << 20) + 65536, 'space a MiB takes')
    eq(before.f_ffree - after.f_ffree, 2)
    fails(errno.EFBIG, os.truncate, t.tree / 'f', (16 << 20) + 1)
    os.truncate(t.tree / 'f', 16 << 20)
    fd = os.open(t.tree / 'f', os.O_WRONLY)
    fails(errno.EFBIG, os.pwrite, fd, b'x', 16 << 20)
    os.close(fd)
    eq(os.stat(t.tree / 'f').st_size, 16 << 20)


@test
def extended_attributes(t):
    path = put(t.tree / 'f')
    os.setxattr(path, 'user.a', b'1')
    os.setxattr(path, 'user.empty', b'')
    os.setxattr(path, 'trusted.t', b'\0\xff')
    eq(sorted(os.listxattr(path)), ['trusted.t', 'user.a', 'user.empty'])
    eq((os.getxattr(path, 'user.a'), os.getxattr(path, 'user.empty'), os.getxattr(path, 'trusted.t')), (b'1', b'', b'\0\xff'))
    fails(errno.EEXIST, os.setxattr, path, 'user.a', b'2', os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, path, 'user.b', b'2', os.XATTR_REPLACE)
    os.setxattr(path, 'user.a', b'2', os.XATTR_REPLACE)
    eq(os.getxattr(path, 'user.a'), b'2')
    os.removexattr(path, 'user.a')
    fails(errno.ENODATA, os.getxattr, path, 'user.a')
    fails(errno.ENODATA, os.removexattr, path, 'user.a')
    fails(errno.ERANGE, os.setxattr, path, 'user.' + 'n' * 251, b'')
    os.setxattr(path, 'user.' + 'n' * 250, b'v')
    fails(errno.EOPNOTSUPP, os.setxattr, path, 'bad.name', b'v')
    os.symlink('f', t.tree / 'l')
    fails(errno.EPERM, os.setxattr, t.tree / 'l', 'user.x', b'v', follow_symlinks=False)


@test
def everything_survives_a_restart(t):
    t.on_coterie()
    root = t.tree
    put(root / 'f', b'content')
    os.mkdir(root / 'd', 0o750)
    put(root / 'd' / 'big', bytes(range(256)) * 2000, 0o600)
    os.link(root / 'f', root / 'd' / 'hard')
    os.symlink('../f', root / 'd' / 'soft')
    os.mkfifo(root / 'fifo')
    os.mknod(root / 'dev', stat.S_IFBLK | 0o600, os.makedev(8, 1))
    os.setxattr(root / 'f', 'user.k', b'v')
    os.chown(root / 'd', 5, 6)
    os.utime(root / 'f', ns=(-5 * 10**9 + 3, 4417977600 * 10**9 + 1))
    with_all = tree_of(root)
    d = t.daemons[0]
    d.stop()
    eq(d.check().returncode, 0, 'coterie check')
    d.start()
    eq(tree_of(root), with_all)


def fill(directory, size):
    """Makes files of this size until there is no room; returns how many."""
    n = 0
    while n < 10000:
        try:
            put(directory / ('fill-%d' % n), os.urandom(size))
        except OSError as e:
            eq(e.errno, errno.ENOSPC, 'errno when it is full')
            return n
        n += 1
    raise AssertionError('there is no end')


@test
def the_tree_is_as_large_as_df_says(t):
    t.on_coterie()
    eq(os.listdir(t.tree), [])
    d = t.daemons[0]
    d.coterie('set', 'tree_size_max=4M', 'inodes_max=100')
    before = os.statvfs(t.tree)
    eq((before.f_blocks * before.f_frsize, before.f_files), (4 << 20, 100))
    n = fill(t.tree, 100000)
    after = os.statvfs(t.tree)
    at_most(abs(n - before.f_bavail * before.f_frsize // 100000), 1, 'files of 100,000 bytes, distance from what df promised')
    at_most(after.f_bavail * after.f_frsize, 110000, 'room left when nothing more fits')
    fails(errno.ENOSPC, os.posix_fallocate, os.open(t.tree / 'fill-0', os.O_WRONLY), 0, 4 << 20)
    os.unlink(t.tree / 'fill-0')
    put(t.tree / 'again', os.urandom(100000))
    for i in range(1, n + 1):  # the last one was made, but not filled
        os.unlink(t.tree / ('fill-%d' % i))
    free = os.statvfs(t.tree).f_ffree
    eq(fill(t.tree, 0), free, 'inodes')
    eq(os.statvfs(t.tree).f_ffree, 0)
    fails(errno.ENOSPC, os.mkdir, t.tree / 'd')
    fails(errno.ENOSPC, os.symlink, 'x', t.tree / 'l')
    os.link(t.tree / 'again', t.tree / 'a second name takes no inode')
    d.coterie('set', 'inodes_max=')
    os.mkdir(t.tree / 'd')


@test
def devices_and_setuid_programs_where_allowed(t):
    """Mounted with dev and suid, both do what they do elsewhere; without, neither does."""
    for options in ([], ['-o', 'dev,suid']):
        if t.target == 'coterie':
            root = t.daemon('allowed' if options else 'plain', options=options).mnt
        else:
            root = Path(t.image('allowed' if options else 'plain', 1 << 26, mount_options='' if options else 'nosuid,nodev').directory)
            os.chmod(root, 0o755)
        os.mknod(root / 'null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
        shutil.copy('/usr/bin/id', root / 'id')
        os.chmod(root / 'id', 0o4755)
        uid = as_user(1004, lambda: subprocess.run([root / 'id', '-u'], capture_output=True, text=True).stdout.strip())
        if options:
            eq(uid, '0', 'effective user of a setuid program')
            eq(Path(root / 'null').read_bytes(), b'')
        else:
            eq(uid, '1004', 'effective user of a setuid program')
            fails(errno.EACCES, os.open, root / 'null', os.O_RDONLY)
