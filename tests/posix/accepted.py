"""Where the mount may differ from ext4, and why, by family. Each pattern is searched in "CHECK | NAME | EXT4's RESULT -> THE MOUNT's"; one that
matches nothing any more is an error."""

ACCEPTED = {
    'content': [
        (r'^fallocate (COLLAPSE|INSERT)_RANGE .* \| (EINVAL|ok) -> EOPNOTSUPP$',
         'ranges are neither collapsed nor inserted: whoever tries has another way, as few filesystems do it'),
        (r'^fallocate (COLLAPSE|INSERT)_RANGE .* \| content \| ',
         'the content after it'),
        (r'^SEEK_SET to the largest \| .* \| EINVAL -> ok$',
         'the kernel asks no FUSE filesystem for its largest offset; writing there gives EFBIG'),
    ],
    'suid': [
        (r'^by_\w+ on 0[26]\d[0246]\d by stranger \| (at once|closed) \| file 0(\d\d\d) .* -> file 2\2 ',
         'setgid without group execution permission is no privilege; the kernel does not tell a FUSE daemon whether the writer is of the group'),
        (r'^by_chown_same on .* (member|stranger) \| .* \| EPERM -> ok$',
         'a chown(2) that changes neither owner nor group, by somebody who may not: the kernel does not say what was asked; nothing changes'),
    ],
    'attr': [
        (r'^chown -1:-1 of .* (member|stranger) \| .* \| EPERM -> ok$',
         'the same'),
    ],
}
