"""Random calls: on one file against a model in memory, with restarts of the daemon between; and by several processes on one tree, which must be
what it was after a restart, and whole."""
import os
import subprocess
from pathlib import Path

import daemon as daemon_module
from harness import eq, test
from workload import difference, snapshot

CALLS = int(os.environ.get('COTERIE_EXERCISE_CALLS', '6000'))


def program(*argv, timeout=3000):
    done = subprocess.run([str(a) for a in (daemon_module.BIN / argv[0], *argv[1:])], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout)
    eq((done.returncode, done.stdout[-4000:], done.stderr[-2000:]), (0, '', ''), ' '.join(map(str, argv)))


def restart(t, how):
    if t.target != 'coterie':
        return
    d = t.daemons[0]
    if how == 'kill':
        d.sync()
        d.kill()
    else:
        if how == 'checkpoint':
            d.sync(checkpoint=True)
        d.stop()
        done = d.check()
        eq(done.returncode, 0, done.stdout + done.stderr)
    d.start()


@test(timeout=300)
def one_file(t):
    path, model = t.tree / 'file', t.dir / 'model'
    for seed, how in enumerate(('stop', 'checkpoint', 'kill', 'stop'), 1):
        program('posix_fsx', path, model, seed, CALLS)
        restart(t, how)
    program('posix_fsx', path, model, 99, 1)


@test
def a_wrong_byte_is_noticed(t):
    path, model = t.tree / 'file', t.dir / 'model'
    program('posix_fsx', path, model, 7, 200)
    with open(path, 'r+b') as f:
        byte = f.read(1)
        f.seek(0)
        f.write(bytes([byte[0] ^ 1]))
    done = subprocess.run([daemon_module.BIN / 'posix_fsx', path, model, '8', '1'], capture_output=True, text=True)
    eq((done.returncode, 'whole file: byte 0 is' in done.stdout), (1, True), done.stdout)


@test(timeout=300)
def one_tree(t):
    for seed, how in enumerate(('stop', 'checkpoint', 'kill'), 1):
        program('posix_stress', t.tree, 4, CALLS, seed)
        before = snapshot(t.tree)
        restart(t, how)
        eq(difference(snapshot(t.tree), before), '', 'after a restart (%s)' % how)
    t.note('%d names at the end' % len(snapshot(t.tree)))
