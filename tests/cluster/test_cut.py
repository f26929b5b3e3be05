"""What a node had applied before it was cut off, and nobody else: kept when it comes back, and done again."""
import ipaddress
import json
import os
import threading
import time

from harness import eq
from machine import Skip

ALL = (1, 2, 3)
TRIES = 10
WRITERS = 8


def cut_while_writing(c):
    """Nobody hears node 1 any more while it writes. What it applied alone is gone when it comes back, is kept there, and can be done again."""
    c.wait_primary(ALL, 30, synced=3)
    # One route is one moment: with two, the message that nobody should have would reach the other one.
    address = c.inside(2, 'ip', '-4', '-o', 'addr', 'show', 'scope', 'global').stdout.split('inet ')[1].split('/')[0]
    others = str(ipaddress.ip_network(address + '/25', strict=False))
    records = []
    for attempt in range(TRIES):
        stop = threading.Event()

        def write(k):
            try:
                for i in range(100000):
                    if stop.is_set():
                        return
                    (c.mnt(1) / ('cut-%d-%d-%d' % (attempt, k, i))).write_text('written %d' % i)
            except OSError:
                pass
        writers = [threading.Thread(target=write, args=(k,)) for k in range(WRITERS)]
        for w in writers:
            w.start()
        time.sleep(0.3)
        c.inside(1, 'ip', 'route', 'add', 'blackhole', others)
        c.wait_not_primary(1, 30)
        stop.set()
        for w in writers:
            w.join()
        c.inside(1, 'ip', 'route', 'del', 'blackhole', others)
        c.wait_primary(ALL, 60, synced=3)
        c.wait_equal()
        records = json.loads(c.coterie(1, 'conflicts', '--json').stdout)
        if records:
            break
    if not records:
        raise Skip('nothing was lost in %d cuts' % TRIES)
    c.notes.append('%d operations kept after %d cuts' % (len(records), attempt + 1))
    eq(c.status(1)['conflicts']['records'], len(records))
    eq({r['node'] for r in records}, {1})
    made = [r for r in records if r['operation'] == 'create']
    for r in made:
        eq([(c.mnt(n) / r['path'][1:]).exists() for n in ALL], [False] * 3, r)
    c.coterie(1, 'conflicts', 'apply', *(r['id'] for r in records))
    for r in made:
        texts = {(c.mnt(n) / r['path'][1:]).read_text() for n in ALL}
        eq(len(texts), 1)
        eq(texts <= {'', 'written ' + os.path.basename(r['path']).split('-')[3]}, True, texts)
    eq(json.loads(c.coterie(1, 'conflicts', '--json').stdout), [])
    c.wait_equal()


TESTS = [(cut_while_writing, 600)]
