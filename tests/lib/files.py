"""Small helpers of tests about files."""
import os
import stat


def put(path, content=b'', mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    return path


def get(path):
    with open(path, 'rb') as f:
        return f.read()


def tree_of(root):
    """Everything a stat tells, names, contents and xattrs, as a dictionary."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in names + files + ['.']:
            path = os.path.join(directory, name)
            st = os.lstat(path)
            entry = [st.st_ino, st.st_mode, st.st_nlink, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_atime_ns,
                     st.st_rdev, st.st_blocks]
            if stat.S_ISREG(st.st_mode):
                entry += [get(path), {x: os.getxattr(path, x) for x in os.listxattr(path)}]
            elif stat.S_ISLNK(st.st_mode):
                entry.append(os.readlink(path))
            found[os.path.relpath(path, root)] = entry
    return found
