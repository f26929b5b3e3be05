#!/usr/bin/env python3
"""Counts the bytes that reach the disk for what is written through a Coterie mount, and compares them with the bytes of content.

  tests/amplification/amplify.py                    the matrix: all sizes, patterns, random and text, one and many files, synced or not
  tests/amplification/amplify.py --named            touch, chmod, mv, append, edit, creation, idleness, isolated updates, levels
  tests/amplification/amplify.py --short            the set with upper bounds that CI runs; exit status 1 if one is exceeded

Writes amplification.json, .csv, .svg and .png to --out. Root, loop devices and FUSE; everything lives in namespaces of its own.
"""
import argparse
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
    parser.add_argument('--quick', action='store_true', help='a quarter of the updates')
    parser.add_argument('--named', action='store_true')
    parser.add_argument('--short', action='store_true')
    parser.add_argument('--only', action='append', default=[], help='with --short or --named: only this one')
    parser.add_argument('--out', default=str(HERE.parents[1] / 'build' / 'amplification'))
    parser.add_argument('--inner', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def matrix(options, directory, say):
    import measure
    results = []
    synced = {'no': [False], 'yes': [True], 'both': [False, True]}[options.synced]
    for name in options.patterns:
        for kind in options.kinds:
            for spread in options.spreads:
                for each in synced:
                    for size in options.sizes:
                        with tempfile.TemporaryDirectory(dir=directory) as d:
                            results.append(measure.pattern(d, name, size, kind, spread, each, options.level, options.fs, options.quick))
                        say(results[-1])
    return results


def run(options, directory):
    import bounds
    import named
    import report
    print(report.LEGEND)
    print(report.header(), flush=True)

    def say(result):
        print(report.row(result), flush=True)
    faults = []
    if options.short:
        def told(entry):
            case, result, found = entry
            if result:
                say({**result, 'name': case.name})
            for fault in found:
                print('EXCEEDED  ' + fault, flush=True)
        outcome = bounds.run_all(directory, told, options.only)
        results = [r for _, r, _ in outcome if r]
        faults = [f for _, _, found in outcome for f in found]
    elif options.named:
        results = []
        for name, function in named.all_named(directory, options.fs):
            if not options.only or name in options.only:
                with tempfile.TemporaryDirectory(dir=directory) as d:
                    results.append(function(d))
                say(results[-1])
    else:
        results = matrix(options, directory, say)
    report.write_files(options.out, results, options.fs, options.level)
    picture = report.plot(options.out, results)
    print('written: %s/amplification.json, .csv%s' % (options.out, ' and ' + picture if picture else ''))
    if options.short:
        bad = len({f.split(':')[0] for f in faults})
        print('%d passed, %d failed, 0 skipped' % (len(outcome) - bad, bad))
    return 1 if faults else 0


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
