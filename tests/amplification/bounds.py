"""The short set: measurements with upper bounds, for CI. Bytes per update at the block device, everything charged."""
from concurrent.futures import ThreadPoolExecutor

import named
from measure import KIB, MIB, pattern

# size: (random, text), bytes per replaced file, many files, back to back, level filesystem
REPLACE = {128: (1536, 1536), KIB: (3072, 2048), 4 * KIB: (1.8 * 4 * KIB, 4 * KIB), 8 * KIB: (1.5 * 8 * KIB, 0.75 * 8 * KIB),
           64 * KIB: (1.15 * 64 * KIB, 0.45 * 64 * KIB), MIB: (1.15 * MIB, 0.4 * MIB)}


class Case:
    """A measurement and what must hold for its result."""

    def __init__(self, name, function, slow=False, **most):
        self.name, self.function, self.slow, self.most = name, function, slow, most

    def faults(self, result):
        found = ['%s: %.1f %s per update, at most %.1f wanted' % (self.name, result[what], what, bound)
                 for what, bound in self.most.items() if what != 'parts' and result[what] > bound]
        if 'parts' in self.most:
            known = sum(result[p] for p in ('log', 'content', 'home', 'journal'))
            if abs(result['bytes'] - known) > self.most['parts'] * result['bytes']:
                found.append('%s: log %.0f + content %.0f + home %.0f + journal %.0f = %.0f, the devices counted %.0f' % (
                    self.name, result['log'], result['content'], result['home'], result['journal'], known, result['bytes']))
        return found


def cases():
    found = []
    for size, (random_bound, text_bound) in REPLACE.items():
        for kind, bound in (('random', random_bound), ('text', text_bound)):
            found.append(Case('replace %d B %s' % (size, kind),
                              lambda d, size=size, kind=kind: pattern(d, 'replace', size, kind=kind, n=min(4000, max(200, 128 * MIB // size))), bytes=bound))
    found += [
        Case('one hot file of 64 KiB', lambda d: pattern(d, 'replace', 64 * KIB, spread='hot', n=1000), bytes=1.15 * 64 * KIB),
        Case('level file, replace 128 B', lambda d: pattern(d, 'replace', 128, level='file', n=500), bytes=2.3 * KIB, flushes=3.05),
        Case('level file, overwrite 128 B', lambda d: pattern(d, 'overwrite', 128, level='file', n=500), bytes=1.2 * KIB, flushes=1.05),
        Case('dd', named.dd, bytes=2.2 * 512000),
        Case('identical rewrites', named.identical_rewrites, bytes=200),
        Case('10,000 creates', named.creates, bytes=1.2 * KIB),
        Case('journal apart', named.journal_apart, parts=0.02),
    ]
    for what, bound in (('touch', 4), ('chmod', 4), ('mv', 4), ('append 2 bytes', 6), ('edit 100 bytes', 6)):
        found.append(Case(what, lambda d, what=what: named.on_large_file(d, what, n=500), bytes=bound * KIB))
    found.append(Case('edit 100 bytes of text', lambda d: named.on_large_file(d, 'edit 100 bytes', kind='text', n=500), bytes=6 * KIB))
    # These wait most of their time: they run beside the others.
    found += [
        Case('isolated update, ext4', lambda d: named.isolated(d, 'ext4', n=40, pause=1.5), slow=True, bytes=17 * KIB + 1.1 * KIB),
        Case('isolated update, xfs', lambda d: named.isolated(d, 'xfs', n=200, pause=0.3), slow=True, bytes=4 * KIB + 1.1 * KIB),
        Case('idle', lambda d: named.idle(d, seconds=60), slow=True, bytes=0),
    ]
    return found


def run_all(directory, say, only=()):
    """[(case, result or None, faults)]; say(text) is told about each as it ends."""
    chosen = [c for c in cases() if not only or c.name in only]
    outcome = []

    def one(case):
        try:
            result = case.function('%s/%s' % (directory, ''.join(c if c.isalnum() else '-' for c in case.name)))
            return case, result, case.faults(result)
        except Exception as e:
            return case, None, ['%s: %s: %s' % (case.name, type(e).__name__, e)]

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(one, c) for c in chosen if c.slow]
        for case in chosen:
            if not case.slow:
                outcome.append(one(case))
                say(outcome[-1])
        for future in waiting:
            outcome.append(future.result())
            say(outcome[-1])
    return outcome
