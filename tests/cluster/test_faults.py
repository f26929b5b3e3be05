"""Faults on real daemons and a real corosync; afterwards all nodes have the same tree, and it lacks nothing that was acknowledged."""
import errno
import subprocess
import sys
import time
from pathlib import Path

from harness import eq, at_most

ALL = (1, 2, 3)


class Writer:
    """A process that writes numbered files on one node until it is ended; its log says which were acknowledged and how long each took."""
    mode = 'files'

    def __init__(self, c, node, name, mode=None):
        self.c, self.node, self.name = c, node, name
        self.log = c.dir / ('writer-%s-%d' % (name, time.monotonic_ns()))
        self.process = subprocess.Popen([sys.executable, str(Path(__file__).parent / 'writer.py'), str(c.mnt(node)), name, mode or self.mode, str(self.log)],
                                        stdin=subprocess.PIPE)

    def end(self):
        self.process.stdin.close()
        try:
            eq(self.process.wait(30), 0, 'the writer on node %d failed' % self.node)
        except subprocess.TimeoutExpired:
            raise AssertionError('the writer on node %d still waits' % self.node) from None
        lines = [line.split() for line in self.log.read_text().splitlines()]
        self.acknowledged = [int(line[0][1:]) for line in lines if line[0][0] == '+']
        self.refused = len(lines) - len(self.acknowledged)
        self.longest = max((float(line[1]) for line in lines), default=0)

    def check(self, nodes=ALL):
        for n in nodes:
            lost = [i for i in self.acknowledged if not self.holds(n, i)]
            eq(lost, [], 'acknowledged on node %d and not on node %d' % (self.node, n))

    def holds(self, node, i):
        try:
            return self.c.read(node, '%s-%d' % (self.name, i)) == '%d' % i
        except OSError as e:
            if e.errno != errno.ENOENT:
                raise
            return False


def healed(c):
    c.script('heal')
    took = c.wait_primary(ALL, 30, synced=3)
    c.wait_equal()
    return took


def partition_of_one(c):
    """The minority is read-only and readable, the majority goes on; after healing all are equal."""
    c.wait_primary(ALL, 30, synced=3)
    c.write(3, 'old', 'before')
    w = Writer(c, 1, 'p1')
    time.sleep(0.3)
    c.script('partition', '3', '1,2')
    readonly = c.wait_not_primary(3, 20)
    c.wait(lambda: c.is_refused(3), 10, 'EROFS on node 3')
    eq(c.read(3, 'old'), 'before')
    c.wait_primary((1, 2), 20, synced=2)
    c.write(1, 'old', 'after')
    eq(c.read(2, 'old'), 'after')
    eq(c.read(3, 'old'), 'before')
    time.sleep(0.5)
    w.end()
    took = healed(c)
    eq(c.read(3, 'old'), 'after')
    w.check()
    c.notes.append('read-only after %.2f s; longest wait of a writer in the majority %.2f s; healed and synced in %.2f s; %d writes' % (
        readonly, w.longest, took, len(w.acknowledged)))


def partition_of_all(c):
    """Nobody writes; then all go on."""
    c.wait_primary(ALL, 30, synced=3)
    writers = [Writer(c, n, 'pa%d' % n) for n in ALL]
    time.sleep(0.3)
    c.script('partition', '1', '2', '3')
    for n in ALL:
        c.wait_not_primary(n, 20)
    for n in ALL:
        c.wait(lambda: c.is_refused(n), 10, 'EROFS on node %d' % n)
    for w in writers:
        w.end()
    healed(c)
    for w in writers:
        w.check()


def killed_daemon(c):
    """kill -9 of a daemon: the others go on; started again it catches up."""
    c.wait_primary(ALL, 30, synced=3)
    w = Writer(c, 1, 'kd')
    time.sleep(0.3)
    c.script('kill', 2, 'daemon')
    c.wait_primary((1, 3), 10, synced=2)
    time.sleep(0.5)
    c.script('start', 2, 'daemon')
    took = c.wait_primary(ALL, 20, synced=3)
    w.end()
    c.wait_equal()
    w.check()
    at_most(w.longest, 5, 'longest wait of a writer elsewhere')
    c.notes.append('longest wait of a writer elsewhere %.2f s; synced again %.2f s after its start; %d writes' % (w.longest, took, len(w.acknowledged)))


def killed_corosync(c):
    """kill -9 of corosync: its daemon stays up, readable and read-only, says why, and goes on when corosync is back."""
    c.wait_primary(ALL, 30, synced=3)
    c.write(2, 'kc', 'before')
    pid = c.status(2)['pid']
    w = Writer(c, 1, 'kc')
    c.script('kill', 2, 'corosync')
    took = c.wait_not_primary(2, 15)  # requests wait for read_only_grace, 5 s, before they are refused
    eq(c.read(2, 'kc'), 'before')
    c.wait(lambda: c.is_refused(2), 10, 'EROFS on node 2')
    eq('corosync' in c.status(2)['reason'], True, c.reason(2))
    c.wait_primary((1, 3), 20, synced=2)
    c.script('start', 2, 'corosync')
    back = c.wait_primary(ALL, 30, synced=3)
    w.end()
    eq(c.status(2)['pid'], pid)
    c.wait_equal()
    w.check()
    c.notes.append('read-only after %.2f s; longest wait of a writer elsewhere %.2f s; back %.2f s after corosync' % (took, w.longest, back))


