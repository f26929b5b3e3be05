"""The named measurements and what must hold for each: bytes and flushes per update at the block device, everything charged.

The short set is for CI; the long one has more updates, more kinds and other filesystems."""
from concurrent.futures import ThreadPoolExecutor

import named
from measure import KIB, MIB, pattern, updates_for

# size: (random, text), bytes per replaced file, many files, back to back, level filesystem
REPLACE = {128: (1536, 1536), KIB: (3072, 2048), 4 * KIB: (1.8 * 4 * KIB, 4 * KIB), 8 * KIB: (1.5 * 8 * KIB, 0.75 * 8 * KIB),
           64 * KIB: (1.15 * 64 * KIB, 0.45 * 64 * KIB), MIB: (1.15 * MIB, 0.4 * MIB)}
ISOLATED = {'ext4': 17 * KIB, 'xfs': 4 * KIB}  # and 1.1 times the size
PARTS_SHORT = ('create and write', 'write, in the log', 'write, in extents', 'unlink', 'rename', 'setattr', 'setxattr')


class Case:
    """A measurement and the bounds of its result. waits: it sleeps most of its time, and runs beside the others."""

    def __init__(self, name, function, waits=False, parts=None, least=None, **most):
        self.name, self.function, self.waits, self.parts, self.least, self.most = name, function, waits, parts, least or {}, most

    def faults(self, result):
        found = ['%s: %.1f %s per update, at most %.1f wanted' % (self.name, result[what], what, bound)
                 for what, bound in self.most.items() if result[what] > bound]
        found += ['%s: %.1f %s per update, at least %.1f wanted' % (self.name, result[what], what, bound)
                  for what, bound in self.least.items() if result[what] < bound]
        if self.parts:
            known = sum(result[p] for p in ('log', 'content', 'home', 'journal'))
            if abs(result['bytes'] - known) > self.parts * result['bytes']:
                found.append('%s: log %.1f + content %.1f + home %.1f + journal %.1f = %.1f, the devices counted %.1f' % (
                    self.name, result['log'], result['content'], result['home'], result['journal'], known, result['bytes']))
        return found


def cell_bound(name, spread, synced, level, size):
    """Of a cell of the matrix: its row of the table above, or None."""
    return REPLACE.get(size) if (name, spread, synced, level) == ('replace', 'many', False, 'filesystem') else None


def cell_faults(result):
    bounds = cell_bound(*(result[k] for k in ('pattern', 'spread', 'synced', 'level', 'size')))
    return Case(result['name'], None, bytes=bounds[result['kind'] == 'text']).faults(result) if bounds else []


def replaces(fs, long):
    for size, bounds in REPLACE.items():
        n = updates_for(size, False) if long else min(4000, max(200, 128 * MIB // size))
        for kind, bound in zip(('random', 'text'), bounds):
            # Long enough, large content comes to lie in extents that were in use before.
            least = {'reused': size / 8} if kind == 'random' and size >= 64 * KIB else None
            yield Case('replace %d B %s' % (size, kind), lambda d, size=size, kind=kind, n=n: pattern(d, 'replace', size, kind=kind, fs=fs, n=n),
                       bytes=bound, least=least)


def large_files(fs, long):
    n = 1000 if long else 500
    for what, bound in (('touch', 4), ('chmod', 4), ('mv', 4), ('append 2 bytes', 6), ('edit 100 bytes', 6)):
        for kind in ('random', 'text') if what.startswith('edit') else ('random',):
            yield Case('%s, 1 MiB file of %s' % (what, kind), lambda d, what=what, kind=kind: named.on_large_file(d, what, fs=fs, kind=kind, n=n),
                       bytes=bound * KIB)


def at_level_file(fs, long):
    n = 1000 if long else 500
    yield Case('level file, replace 128 B', lambda d: pattern(d, 'replace', 128, level='file', fs=fs, n=n), bytes=2.3 * KIB, flushes=3.05)
    yield Case('level file, overwrite 128 B', lambda d: pattern(d, 'overwrite', 128, level='file', fs=fs, n=n), bytes=1.2 * KIB, flushes=1.05)
    if long:
        yield Case('level file, replace 64 KiB', lambda d: pattern(d, 'replace', 64 * KIB, level='file', fs=fs, n=n))


def waiting(fs, long):
    for on in (fs,) if long else ISOLATED:
        for size in (KIB, 64 * KIB, MIB) if long else (KIB, 64 * KIB):
            most = {'bytes': ISOLATED[on] + 1.1 * size} if on in ISOLATED else {}
            yield Case('isolated update of %d B, %s' % (size, on), lambda d, on=on, size=size: named.isolated(d, on, size, n=named.MANY_ISOLATED if long else 15),
                       waits=True, **most)
    # XFS brings its own log to rest for some time after the last change.
    yield Case('idle', lambda d: named.idle(d, fs=fs, seconds=60), waits=True, log=0, content=0, home=0, **({'bytes': 0} if fs == 'ext4' else {}))


def cases(fs='ext4', long=False):
    yield from replaces(fs, long)
    yield Case('one hot file of 64 KiB', lambda d: pattern(d, 'replace', 64 * KIB, spread='hot', fs=fs, n=4000 if long else 2000),
               bytes=1.15 * 64 * KIB, least={'reused': 8 * KIB})
    yield from at_level_file(fs, long)
    yield Case('dd', lambda d: named.dd(d, fs, n=200 if long else 20), bytes=2.2 * 512000)
    yield Case('identical rewrites', lambda d: named.identical_rewrites(d, fs), bytes=200)
    yield Case('10,000 creates', lambda d: named.creates(d, fs), bytes=1.2 * KIB)
    yield from large_files(fs, long)
    if fs == 'ext4':
        for kind in named.KINDS if long else PARTS_SHORT:
            yield Case('parts: ' + kind, lambda d, kind=kind: named.parts(d, kind), parts=0.02)
        yield Case('parts, level file: create and write', lambda d: named.parts(d, 'create and write', level='file'), parts=0.02)
    yield from waiting(fs, long)


def run_all(directory, say, fs='ext4', long=False, only=()):
    """[(case, result or None, faults)]; say(entry) is told about each as it ends."""
    chosen = [c for c in cases(fs, long) if not only or c.name in only]
    outcome = []

    def one(case):
        try:
            result = case.function('%s/%s' % (directory, ''.join(c if c.isalnum() else '-' for c in case.name)))
            result['name'] = case.name
            return case, result, case.faults(result)
        except Exception as e:
            return case, None, ['%s: %s: %s' % (case.name, type(e).__name__, e)]

    with ThreadPoolExecutor(16) as pool:
        waits = [pool.submit(one, c) for c in chosen if c.waits]
        for case in chosen:
            if not case.waits:
                outcome.append(one(case))
                say(outcome[-1])
        for future in waits:
            outcome.append(future.result())
            say(outcome[-1])
    return outcome
