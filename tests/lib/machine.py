"""What a test needs of the machine: rights, FUSE, loop devices, filesystems in images, and the block device's own counters.

Whatever is missing raises Skip with the reason. Nothing here outlives its Image object.
"""
import ctypes
import os
import shutil
import subprocess
import time

libc = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """The machine lacks something; the text says what."""


def need_root():
    if os.geteuid() != 0:
        raise Skip('needs root (mounts and other users)')


def need_plain_build(daemon, why):
    """Some figures are of the program alone; a sanitizer has its own."""
    with open('/proc/%d/maps' % daemon.pid) as f:
        maps = f.read()
    if 'libasan' in maps or 'libtsan' in maps:
        raise Skip(why)


def need_fuse():
    need_root()
    try:
        fd = os.open('/dev/fuse', os.O_RDWR)
    except OSError as e:
        raise Skip('needs FUSE: /dev/fuse: %s' % e.strerror) from None
    device = os.fstat(fd).st_rdev
    os.close(fd)
    if device != os.makedev(10, 229):
        raise Skip('needs FUSE: /dev/fuse is another device')


def need_program(*names):
    for name in names:
        if not shutil.which(name):
            raise Skip('needs the program %s' % name)


def need_loop():
    need_root()
    need_program('losetup', 'mkfs.ext4')
    if not os.path.exists('/dev/loop-control'):
        raise Skip('needs loop devices: no /dev/loop-control')
    done = subprocess.run(['losetup', '--find'], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip('needs loop devices: %s' % done.stderr.strip())


def run(*argv, check=True, timeout=60, **kw):
    """Runs a command; its output is in the result. A failing one raises with what it printed."""
    done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **kw)
    if check and done.returncode != 0:
        raise AssertionError('%s: exit %d: %s' % (' '.join(map(str, argv)), done.returncode, (done.stderr + done.stdout).strip()[-2000:]))
    return done


def syncfs(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), 'syncfs ' + str(path))
    finally:
        os.close(fd)


def image_directory():
    """Where images are made; the harness names a place in memory if there is room."""
    return os.environ.get('COTERIE_IMAGES') or os.environ.get('TMPDIR', '/tmp')


MKFS = {
    'ext4': ['mkfs.ext4', '-q', '-F', '-b', '4096', '-E', 'lazy_itable_init=0,lazy_journal_init=0'],
    'xfs': ['mkfs.xfs', '-q', '-f'],
    'btrfs': ['mkfs.btrfs', '-q', '-f'],
}


class Counters:
    """Of a block device, from the kernel: bytes written and flushes since it was set up."""

    def __init__(self, device):
        with open('/sys/block/%s/stat' % os.path.basename(device)) as f:
            v = [int(x) for x in f.read().split()]
        self.written = v[6] * 512
        self.writes = v[4]
        self.in_flight = v[8]
        self.flushes = v[15] if len(v) > 15 else 0

    def __sub__(self, other):
        diff = object.__new__(Counters)
        for name in ('written', 'writes', 'in_flight', 'flushes'):
            setattr(diff, name, getattr(self, name) - getattr(other, name))
        return diff


class Image:
    """A filesystem in a file, mounted through a loop device of its own."""

    def __init__(self, directory, size, fs='ext4', mkfs_options=(), mount_options='', path=None, journal_mib=0):
        """journal_mib: an ext4 journal on a loop device of its own, so that its bytes are counted apart."""
        need_loop()
        if fs not in MKFS:
            raise ValueError('unknown filesystem %r' % fs)
        need_program(MKFS[fs][0])
        self.fs, self.mounted, self.journal = fs, None, None
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.owns = path is None
        self.path = path or '%s/coterie-image.%d.%d' % (image_directory(), os.getpid(), time.monotonic_ns())
        self.journal_path = self.path + '.journal'
        options = list(mkfs_options)
        try:
            if self.owns:
                self._allocate(self.path, size)
                if journal_mib:
                    self._allocate(self.journal_path, journal_mib << 20)
                    self.journal = run('losetup', '--find', '--show', self.journal_path).stdout.strip()
                    run('mkfs.ext4', '-q', '-F', '-b', '4096', '-O', 'journal_dev', self.journal)
                    options += ['-J', 'device=' + self.journal]
                run(*MKFS[fs], *options, self.path)
            self.mount(mount_options)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _allocate(path, size):
        with open(path, 'xb') as f:
            f.truncate(size)
        os.chmod(path, 0o600)

    def mount(self, options=''):
        run('mount', '-t', self.fs, '-o', ','.join(filter(None, ['loop', options])), self.path, self.directory)
        self.mounted = self.directory
        self.device = run('findmnt', '-n', '-o', 'SOURCE', '--mountpoint', self.directory).stdout.strip()
        syncfs(self.directory)

    def counters(self):
        return Counters(self.device)

    def journal_counters(self):
        return Counters(self.journal)

    def settle(self):
        """Everything that is dirty goes to the device, until it is quiet. XFS writes its inodes up to a minute later; freezing it would bring
        them at once, but changes how it goes on: it writes them every half minute from then on."""
        for _ in range(20):
            syncfs(self.directory)
            before = self.counters()
            time.sleep(0.02)
            if (self.counters() - before).writes == 0 and self.counters().in_flight == 0:
                return
        raise AssertionError('%s does not become quiet' % self.device)

    def snapshot(self, target):
        """Copies what the device has received up to now; tried again while it receives more."""
        for _ in range(100):
            before = self.counters()
            if before.in_flight == 0:
                run('cp', '--sparse=always', self.path, target)
                after = self.counters()
                if (after - before).writes == 0 and after.in_flight == 0:
                    return
            time.sleep(0.005)
        raise AssertionError('%s never pauses long enough to be copied' % self.device)

    def unmount(self):
        if self.mounted:
            if run('umount', self.directory, check=False).returncode != 0:
                run('umount', '-l', self.directory, check=False)
            self.mounted = None

    def close(self):
        self.unmount()
        if self.journal:
            run('losetup', '-d', self.journal, check=False)
            self.journal = None
        if self.owns:
            for path in (self.path, self.journal_path):
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
