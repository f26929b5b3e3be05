"""A small test runner for tests that mount, kill and hang.

Each group of tests runs as the first process of its own mount and PID namespaces: whatever a test leaves behind (mounts, loop devices,
daemons) ends with it. Each test runs in a process of its own, with a temporary directory of its own, under a time limit; when that
passes, the stacks of all processes are printed before they are ended. Exit status: 0 all passed, 1 some failed, 77 none ran.
"""
import argparse
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from machine import Image, Skip, need_fuse, need_loop, need_root, run
import daemon as daemon_module
from daemon import Daemon, process_state

TESTS = []


def test(function=None, *, timeout=60, needs_fuse=True):
    """Marks a test. needs_fuse=False: the test itself says what it needs."""
    def mark(f):
        TESTS.append((f.__module__, f.__name__, f, timeout, needs_fuse))
        return f
    return mark(function) if function else mark


class Context:
    """What a test gets: its directory, daemons and images that end with it, and the tree under test."""

    def __init__(self, directory, target, options):
        self.dir = Path(directory)
        self.target = target  # 'coterie', or 'ext4': the same test on a plain filesystem, to test the test
        self.options = options
        self.daemons, self.images, self.notes = [], [], []
        self._tree = None

    def daemon(self, name='d', start=True, **kw):
        need_fuse()
        if not (daemon_module.BIN / 'coteried').exists():
            raise AssertionError('%s/coteried is not built' % daemon_module.BIN)
        d = Daemon(self.dir / name, **kw)
        self.daemons.append(d)
        return d.start() if start else d

    def image(self, name='image', size=1 << 30, fs='ext4', **kw):
        image = Image(self.dir / name, size, fs, **kw)
        self.images.append(image)
        return image

    @property
    def tree(self):
        """An empty directory on the filesystem under test."""
        if self._tree is None:
            if self.target == 'ext4':
                self._tree = Path(self.image('tree', 1 << 28).directory) / 'tree'
            else:
                self._tree = self.daemon('tree').mnt / 'tree'
            self._tree.mkdir()
        return self._tree

    def on_coterie(self):
        if self.target != 'coterie':
            raise Skip('about coteried itself')

    def note(self, text):
        """A figure worth seeing, printed with the result."""
        self.notes.append(text)

    def check_daemons(self):
        for d in self.daemons:
            if d.expect_alive and not d.alive():
                raise AssertionError('coteried died during the test\n' + d.log_tail())

    def close(self):
        for d in self.daemons:
            if d.pid and d.alive():
                d.signal(signal.SIGKILL)
        for d in self.daemons:
            if d.pid:
                try:
                    d.wait_gone(10)
                except AssertionError:
                    pass
            while os.path.ismount(d.mnt) or is_dead_mount(d.mnt):
                d.detach()
        for image in reversed(self.images):
            image.close()


def is_dead_mount(path):
    try:
        os.statvfs(path)  # stat may be answered from the kernel's cache
    except OSError as e:
        return e.errno in (107, 103)  # ENOTCONN, ECONNABORTED
    return False


# --- one test, in its own process

def run_one(function, directory, target, needs_fuse, report_fd):
    os.setsid()
    outcome = {'result': 'failed', 'why': '', 'notes': []}
    context = Context(directory, target, None)
    try:
        if needs_fuse and target == 'coterie':
            need_fuse()
        function(context)
        context.check_daemons()
        outcome['result'] = 'passed'
    except Skip as e:
        outcome.update(result='skipped', why=str(e))
    except BaseException:
        outcome['why'] = traceback.format_exc()
        for d in context.daemons:
            tail = d.log_tail(1500)
            if tail:
                outcome['why'] += '\n--- end of %s\n%s' % (d.log, tail)
    try:
        context.close()
    except BaseException:
        if outcome['result'] == 'passed':
            outcome.update(result='failed', why='cleaning up: ' + traceback.format_exc())
    reports = sanitizer_reports(directory)
    if reports:
        outcome.update(result='failed', why=outcome['why'] + '\n--- sanitizer\n' + reports)
    outcome['notes'] = context.notes
    with os.fdopen(report_fd, 'w') as f:
        json.dump(outcome, f)


def sanitizer_reports(directory):
    return '\n'.join(p.read_text(errors='replace')[:6000] for p in sorted(Path(directory).parent.glob('sanitizer.*')))


