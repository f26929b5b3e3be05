"""Where the mount may differ from ext4, and why. Each pattern is searched in "FAMILY: CHECK | NAME | EXT4's RESULT -> THE MOUNT's";
one that matches nothing any more is an error."""

ACCEPTED = [
    (r'^content: fallocate (COLLAPSE|INSERT)_RANGE .* \| (EINVAL|ok) -> EOPNOTSUPP$',
     'ranges are neither collapsed nor inserted: whoever tries has a way around, as most filesystems want it'),
    (r'^content: fallocate (COLLAPSE|INSERT)_RANGE .* \| content \| ',
     'the content after it'),
    (r'^content: SEEK_SET to the largest \| .* \| EINVAL -> ok$',
     'the kernel asks no FUSE filesystem for its largest offset; writing there gives EFBIG'),
    (r'^link: linkat by /proc of PATH \| without a name \| file .* -> ESTALE$',
     'an O_PATH descriptor is not known to the daemon: it does not keep a file without a name alive'),
    (r'^suid: by_(write|pwrite_end|writev|append|f?truncate\w*|open_trunc|copy|sendfile|fallocate\w*|punch|zero) on 0[26]\d[0246]\d by stranger '
     r'\| (at once|closed) \| file 0(\d\d\d) .* -> file 2\3 ',
     'setgid without group execution permission is no privilege; the kernel does not tell a FUSE daemon whether the writer is of the group'),
    (r'^(suid: by_chown_same on|attr: chown -1:-1 of) .* (member|stranger) \| .* \| EPERM -> ok$',
     'a chown(2) that changes neither owner nor group by somebody who may not: the kernel does not say what it would be refused for; nothing changes'),
]
