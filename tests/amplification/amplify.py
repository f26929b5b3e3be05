#!/usr/bin/env python3
"""Counts the bytes that reach the disk for what is written through a Coterie mount, and compares them with the bytes of content.

  tests/amplification/amplify.py                    the matrix: all sizes, patterns, random and text, one and many files, synced or not
  tests/amplification/amplify.py --short            the named measurements that CI runs: replace, touch, mv, edits, creation, isolated updates, ...
  tests/amplification/amplify.py --named            more of them, and longer (20 minutes, of which most is waiting)

Exit status 1 if a bound is exceeded. Writes amplification.json, .csv, .svg and .png to --out. Root, loop devices and FUSE; everything lives in namespaces of its own.
"""
import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / 'lib')]

import daemon  # noqa: E402
import harness  # noqa: E402
import machine  # noqa: E402


def parse():
    import measure
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', default=str(daemon.BIN), help='directory of coteried and coterie')
    parser.add_argument('--fs', default='ext4', choices=sorted(machine.MKFS))
    parser.add_argument('--level', default='filesystem', choices=['none', 'filesystem', 'file'])
    parser.add_argument('--sizes', type=lambda s: [int(x) for x in s.split(',')], default=measure.SIZES, help='bytes, separated by commas')
    parser.add_argument('--patterns', type=lambda s: s.split(','), default=list(measure.PATTERNS))
    parser.add_argument('--kinds', type=lambda s: s.split(','), default=['random', 'text'])
    parser.add_argument('--spreads', type=lambda s: s.split(','), default=['many', 'hot'])
    parser.add_argument('--synced', choices=['no', 'yes', 'both'], default='both')
    parser.add_argument('--quick', action='store_true', help='a quarter of the updates where there is no bound')
    parser.add_argument('--named', action='store_true')
    parser.add_argument('--short', action='store_true')
    parser.add_argument('--only', action='append', default=[], help='with --short or --named: only this one')
    parser.add_argument('--out', default=str(HERE.parents[1] / 'build' / 'amplification'))
    parser.add_argument('--inner', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def matrix(options, directory, told):
    import bounds
    import measure
    synced = {'no': [False], 'yes': [True], 'both': [False, True]}[options.synced]
    cells = itertools.product(options.patterns, options.kinds, options.spreads, synced, options.sizes)
    outcome = []
    for name, kind, spread, each, size in cells:
        quick = options.quick and not bounds.cell_bound(name, spread, each, options.level, size)
        with tempfile.TemporaryDirectory(dir=directory) as d:
            result = measure.pattern(d, name, size, kind, spread, each, options.level, options.fs, quick)
        outcome.append((result['name'], result, bounds.cell_faults(result)))
        told(outcome[-1])
    return outcome


def run(options, directory):
    import bounds
    import report
    print(report.LEGEND)
    print(report.header(), flush=True)

    def told(entry):
        _, result, faults = entry
        if result:
            print(report.row(result), flush=True)
        for fault in faults:
            print('EXCEEDED  ' + fault, flush=True)
    if options.short or options.named:
        outcome = bounds.run_all(directory, told, options.fs, options.named, options.only)
    else:
        outcome = matrix(options, directory, told)
    results = [r for _, r, _ in outcome if r]
    report.write_files(options.out, results, options.fs, options.level)
    picture = report.plot(options.out, results)
    print('written: %s/amplification.json, .csv%s' % (options.out, ' and ' + picture if picture else ''))
    bad = sum(1 for _, _, faults in outcome if faults)
    print('%d passed, %d failed, 0 skipped' % (len(outcome) - bad, bad))
    return 1 if bad else 0


def main():
    options = parse()
    daemon.BIN = Path(options.bin)
    os.environ['COTERIE_BIN'] = options.bin
    try:
        if not options.inner:
            machine.need_fuse()
            machine.need_loop()
            harness.enter_namespaces()
    except machine.Skip as e:
        print('skipped: %s' % e)
        return 77
    work = harness.make_work()
    try:
        return run(options, work)
    finally:
        harness.remove_work()


sys.exit(main())
