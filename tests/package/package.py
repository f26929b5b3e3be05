#!/usr/bin/env python3
"""The packages: lintian finds no error; installed in a copy of this system they run, upgrade and purge; the source tarball builds.

usage: package.py SOURCE WORK      WORK: a directory for the build; exit status 77: nothing to test with
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IN_ROOT = r'''
set -eu
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd "$1"
rm -rf /var/lib/coterie /etc/coterie # of an installation on this machine; here it is a copy
before=$(find /etc /usr /var/lib -xdev \( -path /var/lib/dpkg -o -path /var/lib/systemd -o -path '*/mandb' \) -prune -o -print | sort)
dpkg -i coteried_*.deb coterie_*.deb coterie-doc_*.deb coteried-dbgsym_*.deb coterie-dbgsym_*.deb
coterie --version
coteried --check-config --config /etc/coterie/coterie.conf
for page in 'coterie' 'coteried' 'coterie.conf' 'mount.coterie'; do
        [ -n "$(find /usr/share/man -name "$page.[158].gz")" ]
done
coterie completion bash | cmp - /usr/share/bash-completion/completions/coterie
grep -q 'ExecStart=/usr/sbin/coteried --foreground --config /etc/coterie/coterie.conf' /lib/systemd/system/coterie.service
# A start, an upgrade (the same version again) that keeps a changed configuration, and what was written.
mkdir -p /run/coterie /var/lib/coterie /tmp/mount
if [ -c /dev/fuse ]; then
        mount -t coterie -o standalone,run_dir=/tmp/run /var/lib/coterie/tree.db /tmp/mount
        echo kept >/tmp/mount/file
        echo '# changed' >>/etc/coterie/coterie.conf
        dpkg -i coteried_*.deb coterie_*.deb
        tail -n 1 /etc/coterie/coterie.conf | grep -q '# changed'
        grep -q kept /tmp/mount/file
        coterie --run-dir /tmp/run stop
        coterie check /var/lib/coterie/tree.db
        rm -r /var/lib/coterie/*
else
        echo 'no /dev/fuse: not started'
fi
dpkg --purge coterie-dbgsym coteried-dbgsym coterie coteried coterie-doc
after=$(find /etc /usr /var/lib -xdev \( -path /var/lib/dpkg -o -path /var/lib/systemd -o -path '*/mandb' \) -prune -o -print | sort)
if [ "$before" != "$after" ]; then
        echo 'left behind, or gone:'
        diff <(echo "$before") <(echo "$after")
        exit 1
fi
'''


def run(*argv, **kw):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kw)
    if done.returncode != 0:
        sys.exit('%s: exit %d\n%s%s' % (' '.join(map(str, argv)), done.returncode, done.stdout[-4000:], done.stderr[-4000:]))
    return done.stdout


def lint(packages):
    if not shutil.which('lintian'):
        print('no lintian: not asked')
        return
    print(run('lintian', '--allow-root', '--fail-on', 'error', *packages) or 'lintian says nothing')


def install(work):
    """In an overlay of this system's root, in namespaces of its own: nothing of it is changed."""
    script = work / 'in-root.sh'
    script.write_text(IN_ROOT)
    outer = r'''
set -eu
cd "$1"
mkdir -p over && mount -t tmpfs tmpfs over && mkdir over/upper over/work over/root
mount -t overlay overlay -o lowerdir=/,upperdir=over/upper,workdir=over/work over/root || exit 77
mkdir -p over/root/packages && cp ./*.deb in-root.sh over/root/packages
mount --rbind /dev over/root/dev && mount -t proc proc over/root/proc && mount -t tmpfs tmpfs over/root/run && mount -t tmpfs tmpfs over/root/tmp
chroot over/root bash /packages/in-root.sh /packages
'''
    done = subprocess.run(['unshare', '--mount', '--pid', '--fork', '--kill-child', 'bash', '-c', outer, 'bash', str(work)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode == 77:
        print('no overlay of the root here: not installed')
    elif done.returncode != 0:
        sys.exit('installing: exit %d\n%s%s' % (done.returncode, done.stdout[-6000:], done.stderr[-6000:]))
    else:
        print('installed, started, upgraded, purged: nothing is left')


def build_tarball(work):
    with tempfile.TemporaryDirectory(dir=work) as place:
        run('tar', '-xf', next(work.glob('coterie-*.tar.gz')), '-C', place)
        source = next(Path(place).iterdir())
        run('cmake', '-S', source, '-B', source / 'build', '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF')
        run('ninja', '-C', source / 'build', '-j2')
        print(run(source / 'build' / 'bin' / 'coterie', '--version').strip(), 'from the tarball')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, work = map(Path, sys.argv[1:])
    if os.geteuid() != 0 or not shutil.which('dpkg-deb'):
        print('needs root and dpkg')
        return 77
    run(source / 'tools' / 'package.sh', work)
    packages = sorted(work.glob('*.deb'))
    if [p.name.split('_')[0] for p in packages] != ['coterie-dbgsym', 'coterie-doc', 'coterie', 'coteried-dbgsym', 'coteried']:
        sys.exit('packages: %s' % [p.name for p in packages])
    lint(packages)
    install(work)
    build_tarball(work)
    return 0


if __name__ == '__main__':
    sys.exit(main())
