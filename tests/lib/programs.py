"""Running programs in the tree under test, and looking twice at what they made."""
import os
import subprocess

from harness import eq


def sh(t, script, **env):
    """A bash script in the tree; it must succeed and print no error. Returns its output."""
    done = subprocess.run(['bash', '-euo', 'pipefail', '-c', script], cwd=t.tree, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=100, env={**os.environ, 'HOME': str(t.dir), 'GIT_CONFIG_NOSYSTEM': '1', 'LC_ALL': 'C.UTF-8', **env})
    eq((done.returncode, done.stderr), (0, ''), '%s\n%s' % (script, done.stdout[-2000:]))
    return done.stdout


def and_after_a_restart(t, verify):
    """Whatever verify() asserts holds now, and when the daemon has ended and begun again."""
    verify()
    if t.target == 'coterie':
        d = t.daemons[0]
        d.stop()
        done = d.check()
        eq((done.returncode, done.stderr), (0, ''), 'coterie check: ' + done.stdout)
        d.start()
        verify()
