"""System calls that Python does not offer."""
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x400, 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO = 1, 2, 8, 16
MS_MOVE, MNT_DETACH = 8192, 2


def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, '%s: %s' % (name, os.strerror(number)))
    return result


def raw(path):
    return os.fsencode(path)


def renameat2(old, new, flags):
    call('renameat2', AT_FDCWD, raw(old), AT_FDCWD, raw(new), ctypes.c_uint(flags))


def link_fd(fd, path):
    """Gives a name to an open file, as for O_TMPFILE."""
    call('linkat', AT_FDCWD, b'/proc/self/fd/%d' % fd, AT_FDCWD, raw(path), AT_SYMLINK_FOLLOW)


def fallocate(fd, mode, offset, length):
    call('fallocate', fd, ctypes.c_int(mode), ctypes.c_long(offset), ctypes.c_long(length))


def as_user(uid, function, gid=None, groups=()):
    """Runs the function as another user, in a child; its exception comes back (OSError with errno, others as text)."""
    import json
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = {}
        try:
            os.setgroups(list(groups))
            os.setresgid(*[uid if gid is None else gid] * 3)
            os.setresuid(uid, uid, uid)
            answer['value'] = function()
        except OSError as e:
            answer['errno'] = e.errno
        except BaseException as e:
            answer['text'] = repr(e)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        answer = json.loads(f.read() or '{"text": "child died"}')
    os.waitpid(pid, 0)
    if 'errno' in answer:
        raise OSError(answer['errno'], os.strerror(answer['errno']))
    if 'text' in answer:
        raise AssertionError(answer['text'])
    return answer.get('value')
