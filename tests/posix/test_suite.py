"""The families of the POSIX suite, one test each: see suite.py."""
from suite import add

FAMILIES = {  # and how many lines they have at least
    'open': 5000, 'paths': 1900, 'perm': 2800, 'create': 5500, 'link': 500, 'rename': 3000, 'unlink': 120, 'attr': 2900, 'times': 850,
    'xattr': 2900, 'acl': 3300, 'content': 1700, 'suid': 2600, 'dir': 60, 'limits': 650, 'handle': 50, 'lock': 190, 'map': 60,
}

for name, least in FAMILIES.items():
    add(name, least)
