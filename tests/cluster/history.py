"""What a history of clients must satisfy (docs/GUARANTEES.md): nothing acknowledged is lost, nothing refused has happened, and what a member of the
synced set shows is not older than what had been acknowledged before the read began. Checks return the first violations as text.

A call that ended with EROFS surely did not happen. Any other error leaves it open."""
import bisect
import json
import os

SURELY_NOT = ('EROFS',)
FOREVER = float('inf')


class Call:
    def __init__(self, what, node, name, value, begun, ended, epoch, error):
        self.what, self.node, self.name, self.value, self.begun, self.ended, self.epoch, self.error = what, node, name, value, begun, ended, epoch, error
        self.ok = error == ''

    def end(self):
        return self.ended if self.ok else FOREVER

    def __repr__(self):
        return '%s %s %r on node %d at %.3f to %.3f, epoch %d%s' % (self.what, self.name, self.value, self.node, self.begun, self.ended, self.epoch,
                                                                   ', ' + self.error if self.error else '')


def load(paths):
    calls = []
    for p in paths:
        with open(p) as f:
            calls += [Call(*json.loads(line)) for line in f if line.endswith('\n')]
    return sorted(calls, key=lambda c: c.begun)


class Tree:
    """One node's tree at the end."""

    def __init__(self, root):
        self.root, self.lists = root, {}

    def content(self, name):
        try:
            return (self.root / name).read_text()
        except FileNotFoundError:
            return None

    def shown(self, name):
        """What a look at the name gives, and what a list of its directory says of it."""
        path = self.root / name
        try:
            found = path.read_text() if path.is_file() else 'directory' if path.is_dir() else None
        except FileNotFoundError:
            found = None
        if path.parent not in self.lists:
            self.lists[path.parent] = set(os.listdir(path.parent)) if path.parent.is_dir() else set()
        return found, path.name in self.lists[path.parent]

    def names(self, directory):
        try:
            return {p.name for p in (self.root / directory).iterdir()}
        except FileNotFoundError:
            return set()


def check_files(calls, tree):
    """Files that are written once."""
    for c in calls:
        if c.what not in ('write', 'fsync'):
            continue
        found = tree.content(c.name)
        if c.ok and found != c.value:
            yield 'lost: %r; there is %r' % (c, found)
        if not c.ok and found not in (None, '', c.value):
            yield 'mixed: %r; there is %r' % (c, found)
        if c.error in SURELY_NOT and found == c.value:
            yield 'refused, and yet there: %r' % c


class Writes:
    """All writes of one register, for asking what a reader may not have missed."""

    def __init__(self, writes):
        self.of_value = {w.value: w for w in writes}
        self.epochs = {}
        for w in sorted((w for w in writes if w.ok), key=lambda w: w.ended):
            ends, latest = self.epochs.setdefault(w.epoch, ([], []))
            ends.append(w.ended)
            latest.append(w if not latest or w.begun > latest[-1].begun else latest[-1])

    def newest(self, before, epoch):
        """Of the writes that had ended before, in an epoch up to this one: that which began last."""
        found = None
        for e, (ends, latest) in self.epochs.items():
            i = bisect.bisect_left(ends, before)
            if 0 < e <= epoch and i > 0 and (found is None or latest[i - 1].begun > found.begun):
                found = latest[i - 1]
        return found


def check_registers(calls, tree):
    """Registers: reads by epoch, and what is there at the end."""
    for name in sorted({c.name for c in calls}):
        mine = [c for c in calls if c.name == name]
        all_writes = [c for c in mine if c.what == 'write']
        failed = any(not w.ok for w in all_writes)
        writes = Writes(all_writes)
        final = tree.content(name)
        last = max((w for w in all_writes if w.ok), key=lambda w: w.begun, default=None)
        if final in (None, ''):
            if last and not (final == '' and failed):
                yield 'lost: %r; there is %r' % (last, final)
        elif final not in writes.of_value:
            yield '%s holds %r, which nobody wrote' % (name, final)
        else:
            w = writes.of_value[final]
            if last and last.begun > w.end():
                yield 'lost: %r; there is %r' % (last, w)
            if w.error in SURELY_NOT:
                yield 'refused, and yet there: %r' % w
        for r in mine:
            if r.what != 'read' or not r.ok or not r.epoch or r.value == '':
                continue
            w, newest = writes.of_value.get(r.value), writes.newest(r.begun, r.epoch)
            if w is None:
                yield 'nobody wrote what was read: %r' % r
            elif newest and newest.begun > w.end():
                yield 'stale: %r; before it %r was acknowledged' % (r, newest)


