"""One writer, a process of its own (a close that waits for a stopped daemon must not hold up who forks): writer.py DIRECTORY NAME files|register|large LOG.

Until its standard input ends it writes NAME-0, NAME-1, ... or one file NAME again and again (large: 64 KiB each time, without a pause), and notes in LOG what was acknowledged: "+I SECONDS",
or "-I SECONDS ERRNO"."""
import os
import select
import sys
import time

directory, name, mode, log = sys.argv[1:]
i = 0
large = b'x' * 65536 if mode == 'large' else b''
with open(log, 'w', buffering=1) as out:
    while not select.select([0], [], [], 0 if large else 0.005)[0]:
        path = os.path.join(directory, name if mode != 'files' else '%s-%d' % (name, i))
        began = time.monotonic()
        try:
            with open(path, 'wb') as f:
                f.write(large or b'%d' % i)
            out.write('+%d %.3f\n' % (i, time.monotonic() - began))
        except OSError as e:
            out.write('-%d %.3f %d\n' % (i, time.monotonic() - began, e.errno))
        i += 1
