"""One coteried under test: started, asked, stopped, killed."""
import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

BIN = Path(os.environ.get('COTERIE_BIN', Path(__file__).resolve().parents[2] / 'build' / 'bin'))


def process_state(pid):
    """The state letter of a process, None if there is none; a zombie counts as none, once its other threads are gone as well."""
    try:
        with open('/proc/%d/stat' % pid) as f:
            state = f.read().rpartition(')')[2].split()[0]
        return None if state in 'ZX' and len(os.listdir('/proc/%d/task' % pid)) <= 1 else state
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until(condition, timeout, what):
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError('%s: not within %g s' % (what, timeout))
        time.sleep(0.002)


def varint(n):
    out = b''
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def receive(s, n):
    data = b''
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise ConnectionResetError('the daemon closed the control connection')
        data += piece
    return data


class Daemon:
    """Database, run directory and mount point are made below `base`, unless told otherwise."""

    def __init__(self, base, db=None, mnt=None, level=None, options=()):
        self.base = Path(base)
        self.mnt = Path(mnt) if mnt else self.base / 'mnt'
        self.db = Path(db) if db else self.base / 'db' / 'tree.db'
        self.run_dir = self.base / 'run'
        self.log = self.base / 'coteried.log'
        self.level, self.options = level, list(options)
        self.expect_alive = False
        self.pid = None
        for directory in (self.base, self.mnt, self.db.parent):
            directory.mkdir(parents=True, exist_ok=True)

    def command(self, *extra):
        argv = [str(BIN / 'coteried'), '--standalone', '--db', str(self.db), '--run-dir', str(self.run_dir), '--log-file', str(self.log)]
        if self.level:
            argv += ['--sync-level', self.level]
        return argv + self.options + [str(a) for a in extra] + [str(self.mnt)]

    def try_start(self, *extra, timeout=60, **kw):
        """Starts without expecting success; returns the finished process of the starter."""
        done = subprocess.run(self.command(*extra), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **kw)
        if done.returncode == 0:
            self.pid = self.read_pid()
            self.expect_alive = True
        return done

    def start(self, *extra, **kw):
        done = self.try_start(*extra, **kw)
        if done.returncode != 0:
            raise AssertionError('coteried did not start (exit %d): %s\n%s' % (done.returncode, done.stderr.strip(), self.log_tail()))
        if not os.path.ismount(self.mnt):
            raise AssertionError('coteried returned, but %s is no mount point\n%s' % (self.mnt, self.log_tail()))
        return self

    def read_pid(self):
        for path in self.run_dir.glob('*.pid'):
            return int(path.read_text())
        raise AssertionError('no pid file in %s' % self.run_dir)

    def log_tail(self, size=3000):
        try:
            return self.log.read_text(errors='replace')[-size:]
        except OSError:
            return ''

    def alive(self):
        return self.pid is not None and process_state(self.pid) is not None

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_gone(self, timeout=30):
        wait_until(lambda: not self.alive(), timeout, 'end of coteried %d' % self.pid)

    def stop(self, timeout=30):
        """SIGTERM; returns the seconds until the process was gone."""
        self.expect_alive = False
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        self.wait_gone(timeout)
        took = time.monotonic() - began
        if os.path.ismount(self.mnt):
            raise AssertionError('coteried ended, but %s is still mounted' % self.mnt)
        return took

    def kill(self):
        """kill -9; the dead mount stays for the next start to clear away."""
        self.expect_alive = False
        self.signal(signal.SIGKILL)
        self.wait_gone()

    def detach(self):
        subprocess.run(['umount', '-l', str(self.mnt)], stdin=subprocess.DEVNULL, capture_output=True)

    def coterie(self, *argv, check=True, timeout=60):
        done = subprocess.run([str(BIN / 'coterie'), '--run-dir', str(self.run_dir), *map(str, argv)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError('coterie %s: exit %d: %s' % (' '.join(map(str, argv)), done.returncode, (done.stderr + done.stdout).strip()))
        return done

    def ask(self, *words, timeout=60):
        """A request over the control socket, as src/ctl/protocol.h has it; returns the body. No process is started for it: a copy of an open
        file that is closed there would end the gathering of writes."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(timeout)
            s.connect(str(self.run_dir / 'control.sock'))
            body = b'\x01\x01' + varint(len(words)) + b''.join(varint(len(w)) + w for w in map(str.encode, words))
            s.sendall(struct.pack('<I', len(body)) + body)
            while True:
                answer = receive(s, struct.unpack('<I', receive(s, 4))[0])
                if answer[1] == 3:
                    break
        length, at = read_varint(answer, 3)
        if answer[2] != 0:
            raise AssertionError('%s: status %d: %s' % (' '.join(words), answer[2], answer[at:at + length].decode(errors='replace')))
        return answer[at + length:].decode()

    def status(self):
        return json.loads(self.ask('status'))

    def counters(self):
        return self.status()['counters']

    def sync(self, checkpoint=False):
        self.ask('sync', *(['checkpoint'] if checkpoint else []))

    def check(self):
        """`coterie check` of the database; the daemon must be down."""
        return self.coterie('check', self.db, check=False)


class Meter:
    """Counters between two moments: with Meter(daemon) as m: …; m['fuse_write_calls']."""

    def __init__(self, daemon):
        self.daemon = daemon

    def __enter__(self):
        self.before = self.daemon.counters()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            after = self.daemon.counters()
            self.values = {name: after[name] - self.before.get(name, 0) for name in after}

    def __getitem__(self, name):
        return self.values[name]
