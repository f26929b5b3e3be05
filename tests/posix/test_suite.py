"""The families of the POSIX suite, one test each: see suite.py."""
from harness import eq, test
from suite import add, differences

FAMILIES = {  # and how many lines they have at least
    'open': 5000, 'paths': 1900, 'perm': 2800, 'create': 5500, 'link': 500, 'rename': 3000, 'unlink': 120, 'attr': 2900, 'times': 850,
    'xattr': 2900, 'acl': 3300, 'content': 1700, 'suid': 2600, 'dir': 60, 'limits': 650, 'handle': 50, 'lock': 190, 'map': 60,
}

for name, least in FAMILIES.items():
    add(name, least)


@test(needs_fuse=False)
def a_difference_is_noticed(t):
    ext4 = [['f: chmod', 'ok'], ['f: . it', 'file 0600'], ['f: . it', 'file 0644']]
    eq(differences(ext4, ext4), [])
    eq(differences(ext4, [['f: chmod', 'EPERM'], ['f: . it', 'file 0600'], ['f: . it', 'file 0600']]),
       ['chmod | chmod | ok -> EPERM', 'chmod | it | file 0644 -> file 0600'])
    for other in (ext4[:2], ext4[:1] + [['f: other', 'ok']] + ext4[2:]):
        try:
            differences(ext4, other)
        except AssertionError:
            continue
        raise AssertionError('taken for the same: %r' % other)
