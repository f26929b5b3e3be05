"""How a cluster begins: without corosync, with empty nodes alone, with a standalone tree."""
import time

from cluster import NO_QUORUM
from harness import at_most, eq

ALL = (1, 2, 3)


def anew(c):
    """Nodes with corosync and without daemons."""
    c.down()
    c.script('up', c.count, '--no-daemon')
    (c.dir / 'daemon.options').write_text('')
    c.is_up = True


def without_corosync(c):
    """The mount answers at once and says why it cannot be written; it can be stopped; when corosync comes it goes on by itself."""
    anew(c)
    for n in ALL:
        c.script('kill', n, 'corosync')
    c.coterie(1, 'cluster', 'init', '--db', '/var/lib/coterie/tree.db')
    for n in ALL:
        began = time.monotonic()
        c.script('start', n, 'daemon')
        at_most(time.monotonic() - began, 5, 'seconds until the mount answered')
        eq(c.is_refused(n), True, 'a write without corosync')
        s = c.status(n)
        eq((s['primary'], s['writable'], s['cluster']['connected'], s['members']), (False, False, False, []))
        eq('corosync is not running' in s['reason'], True, s['reason'])
        for command in (['sync'], ['set', 'file_size_max=1M']):
            done = c.coterie(n, *command, check=False)
            eq(done.returncode, NO_QUORUM, done.stderr)
            eq('corosync is not running' in done.stderr, True, done.stderr)
    began = time.monotonic()
    c.coterie(3, 'stop')
    at_most(time.monotonic() - began, 5, 'seconds to stop')
    c.script('start', 3, 'daemon')
    for n in ALL:
        c.script('start', n, 'corosync')
    c.notes.append('writable %.2f s after corosync was started' % c.wait_primary(ALL, 30, synced=3))


def empty_nodes_found_nothing(c):
    """Empty nodes wait; `coterie cluster init` on one that runs founds the cluster, once."""
    anew(c)
    for n in ALL:
        c.script('start', n, 'daemon')
    for n in ALL:
        c.wait(lambda: 'no member belongs to a cluster yet' in c.reason(n), 20, 'node %d waits for a founder' % n)
    done = c.coterie(2, 'cluster', 'init', 'othername', check=False)
    eq((done.returncode, 'testcluster' in done.stderr), (1, True), done.stderr)
    eq(c.is_refused(2), True)
    c.coterie(2, 'cluster', 'init', 'testcluster')
    c.notes.append('writable %.2f s after init' % c.wait_primary(ALL, 20, synced=3))
    for n in ALL:
        done = c.coterie(n, 'cluster', 'init', check=False)
        eq((done.returncode, 'already' in done.stderr), (1, True), done.stderr)
    c.wait_equal()


def standalone_tree_becomes_the_clusters(c):
    """A tree that was made standalone is brought in by its node, whatever its node number was."""
    anew(c)
    c.inside(2, c.bin / 'coteried', '--standalone', '--db', '/var/lib/coterie/tree.db', '/mnt')
    for i in range(300):
        c.write(2, 'old-%d' % i, '%d' % i * 1000)
    digest = c.status(2)['digest']
    c.coterie(2, 'stop')
    for n in ALL:
        c.script('start', n, 'daemon')
    took = c.wait_primary(ALL, 30, synced=3)
    eq(c.wait_equal()[2], digest)
    for n in ALL:
        eq(c.read(n, 'old-299'), '299' * 1000)
        c.write(n, 'old-%d' % n, 'new')
    c.wait_equal()
    c.notes.append('all have it %.2f s after the start' % took)


def all_stopped_and_started(c):
    """A clean stop of all nodes and a start of two: they have everything and need nobody else."""
    c.wait_primary(ALL, 30, synced=3)
    c.write(1, 'last', 'word')
    before = c.wait_equal()
    for n in ALL:
        c.coterie(n, 'stop')
    for n in (2, 3):
        c.script('start', n, 'daemon')
    took = c.wait_primary((2, 3), 20, synced=2)
    eq(c.wait_equal((2, 3))[2], before[2])
    c.script('start', 1, 'daemon')
    c.wait_primary(ALL, 20, synced=3)
    eq(c.read(1, 'last'), 'word')
    c.notes.append('writable %.2f s after the start of two' % took)


TESTS = [(without_corosync, 90), (empty_nodes_found_nothing, 60), (standalone_tree_becomes_the_clusters, 60), (all_stopped_and_started, 60)]
