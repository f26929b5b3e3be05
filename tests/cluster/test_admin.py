"""Nodes that come, go and are renamed, with corosync.conf kept in the tree; nothing of it loses anything."""
import time

from harness import eq

ALL = (1, 2, 3)
CONF = '/etc/corosync/corosync.conf'


def conf(c, node, *words, check=True):
    return c.coterie(node, 'cluster', *words, check=check)


def config_version(c, node):
    return int(c.inside(node, 'corosync-cmapctl', '-g', 'totem.config_version').stdout.split('=')[1])


def fails(done, *words):
    eq(done.returncode != 0, True, done.stdout)
    eq(len(done.stderr.strip().splitlines()), 1, done.stderr)
    for word in words:
        eq(word in done.stderr, True, done.stderr)


def names(c, node):
    return {m['node']: m.get('name') for m in c.status(node)['members']}


def rolled_out(c):
    """Nobody reloads before every member has the new file."""
    c.wait_primary(ALL, 30, synced=3)
    c.write(1, 'kept', 'since the beginning')
    fails(conf(c, 1, 'conf', 'reload', check=False), 'node 1, 2, 3', 'nothing was reloaded')
    conf(c, 1, 'conf', 'put', CONF)
    first = config_version(c, 1) if c.inside(1, 'corosync-cmapctl', '-g', 'totem.config_version', check=False).returncode == 0 else 0
    conf(c, 1, 'conf', 'install')
    conf(c, 3, 'conf', 'install')
    fails(conf(c, 3, 'conf', 'reload', check=False), 'node 2', 'nothing was reloaded')
    conf(c, 2, 'conf', 'install')
    conf(c, 2, 'conf', 'install')  # twice does no harm
    conf(c, 3, 'conf', 'reload')
    c.wait(lambda: all(config_version(c, n) > first for n in ALL), 10, 'every corosync has the new version')
    c.wait_primary(ALL, 10, synced=3)
    bad = c.dir / 'node1/etc/bad.conf'
    text = c.inside(1, 'cat', CONF).stdout
    for old, new, words in (('cluster_name: testcluster', 'cluster_name: another', ['testcluster']), ('nodeid: 3', 'nodeid: 2', ['same id', 'nodeid: 2']),
                            ('nodelist {', 'nodelist', ['neither a section nor a key'])):
        bad.write_text(text.replace(old, new))
        fails(conf(c, 1, 'conf', 'put', '/etc/corosync/bad.conf', check=False), *words)


def renamed(c):
    """Another name in corosync.conf, another host name: the same node."""
    c.wait_primary(ALL, 30, synced=3)
    digest = c.wait_equal()
    conf(c, 1, 'rename', 'node2', 'other.example')
    for n in ALL:
        conf(c, n, 'conf', 'install')
    conf(c, 1, 'conf', 'reload')
    for n in ALL:
        c.wait(lambda: names(c, n)[2] == 'other.example', 10, 'node %d sees the new name: %s' % (n, names(c, n)))
    c.inside(2, 'hostname', 'other.example')
    c.coterie(2, 'stop')
    c.script('start', 2, 'daemon')
    c.wait_primary(ALL, 20, synced=3)
    eq(c.read(2, 'kept'), 'since the beginning')
    eq(c.wait_equal()[1] >= digest[1], True)
    conf(c, 1, 'rename', '2', 'node2')
    fails(conf(c, 1, 'rename', '7', 'x', check=False), 'no node')
    fails(conf(c, 1, 'rename', '2', 'a b', check=False), 'letters')


def removed_and_replaced(c):
    """A node leaves for good; a machine without a database takes its place."""
    c.wait_primary(ALL, 30, synced=3)
    with_three = c.inside(1, 'cat', CONF).stdout
    fails(conf(c, 1, 'remove', '3', check=False), 'still a member')
    conf(c, 3, 'leave')
    c.wait_primary((1, 2), 10, synced=2)
    c.script('kill', 3, 'corosync')
    c.wait(lambda: c.status(1)['cluster']['votes'] == 2, 20, 'corosync saw it go')
    c.wait_primary((1, 2), 10, synced=2)
    conf(c, 1, 'remove', 'node3')
    for n in (1, 2):
        conf(c, n, 'conf', 'install')
    conf(c, 2, 'conf', 'reload')
    c.wait(lambda: c.inside(1, 'corosync-quorumtool', '-s', check=False).stdout.count('Expected votes:   2') == 1, 10, 'two votes are expected')
    c.wait_primary((1, 2), 10, synced=2)
    fails(conf(c, 2, 'leave', check=False), 'fewer than a quorum')
    c.write(1, 'while-two', 'x')

    (c.dir / 'node1/etc/three.conf').write_text(with_three.replace('name: node3', 'name: fresh'))
    conf(c, 1, 'conf', 'put', '/etc/corosync/three.conf')
    for n in (1, 2):
        conf(c, n, 'conf', 'install')
    conf(c, 1, 'conf', 'reload')
    (c.dir / 'node3/etc/corosync.conf').write_text(c.inside(1, 'cat', CONF).stdout)
    c.inside(3, 'sh', '-c', 'rm -f /var/lib/coterie/tree.db*; hostname fresh')
    c.script('start', 3, 'corosync')
    c.script('start', 3, 'daemon')
    took = c.wait_primary(ALL, 30, synced=3)
    eq((c.read(3, 'kept'), c.read(3, 'while-two'), names(c, 1)[3]), ('since the beginning', 'x', 'fresh'))
    c.wait_equal()
    c.notes.append('a new node synced %.2f s after its start' % took)


TESTS = [(rolled_out, 60), (renamed, 60), (removed_and_replaced, 90)]