def set_sanitizer_options(directory):
    log = 'log_path=%s/sanitizer:halt_on_error=1' % directory
    for name in ('ASAN_OPTIONS', 'UBSAN_OPTIONS', 'TSAN_OPTIONS'):
        given = os.environ.get(name)
        os.environ[name] = log + (':' + given if given else '') + (':print_stacktrace=1' if name == 'UBSAN_OPTIONS' else '')


# --- the runner, first process of the namespaces

def descendants():
    """Every process of our PID namespace but ourselves; only there is everything ours."""
    return [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]


def print_stacks():
    for pid in descendants():
        try:
            command = Path('/proc/%d/cmdline' % pid).read_bytes().replace(b'\0', b' ').decode(errors='replace').strip()
            state = process_state(pid)
            print('--- process %d (%s) %s' % (pid, state, command[:200]))
            for task in sorted(os.listdir('/proc/%d/task' % pid)):
                stack = Path('/proc/%d/task/%s/stack' % (pid, task)).read_text().strip().replace('\n', '; ')
                print('    kernel stack of %s: %s' % (task, stack))
        except OSError:
            continue
        if shutil.which('gdb') and 'coteried' in command.split(' ')[0]:
            try:
                gdb = subprocess.run(['gdb', '-p', str(pid), '-batch', '-nx', '-ex', 'thread apply all bt'], capture_output=True, text=True,
                                     timeout=60, stdin=subprocess.DEVNULL)
                print(gdb.stdout[-12000:])
            except subprocess.TimeoutExpired:
                print('    gdb gave no answer')
    sys.stdout.flush()


def reap(wanted, seconds):
    """Collects ended processes, also orphans, until the wanted one is among them (its status) or time is up (None)."""
    end = time.monotonic() + seconds
    while True:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                break
            if pid == wanted:
                return status
        left = end - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait([signal.SIGCHLD], min(left, 1))


def end_all():
    """Ends what a test left running. A mount is detached first: a process may wait for its daemon."""
    for pid in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    reap(-2, 0.2)
    with open('/proc/self/mounts') as f:
        mounts = [line.split()[1].encode().decode('unicode_escape') for line in f]
    for mount in reversed(mounts):
        if mount.startswith(WORK + '/'):
            subprocess.run(['umount', '-l', mount], capture_output=True, stdin=subprocess.DEVNULL)
    for pid in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    reap(-2, 0.1)


WORK = ''


def run_test(entry, target, keep):
    module, name, function, timeout, needs_fuse = entry
    timeout *= float(os.environ.get('COTERIE_TIMEOUT_FACTOR', '1'))
    home = tempfile.mkdtemp(prefix='t.', dir=WORK)
    os.chmod(home, 0o755)  # some tests act as another user
    directory = os.path.join(home, 'x')  # short: a socket's path has about 100 bytes
    os.mkdir(directory)
    set_sanitizer_options(home)
    reader, writer = os.pipe()
    sys.stdout.flush()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        run_one(function, directory, target, needs_fuse, writer)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    # The report is small (it fits in the pipe), so waiting for the end first cannot block the test.
    status = reap(pid, timeout)
    if status is None:
        print('TIME OUT of %s after %g s' % (name, timeout))
        print_stacks()
        end_all()
        reap(pid, 5)
    with os.fdopen(reader) as f:
        os.set_blocking(f.fileno(), False)
        text = f.read() or ''
    try:
        outcome = json.loads(text)
    except ValueError:
        outcome = {'result': 'failed', 'why': 'no report: ended by %s' % ('the time limit' if status is None else status), 'notes': []}
    end_all()
    if keep and outcome['result'] == 'failed':
        print('kept: %s' % home)
    else:
        shutil.rmtree(home, ignore_errors=True)
    outcome['seconds'] = time.monotonic() - began
    return outcome


def in_namespaces(options):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    make_work()
    counts = {'passed': 0, 'failed': 0, 'skipped': 0}
    try:
        for entry in selected(options):
            outcome = run_test(entry, options.on, options.keep)
            counts[outcome['result']] += 1
            print('%-8s %s (%.2f s)%s' % (outcome['result'], entry[1], outcome['seconds'],
                                          '  ' + outcome['why'] if outcome['result'] == 'skipped' else ''))
            for note in outcome['notes']:
                print('         %s' % note)
            if outcome['result'] == 'failed':
                print(outcome['why'])
            sys.stdout.flush()
    finally:
        remove_work(options.keep and counts['failed'])
    return finish(counts)


