"""A whole cluster comes back from a backup."""
import json

from harness import eq

ALL = (1, 2, 3)
DB = '/var/lib/coterie/tree.db'


def place(c, node):
    """The directory of the node's database, seen from here."""
    return c.mnt(node).parent / 'var/lib/coterie'


def cluster_from_a_backup(c):
    """A backup of one node makes a new cluster with the state at that position; the others receive it; a node of the old one is set aside."""
    c.wait_primary(ALL, 30, synced=3)
    for n in ALL:
        c.write(n, 'from-%d' % n, 'text %d' % n)
    c.coterie(2, 'set', 'file_size_max=33M')
    told = json.loads(c.coterie(3, 'backup', '/var/lib/coterie/all.backup', '--json').stdout)
    backup = (place(c, 3) / 'all.backup').read_bytes()
    c.write(1, 'later', 'not in the backup')
    c.coterie(1, 'stop')
    old = {p.name: p.read_bytes() for p in place(c, 1).iterdir() if p.name.startswith('tree.db')}

    c.down()
    c.script('up', c.count, '--no-daemon')
    (c.dir / 'daemon.options').write_text('')
    c.is_up = True
    (place(c, 2) / 'all.backup').write_bytes(backup)
    made = json.loads(c.coterie(2, 'restore', '/var/lib/coterie/all.backup', '--db', DB, '--json').stdout)
    eq(made['digest'], told['digest'])
    c.coterie(2, 'cluster', 'init', '--db', DB)
    for n in ALL:
        c.script('start', n, 'daemon')
    c.wait_primary(ALL, 60, synced=3)
    c.wait_equal()
    for n in ALL:
        eq([c.read(n, 'from-%d' % m) for m in ALL], ['text 1', 'text 2', 'text 3'])
        eq((c.mnt(n) / 'later').exists(), False)
        eq(c.coterie(n, 'get', 'file_size_max').stdout.strip(), str(33 << 20))
    c.write(3, 'new', 'life goes on')
    eq(c.read(1, 'new'), 'life goes on')

    c.coterie(1, 'stop')
    for path in place(c, 1).glob('tree.db*'):
        path.unlink()
    for name, data in old.items():
        (place(c, 1) / name).write_bytes(data)
    c.script('start', 1, 'daemon')
    c.wait(lambda: 'another cluster' in c.reason(1), 30, 'the old node is set aside')
    eq((c.is_refused(1), c.read(1, 'later')), (True, 'not in the backup'))
    c.coterie(1, 'backup', '/var/lib/coterie/set-aside.backup')  # what it has can be saved, also without a quorum
    c.coterie(1, 'dump', '/var/lib/coterie/set-aside.tar', '--from', '/var/lib/coterie/set-aside.backup')
    c.down()


TESTS = [(cluster_from_a_backup, 240)]
