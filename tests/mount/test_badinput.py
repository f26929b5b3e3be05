"""Wrong calls: one line that names the cause and the remedy, the right exit status, and nothing left behind."""
import os
import subprocess

from daemon import wait_until
from harness import eq, test
from syscalls import as_user


def call(*argv, **kw):
    return subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, **kw)


def listing(directory):
    """Not into mounts, whose daemon may be stopped."""
    found = []
    mounts = {line.split()[1] for line in open('/proc/mounts')}
    for at, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if os.path.join(at, name) not in mounts]
        found += [os.path.relpath(os.path.join(at, name), directory) for name in directories + files]
    return sorted(found)


def refused(t, status, says, *argv, program='coteried', **kw):
    before, mounts = listing(t.dir), open('/proc/mounts').read()
    import daemon
    done = call(daemon.BIN / program, *argv, **kw)
    what = '%s %s' % (program, ' '.join(map(str, argv)))
    eq(done.returncode, status, '%s: exit status (it said %r)' % (what, done.stderr))
    eq(done.stderr.count('\n'), 1, '%s: lines of %r' % (what, done.stderr))
    eq(done.stdout, '', '%s: standard output' % what)
    for word in says:
        if word not in done.stderr:
            raise AssertionError('%s: %r does not say %r' % (what, done.stderr, word))
    eq(listing(t.dir), before, '%s: files left behind' % what)
    eq(open('/proc/mounts').read(), mounts, '%s: mounts left behind' % what)
    t.note(done.stderr.strip())


@test
def usage(t):
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    db = t.dir / 'x.db'
    run = ['--run-dir', t.dir / 'run']
    refused(t, 2, ['mount point'], '--standalone', '--db', db, *run)
    refused(t, 2, ['database'], '--standalone', *run, mnt)
    refused(t, 2, ['sync_levl', 'sync_level'], '--standalone', '--db', db, *run, '-o', 'sync_levl=file', mnt)
    refused(t, 2, ['sync-levl', 'sync_level'], '--standalone', '--db', db, *run, '--sync-levl', 'file', mnt)
    refused(t, 2, ['always', 'none', 'filesystem', 'file'], '--standalone', '--db', db, *run, '--sync-level', 'always', mnt)
    refused(t, 2, ['one mount point'], '--standalone', '--db', db, *run, mnt, mnt)
    refused(t, 2, ['--db'], '--standalone', mnt, '--db')
    refused(t, 2, ['12 parsecs'], '--standalone', '--db', db, *run, '-o', 'commit_interval=12 parsecs', mnt)
    refused(t, 2, ['-q'], '--standalone', '--db', db, *run, '-q', mnt)


@test
def configuration_file(t):
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    conf = t.dir / 'c.conf'
    for text, line, says in (('db = x\nsync_level = fil\n', 2, 'fil'), ('\n\nnonsense\n', 3, 'nonsense'), ('syncc_level = file\n', 1, 'sync_level')):
        conf.write_text(text)
        refused(t, 2, ['c.conf:%d' % line, says], '--standalone', '--config', conf, '--run-dir', t.dir / 'run', mnt)
    conf.unlink()
    refused(t, 2, ['c.conf', 'No such file'], '--standalone', '--config', t.dir / 'c.conf', mnt)


@test
def configuration_file_read_again(t):
    """SIGHUP: what can be changed is, the log names the rest, and a file with a fault changes nothing."""
    import daemon
    import signal
    conf = t.dir / 'c.conf'
    d = t.daemon(start=False, options=['--config', conf])

    def reload(text, says):
        conf.write_text(text)
        d.signal(signal.SIGHUP)
        daemon.wait_until(lambda: says in d.log_tail(), 5, '%r in the log' % says)
    conf.write_text('sync_level = none\n')
    eq(call(daemon.BIN / 'coteried', '--check-config', '--config', conf).stdout, 'the configuration is valid\n')
    d.start()
    reload('sync_level = file\ngather_time = 2s\n', 'configuration: gather_time is 1s and will be 2s after the next start')
    eq('configuration: sync_level was none, is file' in d.log_tail(), True, d.log_tail())
    eq(d.status()['sync_level'], 'file')
    reload('sync_level = none\nsync_levl = none\n', 'c.conf:2: unknown option "sync_levl"; did you mean "sync_level"?')
    eq(d.status()['sync_level'], 'file')
    done = call(daemon.BIN / 'coteried', '--check-config', '--config', conf)
    eq((done.returncode, done.stdout, done.stderr.count('\n'), 'c.conf:2:' in done.stderr), (2, '', 1, True), done.stderr)


