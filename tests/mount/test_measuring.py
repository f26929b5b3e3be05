"""`coterie bench write` and `coterie probe-sync`, on filesystems in images, where nobody else writes."""
import json
import os
import re
import signal
import subprocess
import time

from daemon import BIN
from harness import at_least, at_most, eq, test
from machine import need_program, run

MIB = 1 << 20
METHODS = ('fdatasync', 'fsync', 'open_datasync', 'open_sync', 'syncfs')


def coterie(*argv, code=0, timeout=60):
    done = subprocess.run([str(BIN / 'coterie'), *map(str, argv)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    eq(done.returncode, code, 'coterie %s: %s' % (' '.join(map(str, argv)), (done.stderr + done.stdout)[-500:]))
    return done


def bench(*argv):
    return [json.loads(line) for line in coterie('bench', 'write', *argv, '--json').stdout.splitlines()]


@test(needs_fuse=False)
def bench_on_a_filesystem(t):
    """What it says of bytes is what the device says."""
    image = t.image()
    before = image.counters()
    lines = bench(image.directory, '--size', '4K..1M', '--max-bytes', '32M', '--threads', 3, '--fsync')
    image.settle()
    spent = (image.counters() - before).written
    eq([x['kind'] for x in lines if x['kind'] != 'interval'], ['total', 'settled'])
    total = lines[-1]
    at_least(total['bytes'], 32 * MIB, 'bytes')
    at_most(total['bytes'], 32 * MIB + 3 * MIB, 'bytes: those under way when it was enough')
    at_most(abs(total['disk_bytes'] - spent), 0.02 * spent, 'bytes to disk, told and counted')
    eq(round(total['amplification'], 3), round(total['disk_bytes'] / total['bytes'], 3))
    at_least(total['amplification'], 1, 'amplification of what cannot be compressed, fsynced')
    eq([n for n in os.listdir(image.directory) if n != 'lost+found'], [])


@test
def bench_on_a_mount(t):
    """The disk is the one below the daemon's database."""
    image = t.image()
    d = t.daemon(db=image.directory + '/tree.db')
    below = d.mnt / 'some' / 'directory'
    below.mkdir(parents=True)
    for extra, least, most in (((), 1.0, 1.2), (('--text',), 0.05, 0.7)):
        before = image.counters()
        lines = bench(below, '--size', '64K', '--max-bytes', '16M', *extra)
        spent = (image.counters() - before).written
        at_least(lines[-1]['amplification'], least, 'amplification %r' % (extra,))
        at_most(lines[-1]['amplification'], most, 'amplification %r' % (extra,))
        at_least(spent, lines[-1]['disk_bytes'], 'bytes of the device')
        eq(os.listdir(below), [])


@test(needs_fuse=False)
def bench_tells_each_interval(t):
    lines = coterie('bench', 'write', t.dir, '--max-time', 3, '--max-bytes', '100G', '--size', '4K').stdout.splitlines()
    eq(lines[0].split(), ['seconds', 'files', 'MB', 'MB/s', 'avg', 'MB/s', 'disk', 'MB', 'ampl.'])
    at_least(len(lines), 5, 'lines: header, two intervals, total, settled')
    elapsed = [float(line.split()[0]) for line in lines[1:]]
    eq(elapsed, sorted(elapsed))
    counts = [int(line.split()[1]) for line in lines[1:]]
    eq(counts, sorted(counts))
    eq(os.listdir(t.dir), [])


def interrupted(t, argv, ready, number):
    """Ends a command with a signal once it has begun; it must leave nothing behind."""
    child = subprocess.Popen([str(BIN / 'coterie'), *map(str, argv)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(1000):
        if ready():
            break
        time.sleep(0.01)
    child.send_signal(number)
    out, _ = child.communicate(timeout=30)
    eq(os.listdir(t.dir / 'x'), [])
    return child.returncode, out.decode()


@test(needs_fuse=False)
def interrupted_commands_leave_nothing(t):
    (t.dir / 'x').mkdir()
    for number in (signal.SIGINT, signal.SIGTERM):
        code, out = interrupted(t, ['bench', 'write', t.dir / 'x', '--max-time', 60, '--max-bytes', '100G'], lambda: os.listdir(t.dir / 'x'), number)
        eq(code, 0)
        eq('settled' in out, True)
        code, _ = interrupted(t, ['probe-sync', t.dir / 'x', '--seconds', 100], lambda: os.listdir(t.dir / 'x'), number)
        eq(code, 1)


def probe(image, seconds, *extra):
    report = json.loads(coterie('probe-sync', image.directory, '--seconds', seconds, '--json', *extra).stdout)
    eq([n for n in os.listdir(image.directory) if n != 'lost+found'], [])
    return report


def cells(report):
    return {(r['file'], r['method'], r['direct'], r['record']): r for r in report['results']}


@test(timeout=120, needs_fuse=False)
def probe_ext4(t):
    """All that pg_test_fsync has and more; what is known of ext4 must come out."""
    image = t.image(size=256 * MIB)
    report = probe(image, 14)
    found = cells(report)
    eq(set(found), {(state, method, direct, record) for state in ('growing', 'fallocated', 'zeroed') for method in METHODS
                    for direct in (False, True) for record in (512, 4096, 65536)})
    for key, r in found.items():
        if r['operations'] < 1 or not 0 < r['p50_us'] <= r['p99_us'] or r['ops_per_second'] <= 0:
            raise AssertionError('%r: %r' % (key, r))
    for method in ('fdatasync', 'open_datasync'):
        for direct, unit in ((True, 512), (False, 4096)):
            r = found[('zeroed', method, direct, 512)]
            # Exactly these, unless a commit of the journal falls into the measurement.
            at_least(r['device_bytes'], unit, 'bytes of %s' % method)
            at_most(r['device_bytes'], unit + 512, 'bytes of %s' % method)
            at_least(r['device_flushes'], 1, 'flushes of %s' % method)
            at_most(r['device_flushes'], 1.2, 'flushes of %s' % method)
        at_least(found[('growing', method, False, 512)]['device_bytes'], 16384, 'a file that grows')
    eq((report['filesystem'], report['logical_sector'], report['write_cache']), ('ext4', 512, 'write back'))
    at_least(report['isolated']['bytes'], 4096, 'an isolated record, at once')
    at_least(report['isolated']['trailing_bytes'], 8192, 'what ext4 adds within 6 s of an isolated write')
    eq(report['recommended']['sync_method'] in ('fdatasync', 'open_datasync') and report['recommended']['direct'], True, 'recommended')
    eq(any('volatile' in w for w in report['warnings']), True, 'warnings: %r' % report['warnings'])


@test(timeout=120, needs_fuse=False)
def probe_warns(t):
    wanted = [('ext4', 'data=journal', 'data=journal'), ('ext4', 'barrier=0', 'without barriers'), ('xfs', '', 'return without a flush'),
              ('btrfs', '', 'btrfs')]
    for fs, options, words in wanted:
        if fs != 'ext4':
            need_program('mkfs.' + fs)
        image = t.image(fs + words[:4], size=512 * MIB, fs=fs, mount_options=options)
        report = probe(image, 2)
        eq(any(words in w for w in report['warnings']), True, '%s %s: %r' % (fs, options, report['warnings']))
        eq(report['recommended']['sync_level'], 'filesystem', '%s %s' % (fs, options)) if fs == 'btrfs' else None
        if fs == 'xfs':
            eq({r['method'] for r in report['results'] if r['no_flush']}, {'syncfs'}, 'methods without a flush')
            eq(report['recommended']['sync_method'] == 'syncfs', False)
        image.close()


@test(timeout=120)
def probe_writes_a_configuration(t):
    image = t.image(size=256 * MIB)
    config = t.dir / 'coterie.conf'
    config.write_text('# ours\nsync-level = none\ncommit_interval = 2s\n  direct = no\n')
    os.chmod(config, 0o640)
    shown = coterie('probe-sync', image.directory, '--seconds', 2, '--apply', config).stdout
    lines = config.read_text().splitlines()
    eq(lines[:2], ['# ours', 'commit_interval = 2s'])
    eq([line.split(' = ')[0] for line in lines[2:]], ['sync_level', 'sync_method', 'direct', 'padding'])
    eq(re.search(r'recommended:\n((?:.* = .*\n)+)', shown).group(1).splitlines(), lines[2:])
    eq(oct(os.stat(config).st_mode & 0o777), '0o640')
    d = t.daemon(db=image.directory + '/tree.db', options=['--config', str(config)])
    status = d.status()
    eq((status['sync_level'], status['commit_interval']), (lines[2].split(' = ')[1], '2s'))
    # Without it: one line at once, and not after the measuring.
    began = time.monotonic()
    done = coterie('probe-sync', image.directory, '--seconds', 600, '--apply', t.dir / 'no' / 'such.conf', code=1)
    at_most(time.monotonic() - began, 60, 'seconds until it is refused')
    eq(str(t.dir / 'no' / 'such.conf') in done.stderr, True)


@test(needs_fuse=False)
def wrong_calls_are_refused_by_name(t):
    (t.dir / 'file').write_text('')
    empty = t.dir / 'empty'
    empty.mkdir()
    for argv, code, words in (
            (['probe-sync'], 2, 'usage'), (['probe-sync', t.dir / 'none'], 1, 'No such file'), (['probe-sync', t.dir / 'file'], 1, 'Not a directory'),
            (['probe-sync', empty, '--seconds', 'x'], 2, '--seconds'), (['probe-sync', empty, '--seconds', '0'], 2, '--seconds'),
            (['probe-sync', empty, '--seconds', 'nan'], 2, '--seconds'), (['probe-sync', empty, '--seconds'], 2, '--seconds'),
            (['probe-sync', empty, '--apply'], 2, '--apply'), (['probe-sync', empty, '--fast'], 2, '--fast'),
            (['probe-sync', empty, '/second'], 2, '/second'),
            (['bench'], 2, 'usage'), (['bench', 'read', empty], 2, 'usage'), (['bench', 'write'], 2, 'usage'),
            (['bench', 'write', t.dir / 'none'], 1, 'none'), (['bench', 'write', t.dir / 'file'], 1, 'not a directory'),
            (['bench', 'write', empty, '--size', '0'], 2, '--size'), (['bench', 'write', empty, '--size', '8K..4K'], 2, '--size'),
            (['bench', 'write', empty, '--size', '1G'], 2, '--size'), (['bench', 'write', empty, '--threads', '0'], 2, '--threads'),
            (['bench', 'write', empty, '--threads', '1000'], 2, '--threads'), (['bench', 'write', empty, '--max-time', '-1'], 2, '--max-time'),
            (['bench', 'write', empty, '--max-bytes', 'much'], 2, '--max-bytes'), (['bench', 'write', empty, '--fast', '1'], 2, '--fast'),
            (['bench', 'write', empty, '/second'], 2, 'usage')):
        done = coterie(*argv, code=code)
        eq(words in done.stderr, True, 'coterie %s: %r names %r' % (' '.join(map(str, argv)), done.stderr, words))
        eq((done.stdout, len(done.stderr.splitlines())), ('', 1), 'one line for %r' % (argv,))
    eq(os.listdir(empty), [])
