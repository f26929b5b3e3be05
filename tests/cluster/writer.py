"""One writer, a process of its own (a close that waits for a stopped daemon must not hold up who forks): writer.py DIRECTORY NAME files|register LOG.

Until its standard input ends it writes NAME-0, NAME-1, ... or one file NAME again and again, and notes in LOG what was acknowledged: "+I SECONDS",
or "-I SECONDS ERRNO"."""
import os
import select
import sys
import time

directory, name, mode, log = sys.argv[1:]
i = 0
with open(log, 'w', buffering=1) as out:
    while not select.select([0], [], [], 0.005)[0]:
        path = os.path.join(directory, name if mode == 'register' else '%s-%d' % (name, i))
        began = time.monotonic()
        try:
            with open(path, 'w') as f:
                f.write('%d' % i)
            out.write('+%d %.3f\n' % (i, time.monotonic() - began))
        except OSError as e:
            out.write('-%d %.3f %d\n' % (i, time.monotonic() - began, e.errno))
        i += 1
