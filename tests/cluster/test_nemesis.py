"""Random faults, one after another and overlapping, while every node writes; then all is healed, and nothing acknowledged may be missing.

COTERIE_SEED and COTERIE_SECONDS choose the run; the seed is printed."""
import os
import random
import time

from harness import eq
from test_faults import Writer

ALL = (1, 2, 3)


def partition(c, r):
    one = r.choice(ALL)
    groups = r.choice(([one], [1, 2, 3]))
    if groups == [one]:
        c.script('partition', one, ','.join(str(n) for n in ALL if n != one))
    else:
        c.script('partition', 1, 2, 3)
    return 'partition %s' % groups, lambda: c.script('heal')


def cut(c, r):
    a, b = r.sample(ALL, 2)
    c.script('cut', a, b)
    return 'cut %d to %d' % (a, b), lambda: c.script('heal')


def kill(c, r, what):
    n = r.choice(ALL)
    c.script('kill', n, what)
    return 'kill %s %d' % (what, n), lambda: c.script('start', n, what)


def stop(c, r, what):
    n = r.choice(ALL)
    c.script('stop', n, what)
    return 'stop %s %d' % (what, n), lambda: c.script('cont', n, what)


def kill_all_daemons(c, r):
    for n in ALL:
        c.script('kill', n, 'daemon')
    return 'kill all daemons', lambda: [c.script('start', n, 'daemon') for n in ALL]


FAULTS = [partition, partition, cut, lambda c, r: kill(c, r, 'daemon'), lambda c, r: kill(c, r, 'corosync'), lambda c, r: stop(c, r, 'daemon'),
          lambda c, r: stop(c, r, 'corosync'), kill_all_daemons]


class Register(Writer):
    """One file, overwritten with ascending numbers; what is read on the same node never goes back behind what it acknowledged."""

    mode = 'register'

    def check(self, nodes=ALL):
        values = {self.c.read(n, self.name) for n in nodes}
        eq(len(values), 1, 'register %s differs' % self.name)
        value = values.pop()
        if self.acknowledged:  # an empty file: the open truncated it and the write was refused
            eq(value == '' or int(value) >= self.acknowledged[-1], True, '%s holds %r, acknowledged was %d' % (self.name, value, self.acknowledged[-1]))


def anything(c):
    seed = int(os.environ.get('COTERIE_SEED') or random.SystemRandom().randrange(1 << 32))
    seconds = float(os.environ.get('COTERIE_SECONDS', '60'))
    r = random.Random(seed)
    c.notes.append('seed %d' % seed)
    print('seed %d' % seed, flush=True)
    c.wait_primary(ALL, 30, synced=3)
    began = time.monotonic()
    writers = [Writer(c, n, 'any%d' % n) for n in ALL] + [Register(c, n, 'reg%d' % n) for n in ALL]
    while time.monotonic() - began < seconds:
        time.sleep(r.uniform(0.2, 2))
        what, undo = r.choice(FAULTS)(c, r)
        c.notes.append('%6.2f s: %s' % (time.monotonic() - began, what))
        time.sleep(r.choice((0.1, 1, 5, 8)))
        undo()
        if r.random() < 0.5:
            c.wait_primary(ALL, 60, synced=3)
    c.script('heal')
    c.wait_primary(ALL, 60, synced=3)
    for w in writers:
        w.end()
    c.wait_equal()
    for w in writers:
        w.check()
    c.notes.append('%d writes acknowledged, %d refused' % (sum(len(w.acknowledged) for w in writers), sum(w.refused for w in writers)))


TESTS = [(anything, 300 + float(os.environ.get('COTERIE_SECONDS', '60')))]
