#!/usr/bin/env python3
"""The three sync levels compared: time, bytes to disk and flushes of the same work on ext4, XFS and btrfs.

usage: sudo bench/sync-levels/run.py [--runs 5] [--fs ext4,xfs,btrfs] [--images DIR] [--out FILE]

Each run has a fresh filesystem on a loop device of its own. Of the runs of one cell the highest and the lowest are dropped and the rest averaged;
the percentages are against level none on the same filesystem. Images lie on a real disk (DIR), so that a flush costs what it costs there.
"""
import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / 'tests' / 'lib'), str(ROOT / 'tests' / 'amplification')]

import daemon  # noqa: E402
import harness  # noqa: E402
import machine  # noqa: E402
from measure import KIB, MIB, Contents, Place, measure, replace, write_file  # noqa: E402

LEVELS = ('none', 'filesystem', 'file')


def job(size, n, synced=False):
    """Replaces n files of one size; synced: an fsync after each."""
    def run(place):
        contents, files = Contents('text', size), max(10, min(200, n // 4))

        def prepare():
            for i in range(files):
                write_file(place, 'file%d' % i, contents[10**6 + i], os.O_CREAT)

        def update(i):
            replace(place, 'file%d' % (i % files), contents[i])
            if synced:
                os.fsync(place.fd)
        return measure(place, 'job', n, size, update, prepare)
    return run


JOBS = {
    '1 KiB': job(KIB, 1000),
    '1 KiB, fsync after each': job(KIB, 200, synced=True),
    '64 KiB': job(64 * KIB, 200),
    '1 MiB': job(MIB, 40),
}


def trimmed(values):
    values = sorted(values)
    kept = values[1:-1] if len(values) > 2 else values
    return sum(kept) / len(kept)


HEADER = ('| filesystem | work | level | updates/s | of none | bytes per update | of none | flushes per update |\n'
          '|---|---|---|---:|---:|---:|---:|---:|')


def rows(fs, name, cells):
    lines = []
    base = {k: trimmed([r[k] for r in cells['none']]) for k in ('rate', 'bytes')}
    for level in LEVELS:
        mean = {k: trimmed([r[k] for r in cells[level]]) for k in ('rate', 'bytes', 'flushes')}
        lines.append('| %s | %s | %s | %s | %d %% | %s | %d %% | %.3f |' % (
            fs, name, level, format(round(mean['rate']), ','), round(100 * mean['rate'] / base['rate']), format(round(mean['bytes']), ','),
            round(100 * mean['bytes'] / base['bytes']), mean['flushes']))
    return '\n'.join(lines)


def save(path, results):
    if path:
        with open(path, 'w') as f:
            json.dump([{'fs': fs, 'work': name, **cells} for (fs, name), cells in results.items()], f, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--fs', default='ext4,xfs,btrfs')
    parser.add_argument('--images', default='/var/tmp')
    parser.add_argument('--bin', default=str(daemon.BIN))
    parser.add_argument('--out', help='JSON of every run')
    parser.add_argument('--inner', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if not options.inner:
            machine.need_fuse()
            machine.need_loop()
            harness.enter_namespaces()
    except machine.Skip as e:
        print('skipped: %s' % e)
        return 77
    daemon.BIN = Path(options.bin)
    work = harness.make_work()
    images = tempfile.mkdtemp(prefix='coterie-bench.', dir=options.images)
    os.environ['COTERIE_IMAGES'] = images
    results = {}
    print('Linux %s, %d runs each, the highest and lowest dropped.\n\n%s' % (platform.release(), options.runs, HEADER), flush=True)
    try:
        for fs in options.fs.split(','):
            for name, function in JOBS.items():
                cells = results[(fs, name)] = {level: [] for level in LEVELS}
                for number in range(options.runs):
                    turn = number % len(LEVELS)  # none of them always follows the one that leaves the disk most to do
                    for level in LEVELS[turn:] + LEVELS[:turn]:
                        machine.syncfs(images)
                        with tempfile.TemporaryDirectory(dir=work) as d, Place(d, fs=fs, level=level) as place:
                            r = function(place)
                        r['rate'] = r['n'] / r['seconds']
                        cells[level].append(r)
                print(rows(fs, name, cells), flush=True)
                save(options.out, results)
    finally:
        harness.remove_work()
        for name in os.listdir(images):
            os.unlink(os.path.join(images, name))
        os.rmdir(images)
    return 0


sys.exit(main())
