"""What is wrong is said in one line with the remedy, and the local tree stays readable. (No corosync, empty nodes alone: test_begin.py; a database of
another cluster: test_faults.py; files that corosync would refuse: test_admin.py.)"""
import json
import time

from harness import at_most, eq
from test_faults import Writer

ALL = (1, 2, 3)
SECOND = ['--db', '/var/lib/coterie/second.db', '--run-dir', '/run/second']


def log(c, node):
    return (c.mnt(node).parent / 'run/coterie/coteried.log').read_text(errors='replace')


def reason_of(c, node, run_dir='/run/second'):
    done = c.coterie(node, '--run-dir', run_dir, 'status', '--json', check=False)
    return json.loads(done.stdout)['reason'] if done.returncode == 0 else ''


def views(c):
    return [c.status(n)['counters']['view_changes'] for n in ALL]


def two_with_one_id(c):
    """A second daemon with the node's id does not join, and the others see nothing of it."""
    c.wait_primary(ALL, 30, synced=3)
    before = views(c)
    c.inside(2, 'mkdir', '-p', '/run/second-tree')
    c.inside(2, c.bin / 'coteried', '--standalone', '--node=2', *SECOND, '/run/second-tree')
    c.inside(2, 'sh', '-c', 'echo mine > /run/second-tree/own')
    c.coterie(2, '--run-dir', '/run/second', 'stop')
    c.inside(2, c.bin / 'coteried', *SECOND, '/run/second-tree')
    try:
        c.wait(lambda: 'has a coteried in this group already' in reason_of(c, 2), 10, 'the second one says why')
        eq(c.inside(2, 'cat', '/run/second-tree/own').stdout, 'mine\n')
        eq('Read-only' in c.inside(2, 'sh', '-c', 'echo x > /run/second-tree/own', check=False).stderr, True)
        time.sleep(1)
        eq(views(c), before, 'view changes')
    finally:
        c.coterie(2, '--run-dir', '/run/second', 'stop')
        c.inside(2, 'sh', '-c', 'rm -f /var/lib/coterie/second.db*')
    c.wait_primary(ALL, 10, synced=3)


def no_rights(c):
    """A daemon that may mount and is not root: corosync refuses whoever is neither root nor named in uidgid.d."""
    c.wait_primary(ALL, 30, synced=3)
    c.inside(2, 'sh', '-c', 'mkdir -p /run/third /run/third-tree /run/third-db && chown 65534:65534 /run/third /run/third-tree /run/third-db && chmod 666 /dev/fuse')
    mine = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', '--inh-caps', '+sys_admin', '--ambient-caps', '+sys_admin']
    c.inside(2, *mine, c.bin / 'coteried', '--db', '/run/third-db/tree.db', '--run-dir', '/run/third', '/run/third-tree')
    try:
        c.wait(lambda: 'uidgid.d' in reason_of(c, 2, '/run/third'), 10, 'it says why')
        c.inside(2, *mine, 'ls', '-la', '/run/third-tree')
    except AssertionError as e:
        raise AssertionError('%s; it says %r; its log: %s' % (e, reason_of(c, 2, '/run/third'), c.inside(2, 'cat', '/run/third/coteried.log', check=False).stdout)) from None
    finally:
        c.coterie(2, '--run-dir', '/run/third', 'stop')


def nonsense(c, mode, seconds=8):
    """Instead of node 3's daemon. Returns the longest wait of a writer elsewhere."""
    c.wait_primary(ALL, 30, synced=3)
    pids = [c.status(n)['pid'] for n in (1, 2)]
    c.coterie(3, 'stop')
    c.wait_primary((1, 2), 10, synced=2)
    w = Writer(c, 1, 'nonsense-' + mode)
    time.sleep(0.3)
    done = c.inside(3, c.bin / 'nonsense', 'coterie', mode, seconds, 7, timeout=60)
    c.wait_primary((1, 2), 20)
    w.end()
    c.script('start', 3, 'daemon')
    c.wait_primary(ALL, 30, synced=3)
    c.wait_equal()
    w.check()
    eq([c.status(n)['pid'] for n in (1, 2)], pids, 'nobody was restarted')
    c.notes.append('%s: %s; %d writes, longest wait of a writer %.2f s, %d refused' % (mode, done.stdout.strip(), len(w.acknowledged), w.longest, w.refused))
    eq(w.refused, 0, 'writes that failed')
    return w.longest


def garbage(c):
    """Bytes at random, and messages that are much too long: dropped, and the sender is named."""
    for mode in ('garbage', 'huge'):
        at_most(nonsense(c, mode), 7, 'seconds that a writer waited')
        for n in (1, 2):
            eq('node 3 sent a damaged message' in log(c, n), True)


def silent(c):
    """A member that says nothing is expelled."""
    at_most(nonsense(c, 'silent'), 7, 'seconds that a writer waited')
    eq('node 3 has made no progress' in log(c, 1), True)


def lengths(c):
    """Intact headers, bodies at random."""
    at_most(nonsense(c, 'lengths'), 7, 'seconds that a writer waited')


def member(c):
    """A member that is counted and then talks nonsense."""
    at_most(nonsense(c, 'member'), 7, 'seconds that a writer waited')


def another_version(c):
    """A member that speaks another protocol version is set aside by name."""
    nonsense(c, 'version')
    eq('node 3 speaks protocol versions 2 to 2, this view speaks 1: set aside' in log(c, 1), True)


TESTS = [(two_with_one_id, 60), (no_rights, 60), (garbage, 120), (silent, 60), (lengths, 60), (member, 60), (another_version, 60)]
