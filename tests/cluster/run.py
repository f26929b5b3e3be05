#!/usr/bin/env python3
"""Runs groups of tests on a real cluster on this machine: tests/cluster/run.py [--bin DIR] GROUP...

A group (test_GROUP.py) shares one cluster of three nodes; after a failed test it is made anew. Everything is in namespaces of its own and ends
with this process. Exit code: 0 all passed, 1 some failed, 77 none could run; each line says why.
"""
import argparse
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / 'lib')]
os.environ['PYTHONPATH'] = str(HERE.parent / 'lib')

import harness  # noqa: E402
from cluster import Cluster  # noqa: E402
from machine import Skip, need_fuse, need_loop, need_program  # noqa: E402


class TimeOut(Exception):
    pass


def on_alarm(_signal, _frame):
    raise TimeOut('time limit')


def run_one(function, cluster, timeout):
    """'' or why it failed."""
    signal.alarm(int(timeout * float(os.environ.get('COTERIE_TIMEOUT_FACTOR', '1'))))
    try:
        if not cluster.is_up:
            cluster.up()
        function(cluster)
        return ''
    except Skip:
        raise
    except BaseException:
        signal.alarm(0)
        why = traceback.format_exc()
        try:
            return why + cluster.logs()
        except BaseException as e:
            return why + 'no logs: %s' % e
    finally:
        signal.alarm(0)


def run_group(name, options, directory, counts):
    module = importlib.import_module('test_' + name)
    cluster = Cluster(directory, options.bin, getattr(module, 'NODES', 3))
    try:
        for function, timeout in module.TESTS:
            if options.only and function.__name__ not in options.only:
                continue
            cluster.notes = []
            began = time.monotonic()
            try:
                why = run_one(function, cluster, timeout)
            except Skip as e:
                counts['skipped'] += 1
                print('skipped  %s.%s: %s' % (name, function.__name__, e))
                continue
            result = 'failed' if why else 'passed'
            counts[result] += 1
            print('%-8s %s.%s (%.2f s)' % (result, name, function.__name__, time.monotonic() - began))
            for note in cluster.notes:
                print('         ' + note)
            if why:
                print(why)
                cluster.down()
            sys.stdout.flush()
    finally:
        cluster.down()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('groups', nargs='+', metavar='GROUP')
    parser.add_argument('--bin', required=True, help='directory of coteried and coterie')
    parser.add_argument('--only', action='append', default=[], metavar='TEST')
    parser.add_argument('--inner', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = {'passed': 0, 'failed': 0, 'skipped': 0}
    try:
        need_fuse()
        need_loop()
        need_program('corosync', 'nsenter', 'ip', 'unshare')
        harness.enter_namespaces()
        work = harness.make_work()
    except Skip as e:
        print('skipped  %s: %s' % (' '.join(options.groups), e))
        counts['skipped'] += 1
        return harness.finish(counts)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.signal(signal.SIGALRM, on_alarm)
    try:
        for name in options.groups:
            run_group(name, options, os.path.join(work, 'images', 'cluster'), counts)
    finally:
        harness.remove_work()
    return harness.finish(counts)


if __name__ == '__main__':
    sys.exit(main())