def restarted_in_a_loop(c):
    """The same process id may come back in the same ring: nothing of its earlier life is taken for the new one."""
    c.wait_primary(ALL, 30, synced=3)
    w = Writer(c, 1, 'rl')
    for _ in range(5):
        c.script('kill', 3, 'daemon')
        c.script('start', 3, 'daemon')
        time.sleep(0.2)
    c.wait_primary(ALL, 30, synced=3)
    w.end()
    c.wait_equal()
    w.check()
    c.notes.append('longest wait of a writer elsewhere %.2f s' % w.longest)


def late_and_empty(c):
    """A node with an empty disk joins while the others write, and receives the tree."""
    c.wait_primary(ALL, 30, synced=3)
    for i in range(50):
        c.write(1, 'le-large-%d' % i, ('%d ' % i) * 20000)
    c.coterie(3, 'stop')
    c.inside(3, 'sh', '-c', 'rm -f /var/lib/coterie/tree.db*')
    w = Writer(c, 1, 'le')
    c.script('start', 3, 'daemon')
    took = c.wait_primary((3,), 30, synced=3)
    w.end()
    c.wait_equal()
    w.check()
    eq(c.read(3, 'le-large-49'), '49 ' * 20000)
    c.notes.append('synced %.2f s after its start; longest wait of a writer elsewhere %.2f s' % (took, w.longest))


def foreign_tree(c):
    """A database of another cluster is refused with words; its tree stays readable where it is."""
    c.wait_primary(ALL, 30, synced=3)
    c.coterie(3, 'stop')
    c.inside(3, 'sh', '-c', 'mkdir /var/lib/coterie/kept && mv /var/lib/coterie/tree.db* /var/lib/coterie/kept/')
    c.inside(3, c.bin / 'coteried', '--standalone', '--node=3', '--db', '/var/lib/coterie/tree.db', '--run-dir', '/run/coterie', '/mnt')
    c.write(3, 'foreign', 'of another cluster')
    c.coterie(3, 'stop')
    done = c.coterie(3, 'cluster', 'join', '--db', '/var/lib/coterie/tree.db', check=False)
    eq(done.returncode, 1, done.stderr)
    eq('tree of its own' in done.stderr, True, done.stderr)
    c.script('start', 3, 'daemon')
    c.wait(lambda: 'another cluster' in c.reason(3), 10, 'node 3 says why')
    eq(c.read(3, 'foreign'), 'of another cluster')
    eq(c.is_refused(3), True)
    c.wait_primary((1, 2), 20)
    c.write(1, 'while-foreign', 'x')
    c.coterie(3, 'stop')
    c.inside(3, 'sh', '-c', 'rm -f /var/lib/coterie/tree.db*; mv /var/lib/coterie/kept/* /var/lib/coterie/; rmdir /var/lib/coterie/kept')
    c.script('start', 3, 'daemon')
    c.wait_primary(ALL, 20, synced=3)
    c.wait_equal()
    eq(c.read(3, 'while-foreign'), 'x')


def stopped_at_full_speed(c):
    """What corosync keeps for a daemon that does not read is bounded: by the senders' window, then by the guardian, who ends the daemon."""
    c.wait_primary(ALL, 30, synced=3)
    pid = int(c.script('pid', 3, 'corosync').stdout)
    writers = [Writer(c, n, 'full-%d-%d' % (n, i), 'large') for n in (1, 2) for i in range(2)]
    time.sleep(1)
    c.script('stop', 3, 'daemon')
    time.sleep(30)
    peak = int(next(line.split()[1] for line in Path('/proc/%d/status' % pid).read_text().splitlines() if line.startswith('VmHWM')))
    c.script('cont', 3, 'daemon', check=False)
    for w in writers:
        w.end()
    if c.status(3) is None:
        c.script('start', 3, 'daemon')
    c.wait_primary(ALL, 60, synced=3)
    c.wait_equal(seconds=60)
    c.notes.append('corosync beside the stopped daemon: %d MiB at most; %d writes of 64 KiB' % (peak // 1024, sum(len(w.acknowledged) for w in writers)))
    at_most(peak / 1024, 512, 'MiB of corosync')


TESTS = [(partition_of_one, 90), (partition_of_all, 90), (killed_daemon, 60), (killed_corosync, 60), (restarted_in_a_loop, 60),
         (late_and_empty, 60), (foreign_tree, 60),
         (stopped_at_full_speed, 150)]
