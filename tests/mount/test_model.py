"""Random operations on the mount and on ext4: the same answers, the same tree; also after a restart and a checkpoint."""
import os
from pathlib import Path

from harness import eq, test
from workload import Generator, carry_out, difference, snapshot

ROUNDS = int(os.environ.get('COTERIE_MODEL_OPERATIONS', '4000'))


@test(timeout=240)
def random_operations_as_on_ext4(t):
    model = Path(t.image('reference', 1 << 29).directory) / 'tree'
    model.mkdir()
    tree = t.tree
    d = t.daemons[0] if t.daemons else None
    for seed in range(4):
        generator = Generator(seed, size_max=300000 if seed == 3 else 40000, barriers=True)
        for i in range(ROUNDS // 4):
            op = generator.next()
            eq(carry_out(tree, op), carry_out(model, op), 'seed %d, operation %d %r' % (seed, i, op))
            if i % 100 == 99:
                eq(difference(snapshot(tree), snapshot(model)), '', 'seed %d, after operation %d' % (seed, i))
        if not d:
            continue
        if seed == 1:
            d.sync(checkpoint=True)
        d.stop()
        eq(d.check().returncode, 0, 'coterie check')
        d.start()
        eq(difference(snapshot(tree), snapshot(model)), '', 'seed %d, after a restart' % seed)
