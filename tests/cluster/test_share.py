"""Three nodes share one tree: what one has written is there for the others when the call has returned."""
import os

from cluster import NO_QUORUM
from harness import at_most, eq

ALL = (1, 2, 3)
ROUNDS = int(os.environ.get('COTERIE_ROUNDS', '200'))  # eight observations each


def up(c):
    """Writable on all nodes within 25 s, from nothing."""
    c.down()
    took = c.up()
    at_most(took, 25, 'seconds until three nodes were writable')
    c.wait_primary(ALL, 10, synced=3)
    for n in ALL:
        s = c.status(n)
        eq(s['mode'], 'cluster')
        eq((s['cluster']['node'], s['cluster']['quorate'], s['cluster']['votes'], s['cluster']['votes_needed']), (n, True, 3, 2))
        eq(sorted(m['name'] for m in s['members']), ['node1', 'node2', 'node3'])
        lines = c.coterie(n, 'members').stdout.splitlines()
        eq([line.split()[3] for line in lines[1:]], ['synced'] * 3)
    c.notes.append('up in %.1f s' % took)


def everything_is_shared(c):
    """Each kind of change, made on one node, is seen on the others at once."""
    for n in ALL:
        here, others = c.mnt(n), [c.mnt(m) for m in ALL if m != n]
        d = 'from-%d' % n
        os.mkdir(here / d, 0o750)
        (here / d / 'file').write_text('content of %d\n' % n)
        os.chmod(here / d / 'file', 0o640)
        os.chown(here / d / 'file', 12, 34)
        os.utime(here / d / 'file', ns=(5, -7))
        os.symlink('file', here / d / 'link')
        os.link(here / d / 'file', here / d / 'hard')
        os.mkfifo(here / d / 'fifo')
        os.setxattr(here / d / 'file', 'user.note', b'x' * 100)
        (here / d / 'large').write_bytes(bytes(range(256)) * 4096)
        for o in others:
            st = os.stat(o / d / 'file')
            eq((st.st_mode & 0o7777, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_nlink, st.st_size), (0o640, 12, 34, -7, 2, 13))
            eq((o / d / 'link').read_text(), 'content of %d\n' % n)
            eq(os.getxattr(o / d / 'file', 'user.note'), b'x' * 100)
            eq((o / d / 'large').read_bytes(), bytes(range(256)) * 4096)
            eq(sorted(os.listdir(o / d)), ['fifo', 'file', 'hard', 'large', 'link'])
            eq(os.stat(o / d).st_mode & 0o7777, 0o750)
        os.rename(here / d, here / (d + '-new'))
        os.unlink(here / (d + '-new') / 'fifo')
        for o in others:
            eq(os.path.exists(o / d), False)
            eq(os.path.exists(o / (d + '-new') / 'fifo'), False)
        with open(here / (d + '-new') / 'log', 'a') as f:
            f.write('one\n')
        for o in others:
            with open(o / (d + '-new') / 'log', 'a') as f:
                f.write('more\n')
        eq((here / (d + '-new') / 'log').read_text(), 'one\nmore\nmore\n')
    c.wait_equal()


def nothing_is_stale(c):
    """A change is seen by whoever looks after the call that made it has returned, also where the kernel had cached the old state."""
    count = stale = 0
    first = []

    def look(what, got, wanted):
        nonlocal count, stale
        count += 1
        if got != wanted:
            stale += 1
            first.append('%s: got %r, wanted %r' % (what, got, wanted))
    c.write(1, 'f', 'x' * 10)
    for n in ALL:
        os.mkdir(c.mnt(n) / ('dir%d' % n))
    for i in range(ROUNDS):
        writer = i % 3 + 1
        here, others = c.mnt(writer), [c.mnt(n) for n in ALL if n != writer]
        for o in others:  # cached
            os.stat(o / 'f'), (o / 'f').read_bytes(), os.listdir(o / ('dir%d' % writer)), os.path.exists(o / 'name')
        text = ('%d %d\n' % (i, writer)) * (1 + i % 50)
        if i % 2:
            (here / 'f').write_text(text)
        else:
            (here / 'f.new').write_text(text)
            os.rename(here / 'f.new', here / 'f')
        for o in others:
            look('size', os.stat(o / 'f').st_size, len(text))
            look('content', (o / 'f').read_text(), text)
        (here / ('dir%d' % writer) / str(i)).touch()
        for o in others:
            look('listing', str(i) in os.listdir(o / ('dir%d' % writer)), True)
        if i % 2:
            (here / 'name').touch()
        elif os.path.exists(here / 'name'):
            os.unlink(here / 'name')
        for o in others:
            look('name', os.path.exists(o / 'name'), bool(i % 2))
    c.notes.append('%d stale of %d observations' % (stale, count))
    eq(stale, 0, first[0] if first else '')
    c.wait_equal()


def sync_reaches_all(c):
    """`coterie sync` returns when all members have it on the medium."""
    c.write(2, 'synced', 'x')
    eq(c.coterie(2, 'sync').returncode, 0)
    s = c.status(2)
    for m in s['members']:
        eq(m['flushed_sequence'] >= s['stable_sequence'] - 1, True, 'node %d: %s' % (m['node'], s['members']))


def one_of_three_is_no_quorum(c):
    """A node alone serves reads; what needs a quorum says so, with its own exit code."""
    c.write(1, 'before', 'x')
    c.script('partition', '1', '2,3')
    c.wait_not_primary(1, 20)
    c.wait(lambda: c.is_refused(1), 10, 'EROFS')
    eq(c.read(1, 'before'), 'x')
    done = c.coterie(1, 'set', 'file_size_max=1M', check=False)
    eq(done.returncode, NO_QUORUM, done.stderr)
    eq('read-only' in done.stderr and 'quorum' in done.stderr, True, done.stderr)
    c.script('heal')
    c.wait_primary(ALL, 20, synced=3)
    c.wait_equal()


TESTS = [(up, 60), (everything_is_shared, 60), (nothing_is_stale, 60 + ROUNDS), (sync_reaches_all, 30), (one_of_three_is_no_quorum, 60)]
