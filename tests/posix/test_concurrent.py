"""Several processes at once, on one node: appends are whole and none is lost, O_EXCL has one winner, and a file that is replaced by rename is
never seen torn or missing, be it read or mapped, small or of a MiB and more. The same on ext4 (run.py --on ext4)."""
import mmap
import multiprocessing
import os
import random
import struct
import zlib

from harness import at_least, eq, test

ROUNDS = int(os.environ.get('COTERIE_CONCURRENT_ROUNDS', '300'))
Process = multiprocessing.get_context('fork').Process


def together(*works):
    """Runs each (function, arguments...) in a process of its own; all must end well."""
    processes = [Process(target=f, args=a) for f, *a in works]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    eq([p.exitcode for p in processes], [0] * len(processes), 'exit codes')


def line_of(writer, i):
    return b'writer %d line %d %s end\n' % (writer, i, b'.' * ((writer * 371 + i * 13) % 6000))


def append_lines(path, writer):
    held = os.open(path, os.O_WRONLY | os.O_APPEND)
    for i in range(ROUNDS):
        line = line_of(writer, i)
        if i % 3 == 0:  # opened and closed for each, as a shell's >> does
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            eq(os.write(fd, line), len(line))
            os.close(fd)
        else:
            eq(os.write(held, line), len(line))
        if i % 50 == 0:
            os.fsync(held)
    os.close(held)


@test(timeout=120)
def appends_are_whole(t):
    path = t.tree / 'log'
    path.touch()
    together(*[(append_lines, path, w) for w in range(4)])
    lines = path.read_bytes().splitlines(keepends=True)
    eq(len(lines), 4 * ROUNDS)
    eq(sorted(lines) == sorted(line_of(w, i) for w in range(4) for i in range(ROUNDS)), True, 'each line whole, each once')
    for w in range(4):
        own = [x for x in lines if x.startswith(b'writer %d ' % w)]
        eq(own == [line_of(w, i) for i in range(ROUNDS)], True, 'in the order of writer %d' % w)


def create_all(directory, me):
    won = 0
    for i in range(ROUNDS):
        try:
            fd = os.open(directory / ('lock-%d' % i), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        os.write(fd, b'%d' % me)
        os.close(fd)
        won += 1
        if i % 2:
            os.link(directory / ('lock-%d' % i), directory / ('won-%d-%d' % (me, i)))
        else:
            os.mkdir(directory / ('won-%d-%d' % (me, i)))
    (directory / ('sum-%d' % me)).write_text(str(won))


@test(timeout=120)
def exclusive_create_has_one_winner(t):
    together(*[(create_all, t.tree, me) for me in range(4)])
    won = [int((t.tree / ('sum-%d' % me)).read_text()) for me in range(4)]
    eq(sum(won), ROUNDS)
    for me in range(4):
        eq(sum((t.tree / ('lock-%d' % i)).read_text() == str(me) for i in range(ROUNDS)), won[me])
        eq(sum(n.startswith('won-%d-' % me) for n in os.listdir(t.tree)), won[me])


SIZES = (100, 5000, 70000, 1 << 20, (1 << 20) + 4097)


def version(i):
    """Bytes that say what they are: number, size, checksum of the rest."""
    body = random.Random(i).randbytes(SIZES[i % len(SIZES)])
    return struct.pack('<QQI', i, len(body), zlib.crc32(body)) + body


def check_version(data):
    i, size, crc = struct.unpack_from('<QQI', data)
    if len(data) != 20 + size or zlib.crc32(memoryview(data)[20:]) != crc:
        raise AssertionError('torn: version %d of %d bytes, %d there' % (i, size, len(data) - 20))
    return i


def replace_all(path, done):
    for i in range(1, ROUNDS + 1):
        tmp = path.with_name('tmp')
        with open(tmp, 'wb') as f:
            f.write(version(i))
            if i % 20 == 0:
                os.fsync(f.fileno())
        os.rename(tmp, path)
    done.touch()


def read_all(path, done, mapped, report):
    last = count = 0
    while not done.exists():
        fd = os.open(path, os.O_RDONLY)
        size = os.fstat(fd).st_size
        if mapped:
            with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
                i = check_version(bytes(m))
        else:
            data = b''
            while piece := os.read(fd, 65536):
                data += piece
            i = check_version(data)
        os.close(fd)
        if i < last:
            raise AssertionError('went back from version %d to %d' % (last, i))
        last, count = i, count + 1
    report.write_text(str(count))


@test(timeout=120)
def replaced_files_are_never_torn(t):
    path, done = t.tree / 'file', t.dir / 'done'
    path.write_bytes(version(0))
    reports = [t.dir / ('report-%d' % k) for k in range(2)]
    together((replace_all, path, done), *[(read_all, path, done, k == 1, r) for k, r in enumerate(reports)])
    counts = [int(r.read_text()) for r in reports]
    at_least(min(counts), 10, 'reads while it was replaced')
    eq(check_version(path.read_bytes()), ROUNDS)
    t.note('%d reads, %d maps of %d versions' % (*counts, ROUNDS))