def check_append(calls, tree):
    lines = (tree.content('appended') or '').split('\n')
    if lines.pop() != '':
        yield 'half a record at the end'
    by_value = {c.value: c for c in calls}
    seen, latest = set(), None
    for line in lines:
        c = by_value.get(line)
        if c is None:
            yield 'a record that nobody wrote: %r' % line
            continue
        if line in seen:
            yield 'twice: %r' % c
        seen.add(line)
        if c.error in SURELY_NOT:
            yield 'refused, and yet there: %r' % c
        if latest and c.end() < latest.begun:
            yield 'out of order: %r stands behind %r' % (c, latest)
        if latest is None or c.begun > latest.begun:
            latest = c
    for c in calls:
        if c.ok and c.value not in seen:
            yield 'lost: %r' % c


def check_entries(calls, tree):
    there = {'entries/' + n for n in tree.names('entries')}
    removed, created = {}, {}
    for c in calls:
        if c.what == 'remove':
            removed[c.name] = c
        if c.what == 'create':
            created[c.name] = c
    for name, c in created.items():
        r = removed.get(name)
        gone = r is None or r.error in SURELY_NOT
        if c.ok and gone and name not in there:
            yield 'lost: %r' % c
        if r and r.ok and name in there:
            yield 'lost: %r' % r
        if c.error in SURELY_NOT and name in there:
            yield 'refused, and yet there: %r' % c
    for ls in calls:
        if ls.what != 'list' or not ls.ok or not ls.epoch:
            continue
        seen = set(ls.value)
        for name, c in created.items():
            r = removed.get(name)
            short = name.split('/')[1]
            if c.ok and c.ended < ls.begun and 0 < c.epoch <= ls.epoch and (r is None or r.begun > ls.ended) and short not in seen:
                yield 'stale: a list on node %d at %.3f, epoch %d, lacks %r' % (ls.node, ls.begun, ls.epoch, c)
            if r and r.ok and r.ended < ls.begun and 0 < r.epoch <= ls.epoch and short in seen:
                yield 'stale: a list on node %d at %.3f, epoch %d, ignores %r' % (ls.node, ls.begun, ls.epoch, r)


def check_claims(calls, tree):
    """Of all who tried to make one directory at most one did; who was told that it exists came after somebody who may have made it."""
    there = {'claims/' + n for n in tree.names('claims')}
    for name in sorted({c.name for c in calls}):
        mine = [c for c in calls if c.name == name]
        makers = [c for c in mine if c.ok]
        maybe = [c for c in mine if c.ok or c.error not in SURELY_NOT + ('EEXIST', 'ENOENT')]
        if len(makers) > 1:
            yield 'claimed twice: %r and %r' % tuple(makers[:2])
        if makers and name not in there:
            yield 'lost: %r' % makers[0]
        if not maybe and name in there:
            yield 'refused, and yet there: %s' % mine
        for c in mine:
            if c.error == 'EEXIST' and not any(m.begun < c.ended for m in maybe):
                yield 'nobody made it before: %r' % c


CHECKS = {'files': check_files, 'fsynced': check_files, 'own_register': check_registers, 'register': check_registers, 'replaced': check_registers,
          'entries': check_entries, 'append': check_append, 'claims': check_claims}


def differences(calls, trees):
    """All nodes show the same, also of what may or may not have happened."""
    for name in sorted({c.name for c in calls if c.what != 'list'}):
        seen = [tree.shown(name) for tree in trees]
        if any(s != seen[0] for s in seen):
            yield 'the nodes differ in %s: %r; last %r' % (name, seen, [c for c in calls if c.name == name][-1])


def violations(workload, calls, roots, most=5):
    found = list(differences(calls, [Tree(root) for root in roots]))[:most]
    for root in roots:
        for text in CHECKS[workload](calls, Tree(root)):
            found.append(text)
            if len(found) >= most:
                return found
    return found
