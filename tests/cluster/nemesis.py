"""What breaks: each nemesis breaks something, waits, and mends it. Random choices come from the seed."""
import struct
import time

ALL = (1, 2, 3)


def others(n):
    return ','.join(str(m) for m in ALL if m != n)


class Nemesis:
    """`seconds` between the moments; whatever stays broken is mended by `mend`."""

    def __init__(self, c, r):
        self.c, self.r = c, r

    def pause(self, low, high):
        time.sleep(self.r.uniform(low, high))

    def once(self):
        raise NotImplementedError

    def mend(self):
        self.c.script('heal')

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.pause(0.3, 1.5)
            self.once()
            self.pause(0.3, 3)
        self.mend()


class PartitionOfOne(Nemesis):
    def once(self):
        n = self.r.choice(ALL)
        self.c.script('partition', n, others(n))
        self.pause(1, 8)
        self.c.script('heal')


class PartitionOfTwo(Nemesis):
    """First one is cut off, then another instead: a majority that changes without a moment of all three."""

    def once(self):
        for n in self.r.sample(ALL, 2):
            self.c.script('partition', n, others(n))
            self.pause(3, 7)
        self.c.script('heal')


class PartitionOfAll(Nemesis):
    def once(self):
        self.c.script('partition', 1, 2, 3)
        self.pause(1, 8)
        self.c.script('heal')


class Asymmetric(Nemesis):
    def once(self):
        a, b = self.r.sample(ALL, 2)
        self.c.script('cut', a, b)
        self.pause(1, 8)
        self.c.script('heal')


class Killed(Nemesis):
    what = 'daemon'

    def once(self):
        n = self.r.choice(ALL)
        self.c.script('kill', n, self.what)
        self.pause(0.1, 5)
        self.c.script('start', n, self.what)


class KilledCorosync(Killed):
    what = 'corosync'


class Stopped(Nemesis):
    what = 'daemon'

    def once(self):
        n = self.r.choice(ALL)
        self.c.script('stop', n, self.what)
        self.pause(0.5, 8)
        self.c.script('cont', n, self.what)


class StoppedCorosync(Stopped):
    what = 'corosync'


class FullDisk(Nemesis):
    def once(self):
        n = self.r.choice(ALL)
        fill = 'avail=$(df --output=avail -B1 /var/lib/coterie | tail -1); fallocate -l $avail /var/lib/coterie/filler; ' \
               'dd if=/dev/zero of=/var/lib/coterie/filler2 bs=4k 2>/dev/null; true'
        self.c.inside(n, 'sh', '-c', fill)
        self.pause(1, 6)
        self.c.inside(n, 'sh', '-c', 'rm -f /var/lib/coterie/filler*')


class SlowDisk(Nemesis):
    """A disk that answers nothing for a while, and again: every write waits for the thaw."""

    def once(self):
        n = self.r.choice(ALL)
        for _ in range(self.r.randrange(1, 6)):
            self.c.inside(n, 'fsfreeze', '-f', '/var/lib/coterie')
            time.sleep(self.r.choice((0.1, 0.5, 1, 4)))
            self.c.inside(n, 'fsfreeze', '-u', '/var/lib/coterie')
            self.pause(0.05, 0.3)


class ClockJump(Nemesis):
    """The daemons were started with a clock that follows this file (clockjump.c)."""
    preload = True

    def set(self, n, seconds):
        (self.c.dir / ('node%d/clock' % n)).write_bytes(struct.pack('=q', seconds))

    def once(self):
        self.set(self.r.choice(ALL), self.r.choice((-10 ** 6, -3600, -1, 1, 3600, 10 ** 8)))

    def mend(self):
        for n in ALL:
            self.set(n, 0)


class AllAtOnce(Nemesis):
    what = ('daemon',)

    def once(self):
        for n in ALL:
            for what in self.what:
                self.c.script('kill', n, what)
        self.pause(0.1, 2)
        for n in ALL:
            for what in self.what[::-1]:
                self.c.script('start', n, what)
        self.pause(1, 4)


class AllAtOnceWithCorosync(AllAtOnce):
    what = ('daemon', 'corosync')


class RestartLoop(Nemesis):
    def once(self):
        n = self.r.choice(ALL)
        for _ in range(self.r.randrange(2, 6)):
            self.c.script('kill', n, 'daemon')
            self.c.script('start', n, 'daemon')
            self.pause(0, 0.5)


class PowerCutOfOne(Nemesis):
    """A node loses power, comes back, and another one is cut off: what it forgot must not be missed."""

    def once(self):
        n = self.r.choice(ALL)
        self.c.script('powercut', n)
        self.pause(0.1, 4)
        self.c.script('start', n, 'corosync')
        self.c.script('start', n, 'daemon')
        m = self.r.choice([m for m in ALL if m != n])
        self.pause(0, 3)
        self.c.script('partition', m, others(m))
        self.pause(1, 6)
        self.c.script('heal')
        self.c.wait_primary(ALL, 90, synced=3)  # one node at a time


class PowerCutOfAll(Nemesis):
    """At level file."""
    options = ['--sync-level', 'file']

    def once(self):
        self.c.script('powercut', *ALL)
        self.pause(0.1, 1)
        for n in ALL:
            self.c.script('start', n, 'corosync')
            self.c.script('start', n, 'daemon')
        self.pause(3, 6)


class PowerCutOfAllUnflushed(PowerCutOfAll):
    """At level filesystem: what an fsync covered."""
    options = []
    only = ('fsynced',)


NEMESES = {'partition_of_one': PartitionOfOne, 'partition_of_two': PartitionOfTwo, 'partition_of_all': PartitionOfAll, 'asymmetric': Asymmetric,
           'killed_daemon': Killed, 'killed_corosync': KilledCorosync, 'stopped_daemon': Stopped, 'stopped_corosync': StoppedCorosync,
           'full_disk': FullDisk, 'slow_disk': SlowDisk, 'clock_jump': ClockJump, 'all_at_once': AllAtOnce,
           'all_at_once_with_corosync': AllAtOnceWithCorosync, 'restart_loop': RestartLoop, 'power_cut_of_one': PowerCutOfOne,
           'power_cut_of_all': PowerCutOfAll, 'power_cut_of_all_unflushed': PowerCutOfAllUnflushed}
