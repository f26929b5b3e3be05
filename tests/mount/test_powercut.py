"""Power cuts: the daemon is stopped under load, what the block device has received by then is copied, mounted elsewhere and opened.
On ext4 and XFS in turn.

One worker, so that its operations have an order; after each it writes the operation's number into an xattr of its directory. What comes back must
be the state after some number of operations, at level `file` no fewer than were acknowledged, at the others no fewer than the last
fsync covered. Someone else calls syncfs now and then, so that at `none` the device has more than nothing.
"""
import json
import os
import random
import shutil
import signal
import sys
import time

from daemon import Daemon
from harness import at_least, eq, test
from machine import Image, run, syncfs
from workload import Generator, Journal, Stopped, carry_out, difference, outcomes, snapshot

ROUNDS = int(os.environ.get('COTERIE_POWERCUTS', '5'))
SEQUENCE = 'user.sequence'


def work(root, seed, journal):
    generator, number = Generator(seed, barriers=True), 0
    try:
        while True:
            op = generator.next()
            journal.put('begin', number, op)
            result = carry_out(root, op, on_step=lambda i: journal.put('step', number, i))
            journal.put('end', number, result)
            os.setxattr(root, SEQUENCE, b'%d' % number)
            journal.put('sequence', number)
            number += 1
    except (Stopped, OSError):
        pass


def fork(function, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        except BaseException as e:
            print('worker: %r' % e, file=sys.stderr)
        os._exit(0)
    return pid


def write_back(directory, seed):
    """The kernel's own writeback, at moments of its own."""
    r = random.Random(seed)
    while True:
        time.sleep(r.uniform(0.05, 0.4))
        syncfs(directory)


class Acknowledged:
    """From the journal: operations, the last one whose number was acknowledged, and the last that an fsync covers."""

    def __init__(self, path):
        self.operations, self.steps, self.sequence, self.covered = [], [], -1, -1
        with open(path) as f:
            for line in f:
                if not line.endswith('\n'):
                    break
                words = json.loads(line)
                if words[0] == 'begin':
                    self.operations.append(words[2])
                    self.steps.append(0)
                elif words[0] == 'step':
                    self.steps[-1] = words[2] + 1
                elif words[0] == 'end' and words[2] == 0 and self.operations[-1][0] in ('fsync', 'fsyncdir'):
                    self.covered = words[1] - 1
                elif words[0] == 'sequence':
                    self.sequence = words[1]


def one_round(t, level, number):
    base = t.dir / ('%s%d' % (level, number))
    r = random.Random('%s %d' % (level, number))
    fs = 'xfs' if number % 2 and shutil.which('mkfs.xfs') else 'ext4'
    image = Image(base / 'image', 512 << 20, fs)
    t.images.append(image)
    d = Daemon(base / 'd', db=image.directory + '/tree.db', level=level, options=['--log-size', r.choice(['1M', '16M']), '--commit-interval', '300ms'])
    t.daemons.append(d)
    d.start()
    root = d.mnt / 'work'
    root.mkdir()
    os.setxattr(root, SEQUENCE, b'-1')
    d.sync()
    journal = Journal(base / 'journal')
    worker, other = fork(work, root, number, journal), fork(write_back, image.directory, number)
    time.sleep(r.uniform(0.3, 1.5))
    d.signal(signal.SIGSTOP)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    time.sleep(0.01)  # what the worker wrote to its journal before it came to a halt
    said = Acknowledged(base / 'journal')
    cut = str(base / 'cut.img')
    image.snapshot(cut)
    d.kill()
    d.detach()
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    image.close()

    after = Image(base / 'after', 0, fs, path=cut)
    t.images.append(after)
    e = Daemon(base / 'e', db=after.directory + '/tree.db', level=level)
    t.daemons.append(e)
    e.start()
    root = e.mnt / 'work'
    found = int(os.getxattr(root, SEQUENCE))
    compare(base / 'model', root, found, said, level)
    bound = {'none': said.covered, 'filesystem': said.covered, 'file': said.sequence}[level]
    at_least(found, bound, 'level %s, round %d: operations that came back, of %d acknowledged' % (level, number, said.sequence))
    e.stop()
    eq(e.check().returncode, 0, 'coterie check')
    after.close()
    os.unlink(cut)
    shutil.rmtree(base, ignore_errors=True)
    return max(0, said.sequence - found), said.sequence + 1  # one more than was noted may have come back


def compare(model, root, found, said, level):
    """The tree is the one after `found` operations and, of the next one, of the steps that may have happened."""
    model.mkdir()
    for op in said.operations[:found + 1]:
        carry_out(model, op)
    got = snapshot(root)
    reasons = [difference(got, snapshot(model))]
    if found + 1 == len(said.operations):
        eq(reasons[0], '', 'after all %d operations' % (found + 1))
        return
    op, acknowledged = said.operations[found + 1], said.steps[found + 1]
    if level == 'file' and acknowledged and found == said.sequence:
        possible = outcomes(model, op, acknowledged)
    else:
        possible = range(4)
    for upto in possible:
        spare = model.with_name('spare')
        run('cp', '-a', model, spare)
        carry_out(spare, op, upto=upto)
        reasons.append(difference(got, snapshot(spare)))
        if not reasons[-1]:
            return
        shutil.rmtree(spare)
    raise AssertionError('after operation %d, %d steps of %r acknowledged, no state that may be:\n%s' % (found, acknowledged, op, '\n--- or\n'.join(reasons)))


def rounds(t, level):
    lost, total, with_loss = 0, 0, 0
    for number in range(ROUNDS):
        gone, operations = one_round(t, level, number)
        lost, total, with_loss = lost + gone, total + operations, with_loss + (gone > 0)
    t.note('%d power cuts at level %s: %d of %d operations gone, in %d of the rounds' % (ROUNDS, level, lost, total, with_loss))
    return with_loss


@test(timeout=1200)
def power_cuts_at_level_file(t):
    eq(rounds(t, 'file'), 0, 'rounds that lost an acknowledged operation')


@test(timeout=1200)
def power_cuts_at_level_filesystem(t):
    rounds(t, 'filesystem')


@test(timeout=1200)
def power_cuts_at_level_none(t):
    # That something is lost here shows that the cut is one.
    at_least(rounds(t, 'none'), 1, 'rounds that lost something at level none')
