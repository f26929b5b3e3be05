"""Nothing listens on the network but corosync, and what a file's mode hides is not to be had anywhere beside it."""
import os
import stat
import time

from harness import eq

ALL = (1, 2, 3)
SECRET = 'the-secret-that-nobody-else-may-read-'


def nothing_listens(c):
    c.wait_primary(ALL, 30, synced=3)
    for n in ALL:
        sockets = [line for line in c.inside(n, 'ss', '-H', '-lntup').stdout.splitlines() if line.strip()]
        eq([s for s in sockets if '"corosync"' not in s], [], 'sockets on the network of node %d' % n)
        eq(len(sockets) > 0, True)


def open_to_others(root, wanted=b''):
    """Files below that others may open, and of those: which hold the bytes."""
    found = []
    for directory, dirs, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            st = os.lstat(path)
            if stat.S_ISREG(st.st_mode) and st.st_mode & 0o077:
                with open(path, 'rb') as f:
                    if wanted in f.read():
                        found.append(path)
    return found


def modes(c):
    """Database, log, control socket, backups and what is left of a lost write: for root alone."""
    c.wait_primary(ALL, 30, synced=3)
    secret = c.mnt(1) / 'secret'
    secret.write_text(SECRET * 10)
    os.chmod(secret, 0o600)
    c.coterie(1, 'sync', '--checkpoint')
    c.coterie(1, 'backup', '/run/coterie-backup')
    c.coterie(1, 'dump', '/run/coterie-dump', check=False)
    for n in ALL:
        root = c.mnt(n).parent
        eq(open_to_others(root / 'var/lib/coterie'), [], 'files of the database')
        eq([p for p in open_to_others(root / 'run', SECRET.encode())], [], 'the secret in the run directory, a backup or a dump')
        eq(stat.S_IMODE(os.stat(root / 'run/coterie/control.sock').st_mode) & 0o007, 0)
        eq(stat.S_IMODE(os.stat(root / 'run/coterie/coteried.log').st_mode) & 0o077, 0)
    done = c.inside(1, 'setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', c.bin / 'coterie', 'status', check=False)
    eq(done.returncode != 0, True, 'a stranger asks the daemon')
    eq(c.inside(1, 'setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', 'cat', '/mnt/secret', check=False).returncode != 0, True)


def secrets_are_not_told(c):
    """What a cut-off node had written under a file's mode stays out of its log and its conflict records' files."""
    c.wait_primary(ALL, 30, synced=3)
    secret = c.mnt(3) / 'lost-secret'
    secret.write_text('x')
    os.chmod(secret, 0o600)
    c.script('partition', '3', '1,2')
    until = time.monotonic() + 6
    while time.monotonic() < until:  # the last ones before the ring breaks are applied there or refused
        try:
            secret.write_text(SECRET * 3)
        except OSError:
            break
    c.wait_primary((1, 2), 20, synced=2)
    (c.mnt(1) / 'lost-secret').write_text('y')
    c.script('heal')
    c.wait_primary(ALL, 30, synced=3)
    for n in ALL:
        root = c.mnt(n).parent
        for place in ('run', 'var/lib/coterie'):
            eq(open_to_others(root / place, SECRET.encode()), [])
        eq(SECRET in (root / 'run/coterie/coteried.log').read_text(errors='replace'), False)
        eq(SECRET in c.coterie(n, 'trace', check=False).stdout, False)
    c.wait_equal()


TESTS = [(nothing_listens, 60), (modes, 60), (secrets_are_not_told, 60)]
