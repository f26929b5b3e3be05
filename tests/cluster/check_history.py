#!/usr/bin/env python3
"""The checker of histories finds what it is there for: good histories pass, and each kind of damage is named."""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import history  # noqa: E402
from history import Call  # noqa: E402


class Tree:
    def __init__(self, contents):
        self.contents = contents

    def content(self, name):
        return self.contents.get(name)

    def names(self, directory):
        return {n.split('/')[1] for n in self.contents if n.startswith(directory + '/')}


def w(value, begun, ended, error='', name='r', what='write', node=1, epoch=1):
    return Call(what, node, name, value, begun, ended, epoch, error)


def r(value, begun, epoch=1, name='r', what='read'):
    return Call(what, 2, name, value, begun, begun + 1, epoch, '')


def mk(name, begun, error='', node=1, what='create'):
    return Call(what, node, name, None, begun, begun + 1, 1, error)


# (workload, calls, tree at the end, what must be said; '' for nothing)
CASES = [
    ('files', [w('1', 0, 1, name='f')], {'f': '1'}, ''),
    ('files', [w('1', 0, 1, name='f')], {}, 'lost'),
    ('files', [w('1', 0, 1, name='f')], {'f': ''}, 'lost'),
    ('files', [w('1', 0, 1, 'EIO', name='f')], {'f': '1'}, ''),
    ('files', [w('1', 0, 1, 'EROFS', name='f')], {'f': '1'}, 'refused'),
    ('files', [w('1', 0, 1, 'EIO', name='f')], {'f': '2'}, 'mixed'),
    ('register', [w('a', 0, 1), w('b', 2, 3)], {'r': 'b'}, ''),
    ('register', [w('a', 0, 1), w('b', 2, 3)], {'r': 'a'}, 'lost'),
    ('register', [w('a', 0, 3), w('b', 2, 4)], {'r': 'a'}, ''),
    ('register', [w('a', 0, 1, 'EIO'), w('b', 2, 3)], {'r': 'a'}, ''),
    ('register', [w('a', 0, 1, 'EROFS'), w('b', 2, 3)], {'r': 'a'}, 'refused'),
    ('register', [w('a', 0, 1)], {'r': ''}, 'lost'),
    ('register', [w('a', 0, 1)], {'r': 'x'}, 'nobody wrote'),
    ('register', [w('a', 0, 1), w('b', 2, 3), r('a', 4)], {'r': 'b'}, 'stale'),
    ('register', [w('a', 0, 1), w('b', 2, 3), r('a', 2.5)], {'r': 'b'}, ''),
    ('register', [w('a', 0, 1), w('b', 2, 3, epoch=2), r('a', 4, epoch=1)], {'r': 'b'}, ''),
    ('register', [w('a', 0, 1), w('b', 2, 3, epoch=2), r('a', 4, epoch=2)], {'r': 'b'}, 'stale'),
    ('register', [w('a', 0, 1), w('b', 2, 3), r('a', 4, epoch=0)], {'r': 'b'}, ''),
    ('append', [w('a', 0, 1), w('b', 2, 3)], {'appended': 'a\nb\n'}, ''),
    ('append', [w('a', 0, 1), w('b', 2, 3)], {'appended': 'b\na\n'}, 'out of order'),
    ('append', [w('a', 0, 1), w('b', 2, 3)], {'appended': 'a\n'}, 'lost'),
    ('append', [w('a', 0, 1)], {'appended': 'a\na\n'}, 'twice'),
    ('append', [w('a', 0, 1)], {'appended': 'a\nx\n'}, 'nobody wrote'),
    ('append', [w('a', 0, 1), w('b', 2, 3, 'EROFS')], {'appended': 'a\nb\n'}, 'refused'),
    ('append', [w('a', 0, 1)], {'appended': 'a'}, 'half'),
    ('entries', [mk('entries/a', 0)], {'entries/a': ''}, ''),
    ('entries', [mk('entries/a', 0)], {}, 'lost'),
    ('entries', [mk('entries/a', 0), mk('entries/a', 2, what='remove')], {'entries/a': ''}, 'lost'),
    ('entries', [mk('entries/a', 0, 'EROFS')], {'entries/a': ''}, 'refused'),
    ('entries', [mk('entries/a', 0), r([], 2, name='entries', what='list')], {'entries/a': ''}, 'stale'),
    ('entries', [mk('entries/a', 0), mk('entries/a', 2, what='remove'), r(['a'], 4, name='entries', what='list')], {}, 'stale'),
    ('claims', [mk('claims/a', 0), mk('claims/a', 0, 'EEXIST')], {'claims/a': ''}, ''),
    ('claims', [mk('claims/a', 0), mk('claims/a', 3)], {'claims/a': ''}, 'claimed twice'),
    ('claims', [mk('claims/a', 0)], {}, 'lost'),
    ('claims', [mk('claims/a', 0, 'EEXIST'), mk('claims/a', 2)], {'claims/a': ''}, 'nobody made it'),
    ('claims', [mk('claims/a', 0, 'EROFS')], {'claims/a': ''}, 'refused'),
]


def main():
    wrong = 0
    for workload, calls, contents, wanted in CASES:
        found = list(history.CHECKS[workload](calls, Tree(contents)))
        if bool(found) != bool(wanted) or (wanted and not any(wanted in text for text in found)):
            wrong += 1
            print('%s, %s, %s: wanted %r, found %s' % (workload, calls, contents, wanted, found))
    print('%d histories, %d judged wrongly' % (len(CASES), wrong))
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
