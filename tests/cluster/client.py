"""One client of a history: client.py WORKLOAD DIRECTORY NODE LOG.

Until its standard input ends it works in DIRECTORY, the tree of one node, and notes each call in LOG, one JSON list per line:

    [what, node, name, value, begun, ended, epoch, error]

`epoch` is that in which the node was primary when the call had ended, 0 if it was in none; for a read, 0 also if it was in another before. `error` is
"" for success. history.py says what must hold."""
import errno
import json
import os
import select
import sys
import time

workload, directory, node, log_path = sys.argv[1:]
log = open(log_path, 'w', buffering=1)


def path(name):
    return os.path.join(directory, name)


def epoch():
    try:
        with open(path('.coterie/status')) as f:
            status = json.load(f)
        return status['adopted'] if status['primary'] else 0
    except (OSError, ValueError):
        return 0


def note(what, name, value, call, watched=False):
    """Makes the call and notes it. A read is watched: it counts for an epoch only if that was so before, too."""
    before = epoch() if watched else None
    begun, error = time.monotonic(), ''
    try:
        got = call()
        value = got if got is not None else value
    except OSError as e:
        error = errno.errorcode.get(e.errno, str(e.errno))
    ended, after = time.monotonic(), epoch()
    log.write(json.dumps([what, int(node), name, value, begun, ended, after if before in (None, after) else 0, error]) + '\n')
    if error not in ('', 'EEXIST'):
        time.sleep(0.02)
    return error == ''


def put(name, value, mode='w', durable=False):
    with open(path(name), mode) as f:
        f.write(value)
        if durable:
            f.flush()
            os.fsync(f.fileno())


def get(name):
    with open(path(name)) as f:
        return f.read()


def files(i):
    note('write', 'files-%s-%d' % (node, i), str(i), lambda: put('files-%s-%d' % (node, i), str(i)))


def fsynced(i):
    note('fsync', 'synced-%s-%d' % (node, i), str(i), lambda: put('synced-%s-%d' % (node, i), str(i), durable=True))


def register(i, name='register', replace=False):
    value = '%s.%08d' % (node, i)

    def renamed():
        put('.%s-%s' % (name, node), value)
        os.rename(path('.%s-%s' % (name, node)), path(name))
    note('write', name, value, renamed if replace else lambda: put(name, value))
    note('read', name, None, lambda: get(name), watched=True)


def own_register(i):
    register(i, 'register-' + node)
    for other in '123':
        note('read', 'register-' + other, None, lambda: get('register-' + other), watched=True)


def replaced(i):
    register(i, 'replaced', replace=True)


def entries(i):
    name = 'entries/%s-%d' % (node, i)
    if i == 0:
        try:
            os.makedirs(path('entries'), exist_ok=True)
        except OSError:
            pass
    note('create', name, None, lambda: os.mkdir(path(name)))
    if i >= 3:
        note('remove', 'entries/%s-%d' % (node, i - 3), None, lambda: os.rmdir(path('entries/%s-%d' % (node, i - 3))))
    note('list', 'entries', None, lambda: sorted(os.listdir(path('entries'))), watched=True)


def append(i):
    note('append', 'appended', '%s.%d' % (node, i), lambda: put('appended', '%s.%d\n' % (node, i), 'a'))


def claims(i):
    """All nodes try to make the same directory at the same time: a lock that is never given back."""
    name = 'claims/%d' % int(time.monotonic() * 50)
    if i == 0:
        try:
            os.makedirs(path('claims'), exist_ok=True)
        except OSError:
            pass
    note('claim', name, None, lambda: os.mkdir(path(name)))
    time.sleep(max(0, 0.02 - time.monotonic() % 0.02))


WORKLOADS = {'files': files, 'fsynced': fsynced, 'own_register': own_register, 'register': register, 'replaced': replaced, 'entries': entries,
             'append': append, 'claims': claims}

if __name__ == '__main__':
    n = 0
    while not select.select([0], [], [], 0.002)[0]:
        WORKLOADS[workload](n)
        n += 1
