"""The POSIX suite (posix_suite, built from the C files here) on ext4 and on the mount: every line the same, but for accepted.py."""
import os
import re
import subprocess

import daemon as daemon_module
from accepted import ACCEPTED
from harness import at_least, eq, test

def suite(directory, family):
    os.mkdir(directory, 0o755)
    program = daemon_module.BIN / 'posix_suite'
    done = subprocess.run([program, directory, family], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace', timeout=250)
    eq((done.returncode, done.stderr), (0, ''), '%s on %s, after %r' % (family, directory, done.stdout[-200:]))
    return [line.split('\t', 1) for line in done.stdout.splitlines()]


def differences(wanted, got):
    """(where it is, what it should be, what it is): as text that accepted.py's patterns match."""
    check, found = '', []
    for (name, value), (other_name, other) in zip(wanted, got):
        if name != other_name:
            raise AssertionError('the suite took different ways: %r on ext4, %r on the mount, after %s' % (name, other_name, check))
        short = name.partition(': ')[2]
        if not short.startswith('. '):
            check = short
        if value != other:
            found.append('%s | %s | %s -> %s' % (check, short.removeprefix('. '), value, other))
    eq(len(got), len(wanted), 'lines')
    return found


def compare(t, family, least):
    t.on_coterie()
    ext4 = t.image('ext4', 1 << 28, mount_options='noatime,nosuid,nodev').directory
    d = t.daemon()
    os.chmod(ext4, 0o755)
    wanted = suite(os.path.join(ext4, 'suite'), family)
    at_least(len(wanted), least, 'lines of ' + family)
    found = differences(wanted, suite(str(d.mnt / 'suite'), family))
    accepted = {pattern: 0 for pattern, _ in ACCEPTED.get(family, [])}
    left = []
    for line in found:
        pattern = next((p for p in accepted if re.search(p, line)), None)
        if pattern:
            accepted[pattern] += 1
        else:
            left.append(line)
    if left:
        raise AssertionError('%d of %d lines differ from ext4:\n%s' % (len(left), len(wanted), '\n'.join(left[:60])))
    eq([p for p, n in accepted.items() if n == 0], [], 'accepted differences that are none')
    t.note('%d lines, %d accepted differences' % (len(wanted), len(found)))
    d.stop()
    done = d.check()
    eq((done.returncode, done.stderr), (0, ''), 'coterie check: ' + done.stdout)


def add(family, least):
    """Makes a family of checks a test; `least`: the lines that it has at least."""
    def run(t):
        compare(t, family, least)
    run.__name__ = family
    run.__module__ = __name__
    test(run, timeout=280)
