"""Everyday programs that copy, archive and keep whole trees, on the mount: what they made is there, and again after a restart of the daemon.

Each is skipped if it is not installed; --on ext4 shows that the test itself is right. Programs that edit single files: test_editing.py."""
import os
import sqlite3
from pathlib import Path

from harness import eq, test
from machine import need_program, run
from programs import and_after_a_restart, sh
from workload import difference, snapshot


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
    run('setfacl', '-m', 'u:13:rw,g:14:r', root / 'plain')
    run('setfacl', '-d', '-m', 'u:13:rwx', root / 'd')
    for i, path in enumerate(sorted(root.rglob('*'), reverse=True)):
        os.utime(path, ns=(10**17 + i, 10**17 + i), follow_symlinks=False)
    return root


def acls(root):
    return sorted(run('getfacl', '-R', '-p', '-n', '.', cwd=root).stdout.split('\n\n'))


def same_as(t, copy, root):
    def verify():
        eq(difference(snapshot(copy), snapshot(root)), '')
        eq(acls(copy), acls(root), 'ACLs')
    and_after_a_restart(t, verify)


@test
def cp_archive(t):
    need_program('setfacl')
    root = source(t)
    sh(t, 'cp -a "$SOURCE" copy', SOURCE=str(root))
    same_as(t, t.tree / 'copy', root)


@test
def rsync_archive(t):
    need_program('rsync', 'setfacl')
    root = source(t)
    sh(t, 'rsync -aHAX "$SOURCE/" copy/', SOURCE=str(root))
    same_as(t, t.tree / 'copy', root)
    eq(sh(t, 'rsync -aHAX --checksum --itemize-changes "$SOURCE/" copy/', SOURCE=str(root)), '')


@test
def tar_there_and_back(t):
    need_program('setfacl')
    root = source(t)
    sh(t, 'mkdir copy; tar -C "$SOURCE" --xattrs --acls -cf - . | tar -C copy --xattrs --acls -xpf -', SOURCE=str(root))
    same_as(t, t.tree / 'copy', root)
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
    and_after_a_restart(t, lambda: eq(sh(t, '''
        for r in repo clone; do git -C $r fsck --strict --no-progress; git -C $r status --porcelain; git -C $r rev-list --count HEAD; done
        cd repo; git checkout -q side; git rev-list --count HEAD; git checkout -q main
        ''').split(), ['30', '30', '20']))


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

    def verify():
        for mode in ('delete', 'wal'):
            db = sqlite3.connect(t.tree / ('%s.db' % mode))
            eq(db.execute('SELECT count(*), sum(length(b)) FROM t').fetchone(), (50, 150000))
            eq(db.execute('PRAGMA integrity_check').fetchone()[0], 'ok')
            db.close()
    and_after_a_restart(t, verify)


@test(timeout=120)
def copy_of_etc(t):
    eq(os.path.isdir('/etc'), True)
    sh(t, 'cp -a /etc etc')
    and_after_a_restart(t, lambda: eq(difference(snapshot(t.tree / 'etc'), snapshot('/etc')), ''))


@test
def find_du_df(t):
    sh(t, '''
        mkdir -p a/b/c; for i in $(seq 40); do echo $i >a/b/file$i; done; ln -s x a/link; mkfifo a/b/c/fifo
        dd if=/dev/urandom of=a/big bs=64k count=16 status=none; touch -d 2001-02-03 a/b/file7; chmod 4755 a/b/file8; ln a/big a/b/big2
        ''')

    def verify():
        eq(sh(t, 'find . -type f | wc -l; find . -type d | wc -l; find . -name "file1*" | wc -l; find . ! -newermt 2002-01-01 -type f; '
                 'find . -perm -4000; find . -samefile a/big | sort; find . -type p; find a -maxdepth 1 -type l; find . -size +500k | sort').split(),
           ['42', '4', '11', './a/b/file7', './a/b/file8', './a/b/big2', './a/big', './a/b/c/fifo', 'a/link', './a/b/big2', './a/big'])
        eq(sh(t, 'du -s --apparent-size --block-size=1M a/big; du -s --inodes a').split(), ['1', 'a/big', '46', 'a'])
        eq(int(sh(t, 'df --output=avail -B1 . | tail -1')) > 0, True)
    and_after_a_restart(t, verify)
    eq(sh(t, 'find a -delete; ls').split(), [])


@test
def etckeeper_life(t):
    """Not among the packages that tools/install-packages.sh installs: installing it puts the machine's own /etc under version control."""
    need_program('etckeeper', 'git')
    sh(t, '''
        mkdir etc; echo one >etc/conf; mkdir etc/empty; chmod 600 etc/conf
        export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=a@b
        etckeeper init -d "$PWD/etc" >/dev/null 2>&1; etckeeper commit -d "$PWD/etc" first >/dev/null
        echo two >etc/conf; etckeeper commit -d "$PWD/etc" second >/dev/null
        ''')
    and_after_a_restart(t, lambda: eq(sh(t, '''
        cd etc; git rev-list --count HEAD; git show HEAD:conf; git fsck --no-progress --no-dangling; etckeeper unclean -d "$PWD" || echo clean
        ''').split(), ['2', 'two', 'clean']))
