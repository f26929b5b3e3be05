"""A daemon that is killed while it tells the kernel of a change cannot end by itself; its guardian lets everybody go."""
import errno
import os
import signal
import subprocess
import sys
import time

from harness import at_most, eq

ALL = (1, 2, 3)
# Says with which errno it ended.
MAKER = 'import os, sys\ntry: os.mkdir(sys.argv[1])\nexcept OSError as e: sys.exit(e.errno)'


def anew(c):
    """A member that does not answer stays in the view for as long as the test needs it."""
    c.down()
    c.up('--ack-timeout=60s')
    c.wait_primary(ALL, 30, synced=3)


def processes(c, node):
    """pid, name and states of the threads of every process of the node."""
    want = os.readlink('/proc/%d/ns/pid' % c.init_pid(node))
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if os.readlink('/proc/%s/ns/pid' % pid) != want:
                continue
            with open('/proc/%s/comm' % pid) as f:
                name = f.read().strip()
            states = ''
            for task in os.listdir('/proc/%s/task' % pid):
                with open('/proc/%s/task/%s/stat' % (pid, task)) as f:
                    states += f.read().rpartition(')')[2].split()[0]
            found.append((int(pid), name, states))
        except OSError:
            continue
    return found


def daemon_of(c, node):
    return next(pid for pid, name, _ in processes(c, node) if name == 'coteried')


def is_notifying(pid):
    """A thread waits in the kernel for a directory, to tell it of a change."""
    try:
        for task in os.listdir('/proc/%d/task' % pid):
            with open('/proc/%d/task/%s/stack' % (pid, task)) as f:
                if 'fuse_reverse_inval_entry' in f.read():
                    return True
    except OSError:
        pass
    return False


def get_stuck(c, node):
    """A process on the node holds a directory's lock and waits for the daemon, which waits for node 3, which is stopped; and the daemon waits
    for the directory, as another node changed it meanwhile. Returns both processes."""
    os.makedirs(c.mnt(1) / 'd', exist_ok=True)
    c.write(1, 'd/y', 'known')
    eq(c.read(node, 'd/y'), 'known')
    c.script('stop', 3, 'daemon')
    maker = subprocess.Popen(['nsenter', '-t', str(c.init_pid(node)), '-m', '-p', '--', sys.executable, '-c', MAKER, '/mnt/d/x'],
                             stdin=subprocess.DEVNULL)
    time.sleep(0.5)
    eq(maker.poll(), None, 'it waits')
    other = subprocess.Popen([sys.executable, '-c', 'import os, sys; os.unlink(sys.argv[1])', str(c.mnt(1) / 'd' / 'y')], stdin=subprocess.DEVNULL)
    c.wait(lambda: is_notifying(daemon_of(c, node)), 10, 'a thread of the daemon waits for the directory')
    return maker, other


def let_go(c, node, number, name):
    anew(c)
    maker, other = get_stuck(c, node)
    victim = daemon_of(c, node)
    os.kill(victim, number)
    took = c.wait(lambda: all(p[1] not in ('coteried', 'mount-guardian') or set(p[2]) <= set('ZX') for p in processes(c, node)), 2,
                  'daemon and guardian have ended: %s' % processes(c, node))
    eq(maker.wait(2) in (errno.ENOTCONN, errno.ECONNABORTED), True, 'errno of the process that waited: %d' % maker.returncode)
    eq([p for p in processes(c, node) if 'D' in p[2]], [], 'processes in D state')
    log = (c.mnt(node).parent / 'run/coterie/coteried.log').read_text()
    eq((log.count('is cut off'), name in log), (1, True), log[-500:])
    c.notes.append('all had gone %.2f s after the signal' % took)
    c.script('cont', 3, 'daemon')
    eq(other.wait(30), 0)
    c.script('start', node, 'daemon')
    c.wait_primary(ALL, 30, synced=3)
    c.wait_equal()
    eq(sorted(os.listdir(c.mnt(node) / 'd')) in (['x'], []), True)


def killed(c):
    let_go(c, 2, signal.SIGKILL, 'was killed')


def crashed(c):
    let_go(c, 2, signal.SIGSEGV, 'crashed')


def without_it(c):
    """That the test would notice: with the guardian gone the daemon does not end, and the next start cuts it off."""
    anew(c)
    maker, other = get_stuck(c, 2)
    victim = daemon_of(c, 2)
    for pid, name, _ in processes(c, 2):
        if name == 'mount-guardian':
            os.kill(pid, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)
    time.sleep(1)
    eq((maker.poll(), is_notifying(victim)), (None, True))
    c.script('cont', 3, 'daemon')
    c.script('start', 2, 'daemon')
    eq(maker.wait(2) in (errno.ENOTCONN, errno.ECONNABORTED), True)
    eq(other.wait(30), 0)
    c.wait_primary(ALL, 30, synced=3)
    c.wait_equal()
    at_most(len([p for p in processes(c, 2) if 'D' in p[2]]), 0, 'processes in D state')


TESTS = [(killed, 60), (crashed, 60), (without_it, 60)]