@test
def paths(t):
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    run = ['--run-dir', t.dir / 'run']
    refused(t, 1, ['no-such-directory', 'create its directory'], '--standalone', '--db', t.dir / 'no-such-directory' / 'x.db', *run, mnt)
    refused(t, 1, ['nowhere'], '--standalone', '--db', t.dir / 'x.db', *run, t.dir / 'nowhere')
    (t.dir / 'plain').write_text('x')
    refused(t, 1, ['plain'], '--standalone', '--db', t.dir / 'x.db', *run, t.dir / 'plain')
    refused(t, 1, ['mnt'], '--standalone', '--db', mnt, *run, mnt)
    refused(t, 1, ['plain', 'Not a directory', '--run-dir'], '--standalone', '--db', t.dir / 'x.db', '--run-dir', t.dir / 'plain' / 'run', mnt)
    refused(t, 1, ['Not a directory', '--log-file'], '--standalone', '--db', t.dir / 'x.db', *run, '--log-file', t.dir / 'plain' / 'log', mnt)


@test
def what_the_mount_would_hide(t):
    """Its own database, control socket or log below the mount point: out of reach as soon as it is mounted."""
    mnt = t.dir / 'mnt'
    (mnt / 'below').mkdir(parents=True)
    (t.dir / 'link').symlink_to(mnt / 'below')
    run = ['--run-dir', t.dir / 'run']
    for inside in mnt, mnt / 'below', t.dir / 'link':
        refused(t, 1, ['x.db', 'hide'], '--standalone', '--db', inside / 'x.db', *run, mnt)
        refused(t, 1, ['run', 'hide'], '--standalone', '--db', t.dir / 'x.db', '--run-dir', inside / 'run', mnt)
        refused(t, 1, ['x.log', 'hide'], '--standalone', '--db', t.dir / 'x.db', *run, '--log-file', inside / 'x.log', mnt)


@test
def unwritable_places(t):
    """The database on a read-only filesystem: even root cannot write there."""
    image = t.image(size=32 << 20)
    image.unmount()
    image.mount('ro')
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    refused(t, 1, ['image', 'another place'], '--standalone', '--db', image.directory + '/x.db', '--run-dir', t.dir / 'run', mnt)


@test
def without_rights(t):
    import daemon
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    os.chmod(t.dir, 0o777)

    def attempt():
        done = call(daemon.BIN / 'coteried', '--standalone', '--db', t.dir / 'x.db', '--run-dir', t.dir / 'run', mnt)
        return [done.returncode, done.stderr]
    if not os.access(daemon.BIN, os.X_OK) or as_user(65534, lambda: os.access(daemon.BIN / 'coteried', os.X_OK)) is False:
        from machine import Skip
        raise Skip('%s cannot be reached by another user' % daemon.BIN)
    status, said = as_user(65534, attempt)
    if status == 0:  # fusermount3 lets users mount
        with open(t.dir / 'run' / 'coteried.pid') as f:
            os.kill(int(f.read()), 15)
        return
    eq((status, said.count('\n')), (1, 1), said)
    eq(listing(t.dir), ['mnt'])


