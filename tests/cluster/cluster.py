"""A cluster on this machine through tools/cluster.sh, as the tests see it: nodes, their mounts, what breaks and what heals."""
import errno
import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / 'tools' / 'cluster.sh'
# A node's coterie, in its namespaces: exit codes as coterie(1) has them.
NO_QUORUM = 4


class Cluster:
    def __init__(self, directory, binaries, count=3):
        self.dir, self.bin, self.count = Path(directory), Path(binaries), count
        self.is_up, self.preload = False, ''

    # --- life
    def script(self, *argv, timeout=60, check=True):
        done = subprocess.run([str(SCRIPT), '--dir', str(self.dir), *map(str, argv)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=timeout, env=dict(os.environ, COTERIE_BIN=str(self.bin), COTERIE_PRELOAD=self.preload))
        if check and done.returncode != 0:
            raise AssertionError('cluster.sh %s: exit %d: %s' % (' '.join(map(str, argv)), done.returncode, (done.stdout + done.stderr)[-1500:]))
        return done

    def up(self, *options, preload=False):
        """`preload`: the daemons have a wall clock that jumps (clockjump.c)."""
        began = time.monotonic()
        self.preload = str(self.bin / 'libclockjump.so') if preload else ''
        self.script('up', self.count, '--', *options)
        self.is_up = True
        return time.monotonic() - began

    def down(self):
        self.script('down', check=False)
        self.is_up = False

    # --- one node
    def init_pid(self, node):
        return int((self.dir / ('node%d' % node) / 'init.pid').read_text())

    def mnt(self, node):
        """The node's mount, reached from here: one process sees them all, so its clock orders what it does."""
        return Path('/proc/%d/root/mnt' % self.init_pid(node))

    def inside(self, node, *argv, check=True, timeout=30):
        done = subprocess.run(['nsenter', '-t', str(self.init_pid(node)), '-m', '-n', '-u', '-p', '--', *map(str, argv)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError('node %d: %s: exit %d: %s' % (node, ' '.join(map(str, argv)), done.returncode, done.stdout + done.stderr))
        return done

    def coterie(self, node, *argv, **kw):
        return self.inside(node, self.bin / 'coterie', *argv, **kw)

    def status(self, node):
        done = self.coterie(node, 'status', '--json', check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def stacks(self, node):
        """Where the threads of the node's daemon wait in the kernel."""
        done = self.inside(node, 'sh', '-c', 'for t in /proc/[0-9]*/task/*; do grep -qs "^coteried$" ${t%/task/*}/comm && '
                           'echo "$t $(cat $t/comm) $(sed -n s/^State://p $t/status | head -1): $(sed s/+.*// $t/stack | tr "\\n" " ")"; done', check=False)
        return done.stdout

    def logs(self):
        out = []
        for n in range(1, self.count + 1):
            for name, path in (('start', self.dir / ('node%d/daemon.log' % n)), ('coteried', self.mnt(n).parent / 'run/coterie/coteried.log'), ('corosync', self.dir / ('node%d/log/corosync.log' % n))):
                try:
                    lines = path.read_text(errors='replace').splitlines()[-25:]
                except OSError:
                    continue
                out.append('--- node %d, %s\n%s' % (n, name, '\n'.join(lines)))
            out.append('--- node %d, daemon\n%s' % (n, self.stacks(n)))
            try:
                trace = self.coterie(n, 'trace', check=False, timeout=3)
                out.append('--- node %d, trace\n%s' % (n, '\n'.join(trace.stdout.splitlines()[-25:])))
            except subprocess.TimeoutExpired:
                out.append('--- node %d, trace: no answer' % n)
        return '\n'.join(out)

    # --- waiting; returns how long it took
    def wait(self, condition, seconds, what):
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise AssertionError('not within %g s: %s' % (seconds, what))
            time.sleep(0.02)
        return time.monotonic() - began

    def is_primary(self, node, synced=None):
        s = self.status(node)
        return bool(s and s['primary'] and (synced is None or sum(m['synced'] for m in s['members']) == synced))

    def wait_primary(self, nodes, seconds, synced=None):
        return max(self.wait(lambda: self.is_primary(n, synced), seconds, 'node %d is primary%s: %s' % (
            n, '' if synced is None else ' with %d synced members' % synced, self.reason(n))) for n in nodes)

    def wait_not_primary(self, node, seconds):
        def gone():
            s = self.status(node)
            return s is not None and not s['primary'] and not s['writable']
        return self.wait(gone, seconds, 'node %d is read-only' % node)

    def reason(self, node):
        s = self.status(node)
        return 'no daemon' if s is None else s['reason'] or 'primary'

    def wait_equal(self, nodes=None, seconds=20):
        """All have the same position and digest."""
        nodes = nodes or range(1, self.count + 1)
        seen = []

        def equal():
            seen[:] = [(s['epoch'], s['sequence'], s['digest']) if s else None for s in map(self.status, nodes)]
            return None not in seen and len(set(seen)) == 1
        try:
            self.wait(equal, seconds, 'positions and digests are equal')
        except AssertionError as e:
            raise AssertionError('%s: %s' % (e, seen)) from None
        return seen[0]

    # --- writing and reading
    def write(self, node, name, text):
        (self.mnt(node) / name).write_text(text)

    def read(self, node, name):
        return (self.mnt(node) / name).read_text()

    def is_refused(self, node):
        """A write is refused for want of a quorum."""
        try:
            self.write(node, 'refused-%d' % node, 'x')
        except OSError as e:
            return e.errno == errno.EROFS
        return False
