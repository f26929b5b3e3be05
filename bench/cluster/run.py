#!/usr/bin/env python3
"""A cluster of three nodes on this machine, measured: sudo bench/cluster/run.py --bin DIR [PART...]

  speed    writes beside what corosync's CPG itself needs (cpgping), in the same run: latency of an atomic replace of 1 KiB, what eight
           clients reach beside one, the throughput of 1 MiB replaces, bytes written per node beside a standalone mount
  bounds   how long faults keep readers and writers waiting, beyond corosync's own token and consensus time-outs
  catchup  how long a node needs that missed much, and what a writer elsewhere notices of it

Prints one line of JSON per figure: name, value, unit, and the bound where there is one. All three nodes, their corosyncs and the clients share this
machine's processors: a token needs its turn on each. What counts are ratios."""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / 'tests' / 'cluster'), str(ROOT / 'tests' / 'lib')]
sys.dont_write_bytecode = True

from cluster import Cluster  # noqa: E402

ALL = (1, 2, 3)


def figure(name, value, unit, bound=None, note=''):
    line = {'name': name, 'value': round(value, 3), 'unit': unit}
    if bound is not None:
        line['bound'] = bound
    if note:
        line['note'] = note
    print(json.dumps(line), flush=True)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else float('nan')


class Bench:
    def __init__(self, c, work):
        self.c, self.work = c, Path(work)
        run = ['cc', '-O2', '-o']
        subprocess.run(run + [str(self.work / 'cpgping'), str(HERE / 'cpgping.c'), '-lcpg'], check=True)
        subprocess.run(run + [str(self.work / 'fsload'), str(ROOT / 'bench' / 'fsload.c'), '-lpthread'], check=True)

    def ping(self, size, count, window=1):
        return json.loads(self.c.inside(1, self.work / 'cpgping', size, count, window, timeout=120).stdout)

    def load(self, directory, op, count, *options):
        done = subprocess.run([str(self.work / 'fsload'), str(directory), op, '-n', str(count), *map(str, options)], capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def counters(self, node):
        return self.c.status(node)['counters']


# --- speed

def replaced_large(root, size, count):
    """Bytes per second, of content that does not compress."""
    content = os.urandom(size)
    began = time.monotonic()
    for i in range(count):
        (root / 'large.new').write_bytes(i.to_bytes(8, 'little') + content[8:])
        os.rename(root / 'large.new', root / 'large')
    return size * count / (time.monotonic() - began)


COUNT = int(os.environ.get('COTERIE_COUNT', '2000'))


def speed(b):
    c = b.c
    before = b.ping(64, COUNT)
    one = b.load(c.mnt(1), 'replace', COUNT, '-s', 1024, '-t', 1)
    eight = b.load(c.mnt(1), 'replace', 4 * COUNT, '-s', 1024, '-t', 8)
    after = b.ping(64, COUNT)
    ping = (before['p50_us'] + after['p50_us']) / 2
    figure('CPG ping, 64 bytes, p50', ping, 'us')
    figure('replace of 1 KiB, p50', one['p50_us'], 'us')
    figure('replace of 1 KiB, p50', one['p50_us'] / ping, 'CPG pings', 8)
    figure('replace of 1 KiB, one client', one['per_s'], '1/s')
    figure('replace of 1 KiB, eight clients', eight['per_s'], '1/s')
    figure('eight clients beside one', eight['per_s'] / one['per_s'], 'times', 4, 'at least')
    size = 1024 * 1024
    for parts, name in ((1, 'one message'), (16, '64 KiB messages')):
        large = b.ping(min(size // parts, 1047552), max(COUNT // 20, 10) * parts, 4 * parts)
        figure('CPG throughput at 1 MiB, %s' % name, large['bytes_per_second'] / 2**20, 'MiB/s')
        if parts == 1:
            single = large
    rate = replaced_large(c.mnt(1), size, max(COUNT // 20, 10))
    figure('replace of 1 MiB', rate / 2**20, 'MiB/s')
    figure('replace of 1 MiB beside CPG', rate / single['bytes_per_second'], 'times', 0.5, 'at least')
    disk(b)


def written(c):
    return c['log_bytes'] + c['content_bytes'] + c['home_bytes']


def disk(b):
    """The same files, written in the cluster and on a standalone mount of one of the nodes."""
    c = b.c
    c.coterie(1, 'sync', '--checkpoint')
    before = {n: written(b.counters(n)) for n in ALL}
    b.load(c.mnt(1), 'replace', COUNT, '-s', 16384, '-f', 100)
    for n in ALL:
        c.coterie(n, 'sync', '--checkpoint')
    in_cluster = max(written(b.counters(n)) - before[n] for n in ALL)
    c.inside(2, 'mkdir', '-p', '/run/alone', '/var/lib/coterie/alone')
    run = ['--run-dir', '/run/coterie-alone']
    c.inside(2, c.bin / 'coteried', '--standalone', '--db', '/var/lib/coterie/alone/tree.db', *run, '/run/alone')
    try:
        def alone():
            return json.loads(c.coterie(2, *run, 'status', '--json').stdout)['counters']
        c.coterie(2, *run, 'sync', '--checkpoint')
        first = written(alone())
        b.load(Path('/proc/%d/root/run/alone' % c.init_pid(2)), 'replace', COUNT, '-s', 16384, '-f', 100)
        c.coterie(2, *run, 'sync', '--checkpoint')
        standalone = written(alone()) - first
    finally:
        c.coterie(2, *run, 'stop', check=False)
    figure('bytes to disk per node beside standalone', in_cluster / standalone, 'times', 1.1)


# --- bounds

class Probe:
    """A process that reads or writes on one node, again and again, and notes when each call began, how long it took and how it ended."""
    CODE = """
import errno, os, select, sys, time
what, path, log = sys.argv[1:]
i = 0
with open(log, 'w', buffering=1) as out:
    while not select.select([0], [], [], 0.0005)[0]:
        begun, error = time.monotonic(), 0
        try:
            if what == 'read':
                with open(path) as f: f.read()
                os.stat(path); os.listdir(os.path.dirname(path))
            else:
                with open('%s-%d' % (path, i % 50), 'w') as f: f.write(str(i))
        except OSError as e:
            error = e.errno
        out.write('%f %f %d\\n' % (begun, time.monotonic() - begun, error))
        i += 1
"""

    def __init__(self, b, what, node, name):
        self.log = b.work / ('probe-%s-%d-%d' % (what, node, time.monotonic_ns()))
        self.process = subprocess.Popen([sys.executable, '-c', self.CODE, what, str(b.c.mnt(node) / name), str(self.log)], stdin=subprocess.PIPE)

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        rows = [line.split() for line in self.log.read_text().splitlines() if line.count(' ') == 2]
        self.calls = [(float(a), float(t), int(e)) for a, t, e in rows]
        return self

    def longest(self, since=0.0):
        return max((t for a, t, _ in self.calls if a + t >= since), default=0)

    def errors(self):
        return [e for _, _, e in self.calls if e]


def timeouts(c):
    info = c.status(1)['cluster']
    return (info['token_ms'] + info['consensus_ms']) / 1000


def corosync_saw(c, node, since):
    """When corosync on a node told of its first new membership after `since`, on our clock: from its log."""
    offset = time.time() - time.monotonic()
    for line in (c.dir / ('node%d/log/corosync.log' % node)).read_text(errors='replace').splitlines():
        words = line.split()
        if '[QUORUM] Members[' in line:
            stamp = time.strptime('%d %s %s %s' % (time.localtime().tm_year, words[0], words[1], words[2].split('.')[0]), '%Y %b %d %H:%M:%S')
            at = time.mktime(stamp) + float('0.' + words[2].split('.')[1]) - offset
            if at > since:
                return at
    return float('nan')


def bounds(b):
    c = b.c
    figure('token and consensus time-out', timeouts(c), 's')
    c.wait_primary(ALL, 30, synced=3)
    c.write(3, 'seen', 'x' * 4096)
    # A minority: node 3.
    reader, minority, majority = Probe(b, 'read', 3, 'seen'), Probe(b, 'write', 3, 'minority'), Probe(b, 'write', 1, 'majority')
    time.sleep(1)
    cut = time.monotonic()
    c.script('partition', '1,2', '3')
    c.wait(lambda: not c.is_primary(3), 20, 'the minority knows')
    c.wait_primary((1, 2), 20, synced=2)
    time.sleep(2)
    for p in (reader, minority, majority):
        p.end()
    c.script('heal')
    quiet, during = [t for a, t, _ in reader.calls if a < cut], [t for a, t, _ in reader.calls if a >= cut]
    figure('reads before the cut, p99', percentile(quiet, 0.99) * 1000, 'ms')
    figure('reads in the minority, p99', percentile(during, 0.99) * 1000, 'ms', 1)
    figure('reads in the minority that failed', len(reader.errors()), 'reads of %d' % len(during), 0)
    refused = [a + t for a, t, e in minority.calls if e]
    figure('corosync told of the partition', corosync_saw(c, 3, cut) - cut, 's')
    figure('a write in the minority is refused', (min(refused) - corosync_saw(c, 3, cut)) * 1000 if refused else float('nan'), 'ms beyond corosync', 200)
    again = [a + t for a, t, e in majority.calls if not e and a + t > cut + 1 and t > 0.5]
    figure('writes in the majority go on', (min(again) - corosync_saw(c, 1, cut)) * 1000 if again else float('nan'), 'ms beyond corosync', 300)
    figure('writes in the majority that failed', len(majority.errors()), 'writes of %d' % len(majority.calls), 0)
    c.wait_primary(ALL, 30, synced=3)
    one_fault(b, 'a stopped daemon delays others', lambda: c.script('stop', 3, 'daemon'), lambda: c.script('cont', 3, 'daemon'), 5.5, 10)
    one_fault(b, 'a killed daemon delays others', lambda: c.script('kill', 3, 'daemon'), lambda: c.script('start', 3, 'daemon'), 0.5, 2)
    interrupted(b)
    cold_start(b)


def one_fault(b, name, break_it, mend, bound, seconds):
    writer = Probe(b, 'write', 1, 'other')
    time.sleep(0.5)
    break_it()
    time.sleep(seconds)
    mend()
    b.c.wait_primary(ALL, 60, synced=3)
    writer.end()
    figure(name, writer.longest(), 's', bound)
    slow = sum(t > bound / 4 for _, t, _ in writer.calls)
    figure(name + ': calls that waited long', slow, 'calls', 1)


def interrupted(b):
    """Ctrl-C on a writer that waits: node 2's daemon is stopped, so nothing is acknowledged on node 1."""
    c = b.c
    c.script('stop', 2, 'daemon')
    writer = subprocess.Popen(['sh', '-c', 'echo x > %s/interrupted' % c.mnt(1)])
    time.sleep(0.7)
    waited = writer.poll() is None
    began = time.monotonic()
    writer.send_signal(signal.SIGINT)
    writer.wait(30)
    took = time.monotonic() - began
    c.script('cont', 2, 'daemon')
    c.wait_primary(ALL, 60, synced=3)
    figure('a waiting writer ends after SIGINT', took if waited else float('nan'), 's', 0.5)


def cold_start(b):
    c = b.c
    for n in ALL:
        for what in ('daemon', 'corosync'):
            c.script('kill', n, what)
    time.sleep(1)
    starts = [subprocess.Popen([str(ROOT / 'tools/cluster.sh'), '--dir', str(c.dir), 'start', str(n), what], env=dict(os.environ, COTERIE_BIN=str(c.bin)),
                               stdin=subprocess.DEVNULL) for n in ALL for what in ('corosync', 'daemon')]
    for s in starts:
        s.wait(30)
    quorum = None
    while True:
        now, states = time.monotonic(), [c.status(n) for n in ALL]
        if quorum is None and all(s and s['cluster']['quorate'] for s in states):
            quorum = now
        if all(s and s['primary'] for s in states):
            figure('cold start of all nodes: writable after quorum', time.monotonic() - (quorum or now), 's', 2)
            return
        time.sleep(0.01)


# --- catching up

def behind(b, name, work, bound, wipe=False):
    """Node 3 is away while `work` is done, comes back while a writer elsewhere goes on, and is synced again."""
    c = b.c
    c.wait_primary(ALL, 60, synced=3)
    c.coterie(3, 'stop')
    if wipe:
        c.inside(3, 'sh', '-c', 'rm -f /var/lib/coterie/tree.db*')
    work()
    quiet = Probe(b, 'write', 1, 'elsewhere')
    time.sleep(3)
    quiet.end()
    writer = Probe(b, 'write', 1, 'elsewhere')
    time.sleep(0.5)
    began = time.monotonic()
    c.script('start', 3, 'daemon', timeout=120)
    c.wait_primary((3,), 120, synced=3)
    took = time.monotonic() - began
    writer.end()
    figure('%s: synced after' % name, took, 's', bound)
    figure('%s: longest wait of a writer elsewhere' % name, writer.longest() * 1000, 'ms', round(quiet.longest() * 1000 + 100, 1))
    c.wait_equal()


FILES = int(os.environ.get('COTERIE_FILES', '100000'))


def many_files(b):
    """On node 1, by several processes: what one waits for another does not."""
    root = b.c.mnt(1) / 'many'
    code = """
import os, sys
root, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = os.urandom(1342)
for i in range(first, last):
    if i % 1000 == 0:
        os.makedirs('%s/%d' % (root, i // 1000))
    fd = os.open('%s/%d/%d' % (root, i // 1000, i), os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, content)
    os.close(fd)
"""
    parts = [FILES // 8000 * 1000 * i for i in range(8)] + [FILES]
    for p in [subprocess.Popen([sys.executable, '-c', code, str(root), str(x), str(y)]) for x, y in zip(parts, parts[1:])]:
        if p.wait() != 0:
            raise RuntimeError('files could not be written')


def catchup(b):
    c = b.c
    behind(b, '1,000 updates of 1 KiB', lambda: b.load(c.mnt(1), 'replace', 1000, '-s', 1024), 2)
    behind(b, '100 MiB', lambda: [(c.mnt(1) / ('large-%d' % i)).write_bytes(os.urandom(2**20)) for i in range(100)], 10)
    for i in range(100):
        os.unlink(c.mnt(1) / ('large-%d' % i))
    c.coterie(3, 'stop')
    c.inside(3, 'sh', '-c', 'rm -f /var/lib/coterie/tree.db*')
    began = time.monotonic()
    many_files(b)  # by two nodes: filling is not what is measured
    figure('writing %d files' % FILES, time.monotonic() - began, 's')
    c.script('start', 3, 'daemon')
    behind(b, 'an empty node, %d files of 1,342 bytes' % FILES, lambda: None, 30, wipe=True)


PARTS = {'speed': speed, 'bounds': bounds, 'catchup': catchup}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True, help='directory of coteried and coterie')
    parser.add_argument('parts', nargs='*', metavar='PART', help=' '.join(PARTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='coterie-bench-') as work:
        c = Cluster(Path(work) / 'cluster', Path(options.bin).resolve())
        try:
            os.environ.setdefault('COTERIE_DISK_MIB', '2048')
            for part in options.parts or PARTS:
                c.up()
                PARTS[part](Bench(c, work))
                c.down()
        finally:
            c.down()


if __name__ == '__main__':
    main()