@test
def without_fuse(t):
    """In a mount namespace where /dev/fuse is an ordinary empty file."""
    import daemon
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    script = 'mount --bind /dev/null /dev/fuse && exec "$@"'
    done = call('unshare', '--mount', 'sh', '-c', script, 'sh', daemon.BIN / 'coteried', '--standalone', '--db', t.dir / 'x.db', '--run-dir', t.dir / 'run', mnt)
    eq((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
    eq('fuse' in done.stderr.lower(), True, done.stderr)
    eq(listing(t.dir), ['mnt'])
    t.note(done.stderr.strip())


@test
def commands(t):
    import daemon
    run = ['--run-dir', t.dir / 'run']
    refused(t, 3, ['run'], *run, 'status', program='coterie')
    refused(t, 2, ['statsu', '--help'], *run, 'statsu', program='coterie')
    done = call(daemon.BIN / 'coterie', 'check', t.dir / 'no.db')
    eq((done.returncode, done.stderr.count('\n'), 'no.db' in done.stderr), (1, 1, True), done.stderr)
    d = t.daemon()
    done = d.coterie('set', 'sync_level=sometimes', check=False)
    eq((done.returncode != 0, done.stderr.count('\n')), (True, 1), done.stderr)
    done = d.coterie('set', 'no_such_setting=1', check=False)
    eq((done.returncode != 0, done.stderr.count('\n')), (True, 1), done.stderr)
    done = d.coterie('sync', '--chekpoint', check=False)
    eq((done.returncode, done.stderr.count('\n')), (2, 1), done.stderr)


@test
def a_stopped_daemon(t):
    """SIGSTOP: every command, and a second daemon on its mount point, database or run directory, says within seconds what is the matter."""
    import daemon
    import signal
    import time
    d = t.daemon()
    (d.mnt / 'f').write_text('content')
    d.signal(signal.SIGSTOP)
    try:
        for words in (['status'], ['sync', '--checkpoint'], ['set', 'sync_level=none'], ['stop']):
            done = call(daemon.BIN / 'coterie', '--run-dir', d.run_dir, '--timeout', '1', *words)
            eq((done.returncode, done.stdout, done.stderr.count('\n')), (1, '', 1), '%s: %r' % (words, done.stderr))
            eq('no sign of life' in done.stderr, True, done.stderr)
        t.note(done.stderr.strip())
        other = ['--db', t.dir / 'other.db', '--run-dir', t.dir / 'other-run']
        began = time.monotonic()
        refused(t, 1, ['does not answer', 'kill -CONT'], '--standalone', *other, d.mnt)
        t.note('refused after %.1f s' % (time.monotonic() - began))
        (t.dir / 'mnt2').mkdir()
        refused(t, 1, ['tree.db', 'in use'], '--standalone', '--db', d.db, '--run-dir', t.dir / 'other-run', t.dir / 'mnt2')
        refused(t, 1, ['pid %d' % d.pid, 'run directory'], '--standalone', '--db', t.dir / 'other.db', '--run-dir', d.run_dir, d.mnt)
    finally:
        d.signal(signal.SIGCONT)
    eq((d.mnt / 'f').read_text(), 'content')
    eq(d.coterie('--timeout', '1000', 'get', 'sync_level').stdout, 'filesystem\n')
    for bad in ('0', 'x', '-1', '1e3', '99999999'):
        refused(t, 2, ['--timeout', '1 to 86400'], '--timeout', bad, 'status', program='coterie')


@test
def long_paths(t):
    """A reason stands in full behind a path of any length."""
    mnt = t.dir / 'mnt'
    mnt.mkdir()
    deep = t.dir
    while len(str(deep)) < 1500:
        deep = deep / ('d' * 200)
    run = ['--run-dir', t.dir / 'run']
    refused(t, 1, ['No such file or directory'], '--standalone', '--db', deep / 'x.db', *run, mnt)
    refused(t, 1, ['create it with mkdir -p'], '--standalone', '--db', t.dir / 'x.db', *run, deep)
    refused(t, 1, ['which would hide it; give another place'], '--standalone', '--db', mnt / ('d' * 200) / ('e' * 250) / ('f' * 250) / 'x.db', *run, mnt)
    refused(t, 2, ['1 to 90 bytes'], '--standalone', '--db', t.dir / 'x.db', '--run-dir', deep, mnt)


@test
def control_socket_is_for_root(t):
    d = t.daemon()
    sockets = [p for p in d.run_dir.iterdir() if p.is_socket()]
    eq([oct(p.stat().st_mode & 0o777) for p in sockets], [oct(0o600)])


@test
def closed_standard_files(t):
    """What is opened gets the lowest free number: nothing that matters may get those that messages go to."""
    d = t.daemon(start=False)
    for background in (True, False):
        with subprocess.Popen(['sh', '-c', 'exec "$@" <&- >&- 2>&-', 'sh'] + d.command(*([] if background else ['--foreground']))) as started:
            wait_until(lambda: os.path.ismount(d.mnt), 30, 'the mount')
            d.pid = d.read_pid()
            eq([os.readlink('/proc/%d/fd/%d' % (d.pid, fd)) for fd in range(3)], ['/dev/null'] * 3)
            if background:
                eq(started.wait(30), 0)
            d.stop()


@test
def help_and_version(t):
    import daemon
    for program in ('coteried', 'coterie'):
        for flag in ('--help', '--version'):
            done = call(daemon.BIN / program, flag)
            eq((done.returncode, done.stderr), (0, ''), '%s %s' % (program, flag))
            eq(len(done.stdout) > 5, True)