def make_work():
    """The directory of this run. Images live in a tmpfs below it if memory allows: flushes cost no real disk, and it ends with us."""
    global WORK
    if os.getpid() != 1:
        raise AssertionError('not the first process of a PID namespace')
    run('mount', '--make-rprivate', '/')
    run('umount', '-l', '-a', '-t', 'fuse.coterie', check=False)  # a copy of somebody else's mount here would keep it alive when he unmounts it
    WORK = tempfile.mkdtemp(prefix='coterie-test.%s' % os.environ.get('COTERIE_RUN', ''))
    os.chmod(WORK, 0o755)
    with open('/proc/meminfo') as f:
        available = next(int(line.split()[1]) << 10 for line in f if line.startswith('MemAvailable'))
    images = os.path.join(WORK, 'images')
    os.mkdir(images)
    if available > 4 << 30:
        run('mount', '-t', 'tmpfs', '-o', 'size=%d,mode=755' % (available * 3 // 4), 'coterie-test', images)
    os.environ['COTERIE_IMAGES'] = images
    return WORK


def remove_work(keep=False):
    run('umount', '-l', os.path.join(WORK, 'images'), check=False)
    if not keep:
        shutil.rmtree(WORK, ignore_errors=True)


def enter_namespaces():
    """Runs this program again as the first process of its own mount and PID namespaces; returns there only."""
    if '--inner' in sys.argv:
        return
    probe = subprocess.run(['unshare', '--mount', '--pid', '--fork', '--mount-proc', 'true'], capture_output=True, text=True)
    if probe.returncode != 0:
        raise Skip('needs mount and PID namespaces: ' + probe.stderr.strip())
    sys.stdout.flush()
    os.execvp('unshare', ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', sys.executable, *sys.argv, '--inner'])


def finish(counts):
    print('%(passed)d passed, %(failed)d failed, %(skipped)d skipped' % counts)
    if counts['failed']:
        return 1
    return 0 if counts['passed'] else 77


def selected(options):
    chosen = [t for t in TESTS if not options.only or t[1] in options.only]
    unknown = set(options.only) - {t[1] for t in TESTS}
    if unknown:
        sys.exit('no such test: %s' % ' '.join(sorted(unknown)))
    return chosen


def main(where):
    """`where`: the folder with the groups, test_GROUP.py each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('groups', nargs='+', metavar='GROUP')
    parser.add_argument('--bin', help='directory of coteried and coterie')
    parser.add_argument('--on', choices=['coterie', 'ext4'], default='coterie', help='what to test: ext4 tests the tests')
    parser.add_argument('--only', action='append', default=[], metavar='TEST')
    parser.add_argument('--keep', action='store_true', help='keep the directories of failed tests')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--inner', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bin:
        os.environ['COTERIE_BIN'] = options.bin
        daemon_module.BIN = Path(options.bin)
    sys.path.insert(0, str(where))
    for group in options.groups:
        if not (Path(where) / ('test_%s.py' % group)).exists():
            known = sorted(p.stem[5:] for p in Path(where).glob('test_*.py'))
            sys.exit('unknown group %s; there are: %s' % (group, ' '.join(known)))
        importlib.import_module('test_' + group)
    if options.list:
        print('\n'.join(t[1] for t in TESTS))
        return 0
    if options.inner:
        return in_namespaces(options)
    try:
        need_root()
        if options.on == 'ext4':
            need_loop()
        enter_namespaces()
    except Skip as e:
        for entry in selected(options):
            print('skipped  %s  %s' % (entry[1], e))
        return finish({'passed': 0, 'failed': 0, 'skipped': len(selected(options))})


# --- assertions

def eq(got, wanted, what=''):
    if got != wanted:
        raise AssertionError('%s%sgot %r, wanted %r' % (what, ': ' if what else '', got, wanted))


def at_most(got, bound, what):
    if got > bound:
        raise AssertionError('%s: %s, at most %s wanted' % (what, got, bound))


def at_least(got, bound, what):
    if got < bound:
        raise AssertionError('%s: %s, at least %s wanted' % (what, got, bound))


def fails(number, function, *args, **kw):
    """The call must fail with this errno."""
    try:
        result = function(*args, **kw)
    except OSError as e:
        if e.errno != number:
            raise AssertionError('%s%r: errno %s (%s), wanted %s' % (getattr(function, '__name__', 'call'), args, e.errno, e.strerror,
                                                                       os.strerror(number))) from None
        return
    raise AssertionError('%s%r: succeeded (%r), wanted %s' % (getattr(function, '__name__', 'call'), args, result, os.strerror(number)))
