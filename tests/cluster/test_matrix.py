"""Each workload under each nemesis, with a history that is checked (client.py, nemesis.py, history.py).

COTERIE_PAIRS chooses: `short` (4 pairs, 8 s each), `all` (60 s each), or WORKLOAD:NEMESIS,... where either may be `*`; with `+` between them, several
workloads run at the same time, and `grouped` is all of them in two groups. COTERIE_SECONDS and COTERIE_SEED choose more; the seed is printed."""
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import history
from nemesis import ALL, NEMESES

HERE = Path(__file__).resolve().parent
SHORT = [('files', 'partition_of_one'), ('register', 'killed_daemon'), ('append', 'stopped_daemon'), ('claims', 'killed_corosync')]
CHOICE = os.environ.get('COTERIE_PAIRS', 'short')
SECONDS = float(os.environ.get('COTERIE_SECONDS', '8' if CHOICE == 'short' else '60'))


def client(c, workload, n):
    log = c.dir / ('history-%s-%d-%d' % (workload, n, time.monotonic_ns()))
    log.touch()
    return log, subprocess.Popen([sys.executable, str(HERE / 'client.py'), workload, str(c.mnt(n)), str(n), str(log)], stdin=subprocess.PIPE)


def prepare(c, nemesis):
    """A tree without the files of the pair before, and daemons with the options that the nemesis wants."""
    options = getattr(NEMESES[nemesis], 'options', [])
    if getattr(c, 'with_options', []) != options or getattr(NEMESES[nemesis], 'preload', False) != getattr(c, 'preloaded', False):
        c.down()
    if not c.is_up:
        c.preloaded = getattr(NEMESES[nemesis], 'preload', False)
        c.with_options = options
        c.up(*options, preload=c.preloaded)
    c.wait_primary(ALL, 30, synced=3)
    subprocess.run(['find', str(c.mnt(1)), '-mindepth', '1', '-not', '-path', '*/.coterie*', '-delete'], check=False, timeout=120)


def end(clients):
    for _, process in clients:
        process.stdin.close()
    for _, process in clients:
        if process.wait(60) != 0:
            raise AssertionError('a client ended with %d' % process.returncode)


def judge(c, workload, logs):
    calls = history.load(logs)
    acknowledged = sum(x.ok and x.what not in ('read', 'list') for x in calls)
    c.notes.append('%s: %d changes acknowledged, %d refused or unknown, %d reads by members judged' % (
        workload, acknowledged, sum(not x.ok for x in calls), sum(x.ok and x.epoch > 0 for x in calls if x.what in ('read', 'list'))))
    if acknowledged < 10:
        return ['%s: hardly anything was acknowledged: %d' % (workload, acknowledged)]
    found = history.violations(workload, calls, [c.mnt(n) for n in ALL])
    keep = os.environ.get('COTERIE_KEEP')
    for log in logs if found and keep else ():
        Path(keep, log.name).write_bytes(log.read_bytes())
    return found


def pair(c, workloads, nemesis, seed):
    prepare(c, nemesis)
    c.notes.append('seed %d' % seed)
    clients = {w: [client(c, w, n) for n in ALL] for w in workloads}
    try:
        NEMESES[nemesis](c, random.Random(seed)).run(SECONDS)
        c.wait_primary(ALL, 90, synced=3)
        time.sleep(0.5)  # all write again
    finally:
        end([x for of_one in clients.values() for x in of_one])
    c.wait_equal()
    found = [text for w in workloads for text in judge(c, w, [log for log, _ in clients[w]])]
    if found:
        raise AssertionError('\n'.join(found))


def workloads(nemesis):
    return [w for w in history.CHECKS if w in getattr(NEMESES[nemesis], 'only', history.CHECKS)]


def chosen():
    if CHOICE == 'short':
        return SHORT
    if CHOICE == 'all':
        return [(w, n) for n in NEMESES for w in workloads(n)]
    if CHOICE == 'grouped':
        return [('+'.join(half), n) for n in NEMESES for half in (workloads(n)[::2], workloads(n)[1::2]) if half]
    wanted = [p.split(':') for p in CHOICE.split(',')]
    return [(w, n) for a, b in wanted for n in NEMESES if b in ('*', n) for w in (workloads(n) if a == '*' else [a])]


def test_of(workloads, nemesis):
    def test(c):
        pair(c, workloads.split('+'), nemesis, int(os.environ.get('COTERIE_SEED') or random.SystemRandom().randrange(1 << 32)))
    test.__name__ = '%s_%s' % (workloads, nemesis)
    return test, 240 + SECONDS


TESTS = [test_of(w, n) for w, n in chosen()]
