"""Everyday programs on the mount. Each is skipped if it is not installed; --on ext4 shows that the test itself is right."""
import os
import sqlite3
import subprocess
from pathlib import Path

from harness import eq, test
from machine import need_program, run
from workload import difference, snapshot


def sh(t, script, **env):
    done = subprocess.run(['bash', '-euo', 'pipefail', '-c', script], cwd=t.tree, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=100, env={**os.environ, 'HOME': str(t.dir), 'GIT_CONFIG_NOSYSTEM': '1', **env})
    eq((done.returncode, done.stderr), (0, ''), script)
    return done.stdout


def source(t):
    """A tree of all sorts outside the mount."""
    root = t.dir / 'source'
    (root / 'd' / 'empty').mkdir(parents=True)
    (root / 'plain').write_bytes(os.urandom(70000))
    (root / 'd' / 'text').write_text('line\n' * 1000)
    os.link(root / 'plain', root / 'd' / 'hard')
    os.symlink('../plain', root / 'd' / 'soft')
    os.mkfifo(root / 'fifo')
    os.chmod(root / 'd' / 'text', 0o640)
    os.chmod(root / 'd', 0o2750)
    os.chown(root / 'd' / 'text', 11, 12)
    os.setxattr(root / 'plain', 'user.note', b'kept')
    for i, path in enumerate(sorted(root.rglob('*'), reverse=True)):
        os.utime(path, ns=(10**17 + i, 10**17 + i), follow_symlinks=False)
    return root


@test
def cp_archive(t):
    root = source(t)
    sh(t, 'cp -a "$SOURCE" copy', SOURCE=str(root))
    eq(difference(snapshot(t.tree / 'copy'), snapshot(root)), '')


@test
def rsync_archive(t):
    need_program('rsync')
    root = source(t)
    sh(t, 'rsync -aHX "$SOURCE/" copy/', SOURCE=str(root))
    eq(difference(snapshot(t.tree / 'copy'), snapshot(root)), '')
    eq(sh(t, 'rsync -aHX --checksum --itemize-changes "$SOURCE/" copy/', SOURCE=str(root)), '')


@test
def tar_there_and_back(t):
    root = source(t)
    sh(t, 'mkdir copy; tar -C "$SOURCE" --xattrs -cf - . | tar -C copy --xattrs -xpf -', SOURCE=str(root))
    eq(difference(snapshot(t.tree / 'copy'), snapshot(root)), '')
    sh(t, 'tar -C copy -cf "$OUT" .', OUT=str(t.dir / 'out.tar'))
    names = run('tar', '-tf', t.dir / 'out.tar').stdout.split('\n')
    eq(len(names), len(snapshot(root)) + 2)


@test
def git_life(t):
    need_program('git')
    out = sh(t, '''
        git init -q -b main repo; cd repo
        git config user.email a@b; git config user.name n; git config gc.auto 0
        for i in $(seq 30); do echo "line $i" >>file; echo $i >"f$i"; git add .; git commit -q -m "commit $i"; done
        git gc -q --aggressive --prune=now
        git fsck --strict --no-progress
        git checkout -q -b side HEAD~10; git checkout -q main
        cd ..; git clone -q repo clone 2>/dev/null; cd clone
        git rev-list --count HEAD; git status --porcelain | wc -l
        ''')
    eq(out.split(), ['30', '0'])


@test
def sqlite_in_both_modes(t):
    for mode in ('delete', 'wal'):
        path = t.tree / ('%s.db' % mode)
        db = sqlite3.connect(path)
        eq(db.execute('PRAGMA journal_mode=%s' % mode).fetchone()[0], mode)
        db.execute('CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)')
        for i in range(50):
            with db:
                db.execute('INSERT INTO t VALUES (?, ?)', (i, os.urandom(3000)))
        other = sqlite3.connect(path)
        eq(other.execute('SELECT count(*), sum(length(b)) FROM t').fetchone(), (50, 150000))
        eq(other.execute('PRAGMA integrity_check').fetchone()[0], 'ok')
        other.close()
        db.close()


@test
def editors_and_installers(t):
    sh(t, '''
        printf 'a=1\\nb=2\\n' >conf; chmod 640 conf
        sed -i s/a=1/a=9/ conf; test "$(head -1 conf)" = a=9; test "$(stat -c %a conf)" = 640
        install -m 755 -o 3 -g 4 conf installed; test "$(stat -c '%a %u %g' installed)" = '755 3 4'
        install -d -m 700 dir; install -D -m 600 conf x/y/z; test "$(stat -c %a x/y/z)" = 600
        t=$(mktemp -p .); echo new >"$t"; mv "$t" conf; test "$(cat conf)" = new
        cp --reflink=auto --sparse=always conf copied; cmp conf copied
        dd if=/dev/urandom of=dd bs=4k count=30 conv=fsync status=none; test "$(stat -c %s dd)" = 122880
        truncate -s 5000 dd; test "$(wc -c <dd)" = 5000
        seq 5000 >s; sort -r s -o s; test "$(head -1 s)" = 999
        test "$(find . -type f | wc -l)" = 6
        du -s . >/dev/null; df . >/dev/null; ls -laR . >/dev/null; touch -d 1975-01-01 conf
        ln -sf conf link; ln -f conf hard; rm -rf x dir; test "$(readlink link)" = conf
        (flock -n 9; flock -n conf true) 9>lock
        ''')


@test
def python_atomic_replace(t):
    for i in range(100):
        with open(t.tree / 'tmp', 'w') as f:
            f.write('version %d' % i)
            f.flush()
            os.fsync(f.fileno())
        os.replace(t.tree / 'tmp', t.tree / 'file')
        eq(Path(t.tree / 'file').read_text(), 'version %d' % i)


@test(timeout=120)
def copy_of_etc(t):
    eq(os.path.isdir('/etc'), True)
    sh(t, 'cp -a /etc etc')
    changed = difference(snapshot(t.tree / 'etc'), snapshot('/etc'))
    eq(changed, '')
